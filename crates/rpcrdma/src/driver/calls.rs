//! Calls of a client's users, on their way from the calling task to the task that owns a connection
//! and back.
//!
//! A call has one [slot], which its future and its [`CallHandle`] share. The handle goes with
//! the message: through the queue here, into the protocol core, and out of it with the reply. Slots
//! are reused: there is no allocation and no channel per call. Locks are taken in one order, that
//! of all calls before that of a slot, and none is held across a wait or a wake-up.

mod queue;
mod retried_alone;
mod slot;

use super::owner::CallRequest;
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use queue::Queue;
use retried_alone::{RetriedAlone, Turn, is_retried_alone};
use slab::Slab;
use slot::{Place, Slot, Swept, wake};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(crate) use retried_alone::MAX_LOSSES;
pub(crate) use slot::{CallHandle, Outcome};

/// Largest number of free slots kept for reuse.
const SPARE_SLOTS: usize = 1024;

/// The calls of one client.
#[derive(Debug)]
pub(crate) struct Calls {
    timeout: Duration,
    inner: Mutex<Inner>,
}

/// Work for the owner of a connection.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Calls to send, in order.
    pub(crate) calls: VecDeque<CallRequest>,
    /// Whether some calls in flight were cancelled.
    pub(crate) cancelled: bool,
}

#[derive(Debug)]
struct Inner {
    /// Free slots.
    spare: Vec<Arc<Slot>>,
    /// Number of calls made so far.
    made: u64,
    conns: Vec<ConnectionQueue>,
    users: Slab<()>,
    closing: bool,
    /// The error for all further calls, once the client has ended.
    over: Option<TransportError>,
}

/// Queue of one connection and its successors.
#[derive(Debug, Default)]
struct ConnectionQueue {
    state: ConnectionState,
    /// Calls to send. Callers hold their bytes, so they determine the number. A cancelled call
    /// stays until its turn, or the next sweep.
    queue: Queue,
    /// Calls retried alone.
    retried_alone: RetriedAlone,
    /// Whether some calls in flight were cancelled.
    cancelled: bool,
    /// Waker of the connection's owner, while it waits.
    owner: Option<Waker>,
    /// Whether the owner waits for calls too, and not only for its next attempt.
    waits_for_calls: bool,
    /// Number of calls assigned to this queue whose futures have not ended.
    calls: usize,
    /// Whether the current connection has brought a reply.
    has_replied: bool,
    /// Why there is no connection, if known.
    trouble: Option<TransportError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ConnectionState {
    /// A connection is up.
    Up,
    /// No connection is up at present.
    #[default]
    Down,
    /// No connection is up, and none will be made.
    Gone,
}

/// Future of one call. Dropping it cancels the call.
#[derive(Debug)]
pub(crate) struct PendingCall {
    calls: Arc<Calls>,
    /// The user who makes the call.
    user: usize,
    /// Time limit of the call, if not the usual one.
    limit: Option<Duration>,
    /// The call, before the first poll.
    request: Option<CallRequest>,
    /// Its slot since then, and until its end.
    slot: Option<Arc<Slot>>,
}

/// Whether the caller still waits for the call.
fn is_open(request: &CallRequest) -> bool {
    request.call().is_open()
}

impl ConnectionQueue {
    /// Returns whose turn it is, with `out` calls in flight.
    fn turn(&self, out: usize) -> Turn {
        self.retried_alone.turn(out, !self.queue.is_empty())
    }

    /// Whether no call waits to be sent.
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.retried_alone.is_empty()
    }

    /// Puts a call before the others of its user.
    fn put_back(&mut self, user: usize, request: CallRequest) {
        match is_retried_alone(&request) {
            true => self.retried_alone.push(request),
            false => self.queue.push_front(user, request),
        }
    }

    /// Puts a call behind the others of its user.
    fn put_last(&mut self, user: usize, request: CallRequest) {
        match is_retried_alone(&request) {
            true => self.retried_alone.push(request),
            false => self.queue.push(user, &mut Some(request)),
        }
    }

    /// Removes cancelled calls.
    fn forget(&mut self) {
        self.queue.retain(is_open);
        self.retried_alone.retain(is_open);
    }

    /// Returns all waiting calls.
    fn waiting(&self) -> impl Iterator<Item = &CallRequest> {
        self.queue.iter().chain(self.retried_alone.iter())
    }
}

