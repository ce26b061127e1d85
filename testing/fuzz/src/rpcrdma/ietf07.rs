//! One end of ietf-07, its user, and a peer that sends calls and replies in parts, properties, grants and errors in any
//! order: credits that count messages, parts that follow each other, and Receives for what the peer was told.

use super::owner::{Budget, Connection, Lease, Owner};
use super::setup::{Setup, setup};
use super::{Event, MEMORY, STEPS, is_ours};
use crate::hand::Hand;
use crate::memory::within_and_back;
use crate::script::Script;
use buffer::{Buffer, Gather, gather_len};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Reply, ReplyBound};
use rpcrdma_proto::header::{HeaderView, Lists, ReadChunk, Segments, WriteChunk};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::ietf07::{
    Body, Header, PropertySet, RdmaError, ReverseSupport, VERSION, emit_call, emit_error,
    emit_grant, emit_part, emit_properties, emit_reply,
};
use rpcrdma_proto::{CallId, CallRequest, Config, Direction, Role, Unfinished, Version, Versions};
use std::collections::BTreeSet;
use std::time::Instant;
use verbs::{Handle, QueuePair, RemoteAddress, Segment, WorkError, WorkRequest};

/// XIDs are few, so that some come again.
const XIDS: usize = 12;

/// Most words of the peer about credits that are kept.
const MAX_WORDS: usize = STEPS + 1;

/// The end that connected.
pub fn rpcrdma_ietf07_client(bytes: &[u8]) {
    within_and_back(MEMORY, || play(Role::Client, bytes));
}

/// The end that accepted.
pub fn rpcrdma_ietf07_server(bytes: &[u8]) {
    within_and_back(MEMORY, || play(Role::Server, bytes));
}

fn play(role: Role, bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut stage = Stage::new(role, &mut script);
    for _ in 0..STEPS {
        if script.is_over() || stage.connection.violation().is_some() {
            break;
        }
        stage.step(&mut script);
        stage.check();
    }
    stage.finish(&mut script);
}

struct Stage {
    connection: Connection,
    config: Config,
    budget: Budget,
    hand: Hand,
    /// Calls of our user that have no end yet, by number.
    out: BTreeSet<u64>,
    next: u64,
    /// Calls of the peer that have no answer yet.
    handed: Vec<CallId<Lease>>,
    /// Messages that we sent, and that came.
    sent: u32,
    received: u32,
    /// The largest credit word that we said.
    told: u32,
    /// Credit words of the peer.
    words: Vec<u32>,
    /// The message of ours of which parts are due: direction, XID, octets.
    due: Option<(Direction, u32, u32)>,
    /// The message of the peer of which parts are due.
    begun: Option<(Direction, u32, u32)>,
    /// Memory that the peer offered to be read and to be written; handles that its calls named.
    sources: Vec<Segment>,
    sinks: Vec<Segment>,
    named: Vec<(u32, Handle)>,
}

