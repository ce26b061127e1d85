//! The role that calls.

use crate::credits::{Allowance, Need};
use crate::direction::Direction;
use crate::header::{self, Header, Lists, ReadChunk, Segments, WriteChunk};
use crate::invalidation::{self, Accepts};
use crate::layout::{Contents, Layout};
use crate::limits::MAX_INVALIDATE_HANDLES;
use crate::link::{Event, Link, Violation};
use crate::message::{CallRequest, CallToken};
use crate::outcome::{Outcome, Region, RegionUse, assemble, judge};
use crate::persistent::PersistentPool;
use crate::plan::{CallForm, CallPlan, CallSizes, Chunks, PlanLimits};
use crate::v2::header::Invalidate;
use crate::work::Purpose;
use crate::xid::XidTable;
use buffer::{Buffer, Gather, Pool};
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::Instant;
use verbs::{
    Handle, Invalidated, Invalidation, Limits, Memory, QueuePair, RegisterError, RemoteAddress,
    Segment, WorkRequest,
};

/// What became of a call handed to [`Connection::call`](crate::Connection::call).
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "it is taken apart where it is made, once per call"
)]
pub enum Called {
    /// It is on its way; an event will tell its end.
    Sent,
    /// There is no credit or no room for its memory now: to be tried again after an event.
    NoRoom(CallRequest),
    /// It cannot be carried by this connection.
    Failed(CallToken, TransportError),
}

/// What becomes of a call that had no end when its connection was over.
#[derive(Debug)]
pub enum Unfinished {
    /// It can be sent again on another connection.
    Again(CallRequest),
    /// Its reply was there, and only memory of no use to it was not.
    Ended(CallToken, Result<Payload, TransportError>),
}

/// The calls of ours on one connection.
#[derive(Debug)]
pub(crate) struct Requester {
    credits: Allowance,
    chunks: Chunks,
    mixed_long: bool,
    /// Whether the peer is ready for calls (RFC 8167 §6).
    ready: bool,
    /// Why it never will be, if it has said so.
    never: Option<&'static str>,
    /// Calls that were on their way when the mark was set, and still are.
    marked: Marked,
    /// Regions exposed to the peer, but for those that stay.
    exposed: usize,
    persistent: PersistentPool,
    calls: Slab<Call>,
    xids: XidTable,
    /// Sends of calls that have their credit, but were not posted when the grant was lowered.
    held: VecDeque<WorkRequest>,
}

/// A mark between the calls that were sent before it and those after it.
#[derive(Debug, Default)]
struct Marked {
    /// Of calls that are sent now.
    epoch: u32,
    set: bool,
    left: usize,
}

#[derive(Debug)]
struct Call {
    request: CallRequest,
    /// Between which marks it was sent.
    epoch: u32,
    /// When it was sent.
    sent: Instant,
    offered: Lists,
    regions: Vec<Region>,
    /// Persistent regions that its arguments are in.
    lent: SmallVec<[RemoteAddress; 1]>,
    cancelled: bool,
    state: State,
}

/// What a call offers to the peer.
#[derive(Default)]
struct Offered {
    lists: Lists,
    regions: Vec<Region>,
    lent: SmallVec<[RemoteAddress; 1]>,
}

#[derive(Debug)]
enum State {
    /// Its reply is still to come.
    Awaiting,
    /// Its reply is here; some of its memory is still exposed.
    Invalidating { left: usize, outcome: Outcome },
}

impl Requester {
    pub(crate) fn new(
        credits: Allowance,
        chunks: Chunks,
        mixed_long: bool,
        ready: bool,
        persistent: PersistentPool,
    ) -> Self {
        Self {
            xids: XidTable::new(credits.asked() as usize),
            credits,
            chunks,
            mixed_long,
            ready,
            never: None,
            marked: Marked::default(),
            exposed: 0,
            persistent,
            calls: Slab::new(),
            held: VecDeque::new(),
        }
    }

