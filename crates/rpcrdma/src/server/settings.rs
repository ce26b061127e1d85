//! Settings that all connections of a server share.

use super::addresses::{Addresses, ReceiveQueue};
use super::backward_memory::BackwardMemory;
use super::receive_memory::ReceiveMemory;
use crate::ServerConfig;
use crate::driver::budget::Budget;
use crate::driver::clock;
use crate::driver::invalidation::Terms;
use crate::driver::job_replies::JobCall;
use oncrpc::{PeerGroup, Service};
use rpc_serving::admission::Admission;
use rpc_serving::jobs::Jobs;
use rpc_serving::warnings::{Suppressed, Warnings};
use rpcrdma_proto::Registrations;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tracing::warn;
use verbs::{Limits, Provider};

/// Settings that all connections of a server share; none changes them.
pub(super) struct Settings {
    pub(super) service: Arc<dyn Service>,
    pub(super) config: ServerConfig,
    pub(super) budget: Budget,
    pub(super) admission: Admission,
    pub(super) receive_memory: ReceiveMemory,
    pub(super) addresses: Addresses,
    pub(super) warnings: Warnings,
    /// Notified when a warning is suppressed: a summary is due later.
    pub(super) suppressed: Notify,
    pub(super) jobs: Jobs<JobCall>,
    pub(super) backward_memory: BackwardMemory,
}

impl Settings {
    /// The name of the server in log lines, if it has one.
    pub(super) fn listen(&self) -> Option<&str> {
        self.config.listener_name.as_deref()
    }

    /// Whether to log one more warning about this peer.
    pub(super) fn may_warn(&self, peer: PeerGroup) -> bool {
        let allowed = self.warnings.allows(peer, clock::now());
        if !allowed {
            self.suppressed.notify_one();
        }
        allowed
    }

    /// Logs the number of suppressed warnings after each period that has any.
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

    /// Logs the number of suppressed warnings of periods that ended by `now`.
    pub(super) fn summarise(&self, now: Instant) {
        let listen = self.listen();
        for Suppressed { peer, count } in self.warnings.summary(now) {
            match peer {
                Some(peer) => warn!(listen, %peer, count, "further warnings about this peer"),
                None => warn!(listen, count, "further warnings about many peers"),
            }
        }
    }
}

/// A provider on which a server listens, and what its connections share.
pub(super) struct Listened {
    pub(super) provider: Arc<dyn Provider>,
    /// Receives of all its connections, if they share them.
    pub(super) receives: Option<Arc<ReceiveQueue>>,
}

/// Remote invalidation designs that a connection can agree to, over a provider with these limits.
pub(super) fn terms(config: &ServerConfig, limits: &Limits) -> Terms {
    Terms::new(&config.remote_invalidation, Registrations::OF_CALLS, limits)
}