impl Inner {
    /// Chooses the queue for a new call: the one with the fewest calls, among those with a
    /// connection if there are any.
    fn choose(&self) -> Option<usize> {
        self.best(|conn| (conn.state != ConnectionState::Up, conn.calls))
    }

    /// Chooses the queue for a call that has lost its connection. Prefers connections that have
    /// brought a reply, because another may be as silent as the lost one.
    fn choose_again(&self) -> Option<usize> {
        self.best(|conn| {
            (
                conn.state != ConnectionState::Up,
                !conn.has_replied,
                conn.calls,
            )
        })
    }

    fn best<K: Ord>(&self, rank: impl Fn(&ConnectionQueue) -> K) -> Option<usize> {
        let usable = |(_, conn): &(usize, &ConnectionQueue)| conn.state != ConnectionState::Gone;
        let conns = self.conns.iter().enumerate().filter(usable);
        conns
            .min_by_key(|(_, conn)| rank(conn))
            .map(|(index, _)| index)
    }

    /// Returns the queue for a call that was assigned to `conn`: another one only if that one has
    /// ended, or has no connection and the other has.
    fn instead_of(&self, conn: usize) -> usize {
        let state = self.conns[conn].state;
        if self.conns.len() == 1 || state == ConnectionState::Up {
            return conn;
        }
        match self.choose_again() {
            Some(other) if state == ConnectionState::Gone => other,
            Some(other) if self.conns[other].state == ConnectionState::Up => other,
            Some(_) | None => conn,
        }
    }

    /// Assigns a queue to a call that is in none, and returns the old and new place; `None` if the
    /// call was cancelled.
    fn assign(&mut self, request: &CallRequest) -> Option<(usize, Place)> {
        let (from, place) = request.call().requeue(|conn| self.instead_of(conn))?;
        self.conns[from].calls -= 1;
        self.conns[place.conn].calls += 1;
        Some((from, place))
    }

    /// Queues a call again, on its queue or on another with a connection. Returns whom to wake.
    fn queue(
        &mut self,
        request: CallRequest,
        put: impl FnOnce(&mut ConnectionQueue, usize, CallRequest),
    ) -> Option<Waker> {
        let (from, place) = self.assign(&request)?;
        let conn = &mut self.conns[place.conn];
        put(conn, place.user, request);
        (place.conn != from).then(|| conn.owner.take()).flatten()
    }

    /// Moves the calls of a queue without a connection to queues with one.
    fn hand_over(&mut self, from: usize) -> SmallVec<[Waker; 4]> {
        let mut owners = SmallVec::new();
        while self.instead_of(from) != from {
            let conn = &mut self.conns[from];
            let Some(request) = conn.queue.pop().or_else(|| conn.retried_alone.pop()) else {
                break;
            };
            if let Some((_, place)) = self.assign(&request) {
                let conn = &mut self.conns[place.conn];
                conn.put_last(place.user, request);
                owners.extend(conn.owner.take());
            }
        }
        owners
    }

    /// Whether other connections of the client are busy, so that one more may help.
    fn others_busy(&self, conn: usize) -> bool {
        self.conns.len() > 1
            && self.conns[conn].state != ConnectionState::Up
            && self
                .conns
                .iter()
                .enumerate()
                .any(|(index, other)| index != conn && other.calls > 0)
    }

    /// Ends all queues. Returns the waiting calls, which end with that error.
    fn end(&mut self, error: &TransportError) -> Vec<CallRequest> {
        self.over.get_or_insert_with(|| error.clone());
        let mut waiting = Vec::new();
        for conn in &mut self.conns {
            waiting.extend(std::iter::from_fn(|| {
                conn.queue.pop().or_else(|| conn.retried_alone.pop())
            }));
        }
        waiting
    }

    /// Handles the end of the future of a call of this queue.
    fn forget_call(&mut self, conn: usize, slot: Arc<Slot>) {
        self.conns[conn].calls -= 1;
        if self.spare.len() < SPARE_SLOTS && Arc::strong_count(&slot) == 1 {
            self.spare.push(slot);
        }
    }
}

fn fail_all(calls: Vec<CallRequest>, error: &TransportError) {
    for request in calls {
        request.into_call().complete(Err(error.clone()));
    }
}

/// The default user.
pub(crate) const FIRST_USER: usize = 0;

