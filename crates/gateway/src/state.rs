//! State shared by all relays of a gateway, and the service that clients call.

use crate::config::{GatewayConfig, Listen, MAX_RECORD, Upstream};
use crate::outage::{Outages, Silence, Symptom};
use crate::ports::Ports;
use crate::relay::Relay;
use crate::reply_memory::{ReplyMemory, Stalled, Watch, Why};
use crate::session::Sizes;
use crate::stats::{Counters, TcpClient, UpstreamConnection};
use crate::transport_kind::TransportKind;
use buffer::Pool;
use oncrpc::xdr::Payload;
use oncrpc::{
    Answer, Caller, ConnectionId, Connections, PeerGroup, ReceivedCall, ReplyBound, Service,
};
use oncrpc_tcp::WarningLog;
use rpc_serving::backchannels::Backchannels;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Bytes of returned record memory that a gateway keeps for reuse.
const KEPT_MEMORY: usize = 16 << 20;

/// State shared by all relays of a gateway.
pub(crate) struct GatewayState {
    pub(crate) upstream: Upstream,
    pub(crate) upstream_kind: TransportKind,
    pub(crate) downstream_kind: TransportKind,
    /// Largest calls of clients, and their replies, that both sides carry.
    pub(crate) fore_sizes: Sizes,
    pub(crate) config: GatewayConfig,
    pub(crate) stats: Counters,
    pub(crate) log: Arc<WarningLog>,
    /// Times without an answer of the server, for the log.
    pub(crate) outages: Outages,
    pub(crate) silence: Silence,
    /// Name of the upstream in the log.
    pub(crate) upstream_name: String,
    pub(crate) ports: Ports,
    /// The connections of clients, which relays close.
    pub(crate) connections: Connections,
    /// The connections of clients, on which relays call.
    pub(crate) backchannels: Backchannels,
    /// Memory for records.
    pub(crate) pool: Pool,
    /// Memory for replies of an RDMA upstream, or to TCP clients.
    pub(crate) reply_memory: ReplyMemory,
    relays: Mutex<HashMap<ConnectionId, Arc<Relay>>>,
}

impl GatewayState {
    pub(crate) fn new(listen: &Listen, upstream: Upstream, mut config: GatewayConfig) -> Self {
        if let Upstream::Rdma { config: client, .. } = &upstream {
            // A call that asked for room beyond a chunk of the client would never be sent.
            for most in [&mut config.max_reply, &mut config.max_retried_reply] {
                *most = client.max_chunk.min(*most);
            }
        }
        let (downstream_kind, down) = match listen {
            Listen::Rdma { config, .. } => (TransportKind::Rdma, Sizes::both(config.max_chunk)),
            Listen::Tcp { limits, .. } | Listen::Streams { limits, .. } => (
                TransportKind::Tcp,
                Sizes {
                    call: limits.record,
                    reply: MAX_RECORD,
                },
            ),
        };
        let (upstream_kind, up) = match &upstream {
            Upstream::Tcp { .. } | Upstream::Streams { .. } => {
                (TransportKind::Tcp, Sizes::both(MAX_RECORD))
            }
            Upstream::Rdma { config: client, .. } => (
                TransportKind::Rdma,
                Sizes {
                    call: client.max_chunk,
                    reply: config.max_reply,
                },
            ),
        };
        let addrs = || format!("{upstream:?}");
        let upstream_name = config.upstream_name.clone().unwrap_or_else(addrs);
        Self {
            upstream_name,
            upstream_kind,
            downstream_kind,
            fore_sizes: down.and(up),
            upstream,
            reply_memory: ReplyMemory::new(config.reply_memory),
            config,
            stats: Counters::default(),
            log: Arc::default(),
            outages: Outages::default(),
            silence: Silence::default(),
            ports: Ports::default(),
            connections: Connections::default(),
            backchannels: Backchannels::default(),
            pool: Pool::new(KEPT_MEMORY),
            relays: Mutex::default(),
        }
    }

    /// The upstream in messages: its name, and its addresses where that does not tell them.
    pub(crate) fn upstream_with_addrs(&self) -> String {
        let (name, addrs) = (&self.upstream_name, format!("{:?}", self.upstream));
        match *name == addrs {
            true => addrs,
            false => format!("{name} ({addrs})"),
        }
    }

    /// Address of the listener, as a URL for the log.
    pub(crate) fn listen(&self) -> &str {
        self.log.listener().unwrap_or_default()
    }

    /// Notes where it listens.
    pub(crate) fn listens_at(&self, addr: SocketAddr) {
        let scheme = match self.downstream_kind {
            TransportKind::Rdma => "rdma",
            TransportKind::Tcp => "tcp",
        };
        self.log.name_listener(|| format!("{scheme}://{addr}"));
    }

    /// Says that the server fails the connection of a client, if no other one has met the same before.
    pub(crate) fn warn_of_outage(&self, symptom: Symptom, peer: SocketAddr, what: &str) {
        self.warn_of_outage_since(Instant::now(), symptom, peer, what);
    }

