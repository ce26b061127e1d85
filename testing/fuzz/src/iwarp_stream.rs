//! One end of an iWARP connection against an arbitrary stream, cut anywhere.

use crate::ledger::Ledger;
use crate::memory::within_and_back;
use crate::script::Script;
use buffer::{Buffer, Gather, Pool};
use bytes::Bytes;
use iwarp_proto::ddp::{Control, Header};
use iwarp_proto::mpa::RtrMessage;
use iwarp_proto::rdmap::{self, Opcode, ReadRequest};
use iwarp_proto::{Endpoint, EndpointConfig, FPDUS_PER_TURN, MAX_INVALIDATIONS, Role, crc, fpdu};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use verbs::{
    Access, CloseReason, Completion, Handle, Invalidated, Loss, Memory, RegisterError,
    RemoteAddress, Segment, WorkRequest, WrId,
};

/// The buffers of the end itself, what is registered and posted here, and what is on its way.
const MEMORY: usize = 8 << 20;

/// Things that happen.
const STEPS: usize = 400;

/// Regions that are registered at a time, and bytes of each.
const REGIONS: usize = 6;
const REGION_LEN: usize = 24 << 10;

/// Receives that are posted at a time, and bytes of each at most.
const RECEIVES: usize = 6;
const RECEIVE_LEN: usize = 12 << 10;

/// Payload from which on an end places bytes directly is below this.
const LARGE: usize = 20 << 10;

/// Bytes on their way before they have to be taken in.
const ON_THE_WAY: usize = 128 << 10;

/// An end and a script of what its user and its peer do.
pub fn iwarp_stream(bytes: &[u8]) {
    within_and_back(MEMORY, || {
        let mut script = Script::new(bytes);
        let mut stage = Stage::new(&mut script);
        for _ in 0..STEPS {
            if script.is_over() {
                break;
            }
            stage.step(&mut script);
        }
        stage.finish();
    });
}

struct Stage {
    end: Endpoint,
    ledger: Ledger,
    regions: BTreeMap<Handle, Region>,
    /// Handles that were registered once.
    dead: Vec<Handle>,
    /// Bytes of the peer that have not been taken in.
    wire: VecDeque<u8>,
    /// Whether bytes came that are not as they were framed.
    is_spoilt: bool,
    heard: Heard,
    /// The next message of the peer, by queue, and where in it the next segment begins.
    sequences: [u32; 3],
    offset: u32,
    fed: usize,
}

struct Region {
    is_sink: bool,
    len: usize,
    /// Ranges of memory that the peer has tried to write.
    touched: Vec<Range<u64>>,
}

/// Messages of the end.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    crc: bool,
    markers: bool,
    max_ulpdu: usize,
    sequences: [u32; 3],
    offset: u32,
    requests: VecDeque<ReadRequest>,
    is_terminated: bool,
    total: usize,
}

