//! Two ends of an iWARP connection that keep to the rules, over a stream that is cut anywhere, and
//! in the end perhaps damaged.

use crate::ledger::Ledger;
use crate::memory::within_and_back;
use crate::script::Script;
use buffer::{Buffer, Gather, Pool};
use bytes::Bytes;
use iwarp_proto::{Endpoint, EndpointConfig, MAX_INVALIDATIONS, Role, fpdu};
use std::collections::{BTreeMap, VecDeque};
use verbs::{
    CloseReason, Completion, Handle, Loss, Memory, RemoteAddress, Segment, SharedReceiveQueue,
    WorkRequest, WrId,
};

/// The buffers of both ends, and what is registered, posted and on its way.
const MEMORY: usize = 24 << 20;

/// Things that happen.
const STEPS: usize = 300;

/// Regions and Receives of one end at a time, and bytes of each.
const REGIONS: usize = 6;
const REGION_LEN: usize = 40 << 10;
const RECEIVES: usize = 6;
const RECEIVE_LEN: usize = 5000;

/// Blocks of the shared receive queue of an end, where it has one: fewer than its share.
const BLOCKS: usize = 2;

/// Two ends and a script of what their users do.
pub fn iwarp_pair(bytes: &[u8]) {
    within_and_back(MEMORY, || {
        let mut script = Script::new(bytes);
        let mut pair = Pair::new(&mut script);
        for _ in 0..STEPS {
            if script.is_over() {
                break;
            }
            pair.step(&mut script);
        }
        match pair.damage {
            None => pair.finish(),
            Some(at) => pair.damage(at),
        }
    });
}

struct Pair {
    ends: [End; 2],
    /// Which byte of what is on its way changes in the end, if one does.
    damage: Option<usize>,
    next_pattern: u64,
}

struct End {
    endpoint: Endpoint,
    ledger: Ledger,
    regions: BTreeMap<Handle, Region>,
    /// Bytes on their way to the other end.
    wire: VecDeque<u8>,
    /// Messages on their way to this end, with the handle that each takes along.
    expected: VecDeque<(Vec<u8>, Option<Handle>)>,
    /// Memory for its messages, if it posts no Receives, and those that are not done with.
    queue: Option<SharedReceiveQueue>,
    held: VecDeque<Buffer>,
    /// Data that Reads of this end are to bring.
    reads: BTreeMap<u64, (Vec<u8>, Handle)>,
}

/// Memory of one end as the other should see it.
struct Region {
    bytes: Vec<u8>,
    is_sink: bool,
    /// Number of bytes written so far.
    filled: usize,
    /// Reads of it that have not completed.
    reading: usize,
    /// The other end is about to take it away.
    is_given_up: bool,
}

