//! Memory into which the peer's payload is placed: regions, Receives and sinks of Reads.

use super::reads::Reads;
use crate::ddp::Header;
use crate::rdmap::QUEUE_SEND;
use crate::stag::{Entry, SlotId, StagTable};
use buffer::Buffer;
use std::collections::VecDeque;
use verbs::{Handle, Invalidated, Memory, NoBlock, ReceiveShare, SharedReceiveQueue, WrId};

/// A posted Receive.
pub(super) struct Receive {
    pub(super) wr: WrId,
    pub(super) buffer: Buffer,
}

/// Target of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The first posted Receive.
    Receive,
    /// The sink of the first outstanding Read.
    ReadSink,
    /// The part of a region with this number; 0 where the memory is in one piece.
    Region(SlotId, usize),
}

/// All memory that the peer's payload can reach, and the state of its incoming messages.
pub(super) struct Places {
    pub(super) table: StagTable,
    /// Posted Receives. With a shared receive queue: the block of the incoming message.
    pub(super) receives: VecDeque<Receive>,
    pub(super) share: Option<ReceiveShare>,
    pub(super) reads: Reads,
    /// STags that one Send of the peer can invalidate, within the limit of endpoints.
    pub(super) invalidations: usize,
    /// Regions that the peer invalidated ahead of the Send that is arriving, or next.
    pub(super) ahead: Vec<Invalidated>,
    /// MSN of the Send that is arriving, or next.
    pub(super) send_sequence: u32,
    /// Octets of that Send that have arrived.
    pub(super) send_offset: u32,
    /// MSN of the next Read Request.
    pub(super) read_sequence: u32,
    /// Read Requests of the peer whose responses are not sent yet.
    pub(super) serving: u16,
}

impl Places {
    pub(super) fn new(
        seed: [u8; 32],
        ord: u16,
        share: Option<ReceiveShare>,
        invalidations: usize,
    ) -> Self {
        Self {
            share,
            invalidations,
            ahead: Vec::new(),
            table: StagTable::new(seed),
            receives: VecDeque::new(),
            reads: Reads::new(ord),
            send_sequence: 1,
            send_offset: 0,
            read_sequence: 1,
            serving: 0,
        }
    }

    /// Takes a block of the shared receive queue for a Send that begins with this segment. Does
    /// nothing without a shared queue.
    ///
    /// While Reads of this end are outstanding the share may be exceeded: calls that hold blocks
    /// may wait for a Read Response that follows this message in the stream.
    #[inline]
    pub(super) fn take_block(&mut self, header: &Header) -> Result<(), NoBlock> {
        let Some(share) = &self.share else {
            return Ok(());
        };
        let begins = matches!(header, Header::Untagged { queue, .. } if *queue == QUEUE_SEND)
            && self.receives.is_empty();
        if begins {
            let buffer = share.take(!self.reads.is_empty())?;
            let wr = SharedReceiveQueue::WR;
            self.receives.push_back(Receive { wr, buffer });
        }
        Ok(())
    }

    /// Releases memory that a burst of work left behind.
    pub(super) fn trim(&mut self) {
        if self.receives.is_empty() {
            self.receives = VecDeque::new();
        }
        self.reads.trim();
        self.table.trim();
    }

    /// Returns the memory of a target that a segment was admitted to.
    #[inline]
    pub(super) fn memory_mut(&mut self, target: Target) -> &mut [u8] {
        match target {
            Target::Receive => self
                .receives
                .front_mut()
                .expect("a Receive stays posted until its message is whole")
                .buffer
                .memory_mut(),
            Target::ReadSink => self.reads.sink_mut(),
            Target::Region(slot, part) => self.table.sink_mut(slot, part),
        }
    }

    /// Returns the region that an STag names, if this end's user registered it.
    pub(super) fn region(&self, stag: u32) -> Option<SlotId> {
        let slot = self.table.find(stag)?;
        matches!(self.table.entry(slot), Entry::Region(_)).then_some(slot)
    }

    /// Returns the region if the peer may invalidate it: it is not in use, and not persistent.
    pub(super) fn mortal_region(&self, stag: u32) -> Option<SlotId> {
        let slot = self.region(stag)?;
        let stays = matches!(
            self.table.entry(slot),
            Entry::Region(Memory::Persistent(..))
        );
        (!stays && !self.table.is_held(slot)).then_some(slot)
    }

    /// Whether one more region may be invalidated with the Send that is arriving, or next, beside its
    /// own.
    pub(super) fn has_room_ahead(&self) -> bool {
        self.ahead.len() + 1 < self.invalidations
    }

    /// Takes a region that the peer invalidated ahead of its Send, which does not report it then.
    pub(super) fn take_ahead(&mut self, handle: Handle) -> Option<Invalidated> {
        let at = self.ahead.iter().position(|one| one.handle == handle)?;
        Some(self.ahead.remove(at))
    }

    /// Invalidates a region and returns its memory.
    pub(super) fn release(&mut self, slot: SlotId) -> Memory {
        self.table
            .release(slot)
            .expect("a region is found before it is released")
    }
}
