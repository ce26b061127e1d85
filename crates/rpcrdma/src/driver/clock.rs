//! The time, as the runtime has it: in a test that may be a virtual one.

use std::time::Instant;

/// Now.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
