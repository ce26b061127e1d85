//! Lowest transfer rate of a peer that holds chunk memory.

use std::time::{Duration, Instant};

/// Lowest transfer rate of a peer, in bytes per second, while others wait for the memory.
pub(crate) const MIN_RATE: u64 = 64 << 10;

/// Length of a measurement.
const WINDOW: Duration = Duration::from_secs(1);

/// Transfer rate of one peer while it owes bytes.
#[derive(Debug, Default)]
pub(crate) struct LeaseRate {
    /// Start of the current measurement, and the bytes moved by then.
    window: Option<(Instant, u64)>,
    /// Result of the last measurement.
    slow: bool,
}

impl LeaseRate {
    /// Measures the rate. `owes` tells whether the peer must move bytes, `moved` how many have
    /// moved so far.
    pub(crate) fn look(&mut self, now: Instant, owes: bool, moved: u64) {
        if !owes {
            *self = Self::default();
            return;
        }
        let (since, before) = *self.window.get_or_insert((now, moved));
        let passed = now.saturating_duration_since(since);
        if passed >= WINDOW {
            let rate = u128::from(moved - before) * 1000 / passed.as_millis();
            self.slow = rate < u128::from(MIN_RATE);
            self.window = Some((now, moved));
        }
    }

    /// Whether the peer was slower than allowed while others wait.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow
    }

    /// Returns when to measure again.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.window.map(|(since, _)| since + WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at such times in milliseconds, with so many KiB moved by then; slow at the end or not.
    fn check(seen: &[(u64, bool, u64)], slow: bool) {
        let start = Instant::now();
        let mut rate = LeaseRate::default();
        for &(millis, owes, kib) in seen {
            rate.look(start + Duration::from_millis(millis), owes, kib << 10);
        }
        assert_eq!(rate.is_slow(), slow, "{seen:?}");
    }

    #[test]
    fn rate_counts_after_a_whole_window() {
        check(&[(0, true, 5), (999, true, 5)], false);
        check(&[(0, true, 5), (1000, true, 68)], true);
        check(&[(0, true, 5), (1000, true, 69)], false);
        check(&[(0, true, 0), (2000, true, 127)], true);
        check(&[(0, true, 0), (2000, true, 128)], false);
    }

    #[test]
    fn last_window_counts_until_the_next_one_is_over() {
        check(&[(0, true, 0), (1000, true, 9), (1500, true, 900)], true);
        check(&[(0, true, 0), (1000, true, 9), (2000, true, 900)], false);
    }

    #[test]
    fn peer_that_owes_nothing_is_not_slow() {
        check(&[(0, false, 0), (5000, false, 0)], false);
        check(&[(0, true, 0), (1000, true, 0), (1001, false, 0)], false);
        check(
            &[
                (0, true, 0),
                (900, false, 0),
                (1800, true, 0),
                (2700, true, 0),
            ],
            false,
        );
    }

    #[test]
    fn next_look_is_at_the_end_of_the_window() {
        let start = Instant::now();
        let mut rate = LeaseRate::default();
        assert_eq!(rate.next(), None);
        rate.look(start, true, 0);
        assert_eq!(rate.next(), Some(start + WINDOW));
        rate.look(start + WINDOW, true, 0);
        assert_eq!(rate.next(), Some(start + 2 * WINDOW));
    }
}
