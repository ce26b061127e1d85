//! The Responder role.

mod answer;
mod pull;

pub(crate) use self::pull::StreamAt;

use crate::codec::{Invalidate, PlainHeader, Refused, Rejection};
use crate::event::{CallId, MemoryNeed, Violation};
use crate::invalidation::design::Design;
use crate::invalidation::rule::{self, Rule, Said};
use crate::owner::Owner;
use crate::plan::Chunks;
use crate::shared::Shared;
use crate::wire::direction::Direction;
use crate::wire::header::{Lists, Malformation, WriteChunk, chunks_len};
use crate::work::Purpose;
use buffer::{Buffer, Gather};
use oncrpc::{Reply, ReplyRoom};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use tracing::debug;
use verbs::WorkRequest;

/// Calls of the peer on one connection.
#[derive(Debug)]
pub(crate) struct Responder<O: Owner> {
    calls: Slab<Call<O::Lease>>,
    /// Calls that wait for memory, in order.
    for_memory: VecDeque<u32>,
    /// Number of these, from the front, that were counted as waiting.
    counted: usize,
    /// Read chunks that wait for their turn: call and index of the chunk.
    for_read: VecDeque<(u32, u8)>,
    /// Read requests outstanding, one for each segment.
    reading: usize,
    /// Progress of pulling Read chunks.
    pulls: Pulls,
    /// Calls whose reply was posted and is not on its way yet, where messages are counted.
    posted: usize,
    /// Receives that the calls without a posted reply would fill beyond one each.
    beyond: usize,
}

/// Progress of pulling Read chunks, call by call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulls {
    /// Calls that got memory for their Read chunks, since the connection was made.
    pub begun: u64,
    /// Of these, calls whose Read chunks have all arrived. They arrive in the order in which they
    /// were begun.
    pub done: u64,
}

#[derive(Debug)]
struct Call<L> {
    xid: u32,
    /// Credits that the call requests.
    asked: u32,
    lists: Lists,
    /// Remote invalidation state, if the call names handles or can spare some.
    said: Option<Box<Said>>,
    state: State,
    /// Receives that its message would fill beyond one, if it came in parts.
    beyond: usize,
    /// Lease of the call's memory, except while the service has the call.
    lease: Option<L>,
    /// Memory of the reply, until that is sent.
    of_reply: Option<Box<dyn oncrpc::Lease>>,
}

/// A received call.
pub(crate) struct NewCall {
    pub(crate) xid: u32,
    /// Credits that the call requests.
    pub(crate) asked: u32,
    pub(crate) lists: Lists,
    pub(crate) named: Invalidate,
    pub(crate) message: Buffer,
    pub(crate) at: StreamAt,
}

#[derive(Debug)]
enum State {
    /// The chunks of the call wait for memory, or are being pulled. A call that only offers chunks waits for memory, too.
    Pulling(Box<Pulling>),
    /// The call is in service.
    Dispatched,
    /// The reply is being written and sent.
    Replying { left: usize },
}

/// A call whose chunks are being pulled. Boxed, because most calls have none and should stay small.
#[derive(Debug)]
struct Pulling {
    message: Buffer,
    at: StreamAt,
    sinks: SmallVec<[Option<Buffer>; 1]>,
    left: usize,
}

impl Pulling {
    /// Returns the message, if it came in the Send.
    fn inline(&self) -> Option<&[u8]> {
        match self.at {
            StreamAt::Message(start) => Some(&self.message[start..]),
            StreamAt::FirstChunk => None,
        }
    }
}

impl<O: Owner> Responder<O> {
    pub(crate) fn new() -> Self {
        Self {
            calls: Slab::new(),
            for_memory: VecDeque::new(),
            counted: 0,
            for_read: VecDeque::new(),
            reading: 0,
            pulls: Pulls::default(),
            posted: 0,
            beyond: 0,
        }
    }

    /// Frees empty tables.
    pub(crate) fn trim(&mut self) {
        if self.calls.is_empty() {
            *self = Self {
                calls: Slab::new(),
                for_memory: VecDeque::new(),
                for_read: VecDeque::new(),
                ..*self
            };
        }
    }

