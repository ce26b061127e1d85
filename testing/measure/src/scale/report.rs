//! Figures compared with their aims.

use std::fmt;

use serde_json::{Value, json};

/// One figure.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    pub(super) aim: Aim,
}

/// Aim of a figure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim {
    AtLeast(f64),
    AtMost(f64),
    /// It is told, and that is all.
    None,
}

impl Figure {
    /// Whether it is what it is to be; a figure that is no number is not.
    fn is_met(&self) -> bool {
        match self.aim {
            Aim::AtLeast(least) => self.value >= least,
            Aim::AtMost(most) => self.value <= most,
            Aim::None => true,
        }
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) figures: Vec<Figure>,
    /// Why not all connections could be made.
    pub(super) why: Option<String>,
}

impl Report {
    pub(super) fn add(&mut self, name: &'static str, value: f64, unit: &'static str, aim: Aim) {
        self.figures.push(Figure {
            name,
            value,
            unit,
            aim,
        });
    }

    /// How many figures are not what they are to be.
    pub(super) fn missed(&self) -> usize {
        self.figures
            .iter()
            .filter(|figure| !figure.is_met())
            .count()
    }

    pub(super) fn json(&self) -> Value {
        let figures = self.figures.iter().map(|figure| {
            let (least, most) = match figure.aim {
                Aim::AtLeast(least) => (Some(least), None),
                Aim::AtMost(most) => (None, Some(most)),
                Aim::None => (None, None),
            };
            json!({
                "name": figure.name,
                "value": figure.value,
                "unit": figure.unit,
                "at_least": least,
                "at_most": most,
                "met": figure.is_met(),
            })
        });
        json!({ "figures": figures.collect::<Vec<_>>(), "why": self.why })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for figure in &self.figures {
            let Figure {
                name,
                value,
                unit,
                aim,
            } = figure;
            let aim = match aim {
                Aim::AtLeast(least) => format!(">= {least:.2}"),
                Aim::AtMost(most) => format!("<= {most:.2}"),
                Aim::None => String::new(),
            };
            let aim = match aim.contains('.') {
                true => aim.trim_end_matches('0').trim_end_matches('.'),
                false => &aim,
            };
            let met = match (figure.is_met(), figure.aim) {
                (_, Aim::None) => "",
                (true, _) => "met",
                (false, _) => "MISSED",
            };
            let line = format!("{name:<58} {value:>10.2} {unit:<8} {aim:>12} {met}");
            writeln!(f, "{}", line.trim_end())?;
        }
        if let Some(why) = &self.why {
            writeln!(f, "not all connections could be made: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_compared_with_their_aims() {
        let mut report = Report::default();
        report.add("met", 1.3, "", Aim::AtMost(1.3));
        report.add("met", 0.9, "", Aim::AtLeast(0.9));
        report.add("told", f64::NAN, "", Aim::None);
        assert_eq!(report.missed(), 0);
        report.add("over", 1.31, "", Aim::AtMost(1.3));
        report.add("under", 0.89, "", Aim::AtLeast(0.9));
        report.add("nothing", f64::NAN, "", Aim::AtMost(1.0));
        assert_eq!(report.missed(), 3);
        assert_eq!(report.to_string().matches("MISSED").count(), 3);
        assert_eq!(report.json()["figures"][3]["met"], false);
    }
}
