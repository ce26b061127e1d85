//! The Requester role.

mod outcome;

use self::outcome::{Outcome, Region, RegionUse, assemble, judge};
use crate::agreed::OurCalls;
use crate::codec::{Contents, Invalidate, PeerError, Rpc};
use crate::event::Violation;
use crate::flow::Need;
use crate::invalidation::persistent::PersistentPool;
use crate::invalidation::rule::{self, Accepts};
use crate::limits::MAX_INVALIDATE_HANDLES;
use crate::message::CallRequest;
use crate::owner::Owner;
use crate::plan::{CallForm, CallPlan, Chunks, PlanLimits};
use crate::shared::Shared;
use crate::wire::direction::Direction;
use crate::wire::header::{Lists, ReadChunk, Segments, WriteChunk, chunks_len_of};
use crate::work::Purpose;
use crate::xid::XidTable;
use buffer::{Buffer, Gather, Pool};
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use verbs::{
    Handle, Invalidated, Invalidation, Limits, Memory, QueuePair, RegisterError, RemoteAddress,
    Segment, WorkRequest,
};

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

/// The calls of ours on one connection.
#[derive(Debug)]
pub(crate) struct Requester<O: Owner> {
    /// Whether the peer is ready for calls (RFC 8167 §6).
    ready: bool,
    /// Calls that were in flight when the mark was set, and still are.
    marked: Marked,
    /// Regions exposed to the peer, but for those that stay.
    exposed: usize,
    persistent: PersistentPool,
    calls: Slab<Call<O::Call>>,
    /// Calls that wait for a credit or for regions, in the order in which they were handed in, and
    /// before them those whose Send was recalled.
    waiting: VecDeque<u32>,
    /// Calls in `waiting` whose Send was recalled.
    recalled: usize,
    /// Calls in flight.
    xids: XidTable,
    /// The time that the owner told last.
    now: Option<Instant>,
    /// The owner ends the connection: no call that has not gone out goes out any more.
    withheld: bool,
}

/// A mark between the calls that were sent before it and those after it.
#[derive(Debug, Default)]
struct Marked {
    /// Of calls that are sent now.
    epoch: u32,
    set: bool,
    left: usize,
}

/// The slot of a call: all there is to know of it until its end.
#[derive(Debug)]
struct Call<C> {
    /// Without a value of the owner's once the call was cancelled.
    request: CallRequest<C>,
    /// Between which marks it was sent.
    epoch: u32,
    /// When it was sent, or handed in.
    sent: Instant,
    offered: Lists,
    regions: Vec<Region>,
    /// Persistent regions that its arguments are in.
    lent: SmallVec<[RemoteAddress; 1]>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The call waits to be sent. The plan was made under these [terms](Shared::terms); there is
    /// none before the version is settled.
    Waiting { plan: Option<CallPlan>, terms: u32 },
    /// The call has its credit, but its Send was not posted when the grant was lowered, and is kept
    /// here.
    Recalled(Box<WorkRequest>),
    /// The call waits for its reply.
    Awaiting,
    /// The reply has arrived; some of the call's memory is still exposed.
    Invalidating { left: usize, outcome: Outcome },
}

/// A reply as it came, with the handle that the peer took along.
pub(crate) struct NewReply {
    pub(crate) xid: u32,
    pub(crate) granted: u32,
    pub(crate) header: Rpc,
    pub(crate) message: Buffer,
    /// Where in the message the Payload stream begins.
    pub(crate) stream: usize,
    pub(crate) invalidated: Option<Invalidated>,
}

/// Why a call was not sent.
enum NotSent {
    /// The connection cannot carry the call.
    Never(TransportError),
    /// The provider did not register memory: the connection has ended or must end.
    NotRegistered,
}

