//! Rates and CPU times of random READs, as a table and as JSON.

use std::fmt;

use serde_json::{Value, json};

use crate::compare::table::{cell, guest_json, guest_line, spread};
use crate::compared::Spread;
use interop::GuestMachine;

/// All figures of a run.
pub(in crate::compare) struct RandomReads {
    pub(super) rounds: usize,
    /// The virtual machine in which it was measured, if it was.
    pub(super) guest: Option<GuestMachine>,
    pub(super) rows: Vec<Row>,
}

/// Figures of a server with so many connections.
pub(super) struct Row {
    pub(super) connections: u16,
    pub(super) name: &'static str,
    /// READs in a second.
    pub(super) rate: Spread,
    /// Microseconds of CPU for a READ: of the server, the client, and all of the machine.
    pub(super) server: Spread,
    pub(super) client: Spread,
    pub(super) machine: Spread,
    /// None for the server with which the others are compared.
    pub(super) ratios: Option<Ratios>,
}

/// Ratios to the other server.
#[derive(Clone, Copy)]
pub(super) struct Ratios {
    pub(super) rate: Spread,
    /// CPU of the server for a READ.
    pub(super) server: Spread,
}

impl Ratios {
    /// Words for what is worse than with the other server.
    fn worse(self) -> Vec<&'static str> {
        let slower = (self.rate.median < 1.0).then_some("SLOWER");
        let more = (self.server.median > 1.0).then_some("MORE CPU");
        slower.into_iter().chain(more).collect()
    }
}

impl RandomReads {
    pub(in crate::compare) fn json(&self) -> Value {
        json!({
            "guest": self.guest.as_ref().map(guest_json),
            "rounds": self.rounds,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn json(&self) -> Value {
        json!({
            "connections": self.connections,
            "server": self.name,
            "operations_per_second": spread(self.rate),
            "server_cpu_us": spread(self.server),
            "client_cpu_us": spread(self.client),
            "machine_cpu_us": spread(self.machine),
            "rate_ratio": self.ratios.map(|ratios| spread(ratios.rate)),
            "server_cpu_ratio": self.ratios.map(|ratios| spread(ratios.server)),
        })
    }
}

impl fmt::Display for RandomReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(guest) = &self.guest {
            writeln!(f, "{}", guest_line(guest))?;
        }
        writeln!(
            f,
            "READs of 4 KiB at random places of a file in memory, 32 in flight on each connection\n\
             Median (lowest-highest) of {} rounds; ratios, to the last server of each part, are of each round",
            self.rounds
        )?;
        let mut part = None;
        for row in &self.rows {
            if part.replace(row.connections) != Some(row.connections) {
                let connections = match row.connections {
                    1 => "1 connection".to_owned(),
                    more => format!("{more} connections"),
                };
                writeln!(
                    f,
                    "\n{connections:<18} {:<24} {:<17} {:<17} {:<17} {:<17} ratio of CPU",
                    "READs in a second", "us of CPU, server", "client", "machine", "ratio of rates"
                )?;
            }
            let figures = format!(
                "{:<18} {:<24} {:<17} {:<17} {:<17}",
                row.name,
                cell(row.rate, 0),
                cell(row.server, 1),
                cell(row.client, 1),
                cell(row.machine, 1)
            );
            match row.ratios {
                None => writeln!(f, "{}", figures.trim_end())?,
                Some(ratios) => {
                    let (rate, server) = (cell(ratios.rate, 2), cell(ratios.server, 2));
                    let worse = ratios.worse().join(", ");
                    let line = format!("{figures} {rate:<17} {server:<17} {worse}");
                    writeln!(f, "{}", line.trim_end())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(connections: u16, ratios: Option<(f64, f64)>) -> Row {
        let spread = |value| Spread::of([value].into_iter());
        Row {
            connections,
            name: "server",
            rate: spread(1000.0),
            server: spread(2.0),
            client: spread(3.0),
            machine: spread(5.0),
            ratios: ratios.map(|(rate, server)| Ratios {
                rate: spread(rate),
                server: spread(server),
            }),
        }
    }

    #[test]
    fn row_says_what_is_worse_than_with_the_other_server() {
        let reads = RandomReads {
            rounds: 1,
            guest: None,
            rows: vec![
                row(1, Some((0.9, 0.9))),
                row(1, Some((1.1, 1.1))),
                row(1, Some((1.0, 1.0))),
                row(1, None),
                row(4, Some((0.5, 2.0))),
                row(4, None),
            ],
        };
        let text = reads.to_string();
        assert_eq!(text.matches("SLOWER").count(), 2, "{text}");
        assert_eq!(text.matches("MORE CPU").count(), 2, "{text}");
        assert_eq!(text.matches("SLOWER, MORE CPU").count(), 1, "{text}");
        assert_eq!(text.matches("1 connection ").count(), 1, "{text}");
        assert_eq!(text.matches("4 connections").count(), 1, "{text}");
        let json = reads.json();
        assert_eq!(json["rows"][0]["rate_ratio"]["median"], 0.9);
        assert_eq!(json["rows"][3]["rate_ratio"], Value::Null);
        assert_eq!(json["rows"][4]["server_cpu_us"]["median"], 2.0);
    }
}
