//! Calls of a client's users: from the task that makes one to the tasks that own the connections,
//! and the reply back.
//!
//! One lock, held for a few instructions, and a slot per call that is used again: no allocation
//! and no channel per call.

mod queue;
mod retried_alone;

use super::owner::{CallRequest, CallToken};
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use queue::Queue;
use retried_alone::{RetriedAlone, Turn, is_retried_alone};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

pub(crate) use retried_alone::MAX_LOSSES;

/// The calls of one client.
#[derive(Debug)]
pub(crate) struct Calls {
    timeout: Duration,
    inner: Mutex<Inner>,
}

/// What users want of the owner of a connection.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Calls to send, in order.
    pub(crate) calls: VecDeque<CallRequest>,
    /// Calls on their way that nobody waits for any more.
    pub(crate) cancelled: Vec<CallToken>,
}

#[derive(Debug)]
struct Inner {
    slots: Slab<Slot>,
    /// Counts up with each call, so that a slot used again has another token.
    generation: u32,
    lines: Vec<Line>,
    users: Slab<()>,
    closing: bool,
    /// Why there will be no more replies.
    over: Option<TransportError>,
}

/// What goes over one connection, and over those that come after it.
#[derive(Debug, Default)]
struct Line {
    state: LineState,
    /// Calls to send. Their bytes are their callers', so that these decide how many there are.
    /// One that nobody waits for any more stays until it is its turn, or the next sweep.
    queue: Queue,
    /// Calls to send that may be the ones that break connections.
    retried_alone: RetriedAlone,
    cancelled: Vec<CallToken>,
    /// The owner of the connection, while it waits.
    owner: Option<Waker>,
    /// It waits for calls too, and not only for the time of its next try.
    waits_for_calls: bool,
    /// Slots of calls that were given to it.
    calls: usize,
    /// A reply has come over its present connection.
    has_replied: bool,
    /// Why there is no connection, once that is known.
    trouble: Option<TransportError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineState {
    /// There is a connection.
    Up,
    /// There is none at present.
    #[default]
    Down,
    /// There will be none any more.
    Gone,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    user: usize,
    line: usize,
    /// Whether it is in the queue.
    queued: bool,
    due: Due,
    waker: Option<Waker>,
    outcome: Option<Outcome>,
}

/// When the time of a call is up. It begins with the first sweep that finds the call: a look at the
/// clock costs more than all else here.
#[derive(Clone, Copy, Debug)]
enum Due {
    In(Duration),
    At(Instant, Duration),
}

/// What became of a call.
pub(crate) type Outcome = Result<Payload, TransportError>;

/// The end of one call. Dropping it cancels the call.
#[derive(Debug)]
pub(crate) struct PendingCall {
    calls: Arc<Calls>,
    /// Whose call it is.
    user: usize,
    /// How long it may take, if not as long as others.
    limit: Option<Duration>,
    state: PendingState,
}

#[derive(Debug)]
enum PendingState {
    Unsent(Option<CallRequest>),
    Sent(CallToken),
    Done,
}

/// The slot that a token is for, if it is still there.
fn slot(slots: &mut Slab<Slot>, token: CallToken) -> Option<&mut Slot> {
    let (generation, index) = parts(token);
    slots
        .get_mut(index)
        .filter(|slot| slot.generation == generation)
}

/// The slot of a call that has no end yet.
fn waited_for(slots: &mut Slab<Slot>, token: CallToken) -> Option<&mut Slot> {
    slot(slots, token).filter(|slot| slot.outcome.is_none())
}

/// Notes that a call is not in the queue any more; whether somebody waits for it.
fn unqueue(slots: &mut Slab<Slot>, token: CallToken) -> bool {
    let slot = waited_for(slots, token);
    slot.map(|slot| slot.queued = false).is_some()
}

impl Line {
    /// Whose turn it is with so many calls on their way.
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

    /// Forgets the calls that nobody waits for.
    fn forget(&mut self, slots: &mut Slab<Slot>) {
        let mut wanted = |request: &CallRequest| waited_for(slots, *request.call()).is_some();
        self.queue.retain(&mut wanted);
        self.retried_alone.retain(wanted);
    }
}

impl Inner {
    /// The line for a call that has none yet: of those with a connection, if there are any, the
    /// one with the fewest calls.
    fn choose(&self) -> Option<usize> {
        self.best(|line| (line.state != LineState::Up, line.calls))
    }

