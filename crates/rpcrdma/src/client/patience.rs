//! How long the server of a client may leave a new connection without a reply.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time for the first reply of a connection: what was configured, doubled for each connection in a
/// row that had none, so that a server which is slow is served in the end.
///
/// All connections of a client have it in common. While nothing comes over any of them, a call has more
/// time on the next; if something does, the server is not slow, and those without a reply are of no use.
#[derive(Debug)]
pub(super) struct Patience {
    first: Duration,
    present: Mutex<Duration>,
}

impl Patience {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            first,
            present: Mutex::new(first),
        }
    }

    /// How long to wait at present.
    pub(super) fn present(&self) -> Duration {
        *self.lock()
    }

    /// A connection was given up that had so much time. Others that had no more, and are given up at the
    /// same time, change nothing: they tell the same.
    pub(super) fn given_up(&self, after: Duration) {
        let mut present = self.lock();
        *present = present.max(after.saturating_mul(2));
    }

    /// Something came over a connection.
    pub(super) fn heard(&self) {
        *self.lock() = self.first;
    }

    fn lock(&self) -> MutexGuard<'_, Duration> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_doubled_in_a_row_and_begins_anew_with_a_reply() {
        let seconds = Duration::from_secs;
        let patience = Patience::new(seconds(15));
        for expected in [15, 30, 60, 120] {
            assert_eq!(patience.present(), seconds(expected));
            // Two at the same time are no row.
            patience.given_up(seconds(expected));
            patience.given_up(seconds(expected));
        }
        patience.heard();
        assert_eq!(patience.present(), seconds(15));
        patience.given_up(Duration::MAX);
        assert_eq!(patience.present(), Duration::MAX);
    }
}
