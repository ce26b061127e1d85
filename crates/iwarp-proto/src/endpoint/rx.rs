//! The way in: FPDUs are found in the stream, verified, and placed.
//!
//! Small FPDUs come through the staging buffer: they are verified whole, then placed by a copy.
//! For a large one only the header does; as soon as it is admitted, the rest of its payload is
//! read straight into the memory it is for, and its CRC is checked over that memory. This departs
//! from RFC 5044 §6, which wants the CRC first: a header that was corrupted on the way can only
//! name memory that this very connection exposes, and with a bad CRC nothing is reported done, so
//! nobody is told to look at what was placed. `strict` keeps to the letter.

use super::admit::{Admitted, What};
use super::message::Message;
use super::places::{Places, Target};
use super::{Endpoint, Phase};
use crate::be;
use crate::crc;
use crate::ddp::{self, Header};
use crate::fpdu::{self, CRC_LEN, LENGTH_LEN};
use crate::rdmap::ReadRequest;
use crate::terminate::{Cause, Terminate, TerminatedSegment};
use std::io::{self, IoSliceMut};
use verbs::{Completion, Invalidated};

/// Octets of the staging buffer. Only what is used of it is ever touched.
const STAGING: usize = 256 << 10;

/// Payload still to come from which on it is worth reading it to its place.
const DIRECT_FROM: usize = 8 << 10;

/// Octets to ask for at first, and after a large FPDU: more large ones are likely to follow, and
/// what is read here has to be copied.
const OFFER_FIRST: usize = 4 << 10;
const OFFER_AFTER_LARGE: usize = 512;

/// The stream as far as it is read.
pub(super) struct Rx {
    crc: bool,
    strict: bool,
    staging: Vec<u8>,
    /// What is in the staging buffer and not parsed yet.
    head: usize,
    tail: usize,
    /// Octets to ask for when the next header is awaited: more while small FPDUs fill them.
    offer: usize,
    /// Octets that are missing of the FPDU at the head of the staging buffer.
    missing: usize,
    state: State,
}

enum State {
    /// At the beginning of an FPDU, or somewhere in one that comes through the staging buffer.
    Framing,
    /// Reading payload to its place, then pad and CRC.
    Placing(Placing),
}

struct Placing {
    admitted: Admitted,
    target: Target,
    /// Where in the target the payload begins, its length, and how much of it is there.
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
    pub(super) fn new(crc: bool, strict: bool) -> Self {
        Self {
            crc,
            strict: strict && crc,
            staging: Vec::new(),
            head: 0,
            tail: 0,
            offer: OFFER_FIRST,
            missing: 0,
            state: State::Framing,
        }
    }

    fn staged(&self) -> &[u8] {
        &self.staging[self.head..self.tail]
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

    pub(super) fn trim(&mut self) {
        if self.head == self.tail {
            self.staging = Vec::new();
        }
    }

    /// Reads once. Says how many octets came, and how many could have.
    fn read(
        &mut self,
        places: &mut Places,
        io: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.staging.is_empty() {
            self.staging = vec![0; STAGING];
        }
        match &mut self.state {
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
                let rest = placing.start + placing.got..placing.start + placing.len;
                let rest = &mut places.memory_mut(placing.target)[rest];
                let rest_len = rest.len();
                let read = io(&mut [
                    IoSliceMut::new(rest),
                    IoSliceMut::new(&mut self.staging[..behind]),
                ])?;
                let placed = read.min(rest_len);
                placing.got += placed;
                self.head = 0;
                self.tail = read - placed;
                Ok(read)
            }
            State::Placing(_) | State::Framing => {
                let offer = self.offer.max(self.missing);
                if self.tail + offer > STAGING {
                    self.staging.copy_within(self.head..self.tail, 0);
                    self.tail -= self.head;
                    self.head = 0;
                }
                let end = (self.tail + offer).min(STAGING);
                let space = &mut self.staging[self.tail..end];
                let offered = space.len();
                let read = io(&mut [IoSliceMut::new(space)])?;
                self.tail += read;
                // A read that was only to complete an FPDU says nothing about what follows.
                if read == offered && offered == self.offer {
                    self.offer = (self.offer * 4).min(STAGING);
                }
                Ok(read)
            }
        }
    }
}

impl Endpoint {
    /// Takes octets in once, from `io`, and handles everything that is whole then.
    ///
    /// `io` is given the places to fill, in order, and says how many octets it filled; 0 means
    /// that the peer has closed its half of the stream.
    ///
    /// # Errors
    ///
    /// Those of `io`. Nothing is lost if it would have blocked.
    pub fn recv_with(
        &mut self,
        io: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !matches!(self.phase, Phase::Open) {
            return self.discard_with(io);
        }
        let read = self.rx.read(&mut self.places, io)?;
        if read == 0 {
            self.end_of_stream();
            return Ok(0);
        }
        self.counters.reads += 1;
        self.counters.octets_in += read as u64;
        while matches!(self.phase, Phase::Open) {
            let moved = match &self.rx.state {
                State::Framing => self.framing(),
                State::Placing(_) => self.placing(),
            };
            if !moved {
                break;
            }
        }
        Ok(read)
    }

