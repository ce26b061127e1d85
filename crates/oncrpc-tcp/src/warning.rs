//! Warnings about peers, limited per peer.

use oncrpc::PeerGroup;
use oncrpc::warnings::{Suppressed, Warnings};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Decides which warnings about peers are logged, and logs how many were not. Shared by all
/// connections that it is to limit.
#[derive(Debug, Default)]
pub struct WarningLog {
    warnings: Warnings,
    /// Signalled when a warning was suppressed, so that a summary is due.
    suppressed: Notify,
}

impl WarningLog {
    /// Whether to log one more warning about this peer.
    pub fn may_warn(&self, peer: PeerGroup) -> bool {
        let allowed = self.warnings.allows(peer, Instant::now().into_std());
        if !allowed {
            self.suppressed.notify_one();
        }
        allowed
    }

    /// Waits until a [summary](Self::summarise) is due.
    pub async fn summary_is_due(&self) {
        loop {
            if let Some(due) = self.warnings.next_summary() {
                return tokio::time::sleep_until(due.into()).await;
            }
            self.suppressed.notified().await;
        }
    }

    /// Logs how many warnings were not logged in periods that are over by `now`.
    pub fn summarise(&self, now: Instant) {
        for Suppressed { peer, count } in self.warnings.summary(now.into_std()) {
            match peer {
                Some(peer) => tracing::warn!(%peer, count, "further warnings about this peer"),
                None => tracing::warn!(count, "further warnings about many peers"),
            }
        }
    }
}
