//! The result of a comparison, as a table and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::machine::Machine;
use crate::compared::{Compared, Spread};
use interop::GuestMachine;

/// All rows of a run, with what they depend on.
pub(super) struct Table {
    pub(super) machine: Machine,
    /// The virtual machine in which it was measured, if it was.
    pub(super) guest: Option<GuestMachine>,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    pub(super) rows: Vec<Row>,
}

/// Seconds of a piece of work beside those of another way to do it.
pub(super) struct Row {
    pub(super) name: String,
    /// The other way: `cp`, for instance.
    pub(super) beside: &'static str,
    /// Seconds: first the other way, then ours.
    pub(super) times: Compared,
    /// None if the row only shows what others consist of.
    pub(super) bounds: Option<Bounds>,
}

/// Highest ratios of our time to the other.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) must: f64,
    pub(super) aim: f64,
}

/// How a ratio compares with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// No higher than the aim.
    Aim,
    /// No higher than the bound.
    Met,
    Missed,
}

impl Row {
    /// A ratio that is no number is missed.
    fn verdict(&self) -> Option<Verdict> {
        let Bounds { must, aim } = self.bounds?;
        let ratio = self.times.ratio.median;
        Some(if ratio <= aim {
            Verdict::Aim
        } else if ratio <= must {
            Verdict::Met
        } else {
            Verdict::Missed
        })
    }

    fn json(&self) -> Value {
        let verdict = self.verdict();
        json!({
            "name": self.name,
            "beside": self.beside,
            "ours_seconds": spread(self.times.second),
            "beside_seconds": spread(self.times.first),
            "ratio": spread(self.times.ratio),
            "must": self.bounds.map(|bounds| bounds.must),
            "aim": self.bounds.map(|bounds| bounds.aim),
            "met": verdict.map(|verdict| verdict != Verdict::Missed),
            "aim_met": verdict.map(|verdict| verdict == Verdict::Aim),
        })
    }
}

pub(super) fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "lowest": spread.lowest, "highest": spread.highest })
}

/// The virtual machine as a line of text.
pub(super) fn guest_line(guest: &GuestMachine) -> String {
    let GuestMachine {
        cpus,
        memory_mib,
        kernel,
    } = guest;
    format!("in an emulated machine: {cpus} CPUs, {memory_mib} MiB, Linux {kernel}")
}

pub(super) fn guest_json(guest: &GuestMachine) -> Value {
    json!({
        "cpus": guest.cpus,
        "emulated": true,
        "kernel": guest.kernel,
        "memory_mib": guest.memory_mib,
    })
}

impl Table {
    pub(super) fn json(&self) -> Value {
        json!({
            "machine": self.machine.json(),
            "guest": self.guest.as_ref().map(guest_json),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "On {}", self.machine)?;
        if let Some(guest) = &self.guest {
            writeln!(f, "{}", guest_line(guest))?;
        }
        writeln!(
            f,
            "Seconds: median (lowest-highest) of {} rounds; the ratio is of each round",
            self.rounds
        )?;
        writeln!(
            f,
            "\n{:<30} {:<20} {:<27} {:<20} {:>7} {:>5}",
            "", "ours", "beside", "ratio", "must", "aim"
        )?;
        for row in &self.rows {
            write!(
                f,
                "{:<30} {:<20} {:<6} {:<20} {:<20}",
                row.name,
                cell(row.times.second, 3),
                row.beside,
                cell(row.times.first, 3),
                cell(row.times.ratio, 2),
            )?;
            let verdict = match row.verdict() {
                None => "",
                Some(Verdict::Aim) => "aim met",
                Some(Verdict::Met) => "met",
                Some(Verdict::Missed) => "MISSED",
            };
            match row.bounds {
                Some(Bounds { must, aim }) => {
                    writeln!(f, " {:>7} {aim:>5} {verdict}", format!("<= {must}"))?;
                }
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

pub(super) fn cell(spread: Spread, digits: usize) -> String {
    let Spread {
        lowest,
        median,
        highest,
    } = spread;
    format!("{median:.digits$} ({lowest:.digits$}-{highest:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ratios: &[f64]) -> Table {
        let row = |&ratio: &f64| Row {
            name: format!("ratio {ratio}"),
            beside: "cp",
            times: Compared::of(&[(2.0, ratio * 2.0)]),
            bounds: Some(Bounds {
                must: 1.5,
                aim: 1.1,
            }),
        };
        Table {
            machine: Machine::example(),
            guest: None,
            rounds: 1,
            seconds: 3.0,
            rows: ratios.iter().map(row).collect(),
        }
    }

    #[test]
    fn ratio_is_missed_above_its_bound() {
        let table = table(&[1.0, 1.25, 1.5, 1.75, f64::NAN]);
        let verdicts: Vec<Verdict> = table.rows.iter().filter_map(Row::verdict).collect();
        let expected = [
            Verdict::Aim,
            Verdict::Met,
            Verdict::Met,
            Verdict::Missed,
            Verdict::Missed,
        ];
        assert_eq!(verdicts, expected);
        let text = table.to_string();
        assert_eq!(text.matches("MISSED").count(), 2, "{text}");
        assert_eq!(text.matches("aim met").count(), 1, "{text}");
        let rows = &table.json()["rows"];
        assert_eq!(rows[2]["met"], true);
        assert_eq!(rows[2]["aim_met"], false);
        assert_eq!(rows[3]["met"], false);
    }

    #[test]
    fn row_without_bounds_has_no_verdict() {
        let mut table = table(&[9.0]);
        table.rows[0].bounds = None;
        let text = table.to_string();
        assert!(!text.contains("MISSED") && !text.contains("<="), "{text}");
        assert_eq!(table.json()["rows"][0]["met"], Value::Null);
    }

    #[test]
    fn machines_are_in_the_result() {
        let mut table = table(&[1.0]);
        assert_eq!(table.json()["machine"]["kernel"], "6.1.0");
        assert_eq!(table.json()["guest"], Value::Null);
        table.guest = Some(GuestMachine {
            cpus: 3,
            memory_mib: 951,
            kernel: "6.1.0-56".into(),
        });
        assert_eq!(table.json()["guest"]["cpus"], 3);
        let text = table.to_string();
        assert!(text.contains("3 CPUs, 951 MiB, Linux 6.1.0-56"), "{text}");
    }

    #[test]
    fn figures_have_their_spread() {
        let mut table = table(&[1.0]);
        table.rows[0].times = Compared::of(&[(1.0, 1.5), (1.0, 1.2), (2.0, 8.0)]);
        let text = table.to_string();
        for cell in [
            "1.500 (1.200-8.000)",
            "1.000 (1.000-2.000)",
            "1.50 (1.20-4.00)",
        ] {
            assert!(text.contains(cell), "{cell} in {text}");
        }
        let row = &table.json()["rows"][0];
        assert_eq!(row["ours_seconds"]["highest"], 8.0);
        assert_eq!(row["beside_seconds"]["median"], 1.0);
        assert_eq!(row["ratio"]["lowest"], 1.2);
    }
}
