//! What both roles of a connection share.

use crate::counters::Counters;
use crate::invalidation::{Accepts, Rule};
use crate::layout::Layout;
use crate::limits::RECEIVE_SLACK;
use crate::owner::Owner;
use crate::private_data::PrivateData;
use crate::receives::ReceiveQueue;
use crate::responder::CallId;
use crate::work::{Posts, Purpose};
use buffer::{Buffer, Pool};
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use std::collections::VecDeque;
use verbs::{Handle, Limits, WorkError, WorkRequest};

/// What a connection has to say to its owner.
#[derive(Debug)]
pub enum Event<O: Owner> {
    /// A call of the peer, whole again. It is to be answered with
    /// [`Connection::reply`](crate::Connection::reply).
    Call {
        /// Which call.
        id: CallId<O::Lease>,
        /// The message from its XID on.
        message: Payload,
    },
    /// The end of a call of ours. None of its memory is exposed any more (RFC 8166 §4.4.1).
    Reply {
        /// The owner's value of it.
        call: O::Call,
        /// The message from its XID on.
        reply: Result<Payload, TransportError>,
    },
}

/// Why a connection cannot go on. Its owner closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The peer invalidated a handle that is not of the call it answers (RFC 8797 §4.1).
    #[error("the peer invalidated {0:?}, which is not of the call it answered (RFC 8797 §4.1)")]
    ForeignHandle(Handle),
    /// The peer invalidated a handle though we did not allow it (RFC 8797 §4.1).
    #[error("the peer invalidated {0:?} though we did not set R (RFC 8797 §4.1)")]
    UnwantedInvalidation(Handle),
    /// The peer has more calls with us than it was granted credits (RFC 8166 §3.3.1).
    #[error("the peer has {0} calls here, far beyond its credits (RFC 8166 §3.3.1)")]
    BeyondCredits(usize),
    /// Work failed, and what it was for cannot be kept safe without it (RFC 8166 §4.5.4).
    #[error("work failed: {0}")]
    WorkFailed(WorkError),
    /// A handle of ours was dead before we invalidated it, and no completion had said so: the
    /// provider takes in remote invalidation and does not tell. The next connection is to be made
    /// without it.
    #[error("a handle was invalidated remotely and the provider did not say so")]
    LostHandle,
    /// The peer speaks none of the versions that we do.
    #[error("the peer speaks versions {low} to {high} of RPC-over-RDMA, and this end none of them")]
    NoCommonVersion {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The peer did not understand the offer to speak version two, and did not say what it speaks.
    #[error("the peer did not understand the offer of version two (cel-01 §5)")]
    OfferNotUnderstood,
    /// The peer sends messages about characteristics and does not take in the answers.
    #[error("the peer sends more messages about characteristics than it takes in answers")]
    ControlFlood,
    /// The server answered the offer of designs for remote invalidation with something else than one of
    /// them, or none: how its messages are laid out is not known.
    #[error(
        "the peer was offered designs for remote invalidation, and its answer names neither one of \
         them nor none"
    )]
    UnclearDesign,
    /// Memory could not be registered though there was room.
    #[error("the provider registers no memory")]
    NotRegistered,
}

impl Violation {
    /// Whether it is the peer that broke a rule.
    pub fn is_of_peer(self) -> bool {
        match self {
            Self::ForeignHandle(_)
            | Self::UnwantedInvalidation(_)
            | Self::BeyondCredits(_)
            | Self::ControlFlood
            | Self::UnclearDesign
            // The peer has named memory that is not there, or sends more than it was told to.
            | Self::WorkFailed(WorkError::RemoteAccess | WorkError::TooLong) => true,
            Self::WorkFailed(WorkError::Flushed | WorkError::NoSuchHandle)
            | Self::LostHandle
            | Self::NoCommonVersion { .. }
            | Self::OfferNotUnderstood
            | Self::NotRegistered => false,
        }
    }
}

/// What both roles of a connection share.
#[derive(Debug)]
pub(crate) struct Link<O: Owner> {
    pub(crate) owner: O,
    pub(crate) own: PrivateData,
    pub(crate) peer: PrivateData,
    /// Which handles go with our replies.
    pub(crate) rule: Rule,
    /// Which handles of ours may come with the peer's.
    pub(crate) accepts: Accepts,
    /// How headers are laid out.
    pub(crate) layout: Layout,
    /// Changes with what a plan depends on: sizes, layout and chunks.
    pub(crate) terms: u32,
    /// Octets of the largest message that we send.
    pub(crate) send_limit: usize,
    /// Octets of the largest reply that we send to a call if there is no other way.
    pub(crate) last_resort_limit: usize,
    /// Octets of the largest message that we ever send.
    pub(crate) largest_sent: usize,
    /// Of the replies since this was looked at that could be sent so, octets of the largest.
    pub(crate) largest_reply: usize,
    /// Octets of the largest reply for which a call of ours needs no Reply chunk.
    pub(crate) reply_limit: usize,
    pub(crate) limits: Limits,
    pub(crate) max_chunk: usize,
    pub(crate) max_segment: usize,
    pub(crate) pool: Pool,
    pub(crate) posts: Posts,
    /// Octets of the next Receive.
    pub(crate) receive_size: usize,
    pub(crate) receives: ReceiveQueue,
    /// Of these, those for calls that the peer may send.
    pub(crate) for_calls: usize,
    /// Those for replies to calls of ours.
    pub(crate) for_replies: usize,
    pub(crate) events: VecDeque<Event<O>>,
    pub(crate) counters: Counters,
    pub(crate) violation: Option<Violation>,
}

impl<O: Owner> Link<O> {
    /// Ends the connection for a reason; the first one counts.
    pub(crate) fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Posts Receives until there are enough for both directions (RFC 8167 §4.3). They go out
    /// before any Send that is queued, so that a peer is never told of one that is not there.
    pub(crate) fn post_receives(&mut self) {
        let needed = self.for_calls + self.for_replies + RECEIVE_SLACK;
        for _ in 0..self.receives.post_up_to(needed, self.receive_size) {
            let buffer = self.pool.take(self.receive_size);
            self.posts.push(receive(buffer));
        }
    }

    /// A reply goes out that has, or would have, so many octets as one message.
    pub(crate) fn note_reply(&mut self, octets: usize) {
        if octets <= self.largest_sent {
            self.largest_reply = self.largest_reply.max(octets);
        }
    }

    /// An empty buffer for one message that we send.
    pub(crate) fn send_buffer(&self) -> Buffer {
        self.pool.take(self.last_resort_limit)
    }
}

/// A Receive into `buffer`.
pub(crate) fn receive(buffer: Buffer) -> WorkRequest {
    WorkRequest::Receive {
        wr: Purpose::Receive.wr(),
        buffer,
    }
}