impl Stage {
    fn new(role: Role, script: &mut Script<'_>) -> Self {
        let Setup {
            mut config,
            peer,
            mut hand,
            budget,
            ..
        } = setup(role, script);
        config.dialect = Dialect::Ietf07;
        if config.versions == Versions::One {
            config.versions = Versions::Two;
        }
        let wanted = config.own.remote_invalidation;
        config.own.remote_invalidation =
            (config.registrations).remote_invalidation(wanted, &hand.limits);
        for receive in config.initial_receives() {
            hand.post(receive).expect("there is room for Receives");
        }
        Self {
            connection: Connection::new(&config, Owner::default(), peer, hand.limits()),
            budget,
            config,
            hand,
            out: BTreeSet::new(),
            next: 0,
            handed: Vec::new(),
            sent: 0,
            received: 0,
            told: 1,
            // ietf-07 §4.2.1.
            words: vec![1],
            due: None,
            begun: None,
            sources: Vec::new(),
            sinks: Vec::new(),
            named: Vec::new(),
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 32 {
            0..4 => self.call(script),
            4 => {
                let number = u64::from(script.number()) % (1 + self.next);
                if self.connection.cancel(|&call| call == number) == 1 {
                    // A call that was not sent has no other end.
                    self.out.remove(&number);
                }
            }
            5..8 => self.answer(script),
            8..12 => self.complete(script),
            12..24 => self.hear(script),
            24 => self.connection.handle_client_ready(),
            25 => self.lend(),
            26 => self.post(true),
            27 => self.post(false),
            _ => {
                while !self.hand.work.is_empty() {
                    self.complete(script);
                }
                self.lend();
                self.post(false);
            }
        }
        self.events();
    }

    fn call(&mut self, script: &mut Script<'_>) {
        self.next += 1;
        let xid = u32::try_from(script.below(XIDS)).expect("there are few");
        let bound = ReplyBound {
            fixed: script.pick(&[24, 200, 9000, 70_000]),
            results: (0..script.below(3)).map(|_| script.below(9000)).collect(),
        };
        let message = message(script, xid, 0);
        let mut request = CallRequest::new(self.next, message, bound);
        if script.one_in(8) {
            request = request.with_reply_chunk();
        }
        if self
            .connection
            .call(Instant::now(), request, &mut self.hand)
            .is_ok()
        {
            self.out.insert(self.next);
        }
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        if self.handed.is_empty() {
            return;
        }
        let id = self.handed.swap_remove(script.below(self.handed.len()));
        let reply = match script.byte() {
            0..200 => Reply::Message(message(script, 0, 1)),
            200..215 => Reply::Nothing,
            215..230 => Reply::Ineligible,
            230.. => {
                let size = ReplyBound {
                    fixed: script.below(100_000),
                    results: (0..script.below(3))
                        .map(|_| script.below(100_000))
                        .collect(),
                };
                Reply::TooLarge(size.into())
            }
        };
        self.connection.reply(id, reply);
    }

    fn lend(&mut self) {
        while let Some(need) = self.connection.poll_memory() {
            match self.budget.take(need.pulls + need.offered) {
                Some(lease) => self.connection.handle_memory(lease),
                None => return self.connection.handle_no_memory(),
            }
        }
    }

    fn complete(&mut self, script: &mut Script<'_>) {
        let xid = u32::try_from(script.below(XIDS)).expect("there are few");
        let completion = self.hand.complete(script, |_| {
            [xid, 0, 2, 7, 7, 7, 0, 0, 0, 0]
                .map(u32::to_be_bytes)
                .concat()
        });
        if let Some(completion) = completion {
            self.connection.handle_completion(completion);
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Call { id, .. } => self.handed.push(id),
                Event::Reply { call, .. } => {
                    assert!(self.out.remove(&call), "call {call} has two ends");
                }
            }
        }
    }

