//! Table of STags: memory that the peer may access, with access rights (RFC 5040 §8.1.1, RFC 5042
//! §6.2).

use std::hash::{DefaultHasher, Hasher};
use verbs::{Access, Handle, Memory, Part, WrId};

/// Number of entries of a table: STags that are valid at a time.
pub(crate) const SLOTS: usize = 1 << SLOT_BITS;

/// Bits of an STag that select the slot; the other bits are drawn at random for each registration.
const SLOT_BITS: u32 = 12;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const DRAWN_BITS: u32 = 32 - SLOT_BITS;

/// Why a slot in which octets are placed is a sink.
const PLACED: &str = "placement was admitted into a sink, which stays until it is done";

/// The STags of one connection.
///
/// An STag is an index of 24 bits and a key of 8 bits (RFC 5040 §3.1 leaves that to the
/// implementation). The upper half of the index is the slot, masked with a secret of this
/// connection; the rest of the index and the key are drawn at random for each registration, so that
/// neither an old STag nor a neighbouring one is valid, and none is repeated within a million
/// registrations. The slot is found without a map: the drawn bits are compared with those stored in
/// it.
pub(crate) struct StagTable {
    draw: Draw,
    slot_mask: u32,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Entries that are regions, draining or not.
    regions: usize,
}

struct Slot {
    stag: u32,
    entry: Entry,
    /// Number of uses: segments that are being placed in the region, and Read Responses that refer
    /// to it.
    users: u32,
}

/// Memory that an STag names.
pub(crate) enum Entry {
    /// The entry is free.
    Free,
    /// A region registered by the user of the endpoint.
    Region(Memory),
    /// A region with an invalid STag that is still in use: its Invalidate waits.
    Draining(Memory, WrId),
    /// The sink of a Read of this end; the Read holds the memory.
    ReadSink,
}

/// A slot together with the STag that named it when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    index: u16,
    stag: u32,
}