impl Stage {
    fn new(script: &mut Script<'_>) -> Self {
        let config = EndpointConfig {
            role: script.pick(&[Role::Initiator, Role::Responder]),
            crc: !script.one_in(4),
            strict: script.one_in(4),
            markers: script.one_in(8),
            ird: 1 + u16::from(script.byte() % 4),
            ord: u16::from(script.byte() % 4),
            receives: RECEIVES,
            shared_receives: None,
            pool: Pool::new(0),
            max_ulpdu: script.pick(&[128, 1442, fpdu::LARGE_MULPDU, usize::MAX]),
            rtr: script.pick(&[None, None, Some(RtrMessage::Write), Some(RtrMessage::Read)]),
            invalidations: MAX_INVALIDATIONS,
            seed: [script.byte(); 32],
        };
        let config = EndpointConfig {
            rtr: config
                .rtr
                .filter(|_| config.role == Role::Initiator && config.ord > 0),
            ..config
        };
        Self {
            ledger: Ledger::default(),
            regions: BTreeMap::new(),
            dead: Vec::new(),
            wire: VecDeque::new(),
            is_spoilt: false,
            heard: Heard {
                crc: config.crc,
                markers: config.markers,
                max_ulpdu: config.max_ulpdu.clamp(fpdu::MIN_MULPDU, fpdu::MAX_MULPDU),
                sequences: [1; 3],
                ..Heard::default()
            },
            sequences: [1; 3],
            offset: 0,
            fed: 0,
            end: Endpoint::new(config),
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 32 {
            0..3 => self.post_receive(script),
            3..5 => self.register(script),
            5..8 => self.post(script),
            8..18 => self.segment(script),
            18 => {
                let bytes = script.some(64);
                self.is_spoilt = true;
                self.wire.extend(bytes);
            }
            19 => self.spoil(script),
            20..26 => self.take_in(1 + script.below(4096)),
            26..29 => self.hand_out(1 + script.below(70_000)),
            29 => self.end.nudge(),
            30 => self.end.trim(),
            _ => self.end_it(script),
        }
        if self.wire.len() > ON_THE_WAY {
            self.take_in(usize::MAX);
        }
        self.completions();
    }

    fn post_receive(&mut self, script: &mut Script<'_>) {
        let capacity = script.pick(&[0, 64, 4096, RECEIVE_LEN]);
        let wr = self.ledger.name();
        let buffer = Buffer::with_capacity(capacity);
        let work = WorkRequest::Receive { wr, buffer };
        self.ledger.post(work, &mut self.end);
    }

    fn register(&mut self, script: &mut Script<'_>) {
        let kind = script.byte();
        let (is_sink, stays) = (kind & 1 != 0, kind >= 0xc0);
        let len = script.pick(&[0, 1, 64, 4096, REGION_LEN]);
        if self.regions.len() >= REGIONS {
            return;
        }
        let memory = if stays {
            let (access, fill) = match is_sink {
                true => (Access::Write, 0),
                false => (Access::Read, 0x5a),
            };
            let mut buffer = Buffer::with_capacity(len);
            buffer.memory_mut().fill(fill);
            Memory::Persistent(access, buffer)
        } else if is_sink {
            Memory::Sink(Buffer::with_capacity(len))
        } else {
            let half = len / 2;
            let pieces = [vec![0x5a; half], vec![0x5b; len - half]];
            Memory::Source(pieces.into_iter().map(Bytes::from).collect())
        };
        let is_open = self.end.closed().is_none() && !self.end.is_ending();
        match self.end.register(memory) {
            Ok(handle) => {
                assert!(is_open && handle.0 != 0 && len > 0);
                assert!(!self.dead.contains(&handle), "an STag does not come again");
                let region = Region {
                    is_sink,
                    len,
                    touched: Vec::new(),
                };
                assert!(self.regions.insert(handle, region).is_none());
            }
            Err(RegisterError::Closed(memory)) => {
                assert!(!is_open);
                assert_eq!(memory.len(), len);
            }
            Err(RegisterError::Size(memory)) => assert!(memory.is_empty()),
            Err(RegisterError::Full(_)) => panic!("there are few regions"),
        }
    }

    /// A handle that works, or worked, or never did.
    fn handle(&self, script: &mut Script<'_>) -> Handle {
        let index = usize::from(script.byte());
        match index {
            0..192 if !self.regions.is_empty() => {
                let handles = self.regions.keys();
                *handles.cycle().nth(index).expect("there are some")
            }
            192..224 if !self.dead.is_empty() => self.dead[index % self.dead.len()],
            _ => Handle(script.number()),
        }
    }

    /// Work of the user other than Receives.
    fn post(&mut self, script: &mut Script<'_>) {
        let wr = self.ledger.name();
        let len = self.payload_len(script);
        let source = Gather::from_elem(Bytes::from(vec![0xa5; len]), 1);
        let work = match script.below(5) {
            0 => WorkRequest::Send {
                wr,
                buffer: Buffer::from(vec![1; len]),
                rest: Gather::new(),
                invalidate: None,
            },
            1 => WorkRequest::Send {
                wr,
                buffer: Buffer::from(vec![2; 28]),
                rest: source,
                invalidate: Some(Handle(script.number()).into()),
            },
            2 => WorkRequest::Write {
                wr,
                source,
                to: RemoteAddress {
                    handle: Handle(script.number()),
                    offset: script.long(),
                },
            },
            3 => {
                let from = (0..script.below(4)).map(|number| Segment {
                    handle: Handle(7),
                    length: u32::try_from(number * len / 4).expect("payload is short"),
                    offset: 0,
                });
                WorkRequest::Read {
                    wr,
                    from: from.collect(),
                    sink: Buffer::with_capacity(len),
                }
            }
            _ => {
                let handle = self.handle(script);
                self.ledger.invalidates(wr, handle);
                WorkRequest::Invalidate { wr, handle }
            }
        };
        self.ledger.post(work, &mut self.end);
    }

    fn payload_len(&self, script: &mut Script<'_>) -> usize {
        match script.byte() {
            0..128 => script.below(64),
            128..192 => script.below(2048),
            192.. => script.below(LARGE),
        }
    }

    /// The peer says something: right, or wrong in one place or another.
    fn segment(&mut self, script: &mut Script<'_>) {
        let opcode = script.pick(&[
            Opcode::Send,
            Opcode::Send,
            Opcode::SendInvalidate,
            Opcode::SendSolicited,
            Opcode::Write,
            Opcode::Write,
            Opcode::ReadRequest,
            Opcode::ReadResponse,
            Opcode::ReadResponse,
            Opcode::SendSolicitedInvalidate,
            Opcode::Terminate,
        ]);
        let last = !script.one_in(4);
        let len = self.payload_len(script);
        let fill = script.byte();
        match opcode {
            Opcode::Write => {
                let stag = self.handle(script).0;
                let offset = script.long();
                // Not drawn itself, so that the scripts of the corpus mean what they meant.
                if len == 0 && fill < 0x80 {
                    return self.tagged(script, Opcode::Invalidate, true, stag, 0, &[]);
                }
                self.tagged(script, opcode, last, stag, offset, &vec![fill; len]);
            }
            Opcode::ReadResponse => self.response(script, last, len, fill),
            Opcode::ReadRequest => {
                let request = ReadRequest {
                    sink_stag: script.word(),
                    sink_offset: script.long(),
                    length: script.number(),
                    source_stag: self.handle(script).0,
                    source_offset: script.long(),
                };
                self.untagged(script, opcode, true, 1, 0, &request.emit());
            }
            Opcode::Terminate => {
                let bytes = script.some(80).to_vec();
                self.untagged(script, opcode, true, 2, 0, &bytes);
            }
            Opcode::Send
            | Opcode::SendInvalidate
            | Opcode::SendSolicited
            | Opcode::SendSolicitedInvalidate
            | Opcode::Invalidate => {
                let stag = if opcode.invalidates() {
                    self.handle(script).0
                } else {
                    0
                };
                self.untagged(script, opcode, last, 0, stag, &vec![fill; len]);
            }
        }
    }

    /// Emits the response that was asked for, or one like it.
    fn response(&mut self, script: &mut Script<'_>, last: bool, len: usize, fill: u8) {
        let Some(request) = self.heard.requests.front_mut() else {
            let (stag, offset) = (script.number(), script.long());
            return self.tagged(script, Opcode::ReadResponse, last, stag, offset, &[fill; 8]);
        };
        let left = request.length as usize;
        let len = if last { left } else { len.min(left) };
        let (stag, offset) = (request.sink_stag, request.sink_offset);
        request.length -= u32::try_from(len).expect("it is not more than is left");
        request.sink_offset += len as u64;
        if last {
            self.heard.requests.pop_front();
        }
        let len = len.min(fpdu::MAX_ULPDU - 14);
        self.tagged(
            script,
            Opcode::ReadResponse,
            last,
            stag,
            offset,
            &vec![fill; len],
        );
    }

    fn tagged(
        &mut self,
        script: &mut Script<'_>,
        opcode: Opcode,
        last: bool,
        stag: u32,
        offset: u64,
        payload: &[u8],
    ) {
        let mut header = Header::Tagged {
            control: Control::new(true, last),
            rsvd_ulp: rdmap::Control::new(opcode).0,
            stag,
            offset,
        };
        if script.one_in(16)
            && let Header::Tagged {
                control, rsvd_ulp, ..
            } = &mut header
        {
            control.0 ^= script.byte() & 0x7f;
            *rsvd_ulp ^= script.byte();
        }
        if let Some(region) = self.regions.get_mut(&Handle(stag)) {
            let end = offset.saturating_add(payload.len() as u64);
            region.touched.push(offset..end);
        }
        self.frame(header, payload);
    }

    fn untagged(
        &mut self,
        script: &mut Script<'_>,
        opcode: Opcode,
        last: bool,
        queue: u32,
        word: u32,
        payload: &[u8],
    ) {
        let index = queue as usize;
        let mut header = Header::Untagged {
            control: Control::new(false, last),
            rsvd_ulp: rdmap::Control::new(opcode).0,
            rsvd_ulp_word: word,
            queue,
            sequence: self.sequences[index],
            offset: if queue == 0 { self.offset } else { 0 },
        };
        if script.one_in(16)
            && let Header::Untagged {
                control,
                rsvd_ulp,
                queue,
                sequence,
                offset,
                ..
            } = &mut header
        {
            match script.below(5) {
                0 => control.0 ^= script.byte() & 0x7f,
                1 => *rsvd_ulp ^= script.byte(),
                2 => *queue = script.number(),
                3 => *sequence = script.number(),
                _ => *offset = script.number(),
            }
        }
        if queue == 0 && !last {
            self.offset += u32::try_from(payload.len()).expect("payload is short");
        } else {
            self.sequences[index] = self.sequences[index].wrapping_add(1);
            self.offset = if queue == 0 { 0 } else { self.offset };
        }
        self.frame(header, payload);
    }

    fn frame(&mut self, header: Header, payload: &[u8]) {
        let mut ulpdu = Vec::new();
        header.emit(&mut ulpdu);
        ulpdu.extend_from_slice(payload);
        let length = u16::try_from(ulpdu.len()).expect("payload is short");
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend(ulpdu);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let crc = crc::emit(crc::crc32c(&bytes));
        self.wire.extend(bytes);
        self.wire.extend(crc);
    }

    /// A byte on its way changes.
    fn spoil(&mut self, script: &mut Script<'_>) {
        let at = script.below(self.wire.len());
        let change = script.byte();
        if let Some(byte) = self.wire.get_mut(at) {
            *byte ^= change;
            self.is_spoilt |= change != 0;
        }
    }

    fn take_in(&mut self, most: usize) {
        let mut left = most.min(self.wire.len());
        while left > 0 {
            let before = self.end.counters().fpdus_in;
            let wire = &mut self.wire;
            let taken = self.end.recv_with(|places| Ok(fill(places, wire, left)));
            let taken = taken.expect("there is no error in memory");
            assert!(taken > 0 && taken <= left, "there is always a place");
            let handled = self.end.counters().fpdus_in - before;
            assert!(handled <= FPDUS_PER_TURN as u64, "{handled} in one turn");
            left -= taken;
            self.fed += taken;
            while self.end.resume() {}
        }
    }

    fn hand_out(&mut self, most: usize) {
        if !self.end.has_output() {
            return;
        }
        let said = &mut self.heard.bytes;
        let done = self.end.send_with(|slices| {
            if most == 1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(drain(slices, said, most))
        });
        assert!(matches!(done, Ok(1..)) || most == 1, "{done:?}");
        if self.end.config().role == Role::Responder {
            // RFC 5044 §7.1.2 rule 4.
            assert!(self.fed > 0, "a responder listens before it talks");
        }
        self.heard.read();
    }

    fn end_it(&mut self, script: &mut Script<'_>) {
        match script.below(8) {
            0 => self.end.close(),
            1 => self.end.give_up(),
            2 => self.end.lost(CloseReason::TimedOut("a test")),
            3 => {
                // The end of the stream.
                let read = self.end.recv_with(|_| Ok(0));
                assert!(matches!(read, Ok(0)));
            }
            _ => {}
        }
    }

    fn completions(&mut self) {
        while let Some(completion) = self.end.poll_cq() {
            if matches!(completion, Completion::Failed { .. }) {
                assert!(
                    self.end.is_ending() || self.end.closed().is_some(),
                    "{completion:?} of a connection that goes on"
                );
            }
            if let Completion::Receive {
                invalidated: Some(first),
                ..
            } = &completion
            {
                assert!(first.also.len() < MAX_INVALIDATIONS);
                for Invalidated { memory, .. } in std::iter::once(first).chain(&first.also) {
                    assert!(!matches!(memory, Memory::Persistent(..)), "it is to stay");
                }
            }
            if let Some(mut back) = self.ledger.complete(completion) {
                let also = std::mem::take(&mut back.also);
                self.back(back);
                also.into_iter().for_each(|back| self.back(back));
            }
        }
    }

    /// Memory that the peer cannot reach any more.
    fn back(&mut self, Invalidated { handle, memory, .. }: Invalidated) {
        let region = self.regions.remove(&handle).expect("it was registered");
        self.dead.push(handle);
        assert_eq!(memory.len(), region.len);
        match memory {
            Memory::Source(pieces) => {
                assert!(!region.is_sink);
                assert!(pieces.iter().flatten().all(|byte| byte | 1 == 0x5b));
            }
            Memory::Persistent(Access::Read, buffer) => {
                assert!(!region.is_sink);
                assert!(buffer.memory().iter().all(|byte| *byte == 0x5a));
            }
            Memory::Sink(mut buffer) | Memory::Persistent(Access::Write, mut buffer) => {
                assert!(region.is_sink && buffer.is_empty());
                if self.is_spoilt {
                    return;
                }
                // What nobody named is as it was.
                for touched in &region.touched {
                    let end = touched.end.min(region.len as u64);
                    let range = touched.start.min(end)..end;
                    let index = |at: u64| usize::try_from(at).expect("within the region");
                    buffer.memory_mut()[index(range.start)..index(range.end)].fill(0);
                }
                assert!(buffer.memory_mut().iter().all(|byte| *byte == 0));
            }
            Memory::Parts(_) => unreachable!("none is registered"),
        }
    }

    /// Whatever happened, it comes to an end, and everything that was posted has one.
    fn finish(mut self) {
        self.take_in(usize::MAX);
        self.completions();
        while self.end.has_output() {
            self.hand_out(usize::MAX);
            self.completions();
        }
        self.end.lost(CloseReason::Lost(Loss::Reset.into()));
        self.completions();
        assert!(self.end.closed().is_some());
        assert!(!self.end.has_output());
        self.ledger.assert_settled();
        self.ledger.post(
            WorkRequest::Invalidate {
                wr: WrId(u64::MAX),
                handle: Handle(1),
            },
            &mut self.end,
        );
        self.completions();
        self.ledger.assert_settled();
    }
}

impl Heard {
    /// Takes apart what was said since: it must be in order.
    fn read(&mut self) {
        self.total += self.bytes.len();
        if self.markers {
            return self.bytes.clear();
        }
        let said = std::mem::take(&mut self.bytes);
        let mut stream = &said[..];
        while let Some(length) = stream.first_chunk() {
            let ulpdu = usize::from(u16::from_be_bytes(*length));
            let Some((bytes, rest)) = stream.split_at_checked(fpdu::wire_len(ulpdu)) else {
                break;
            };
            self.fpdu(ulpdu, bytes);
            stream = rest;
        }
        self.bytes = stream.to_vec();
    }

