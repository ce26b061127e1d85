//! The first-reply timeout: how long a new connection may go without a reply.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The first-reply timeout of a client: as configured, doubled for each connection in a row that brought
/// no reply, so that a slow server is reached in the end.
///
/// All connections of a client share it. A reply over any of them resets it: the server is not slow then,
/// and connections without a reply are useless.
#[derive(Debug)]
pub(super) struct FirstReplyTimeout {
    first: Duration,
    present: Mutex<Duration>,
}

impl FirstReplyTimeout {
    pub(super) fn new(first: Duration) -> Self {
        Self {
            first,
            present: Mutex::new(first),
        }
    }

    /// Returns the current timeout.
    pub(super) fn present(&self) -> Duration {
        *self.lock()
    }

    /// Handles a connection that was given up after this time. Several at the same time count once.
    pub(super) fn given_up(&self, after: Duration) {
        let mut present = self.lock();
        *present = present.max(after.saturating_mul(2));
    }

    /// Handles a message on any connection.
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
        let first_reply_timeout = FirstReplyTimeout::new(seconds(15));
        for expected in [15, 30, 60, 120] {
            assert_eq!(first_reply_timeout.present(), seconds(expected));
            // Two at the same time are no row.
            first_reply_timeout.given_up(seconds(expected));
            first_reply_timeout.given_up(seconds(expected));
        }
        first_reply_timeout.heard();
        assert_eq!(first_reply_timeout.present(), seconds(15));
        first_reply_timeout.given_up(Duration::MAX);
        assert_eq!(first_reply_timeout.present(), Duration::MAX);
    }
}
