//! State of a connection: open, ending or closed.

use verbs::CloseReason;

/// State of a connection.
pub(super) enum Phase {
    /// Work is taken and bytes go both ways.
    Open,
    /// What is framed or was posted before the end still goes out; what comes in is dropped.
    Ending {
        /// Why the connection ends.
        reason: CloseReason,
    },
    /// Nothing moves any more.
    Closed(CloseReason),
}
