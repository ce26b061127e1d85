//! Window of data in flight for one file: enough for one round trip, and no more.
//!
//! Data in flight beyond that waits somewhere, and has left the CPU caches when its turn comes:
//! over loopback, a file of 1 GiB takes a tenth less time with 4 MiB in flight than with 16 MiB. If
//! calls take long, on the network or for a disk, everything that is allowed is in flight.

use crate::Tuning;
use std::time::Duration;

/// Bytes in flight that are never too many.
const LEAST: usize = 4 << 20;

/// Bytes in flight for each microsecond of a round trip: 8 GiB a second, more than one connection moves.
/// A WRITE takes two round trips, as the server reads its data.
const PER_MICROSECOND: usize = 8 << 10;

/// Calls that take so long wait for something else than each other: with [`LEAST`] bytes in flight they
/// move less than half a gigabyte a second.
const SLOW: Duration = Duration::from_millis(8);

/// How many bytes of data may be in flight for a file.
pub(crate) struct Window {
    bytes: usize,
    most: usize,
    /// The shortest time of a call since the window was last looked at.
    shortest: Duration,
    /// Bytes to be answered until it is looked at again.
    left: usize,
}

impl Window {
    pub(crate) fn new(tuning: &Tuning) -> Self {
        let microseconds = usize::try_from(tuning.round_trip.as_micros()).unwrap_or(usize::MAX);
        let bytes = microseconds.saturating_mul(PER_MICROSECOND).max(LEAST);
        let bytes = bytes.min(tuning.in_flight);
        Self {
            bytes,
            most: tuning.in_flight,
            shortest: Duration::MAX,
            left: bytes,
        }
    }

    /// Bytes that may be in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A call with this much data was answered after this time.
    pub(crate) fn answered(&mut self, bytes: usize, took: Duration) {
        self.shortest = self.shortest.min(took);
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            if self.shortest >= SLOW {
                self.bytes = self.most;
            }
            self.shortest = Duration::MAX;
            self.left = self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(round_trip: Duration) -> Window {
        Window::new(
            &Tuning::new(&nfs_proto::results::FsInfo::default()).with_round_trip(round_trip),
        )
    }

    #[test]
    fn more_is_in_flight_the_longer_a_round_trip_takes() {
        let check = |micros, mib: usize| {
            let window = window(Duration::from_micros(micros));
            assert_eq!(window.bytes(), mib << 20, "{micros} us");
        };
        check(0, 4);
        check(512, 4);
        check(1024, 8);
        check(2048, 16);
        check(u64::MAX, 16);
    }

    #[test]
    fn everything_allowed_is_in_flight_when_all_calls_of_a_window_are_slow() {
        let mut window = window(Duration::ZERO);
        let answered = |window: &mut Window, times: [u64; 4]| {
            for millis in times {
                window.answered(1 << 20, Duration::from_millis(millis));
            }
            window.bytes() >> 20
        };
        assert_eq!(answered(&mut window, [9, 9, 7, 9]), 4);
        assert_eq!(answered(&mut window, [9, 8, 9, 9]), 16);
        assert_eq!(answered(&mut window, [1, 1, 1, 1]), 16, "it stays so");
    }

    #[test]
    fn what_the_user_allows_is_a_bound() {
        let mut window = Window::new(
            &Tuning::new(&nfs_proto::results::FsInfo::default()).with_in_flight(1 << 20),
        );
        assert_eq!(window.bytes(), 1 << 20);
        window.answered(1 << 20, SLOW);
        assert_eq!(window.bytes(), 1 << 20);
    }
}