impl Calls {
    /// Creates empty queues for `conns` connections, none of which is up.
    pub(crate) fn new(timeout: Duration, conns: usize) -> Self {
        let mut users = Slab::new();
        assert_eq!(
            users.insert(()),
            FIRST_USER,
            "a slab begins at its first place"
        );
        Self {
            timeout,
            inner: Mutex::new(Inner {
                spare: Vec::new(),
                made: 0,
                conns: (0..conns).map(|_| ConnectionQueue::default()).collect(),
                users,
                closing: false,
                over: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a user, whose queue is served round-robin with the others.
    pub(crate) fn add_user(&self) -> usize {
        self.lock().users.insert(())
    }

    /// Removes a user.
    pub(crate) fn remove_user(&self, user: usize) {
        self.lock().users.remove(user);
    }

    /// Asks the owners to close their connections.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        let owners = inner.conns.iter_mut().map(|conn| conn.owner.take());
        let owners: Vec<_> = owners.collect();
        drop(inner);
        owners.into_iter().for_each(wake);
    }

    /// Records that a queue has a connection. Calls waiting in queues without one move to it.
    pub(crate) fn connected(&self, conn: usize) {
        let mut inner = self.lock();
        let conn = &mut inner.conns[conn];
        conn.state = ConnectionState::Up;
        conn.has_replied = false;
        conn.trouble = None;
        // Of the calls that the one before it carried none is left.
        conn.cancelled = false;
        conn.retried_alone.begin();
        let mut owners = SmallVec::<[Waker; 4]>::new();
        for from in 0..inner.conns.len() {
            if inner.conns[from].state == ConnectionState::Down {
                owners.extend(inner.hand_over(from));
            }
        }
        drop(inner);
        owners.into_iter().for_each(Waker::wake);
    }

    /// Records that a queue has lost its connection, with the reason if known. Its calls move to a
    /// queue with a connection.
    pub(crate) fn lost(&self, conn: usize, trouble: Option<TransportError>) {
        let mut inner = self.lock();
        inner.conns[conn].state = ConnectionState::Down;
        inner.conns[conn].trouble = trouble;
        inner.conns[conn].retried_alone.begin();
        let owners = inner.hand_over(conn);
        drop(inner);
        owners.into_iter().for_each(Waker::wake);
    }

    /// Records that a queue will have no connection again. Its calls move to another queue; if
    /// there is none, every call ends with `error`, future ones too.
    pub(crate) fn leave(&self, conn: usize, error: &TransportError) {
        let mut inner = self.lock();
        inner.conns[conn].state = ConnectionState::Gone;
        let gone = |conn: &ConnectionQueue| conn.state == ConnectionState::Gone;
        if inner.conns.iter().all(gone) {
            let waiting = inner.end(error);
            drop(inner);
            return fail_all(waiting, error);
        }
        let owners = inner.hand_over(conn);
        drop(inner);
        owners.into_iter().for_each(Waker::wake);
    }

    /// Whether all queues have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over.is_some()
    }

    /// The error of further calls, once all queues have ended.
    pub(crate) fn over(&self) -> Option<TransportError> {
        self.lock().over.clone()
    }

    /// Returns the error for a call that has exceeded `limit`, with its cause if known.
    pub(crate) fn reason(&self, limit: Duration) -> TransportError {
        let inner = self.lock();
        let up = inner
            .conns
            .iter()
            .any(|conn| conn.state == ConnectionState::Up);
        let mut troubles = inner.conns.iter().filter_map(|conn| conn.trouble.clone());
        match troubles.next() {
            Some(trouble) if !up => trouble,
            Some(_) | None => TransportError::TimedOut(limit),
        }
    }

    /// Takes up to `room` calls to send, with `out` calls in flight, and the cancellations since
    /// the last time. Returns whether the owner should close the connection.
    pub(crate) fn take(&self, conn: usize, room: usize, out: usize, work: &mut Work) -> bool {
        let mut inner = self.lock();
        if inner.closing {
            // What waits is ended by whoever ends the connection, and must not be executed.
            return true;
        }
        let conn = &mut inner.conns[conn];
        work.cancelled |= std::mem::take(&mut conn.cancelled);
        let turn = match room {
            0 => Turn::Nobody,
            _ => conn.turn(out),
        };
        if turn == Turn::Nobody {
            return false;
        }
        if turn == Turn::RetriedAlone {
            while let Some(request) = conn.retried_alone.pop() {
                if request.call().take() {
                    work.calls.push_back(request);
                    conn.retried_alone.sent_alone();
                    break;
                }
            }
        } else if work.calls.is_empty() && conn.queue.len() <= room {
            // All of them, and none is moved for that: a call is larger than it looks.
            conn.queue.take_all(&mut work.calls);
            work.calls.retain(|request| request.call().take());
        } else {
            let mut left = room;
            while left > 0 {
                let Some(request) = conn.queue.pop() else {
                    break;
                };
                if request.call().take() {
                    left -= 1;
                    work.calls.push_back(request);
                }
            }
        }
        false
    }

    /// Handles a sweep interval on a connection, so that neither calls retried alone nor others
    /// wait for ever.
    pub(crate) fn release(&self, conn: usize) {
        let mut inner = self.lock();
        let ConnectionQueue {
            retried_alone,
            queue,
            ..
        } = &mut inner.conns[conn];
        for request in retried_alone.sweep() {
            if let Some(place) = request.call().place() {
                queue.push_front(place.user, request);
            }
        }
    }

    /// Requeues a call at the front, because its connection was lost. A cancelled call is dropped.
    pub(crate) fn put_back(&self, request: CallRequest) {
        self.queue(request, ConnectionQueue::put_back);
    }

    /// Like [`put_back`](Self::put_back), at the back.
    pub(crate) fn put_last(&self, request: CallRequest) {
        self.queue(request, ConnectionQueue::put_last);
    }

    fn queue(
        &self,
        request: CallRequest,
        put: impl FnOnce(&mut ConnectionQueue, usize, CallRequest),
    ) {
        let mut inner = self.lock();
        if let Some(error) = inner.over.clone() {
            drop(inner);
            return request.into_call().complete(Err(error));
        }
        let owner = inner.queue(request, put);
        drop(inner);
        wake(owner);
    }

    /// Whether the owner of a queue has work now; otherwise registers it for a wake-up. A call can
    /// be sent if the number of calls in flight is known.
    pub(crate) fn poll_work(&self, conn: usize, cx: &Context<'_>, out: Option<usize>) -> bool {
        let mut inner = self.lock();
        let others_busy = out.is_some() && inner.others_busy(conn);
        let closing = inner.closing;
        let conn = &mut inner.conns[conn];
        let work = closing
            || conn.cancelled
            || others_busy
            || out.is_some_and(|out| match conn.turn(out) {
                Turn::Others => !conn.queue.is_empty(),
                Turn::RetriedAlone => true,
                Turn::Nobody => false,
            });
        conn.waits_for_calls = out.is_some();
        if !work && !matches!(&conn.owner, Some(w) if w.will_wake(cx.waker())) {
            conn.owner = Some(cx.waker().clone());
        }
        work
    }

    /// Whether a queue without a connection should have one.
    pub(crate) fn wants_connection(&self, conn: usize) -> bool {
        let mut inner = self.lock();
        if inner.others_busy(conn) {
            return true;
        }
        let conn = &mut inner.conns[conn];
        if conn.waiting().any(is_open) {
            return true;
        }
        // Or else the owner would find work for which it need not connect, again and again.
        conn.forget();
        false
    }

    /// Returns a number that changes with each call, on any connection.
    pub(crate) fn made(&self) -> u64 {
        self.lock().made
    }

    /// Whether a call was made that has not ended.
    pub(crate) fn pending(&self) -> bool {
        self.lock().conns.iter().any(|conn| conn.calls > 0)
    }

    /// Whether no call waits to be sent over this queue.
    pub(crate) fn is_idle(&self, conn: usize) -> bool {
        self.lock().conns[conn].is_idle()
    }

    /// Whether the owner of a queue has work.
    pub(crate) fn has_work(&self, conn: usize) -> bool {
        let inner = self.lock();
        let conn = &inner.conns[conn];
        !conn.is_idle() || conn.cancelled
    }

    /// Sets the owner of a queue, to be woken once.
    pub(crate) fn set_owner(&self, conn: usize, owner: &Waker) {
        self.lock().conns[conn].owner = Some(owner.clone());
    }

    /// Wakes the owner of a queue, if it waits.
    pub(crate) fn wake_owner(&self, conn: usize) {
        let owner = self.lock().conns[conn].owner.take();
        wake(owner);
    }

    /// Records that the current connection of a queue has brought a reply.
    pub(crate) fn replied(&self, conn: usize) {
        self.lock().conns[conn].has_replied = true;
    }

    /// Ends the calls of a queue whose time is up with `error`, waiting ones and those `in_flight`.
    /// The time of a call begins with the first sweep that finds it. Returns the longest time limit
    /// of the remaining calls, or of new ones.
    pub(crate) fn expire<'a>(
        &self,
        conn: usize,
        now: Instant,
        error: &TransportError,
        in_flight: impl Iterator<Item = &'a CallHandle>,
    ) -> Duration {
        let mut wakers = Vec::new();
        let mut longest = self.timeout;
        let mut inner = self.lock();
        let conn = &mut inner.conns[conn];
        let mut sweep = |call: &CallHandle| {
            if let Swept::Open(limit) = call.sweep(now, error, &mut wakers) {
                longest = longest.max(limit);
            }
        };
        conn.waiting().map(CallRequest::call).for_each(&mut sweep);
        in_flight.for_each(sweep);
        conn.forget();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        longest
    }

    /// Ends the waiting calls and all future ones with `error`. Those in flight are with their
    /// connections.
    pub(crate) fn end(&self, error: &TransportError) {
        let waiting = self.lock().end(error);
        fail_all(waiting, error);
    }
}

impl PendingCall {
    pub(crate) fn new(
        calls: Arc<Calls>,
        user: usize,
        message: Payload,
        bound: oncrpc::ReplyBound,
    ) -> Self {
        // There is a slot once it is polled.
        let request = CallRequest::new(CallHandle::of_nobody(), message, bound);
        Self {
            calls,
            user,
            limit: None,
            request: Some(request),
            slot: None,
        }
    }

