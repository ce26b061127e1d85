//! Calls from this end's queue to the wire, over one connection after the other, and their replies.

use super::calls::{CallHandle, Calls, Outcome, Work};
use super::clock;
use super::endpoint::{CloseReason, Endpoint};
use super::owner::Connection;
use oncrpc::TransportError;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

/// How often deadlines are looked at, at least.
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// What the owner of a connection does for those who call over it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) calls: Arc<Calls>,
    pub(crate) conn: usize,
    /// How long a call may take.
    timeout: Duration,
    /// How long one of those that are made now may take.
    longest: Duration,
    pub(crate) next_sweep: Instant,
    /// When a call was last sent.
    pub(crate) last_sent: Instant,
    pub(crate) work: Work,
    /// The present connection has brought a reply.
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

    /// Sends as many calls as there are credits for, and forgets those that were cancelled;
    /// whether there was one to send.
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

    /// The connection is over, and its calls wait to be sent over another.
    pub(crate) fn connection_lost(&mut self) {
        self.has_replied = false;
    }

    /// Hands replies to their callers.
    pub(crate) fn deliver(&mut self, replies: impl Iterator<Item = (CallHandle, Outcome)>) {
        for (call, outcome) in replies {
            if outcome.is_ok() && !self.has_replied {
                self.has_replied = true;
                self.calls.replied(self.conn);
            }
            call.complete(outcome);
        }
    }

    /// Ends the calls whose time is up, if it is time to look; whether it was.
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

    /// Ends the calls whose time is up with `error`: those that wait, and those `in_flight`.
    pub(crate) fn expire<'a>(
        &mut self,
        now: Instant,
        error: &TransportError,
        in_flight: impl Iterator<Item = &'a CallHandle>,
    ) {
        self.next_sweep = now + (self.timeout / 4).min(SWEEP);
        self.longest = self.calls.expire(self.conn, now, error, in_flight);
    }

    /// How long the server has had a call, if that is longer than any call may take: it is not
    /// there any more, or the call is lost. Only a new connection can bring back its memory and its
    /// credit. That nobody waits for it any more changes nothing; that it waited before it was sent
    /// is not the server's fault.
    pub(crate) fn overdue(&self, now: Instant, endpoint: &Endpoint) -> Option<Duration> {
        endpoint.connection.overdue_call(now, self.timeout)
    }

    /// How long any call may take, those included that have more time than others.
    pub(crate) fn longest(&self) -> Duration {
        self.longest
    }

    /// Whether a call waits to be sent, or is in flight.
    pub(crate) fn has_calls(&self, connection: &Connection) -> bool {
        connection.calls_out() > 0 || !self.calls.is_idle(self.conn)
    }

    /// Whether there is something to do for those who call, be it now or by a wake-up from now on.
    pub(crate) fn poll_work(&self, cx: &Context<'_>, endpoint: &Endpoint) -> bool {
        let can_call = endpoint.connection.can_call();
        let out = endpoint.connection.calls_out();
        self.calls.poll_work(self.conn, cx, can_call.then_some(out))
    }
}

/// Tells the connection which calls nobody waits for any more.
fn cancel_unwanted(connection: &mut Connection) {
    connection.cancel(CallHandle::is_unwanted);
}
