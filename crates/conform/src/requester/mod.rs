//! Cases against Requesters.

pub(crate) mod stage;

use crate::case::Case;

/// All cases against Requesters, in the order in which they run.
pub fn requester_cases() -> Vec<&'static Case> {
    Vec::new()
}