impl Pair {
    fn new(script: &mut Script<'_>) -> Self {
        let crc = !script.one_in(4);
        let strict = script.one_in(3);
        // A damaged stream is only recognised by its CRC.
        let damage = (crc && script.flag()).then(|| usize::from(script.byte()) << 3);
        let mut end = |role| {
            let shared = script.one_in(3);
            let queue = shared.then(|| SharedReceiveQueue::new(BLOCKS, RECEIVE_LEN));
            let config = EndpointConfig {
                role,
                crc,
                strict,
                // They go out where they are asked for; neither end here can take them in.
                markers: false,
                ird: 3,
                ord: 3,
                receives: RECEIVES,
                shared_receives: queue.clone(),
                pool: Pool::new(0),
                max_ulpdu: script.pick(&[128, 1442, fpdu::LARGE_MULPDU, usize::MAX]),
                rtr: None,
                invalidations: MAX_INVALIDATIONS,
                seed: [script.byte(); 32],
            };
            End {
                endpoint: Endpoint::new(config),
                ledger: Ledger::default(),
                regions: BTreeMap::new(),
                wire: VecDeque::new(),
                expected: VecDeque::new(),
                queue,
                held: VecDeque::new(),
                reads: BTreeMap::new(),
            }
        };
        Self {
            ends: [end(Role::Initiator), end(Role::Responder)],
            damage,
            next_pattern: 1,
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let who = script.below(2);
        match script.byte() % 16 {
            0..2 => self.ends[who].post_receive(),
            2 => self.register(script, who),
            3..5 => self.send(script, who),
            5..7 => self.write(script, who),
            7..9 => self.read(script, who),
            9..12 => self.ends[who].hand_out(1 + script.below(70_000)),
            12..15 => self.take_in(who, 1 + script.below(70_000)),
            _ => {
                self.ends[who].endpoint.release();
                self.ends[1 - who].endpoint.trim();
            }
        }
        self.completions(false);
    }

    /// Bytes that are nowhere else.
    fn pattern(&mut self, len: usize) -> Vec<u8> {
        self.next_pattern += 1;
        let mut state = self.next_pattern.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let words = (0..len.div_ceil(8)).flat_map(|_| {
            state = state.rotate_left(23).wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
            state.to_be_bytes()
        });
        words.take(len).collect()
    }

    fn register(&mut self, script: &mut Script<'_>, who: usize) {
        let (is_sink, len) = (script.flag(), 1 + script.below(REGION_LEN));
        let bytes = if is_sink {
            vec![0; len]
        } else {
            self.pattern(len)
        };
        let end = &mut self.ends[who];
        if end.regions.len() >= REGIONS {
            return;
        }
        let memory = if is_sink {
            Memory::Sink(Buffer::with_capacity(len))
        } else {
            let (first, second) = bytes.split_at(len / 3);
            let pieces = [first, second].map(Bytes::copy_from_slice);
            Memory::Source(Gather::from_iter(pieces))
        };
        let handle = end.endpoint.register(memory).expect("there is room");
        let region = Region {
            bytes,
            is_sink,
            filled: 0,
            reading: 0,
            is_given_up: false,
        };
        assert!(end.regions.insert(handle, region).is_none());
    }

    /// A region of the other end that this one may still use.
    fn region(&self, script: &mut Script<'_>, who: usize, is_sink: bool) -> Option<Handle> {
        let usable = self.ends[1 - who].regions.iter();
        let usable: Vec<_> = usable
            .filter(|(_, region)| region.is_sink == is_sink && !region.is_given_up)
            .map(|(handle, _)| *handle)
            .collect();
        (!usable.is_empty()).then(|| script.pick(&usable))
    }

    fn send(&mut self, script: &mut Script<'_>, who: usize) {
        let other = &self.ends[1 - who];
        if other.room() <= other.expected.len() {
            return;
        }
        let (head, rest) = (script.below(300), script.below(RECEIVE_LEN - 300));
        let rest = if script.flag() { rest } else { 0 };
        let kind = script.flag();
        let invalidate = self
            .region(script, who, kind)
            .filter(|handle| script.one_in(3) && self.ends[1 - who].regions[handle].reading == 0);
        let message = self.pattern(head + rest);
        let (first, second) = message.split_at(head);
        let end = &mut self.ends[who];
        let work = WorkRequest::Send {
            wr: end.ledger.name(),
            buffer: Buffer::from(first.to_vec()),
            rest: Gather::from_elem(Bytes::copy_from_slice(second), 1),
            invalidate: invalidate.map(Into::into),
        };
        let taken = end.ledger.post(work, &mut end.endpoint);
        assert!(taken);
        let other = &mut self.ends[1 - who];
        if let Some(handle) = invalidate {
            let region = other.regions.get_mut(&handle).expect("it was chosen");
            region.is_given_up = true;
        }
        other.expected.push_back((message, invalidate));
    }

    fn write(&mut self, script: &mut Script<'_>, who: usize) {
        let Some(handle) = self.region(script, who, true) else {
            return;
        };
        let region = &self.ends[1 - who].regions[&handle];
        let begin = region.filled;
        let len = script.below(region.bytes.len() - begin + 1);
        let data = self.pattern(len);
        let region = self.ends[1 - who].regions.get_mut(&handle).expect("chosen");
        region.bytes[begin..begin + len].copy_from_slice(&data);
        region.filled += len;
        let end = &mut self.ends[who];
        let work = WorkRequest::Write {
            wr: end.ledger.name(),
            source: Gather::from_elem(Bytes::from(data), 1),
            to: RemoteAddress {
                handle,
                offset: begin as u64,
            },
        };
        assert!(end.ledger.post(work, &mut end.endpoint));
    }

    fn read(&mut self, script: &mut Script<'_>, who: usize) {
        let Some(handle) = self.region(script, who, false) else {
            return;
        };
        let region = self.ends[1 - who].regions.get_mut(&handle).expect("chosen");
        let mut data = Vec::new();
        let from = (0..script.below(5)).map(|_| {
            let begin = script.below(region.bytes.len());
            let len = script.below(region.bytes.len() - begin + 1);
            data.extend_from_slice(&region.bytes[begin..begin + len]);
            Segment {
                handle,
                length: u32::try_from(len).expect("regions are small"),
                offset: begin as u64,
            }
        });
        let from = from.collect();
        region.reading += 1;
        let end = &mut self.ends[who];
        let wr = end.ledger.name();
        let sink = Buffer::with_capacity(data.len());
        end.reads.insert(wr.0, (data, handle));
        let work = WorkRequest::Read { wr, sink, from };
        assert!(end.ledger.post(work, &mut end.endpoint));
    }

    fn take_in(&mut self, who: usize, most: usize) {
        let [first, second] = &mut self.ends;
        let (end, wire) = if who == 0 {
            (&mut first.endpoint, &mut second.wire)
        } else {
            (&mut second.endpoint, &mut first.wire)
        };
        let len = most.min(wire.len());
        let bytes: Vec<u8> = wire.drain(..len).collect();
        let left = end.recv_slice(&bytes);
        assert!(left == 0 || end.awaited_share().is_some());
        for byte in bytes[bytes.len() - left..].iter().rev() {
            wire.push_front(*byte);
        }
    }

    fn completions(&mut self, is_damaged: bool) {
        for who in 0..2 {
            while let Some(completion) = self.ends[who].endpoint.poll_cq() {
                self.completion(who, completion, is_damaged);
            }
            if !is_damaged {
                let endpoint = &self.ends[who].endpoint;
                assert_eq!(endpoint.closed(), None);
                assert!(!endpoint.is_ending(), "both keep to the rules");
            }
        }
    }

    fn completion(&mut self, who: usize, completion: Completion, is_damaged: bool) {
        let [first, second] = &mut self.ends;
        let (end, other) = if who == 0 {
            (first, second)
        } else {
            (second, first)
        };
        match &completion {
            Completion::Receive {
                buffer,
                invalidated,
                ..
            } => {
                let (message, handle) = end.expected.pop_front().expect("it was sent");
                assert!(**buffer == message, "the message as it was sent");
                assert_eq!(invalidated.as_ref().map(|taken| taken.handle), handle);
            }
            Completion::Read { wr, sink } => {
                let (data, handle) = end.reads.remove(&wr.0).expect("it was posted");
                assert!(**sink == data, "the memory as it is");
                if let Some(region) = other.regions.get_mut(&handle) {
                    region.reading -= 1;
                }
            }
            Completion::Failed { error, .. } => {
                assert!(is_damaged, "{error:?} where both keep to the rules");
            }
            Completion::Send { .. } | Completion::Write { .. } | Completion::Invalidate { .. } => {}
        }
        let back = match completion {
            Completion::Receive {
                wr,
                buffer,
                invalidated,
            } if wr == SharedReceiveQueue::WR => {
                end.held.push_back(buffer);
                invalidated
            }
            completion => end.ledger.complete(completion),
        };
        if let Some(back) = back {
            end.back(back.handle, back.memory);
        }
    }

    fn drive(&mut self, is_damaged: bool) {
        loop {
            for end in &mut self.ends {
                end.hand_out(usize::MAX);
            }
            let is_done = |end: &End| end.wire.is_empty() && end.endpoint.awaited_share().is_none();
            if self.ends.iter().all(is_done) {
                return;
            }
            for who in 0..2 {
                self.take_in(who, usize::MAX);
            }
            self.completions(is_damaged);
            for end in &mut self.ends {
                end.held.clear();
            }
        }
    }

    /// Everything arrives, and is what it was.
    fn finish(mut self) {
        // A responder may only speak when it has heard something.
        self.ends[0].endpoint.nudge();
        self.drive(false);
        self.completions(false);
        for end in &self.ends {
            assert!(end.expected.is_empty() && end.reads.is_empty());
            assert_eq!(end.ledger.others(), 0, "all work is done");
        }
        for who in 0..2 {
            let handles: Vec<_> = self.ends[who].regions.keys().copied().collect();
            for handle in handles {
                let end = &mut self.ends[who];
                let wr = end.ledger.name();
                let work = WorkRequest::Invalidate { wr, handle };
                assert!(end.ledger.post(work, &mut end.endpoint));
            }
            self.completions(false);
            assert!(self.ends[who].regions.is_empty(), "all memory is back");
        }
        self.settle();
    }

    /// A byte changes on its way: nothing that comes through is other than it was.
    fn damage(mut self, at: usize) {
        for end in &mut self.ends {
            end.hand_out(usize::MAX);
        }
        for end in &mut self.ends {
            if !end.wire.is_empty() {
                let at = at % end.wire.len();
                end.wire[at] ^= 0x10;
            }
        }
        self.drive(true);
        self.completions(true);
        self.settle();
    }

    fn settle(mut self) {
        for end in &mut self.ends {
            end.endpoint.lost(CloseReason::Lost(Loss::Reset.into()));
        }
        self.completions(true);
        for end in self.ends {
            end.ledger.assert_settled();
            drop((end.endpoint, end.held));
            let stats = end.queue.map(|queue| queue.stats()).unwrap_or_default();
            assert_eq!((stats.lent, stats.waiting, stats.attached), (0, 0, 0));
        }
    }
}

impl End {
    /// Messages that it can receive beside those that it holds.
    fn room(&self) -> usize {
        match self.queue {
            None => self.ledger.receives(),
            Some(_) => RECEIVES - self.held.len(),
        }
    }

