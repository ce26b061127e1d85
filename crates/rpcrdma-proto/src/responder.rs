//! The role that answers.

use crate::credits::Grant;
use crate::direction::Direction;
use crate::header::{self, Header, Lists, Malformation, Segments, WriteChunk, procedure};
use crate::invalidation::{self, Design, Rule, Said};
use crate::layout::{Contents, Layout, Owed, Rejection};
use crate::limits::{MAX_SPARE_CANDIDATES, MAX_SPARE_SEGMENTS};
use crate::link::{Event, Link, Violation};
use crate::message::{into_inline, put_inline, split_front};
use crate::owner::Owner;
use crate::plan::{Chunks, ReplyPlan, plan_reply};
use crate::pull::{self, StreamAt};
use crate::v2::header::Invalidate;
use crate::work::Purpose;
use buffer::{Buffer, Gather};
use oncrpc::Reply;
use oncrpc::xdr::{Item, Payload};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use tracing::debug;
use verbs::{Handle, WorkRequest};

/// A call that was handed up. It is answered once, by giving this back.
///
/// It is to stay with whoever has the call: the memory for the chunks of the call and of its reply
/// is accounted for by it, also when the connection is over in the meantime.
#[derive(Debug)]
pub struct CallId<L> {
    key: u32,
    /// Held until the reply is in flight.
    lease: Option<L>,
}

/// The calls of the peer on one connection.
#[derive(Debug)]
pub(crate) struct Responder<O: Owner> {
    credits: Grant,
    chunks: Chunks,
    calls: Slab<Call<O::Lease>>,
    /// Calls that need memory, in the order in which they came.
    for_memory: VecDeque<u32>,
    /// The first of these that were counted as waiting.
    counted: usize,
    /// Read chunks that wait for their turn: call and index of the chunk.
    for_read: VecDeque<(u32, u8)>,
    /// Read requests outstanding, one for each segment.
    reading: usize,
    /// Calls with Read chunks.
    pulls: Pulls,
}

/// Calls of the peer whose Read chunks are pulled, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulls {
    /// Calls that have memory for them, since the connection was made.
    pub begun: u64,
    /// Those of them whose Read chunks are all here. They come in the order in which they were begun.
    pub done: u64,
}

#[derive(Debug)]
struct Call<L> {
    xid: u32,
    /// Credits that it asked for.
    asked: u32,
    lists: Lists,
    /// Where a call says something about remote invalidation, or others can take its handles.
    said: Option<Box<Said>>,
    state: State,
    /// Its memory, but while the call is handed up.
    lease: Option<L>,
}

/// A call as it came.
pub(crate) struct NewCall {
    pub(crate) xid: u32,
    /// Credits that it asked for.
    pub(crate) asked: u32,
    pub(crate) lists: Lists,
    pub(crate) named: Invalidate,
    pub(crate) message: Buffer,
    pub(crate) at: StreamAt,
}

#[derive(Debug)]
enum State {
    /// Its chunks are being pulled, or wait for memory or their turn.
    Pulling(Box<Pulling>),
    /// It is being answered.
    Dispatched,
    /// Its reply is being written and sent.
    Replying { left: usize },
}

/// A call whose chunks are still to come. Most calls have none, and are to stay small.
#[derive(Debug)]
struct Pulling {
    message: Buffer,
    at: StreamAt,
    sinks: SmallVec<[Option<Buffer>; 1]>,
    left: usize,
}

impl<O: Owner> Responder<O> {
    pub(crate) fn new(credits: u32, chunks: Chunks) -> Self {
        Self {
            credits: Grant::new(credits),
            chunks,
            calls: Slab::new(),
            for_memory: VecDeque::new(),
            counted: 0,
            for_read: VecDeque::new(),
            reading: 0,
            pulls: Pulls::default(),
        }
    }

    /// Whether calls are taken at all.
    pub(crate) fn takes_calls(&self) -> bool {
        self.credits.exposed() > 0
    }

    /// Credits granted with the next reply, at most.
    pub(crate) fn grant(&self) -> u32 {
        self.credits.now()
    }

