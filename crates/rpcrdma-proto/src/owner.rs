//! The interface of a connection to its owner.

use crate::wire::header::Lists;
use std::fmt::Debug;

/// The owner of a [`Connection`](crate::Connection): the driver that posts its work.
///
/// A connection stores the owner's values with their calls, and does not interpret them.
pub trait Owner: Debug {
    /// The owner's value of one of its calls. It comes back with the end of the call.
    type Call: Debug;

    /// Memory leased for the chunks of a call of the peer. The connection drops it when that call is
    /// over.
    type Lease: Debug;

    /// A call of this peer broke its connection, because its chunks could not be used (RFC 8166
    /// §4.5.3).
    fn condemn(&mut self, xid: u32, lists: &Lists);

    /// Whether this call was condemned, on this connection or an earlier one of the same peer. If it
    /// was, it is answered with ERR_CHUNK, and the owner forgets it: its XID may come to name another
    /// call.
    fn take_condemned(&mut self, xid: u32, lists: &Lists) -> bool;
}
