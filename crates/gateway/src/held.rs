//! The memory of one reply.

use crate::reduce;
use crate::reply_memory::{Lease, RECEIVE, REPLY_COST, SmallReply};
use crate::side::Side;
use oncrpc::xdr::Payload;

/// Memory of a reply, until that is sent to the client.
pub(crate) enum Held {
    Small(SmallReply),
    Lease(Lease),
}

impl Held {
    /// Keeps the memory that a reply needs as long as the reply, which is passed to the connection of the
    /// client now.
    pub(crate) fn keep_with(self, reply: Payload, upstream: Side) -> Payload {
        let reply = reduce::compact(reply);
        match self {
            Self::Small(small) => reply.keeping(small),
            Self::Lease(mut lease) => {
                if upstream == Side::Rdma {
                    // A result that is by reference keeps all of its chunk.
                    let of_results = match reply.items().is_empty() {
                        true => 0,
                        false => lease.bytes().saturating_sub(RECEIVE),
                    };
                    lease.hand_over(of_results + reply.head().len() + REPLY_COST);
                }
                reply.keeping(lease)
            }
        }
    }
}
