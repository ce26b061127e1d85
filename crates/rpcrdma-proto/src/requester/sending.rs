//! The way of a call from its owner to its Send.

use super::offer::{may_go, offer};
use super::outcome::{Outcome, exposed};
use super::{Call, FailedCall, NO_LISTS, Requester, State};
use crate::agreed::OurCalls;
use crate::codec::Contents;
use crate::event::Violation;
use crate::flow::Need;
use crate::message::CallRequest;
use crate::owner::Owner;
use crate::plan::{CallForm, CallPlan, Chunks, PlainLimits, PlanLimits};
use crate::shared::Shared;
use crate::wire::direction::Direction;
use crate::work::Purpose;
use buffer::{Buffer, Gather};
use oncrpc::TransportError;
use std::time::Instant;
use verbs::{QueuePair, RegisterError, WorkRequest};

/// Why a call was not sent.
enum NotSent {
    /// The connection cannot carry the call.
    Never(TransportError),
    /// The provider did not register memory: the connection has ended or must end.
    NotRegistered,
    /// A message of this end itself has the same XID, and no answer yet.
    XidInUse,
}

impl<O: Owner> Requester<O> {
    /// Takes a call, and sends it if there is a credit and room for its regions. Otherwise it waits
    /// behind other waiting calls.
    pub(crate) fn call(
        &mut self,
        now: Instant,
        shared: &mut Shared<O>,
        request: CallRequest<O::Call>,
        qp: &mut dyn QueuePair,
    ) -> Result<(), FailedCall<O::Call>> {
        self.now = Some(now);
        if self.goes_plain(shared, &request) && self.begin(request.xid, self.calls.vacant_key()) {
            self.push_plain(shared, &request);
            self.calls.insert(Call {
                epoch: self.marked.epoch,
                ..Call::new(request, now)
            });
            return Ok(());
        }
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
        let index = self.calls.insert(Call::new(request, now));
        let index = u32::try_from(index).expect("calls are limited by memory");
        let mut for_xid = false;
        let plan = match plan {
            Some(plan) if goes => match self.send(now, shared, index, &plan, qp) {
                Ok(()) => return Ok(()),
                Err(NotSent::Never(error)) => {
                    let call = self.calls.remove(index as usize);
                    return Err(call.request.failed(error));
                }
                Err(NotSent::NotRegistered) => Some(plan),
                Err(NotSent::XidInUse) => {
                    for_xid = true;
                    Some(plan)
                }
            },
            plan => plan,
        };
        match (&plan, self.credits_for(shared, need)) {
            (None, _) => {}
            (Some(_), 0) => shared.counters.credit_waits += 1,
            (Some(_), 1..) if for_xid => {}
            (Some(_), 1..) => shared.counters.region_waits += 1,
        }
        let plan = plan.map(Box::new);
        self.calls[index as usize].state = State::Waiting { plan, terms };
        self.waiting.push_back(index);
        Ok(())
    }

    /// Whether a call can be sent now without a plan: it takes one Send, and its reply another.
    fn goes_plain(&self, shared: &Shared<O>, request: &CallRequest<O::Call>) -> bool {
        matches!(shared.agreed.our_calls, OurCalls::Sent(_))
            && self.waiting.is_empty()
            && self.credits_for(shared, request.need) > 0
            && request.is_plain(plain_limits(shared))
    }

    /// Takes the XID of a call that is about to be sent. Returns false if it is in use.
    fn begin(&mut self, xid: u32, key: usize) -> bool {
        let index = u32::try_from(key).expect("calls are limited by memory");
        !self.reserved.contains(&xid) && self.xids.insert(xid, index)
    }

    /// Pushes the Send of a call without chunks.
    fn push_plain(&self, shared: &mut Shared<O>, request: &CallRequest<O::Call>) {
        shared.flow.handle_call_sent();
        shared.post_receives();
        shared.counters.calls_sent += 1;
        let mut buffer = shared.send_buffer();
        let codec = shared.agreed.codec;
        let contents = Contents {
            long: false,
            direction: Direction::Call,
            invalidate: codec.nothing_to_invalidate(),
            lists: NO_LISTS,
        };
        codec.emit(&mut buffer, request.xid, shared.flow.asked(), &contents);
        let rest = request.message.put_inline(&mut buffer, &[]);
        shared.posts.push(WorkRequest::Send {
            wr: Purpose::Call.wr(),
            buffer,
            rest,
            invalidate: None,
        });
    }