    /// Takes in octets that are at hand, all of them.
    pub fn recv_slice(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let taken = self.recv_with(|places| {
                let before = octets.len();
                for place in places {
                    let (now, later) = octets.split_at(place.len().min(octets.len()));
                    place[..now.len()].copy_from_slice(now);
                    octets = later;
                }
                Ok(before - octets.len())
            });
            if !matches!(taken, Ok(1..)) {
                return;
            }
        }
    }

    /// RFC 5041 §7.1: what comes after an error, or after we closed, is dropped.
    fn discard_with(
        &mut self,
        io: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.rx.staging.is_empty() {
            self.rx.staging = vec![0; STAGING];
        }
        let read = io(&mut [IoSliceMut::new(&mut self.rx.staging)])?;
        if read == 0 {
            self.give_up();
        }
        Ok(read)
    }

    /// Handles the FPDU at the head of the staging buffer, or begins to place it, or finds that
    /// more must come.
    fn framing(&mut self) -> bool {
        let staged = self.rx.staged();
        if staged.len() < LENGTH_LEN {
            self.rx.missing = LENGTH_LEN - staged.len();
            return false;
        }
        let ulpdu = usize::from(be::u16_at(staged, 0));
        let total = fpdu::wire_len(ulpdu);
        if staged.len() >= total {
            self.rx.missing = 0;
            self.whole(ulpdu, total);
            return true;
        }
        let missing = total - staged.len();
        if !self.rx.strict && missing >= DIRECT_FROM && self.begin_placing(ulpdu) {
            self.rx.missing = 0;
            return true;
        }
        self.rx.missing = missing;
        false
    }

    /// An FPDU that is staged whole.
    fn whole(&mut self, ulpdu: usize, total: usize) {
        let octets = &self.rx.staged()[..total];
        if self.rx.crc {
            let (body, given) = octets.split_at(total - CRC_LEN);
            if crc::emit(crc::crc32c(body)) != given {
                self.violation(Cause::MPA_CRC, None);
                return;
            }
        }
        self.heard = true;
        self.counters.fpdus_in += 1;
        let segment = &octets[LENGTH_LEN..LENGTH_LEN + ulpdu];
        let Some(header) = Header::read(segment) else {
            self.violation(Cause::DDP_CATASTROPHIC, None);
            return;
        };
        let payload = &segment[header.wire_len()..];
        let admitted = match self.places.admit(&header, payload.len(), self.config.ird) {
            Ok(admitted) => admitted,
            Err(cause) => {
                let segment = terminated(ulpdu, header, payload, cause);
                self.violation(cause, Some(segment));
                return;
            }
        };
        if let Some((target, start)) = admitted.place {
            self.places.memory_mut(target)[start..start + payload.len()].copy_from_slice(payload);
            self.counters.copied_in += payload.len() as u64;
        }
        let len = payload.len();
        match admitted.what {
            What::Write => {}
            What::ReadResponse => self.read_response(len, admitted.last),
            What::Send { invalidate } => self.send_arrived(len, admitted.last, invalidate),
            What::ReadRequest => {
                let request = payload.first_chunk().expect("admitted with its length");
                let request = ReadRequest::parse(request);
                self.serve_read(ulpdu, header, request);
            }
            What::Terminate => {
                let mut octets = [0; 2 * Terminate::MAX_LEN];
                octets[..len].copy_from_slice(payload);
                self.terminated(&octets[..len]);
            }
        }
        self.rx.consume(total);
    }

    /// Begins to place a large FPDU whose header is staged and admitted. One that is not admitted
    /// is staged whole, so that a corrupt header is found to be that.
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
        let Ok(admitted) = self.places.admit(&header, len, self.config.ird) else {
            return false;
        };
        let Some((target, start)) = admitted.place else {
            return false;
        };
        let mut saved = [0; LENGTH_LEN + ddp::MAX_HEADER_LEN];
        saved[..header_len].copy_from_slice(&staged[..header_len]);
        // The caller has seen that more than pad and CRC is missing: this is payload only.
        let payload = &staged[header_len..];
        let got = payload.len();
        self.places.memory_mut(target)[start..start + got].copy_from_slice(payload);
        self.counters.copied_in += got as u64;
        if let Target::Region(slot) = target {
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

    /// Ends the placing of an FPDU, if all of it is there.
    fn placing(&mut self) -> bool {
        let State::Placing(placing) = &self.rx.state else {
            unreachable!("called while placing");
        };
        let trailer = placing.trailer();
        if placing.got < placing.len || self.rx.staged().len() < trailer {
            self.rx.missing = trailer;
            return false;
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
                return true;
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
            What::ReadRequest | What::Terminate => {
                unreachable!("only what has a place is placed")
            }
        }
        if let Target::Region(slot) = placing.target {
            self.unhold(slot);
        }
        true
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
        let mut invalidated = None;
        if let Some(stag) = invalidate {
            let Some(slot) = self.places.region(stag) else {
                // Our user took it back while the message was arriving.
                self.violation(Cause::RDMA_CANNOT_INVALIDATE, None);
                return;
            };
            let handle = slot.handle();
            let memory = self.places.release(slot);
            invalidated = Some(Invalidated { handle, memory });
        }
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

/// What a Terminate says about the segment that caused it (RFC 5040 §4.8, figure 10).
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
