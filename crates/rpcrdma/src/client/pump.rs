//! The task that owns a client's connection and reconnects when it is lost.

use super::connector::{ConnectError, Connector, shows_broken_invalidation, shows_version_two};
use super::shared::{ConnectionInfo, Shared, activity};
use crate::ClientConfig;
use crate::driver::calls::{Calls, MAX_LOSSES};
use crate::driver::clock;
use crate::driver::close_reason::CloseReason;
use crate::driver::deadlines::{Deadline, Deadlines};
use crate::driver::dispatch::Dispatch;
use crate::driver::endpoint::Endpoint;
use crate::driver::liveness::{FirstReply, heard};
use crate::driver::outgoing::{Outgoing, SWEEP};
use crate::driver::owner::Connection;
use crate::driver::spin::Spinner;
use crate::driver::{Driver, Policy};
use oncrpc::{Chain, TransportError};
use rpcrdma_proto::{Counters, Oversized, Unfinished};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tracing::{debug, warn};
use verbs::SetupError;

/// Owner of one connection of a client, and of the connections that replace it.
pub(crate) struct Pump {
    shared: Arc<Shared>,
    connector: Arc<Connector>,
    outgoing: Outgoing,
    /// Delay before the next connection; zero if the last one was of use.
    backoff: Duration,
    /// Whether the server closed the last connection without a call by either end.
    unwanted: bool,
}

/// The client's policy for one connection.
struct Calling<'a> {
    shared: &'a Shared,
    connector: &'a Connector,
    outgoing: &'a mut Outgoing,
    first_reply: FirstReply,
    /// Counters as last published.
    published: Counters,
    /// Next check of the oldest call, which iterates over all calls.
    next_look: Instant,
    /// Whether a message that was longer than announced was logged.
    has_oversized: bool,
}

impl Drop for Pump {
    /// Ends all waiting calls, so that no caller waits for ever.
    fn drop(&mut self) {
        let error = TransportError::Disconnected(CloseReason::TaskEnded.into());
        self.calls().leave(self.outgoing.conn, &error);
        self.shared.ended.send_modify(|ended| *ended += 1);
    }
}

impl Pump {
    pub(crate) fn new(shared: Arc<Shared>, connector: Arc<Connector>, conn: usize) -> Self {
        let config = &connector.config;
        let calls = Arc::clone(&shared.calls);
        Self {
            outgoing: Outgoing::new(calls, conn, config.call_timeout),
            backoff: Duration::ZERO,
            unwanted: false,
            shared,
            connector,
        }
    }

    fn calls(&self) -> &Calls {
        &self.outgoing.calls
    }

    /// Runs until the client is closed, or its connection is lost and not made again.
    pub(crate) async fn run(mut self, mut endpoint: Option<Endpoint>) {
        let conn = self.outgoing.conn;
        loop {
            let next = match endpoint.take() {
                Some(endpoint) => endpoint,
                None => match self.reconnect().await {
                    Some(endpoint) => endpoint,
                    None => {
                        let error = TransportError::Disconnected(CloseReason::Asked.into());
                        return self.calls().end(&error);
                    }
                },
            };
            self.calls().connected(conn);
            let (mut endpoint, over) = self.drive(next).await;
            endpoint.log_end(&over, None);
            if shows_broken_invalidation(&over) {
                self.connector.distrust_invalidation();
            }
            if shows_version_two(&over) {
                self.connector.forget_version_one();
            }
            let error = TransportError::Disconnected(over.clone().into());
            let last = over == CloseReason::Asked || !self.connector.config.reconnect;
            match over {
                CloseReason::Asked => self.calls().end(&error),
                _ if last => self.calls().leave(conn, &error),
                CloseReason::Unused(_) => self.calls().lost(conn, None),
                // Others may have a connection for what waits.
                _ => self.calls().lost(conn, Some(error.clone())),
            }
            if self.calls().is_over() {
                endpoint
                    .connection
                    .calls()
                    .for_each(|call| call.fail(&error));
            }
            // Nothing is to be expected of a peer that is over, or does not speak.
            if !matches!(
                over,
                CloseReason::Closed(_) | CloseReason::Silent(_) | CloseReason::Mute(_)
            ) {
                endpoint.close().await;
            }
            let counters = *endpoint.connection.counters();
            self.shared.lost(conn, &counters, endpoint.qp.io_counters());
            let silent = counters.calls_sent + counters.calls_received == 0;
            self.unwanted = silent && over == CloseReason::Closed(verbs::CloseReason::Peer);
            if counters.replies_received > 0 || matches!(over, CloseReason::Unused(_)) {
                self.backoff = Duration::ZERO;
            } else {
                // A server that drops each connection must not be asked as fast as we can.
                self.back_off();
            }
            self.take_unfinished(endpoint, &over);
            if last {
                return;
            }
        }
    }

