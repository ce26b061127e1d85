//! The task that owns a client's connection, and makes the next one when it is lost.

use super::calls::{Calls, Work};
use super::{ConnectionInfo, Shared};
use crate::clock;
use crate::spin::{Idle, Spinner, after_others};
use crate::wire::{Over, Wire};
use crate::{ClientConfig, Spin};
use buffer::Pool;
use oncrpc::TransportError;
use rpcrdma_proto::{
    Budget, CallToken, Called, Config, Connection, Event, FailedCalls, PrivateData, Registrations,
    Role, Unfinished,
};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use tracing::debug;
use verbs::{Connected, Provider, QpOptions, SetupError};

/// Connections that may be lost with a call on its way before that call fails (RFC 8166 §4.5.3):
/// perhaps it is the call that breaks them.
const MAX_LOSSES: u32 = 3;

/// How often deadlines are looked at, at most.
const SWEEP: Duration = Duration::from_secs(1);

/// Turns without a pause before other tasks of the runtime have theirs.
const TURNS: u32 = 4;

/// Turns without a pause before the owner looks around all the same.
const LOOK_AROUND: u32 = 64;

/// Octets of returned memory that a client keeps for use again.
const KEEP: usize = 16 << 20;

/// How connections of one client are made.
pub(crate) struct Connector {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) to: SocketAddr,
    pub(crate) config: ClientConfig,
    pub(crate) pool: Pool,
}

impl Connector {
    pub(crate) fn new(provider: Arc<dyn Provider>, to: SocketAddr, config: ClientConfig) -> Self {
        Self {
            provider,
            to,
            config,
            pool: Pool::new(KEEP),
        }
    }

    /// A new connection: nothing of an earlier one carries over.
    pub(crate) async fn connect(&self) -> Result<(Wire, ConnectionInfo), SetupError> {
        let limits = self.provider.limits();
        let own = PrivateData {
            send: self.config.send_size,
            receive: self.config.receive_size,
            // Handles are made for each call and can go at any time after it.
            remote_invalidation: Registrations::OF_CALLS
                .remote_invalidation(self.config.remote_invalidation, &limits),
        };
        let config = Config {
            role: Role::Client,
            own,
            credits: self.config.credits,
            backward_credits: 0,
            reserve_credit: false,
            max_chunk: self.config.max_chunk,
            max_segment: self.config.max_segment,
            mixed_long: false,
            registrations: Registrations::OF_CALLS,
            failed_calls: FailedCalls::new(),
            budget: Budget::new(0),
            pool: self.pool.clone(),
        };
        let options = QpOptions {
            receives: config.receives(),
            receive_size: own.receive.octets(),
            setup_timeout: self.config.setup_timeout,
            ..QpOptions::default()
        };
        let user = &self.config.private_data;
        let private_data = own.with_user_octets(user, limits.private_data.request);
        let receives = config.initial_receives();
        let Connected { qp, private_data } = self
            .provider
            .connect(self.to, &options, &private_data, receives)
            .await?;
        let peer = PrivateData::find(&private_data);
        let connection = Connection::new(&config, peer, qp.limits());
        let info = ConnectionInfo {
            peer: qp.peer_addr(),
            description: qp.describe(),
            thresholds: connection.thresholds(),
            peer_private_data: peer,
            raw_private_data: private_data,
            credits: connection.credits(),
        };
        debug!(peer = %info.peer, thresholds = ?info.thresholds, "connected: {}", info.description);
        Ok((Wire::new(qp, connection), info))
    }
}

/// The owner of a client's connection.
pub(crate) struct Pump {
    shared: Arc<Shared>,
    connector: Connector,
    spinner: Spinner,
    /// The time, as of the last look around or wake-up.
    now: Instant,
    next_sweep: Instant,
    /// Wakes it at the next sweep; made once, as it waits often.
    timer: Pin<Box<Sleep>>,
    work: Work,
    /// Callers to be woken; kept for its memory.
    woken: Vec<Waker>,
    /// A call found no room though there is a credit; something has to happen first.
    blocked: bool,
    /// How long to wait before the next connection: not at all if the last one was of use.
    backoff: Duration,
}

impl Drop for Pump {
    /// However this ends, nobody waits in vain.
    fn drop(&mut self) {
        let error = TransportError::Disconnected("the runtime of the client has ended".into());
        self.shared.calls.end(&error);
        self.shared.ended.send_replace(true);
    }
}

