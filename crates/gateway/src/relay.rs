//! One client connection, and the upstream connection that belongs to it.

mod connect;
mod loss;

use crate::outage::Symptom;
use crate::phase::{Phase, Phases};
use crate::ports::MachineName;
use crate::reduce;
use crate::replies::{AUTH_TLS, bad_cred, can_answer, garbage_args, system_err};
use crate::reply_lease::OfReply;
use crate::reply_memory::{Lease, SmallReplies};
use crate::retry::Failure;
use crate::session::{self, Sizes};
use crate::state::GatewayState;
use crate::stats::{Counter, TcpClient, UpstreamConnection};
use crate::transport_kind::TransportKind;
use crate::upstream_client::UpstreamClient;
use crate::xids::{Taken, Xids};
use nfs_proto::scan::{BadItem, ScannedCall, apply, place_results, scan_call, scan_reply};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Answer, Caller, Credential, Programs, Reply, ReplyBound, Service, TransportError};
use rpc_serving::backchannels::BackwardClient;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

/// Write chunks that a call to an RDMA upstream offers at most.
pub(crate) const WRITE_CHUNKS: usize = 1;

/// One client connection with its upstream connection, which is made at the first call.
///
/// Both end together. Whatever happens on one of them, the client sees it as it would see it of the
/// server itself.
pub(crate) struct Relay {
    pub(crate) gateway: Arc<GatewayState>,
    /// The client. Its reply room is that of no call.
    caller: Caller,
    /// The name by which its source port is kept.
    machine: MachineName,
    state: Mutex<State>,
    phase: Phases,
    /// Signalled when an XID of the gateway's own is free again.
    own_xid_is_free: Notify,
    /// Another connection has given way to this one.
    given_place: AtomicBool,
    /// The upstream has answered a call.
    answered: AtomicBool,
    /// The call was logged at which the upstream connection was lost.
    said_lost_call: AtomicBool,
    /// A call waits at the upstream for so long that it was said.
    pub(crate) is_slow: AtomicBool,
    /// Its small replies that need no lease.
    pub(crate) small_replies: SmallReplies,
    /// When the client called first.
    since: Instant,
    traffic: Traffic,
}

/// Calls and bytes that have passed on one connection of a client.
#[derive(Debug, Default)]
struct Traffic {
    calls: Counter,
    /// Calls without a reply yet.
    unanswered: AtomicUsize,
    bytes_in: Counter,
    bytes_out: Counter,
}

#[derive(Default)]
pub(crate) struct State {
    upstream: Option<Arc<UpstreamClient>>,
    /// XIDs of calls in flight.
    in_flight: Xids,
    /// XIDs of calls of the upstream in flight.
    pub(crate) called_back: Xids,
    /// The client as a server for calls of the upstream, once it has said that it takes them.
    backward: Option<BackwardClient>,
    /// The client may have said so in a call that RPCSEC_GSS protects.
    may_be_ready: bool,
    /// Memory of calls that nobody waits for any more, which the upstream may access until its connection has ended.
    abandoned: Vec<Lease>,
}

impl State {
    /// When the last call came, if none is in flight and the client is no server for the upstream.
    fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.in_flight.is_empty() && self.called_back.is_empty();
        let is_server = self.backward.is_some() || self.may_be_ready;
        self.in_flight.last().filter(|_| is_idle && !is_server)
    }
}

/// A call in flight. Dropping it frees its XID.
pub(crate) struct InFlight {
    relay: Arc<Relay>,
    pub(crate) xid: u32,
    is_own: bool,
}

/// A call of the client, counted as long as it has no reply. Dropping it ends that.
struct Unanswered(Arc<Relay>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.traffic.unanswered.fetch_sub(1, Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.relay.lock();
        state.in_flight.free(self.xid);
        let last = state.in_flight.is_empty();
        drop(state);
        if self.is_own {
            self.relay.own_xid_is_free.notify_waiters();
        }
        if last && self.relay.phase.get() == Phase::Ending {
            self.relay.close_downstream();
        }
    }
}