    /// Drives one connection until it ends.
    async fn drive(&mut self, endpoint: Endpoint) -> (Endpoint, CloseReason) {
        let now = clock::now();
        let config = &self.connector.config;
        let calling = Calling {
            shared: &self.shared,
            connector: &self.connector,
            outgoing: &mut self.outgoing,
            first_reply: FirstReply::new(now),
            published: Counters::default(),
            next_look: now,
            has_oversized: false,
        };
        let answers = Dispatch::new(Arc::clone(&endpoint.service), endpoint.caller);
        let mut driver = Driver::new(
            endpoint,
            calling,
            answers,
            Spinner::new(config.spin, activity()),
            None,
            config.health,
            config.pull_timeout,
        );
        let over = driver.run().await;
        let Driver {
            endpoint,
            mut policy,
            ..
        } = driver;
        policy.listen(&endpoint);
        (endpoint, over)
    }

    /// Queues unfinished calls for another connection, where they are planned, registered and sent
    /// again with the same XID. A call that was alone in flight each time is the one that breaks
    /// connections (RFC 8166 §4.5.3).
    fn take_unfinished(&mut self, endpoint: Endpoint, over: &CloseReason) {
        self.outgoing.connection_lost();
        let mut again = Vec::new();
        let mute = matches!(over, CloseReason::Mute(_));
        let unfinished = match mute {
            true => endpoint.connection.into_unanswered(),
            false => endpoint.connection.into_unfinished(),
        };
        for unfinished in unfinished {
            match unfinished {
                Unfinished::Again(request) if request.losses_alone < MAX_LOSSES => {
                    again.push(request);
                }
                Unfinished::Again(request) => {
                    let error = TransportError::Disconnected(over.clone().into());
                    request.into_call().complete(Err(error));
                }
                Unfinished::Ended(call, reply) => call.complete(reply),
            }
        }
        // The oldest comes last: the last to be put back in front is the first to be sent; and after silence
        // it may be the call that the server never answers, so that the only credit of a new connection has
        // to go to another.
        again.sort_by_key(|request| std::cmp::Reverse(request.call().number()));
        for request in again {
            match mute {
                true => self.calls().put_last(request),
                false => self.calls().put_back(request),
            }
        }
    }

    /// Makes a new connection once a call needs one, or the server may call; `None` if the client
    /// is closed before.
    async fn reconnect(&mut self) -> Option<Endpoint> {
        let timeout = self.connector.config.call_timeout;
        let mut last = TransportError::TimedOut(timeout);
        loop {
            self.wait_for_call(self.backoff, &last).await?;
            match self.attempt(&last).await? {
                Ok((endpoint, info)) => {
                    self.shared.connected(self.outgoing.conn, info);
                    return Some(endpoint);
                }
                Err(error) => {
                    debug!(to = %self.connector.to, error = %Chain(&error), "no connection");
                    let to = self.connector.to;
                    let error = ConnectError { to, source: error };
                    last = TransportError::Unreachable(error.into());
                    self.calls().lost(self.outgoing.conn, Some(last.clone()));
                    self.back_off();
                }
            }
        }
    }

    /// Makes one attempt; `None` if the client is closed meanwhile.
    async fn attempt(
        &mut self,
        last: &TransportError,
    ) -> Option<Result<(Endpoint, ConnectionInfo), SetupError>> {
        let limit = SWEEP.min(self.connector.config.call_timeout);
        let connector = Arc::clone(&self.connector);
        let mut attempt = std::pin::pin!(connector.connect());
        loop {
            // Connecting has an end of its own, but callers may not want to wait for it.
            match tokio::time::timeout(limit, &mut attempt).await {
                Ok(result) => return Some(result),
                Err(_) => {
                    self.outgoing.expire(clock::now(), last, std::iter::empty());
                    if self.is_closing() {
                        return None;
                    }
                }
            }
        }
    }

