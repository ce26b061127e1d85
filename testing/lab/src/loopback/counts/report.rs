//! Counts of calls, how they are printed, and compared with earlier ones.

use super::ROWS;
use super::callgrind::Profile;
use super::instructions::Decoded;
use crate::loopback::profiler::Layer;
use anyhow::{Context, Result, bail};
use printing::table::Columns;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

/// Difference from earlier counts that is accepted, in percent. Runs of one program differ by less than one.
const TOLERANCE: f64 = 3.0;

/// Bytes that TCP carries in one piece on loopback.
const PIECE: u32 = 64 << 10;

/// Instructions of a layer from which on a difference is named, as a part of those of the end in percent.
const NAMED: f64 = 0.2;

/// Compiler and profile of this program, as in `rustc 1.95.0 (59807616e 2026-04-14), release`.
fn built_with() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let profile = program
        .parent()
        .and_then(Path::file_name)
        .unwrap_or_default();
    format!("{}, {}", env!("LAB_COMPILER"), profile.to_string_lossy())
}

/// Counts of all rows.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// Compiler and profile of the program, on which the counts depend.
    pub(super) built_with: String,
    /// One entry for each row.
    pub(super) rows: Vec<Counted>,
}

/// Counts of one row.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Counted {
    /// Name of the row.
    pub(super) name: String,
    /// Of the client.
    pub(super) client: End,
    /// Of the server.
    pub(super) server: End,
}

/// Counts of one end, per call. The kernel is not counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct End {
    /// Instructions.
    pub(super) instructions: f64,
    /// Conditional and indirect branches.
    pub(super) branches: f64,
    /// Lines that loads and stores bring into a data cache of 32 KiB with 8 ways, which is simulated.
    pub(super) cache_lines: f64,
    /// Requests to the allocator.
    pub(super) allocations: f64,
    /// Instructions that lock the line that they change: of locks, counters and reference counts.
    pub(super) atomic: f64,
    /// Bytes that functions store whose work is to copy or set memory.
    pub(super) copied: f64,
    /// Instructions by layer.
    pub(super) layers: BTreeMap<String, f64>,
}

impl End {
    /// Of so many calls.
    pub(super) fn new(profile: &Profile, calls: usize) -> Result<Self> {
        let mut end = Self {
            allocations: profile.allocations as f64,
            ..Self::default()
        };
        for (path, object) in &profile.objects {
            // Code that belongs to no file, and that of valgrind itself, is not ours.
            let Ok(data) = std::fs::read(path) else {
                continue;
            };
            if path.contains("valgrind") {
                continue;
            }
            let mut decoded = Decoded::new(path, &data);
            for (&address, events) in object
                .addresses
                .iter()
                .filter(|(_, events)| events.instructions > 0)
            {
                let meaning = decoded.meaning(address, &object.functions[&address]);
                let instructions = events.instructions as f64;
                end.instructions += instructions;
                end.branches += events.branches as f64;
                end.cache_lines += events.lines as f64;
                end.atomic += if meaning.is_atomic { instructions } else { 0.0 };
                end.copied += instructions * meaning.copied as f64;
                *end.layers
                    .entry(group(meaning.layer).to_owned())
                    .or_default() += instructions;
            }
        }
        end.divide(calls as f64);
        Ok(end)
    }

    fn divide(&mut self, calls: f64) {
        let rounded = |count: f64| (count / calls * 100.0).round() / 100.0;
        for count in [
            &mut self.instructions,
            &mut self.branches,
            &mut self.cache_lines,
            &mut self.allocations,
            &mut self.atomic,
            &mut self.copied,
        ] {
            *count = rounded(*count);
        }
        self.layers
            .values_mut()
            .for_each(|count| *count = rounded(*count));
    }