impl StagTable {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let draw = Draw::new(seed);
        let slot_mask = draw.hash(0, 0);
        Self {
            draw,
            slot_mask,
            slots: Vec::new(),
            free: Vec::new(),
            regions: 0,
        }
    }

    /// Number of registered regions.
    pub(crate) fn regions(&self) -> usize {
        self.regions
    }

    /// Registers memory of the user.
    pub(crate) fn register(&mut self, memory: Memory) -> Handle {
        self.regions += 1;
        Handle(self.insert(Entry::Region(memory)))
    }

    /// Assigns an STag to the sink of a Read.
    pub(crate) fn insert_read_sink(&mut self) -> u32 {
        self.insert(Entry::ReadSink)
    }

    /// Frees the memory of an empty table.
    pub(crate) fn trim(&mut self) {
        if self.free.len() == self.slots.len() {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Whether there is a free slot.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < SLOTS
    }

    fn insert(&mut self, entry: Entry) -> u32 {
        assert!(
            self.has_room(),
            "the caller keeps to the limits of the table"
        );
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                stag: 0,
                entry: Entry::Free,
                users: 0,
            });
            u16::try_from(self.slots.len() - 1).expect("a table has at most 4096 slots")
        });
        let place = &mut self.slots[usize::from(slot)];
        let shown = (u32::from(slot) ^ self.slot_mask) << DRAWN_BITS;
        // The key differs from the last one of this slot, and the STag is never 0.
        let stag = loop {
            let stag = shown | self.draw.next();
            if stag != 0 && key(stag) != key(place.stag) {
                break stag;
            }
        };
        *place = Slot {
            stag,
            entry,
            users: 0,
        };
        stag
    }

    /// Finds the slot that an STag names.
    pub(crate) fn find(&self, stag: u32) -> Option<SlotId> {
        let slot = ((stag >> DRAWN_BITS) ^ self.slot_mask) & SLOT_MASK;
        let found = self.slots.get(slot as usize)?;
        match found.entry {
            Entry::Region(_) | Entry::ReadSink if found.stag == stag => {
                let index = u16::try_from(slot).ok()?;
                Some(SlotId { index, stag })
            }
            _ => None,
        }
    }

    pub(crate) fn entry(&self, slot: SlotId) -> &Entry {
        &self.slots[usize::from(slot.index)].entry
    }

    /// Returns the memory of a slot that receives octets: the part with this number, if it has
    /// parts.
    pub(crate) fn sink_mut(&mut self, slot: SlotId, part: usize) -> &mut [u8] {
        let memory = match &mut self.slots[usize::from(slot.index)].entry {
            Entry::Region(memory) | Entry::Draining(memory, _) => memory,
            Entry::Free | Entry::ReadSink => unreachable!("{PLACED}"),
        };
        let sink = match memory {
            Memory::Sink(buffer) | Memory::Persistent(Access::Write, buffer) => Some(buffer),
            Memory::Parts(parts) => match parts.get_mut(part) {
                Some(Part::Sink(buffer)) => Some(buffer),
                Some(Part::Source(_)) | None => None,
            },
            Memory::Source(_) | Memory::Persistent(Access::Read, _) => None,
        };
        sink.expect(PLACED).memory_mut()
    }

    /// Returns the persistent memory of a slot, if it has any.
    pub(crate) fn persistent_mut(&mut self, slot: SlotId) -> Option<&mut [u8]> {
        match &mut self.slots[usize::from(slot.index)].entry {
            Entry::Region(Memory::Persistent(_, buffer)) => Some(buffer.memory_mut()),
            _ => None,
        }
    }

    /// Invalidates an STag and returns its memory, even if it is in use.
    pub(crate) fn release(&mut self, slot: SlotId) -> Option<Memory> {
        let entry = self.take(slot.index);
        self.free.push(slot.index);
        match entry {
            Entry::Region(memory) | Entry::Draining(memory, _) => {
                self.regions -= 1;
                Some(memory)
            }
            Entry::Free | Entry::ReadSink => None,
        }
    }

    /// Invalidates the STag of a region at once. Returns the memory if it is not in use; otherwise
    /// the last [`unhold`](Self::unhold) returns it.
    pub(crate) fn retire(&mut self, slot: SlotId, wr: WrId) -> Option<Memory> {
        let place = &mut self.slots[usize::from(slot.index)];
        if place.users == 0 {
            return self.release(slot);
        }
        place.entry = match std::mem::replace(&mut place.entry, Entry::Free) {
            Entry::Region(memory) => Entry::Draining(memory, wr),
            other => other,
        };
        None
    }

    /// Notes that a region is in use.
    pub(crate) fn hold(&mut self, slot: SlotId) {
        self.slots[usize::from(slot.index)].users += 1;
    }

    /// Whether a region is in use.
    pub(crate) fn is_held(&self, slot: SlotId) -> bool {
        self.slots[usize::from(slot.index)].users > 0
    }

    /// Notes that a use of a region has ended. Returns the Invalidate that waited for it, if any.
    pub(crate) fn unhold(&mut self, slot: SlotId) -> Option<(WrId, Memory)> {
        let place = &mut self.slots[usize::from(slot.index)];
        // The peer may have invalidated the region meanwhile, and the slot may have another STag
        // now.
        if place.stag != slot.stag || place.users == 0 {
            return None;
        }
        place.users -= 1;
        match place.entry {
            Entry::Draining(_, wr) if place.users == 0 => Some((wr, self.release(slot)?)),
            _ => None,
        }
    }

    /// Drops the regions that were invalidated and are still in use.
    pub(crate) fn abandon_drains(&mut self) -> Vec<WrId> {
        let mut waiting = Vec::new();
        for index in (0..).take(self.slots.len()) {
            if let Entry::Draining(_, wr) = self.slots[usize::from(index)].entry {
                drop(self.take(index));
                self.free.push(index);
                self.regions -= 1;
                waiting.push(wr);
            }
        }
        waiting
    }

    fn take(&mut self, index: u16) -> Entry {
        let place = &mut self.slots[usize::from(index)];
        place.users = 0;
        std::mem::replace(&mut place.entry, Entry::Free)
    }
}

impl SlotId {
    /// Returns the handle by which the slot was found.
    pub(crate) fn handle(self) -> Handle {
        Handle(self.stag)
    }
}

/// Returns the key of an STag: its last octet.
fn key(stag: u32) -> u8 {
    stag.to_be_bytes()[3]
}

/// Generator of numbers that cannot be predicted without the seed and do not repeat for a long
/// time: a permuted counter.
struct Draw {
    keyed: DefaultHasher,
    count: u32,
}

impl Draw {
    fn new(seed: [u8; 32]) -> Self {
        let mut keyed = DefaultHasher::new();
        keyed.write(&seed);
        Self { keyed, count: 0 }
    }

    fn hash(&self, round: u32, value: u32) -> u32 {
        let mut hash = self.keyed.clone();
        hash.write_u32(round);
        hash.write_u32(value);
        (hash.finish() >> 32) as u32
    }

