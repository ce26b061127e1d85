//! Framed FPDUs that are not sent yet.

use super::counters::Counters;
use super::message::{Body, COPY_PIECE_BELOW, End, Part};
use crate::crc;
use crate::ddp::{self, Header};
use crate::fpdu;
use crate::markers::Markers;
use buffer::Pool;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use verbs::Buffer;

/// Slices in one vectored write; Linux takes 1024.
const MAX_SLICES: usize = 1020;

/// Largest number of slices of one FPDU: 64 KiB of the smallest pieces that are not copied.
const SLICES_PER_FPDU: usize = 2 * fpdu::MAX_MULPDU / COPY_PIECE_BELOW + 2;

/// Octets to send, in pieces: headers, CRCs and small payload in one slab, the rest by reference.
///
/// The window is filled only when it is empty, so that a partial write needs only an offset, and
/// each CRC is computed right before its octets are sent.
pub(super) struct Window {
    pool: Pool,
    /// Slab from the pool, while there is something to send.
    slab: Buffer,
    /// Beginning of the part of the slab that is in no piece yet.
    open: usize,
    pieces: VecDeque<Piece>,
    /// Octets of the first piece that were sent.
    head: usize,
    /// Octets of the stream framed, and sent, since the beginning.
    framed: u64,
    sent: u64,
    /// Ends of messages, by the number of octets of the stream at which they are sent.
    ends: VecDeque<(u64, End)>,
    /// For FPDUs with markers: an FPDU without its markers, and with them.
    plain: Vec<u8>,
    marked: Vec<u8>,
}

enum Piece {
    Slab(Range<usize>),
    Whole(Buffer),
    Part(Bytes),
}

impl Piece {
    fn bytes<'a>(&'a self, slab: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Slab(range) => &slab[range.clone()],
            Self::Whole(buffer) => buffer,
            Self::Part(bytes) => bytes,
        }
    }
}

