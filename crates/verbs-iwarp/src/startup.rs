//! Records the MPA frames of connection setup, for diagnosis of a peer.

use iwarp_proto::mpa::{Agreed, Frame};
use std::time::Duration;

/// Record of a connection setup (RFC 5044 §7.1), successful or not: the frames of both ends,
/// uninterpreted, and the result of the negotiation.
#[derive(Clone, Debug, Default)]
pub struct Startup {
    /// One entry per TCP connection: none if nobody listens, two if the responder closed the first
    /// one without an answer and revision 1 was tried.
    pub exchanges: Vec<Exchange>,
    /// The result of negotiation, if it succeeded.
    pub agreed: Option<Agreed>,
}

/// An MPA Request and the answer to it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Time that TCP took to connect.
    pub connected: Duration,
    /// The Request that was sent.
    pub request: Frame,
    /// Bytes received, up to a complete Reply, to the point where it cannot be one, or to the end.
    /// A [`HeaderView`](iwarp_proto::mpa::HeaderView) shows its fields. At most 532 bytes, and 20
    /// of anything that is not MPA.
    pub received: Vec<u8>,
    /// Time from the Request to the answer.
    pub answered: Duration,
}