impl<O: Owner> Requester<O> {
    /// A Requester that asks for so many credits.
    pub(crate) fn new(credits: u32, ready: bool, persistent: PersistentPool) -> Self {
        Self {
            xids: XidTable::new(credits as usize),
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

    /// Whether Sends wait that were made as large as the peer took messages then.
    pub(crate) fn has_recalled(&self) -> bool {
        self.recalled > 0
    }

    /// Tells the calls that are on their way now from those to come, until
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

    /// Calls that were on their way at the mark, and have no reply yet.
    pub(crate) fn marked(&self) -> usize {
        self.marked.left
    }

    /// The next mark is another one.
    pub(crate) fn forget_mark(&mut self) {
        self.marked.set = false;
    }

    /// The upper layer knows that the peer is ready for calls.
    pub(crate) fn handle_ready(&mut self) {
        self.ready = true;
    }

    /// Calls that can be sent now: as far as credits go, and none while others wait.
    pub(crate) fn room(&self, shared: &Shared<O>) -> usize {
        match self.waiting.is_empty() {
            true => self.credits_for(shared, Need::Call),
            false => 0,
        }
    }

    /// Credits that a call with this need can have now. A connection that is to end has none: what a call
    /// has registered on it until then may not be all that it offers.
    pub(crate) fn credits_for(&self, shared: &Shared<O>, need: Need) -> usize {
        match shared.agreed.our_calls {
            _ if self.withheld || shared.violation.is_some() => 0,
            OurCalls::Unsettled => 0,
            OurCalls::Never(_) | OurCalls::Sent(_) if !self.ready => 0,
            OurCalls::Never(_) | OurCalls::Sent(_) => shared.flow.room(need),
        }
    }

    /// Calls that wait for a credit or for regions.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len() - self.recalled
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

    /// Send time of our oldest outstanding call, cancelled ones included.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.sent().map(|call| call.sent).min()
    }

    /// How long any call that the peer has may take, cancelled ones included, if it has had one for
    /// longer. Calls without a limit of their own may take as long as is `usual`.
    pub(crate) fn overdue(&self, now: Instant, usual: Duration) -> Option<Duration> {
        let own = self.sent().filter_map(|call| call.request.limit);
        let longest = own.fold(usual, Duration::max);
        (now >= self.oldest()? + longest).then_some(longest)
    }

    /// The calls that the peer has, or had.
    fn sent(&self) -> impl Iterator<Item = &Call<O::Call>> {
        let calls = self.calls.iter().map(|(_, call)| call);
        calls.filter(|call| !call.is_unsent())
    }

    /// Keeps back the calls whose Send has not been handed out, since the connection is to end: whoever
    /// waits for them may hear that they failed, and then they must not be executed.
    pub(crate) fn withhold(&mut self, shared: &mut Shared<O>) {
        self.withheld = true;
        while self.recall(shared) {}
    }

    /// Takes a call, and sends it if there is a credit and room for its regions. Otherwise it waits,
    /// behind those that wait already.
    pub(crate) fn call(
        &mut self,
        now: Instant,
        shared: &mut Shared<O>,
        request: CallRequest<O::Call>,
        qp: &mut dyn QueuePair,
    ) -> Result<(), FailedCall<O::Call>> {
        self.now = Some(now);
        let plan = match self.plan(shared, &request) {
            Ok(plan) => plan,
            Err(error) => return Err(request.failed(error)),
        };
        let (terms, need) = (shared.terms, request.need);
        let goes = match &plan {
            // A look whether the peer is there does not wait for memory of others.
            Some(plan) if need == Need::HealthCheck || self.waiting.is_empty() => {
                self.has_room(shared, plan, need)
            }
            Some(_) | None => false,
        };
        let index = self.calls.insert(Call {
            request,
            epoch: 0,
            sent: now,
            offered: Lists::default(),
            regions: Vec::new(),
            lent: SmallVec::new(),
            state: State::Awaiting,
        });
        let index = u32::try_from(index).expect("calls are limited by memory");
        let plan = match plan {
            Some(plan) if goes => match self.send(now, shared, index, &plan, qp) {
                Ok(()) => return Ok(()),
                Err(NotSent::Never(error)) => {
                    let call = self.calls.remove(index as usize);
                    return Err(call.request.failed(error));
                }
                Err(NotSent::NotRegistered) => Some(plan),
            },
            plan => plan,
        };
        match (&plan, self.credits_for(shared, need)) {
            (None, _) => {}
            (Some(_), 0) => shared.counters.credit_waits += 1,
            (Some(_), 1..) => shared.counters.region_waits += 1,
        }
        self.calls[index as usize].state = State::Waiting { plan, terms };
        self.waiting.push_back(index);
        Ok(())
    }

    /// The plan for a call; none as long as it is not settled what is spoken. An error if waiting does
    /// not help.
    fn plan(
        &self,
        shared: &Shared<O>,
        request: &CallRequest<O::Call>,
    ) -> Result<Option<CallPlan>, TransportError> {
        let refused = |why| Err(TransportError::Refused(why));
        let chunks = match (shared.flow.asked(), self.ready, shared.agreed.our_calls) {
            (0, ..) => return refused("this end has no credits to ask for"),
            (1.., false, _) => return refused("the peer is not ready for calls (RFC 8167 §6)"),
            (1.., true, OurCalls::Never(why)) => return refused(why),
            (1.., true, OurCalls::Unsettled) => return Ok(None),
            (1.., true, OurCalls::Sent(chunks)) => chunks,
        };
        let limits = self.limits(shared, chunks);
        CallPlan::new(&request.sizes(), &request.bound, &limits).map(Some)
    }

    fn limits(&self, shared: &Shared<O>, chunks: Chunks) -> PlanLimits {
        PlanLimits {
            header: shared.agreed.codec.plain_len(),
            send: shared.agreed.sizes.send,
            receive: shared.agreed.sizes.reply,
            max_chunk: shared.max_chunk,
            max_segment: shared.max_segment,
            regions: shared.limits.regions - self.persistent.most(),
            chunks,
        }
    }

    /// Whether there is a credit, and room for the regions of a plan.
    fn has_room(&self, shared: &Shared<O>, plan: &CallPlan, need: Need) -> bool {
        let exposed = self.exposed + self.persistent.made();
        self.credits_for(shared, need) > 0 && exposed + plan.regions() <= shared.limits.regions
    }

    /// Sends calls that waited, in their order, as far as there is room. What they are planned for is
    /// planned anew only if the terms have changed since.
    pub(crate) fn send_waiting(
        &mut self,
        now: Instant,
        shared: &mut Shared<O>,
        qp: &mut dyn QueuePair,
    ) {
        self.now = Some(now);
        while let Some(&index) = self.waiting.front() {
            let call = &mut self.calls[index as usize];
            let need = call.request.need;
            let State::Waiting { plan, terms } = &mut call.state else {
                // Recalled Sends go before, as soon as the grant allows.
                return;
            };
            let planned = match plan.take().filter(|_| *terms == shared.terms) {
                Some(plan) => Ok(Some(plan)),
                None => self.plan(shared, &self.calls[index as usize].request),
            };
            let sent = match planned {
                Ok(None) => return,
                Ok(Some(plan)) => {
                    let sent = match self.has_room(shared, &plan, need) {
                        true => self.send(now, shared, index, &plan, qp),
                        false => Err(NotSent::NotRegistered),
                    };
                    if let Err(NotSent::NotRegistered) = sent {
                        let (plan, terms) = (Some(plan), shared.terms);
                        self.calls[index as usize].state = State::Waiting { plan, terms };
                        return;
                    }
                    sent
                }
                Err(error) => Err(NotSent::Never(error)),
            };
            self.waiting.pop_front();
            if let Err(NotSent::Never(error)) = sent {
                self.finish(shared, index, Outcome::Failed(error));
            }
        }
    }

    /// Sends a call for which there is room.
    fn send(
        &mut self,
        now: Instant,
        shared: &mut Shared<O>,
        index: u32,
        plan: &CallPlan,
        qp: &mut dyn QueuePair,
    ) -> Result<(), NotSent> {
        let call = &mut self.calls[index as usize];
        let xid = call.request.xid;
        if !self.xids.insert(xid, index) {
            let why = "a call with the same XID is in flight";
            return Err(NotSent::Never(TransportError::Refused(why)));
        }
        if !plan.is_plain()
            && let Err(error) = offer(plan, call, shared, &mut self.persistent, qp)
        {
            self.xids.remove(xid);
            // A connection that is over registers nothing, and says itself why it is over.
            if !matches!(error, RegisterError::Closed(_)) {
                shared.fail(Violation::NotRegistered);
            }
            return Err(NotSent::NotRegistered);
        }
        self.exposed += call.regions.len();
        shared.flow.handle_call_sent();
        shared.post_receives();
        shared.counters.calls_sent += 1;
        let mut buffer = shared.send_buffer();
        let contents = Contents {
            long: plan.form == CallForm::Long,
            direction: Direction::Call,
            invalidate: may_go(shared, plan, call),
            lists: &call.offered,
        };
        let asked = shared.flow.asked();
        let codec = shared.agreed.codec;
        codec.emit(&mut buffer, xid, asked, &contents);
        let rest = match plan.form {
            CallForm::Short | CallForm::Chunked => {
                call.request.message.put_inline(&mut buffer, &plan.moved)
            }
            CallForm::Long => Gather::new(),
        };
        shared.posts.push(WorkRequest::Send {
            wr: Purpose::Call.wr(),
            buffer,
            rest,
            invalidate: None,
        });
        call.state = State::Awaiting;
        call.epoch = self.marked.epoch;
        call.sent = now;
        Ok(())
    }

    /// The owner's values of the calls that have no end yet, and were not cancelled.
    pub(crate) fn values(&self) -> impl Iterator<Item = &O::Call> {
        let requests = self.calls.iter().map(|(_, call)| &call.request);
        requests.filter_map(|request| request.call.as_ref())
    }

    /// Cancels the calls that nobody waits for any more; how many there were. One that was not sent is
    /// over.
    ///
    /// One that was sent keeps its credit and its memory until its reply: the peer does not know, and
    /// may still reach the memory (RFC 8166 §4.4.1). So there are no more of these than credits, and
    /// none is older than [`oldest`](Self::oldest). One whose reply is here ends as usual.
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

    /// Ends a cancelled call that has not gone out.
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

    /// An error that ends a call, with the handle that the peer took along.
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

    /// A message that answers a call.
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
        let outcome = judge(&call.offered, xid, &header, message, stream);
        match &outcome {
            Outcome::Inline { .. } | Outcome::InReplyChunk { .. } => {
                shared.counters.replies_received += 1;
                shared.flow.handle_grant(granted);
            }
            Outcome::Failed(_) => shared.counters.bad_replies += 1,
        }
        self.answered(shared, key, outcome);
    }

