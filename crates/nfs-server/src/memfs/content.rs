//! The data of a sparse file: the pieces that were written, by offset.

use crate::fs::Error;
use bytes::Bytes;
use oncrpc::xdr;
use oncrpc::xdr::Gather;
use std::collections::BTreeMap;

/// Smallest piece that is stored by reference, in bytes. Smaller ones are copied, since a reference
/// keeps the whole buffer.
const BY_REFERENCE: usize = 16 << 10;

/// Bookkeeping of a piece, in bytes.
pub(super) const PIECE: u64 = 64;

/// Zeroes that reads of holes return.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// The data of a file.
#[derive(Default)]
pub(super) struct Content {
    /// Pieces by offset, not empty and without overlap.
    pieces: BTreeMap<u64, Bytes>,
    size: u64,
    /// Bytes in the pieces.
    held: u64,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory used, in bytes.
    pub(super) fn used(&self) -> u64 {
        self.held + self.pieces.len() as u64 * PIECE
    }

    /// Returns up to `count` bytes from `offset`, by reference.
    pub(super) fn read(&self, offset: u64, count: u32) -> Gather {
        let end = offset.saturating_add(count.into()).min(self.size);
        let before = self.pieces.range(..=offset).next_back();
        let first = match before {
            // Usually all bytes are in one piece.
            Some((start, piece)) if *start + piece.len() as u64 >= end && offset < end => {
                let within = index(offset - start)..index(end - start);
                return Gather::from_buf([piece.slice(within)]);
            }
            Some((start, piece)) if *start + piece.len() as u64 > offset => *start,
            Some(_) | None => offset,
        };
        let mut at = offset;
        let mut out = Gather::new();
        for (&start, piece) in self.pieces.range(first..end.max(first)) {
            fill(&mut out, start.max(at) - at);
            at = at.max(start);
            let from = index(at - start);
            let to = piece.len().min(index(end - start));
            out.push(piece.slice(from..to));
            at = start + to as u64;
        }
        fill(&mut out, end.saturating_sub(at));
        out
    }

    /// Returns a bound for the growth of [`used`](Self::used) by a write. Replacing pieces needs no
    /// memory.
    pub(super) fn growth(&self, offset: u64, data: &Gather) -> u64 {
        let len = xdr::gather_len(data) as u64;
        let end = offset.saturating_add(len);
        let replaced: u64 = self
            .pieces
            .range(..end)
            .rev()
            .map(|(&start, piece)| (start, start + piece.len() as u64))
            .take_while(|(_, stop)| *stop > offset)
            .map(|(start, stop)| stop.min(end) - start.max(offset))
            .sum();
        // Splitting the pieces at both ends may add a piece.
        len - replaced + (data.len() as u64 + 1) * PIECE
    }

    pub(super) fn write(&mut self, offset: u64, data: Gather) {
        let mut at = offset;
        for piece in data {
            if piece.is_empty() {
                continue;
            }
            let len = piece.len() as u64;
            self.cut(at, at + len);
            self.put(at, piece);
            at += len;
        }
        self.size = self.size.max(at);
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.cut(size, self.size);
        }
        self.size = size;
    }

    /// Makes a hole from `start` to `end`, or to the end of the file if that is before. It adds at most one piece.
    pub(super) fn punch(&mut self, start: u64, end: u64) {
        let end = end.min(self.size);
        if start < end {
            self.cut(start, end);
        }
    }

    /// Returns the pieces of a range before the end of the file, with their offsets in it.
    pub(super) fn pieces_of(&self, offset: u64, len: u64) -> Result<Vec<(u64, Bytes)>, Error> {
        let end = offset.checked_add(len).filter(|&end| end <= self.size);
        let end = end.ok_or(Error::Invalid)?;
        let first = self.pieces.range(..=offset).next_back();
        let first = first.map_or(offset, |(start, _)| *start);
        let pieces = self.pieces.range(first..end).map(|(&start, piece)| {
            let from = index(offset.saturating_sub(start)).min(piece.len());
            let to = piece.len().min(index(end - start));
            (start.max(offset) - offset, piece.slice(from..to))
        });
        Ok(pieces.filter(|(_, piece)| !piece.is_empty()).collect())
    }

    /// Replaces a range by pieces, with their offsets in it, and holes.
    pub(super) fn replace(&mut self, offset: u64, len: u64, pieces: Vec<(u64, Bytes)>) {
        self.cut(offset, offset + len);
        for (at, piece) in pieces {
            self.put(offset + at, piece);
        }
        self.size = self.size.max(offset + len);
    }

    /// Returns the offset of the first data from `offset` on.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let before = self.pieces.range(..=offset).next_back();
        match before {
            Some((start, piece)) if start + piece.len() as u64 > offset => Some(offset),
            _ => self.pieces.range(offset..).next().map(|(start, _)| *start),
        }
    }

    /// Returns the offset of the first hole from `offset` on, which may be the end of the file.
    pub(super) fn next_hole(&self, offset: u64) -> u64 {
        let first = self.pieces.range(..=offset).next_back();
        let mut at = offset;
        for (&start, piece) in self
            .pieces
            .range(first.map_or(offset, |(start, _)| *start)..)
        {
            if start > at {
                break;
            }
            at = at.max(start + piece.len() as u64);
        }
        at
    }

    /// Inserts a piece into a hole. A small piece is joined to a small one directly before it.
    fn put(&mut self, at: u64, piece: Bytes) {
        self.held += piece.len() as u64;
        if piece.len() >= BY_REFERENCE {
            self.pieces.insert(at, piece);
            return;
        }
        if let Some((&start, before)) = self.pieces.range(..at).next_back()
            && start + before.len() as u64 == at
            && before.len() + piece.len() < BY_REFERENCE
        {
            let joined = [&before[..], &piece[..]].concat();
            self.pieces.insert(start, joined.into());
            return;
        }
        self.pieces.insert(at, Bytes::copy_from_slice(&piece));
    }

    /// Makes a hole from `start` to `end`.
    fn cut(&mut self, start: u64, end: u64) {
        let before = self
            .pieces
            .range(..start)
            .next_back()
            .filter(|(at, piece)| *at + piece.len() as u64 > start)
            .map(|(at, _)| *at);
        if let Some(at) = before {
            self.split(at, start);
        }
        let last = self
            .pieces
            .range(start..end)
            .next_back()
            .filter(|(at, piece)| *at + piece.len() as u64 > end)
            .map(|(at, _)| *at);
        if let Some(at) = last {
            self.split(at, end);
        }
        let within: Vec<u64> = self.pieces.range(start..end).map(|(at, _)| *at).collect();
        for at in within {
            if let Some(piece) = self.pieces.remove(&at) {
                self.held -= piece.len() as u64;
            }
        }
    }

    /// Splits the piece that begins at `at` into one before and one from `middle`.
    fn split(&mut self, at: u64, middle: u64) {
        if let Some(piece) = self.pieces.remove(&at) {
            let cut = index(middle - at);
            self.pieces.insert(at, keep(piece.slice(..cut)));
            self.pieces.insert(middle, keep(piece.slice(cut..)));
        }
    }
}

