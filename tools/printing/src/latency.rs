//! Latencies of calls, in an HDR histogram.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Longest latency that is told from longer ones, in nanoseconds: a day, the longest timeout there is.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Significant decimal digits of a recorded latency.
const DIGITS: u8 = 3;

/// Latencies of calls: the shortest and the longest as they are, the others to three digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    min: Duration,
    max: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LONGEST_NS, DIGITS);
        Self {
            histogram: histogram.expect("a day in nanoseconds to three digits is within bounds"),
            min: Duration::MAX,
            max: Duration::ZERO,
        }
    }
}

impl Latencies {
    /// Adds the latency of one call.
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(ns);
        self.min = self.min.min(latency);
        self.max = self.max.max(latency);
    }

    /// Number of calls.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The shortest latency; zero without a call.
    pub fn min(&self) -> Duration {
        self.min.min(self.max)
    }

    /// The longest latency; zero without a call.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The mean latency; zero without a call.
    pub fn mean(&self) -> Duration {
        let found = Duration::from_secs_f64(self.histogram.mean() / 1e9);
        // It is that of the ranges of values in which the latencies are.
        found.clamp(self.min(), self.max)
    }

    /// Standard deviation, which ping(8) calls `mdev`.
    pub fn deviation(&self) -> Duration {
        Duration::from_secs_f64(self.histogram.stdev() / 1e9)
    }

    /// The latency that so many percent of the calls did not exceed.
    pub fn percentile(&self, percent: f64) -> Duration {
        let found = self.histogram.value_at_percentile(percent);
        // What stands for a range of values may lie beyond those that were recorded.
        Duration::from_nanos(found).min(self.max)
    }
}

impl FromIterator<Duration> for Latencies {
    fn from_iter<I: IntoIterator<Item = Duration>>(all: I) -> Self {
        let mut latencies = Self::default();
        for latency in all {
            latencies.record(latency);
        }
        latencies
    }
}

/// A time in milliseconds for a JSON document, to the nanosecond.
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e9).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits() {
        let latencies: Latencies = (1..=1000).map(Duration::from_micros).collect();
        let near = |found: Duration, micros: f64| {
            let found = found.as_secs_f64() * 1e6;
            assert!(
                (found / micros - 1.0).abs() < 0.001,
                "{found} is not {micros}"
            );
        };
        assert_eq!(latencies.count(), 1000);
        near(latencies.min(), 1.0);
        near(latencies.percentile(50.0), 500.0);
        near(latencies.percentile(99.0), 990.0);
        near(latencies.max(), 1000.0);
        near(latencies.mean(), 500.5);
        near(latencies.deviation(), 288.675);
    }

    #[test]
    fn mean_is_not_beyond_the_shortest_and_the_longest() {
        for ns in [529_355, 1_000_001, 77_777_777] {
            let one: Latencies = [Duration::from_nanos(ns)].into_iter().collect();
            assert_eq!(one.mean(), Duration::from_nanos(ns));
        }
    }

    #[test]
    fn no_calls_have_no_latency() {
        let none = Latencies::default();
        assert_eq!(
            (none.count(), none.min(), none.max()),
            (0, Duration::ZERO, Duration::ZERO)
        );
        assert_eq!(
            (none.mean(), none.deviation()),
            (Duration::ZERO, Duration::ZERO)
        );
    }

    #[test]
    fn percentile_of_a_latency_beyond_a_day_is_a_day() {
        let latencies: Latencies = [Duration::MAX].into_iter().collect();
        let half = latencies.percentile(50.0).as_secs();
        assert!((86_400..86_500).contains(&half), "{half}");
    }

    #[test]
    fn shortest_and_longest_latency_are_exact_and_enclose_the_percentiles() {
        let all = [123_457, 7_654_321].map(Duration::from_nanos);
        let latencies: Latencies = all.into_iter().collect();
        assert_eq!([latencies.min(), latencies.max()], all);
        assert_eq!(latencies.percentile(100.0), all[1]);
    }

    #[test]
    fn milliseconds_have_no_digits_beyond_nanoseconds() {
        assert_eq!(
            milliseconds(Duration::from_nanos(41_234)).to_string(),
            "0.041234"
        );
        assert_eq!(
            milliseconds(Duration::from_nanos(139_999)).to_string(),
            "0.139999"
        );
    }
}
