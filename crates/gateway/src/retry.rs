//! Calls to the upstream, once more with a larger Reply chunk where that is allowed.

use crate::outage::{SLOW, Symptom};
use crate::reduce;
use crate::relay::{Relay, WRITE_CHUNKS};
use crate::replies::can_answer;
use crate::reply_lease::{OfReply, ReplyLease};
use crate::reply_memory::{RECEIVE, SMALL_REPLY};
use crate::transport_kind::TransportKind;
use crate::upstream_client::UpstreamClient;
use nfs_proto::scan::ScannedCall;
use oncrpc::xdr::Payload;
use oncrpc::{ReplyBound, TransportError};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};
use tracing::debug;

/// How long a call waits for the memory of its reply: as long as the replies before it may take. It
/// is not the upstream that it waits for.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(300);

/// Text of the warning about a server that is connected and silent.
const SILENT: &str = "is connected and does not answer";

/// Why a call has no reply.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Other replies had the memory for [`MEMORY_TIMEOUT`].
    NoMemory,
    /// The upstream connection ended while the call waited for memory.
    Lost,
    /// The upstream's call ended with an error.
    Upstream(TransportError),
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Self::Upstream(error)
    }
}

impl Relay {
    /// Passes a call to the upstream, once there is memory for its reply, and waits for that. The
    /// reply comes with its memory.
    ///
    /// RFC 8267 §3.1: if its reply did not fit, it is sent once more as a new transaction, where the
    /// binding says that the size of the reply cannot be estimated and that the call may be executed
    /// twice. The verifier of RPCSEC_GSS covers the XID (RFC 2203 §5.3.1), so that only the client
    /// could do that.
    pub(crate) async fn call_upstream(
        self: &Arc<Self>,
        upstream: &UpstreamClient,
        call: Payload,
        bound: ReplyBound,
        scanned: &ScannedCall,
        most: usize,
    ) -> Result<(Payload, Option<OfReply>), Failure> {
        if self.gateway.upstream_kind == TransportKind::Tcp {
            // The reply is lent its memory when it arrives.
            let reply = pin!(upstream.call(call, bound, most));
            let (reply, _) = self.answered(None, reply).await;
            let mut reply = reply?;
            let lease = reply.take_lease();
            return Ok((reply, lease.map(OfReply::Arrived)));
        }
        let memory = self.reply_memory(&bound, upstream.max_chunk()).await?;
        // A call that waits for memory takes up little itself.
        let reply = Box::pin(self.call_with_memory(upstream, call, bound, scanned, memory)).await;
        reply.map(|(reply, memory)| (reply, memory.map(OfReply::Offered)))
    }

    async fn call_with_memory(
        self: &Arc<Self>,
        upstream: &UpstreamClient,
        call: Payload,
        bound: ReplyBound,
        scanned: &ScannedCall,
        memory: Option<ReplyLease>,
    ) -> Result<(Payload, Option<ReplyLease>), Failure> {
        let max_reply = self
            .gateway
            .config
            .max_retried_reply
            .min(upstream.max_chunk());
        let may_retry =
            scanned.short_reply_retry && can_answer(scanned.flavor) && bound.fixed < max_reply;
        if !may_retry {
            let reply = pin!(upstream.call(call, bound, usize::MAX));
            let (reply, memory) = self.answered(memory, reply).await;
            return Ok((reply?, memory));
        }
        let again = reduce::copy_of(&call);
        let reply = pin!(upstream.call(call, bound, usize::MAX));
        let (reply, memory) = self.answered(memory, reply).await;
        let why = match reply {
            Err(TransportError::Refused(why)) => why,
            outcome => return Ok((outcome?, memory)),
        };
        self.gateway.stats.larger_retries.bump();
        let xid = self.take_own_xid(upstream);
        debug!(
            target: "gateway", listen = self.gateway.listen(), xid = scanned.xid,
            as_xid = xid.xid,
            why,
            "repeated with a larger Reply chunk"
        );
        // All of it comes in the Reply chunk: no call offers Write chunks beside one.
        let bound = ReplyBound::new(max_reply);
        // The first chunk is invalid by now.
        drop(memory);
        let memory = self.reply_memory(&bound, upstream.max_chunk()).await?;
        let again = reduce::with_xid(again, xid.xid);
        let reply = pin!(upstream.call(again, bound, usize::MAX));
        let (reply, memory) = self.answered(memory, reply).await;
        Ok((reduce::with_xid(reply?, scanned.xid), memory))
    }