    /// Whether the peer takes calls with chunks, without, or not at all: as it has said.
    pub(crate) fn set_chunks(&mut self, chunks: Option<Chunks>) {
        match chunks {
            Some(chunks) => self.chunks = chunks,
            None => self.never = Some("the peer takes no calls (BKREQSUP_NONE, xcharext §3.3)"),
        }
    }

    /// Whether calls wait that were made as large as the peer took messages then.
    pub(crate) fn holds_calls(&self) -> bool {
        !self.held.is_empty()
    }

    /// Tells the calls that are on their way now from those to come, until
    /// [`forget_mark`](Self::forget_mark).
    pub(crate) fn mark(&mut self) {
        if !self.marked.set {
            self.marked = Marked {
                epoch: self.marked.epoch.wrapping_add(1),
                set: true,
                left: self.credits.used() as usize,
            };
        }
    }

    /// Calls that were on their way at the mark, and have no reply yet.
    pub(crate) fn marked(&self) -> usize {
        self.marked.left
    }

    /// The next mark is another one.
    pub(crate) fn forget_mark(&mut self) {
        self.marked.set = false;
    }

    /// The peer has granted credits in a message that is no reply to a call.
    pub(crate) fn handle_grant(&mut self, credits: u32) {
        self.credits.handle_grant(credits);
    }

    /// Credits that are asked for.
    pub(crate) fn asked(&self) -> u32 {
        self.credits.asked()
    }

    /// Credits in force.
    pub(crate) fn credits(&self) -> u32 {
        self.credits.in_force()
    }

    /// The upper layer knows that the peer is ready for calls.
    pub(crate) fn handle_ready(&mut self) {
        self.ready = true;
    }

    /// Calls that can be sent now, as far as credits go.
    pub(crate) fn room(&self, need: Need) -> usize {
        match self.ready {
            true => self.credits.room(need) as usize,
            false => 0,
        }
    }

    /// Whether a call with this XID has no reply yet.
    pub(crate) fn awaits(&self, xid: u32) -> bool {
        self.xids.get(xid).is_some()
    }

    /// Calls that are not over yet, cancelled ones included.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Regions that the peer can reach.
    pub(crate) fn exposed(&self) -> usize {
        self.exposed
    }

