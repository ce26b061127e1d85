//! Measures the memory that an input costs.

use buffer::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `f`, which must not hold more than `most` bytes of new memory at any time.
///
/// # Panics
///
/// If it does, or if `f` does.
#[track_caller]
pub(crate) fn within<T>(most: usize, f: impl FnOnce() -> T) -> T {
    let mut done = None;
    // The counter has to be left in good order, or the next input would be counted wrongly.
    let counted = allocation_counter::measure(|| {
        done = Some(catch_unwind(AssertUnwindSafe(f)));
    });
    match done.expect("it was run") {
        Ok(value) => {
            let most = most as u64;
            let peak = counted.bytes_max;
            assert!(peak <= most, "{peak} bytes held where {most} are allowed");
            value
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// The same; and in the end all of it must be given back. What is made once for the whole process
/// is not made a second time, so that the second time decides.
#[track_caller]
pub(crate) fn within_and_back(most: usize, f: impl Fn()) {
    if left_over(most, &f) > 0 {
        let left = left_over(most, &f);
        assert!(left <= 0, "{left} bytes are left over");
    }
}

#[track_caller]
fn left_over(most: usize, f: impl Fn()) -> i64 {
    let mut left = 0;
    within(most, || {
        let counted = allocation_counter::measure(|| {
            within(most, f);
            // Pools leave some memory near the thread until one of them is looked at.
            Pool::new(0).stats();
        });
        left = counted.bytes_current;
    });
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_within_the_bound_is_fine() {
        assert_eq!(within(1000, || vec![0_u8; 1000].len()), 1000);
        within_and_back(1000, || drop(vec![0_u8; 1000]));
    }

    #[test]
    #[should_panic(expected = "1001 bytes held")]
    fn memory_beyond_the_bound_is_found() {
        within(1000, || drop(vec![0_u8; 1001]));
    }

    #[test]
    #[should_panic(expected = "10 bytes are left over")]
    fn memory_that_is_not_given_back_is_found() {
        within_and_back(1000, || std::mem::forget(vec![0_u8; 10]));
    }
}
