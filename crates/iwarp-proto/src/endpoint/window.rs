//! FPDUs that are framed and on their way to the socket.

use super::counters::Counters;
use super::message::{Body, COPY_PIECE_BELOW, End, Part};
use crate::crc;
use crate::ddp::Header;
use crate::fpdu;
use crate::markers::Markers;
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use verbs::Buffer;

/// Slices in one vectored write; Linux takes 1024.
const MAX_SLICES: usize = 1020;

/// Slices that one more FPDU may need, at most: 64 KiB of pieces that are just not copied.
const SLICES_PER_FPDU: usize = 2 * fpdu::MAX_MULPDU / COPY_PIECE_BELOW + 2;

/// Headers, CRCs and small payload above this are given back when a connection is idle.
const KEEP_SLAB: usize = 16 << 10;

/// Octets to send, in pieces: headers, CRCs and small payload in one slab, the rest by reference.
///
/// It is filled when it is empty, so that a partial write is nothing but an offset, and so that a
/// CRC is made just before its octets are handed out.
pub(super) struct Window {
    slab: Vec<u8>,
    /// Where the part of the slab begins that is in no piece yet.
    open: usize,
    pieces: VecDeque<Piece>,
    /// Octets of the first piece that are handed out.
    head: usize,
    /// Octets of the stream framed and handed out, since the beginning.
    framed: u64,
    sent: u64,
    /// What is owed when so many octets of the stream have been handed out.
    ends: VecDeque<(u64, End)>,
    /// For FPDUs with markers: the FPDU before it has any.
    plain: Vec<u8>,
}

enum Piece {
    Slab(Range<usize>),
    Whole(Buffer),
    Part(Bytes),
}

impl Piece {
    fn octets<'a>(&'a self, slab: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Slab(range) => &slab[range.clone()],
            Self::Whole(buffer) => buffer,
            Self::Part(octets) => octets,
        }
    }
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            slab: Vec::new(),
            open: 0,
            pieces: VecDeque::new(),
            head: 0,
            framed: 0,
            sent: 0,
            ends: VecDeque::new(),
            plain: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.framed == self.sent
    }

    /// Octets that are not handed out yet.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.framed - self.sent).expect("a window is at most a few MiB")
    }

    pub(super) fn has_room(&self) -> bool {
        self.pieces.len() + SLICES_PER_FPDU <= MAX_SLICES
    }

    /// Frames a segment with its payload, by reference where that is worth it.
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
        self.begin(header, ulpdu);
        let mut digest = use_crc.then(crc::Digest::new);
        // Octets of the slab are digested in one go, not one small part after the other.
        let mut digested = begin;
        body.take(len, |part| {
            let piece = match part {
                Part::Copy(octets) => {
                    counters.copied_out += octets.len() as u64;
                    self.slab.extend_from_slice(octets);
                    return;
                }
                Part::Whole(buffer) => Piece::Whole(buffer),
                Part::Shared(octets) => Piece::Part(octets),
            };
            if let Some(digest) = &mut digest {
                digest.update(&self.slab[digested..]);
                digest.update(piece.octets(&self.slab));
                digested = self.slab.len();
            }
            self.seal();
            self.pieces.push_back(piece);
        });
        self.slab.extend_from_slice(&[0; 3][..fpdu::pad_len(ulpdu)]);
        let crc = digest.map(|mut digest| {
            digest.update(&self.slab[digested..]);
            digest.finish()
        });
        self.slab
            .extend_from_slice(&crc.map_or([0; fpdu::CRC_LEN], crc::emit));
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
        // The slab is borrowed to build the FPDU in, then the FPDU goes behind it with markers.
        let before = std::mem::take(&mut self.slab);
        self.slab = std::mem::take(&mut self.plain);
        self.slab.clear();
        self.begin(header, ulpdu);
        body.take(len, |part| match part {
            Part::Copy(octets) => self.slab.extend_from_slice(octets),
            Part::Whole(buffer) => self.slab.extend_from_slice(&buffer),
            Part::Shared(octets) => self.slab.extend_from_slice(&octets),
        });
        self.slab.extend_from_slice(&[0; 3][..fpdu::pad_len(ulpdu)]);
        self.plain = std::mem::replace(&mut self.slab, before);
        let begin = self.slab.len();
        markers.frame(&self.plain, use_crc, &mut self.slab);
        self.framed += (self.slab.len() - begin) as u64;
        counters.copied_out += len as u64;
        counters.fpdus_out += 1;
    }

    fn begin(&mut self, header: Header, ulpdu: usize) {
        let length = u16::try_from(ulpdu).expect("a ULPDU is at most 64768 octets");
        self.slab.extend_from_slice(&length.to_be_bytes());
        header.emit(&mut self.slab);
    }

    /// Notes what is owed for everything framed so far.
    pub(super) fn owe(&mut self, end: End) {
        if end != End::Nothing {
            self.ends.push_back((self.framed, end));
        }
    }

    /// The next thing that is owed, if its octets are out.
    pub(super) fn pop_end(&mut self) -> Option<End> {
        let (at, _) = *self.ends.front()?;
        if at > self.sent {
            return None;
        }
        self.ends.pop_front().map(|(_, end)| end)
    }

    /// Takes back everything that is owed, whether its octets are out or not.
    pub(super) fn drain_ends(&mut self) -> impl Iterator<Item = End> + '_ {
        self.ends.drain(..).map(|(_, end)| end)
    }

    /// Hands out what `io` takes.
    pub(super) fn write(
        &mut self,
        io: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.seal();
        let written = {
            let mut slices: SmallVec<[IoSlice<'_>; 64]> = SmallVec::new();
            let mut skip = self.head;
            for piece in self.pieces.iter().take(MAX_SLICES) {
                slices.push(IoSlice::new(&piece.octets(&self.slab)[skip..]));
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
            let len = piece.octets(&self.slab).len();
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

    /// Makes a piece of what the slab has got since the last one.
    fn seal(&mut self) {
        if self.slab.len() > self.open {
            self.pieces
                .push_back(Piece::Slab(self.open..self.slab.len()));
            self.open = self.slab.len();
        }
    }

    pub(super) fn trim(&mut self) {
        if self.is_empty() && self.slab.capacity() > KEEP_SLAB {
            self.slab = Vec::new();
        }
        self.plain = Vec::new();
    }
}
