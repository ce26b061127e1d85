//! What the owner of a connection attaches to calls, and what it is asked about them.

use crate::wire::header::Lists;
use std::fmt::Debug;

/// The owner of a [`Connection`](crate::Connection): the driver that posts its work.
///
/// A connection keeps the owner's values with the calls that they are for, and looks into none of
/// them.
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
