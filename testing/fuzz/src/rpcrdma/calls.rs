//! Calls of our own user, and calls that it has to answer.

use super::form::{Body, Message};
use super::owner::Connection;
use super::owner::Lease;
use crate::hand::Hand;
use crate::script::Script;
use buffer::{Buffer, Gather};
use bytes::Bytes;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Reply, ReplyBound, TransportError};
use rpcrdma_proto::header::Lists;
use rpcrdma_proto::{CallId, CallRequest, Direction, Role, Unfinished};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;
use verbs::{Handle, Memory, Part};

/// XIDs are few, so that some come again.
const XIDS: usize = 24;

/// Calls that wait for room at a time.
const WAITING: usize = 4;

/// Calls of ours by number, and calls of the peer.
#[derive(Default)]
pub(super) struct Calls {
    next: u64,
    /// Calls so far that did not wait any more.
    sent: u64,
    out: BTreeMap<u64, Out>,
    /// Calls that were handed in and wait for room, in this order.
    waiting: VecDeque<u64>,
    mixed: bool,
    /// Calls of the peer that have no answer yet.
    pub(super) handed: Vec<Handed>,
}

struct Out {
    xid: u32,
    /// It was handed in, and is not sent.
    waits: bool,
    /// How many had been sent when it was.
    sent: u64,
    /// Its Send was posted: the peer may have it.
    posted: bool,
    handles: BTreeSet<Handle>,
    /// Handles that its header offers: those too that stay.
    offered: BTreeSet<Handle>,
    cancelled: bool,
    /// The peer has said something with its XID since.
    answered: bool,
}

/// A call of the peer that was handed up.
pub(super) struct Handed {
    pub(super) id: CallId<Lease>,
    pub(super) message: Payload,
}

impl Calls {
    pub(super) fn new(mixed: bool) -> Self {
        Self {
            mixed,
            ..Self::default()
        }
    }

    pub(super) fn call(
        &mut self,
        script: &mut Script<'_>,
        connection: &mut Connection,
        hand: &mut Hand,
    ) {
        if self.waiting.len() >= WAITING {
            return;
        }
        let request = self.request(script);
        let before: BTreeSet<Handle> = hand.regions.keys().copied().collect();
        let (xid, number) = (request.xid(), *request.call());
        match connection.call(Instant::now(), request, hand) {
            Ok(()) => {
                let waits = connection.calls_waiting() > self.waiting.len();
                let handles = hand.of_calls();
                self.sent += 1;
                let out = Out {
                    xid,
                    waits,
                    sent: self.sent,
                    posted: false,
                    handles: handles.filter(|handle| !before.contains(handle)).collect(),
                    offered: BTreeSet::new(),
                    cancelled: false,
                    answered: false,
                };
                if waits {
                    assert!(out.handles.is_empty(), "a call that waits exposes nothing");
                    self.waiting.push_back(number);
                }
                assert!(self.out.insert(number, out).is_none());
                if !waits {
                    self.check_sent(connection);
                }
            }
            Err(failed) => assert_eq!(failed.call, number),
        }
    }

    /// Calls that waited were sent, or cannot be carried any more, the first ones first: these.
    pub(super) fn waited(&mut self, connection: &Connection) -> Vec<u64> {
        let many = self.waiting.len() - connection.calls_waiting();
        let numbers: Vec<u64> = self.waiting.drain(..many).collect();
        for number in &numbers {
            let out = self.out.get_mut(number).expect("it has no end yet");
            out.waits = false;
            self.sent += 1;
            out.sent = self.sent;
        }
        numbers
    }

    /// Of these calls, which do not wait any more, those without an end were sent.
    pub(super) fn check_waited(&self, numbers: &[u64], connection: &Connection) {
        if numbers.iter().any(|number| self.out.contains_key(number)) {
            self.check_sent(connection);
        }
    }

    /// Checks the credits and XIDs of sent messages.
    fn check_sent(&self, connection: &Connection) {
        let credits = connection.credits() as usize;
        assert!(self.unanswered() <= credits, "more calls than credits");
        let mut xids: Vec<u32> = self.in_flight().map(|out| out.xid).collect();
        xids.sort_unstable();
        assert!(
            xids.is_sorted_by(|a, b| a < b),
            "two calls in flight with one XID"
        );
    }

