//! The deadlines of one connection, in one table.

use std::time::Instant;

/// Kind of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Time limits of this end's calls.
    Calls,
    /// The liveness probe of a silent peer.
    Liveness,
    /// Read chunks that the peer has not handed over.
    Pull,
    /// The transfer rate that a lease of chunk memory requires.
    Lease,
    /// The idle timer.
    Idle,
    /// The first-reply timeout.
    FirstReply,
    /// The end of draining, when a server stops.
    Drain,
    /// The check for jobs that hang.
    Jobs,
    /// The next time to publish counters.
    Publish,
    /// The next look whether replies were delivered.
    Delivery,
}

/// Number of kinds of deadlines.
const KINDS: usize = 10;

/// Table of deadlines. The handler of a deadline sets it again each time.
#[derive(Debug, Default)]
pub(crate) struct Deadlines([Option<Instant>; KINDS]);

impl Deadlines {
    /// Whether a deadline is set.
    pub(crate) fn is_set(&self, deadline: Deadline) -> bool {
        self.0[deadline as usize].is_some()
    }

    /// Sets or clears a deadline.
    pub(crate) fn set(&mut self, deadline: Deadline, at: Option<Instant>) {
        self.0[deadline as usize] = at;
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn next_is_the_earliest_that_is_set() {
        let start = Instant::now();
        let at = |seconds| Some(start + Duration::from_secs(seconds));
        let mut deadlines = Deadlines::default();
        assert_eq!(deadlines.next(), None);
        deadlines.set(Deadline::Calls, at(3));
        deadlines.set(Deadline::Idle, at(2));
        assert_eq!(deadlines.next(), at(2));
        deadlines.set(Deadline::Idle, at(5));
        assert_eq!(deadlines.next(), at(3));
        deadlines.set(Deadline::Calls, None);
        assert_eq!(deadlines.next(), at(5));
    }
}
