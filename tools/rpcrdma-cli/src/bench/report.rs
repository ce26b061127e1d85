//! Figures, and how they are printed.

use serde::{Deserialize, Serialize};
use std::io::Write;

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// Which measurement.
    pub(super) name: &'static str,
    /// Ours: microseconds of the median exchange, or mebibytes or operations per second.
    pub(super) value: f64,
    /// Of the value and of `raw`.
    pub(super) unit: &'static str,
    /// The same of plain TCP.
    pub(super) raw: f64,
    /// Ours divided by plain TCP: median over the repetitions that were kept.
    pub(super) ratio: f64,
    /// The ratio that is aimed at, as [`Aim`].
    pub(super) aim: Aim,
    /// Repetitions whose two plain-TCP runs agreed, and all of them.
    pub(super) kept: usize,
    pub(super) repetitions: usize,
    /// Microseconds of the median and the 99th percentile of one operation.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Of both processes, per operation.
    pub(super) cost: Cost,
    /// What both processes asked of the allocator, if that was counted.
    pub(super) allocations: Option<Allocations>,
    /// The bytes of one operation on the wire, to the server and back.
    pub(super) bytes_out: u64,
    pub(super) bytes_in: u64,
}

/// What one operation cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Cost {
    /// Microseconds of CPU, client and server.
    pub(super) client_cpu_us: f64,
    pub(super) server_cpu_us: f64,
    /// System calls that moved bytes, at the client.
    pub(super) client_syscalls: f64,
    /// The same at the server.
    pub(super) server_syscalls: f64,
    /// Bytes of payload copied by our code, at both ends together.
    pub(super) bytes_copied: f64,
}

/// Allocations per operation.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Allocations {
    pub(super) client: f64,
    pub(super) server: f64,
}

impl Allocations {
    /// Both, as they stand in the table.
    fn columns(counted: Option<Self>) -> [String; 2] {
        match counted {
            Some(Self { client, server }) => [client, server].map(|n| format!("{n:.2}")),
            None => ["-", "-"].map(str::to_owned),
        }
    }
}

/// What a ratio should be.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Aim {
    /// A time: not more than this.
    AtMost(f64),
    /// A rate: not less than this.
    AtLeast(f64),
}

impl Aim {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }
}

/// All that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) results: Vec<Figure>,
    /// Resident bytes of an idle connection.
    pub(super) idle_connection: Idle,
}

/// Bytes of resident memory that one more idle connection takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Idle {
    pub(super) client: u64,
    pub(super) server: u64,
}

impl Report {
    /// The table for people.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{:<17} {:>11} {:>11} {:<6} {:>6} {:>8}  {:>5} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>9}",
            "",
            "ours",
            "plain TCP",
            "",
            "ratio",
            "aim",
            "kept",
            "p50 us",
            "p99 us",
            "cpu us",
            "cpu us",
            "calls",
            "calls",
            "allocs",
            "allocs",
            "copied",
        )?;
        writeln!(
            out,
            "{:<17} {:>11} {:>11} {:<6} {:>6} {:>8}  {:>5} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6} {:>6} {:>6} {:>9}",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "client",
            "server",
            "client",
            "server",
            "client",
            "server",
            "bytes",
        )?;
        for f in &self.results {
            let (sign, limit) = match f.aim {
                Aim::AtMost(limit) => ("<=", limit),
                Aim::AtLeast(limit) => (">=", limit),
            };
            let [client_allocations, server_allocations] = Allocations::columns(f.allocations);
            let met = if f.aim.is_met(f.ratio) { ' ' } else { '!' };
            writeln!(
                out,
                "{:<17} {:>11.2} {:>11.2} {:<6} {:>6.3}{met} {sign} {limit:>4.2}  {:>2}/{:<2} {:>8.1} {:>8.1} {:>7.2} {:>7.2} {:>6.2} {:>6.2} {client_allocations:>6} {server_allocations:>6} {:>9.0}",
                f.name,
                f.value,
                f.raw,
                f.unit,
                f.ratio,
                f.kept,
                f.repetitions,
                f.p50_us,
                f.p99_us,
                f.cost.client_cpu_us,
                f.cost.server_cpu_us,
                f.cost.client_syscalls,
                f.cost.server_syscalls,
                f.cost.bytes_copied,
            )?;
        }
        writeln!(
            out,
            "\nan idle connection: {} KiB resident at the client, {} KiB at the server",
            self.idle_connection.client / 1024,
            self.idle_connection.server / 1024,
        )?;
        writeln!(
            out,
            "\nEach figure is the median over repetitions that alternate with the same bytes over plain TCP\n\
             between the same two processes; ends that park are kept on CPUs of their own. `!` marks a ratio\n\
             short of its aim. Per operation: CPU time, system calls that moved bytes, allocations,\n\
             payload bytes copied by our code."
        )?;
        Ok(())
    }
}

/// The middle of some values, or of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn an_aim_is_met_at_its_limit() {
        assert!(Aim::AtMost(1.25).is_met(1.25) && !Aim::AtMost(1.25).is_met(1.26));
        assert!(Aim::AtLeast(0.8).is_met(0.8) && !Aim::AtLeast(0.8).is_met(0.79));
    }
}