    /// The counts that are compared, with their names and the numbers below which a difference does not matter. Cache lines are
    /// left out: where buffers lie in memory decides on some of them. A server makes its queues anew after a pause, which under
    /// valgrind may lie between any two calls.
    fn compared(&self, pieces: f64) -> [(&'static str, f64, f64); 5] {
        [
            ("instructions", self.instructions, 100.0),
            ("branches", self.branches, 30.0),
            ("allocations", self.allocations, 0.5),
            ("atomic instructions", self.atomic, 3.0 * pieces),
            ("copied bytes", self.copied, 1024.0 * pieces),
        ]
    }
}

/// Name of a layer in the tables. Of the kernel there are only the instructions that enter it.
fn group(layer: Layer) -> &'static str {
    match layer {
        Layer::KernelWrite | Layer::KernelRead | Layer::KernelEpoll | Layer::KernelOther => {
            "system calls"
        }
        Layer::Waiting => "tokio",
        other => other.name(),
    }
}

impl Report {
    pub(super) fn new(rows: Vec<Counted>) -> Self {
        Self {
            built_with: built_with(),
            rows,
        }
    }

    /// Reads the counts that `--json` printed.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text)
            .with_context(|| format!("{} has no counts of this program", path.display()))
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = Columns::new(&[0, 1]);
        table.add([
            "per call",
            "end",
            "instructions",
            "branches",
            "cache lines",
            "allocations",
            "atomic",
            "bytes copied",
        ]);
        for row in &self.rows {
            for (end, counts) in row.ends() {
                table.add([
                    row.name.clone(),
                    end.to_owned(),
                    format!("{:.0}", counts.instructions),
                    format!("{:.0}", counts.branches),
                    format!("{:.1}", counts.cache_lines),
                    format!("{:.2}", counts.allocations),
                    format!("{:.1}", counts.atomic),
                    format!("{:.0}", counts.copied),
                ]);
            }
        }
        write!(out, "{table}")
    }

    /// Names of the layers that have instructions in any row, the largest first.
    fn layers(&self) -> Vec<&str> {
        let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
        for (_, end) in self.rows.iter().flat_map(Counted::ends) {
            for (layer, count) in &end.layers {
                *totals.entry(layer).or_default() += count;
            }
        }
        let mut layers: Vec<_> = totals
            .into_iter()
            .filter(|(_, total)| *total >= 1.0)
            .collect();
        layers.sort_by(|a, b| b.1.total_cmp(&a.1));
        layers.into_iter().map(|(layer, _)| layer).collect()
    }

    pub(super) fn print_layers(&self, out: &mut impl Write) -> io::Result<()> {
        let mut table = Columns::new(&[0]);
        table.add(
            std::iter::once("instructions per call".to_owned())
                .chain(self.columns())
                .collect::<Vec<_>>(),
        );
        for (name, counts) in self.by_layer() {
            table.add(std::iter::once(name).chain(counts).collect::<Vec<_>>());
        }
        write!(out, "{table}")
    }

    /// Heading of each column of the table by layer.
    fn columns(&self) -> impl Iterator<Item = String> {
        self.rows
            .iter()
            .flat_map(|row| row.ends().map(|(end, _)| format!("{} {end}", row.name)))
    }

    /// Rows of the table by layer: its name, and the count of each column.
    fn by_layer(&self) -> impl Iterator<Item = (String, Vec<String>)> {
        let counts = |layer: &str| {
            let ends = self.rows.iter().flat_map(Counted::ends);
            ends.map(|(_, end)| match end.layers.get(layer) {
                Some(count) => format!("{count:.0}"),
                None => String::new(),
            })
            .collect()
        };
        self.layers()
            .into_iter()
            .map(move |layer| (layer.to_owned(), counts(layer)))
    }

    /// The tables of the page: all counts, then instructions by layer.
    pub(super) fn print_markdown(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "| per call | end | instructions | branches | cache lines | allocations | atomic | bytes copied |"
        )?;
        writeln!(out, "|---|---|--:|--:|--:|--:|--:|--:|")?;
        for row in &self.rows {
            for (end, counts) in row.ends() {
                writeln!(
                    out,
                    "| `{}` | {end} | {:.0} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} |",
                    row.name,
                    counts.instructions,
                    counts.branches,
                    counts.cache_lines,
                    counts.allocations,
                    counts.atomic,
                    counts.copied
                )?;
            }
        }
        writeln!(out)?;
        let columns: Vec<_> = self.columns().collect();
        writeln!(out, "| instructions per call | {} |", columns.join(" | "))?;
        writeln!(out, "|---|{}", "--:|".repeat(columns.len()))?;
        for (name, counts) in self.by_layer() {
            writeln!(out, "| {name} | {} |", counts.join(" | "))?;
        }
        Ok(())
    }

    /// Compares with earlier counts.
    ///
    /// # Errors
    ///
    /// A count differs by more than [`TOLERANCE`], or the earlier ones are of another compiler or profile. The error says which
    /// layers differ at an end of which that is so.
    pub(super) fn compare(&self, earlier: &Self) -> Result<()> {
        if self.built_with != earlier.built_with {
            bail!(
                "the counts are of {}, and this program of {}: count again with `lab count --json`, before and after the \
                 change of compiler",
                earlier.built_with,
                self.built_with
            );
        }
        let mut differences = Vec::new();
        let mut layers = Columns::new(&[0]);
        layers.add(["layer", "instructions", "before", "difference"]);
        for row in &self.rows {
            let Some(before) = earlier.rows.iter().find(|is| is.name == row.name) else {
                differences.push(format!("{} has no earlier counts", row.name));
                continue;
            };
            for ((end, now), (_, before)) in row.ends().into_iter().zip(before.ends()) {
                let found: Vec<_> = now.differences(before, row.pieces()).collect();
                if !found.is_empty() {
                    now.add_layers(before, &format!("{} {end}", row.name), &mut layers);
                }
                differences.extend(found.iter().map(|is| format!("{} {end}: {is}", row.name)));
            }
        }
        match differences.is_empty() {
            true => Ok(()),
            false => bail!(
                "calls cost something else than they did; if that is meant, `lab count --json` makes the file anew:\n  {}\n\n{layers}",
                differences.join("\n  ")
            ),
        }
    }
}

