//! Warnings about peers, limited by address.

use oncrpc::PeerGroup;
use oncrpc::warnings::{Suppressed, Warnings};
use std::convert::Infallible;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Decides which warnings are logged, and logs how many were not.
#[derive(Debug, Default)]
pub(crate) struct Log {
    warnings: Warnings,
    /// Signalled when a warning was suppressed, so that a summary is due.
    suppressed: Notify,
}

impl Log {
    /// Whether to log one more warning about this peer.
    pub(crate) fn may_warn(&self, peer: PeerGroup) -> bool {
        let allowed = self.warnings.allows(peer, Instant::now().into_std());
        if !allowed {
            self.suppressed.notify_one();
        }
        allowed
    }

    /// Logs a summary after each period in which warnings were suppressed.
    pub(crate) async fn summarise_when_due(&self) -> Infallible {
        loop {
            match self.warnings.next_summary() {
                Some(due) => {
                    tokio::time::sleep_until(due.into()).await;
                    self.summarise(Instant::now());
                }
                None => self.suppressed.notified().await,
            }
        }
    }

    /// Logs how many warnings were suppressed in periods that are over by `now`.
    pub(crate) fn summarise(&self, now: Instant) {
        for Suppressed { peer, count } in self.warnings.summary(now.into_std()) {
            match peer {
                Some(peer) => tracing::warn!(%peer, count, "further warnings about this peer"),
                None => tracing::warn!(count, "further warnings about many peers"),
            }
        }
    }
}
