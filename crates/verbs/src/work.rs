//! Work requests and the memory they refer to.

use crate::Parts;
use buffer::{Buffer, Gather, gather_len};
use smallvec::SmallVec;
use std::fmt;

/// Handle of registered memory: an STag on iWARP, an R_key on InfiniBand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#010x})", self.0)
    }
}

/// Handles of the peer that one Send invalidates: at least one.
///
/// More than one only where [`Limits::invalidations`](crate::Limits::invalidations) permits it
/// (draft-cel-nfsv4-reminv-design-03 §2.4). One handle takes no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handles {
    first: Handle,
    more: Vec<Handle>,
}

impl Handles {
    /// Combines handles in this order; `None` if there are none.
    pub fn new(handles: impl IntoIterator<Item = Handle>) -> Option<Self> {
        let mut handles = handles.into_iter();
        Some(Self {
            first: handles.next()?,
            more: handles.collect(),
        })
    }

    /// Returns the first handle.
    pub fn first(&self) -> Handle {
        self.first
    }

    /// Returns the handles behind the first.
    pub fn more(&self) -> &[Handle] {
        &self.more
    }

    /// Returns all handles.
    pub fn iter(&self) -> impl Iterator<Item = Handle> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// Returns the number of handles.
    pub fn count(&self) -> usize {
        1 + self.more.len()
    }
}

impl From<Handle> for Handles {
    fn from(first: Handle) -> Self {
        let more = Vec::new();
        Self { first, more }
    }
}

/// Identifier of a work request, chosen by the poster and returned in the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// An address in registered memory, as a remote peer uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddress {
    /// Handle of the region.
    pub handle: Handle,
    /// Byte address in the region, in the address space of its owner (a Tagged Offset on iWARP).
    pub offset: u64,
}

/// A segment of the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Handle of the region.
    pub handle: Handle,
    /// Length in bytes.
    pub length: u32,
    /// Address of the first byte.
    pub offset: u64,
}

impl Segment {
    /// Its address.
    pub fn address(self) -> RemoteAddress {
        RemoteAddress {
            handle: self.handle,
            offset: self.offset,
        }
    }
}

/// Memory to register. Each byte is open to the peer for reading or for writing, never both.
#[derive(Debug)]
pub enum Memory {
    /// The peer may read these bytes (RDMA Read).
    Source(Gather),
    /// The peer may write anywhere in this buffer's capacity (RDMA Write). When the memory comes
    /// back, the buffer's length is as at registration: only the protocol above knows how much was
    /// written.
    Sink(Buffer),
    /// Several pieces of memory under one handle, each for its own kind of access. Only where
    /// [`Limits::parts`] permits it.
    ///
    /// [`Limits::parts`]: crate::Limits::parts
    Parts(Parts),
    /// Memory that stays registered between uses, open for one kind of access in the whole capacity
    /// of the buffer. Only this end can invalidate it: if the peer tries to, the connection ends.
    /// The owner accesses it with [`QueuePair::copy_in`] and [`QueuePair::copy_out`].
    ///
    /// [`QueuePair::copy_in`]: crate::QueuePair::copy_in
    /// [`QueuePair::copy_out`]: crate::QueuePair::copy_out
    Persistent(Access, Buffer),
}

/// Access of the peer to persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RDMA Read.
    Read,
    /// RDMA Write.
    Write,
}

impl Memory {
    /// Length in bytes of what the peer can access.
    pub fn len(&self) -> usize {
        match self {
            Self::Source(pieces) => gather_len(pieces),
            Self::Parts(parts) => parts.len(),
            Self::Sink(buffer) | Self::Persistent(_, buffer) => buffer.capacity(),
        }
    }

    /// Whether its length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A work request for a queue pair.
///
/// Receives complete in the order in which they were posted. All other work begins in the order
/// in which it was posted, on the wire too: a Send behind a Write arrives behind it (RFC 5040
/// §5.5). A Read does not hold up work behind it.
#[derive(Debug)]
pub enum WorkRequest {
    /// Receive one Send of the peer, of at most the buffer's capacity.
    Receive {
        /// Identifier of the work request.
        wr: WrId,
        /// The buffer for the message.
        buffer: Buffer,
    },
    /// Send a message into the next Receive of the peer.
    Send {
        /// Identifier of the work request.
        wr: WrId,
        /// The first part of the message, which is the data of the buffer.
        buffer: Buffer,
        /// The rest of the same message, by reference. Empty if the buffer has all of it.
        rest: Gather,
        /// Handles of the peer to invalidate with the message (Send with Invalidate): one, or as
        /// many as [`Limits::invalidations`](crate::Limits::invalidations) permits. None may be the
        /// source of an outstanding Read: that ends the connection, or the Read ends first.
        invalidate: Option<Handles>,
    },
    /// Write into the peer's memory. A Write without bytes touches no memory, and the peer does not
    /// check its handle (RFC 5041 §5.2). A Write that the peer refuses may have been placed in
    /// part, within bounds.
    Write {
        /// Identifier of the work request.
        wr: WrId,
        /// The bytes to write.
        source: Gather,
        /// The address to write to.
        to: RemoteAddress,
    },
    /// Read the peer's memory: all segments, one after the other, into one sink.
    Read {
        /// Identifier of the work request.
        wr: WrId,
        /// Buffer for the bytes of all segments, from its beginning; its length is set to their
        /// sum.
        sink: Buffer,
        /// The segments to read, together at most the sink's capacity.
        from: SmallVec<[Segment; 4]>,
    },
    /// Invalidate a handle of this end; its memory is returned with the completion.
    Invalidate {
        /// Identifier of the work request.
        wr: WrId,
        /// The handle to invalidate.
        handle: Handle,
    },
}

impl WorkRequest {
    /// Identifier of the work request.
    pub fn wr(&self) -> WrId {
        match self {
            Self::Receive { wr, .. }
            | Self::Send { wr, .. }
            | Self::Write { wr, .. }
            | Self::Read { wr, .. }
            | Self::Invalidate { wr, .. } => *wr,
        }
    }

    /// Kind of the work request.
    pub fn kind(&self) -> WorkKind {
        match self {
            Self::Receive { .. } => WorkKind::Receive,
            Self::Send { .. } => WorkKind::Send,
            Self::Write { .. } => WorkKind::Write,
            Self::Read { .. } => WorkKind::Read,
            Self::Invalidate { .. } => WorkKind::Invalidate,
        }
    }
}

/// Kinds of work requests that [`WorkCounters`](crate::WorkCounters) distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// A Send, also with Invalidate.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A Receive.
    Receive,
    /// The binding of a memory window.
    Bind,
    /// A local invalidation.
    Invalidate,
}