    /// When the call was sent that is on its way for the longest time, cancelled ones included.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.calls.iter().map(|(_, call)| call.sent).min()
    }

    pub(crate) fn call(
        &mut self,
        now: Instant,
        link: &mut Link,
        mut request: CallRequest,
        qp: &mut dyn QueuePair,
    ) -> Called {
        // Neither is a matter of waiting.
        let refused = match (self.credits.asked(), self.ready) {
            (0, _) => Some("this end has no credits to ask for"),
            (1.., false) => Some("the peer is not ready for calls (RFC 8167 §6)"),
            (1.., true) => self.never,
        };
        if let Some(why) = refused {
            return Called::Failed(request.token, TransportError::Refused(why));
        }
        let sizes = request.sizes();
        let limits = PlanLimits {
            layout: link.layout,
            send: link.send_limit,
            receive: link.reply_limit,
            max_chunk: link.max_chunk,
            max_segment: link.max_segment,
            regions: link.limits.regions - self.persistent.most(),
            chunks: self.chunks,
            mixed_long: self.mixed_long,
        };
        let plan = match CallPlan::new(&sizes, &request.bound, &limits) {
            Ok(plan) => plan,
            Err(error) => return Called::Failed(request.token, error),
        };
        let regions = plan.regions();
        let exposed = self.exposed + self.persistent.made();
        if self.room(request.need) == 0 || exposed + regions > link.limits.regions {
            link.counters.credit_waits += 1;
            return Called::NoRoom(request);
        }
        let entry = self.calls.vacant_entry();
        let key = u32::try_from(entry.key()).expect("calls are limited by credits");
        if !self.xids.insert(request.xid, key) {
            let error = TransportError::Refused("a call with the same XID is on its way");
            return Called::Failed(request.token, error);
        }
        let offered = match plan.is_plain() {
            true => Ok(Offered::default()),
            false => offer(&plan, &mut request, link, &mut self.persistent, qp),
        };
        let Offered {
            lists,
            regions,
            lent,
        } = match offered {
            Ok(offered) => offered,
            Err(error) => {
                self.xids.remove(request.xid);
                // A connection that is over registers nothing, and says itself why it is over.
                if !matches!(error, RegisterError::Closed(_)) {
                    link.fail(Violation::NotRegistered);
                }
                return Called::NoRoom(request);
            }
        };
        self.exposed += regions.len();
        self.credits.spend();
        link.for_replies = self.credits.used() as usize;
        link.post_receives();
        link.counters.calls_sent += 1;
        let proc = match plan.form {
            CallForm::Short | CallForm::Chunked => header::procedure::MSG,
            CallForm::Long => header::procedure::NOMSG,
        };
        let mut buffer = link.send_buffer();
        let asked = self.credits.asked();
        let contents = Contents {
            proc,
            direction: Direction::Call,
            invalidate: may_go(link, &plan, &sizes, &lists, &regions),
            lists,
        };
        let offered = link.layout.emit(&mut buffer, request.xid, asked, contents);
        let rest = match plan.form {
            CallForm::Short | CallForm::Chunked => {
                request.message.put_inline(&mut buffer, &plan.moved)
            }
            CallForm::Long => Gather::new(),
        };
        link.posts.push(WorkRequest::Send {
            wr: Purpose::Call.wr(),
            buffer,
            rest,
            invalidate: None,
        });
        entry.insert(Call {
            request,
            epoch: self.marked.epoch,
            sent: now,
            offered,
            regions,
            lent,
            cancelled: false,
            state: State::Awaiting,
        });
        Called::Sent
    }

    /// Nobody waits for this call any more. It keeps its credit and its memory until its reply:
    /// the peer does not know, and may still reach the memory (RFC 8166 §4.4.1). So there are no
    /// more of these than credits, and none is older than [`oldest`](Self::oldest).
    pub(crate) fn cancel(&mut self, link: &mut Link, xid: u32, token: CallToken) {
        let Some(key) = self.xids.get(xid) else {
            return;
        };
        let call = &mut self.calls[key as usize];
        if call.request.token != token || call.cancelled {
            return;
        }
        call.cancelled = true;
        link.counters.cancelled += 1;
    }

    /// An error that ends a call, with the handle that the peer took along.
    pub(crate) fn handle_refused(
        &mut self,
        link: &mut Link,
        xid: u32,
        error: TransportError,
        invalidated: Option<Invalidated>,
    ) {
        let Some(key) = self.xids.get(xid) else {
            link.counters.unknown_replies += 1;
            refuse_invalidation(link, invalidated);
            return;
        };
        if self.take_back(link, key, invalidated) {
            link.counters.errors_received += 1;
            self.answered(link, key, Outcome::Failed(error));
        }
    }

    /// A message that answers a call, with the handle that the peer took along.
    pub(crate) fn handle_reply(
        &mut self,
        link: &mut Link,
        header: Header,
        message: Buffer,
        stream: usize,
        invalidated: Option<Invalidated>,
    ) {
        let Some(key) = self.xids.get(header.xid) else {
            link.counters.unknown_replies += 1;
            refuse_invalidation(link, invalidated);
            return;
        };
        if !self.take_back(link, key, invalidated) {
            return;
        }
        let call = &mut self.calls[key as usize];
        let credits = header.credits;
        let outcome = judge(&call.offered, header, message, stream);
        match &outcome {
            Outcome::Inline { .. } | Outcome::InReplyChunk { .. } => {
                link.counters.replies_received += 1;
                self.credits.handle_grant(credits);
            }
            Outcome::Failed(TransportError::Refused(_)) => link.counters.errors_received += 1,
            Outcome::Failed(_) => link.counters.bad_replies += 1,
        }
        self.answered(link, key, outcome);
    }

    /// Takes back the handle that came with a reply to the call `key`; false if the peer must not have
    /// done that.
    ///
    /// In version one it does not matter whether the peer set R itself: a Linux server never does,
    /// and invalidates.
    fn take_back(&mut self, link: &mut Link, key: u32, invalidated: Option<Invalidated>) -> bool {
        let Some(Invalidated { handle, memory }) = invalidated else {
            return true;
        };
        if link.accepts == Accepts::Nothing {
            link.fail(Violation::UnwantedInvalidation(handle));
            return false;
        }
        let of_call = region(&mut self.calls[key as usize], handle);
        let region = match (of_call, link.accepts) {
            (Some(region), _) => Some(region),
            (None, Accepts::OfAnyCall) => {
                let found = spare_region(&mut self.calls, handle);
                link.counters.remote_invalidations_inter_call += u64::from(found.is_some());
                found
            }
            (None, Accepts::OfCall | Accepts::Nothing) => None,
        };
        let Some(region) = region else {
            link.fail(Violation::ForeignHandle(handle));
            return false;
        };
        region.back = Some(memory);
        self.exposed -= 1;
        link.counters.remote_invalidations += 1;
        if link.layout == Layout::One && !link.peer.remote_invalidation {
            link.counters.remote_invalidations_without_r += 1;
        }
        true
    }

    /// The reply is here: the credit is free again, and what is still exposed is invalidated.
    fn answered(&mut self, link: &mut Link, key: u32, outcome: Outcome) {
        self.credits.give_back();
        link.for_replies = self.credits.used() as usize;
        let xid = self.calls[key as usize].request.xid;
        // A peer that answers a call before it was sent will not get it: its handles are about to die.
        self.held.retain(|send| !is_of(send, xid));
        link.posts.forget(|send| is_of(send, xid));
        self.keep_to_grant(link);
        let call = &mut self.calls[key as usize];
        self.xids.remove(call.request.xid);
        self.persistent.give_back(std::mem::take(&mut call.lent));
        self.marked.left -= usize::from(call.epoch != self.marked.epoch);
        let mut left = 0;
        for region in &call.regions {
            if region.back.is_none() {
                left += 1;
                link.counters.local_invalidations += 1;
                link.posts.push(WorkRequest::Invalidate {
                    wr: Purpose::Invalidate { call: key }.wr(),
                    handle: region.handle,
                });
            }
        }
        if left == 0 {
            self.finish(link, key, outcome);
        } else {
            call.state = State::Invalidating { left, outcome };
        }
    }

    /// RFC 8166 §3.3.1: a grant that was lowered counts for calls too that wait to be posted.
    fn keep_to_grant(&mut self, link: &mut Link) {
        let most = self.credits.in_force() as usize;
        let mut out = (self.credits.used() as usize).saturating_sub(self.held.len());
        while out > most
            && let Some(send) = link.posts.recall()
        {
            self.held.push_front(send);
            out -= 1;
        }
        while out < most
            && let Some(send) = self.held.pop_front()
        {
            link.posts.push(send);
            out += 1;
        }
    }

    /// A handle of ours is dead.
    pub(crate) fn handle_invalidated(
        &mut self,
        link: &mut Link,
        key: u32,
        invalidated: Invalidated,
    ) {
        let call = &mut self.calls[key as usize];
        let region = region(call, invalidated.handle)
            .expect("a provider invalidates the handle that was named");
        region.back = Some(invalidated.memory);
        self.exposed -= 1;
        let State::Invalidating { left, .. } = &mut call.state else {
            unreachable!("handles are invalidated once the reply is here");
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        match std::mem::replace(&mut call.state, State::Awaiting) {
            State::Invalidating { outcome, .. } => self.finish(link, key, outcome),
            State::Awaiting => unreachable!("looked at just now"),
        }
    }

    /// RFC 8166 §4.4.1: no handle of the call is exposed any more, so its caller may see the data.
    fn finish(&mut self, link: &mut Link, key: u32, outcome: Outcome) {
        // What is large of a call is dropped where it is.
        let call = &mut self.calls[key as usize];
        if !call.cancelled {
            let regions = std::mem::take(&mut call.regions);
            let reply = assemble(link, call.request.xid, regions, outcome);
            link.events.push_back(Event::Reply {
                token: call.request.token,
                reply,
            });
        }
        self.calls.remove(key as usize);
    }

    /// The connection is over: what becomes of the calls that had no end, with one more loss if that
    /// counts. Cancelled ones are forgotten, as all handles died with the connection.
    pub(crate) fn into_unfinished(self, link: &mut Link, counts: bool) -> Vec<Unfinished> {
        // A look whether the peer is there is nobody's call.
        let is_call = |call: &&Call| call.request.need == Need::Call;
        let calls = self.calls.iter().map(|(_, call)| call);
        let alone = calls.filter(is_call).count() == 1;
        let calls = self.calls.into_iter().map(|(_, call)| call);
        let calls = calls.filter(|call| !call.cancelled);
        calls
            .map(|call| {
                let mut request = call.request;
                match call.state {
                    // It must not be executed once more only because a handle was still exposed.
                    State::Invalidating { outcome, .. } if outcome.is_whole(&call.regions) => {
                        let reply = assemble(link, request.xid, call.regions, outcome);
                        Unfinished::Ended(request.token, reply)
                    }
                    State::Awaiting | State::Invalidating { .. } => {
                        request.losses += u32::from(counts);
                        request.losses_alone += u32::from(counts && alone);
                        Unfinished::Again(request)
                    }
                }
            })
            .collect()
    }
}

