//! Sums over a mix, and how they are shown.

use super::timed::Times;
use super::{Bound, Call, Cost, Form, distinct, kinds};
use crate::model::{Assumptions, ModelArgs};
use crate::plot::{Axis, Figure, Line, Panel, Reach, Scale, Series, Unit, YAxis};
use anyhow::{Context, Result};
use printing::table::Columns;
use printing::units::size;
use rpcrdma::ClientConfig;
use serde::Serialize;
use std::io::Write;

/// All that was counted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// Calls in flight at a time, each with a Receive of the threshold's size at either end.
    credits: u32,
    /// Assumptions of the times: calls one at a time, one handle of each invalidated by the server.
    model: Assumptions,
    /// Each version, knowledge of replies and threshold, over all calls of the version.
    pub(super) results: Vec<Counts>,
    /// The same of each part of the work.
    pub(super) parts: Vec<Counts>,
    /// Times of usual calls at each threshold.
    pub(super) kinds: Vec<Kind>,
}

/// One usual call at each threshold.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Kind {
    /// The operation, and how much data it has.
    pub(super) call: String,
    /// Version of NFS.
    pub(super) nfs: String,
    /// The inline threshold in bytes.
    pub(super) threshold: usize,
    /// RDMA Reads and RDMA Writes of the server.
    pub(super) rdma_operations: usize,
    /// Registrations of memory of the client.
    pub(super) registrations: usize,
    /// Time from the call to its reply in microseconds, on the model.
    pub(super) time_us: f64,
    /// Completions that woke the client or the server.
    pub(super) wakeups: u64,
}

/// Cost of the calls of one version of NFS at one threshold, per call.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Counts {
    /// Version of NFS.
    pub(super) nfs: String,
    /// The part of the work; none is all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) part: Option<String>,
    pub(super) bound: Bound,
    /// The inline threshold in bytes.
    pub(super) threshold: usize,
    /// How many calls were looked at.
    pub(super) calls: u64,
    /// RDMA Reads of the server, per call.
    pub(super) rdma_reads: f64,
    /// RDMA Writes of the server, per call.
    pub(super) rdma_writes: f64,
    /// Both together.
    pub(super) rdma_operations: f64,
    /// Registrations of memory of the client, per call.
    pub(super) registrations: f64,
    /// Of these, those left to the client to invalidate where the server invalidates one of each call.
    pub(super) local_invalidations: f64,
    /// The share of the calls that are Short.
    pub(super) short: f64,
    /// The same of calls with chunks.
    pub(super) chunked: f64,
    /// The same of Long calls and replies.
    pub(super) long: f64,
    /// Bytes of the two Sends of a call.
    pub(super) bytes_sent: f64,
    /// Bytes of Receives that either end of a connection keeps posted.
    pub(super) receives: u64,
    /// Mean time of a call in microseconds on the model of an RNIC. Only with the recorded bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_us: Option<f64>,
    /// Completions that woke a host, of both ends together, per call on that model. Only with the recorded bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wakeups: Option<f64>,
}

impl Counts {
    /// # Errors
    ///
    /// If one of the calls cannot be carried.
    pub(super) fn of<'a>(
        calls: impl Iterator<Item = &'a Call>,
        (nfs, part): (&str, Option<&str>),
        threshold: usize,
        bound: Bound,
        times: &Times,
    ) -> Result<Self> {
        let (mut micros, mut wakeups) = (0.0, 0.0);
        let mut all = Self {
            nfs: nfs.to_owned(),
            part: part.map(str::to_owned),
            bound,
            threshold,
            receives: u64::from(ClientConfig::default().credits) * threshold as u64,
            ..Self::default()
        };
        for call in
            calls.filter(|call| call.nfs == nfs && part.is_none_or(|part| call.part == part))
        {
            let cost = Cost::of(call, threshold, bound)
                .with_context(|| format!("{} of {} bytes", call.operations, call.call))?;
            all.calls += u64::from(call.calls);
            let timed = times.of(call, cost);
            let times = f64::from(call.calls);
            all.rdma_reads += times * cost.reads as f64;
            all.rdma_writes += times * cost.writes as f64;
            all.registrations += times * cost.registrations as f64;
            all.local_invalidations += times * cost.registrations.saturating_sub(1) as f64;
            all.bytes_sent += times * cost.sent as f64;
            micros += times * timed.micros;
            wakeups += times * timed.wakeups as f64;
            *match cost.form {
                Form::Short => &mut all.short,
                Form::Chunked => &mut all.chunked,
                Form::Long => &mut all.long,
            } += times;
        }
        all.rdma_operations = all.rdma_reads + all.rdma_writes;
        for sum in [
            &mut all.rdma_reads,
            &mut all.rdma_writes,
            &mut all.rdma_operations,
            &mut all.registrations,
            &mut all.local_invalidations,
            &mut all.short,
            &mut all.chunked,
            &mut all.long,
            &mut all.bytes_sent,
        ] {
            *sum /= all.calls.max(1) as f64;
        }
        if bound == Bound::Recorded {
            let calls = all.calls.max(1) as f64;
            (all.time_us, all.wakeups) = (Some(micros / calls), Some(wakeups / calls));
        }
        Ok(all)
    }
}

