//! Receiving: FPDUs are parsed from the stream, verified and placed.
//!
//! A small FPDU is read into the staging buffer, verified, and copied to its destination. Of a
//! large FPDU only the header is staged. After it is admitted, the rest of the payload is read
//! directly into its destination, and the CRC is checked over that memory. This departs from RFC
//! 5044 §6, which demands the CRC first: a corrupted header can name only memory that this
//! connection exposes, and after a bad CRC no completion is reported, so the placed data is not
//! used. `strict` checks the CRC first.

use super::Endpoint;
use super::admit::{Admitted, What};
use super::message::Message;
use super::phase::Phase;
use super::places::{Places, Target};
use crate::be;
use crate::crc;
use crate::ddp::{self, Header};
use crate::fpdu::{self, CRC_LEN, LENGTH_LEN};
use crate::rdmap::ReadRequest;
use crate::stag::SlotId;
use crate::terminate::{Cause, Terminate, TerminatedSegment};
use buffer::Pool;
use std::io::{self, IoSliceMut};
use verbs::{Buffer, Completion, Invalidated, NoBlock, ReceiveShare};

/// Largest staging buffer in bytes. Its size follows that of the reads, from 4 KiB.
const STAGING: usize = 256 << 10;

/// Largest number of FPDUs handled per turn. An FPDU without payload costs its sender 20 bytes and
/// no memory, and a full staging buffer has 13,000 of them: other connections have their turn in
/// between.
pub const FPDUS_PER_TURN: usize = 256;

/// Bytes to discard at a time when the connection is about to end.
const DISCARD: usize = 16 << 10;

/// Smallest rest of a payload, in octets, to read directly into its destination.
const DIRECT_FROM: usize = 8 << 10;

/// Octets to read at first, and after a large FPDU: other large ones are likely to follow, and
/// staged payload has to be copied.
const OFFER_FIRST: usize = 4 << 10;
const OFFER_AFTER_LARGE: usize = 512;

/// State of the incoming stream.
pub(super) struct Rx {
    crc: bool,
    strict: bool,
    pool: Pool,
    /// Staging buffer; without memory while there is nothing to receive.
    staging: Buffer,
    /// Range of the staging buffer that is not parsed yet.
    head: usize,
    tail: usize,
    /// Octets to read when the next header is awaited; grows while small FPDUs fill the reads.
    offer: usize,
    /// Missing octets of the FPDU at the head of the staging buffer.
    missing: usize,
    state: State,
    /// Why complete FPDUs in the staging buffer are not handled, if there are any.
    stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// No FPDUs are left.
    No,
    /// The turn has ended.
    Turn,
    /// The next FPDU begins a Send, and no block is available for it.
    NoBlock,
}

/// Result of handling staged octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Moved,
    /// More octets are needed.
    Short,
    /// A block of the shared receive queue is needed.
    NoBlock,
}

enum State {
    /// At the beginning of an FPDU, or within one that is staged.
    Framing,
    /// Reading payload into its destination, then pad and CRC.
    Placing(Placing),
}

struct Placing {
    admitted: Admitted,
    target: Target,
    /// Offset of the payload in the target, its length, and how much of it was received.
    start: usize,
    len: usize,
    got: usize,
    pad: usize,
    /// Length field and DDP header, for the CRC.
    header: [u8; LENGTH_LEN + ddp::MAX_HEADER_LEN],
    header_len: usize,
}

impl Placing {
    fn trailer(&self) -> usize {
        self.pad + CRC_LEN
    }
}

impl Rx {
    pub(super) fn new(crc: bool, strict: bool, pool: Pool) -> Self {
        Self {
            crc,
            strict: strict && crc,
            pool,
            staging: Buffer::default(),
            head: 0,
            tail: 0,
            offer: OFFER_FIRST,
            missing: 0,
            state: State::Framing,
            stop: Stop::No,
        }
    }

    fn staged(&self) -> &[u8] {
        &self.staging.memory()[self.head..self.tail]
    }

    fn consume(&mut self, len: usize) {
        self.head += len;
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }

    pub(super) fn is_between_fpdus(&self) -> bool {
        matches!(self.state, State::Framing) && self.head == self.tail
    }