    /// The same of a failure that began then.
    pub(crate) fn warn_of_outage_since(
        &self,
        since: Instant,
        symptom: Symptom,
        peer: SocketAddr,
        what: &str,
    ) {
        let (listen, upstream) = (self.listen(), &self.upstream_name);
        // A server that comes and goes could fill the log.
        let is_new = self.outages.meet(symptom, since) && self.log.may_warn(self.server());
        match is_new {
            true => warn!(target: "gateway", listen, %peer, %upstream, "{what}"),
            false => debug!(target: "gateway", listen, %peer, %upstream, "{what}"),
        }
    }

    /// Says that an outage is over: the server has answered the first call of a connection, or one that has waited for long.
    pub(crate) fn end_outage(&self) {
        let Some(outage) = self.outages.end() else {
            return;
        };
        if self.log.may_warn(self.server()) {
            let (listen, upstream) = (self.listen(), &self.upstream_name);
            let seconds = outage.since.elapsed().as_secs();
            let clients = outage.clients;
            info!(target: "gateway", listen, %upstream, "the server answers again after {seconds} s, counted from the first failure of a client (connections of clients that waited or ended: {clients})");
        }
    }

    /// Logs a line about the server, if there were not too many.
    pub(crate) fn warn_of_server(&self, line: impl FnOnce(&str, &str)) {
        if self.log.may_warn(self.server()) {
            line(self.listen(), &self.upstream_name);
        }
    }

    /// The server, of which few lines are logged at a time.
    fn server(&self) -> PeerGroup {
        let addr = self.upstream.addrs().first();
        addr.map_or(PeerGroup::THIS_MACHINE, |addr| PeerGroup::of(addr.ip()))
    }

    fn relays(&self) -> MutexGuard<'_, HashMap<ConnectionId, Arc<Relay>>> {
        self.relays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All relays now: to be looked at without the lock, which calls of all clients take.
    pub(crate) fn all_relays(&self) -> Vec<Arc<Relay>> {
        self.relays().values().cloned().collect()
    }

    pub(crate) fn upstream_connections(&self) -> Vec<UpstreamConnection> {
        let relays = self.all_relays();
        relays.iter().filter_map(|relay| relay.upstream()).collect()
    }

    /// When the call came that has waited for its reply for longest, if there is one. While calls wait, those count too whose
    /// clients have left while the server answered none.
    pub(crate) fn oldest_call(&self) -> Option<Instant> {
        let relays = self.all_relays();
        let oldest = relays
            .iter()
            .filter_map(|relay| relay.oldest_call())
            .min()?;
        Some(self.silence.waits_since(oldest))
    }

    /// The connections of TCP clients that have made a call.
    pub(crate) fn tcp_clients(&self) -> Vec<TcpClient> {
        if self.downstream_kind != TransportKind::Tcp {
            return Vec::new();
        }
        let mut relays = self.all_relays();
        relays.sort_by_key(|relay| relay.caller().connection);
        relays.iter().map(|relay| relay.seen()).collect()
    }

    /// Has somebody look for clients that do not take their replies, as long as calls wait for memory.
    pub(crate) fn watch_replies(self: &Arc<Self>) {
        if let Some(watch) = self.reply_memory.watch() {
            tokio::spawn(Arc::clone(self).close_stalled_clients(watch));
        }
    }

    async fn close_stalled_clients(self: Arc<Self>, mut watch: Watch) {
        let accepted = |connection| self.connections.accepted(connection).unwrap_or_default();
        while let Some(stalled) = watch.next(accepted).await {
            stalled
                .iter()
                .for_each(|stalled| self.close_stalled(stalled));
        }
    }

    /// Closes the connection of a client that holds memory for nothing while others wait.
    fn close_stalled(&self, stalled: &Stalled) {
        self.stats.clients_stalled.bump();
        if self.log.may_warn(stalled.group) {
            let what = match stalled.why {
                Why::Unread => {
                    "does not take its replies while others wait for their memory: its connection is closed"
                }
                Why::Unanswered => {
                    "holds memory for calls that the server does not answer while others wait for it: its connection is closed"
                }
            };
            warn!(target: "gateway", listen = self.listen(), peer = %stalled.addr, "{what}");
        }
        self.connections.abort(stalled.connection);
    }

    fn relay_of(self: &Arc<Self>, caller: &Caller) -> Arc<Relay> {
        let mut relays = self.relays();
        let relay = relays
            .entry(caller.connection)
            .or_insert_with(|| Relay::new(Arc::clone(self), *caller));
        Arc::clone(relay)
    }
}

/// The service of a gateway: passes each call on to the upstream of its connection.
pub(crate) struct Forward(pub(crate) Arc<GatewayState>);

impl Service for Forward {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        self.0.relay_of(caller).call(call, caller)
    }

    /// Replies have memory of [`GatewayConfig::reply_memory`], and none of the chunk memory of the server.
    fn reply_bound(&self, _: ReceivedCall<'_>) -> Option<ReplyBound> {
        Some(ReplyBound::default())
    }

    fn keeps_calls(&self) -> bool {
        true
    }

    fn connection_ended(&self, connection: ConnectionId) {
        let relay = self.0.relays().remove(&connection);
        if let Some(relay) = relay {
            relay.downstream_ended();
        }
    }
}