    /// Takes back the handle that came with a reply to the call `key`; false if the peer must not have
    /// done that.
    ///
    /// In version one it does not matter whether the peer set R itself: a Linux server never does,
    /// and invalidates.
    fn take_back(
        &mut self,
        shared: &mut Shared<O>,
        key: u32,
        invalidated: Option<Invalidated>,
    ) -> bool {
        let Some(Invalidated { handle, memory }) = invalidated else {
            return true;
        };
        if shared.agreed.accepts == Accepts::Nothing {
            shared.fail(Violation::UnwantedInvalidation(handle));
            return false;
        }
        let of_call = region(&mut self.calls[key as usize], handle);
        let region = match (of_call, shared.agreed.accepts) {
            (Some(region), _) => Some(region),
            (None, Accepts::OfAnyCall) => {
                let found = spare_region(&mut self.calls, handle);
                shared.counters.remote_invalidations_inter_call += u64::from(found.is_some());
                found
            }
            (None, Accepts::OfCall | Accepts::Nothing) => None,
        };
        let Some(region) = region else {
            shared.fail(Violation::ForeignHandle(handle));
            return false;
        };
        region.back = Some(memory);
        self.exposed -= 1;
        shared.counters.remote_invalidations += 1;
        if !shared.agreed.peer_announces {
            shared.counters.remote_invalidations_without_r += 1;
        }
        true
    }

