//! Clients and servers under faults, by seed, with checkers of what must always hold.
//!
//! A [`Scenario`] is a row of a [table](SCENARIOS): which calls are made, under which faults, with
//! which limits. [`run`] plays it from a seed: clients and a server on a [`verbs_sim::Fabric`], all
//! on one thread, in virtual time; the same seed is the same run. [`over_iwarp::run`] plays the
//! same rows over software iWARP on loopback, in real time, through a proxy that cuts, delays and
//! splits what goes through it.
//!
//! The checkers of [`rpcrdma_watch`] stand between the stack and its provider.

#![allow(
    clippy::missing_panics_doc,
    reason = "a broken test of tests is to stop at once"
)]

mod actors;
mod back;
mod calls;
mod dice;
mod echo;
mod faults;
mod files;
mod judge;
mod model;
mod nfs4;
pub mod over_iwarp;
mod panics;
mod proxy;
mod records;
mod relayed;
mod scenario;
mod sim;
mod stage;
mod triggered;
mod varying;
mod wires;

pub use dice::Dice;
pub use echo::{EVERY_KIND, Echo, How, Kind, Mix, Shape, Shared};
pub use faults::{FaultRates, Sizes};
pub use scenario::{Backward, Files, Load, SCENARIOS, Scenario, scenario};
pub use sim::run;

use rpcrdma::Design;
use std::collections::BTreeMap;
use std::time::Duration;
use verbs_sim::TraceHash;

/// Result of one run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Violations found by the checkers.
    pub findings: Vec<String>,
    /// Hash of all events; only of a simulation.
    pub trace: Option<TraceHash>,
    /// A line for each event, if they were recorded.
    pub lines: Vec<String>,
    /// Counters.
    pub tally: Tally,
    /// Connections on which each design for remote invalidation was agreed on by a message.
    pub designs: BTreeMap<Design, u64>,
    /// Duration, in virtual time if it was a simulation.
    pub time: Duration,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that were made.
    pub calls: u64,
    /// Those with a reply, or the error that was expected.
    pub answered: u64,
    /// Those that were cancelled by their caller.
    pub cancelled: u64,
    /// Calls of the server to its clients that were answered.
    pub called_back: u64,
    /// Connections of the clients.
    pub connections: u64,
    /// Times that the server was restarted.
    pub restarts: u64,
    /// Handles of clients that replies invalidated.
    pub invalidated: u64,
    /// Of these, those of other calls than the one that was answered (reminv §4.6).
    pub invalidated_between: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.answered += other.answered;
        self.cancelled += other.cancelled;
        self.called_back += other.called_back;
        self.connections += other.connections;
        self.restarts += other.restarts;
        self.invalidated += other.invalidated;
        self.invalidated_between += other.invalidated_between;
    }
}