/// Above the columns of a table.
const HEAD: [&str; 15] = [
    "threshold",
    "RDMA\nReads",
    "RDMA\nWrites",
    "both",
    "registered\nexact",
    "registered\nrecorded",
    "registered\nunknown",
    "left to\nclient",
    "Short\n%",
    "Chunked\n%",
    "Long\n%",
    "bytes\nin Sends",
    "Receives",
    "time\nus",
    "wakes",
];

impl Report {
    /// # Errors
    ///
    /// If one of the calls cannot be carried.
    pub(super) fn new(calls: &[Call], thresholds: &[usize], model: &ModelArgs) -> Result<Self> {
        let usual = kinds::all();
        let timed = calls.iter().chain(&usual);
        let times = &Times::new(timed, thresholds, model)?;
        let versions = distinct(calls, |call| &call.nfs);
        let names = distinct(calls, |call| &call.part);
        let mut results = Vec::new();
        let mut parts = Vec::new();
        for nfs in &versions {
            for &threshold in thresholds {
                let of =
                    |part, bound| Counts::of(calls.iter(), (nfs, part), threshold, bound, times);
                for bound in Bound::ALL {
                    results.push(of(None, bound)?);
                }
                for part in &names {
                    parts.push(of(Some(part), Bound::Recorded)?);
                }
            }
        }
        parts.retain(|counts| counts.calls > 0);
        let usual = usual.iter().flat_map(|call| {
            let at = thresholds.iter();
            at.map(move |&threshold| Kind::new(call, threshold, times))
        });
        Ok(Self {
            credits: ClientConfig::default().credits,
            model: Assumptions::new(&model.costs(0), model.service),
            results,
            parts,
            kinds: usual.collect::<Result<_>>()?,
        })
    }

    fn versions(&self) -> Vec<&str> {
        let mut versions: Vec<&str> = self
            .results
            .iter()
            .map(|counts| counts.nfs.as_str())
            .collect();
        versions.dedup();
        versions
    }

    /// At each threshold, what one version costs with one knowledge of replies.
    fn row(&self, nfs: &str, bound: Bound) -> impl Iterator<Item = &Counts> {
        self.results
            .iter()
            .filter(move |counts| counts.nfs == nfs && counts.bound == bound)
    }

