//! Calls of a client's users: from the task that makes one to the task that owns the connection,
//! and the reply back.
//!
//! One lock, held for a few instructions, and a slot per call that is used again: no allocation
//! and no channel per call.

use oncrpc::TransportError;
use rpcrdma_proto::{CallRequest, CallToken};
use slab::Slab;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use xdr::Payload;

/// The calls of one client.
#[derive(Debug)]
pub(crate) struct Calls {
    timeout: Duration,
    inner: Mutex<Inner>,
}

/// What users want of the owner of the connection.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Calls to send, in order.
    pub(crate) calls: VecDeque<CallRequest>,
    /// Calls on their way that nobody waits for any more.
    pub(crate) cancelled: Vec<(u32, CallToken)>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: Slab<Slot>,
    /// Counts up with each call, so that a slot used again has another token.
    generation: u32,
    /// Calls to send. Their octets are their callers', so that these decide how many there are.
    /// One that nobody waits for any more stays until it is its turn, or the next sweep.
    queue: VecDeque<CallRequest>,
    cancelled: Vec<(u32, CallToken)>,
    /// The owner of the connection, while it waits.
    owner: Option<Waker>,
    closing: bool,
    /// Why there will be no more replies.
    over: Option<TransportError>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    xid: u32,
    /// Whether it is in the queue.
    queued: bool,
    /// Set by the first sweep that finds it: a look at the clock costs more than all else here.
    deadline: Option<Instant>,
    waker: Option<Waker>,
    outcome: Option<Outcome>,
}

/// What became of a call.
pub(crate) type Outcome = Result<Payload, TransportError>;

/// The end of one call. Dropping it cancels the call.
#[derive(Debug)]
pub(crate) struct Waiting {
    calls: Arc<Calls>,
    state: WaitingState,
}

#[derive(Debug)]
enum WaitingState {
    Unsent(Option<CallRequest>),
    Sent(CallToken),
    Done,
}

impl Inner {
    fn slot(&mut self, token: CallToken) -> Option<&mut Slot> {
        let (generation, index) = parts(token);
        self.slots
            .get_mut(index)
            .filter(|slot| slot.generation == generation)
    }

    /// Takes the next call out of the queue that somebody waits for.
    fn next(&mut self) -> Option<CallRequest> {
        loop {
            let request = self.queue.pop_front()?;
            if self.unqueue(request.token()) {
                return Some(request);
            }
        }
    }

    /// Notes that a call is not in the queue any more; whether somebody waits for it.
    fn unqueue(&mut self, token: CallToken) -> bool {
        let slot = self.waited_for(token);
        slot.map(|slot| slot.queued = false).is_some()
    }

    /// The slot of a call that has no end yet.
    fn waited_for(&mut self, token: CallToken) -> Option<&mut Slot> {
        self.slot(token).filter(|slot| slot.outcome.is_none())
    }

    fn put_back(&mut self, request: CallRequest) {
        if let Some(slot) = self.waited_for(request.token()) {
            slot.queued = true;
            self.queue.push_front(request);
        }
    }
}

/// A token: generation and index of the slot.
fn token(generation: u32, index: usize) -> CallToken {
    CallToken(u64::from(generation) << 32 | index as u64)
}

#[allow(clippy::cast_possible_truncation, reason = "the parts are taken apart")]
fn parts(token: CallToken) -> (u32, usize) {
    ((token.0 >> 32) as u32, token.0 as u32 as usize)
}

