//! The runtime's clock, which is virtual in tests.

use std::time::Instant;

/// Returns the current time.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
