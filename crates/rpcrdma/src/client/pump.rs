//! The task that owns a client's connection, and makes the next one when it is lost.

use super::calls::Calls;
use super::connector::{Connector, shows_broken_invalidation};
use super::outgoing::{Outgoing, SWEEP};
use super::suspects::MAX_LOSSES;
use super::{ConnectionInfo, Shared};
use crate::answers::Answers;
use crate::server::pulling::Pulling;
use crate::spin::{Idle, Spinner, after_others};
use crate::watch::{Disuse, Health, Pulse, Silence, heard, null_call};
use crate::wire::{Over, Wire};
use crate::{ClientConfig, clock};
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use rpcrdma_proto::{CallId, Called, Event, Unfinished};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use tracing::debug;
use verbs::{CloseReason, SetupError};

/// Turns without a pause before other tasks of the runtime have theirs.
const TURNS: u32 = 4;

/// Turns without a pause before the owner looks around all the same.
const LOOK_AROUND: u32 = 64;

/// The owner of one line of a client: of a connection, and then the next.
pub(crate) struct Pump {
    shared: Arc<Shared>,
    connector: Arc<Connector>,
    spinner: Spinner,
    /// The time, as of the last look around or wake-up.
    now: Instant,
    /// Wakes it when it has to look around; made once, as it waits often.
    timer: Pin<Box<Sleep>>,
    outgoing: Outgoing,
    /// Calls of the server that were taken in just now; kept for its memory.
    called: Vec<(CallId, Payload)>,
    /// How long to wait before the next connection: not at all if the last one was of use.
    backoff: Duration,
    /// The server closed the last connection, and neither end had called on it.
    unwanted: bool,
}

/// What goes with one connection.
struct Present {
    wire: Wire,
    /// Answers the calls of the server.
    answers: Answers,
    /// Whether the server is there, where nobody below us looks.
    pulse: Option<Pulse>,
    silence: Silence,
    disuse: Disuse,
    pulling: Pulling,
}

impl Drop for Pump {
    /// However this ends, nobody waits in vain.
    fn drop(&mut self) {
        let error = TransportError::Disconnected("the runtime of the client has ended".into());
        self.calls().abandon(self.outgoing.line, &error);
        self.shared.ended.send_modify(|ended| *ended += 1);
    }
}

