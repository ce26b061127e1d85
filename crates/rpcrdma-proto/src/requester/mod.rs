//! The Requester role.

mod offer;
mod outcome;
mod sending;

use self::outcome::{Outcome, Region, RegionUse, Regions, assemble, exposed, judge, take_back};
use crate::agreed::OurCalls;
use crate::codec::{PeerError, PlainHeader, Rpc};
use crate::event::Violation;
use crate::flow::Need;
use crate::invalidation::persistent::PersistentPool;
use crate::invalidation::rule::Accepts;
use crate::limits::MAX_CONTROL_MESSAGES;
use crate::message::CallRequest;
use crate::owner::Owner;
use crate::plan::CallPlan;
use crate::shared::Shared;
use crate::version::Version;
use crate::wire::direction::{REPLY, prefix};
use crate::wire::header::Lists;
use crate::work::Purpose;
use crate::xid::XidTable;
use buffer::Buffer;
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use verbs::{Handle, Invalidated, RemoteAddress, WorkRequest};

/// A call that this connection cannot carry.
#[derive(Debug)]
pub struct FailedCall<C> {
    /// The owner's value for the call.
    pub call: C,
    /// The reason.
    pub error: TransportError,
}

/// A call that was not finished when its connection ended.
#[derive(Debug)]
pub enum Unfinished<C> {
    /// The call can be sent again on another connection.
    Again(CallRequest<C>),
    /// The reply had arrived; only memory that it does not need was still exposed.
    Ended(C, Result<Payload, TransportError>),
}

/// Calls of this end on one connection.
#[derive(Debug)]
pub(crate) struct Requester<O: Owner> {
    /// Whether the peer is ready for calls (RFC 8167 §6).
    ready: bool,
    /// Calls in flight since before the mark.
    marked: Marked,
    /// Handles exposed to the peer, persistent ones not counted.
    exposed: usize,
    persistent: PersistentPool,
    calls: Slab<Call<O::Call>>,
    /// Calls that wait for a credit or for regions, in order. Calls with a recalled Send come
    /// first.
    waiting: VecDeque<u32>,
    /// Calls in `waiting` whose Send was recalled.
    recalled: usize,
    /// Calls in flight.
    xids: XidTable,
    /// XIDs of messages of this end that are not calls, and have no answer yet.
    reserved: SmallVec<[u32; MAX_CONTROL_MESSAGES]>,
    /// Time of the last call by the owner.
    now: Option<Instant>,
    /// Set when the owner is about to close the connection: unsent calls are not sent any more.
    withheld: bool,
}

/// A mark in time that separates the calls sent before and after it.
#[derive(Debug, Default)]
struct Marked {
    /// Epoch of calls sent now.
    epoch: u32,
    set: bool,
    left: usize,
}

/// The slot of a call, with all of its state.
#[derive(Debug)]
struct Call<C> {
    /// The request; without the owner's value once the call is cancelled.
    request: CallRequest<C>,
    /// Epoch in which the call was sent.
    epoch: u32,
    /// Sends of the call, if it went in several parts.
    parts: u32,
    /// Send time, or the time of the call's arrival before that.
    sent: Instant,
    /// Chunks that it offers, if any. Small calls have none, and are moved here and away without room for them.
    offered: Option<Box<Offered>>,
    state: State,
}

/// Chunks of a call, and the memory behind them.
#[derive(Debug, Default)]
struct Offered {
    lists: Lists,
    regions: Regions,
    /// Persistent regions that hold its arguments.
    lent: SmallVec<[RemoteAddress; 1]>,
}

#[derive(Debug)]
enum State {
    /// The call waits to be sent. The plan was made under these [terms](Shared::terms); there is
    /// none before the version is settled.
    Waiting {
        plan: Option<Box<CallPlan>>,
        terms: u32,
    },
    /// The call has its credit, but its Send was not posted when the grant was lowered, and is kept
    /// here.
    Recalled(Box<WorkRequest>),
    /// The call waits for its reply.
    Awaiting,
    /// The reply has arrived; some of the call's memory is still exposed.
    Invalidating { left: usize, outcome: Box<Outcome> },
}

/// A received reply, with the handle that the peer invalidated.
pub(crate) struct NewReply {
    pub(crate) xid: u32,
    pub(crate) granted: u32,
    pub(crate) header: Rpc,
    pub(crate) message: Buffer,
    /// Offset of the Payload stream in the message.
    pub(crate) stream: usize,
    pub(crate) invalidated: Option<Invalidated>,
}