/// Whether it is the Send of the call with this XID, which is its first word in either version.
fn is_of(work: &WorkRequest, xid: u32) -> bool {
    let call = Purpose::Call.wr();
    match work {
        WorkRequest::Send { wr, buffer, .. } => {
            *wr == call && buffer.starts_with(&xid.to_be_bytes())
        }
        WorkRequest::Receive { .. }
        | WorkRequest::Write { .. }
        | WorkRequest::Read { .. }
        | WorkRequest::Invalidate { .. } => false,
    }
}

/// Registers what the plan offers.
fn offer(
    plan: &CallPlan,
    request: &mut CallRequest,
    link: &mut Link,
    persistent: &mut PersistentPool,
    qp: &mut dyn QueuePair,
) -> Result<Offered, RegisterError> {
    let Offered {
        mut lists,
        mut regions,
        mut lent,
    } = Offered::default();
    let counters = &mut link.counters;
    let mut arguments: SmallVec<[(usize, Gather); 1]> = SmallVec::new();
    if plan.form == CallForm::Long {
        arguments.push((0, request.message.freeze(&plan.moved)));
    }
    if !plan.moved.is_empty() {
        let items = request.message.items().enumerate();
        let moved = items.filter(|(index, _)| plan.moved.contains(index));
        arguments.extend(moved.map(|(_, (position, data))| (position, data.clone())));
    }
    for (position, data) in arguments {
        let len = buffer::gather_len(&data);
        let at = match persistent.lend(&data, qp)? {
            Some(at) => {
                lent.push(at);
                at
            }
            None => {
                let at = qp.register(Memory::Source(data))?;
                regions.push(Region::new(at.handle, RegionUse::Argument));
                at
            }
        };
        lists.reads.push(ReadChunk {
            position: u32::try_from(position).expect("the plan limits messages"),
            segments: segments(at, len, link.max_segment),
        });
        counters.read_chunks_offered += 1;
        counters.read_octets_offered += len as u64;
    }
    for (index, &len) in plan.write_chunks.iter().enumerate() {
        // A result that is always empty has an empty Write chunk (RFC 8166 §4.3.2.3).
        let segments = match len {
            0 => Segments::new(),
            _ => {
                let sink = sink(&link.pool, &link.limits, len);
                let at = qp.register(Memory::Sink(sink))?;
                regions.push(Region::new(at.handle, RegionUse::Result(index)));
                segments(at, len, link.max_segment)
            }
        };
        lists.writes.push(WriteChunk { segments });
        counters.write_chunks_offered += 1;
    }
    if let Some(len) = plan.reply_chunk {
        let sink = sink(&link.pool, &link.limits, len);
        let at = qp.register(Memory::Sink(sink))?;
        regions.push(Region::new(at.handle, RegionUse::Reply));
        let segments = segments(at, len, link.max_segment);
        lists.reply = Some(WriteChunk { segments });
        counters.reply_chunks_offered += 1;
    }
    Ok(Offered {
        lists,
        regions,
        lent,
    })
}