    /// Returns the staging buffer to the pool, if it is empty.
    pub(super) fn release(&mut self) {
        if self.head == self.tail {
            self.staging = Buffer::default();
            self.head = 0;
            self.tail = 0;
        }
    }

    /// Makes room for `offer` bytes after the staged ones, or for as many as fit the largest
    /// staging buffer.
    fn make_room(&mut self, offer: usize) {
        if self.tail + offer <= self.staging.capacity() {
            return;
        }
        let wanted = (self.tail - self.head + offer).min(STAGING);
        if wanted <= self.staging.capacity() {
            let staged = self.head..self.tail;
            self.staging.memory_mut().copy_within(staged, 0);
        } else {
            let mut larger = self.pool.take(wanted);
            let staged = self.staged();
            larger.memory_mut()[..staged.len()].copy_from_slice(staged);
            self.staging = larger;
        }
        self.tail -= self.head;
        self.head = 0;
    }

    /// Reads once. Returns how many octets were received, and how many were offered room.
    fn read(
        &mut self,
        places: &mut Places,
        io: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match &self.state {
            State::Placing(placing) if placing.got < placing.len => {
                debug_assert_eq!(self.head, self.tail, "what is staged is placed first");
                // Behind the payload: the trailer and the next header, or, at the end of a
                // message, what is likely to be a small one.
                let next = if placing.admitted.last {
                    OFFER_AFTER_LARGE
                } else {
                    LENGTH_LEN + ddp::TAGGED_LEN
                };
                let behind = placing.trailer() + next;
                self.make_room(behind);
                let State::Placing(placing) = &mut self.state else {
                    unreachable!("it was placing just now");
                };
                let rest = placing.start + placing.got..placing.start + placing.len;
                let rest = &mut places.memory_mut(placing.target)[rest];
                let rest_len = rest.len();
                let read = io(&mut [
                    IoSliceMut::new(rest),
                    IoSliceMut::new(&mut self.staging.memory_mut()[..behind]),
                ])?;
                let placed = read.min(rest_len);
                placing.got += placed;
                self.head = 0;
                self.tail = read - placed;
                Ok(read)
            }
            State::Placing(_) | State::Framing => {
                let offer = self.offer.max(self.missing);
                self.make_room(offer);
                let end = (self.tail + offer).min(self.staging.capacity());
                let space = &mut self.staging.memory_mut()[self.tail..end];
                let offered = space.len();
                let read = io(&mut [IoSliceMut::new(space)])?;
                self.tail += read;
                // A read that completes an FPDU tells nothing about the size of the next ones.
                if read == offered && offered == self.offer {
                    self.offer = (self.offer * 4).min(STAGING);
                }
                Ok(read)
            }
        }
    }
}

impl Endpoint {
    /// Receives once from `io`, and processes complete FPDUs, at most [`FPDUS_PER_TURN`]. The rest
    /// is for [`resume`](Self::resume).
    ///
    /// `io` gets the slices to fill, in order, and returns how many octets it filled; 0 means that
    /// the peer has closed its direction of the stream.
    ///
    /// # Errors
    ///
    /// Those of `io`. Nothing is lost if it would block. If the endpoint does not [want
    /// input](Self::wants_input), `io` is not called, and the result is "would block".
    pub fn recv_with(
        &mut self,
        io: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !matches!(self.phase, Phase::Open) {
            return self.discard_with(io);
        }
        if !self.wants_input() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let read = self.rx.read(&mut self.places, io)?;
        if read == 0 {
            // Its owner may have to wait for others, with thousands whose peers have gone at once.
            self.rx.release();
            self.end_of_stream();
            return Ok(0);
        }
        self.counters.reads += 1;
        self.counters.bytes_in += read as u64;
        self.handle_staged();
        Ok(read)
    }

    /// Whether [`recv_with`](Self::recv_with) receives octets: no complete FPDU is left from
    /// before.
    pub fn wants_input(&self) -> bool {
        self.rx.stop == Stop::No || !matches!(self.phase, Phase::Open)
    }