    /// Posts a Receive; with a shared receive queue, is done with a message.
    fn post_receive(&mut self) {
        if self.queue.is_some() {
            self.held.pop_front();
            return;
        }
        let wr: WrId = self.ledger.name();
        let buffer = Buffer::with_capacity(RECEIVE_LEN);
        let work = WorkRequest::Receive { wr, buffer };
        self.ledger.post(work, &mut self.endpoint);
    }

    fn hand_out(&mut self, most: usize) {
        let mut left = most;
        while self.endpoint.has_output() && left > 0 {
            let wire = &mut self.wire;
            let sent = self.endpoint.send_with(|slices| {
                let before = wire.len();
                for slice in slices {
                    let room = left - (wire.len() - before);
                    wire.extend(&slice[..slice.len().min(room)]);
                }
                Ok(wire.len() - before)
            });
            left -= sent.expect("there is no error in memory");
        }
    }

    /// Memory that the other end cannot reach any more: all that it wrote is there, and nothing
    /// else.
    fn back(&mut self, handle: Handle, memory: Memory) {
        let region = self.regions.remove(&handle).expect("it was registered");
        match memory {
            Memory::Source(pieces) => assert!(pieces.concat() == region.bytes),
            Memory::Parts(_) => unreachable!("none is registered"),
            Memory::Sink(buffer) | Memory::Persistent(_, buffer) => {
                assert!(*buffer.memory() == region.bytes[..]);
            }
        }
    }
}
