//! The task of one connection, the same for both ends.
//!
//! ```text
//! loop {
//!     futures of calls in service    their replies are queued
//!     input                          calls to the service, replies to their calls
//!     output                         one write for all that is queued
//!     nothing to do?                 deadlines, wait
//! }
//! ```

use crate::connection_end::ConnectionEnd;
use crate::dispatch::Dispatch;
use crate::input::{Input, Take};
use crate::memory::SCARCE_AFTER;
use crate::output::OUTPUT_LIMIT;
use crate::shared::Shared;
use rpc_serving::ends::{End, Ends};
use rpc_serving::turns::Turns;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Rounds of a connection with work before other tasks have a turn.
const ROUNDS: usize = 4;

/// Bytes that a peer must accept within the time limit for writing while output waits for it: more
/// messages than one, if these are small.
const WRITE_STEP: u64 = OUTPUT_LIMIT as u64;

/// Bytes of a call that a peer must deliver in [`SCARCE_AFTER`], once others wait for the memory that the
/// call holds: 64 KiB/s.
const PACE: usize = 128 << 10;

/// Time limits of a connection; `None` is without.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeLimits {
    /// How long the connection may be silent without a call in service.
    pub(crate) idle: Option<Duration>,
    /// How long the peer may take to send one message.
    pub(crate) receive: Option<Duration>,
    /// How long the peer may take to accept all that waits, or [`WRITE_STEP`] bytes of it.
    pub(crate) write: Option<Duration>,
    /// How long calls in service may hold memory that others wait for.
    pub(crate) unanswered: Option<Duration>,
}