impl<O: Owner> Requester<O> {
    /// Creates a Requester that requests `credits` credits.
    pub(crate) fn new(credits: u32, ready: bool, persistent: PersistentPool) -> Self {
        Self {
            xids: XidTable::new(credits as usize),
            reserved: SmallVec::new(),
            ready,
            marked: Marked::default(),
            exposed: 0,
            persistent,
            calls: Slab::new(),
            waiting: VecDeque::new(),
            recalled: 0,
            now: None,
            withheld: false,
        }
    }

    /// Whether recalled Sends wait, which were encoded for the peer's message size of that time.
    pub(crate) fn has_recalled(&self) -> bool {
        self.recalled > 0
    }

    /// Marks the calls in flight, to distinguish them from later ones, until
    /// [`forget_mark`](Self::forget_mark).
    pub(crate) fn mark(&mut self, shared: &Shared<O>) {
        if !self.marked.set {
            self.marked = Marked {
                epoch: self.marked.epoch.wrapping_add(1),
                set: true,
                left: shared.flow.in_flight(),
            };
        }
    }

    /// Returns the number of marked calls without a reply.
    pub(crate) fn marked(&self) -> usize {
        self.marked.left
    }

    /// Removes the mark.
    pub(crate) fn forget_mark(&mut self) {
        self.marked.set = false;
    }

    /// Declares that the peer is ready for calls.
    pub(crate) fn handle_ready(&mut self) {
        self.ready = true;
    }

    /// Returns how many calls have a credit now; zero while calls wait.
    pub(crate) fn room(&self, shared: &Shared<O>) -> usize {
        match self.waiting.is_empty() {
            true => self.credits_for(shared, Need::Call),
            false => 0,
        }
    }

    /// Returns the credits available to a call with this need. A connection that is about to close
    /// has none, because regions of a call registered until then may not be all that it needs.
    pub(crate) fn credits_for(&self, shared: &Shared<O>, need: Need) -> usize {
        match shared.agreed.our_calls {
            _ if self.withheld || shared.violation.is_some() => 0,
            OurCalls::Unsettled => 0,
            OurCalls::Never(_) | OurCalls::Sent(_) if !self.ready => 0,
            OurCalls::Never(_) | OurCalls::Sent(_) => shared.flow.room(need, shared.posts.sends()),
        }
    }

