//! Warnings of a server about its peers, limited per peer.

use crate::clock;
use crate::warnings::{Suppressed, WARNING_PERIOD, Warnings};
use oncrpc::PeerGroup;
use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::Instant;
use tokio::sync::Notify;

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
        let allowed = self.warnings.allows(peer, clock::now());
        if !allowed {
            self.suppressed.notify_one();
        }
        allowed
    }

    /// Logs one more line about this peer, if there were not too many. `line` gets the name of the listener, for its field
    /// `listen`.
    pub fn warn_of(&self, peer: PeerGroup, line: impl FnOnce(Option<&str>)) {
        if self.may_warn(peer) {
            line(self.listener());
        }
    }

    /// Logs how many warnings were not logged, after each period in which there were any. It never ends.
    pub async fn summarise_when_due(&self) -> Infallible {
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

    /// Logs how many warnings were not logged, also of periods that are not over yet: nothing is lost at the end of a
    /// server.
    pub fn summarise_all(&self) {
        self.summarise(clock::now() + WARNING_PERIOD);
    }

    /// Logs how many warnings were not logged in periods that are over by `now`.
    fn summarise(&self, now: Instant) {
        let listen = self.listener();
        for Suppressed { peer, count } in self.warnings.summary(now) {
            match peer {
                Some(peer) => {
                    tracing::warn!(listen, %peer, count, "further warnings about this peer");
                }
                None => tracing::warn!(listen, count, "further warnings about many peers"),
            }
        }
    }
}
