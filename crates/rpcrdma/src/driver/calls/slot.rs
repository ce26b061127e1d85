//! The slot of one call: state shared by its future and the owner of a connection.

use crate::driver::close_reason::CloseReason;
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Outcome of a call.
pub(crate) type Outcome = Result<Payload, TransportError>;

/// The slot of one call, from its first poll to its end.
#[derive(Debug)]
pub(super) struct Slot(Mutex<State>);

#[derive(Debug)]
struct State {
    place: Place,
    /// Whether the call waits in a queue, and is not with a connection.
    queued: bool,
    due: Due,
    waker: Option<Waker>,
    end: End,
}

/// Identity of a call, and its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the call, in the order of the client's calls.
    pub(super) number: u64,
    /// The user who made the call.
    pub(super) user: usize,
    /// The connection to which the call is assigned.
    pub(super) conn: usize,
}

#[derive(Debug)]
enum End {
    Open,
    Ended(Outcome),
    /// The call's future was dropped, or has taken the outcome.
    Left,
}

/// Deadline of a call. Its time begins with the first sweep that finds it, because reading the
/// clock costs more than all else here.
#[derive(Clone, Copy, Debug)]
enum Due {
    In(Duration),
    At(Instant, Duration),
}

/// Result of a sweep for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    /// The call has ended, before or just now.
    Ended,
    /// The call has this much time left.
    Open(Duration),
}

impl Slot {
    pub(super) fn new(place: Place, limit: Duration, waker: Waker) -> Self {
        Self(Mutex::new(State {
            place,
            queued: true,
            due: Due::In(limit),
            waker: Some(waker),
            end: End::Open,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call, unless it has ended. Returns the waker to wake when no lock is held.
    #[must_use]
    fn end(&self, outcome: Outcome) -> Option<Waker> {
        let mut state = self.lock();
        if !matches!(state.end, End::Open) {
            return None;
        }
        state.end = End::Ended(outcome);
        state.waker.take()
    }

    /// Returns the outcome, once there is one, and the connection to which the call was assigned.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<(Outcome, usize)> {
        let mut state = self.lock();
        if let End::Open = state.end {
            if !matches!(&state.waker, Some(waker) if waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        let conn = state.place.conn;
        match std::mem::replace(&mut state.end, End::Left) {
            End::Ended(outcome) => Poll::Ready((outcome, conn)),
            End::Open | End::Left => panic!("a call has one end"),
        }
    }

    /// Handles the drop of the future. Returns the connection to which the call was assigned, and
    /// whether the connection has the call.
    pub(super) fn leave(&self) -> (usize, bool) {
        let mut state = self.lock();
        let waker = state.waker.take();
        let was = std::mem::replace(&mut state.end, End::Left);
        let in_flight = matches!(was, End::Open) && !state.queued;
        let conn = state.place.conn;
        drop(state);
        drop((was, waker));
        (conn, in_flight)
    }
}

/// The slot of a call as it goes with its message: the owner's value of the call in the protocol core.
///
/// A call whose handle is dropped ends with an error, so that no caller waits for ever.
#[derive(Debug)]
pub(crate) struct CallHandle(Option<Arc<Slot>>);

impl CallHandle {
    /// Creates a handle for a call without a caller.
    pub(crate) fn of_nobody() -> Self {
        Self(None)
    }

    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self(Some(slot))
    }

    /// Whether the caller still waits for the call.
    pub(crate) fn is_open(&self) -> bool {
        self.if_open(|_| ()).is_some()
    }

    /// Whether the caller has left or has the outcome.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.0.is_some() && !self.is_open()
    }

    /// Returns the number of the call, in the order of the client's calls.
    pub(crate) fn number(&self) -> u64 {
        let slot = self.0.as_ref();
        slot.map_or(0, |slot| slot.lock().place.number)
    }

    /// Ends the call and wakes its caller. The caller of this method must not hold a lock that the
    /// woken one could need.
    pub(crate) fn complete(mut self, outcome: Outcome) {
        let slot = self.0.take();
        let waker = slot.as_ref().and_then(|slot| slot.end(outcome));
        // The future is the last one to have the slot, and can keep it for the next call.
        drop(slot);
        wake(waker);
    }

    /// Ends the call with an error, without consuming the handle.
    pub(crate) fn fail(&self, error: &TransportError) {
        let slot = self.0.as_ref();
        wake(slot.and_then(|slot| slot.end(Err(error.clone()))));
    }

    /// Returns the place of the call, if its caller still waits.
    pub(super) fn place(&self) -> Option<Place> {
        self.if_open(|state| state.place)
    }

    /// Marks the call as sent. Returns whether its caller still waits.
    pub(super) fn take(&self) -> bool {
        self.if_open(|state| state.queued = false).is_some()
    }

    /// Requeues the call for the connection that `choose` returns for the previous one. Returns
    /// both, if the caller still waits.
    pub(super) fn requeue(&self, choose: impl FnOnce(usize) -> usize) -> Option<(usize, Place)> {
        self.if_open(|state| {
            let from = state.place.conn;
            state.place.conn = choose(from);
            state.queued = true;
            (from, state.place)
        })
    }

    fn if_open<T>(&self, f: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut state = self.0.as_ref()?.lock();
        matches!(state.end, End::Open).then(|| f(&mut state))
    }

    /// Ends the call with `error` if its time is up, and appends the waker to wake to `wakers`.
    pub(super) fn sweep(
        &self,
        now: Instant,
        error: &TransportError,
        wakers: &mut Vec<Waker>,
    ) -> Swept {
        self.if_open(|state| state.sweep(now, error, wakers))
            .unwrap_or(Swept::Ended)
    }
}

impl State {
    fn sweep(&mut self, now: Instant, error: &TransportError, wakers: &mut Vec<Waker>) -> Swept {
        let (at, limit) = match self.due {
            Due::In(limit) => (now + limit, limit),
            Due::At(at, limit) => (at, limit),
        };
        self.due = Due::At(at, limit);
        if at > now {
            return Swept::Open(limit);
        }
        self.end = End::Ended(Err(match error {
            TransportError::TimedOut(_) => TransportError::TimedOut(limit),
            other => other.clone(),
        }));
        wakers.extend(self.waker.take());
        Swept::Ended
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.fail(&TransportError::Disconnected(CloseReason::TaskEnded.into()));
        }
    }
}

pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
