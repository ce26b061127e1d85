//! Warnings about peers, limited per peer.

use oncrpc::PeerGroup;
use rpc_serving::warnings::{Suppressed, Warnings};
use std::sync::OnceLock;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Decides which warnings about peers are logged, and logs how many were not. Shared by all
/// connections that it is to limit.
#[derive(Debug, Default)]
pub struct WarningLog {
    warnings: Warnings,
    /// Signalled when a warning was suppressed, so that a summary is due.
    suppressed: Notify,
    /// Address at which the server listens, for the field `listen` of each line.
    listener: OnceLock<String>,
}

impl WarningLog {
    /// Names a listener in each line from now on, in the field `listen`: for processes that have several. The first name
    /// stays.
    pub fn name_listener(&self, name: impl FnOnce() -> String) {
        self.listener.get_or_init(name);
    }

    /// The name of the listener, if it has one.
    pub fn listener(&self) -> Option<&str> {
        self.listener.get().map(String::as_str)
    }

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
        let listen = self.listener();
        for Suppressed { peer, count } in self.warnings.summary(now.into_std()) {
            match peer {
                Some(peer) => {
                    tracing::warn!(listen, %peer, count, "further warnings about this peer");
                }
                None => tracing::warn!(listen, count, "further warnings about many peers"),
            }
        }
    }
}
