//! Calls on their way out over one connection after the other, and their replies back.

use super::calls::{Calls, Outcome, Work, parts};
use super::clock;
use super::owner::{CallToken, Connection};
use super::wire::{CloseReason, Wire};
use oncrpc::TransportError;
use rpcrdma_proto::CallKey;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// How often deadlines are looked at, at least.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// What the owner of a connection does for those who call over it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) calls: Arc<Calls>,
    pub(crate) line: usize,
    /// How long a call may take.
    timeout: Duration,
    /// How long one of those that are made now may take.
    longest: Duration,
    pub(crate) next_sweep: Instant,
    /// When a call was last sent.
    pub(crate) last_sent: Instant,
    pub(crate) work: Work,
    /// Callers to be woken; kept for its memory.
    woken: Vec<Waker>,
    /// The calls that were handed to the connection, by their place among those waited for.
    keys: Vec<Option<(CallToken, CallKey)>>,
}

impl Outgoing {
    pub(crate) fn new(calls: Arc<Calls>, line: usize, timeout: Duration) -> Self {
        Self {
            calls,
            line,
            timeout,
            longest: timeout,
            next_sweep: clock::now(),
            last_sent: clock::now(),
            work: Work::default(),
            woken: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Sends as many calls as there are credits for, and forgets those that were cancelled;
    /// whether there was one to send.
    pub(crate) fn send(&mut self, now: Instant, wire: &mut Wire) -> Result<bool, CloseReason> {
        let connection = &mut wire.connection;
        let (room, out) = (connection.room(), connection.calls_out());
        let closing = self.calls.take(self.line, room, out, &mut self.work);
        let cancelled = std::mem::take(&mut self.work.cancelled);
        cancelled
            .iter()
            .for_each(|&token| self.cancel(token, connection));
        let mut sent = false;
        for request in self.work.calls.drain(..) {
            let token = *request.call();
            match connection.call(now, request, wire.qp.as_mut()) {
                Ok(key) => {
                    sent = true;
                    self.last_sent = now;
                    let (_, index) = parts(token);
                    if index >= self.keys.len() {
                        self.keys.resize(index + 1, None);
                    }
                    self.keys[index] = Some((token, key));
                }
                Err(failed) => self.calls.complete(failed.call, Err(failed.error)),
            }
        }
        if closing {
            Err(CloseReason::Asked)
        } else {
            Ok(sent)
        }
    }

    /// Nobody waits for a call any more that was handed to the connection.
    fn cancel(&self, token: CallToken, connection: &mut Connection) {
        let (_, index) = parts(token);
        if let Some(&Some((other, key))) = self.keys.get(index)
            && other == token
        {
            connection.cancel(key);
        }
    }

    /// The connection is over: its calls have other keys on the next.
    pub(crate) fn forget_keys(&mut self) {
        self.keys.clear();
    }

    /// Hands replies to their callers.
    pub(crate) fn deliver(&mut self, replies: impl Iterator<Item = (CallToken, Outcome)>) {
        self.calls.complete_all(replies, &mut self.woken);
        self.woken.drain(..).for_each(Waker::wake);
    }

    /// Ends the calls whose time is up, if it is time to look; whether it was.
    pub(crate) fn sweep(&mut self, now: Instant, wire: &mut Wire) -> bool {
        if now < self.next_sweep {
            return false;
        }
        for token in self.expire(now, &TransportError::TimedOut(self.timeout)) {
            self.cancel(token, &mut wire.connection);
        }
        self.calls.release(self.line);
        true
    }

    /// Ends the calls whose time is up with `error`; those that were on their way.
    pub(crate) fn expire(&mut self, now: Instant, error: &TransportError) -> Vec<CallToken> {
        let mut sent = Vec::new();
        self.next_sweep = now + (self.timeout / 4).min(SWEEP);
        self.longest = self.calls.expire(self.line, now, error, &mut sent);
        sent
    }

    /// How long the server has had a call, if that is longer than any call may take: it is not
    /// there any more, or the call is lost. Only a new connection can bring back its memory and its
    /// credit. That nobody waits for it any more changes nothing; that it waited before it was sent
    /// is not the server's fault.
    pub(crate) fn overdue(&self, now: Instant, wire: &Wire) -> Option<Duration> {
        let oldest = wire.connection.oldest_call()?;
        (now >= oldest + self.longest).then_some(self.longest)
    }

    /// How long any call may take, those included that have more time than others.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Whether a call waits to be sent, or is in flight.
    pub(crate) fn has_calls(&self, connection: &Connection) -> bool {
        connection.calls_out() > 0 || !self.calls.is_idle(self.line)
    }

    /// Whether there is something to do for those who call, be it now or by a wake-up from now on.
    pub(crate) fn poll_work(&self, cx: &Context<'_>, wire: &Wire) -> bool {
        let can_call = wire.connection.can_call();
        let out = wire.connection.calls_out();
        self.calls.poll_work(self.line, cx, can_call.then_some(out))
    }
}
