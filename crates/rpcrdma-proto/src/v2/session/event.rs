//! What a session tells the user of its connection.

use crate::v2::characteristics::{XcharId, XcharVal};

/// What a user of the connection may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// What was asked of the peer has come to its end.
    Settled {
        /// What was asked for.
        wanted: XcharVal,
        /// What became of it.
        outcome: Settled,
    },
    /// The peer asks for this value of a registered characteristic of ours. It is pending until
    /// [`Session::settle`](super::Session::settle).
    Wanted(XcharVal),
    /// A characteristic of the peer has another value.
    PeerChanged(XcharId),
}

/// What became of something that the peer was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was done.
    Done,
    /// The peer came as far as this value.
    Partly(XcharVal),
    /// It was rejected, or the peer takes no requests.
    Rejected,
}
