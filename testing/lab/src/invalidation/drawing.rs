//! The measurements as plots, and which designs do not differ.

use super::NONE;
use super::cases::{Cost, Memory, STAGS, TrafficKind};
use super::report::{Report, Row};
use crate::plot::{Axis, Figure, Line, Panel, Reach, Scale, Series, Unit, YAxis};

/// Medians that differ by no more than this, everywhere, are those of one line.
const COINCIDING: f64 = 0.015;

/// Designs whose figures coincide, each with its rows.
pub(super) struct Group<'a> {
    pub(super) designs: Vec<&'static str>,
    /// Those of the first of them.
    pub(super) rows: Vec<&'a Row>,
    /// The designs of other groups.
    others: Vec<&'static str>,
}

/// Most designs of a group that are named; of more, the others are.
const NAMED: usize = 3;

impl Group<'_> {
    /// Which designs these are, each name between these marks.
    pub(super) fn said(&self, mark: &str) -> String {
        let named = |designs: &[&str]| {
            let names: Vec<String> = designs
                .iter()
                .map(|name| format!("{mark}{name}{mark}"))
                .collect();
            names.join(", ")
        };
        if self.designs.len() <= NAMED {
            return named(&self.designs);
        }
        match self.others.as_slice() {
            [] => "all designs".to_owned(),
            others if others.len() < self.designs.len() => format!("all but {}", named(others)),
            _ => named(&self.designs),
        }
    }
}

/// The designs among rows that differ by nothing but design and payload, or the value of a cost.
pub(super) fn groups<'a>(rows: &[&'a Row]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut designs: Vec<&'static str> = Vec::new();
    for row in rows.iter().filter(|row| row.design != NONE) {
        if !designs.contains(&row.design) {
            designs.push(row.design);
        }
    }
    for &design in &designs {
        let of_design = rows.iter().filter(|row| row.design == design);
        let of_design: Vec<&Row> = of_design.copied().collect();
        let same = |group: &&mut Group<'_>| coincide(&group.rows, &of_design);
        match groups.iter_mut().find(same) {
            Some(group) => group.designs.push(design),
            None => groups.push(Group {
                designs: vec![design],
                rows: of_design,
                others: Vec::new(),
            }),
        }
    }
    for group in &mut groups {
        let others = designs
            .iter()
            .filter(|design| !group.designs.contains(design));
        group.others = others.copied().collect();
    }
    groups
}

fn coincide(one: &[&Row], other: &[&Row]) -> bool {
    let median = |row: &Row| row.of_none.map_or(f64::NAN, |of_none| of_none.median);
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| (median(one) - median(other)).abs() <= COINCIDING)
}

impl Report {
    /// The time of a call under each design beside that without any, in the model.
    pub(super) fn plot(&self) -> Figure {
        let mut panels = Vec::new();
        for traffic in TrafficKind::ALL {
            for stags in STAGS {
                let rows = self.rows(|row| {
                    let same = row.traffic == traffic.name() && row.stags == stags;
                    same && row.provider == "sim" && row.varied.is_none()
                });
                if !rows.is_empty() {
                    panels.push(by_payload(&rows, traffic, stags));
                }
            }
        }
        for stags in STAGS {
            let rows = self.rows(|row| {
                let varied = row.varied.map(|varied| varied.cost);
                row.stags == stags && varied == Some(Cost::Interrupt)
            });
            if !rows.is_empty() {
                panels.push(by_interrupt(&rows, stags));
            }
        }
        Figure {
            title: "Remote invalidation: time of a call under each design".into(),
            subtitle: "Simulated RNICs. 1 is the median time without a design, given for each panel; less is better. \
                       Medians over seeds; lowest and highest also over another order of calls"
                .into(),
            y_axis: YAxis::Same,
            columns: STAGS.len(),
            panels,
        }
    }
}

fn by_payload(rows: &[&Row], traffic: TrafficKind, stags: usize) -> Panel {
    let mut series = Vec::new();
    for memory in Memory::ALL {
        let rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.memory == memory)
            .copied()
            .collect();
        for group in groups(&rows) {
            let (said, line) = match memory {
                Memory::Dynamic => ("", Line::Solid),
                Memory::Persistent => (" (persistent memory)", Line::Dashed),
                Memory::OneRegion => (" (one region)", Line::Dashed),
            };
            let label = format!("{}{said}", group.said(""));
            series.push(one_line(label, line, &group.rows, |row| row.payload as f64));
        }
    }
    Panel {
        title: format!("{}, {}", traffic_said(traffic), stags_said(stags)),
        note: baseline("", rows, |row| row.memory == Memory::Dynamic),
        x: Axis {
            label: "bytes of data in a call",
            scale: Scale::Log(2),
            unit: Unit::Bytes,
            reach: Reach::Values,
        },
        y: time_axis(),
        series,
    }
}

fn by_interrupt(rows: &[&Row], stags: usize) -> Panel {
    let mut series = Vec::new();
    for (traffic, line) in [("alone", Line::Solid), ("mixed", Line::Dashed)] {
        let rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.traffic == traffic)
            .copied()
            .collect();
        for group in groups(&rows) {
            let label = format!("{} ({traffic})", group.said(""));
            series.push(one_line(label, line, &group.rows, |row| {
                row.varied
                    .map_or(0.0, |varied| varied.value as f64 / 1000.0)
            }));
        }
    }
    Panel {
        title: format!("8 KiB, {}", stags_said(stags)),
        note: [("alone, ", "alone"), ("mixed, ", "mixed")]
            .map(|(said, traffic)| baseline(said, rows, |row| row.traffic == traffic))
            .join("; "),
        x: Axis {
            label: "interrupt and wake-up, µs",
            scale: Scale::Linear,
            unit: Unit::Number,
            reach: Reach::Values,
        },
        y: time_axis(),
        series,
    }
}

fn time_axis() -> Axis {
    Axis {
        label: "time of a call / time without a design",
        scale: Scale::Linear,
        unit: Unit::Number,
        reach: Reach::Ticks,
    }
}

fn one_line(label: String, line: Line, rows: &[&Row], x: impl Fn(&Row) -> f64) -> Series {
    let measured = || rows.iter().filter_map(|row| Some((x(row), row.of_none?)));
    Series {
        label,
        line,
        points: measured().map(|(x, of_none)| (x, of_none.median)).collect(),
        ranges: measured()
            .map(|(_, of_none)| (of_none.low, of_none.high))
            .collect(),
    }
}

/// The times without a design that those of a panel are parts of, from the first to the last column.
fn baseline(said: &str, rows: &[&Row], of: impl Fn(&Row) -> bool) -> String {
    let none = rows.iter().filter(|row| row.design == NONE && of(row));
    let times: Vec<f64> = none.map(|row| row.latency_us.median).collect();
    match times.as_slice() {
        [] => String::new(),
        [only] => format!("{said}without a design: {only:.1} µs"),
        [first, .., last] => format!("{said}without a design: {first:.1} to {last:.1} µs"),
    }
}

fn traffic_said(traffic: TrafficKind) -> &'static str {
    match traffic {
        TrafficKind::Alone => "One call at a time",
        TrafficKind::Mixed => "Eight at a time, half without data",
    }
}

fn stags_said(stags: usize) -> String {
    match stags {
        1 => "1 chunk each".to_owned(),
        stags => format!("{stags} chunks each"),
    }
}