    fn fpdu(&mut self, ulpdu: usize, bytes: &[u8]) {
        assert!(!self.is_terminated, "a Terminate is the last word");
        assert!(ulpdu <= self.max_ulpdu, "a ULPDU of {ulpdu}");
        let (body, given) = bytes.split_at(bytes.len() - fpdu::CRC_LEN);
        if self.crc {
            assert_eq!(crc::emit(crc::crc32c(body)), given);
        }
        let segment = &body[fpdu::LENGTH_LEN..fpdu::LENGTH_LEN + ulpdu];
        let header = Header::read(segment).expect("a whole header");
        let payload = &segment[header.wire_len()..];
        let Header::Untagged {
            control,
            queue,
            sequence,
            offset,
            ..
        } = header
        else {
            return;
        };
        let next = &mut self.sequences[queue as usize];
        assert_eq!(sequence, *next, "sequence of queue {queue}");
        assert_eq!(offset, if queue == 0 { self.offset } else { 0 });
        if control.last() {
            *next += 1;
            self.offset = if queue == 0 { 0 } else { self.offset };
        } else {
            self.offset += u32::try_from(payload.len()).expect("payload is short");
        }
        match queue {
            1 => {
                let request = payload.first_chunk().expect("a whole request");
                self.requests.push_back(ReadRequest::parse(request));
            }
            2 => self.is_terminated = true,
            _ => {}
        }
    }
}

/// Moves bytes to their places, not more than `most`.
fn fill(places: &mut [IoSliceMut<'_>], from: &mut VecDeque<u8>, most: usize) -> usize {
    let mut moved = 0;
    for place in places {
        let len = place.len().min(most - moved).min(from.len());
        for (byte, came) in place.iter_mut().zip(from.drain(..len)) {
            *byte = came;
        }
        moved += len;
    }
    moved
}

/// Moves bytes out of these slices, not more than `most`.
fn drain(slices: &[IoSlice<'_>], to: &mut Vec<u8>, most: usize) -> usize {
    let before = to.len();
    for slice in slices {
        let left = most - (to.len() - before);
        to.extend_from_slice(&slice[..slice.len().min(left)]);
    }
    to.len() - before
}