    /// Returns the number of calls in service.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the progress of pulling, while the peer owes chunks.
    pub(crate) fn waits_for_chunks(&self) -> Option<Pulls> {
        (self.reading > 0).then_some(self.pulls)
    }

    /// Handles a call with a valid header.
    pub(crate) fn handle_call(&mut self, shared: &mut Shared<O>, call: NewCall) {
        let NewCall {
            xid,
            asked,
            mut lists,
            named,
            message,
            at,
        } = call;
        shared.counters.calls_received += 1;
        if self.is_full(shared) {
            return;
        }
        let inline = match at {
            StreamAt::Message(start) => message.len() - start,
            StreamAt::FirstChunk => 0,
        };
        let agreed = shared.agreed;
        let first = rule::in_order(&lists).next();
        let checked = if agreed.peer_chunks == Chunks::Refused && !lists.is_empty() {
            Err(Malformation::ChunksBackward)
        } else {
            pull::check(&mut lists.reads, at, inline, shared.max_chunk)
        };
        let checked = match checked {
            Ok(()) if !lists.reads.is_empty() && shared.limits.outstanding_reads == 0 => {
                Err(Malformation::ReadImpossible)
            }
            Ok(()) if !lists.is_empty() && shared.owner.take_condemned(xid, &lists) => {
                Err(Malformation::FailedBefore)
            }
            other => other,
        };
        if checked.is_ok() && lists.is_empty() {
            return self.handle_whole(shared, xid, asked, named, message, at);
        }
        let chunks = lists.reads.len();
        let mut call = Call {
            xid,
            asked,
            lists,
            said: None,
            state: State::Dispatched,
            beyond: shared.receives_beyond_one(&message),
            lease: None,
            of_reply: None,
        };
        let of_interest = matches!(agreed.rule, Rule::By(Design::Fixed | Design::InterCall));
        if named != Invalidate::Unsaid || of_interest {
            call.said = Some(Box::new(Said {
                named,
                first,
                ..Said::default()
            }));
        }
        if let Err(cause) = checked {
            let key = self.insert(call);
            self.malformed(shared, key, cause);
            return;
        }
        call.state = State::Pulling(Box::new(Pulling {
            message,
            at,
            sinks: (0..chunks).map(|_| None).collect(),
            left: chunks,
        }));
        let key = self.insert(call);
        self.for_memory.push_back(key);
    }

    /// Handles a call of which there is nothing to check but its stream.
    pub(crate) fn handle_plain_call(
        &mut self,
        shared: &mut Shared<O>,
        header: PlainHeader,
        message: Buffer,
    ) {
        shared.counters.calls_received += 1;
        if self.is_full(shared) {
            return;
        }
        let at = StreamAt::Message(header.stream);
        let (xid, asked) = (header.xid, header.credits);
        self.handle_whole(shared, xid, asked, Invalidate::Unsaid, message, at);
    }

    /// Handles a call without chunks.
    fn handle_whole(
        &mut self,
        shared: &mut Shared<O>,
        xid: u32,
        asked: u32,
        named: Invalidate,
        message: Buffer,
        at: StreamAt,
    ) {
        // What it names it does not offer: that goes back in the reply (reminv §5.3).
        let names = !named.handles().is_empty();
        let said = names.then(|| {
            Box::new(Said {
                named,
                ..Said::default()
            })
        });
        let key = self.insert(Call {
            xid,
            asked,
            lists: Lists::default(),
            said,
            state: State::Dispatched,
            beyond: shared.receives_beyond_one(&message),
            lease: None,
            of_reply: None,
        });
        match pull::assemble(xid, message, at, std::iter::empty()) {
            Ok(message) => {
                let id = CallId { key, lease: None };
                shared.calls.push_back((id, message));
            }
            Err(cause) => self.malformed(shared, key, cause),
        }
    }

    /// Whether the peer has too many calls in service to be keeping to its credits; then the
    /// connection ends. Messages answered with an error count too, until the error is sent.
    fn is_full(&self, shared: &mut Shared<O>) -> bool {
        let full = self.calls.len() >= shared.flow.tolerated();
        if full {
            shared.fail(Violation::BeyondCredits(self.calls.len()));
        }
        full
    }