/// A connection, to be run as a task. Ends with the reason.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    input: Input,
    dispatch: Dispatch,
    limits: TimeLimits,
    ends: Ends,
    /// The turns of the connection, where connections of its address share theirs.
    turns: Option<Turns>,
    /// The peer may end its direction and still get replies.
    half_close: bool,
    /// Closure that is dropped when the connection has ended.
    on_end: Option<Box<dyn FnOnce() + Send>>,
    /// Since when nothing was received, and no call was in flight in either direction.
    idle_since: Option<Instant>,
    /// Number of messages before one that has begun, and the time by which it must be complete.
    begun: Option<(u64, Instant)>,
    /// Number of [`WRITE_STEP`]s sent while output waits, and the time by which it must be larger.
    blocked: Option<(u64, Instant)>,
    /// When [`PACE`] was measured last, and how much of which call had come by then.
    pace: Option<(Instant, u64, usize)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        input: Input,
        dispatch: Dispatch,
        limits: TimeLimits,
        ends: Ends,
        half_close: bool,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self {
            shared,
            input,
            dispatch,
            limits,
            ends,
            turns: None,
            half_close,
            on_end: Some(Box::new(on_end)),
            idle_since: None,
            begun: None,
            blocked: None,
            pace: None,
            timer: None,
        }
    }

    /// Shares turns with other connections of its address.
    pub(crate) fn with_turns(mut self, turns: Turns) -> Self {
        self.turns = Some(turns);
        self
    }

    /// Writes replies to other calls before a failure of the service ends the connection.
    fn written(&mut self, cx: &mut Context<'_>, end: ConnectionEnd) -> ConnectionEnd {
        if matches!(end, ConnectionEnd::ByThisEnd(End::ServiceFailed)) {
            self.shared.output.turn(cx);
        }
        end
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        self.ends.listen(cx);
        for _ in 0..ROUNDS {
            if let Some(turns) = &mut self.turns
                && turns.poll_begin(cx, next_round).is_pending()
            {
                return Poll::Pending;
            }
            let mut progress = match self.dispatch.poll(cx) {
                Ok(progress) => progress,
                Err(end) => return Poll::Ready(self.written(cx, end)),
            };
            match self.input.poll(cx, &mut self.dispatch) {
                Poll::Ready(Ok(())) => progress = true,
                Poll::Ready(Err(end)) => return Poll::Ready(self.written(cx, end)),
                Poll::Pending => {}
            }
            let could_take = self.dispatch.may_take();
            let output = self.shared.output.turn(cx);
            if let Some(error) = output.failed {
                return Poll::Ready(ConnectionEnd::Io(error));
            }
            let blocked = output.blocked.is_some();
            let draining = match self.ends.requests().prevailing() {
                // The service closes behind its replies, which may take the peer a while.
                Some(End::Closed) => true,
                Some(End::ByService) if blocked => true,
                Some(end) => return Poll::Ready(end.into()),
                None => false,
            };
            if draining {
                self.dispatch.drain();
            }
            if let Some(end) = self.is_over(blocked, draining) {
                return Poll::Ready(end);
            }
            if !self.dispatch.still_admitted(blocked) {
                return Poll::Ready(End::Evicted.into());
            }
            // What was written may have made room for what is to be read.
            progress |= !could_take && self.dispatch.may_take();
            progress |= self.dispatch.may_go_on();
            if !progress {
                self.turns.as_ref().inspect(|turns| turns.give_back());
                return self.wait(cx, output.blocked.map(|sent| sent / WRITE_STEP));
            }
            self.idle_since = None;
        }
        // Not at once: the runtime would look for I/O only after many turns of a connection that always has work.
        next_round(cx);
        Poll::Pending
    }

    /// Whether everything is done, after the peer has ended its direction or the server stops.
    fn is_over(&self, blocked: bool, draining: bool) -> Option<ConnectionEnd> {
        let done = self.dispatch.is_idle() && !blocked;
        match self.input.is_over() {
            true if done || !self.half_close => Some(ConnectionEnd::ByPeer),
            _ if draining && done => Some(End::Closed.into()),
            _ => None,
        }
    }

    /// Waits for the next event or deadline.
    fn wait(&mut self, cx: &mut Context<'_>, blocked: Option<u64>) -> Poll<ConnectionEnd> {
        let now = Instant::now();
        let may_take = self.dispatch.may_take();
        self.shared.set_paused(!may_take);
        let next_look = self.dispatch.look(now);
        if !may_take && self.dispatch.may_take() || self.dispatch.may_go_on() {
            // A call of this end came in between, or a job counts as stuck, and nobody else may wake this task.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let begun = self.input.begun().filter(|_| may_take);
        self.begun = deadline(self.begun, begun, self.limits.receive, now);
        self.blocked = deadline(self.blocked, blocked, self.limits.write, now);
        let wanted =
            !self.dispatch.is_idle() || self.shared.is_ready() || self.shared.calls.in_flight() > 0;
        self.idle_since = match wanted {
            true => None,
            false => self.idle_since.or(Some(now)),
        };
        let idle = self
            .limits
            .idle
            .zip(self.idle_since)
            .and_then(|(idle, since)| since.checked_add(idle));
        let pace = self.pace(now);
        let gives_way = self.gives_way(now);
        let ends = [
            (gives_way, ConnectionEnd::GaveWay),
            (pace, ConnectionEnd::ReceiveTimeout),
            (self.begun.map(|(_, at)| at), ConnectionEnd::ReceiveTimeout),
            (self.blocked.map(|(_, at)| at), ConnectionEnd::WriteTimeout),
            (idle, ConnectionEnd::Idle),
        ];
        let ends = ends.into_iter().filter_map(|(at, end)| Some((at?, end)));
        let first = ends.min_by_key(|(at, _)| *at);
        let at = first.as_ref().map(|(at, _)| *at);
        match first {
            Some((at, end)) if at <= now => return Poll::Ready(end),
            Some(_) | None => {}
        }
        if let Some(at) = at.into_iter().chain(next_look).min() {
            self.wake_at(cx, at);
        }
        Poll::Pending
    }

    /// When the peer must have delivered more of a call whose memory others wait for, at the earliest.
    fn pace(&mut self, now: Instant) -> Option<Instant> {
        let (records, have) = self.input.delivered()?;
        let measured = self.pace.filter(|&(since, of, before)| {
            let is_slow = of == records && have < before + PACE;
            let is_time = now.saturating_duration_since(since) >= SCARCE_AFTER;
            is_slow && (!is_time || self.input.is_memory_scarce(now))
        });
        let (since, ..) = *self.pace.insert(measured.unwrap_or((now, records, have)));
        Some(since + SCARCE_AFTER)
    }

    /// When the connection gives way to others, at the earliest.
    fn gives_way(&self, now: Instant) -> Option<Instant> {
        let after = self.limits.unanswered?;
        if !self.input.holds_memory() {
            return None;
        }
        match self.input.must_give_way(now, after) {
            true => Some(now),
            false => Some(now + SCARCE_AFTER),
        }
    }

    /// Wakes the task at this time, or earlier.
    fn wake_at(&mut self, cx: &mut Context<'_>, at: Instant) {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.is_elapsed() || timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        if timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    fn close(&mut self, why: ConnectionEnd) {
        let Some(on_end) = self.on_end.take() else {
            return;
        };
        self.dispatch.report(&why);
        self.shared.close(why);
        on_end();
        self.dispatch.end();
    }
}

/// Wakes the task once those that are ready have run and the runtime has looked for I/O.
fn next_round(cx: &mut Context<'_>) {
    // Its first poll leaves the waker with the runtime for that.
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
}

/// Deadline for something to get on: kept while its count stays.
fn deadline(
    before: Option<(u64, Instant)>,
    count: Option<u64>,
    limit: Option<Duration>,
    now: Instant,
) -> Option<(u64, Instant)> {
    let (count, limit) = (count?, limit?);
    match before {
        Some((same, at)) if same == count => Some((same, at)),
        Some(_) | None => Some((count, now.checked_add(limit)?)),
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.turn(cx) {
            Poll::Ready(why) => {
                self.close(why);
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close(End::Closed.into());
    }
}
