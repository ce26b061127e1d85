//! Time limit for a client to hand over the chunks of its calls, while they hold memory.

use rpcrdma_proto::Pulls;
use std::time::{Duration, Instant};

/// Interval of checks for a shortage of memory, if it matters.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Read chunks that one client owes.
///
/// One call after the other must arrive completely, each within the time limit. That tolerates a
/// slow client, but a malicious one could hold the memory of its last call for the time limit times
/// the number of its calls. So while others wait for memory, everything begun by some moment must
/// arrive within the limit: no client holds memory from others for more than twice as long.
#[derive(Debug)]
pub(crate) struct Pulling {
    timeout: Duration,
    owed: Option<Owed>,
}

#[derive(Clone, Copy, Debug)]
struct Owed {
    /// Number of complete calls, and the time of the last one.
    done: (u64, Instant),
    /// Number of calls begun at this time, the last of which is still incomplete.
    begun: (u64, Instant),
}

impl Pulling {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            owed: None,
        }
    }

    /// Whether a time limit is exceeded.
    pub(crate) fn is_late(
        &mut self,
        now: Instant,
        pulls: Option<Pulls>,
        memory_is_short: impl FnOnce() -> bool,
    ) -> bool {
        let Some(Pulls { begun, done }) = pulls else {
            self.owed = None;
            return false;
        };
        let mut owed = self.owed.unwrap_or(Owed {
            done: (done, now),
            begun: (begun, now),
        });
        if owed.done.0 != done {
            owed.done = (done, now);
        }
        if owed.begun.0 <= done {
            owed.begun = (begun, now);
        }
        self.owed = Some(owed);
        let late = |since| now >= since + self.timeout;
        late(owed.done.1) || late(owed.begun.1) && memory_is_short()
    }

    /// Returns the latest time of the next check.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        let owed = self.owed?;
        let whole = owed.begun.1 + self.timeout;
        Some((owed.done.1 + self.timeout).min(whole.max(now + LOOK_AGAIN)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Looks at the times that are given, in seconds, at how many calls were begun and done by then.
    fn check(short: bool, seen: &[(u64, u64, u64)], late: Option<u64>) {
        let start = Instant::now();
        let mut pulling = Pulling::new(TIMEOUT);
        let found = seen.iter().find(|&&(second, begun, done)| {
            let now = start + Duration::from_secs(second);
            pulling.is_late(now, Some(Pulls { begun, done }), || short)
        });
        assert_eq!(found.map(|seen| seen.0), late, "{seen:?}");
    }

    #[test]
    fn client_that_hands_over_nothing_is_late() {
        for short in [false, true] {
            check(short, &[(0, 3, 0), (29, 3, 0), (30, 3, 0)], Some(30));
            check(short, &[(0, 1, 0), (20, 2, 1), (49, 2, 1)], None);
            check(short, &[(0, 1, 0), (20, 2, 1), (50, 2, 1)], Some(50));
        }
    }

    #[test]
    fn slow_client_is_late_only_where_memory_is_short() {
        let slow = [(0, 9, 0), (20, 9, 1), (40, 9, 2), (60, 9, 3)];
        check(false, &slow, None);
        check(true, &slow, Some(40));
        // What was begun since has as much time again.
        let steady = [(0, 2, 0), (10, 3, 1), (29, 4, 2), (50, 5, 4), (75, 6, 5)];
        check(true, &steady, None);
    }

    #[test]
    fn time_begins_anew_when_nothing_is_owed() {
        let start = Instant::now();
        let mut pulling = Pulling::new(TIMEOUT);
        let owed = Some(Pulls { begun: 1, done: 0 });
        assert!(!pulling.is_late(start, owed, || true));
        assert!(pulling.next(start).is_some());
        assert!(!pulling.is_late(start + TIMEOUT, None, || true));
        assert_eq!(pulling.next(start), None);
        assert!(!pulling.is_late(start + TIMEOUT, owed, || true));
    }

    #[test]
    fn late_client_is_looked_at_again_while_memory_is_not_short() {
        let start = Instant::now();
        let mut pulling = Pulling::new(TIMEOUT);
        let owed = |done| Some(Pulls { begun: 9, done });
        assert!(!pulling.is_late(start, owed(0), || false));
        assert_eq!(pulling.next(start), Some(start + TIMEOUT));
        let later = start + Duration::from_secs(20);
        assert!(!pulling.is_late(later, owed(1), || false));
        let late = start + TIMEOUT;
        assert!(!pulling.is_late(late, owed(1), || false));
        assert_eq!(pulling.next(late), Some(late + LOOK_AGAIN));
        assert!(pulling.is_late(late + LOOK_AGAIN, owed(1), || true));
    }
}