impl Window {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            slab: Buffer::default(),
            open: 0,
            pieces: VecDeque::new(),
            head: 0,
            framed: 0,
            sent: 0,
            ends: VecDeque::new(),
            plain: Vec::new(),
            marked: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.framed == self.sent
    }

    /// Number of octets that are not sent yet.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.framed - self.sent).expect("a window is at most a few MiB")
    }

    pub(super) fn has_room(&self) -> bool {
        self.pieces.len() + SLICES_PER_FPDU <= MAX_SLICES
    }

    /// Frames a segment with its payload, large pieces by reference.
    pub(super) fn frame(
        &mut self,
        header: Header,
        body: &mut Body,
        len: usize,
        use_crc: bool,
        counters: &mut Counters,
    ) {
        let ulpdu = header.wire_len() + len;
        let begin = self.slab.len();
        let (head, head_len) = begin_fpdu(header, ulpdu);
        self.append(&head[..head_len]);
        let mut digest = use_crc.then(crc::Digest::new);
        // The CRC covers the octets of the slab in one step, not part by part.
        let mut digested = begin;
        body.take(len, |part| {
            let piece = match part {
                Part::Copy(bytes) => {
                    counters.copied_out += bytes.len() as u64;
                    self.append(bytes);
                    return;
                }
                Part::Whole(buffer) => Piece::Whole(buffer),
                Part::Shared(bytes) => Piece::Part(bytes),
            };
            if let Some(digest) = &mut digest {
                digest.update(&self.slab[digested..]);
                digest.update(piece.bytes(&self.slab));
                digested = self.slab.len();
            }
            self.seal();
            self.pieces.push_back(piece);
        });
        let mut trailer = [0; 3 + fpdu::CRC_LEN];
        let (pad, end) = trailer.split_at_mut(fpdu::pad_len(ulpdu));
        if let Some(mut digest) = digest {
            digest.update(&self.slab[digested..]);
            digest.update(pad);
            end[..fpdu::CRC_LEN].copy_from_slice(&crc::emit(digest.finish()));
        }
        let trailer_len = pad.len() + fpdu::CRC_LEN;
        self.append(&trailer[..trailer_len]);
        self.framed += fpdu::wire_len(ulpdu) as u64;
        counters.fpdus_out += 1;
    }

    /// Frames a segment with markers; everything is copied, since they cut it in small parts.
    pub(super) fn frame_marked(
        &mut self,
        markers: &mut Markers,
        header: Header,
        body: &mut Body,
        len: usize,
        use_crc: bool,
        counters: &mut Counters,
    ) {
        let ulpdu = header.wire_len() + len;
        let (head, head_len) = begin_fpdu(header, ulpdu);
        let Self { plain, marked, .. } = self;
        plain.clear();
        plain.extend_from_slice(&head[..head_len]);
        body.take(len, |part| match part {
            Part::Copy(bytes) => plain.extend_from_slice(bytes),
            Part::Whole(buffer) => plain.extend_from_slice(&buffer),
            Part::Shared(bytes) => plain.extend_from_slice(&bytes),
        });
        plain.extend_from_slice(&[0; 3][..fpdu::pad_len(ulpdu)]);
        marked.clear();
        markers.frame(plain, use_crc, marked);
        self.framed += marked.len() as u64;
        let marked = std::mem::take(&mut self.marked);
        self.append(&marked);
        self.marked = marked;
        counters.copied_out += len as u64;
        counters.fpdus_out += 1;
    }

    fn append(&mut self, bytes: &[u8]) {
        if bytes.len() > self.slab.capacity() - self.slab.len() {
            self.grow(bytes.len());
        }
        self.slab.extend_from_slice(bytes);
    }

    /// Moves the slab to a larger buffer of the pool.
    #[cold]
    fn grow(&mut self, additional: usize) {
        let capacity = (self.slab.len() + additional).max(2 * self.slab.capacity());
        let mut larger = self.pool.take(capacity);
        larger.extend_from_slice(&self.slab);
        self.slab = larger;
    }

    /// Notes the end of a message at the octets framed so far.
    pub(super) fn owe(&mut self, end: End) {
        if end != End::Nothing {
            self.ends.push_back((self.framed, end));
        }
    }

    /// Returns the next end of a message, if all its octets were sent.
    pub(super) fn pop_end(&mut self) -> Option<End> {
        let (at, _) = *self.ends.front()?;
        if at > self.sent {
            return None;
        }
        self.ends.pop_front().map(|(_, end)| end)
    }

    /// Removes all ends of messages, sent or not.
    pub(super) fn drain_ends(&mut self) -> impl Iterator<Item = End> + '_ {
        self.ends.drain(..).map(|(_, end)| end)
    }

    /// Sends what `io` accepts.
    pub(super) fn write(
        &mut self,
        io: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.seal();
        let written = {
            let mut slices: SmallVec<[IoSlice<'_>; 64]> = SmallVec::new();
            let mut skip = self.head;
            for piece in self.pieces.iter().take(MAX_SLICES) {
                slices.push(IoSlice::new(&piece.bytes(&self.slab)[skip..]));
                skip = 0;
            }
            io(&slices)?
        };
        self.advance(written);
        Ok(written)
    }

    fn advance(&mut self, written: usize) {
        self.sent += written as u64;
        let mut left = self.head + written;
        while let Some(piece) = self.pieces.front() {
            let len = piece.bytes(&self.slab).len();
            if left < len {
                break;
            }
            left -= len;
            self.pieces.pop_front();
        }
        self.head = left;
        if self.is_empty() {
            self.slab.clear();
            self.open = 0;
        }
    }

    /// Makes a piece of the octets added to the slab since the last one.
    fn seal(&mut self) {
        if self.slab.len() > self.open {
            self.pieces
                .push_back(Piece::Slab(self.open..self.slab.len()));
            self.open = self.slab.len();
        }
    }

    /// Returns the slab to the pool, if it is empty.
    pub(super) fn release(&mut self) {
        if self.is_empty() {
            self.slab = Buffer::default();
            self.open = 0;
        }
    }

    pub(super) fn trim(&mut self) {
        self.plain = Vec::new();
        self.marked = Vec::new();
        if self.is_empty() {
            self.pieces = VecDeque::new();
            self.ends = VecDeque::new();
        }
    }
}

/// Writes the length field and the header of an FPDU; returns their length.
fn begin_fpdu(
    header: Header,
    ulpdu: usize,
) -> ([u8; fpdu::LENGTH_LEN + ddp::MAX_HEADER_LEN], usize) {
    let length = u16::try_from(ulpdu).expect("a ULPDU is at most 64768 bytes");
    let mut begin = [0; fpdu::LENGTH_LEN + ddp::MAX_HEADER_LEN];
    begin[..fpdu::LENGTH_LEN].copy_from_slice(&length.to_be_bytes());
    let len = header.write(&mut begin[fpdu::LENGTH_LEN..]);
    (begin, fpdu::LENGTH_LEN + len)
}
