//! The upstream connection of a relay: made at the first call, tried again for a while, and lost.

use super::Relay;
use super::loss::{is_ended_by_server, is_timeout, warning_of_loss};
use crate::backward::Callbacks;
use crate::outage::{self, Symptom};
use crate::phase::Phase;
use crate::places::is_refused;
use crate::tcp_replies::TcpReplies;
use crate::upstream_client::{Connector, UpstreamClient};
use nfs_proto::scan::ScannedCall;
use oncrpc::{Cause, Chain, TransportError};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, warn};

/// How long an upstream connection may take to make before it is worth a warning that its client has left.
const LONG_ATTEMPT: Duration = Duration::from_secs(1);

impl Relay {
    /// Begins to make the upstream connection, for a first call.
    pub(crate) fn connect(self: Arc<Self>) {
        if self.phase.enter(Phase::Connecting) == Phase::New {
            self.gateway.stats.relays.bump();
            tokio::spawn(self.run());
        }
    }

    /// Makes the upstream connection, and waits for the end of one of both.
    async fn run(self: Arc<Self>) {
        let over = self.phase.reach(Phase::Over);
        tokio::pin!(over);
        let callbacks = Arc::new(Callbacks {
            relay: Arc::downgrade(&self),
        });
        let replies = Arc::new(TcpReplies {
            relay: Arc::downgrade(&self),
        });
        let begun = Instant::now();
        let upstream = tokio::select! {
            biased;
            () = &mut over => {
                self.warn_of_client_that_left(begun);
                None
            }
            upstream = self.connect_within_window(callbacks, replies) => upstream.map(Arc::new),
        };
        let Some(upstream) = upstream else {
            self.phase.enter(Phase::Over);
            self.close_downstream();
            return;
        };
        self.lock().upstream = Some(Arc::clone(&upstream));
        self.phase.enter(Phase::Up);
        let lost = tokio::select! {
            biased;
            () = &mut over => None,
            why = upstream.ended() => Some(why),
        };
        match lost {
            Some(why) => self.lose(&why),
            None => upstream.close().await,
        }
    }

    /// Says that a client has left before the upstream was reached, where that was not for want of time: an attempt may take
    /// longer than clients wait.
    fn warn_of_client_that_left(&self, begun: Instant) {
        let waited = begun.elapsed();
        if waited < LONG_ATTEMPT {
            return;
        }
        let (upstream, seconds) = (&self.gateway.upstream, waited.as_secs_f64());
        let what = format!(
            "server {} cannot be reached: a client has left that waited {seconds:.1} s for it{}",
            self.gateway.upstream_with_addrs(),
            outage::hint_of_port(upstream)
        );
        self.gateway
            .warn_of_outage_since(begun, Symptom::Away, self.caller.addr, &what);
    }

    async fn connect_within_window(
        &self,
        callbacks: Arc<Callbacks>,
        replies: Arc<TcpReplies>,
    ) -> Option<UpstreamClient> {
        let gateway = &*self.gateway;
        let mut port = gateway
            .ports
            .lease(self.caller.group, Arc::clone(&self.machine));
        let connector = Connector {
            upstream: &gateway.upstream,
            timeout: gateway.config.connect_timeout,
            call_timeout: gateway.config.call_timeout,
            callbacks,
            log: &gateway.log,
            pool: &gateway.pool,
            replies,
        };
        let (peer, until) = (
            self.caller.addr,
            Instant::now() + gateway.config.connect_window,
        );
        let mut pause = gateway.config.retry_first;
        let mut is_first = true;
        loop {
            let error: Cause = match connector.attempt(&mut port).await {
                Ok(upstream) => {
                    gateway.stats.upstream_connections.bump();
                    gateway.note_place_of(self);
                    debug!(target: "gateway", listen = self.gateway.listen(), %peer, upstream = %gateway.upstream_name, "connected");
                    return Some(upstream);
                }
                Err(error) => error,
            };
            gateway.stats.upstream_attempts_failed.bump();
            let is_refused = is_refused(&error);
            let is_over = Instant::now() + pause > until;
            // Once: the server may refuse until the place is free, and for reasons that no place mends.
            let may_take = is_refused && !is_over && !self.is_given_place();
            if may_take && gateway.make_place_for(self) {
                debug!(target: "gateway", listen = self.gateway.listen(), %peer, "another connection gives way to that of this client");
            }
            // While it is given a place, there is nothing to say.
            let is_in_vain = match self.is_given_place() && is_refused {
                true => is_over,
                false => !is_over,
            };
            if is_in_vain && std::mem::take(&mut is_first) {
                let (window, why) = (
                    gateway.config.connect_window.as_secs_f64(),
                    Chain(error.error()),
                );
                let hint = outage::hint(&gateway.upstream, &error);
                let what = format!(
                    "server {} cannot be reached, trying for {window} s for each client: {why}{hint}",
                    gateway.upstream_with_addrs()
                );
                gateway.warn_of_outage(Symptom::Away, peer, &what);
            }
            if is_over {
                gateway.stats.upstream_unreachable.bump();
                debug!(target: "gateway", listen = self.gateway.listen(), %peer, upstream = %gateway.upstream_name, error = %Chain(error.error()), "the upstream cannot be reached: the connection of its client is closed");
                return None;
            }
            debug!(target: "gateway", listen = self.gateway.listen(), %peer, upstream = %gateway.upstream_name, error = %Chain(error.error()), "no upstream connection yet");
            tokio::time::sleep(pause).await;
            pause = next_pause(pause, gateway.config.retry_most);
        }
    }

    /// Handles the loss of the upstream connection: replies received before go to the client, then
    /// its connection is closed.
    pub(crate) fn lose(&self, why: &TransportError) {
        if self.phase.enter(Phase::Ending) >= Phase::Ending {
            return;
        }
        self.gateway.stats.upstream_lost.bump();
        if is_timeout(why) {
            self.gateway.stats.timeouts.bump();
        }
        if let Some((symptom, what)) = warning_of_loss(why, self.answered.load(Relaxed)) {
            self.gateway
                .warn_of_outage(symptom, self.caller.addr, &what);
        }
        debug!(target: "gateway", listen = self.gateway.listen(), peer = %self.caller.addr, upstream = %self.gateway.upstream_name, error = %Chain(why), "the upstream connection ended");
        if self.lock().in_flight.is_empty() {
            self.close_downstream();
        }
    }

    /// Says which call had no reply when the server ended the connection: a server may do so at a certain call each time,
    /// which the client then repeats for ever.
    pub(super) fn warn_of_lost_call(&self, why: &TransportError, scanned: &ScannedCall) {
        if !is_ended_by_server(why) || self.said_lost_call.swap(true, Relaxed) {
            return;
        }
        let in_flight = self.traffic.unanswered.load(Relaxed);
        self.gateway.warn_of_server(|listen, upstream| {
            warn!(target: "gateway", listen, peer = %self.caller.addr, upstream, program = scanned.program, version = scanned.version, procedure = scanned.procedure, in_flight, "the server ended the connection and left this call unanswered: {}", Chain(why));
        });
    }
}

fn next_pause(pause: Duration, most: Duration) -> Duration {
    (pause * 2).min(most)
}
