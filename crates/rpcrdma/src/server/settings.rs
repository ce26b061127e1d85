//! What all connections of a server share, and none changes.

use super::addresses::Addresses;
use super::backward_memory::BackwardMemory;
use super::receive_memory::ReceiveMemory;
use crate::ServerConfig;
use crate::driver::budget::Budget;
use crate::driver::clock;
use crate::driver::invalidation::Terms;
use crate::driver::jobs::Jobs;
use oncrpc::admission::Admission;
use oncrpc::warnings::{Suppressed, Warnings};
use oncrpc::{PeerGroup, Service};
use rpcrdma_proto::Registrations;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tracing::warn;
use verbs::{Limits, Provider};

/// What all connections of a server share, and none changes.
pub(super) struct Settings {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) service: Arc<dyn Service>,
    pub(super) config: ServerConfig,
    pub(super) budget: Budget,
    pub(super) admission: Admission,
    pub(super) receive_memory: ReceiveMemory,
    pub(super) addresses: Addresses,
    pub(super) warnings: Warnings,
    /// A warning was not logged: there is a summary to come.
    pub(super) suppressed: Notify,
    pub(super) jobs: Jobs,
    pub(super) backward_memory: BackwardMemory,
}

impl Settings {
    /// Whether one more warning about this peer is to be logged.
    pub(super) fn may_warn(&self, peer: PeerGroup) -> bool {
        let allowed = self.warnings.allows(peer, clock::now());
        if !allowed {
            self.suppressed.notify_one();
        }
        allowed
    }

    /// Logs how many warnings were not logged, each time that a period with such is over.
    pub(super) async fn summarise_when_due(&self) -> Infallible {
        loop {
            match self.warnings.next_summary() {
                Some(due) => {
                    tokio::time::sleep_until(due.into()).await;
                    self.summarise(clock::now());
                }
                None => self.suppressed.notified().await,
            }
        }
    }

    /// Logs how many warnings were not logged in periods that are over by `now`.
    pub(super) fn summarise(&self, now: Instant) {
        for Suppressed { peer, count } in self.warnings.summary(now) {
            match peer {
                Some(peer) => warn!(%peer, count, "further warnings about this peer"),
                None => warn!(count, "further warnings about many peers"),
            }
        }
    }
}

/// What a connection agrees to of the designs for remote invalidation, with a provider of these limits.
pub(super) fn terms(config: &ServerConfig, limits: &Limits) -> Terms {
    Terms::new(&config.remote_invalidation, Registrations::OF_CALLS, limits)
}
