//! Several pieces of memory under one handle.

use crate::Memory;
use buffer::{Buffer, Gather, gather_len};

/// Distance in bytes between the addresses of two parts of a region.
///
/// It is larger than any part, so parts never adjoin: an access that runs past the end of one is outside of all.
const STRIDE: u64 = 1 << 40;

/// Memory in several parts that is registered under one handle (draft-cel-nfsv4-reminv-design-03
/// §2.4), and returns whole when the handle is invalidated.
///
/// Each part is open to the peer for its own kind of access only, and each access must be within one
/// part. The address of a part is that of the region plus [`offset_of`](Self::offset_of) its number.
#[derive(Debug)]
pub struct Parts(Vec<Part>);

/// One part of a region.
#[derive(Debug)]
pub enum Part {
    /// The peer may read these bytes, as of [`Memory::Source`].
    Source(Gather),
    /// The peer may write anywhere in this buffer's capacity, as of [`Memory::Sink`].
    Sink(Buffer),
}

impl Part {
    /// Length in bytes of what the peer can access.
    pub fn len(&self) -> usize {
        match self {
            Self::Source(pieces) => gather_len(pieces),
            Self::Sink(buffer) => buffer.capacity(),
        }
    }

    /// Whether its length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Part> for Memory {
    fn from(part: Part) -> Self {
        match part {
            Part::Source(pieces) => Self::Source(pieces),
            Part::Sink(buffer) => Self::Sink(buffer),
        }
    }
}

impl Parts {
    /// Combines parts, in the order of their numbers.
    pub fn new(parts: Vec<Part>) -> Self {
        Self(parts)
    }

    /// Offset in bytes of the part with this number from the address of the region.
    pub fn offset_of(part: usize) -> u64 {
        STRIDE.saturating_mul(part as u64)
    }

    /// Whether a provider can register these parts: at least one and at most `most`, none of them
    /// empty or larger than `max_part` bytes. For providers.
    pub fn are_registrable(&self, most: usize, max_part: usize) -> bool {
        let max_part = max_part.min(usize::try_from(STRIDE / 2).unwrap_or(usize::MAX));
        (1..=most).contains(&self.0.len())
            && self
                .0
                .iter()
                .all(|part| (1..=max_part).contains(&part.len()))
    }

    /// Returns the number of the part at this offset from the address of the region, and the offset
    /// in that part, which may be past its end. For providers.
    pub fn find(&self, offset: u64) -> Option<(usize, u64)> {
        let part = usize::try_from(offset / STRIDE).ok()?;
        (part < self.0.len()).then_some((part, offset % STRIDE))
    }

    /// Returns a part by its number.
    pub fn get(&self, part: usize) -> Option<&Part> {
        self.0.get(part)
    }

    /// Returns a part by its number.
    pub fn get_mut(&mut self, part: usize) -> Option<&mut Part> {
        self.0.get_mut(part)
    }

    /// Returns the parts in the order of their numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, Part> {
        self.0.iter()
    }

    /// Sum of the lengths of the parts, in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Part::len).sum()
    }

    /// Whether there is no byte in any part.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> IntoIterator for &'a Parts {
    type Item = &'a Part;
    type IntoIter = std::slice::Iter<'a, Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for Parts {
    type Item = Part;
    type IntoIter = std::vec::IntoIter<Part>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sinks(lengths: &[usize]) -> Parts {
        let sink = |&len: &usize| Part::Sink(Buffer::with_capacity(len));
        Parts::new(lengths.iter().map(sink).collect())
    }

    #[test]
    fn part_is_found_by_every_offset_of_it_and_no_other() {
        let parts = sinks(&[8, 4096, 1]);
        for part in 0..3 {
            let begin = Parts::offset_of(part);
            for within in [0, 1, 7, 5000] {
                assert_eq!(parts.find(begin + within), Some((part, within)));
            }
        }
        for outside in [Parts::offset_of(3), u64::MAX, u64::MAX - 1] {
            assert_eq!(parts.find(outside), None);
        }
    }

    #[test]
    fn parts_never_adjoin() {
        // The largest part that can be registered ends before the next one begins.
        let largest = usize::MAX;
        let parts = sinks(&[1, 1]);
        assert!(parts.are_registrable(2, largest));
        assert!(Parts::offset_of(0) + STRIDE / 2 < Parts::offset_of(1));
    }

    #[test]
    fn too_many_parts_empty_ones_and_large_ones_cannot_be_registered() {
        assert!(sinks(&[8, 8]).are_registrable(2, 8));
        assert!(!sinks(&[8, 8]).are_registrable(1, 8));
        assert!(!sinks(&[8, 9]).are_registrable(2, 8));
        assert!(!sinks(&[8, 0]).are_registrable(2, 8));
        assert!(!sinks(&[]).are_registrable(2, 8));
    }
}