/// Returns the rest of a piece: by reference if it is large enough, otherwise as a copy.
fn keep(piece: Bytes) -> Bytes {
    if piece.len() >= BY_REFERENCE {
        piece
    } else {
        Bytes::copy_from_slice(&piece)
    }
}

fn fill(out: &mut Gather, mut zeroes: u64) {
    while zeroes > 0 {
        let len = index(zeroes).min(ZEROES.len());
        out.push(Bytes::from_static(&ZEROES[..len]));
        zeroes -= len as u64;
    }
}

/// Converts an offset within a piece or a hole, which fits memory.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(data: Vec<u8>) -> Gather {
        Gather::from_elem(data.into(), 1)
    }

    #[test]
    fn large_pieces_are_returned_without_a_copy() {
        let mut content = Content::default();
        let data = Bytes::from(vec![7; 1 << 20]);
        content.write(0, Gather::from_elem(data.clone(), 1));
        let read = content.read(0, 1 << 20);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].as_ptr(), data.as_ptr());
        let part = content.read(4096, 4096);
        assert_eq!(part[0].as_ptr(), data[4096..].as_ptr());
    }

    #[test]
    fn small_appends_do_not_pile_up() {
        let mut content = Content::default();
        for at in 0..10_000 {
            content.write(at, one(vec![1]));
        }
        assert!(content.pieces.len() <= 2, "{}", content.pieces.len());
        assert_eq!(content.held, 10_000);
    }

    proptest! {
        #[test]
        fn content_is_what_a_plain_file_would_have(
            steps in proptest::collection::vec(
                (0u8..6, 0u64..60_000, 0usize..40_000, any::<u8>()), 1..30)
        ) {
            let mut content = Content::default();
            let mut plain: Vec<u8> = Vec::new();
            for (what, offset, len, fill) in steps {
                let at = usize::try_from(offset).unwrap();
                if what == 0 {
                    content.truncate(offset);
                    plain.resize(at, 0);
                } else if what == 5 {
                    let from = plain.len() / 3;
                    let len = len.min(plain.len() - from);
                    let pieces = content.pieces_of(from as u64, len as u64).unwrap();
                    content.replace(offset, len as u64, pieces);
                    let copied = plain[from..from + len].to_vec();
                    plain.resize(plain.len().max(at + len), 0);
                    plain[at..at + len].copy_from_slice(&copied);
                } else if what == 4 {
                    content.punch(offset, offset + len as u64);
                    let end = plain.len().min(at + len);
                    plain[at.min(end)..end].fill(0);
                } else if len > 0 {
                    content.write(offset, one(vec![fill; len]));
                    plain.resize(plain.len().max(at + len), 0);
                    plain[at..at + len].fill(fill);
                }
                prop_assert_eq!(content.size(), plain.len() as u64);
                let from = at / 2;
                let read = content.read(from as u64, 50_000).concat();
                let end = plain.len().min(from + 50_000);
                prop_assert_eq!(&read[..], plain.get(from..end).unwrap_or(&[]));
                // What is not data is zero.
                let hole = content.next_hole(offset);
                prop_assert!(hole >= offset);
                if let Some(data) = content.next_data(offset) {
                    prop_assert!(data >= offset && content.next_hole(data) > data);
                }
                if hole == offset && offset < content.size() {
                    let data = content.next_data(offset).unwrap_or(content.size());
                    let data = usize::try_from(data).unwrap();
                    prop_assert!(plain[at..data].iter().all(|&byte| byte == 0));
                }
                let held: usize = content.pieces.values().map(Bytes::len).sum();
                prop_assert_eq!(content.held, held as u64);
            }
        }
    }
}