    /// Whether [`resume`](Self::resume) has work.
    pub fn has_staged(&self) -> bool {
        match self.rx.stop {
            _ if self.wants_input() => false,
            Stop::No | Stop::Turn => true,
            // With outstanding Reads the share may be exceeded.
            Stop::NoBlock => !self.places.reads.is_empty(),
        }
    }

    /// Returns the share of the shared receive queue that needs a block before anything else can be
    /// received.
    pub fn awaited_share(&self) -> Option<&ReceiveShare> {
        let waits = self.rx.stop == Stop::NoBlock && !self.wants_input() && !self.has_staged();
        self.places.share.as_ref().filter(|_| waits)
    }

    /// Returns the number of the message that has a block of the shared receive queue and is
    /// incomplete.
    pub fn arriving(&self) -> Option<u32> {
        let has_block = self.places.share.is_some() && !self.places.receives.is_empty();
        has_block.then_some(self.places.send_sequence)
    }

    /// Processes staged FPDUs, at most [`FPDUS_PER_TURN`]. Returns whether there was any progress.
    pub fn resume(&mut self) -> bool {
        !self.wants_input() && self.handle_staged()
    }

    /// Handles complete staged FPDUs.
    fn handle_staged(&mut self) -> bool {
        let waited = std::mem::replace(&mut self.rx.stop, Stop::No) == Stop::NoBlock;
        let mut moved = false;
        let mut left = FPDUS_PER_TURN;
        while matches!(self.phase, Phase::Open) {
            if left == 0 {
                self.rx.stop = Stop::Turn;
                break;
            }
            left -= 1;
            let step = match &self.rx.state {
                State::Framing => self.framing(),
                State::Placing(_) => self.placing(),
            };
            match step {
                Step::Moved => moved = true,
                Step::Short => break,
                Step::NoBlock => {
                    self.counters.held_back += u64::from(moved || !waited);
                    self.rx.stop = Stop::NoBlock;
                    break;
                }
            }
        }
        moved
    }

    /// Receives the octets of a slice. Returns how many are left because a Send waits for a block
    /// of the shared receive queue.
    pub fn recv_slice(&mut self, mut bytes: &[u8]) -> usize {
        loop {
            while self.resume() {}
            let taken = self.recv_with(|places| {
                let before = bytes.len();
                for place in places {
                    let (now, later) = bytes.split_at(place.len().min(bytes.len()));
                    place[..now.len()].copy_from_slice(now);
                    bytes = later;
                }
                match before - bytes.len() {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    taken => Ok(taken),
                }
            });
            if !matches!(taken, Ok(1..)) {
                return bytes.len();
            }
        }
    }

    /// Drops octets received after an error or after this end closed (RFC 5041 §7.1).
    fn discard_with(
        &mut self,
        io: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.rx.head = 0;
        self.rx.tail = 0;
        self.rx.make_room(DISCARD);
        let read = io(&mut [IoSliceMut::new(self.rx.staging.memory_mut())])?;
        if read == 0 {
            self.give_up();
        }
        Ok(read)
    }

    /// Handles the FPDU at the head of the staging buffer, or begins to place it, or finds that it
    /// is incomplete.
    fn framing(&mut self) -> Step {
        let staged = self.rx.staged();
        if staged.len() < LENGTH_LEN {
            self.rx.missing = LENGTH_LEN - staged.len();
            return Step::Short;
        }
        let ulpdu = usize::from(be::u16_at(staged, 0));
        let total = fpdu::wire_len(ulpdu);
        if staged.len() >= total {
            self.rx.missing = 0;
            return self.whole(ulpdu, total);
        }
        let missing = total - staged.len();
        if !self.rx.strict && missing >= DIRECT_FROM && self.begin_placing(ulpdu) {
            self.rx.missing = 0;
            return Step::Moved;
        }
        self.rx.missing = missing;
        Step::Short
    }