    /// Returns the number of calls that wait for a credit or for regions.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len() - self.recalled
    }

    /// Whether a call with this XID waits for its reply.
    pub(crate) fn awaits(&self, xid: u32) -> bool {
        self.xids.get(xid).is_some()
    }

    /// Whether a call in flight or another message without an answer has this XID.
    pub(crate) fn uses(&self, xid: u32) -> bool {
        self.awaits(xid) || self.reserved.contains(&xid)
    }

    /// Sets the XIDs of this end's messages that are not calls. A call with one of them waits until
    /// that message is answered.
    pub(crate) fn reserve_xids(&mut self, xids: impl Iterator<Item = u32>) {
        self.reserved.clear();
        self.reserved.extend(xids);
    }

    /// Whether a message that no caller asked for has this XID: a control message, or a liveness
    /// probe. A caller may have chosen the same XID.
    fn is_own(&self, xid: u32) -> bool {
        let probe = |index: u32| self.calls[index as usize].request.need == Need::HealthCheck;
        self.reserved.contains(&xid) || self.xids.get(xid).is_some_and(probe)
    }

    /// Returns the number of unfinished calls, cancelled ones included.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of regions that the peer can access.
    pub(crate) fn exposed(&self) -> usize {
        self.exposed
    }

    /// Returns the send time of the oldest outstanding call, cancelled ones included.
    pub(crate) fn oldest(&self, shared: &Shared<O>) -> Option<Instant> {
        self.sent(shared).map(|call| call.sent).min()
    }

    /// Returns the exceeded time limit if a sent call is overdue, cancelled ones included. Calls
    /// without their own limit have `usual`.
    pub(crate) fn overdue(
        &self,
        shared: &Shared<O>,
        now: Instant,
        usual: Duration,
    ) -> Option<Duration> {
        let own = self.sent(shared).filter_map(|call| call.request.limit);
        let longest = own.fold(usual, Duration::max);
        (now >= self.oldest(shared)? + longest).then_some(longest)
    }

    /// Returns the calls that wait for the peer: those that were sent, and if it accepts none, those
    /// that would be.
    fn sent(&self, shared: &Shared<O>) -> impl Iterator<Item = &Call<O::Call>> {
        let starved = shared.flow.is_starved();
        let calls = self.calls.iter().map(|(_, call)| call);
        calls.filter(move |call| starved || !call.is_unsent())
    }

    /// Stops sending calls, because the connection is about to close: their callers may be told
    /// that they failed, so they must not be executed.
    pub(crate) fn withhold(&mut self, shared: &mut Shared<O>) {
        self.withheld = true;
        while self.recall(shared) {}
        self.recall_parts(shared);
    }

    /// Takes back calls in parts of which none was posted: they wait again, without a credit.
    fn recall_parts(&mut self, shared: &mut Shared<O>) {
        for (index, call) in &mut self.calls {
            let xid = call.request.xid;
            let is_part = |work: &WorkRequest| part_of(work) == Some(xid);
            // One that was answered before its parts went has given its credit back.
            let awaits = matches!(call.state, State::Awaiting);
            if !awaits || call.parts == 0 || shared.posts.count(is_part) < call.parts as usize {
                continue;
            }
            while shared.posts.forget(is_part) {}
            self.xids.remove(xid);
            shared.flow.handle_call_answered();
            call.parts = 0;
            let terms = shared.terms;
            call.state = State::Waiting { plan: None, terms };
            let index = u32::try_from(index).expect("calls are limited by memory");
            self.waiting.push_back(index);
        }
    }

    /// Returns the owner's values of unfinished calls that were not cancelled.
    pub(crate) fn values(&self) -> impl Iterator<Item = &O::Call> {
        let requests = self.calls.iter().map(|(_, call)| &call.request);
        requests.filter_map(|request| request.call.as_ref())
    }

    /// Cancels the calls that `is_unwanted` selects, and returns their number. An unsent call ends
    /// at once.
    ///
    /// A sent call keeps its credit and memory until its reply: the peer does not know of the
    /// cancellation, and may still access the memory (RFC 8166 §4.4.1). So there are no more of
    /// these than credits, and none is older than [`oldest`](Self::oldest). A call whose reply has
    /// arrived ends as usual.
    pub(crate) fn cancel(
        &mut self,
        shared: &mut Shared<O>,
        mut is_unwanted: impl FnMut(&O::Call) -> bool,
    ) -> usize {
        let mut cancelled: SmallVec<[u32; 4]> = SmallVec::new();
        for (index, call) in &mut self.calls {
            let has_reply = matches!(call.state, State::Invalidating { .. });
            let value = &mut call.request.call;
            if !has_reply && value.take_if(|value| is_unwanted(value)).is_some() {
                cancelled.push(u32::try_from(index).expect("calls are limited by memory"));
            }
        }
        shared.counters.cancelled += cancelled.len() as u64;
        for &index in &cancelled {
            self.end_unless_sent(shared, index);
        }
        cancelled.len()
    }

    /// Ends a cancelled call that was not sent.
    fn end_unless_sent(&mut self, shared: &mut Shared<O>, index: u32) {
        let call = &self.calls[index as usize];
        let xid = call.request.xid;
        let has_credit = match call.state {
            State::Waiting { .. } => false,
            State::Recalled(_) => true,
            State::Awaiting if shared.posts.forget(|send| xid_of(send) == Some(xid)) => true,
            State::Awaiting | State::Invalidating { .. } => return,
        };
        if has_credit {
            // It has handles too, which the peer has never heard of.
            let nobody = TransportError::Refused("nobody waits for it");
            self.answered(shared, index, Outcome::Failed(nobody));
        } else {
            self.waiting.retain(|&other| other != index);
            self.calls.remove(index as usize);
        }
    }

    /// Handles an error that ends a call, with the handle that the peer invalidated.
    pub(crate) fn handle_refused(
        &mut self,
        shared: &mut Shared<O>,
        xid: u32,
        refusal: PeerError,
        invalidated: Option<Invalidated>,
    ) {
        let Some(key) = self.xids.get(xid) else {
            shared.counters.unknown_replies += 1;
            shared.refuse_invalidation(invalidated);
            return;
        };
        if self.take_back(shared, key, invalidated) {
            shared.counters.errors_received += 1;
            let error = TransportError::Refused(refusal.why);
            self.answered(shared, key, Outcome::Failed(error));
        }
    }

    /// Handles a reply to a call.
    pub(crate) fn handle_reply(&mut self, shared: &mut Shared<O>, reply: NewReply) {
        let NewReply {
            xid,
            granted,
            header,
            message,
            stream,
            invalidated,
        } = reply;
        let Some(key) = self.xids.get(xid) else {
            shared.counters.unknown_replies += 1;
            shared.refuse_invalidation(invalidated);
            return;
        };
        if !self.take_back(shared, key, invalidated) {
            return;
        }
        let call = &self.calls[key as usize];
        let outcome = judge(call.lists(), xid, &header, message, stream);
        match &outcome {
            Outcome::Inline { .. } | Outcome::InReplyChunk { .. } => {
                shared.counters.replies_received += 1;
                shared.flow.handle_grant(granted);
            }
            Outcome::Failed(_) => shared.counters.bad_replies += 1,
        }
        self.answered(shared, key, outcome);
    }

    /// Handles a valid reply whose call has no memory exposed: it has nothing to do with chunks, and its caller gets it at once.
    /// Any other goes back, for [`handle_reply`](Self::handle_reply) to judge.
    pub(crate) fn handle_plain_reply(
        &mut self,
        shared: &mut Shared<O>,
        header: PlainHeader,
        message: Buffer,
    ) -> Result<(), Buffer> {
        let PlainHeader { xid, stream, .. } = header;
        let Some(key) = self.xids.get(xid) else {
            return Err(message);
        };
        let has_regions = !self.calls[key as usize].regions().is_empty();
        if has_regions || prefix(&message[stream..]) != Some((xid, REPLY)) {
            return Err(message);
        }
        shared.flow.handle_message();
        shared.counters.replies_received += 1;
        shared.flow.handle_grant(header.credits);
        self.free(shared, key);
        let call = &mut self.calls[key as usize];
        if let Some(value) = call.request.call.take() {
            let reply = Payload::new(message, stream);
            shared.replies.push_back((value, Ok(reply)));
        }
        self.calls.remove(key as usize);
        Ok(())
    }

    /// Takes back the handles that a reply to the call `key` invalidated. Returns false if the peer
    /// was not permitted to do that. Each is judged by itself, whatever the others are.
    ///
    /// In version one it does not matter whether the peer set R: a Linux server never does, and
    /// invalidates.
    fn take_back(
        &mut self,
        shared: &mut Shared<O>,
        key: u32,
        invalidated: Option<Invalidated>,
    ) -> bool {
        let Some(Invalidated {
            handle,
            memory,
            also,
        }) = invalidated
        else {
            return true;
        };
        if shared.agreed.accepts == Accepts::Nothing {
            shared.fail(
                match shared.agreed.codec.version() == Version::One.number() {
                    true => Violation::UnwantedInvalidation(handle),
                    false => Violation::UnpermittedInvalidation(handle),
                },
            );
            return false;
        }
        // RFC 8797 §4.1: an STag that is associated only with the XID of the reply.
        let of_call = has_exposed(&self.calls[key as usize], handle);
        let regions = match (of_call, shared.agreed.accepts) {
            (true, _) => Some(self.calls[key as usize].regions_mut()),
            (false, Accepts::OfAnyCall) => {
                let found = spare_regions(&mut self.calls, handle);
                shared.counters.remote_invalidations_inter_call += u64::from(found.is_some());
                found
            }
            (false, Accepts::OfCall | Accepts::Nothing) => None,
        };
        if !regions.is_some_and(|regions| take_back(regions, handle, memory)) {
            shared.fail(Violation::ForeignHandle(handle));
            return false;
        }
        self.exposed -= 1;
        shared.counters.remote_invalidations += 1;
        if !shared.agreed.peer_announces {
            shared.counters.remote_invalidations_without_r += 1;
        }
        also.into_iter()
            .all(|other| self.take_back(shared, key, Some(other)))
    }

    /// Frees the credit and the XID of a call that has its reply.
    fn free(&mut self, shared: &mut Shared<O>, key: u32) {
        shared.flow.handle_call_answered();
        let call = &mut self.calls[key as usize];
        let xid = call.request.xid;
        self.marked.left -= usize::from(call.epoch != self.marked.epoch);
        if let Some(offered) = &mut call.offered {
            self.persistent.give_back(std::mem::take(&mut offered.lent));
        }
        // A peer that answers a call before it was sent will not get it: its handles are about to die.
        if let State::Recalled(_) = call.state {
            call.state = State::Awaiting;
            self.recalled -= 1;
            self.waiting.retain(|&index| index != key);
        }
        if shared.posts.sends() > 0 {
            shared.posts.forget(|send| xid_of(send) == Some(xid));
        }
        self.keep_to_grant(shared);
        self.xids.remove(xid);
    }

    /// Handles the reply of a call: frees the credit, and invalidates what is still exposed.
    fn answered(&mut self, shared: &mut Shared<O>, key: u32, outcome: Outcome) {
        self.free(shared, key);
        let call = &mut self.calls[key as usize];
        let mut left = 0;
        for handle in exposed(call.regions()) {
            left += 1;
            shared.counters.local_invalidations += 1;
            shared.posts.push(WorkRequest::Invalidate {
                wr: Purpose::Invalidate { call: key }.wr(),
                handle,
            });
        }
        if left == 0 {
            self.finish(shared, key, outcome);
        } else {
            let outcome = Box::new(outcome);
            call.state = State::Invalidating { left, outcome };
        }
    }

    /// RFC 8166 §3.3.1: applies a lowered grant to calls that wait to be posted.
    fn keep_to_grant(&mut self, shared: &mut Shared<O>) {
        let most = shared.flow.in_force() as usize;
        let mut out = shared.flow.in_flight().saturating_sub(self.recalled);
        while out > most && self.recall(shared) {
            out -= 1;
        }
        while out < most && self.recalled > 0 && !self.withheld {
            let index = self.waiting.pop_front().expect("it was recalled");
            let call = &mut self.calls[index as usize];
            let State::Recalled(send) = std::mem::replace(&mut call.state, State::Awaiting) else {
                unreachable!("recalled Sends are before calls that wait");
            };
            call.sent = self.now.unwrap_or(call.sent);
            shared.posts.push(*send);
            self.recalled -= 1;
            out += 1;
        }
    }

    /// Takes back the Send of a call that was not posted, the last one first. Returns false if
    /// there is none.
    fn recall(&mut self, shared: &mut Shared<O>) -> bool {
        let Some(send) = shared.posts.recall() else {
            return false;
        };
        let index = xid_of(&send).and_then(|xid| self.xids.get(xid));
        let index = index.expect("a call that is to be posted has no reply");
        self.calls[index as usize].state = State::Recalled(Box::new(send));
        self.waiting.push_front(index);
        self.recalled += 1;
        true
    }

    /// Handles the invalidation of a handle of this end.
    pub(crate) fn handle_invalidated(
        &mut self,
        shared: &mut Shared<O>,
        key: u32,
        invalidated: Invalidated,
    ) {
        let call = &mut self.calls[key as usize];
        let Invalidated { handle, memory, .. } = invalidated;
        let named = take_back(call.regions_mut(), handle, memory);
        assert!(named, "a provider invalidates the handle that was named");
        self.exposed -= 1;
        let State::Invalidating { left, .. } = &mut call.state else {
            unreachable!("handles are invalidated once the reply is here");
        };
        *left -= 1;
        if *left > 0 {
            return;
        }
        match std::mem::replace(&mut call.state, State::Awaiting) {
            State::Invalidating { outcome, .. } => self.finish(shared, key, *outcome),
            State::Waiting { .. } | State::Recalled(_) | State::Awaiting => {
                unreachable!("looked at just now")
            }
        }
    }

    /// Finishes a call. RFC 8166 §4.4.1: no handle of it is exposed any more, so its caller may see
    /// the data.
    fn finish(&mut self, shared: &mut Shared<O>, key: u32, outcome: Outcome) {
        // What is large of a call is dropped where it is.
        let call = &mut self.calls[key as usize];
        if let Some(value) = call.request.call.take() {
            let regions = call.take_regions();
            let reply = assemble(&mut shared.counters, call.request.xid, regions, outcome);
            shared.replies.push_back((value, reply));
        }
        self.calls.remove(key as usize);
    }

    /// Ends the state and returns the unfinished calls. If `counts`, sent calls have one more loss.
    /// Cancelled ones are dropped, as all handles are invalid with the end of the connection.
    pub(crate) fn into_unfinished(
        mut self,
        shared: &mut Shared<O>,
        counts: bool,
    ) -> Vec<Unfinished<O::Call>> {
        self.withhold(shared);
        // A look whether the peer is there is nobody's call.
        let may_have_broken =
            |call: &&Call<O::Call>| call.request.need == Need::Call && !call.is_unsent();
        let calls = self.calls.iter().map(|(_, call)| call);
        let alone = calls.filter(may_have_broken).count() == 1;
        let calls = self.calls.into_iter().map(|(_, call)| call);
        let calls = calls.filter(|call| !call.is_cancelled());
        let ended = std::mem::take(&mut shared.replies).into_iter();
        let ended = ended.map(|(call, reply)| Unfinished::Ended(call, reply));
        let unfinished = calls.map(|mut call| {
            let regions = call.take_regions();
            let mut request = call.request;
            match call.state {
                // It must not be executed once more only because a handle was still exposed.
                State::Invalidating { outcome, .. } if outcome.is_whole(&regions) => {
                    let reply = assemble(&mut shared.counters, request.xid, regions, *outcome);
                    Unfinished::Ended(request.into_call(), reply)
                }
                State::Waiting { .. } | State::Recalled(_) => Unfinished::Again(request),
                State::Awaiting | State::Invalidating { .. } => {
                    request.losses += u32::from(counts);
                    request.losses_alone += u32::from(counts && alone);
                    Unfinished::Again(request)
                }
            }
        });
        ended.chain(unfinished).collect()
    }
}