/// Memory for `len` octets to be written into. That of the pool may be larger than was asked for,
/// and the whole of it becomes a region.
fn sink(pool: &Pool, limits: &Limits, len: usize) -> Buffer {
    let buffer = pool.take(len);
    if buffer.capacity() > limits.max_region {
        return Buffer::with_capacity(len);
    }
    buffer
}

fn segments(at: RemoteAddress, len: usize, max_segment: usize) -> Segments {
    let starts = (0..len).step_by(max_segment);
    starts
        .map(|start| Segment {
            handle: at.handle,
            length: u32::try_from(max_segment.min(len - start)).expect("chunks are limited"),
            offset: at.offset + start as u64,
        })
        .collect()
}

fn region(call: &mut Call, handle: Handle) -> Option<&mut Region> {
    let exposed = |region: &&mut Region| region.handle == handle && region.back.is_none();
    call.regions.iter_mut().find(exposed)
}

/// The region with this handle that a call without a reply offers to be read.
fn spare_region(calls: &mut Slab<Call>, handle: Handle) -> Option<&mut Region> {
    let waiting = calls.iter_mut().map(|(_, call)| call);
    let waiting = waiting.filter(|call| matches!(call.state, State::Awaiting));
    let region = waiting.filter_map(|call| region(call, handle)).next()?;
    (region.used_as == RegionUse::Argument).then_some(region)
}

