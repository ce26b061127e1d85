//! Events of a connection for its owner.

use crate::owner::Owner;
use crate::v2::{Dialect, Foreign};
use crate::wire::header::ReadChunk;
use oncrpc::TransportError;
use oncrpc::xdr::{Payload, padded};
use verbs::{Handle, WorkError};

/// An event for the owner of a connection.
#[derive(Debug)]
pub enum Event<O: Owner> {
    /// A call of the peer, reassembled. Answer it with
    /// [`Connection::reply`](crate::Connection::reply).
    Call {
        /// Identifier of the call.
        id: CallId<O::Lease>,
        /// The message, which begins with its XID.
        message: Payload,
    },
    /// A call of this end has ended. None of its memory is exposed any more (RFC 8166 §4.4.1).
    Reply {
        /// The owner's value for the call.
        call: O::Call,
        /// The message, which begins with its XID.
        reply: Result<Payload, TransportError>,
    },
}

/// Why a connection must be closed by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The peer invalidated a handle that does not belong to the call it answered (RFC 8797 §4.1).
    #[error(
        "the peer invalidated {0:?}, which does not belong to the call it answered (RFC 8797 §4.1, reminv §3.2)"
    )]
    ForeignHandle(Handle),
    /// The peer invalidated a handle without permission (RFC 8797 §4.1).
    #[error("the peer invalidated {0:?} although this end did not set R (RFC 8797 §4.1)")]
    UnwantedInvalidation(Handle),
    /// (Version two) The peer invalidated a handle without permission (xcharext §3.2).
    #[error(
        "the peer invalidated {0:?} although this end has not announced XCHAR_REQREMINV and there is no agreement on a design (xcharext §3.2)"
    )]
    UnpermittedInvalidation(Handle),
    /// The peer has sent more calls than it was granted credits for (RFC 8166 §3.3.1).
    #[error("the peer has {0} calls in service, far beyond its credits (RFC 8166 §3.3.1)")]
    BeyondCredits(usize),
    /// A work request failed on which the safety of memory depends (RFC 8166 §4.5.4).
    #[error("work failed: {0}")]
    WorkFailed(WorkError),
    /// A handle was invalid before this end invalidated it, and no completion had reported it: the
    /// provider accepts remote invalidation without reporting it. The next connection should be
    /// made without remote invalidation.
    #[error("the provider did not report a remote invalidation")]
    LostHandle,
    /// The two ends have no version in common.
    #[error(
        "the peer supports versions {low} to {high} of RPC-over-RDMA, and this end none of them"
    )]
    NoCommonVersion {
        /// Lowest version of the peer.
        low: u32,
        /// Highest version of the peer.
        high: u32,
    },
    /// The peer did not understand the offer of version two, and did not report which versions it
    /// supports.
    #[error("the peer did not understand the offer of version two (cel-01 §5)")]
    OfferNotUnderstood,
    /// The peer uses another draft of version two.
    #[error("the peer uses another draft of version two than {0}: it sent {1}")]
    OtherDialect(Dialect, Foreign),
    /// The peer sends control messages without receiving the answers.
    #[error("the peer sends control messages without receiving the answers")]
    ControlFlood,
    /// The server's answer to the offered remote invalidation designs is neither one of them nor
    /// none, so the layout of its messages is unknown.
    #[error(
        "the peer answered the offer of remote invalidation designs with neither one of them nor none"
    )]
    UnclearDesign,
    /// Registering memory failed although the limits allow it.
    #[error("the provider could not register memory")]
    NotRegistered,
}

impl Violation {
    /// Whether the peer violated the protocol.
    pub fn is_of_peer(self) -> bool {
        match self {
            Self::ForeignHandle(_)
            | Self::UnwantedInvalidation(_)
            | Self::UnpermittedInvalidation(_)
            | Self::BeyondCredits(_)
            | Self::ControlFlood
            | Self::UnclearDesign
            // The peer has named memory that is not there, or sends more than it was told to.
            | Self::WorkFailed(WorkError::RemoteAccess | WorkError::TooLong) => true,
            Self::WorkFailed(WorkError::Flushed | WorkError::NoSuchHandle)
            | Self::LostHandle
            | Self::NoCommonVersion { .. }
            | Self::OfferNotUnderstood
            | Self::OtherDialect(..)
            | Self::NotRegistered => false,
        }
    }
}

/// A call of the peer in service. The owner answers it once, by returning this value.
///
/// Holds the lease of the call's memory, even if the connection ends meanwhile, so it stays with
/// the call until the call is answered.
#[derive(Debug)]
pub struct CallId<L> {
    pub(crate) key: u32,
    /// Lease of the call's memory, held until the reply is in flight.
    pub(crate) lease: Option<L>,
}

impl<L> CallId<L> {
    /// Returns a number that is unique among the calls in service on this connection.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Takes the lease out of it, for an owner that knows when the memory is not needed any more.
    pub fn take_lease(&mut self) -> Option<L> {
        self.lease.take()
    }

    /// Returns the lease of memory for the chunks of the call and its reply, if there is one.
    pub fn lease_mut(&mut self) -> Option<&mut L> {
        self.lease.as_mut()
    }
}

/// Memory that a call of the peer needs before its Read chunks are pulled.
#[derive(Clone, Copy, Debug)]
pub struct MemoryNeed<'a> {
    /// Bytes of its Read chunks.
    pub pulls: usize,
    /// Bytes of the chunks that the peer offers for the reply. Most calls need only a small part of
    /// them.
    pub offered: usize,
    /// The message from its XID, without its Read chunks, if it came in the Send.
    pub message: Option<&'a [u8]>,
    pub(crate) reads: &'a [ReadChunk],
}

impl MemoryNeed<'_> {
    /// Returns, for each Read chunk, its place in the [message](Self::message) and its length in
    /// bytes, in ascending order. Meaningless if the message did not come in the Send.
    pub fn items(&self) -> impl Iterator<Item = (usize, usize)> {
        // RFC 8166 §3.4.5: a Position counts the chunks before it, with their padding.
        let mut before = 0_usize;
        self.reads.iter().map(move |chunk| {
            let length = usize::try_from(chunk.len()).unwrap_or(usize::MAX);
            let at = (chunk.position as usize).saturating_sub(before);
            before = before.saturating_add(padded(length));
            (at, length)
        })
    }
}

/// A finished call of this end: the owner's value and the reply message.
pub(crate) type Ended<O> = (<O as Owner>::Call, Result<Payload, TransportError>);

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::Segment;

    #[test]
    fn place_of_a_chunk_is_its_position_without_the_chunks_before_it() {
        let chunk = |position, len| ReadChunk {
            position,
            segments: std::iter::once(Segment {
                handle: Handle(1),
                offset: 0,
                length: len,
            })
            .collect(),
        };
        let check = |chunks: &[(u32, u32)], expected: &[(usize, usize)]| {
            let reads: Vec<ReadChunk> = chunks.iter().map(|&(at, len)| chunk(at, len)).collect();
            let need = MemoryNeed {
                pulls: 0,
                offered: 0,
                message: None,
                reads: &reads,
            };
            assert_eq!(need.items().collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(&[(40, 1000)], &[(40, 1000)]);
        check(&[(40, 5), (60, 8), (68, 1)], &[(40, 5), (52, 8), (52, 1)]);
    }
}