impl Calls {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the owner to end the connection.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        let owner = inner.owner.take();
        drop(inner);
        wake(owner);
    }

    /// Takes up to `room` calls to send, and the calls that were cancelled since; whether the
    /// owner is to end the connection.
    pub(crate) fn take(&self, room: usize, work: &mut Work) -> bool {
        let mut inner = self.lock();
        work.cancelled.append(&mut inner.cancelled);
        if work.calls.is_empty() && inner.queue.len() <= room {
            // All of them, and none is moved for that: a call is larger than it looks.
            std::mem::swap(&mut work.calls, &mut inner.queue);
            work.calls.retain(|request| inner.unqueue(request.token()));
        } else {
            for _ in 0..room {
                let Some(request) = inner.next() else {
                    break;
                };
                work.calls.push_back(request);
            }
        }
        inner.closing
    }

    /// Puts a call back in front of those that wait, because it could not be sent now. If nobody
    /// waits for it any more it is forgotten.
    pub(crate) fn put_back(&self, request: CallRequest) {
        self.lock().put_back(request);
    }

    /// Whether the owner has something to do for its users, be it now or by a wake-up from now on.
    pub(crate) fn poll_work(&self, cx: &Context<'_>, can_call: bool) -> bool {
        let mut inner = self.lock();
        let work =
            inner.closing || !inner.cancelled.is_empty() || can_call && !inner.queue.is_empty();
        if !work && !matches!(&inner.owner, Some(w) if w.will_wake(cx.waker())) {
            inner.owner = Some(cx.waker().clone());
        }
        work
    }

    /// Whether a call waits to be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        let mut inner = self.lock();
        let next = inner.next();
        let waiting = next.is_some();
        next.into_iter().for_each(|request| inner.put_back(request));
        waiting
    }

    /// A call is over.
    pub(crate) fn complete(&self, token: CallToken, outcome: Outcome) {
        let mut wakers = Vec::new();
        self.complete_all(std::iter::once((token, outcome)), &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// These calls are over. Who waits for them is appended to `wakers`, to be woken when the lock
    /// is free again.
    pub(crate) fn complete_all(
        &self,
        ended: impl Iterator<Item = (CallToken, Outcome)>,
        wakers: &mut Vec<Waker>,
    ) {
        let mut inner = self.lock();
        for (token, outcome) in ended {
            // Without a slot nobody waits any more.
            if let Some(slot) = inner.slot(token) {
                slot.outcome = Some(outcome);
                wakers.extend(slot.waker.take());
            }
        }
    }

    /// Ends the calls whose time is up with `error`. Those that were on their way are appended to
    /// `sent`. The time of a call begins with the first such sweep.
    pub(crate) fn expire(
        &self,
        now: Instant,
        error: &TransportError,
        sent: &mut Vec<(u32, CallToken)>,
    ) {
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        for (index, slot) in &mut inner.slots {
            let deadline = *slot.deadline.get_or_insert(now + self.timeout);
            if slot.outcome.is_some() || deadline > now {
                continue;
            }
            slot.outcome = Some(Err(error.clone()));
            wakers.extend(slot.waker.take());
            if !slot.queued {
                sent.push((slot.xid, token(slot.generation, index)));
            }
        }
        let mut queue = std::mem::take(&mut inner.queue);
        queue.retain(|request| inner.waited_for(request.token()).is_some());
        inner.queue = queue;
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// There will be no more replies: every call ends with `error`, those to come too.
    pub(crate) fn end(&self, error: &TransportError) {
        let mut wakers = Vec::new();
        let mut inner = self.lock();
        inner.over.get_or_insert_with(|| error.clone());
        inner.queue.clear();
        for (_, slot) in &mut inner.slots {
            if slot.outcome.is_none() {
                slot.outcome = Some(Err(error.clone()));
                wakers.extend(slot.waker.take());
            }
        }
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Waiting {
    pub(crate) fn new(calls: Arc<Calls>, message: Payload, bound: oncrpc::ReplyBound) -> Self {
        // The token is known once there is a slot.
        let request = CallRequest::new(CallToken(0), message, bound);
        Self {
            calls,
            state: WaitingState::Unsent(Some(request)),
        }
    }

    fn send(
        calls: &Calls,
        request: &mut Option<CallRequest>,
        cx: &Context<'_>,
    ) -> Result<CallToken, TransportError> {
        let mut inner = calls.lock();
        if let Some(error) = &inner.over {
            return Err(error.clone());
        }
        let unsent = request.as_mut().expect("a call is sent once");
        inner.generation = inner.generation.wrapping_add(1);
        let slot = Slot {
            generation: inner.generation,
            xid: unsent.xid(),
            queued: true,
            deadline: None,
            waker: Some(cx.waker().clone()),
            outcome: None,
        };
        let token = token(slot.generation, inner.slots.insert(slot));
        unsent.set_token(token);
        // Straight from one place to the other: it is large.
        inner.queue.extend(request.take());
        let owner = inner.owner.take();
        drop(inner);
        wake(owner);
        Ok(token)
    }
}

impl Future for Waiting {
    type Output = Result<Payload, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            WaitingState::Unsent(request) => match Self::send(&this.calls, request, cx) {
                Ok(token) => {
                    this.state = WaitingState::Sent(token);
                    Poll::Pending
                }
                Err(error) => {
                    this.state = WaitingState::Done;
                    Poll::Ready(Err(error))
                }
            },
            WaitingState::Sent(token) => {
                let mut inner = this.calls.lock();
                let slot = inner
                    .slot(*token)
                    .expect("a call keeps its slot until its end");
                if slot.outcome.is_none() {
                    if !matches!(&slot.waker, Some(w) if w.will_wake(cx.waker())) {
                        slot.waker = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
                let slot = inner.slots.remove(parts(*token).1);
                drop(inner);
                this.state = WaitingState::Done;
                Poll::Ready(slot.outcome.expect("it was there just now"))
            }
            WaitingState::Done => panic!("a call has one end"),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let WaitingState::Sent(token) = self.state else {
            return;
        };
        let mut inner = self.calls.lock();
        let slot = inner.slots.remove(parts(token).1);
        if slot.outcome.is_some() || slot.queued {
            return;
        }
        inner.cancelled.push((slot.xid, token));
        let owner = inner.owner.take();
        drop(inner);
        wake(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::ReplyBound;
    use std::pin::pin;

    fn message(xid: u32) -> Payload {
        let mut w = xdr::Writer::default();
        w.u32(xid);
        w.u32(0);
        w.finish()
    }

    fn calls() -> Arc<Calls> {
        Arc::new(Calls::new(Duration::from_secs(60)))
    }

    fn waiting(calls: &Arc<Calls>, xid: u32) -> Waiting {
        Waiting::new(Arc::clone(calls), message(xid), ReplyBound::default())
    }

    fn next(calls: &Calls) -> Option<CallRequest> {
        let mut work = Work::default();
        calls.take(1, &mut work);
        work.calls.pop_front()
    }

    fn poll(waiting: Pin<&mut Waiting>) -> Poll<Result<u32, TransportError>> {
        let outcome = waiting.poll(&mut Context::from_waker(Waker::noop()));
        outcome.map_ok(|reply| xdr::Reader::from(&reply).u32().expect("an XID"))
    }

    #[test]
    fn reply_comes_to_the_call_it_is_for() {
        let calls = calls();
        let (mut a, mut b) = (pin!(waiting(&calls, 1)), pin!(waiting(&calls, 2)));
        assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
        let (first, second) = (next(&calls).expect("sent"), next(&calls).expect("sent"));
        calls.complete(second.token(), Ok(message(2)));
        calls.complete(first.token(), Ok(message(1)));
        assert_eq!(poll(a), Poll::Ready(Ok(1)));
        assert_eq!(poll(b), Poll::Ready(Ok(2)));
    }

    #[test]
    fn late_reply_to_a_cancelled_call_reaches_no_other() {
        let calls = calls();
        let mut first = Box::pin(waiting(&calls, 1));
        assert!(poll(first.as_mut()).is_pending());
        let request = next(&calls).expect("sent");
        drop(first);
        let mut work = Work::default();
        calls.take(0, &mut work);
        assert_eq!(work.cancelled, [(1, request.token())]);
        let mut second = pin!(waiting(&calls, 2));
        assert!(poll(second.as_mut()).is_pending());
        calls.complete(request.token(), Ok(message(1)));
        assert!(poll(second).is_pending());
    }

    #[test]
    fn call_cancelled_before_it_was_sent_is_never_sent() {
        let calls = calls();
        let mut first = Box::pin(waiting(&calls, 1));
        assert!(poll(first.as_mut()).is_pending());
        drop(first);
        let mut work = Work::default();
        calls.take(1, &mut work);
        assert!(work.calls.is_empty() && work.cancelled.is_empty());
    }

    #[test]
    fn call_whose_time_is_up_ends_wherever_it_is() {
        let calls = calls();
        let (mut a, mut b) = (pin!(waiting(&calls, 1)), pin!(waiting(&calls, 2)));
        assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
        let request = next(&calls).expect("sent");
        let error = TransportError::TimedOut(calls.timeout);
        let (mut sent, start) = (Vec::new(), Instant::now());
        calls.expire(start, &error, &mut sent);
        calls.expire(start + calls.timeout / 2, &error, &mut sent);
        assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
        calls.expire(start + calls.timeout, &error, &mut sent);
        assert_eq!(sent, [(1, request.token())]);
        assert!(next(&calls).is_none());
        assert_eq!(poll(a), Poll::Ready(Err(error.clone())));
        assert_eq!(poll(b), Poll::Ready(Err(error)));
    }

    #[test]
    fn call_is_put_back_only_while_somebody_waits_for_it() {
        let calls = calls();
        let mut first = Box::pin(waiting(&calls, 1));
        let mut second = pin!(waiting(&calls, 2));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        let request = next(&calls).expect("sent");
        calls.put_back(request);
        assert!(calls.is_waiting());
        let request = next(&calls).expect("sent again");
        assert_eq!(request.xid(), 1);
        drop(first);
        calls.put_back(request);
        assert_eq!(next(&calls).map(|request| request.xid()), Some(2));
        assert!(!calls.is_waiting());
    }

    #[test]
    fn after_the_end_every_call_fails_with_the_reason() {
        let calls = calls();
        let mut before = pin!(waiting(&calls, 1));
        assert!(poll(before.as_mut()).is_pending());
        let error = TransportError::Disconnected("gone".into());
        calls.end(&error);
        assert_eq!(poll(before), Poll::Ready(Err(error.clone())));
        assert_eq!(poll(pin!(waiting(&calls, 2))), Poll::Ready(Err(error)));
    }

    #[test]
    fn calls_that_are_cancelled_in_the_queue_hold_up_no_other() {
        let calls = calls();
        let mut many: Vec<_> = (0..10_000).map(|_| Box::pin(waiting(&calls, 1))).collect();
        many.iter_mut()
            .for_each(|w| assert!(poll(w.as_mut()).is_pending()));
        let mut last = pin!(waiting(&calls, 2));
        assert!(poll(last.as_mut()).is_pending());
        drop(many);
        let request = next(&calls).expect("there is one that somebody waits for");
        assert_eq!(request.xid(), 2);
        calls.complete(request.token(), Ok(message(2)));
        assert_eq!(poll(last), Poll::Ready(Ok(2)));
    }

    #[test]
    fn call_cancelled_in_the_queue_is_forgotten_without_a_connection_too() {
        let calls = calls();
        let mut call = Box::pin(waiting(&calls, 1));
        assert!(poll(call.as_mut()).is_pending());
        drop(call);
        let error = TransportError::TimedOut(calls.timeout);
        calls.expire(Instant::now(), &error, &mut Vec::new());
        assert!(calls.lock().queue.is_empty());
    }

    /// A waker that may look at the calls, as one does that polls at once.
    struct Polls(Arc<Calls>);

    impl std::task::Wake for Polls {
        fn wake(self: Arc<Self>) {
            assert!(self.0.inner.try_lock().is_ok(), "the lock is held");
        }
    }

    #[test]
    fn nobody_is_woken_under_the_lock() {
        let calls = calls();
        let waker = Waker::from(Arc::new(Polls(Arc::clone(&calls))));
        let error = TransportError::TimedOut(calls.timeout);
        let ends: [&dyn Fn(); 3] = [
            &|| calls.complete(next(&calls).expect("sent").token(), Err(error.clone())),
            &|| {
                let start = Instant::now();
                calls.expire(start, &error, &mut Vec::new());
                calls.expire(start + calls.timeout, &error, &mut Vec::new());
            },
            &|| calls.end(&error),
        ];
        for end in ends {
            let mut call = pin!(waiting(&calls, 1));
            let pending = call.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(pending.is_pending());
            end();
            assert_eq!(poll(call), Poll::Ready(Err(error.clone())));
        }
    }
}
