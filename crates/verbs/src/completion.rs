//! Completions of posted work.

use crate::{Handle, Memory, WrId};
use buffer::Buffer;

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
        /// Handle of this end that the peer invalidated with the message, with its memory.
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This end closed it.
    #[error("closed by this end")]
    Local,
    /// The peer closed it in an orderly way.
    #[error("closed by the peer")]
    Peer,
    /// The connection to the peer was lost.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer violated the transport protocol below RPC. The peer was notified where the protocol
    /// allows it.
    #[error("the peer broke the protocol: {0}")]
    PeerError(String),
    /// The peer reported a protocol violation by this end.
    #[error("the peer ended the connection: {0}")]
    Terminated(String),
    /// No answer within the time allowed.
    #[error("no answer in time: {0}")]
    TimedOut(&'static str),
}