    /// Sets a time limit for the call. It is checked at intervals.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    fn send(&mut self, cx: &Context<'_>) -> Result<Arc<Slot>, TransportError> {
        let request = &mut self.request;
        let mut inner = self.calls.lock();
        if let Some(error) = &inner.over {
            return Err(error.clone());
        }
        let unsent = request.as_mut().expect("a call is sent once");
        inner.made += 1;
        let conn = match inner.conns.len() {
            1 => 0,
            _ => inner
                .choose()
                .expect("while calls are taken there is a conn"),
        };
        unsent.set_limit(self.limit);
        let place = Place {
            number: inner.made,
            user: self.user,
            conn,
        };
        let limit = self.limit.unwrap_or(self.calls.timeout);
        let slot = inner.slot(place, limit, cx.waker().clone());
        *unsent.call_mut() = CallHandle::new(Arc::clone(&slot));
        let chosen = &mut inner.conns[conn];
        chosen.calls += 1;
        chosen.queue.push(self.user, request);
        let owner = chosen.owner.take();
        let others = (inner.conns.len() > 1).then(|| inner.sleepers());
        drop(inner);
        wake(owner);
        if let Some(others) = others {
            others.into_iter().for_each(Waker::wake);
        }
        Ok(slot)
    }
}

impl Inner {
    /// Takes a slot for a call.
    fn slot(&mut self, place: Place, limit: Duration, waker: Waker) -> Arc<Slot> {
        let slot = Slot::new(place, limit, waker);
        match self.spare.pop() {
            Some(mut spare) => match Arc::get_mut(&mut spare) {
                Some(memory) => {
                    *memory = slot;
                    spare
                }
                None => Arc::new(slot),
            },
            None => Arc::new(slot),
        }
    }