    /// The line for a call that has lost its own: the same, but rather one that has brought a reply.
    /// Another may be as silent as the one that was given up.
    fn choose_again(&self) -> Option<usize> {
        self.best(|line| (line.state != LineState::Up, !line.has_replied, line.calls))
    }

    fn best<K: Ord>(&self, rank: impl Fn(&Line) -> K) -> Option<usize> {
        let usable = |(_, line): &(usize, &Line)| line.state != LineState::Gone;
        let lines = self.lines.iter().enumerate().filter(usable);
        lines
            .min_by_key(|(_, line)| rank(line))
            .map(|(index, _)| index)
    }

    /// The line for a call that was given to `line`: another only if that one has no connection
    /// and the other has.
    fn instead_of(&self, line: usize) -> usize {
        let state = self.lines[line].state;
        if self.lines.len() == 1 || state == LineState::Up {
            return line;
        }
        match self.choose_again() {
            Some(other) if state == LineState::Gone => other,
            Some(other) if self.lines[other].state == LineState::Up => other,
            Some(_) | None => line,
        }
    }

    /// Gives a call that is in no queue to another line.
    fn give(&mut self, token: CallToken, to: usize) {
        let slot = slot(&mut self.slots, token).expect("somebody waits for it");
        let from = std::mem::replace(&mut slot.line, to);
        self.lines[from].calls -= 1;
        self.lines[to].calls += 1;
    }

    /// Has a call wait again, on its line or on another that has a connection; who is to be woken.
    fn queue(
        &mut self,
        request: CallRequest,
        put: impl FnOnce(&mut Line, usize, CallRequest),
    ) -> Option<Waker> {
        let token = *request.call();
        let slot = waited_for(&mut self.slots, token)?;
        slot.queued = true;
        let (from, user) = (slot.line, slot.user);
        let to = self.instead_of(from);
        put(&mut self.lines[to], user, request);
        if to == from {
            return None;
        }
        self.give(token, to);
        self.lines[to].owner.take()
    }

    /// Gives the calls that wait for a line without a connection to those that have one.
    fn hand_over(&mut self, from: usize) -> SmallVec<[Waker; 4]> {
        let mut owners = SmallVec::new();
        while self.instead_of(from) != from {
            let line = &mut self.lines[from];
            let Some(request) = line.queue.pop().or_else(|| line.retried_alone.pop()) else {
                break;
            };
            let token = *request.call();
            let Some(slot) = waited_for(&mut self.slots, token) else {
                continue;
            };
            let user = slot.user;
            let to = self.instead_of(from);
            self.give(token, to);
            let line = &mut self.lines[to];
            line.put_last(user, request);
            owners.extend(line.owner.take());
        }
        owners
    }

    /// Whether calls are made on other connections of the client, so that one more may be of use.
    fn others_busy(&self, line: usize) -> bool {
        self.lines.len() > 1
            && self.lines[line].state != LineState::Up
            && self
                .lines
                .iter()
                .enumerate()
                .any(|(index, other)| index != line && other.calls > 0)
    }

    /// Frees the slot of a call.
    fn remove(&mut self, token: CallToken) -> Slot {
        let slot = self.slots.remove(parts(token).1);
        self.lines[slot.line].calls -= 1;
        slot
    }

    fn fail_all(&mut self, error: &TransportError, of: impl Fn(&Slot) -> bool) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for (_, slot) in &mut self.slots {
            if slot.outcome.is_none() && of(slot) {
                slot.outcome = Some(Err(error.clone()));
                wakers.extend(slot.waker.take());
            }
        }
        wakers
    }

    fn end(&mut self, error: &TransportError) -> Vec<Waker> {
        self.over.get_or_insert_with(|| error.clone());
        for line in &mut self.lines {
            line.queue = Queue::default();
            line.retried_alone = RetriedAlone::default();
        }
        self.fail_all(error, |_| true)
    }
}

/// A token: generation and index of the slot.
fn token(generation: u32, index: usize) -> CallToken {
    CallToken(u64::from(generation) << 32 | index as u64)
}

#[allow(clippy::cast_possible_truncation, reason = "the parts are taken apart")]
pub(super) fn parts(token: CallToken) -> (u32, usize) {
    ((token.0 >> 32) as u32, token.0 as u32 as usize)
}

/// The user that everybody is who is no other.
pub(crate) const FIRST_USER: usize = 0;

