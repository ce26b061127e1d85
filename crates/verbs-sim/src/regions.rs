//! Memory that the peer may reach, by handle.

use crate::rng::Rng;
use buffer::Gather;
use std::collections::BTreeMap;
use std::fmt;
use verbs::{Access, Handle, Memory, NotPersistent, Part, RemoteAddress, Segment};

/// First address of memory whose addresses are virtual.
pub(crate) const VIRTUAL_BASE: u64 = 0x7f00_0000_0000;

#[derive(Debug, Default)]
pub(crate) struct Regions {
    live: BTreeMap<Handle, Region>,
}

/// Memory, and the address by which the peer reaches its first byte: as on hardware with virtual
/// addresses it is seldom 0.
#[derive(Debug)]
struct Region {
    memory: Memory,
    base: u64,
}

/// Why the peer may not do what it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unknown(Handle),
    Rights(Handle),
    Bounds(Handle),
    Persistent(Handle),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(handle) => write!(f, "there is no region {handle:?}"),
            Self::Rights(handle) => write!(f, "region {handle:?} is not open for this access"),
            Self::Bounds(handle) => write!(f, "access beyond the end of region {handle:?}"),
            Self::Persistent(handle) => {
                write!(f, "region {handle:?} cannot be invalidated by the peer")
            }
        }
    }
}

impl Regions {
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Takes in memory under a handle that nobody can guess: all 32 bits are drawn.
    ///
    /// Its address is in the page of its handle, counted from `base`, unless that is 0.
    pub(crate) fn register(&mut self, memory: Memory, base: u64, rng: &mut Rng) -> RemoteAddress {
        loop {
            let handle = Handle(rng.half());
            if handle.0 != 0 && !self.live.contains_key(&handle) {
                // Nothing is drawn for it: what is drawn for other things stays as it is.
                let base = match base {
                    0 => 0,
                    _ => base + (u64::from(handle.0) << 12),
                };
                self.live.insert(handle, Region { memory, base });
                return RemoteAddress {
                    handle,
                    offset: base,
                };
            }
        }
    }

    pub(crate) fn invalidate(&mut self, handle: Handle) -> Option<Memory> {
        self.live.remove(&handle).map(|region| region.memory)
    }

    /// The same for the peer, which cannot do it to everything.
    pub(crate) fn invalidate_for_peer(&mut self, handle: Handle) -> Result<Memory, Refusal> {
        match self.live.get(&handle).map(|region| &region.memory) {
            Some(Memory::Persistent(..)) => Err(Refusal::Persistent(handle)),
            Some(Memory::Source(_) | Memory::Sink(_) | Memory::Parts(_)) | None => {
                self.invalidate(handle).ok_or(Refusal::Unknown(handle))
            }
        }
    }

    /// So many bytes of persistent memory, for its owner.
    pub(crate) fn persistent(
        &mut self,
        handle: Handle,
        offset: usize,
        length: usize,
    ) -> Result<&mut [u8], NotPersistent> {
        let region = self.live.get_mut(&handle);
        let Some(Memory::Persistent(_, buffer)) = region.map(|region| &mut region.memory) else {
            return Err(NotPersistent(handle));
        };
        let memory = buffer.memory_mut();
        let range = range_of(offset as u64, length, memory.len()).ok_or(NotPersistent(handle))?;
        Ok(&mut memory[range])
    }

    /// Carries out an RDMA Write of the peer: all of it or nothing.
    pub(crate) fn write(&mut self, to: RemoteAddress, bytes: &[u8]) -> Result<(), Refusal> {
        if bytes.is_empty() {
            return Ok(());
        }
        let Some(Region { memory, base }) = self.live.get_mut(&to.handle) else {
            return Err(Refusal::Unknown(to.handle));
        };
        let bounds = Refusal::Bounds(to.handle);
        let offset = to.offset.checked_sub(*base);
        let (sink, offset) = match memory {
            Memory::Source(_) | Memory::Persistent(Access::Read, _) => (None, offset),
            Memory::Sink(buffer) | Memory::Persistent(Access::Write, buffer) => {
                (Some(buffer), offset)
            }
            Memory::Parts(parts) => {
                let found = offset.and_then(|offset| parts.find(offset));
                let (part, offset) = found.ok_or(bounds)?;
                match parts.get_mut(part) {
                    Some(Part::Sink(buffer)) => (Some(buffer), Some(offset)),
                    Some(Part::Source(_)) | None => (None, Some(offset)),
                }
            }
        };
        let memory = sink.ok_or(Refusal::Rights(to.handle))?.memory_mut();
        let range = offset.and_then(|offset| range_of(offset, bytes.len(), memory.len()));
        memory[range.ok_or(bounds)?].copy_from_slice(bytes);
        Ok(())
    }