    /// What to grant to whoever asks for so many.
    pub(crate) fn offer(&self, asked: u32) -> u32 {
        self.credits.offer(asked)
    }

    /// Whether calls may come with chunks.
    pub(crate) fn set_chunks(&mut self, chunks: Chunks) {
        self.chunks = chunks;
    }

    /// Changes what is granted from the next reply on.
    pub(crate) fn set_grant(&mut self, link: &mut Link<O>, credits: u32) {
        self.credits.set(credits);
        self.count_receives(link);
    }

    /// Receives that have to be posted for the credits granted (RFC 8166 §3.3.1).
    fn count_receives(&self, link: &mut Link<O>) {
        link.for_calls = self.credits.exposed() as usize;
        link.post_receives();
    }

    /// Calls taken in and not answered to the end.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Calls whose Read chunks were pulled so far, while the peer owes some.
    pub(crate) fn waits_for_chunks(&self) -> Option<Pulls> {
        (self.reading > 0).then_some(self.pulls)
    }

    /// A valid header that is that of a call.
    pub(crate) fn handle_call(&mut self, link: &mut Link<O>, call: NewCall) {
        let NewCall {
            xid,
            asked,
            mut lists,
            named,
            message,
            at,
        } = call;
        link.counters.calls_received += 1;
        if self.is_full(link) {
            return;
        }
        if lists.is_empty() && matches!(at, StreamAt::Message(_)) {
            // Nearly every call that is small: there is nothing to check of chunks.
            return self.handle_whole(link, xid, asked, message, at);
        }
        let inline = match at {
            StreamAt::Message(start) => message.len() - start,
            StreamAt::FirstChunk => 0,
        };
        let checked = if self.chunks == Chunks::Refused && !lists.is_empty() {
            Err(Malformation::ChunksBackward)
        } else {
            pull::check(&mut lists.reads, at, inline, link.max_chunk)
        };
        let checked = match checked {
            Ok(()) if !lists.reads.is_empty() && link.limits.outstanding_reads == 0 => {
                Err(Malformation::ReadImpossible)
            }
            Ok(()) if !lists.is_empty() && link.owner.take_condemned(xid, &lists) => {
                Err(Malformation::FailedBefore)
            }
            other => other,
        };
        if checked.is_ok() && lists.is_empty() {
            return self.handle_whole(link, xid, asked, message, at);
        }
        let chunks = lists.reads.len();
        let mut call = Call {
            xid,
            asked,
            lists,
            said: None,
            state: State::Dispatched,
            lease: None,
        };
        if named != Invalidate::Unsaid || link.rule == Rule::By(Design::InterCall) {
            let spent = Vec::new();
            call.said = Some(Box::new(Said { named, spent }));
        }
        if let Err(cause) = checked {
            let key = self.insert(call);
            self.malformed(link, key, cause);
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

    /// A call that came in one piece.
    fn handle_whole(
        &mut self,
        link: &mut Link<O>,
        xid: u32,
        asked: u32,
        message: Buffer,
        at: StreamAt,
    ) {
        let key = self.insert(Call {
            xid,
            asked,
            lists: Lists::default(),
            said: None,
            state: State::Dispatched,
            lease: None,
        });
        match pull::assemble(xid, message, at, std::iter::empty()) {
            Ok(message) => {
                let id = CallId { key, lease: None };
                link.events.push_back(Event::Call { id, message });
            }
            Err(cause) => self.malformed(link, key, cause),
        }
    }

    /// Whether the peer has so many calls here that it does not keep to its credits: then it is cut
    /// off. Messages that only draw an error count too, until that error is on its way.
    fn is_full(&self, link: &mut Link<O>) -> bool {
        let full = self.calls.len() >= self.credits.tolerated();
        if full {
            link.fail(Violation::BeyondCredits(self.calls.len()));
        }
        full
    }

    fn insert(&mut self, call: Call<O::Lease>) -> u32 {
        u32::try_from(self.calls.insert(call)).expect("calls are limited by credits")
    }

    /// Calls that wait for memory.
    pub(crate) fn waiting_for_memory(&self) -> usize {
        self.for_memory.len()
    }

    /// Bytes that the next call needs for its chunks and for those of its reply.
    pub(crate) fn needs_memory(&self, link: &Link<O>) -> Option<usize> {
        let &key = self.for_memory.front()?;
        Some(memory_of(&self.calls[key as usize].lists, link.max_chunk))
    }

    /// There is no memory for the next call now, nor so for those behind it.
    pub(crate) fn handle_no_memory(&mut self, link: &mut Link<O>) {
        link.counters.memory_waits += (self.for_memory.len() - self.counted) as u64;
        self.counted = self.for_memory.len();
    }

    /// The next call that needs memory has it, and goes on.
    pub(crate) fn handle_memory(&mut self, link: &mut Link<O>, lease: O::Lease) {
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
            self.pulled(link, key);
        } else {
            self.pulls.begun += 1;
            self.read(link);
        }
    }

    /// Posts Reads as far as the provider has room for them, so that none of them is in the way of
    /// a Send. A chunk of more segments than that goes alone.
    fn read(&mut self, link: &mut Link<O>) {
        while let Some(&(key, chunk)) = self.for_read.front() {
            let reads = &self.calls[key as usize].lists.reads;
            let read = &reads[usize::from(chunk)];
            let from: SmallVec<[_; 4]> = read
                .segments
                .iter()
                .copied()
                .filter(|segment| segment.length > 0)
                .collect();
            if self.reading > 0 && self.reading + from.len() > link.limits.outstanding_reads {
                return;
            }
            self.for_read.pop_front();
            self.reading += from.len();
            let len = usize::try_from(read.len()).expect("chunks are limited");
            link.counters.read_chunks_pulled += 1;
            link.counters.read_octets_pulled += len as u64;
            link.posts.push(WorkRequest::Read {
                wr: Purpose::Pull { call: key, chunk }.wr(),
                sink: link.pool.take(len),
                from,
            });
        }
    }

    /// A Read chunk is here.
    pub(crate) fn handle_read(&mut self, link: &mut Link<O>, key: u32, chunk: u8, sink: Buffer) {
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
            self.pulled(link, key);
        }
        self.read(link);
    }