    /// Handles a complete staged FPDU.
    fn whole(&mut self, ulpdu: usize, total: usize) -> Step {
        let bytes = &self.rx.staged()[..total];
        if self.rx.crc {
            let (body, given) = bytes.split_at(total - CRC_LEN);
            if crc::emit(crc::crc32c(body)) != given {
                self.violation(Cause::MPA_CRC, None);
                return Step::Moved;
            }
        }
        let segment = &bytes[LENGTH_LEN..LENGTH_LEN + ulpdu];
        let header = Header::read(segment);
        if let Some(Err(why)) = header.map(|header| self.places.take_block(&header))
            && (why == NoBlock::Empty || self.places.reads.is_empty())
        {
            // An FPDU is counted when it is handled.
            return Step::NoBlock;
        }
        self.heard = true;
        self.counters.fpdus_in += 1;
        let Some(header) = header else {
            self.violation(Cause::DDP_CATASTROPHIC, None);
            return Step::Moved;
        };
        let payload = &segment[header.wire_len()..];
        let admitted = match self.places.admit(&header, payload.len(), self.config.ird) {
            Ok(admitted) => admitted,
            Err(cause) => {
                let segment = terminated(ulpdu, header, payload, cause);
                self.violation(cause, Some(segment));
                return Step::Moved;
            }
        };
        if let Some((target, start)) = admitted.place {
            self.places.memory_mut(target)[start..start + payload.len()].copy_from_slice(payload);
            self.counters.copied_in += payload.len() as u64;
        }
        let len = payload.len();
        match admitted.what {
            What::Write => {}
            What::Invalidate(slot) => self.invalidate_ahead(slot),
            What::ReadResponse => self.read_response(len, admitted.last),
            What::Send { invalidate } => self.send_arrived(len, admitted.last, invalidate),
            What::ReadRequest => {
                let request = payload.first_chunk().expect("admitted with its length");
                let request = ReadRequest::parse(request);
                self.serve_read(ulpdu, header, request);
            }
            What::Terminate => {
                let mut bytes = [0; 2 * Terminate::MAX_LEN];
                bytes[..len].copy_from_slice(payload);
                self.terminated(&bytes[..len]);
            }
        }
        self.rx.consume(total);
        Step::Moved
    }

    /// Begins to place a large FPDU whose header is staged and admitted. An FPDU that is not
    /// admitted is staged completely, so that its CRC tells whether the header is corrupt.
    fn begin_placing(&mut self, ulpdu: usize) -> bool {
        let staged = self.rx.staged();
        let segment = &staged[LENGTH_LEN..];
        let Some(header) = Header::read(segment) else {
            return false;
        };
        let header_len = LENGTH_LEN + header.wire_len();
        let Some(len) = (LENGTH_LEN + ulpdu).checked_sub(header_len) else {
            return false;
        };
        if self.places.take_block(&header).is_err() {
            return false;
        }
        let Ok(admitted) = self.places.admit(&header, len, self.config.ird) else {
            return false;
        };
        let Some((target, start)) = admitted.place else {
            return false;
        };
        let mut saved = [0; LENGTH_LEN + ddp::MAX_HEADER_LEN];
        saved[..header_len].copy_from_slice(&staged[..header_len]);
        // More than pad and CRC is missing, as the caller has checked: these octets are payload
        // only.
        let payload = &staged[header_len..];
        let got = payload.len();
        self.places.memory_mut(target)[start..start + got].copy_from_slice(payload);
        self.counters.copied_in += got as u64;
        if let Target::Region(slot, _) = target {
            self.places.table.hold(slot);
        }
        self.rx.consume(header_len + got);
        self.rx.offer = OFFER_AFTER_LARGE;
        self.rx.state = State::Placing(Placing {
            admitted,
            target,
            start,
            len,
            got,
            pad: fpdu::pad_len(ulpdu),
            header: saved,
            header_len,
        });
        true
    }