    /// The peer says something that is right, or nearly.
    fn hear(&mut self, script: &mut Script<'_>) {
        let mut message = Buffer::default();
        let xid = u32::try_from(script.below(XIDS)).expect("there are few");
        let credits = match script.byte() {
            0..200 => self.sent.wrapping_add(20),
            200..230 => self.sent.wrapping_add(script.number() % 4),
            230.. => script.number(),
        };
        match script.byte() % 16 {
            0..5 => self.say_part(script, &mut message, (xid, credits)),
            5..9 => Self::say_call(script, &mut message, (xid, credits)),
            9..12 => {
                let lists = lists(script, false);
                let external = lists.reply.is_some();
                emit_reply(&mut message, xid, credits, external, &lists);
                if !external {
                    stream(script, &mut message, xid, 1);
                }
            }
            12 => emit_grant(&mut message, credits),
            13 => emit_error(&mut message, xid, VERSION, credits, error(script)),
            _ => {
                let mut value = || script.flag().then(|| script.number());
                let set = PropertySet {
                    max_send: value(),
                    receive_buffer: value(),
                    max_segment_size: value(),
                    max_segments: value(),
                    reverse: value().map(ReverseSupport::from_word),
                    host_auth: None,
                };
                let last = !script.one_in(4);
                emit_properties(&mut message, xid, credits, last, &set);
            }
        }
        if script.one_in(12) && !message.is_empty() {
            let at = script.below(message.len());
            let mut bytes = message.to_vec();
            bytes[at] ^= 1 << script.below(8);
            bytes.truncate(bytes.len() - script.below(bytes.len()) / 2);
            message = Buffer::from(bytes);
        }
        self.note(&message);
        let victim = script.one_in(6).then(|| {
            let all: Vec<Handle> = self.hand.of_calls().collect();
            (!all.is_empty()).then(|| script.pick(&all))
        });
        if let Some(view) = HeaderView::new(&message)
            && self.words.len() < MAX_WORDS
        {
            self.words.push(view.credits());
        }
        let Some(completion) = self.hand.receive(&message, victim.flatten()) else {
            return;
        };
        self.received = self.received.wrapping_add(1);
        self.connection.handle_completion(completion);
    }

    /// Notes the chunks that a message of the peer offers.
    fn note(&mut self, message: &[u8]) {
        let Ok((header, _)) = Header::parse(message) else {
            return;
        };
        let Body::Call {
            invalidate, lists, ..
        } = header.body
        else {
            return;
        };
        self.named
            .extend(invalidate.map(|handle| (header.xid, handle)));
        let reads = lists.reads.iter().flat_map(|chunk| &chunk.segments);
        self.sources.extend(reads);
        let writes = lists.writes.iter().chain(&lists.reply);
        self.sinks.extend(writes.flat_map(|chunk| &chunk.segments));
    }