/// What a call says about which of its handles may go, where it has a word for that.
fn may_go(
    link: &Link,
    plan: &CallPlan,
    sizes: &CallSizes,
    lists: &Lists,
    regions: &[Region],
) -> Invalidate {
    let able = link.limits.remote_invalidation == Invalidation::Region;
    match link.layout.nothing_to_invalidate() {
        // reminv §5.2: the largest may be worth most. One that stays is not among them, as it must
        // not go.
        Invalidate::One(_) if able => {
            let octets = |region: &&Region| invalidation::octets_of(lists, region.handle);
            Invalidate::One(
                regions
                    .iter()
                    .max_by_key(octets)
                    .map(|region| region.handle),
            )
        }
        Invalidate::Several(_) if able => {
            let sent = link.layout.len_of(lists) + plan.inline(sizes);
            let room = link.send_limit.saturating_sub(sent);
            let most = MAX_INVALIDATE_HANDLES.min(room / size_of::<u32>());
            Invalidate::Several(
                regions
                    .iter()
                    .take(most)
                    .map(|region| region.handle)
                    .collect(),
            )
        }
        other => other,
    }
}

/// A message that answers no call of ours must not invalidate anything.
pub(crate) fn refuse_invalidation(link: &mut Link, invalidated: Option<Invalidated>) {
    if let Some(Invalidated { handle, .. }) = invalidated {
        link.fail(Violation::ForeignHandle(handle));
    }
}