impl Counted {
    /// Pieces in which TCP carries a call, about: in how many it is that of a megabyte is up to the kernel.
    fn pieces(&self) -> f64 {
        let row = ROWS.iter().find(|row| row.name == self.name);
        let data = row.map_or(0, |row| row.operation.data());
        f64::from(data.div_ceil(PIECE).max(1))
    }

    fn ends(&self) -> [(&'static str, &End); 2] {
        [("client", &self.client), ("server", &self.server)]
    }
}

impl End {
    /// Counts that differ by more than the tolerance, which is larger for calls that TCP carries in many pieces.
    fn differences(&self, before: &Self, pieces: f64) -> impl Iterator<Item = String> {
        let both = self
            .compared(pieces)
            .into_iter()
            .zip(before.compared(pieces));
        both.filter_map(move |((what, now, least), (_, before, _))| {
            let difference = now - before;
            let matters = difference.abs() > (before * TOLERANCE / 100.0).max(least);
            matters.then(|| {
                format!(
                    "{now:.1} {what}, not {before:.1} ({:+.1} %)",
                    difference / before.max(1.0) * 100.0
                )
            })
        })
    }

    /// Adds a row for each layer that differs, the one that differs most first.
    fn add_layers(&self, before: &Self, end: &str, table: &mut Columns) {
        let of = |end: &Self, layer: &str| end.layers.get(layer).copied().unwrap_or_default();
        let names: BTreeSet<_> = self.layers.keys().chain(before.layers.keys()).collect();
        let mut layers: Vec<_> = names
            .into_iter()
            .map(|layer| (layer, of(self, layer), of(before, layer)))
            .filter(|(_, now, was)| (now - was).abs() > before.instructions * NAMED / 100.0)
            .collect();
        layers.sort_by(|a, b| (b.1 - b.2).abs().total_cmp(&(a.1 - a.2).abs()));
        for (layer, now, was) in layers {
            table.add([
                format!("{end}: {layer}"),
                format!("{now:.0}"),
                format!("{was:.0}"),
                format!("{:+.0}", now - was),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(instructions: f64, allocations: f64) -> Report {
        let end = End {
            instructions,
            allocations,
            ..End::default()
        };
        let layers = BTreeMap::from([("rpcrdma".to_owned(), instructions)]);
        Report::new(vec![Counted {
            name: "null".to_owned(),
            client: End { layers, ..end },
            server: End::default(),
        }])
    }

    #[test]
    fn counts_within_three_percent_are_the_same_and_others_are_named() {
        let before = report(10_000.0, 5.0);
        report(10_290.0, 5.0).compare(&before).expect("2.9 %");
        let error = report(10_310.0, 6.0)
            .compare(&before)
            .expect_err("3.1 %, and an allocation");
        let said = error.to_string();
        for part in [
            "null client: 10310.0 instructions, not 10000.0 (+3.1 %)",
            "6.0 allocations, not 5.0",
        ] {
            assert!(said.contains(part), "{said}");
        }
        report(9_600.0, 5.0)
            .compare(&before)
            .expect_err("cheaper counts are to be committed, too");
    }

    /// The counts that changes are compared with.
    fn committed() -> Report {
        serde_json::from_str(include_str!("../../../counts.json")).expect("it is made by --json")
    }

    #[test]
    fn a_layer_that_grows_is_named() {
        let before = committed();
        before.compare(&before).expect("nothing has changed");
        for row in 0..before.rows.len() {
            let mut now = before.clone();
            let server = &mut now.rows[row].server;
            let grows = server.instructions * 0.04;
            server.instructions += grows;
            *server.layers.get_mut("iwarp-proto").expect("a layer") += grows;
            let error = now.compare(&before).expect_err("4 % more");
            let said = error.to_string();
            let name = &before.rows[row].name;
            assert!(
                said.contains(&format!("{name} server: iwarp-proto")),
                "{said}"
            );
            for other in ["client", "rpcrdma-proto"] {
                assert!(!said.contains(other), "{said}");
            }
        }
    }

    #[test]
    fn committed_counts_are_of_all_rows() {
        let rows: Vec<_> = committed().rows.into_iter().map(|row| row.name).collect();
        assert_eq!(rows, super::super::ROWS.map(|row| row.name));
    }

    #[test]
    fn counts_of_another_compiler_are_not_compared() {
        let before = Report {
            built_with: "rustc 1.0.0".to_owned(),
            ..report(1.0, 1.0)
        };
        let error = report(1.0, 1.0)
            .compare(&before)
            .expect_err("another compiler");
        assert!(error.to_string().contains("rustc 1.0.0"), "{error}");
    }

    #[test]
    fn pieces_of_a_megabyte_may_be_others_and_those_of_small_calls_may_not() {
        let before = committed();
        for (name, same) in [("null", false), ("read_4k", false), ("write_1m", true)] {
            let mut now = before.clone();
            let mut rows = now.rows.iter_mut();
            let row = rows.find(|row| row.name == name).expect("a row");
            row.server.atomic += 15.0;
            row.server.copied += 2048.0;
            assert_eq!(now.compare(&before).is_ok(), same, "{name}");
        }
    }

    #[test]
    fn row_without_earlier_counts_is_named() {
        let none = Report::new(Vec::new());
        let error = report(1.0, 1.0).compare(&none).expect_err("there are none");
        assert!(
            error.to_string().contains("null has no earlier counts"),
            "{error}"
        );
    }

    #[test]
    fn tables_have_each_end_and_each_layer() {
        let mut out = Vec::new();
        report(1234.0, 2.0)
            .print_markdown(&mut out)
            .expect("memory takes it");
        let text = String::from_utf8(out).expect("text");
        assert!(
            text.contains("| `null` | client | 1234 | 0 | 0 | 2.0 | 0 | 0 |"),
            "{text}"
        );
        assert!(text.contains("| rpcrdma | 1234 |  |"), "{text}");
    }
}