    fn in_flight(&self) -> impl Iterator<Item = &Out> {
        self.out.values().filter(|out| !out.waits && !out.answered)
    }

    fn request(&mut self, script: &mut Script<'_>) -> CallRequest<u64> {
        self.next += 1;
        let xid = u32::try_from(script.below(XIDS)).expect("there are few");
        let message = message(script, xid, 0);
        let bound = ReplyBound {
            fixed: script.pick(&[24, 200, 3000, 9000]),
            results: (0..script.below(3)).map(|_| size(script)).collect(),
        };
        let mut request = CallRequest::new(self.next, message, bound);
        if script.one_in(8) {
            request = request.as_health_check();
        }
        if script.one_in(8) {
            request = request.with_reply_chunk();
        }
        if self.mixed {
            request = request
                .with_read_chunks_beside_position_zero()
                .with_write_chunks_beside_reply_chunk();
        }
        request
    }

    pub(super) fn cancel(&mut self, script: &mut Script<'_>, connection: &mut Connection) {
        let tokens: Vec<u64> = self.out.keys().copied().collect();
        if tokens.is_empty() {
            return;
        }
        let token = script.pick(&tokens);
        let out = self.out.get_mut(&token).expect("it is one of them");
        let cancelled = connection.cancel(|&number| number == token);
        assert!(cancelled == 1 || !out.waits, "a call that waits is over");
        if cancelled == 1 && !out.posted {
            self.waiting.retain(|&number| number != token);
            self.out.remove(&token);
            return;
        }
        // With its reply here it ends as usual, unless it was cancelled before.
        assert!(cancelled == 0 || !out.cancelled);
        assert!(
            cancelled == 1 || out.answered || out.cancelled,
            "only a call with its reply here, or that was cancelled before, is not cancelled"
        );
        out.cancelled |= cancelled == 1;
    }

    /// A call of the peer gets its answer, whatever that is.
    pub(super) fn answer(&mut self, script: &mut Script<'_>, connection: &mut Connection) {
        if self.handed.is_empty() {
            return;
        }
        let handed = self.handed.swap_remove(script.below(self.handed.len()));
        let xid = handed.message.head().first_chunk();
        let xid = u32::from_be_bytes(*xid.expect("a call begins with its XID"));
        let reply = match script.byte() {
            0..200 => Reply::Message(message(script, xid, 1)),
            200..228 => Reply::Nothing,
            228..242 => Reply::Ineligible,
            242.. => {
                let size = ReplyBound {
                    fixed: script.below(100_000),
                    results: (0..script.below(3))
                        .map(|_| script.below(100_000))
                        .collect(),
                };
                Reply::TooLarge(size.into())
            }
        };
        connection.reply(handed.id, reply);
    }

    /// The peer says something: perhaps it answers a call (RFC 8167 §4.2).
    pub(super) fn said(&mut self, role: Role, message: &Message) {
        let usual = match role {
            Role::Client => Direction::Reply,
            Role::Server => Direction::Call,
        };
        let answers = match &message.body {
            Body::Rpc { direction, .. } => direction.unwrap_or(usual) == Direction::Reply,
            Body::Error => true,
            Body::Done | Body::Optional(_) => false,
        };
        let mut out = self.out.values_mut();
        if answers
            && let Some(out) = out.find(|out| out.xid == message.xid && !out.waits && !out.answered)
        {
            out.answered = true;
        }
    }

