//! Warnings about peers, limited by address.

use oncrpc::PeerGroup;
use rpc_serving::warnings::{Suppressed, Warnings};
use std::time::Instant;

/// Decides which warnings about peers are logged. How many were not is logged with the next one that is
/// due.
#[derive(Debug, Default)]
pub(crate) struct PeerWarnings(Warnings);

impl PeerWarnings {
    /// Whether to log one more warning about this peer.
    pub(crate) fn may_warn(&self, peer: PeerGroup) -> bool {
        let now = Instant::now();
        for Suppressed { peer, count } in self.0.summary(now) {
            match peer {
                Some(peer) => tracing::warn!(%peer, count, "further warnings about this peer"),
                None => tracing::warn!(count, "further warnings about many peers"),
            }
        }
        self.0.allows(peer, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc_serving::warnings::MAX_WARNINGS;

    #[test]
    fn peer_has_few_warnings_at_a_time() {
        let warnings = PeerWarnings::default();
        let peer = |last| PeerGroup::of([192, 0, 2, last].into());
        let logged = (0..100).filter(|_| warnings.may_warn(peer(1))).count();
        assert_eq!(logged as u64, MAX_WARNINGS);
        assert!(warnings.may_warn(peer(2)));
    }
}