/// Chunks of a call that offers none.
const NO_LISTS: &Lists = &Lists {
    reads: Vec::new(),
    writes: Vec::new(),
    reply: None,
};

impl<C> Call<C> {
    fn new(request: CallRequest<C>, sent: Instant) -> Self {
        Self {
            request,
            epoch: 0,
            parts: 0,
            sent,
            offered: None,
            state: State::Awaiting,
        }
    }

    fn lists(&self) -> &Lists {
        match &self.offered {
            Some(offered) => &offered.lists,
            None => NO_LISTS,
        }
    }

    fn regions(&self) -> &[Region] {
        match &self.offered {
            Some(offered) => &offered.regions,
            None => &[],
        }
    }

    fn regions_mut(&mut self) -> &mut [Region] {
        match &mut self.offered {
            Some(offered) => &mut offered.regions,
            None => &mut [],
        }
    }

    fn take_regions(&mut self) -> Regions {
        let offered = self.offered.as_mut();
        offered.map_or_else(Regions::new, |offered| std::mem::take(&mut offered.regions))
    }

    /// Whether the peer has not seen the call.
    fn is_unsent(&self) -> bool {
        matches!(self.state, State::Waiting { .. } | State::Recalled(_))
    }

    fn is_cancelled(&self) -> bool {
        self.request.call.is_none()
    }
}