    /// Waits for the memory that a reply of an RDMA upstream may need, which has it registered.
    async fn reply_memory(
        &self,
        bound: &ReplyBound,
        max_chunk: usize,
    ) -> Result<Option<ReplyLease>, Failure> {
        let bytes = memory_of(bound, max_chunk);
        if bytes <= SMALL_REPLY
            && let Some(small) = self.small_replies.take()
        {
            return Ok(Some(ReplyLease::Small { _counted: small }));
        }
        let bytes = bytes.max(SMALL_REPLY) + RECEIVE;
        let on_wait = || self.gateway.watch_replies();
        let lease = self
            .gateway
            .reply_memory
            .lease(self.caller(), bytes, on_wait);
        tokio::select! {
            biased;
            lease = timeout(MEMORY_TIMEOUT, lease) => {
                lease.map(|lease| Some(ReplyLease::Lease(lease))).map_err(|_| Failure::NoMemory)
            }
            // The connection of the client is closed once no call of it is in flight.
            () = self.upstream_ended() => Err(Failure::Lost),
        }
    }

    /// Waits for a reply with the memory that it may have, for as long as the upstream may take.
    async fn answered(
        &self,
        memory: Option<ReplyLease>,
        reply: impl Future<Output = Result<Payload, TransportError>>,
    ) -> (Result<Payload, TransportError>, Option<ReplyLease>) {
        let limit = self.gateway.config.call_timeout;
        let mut called = Called {
            relay: self,
            memory,
            waits_since: Some(Instant::now()),
        };
        let reply = pin!(self.in_time(limit, reply));
        let reply = match &called.memory {
            // Small ones stand still once enough of them are handed over.
            Some(ReplyLease::Lease(lease)) if lease.bytes() > SMALL_REPLY + RECEIVE => {
                lease.until_answered(reply).await
            }
            Some(ReplyLease::Lease(_) | ReplyLease::Small { .. }) | None => reply.await,
        };
        match reply {
            Ok(reply) => {
                called.waits_since = None;
                if reply.is_ok() && self.gateway.silence.end() {
                    self.gateway.end_outage();
                }
                (reply, called.memory.take())
            }
            Err(_) => (Err(TransportError::TimedOut(limit)), None),
        }
    }

    /// Waits for a reply within a limit. Says once that it takes long, and once that the upstream answers again.
    async fn in_time<T>(
        &self,
        limit: Duration,
        reply: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let mut reply = pin!(reply);
        if let Ok(reply) = timeout(SLOW.min(limit), &mut reply).await {
            return Ok(reply);
        }
        if limit > SLOW && !self.is_slow.swap(true, Relaxed) {
            let (server, waited, limit) = (
                self.gateway.upstream_with_addrs(),
                SLOW.as_secs(),
                self.gateway.config.call_timeout.as_secs(),
            );
            let what = format!(
                "server {server} {SILENT}: a call has waited {waited} s (after {limit} s its connection is closed)"
            );
            let since = Instant::now().checked_sub(SLOW);
            let since = since.unwrap_or_else(Instant::now);
            self.gateway
                .warn_of_outage_since(since, Symptom::Slow, self.caller().addr, &what);
        }
        let reply = timeout(limit.saturating_sub(SLOW), reply).await?;
        if self.is_slow.swap(false, Relaxed) {
            self.gateway.end_outage();
        }
        Ok(reply)
    }
}

/// A call at the upstream, with the memory of its reply. An RDMA upstream may access that until it has answered, or its
/// connection has ended, also if nobody waits for the reply any more (RFC 8166 §4.4.1).
struct Called<'a> {
    relay: &'a Relay,
    memory: Option<ReplyLease>,
    /// When the wait for the reply began, until it has ended otherwise than by patience.
    waits_since: Option<Instant>,
}

impl Called<'_> {
    /// The client has left, or the reply took too long. Says that the server is silent, if it has been for long.
    fn is_given_up(&self, since: Instant) {
        let gateway = &self.relay.gateway;
        let began = gateway.silence.client_left(since);
        let silent = began.elapsed();
        if silent >= SLOW {
            let (server, seconds) = (gateway.upstream_with_addrs(), silent.as_secs());
            let what = format!(
                "server {server} {SILENT}: clients call and leave, and none has had an answer for {seconds} s"
            );
            gateway.warn_of_outage_since(began, Symptom::Slow, self.relay.caller().addr, &what);
        }
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        if let Some(since) = self.waits_since {
            self.is_given_up(since);
        }
        if let Some(ReplyLease::Lease(lease)) = self.memory.take()
            && self.relay.gateway.upstream_kind == TransportKind::Rdma
        {
            self.relay.abandon(lease);
        }
    }
}