    /// Everything of the call is here. Not before this may it be answered, be it with an error:
    /// no Read of ours for this XID is outstanding.
    fn pulled(&mut self, link: &mut Link<O>, key: u32) {
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
                link.events.push_back(Event::Call { id, message });
            }
            Err(cause) => self.malformed(link, key, cause),
        }
    }

    /// The chunks of a call cannot be used, and the connection is lost for it: the call is not to be
    /// tried again on the next (RFC 8166 §4.5.3).
    pub(crate) fn handle_failed(&mut self, link: &mut Link<O>, key: u32) {
        if let Some(call) = self.calls.get(key as usize) {
            link.counters.calls_condemned += 1;
            link.owner.condemn(call.xid, &call.lists);
        }
    }

    fn malformed(&mut self, link: &mut Link<O>, key: u32, cause: Malformation) {
        debug!(xid = self.calls[key as usize].xid, %cause, "call refused (RFC 8166 §4.5.2)");
        self.refuse(link, key);
    }

    /// Answers a message that is not processed (RFC 8166 §4.5).
    pub(crate) fn handle_invalid(&mut self, link: &mut Link<O>, owed: Owed) {
        let (xid, version, asked, rejection) = match owed {
            Owed::Nothing => {
                link.counters.discarded += 1;
                return;
            }
            Owed::Error {
                xid,
                version,
                credits,
                rejection,
            } => (xid, version, credits, rejection),
        };
        if self.is_full(link) {
            return;
        }
        let key = self.insert(Call {
            xid,
            asked,
            lists: Lists::default(),
            said: None,
            state: State::Dispatched,
            lease: None,
        });
        self.send_error(link, key, version, rejection);
    }

    /// ERR_CHUNK for a call in service, in version two BAD_HEADER.
    fn refuse(&mut self, link: &mut Link<O>, key: u32) {
        self.send_error(link, key, link.layout.version(), Rejection::Header);
    }

    /// Ends a call with an error, unless that would complete another call for which Reads of ours
    /// are outstanding: a peer that uses an XID twice might free the memory that they read.
    fn send_error(&mut self, link: &mut Link<O>, key: u32, version: u32, rejection: Rejection) {
        let Call { xid, asked, .. } = self.calls[key as usize];
        let pulling = |call: &Call<_>| matches!(call.state, State::Pulling(_));
        if self.calls.iter().any(|(_, c)| c.xid == xid && pulling(c)) {
            debug!(xid, "no error, as a call with the same XID is being pulled");
            link.counters.discarded += 1;
            self.calls.remove(key as usize);
            return;
        }
        match rejection {
            Rejection::Header => link.counters.chunk_errors_sent += 1,
            Rejection::Versions { .. } => link.counters.version_errors_sent += 1,
            Rejection::Operation => link.counters.option_errors_sent += 1,
        }
        // A Requester need not believe what an error grants, so it counts for nothing here.
        let grant = self.credits.offer(asked);
        let call = &mut self.calls[key as usize];
        call.state = State::Replying { left: 1 };
        let mut buffer = link.send_buffer();
        rejection.emit(&mut buffer, xid, version, grant);
        link.posts.push(WorkRequest::Send {
            wr: Purpose::Reply { call: key }.wr(),
            buffer,
            rest: Gather::new(),
            invalidate: None,
        });
    }

    /// What is to go back for a call.
    pub(crate) fn reply(&mut self, link: &mut Link<O>, id: CallId<O::Lease>, reply: Reply) {
        let CallId { key, lease } = id;
        self.calls[key as usize].lease = lease;
        match reply {
            Reply::Message(reply) => self.answer(link, key, reply),
            // The Receive was posted again when the call came, so its credit is in force again.
            Reply::Nothing => drop(self.calls.remove(key as usize)),
            // RFC 8166 §6.1: it was not executed.
            Reply::Ineligible => self.malformed_items(link, key),
        }
    }

    fn malformed_items(&mut self, link: &mut Link<O>, key: u32) {
        let xid = self.calls[key as usize].xid;
        debug!(
            xid,
            "an item that is not eligible was reduced (RFC 8166 §6.1)"
        );
        self.refuse(link, key);
    }

    fn answer(&mut self, link: &mut Link<O>, key: u32, reply: Payload) {
        let grant = self.credits.offer(self.calls[key as usize].asked);
        let call = &mut self.calls[key as usize];
        let (layout, limit) = (link.layout, link.send_limit);
        if call.lists.is_empty() && layout.min_len() + reply.stream_len() <= limit {
            link.note_reply(layout.min_len() + reply.stream_len());
            // Only then may a handle go that is not of the call: this one has none.
            let invalidate = match link.rule {
                Rule::By(Design::InterCall) => self.handle_to_take(link, key),
                Rule::By(_) | Rule::Never => None,
            };
            let call = &mut self.calls[key as usize];
            call.answer_inline(link, key, grant, reply, invalidate);
            return self.granted(link);
        }
        let (head, lists) = (reply.head().len(), &call.lists);
        let plan = |limit| {
            let items = reply.items().iter().map(Item::len);
            plan_reply(layout, lists, head, items, limit)
        };
        let planned = match plan(limit) {
            ReplyPlan::NoRoom if link.last_resort_limit > limit => plan(link.last_resort_limit),
            planned => planned,
        };
        let (chunks, long) = match planned {
            ReplyPlan::Send(chunks) => (chunks, false),
            ReplyPlan::ReplyChunk(chunks) => (chunks, true),
            ReplyPlan::NoRoom => {
                debug!(
                    xid = call.xid,
                    len = reply.stream_len(),
                    "no room for the reply"
                );
                return self.refuse(link, key);
            }
        };
        let wr = Purpose::Reply { call: key }.wr();
        let mut writer = Writer {
            link,
            wr,
            posted: 0,
        };
        let mut lists = Lists::default();
        // RFC 8166 §3.4.6, §4.3.3: all that was offered goes back with what was written.
        lists.writes = call.lists.writes.iter().map(|c| c.returned(0)).collect();
        lists.reply = call.lists.reply.as_ref().map(|c| c.returned(0));
        for (item, chunk) in reply.items().iter().zip(&chunks) {
            let Some(chunk) = chunk.map(usize::from) else {
                continue;
            };
            if item.is_empty() {
                // It has its chunk, which goes back unused.
                continue;
            }
            let offered = &call.lists.writes[chunk];
            lists.writes[chunk] = offered.returned(item.len());
            writer.write(&offered.segments, item.data.clone());
            writer.link.counters.write_chunks_filled += 1;
            writer.link.counters.write_octets_posted += item.len() as u64;
        }
        let mut buffer = writer.link.send_buffer();
        let xid = call.xid;
        let copied = copied(layout, call.said.as_deref());
        let emit = |out: &mut Buffer, proc, lists| {
            let contents = Contents {
                proc,
                direction: Direction::Reply,
                invalidate: copied,
                lists,
            };
            layout.emit(out, xid, grant, contents);
        };
        let moved = |index: usize| chunks.get(index).is_some_and(Option::is_some);
        // Octets that went, or would have gone, in one Send.
        let mut needed = 0;
        let rest = if long {
            let offered = call
                .lists
                .reply
                .as_ref()
                .expect("the plan uses what is offered");
            let stream = reply.into_reduced_gather(moved);
            let len = buffer::gather_len(&stream);
            lists.reply = Some(offered.returned(len));
            writer.write(&offered.segments, stream);
            writer.link.counters.reply_chunks_filled += 1;
            writer.link.counters.reply_octets_posted += len as u64;
            emit(&mut buffer, procedure::NOMSG, lists);
            needed += len;
            Gather::new()
        } else {
            emit(&mut buffer, procedure::MSG, lists);
            put_inline(&reply, &mut buffer, moved)
        };
        let left = writer.posted + 1;
        needed += buffer.len() + buffer::gather_len(&rest);
        link.note_reply(needed);
        let invalidate = self.handle_to_take(link, key);
        let call = &mut self.calls[key as usize];
        // Right behind the Writes: order on the stream is enough (RFC 5040 §5.5).
        link.posts.push(WorkRequest::Send {
            wr,
            buffer,
            rest,
            invalidate,
        });
        link.counters.replies_sent += 1;
        call.state = State::Replying { left };
        self.granted(link);
    }

    /// The handle to take along with the reply to the call `key`.
    fn handle_to_take(&mut self, link: &mut Link<O>, key: u32) -> Option<Handle> {
        let call = &self.calls[key as usize];
        let mut of_other = None;
        let taken = link.rule.take(&call.lists, call.said.as_deref(), || {
            of_other = self.spare(key);
            of_other.map(|(_, handle)| handle)
        });
        if let Some((other, handle)) = of_other {
            let said = &mut self.calls[other as usize].said;
            said.get_or_insert_default().spent.push(handle);
            link.counters.invalidations_sent_inter_call += 1;
        }
        link.counters.invalidations_sent += u64::from(taken.handle.is_some());
        link.counters.foreign_handles_named += u64::from(taken.foreign);
        taken.handle
    }

    /// A handle that another call than `key` offers to be read, of which nothing more is needed
    /// (reminv §4.6): it has been read, its reply is still to come, and nobody else offers it. What is
    /// looked at has a limit, as this is for every reply, and a client decides how much there is.
    fn spare(&self, key: u32) -> Option<(u32, Handle)> {
        let calls = || self.calls.iter();
        let segments = calls().map(|(_, call)| invalidation::segments(&call.lists));
        if segments.sum::<usize>() > MAX_SPARE_SEGMENTS {
            return None;
        }
        let read = calls().filter(|&(other, call)| {
            other != key as usize && matches!(call.state, State::Dispatched)
        });
        let spare = read.flat_map(|(other, call)| {
            let spent = call.said.as_ref().map_or(&[][..], |said| &said.spent);
            invalidation::spare(&call.lists, spent).map(move |handle| (other, handle))
        });
        let alone = |&(_, handle): &(usize, Handle)| {
            let all = calls().flat_map(|(_, call)| invalidation::in_order(&call.lists));
            all.filter(|&other| other == handle).count() == 1
        };
        let (other, handle) = spare.take(MAX_SPARE_CANDIDATES).find(alone)?;
        Some((
            u32::try_from(other).expect("calls are limited by credits"),
            handle,
        ))
    }

    /// A reply is queued that says what is granted.
    fn granted(&mut self, link: &mut Link<O>) {
        self.credits.replied();
        link.for_calls = self.credits.exposed() as usize;
    }

    /// A Write or Send of a reply is done.
    pub(crate) fn handle_sent(&mut self, key: u32) {
        let call = &mut self.calls[key as usize];
        let State::Replying { left } = &mut call.state else {
            unreachable!("a reply is sent for a call that was answered");
        };
        *left -= 1;
        if *left == 0 {
            self.calls.remove(key as usize);
        }
    }
}

