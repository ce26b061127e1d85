//! Tables of what an RDMA device was asked for.

use super::report::{Report, Row};
use printing::table::Columns;
use printing::work::Work;
use std::io::{Result, Write};

type Count = fn(&Work) -> f64;

/// Work of the client's device per call. The work of the server's device does not depend on the design.
const COUNTS: [(&str, Count); 7] = [
    ("Sends", |work| work.sends),
    ("windows bound", |work| work.binds),
    ("registrations", |work| work.registrations),
    ("local invalidations", |work| work.local_invalidations),
    ("remote invalidations", |work| work.remote_invalidations),
    ("doorbells", |work| work.doorbells),
    ("completions", |work| work.completions),
];

/// Designs in a row whose counts are the same for the same calls.
struct Group<'a> {
    row: &'a Row,
    designs: Vec<&'static str>,
    counts: Vec<String>,
    /// Medians of the time, as a part of that without a design.
    times: Vec<f64>,
}

impl<'a> Group<'a> {
    /// None if the row is not of a device.
    fn new(row: &'a Row) -> Option<Self> {
        let work = row.client_work.as_ref()?;
        Some(Self {
            row,
            designs: vec![row.design],
            counts: COUNTS
                .map(|(_, count)| format!("{:.2}", count(work)))
                .into(),
            times: row.of_none.iter().map(|time| time.median).collect(),
        })
    }

    fn has(&self, other: &Self) -> bool {
        let calls = |row: &Row| (row.traffic, row.memory, row.stags, row.payload);
        calls(self.row) == calls(other.row) && self.counts == other.counts
    }

    /// Lowest and highest median of the time.
    fn time(&self) -> String {
        let shown = |time: f64| format!("{time:.2}");
        let low = self.times.iter().copied().reduce(f64::min).map(shown);
        let high = self.times.iter().copied().reduce(f64::max).map(shown);
        match low.zip(high) {
            None => "-".to_owned(),
            Some((low, high)) if low == high => low,
            Some((low, high)) => format!("{low}-{high}"),
        }
    }
}

/// The rows of a device, without those that differ by design and time alone.
fn groups<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows.into_iter().filter_map(Group::new) {
        match groups.iter_mut().find(|group| group.has(&row)) {
            Some(group) => {
                group.designs.extend(row.designs);
                group.times.extend(row.times);
            }
            None => groups.push(row),
        }
    }
    groups
}

impl Report {
    /// The table for people, if a device was measured.
    pub(super) fn print_devices(&self, out: &mut impl Write) -> Result<()> {
        let groups = groups(self.rows(|_| true));
        if groups.is_empty() {
            return Ok(());
        }
        let mut table = Columns::new(&[0, 1, 4]);
        let heads = COUNTS.map(|(name, _)| name);
        let begin = ["traffic", "memory", "stags", "bytes", "designs"];
        table.add([&begin[..], &heads, &["of none"]].concat());
        for group in &groups {
            let Row { stags, payload, .. } = group.row;
            let mut cells = vec![
                group.row.traffic.to_owned(),
                group.row.memory.name().to_owned(),
                stags.to_string(),
                payload.to_string(),
                group.designs.join(", "),
            ];
            cells.extend_from_slice(&group.counts);
            cells.push(group.time());
            table.add(cells);
        }
        write!(out, "\nwork of the client's device per call\n{table}")
    }

    /// The same in Markdown.
    pub(super) fn devices_in_markdown(&self, out: &mut impl Write) -> Result<()> {
        let groups = groups(self.rows(|_| true));
        if groups.is_empty() {
            return Ok(());
        }
        let heads = COUNTS.map(|(name, _)| name).join(" | ");
        writeln!(
            out,
            "| traffic | memory | STags | bytes | designs | {heads} | time |"
        )?;
        writeln!(
            out,
            "|---|---|--:|--:|---|{}--:|",
            "--:|".repeat(COUNTS.len())
        )?;
        for group in &groups {
            let Row {
                traffic,
                memory,
                stags,
                payload,
                ..
            } = group.row;
            let designs: Vec<_> = group
                .designs
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            writeln!(
                out,
                "| {traffic} | {} | {stags} | {payload} | {} | {} | {} |",
                memory.name(),
                designs.join(", "),
                group.counts.join(" | "),
                group.time()
            )?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invalidation::cases::{Case, ProviderName};
    use crate::invalidation::report::Runs;
    use crate::model::{Counts, Outcome};
    use rpcrdma::IoCounters;
    use rpcrdma_proto::Counters;
    use std::time::Duration;
    use verbs_sim::Costs;

    /// A run of ten calls, for each of which the client invalidated so many handles.
    fn run(local_invalidations: u64, micros: u64) -> Runs {
        let mut io = [IoCounters::default(); 2];
        io[0].work.sends = 10;
        io[0].work.local_invalidations = 10 * local_invalidations;
        let outcome = Outcome {
            calls: 10,
            counts: [Counts::default(); 2],
            wakeups: [0, 0],
            io,
            client: Counters::default(),
            latencies: vec![(0, Duration::from_micros(micros))],
        };
        Runs {
            usual: vec![outcome],
            reordered: Vec::new(),
        }
    }

    fn rows(provider: ProviderName) -> Vec<Row> {
        let case = Case::all(provider, &[8192], Duration::ZERO, Costs::default())[0];
        let none = run(1, 200);
        let row = |design, run| Row::new(design, &case, &run, Some(&none));
        vec![
            row("none", run(1, 200)),
            row("fixed", run(0, 100)),
            row("per_call", run(0, 120)),
        ]
    }

    #[test]
    fn designs_with_the_same_counts_share_a_row_with_the_range_of_their_times() {
        let rows = rows(ProviderName::Verbs);
        let groups = groups(&rows);
        let shown = groups.iter().map(|group| {
            let counts = (group.counts[0].as_str(), group.counts[3].as_str());
            (group.designs.as_slice(), counts, group.time())
        });
        let expected = [
            (&["none"][..], ("1.00", "1.00"), "1.00".to_owned()),
            (
                &["fixed", "per_call"],
                ("1.00", "0.00"),
                "0.50-0.60".to_owned(),
            ),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn model_has_no_device() {
        let rows = rows(ProviderName::Sim);
        assert!(groups(&rows).is_empty());
    }
}
