//! What a connection tells its owner.

use crate::owner::Owner;
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use verbs::{Handle, WorkError};

/// An event for the owner of a connection.
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

/// Why a connection cannot go on. Its owner closes the connection.
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

/// A call of the peer in service. The owner answers it once, by giving this back.
///
/// It keeps the lease of the call's memory, also when the connection ends in the meantime, so it stays
/// with the call until that is answered.
#[derive(Debug)]
pub struct CallId<L> {
    pub(crate) key: u32,
    /// Held until the reply is in flight.
    pub(crate) lease: Option<L>,
}

impl<L> CallId<L> {
    /// A number that no other call in service on this connection has.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The memory leased for the chunks of the call and of its reply, if it has any.
    pub fn lease_mut(&mut self) -> Option<&mut L> {
        self.lease.as_mut()
    }
}

/// What a call of the peer needs before its Read chunks are pulled.
#[derive(Clone, Copy, Debug)]
pub struct MemoryNeed<'a> {
    /// Bytes of its Read chunks.
    pub pulls: usize,
    /// Bytes that the peer offers for the reply: most of it is not needed for most calls.
    pub offered: usize,
    /// The message from its XID on up to its first Read chunk, if it came in the Send.
    pub message: Option<&'a [u8]>,
}

/// A call of ours that has ended: the owner's value of it, and the message from its XID on.
pub(crate) type Ended<O> = (<O as Owner>::Call, Result<Payload, TransportError>);
