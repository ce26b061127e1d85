//! The memory of one reply.

use crate::reduce;
use crate::reply_memory::{Lease, RECEIVE, REPLY_COST, SmallReply};
use oncrpc::xdr::Payload;

/// Memory of a reply, until that is sent to the client.
pub(crate) enum ReplyLease {
    Small { _counted: SmallReply },
    Lease(Lease),
}

impl oncrpc::Lease for ReplyLease {
    fn shrink(&mut self, bytes: usize) {
        match self {
            Self::Small { .. } => {}
            Self::Lease(lease) => lease.hand_over(bytes + REPLY_COST),
        }
    }
}

/// Memory of a reply that the upstream has given.
pub(crate) enum OfReply {
    /// The upstream is RDMA, and had the memory registered before the reply was there.
    Offered(ReplyLease),
    /// The upstream is TCP, and the reply was lent its memory as it arrived.
    Arrived(Box<dyn oncrpc::Lease>),
}

impl OfReply {
    /// Keeps the memory that a reply needs as long as the reply, which is passed to the connection of the
    /// client now.
    pub(crate) fn keep_with(self, reply: Payload) -> Payload {
        let reply = reduce::compact(reply);
        match self {
            Self::Arrived(lease) => reply.with_lease(lease),
            Self::Offered(mut held) => {
                if let ReplyLease::Lease(lease) = &mut held {
                    // A result that is by reference keeps all of its chunk.
                    let of_results = match reply.items().is_empty() {
                        true => 0,
                        false => lease.bytes().saturating_sub(RECEIVE),
                    };
                    lease.hand_over(of_results + reply.head().len() + REPLY_COST);
                }
                reply.with_lease(Box::new(held))
            }
        }
    }
}