    /// Carries out an RDMA Read of the peer. Its length meets the region's bounds before anything
    /// is allocated.
    pub(crate) fn read(&self, from: Segment) -> Result<Vec<u8>, Refusal> {
        if from.length == 0 {
            return Ok(Vec::new());
        }
        let length = usize::try_from(from.length).unwrap_or(usize::MAX);
        let region = self.live.get(&from.handle);
        let region = region.ok_or(Refusal::Unknown(from.handle))?;
        let bounds = Refusal::Bounds(from.handle);
        let offset = from.offset.checked_sub(region.base);
        let within = |size| {
            let range = offset.and_then(|offset| range_of(offset, length, size));
            range.ok_or(bounds)
        };
        match &region.memory {
            Memory::Sink(_) | Memory::Persistent(Access::Write, _) => {
                Err(Refusal::Rights(from.handle))
            }
            Memory::Source(pieces) => {
                let range = within(buffer::gather_len(pieces))?;
                Ok(copy_out(pieces, range))
            }
            Memory::Parts(parts) => {
                let found = offset.and_then(|offset| parts.find(offset));
                let (part, offset) = found.ok_or(bounds)?;
                let Some(Part::Source(pieces)) = parts.get(part) else {
                    return Err(Refusal::Rights(from.handle));
                };
                let range = range_of(offset, length, buffer::gather_len(pieces));
                Ok(copy_out(pieces, range.ok_or(bounds)?))
            }
            Memory::Persistent(Access::Read, buffer) => {
                let range = within(buffer.capacity())?;
                Ok(buffer.memory()[range].to_vec())
            }
        }
    }
}

/// The stretch of `length` bytes at `offset`, if it lies within `size` bytes.
fn range_of(offset: u64, length: usize, size: usize) -> Option<std::ops::Range<usize>> {
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(length)?;
    (end <= size).then_some(begin..end)
}

fn copy_out(pieces: &Gather, range: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(range.len());
    let mut begin = 0;
    for piece in pieces {
        let end = begin + piece.len();
        let (from, to) = (range.start.max(begin), range.end.min(end));
        if from < to {
            bytes.extend_from_slice(&piece[from - begin..to - begin]);
        }
        begin = end;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use buffer::Buffer;
    use bytes::Bytes;

    fn source(regions: &mut Regions, pieces: &[&'static [u8]]) -> RemoteAddress {
        let pieces = pieces.iter().copied().map(Bytes::from_static).collect();
        regions.register(Memory::Source(pieces), VIRTUAL_BASE, &mut Rng::new(1))
    }

    #[test]
    fn read_spans_the_pieces_of_a_region() {
        let mut regions = Regions::default();
        let RemoteAddress { handle, offset } = source(&mut regions, &[b"abc", b"", b"defg"]);
        let segment = |from| Segment {
            handle,
            length: 4,
            offset: from,
        };
        assert_eq!(regions.read(segment(offset + 2)).unwrap(), b"cdef");
        assert_ne!(offset, 0);
        for below in [0, 2, offset - 1] {
            assert_eq!(regions.read(segment(below)), Err(Refusal::Bounds(handle)));
        }
    }

    #[test]
    fn offset_that_overflows_is_out_of_bounds() {
        let mut regions = Regions::default();
        let sink = Memory::Sink(Buffer::with_capacity(8));
        let RemoteAddress { handle, offset } =
            regions.register(sink, VIRTUAL_BASE, &mut Rng::new(1));
        for offset in [offset + 7, offset + 8, u64::MAX, u64::MAX - 1, offset - 1] {
            let to = RemoteAddress { handle, offset };
            assert_eq!(regions.write(to, b"xy"), Err(Refusal::Bounds(handle)));
        }
    }
}