    /// The reply is here: the credit is free again, and what is still exposed is invalidated.
    fn answered(&mut self, shared: &mut Shared<O>, key: u32, outcome: Outcome) {
        shared.flow.handle_call_answered();
        let xid = self.calls[key as usize].request.xid;
        // A peer that answers a call before it was sent will not get it: its handles are about to die.
        let call = &mut self.calls[key as usize];
        if let State::Recalled(_) = call.state {
            call.state = State::Awaiting;
            self.recalled -= 1;
            self.waiting.retain(|&index| index != key);
        }
        shared.posts.forget(|send| xid_of(send) == Some(xid));
        self.keep_to_grant(shared);
        let call = &mut self.calls[key as usize];
        self.xids.remove(call.request.xid);
        self.persistent.give_back(std::mem::take(&mut call.lent));
        self.marked.left -= usize::from(call.epoch != self.marked.epoch);
        let mut left = 0;
        for region in &call.regions {
            if region.back.is_none() {
                left += 1;
                shared.counters.local_invalidations += 1;
                shared.posts.push(WorkRequest::Invalidate {
                    wr: Purpose::Invalidate { call: key }.wr(),
                    handle: region.handle,
                });
            }
        }
        if left == 0 {
            self.finish(shared, key, outcome);
        } else {
            call.state = State::Invalidating { left, outcome };
        }
    }