    /// A call that goes out offers only memory that is registered, and that no other call offers; and
    /// it names nothing else, nor what is to stay.
    pub(super) fn judge(&mut self, xid: u32, named: &[Handle], lists: &Lists, hand: &Hand) {
        let reads = lists.reads.iter().map(|chunk| &chunk.segments);
        let writes = lists.writes.iter().chain(&lists.reply);
        for segment in reads.chain(writes.map(|chunk| &chunk.segments)).flatten() {
            let (offset, len) = match hand.regions.get(&segment.handle) {
                None => (segment.offset, 0),
                Some(Memory::Parts(parts)) => {
                    let found = parts.find(segment.offset);
                    let (part, offset) = found.expect("a part of the region");
                    (offset, parts.get(part).map_or(0, Part::len))
                }
                Some(memory) => (segment.offset, memory.len()),
            };
            assert!(
                offset + u64::from(segment.length) <= len as u64,
                "{segment:?} of memory of {len}"
            );
        }
        let reads = lists.reads.iter().map(|chunk| &chunk.segments);
        let writes = lists.writes.iter().chain(&lists.reply);
        let segments = reads.chain(writes.map(|chunk| &chunk.segments)).flatten();
        let offered: BTreeSet<Handle> = segments.map(|segment| segment.handle).collect();
        let may_go: BTreeSet<Handle> = hand.of_calls().collect();
        for handle in named {
            let go = offered.contains(handle) && may_go.contains(handle);
            assert!(go, "{handle:?} is named");
        }
        let in_flight = |out: &&mut Out| !out.waits && !out.answered;
        for out in self.out.values_mut().filter(in_flight) {
            if out.xid == xid {
                out.offered.clone_from(&offered);
                out.handles.extend(offered.intersection(&may_go));
            } else {
                assert!(
                    out.offered.is_disjoint(&offered),
                    "two calls offer the same"
                );
            }
        }
    }

    /// The Send of a call was posted.
    pub(super) fn posted(&mut self, xid: u32) {
        // A call that was sent before may have had the same XID, and not be over although it has its reply.
        let sent = self.out.values_mut();
        let sent = sent.filter(|out| out.xid == xid && !out.waits);
        if let Some(out) = sent.max_by_key(|out| out.sent) {
            out.posted = true;
        }
    }

    /// The end of a call: nothing of it can be reached any more.
    pub(super) fn ended(
        &mut self,
        number: u64,
        reply: Result<Payload, TransportError>,
        hand: &Hand,
    ) {
        let out = self.out.remove(&number).expect("each call ends once");
        assert!(!out.cancelled, "nobody waits for a call that was cancelled");
        for handle in &out.handles {
            assert!(!hand.regions.contains_key(handle), "{handle:?} is exposed");
        }
        self.judge_reply(&out, reply);
    }

    fn judge_reply(&self, out: &Out, reply: Result<Payload, TransportError>) {
        if let Ok(reply) = reply {
            let xid = reply.head().first_chunk();
            assert_eq!(xid, Some(&out.xid.to_be_bytes()), "a reply to this call");
        }
    }

    pub(super) fn unfinished(&mut self, unfinished: Unfinished<u64>) {
        let (number, reply) = match unfinished {
            Unfinished::Again(request) => {
                let sent = self.out.get(request.call()).is_some_and(|out| out.posted);
                assert_eq!(request.losses, u32::from(sent), "lost only if it was sent");
                (request.into_call(), None)
            }
            Unfinished::Ended(number, reply) => (number, Some(reply)),
        };
        let out = self.out.remove(&number).expect("each call ends once");
        assert!(!out.cancelled, "nobody waits for a call that was cancelled");
        if let Some(reply) = reply {
            self.judge_reply(&out, reply);
        }
    }

    /// Calls that may still be answered.
    pub(super) fn unanswered(&self) -> usize {
        self.in_flight().count()
    }

    /// Calls that have had no end, without those that nobody waits for.
    pub(super) fn on_their_way(&self) -> usize {
        self.out.values().filter(|out| !out.cancelled).count()
    }

    pub(super) fn assert_settled(&self) {
        assert_eq!(self.on_their_way(), 0, "calls without an end");
    }
}

/// Bytes of an item.
fn size(script: &mut Script<'_>) -> usize {
    match script.byte() {
        small @ 0..128 => small.into(),
        middle @ 128..224 => 8 * usize::from(middle),
        224.. => script.below(30_000),
    }
}

fn message(script: &mut Script<'_>, xid: u32, direction: u32) -> Payload {
    let mut w = Writer::new(Buffer::with_capacity(64));
    w.u32(xid);
    w.u32(direction);
    w.fixed(&vec![0x11; script.pick(&[0, 32, 33, 900, 4000])]);
    for _ in 0..script.below(3) {
        let data = Bytes::from(vec![0x22; size(script)]);
        w.item(Gather::from_elem(data, 1));
        if script.flag() {
            w.u32(0x3333_3333);
        }
    }
    w.finish()
}