impl Pump {
    pub(crate) fn new(shared: Arc<Shared>, connector: Arc<Connector>, line: usize) -> Self {
        let config = &connector.config;
        let calls = Arc::clone(&shared.calls);
        Self {
            spinner: Spinner::new(config.spin, super::activity()),
            now: clock::now(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            outgoing: Outgoing::new(calls, line, config.call_timeout),
            called: Vec::new(),
            backoff: Duration::ZERO,
            unwanted: false,
            shared,
            connector,
        }
    }

    fn calls(&self) -> &Calls {
        &self.outgoing.calls
    }

    /// Until the client is closed, or its connection is lost for good.
    pub(crate) async fn run(mut self, mut wire: Option<Wire>) {
        let line = self.outgoing.line;
        loop {
            let next = match wire.take() {
                Some(wire) => wire,
                None => {
                    self.spinner.leave();
                    match self.reconnect().await {
                        Some(wire) => wire,
                        None => {
                            let error = TransportError::Disconnected(Over::Asked.to_string());
                            return self.calls().end(&error);
                        }
                    }
                }
            };
            self.calls().connected(line);
            let mut present = self.present(next);
            let over = self.drive(&mut present).await;
            self.spinner.leave();
            self.listen(&mut present);
            let Present { mut wire, .. } = present;
            wire.log_end(&over);
            if shows_broken_invalidation(&over) {
                self.connector.distrust_invalidation();
            }
            let error = TransportError::Disconnected(over.to_string());
            let last = over == Over::Asked || !self.connector.config.reconnect;
            match over {
                Over::Asked => self.calls().end(&error),
                _ if last => self.calls().leave(line, &error),
                Over::Unused(_) => self.calls().lost(line, None),
                // Others may have a connection for what waits.
                _ => self.calls().lost(line, Some(error)),
            }
            // Nothing is to be expected of a peer that is over, or does not speak.
            if !matches!(over, Over::Closed(_) | Over::Silent(_) | Over::Mute(_)) {
                wire.close().await;
            }
            let counters = *wire.connection.counters();
            self.shared.lost(line, &counters, wire.qp.io_counters());
            let silent = counters.calls_sent + counters.calls_received == 0;
            self.unwanted = silent && over == Over::Closed(CloseReason::Peer);
            if counters.replies_received > 0 || matches!(over, Over::Unused(_)) {
                self.backoff = Duration::ZERO;
            } else {
                // A server that drops each connection must not be asked as fast as we can.
                self.back_off();
            }
            self.take_unfinished(wire, &over);
            self.outgoing.blocked = false;
            if last {
                return;
            }
        }
    }

    fn present(&mut self, wire: Wire) -> Present {
        self.now = clock::now();
        let health = &self.connector.config.health;
        let checks = health.is_done(wire.qp.limits());
        Present {
            answers: self.connector.answers(&wire),
            pulse: checks.then(|| Pulse::new(self.now, health.after, health.within)),
            silence: Silence::new(self.now),
            disuse: Disuse::new(self.now),
            pulling: Pulling::new(self.connector.config.pull_timeout),
            wire,
        }
    }

    /// Calls that had no end are planned, registered and sent anew on another connection, with
    /// the same XID. One that was alone on its way time after time is what breaks them (RFC 8166
    /// §4.5.3).
    fn take_unfinished(&mut self, wire: Wire, over: &Over) {
        let mut again = Vec::new();
        let mute = matches!(over, Over::Mute(_));
        let unfinished = match mute {
            true => wire.connection.into_unanswered(),
            false => wire.connection.into_unfinished(),
        };
        for unfinished in unfinished {
            match unfinished {
                Unfinished::Again(request) if request.losses_alone < MAX_LOSSES => {
                    again.push(request);
                }
                Unfinished::Again(request) => {
                    let error = TransportError::Disconnected(over.to_string());
                    self.calls().complete(request.token(), Err(error));
                }
                Unfinished::Ended(token, reply) => self.calls().complete(token, reply),
            }
        }
        // Put back in front, so the one with the lowest token has to be the last.
        again.sort_by_key(|request| std::cmp::Reverse(request.token().0));
        for request in again {
            match mute {
                // Should the server have no answer to this very call, others get theirs.
                true => self.calls().put_last(request),
                false => self.calls().put_back(request),
            }
        }
    }

    /// One connection, from its beginning to its end.
    async fn drive(&mut self, present: &mut Present) -> Over {
        let mut turns = 0;
        self.spinner.busy();
        self.now = clock::now();
        loop {
            if let Some(over) = present.wire.over() {
                return over;
            }
            let sent = match self.outgoing.send(self.now, &mut present.wire) {
                Ok(sent) => sent,
                Err(over) => return over,
            };
            let moved = present.wire.turn();
            let delivered = match self.deliver(present) {
                Ok(delivered) => delivered,
                Err(over) => return over,
            };
            if let Some(over) = present.wire.over() {
                return over;
            }
            if moved || sent {
                self.outgoing.blocked &= !moved;
                self.spinner.busy();
                turns += 1;
                if delivered {
                    after_others().await;
                } else if turns % TURNS == 0 {
                    tokio::task::yield_now().await;
                }
                if turns < LOOK_AROUND {
                    continue;
                }
            }
            turns = 0;
            let idle = if moved || sent {
                Idle::Yielded
            } else {
                self.spinner.idle().await
            };
            if idle == Idle::Again {
                continue;
            }
            self.now = clock::now();
            if let Some(over) = self.look_around(present) {
                return over;
            }
            if idle == Idle::Park {
                if let Err(over) = self.park(present).await {
                    return over;
                }
                self.now = clock::now();
                self.spinner.busy();
            }
        }
    }

    /// Hands replies to their callers, and calls of the server to whoever answers them; whether
    /// there was one of either.
    fn deliver(&mut self, present: &mut Present) -> Result<bool, Over> {
        let Present { wire, answers, .. } = present;
        let connection = &mut wire.connection;
        if connection.waits_for_memory() {
            // It is memory of this connection alone, so none comes back but in its own turns.
            connection.handle_memory(Waker::noop());
        }
        let answered = answers.in_flight() > 0 && answers.finish(connection)?;
        if !connection.has_events() {
            return Ok(answered);
        }
        // Whoever has a reply finds its call counted.
        self.publish(wire);
        let connection = &mut wire.connection;
        let called = &mut self.called;
        let ended = std::iter::from_fn(|| {
            loop {
                match connection.poll_event()? {
                    Event::Reply { token, reply } => return Some((token, reply)),
                    Event::Call { id, message } => called.push((id, message)),
                }
            }
        });
        self.outgoing.deliver(ended);
        for (id, message) in self.called.drain(..) {
            answers.call(connection, id, message);
        }
        Ok(true)
    }

    /// What is not to be done in every turn: counters, deadlines, silence and disuse.
    fn look_around(&mut self, present: &mut Present) -> Option<Over> {
        self.publish(&present.wire);
        if let Some(over) = self.check_health(present) {
            return Some(over);
        }
        if !self.outgoing.sweep(self.now, &mut present.wire) {
            return None;
        }
        if let Some(limit) = self.outgoing.overdue(self.now, &present.wire) {
            return Some(Over::CallTimedOut(limit));
        }
        if let Some(over) = self.check_silence(present) {
            return Some(over);
        }
        let connection = &present.wire.connection;
        // The memory is of this connection alone: nobody else is short of it.
        let owed = connection.waits_for_chunks();
        if present.pulling.is_late(self.now, owed, || false) {
            return Some(Over::PullTimedOut(self.connector.config.pull_timeout));
        }
        let limit = self.idle_timeout()?;
        let in_use = connection.calls_out() + connection.calls_in() > 0;
        // Those of all connections count: they come and go together.
        let used = self.calls().made();
        let unused = present.disuse.look(self.now, used, in_use);
        (unused >= limit).then_some(Over::Unused(limit))
    }

    /// RFC 8167 §5.4: where the server may have calls for us, a connection is kept without use.
    fn idle_timeout(&self) -> Option<Duration> {
        let config = &self.connector.config;
        let may_end = config.reconnect && !self.connector.keeps_connections();
        config.idle_timeout.filter(|_| may_end)
    }

    /// RFC 8267 §6.7.2: a server of which something is wanted, and that says nothing, is asked with
    /// a call that has a credit of its own.
    fn check_health(&mut self, present: &mut Present) -> Option<Over> {
        let pulse = present.pulse.as_mut()?;
        let connection = &mut present.wire.connection;
        let wanted = connection.calls_out() > 0 || self.connector.keeps_connections();
        match pulse.look(self.now, heard(connection.counters()), wanted) {
            Health::Well => None,
            Health::Silent(within) => Some(Over::Silent(within)),
            Health::Ask => {
                if !connection.can_check_health() {
                    return None;
                }
                let program = self.connector.config.health.program;
                let request = null_call(self.shared.next_xid(), program).as_health_check();
                let qp = present.wire.qp.as_mut();
                if let Called::Sent = connection.call(self.now, request, qp) {
                    pulse.asked(self.now);
                }
                None
            }
        }
    }

    /// A connection may have been set up by a server that knows nothing of it any more, or cannot
    /// use it: that shows before anything was heard on it, and another connection may be better.
    fn check_silence(&mut self, present: &mut Present) -> Option<Over> {
        self.listen(present);
        let Present { wire, silence, .. } = present;
        let io = wire.qp.io_counters();
        let moved = io.octets_in + io.octets_out;
        let silent = silence.look(self.now, wire.connection.oldest_call(), moved)?;
        let patience = self.shared.patience.present().min(self.outgoing.longest());
        if silent < patience || !self.connector.config.reconnect {
            return None;
        }
        self.shared.patience.given_up(patience);
        Some(Over::Mute(patience))
    }

    /// Notes it if the server has spoken on this connection.
    fn listen(&self, present: &mut Present) {
        let heard = heard(present.wire.connection.counters());
        if present.silence.listen(heard) {
            self.shared.patience.heard();
        }
    }

    fn publish(&self, wire: &Wire) {
        let io = wire.qp.io_counters();
        let line = self.outgoing.line;
        self.shared.publish(line, &wire.connection, io);
    }

    async fn park(&mut self, present: &mut Present) -> Result<(), Over> {
        let silent = present.pulse.as_ref().map(Pulse::next);
        // If there was no credit to ask with, it is tried again with the next sweep.
        let silent = silent.filter(|&silent| silent > self.now);
        let until = silent
            .into_iter()
            .fold(self.outgoing.next_sweep, Instant::min);
        if self.timer.deadline().into_std() != until {
            self.timer.as_mut().reset(until.into());
        }
        let timer = &mut self.timer;
        let outgoing = &self.outgoing;
        std::future::poll_fn(|cx| {
            let Present { wire, answers, .. } = &mut *present;
            if answers.in_flight() > 0
                && let Poll::Ready(answered) = answers.poll(cx, &mut wire.connection)
            {
                return Poll::Ready(answered);
            }
            let ready = wire.poll_ready(cx).is_ready()
                | outgoing.poll_work(cx, wire)
                | timer.as_mut().poll(cx).is_ready();
            if ready {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// A new connection, once a call wants one, or the server may; `None` if the client is closed
    /// before.
    async fn reconnect(&mut self) -> Option<Wire> {
        let timeout = self.connector.config.call_timeout;
        let mut last = TransportError::TimedOut(timeout);
        loop {
            self.wait_for_call(self.backoff, &last).await?;
            match self.attempt(&last).await? {
                Ok((wire, info)) => {
                    self.shared.connected(self.outgoing.line, info);
                    return Some(wire);
                }
                Err(error) => {
                    debug!(to = %self.connector.to, %error, "no connection");
                    let to = self.connector.to;
                    last = TransportError::Unreachable(format!("cannot connect to {to}: {error}"));
                    self.calls().lost(self.outgoing.line, Some(last.clone()));
                    self.back_off();
                }
            }
        }
    }

    /// One attempt; `None` if the client is closed before its end.
    async fn attempt(
        &mut self,
        last: &TransportError,
    ) -> Option<Result<(Wire, ConnectionInfo), SetupError>> {
        let limit = SWEEP.min(self.connector.config.call_timeout);
        let connector = Arc::clone(&self.connector);
        let mut attempt = std::pin::pin!(connector.connect());
        loop {
            // Connecting has an end of its own, but callers may not want to wait for it.
            match tokio::time::timeout(limit, &mut attempt).await {
                Ok(result) => return Some(result),
                Err(_) => {
                    self.outgoing.expire(clock::now(), last);
                    if self.is_closing() {
                        return None;
                    }
                }
            }
        }
    }

    /// Whether the client is closed. While there is no connection, nothing is on its way that could
    /// be cancelled.
    fn is_closing(&mut self) -> bool {
        let Outgoing {
            calls, line, work, ..
        } = &mut self.outgoing;
        let closing = calls.take(*line, 0, 0, work);
        work.cancelled.clear();
        closing
    }

    fn back_off(&mut self) {
        let ClientConfig {
            reconnect_first: first,
            reconnect_most: most,
            ..
        } = self.connector.config;
        self.backoff = (self.backoff * 2).max(first).min(most);
    }

    /// Waits until `backoff` has passed and a connection is wanted; `None` if the client is closed
    /// before.
    async fn wait_for_call(&mut self, backoff: Duration, last: &TransportError) -> Option<()> {
        let start = clock::now();
        let line = self.outgoing.line;
        loop {
            let closing = self.is_closing();
            self.now = clock::now();
            if self.now >= self.outgoing.next_sweep {
                self.outgoing.expire(self.now, last);
            }
            if closing {
                return None;
            }
            let passed = self.now >= start + backoff;
            // RFC 8167 §5.4: the server may have calls for us. It has none before a call of ours has told
            // it that we are ready (§6), so where it sees no use in waiting, we do not come back for it.
            let kept = self.connector.keeps_connections() && !self.unwanted;
            if passed && (kept || self.calls().wants_connection(line)) {
                return Some(());
            }
            let next_sweep = self.outgoing.next_sweep;
            let until = if passed {
                next_sweep
            } else {
                next_sweep.min(start + backoff)
            };
            let mut sleep = std::pin::pin!(tokio::time::sleep_until(until.into()));
            let calls = self.calls();
            std::future::poll_fn(|cx: &mut Context<'_>| {
                let ready = calls.poll_work(line, cx, passed.then_some(0))
                    | sleep.as_mut().poll(cx).is_ready();
                if ready {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
    }
}