    /// The tables for people.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        for nfs in self.versions() {
            let calls = self
                .row(nfs, Bound::Recorded)
                .next()
                .map_or(0, |counts| counts.calls);
            writeln!(out, "NFSv{nfs}, {calls} calls; per call:\n")?;
            let mut table = Columns::new(&[]);
            table.add(HEAD);
            let rows = self
                .row(nfs, Bound::Exact)
                .zip(self.row(nfs, Bound::Unknown));
            for (counts, (exact, unknown)) in self.row(nfs, Bound::Recorded).zip(rows) {
                let each = [
                    counts.rdma_reads,
                    counts.rdma_writes,
                    counts.rdma_operations,
                    exact.registrations,
                    counts.registrations,
                    unknown.registrations,
                    counts.local_invalidations,
                ];
                let shares = [counts.short, counts.chunked, counts.long];
                let mut row = vec![size(counts.threshold as u64)];
                row.extend(each.map(|number| format!("{number:.3}")));
                row.extend(shares.map(|share| format!("{:.1}", 100.0 * share)));
                row.extend([format!("{:.0}", counts.bytes_sent), size(counts.receives)]);
                row.extend([counts.time_us, counts.wakeups].map(two_digits));
                table.add(row);
            }
            writeln!(out, "{table}")?;
        }
        self.print_kinds(out)?;
        writeln!(
            out,
            "RDMA Reads and Writes are the server's, registrations the client's: if it knew how large each reply\n\
             will be, with the bounds that were recorded, and if it knew none. What else is shown is with the recorded\n\
             ones. Left to the client: handles to invalidate where the server invalidates one of each call. Receives:\n\
             what {} credits of that size take at either end of a connection. Times: one call at a time on the model\n\
             of an RNIC whose costs --help lists; wakes are completions that found a host of the two asleep.",
            self.credits
        )
    }

    /// Usual calls, each in a row.
    fn print_kinds(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut table = Columns::new(&[0]);
        let thresholds = self.thresholds();
        let heads = thresholds.iter().map(|&threshold| size(threshold as u64));
        table.add(
            std::iter::once("time in us at".to_owned())
                .chain(heads)
                .collect::<Vec<_>>(),
        );
        for row in self.by_kind() {
            let times = row.iter().map(|kind| format!("{:.1}", kind.time_us));
            let said = row.first().map(|kind| kind.said());
            table.add(said.into_iter().chain(times).collect::<Vec<_>>());
        }
        writeln!(out, "{table}")
    }

    /// The tables of a page, in Markdown.
    ///
    /// # Errors
    ///
    /// If they cannot be written.
    pub(super) fn markdown(&self, out: &mut impl Write) -> std::io::Result<()> {
        for nfs in self.versions() {
            writeln!(
                out,
                "| NFSv{nfs} | RDMA Reads | RDMA Writes | registrations | registrations, replies known | Short | \
                 bytes in Sends | Receives | time of a call | wake-ups |"
            )?;
            writeln!(out, "|---|{}", "--:|".repeat(9))?;
            let exact = self.row(nfs, Bound::Exact);
            for (counts, exact) in self.row(nfs, Bound::Recorded).zip(exact) {
                writeln!(
                    out,
                    "| {} | {:.3} | {:.3} | {:.3} | {:.3} | {:.1} % | {:.0} | {} | {} µs | {} |",
                    size(counts.threshold as u64),
                    counts.rdma_reads,
                    counts.rdma_writes,
                    counts.registrations,
                    exact.registrations,
                    100.0 * counts.short,
                    counts.bytes_sent,
                    size(counts.receives),
                    two_digits(counts.time_us),
                    two_digits(counts.wakeups),
                )?;
            }
            writeln!(out)?;
        }
        let thresholds = self.thresholds();
        let heads = thresholds.iter().map(|&threshold| size(threshold as u64));
        let heads: Vec<String> = heads.collect();
        writeln!(
            out,
            "| time of one call · wake-ups | {} |",
            heads.join(" | ")
        )?;
        writeln!(out, "|---|{}", "--:|".repeat(heads.len()))?;
        for row in self.by_kind() {
            let times = row
                .iter()
                .map(|kind| format!("{:.1} µs · {}", kind.time_us, kind.wakeups));
            let times: Vec<String> = times.collect();
            let said = row.first().map(|kind| kind.said()).unwrap_or_default();
            writeln!(out, "| {said} | {} |", times.join(" | "))?;
        }
        writeln!(out)
    }

    fn thresholds(&self) -> Vec<usize> {
        let first = self.by_kind().into_iter().next();
        let first = first.into_iter().flatten();
        first.map(|kind| kind.threshold).collect()
    }

    /// The usual calls, each with its thresholds.
    fn by_kind(&self) -> Vec<&[Kind]> {
        let same = |one: &Kind, next: &Kind| (&one.nfs, &one.call) == (&next.nfs, &next.call);
        self.kinds.chunk_by(same).collect()
    }

    /// Operations and registrations of each version, and below them the operations of each part.
    pub(super) fn plot(&self) -> Figure {
        let mut panels = Vec::new();
        for nfs in self.versions() {
            let line = |label: &str, line, bound, of: fn(&Counts) -> f64| Series {
                label: label.to_owned(),
                line,
                points: self
                    .row(nfs, bound)
                    .map(|counts| (counts.threshold as f64, of(counts)))
                    .collect(),
                ranges: Vec::new(),
            };
            let registrations = |counts: &Counts| counts.registrations;
            let series = vec![
                line("RDMA Reads", Line::Solid, Bound::Recorded, |counts| {
                    counts.rdma_reads
                }),
                line("RDMA Writes", Line::Solid, Bound::Recorded, |counts| {
                    counts.rdma_writes
                }),
                line("registrations", Line::Solid, Bound::Recorded, registrations),
                line(
                    "registrations, had it known the replies",
                    Line::Dashed,
                    Bound::Exact,
                    registrations,
                ),
            ];
            panels.push(panel(format!("NFSv{nfs}"), series));
        }
        for nfs in self.versions() {
            let mut series: Vec<Series> = Vec::new();
            for counts in self.parts.iter().filter(|counts| counts.nfs == nfs) {
                let part = counts.part.as_deref().unwrap_or_default();
                let point = (counts.threshold as f64, counts.rdma_operations);
                match series.iter_mut().find(|series| series.label == part) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series {
                        label: part.to_owned(),
                        line: Line::Solid,
                        points: vec![point],
                        ranges: Vec::new(),
                    }),
                }
            }
            // One that is nowhere else than at zero only hides the axis.
            series.retain(|series| series.points.iter().any(|&(_, value)| value > 0.0));
            panels.push(panel(
                format!("NFSv{nfs}, RDMA Reads and Writes of each part"),
                series,
            ));
        }
        Figure {
            title: "Explicit RDMA operations by inline threshold".into(),
            subtitle: "Recorded NFS calls, planned at each threshold. Each panel has its own scale"
                .into(),
            y_axis: YAxis::Each,
            columns: self.versions().len(),
            panels,
        }
    }
}