    /// RFC 8166 §3.3.1: a grant that was lowered counts for calls too that wait to be posted.
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

    /// Takes back the Send of a call that was not handed out, the last one first; false if there is none.
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

    /// A handle of ours is dead.
    pub(crate) fn handle_invalidated(
        &mut self,
        shared: &mut Shared<O>,
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
            State::Invalidating { outcome, .. } => self.finish(shared, key, outcome),
            State::Waiting { .. } | State::Recalled(_) | State::Awaiting => {
                unreachable!("looked at just now")
            }
        }
    }

    /// RFC 8166 §4.4.1: no handle of the call is exposed any more, so its caller may see the data.
    fn finish(&mut self, shared: &mut Shared<O>, key: u32, outcome: Outcome) {
        // What is large of a call is dropped where it is.
        let call = &mut self.calls[key as usize];
        if let Some(value) = call.request.call.take() {
            let regions = std::mem::take(&mut call.regions);
            let reply = assemble(&mut shared.counters, call.request.xid, regions, outcome);
            shared.replies.push_back((value, reply));
        }
        self.calls.remove(key as usize);
    }

    /// The connection is over: what becomes of the calls that had no end. Those that were sent have
    /// one more loss if that counts. Cancelled ones are forgotten, as all handles died with the
    /// connection.
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
        let unfinished = calls.map(|call| {
            let mut request = call.request;
            match call.state {
                // It must not be executed once more only because a handle was still exposed.
                State::Invalidating { outcome, .. } if outcome.is_whole(&call.regions) => {
                    let reply = assemble(&mut shared.counters, request.xid, call.regions, outcome);
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

impl<C> Call<C> {
    /// Whether the peer has never seen it.
    fn is_unsent(&self) -> bool {
        matches!(self.state, State::Waiting { .. } | State::Recalled(_))
    }

    fn is_cancelled(&self) -> bool {
        self.request.call.is_none()
    }
}

impl<C> CallRequest<C> {
    fn failed(self, error: TransportError) -> FailedCall<C> {
        let call = self.into_call();
        FailedCall { call, error }
    }
}

/// The XID of the call of which this is the Send: the first word in either version.
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

/// Registers what the plan offers, and notes it in the call.
fn offer<O: Owner>(
    plan: &CallPlan,
    call: &mut Call<O::Call>,
    shared: &mut Shared<O>,
    persistent: &mut PersistentPool,
    qp: &mut dyn QueuePair,
) -> Result<(), RegisterError> {
    let Call {
        request,
        offered: lists,
        regions,
        lent,
        ..
    } = call;
    let counters = &mut shared.counters;
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
                counters.registrations += 1;
                at
            }
        };
        lists.reads.push(ReadChunk {
            position: u32::try_from(position).expect("the plan limits messages"),
            segments: segments(at, len, shared.max_segment),
        });
        counters.read_chunks_offered += 1;
        counters.read_bytes_offered += len as u64;
    }
    for (index, &len) in plan.write_chunks.iter().enumerate() {
        // A result that is always empty has an empty Write chunk (RFC 8166 §4.3.2.3).
        let segments = match len {
            0 => Segments::new(),
            _ => {
                let sink = sink(&shared.pool, &shared.limits, len);
                let at = qp.register(Memory::Sink(sink))?;
                regions.push(Region::new(at.handle, RegionUse::Result(index)));
                counters.registrations += 1;
                segments(at, len, shared.max_segment)
            }
        };
        lists.writes.push(WriteChunk { segments });
        counters.write_chunks_offered += 1;
    }
    if let Some(len) = plan.reply_chunk {
        let sink = sink(&shared.pool, &shared.limits, len);
        let at = qp.register(Memory::Sink(sink))?;
        regions.push(Region::new(at.handle, RegionUse::Reply));
        counters.registrations += 1;
        let segments = segments(at, len, shared.max_segment);
        lists.reply = Some(WriteChunk { segments });
        counters.reply_chunks_offered += 1;
    }
    Ok(())
}

/// Memory for `len` bytes to be written into. That of the pool may be larger than was asked for,
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

fn region<C>(call: &mut Call<C>, handle: Handle) -> Option<&mut Region> {
    let exposed = |region: &&mut Region| region.handle == handle && region.back.is_none();
    call.regions.iter_mut().find(exposed)
}

/// The region with this handle that a call without a reply offers to be read.
fn spare_region<C>(calls: &mut Slab<Call<C>>, handle: Handle) -> Option<&mut Region> {
    let waiting = calls.iter_mut().map(|(_, call)| call);
    let waiting = waiting.filter(|call| matches!(call.state, State::Awaiting));
    let region = waiting.filter_map(|call| region(call, handle)).next()?;
    (region.used_as == RegionUse::Argument).then_some(region)
}

/// What a call says about which of its handles may go, where it has a word for that.
fn may_go<O: Owner>(shared: &Shared<O>, plan: &CallPlan, call: &Call<O::Call>) -> Invalidate {
    let (lists, regions) = (&call.offered, &call.regions);
    let able = shared.limits.remote_invalidation == Invalidation::Region;
    match shared.agreed.codec.nothing_to_invalidate() {
        // reminv §5.2: the largest may be worth most. One that stays is not among them, as it must
        // not go.
        Invalidate::One(_) if able => {
            let bytes = |region: &&Region| rule::bytes_of(lists, region.handle);
            Invalidate::One(regions.iter().max_by_key(bytes).map(|region| region.handle))
        }
        Invalidate::Several(_) if able => {
            let header = shared.agreed.codec.plain_len() + chunks_len_of(lists);
            let sent = header + plan.inline(&call.request.sizes());
            let room = shared.agreed.sizes.send.saturating_sub(sent);
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