/// Returns the XID of the call in a Send: the first word in either version.
fn xid_of(work: &WorkRequest) -> Option<u32> {
    match work {
        WorkRequest::Send { wr, buffer, .. } if *wr == Purpose::Call.wr() => {
            buffer.first_chunk().copied().map(u32::from_be_bytes)
        }
        WorkRequest::Send { .. }
        | WorkRequest::Receive { .. }
        | WorkRequest::Write { .. }
        | WorkRequest::Read { .. }
        | WorkRequest::Invalidate { .. } => None,
    }
}

/// Returns the XID of the call of which a Send is a part.
fn part_of(work: &WorkRequest) -> Option<u32> {
    match work {
        WorkRequest::Send { wr, buffer, .. } if *wr == Purpose::CallPart.wr() => {
            buffer.first_chunk().copied().map(u32::from_be_bytes)
        }
        _ => None,
    }
}

fn has_exposed<C>(call: &Call<C>, handle: Handle) -> bool {
    exposed(call.regions()).any(|other| other == handle)
}

/// Returns the regions of a call without a reply that offers this handle for reading, and for
/// nothing else.
fn spare_regions<C>(calls: &mut Slab<Call<C>>, handle: Handle) -> Option<&mut [Region]> {
    let waiting = calls.iter_mut().map(|(_, call)| call);
    let mut waiting = waiting.filter(|call| matches!(call.state, State::Awaiting));
    let regions = waiting
        .find(|call| has_exposed(call, handle))?
        .regions_mut();
    let mut of_handle = regions.iter().filter(|region| region.handle == handle);
    let is_read = of_handle.all(|region| region.used_as == RegionUse::Argument);
    is_read.then_some(regions)
}