impl Pump {
    pub(crate) fn new(shared: Arc<Shared>, connector: Connector) -> Self {
        let spin: Spin = connector.config.spin;
        Self {
            spinner: Spinner::new(spin, super::activity()),
            now: clock::now(),
            next_sweep: clock::now(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            work: Work::default(),
            woken: Vec::new(),
            blocked: false,
            backoff: Duration::ZERO,
            shared,
            connector,
        }
    }

    fn calls(&self) -> &Calls {
        &self.shared.calls
    }

    /// Until the client is closed, or its connection is lost for good.
    pub(crate) async fn run(mut self, mut wire: Wire) {
        loop {
            let over = self.drive(&mut wire).await;
            self.spinner.leave();
            wire.log_end(&over);
            let last = over == Over::Asked || !self.connector.config.reconnect;
            if last {
                let error = TransportError::Disconnected(over.to_string());
                self.calls().end(&error);
            }
            if !matches!(over, Over::Closed(_)) {
                wire.close().await;
            }
            self.shared
                .lost(wire.connection.counters(), wire.qp.io_counters());
            if last {
                return;
            }
            if wire.connection.counters().replies_received > 0 {
                self.backoff = Duration::ZERO;
            } else {
                // A server that drops each connection must not be asked as fast as we can.
                self.back_off();
            }
            self.take_unfinished(wire, &over);
            self.blocked = false;
            match self.reconnect().await {
                Some(next) => wire = next,
                None => {
                    let error = TransportError::Disconnected(Over::Asked.to_string());
                    return self.calls().end(&error);
                }
            }
        }
    }

    /// Calls that had no end are planned, registered and sent anew on the next connection, with
    /// the same XID.
    fn take_unfinished(&mut self, wire: Wire, over: &Over) {
        let mut again = Vec::new();
        for unfinished in wire.connection.into_unfinished() {
            match unfinished {
                Unfinished::Again(request) if request.losses < MAX_LOSSES => again.push(request),
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
            self.calls().put_back(request);
        }
    }

    /// One connection, from its beginning to its end.
    async fn drive(&mut self, wire: &mut Wire) -> Over {
        let mut turns = 0;
        self.spinner.busy();
        self.now = clock::now();
        loop {
            if let Some(over) = wire.over() {
                return over;
            }
            let sent = match self.take_work(wire) {
                Ok(sent) => sent,
                Err(over) => return over,
            };
            let moved = wire.turn();
            let delivered = self.deliver(wire);
            if let Some(over) = wire.over() {
                return over;
            }
            if moved || sent {
                self.blocked &= !moved;
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
            if let Some(over) = self.look_around(wire) {
                return over;
            }
            if idle == Idle::Park {
                self.park(wire).await;
                self.now = clock::now();
                self.spinner.busy();
            }
        }
    }

    /// Hands replies to their callers; whether there was one.
    fn deliver(&mut self, wire: &mut Wire) -> bool {
        if !wire.connection.has_events() {
            return false;
        }
        // Whoever has a reply finds its call counted.
        self.publish(wire);
        let ended = std::iter::from_fn(|| match wire.connection.poll_event()? {
            Event::Reply { token, reply } => Some((token, reply)),
            Event::Call { .. } => unreachable!("a client is not called"),
        });
        self.shared.calls.complete_all(ended, &mut self.woken);
        self.woken.drain(..).for_each(Waker::wake);
        true
    }

    /// Sends as many calls as there are credits for, and forgets those that were cancelled;
    /// whether there was one to send.
    fn take_work(&mut self, wire: &mut Wire) -> Result<bool, Over> {
        let room = match self.blocked {
            true => 0,
            false => wire.connection.room(),
        };
        let closing = self.shared.calls.take(room, &mut self.work);
        let connection = &mut wire.connection;
        for (xid, token) in self.work.cancelled.drain(..) {
            connection.cancel(xid, token);
        }
        let mut sent = false;
        let mut refused = Vec::new();
        for request in self.work.calls.drain(..) {
            if self.blocked {
                refused.push(request);
                continue;
            }
            match connection.call(self.now, request, wire.qp.as_mut()) {
                Called::Sent => sent = true,
                Called::NoRoom(request) => {
                    self.blocked = true;
                    refused.push(request);
                }
                Called::Failed(token, error) => self.shared.calls.complete(token, Err(error)),
            }
        }
        // In front again, so that the first one has to be the last.
        for request in refused.into_iter().rev() {
            self.calls().put_back(request);
        }
        if closing { Err(Over::Asked) } else { Ok(sent) }
    }

    /// What is not to be done in every turn: counters and deadlines.
    fn look_around(&mut self, wire: &mut Wire) -> Option<Over> {
        self.publish(wire);
        if self.now < self.next_sweep {
            return None;
        }
        let timeout = self.connector.config.call_timeout;
        let mut sent = Vec::new();
        self.sweep(&TransportError::TimedOut(timeout), &mut sent);
        for (xid, token) in &sent {
            wire.connection.cancel(*xid, *token);
        }
        // A server that has had a call for this long is not there any more, or the call is lost:
        // only a new connection can bring back its memory and its credit. That nobody waits for it
        // any more changes nothing; that it waited before it was sent is not the server's fault.
        let oldest = wire.connection.oldest_call()?;
        (self.now >= oldest + timeout).then_some(Over::CallTimedOut(timeout))
    }

    fn sweep(&mut self, error: &TransportError, sent: &mut Vec<(u32, CallToken)>) {
        let timeout = self.connector.config.call_timeout;
        self.next_sweep = self.now + (timeout / 4).min(SWEEP);
        self.calls().expire(self.now, error, sent);
    }

    fn publish(&self, wire: &Wire) {
        let connection = &wire.connection;
        let io = wire.qp.io_counters();
        self.shared
            .publish(connection.counters(), io, connection.credits());
    }

    async fn park(&mut self, wire: &mut Wire) {
        if self.timer.deadline().into_std() != self.next_sweep {
            self.timer.as_mut().reset(self.next_sweep.into());
        }
        let timer = &mut self.timer;
        let calls = &self.shared.calls;
        let can_call = !self.blocked;
        std::future::poll_fn(|cx| {
            let can_call = can_call && wire.connection.can_call();
            let ready = wire.poll_ready(cx).is_ready()
                | calls.poll_work(cx, can_call)
                | timer.as_mut().poll(cx).is_ready();
            if ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// A new connection, once a call wants one; `None` if the client is closed before.
    async fn reconnect(&mut self) -> Option<Wire> {
        let timeout = self.connector.config.call_timeout;
        let mut last = TransportError::TimedOut(timeout);
        loop {
            self.wait_for_call(self.backoff, &last).await?;
            match self.attempt(&last).await? {
                Ok((wire, info)) => {
                    self.shared.connected(info);
                    return Some(wire);
                }
                Err(error) => {
                    debug!(to = %self.connector.to, %error, "no connection");
                    let to = self.connector.to;
                    last = TransportError::Unreachable(format!("cannot connect to {to}: {error}"));
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
        let mut attempt = std::pin::pin!(self.connector.connect());
        loop {
            // Connecting has an end of its own, but callers may not want to wait for it.
            match tokio::time::timeout(limit, &mut attempt).await {
                Ok(result) => return Some(result),
                Err(_) => {
                    let now = clock::now();
                    self.shared.calls.expire(now, last, &mut Vec::new());
                    if self.shared.calls.take(0, &mut self.work) {
                        return None;
                    }
                }
            }
        }
    }

    fn back_off(&mut self) {
        let ClientConfig {
            reconnect_first: first,
            reconnect_most: most,
            ..
        } = self.connector.config;
        self.backoff = (self.backoff * 2).max(first).min(most);
    }

    /// Waits until `backoff` has passed and a call wants to be sent; `None` if the client is
    /// closed before.
    async fn wait_for_call(&mut self, backoff: Duration, last: &TransportError) -> Option<()> {
        let start = clock::now();
        loop {
            let closing = self.shared.calls.take(0, &mut self.work);
            // Those that were on their way are not any more.
            self.work.cancelled.clear();
            self.now = clock::now();
            if self.now >= self.next_sweep {
                self.sweep(last, &mut Vec::new());
            }
            if closing {
                return None;
            }
            let passed = self.now >= start + backoff;
            if passed && self.calls().is_waiting() {
                return Some(());
            }
            let until = if passed {
                self.next_sweep
            } else {
                self.next_sweep.min(start + backoff)
            };
            let mut sleep = std::pin::pin!(tokio::time::sleep_until(until.into()));
            let calls = &self.shared.calls;
            std::future::poll_fn(|cx| {
                let ready = calls.poll_work(cx, passed) | sleep.as_mut().poll(cx).is_ready();
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