    /// Completes the placement of an FPDU, if all of it was received.
    fn placing(&mut self) -> Step {
        let State::Placing(placing) = &self.rx.state else {
            unreachable!("called while placing");
        };
        let trailer = placing.trailer();
        if placing.got < placing.len || self.rx.staged().len() < trailer {
            self.rx.missing = trailer;
            return Step::Short;
        }
        self.rx.missing = 0;
        if self.rx.crc {
            let (pad, given) = self.rx.staged()[..trailer].split_at(placing.pad);
            let payload = placing.start..placing.start + placing.len;
            let mut digest = crc::Digest::new();
            digest.update(&placing.header[..placing.header_len]);
            digest.update(&self.places.memory_mut(placing.target)[payload]);
            digest.update(pad);
            if crc::emit(digest.finish()) != given {
                self.violation(Cause::MPA_CRC, None);
                return Step::Moved;
            }
        }
        let State::Placing(placing) = std::mem::replace(&mut self.rx.state, State::Framing) else {
            unreachable!("called while placing");
        };
        self.rx.consume(trailer);
        self.heard = true;
        self.counters.fpdus_in += 1;
        match placing.admitted.what {
            What::Write => {}
            What::ReadResponse => self.read_response(placing.len, placing.admitted.last),
            What::Send { invalidate } => {
                self.send_arrived(placing.len, placing.admitted.last, invalidate);
            }
            What::ReadRequest | What::Terminate | What::Invalidate(_) => {
                unreachable!("only what has a place is placed")
            }
        }
        if let Target::Region(slot, _) = placing.target {
            self.unhold(slot);
        }
        Step::Moved
    }

    /// A region is out of the peer's reach from here on, and returns with the next Send.
    fn invalidate_ahead(&mut self, slot: SlotId) {
        let (handle, memory) = (slot.handle(), self.places.release(slot));
        let invalidated = Invalidated::new(handle, memory);
        self.places.ahead.push(invalidated);
    }

    fn read_response(&mut self, len: usize, last: bool) {
        self.places.reads.placed(len, last);
        if last {
            self.complete_reads();
            self.request_reads();
        }
    }

    fn send_arrived(&mut self, len: usize, last: bool, invalidate: Option<u32>) {
        let len = u32::try_from(len).expect("a segment is at most 64 KiB");
        self.places.send_offset += len;
        if !last {
            return;
        }
        if invalidate.is_none() && self.places.ahead.is_empty() {
            return self.receive(None);
        }
        let mut invalidated = None;
        if let Some(stag) = invalidate {
            let Some(slot) = self.places.region(stag) else {
                // The user invalidated the region while the message was arriving.
                self.violation(Cause::RDMA_CANNOT_INVALIDATE, None);
                return;
            };
            let handle = slot.handle();
            let memory = self.places.release(slot);
            invalidated = Some(Invalidated::new(handle, memory));
        }
        if !self.places.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.places.ahead);
            invalidated = Invalidated::together(invalidated.into_iter().chain(ahead));
        }
        self.receive(invalidated);
    }

    /// Completes the Receive of a whole Send.
    #[inline]
    fn receive(&mut self, invalidated: Option<Invalidated>) {
        let length = std::mem::take(&mut self.places.send_offset) as usize;
        self.places.send_sequence = self.places.send_sequence.wrapping_add(1);
        let mut receive = self
            .places
            .receives
            .pop_front()
            .expect("a Send is admitted into a Receive");
        receive.buffer.set_len(length);
        self.cq.push_back(Completion::Receive {
            wr: receive.wr,
            buffer: receive.buffer,
            invalidated,
        });
    }

    fn serve_read(&mut self, ulpdu: usize, header: Header, request: ReadRequest) {
        self.places.read_sequence = self.places.read_sequence.wrapping_add(1);
        match self.places.admit_read(&request) {
            Ok((source, slot)) => {
                self.places.serving += 1;
                if let Some(slot) = slot {
                    self.places.table.hold(slot);
                }
                self.tx.push(Message::read_response(&request, source, slot));
            }
            Err(cause) => {
                let segment = terminated(ulpdu, header, &request.emit(), cause);
                self.violation(cause, Some(segment));
            }
        }
    }
}

/// Describes the segment that caused a Terminate (RFC 5040 §4.8, figure 10).
fn terminated(ulpdu: usize, header: Header, payload: &[u8], cause: Cause) -> TerminatedSegment {
    let is_read_request = matches!(header, Header::Untagged { queue: 1, .. });
    let is_protection = cause.layer == 0 && cause.etype == 1;
    TerminatedSegment {
        length: u16::try_from(ulpdu).expect("a length field has 16 bits"),
        header,
        read_request: payload
            .first_chunk()
            .filter(|_| is_read_request && is_protection)
            .map(ReadRequest::parse),
    }
}
