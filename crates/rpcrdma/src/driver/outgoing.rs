//! Calls from this end's queue to the wire, over one connection after the other, and their replies.

use super::calls::{CallHandle, Calls, Outcome, Work};
use super::clock;
use super::close_reason::CloseReason;
use super::endpoint::Endpoint;
use super::owner::Connection;
use oncrpc::TransportError;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

/// Longest interval between checks of deadlines.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// The owner's side of the calls on one connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) calls: Arc<Calls>,
    pub(crate) conn: usize,
    /// Time limit of a call.
    timeout: Duration,
    /// Longest time limit of the current calls.
    longest: Duration,
    pub(crate) next_sweep: Instant,
    /// Time of the last sent call.
    pub(crate) last_sent: Instant,
    pub(crate) work: Work,
    /// Whether the current connection has brought a reply.
    has_replied: bool,
}

impl Outgoing {
    pub(crate) fn new(calls: Arc<Calls>, conn: usize, timeout: Duration) -> Self {
        Self {
            calls,
            conn,
            timeout,
            longest: timeout,
            next_sweep: clock::now(),
            last_sent: clock::now(),
            work: Work::default(),
            has_replied: false,
        }
    }

    /// Sends as many calls as there are credits for, and drops cancelled ones. Returns whether
    /// there was one to send.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
    ) -> Result<bool, CloseReason> {
        let connection = &mut endpoint.connection;
        let (room, out) = (connection.room(), connection.calls_out());
        let closing = self.calls.take(self.conn, room, out, &mut self.work);
        if std::mem::take(&mut self.work.cancelled) {
            cancel_unwanted(connection);
        }
        let mut sent = false;
        for request in self.work.calls.drain(..) {
            match connection.call(now, request, endpoint.qp.as_mut()) {
                Ok(()) => {
                    sent = true;
                    self.last_sent = now;
                }
                Err(failed) => failed.call.complete(Err(failed.error)),
            }
        }
        if closing {
            Err(CloseReason::Asked)
        } else {
            Ok(sent)
        }
    }

    /// Handles the end of the connection: its calls wait for another one.
    pub(crate) fn connection_lost(&mut self) {
        self.has_replied = false;
    }

    /// Delivers replies to their callers.
    pub(crate) fn deliver(&mut self, replies: impl Iterator<Item = (CallHandle, Outcome)>) {
        for (call, outcome) in replies {
            if outcome.is_ok() && !self.has_replied {
                self.has_replied = true;
                self.calls.replied(self.conn);
            }
            call.complete(outcome);
        }
    }

    /// Ends the calls whose time is up, if a check is due. Returns whether it was.
    pub(crate) fn sweep(&mut self, now: Instant, endpoint: &mut Endpoint) -> bool {
        if now < self.next_sweep {
            return false;
        }
        let connection = &mut endpoint.connection;
        self.expire(
            now,
            &TransportError::TimedOut(self.timeout),
            connection.calls(),
        );
        cancel_unwanted(connection);
        self.calls.release(self.conn);
        true
    }

    /// Ends the calls whose time is up with `error`, waiting ones and those `in_flight`.
    pub(crate) fn expire<'a>(
        &mut self,
        now: Instant,
        error: &TransportError,
        in_flight: impl Iterator<Item = &'a CallHandle>,
    ) {
        self.next_sweep = now + (self.timeout / 4).min(SWEEP);
        self.longest = self.calls.expire(self.conn, now, error, in_flight);
    }

    /// Returns for how long the server has had a call, if that exceeds every time limit: the server
    /// is gone, or the call is lost. Only a new connection recovers its memory and credit.
    /// Cancelled calls count too; the wait before a call was sent does not count.
    pub(crate) fn overdue(&self, now: Instant, endpoint: &Endpoint) -> Option<Duration> {
        endpoint.connection.overdue_call(now, self.timeout)
    }

    /// Returns the longest time limit of any call.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Whether a call waits to be sent, or is in flight.
    pub(crate) fn has_calls(&self, connection: &Connection) -> bool {
        connection.calls_out() > 0 || !self.calls.is_idle(self.conn)
    }

    /// Whether there is work for callers now; otherwise registers for a wake-up.
    pub(crate) fn poll_work(&self, cx: &Context<'_>, endpoint: &Endpoint) -> bool {
        let can_call = endpoint.connection.can_call();
        let out = endpoint.connection.calls_out();
        self.calls.poll_work(self.conn, cx, can_call.then_some(out))
    }
}

/// Cancels the calls in flight whose callers have left.
fn cancel_unwanted(connection: &mut Connection) {
    connection.cancel(CallHandle::is_unwanted);
}