impl Kind {
    fn new(call: &Call, threshold: usize, times: &Times) -> Result<Self> {
        let cost = Cost::of(call, threshold, Bound::Recorded)?;
        let timed = times.of(call, cost);
        Ok(Self {
            call: call.operations.clone(),
            nfs: call.nfs.clone(),
            threshold,
            rdma_operations: cost.reads + cost.writes,
            registrations: cost.registrations,
            time_us: timed.micros,
            wakeups: timed.wakeups,
        })
    }

    fn said(&self) -> String {
        format!("{} (NFSv{})", self.call, self.nfs)
    }
}

fn two_digits(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.2}"))
}

fn panel(title: String, series: Vec<Series>) -> Panel {
    Panel {
        title,
        note: String::new(),
        x: Axis {
            label: "inline threshold, both ways",
            scale: Scale::Log(2),
            unit: Unit::Bytes,
            reach: Reach::Values,
        },
        y: Axis {
            label: "operations per call",
            scale: Scale::Linear,
            unit: Unit::Number,
            reach: Reach::Zero,
        },
        series,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thresholds::mix;

    /// Three small calls, and a READ and a WRITE of 8 KiB in a part of their own.
    const MIX: &str = "nfs\tpart\tcalls\tcall\targument\treply\tresult\troom\tresult_room\toperations\n\
        3\tstat\t3\t140\t0\t116\t0\t200\t0\tGETATTR\n\
        3\tdata\t1\t160\t0\t8320\t8192\t128\t8192\tREAD\n\
        3\tdata\t1\t8352\t8192\t160\t0\t200\t0\tWRITE\n";

    fn report() -> Report {
        let thresholds = [1024, 8192, 16384];
        Report::new(&mix::parse(MIX).unwrap(), &thresholds, &ModelArgs::usual()).unwrap()
    }

    #[test]
    fn counts_are_means_over_calls() {
        let report = report();
        let at = |threshold| {
            let mut row = report.row("3", Bound::Recorded);
            row.find(|counts| counts.threshold == threshold).unwrap()
        };
        for threshold in [1024, 8192] {
            let counts = at(threshold);
            assert_eq!(counts.calls, 5);
            let operations = (
                counts.rdma_reads,
                counts.rdma_writes,
                counts.rdma_operations,
            );
            assert_eq!(operations, (0.2, 0.2, 0.4));
            assert_eq!(
                (counts.registrations, counts.local_invalidations),
                (0.4, 0.0)
            );
            assert_eq!((counts.short, counts.chunked, counts.long), (0.6, 0.4, 0.0));
        }
        assert_eq!((at(16384).rdma_operations, at(16384).short), (0.0, 1.0));
        assert_eq!(at(16384).receives, 128 * 16384);
    }

    #[test]
    fn time_is_the_mean_of_the_calls_and_of_recorded_bounds_only() {
        let report = report();
        let mut row = report.row("3", Bound::Recorded);
        let (first, last) = (row.next().unwrap(), row.last().unwrap());
        // What moved by RDMA fits the Sends at the last threshold.
        assert!(first.time_us > last.time_us && last.time_us > Some(10.0));
        assert!(first.wakeups > last.wakeups && last.wakeups >= Some(1.0));
        let mut unknown = report.row("3", Bound::Unknown);
        assert_eq!(unknown.next().unwrap().time_us, None);
    }

    #[test]
    fn client_that_does_not_know_its_replies_registers_memory_for_each() {
        let report = report();
        let mut row = report.row("3", Bound::Unknown);
        // A Reply chunk each, and a chunk for the data of the WRITE.
        assert_eq!(row.next().unwrap().registrations, 1.2);
        // That goes in the Send.
        assert_eq!(row.last().unwrap().registrations, 1.0);
    }

    #[test]
    fn parts_are_counted_and_drawn_by_themselves() {
        let report = report();
        let of = |part: &str| {
            report
                .parts
                .iter()
                .find(|counts| counts.part.as_deref() == Some(part))
                .unwrap()
        };
        assert_eq!((of("stat").calls, of("stat").rdma_operations), (3, 0.0));
        assert_eq!((of("data").calls, of("data").rdma_operations), (2, 1.0));
        let plot = report.plot();
        let drawn: Vec<_> = plot.panels[1]
            .series
            .iter()
            .map(|series| series.label.as_str())
            .collect();
        assert_eq!(drawn, ["data"]);
    }
}