    /// Whether the client is closed. Without a connection no call is in flight that could be
    /// cancelled.
    fn is_closing(&mut self) -> bool {
        let Outgoing {
            calls, conn, work, ..
        } = &mut self.outgoing;
        let closing = calls.take(*conn, 0, 0, work);
        work.cancelled = false;
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
        let conn = self.outgoing.conn;
        loop {
            let closing = self.is_closing();
            let now = clock::now();
            if now >= self.outgoing.next_sweep {
                self.outgoing.expire(now, last, std::iter::empty());
            }
            if closing {
                return None;
            }
            let passed = now >= start + backoff;
            // RFC 8167 §5.4: the server may have calls for us. It has none before a call of ours has told
            // it that we are ready (§6), so where it sees no use in waiting, we do not come back for it.
            let kept = self.connector.keeps_connections() && !self.unwanted;
            if passed && (kept || self.calls().wants_connection(conn)) {
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
                let ready = calls.poll_work(conn, cx, passed.then_some(0))
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

impl Calling<'_> {
    /// Checks the first-reply timeout. The server may have forgotten the connection, or be unable
    /// to use it; that shows as silence from the start, and another connection may work. Returns
    /// whether a first reply is owed.
    fn check_first_reply(
        &mut self,
        now: Instant,
        endpoint: &Endpoint,
    ) -> Result<bool, CloseReason> {
        let io = endpoint.qp.io_counters();
        let moved = io.bytes_in + io.bytes_out;
        let oldest = endpoint.connection.oldest_call();
        let Some(silent) = self.first_reply.look(now, oldest, moved) else {
            return Ok(false);
        };
        let first_reply_timeout = self
            .shared
            .first_reply_timeout
            .present()
            .min(self.outgoing.longest());
        if silent < first_reply_timeout || !self.connector.config.reconnect {
            return Ok(true);
        }
        self.shared
            .first_reply_timeout
            .given_up(first_reply_timeout);
        Err(CloseReason::Mute(first_reply_timeout))
    }

    /// Records whether the server has sent anything on this connection.
    fn listen(&mut self, endpoint: &Endpoint) {
        if self
            .first_reply
            .listen(heard(endpoint.connection.counters()))
        {
            self.shared.first_reply_timeout.heard();
        }
    }
}

impl Calling<'_> {
    /// Logs a message that was longer than announced, once a connection.
    fn check_oversized(&mut self, endpoint: &Endpoint) {
        let Some(Oversized { bytes, limit }) = endpoint.connection.oversized() else {
            return;
        };
        if !std::mem::replace(&mut self.has_oversized, true) {
            let peer = endpoint.qp.peer_addr();
            warn!(%peer, bytes, limit, "a message is longer than was announced; other clients close the connection");
        }
    }
}

impl Policy for Calling<'_> {
    fn outgoing(&mut self) -> Option<&mut Outgoing> {
        Some(self.outgoing)
    }

    fn may_call(&mut self, _: &mut Connection) -> bool {
        true
    }

    /// Publishes counters before replies wake their callers.
    fn before_replies(&mut self, endpoint: &Endpoint) {
        let io = endpoint.qp.io_counters();
        let conn = self.outgoing.conn;
        self.shared.publish(conn, &endpoint.connection, io);
        self.published = *endpoint.connection.counters();
    }

    fn expects_peer(&self, connection: &Connection) -> bool {
        connection.calls_out() > 0 || self.connector.keeps_connections()
    }

    fn waits_for_peer(&self, connection: &Connection) -> bool {
        connection.calls_out() > 0
    }

    /// Calls of all connections count, because they share their users. A client has its own
    /// Receives.
    fn others_wait(&self) -> bool {
        false
    }

    fn usage(&self, connection: &Connection) -> (u64, bool) {
        let in_use = connection.calls_out() + connection.calls_in() > 0;
        (self.outgoing.calls.made(), in_use)
    }

    fn before_calls(&mut self, _endpoint: &Endpoint) -> Result<(), CloseReason> {
        Ok(())
    }

    /// RFC 8167 §5.4: a client that accepts calls keeps an idle connection.
    fn idle_timeout(&self) -> Option<(Duration, CloseReason)> {
        let config = &self.connector.config;
        let may_end = config.reconnect && !self.connector.keeps_connections();
        let limit = config.idle_timeout.filter(|_| may_end)?;
        Some((limit, CloseReason::Unused(limit)))
    }

    fn look_around(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        deadlines: &mut Deadlines,
    ) -> Result<(), CloseReason> {
        if *endpoint.connection.counters() != self.published {
            self.before_replies(endpoint);
        }
        self.check_oversized(endpoint);
        self.listen(endpoint);
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + SWEEP.min(self.connector.config.call_timeout / 4);
        // Bytes may have moved though no message is complete.
        self.before_replies(endpoint);
        if let Some(limit) = self.outgoing.overdue(now, endpoint) {
            return Err(CloseReason::CallTimedOut(limit));
        }
        let owed = self.check_first_reply(now, endpoint)?;
        deadlines.set(Deadline::FirstReply, owed.then_some(self.next_look));
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>, endpoint: &Endpoint) -> bool {
        self.outgoing.poll_work(cx, endpoint)
    }
}
