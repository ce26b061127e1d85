//! Records the MPA frames of connection setup, for diagnosis of a peer.

use iwarp_proto::mpa::{Agreed, Frame};
use std::time::Duration;

/// How a connection was set up (RFC 5044 §7.1), or why not: what both ends said, without a judgement,
/// and what they agreed on.
#[derive(Clone, Debug, Default)]
pub struct Startup {
    /// One for each TCP connection that was made: none if nobody listens, two if the responder closed
    /// the first without an answer and was tried again with revision 1.
    pub exchanges: Vec<Exchange>,
    /// The result of negotiation, if it succeeded.
    pub agreed: Option<Agreed>,
}

/// An MPA Request, and what came back.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Time that TCP took to connect.
    pub connected: Duration,
    /// The Request that we sent.
    pub request: Frame,
    /// What came until it was a whole Reply, could not become one, or nothing more came. A
    /// [`HeaderView`](iwarp_proto::mpa::HeaderView) shows its fields. At most 532 bytes, and 20 of
    /// anything that is not MPA.
    pub received: Vec<u8>,
    /// Time from the Request to the answer.
    pub answered: Duration,
}