/// Bytes of memory that a reply may need. Whatever the call asks for, an RDMA upstream is offered no more
/// than its chunks.
fn memory_of(bound: &ReplyBound, max_chunk: usize) -> usize {
    let results = bound.results.iter();
    let bytes = results.fold(bound.fixed, |sum, &len| sum.saturating_add(len));
    // The Reply chunk, and the Write chunks.
    bytes.min(max_chunk.saturating_mul(1 + WRITE_CHUNKS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Connect, ConnectRdma, GatewayConfig, Listen, Upstream, tcp_limits};
    use crate::reply_memory::Lease;
    use crate::state::GatewayState;
    use oncrpc::xdr::Writer;
    use oncrpc::{Answer, Caller, Cause, Credential, Procedure, write_call};
    use oncrpc_tcp::Stream;
    use rpcrdma::{Client, ClientConfig};
    use std::io;
    use std::net::SocketAddr;
    use std::task::{Context, Waker};
    use tokio::sync::mpsc;
    use verbs::BoxFuture;

    /// A connection that is never made.
    struct Never;

    impl ConnectRdma for Never {
        fn connect(&self, _: SocketAddr, _: ClientConfig) -> BoxFuture<'_, Result<Client, Cause>> {
            Box::pin(std::future::pending())
        }
    }

    impl Connect for Never {
        fn connect(&self, _: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
            Box::pin(std::future::pending())
        }
    }

    const REPLY: usize = 1 << 20;

    /// A client of a gateway with this upstream that makes a call, and goes away before its reply comes. Returns
    /// what is left of its relay, and the bytes that are lent by then.
    async fn abandoned(upstream: Upstream) -> (Arc<GatewayState>, Arc<Relay>, usize) {
        let addr = SocketAddr::from(([192, 0, 2, 1], 700));
        let listen = Listen::Streams {
            streams: mpsc::channel(1).1,
            addr,
            limits: tcp_limits(),
        };
        let gateway = Arc::new(GatewayState::new(
            &listen,
            upstream,
            GatewayConfig::default(),
        ));
        let before = gateway.reply_memory.left();
        let relay = Relay::new(Arc::clone(&gateway), Caller::new(addr));
        let lease = gateway
            .reply_memory
            .lease(relay.caller(), REPLY, || ())
            .await;
        {
            let mut call =
                pin!(relay.answered(Some(ReplyLease::Lease(lease)), std::future::pending()));
            let mut cx = Context::from_waker(Waker::noop());
            assert!(call.as_mut().poll(&mut cx).is_pending());
            assert_eq!(gateway.reply_memory.left(), before - REPLY);
        }
        relay.downstream_ended();
        let lent = before - gateway.reply_memory.left();
        (gateway, relay, lent)
    }

    #[tokio::test(start_paused = true)]
    async fn memory_of_a_call_whose_client_has_gone_is_kept_while_an_rdma_upstream_may_access_it() {
        let addrs = vec![SocketAddr::from(([192, 0, 2, 2], 20049))];
        let (connect, config) = (Arc::new(Never), Box::default());
        let (gateway, relay, lent) = abandoned(Upstream::Rdma {
            connect,
            addrs: addrs.clone(),
            config,
        })
        .await;
        assert_eq!(lent, REPLY);
        // The relay lives until its upstream connection has ended.
        drop(relay);
        assert_eq!(gateway.reply_memory.left(), gateway.config.reply_memory);
        let connect = Arc::new(Never);
        let (.., lent) = abandoned(Upstream::Streams { connect, addrs }).await;
        assert_eq!(lent, 0, "a TCP upstream accesses no memory");
    }

    fn relay_with_a_server_that_is_never_reached() -> (Arc<GatewayState>, Arc<Relay>) {
        let (addr, limits) = (SocketAddr::from(([192, 0, 2, 1], 700)), tcp_limits());
        let streams = mpsc::channel(1).1;
        let listen = Listen::Streams {
            streams,
            addr,
            limits,
        };
        let (connect, addrs) = (Arc::new(Never), vec![addr]);
        let upstream = Upstream::Streams { connect, addrs };
        let gateway = Arc::new(GatewayState::new(
            &listen,
            upstream,
            GatewayConfig::default(),
        ));
        let relay = Relay::new(Arc::clone(&gateway), Caller::new(addr));
        (gateway, relay)
    }

    #[tokio::test(start_paused = true)]
    async fn call_takes_no_more_memory_than_its_server_counts_for_one() {
        let (_gateway, relay) = relay_with_a_server_that_is_never_reached();
        let mut call = Writer::default();
        let (prog, vers, proc) = (100_003, 3, 0);
        write_call(
            &mut call,
            1,
            Procedure { prog, vers, proc },
            &Credential::None,
        );
        let caller = *relay.caller();
        let Answer::Later(answer) = relay.call(call.finish(), &caller) else {
            panic!("it is passed on");
        };
        let bytes = size_of_val(&*answer);
        assert!(bytes <= oncrpc_tcp::FUTURE_COST, "{bytes} bytes");
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_waits_for_long_is_an_outage_until_it_is_answered() {
        let (gateway, relay) = relay_with_a_server_that_is_never_reached();
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let begun = Instant::now();
        let mut call = pin!(relay.in_time(2 * SLOW, answered));
        let early = timeout(SLOW - Duration::from_secs(1), &mut call).await;
        assert!(early.is_err() && gateway.outages.end().is_none());
        assert!(timeout(Duration::from_secs(2), &mut call).await.is_err());
        assert!(!gateway.outages.meet(Symptom::Slow, begun), "it was said");
        answer.send(()).expect("it waits");
        assert!(call.await.is_ok());
        assert!(gateway.outages.end().is_none(), "it is over");
        let never = relay.in_time(2 * SLOW, std::future::pending::<()>()).await;
        assert!(never.is_err());
        let short = relay.in_time(SLOW, std::future::pending::<()>()).await;
        assert!(short.is_err(), "its end is what is said of it");
        let outage = gateway.outages.end().expect("another one");
        assert_eq!(outage.clients, 1);
        assert_eq!(
            outage.since,
            Instant::now() - 3 * SLOW,
            "from its beginning"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_call_and_leave_without_an_answer_meet_an_outage() {
        let (gateway, relay) = relay_with_a_server_that_is_never_reached();
        let begun = Instant::now();
        let give_up = async || {
            let reply = std::future::pending::<Result<Payload, TransportError>>();
            let call = timeout(SLOW / 2, relay.answered(None, reply));
            assert!(call.await.is_err(), "the client leaves");
        };
        give_up().await;
        assert!(
            gateway.outages.end().is_none(),
            "one alone may be impatient"
        );
        give_up().await;
        assert!(!gateway.outages.meet(Symptom::Slow, begun), "it was said");
        let reply = Payload::new(vec![0; 4].into(), 0);
        let (reply, _) = relay.answered(None, async { Ok(reply) }).await;
        assert!(
            reply.is_ok() && gateway.outages.end().is_none(),
            "it is over"
        );
        give_up().await;
        assert!(gateway.outages.end().is_none(), "another was answered");
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_leaves_while_the_server_is_connected_to_has_met_an_outage_if_it_has_waited()
     {
        let (gateway, relay) = relay_with_a_server_that_is_never_reached();
        for (waits, meets) in [(Duration::from_millis(500), false), (SLOW / 6, true)] {
            let relay = Relay::new(Arc::clone(&gateway), *relay.caller());
            Arc::clone(&relay).connect();
            tokio::time::sleep(waits).await;
            relay.downstream_ended();
            tokio::task::yield_now().await;
            assert_eq!(gateway.outages.end().is_some(), meets, "{waits:?}");
        }
    }

    /// Has clients of other addresses hold so much that none is left for a reply.
    fn all_memory_of(gateway: &GatewayState) -> Vec<Lease> {
        let mut leases = Vec::new();
        for host in 1..64 {
            let other = Caller::new(SocketAddr::from(([198, 51, 100, host], 700)));
            let mut bytes = gateway.config.reply_memory / 2;
            while bytes > 0 {
                match gateway.reply_memory.lease_at_once(&other, bytes) {
                    Some(lease) => leases.push(lease),
                    None => bytes /= 2,
                }
            }
        }
        assert!(gateway.reply_memory.left() < REPLY);
        leases
    }

    #[tokio::test(start_paused = true)]
    async fn call_does_not_wait_for_memory_beyond_the_end_of_the_upstream_connection() {
        let (gateway, relay) = relay_with_a_server_that_is_never_reached();
        let _others = all_memory_of(&gateway);
        let bound = ReplyBound::new(REPLY);
        let began = Instant::now();
        let mut waits = pin!(relay.reply_memory(&bound, REPLY));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        relay.lose(&TransportError::TimedOut(SLOW));
        assert!(matches!(waits.await, Err(Failure::Lost)));
        assert_eq!(Instant::now(), began);
    }

    #[tokio::test(start_paused = true)]
    async fn call_without_memory_for_its_reply_fails_after_its_time() {
        let (gateway, relay) = relay_with_a_server_that_is_never_reached();
        let others = all_memory_of(&gateway);
        let began = Instant::now();
        let memory = relay.reply_memory(&ReplyBound::new(REPLY), REPLY).await;
        assert!(matches!(memory, Err(Failure::NoMemory)));
        assert_eq!(began.elapsed(), MEMORY_TIMEOUT);
        drop(others);
    }

    #[test]
    fn call_claims_no_more_memory_than_its_reply_can_have() {
        let chunk = 4 << 20;
        let huge = ReplyBound::new(128).with_result(u32::MAX as usize);
        assert_eq!(memory_of(&huge, chunk), 2 * chunk);
        let usual = ReplyBound::new(128).with_result(1 << 20);
        assert_eq!(memory_of(&usual, chunk), 128 + (1 << 20));
    }
}
