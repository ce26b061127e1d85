//! State of a connection: open, ending or closed.

use verbs::CloseReason;

/// State of a connection.
pub(super) enum Phase {
    /// Work is accepted, and bytes move in both directions.
    Open,
    /// Work posted before the end is still sent; received bytes are dropped.
    Ending {
        /// Why the connection ends.
        reason: CloseReason,
    },
    /// The connection is closed.
    Closed(CloseReason),
}