    /// Returns the next number of [`DRAWN_BITS`] bits. Each number is drawn once before any is
    /// repeated.
    ///
    /// A Feistel network is invertible, so that two counts never give the same number.
    fn next(&mut self) -> u32 {
        const HALF: u32 = DRAWN_BITS / 2;
        const MASK: u32 = (1 << HALF) - 1;
        self.count = self.count.wrapping_add(1);
        let (mut left, mut right) = (self.count >> HALF & MASK, self.count & MASK);
        for round in 1..=4 {
            (left, right) = (right, left ^ (self.hash(round, right) & MASK));
        }
        left << HALF | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::Buffer;
    use std::collections::HashSet;

    fn sink() -> Memory {
        Memory::Sink(Buffer::with_capacity(16))
    }

    #[test]
    fn no_number_is_drawn_twice_before_all_were() {
        let mut draw = Draw::new([3; 32]);
        let drawn: HashSet<_> = (0..1 << DRAWN_BITS).map(|_| draw.next()).collect();
        assert_eq!(drawn.len(), 1 << DRAWN_BITS);
        assert!(drawn.iter().all(|drawn| drawn >> DRAWN_BITS == 0));
    }

    #[test]
    fn next_number_does_not_follow_from_those_before() {
        let mut draw = Draw::new([3; 32]);
        let drawn: Vec<u32> = (0..100).map(|_| draw.next()).collect();
        let steps = drawn.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
        let steps: HashSet<u32> = steps.collect();
        assert!(steps.len() > 90, "{drawn:?}");
    }

    #[test]
    fn an_stag_is_invalid_after_its_registration() {
        let mut table = StagTable::new([7; 32]);
        let first = table.register(sink());
        let slot = table.find(first.0).unwrap();
        assert_eq!(slot.handle(), first);
        assert!(table.release(slot).is_some());
        assert_eq!(table.find(first.0), None);
        let mut before = first;
        for _ in 0..2000 {
            let next = table.register(sink());
            assert_ne!(key(before.0), key(next.0), "the key changes");
            assert_eq!(table.find(before.0), None);
            assert_eq!(table.find(first.0), None);
            let slot = table.find(next.0).unwrap();
            assert!(table.release(slot).is_some());
            before = next;
        }
        assert_eq!(table.regions(), 0);
    }

    #[test]
    fn stags_are_distinct_and_nonzero_and_adjacent_ones_invalid() {
        let mut table = StagTable::new([1; 32]);
        let mut seen = HashSet::new();
        for _ in 0..2000 {
            let Handle(stag) = table.register(sink());
            assert_ne!(stag, 0);
            assert!(seen.insert(stag));
        }
        for stag in &seen {
            assert!(table.find(*stag).is_some());
            assert!(table.find(stag ^ 1).is_none());
            assert!(table.find(stag ^ 0x100).is_none());
        }
    }

    #[test]
    fn different_seeds_give_different_stags() {
        let first = StagTable::new([1; 32]).register(sink());
        let second = StagTable::new([2; 32]).register(sink());
        assert_ne!(first, second);
    }

    #[test]
    fn a_region_in_use_cannot_be_named_and_comes_back_with_its_last_use() {
        let mut table = StagTable::new([3; 32]);
        let handle = table.register(sink());
        let slot = table.find(handle.0).unwrap();
        table.hold(slot);
        table.hold(slot);
        assert!(table.retire(slot, WrId(5)).is_none());
        assert_eq!(table.find(handle.0), None);
        assert_eq!(table.sink_mut(slot, 0).len(), 16);
        assert!(table.unhold(slot).is_none());
        assert!(matches!(table.unhold(slot), Some((WrId(5), _))));
        assert_eq!(table.regions(), 0);
    }

    #[test]
    fn a_use_that_outlives_its_stag_does_not_count_for_the_next_stag() {
        let mut table = StagTable::new([3; 32]);
        let first = table.register(sink());
        let first = table.find(first.0).unwrap();
        table.hold(first);
        assert!(table.release(first).is_some());
        let second = table.register(sink());
        let second = table.find(second.0).unwrap();
        table.hold(second);
        assert!(table.unhold(first).is_none());
        assert!(table.retire(second, WrId(1)).is_none());
        assert_eq!(table.abandon_drains(), [WrId(1)]);
        assert_eq!(table.regions(), 0);
    }
}
