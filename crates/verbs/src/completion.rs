//! Completions of posted work.

use crate::{Handle, Loss, Memory, ProtocolError, Reason, WrId};
use buffer::Buffer;
use std::error::Error;
use std::fmt;

/// The completion of one work request. Each posted [`WorkRequest`](crate::WorkRequest) has exactly one,
/// and so has each message in a block of a shared receive queue.
#[derive(Debug)]
pub enum Completion {
    /// A Receive completed: a message of the peer arrived.
    Receive {
        /// Identifier of the Receive; [`SharedReceiveQueue::WR`](crate::SharedReceiveQueue::WR) for
        /// a message in a block of the shared receive queue.
        wr: WrId,
        /// The message.
        buffer: Buffer,
        /// Handle of this end that the peer invalidated with the message, with its memory; and
        /// [further ones](Invalidated::also).
        invalidated: Option<Invalidated>,
    },
    /// A Send completed: the message is on its way and its buffer is returned.
    Send {
        /// Identifier of the work request.
        wr: WrId,
    },
    /// A Write completed: the bytes are on their way, and are placed at the peer before the next
    /// Send.
    Write {
        /// Identifier of the work request.
        wr: WrId,
    },
    /// A Read completed: the bytes are in the sink.
    Read {
        /// Identifier of the work request.
        wr: WrId,
        /// The sink, whose length is the sum of all segments.
        sink: Buffer,
    },
    /// An Invalidate completed: the handle is invalid and nothing refers to its memory any more.
    Invalidate {
        /// Identifier of the work request.
        wr: WrId,
        /// The handle and its memory.
        invalidated: Invalidated,
    },
    /// The work failed. Its memory is dropped, which returns pooled memory to its pool.
    Failed {
        /// Identifier of the work request.
        wr: WrId,
        /// Reason of the failure.
        error: WorkError,
    },
}

/// An invalidated handle and its memory.
#[derive(Debug)]
pub struct Invalidated {
    /// The handle, which is invalid now.
    pub handle: Handle,
    /// Its memory, returned to its owner.
    pub memory: Memory,
    /// Further handles that the same message of the peer invalidated, each without others.
    pub also: Vec<Invalidated>,
}

impl Invalidated {
    /// Creates the value for one handle.
    pub fn new(handle: Handle, memory: Memory) -> Self {
        let also = Vec::new();
        Self {
            handle,
            memory,
            also,
        }
    }

    /// Combines the handles of one message; `None` if there are none.
    pub fn together(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut all = all.into_iter();
        let mut first = all.next()?;
        first.also.extend(all);
        Some(first)
    }
}

/// Why a work request failed. All but the first also end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The connection ended with this work outstanding.
    #[error("the connection ended first")]
    Flushed,
    /// A handle to invalidate is not one of ours, or no longer.
    #[error("no such handle")]
    NoSuchHandle,
    /// A message was longer than the Receive posted for it.
    #[error("the message is longer than the receive posted for it")]
    TooLong,
    /// The peer refused the access.
    #[error("the peer refused the access to its memory")]
    RemoteAccess,
}

/// Why a connection has ended.
///
/// The [source](std::error::Error::source) is the [detail](Reason::detail) of the reason, if the provider gave one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// This end closed it.
    Local,
    /// The peer closed it in an orderly way.
    Peer,
    /// The connection to the peer was lost.
    Lost(Reason<Loss>),
    /// The peer violated the transport protocol below RPC. The peer was notified where the protocol
    /// allows it.
    PeerError(Reason<ProtocolError>),
    /// The peer reported a protocol violation by this end.
    Terminated(Reason<ProtocolError>),
    /// No answer within the time allowed.
    TimedOut(&'static str),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by this end"),
            Self::Peer => f.write_str("closed by the peer"),
            Self::Lost(reason) => write!(f, "connection lost: {reason}"),
            Self::PeerError(reason) => write!(f, "the peer broke the protocol: {reason}"),
            Self::Terminated(reason) => write!(f, "the peer ended the connection: {reason}"),
            Self::TimedOut(what) => write!(f, "no answer in time: {what}"),
        }
    }
}

impl Error for CloseReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Lost(reason) => reason.detail(),
            Self::PeerError(reason) | Self::Terminated(reason) => reason.detail(),
            Self::Local | Self::Peer | Self::TimedOut(_) => None,
        }
    }
}
