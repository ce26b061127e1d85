//! The tables of a page.

use super::NONE;
use super::cases::{Cost, Memory, STAGS, TrafficKind};
use super::drawing::groups;
use super::report::{Report, Row, Spread};
use std::io::{Result, Write};

impl Report {
    /// Counts, times by payload, and times by cost, each as a table in Markdown.
    pub(super) fn markdown(&self, out: &mut impl Write) -> Result<()> {
        self.counts(out)?;
        self.devices_in_markdown(out)?;
        self.times(out)?;
        self.together(out)?;
        for cost in Cost::ALL {
            self.by_cost(cost, out)?;
        }
        Ok(())
    }

    /// Counts of a call alone with the least payload: no payload changes them, and of the model only wake-ups
    /// depend.
    fn counts(&self, out: &mut impl Write) -> Result<()> {
        let alone = self.rows(|row| {
            let dynamic = matches!(row.memory, Memory::Dynamic | Memory::OneRegion);
            row.traffic == "alone" && dynamic && row.varied.is_none()
        });
        let Some(payload) = alone.iter().map(|row| row.payload).min() else {
            return Ok(());
        };
        writeln!(out, "**Counts per call alone, of both ends together**\n")?;
        writeln!(
            out,
            "| memory | chunks | design | work requests | completions | wake-ups | bytes of header | left for local invalidation |"
        )?;
        writeln!(out, "|---|---|---|--:|--:|--:|--:|--:|")?;
        for row in alone.iter().filter(|row| row.payload == payload) {
            writeln!(
                out,
                "| {} | {} | `{}` | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} % |",
                row.memory.name(),
                row.stags,
                row.design,
                row.work_requests,
                row.completions,
                row.wakeups,
                row.header_bytes,
                row.local_share * 100.0
            )?;
        }
        writeln!(out)
    }

    /// Designs and memory that leave no handle behind, beside a handle for each chunk without a design.
    fn together(&self, out: &mut impl Write) -> Result<()> {
        let all = self.rows(|row| row.provider == "sim" && row.varied.is_none());
        let of_region = |row: &&&Row| row.memory == Memory::OneRegion;
        if !all.iter().any(|row| of_region(&row)) {
            return Ok(());
        }
        let payloads = payloads(&all);
        writeln!(
            out,
            "**One handle for all chunks of a call: median time of a call with data, as a part of that with a handle for \
             each chunk and without a design · wake-ups of both hosts per call**\n"
        )?;
        let said = payloads.iter().map(|&payload| bytes(payload));
        head(
            out,
            "| traffic | chunks | memory | design |",
            said.collect(),
        )?;
        for traffic in TrafficKind::ALL.map(TrafficKind::name) {
            for stags in STAGS {
                let find = |memory: Memory, design: &str| -> Vec<&Row> {
                    let same = |row: &&&Row| {
                        row.traffic == traffic
                            && row.stags == stags
                            && row.memory == memory
                            && row.design == design
                    };
                    all.iter().filter(same).copied().collect()
                };
                let base = find(Memory::Dynamic, NONE);
                let rest = [
                    (Memory::Dynamic, "per_call_all"),
                    (Memory::OneRegion, NONE),
                    (Memory::OneRegion, "per_connection"),
                ];
                if base.is_empty() || find(Memory::OneRegion, NONE).is_empty() {
                    continue;
                }
                let times = base.iter().map(|row| time(row)).collect::<Vec<_>>();
                writeln!(
                    out,
                    "| {traffic} | {stags} | dynamic | `none` | {} |",
                    times.join(" | ")
                )?;
                for (memory, design) in rest {
                    let rows = find(memory, design);
                    let parts = rows.iter().zip(&base).map(|(row, base)| {
                        let part = row.latency_us.median / base.latency_us.median;
                        format!("{part:.2} · {:.1}", row.wakeups)
                    });
                    let parts: Vec<String> = parts.collect();
                    if !parts.is_empty() {
                        let memory = memory.name();
                        writeln!(out, "| | | {memory} | `{design}` | {} |", parts.join(" | "))?;
                    }
                }
            }
        }
        writeln!(out)
    }

    fn times(&self, out: &mut impl Write) -> Result<()> {
        let all = self.rows(|row| row.provider == "sim" && row.varied.is_none());
        let payloads = payloads(&all);
        if payloads.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "**Median time of a call with data (lowest-highest) · wake-ups of both hosts per call; below `none`, time as a \
             part of that without a design**\n"
        )?;
        let said = payloads.iter().map(|&payload| bytes(payload));
        head(
            out,
            "| traffic | memory | chunks | design |",
            said.collect(),
        )?;
        for traffic in TrafficKind::ALL.map(TrafficKind::name) {
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
        for traffic in TrafficKind::ALL.map(TrafficKind::name) {
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
    let none: Vec<String> = none.map(|row| time(row)).collect();
    if none.is_empty() {
        return Ok(());
    }
    writeln!(out, "{begin} none | {} |", none.join(" | "))?;
    for group in groups(rows) {
        let designs = group.said("`");
        let parts = group.rows.iter().filter_map(|row| part(row));
        let parts: Vec<String> = parts.collect();
        writeln!(out, "{others} {designs} | {} |", parts.join(" | "))?;
    }
    Ok(())
}

/// Payloads of these rows, each once.
fn payloads(rows: &[&Row]) -> Vec<usize> {
    let mut payloads: Vec<usize> = rows.iter().map(|row| row.payload).collect();
    payloads.sort_unstable();
    payloads.dedup();
    payloads
}

/// Time without a design, with its range where the order of calls matters, and wake-ups.
fn time(row: &Row) -> String {
    let Spread { median, low, high } = row.latency_us;
    let wakeups = row.wakeups;
    match row.traffic {
        "alone" => format!("{median:.1} µs · {wakeups:.1}"),
        _ => format!("{median:.1} µs ({low:.1}-{high:.1}) · {wakeups:.1}"),
    }
}

/// Part of the time without a design: the median, and the range where it is wider than what is shown. And wake-ups.
fn part(row: &Row) -> Option<String> {
    let Spread { median, low, high } = row.of_none?;
    let wakeups = row.wakeups;
    let [median, low, high] = [median, low, high].map(|value| format!("{value:.2}"));
    Some(match low == high {
        true => format!("{median} · {wakeups:.1}"),
        false => format!("{median} ({low}-{high}) · {wakeups:.1}"),
    })
}

fn bytes(payload: usize) -> String {
    match payload {
        mib if mib >= 1 << 20 => format!("{} MiB", mib >> 20),
        kib if kib >= 1 << 10 => format!("{} KiB", kib >> 10),
        few => few.to_string(),
    }
}
