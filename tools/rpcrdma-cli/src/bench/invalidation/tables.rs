//! The tables of a page.

use super::NONE;
use super::cases::{Cost, Memory, STAGS};
use super::drawing::groups;
use super::report::{Report, Row, Spread};
use std::io::{Result, Write};

impl Report {
    /// Counts, times by payload, and times by cost, each as a table in Markdown.
    pub(super) fn markdown(&self, out: &mut impl Write) -> Result<()> {
        self.counts(out)?;
        self.devices_in_markdown(out)?;
        self.times(out)?;
        for cost in Cost::ALL {
            self.by_cost(cost, out)?;
        }
        Ok(())
    }

    /// What a call of the least payload costs: no model and no payload changes it.
    fn counts(&self, out: &mut impl Write) -> Result<()> {
        let alone = self.rows(|row| {
            let dynamic = matches!(row.memory, Memory::Dynamic | Memory::OneRegion);
            row.traffic == "alone" && dynamic && row.varied.is_none()
        });
        let Some(payload) = alone.iter().map(|row| row.payload).min() else {
            return Ok(());
        };
        writeln!(
            out,
            "| memory | chunks | design | work requests | completions | bytes of header | left for local invalidation |"
        )?;
        writeln!(out, "|---|--:|---|--:|--:|--:|--:|")?;
        for row in alone.iter().filter(|row| row.payload == payload) {
            writeln!(
                out,
                "| {} | {} | `{}` | {:.0} | {:.0} | {:.0} | {:.0} % |",
                row.memory.name(),
                row.stags,
                row.design,
                row.work_requests,
                row.completions,
                row.header_bytes,
                row.local_share * 100.0
            )?;
        }
        writeln!(out)
    }

    fn times(&self, out: &mut impl Write) -> Result<()> {
        let all = self.rows(|row| row.provider == "sim" && row.varied.is_none());
        let mut payloads: Vec<usize> = all.iter().map(|row| row.payload).collect();
        payloads.sort_unstable();
        payloads.dedup();
        if payloads.is_empty() {
            return Ok(());
        }
        let said = payloads.iter().map(|&payload| bytes(payload));
        head(
            out,
            "| traffic | memory | chunks | design |",
            said.collect(),
        )?;
        for traffic in ["alone", "mixed"] {
            for memory in Memory::ALL {
                for stags in STAGS {
                    let same = |row: &&&Row| {
                        row.traffic == traffic && row.memory == memory && row.stags == stags
                    };
                    let rows: Vec<&Row> = all.iter().filter(same).copied().collect();
                    let begin = format!("| {traffic} | {} | {stags} |", memory.name());
                    lines(out, &begin, "| | | |", &rows)?;
                }
            }
        }
        writeln!(out)
    }

    fn by_cost(&self, cost: Cost, out: &mut impl Write) -> Result<()> {
        let all = self.rows(|row| row.varied.is_some_and(|varied| varied.cost == cost));
        let mut values = Vec::new();
        for varied in all.iter().filter_map(|row| row.varied) {
            if !values.contains(&varied) {
                values.push(varied);
            }
        }
        if values.is_empty() {
            return Ok(());
        }
        writeln!(out, "**{}**\n", cost.said())?;
        let said = values.iter().map(|varied| varied.said());
        head(out, "| traffic | STags | design |", said.collect())?;
        for traffic in ["alone", "mixed"] {
            for stags in STAGS {
                let same = |row: &&&Row| row.traffic == traffic && row.stags == stags;
                let rows: Vec<&Row> = all.iter().filter(same).copied().collect();
                lines(out, &format!("| {traffic} | {stags} |"), "| | |", &rows)?;
            }
        }
        writeln!(out)
    }
}

fn head(out: &mut impl Write, begin: &str, columns: Vec<String>) -> Result<()> {
    writeln!(out, "{begin} {} |", columns.join(" | "))?;
    let left = begin.matches('|').count() - 1;
    writeln!(
        out,
        "|{}{}",
        "---|".repeat(left),
        "--:|".repeat(columns.len())
    )
}

/// The times without a design, and those of each group of designs as a part of them.
fn lines(out: &mut impl Write, begin: &str, others: &str, rows: &[&Row]) -> Result<()> {
    let none = rows.iter().filter(|row| row.design == NONE);
    let none: Vec<String> = none
        .map(|row| format!("{:.1} µs", row.latency_us.median))
        .collect();
    if none.is_empty() {
        return Ok(());
    }
    writeln!(out, "{begin} none | {} |", none.join(" | "))?;
    for group in groups(rows) {
        let designs = group.said("`");
        let parts = group.rows.iter().filter_map(|row| row.of_none).map(part);
        let parts: Vec<String> = parts.collect();
        writeln!(out, "{others} {designs} | {} |", parts.join(" | "))?;
    }
    Ok(())
}

/// The median, and the range where it is wider than what is shown.
fn part(of_none: Spread) -> String {
    let Spread { median, low, high } = of_none;
    let [median, low, high] = [median, low, high].map(|value| format!("{value:.2}"));
    match low == high {
        true => median,
        false => format!("{median} ({low}-{high})"),
    }
}

fn bytes(payload: usize) -> String {
    match payload {
        mib if mib >= 1 << 20 => format!("{} MiB", mib >> 20),
        kib if kib >= 1 << 10 => format!("{} KiB", kib >> 10),
        few => few.to_string(),
    }
}