impl<L> Call<L> {
    /// A reply that fits a Send, to a call that offered no chunk: nearly every one that is small.
    fn answer_inline<O: Owner>(
        &mut self,
        link: &mut Link<O>,
        key: u32,
        grant: u32,
        reply: Payload,
        invalidate: Option<Handle>,
    ) {
        let header = link.layout.plain(Direction::Reply, self.xid, grant);
        let (buffer, rest) = into_inline(reply, &header, || link.send_buffer());
        link.posts.push(WorkRequest::Send {
            wr: Purpose::Reply { call: key }.wr(),
            buffer,
            rest,
            invalidate,
        });
        link.counters.replies_sent += 1;
        self.state = State::Replying { left: 1 };
    }
}

impl<L> CallId<L> {
    /// A number that no other call in service on this connection has.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// The memory leased for the chunks of the call and of its reply, if it has any.
    pub fn lease_mut(&mut self) -> Option<&mut L> {
        self.lease.as_mut()
    }
}

/// Posts the Writes of one reply.
struct Writer<'a, O: Owner> {
    link: &'a mut Link<O>,
    wr: verbs::WrId,
    posted: usize,
}

impl<O: Owner> Writer<'_, O> {
    /// Fills segments, one after the other, with all of `data`, for which there is room.
    fn write(&mut self, segments: &Segments, mut data: Gather) {
        for segment in segments {
            if data.is_empty() {
                return;
            }
            let source = split_front(&mut data, segment.length as usize);
            if source.is_empty() {
                continue;
            }
            self.posted += 1;
            self.link.posts.push(WorkRequest::Write {
                wr: self.wr,
                source,
                to: segment.address(),
            });
        }
    }
}

