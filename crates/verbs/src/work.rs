//! What can be asked of a queue pair.

use buffer::{Buffer, Gather, gather_len};
use smallvec::SmallVec;
use std::fmt;

/// Names registered memory to the peer: an STag on iWARP, an R_key on InfiniBand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#010x})", self.0)
    }
}

/// The poster's own name for a piece of work; it comes back in the completion, unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// A place in registered memory, as the peer of its owner names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Whose region.
    pub handle: Handle,
    /// Byte address in it, in the terms of whoever registered it (a Tagged Offset on iWARP).
    pub offset: u64,
}

/// A stretch of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Whose region.
    pub handle: Handle,
    /// Bytes.
    pub length: u32,
    /// Address of the first byte.
    pub offset: u64,
}

impl Segment {
    /// Where it begins.
    pub fn address(self) -> RemoteAddress {
        RemoteAddress {
            handle: self.handle,
            offset: self.offset,
        }
    }
}

/// Memory for the peer to reach, and in which way: never both.
#[derive(Debug)]
pub enum Memory {
    /// The peer may read these bytes (RDMA Read).
    Source(Gather),
    /// The peer may write anywhere in this buffer's capacity (RDMA Write). On its way back the
    /// buffer's length is what it was when it was registered: how much was written is for the
    /// protocol above to know.
    Sink(Buffer),
    /// Memory that stays registered from one use to the next, open for one kind of access in the
    /// whole capacity of the buffer. Only we can invalidate it: if the peer tries to, the connection
    /// ends. Its owner reaches it with [`QueuePair::copy_in`] and [`QueuePair::copy_out`].
    ///
    /// [`QueuePair::copy_in`]: crate::QueuePair::copy_in
    /// [`QueuePair::copy_out`]: crate::QueuePair::copy_out
    Persistent(Access, Buffer),
}

/// What the peer may do with persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RDMA Read.
    Read,
    /// RDMA Write.
    Write,
}

impl Memory {
    /// Bytes that the peer can reach.
    pub fn len(&self) -> usize {
        match self {
            Self::Source(pieces) => gather_len(pieces),
            Self::Sink(buffer) | Self::Persistent(_, buffer) => buffer.capacity(),
        }
    }

    /// Whether there is nothing to reach.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One piece of work for a queue pair.
///
/// Receives complete in the order in which they were posted. All other work begins in the order
/// in which it was posted, on the wire too: a Send behind a Write arrives behind it (RFC 5040
/// §5.5). A Read does not hold up work behind it.
#[derive(Debug)]
pub enum WorkRequest {
    /// Take in one Send of the peer, of at most the buffer's capacity.
    Receive {
        /// The poster's name for it.
        wr: WrId,
        /// Where the bytes go.
        buffer: Buffer,
    },
    /// Send a message into the next Receive of the peer.
    Send {
        /// The poster's name for it.
        wr: WrId,
        /// The first part of the message: the data of the buffer.
        buffer: Buffer,
        /// What follows it in the same message, by reference. Empty where the buffer has it all.
        rest: Gather,
        /// A handle of the peer's, which it loses before it sees the message (Send with Invalidate).
        /// One that we are still reading from is not ours to take away: that ends the connection, or
        /// the Read comes to its end first.
        invalidate: Option<Handle>,
    },
    /// Write into the peer's memory. Without bytes it reaches no memory, and nobody looks at the
    /// handle (RFC 5041 §5.2). One that the peer refuses may have been placed in part, within
    /// bounds.
    Write {
        /// The poster's name for it.
        wr: WrId,
        /// The bytes.
        source: Gather,
        /// Where they go.
        to: RemoteAddress,
    },
    /// Read the peer's memory: all segments, one after the other, into one sink.
    Read {
        /// The poster's name for it.
        wr: WrId,
        /// Where the bytes go, from its beginning on; its length is set to all of them together.
        sink: Buffer,
        /// What to read, of at most the sink's capacity together.
        from: SmallVec<[Segment; 4]>,
    },
    /// Take back a handle of our own; its memory comes with the completion.
    Invalidate {
        /// The poster's name for it.
        wr: WrId,
        /// Which.
        handle: Handle,
    },
}

impl WorkRequest {
    /// The poster's name for it.
    pub fn wr(&self) -> WrId {
        match self {
            Self::Receive { wr, .. }
            | Self::Send { wr, .. }
            | Self::Write { wr, .. }
            | Self::Read { wr, .. }
            | Self::Invalidate { wr, .. } => *wr,
        }
    }
}
