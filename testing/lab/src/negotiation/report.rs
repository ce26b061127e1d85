//! Results of a measurement, and their tables.

use super::cases::{Agreement, Calls, Phase};
use crate::model::Assumptions;
use printing::table::Columns;
use printing::units::size;
use serde::Serialize;
use std::io::{Result, Write};

/// All that was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// Assumed costs.
    model: Assumptions,
    /// Bytes of data of a call or its reply.
    payload: u32,
    /// Calls in flight at a time.
    depth: u8,
    /// Each kind of calls, agreement and phase.
    rows: Vec<Row>,
}

/// Calls of one phase; counts are per call, both ends together.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Row {
    /// Kind of the calls.
    pub(super) workload: Calls,
    /// How the sizes come about.
    pub(super) agreement: Agreement,
    /// Part of the run.
    pub(super) phase: Phase,
    /// Calls that ended in it.
    pub(super) calls: u64,
    /// Calls per second of virtual time.
    pub(super) calls_per_second: f64,
    /// Median time of a call in microseconds.
    pub(super) time_us: f64,
    /// RDMA Reads and RDMA Writes.
    pub(super) rdma_operations: f64,
    /// Registrations of memory.
    pub(super) registrations: f64,
    /// Completions that woke a host.
    pub(super) wakeups: f64,
    /// Bytes of each Receive of the client at the end of the phase, as the server knows them.
    pub(super) client_receives: usize,
    /// Bytes of each Receive of the server, as the client knows them.
    pub(super) server_receives: usize,
}

impl Report {
    pub(super) fn new(model: Assumptions, payload: u32, depth: u8, rows: Vec<Row>) -> Self {
        Self {
            model,
            payload,
            depth,
            rows,
        }
    }

    /// The table for people.
    pub(super) fn print(&self, out: &mut impl Write) -> Result<()> {
        let mut table = Columns::new(&[0, 1, 2]);
        table.add([
            "workload", "sizes", "phase", "calls", "rate", "time", "rdma", "regs", "wakes",
            "client", "server",
        ]);
        for row in &self.rows {
            table.add(row.cells());
        }
        write!(out, "{table}")
    }

    /// The same in Markdown.
    pub(super) fn markdown(&self, out: &mut impl Write) -> Result<()> {
        writeln!(
            out,
            "| calls | sizes | phase | calls in it | calls per second | time of a call (µs) | RDMA operations | registrations | \
             wake-ups | Receives of the client | of the server |"
        )?;
        writeln!(out, "|---|---|---|{}", "--:|".repeat(8))?;
        for row in &self.rows {
            writeln!(out, "| {} |", row.cells().join(" | "))?;
        }
        writeln!(out)
    }
}

impl Row {
    fn cells(&self) -> [String; 11] {
        [
            self.workload.name().to_owned(),
            self.agreement.name().to_owned(),
            self.phase.name().to_owned(),
            self.calls.to_string(),
            format!("{:.0}", self.calls_per_second),
            format!("{:.1}", self.time_us),
            format!("{:.2}", self.rdma_operations),
            format!("{:.2}", self.registrations),
            format!("{:.2}", self.wakeups),
            size(self.client_receives as u64),
            size(self.server_receives as u64),
        ]
    }
}
