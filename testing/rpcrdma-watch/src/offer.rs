//! Segments that a call offers, and which handles its reply may invalidate (reminv §4).

use rpcrdma_proto::Design;
use rpcrdma_proto::header::Lists;
use verbs::{Handle, Segment};

/// Chunks that a call offers, and its remarks on them.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) lists: Lists,
    /// Handles that may be invalidated, where there is a word for it (reminv §4.4, §4.5).
    pub(super) named: Vec<Handle>,
}

impl Offer {
    /// All segments, and whether they are to be read.
    pub(super) fn segments(&self) -> impl Iterator<Item = (Segment, bool)> + '_ {
        segments(&self.lists)
    }

    pub(super) fn has(&self, handle: Handle) -> bool {
        self.segments().any(|(segment, _)| segment.handle == handle)
    }

    /// Whether the handle is one of a chunk to be read, and of nothing else.
    pub(super) fn is_only_read(&self, handle: Handle) -> bool {
        let mut of_handle = self
            .segments()
            .filter(|(segment, _)| segment.handle == handle)
            .peekable();
        of_handle.peek().is_some() && of_handle.all(|(_, read)| read)
    }

    /// Whether the reply may take this handle of the call along, under a design.
    pub(super) fn may_go(&self, design: Design, handle: Handle) -> bool {
        match design {
            Design::PerVersion | Design::PerConnection | Design::InterCall => self.has(handle),
            Design::Fixed => {
                let mut all = self.segments().map(|(segment, _)| segment);
                let first = all.find(|segment| segment.length > 0);
                first.is_some_and(|first| first.handle == handle)
            }
            Design::PerCall | Design::PerCallSeveral | Design::PerCallAll => {
                self.has(handle) && self.named.contains(&handle)
            }
        }
    }
}

/// All segments that a call offers, and whether they are to be read, in the order of the header.
pub(super) fn segments(lists: &Lists) -> impl Iterator<Item = (Segment, bool)> + '_ {
    let reads = lists.reads.iter().flat_map(|chunk| &chunk.segments);
    let writes = lists.writes.iter().chain(&lists.reply);
    let writes = writes.flat_map(|chunk| &chunk.segments);
    reads
        .map(|segment| (*segment, true))
        .chain(writes.map(|segment| (*segment, false)))
}

/// The handles of a call, each once.
pub(super) fn handles(lists: &Lists) -> Vec<Handle> {
    let mut handles: Vec<_> = segments(lists).map(|(segment, _)| segment.handle).collect();
    handles.sort_unstable();
    handles.dedup();
    handles
}
