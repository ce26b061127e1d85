//! Figures, and how they are printed.

use printing::table::Columns;
use printing::units;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Figure {
    /// Which measurement.
    pub(super) name: &'static str,
    /// Ours: microseconds of the median exchange, or mebibytes or operations per second.
    pub(super) value: f64,
    /// Of the value and of `raw`.
    pub(super) unit: &'static str,
    /// The same of plain TCP.
    pub(super) raw: f64,
    /// Ours divided by plain TCP: median over the repetitions whose plain-TCP runs agreed.
    pub(super) ratio: f64,
    /// The bound that this project has set for the ratio.
    pub(super) bound: Bound,
    /// Repetitions whose two plain-TCP runs agreed, and all of them.
    pub(super) agreed: usize,
    /// All repetitions.
    pub(super) repetitions: usize,
    /// Microseconds of the median and the 99th percentile of one operation.
    pub(super) p50_us: f64,
    /// 99 % are not longer, in microseconds.
    pub(super) p99_us: f64,
    /// Of both processes, per operation.
    pub(super) cost: Cost,
    /// Requests of both processes to the allocator, if these were counted.
    pub(super) allocations: Option<Allocations>,
    /// The bytes of one operation on the wire, to the server and back.
    pub(super) bytes_out: u64,
    /// The same, in.
    pub(super) bytes_in: u64,
}

/// Cost of one operation.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Cost {
    /// Microseconds of CPU, client and server.
    pub(super) client_cpu_us: f64,
    /// The same at the server.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Allocations {
    /// Allocations of the client.
    pub(super) client: f64,
    /// Allocations of the server.
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

/// Bound of a ratio.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    /// A time: not more than this.
    AtMost(f64),
    /// A rate: not less than this.
    AtLeast(f64),
}

impl Bound {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }
}

/// All that was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// The measurements.
    pub(super) results: Vec<Figure>,
    /// Resident bytes of an idle connection.
    pub(super) idle_connection: Idle,
}

/// Bytes of resident memory that one more idle connection takes.
#[derive(Clone, Copy, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Idle {
    /// At the client.
    pub(super) client: u64,
    /// At the server.
    pub(super) server: u64,
}

impl Report {
    /// The tables for people.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let idle = &self.idle_connection;
        writeln!(
            out,
            "{}\nPer call:\n\n{}\nIdle connection: {} resident at the client, {} at the server.\n\n\
             Medians over repetitions that alternate with the same bytes over plain TCP\n\
             between the same two processes. CPU time and system calls are those of each\n\
             process; copied bytes are those that both copied in user space.",
            self.figures(),
            self.costs(),
            units::size(idle.client),
            units::size(idle.server)
        )
    }

    /// The same, and the bound of each ratio.
    pub(super) fn print_with_bounds(&self, out: &mut impl Write) -> std::io::Result<()> {
        self.print(out)?;
        let mut table = Columns::new(&[0, 2, 3]);
        table.add(["", "ratio", "bound", "", "agreed"]);
        for f in &self.results {
            let bound = match f.bound {
                Bound::AtMost(limit) => format!("at most {limit:.2}"),
                Bound::AtLeast(limit) => format!("at least {limit:.2}"),
            };
            table.add([
                f.name.to_owned(),
                format!("{:.3}", f.ratio),
                bound,
                if f.bound.is_met(f.ratio) {
                    "met"
                } else {
                    "missed"
                }
                .to_owned(),
                format!("{} of {}", f.agreed, f.repetitions),
            ]);
        }
        writeln!(
            out,
            "\n{table}\nRepetitions agree whose plain-TCP runs before and after are alike. If fewer\n\
             than half do, all count, and the machine was not idle."
        )
    }

    /// Each figure beside that of plain TCP.
    fn figures(&self) -> Columns {
        let mut table = Columns::new(&[0, 3]);
        table.add(["", "rpcrdma", "plain TCP", "", "ratio", "p50 us", "p99 us"]);
        for f in &self.results {
            table.add([
                f.name.to_owned(),
                format!("{:.2}", f.value),
                format!("{:.2}", f.raw),
                f.unit.to_owned(),
                format!("{:.3}", f.ratio),
                format!("{:.1}", f.p50_us),
                format!("{:.1}", f.p99_us),
            ]);
        }
        table
    }

    /// Cost of one operation of each kind.
    fn costs(&self) -> Columns {
        let mut table = Columns::new(&[0]);
        table.add([
            "",
            "client\nCPU us",
            "server\nCPU us",
            "client\nsyscalls",
            "server\nsyscalls",
            "client\nallocs",
            "server\nallocs",
            "copied\nbytes",
        ]);
        for f in &self.results {
            let [client_allocations, server_allocations] = Allocations::columns(f.allocations);
            table.add([
                f.name.to_owned(),
                format!("{:.2}", f.cost.client_cpu_us),
                format!("{:.2}", f.cost.server_cpu_us),
                format!("{:.2}", f.cost.client_syscalls),
                format!("{:.2}", f.cost.server_syscalls),
                client_allocations,
                server_allocations,
                format!("{:.0}", f.cost.bytes_copied),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_at_its_limit() {
        assert!(Bound::AtMost(1.25).is_met(1.25) && !Bound::AtMost(1.25).is_met(1.26));
        assert!(Bound::AtLeast(0.8).is_met(0.8) && !Bound::AtLeast(0.8).is_met(0.79));
    }
}