    /// A part of what was begun, or the first of something.
    fn say_part(&mut self, script: &mut Script<'_>, out: &mut Buffer, (xid, credits): (u32, u32)) {
        let fresh = |script: &mut Script<'_>| {
            let direction = script.pick(&[Direction::Call, Direction::Reply]);
            (direction, xid, script.pick(&[400, 9000, 65_536, 65_540]))
        };
        let begun = self.begun.take().filter(|_| !script.one_in(8));
        let is_first = begun.is_none();
        let (direction, xid, left) = begun.unwrap_or_else(|| fresh(script));
        let most = left.min(3000);
        let len = script.pick(&[1, 40, 41, 1000, 3000]).min(most);
        let rest = left - len;
        if rest == 0 || script.one_in(8) {
            match direction {
                Direction::Call => {
                    let lists = lists(script, true);
                    emit_call(out, xid, credits, false, None, &lists);
                }
                Direction::Reply => emit_reply(out, xid, credits, false, &Lists::default()),
            }
            out.extend_from_slice(&vec![0; left.min(8000) as usize]);
            return;
        }
        let said = if script.one_in(16) {
            script.number()
        } else {
            rest
        };
        emit_part(out, xid, credits, direction, said);
        let mut bytes = vec![0; len as usize];
        if is_first {
            let head = [xid, direction.word(), 2, 7, 7, 7, 0, 0, 0, 0].map(u32::to_be_bytes);
            let head = head.concat();
            let known = head.len().min(bytes.len());
            bytes[..known].copy_from_slice(&head[..known]);
        }
        out.extend_from_slice(&bytes);
        self.begun = Some((direction, xid, rest));
    }

    fn say_call(script: &mut Script<'_>, out: &mut Buffer, (xid, credits): (u32, u32)) {
        let mut lists = lists(script, true);
        let external = script.one_in(4);
        if external {
            let position = 0;
            let segments = segments(script, 40);
            lists.reads.insert(0, ReadChunk { position, segments });
        }
        let of_reads = lists.reads.iter().flat_map(|chunk| &chunk.segments);
        let writes = lists.writes.iter().chain(&lists.reply);
        let of_writes = writes.flat_map(|chunk| &chunk.segments);
        let mut handles: Vec<Handle> = of_reads.chain(of_writes).map(|s| s.handle).collect();
        handles.push(Handle(0x7777));
        let handle = script.flag().then(|| script.pick(&handles));
        emit_call(out, xid, credits, external, handle, &lists);
        if !external || script.one_in(16) {
            stream(script, out, xid, 0);
        }
    }

    fn post(&mut self, refuse: bool) {
        self.connection.send_waiting(Instant::now(), &mut self.hand);
        self.events();
        while let Some(work) = self.connection.poll_post() {
            if refuse {
                self.connection.handle_refused(work);
                return;
            }
            self.judge(&work);
            self.hand.post(work).expect("it keeps to the limits");
        }
        if self.connection.violation().is_some() || self.sent == 0 {
            return;
        }
        // Whatever the peer was told it may send has a Receive.
        let may_come = self.told.wrapping_sub(self.received).cast_signed();
        let receives = self.hand.receives.len();
        assert!(
            i64::from(may_come) <= receives as i64,
            "{receives} Receives for {may_come} messages"
        );
    }

    /// Work has to be right in itself.
    fn judge(&mut self, work: &WorkRequest) {
        match work {
            WorkRequest::Receive { .. } => {}
            WorkRequest::Send {
                buffer,
                rest,
                invalidate,
                ..
            } => {
                let bytes = [&buffer[..], &rest.concat()].concat();
                let handle = invalidate.as_ref().map(|handles| handles.first());
                self.judge_message(&bytes, handle);
            }
            WorkRequest::Write { source, to, .. } => {
                let len = gather_len(source) as u64;
                let within = |segment: &Segment| {
                    let RemoteAddress { handle, offset } = *to;
                    let end = segment.offset + u64::from(segment.length);
                    segment.handle == handle && offset >= segment.offset && offset + len <= end
                };
                assert!(self.sinks.iter().any(within), "a Write to {to:?}");
            }
            WorkRequest::Read { from, .. } => {
                for segment in from {
                    let known = self.sources.iter().any(|s| s.handle == segment.handle);
                    assert!(known, "a Read of {segment:?}");
                }
            }
            WorkRequest::Invalidate { handle, .. } => {
                assert!(self.hand.regions.contains_key(handle), "{handle:?} is dead");
            }
        }
    }

    fn judge_message(&mut self, bytes: &[u8], invalidated: Option<Handle>) {
        let view = HeaderView::new(bytes).expect("what we send has a header");
        let is_two = self.connection.version() != Some(Version::One);
        if view.version() != VERSION || !is_two {
            // An error about another version, or version one altogether.
            self.sent = self.sent.wrapping_add(1);
            return;
        }
        let (header, at) = Header::parse(bytes).expect("what we send is valid");
        let room = |word: &u32| word.wrapping_sub(self.sent).cast_signed();
        let left = self.words.iter().map(room).max().unwrap_or(0);
        let least = i32::from(header.body != Body::Grant);
        assert!(left >= least, "{header:?} is sent without a credit");
        self.sent = self.sent.wrapping_add(1);
        if header.credits.wrapping_sub(self.told).cast_signed() > 0 {
            self.told = header.credits;
        }
        if let Some(handle) = invalidated {
            let named = (header.xid, handle);
            assert!(self.named.contains(&named), "{handle:?} was not named");
            assert!(matches!(header.body, Body::Reply { .. }), "{header:?}");
        }
        let len = u32::try_from(bytes.len() - at).expect("it is a message");
        let direction = header.direction();
        match (&header.body, self.due) {
            (Body::Grant | Body::Error(_), _) => {}
            (Body::Part { remaining, .. }, due) => {
                let of = (direction.expect("it has one"), header.xid);
                assert!(len > 0 && *remaining > 0, "{header:?}");
                if let Some((direction, xid, left)) = due {
                    assert_eq!((of, len + remaining), ((direction, xid), left));
                }
                self.due = Some((of.0, of.1, *remaining));
            }
            (_, Some((expected, xid, left))) => {
                assert_eq!((direction, header.xid, len), (Some(expected), xid, left));
                self.due = None;
            }
            (_, None) => {}
        }
    }

    fn check(&self) {
        if let Some(violation) = self.connection.violation() {
            assert!(!is_ours(violation), "{violation}");
            return;
        }
        assert_eq!(self.connection.exposed(), self.hand.of_calls().count());
    }

    /// The connection is lost: each call has one end, and all memory is given back.
    fn finish(mut self, script: &mut Script<'_>) {
        let error = script.pick(&[WorkError::Flushed, WorkError::RemoteAccess]);
        for completion in self.hand.flush(error) {
            self.connection.handle_completion(completion);
        }
        self.events();
        for unfinished in self.connection.into_unfinished() {
            let call = match unfinished {
                Unfinished::Again(request) => request.into_call(),
                Unfinished::Ended(call, _) => call,
            };
            assert!(self.out.remove(&call), "call {call} has two ends");
        }
        assert!(self.out.is_empty(), "calls without an end: {:?}", self.out);
        let (pool, budget) = (self.config.pool.clone(), self.budget.clone());
        drop((self.hand, self.handed, self.config));
        drop(budget);
        assert_eq!(pool.stats().out, 0, "bytes of the pool that are lost");
    }
}

