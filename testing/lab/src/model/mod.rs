//! Two ends of one connection and the calls between them, below what makes and ends connections: in virtual
//! time on a model of an RNIC and its host, or on a provider of this machine.

mod bed;
mod config;
mod costs;
mod counted;
mod traffic;

pub(super) use bed::{Bed, Loopback, Over, Simulated};
pub(super) use config::config;
pub(super) use costs::{Assumptions, ModelArgs, OF_THE_MODEL};
pub(super) use counted::Counts;
pub(super) use traffic::{Order, Outcome, Sizes, Snapshot, Traffic, Workload};