impl Relay {
    pub(crate) fn new(gateway: Arc<GatewayState>, caller: Caller) -> Arc<Self> {
        Arc::new(Self {
            gateway,
            caller,
            machine: MachineName::default(),
            state: Mutex::default(),
            phase: Phases::new(),
            own_xid_is_free: Notify::new(),
            given_place: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            said_lost_call: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
            small_replies: SmallReplies::default(),
            since: Instant::now(),
            traffic: Traffic::default(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the memory of a call that nobody waits for until the upstream connection has ended.
    pub(crate) fn abandon(&self, memory: Lease) {
        self.lock().abandoned.push(memory);
    }

    /// Answers a call of the client: by the upstream, or at once if it cannot be passed on.
    pub(crate) fn call(self: Arc<Self>, call: Payload, caller: &Caller) -> Answer {
        let stats = &self.gateway.stats;
        // First of all: no answer of the gateway's own is to be taken for that of a call in flight,
        // whose memory the upstream may have access to (RFC 8166 §4.4.1).
        let xid = Reader::from(&call).u32().unwrap_or_default();
        let taken = self.lock().in_flight.take(xid);
        let in_flight = match taken {
            Taken::Now => Some(self.in_flight(xid)),
            Taken::InUse => None,
            Taken::Repetition => {
                stats.repetitions.bump();
                debug!(target: "gateway", listen = self.gateway.listen(), peer = %caller.addr, xid, "a call that is in flight is not repeated");
                return Answer::Now(Reply::Nothing);
            }
        };
        let Some(scanned) = scan_call(&call) else {
            // Without programs, it answers what is wrong with the header (RFC 5531 §9).
            stats.malformed.bump();
            return Programs::new().call(call, caller);
        };
        if scanned.flavor == AUTH_TLS {
            // It asks for TLS on this connection. A server would begin it on its own (RFC 9289 §4.1).
            return Answer::Now(Reply::Message(bad_cred(xid)));
        }
        if let Some(bad) = scanned.bad_item {
            return Answer::Now(self.bad_item(bad, &scanned));
        }
        if scanned.truncated {
            self.warn("RFC 4506 §4: a call ends before its arguments; it is passed on as it is");
        }
        if caller.known_uid().is_some()
            && let Err(reply) = may_claim(&call, caller)
        {
            stats.denied.bump();
            self.warn("AUTH_BADCRED: a local user claims to be another one, which only root may (--trust-local, or trust_local of [gateway], allows it)");
            return Answer::Now(reply);
        }
        if self.is_ending() {
            // Its connection is about to be closed, and the client repeats it on the next one.
            return Answer::Now(Reply::Nothing);
        }
        self.lock().may_be_ready |= session::may_declare_ready(&scanned);
        if self.machine.get().is_none()
            && let Some(name) = machine_name(&call)
        {
            // Another thread may have been first.
            let _ = self.machine.set(name);
        }
        if self.phase.get() == Phase::New {
            Arc::clone(&self).connect();
        }
        stats.calls.bump();
        stats.bytes_up.add(call.stream_len() as u64);
        self.traffic.calls.bump();
        self.traffic.unanswered.fetch_add(1, Relaxed);
        let unanswered = Unanswered(Arc::clone(&self));
        self.traffic.bytes_in.add(call.stream_len() as u64);
        let caller = *caller;
        Answer::Later(Box::pin(async move {
            let _unanswered = unanswered;
            let _in_flight = match in_flight {
                Some(in_flight) => in_flight,
                None => match self.wait_for_xid(scanned.xid).await {
                    Some(in_flight) => in_flight,
                    None => return Reply::Nothing,
                },
            };
            match scanned.program {
                // Rare, and its state is larger than that of other calls.
                nfs_proto::MOUNT_PROGRAM => {
                    Box::pin(self.forward_mount(call, &scanned, &caller)).await
                }
                _ => self.forward(call, &scanned, &caller).await,
            }
        }))
    }

    /// Answers a call with an item in a Read chunk that does not belong where it stands: it must not be processed (RFC 8166
    /// §6.1). Whole again, it could be another call than its client has made, as items are padded to a multiple of four bytes.
    fn bad_item(&self, bad: BadItem, scanned: &ScannedCall) -> Reply {
        self.gateway.stats.malformed.bump();
        match bad {
            BadItem::Length if can_answer(scanned.flavor) => {
                self.warn("GARBAGE_ARGS: an argument and its Read chunk differ in length (RFC 8166 §3.4.5)");
                Reply::Message(garbage_args(scanned.xid))
            }
            BadItem::Length | BadItem::Ineligible => {
                self.warn("ERR_CHUNK: a Read chunk where no argument is eligible, or has this length (RFC 8166 §6.1)");
                Reply::Ineligible
            }
        }
    }

    fn in_flight(self: &Arc<Self>, xid: u32) -> InFlight {
        InFlight {
            relay: Arc::clone(self),
            xid,
            is_own: false,
        }
    }

    /// Waits until the gateway's own call with this XID has ended; `None` if another call of the
    /// client takes it first.
    async fn wait_for_xid(self: &Arc<Self>, xid: u32) -> Option<InFlight> {
        loop {
            let mut is_free = std::pin::pin!(self.own_xid_is_free.notified());
            is_free.as_mut().enable();
            let taken = self.lock().in_flight.take(xid);
            match taken {
                Taken::Now => return Some(self.in_flight(xid)),
                Taken::Repetition => return None,
                Taken::InUse => is_free.await,
            }
        }
    }

    /// Takes an XID for a call of the gateway's own.
    pub(crate) fn take_own_xid(self: &Arc<Self>, upstream: &UpstreamClient) -> InFlight {
        InFlight {
            xid: self.lock().in_flight.take_own(|| upstream.next_xid()),
            relay: Arc::clone(self),
            is_own: true,
        }
    }

    pub(crate) async fn forward(
        self: &Arc<Self>,
        call: Payload,
        scanned: &ScannedCall,
        caller: &Caller,
    ) -> Reply {
        let Some(upstream) = self.upstream_client().await else {
            return Reply::Nothing;
        };
        if session::declares_ready(scanned) {
            self.client_is_ready();
        }
        let outcome = self.ask(&upstream, call, scanned, caller).await;
        self.conclude(&upstream, outcome, scanned, caller)
    }

    /// Passes a call to the upstream, and waits for the reply.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        upstream: &UpstreamClient,
        call: Payload,
        scanned: &ScannedCall,
        caller: &Caller,
    ) -> Result<(Payload, Option<OfReply>), Failure> {
        let (call, _memory) = self.with_memory(call);
        let (call, bound) = self.outgoing(upstream, call, scanned);
        let most = caller.reply_room.largest();
        self.call_upstream(upstream, call, bound, scanned, most)
            .await
    }

    /// The answer to a call by what became of it at the upstream.
    pub(crate) fn conclude(
        &self,
        upstream: &UpstreamClient,
        outcome: Result<(Payload, Option<OfReply>), Failure>,
        scanned: &ScannedCall,
        caller: &Caller,
    ) -> Reply {
        match outcome {
            // A client may not read its reply, which has its memory until it is written.
            Ok((reply, memory)) => {
                if !self.answered.load(Relaxed) && !self.answered.swap(true, Relaxed) {
                    self.gateway.end_outage();
                }
                match (self.back(upstream, reply, scanned, caller), memory) {
                    (Reply::Message(reply), Some(memory)) => {
                        Reply::Message(memory.keep_with(reply))
                    }
                    (reply, _) => reply,
                }
            }
            Err(failure) => self.failed(failure, scanned, caller),
        }
    }

    /// A call that goes to the upstream, and what is kept until its reply is there. Over TCP a call has its
    /// memory until it is written; an RDMA upstream reads it from there.
    fn with_memory(&self, mut call: Payload) -> (Payload, Option<Box<dyn oncrpc::Lease>>) {
        let lease = match self.gateway.upstream_kind {
            TransportKind::Tcp => None,
            TransportKind::Rdma => call.take_lease(),
        };
        (call, lease)
    }

    /// Returns the upstream connection once it is there; `None` if there will be none.
    pub(crate) async fn upstream_client(&self) -> Option<Arc<UpstreamClient>> {
        if let Some(upstream) = &self.lock().upstream {
            return Some(Arc::clone(upstream));
        }
        self.phase.reach(Phase::Up).await;
        self.lock().upstream.clone()
    }

    /// The call as it goes to the upstream, and the bound of its reply.
    fn outgoing(
        &self,
        upstream: &UpstreamClient,
        call: Payload,
        scanned: &ScannedCall,
    ) -> (Payload, ReplyBound) {
        // Without knowledge of the server's limits, one Write chunk and one Read chunk (RFC 8267 §6.4.2).
        let bound = scanned.reply_with_chunks(WRITE_CHUNKS);
        let bound = bound.unwrap_or_else(|| ReplyBound::new(self.gateway.config.max_reply));
        let bound = upstream.within_chunks(bound);
        let to_rdma = self.gateway.upstream_kind == TransportKind::Rdma;
        let call = match to_rdma {
            true => {
                let largest = scanned.arguments.iter().max_by_key(|item| item.length);
                let largest = largest.map_or(&[][..], std::slice::from_ref);
                reduce::take_out_large(reduce::keep_largest(call), largest)
            }
            false => call,
        };
        let call = match session::is_of_session(scanned) {
            true => {
                let fore = self
                    .gateway
                    .fore_sizes
                    .and(Sizes::both(upstream.max_chunk()));
                apply(
                    call,
                    &session::cuts(scanned, fore, self.back_sizes(upstream)),
                )
            }
            false => call,
        };
        (call, bound)
    }

    /// Largest callbacks and replies that both connections carry; `None` without a limit.
    fn back_sizes(&self, upstream: &UpstreamClient) -> Option<Sizes> {
        let client = self.gateway.backchannels.get(self.caller.connection);
        let down = client.and_then(|client| client.message_sizes());
        let (down, up) = (down.map(Sizes::from), upstream.callback_sizes());
        match (down, up) {
            (Some(down), Some(up)) => Some(down.and(up)),
            (down, up) => down.or(up),
        }
    }

    /// The reply as it goes to the client.
    fn back(
        &self,
        upstream: &UpstreamClient,
        reply: Payload,
        scanned: &ScannedCall,
        caller: &Caller,
    ) -> Reply {
        let placed = match upstream {
            UpstreamClient::Tcp { .. } => {
                let reply = self.without_pnfs(reply, scanned);
                let results = scan_reply(scanned, &reply).results;
                Ok(match caller.reply_room.has_chunks() {
                    true => reduce::take_out(reply, &results),
                    false => reduce::take_out_large(reply, &results),
                })
            }
            UpstreamClient::Rdma { .. } => place_results(scanned, reply).map(|reply| {
                let reply = self.without_pnfs(reply, scanned);
                // What came inline may belong into a chunk of the client.
                match caller.reply_room.has_chunks() {
                    true => {
                        let results = scan_reply(scanned, &reply).results;
                        reduce::take_out(reply, &results)
                    }
                    false => reply,
                }
            }),
        };
        let reply = match placed {
            Ok(reply) => reply,
            Err(why) => {
                self.warn(&format!("RFC 8166 §4.3.2: a reply of the upstream: {why}"));
                return self.system_error(
                    scanned.xid,
                    scanned.flavor,
                    self.gateway.downstream_kind,
                );
            }
        };
        self.deliver(reply, scanned, caller)
    }

    /// A reply that says that the server does not support pNFS, where that is configured.
    fn without_pnfs(&self, reply: Payload, scanned: &ScannedCall) -> Payload {
        match self.gateway.config.hide_pnfs && session::may_offer_pnfs(scanned) {
            true => {
                let flags = scan_reply(scanned, &reply).exchange_flags;
                apply(reply, &session::without_pnfs(&flags))
            }
            false => reply,
        }
    }

    /// A reply as the answer to a call, if the client has room for it.
    pub(crate) fn deliver(&self, reply: Payload, scanned: &ScannedCall, caller: &Caller) -> Reply {
        let stats = &self.gateway.stats;
        let size = ReplyBound {
            fixed: reply.head().len(),
            results: reply.items().iter().map(oncrpc::xdr::Item::len).collect(),
        };
        if !caller.reply_room.carries(&size) {
            return self.too_large(size, scanned, caller);
        }
        stats.replies.bump();
        stats.bytes_down.add(reply.stream_len() as u64);
        self.traffic.bytes_out.add(reply.stream_len() as u64);
        Reply::Message(reply)
    }

    /// Answers a call whose reply the client cannot receive (RFC 8166 §4.5.3).
    fn too_large(&self, size: ReplyBound, scanned: &ScannedCall, caller: &Caller) -> Reply {
        self.gateway.stats.replies_too_large.bump();
        if self.gateway.log.may_warn(caller.group) {
            let bytes = size.fixed + size.results.iter().sum::<usize>();
            warn!(target: "gateway", listen = self.gateway.listen(), peer = %caller.addr, program = scanned.program, version = scanned.version, procedure = scanned.procedure, bytes, "ERR_CHUNK: the reply fits neither inline nor the chunks of the call");
        }
        Reply::TooLarge(size.into())
    }

    /// Answers a call that has no reply of the upstream.
    fn failed(&self, failure: Failure, scanned: &ScannedCall, caller: &Caller) -> Reply {
        let stats = &self.gateway.stats;
        let error = match failure {
            // RFC 5531 §9: SYSTEM_ERR is for a failed allocation of memory.
            Failure::NoMemory => {
                self.warn("other replies have all the memory for replies, and do not return it");
                return self.system_error(
                    scanned.xid,
                    scanned.flavor,
                    self.gateway.downstream_kind,
                );
            }
            Failure::Lost => return Reply::Nothing,
            Failure::Upstream(error) => error,
        };
        match error {
            // It was skipped as it came.
            TransportError::TooLarge { len, .. }
                if self.gateway.upstream_kind == TransportKind::Tcp =>
            {
                self.too_large(ReplyBound::new(len), scanned, caller)
            }
            TransportError::XidInUse(_) => {
                stats.repetitions.bump();
                Reply::Nothing
            }
            TransportError::Disconnected(_) | TransportError::Unreachable(_) => {
                self.lose(&error);
                self.warn_of_lost_call(&error, scanned);
                Reply::Nothing
            }
            TransportError::TimedOut(_) => {
                // The upstream is there, and others may wait for it, too: only new connections help.
                stats.timeouts.bump();
                let what = format!("the upstream does not answer: {error}");
                self.gateway
                    .warn_of_outage(Symptom::Away, self.caller.addr, &what);
                self.phase.enter(Phase::Over);
                self.close_downstream();
                Reply::Nothing
            }
            other => {
                self.warn(&format!(
                    "the upstream connection cannot carry a call: {other}"
                ));
                self.system_error(scanned.xid, scanned.flavor, self.gateway.downstream_kind)
            }
        }
    }

    /// SYSTEM_ERR, where its verifier can be made. Nobody but the server can make one of RPCSEC_GSS
    /// (RFC 2203 §5.3.3.2): then the transport reports the error, and over TCP the relay ends.
    pub(crate) fn system_error(&self, xid: u32, flavor: u32, side: TransportKind) -> Reply {
        self.gateway.stats.system_errors.bump();
        match (can_answer(flavor), side) {
            (true, _) => Reply::Message(system_err(xid)),
            (false, TransportKind::Rdma) => Reply::Ineligible,
            (false, TransportKind::Tcp) => {
                self.phase.enter(Phase::Over);
                self.close_downstream();
                Reply::Nothing
            }
        }
    }

    /// The client as a server for calls of the upstream, if it takes them. Whether a client does that
    /// protects its calls is not seen; the upstream knows.
    pub(crate) fn backward(&self) -> Option<BackwardClient> {
        let state = self.lock();
        let (backward, may_be_ready) = (state.backward.clone(), state.may_be_ready);
        drop(state);
        if backward.is_some() || !may_be_ready {
            return backward;
        }
        self.client_is_ready();
        self.lock().backward.clone()
    }

    /// Declares that the client takes calls of the upstream.
    fn client_is_ready(&self) {
        let client = self.gateway.backchannels.get(self.caller.connection);
        let ready = client.map(|client| client.client_is_ready());
        let mut state = self.lock();
        if state.backward.is_none() {
            state.backward = ready;
        }
    }

    /// The client.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Whether the upstream connection is there.
    pub(crate) fn is_up(&self) -> bool {
        self.phase.get() == Phase::Up
    }

    /// Whether another connection has given way to this one, whose upstream connection is not there yet.
    pub(crate) fn is_given_place(&self) -> bool {
        self.given_place.load(Relaxed) && self.phase.get() == Phase::Connecting
    }

    pub(crate) fn set_given_place(&self, is_given: bool) {
        self.given_place.store(is_given, Relaxed);
    }

    /// When the last call came, if the relay is up and idle: no call is in flight in either direction, and the upstream has no
    /// need of the client as a server.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.lock().idle_since().filter(|_| self.is_up())
    }

    /// Ends the relay, if it is idle. Returns whether it does.
    pub(crate) fn give_way(&self) -> bool {
        let state = self.lock();
        let gives_way = self.is_up() && state.idle_since().is_some();
        if gives_way {
            // Still under the lock, under which a call takes its XID: one that comes now is not passed on.
            self.phase.enter(Phase::Over);
        }
        drop(state);
        if gives_way {
            self.close_downstream();
        }
        gives_way
    }

    /// Published state of the client's connection.
    pub(crate) fn seen(&self) -> TcpClient {
        TcpClient {
            id: self.caller.connection,
            addr: self.caller.addr,
            age: self.since.elapsed(),
            calls: self.traffic.calls.get(),
            in_flight: self.traffic.unanswered.load(Relaxed),
            bytes_in: self.traffic.bytes_in.get(),
            bytes_out: self.traffic.bytes_out.get(),
        }
    }

    /// When the call came that has waited for its reply for longest, if there is one.
    pub(crate) fn oldest_call(&self) -> Option<Instant> {
        self.lock().in_flight.oldest()
    }

    /// The upstream connection, if there is one.
    pub(crate) fn upstream(&self) -> Option<UpstreamConnection> {
        let upstream = self.lock().upstream.clone()?;
        Some(upstream.seen(self.caller.connection))
    }

    pub(crate) fn warn(&self, what: &str) {
        if self.gateway.log.may_warn(self.caller.group) {
            warn!(target: "gateway", listen = self.gateway.listen(), peer = %self.caller.addr, upstream = %self.gateway.upstream_name, "{what}");
        }
    }

    /// Waits until the upstream connection has ended.
    pub(crate) async fn upstream_ended(&self) {
        self.phase.reach(Phase::Ending).await;
    }

    /// Whether the upstream connection has ended.
    fn is_ending(&self) -> bool {
        self.phase.get() >= Phase::Ending
    }

    fn close_downstream(&self) {
        self.gateway.connections.close(self.caller.connection);
    }

    /// Handles the end of the client's connection.
    pub(crate) fn downstream_ended(&self) {
        let was = self.phase.enter(Phase::Over);
        if was != Phase::New {
            self.gateway.stats.relays.drop_one();
        }
        let upstream = self.lock().upstream.take();
        drop(upstream);
    }
}

/// Checks the credential of a local user, who may claim its own uid only.
fn may_claim(call: &Payload, caller: &Caller) -> Result<(), Reply> {
    let head = Payload::new(call.head().to_vec().into(), 0);
    match oncrpc::Call::parse(head, caller) {
        Ok(_) => Ok(()),
        Err(reply) => Err(reply),
    }
}

/// Returns the machine name in an AUTH_SYS credential.
fn machine_name(call: &Payload) -> Option<Box<[u8]>> {
    let header = oncrpc::CallHeader::parse(&mut Reader::from(call)).ok()?;
    match Credential::parse(header.cred).ok()? {
        Credential::Sys(sys) => Some(sys.machine_name.as_slice().into()),
        Credential::None | Credential::Other { .. } => None,
    }
}