/// A message of this direction with some items.
fn message(script: &mut Script<'_>, xid: u32, direction: u32) -> Payload {
    let mut w = Writer::default();
    w.words([xid, direction, 2, 7, 7, 7, 0, 0, 0, 0]);
    w.opaque(&vec![0; script.pick(&[0, 100, 3000, 9000, 66_000])]);
    for _ in 0..script.below(3) {
        w.item(Gather::from_elem(vec![7; script.below(9000)].into(), 1));
    }
    w.finish()
}

/// The begin of an RPC message, and some octets.
fn stream(script: &mut Script<'_>, out: &mut Buffer, xid: u32, direction: u32) {
    let xid = if script.one_in(12) { xid ^ 1 } else { xid };
    for word in [xid, direction, 2, 7, 7, 7, 0, 0, 0, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&vec![0; script.pick(&[0, 4, 1000, 3000])]);
}

fn error(script: &mut Script<'_>) -> RdmaError {
    let (one, other) = (script.number(), script.number());
    match script.byte() % 8 {
        0 => RdmaError::Version {
            low: one,
            high: other,
        },
        1 => RdmaError::BadXdr,
        2 => RdmaError::InvalCont,
        3 => RdmaError::ReadChunks { max: one },
        4 => RdmaError::WriteResource {
            chunk: std::num::NonZeroU32::new(one),
            needed: other,
        },
        5 => RdmaError::ReplyResource { needed: one },
        6 => RdmaError::VersionMismatch,
        _ => RdmaError::System,
    }
}

/// Chunks of a call, or of a reply.
fn lists(script: &mut Script<'_>, is_call: bool) -> Lists {
    let mut lists = Lists::default();
    if is_call && script.one_in(3) {
        let segments = segments(script, 4);
        let position = script.pick(&[40, 44, 400]);
        lists.reads.push(ReadChunk { position, segments });
    }
    for _ in 0..script.below(3) {
        let segments = segments(script, 0);
        lists.writes.push(WriteChunk { segments });
    }
    if script.one_in(3) {
        let segments = segments(script, 0);
        lists.reply = Some(WriteChunk { segments });
    }
    lists
}

fn segments(script: &mut Script<'_>, least: u32) -> Segments {
    let count = script.below(3) + usize::from(least > 0);
    let mut one = || Segment {
        handle: Handle(1 + script.number() % 1000),
        length: least + script.number() % 40_000,
        offset: 0,
    };
    (0..count).map(|_| one()).collect()
}