    fn insert(&mut self, call: Call<O::Lease>) -> u32 {
        self.beyond += call.beyond;
        u32::try_from(self.calls.insert(call)).expect("calls are limited by credits")
    }

    /// Ends a call without an answer.
    fn forget(&mut self, key: u32) {
        self.beyond -= self.calls.remove(key as usize).beyond;
    }

    /// Returns the number of calls that wait for memory.
    pub(crate) fn waiting_for_memory(&self) -> usize {
        self.for_memory.len()
    }

    /// Returns the memory that the next call needs, for its chunks and those of its reply.
    pub(crate) fn needs_memory(&self, shared: &Shared<O>) -> Option<MemoryNeed<'_>> {
        let &key = self.for_memory.front()?;
        let call = &self.calls[key as usize];
        let (pulls, offered) = memory_of(&call.lists, shared.max_chunk);
        let message = match &call.state {
            State::Pulling(pulling) => pulling.inline(),
            State::Dispatched | State::Replying { .. } => None,
        };
        Some(MemoryNeed {
            pulls,
            offered,
            message,
            reads: &call.lists.reads,
        })
    }

    /// Returns the capacity for the reply to a call in service.
    pub(crate) fn reply_room(&self, shared: &Shared<O>, key: u32) -> ReplyRoom {
        let (codec, limit) = (shared.agreed.codec, shared.agreed.sizes.last_resort);
        let Lists { writes, reply, .. } = &self.calls[key as usize].lists;
        let segments = writes.iter().map(|chunk| chunk.segments.len());
        let of_reply = reply.as_ref().map(|chunk| chunk.segments.len());
        let header = codec.plain_len(Direction::Reply) + chunks_len(0, segments, of_reply);
        let inline = limit.saturating_sub(header);
        let chunk = reply.as_ref().filter(|_| header <= limit);
        let chunk = chunk.map_or(0, |chunk| chunk.len().min(shared.max_chunk as u64));
        let message = inline.max(usize::try_from(chunk).unwrap_or(usize::MAX));
        let message = message.max(shared.agreed.sizes.continued);
        let room = ReplyRoom::of_message(message);
        if writes.is_empty() {
            return room;
        }
        // RFC 8166 §4.3.2.3: an empty Write chunk asks for its result inline.
        room.with_chunks(writes.iter().map(|chunk| {
            let len = chunk.len();
            (!chunk.segments.is_empty()).then_some(len)
        }))
    }

    /// Reports that no memory is available for the next call, and so for those behind it.
    pub(crate) fn handle_no_memory(&mut self, shared: &mut Shared<O>) {
        shared.counters.memory_waits += (self.for_memory.len() - self.counted) as u64;
        self.counted = self.for_memory.len();
    }

    /// Provides memory for the next call, which proceeds.
    pub(crate) fn handle_memory(&mut self, shared: &mut Shared<O>, lease: O::Lease) {
        let Some(key) = self.for_memory.pop_front() else {
            return;
        };
        self.counted = self.counted.saturating_sub(1);
        let call = &mut self.calls[key as usize];
        call.lease = Some(lease);
        for chunk in 0..call.lists.reads.len() {
            let chunk = u8::try_from(chunk).expect("read chunks are limited");
            self.for_read.push_back((key, chunk));
        }
        if call.lists.reads.is_empty() {
            self.pulled(shared, key);
        } else {
            self.pulls.begun += 1;
            self.read(shared);
        }
    }

    /// Posts Reads within the limit of the provider, so that none blocks a Send. A chunk with more
    /// segments than that is read alone.
    fn read(&mut self, shared: &mut Shared<O>) {
        while let Some(&(key, chunk)) = self.for_read.front() {
            let reads = &self.calls[key as usize].lists.reads;
            let read = &reads[usize::from(chunk)];
            let from: SmallVec<[_; 4]> = read
                .segments
                .iter()
                .copied()
                .filter(|segment| segment.length > 0)
                .collect();
            if self.reading > 0 && self.reading + from.len() > shared.limits.outstanding_reads {
                return;
            }
            self.for_read.pop_front();
            self.reading += from.len();
            let len = usize::try_from(read.len()).expect("chunks are limited");
            shared.counters.read_chunks_pulled += 1;
            shared.counters.read_bytes_pulled += len as u64;
            shared.posts.push(WorkRequest::Read {
                wr: Purpose::Pull { call: key, chunk }.wr(),
                sink: shared.pool.take(len),
                from,
            });
        }
    }

    /// Handles the end of the Read of a chunk.
    pub(crate) fn handle_read(
        &mut self,
        shared: &mut Shared<O>,
        key: u32,
        chunk: u8,
        sink: Buffer,
    ) {
        let call = &mut self.calls[key as usize];
        let chunk = usize::from(chunk);
        let segments = &call.lists.reads[chunk].segments;
        self.reading -= segments.iter().filter(|s| s.length > 0).count();
        let State::Pulling(pulling) = &mut call.state else {
            unreachable!("a call waits until all its chunks are pulled");
        };
        pulling.sinks[chunk] = Some(sink);
        pulling.left -= 1;
        if pulling.left == 0 {
            self.pulls.done += 1;
            self.pulled(shared, key);
        }
        self.read(shared);
    }

    /// Handles a completely pulled call. It must not be answered before, not even with an error:
    /// now no Read for this XID is outstanding.
    fn pulled(&mut self, shared: &mut Shared<O>, key: u32) {
        let call = &mut self.calls[key as usize];
        let state = std::mem::replace(&mut call.state, State::Dispatched);
        let State::Pulling(pulling) = state else {
            unreachable!("a call is pulled once");
        };
        let Pulling {
            message, at, sinks, ..
        } = *pulling;
        let positions = call.lists.reads.iter().map(|chunk| chunk.position);
        let chunks = positions.zip(sinks.into_iter().flatten());
        match pull::assemble(call.xid, message, at, chunks) {
            Ok(message) => {
                let lease = call.lease.take();
                let id = CallId { key, lease };
                shared.calls.push_back((id, message));
            }
            Err(cause) => self.malformed(shared, key, cause),
        }
    }

    /// Handles a failed Read, which ends the connection: the call must not be tried again on the
    /// next one (RFC 8166 §4.5.3).
    pub(crate) fn handle_failed(&mut self, shared: &mut Shared<O>, key: u32) {
        if let Some(call) = self.calls.get(key as usize) {
            shared.counters.calls_condemned += 1;
            shared.owner.condemn(call.xid, &call.lists);
        }
    }

    fn malformed(&mut self, shared: &mut Shared<O>, key: u32, cause: Malformation) {
        debug!(xid = self.calls[key as usize].xid, %cause, "call refused (RFC 8166 §4.5.2)");
        self.refuse(shared, key, Rejection::Chunks(cause));
    }

    /// Answers a message that is not processed, if it gets an answer (RFC 8166 §4.5).
    pub(crate) fn handle_invalid(&mut self, shared: &mut Shared<O>, owed: Option<Refused>) {
        let Some(refused) = owed else {
            shared.counters.discarded += 1;
            return;
        };
        if self.is_full(shared) {
            return;
        }
        let key = self.insert(Call {
            xid: refused.xid,
            asked: refused.credits,
            lists: Lists::default(),
            said: None,
            state: State::Dispatched,
            beyond: 0,
            lease: None,
            of_reply: None,
        });
        self.send_error(shared, key, refused.version, refused.rejection);
    }

    /// Answers a call in service with an error: ERR_CHUNK in version one, BAD_HEADER in cel-01.
    fn refuse(&mut self, shared: &mut Shared<O>, key: u32, rejection: Rejection) {
        self.send_error(shared, key, shared.agreed.codec.version(), rejection);
    }

    /// Ends a call with an error, unless another call with the same XID has outstanding Reads: the
    /// error would complete that call at the peer, which might free the memory being read.
    fn send_error(&mut self, shared: &mut Shared<O>, key: u32, version: u32, rejection: Rejection) {
        let Call { xid, asked, .. } = self.calls[key as usize];
        let pulling = |call: &Call<_>| matches!(call.state, State::Pulling(_));
        if self.calls.iter().any(|(_, c)| c.xid == xid && pulling(c)) {
            debug!(xid, "no error, as a call with the same XID is being pulled");
            shared.counters.discarded += 1;
            self.forget(key);
            return;
        }
        match rejection {
            Rejection::Header
            | Rejection::Chunks(_)
            | Rejection::ReplyTooLong { .. }
            | Rejection::ResultTooLong { .. }
            | Rejection::Ietf07(_) => shared.counters.chunk_errors_sent += 1,
            Rejection::Versions { .. } => shared.counters.version_errors_sent += 1,
            Rejection::Operation => shared.counters.option_errors_sent += 1,
        }
        // A Requester need not believe what an error grants, so it counts for nothing here.
        let credits = shared.flow.offer(asked);
        let call = &mut self.calls[key as usize];
        call.state = State::Replying { left: 1 };
        let mut buffer = shared.send_buffer();
        let error = Refused {
            xid,
            version,
            credits,
            rejection,
        };
        shared.agreed.codec.emit_error(&mut buffer, error);
        shared.posts.push(WorkRequest::Send {
            wr: Purpose::Reply { call: key }.wr(),
            buffer,
            rest: Gather::new(),
            invalidate: None,
        });
    }

    /// Sends the reply to a call.
    pub(crate) fn reply(&mut self, shared: &mut Shared<O>, id: CallId<O::Lease>, reply: Reply) {
        let CallId { key, lease } = id;
        self.calls[key as usize].lease = lease;
        match reply {
            Reply::Message(reply) => self.answer(shared, key, reply),
            // The Receive was posted again when the call came, so its credit is in force again.
            Reply::Nothing => self.forget(key),
            // RFC 8166 §6.1: it was not executed.
            Reply::Ineligible => self.malformed_items(shared, key),
            Reply::TooLarge(size) => self.no_room(shared, key, &size),
        }
    }

    fn malformed_items(&mut self, shared: &mut Shared<O>, key: u32) {
        let xid = self.calls[key as usize].xid;
        debug!(
            xid,
            "an item that is not eligible was reduced (RFC 8166 §6.1)"
        );
        self.refuse(shared, key, Rejection::Header);
    }

    /// Handles the completion of a Write or Send of a reply.
    pub(crate) fn handle_sent(&mut self, key: u32) {
        let call = &mut self.calls[key as usize];
        let State::Replying { left } = &mut call.state else {
            unreachable!("a reply is sent for a call that was answered");
        };
        *left -= 1;
        if *left == 0 {
            self.calls.remove(key as usize);
            self.posted = self.posted.saturating_sub(1);
        }
    }

    /// Returns the number of calls whose reply was not posted, where messages are counted.
    pub(crate) fn in_service(&self) -> usize {
        self.calls.len() - self.posted
    }

    /// Returns the number of Receives that the messages of these calls would fill.
    pub(crate) fn messages_in_service(&self) -> usize {
        self.in_service() + self.beyond
    }

    /// Records that the reply to this call was posted.
    pub(crate) fn note_posted(&mut self, key: u32) {
        self.posted += 1;
        self.beyond -= self.calls[key as usize].beyond;
    }

    /// Takes back that the reply to this call was posted.
    pub(crate) fn forget_posted(&mut self, key: u32) {
        self.posted -= 1;
        self.beyond += self.calls[key as usize].beyond;
    }
}

/// Returns the bytes that the chunks of a call and of its reply may take.
fn memory_of(lists: &Lists, max_chunk: usize) -> (usize, usize) {
    let reads: u64 = lists.reads.iter().map(|chunk| chunk.len()).sum();
    let replies = lists.writes.iter().chain(&lists.reply);
    // What is offered for the reply is only what the peer thinks may be needed.
    let replies: u64 = replies.map(WriteChunk::len).sum();
    let bytes = |len: u64| usize::try_from(len).unwrap_or(usize::MAX);
    (bytes(reads), bytes(replies).min(max_chunk))
}