/// Octets that the chunks of a call and of its reply may take.
fn memory_of(lists: &Lists, max_chunk: usize) -> usize {
    let reads: u64 = lists.reads.iter().map(|chunk| chunk.len()).sum();
    let replies = lists.writes.iter().chain(&lists.reply);
    // What is offered for the reply is only what the peer thinks may be needed.
    let replies: u64 = replies.map(WriteChunk::len).sum();
    let replies = replies.min(max_chunk as u64);
    usize::try_from(reads.saturating_add(replies)).unwrap_or(usize::MAX)
}

/// The word for remote invalidation in a reply: one handle is copied from the call, several are not
/// (reminv §5.3).
fn copied(layout: Layout, said: Option<&Said>) -> Invalidate {
    match said.map(|said| &said.named) {
        Some(one @ Invalidate::One(_)) => one.clone(),
        Some(Invalidate::Several(_) | Invalidate::Unsaid) | None => layout.nothing_to_invalidate(),
    }
}

/// Whether a header that is valid can be that of a call, and where its stream is.
pub(crate) fn stream_of_call(header: &Header, stream: usize) -> Option<StreamAt> {
    match &header.body {
        header::Body::Msg(_) => Some(StreamAt::Message(stream)),
        header::Body::NoMsg(_) => Some(StreamAt::FirstChunk),
        header::Body::Done | header::Body::Error(_) => None,
    }
}
