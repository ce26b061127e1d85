//! Counts of allocations, if the allocator of the program counts them.

use std::sync::OnceLock;

static COUNTER: OnceLock<fn() -> u64> = OnceLock::new();

/// Says once, when the program starts, who counts.
pub(crate) fn set(counter: Option<fn() -> u64>) {
    if let Some(counter) = counter {
        COUNTER.get_or_init(|| counter);
    }
}

/// Allocations of this process so far, growing ones included; `None` if nobody counts.
pub(crate) fn count() -> Option<u64> {
    COUNTER.get().map(|counter| counter())
}