impl Calls {
    /// No calls yet, for so many lines, none of which has a connection.
    pub(crate) fn new(timeout: Duration, lines: usize) -> Self {
        let mut users = Slab::new();
        assert_eq!(
            users.insert(()),
            FIRST_USER,
            "a slab begins at its first place"
        );
        Self {
            timeout,
            inner: Mutex::new(Inner {
                slots: Slab::new(),
                generation: 0,
                lines: (0..lines).map(|_| Line::default()).collect(),
                users,
                closing: false,
                over: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more user, whose calls have their turn like those of any other.
    pub(crate) fn add_user(&self) -> usize {
        self.lock().users.insert(())
    }

    /// Somebody makes no more calls.
    pub(crate) fn remove_user(&self, user: usize) {
        self.lock().users.remove(user);
    }

    /// Asks the owners to end their connections.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        let owners = inner.lines.iter_mut().map(|line| line.owner.take());
        let owners: Vec<_> = owners.collect();
        drop(inner);
        owners.into_iter().for_each(wake);
    }

    /// A line has a connection. What waits for others that have none goes over it.
    pub(crate) fn connected(&self, line: usize) {
        let mut inner = self.lock();
        let line = &mut inner.lines[line];
        line.state = LineState::Up;
        line.has_replied = false;
        line.trouble = None;
        line.retried_alone.begin();
        let mut owners = SmallVec::<[Waker; 4]>::new();
        for from in 0..inner.lines.len() {
            if inner.lines[from].state == LineState::Down {
                owners.extend(inner.hand_over(from));
            }
        }
        drop(inner);
        owners.into_iter().for_each(Waker::wake);
    }

    /// A line has no connection, for this reason if it is known. What waits for it goes over
    /// another that has one.
    pub(crate) fn lost(&self, line: usize, trouble: Option<TransportError>) {
        let mut inner = self.lock();
        inner.lines[line].state = LineState::Down;
        inner.lines[line].trouble = trouble;
        inner.lines[line].retried_alone.begin();
        let owners = inner.hand_over(line);
        drop(inner);
        owners.into_iter().for_each(Waker::wake);
    }

    /// A line will have no connection any more. What waits for it goes over another, if there is
    /// one; otherwise every call ends with `error`, those to come too.
    pub(crate) fn leave(&self, line: usize, error: &TransportError) {
        let mut inner = self.lock();
        inner.lines[line].state = LineState::Gone;
        let gone = |line: &Line| line.state == LineState::Gone;
        let (owners, callers) = if inner.lines.iter().all(gone) {
            (SmallVec::new(), inner.end(error))
        } else {
            (inner.hand_over(line), Vec::new())
        };
        drop(inner);
        owners.into_iter().chain(callers).for_each(Waker::wake);
    }

    /// The owner of a line is gone: the same, and calls that it had sent end with `error`.
    pub(crate) fn abandon(&self, line: usize, error: &TransportError) {
        self.leave(line, error);
        let mut inner = self.lock();
        let wakers = inner.fail_all(error, |slot| slot.line == line && !slot.queued);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Why a call has no reply after so long, as far as that is known.
    pub(crate) fn reason(&self, limit: Duration) -> TransportError {
        let inner = self.lock();
        let up = inner.lines.iter().any(|line| line.state == LineState::Up);
        let mut troubles = inner.lines.iter().filter_map(|line| line.trouble.clone());
        match troubles.next() {
            Some(trouble) if !up => trouble,
            Some(_) | None => TransportError::TimedOut(limit),
        }
    }

    /// Takes up to `room` calls to send, while so many are on their way, and the calls that were
    /// cancelled since; whether the owner is to end the connection.
    pub(crate) fn take(&self, line: usize, room: usize, out: usize, work: &mut Work) -> bool {
        let mut inner = self.lock();
        let Inner { slots, lines, .. } = &mut *inner;
        let line = &mut lines[line];
        work.cancelled.append(&mut line.cancelled);
        let turn = match room {
            0 => Turn::Nobody,
            _ => line.turn(out),
        };
        if turn == Turn::Nobody {
            return inner.closing;
        }
        if turn == Turn::RetriedAlone {
            while let Some(request) = line.retried_alone.pop() {
                if unqueue(slots, *request.call()) {
                    work.calls.push_back(request);
                    line.retried_alone.sent_alone();
                    break;
                }
            }
        } else if work.calls.is_empty() && line.queue.len() <= room {
            // All of them, and none is moved for that: a call is larger than it looks.
            line.queue.take_all(&mut work.calls);
            work.calls.retain(|request| unqueue(slots, *request.call()));
        } else {
            let mut left = room;
            while left > 0 {
                let Some(request) = line.queue.pop() else {
                    break;
                };
                if unqueue(slots, *request.call()) {
                    left -= 1;
                    work.calls.push_back(request);
                }
            }
        }
        inner.closing
    }

    /// Some time has passed on a connection: neither calls retried alone nor others wait for ever.
    pub(crate) fn release(&self, line: usize) {
        let mut inner = self.lock();
        let Inner { slots, lines, .. } = &mut *inner;
        let Line {
            retried_alone,
            queue,
            ..
        } = &mut lines[line];
        for request in retried_alone.sweep() {
            if let Some(slot) = waited_for(slots, *request.call()) {
                queue.push_front(slot.user, request);
            }
        }
    }

    /// Puts a call back in front of those that wait, because it could not be sent now. If nobody
    /// waits for it any more it is forgotten.
    pub(crate) fn put_back(&self, request: CallRequest) {
        self.queue(request, Line::put_back);
    }

    /// The same, behind those that wait.
    pub(crate) fn put_last(&self, request: CallRequest) {
        self.queue(request, Line::put_last);
    }

    fn queue(&self, request: CallRequest, put: impl FnOnce(&mut Line, usize, CallRequest)) {
        let mut inner = self.lock();
        let owner = inner.queue(request, put);
        drop(inner);
        wake(owner);
    }

    /// Whether the owner of a line has something to do for its users, be it now or by a wake-up
    /// from now on. A call can be sent if it is known how many are on their way.
    pub(crate) fn poll_work(&self, line: usize, cx: &Context<'_>, out: Option<usize>) -> bool {
        let mut inner = self.lock();
        let others_busy = out.is_some() && inner.others_busy(line);
        let closing = inner.closing;
        let line = &mut inner.lines[line];
        let work = closing
            || !line.cancelled.is_empty()
            || others_busy
            || out.is_some_and(|out| match line.turn(out) {
                Turn::Others => !line.queue.is_empty(),
                Turn::RetriedAlone => true,
                Turn::Nobody => false,
            });
        line.waits_for_calls = out.is_some();
        if !work && !matches!(&line.owner, Some(w) if w.will_wake(cx.waker())) {
            line.owner = Some(cx.waker().clone());
        }
        work
    }

    /// Whether a line that has no connection should have one.
    pub(crate) fn wants_connection(&self, line: usize) -> bool {
        let mut inner = self.lock();
        if inner.others_busy(line) {
            return true;
        }
        let Inner { slots, lines, .. } = &mut *inner;
        let line = &mut lines[line];
        let mut wanted = |request: &CallRequest| waited_for(slots, *request.call()).is_some();
        if line.queue.iter().any(&mut wanted) || line.retried_alone.iter().any(wanted) {
            return true;
        }
        // Or else the owner would find work for which it need not connect, again and again.
        line.forget(slots);
        false
    }

    /// A number that changes with each call, over whatever line.
    pub(crate) fn made(&self) -> u64 {
        self.lock().generation.into()
    }

    /// Whether no call waits to be sent over this line.
    pub(crate) fn is_idle(&self, line: usize) -> bool {
        self.lock().lines[line].is_idle()
    }

    /// Whether the owner of a line has something to do for its users.
    pub(crate) fn has_work(&self, line: usize) -> bool {
        let inner = self.lock();
        let line = &inner.lines[line];
        !line.is_idle() || !line.cancelled.is_empty()
    }

    /// Wakes the owner of a line, if it waits.
    pub(crate) fn wake_owner(&self, line: usize) {
        let owner = self.lock().lines[line].owner.take();
        wake(owner);
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
            let Inner { slots, lines, .. } = &mut *inner;
            if let Some(slot) = slot(slots, token) {
                lines[slot.line].has_replied |= outcome.is_ok();
                slot.outcome = Some(outcome);
                wakers.extend(slot.waker.take());
            }
        }
    }

    /// Ends the calls of a line whose time is up with `error`. Those that were on their way are
    /// appended to `sent`. The time of a call begins with the first such sweep. Says how long one
    /// of those that are left may take at most, or any other that is made.
    pub(crate) fn expire(
        &self,
        line: usize,
        now: Instant,
        error: &TransportError,
        sent: &mut Vec<CallToken>,
    ) -> Duration {
        let mut wakers = Vec::new();
        let mut longest = self.timeout;
        let mut inner = self.lock();
        let Inner { slots, lines, .. } = &mut *inner;
        for (index, slot) in slots.iter_mut() {
            if slot.line != line || slot.outcome.is_some() {
                continue;
            }
            let (at, limit) = match slot.due {
                Due::In(limit) => (now + limit, limit),
                Due::At(at, limit) => (at, limit),
            };
            slot.due = Due::At(at, limit);
            if at > now {
                longest = longest.max(limit);
                continue;
            }
            slot.outcome = Some(Err(match error {
                TransportError::TimedOut(_) => TransportError::TimedOut(limit),
                other => other.clone(),
            }));
            wakers.extend(slot.waker.take());
            if !slot.queued {
                sent.push(token(slot.generation, index));
            }
        }
        lines[line].forget(slots);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        longest
    }

    /// There will be no more replies: every call ends with `error`, those to come too.
    pub(crate) fn end(&self, error: &TransportError) {
        let mut inner = self.lock();
        let wakers = inner.end(error);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl PendingCall {
    pub(crate) fn new(
        calls: Arc<Calls>,
        user: usize,
        message: Payload,
        bound: oncrpc::ReplyBound,
    ) -> Self {
        // The token is known once there is a slot.
        let request = CallRequest::new(CallToken(0), message, bound);
        Self {
            calls,
            user,
            limit: None,
            state: PendingState::Unsent(Some(request)),
        }
    }

    /// The same with a limit of its own; it is looked at now and then.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    fn send(&mut self, cx: &Context<'_>) -> Result<CallToken, TransportError> {
        let PendingState::Unsent(request) = &mut self.state else {
            unreachable!("a call is sent once");
        };
        let mut inner = self.calls.lock();
        if let Some(error) = &inner.over {
            return Err(error.clone());
        }
        let unsent = request.as_mut().expect("a call is sent once");
        inner.generation = inner.generation.wrapping_add(1);
        let line = match inner.lines.len() {
            1 => 0,
            _ => inner
                .choose()
                .expect("while calls are taken there is a line"),
        };
        let slot = Slot {
            generation: inner.generation,
            user: self.user,
            line,
            queued: true,
            due: Due::In(self.limit.unwrap_or(self.calls.timeout)),
            waker: Some(cx.waker().clone()),
            outcome: None,
        };
        let token = token(slot.generation, inner.slots.insert(slot));
        *unsent.call_mut() = token;
        let chosen = &mut inner.lines[line];
        chosen.calls += 1;
        chosen.queue.push(self.user, request);
        let owner = chosen.owner.take();
        let others = inner.sleepers();
        drop(inner);
        wake(owner);
        others.into_iter().for_each(Waker::wake);
        Ok(token)
    }
}

impl Inner {
    /// The owners of lines that have no connection: now that there are calls, they may want one.
    fn sleepers(&mut self) -> SmallVec<[Waker; 4]> {
        if self.lines.len() == 1 {
            return SmallVec::new();
        }
        let may_wake = |line: &&mut Line| line.state == LineState::Down && line.waits_for_calls;
        let lines = self.lines.iter_mut().filter(may_wake);
        lines.filter_map(|line| line.owner.take()).collect()
    }
}

impl Future for PendingCall {
    type Output = Result<Payload, TransportError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            PendingState::Unsent(_) => match this.send(cx) {
                Ok(token) => {
                    this.state = PendingState::Sent(token);
                    Poll::Pending
                }
                Err(error) => {
                    this.state = PendingState::Done;
                    Poll::Ready(Err(error))
                }
            },
            PendingState::Sent(token) => {
                let mut inner = this.calls.lock();
                let slot =
                    slot(&mut inner.slots, *token).expect("a call keeps its slot until its end");
                if slot.outcome.is_none() {
                    if !matches!(&slot.waker, Some(w) if w.will_wake(cx.waker())) {
                        slot.waker = Some(cx.waker().clone());
                    }
                    return Poll::Pending;
                }
                let slot = inner.remove(*token);
                drop(inner);
                this.state = PendingState::Done;
                Poll::Ready(slot.outcome.expect("it was there just now"))
            }
            PendingState::Done => panic!("a call has one end"),
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let PendingState::Sent(token) = self.state else {
            return;
        };
        let mut inner = self.calls.lock();
        let slot = inner.remove(token);
        if slot.outcome.is_some() || slot.queued {
            return;
        }
        let line = &mut inner.lines[slot.line];
        line.cancelled.push(token);
        let owner = line.owner.take();
        drop(inner);
        wake(owner);
    }
}

#[cfg(test)]
mod tests;
