//! What became of posted work.

use crate::{Handle, Memory, WrId};
use buffer::Buffer;

/// The end of one piece of work. Each posted [`WorkRequest`](crate::WorkRequest) has exactly one,
/// and so has each message in a block of a shared receive queue.
#[derive(Debug)]
pub enum Completion {
    /// A message of the peer arrived.
    Receive {
        /// As posted; [`SharedReceiveQueue::WR`](crate::SharedReceiveQueue::WR) for a message in a
        /// block of the shared receive queue.
        wr: WrId,
        /// The message.
        buffer: Buffer,
        /// The handle of ours that the peer invalidated with it, and its memory.
        invalidated: Option<Invalidated>,
    },
    /// The message is on its way and its buffer is free again.
    Send {
        /// As posted.
        wr: WrId,
    },
    /// The bytes are on their way; the peer has them no later than the next Send.
    Write {
        /// As posted.
        wr: WrId,
    },
    /// The bytes are here.
    Read {
        /// As posted.
        wr: WrId,
        /// The sink, its length that of all segments.
        sink: Buffer,
    },
    /// The handle is dead and nothing refers to its memory any more.
    Invalidate {
        /// As posted.
        wr: WrId,
        /// What is free again.
        invalidated: Invalidated,
    },
    /// The work was not done. Its memory is dropped, which returns pooled memory to its pool.
    Failed {
        /// As posted.
        wr: WrId,
        /// Why.
        error: WorkError,
    },
}

/// A handle that no longer works, and the memory it named.
#[derive(Debug)]
pub struct Invalidated {
    /// The dead handle.
    pub handle: Handle,
    /// Its memory, back in its owner's hands.
    pub memory: Memory,
}

/// Why a piece of work failed. All but the first also end the connection.
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

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// We closed it.
    #[error("closed by this end")]
    Local,
    /// The peer closed it in good order.
    #[error("closed by the peer")]
    Peer,
    /// The peer, or the path to it, went away.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer broke a rule of the transport below RPC; we told it, where there is a way to.
    #[error("the peer broke the protocol: {0}")]
    PeerError(String),
    /// The peer says that we broke a rule.
    #[error("the peer ended the connection: {0}")]
    Terminated(String),
    /// No answer within the time allowed.
    #[error("no answer in time: {0}")]
    TimedOut(&'static str),
}
