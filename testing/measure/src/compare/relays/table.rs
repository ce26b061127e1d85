//! Figures of relays, as a table and as JSON.

use std::fmt;

use serde_json::{Value, json};

use crate::compare::table::{cell, spread};
use crate::compared::Spread;

/// Most memory of a gateway with idle connections, in MiB. They use none of its chunk memory.
const IDLE: f64 = 64.0;

/// All figures of a run.
pub(in crate::compare) struct Relays {
    pub(super) rounds: usize,
    pub(super) connections: usize,
    pub(super) figures: Vec<Figure>,
    pub(super) memory: [Memory; 2],
}

/// One kind of figure, by way to the server.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) direct: Spread,
    pub(super) socat: Spread,
    pub(super) gateways: Spread,
    /// Of the gateways to socat.
    pub(super) ratio: Spread,
    pub(super) bound: Bound,
}

/// Bound of a ratio.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Memory of a gateway (VmRSS) in MiB.
pub(super) struct Memory {
    pub(super) name: &'static str,
    pub(super) begin: f64,
    /// With the idle connections.
    pub(super) idle: f64,
    /// Two seconds after these have gone.
    pub(super) closed: f64,
    /// At the end of the run.
    pub(super) loaded: f64,
}

impl Figure {
    /// A ratio that is no number is missed.
    fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(least) => self.ratio.median >= least,
            Bound::AtMost(most) => self.ratio.median <= most,
        }
    }

    fn json(&self) -> Value {
        let (least, most) = match self.bound {
            Bound::AtLeast(least) => (Some(least), None),
            Bound::AtMost(most) => (None, Some(most)),
        };
        json!({
            "name": self.name,
            "unit": self.unit,
            "direct": spread(self.direct),
            "socat": spread(self.socat),
            "gateways": spread(self.gateways),
            "ratio": spread(self.ratio),
            "at_least": least,
            "at_most": most,
            "met": self.is_met(),
        })
    }
}

impl Memory {
    fn is_met(&self) -> bool {
        self.idle <= IDLE
    }

    fn json(&self) -> Value {
        json!({
            "gateway": self.name,
            "begin_mib": self.begin,
            "idle_mib": self.idle,
            "closed_mib": self.closed,
            "loaded_mib": self.loaded,
            "idle_at_most": IDLE,
            "met": self.is_met(),
        })
    }
}

impl Relays {
    pub(in crate::compare) fn json(&self) -> Value {
        json!({
            "rounds": self.rounds,
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "connections": self.connections,
            "memory": self.memory.each_ref().map(Memory::json),
        })
    }
}

impl fmt::Display for Relays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Median (lowest-highest) of {} rounds; the ratio, of gateways to socat, is of each round\n",
            self.rounds
        )?;
        writeln!(
            f,
            "{:<25} {:<22} {:<22} {:<22} {:<5} {:<17} must",
            "", "direct", "two socats", "two gateways", "", "ratio"
        )?;
        for figure in &self.figures {
            let bound = match figure.bound {
                Bound::AtLeast(least) => format!(">= {least}"),
                Bound::AtMost(most) => format!("<= {most}"),
            };
            writeln!(
                f,
                "{:<25} {:<22} {:<22} {:<22} {:<5} {:<17} {bound:<7} {}",
                figure.name,
                cell(figure.direct, 0),
                cell(figure.socat, 0),
                cell(figure.gateways, 0),
                figure.unit,
                cell(figure.ratio, 2),
                met(figure.is_met()),
            )?;
        }
        writeln!(
            f,
            "\n{:<25} {:>8} {:>22} {:>12} {:>16}",
            "memory of a gateway, MiB",
            "begin",
            format!("{} idle connections", self.connections),
            "2 s later",
            "after the load"
        )?;
        for memory in &self.memory {
            writeln!(
                f,
                "{:<25} {:>8.1} {:>22.1} {:>12.1} {:>16.1}  idle <= {IDLE} {}",
                memory.name,
                memory.begin,
                memory.idle,
                memory.closed,
                memory.loaded,
                met(memory.is_met()),
            )?;
        }
        Ok(())
    }
}

fn met(met: bool) -> &'static str {
    match met {
        true => "met",
        false => "MISSED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(bound: Bound, ratio: f64) -> Figure {
        let spread = |value| Spread::of([value].into_iter());
        Figure {
            name: "figure",
            unit: "us",
            direct: spread(1.0),
            socat: spread(2.0),
            gateways: spread(2.0 * ratio),
            ratio: spread(ratio),
            bound,
        }
    }

    #[test]
    fn figure_beyond_its_bound_is_missed() {
        let memory = |idle| Memory {
            name: "gateway",
            begin: 10.0,
            idle,
            closed: 15.0,
            loaded: 200.0,
        };
        let relays = Relays {
            rounds: 1,
            connections: 1000,
            figures: vec![
                figure(Bound::AtMost(1.5), 1.5),
                figure(Bound::AtMost(1.5), 1.51),
                figure(Bound::AtLeast(0.9), 0.9),
                figure(Bound::AtLeast(0.9), 0.89),
                figure(Bound::AtLeast(0.9), f64::NAN),
            ],
            memory: [memory(IDLE), memory(IDLE + 1.0)],
        };
        let text = relays.to_string();
        assert_eq!(text.matches("MISSED").count(), 4, "{text}");
        assert!(text.contains("1000 idle connections"), "{text}");
        let json = relays.json();
        let met = [true, false, true, false, false];
        for (index, met) in met.into_iter().enumerate() {
            assert_eq!(json["figures"][index]["met"], met, "{index}");
        }
        assert_eq!(json["memory"][0]["met"], true);
        assert_eq!(json["memory"][1]["met"], false);
    }
}
