//! The interface of a connection to its owner.

use crate::wire::header::Lists;
use std::fmt::Debug;

/// The owner of a [`Connection`](crate::Connection): the driver that posts its work.
///
/// A connection stores the owner's values with their calls, and does not interpret them.
pub trait Owner: Debug {
    /// The owner's value for one of its calls, returned with the end of the call.
    type Call: Debug;

    /// Lease of memory for the chunks of a call of the peer, dropped at the end of the call.
    type Lease: Debug;

    /// Remembers a call of this peer that broke its connection, because its chunks could not be
    /// used (RFC 8166 §4.5.3).
    fn condemn(&mut self, xid: u32, lists: &Lists);

    /// Returns whether this call was condemned, on this connection or an earlier one of the same
    /// peer, and forgets it: the call is answered with ERR_CHUNK, and its XID may name another call
    /// later.
    fn take_condemned(&mut self, xid: u32, lists: &Lists) -> bool;
}
