//! Time limit of a case.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How many times as long as one answer a case may take.
const ANSWERS_OF_A_CASE: u32 = 40;

/// Time at which a case ends, whatever its peer does. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Deadline(Rc<Cell<Instant>>);

impl Default for Deadline {
    fn default() -> Self {
        Self(Rc::new(Cell::new(Instant::now())))
    }
}

impl Deadline {
    /// Begins the time of a case in which each answer may take this long.
    pub(crate) fn begin(&self, answer: Duration) {
        let limit = answer.saturating_mul(ANSWERS_OF_A_CASE);
        let now = Instant::now();
        self.0.set(now.checked_add(limit).unwrap_or(now));
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.0.get()
    }

    /// This time, or what is left of the case if that is less.
    pub(crate) fn at_most(&self, limit: Duration) -> Duration {
        let left = self.0.get().saturating_duration_since(Instant::now());
        limit.min(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_no_longer_than_what_is_left_of_the_case() {
        let deadline = Deadline::default();
        assert!(deadline.is_over());
        assert_eq!(deadline.at_most(Duration::from_secs(1)), Duration::ZERO);
        let of_link = deadline.clone();
        deadline.begin(Duration::from_secs(60));
        assert!(!of_link.is_over());
        let second = Duration::from_secs(1);
        assert_eq!(of_link.at_most(second), second);
        assert!(of_link.at_most(Duration::MAX) <= Duration::from_secs(60) * ANSWERS_OF_A_CASE);
    }
}