    /// Plans a call; `None` until the version is settled. An error if waiting does not help.
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
        if request.is_plain(plain_limits(shared)) {
            return Ok(Some(CallPlan::plain()));
        }
        let limits = self.limits(shared, chunks);
        let sizes = request.sizes();
        let plan = CallPlan::new(&sizes, &request.bound, &limits)?;
        let takes = shared.agreed.sizes.peer_segments;
        if plan.is_plain() || plan.segments(&sizes, &limits) <= takes {
            return Ok(Some(plan));
        }
        // What needs none at all may go in parts.
        let chunks = Chunks::Refused;
        match CallPlan::new(&sizes, &request.bound, &PlanLimits { chunks, ..limits }) {
            Ok(plan) => Ok(Some(plan)),
            Err(_) => refused("the peer takes no call of as many segments (ietf-07 §5.2.4)"),
        }
    }

    fn limits(&self, shared: &Shared<O>, chunks: Chunks) -> PlanLimits {
        let PlainLimits {
            header,
            send,
            receive,
        } = plain_limits(shared);
        PlanLimits {
            header,
            send,
            receive,
            max_chunk: shared.max_chunk,
            max_segment: shared.max_segment(),
            regions: match shared.limits.regions - self.persistent.most() {
                0 => 0,
                // Those of one call can be parts of one.
                regions => regions.max(shared.max_parts),
            },
            continued: shared.agreed.sizes.continued_calls,
            chunks,
        }
    }

    /// Whether a credit is available, and room for the regions of a plan.
    fn has_room(&self, shared: &Shared<O>, plan: &CallPlan, need: Need) -> bool {
        let exposed = self.exposed + self.persistent.made();
        let needed = match shared.has_one_region(plan) {
            // One beside those of arguments in persistent memory that is registered for them.
            true => plan.regions().min(1 + self.persistent.unmade()),
            false => plan.regions(),
        };
        self.credits_for(shared, need) > 0 && exposed + needed <= shared.limits.regions
    }

    /// Sends waiting calls in order, as far as there is room. Plans are renewed only if the terms
    /// have changed.
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
                Some(plan) => Ok(Some(*plan)),
                None => self.plan(shared, &self.calls[index as usize].request),
            };
            let sent = match planned {
                Ok(None) => return,
                Ok(Some(plan)) => {
                    let sent = match self.has_room(shared, &plan, need) {
                        true => self.send(now, shared, index, &plan, qp),
                        false => Err(NotSent::NotRegistered),
                    };
                    if let Err(NotSent::NotRegistered | NotSent::XidInUse) = sent {
                        let (plan, terms) = (Some(Box::new(plan)), shared.terms);
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

    /// Sends a call, for which there is room.
    fn send(
        &mut self,
        now: Instant,
        shared: &mut Shared<O>,
        index: u32,
        plan: &CallPlan,
        qp: &mut dyn QueuePair,
    ) -> Result<(), NotSent> {
        let xid = self.calls[index as usize].request.xid;
        if self.is_own(xid) {
            return Err(NotSent::XidInUse);
        }
        let call = &mut self.calls[index as usize];
        if !self.xids.insert(xid, index) {
            return Err(NotSent::Never(TransportError::XidInUse(xid)));
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
        self.exposed += exposed(call.regions()).count();
        shared.flow.handle_call_sent();
        shared.post_receives();
        shared.counters.calls_sent += 1;
        let mut buffer = shared.send_buffer();
        let contents = Contents {
            long: plan.form == CallForm::Long,
            direction: Direction::Call,
            invalidate: may_go(shared, plan, call),
            lists: call.lists(),
        };
        let asked = shared.flow.asked();
        let codec = shared.agreed.codec;
        codec.emit(&mut buffer, xid, asked, &contents);
        let sizes = shared.agreed.sizes;
        let in_parts = sizes.continued_calls > 0
            && plan.form == CallForm::Short
            && buffer.len() + call.request.sizes().stream > sizes.send;
        if in_parts {
            let mut stream = Buffer::default();
            let rest = call.request.message.put_inline(&mut stream, &plan.moved);
            let stream = std::iter::once(stream.freeze()).chain(rest).collect();
            let message = (Direction::Call, xid);
            let purposes = (Purpose::CallPart, Purpose::CallPart);
            let parts = shared.push_parts(message, buffer, stream, purposes, None);
            call.parts = u32::try_from(parts).expect("the plan limits messages");
        } else {
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
        }
        call.state = State::Awaiting;
        call.epoch = self.marked.epoch;
        call.sent = now;
        Ok(())
    }
}

fn plain_limits<O: Owner>(shared: &Shared<O>) -> PlainLimits {
    PlainLimits {
        header: shared.agreed.codec.plain_len(Direction::Call),
        send: shared.agreed.sizes.send,
        receive: shared.agreed.sizes.reply,
    }
}

impl<C> CallRequest<C> {
    fn failed(self, error: TransportError) -> FailedCall<C> {
        let call = self.into_call();
        FailedCall { call, error }
    }
}