    /// Takes the wakers of owners without a connection: there are calls now, for which they may
    /// connect.
    fn sleepers(&mut self) -> SmallVec<[Waker; 4]> {
        let may_wake = |conn: &&mut ConnectionQueue| {
            conn.state == ConnectionState::Down && conn.waits_for_calls
        };
        let conns = self.conns.iter_mut().filter(may_wake);
        conns.filter_map(|conn| conn.owner.take()).collect()
    }
}

impl Future for PendingCall {
    type Output = Result<Payload, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(slot) = &this.slot else {
            assert!(this.request.is_some(), "a call has one end");
            return match this.send(cx) {
                Ok(slot) => {
                    this.slot = Some(slot);
                    Poll::Pending
                }
                Err(error) => {
                    this.request = None;
                    Poll::Ready(Err(error))
                }
            };
        };
        let Poll::Ready((outcome, conn)) = slot.poll(cx) else {
            return Poll::Pending;
        };
        if let Some(slot) = this.slot.take() {
            this.calls.lock().forget_call(conn, slot);
        }
        Poll::Ready(outcome)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        let (conn, in_flight) = slot.leave();
        let mut inner = self.calls.lock();
        inner.forget_call(conn, slot);
        if in_flight {
            let conn = &mut inner.conns[conn];
            conn.cancelled = true;
            let owner = conn.owner.take();
            drop(inner);
            wake(owner);
        }
    }
}

#[cfg(test)]
mod tests;
