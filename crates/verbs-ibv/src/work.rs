//! Work of a connection, from the time it is accepted until the device has completed it.

use crate::memory::Region;
use crate::windows::FreeWindow;
use buffer::{Buffer, Gather};
use smallvec::SmallVec;
use std::sync::Arc;
use verbs::{Access, Handle, Memory, RemoteAddress, Segment, WorkError, WrId};

/// Work that waits for room in the device's queue.
pub(crate) enum Work {
    Send {
        wr: WrId,
        buffer: Buffer,
        rest: Gather,
        invalidate: Option<Handle>,
    },
    Write {
        wr: WrId,
        source: Gather,
        to: RemoteAddress,
    },
    Read {
        wr: WrId,
        sink: Buffer,
        from: SmallVec<[Segment; 4]>,
    },
    /// Opens a window onto memory that is registered.
    Bind {
        handle: Handle,
    },
    Invalidate {
        wr: WrId,
        handle: Handle,
    },
}

impl Work {
    /// Number of the completion that it owes, if any.
    pub(crate) fn wr(&self) -> Option<WrId> {
        match self {
            Self::Bind { .. } => None,
            Self::Send { wr, .. }
            | Self::Write { wr, .. }
            | Self::Read { wr, .. }
            | Self::Invalidate { wr, .. } => Some(*wr),
        }
    }
}

/// A work request that the device has.
pub(crate) struct Posted {
    pub(crate) what: What,
    /// Dropped when all work requests that use it have completed.
    pub(crate) _held: Option<Arc<Held>>,
}

/// Debt at the completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Nothing: it is the first part of something, or a binding.
    Nothing,
    Send(WrId),
    Write(WrId),
    /// A part of this Read.
    Read(usize),
    Invalidate(WrId, Handle),
}

/// Memory that the device reads from. Registrations are dropped before the memory.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) regions: SmallVec<[Arc<Region>; 2]>,
    pub(crate) buffers: SmallVec<[Buffer; 2]>,
    pub(crate) pieces: Gather,
}

/// A Receive. Its registration is dropped before its memory.
pub(crate) struct Receive {
    pub(crate) region: Option<Arc<Region>>,
    pub(crate) wr: WrId,
    pub(crate) buffer: Buffer,
}

/// A Read of several parts. Its registration is dropped before its memory.
pub(crate) struct Read {
    pub(crate) region: Option<Arc<Region>>,
    pub(crate) wr: WrId,
    pub(crate) sink: Buffer,
    /// Parts that have not completed, posted or not.
    pub(crate) left: usize,
    pub(crate) length: usize,
    pub(crate) failed: Option<WorkError>,
}

/// A part of a Read that waits for its turn.
pub(crate) struct ReadPart {
    /// The Read that it is a part of.
    pub(crate) read: usize,
    pub(crate) from: Segment,
    /// Offset of its bytes in the sink.
    pub(crate) at: usize,
}

/// Memory that the peer may access. What gives it access is dropped before the memory: first the window, because a device
/// refuses to deregister a region with a window bound to it, then the registration.
pub(crate) struct Exposed {
    pub(crate) window: Option<FreeWindow>,
    pub(crate) region: Arc<Region>,
    /// A copy of a source that is not in one piece, or cannot be registered.
    pub(crate) _copy: Option<Buffer>,
    pub(crate) memory: Memory,
    /// Address of its first byte.
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// An Invalidate of this end is on its way.
    pub(crate) ending: bool,
}

impl Exposed {
    /// The kind of access that the peer has.
    pub(crate) fn access(&self) -> Access {
        match self.memory {
            Memory::Source(_) => Access::Read,
            Memory::Sink(_) => Access::Write,
            Memory::Persistent(access, _) => access,
            Memory::Parts(_) => unreachable!("never exposed: `Limits::parts` is 0"),
        }
    }

    pub(crate) fn is_persistent(&self) -> bool {
        matches!(self.memory, Memory::Persistent(..))
    }

    /// Memory and window of an access that has ended: the peer, or the device for this end, has invalidated the window.
    pub(crate) fn into_parts(self) -> (Memory, Option<FreeWindow>) {
        (self.memory, self.window)
    }
}
