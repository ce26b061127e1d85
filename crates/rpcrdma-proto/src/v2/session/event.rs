//! Events of a session.

use crate::v2::characteristics::{XcharId, XcharVal};

/// An event for the user of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request to the peer has ended.
    Settled {
        /// The requested value.
        wanted: XcharVal,
        /// Outcome of the request.
        outcome: Settled,
    },
    /// The peer requests this value of a registered characteristic of this end. The request is
    /// pending until [`Session::settle`](super::Session::settle).
    Wanted(XcharVal),
    /// A characteristic of the peer has changed.
    PeerChanged(XcharId),
}

/// Outcome of a request to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The peer granted the request.
    Done,
    /// The peer granted the request in part, with this value.
    Partly(XcharVal),
    /// The peer rejected the request, or accepts none.
    Rejected,
}
