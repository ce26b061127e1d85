//! Status of a running gateway, for metrics, the control socket and the log.

use super::allowed_clients::AllowedClients;
use super::pairs::{Pair, Pairs};
use super::plan::PairPlan;
use super::replace::Failed;
use super::transports;
use crate::control::{
    ClientStatus, FailedPairStatus, GatewayStatus, ListenerStatus, PairEvent, PairStatistics,
    PairStatus,
};
use crate::listening::TCP;
use crate::metrics::families::{Families, Labels, Listener};
use crate::reloads::Reloads;
use crate::reports::Tells;
use crate::server::observed::Observed as ServerObserved;
use gateway::{GatewayMonitor, GatewayStats, MountFailures, TcpClient};
use printing::json;
use prometheus::proto::MetricFamily;
use rpc_serving::admission::Admission;
use rpcrdma::ConnectionState;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

/// A running gateway as metrics, the control socket and the log show it.
pub struct Observed {
    listening: SocketAddr,
    /// Addresses of the sockets of the service manager.
    sockets: Vec<SocketAddr>,
    metrics: OnceLock<SocketAddr>,
    started: Instant,
    started_at: SystemTime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pairs: Vec<Watched>,
    /// Pairs of the file that could not be started.
    failed: Vec<Failed>,
    reloads: Reloads,
}

/// A pair, from outside.
struct Watched {
    plan: PairPlan,
    listening: SocketAddr,
    listeners: Vec<ListenerStatus>,
    mount: Option<SocketAddr>,
    mount_socket: Option<String>,
    monitor: GatewayMonitor,
    allowed: Arc<AllowedClients>,
    mount_failures: Arc<MountFailures>,
    mount_admission: Option<Admission>,
}

/// Counters of a pair.
struct PairTotals {
    gateway: GatewayStats,
    refused: u64,
    refused_as_too_many: u64,
    mount_denied: u64,
    mount_unanswered: u64,
}

impl Deref for PairTotals {
    type Target = GatewayStats;

    fn deref(&self) -> &GatewayStats {
        &self.gateway
    }
}

impl Watched {
    fn new(pair: &Pair) -> Self {
        Self {
            plan: pair.plan.clone(),
            listening: pair.listening,
            listeners: pair.listeners.clone(),
            mount: pair.mount_addr(),
            mount_socket: pair.mount_socket.clone(),
            monitor: pair.monitor(),
            allowed: pair.clients(),
            mount_failures: pair.mount_failures(),
            mount_admission: pair.mount_admission(),
        }
    }

    fn totals(&self) -> PairTotals {
        let mount = &self.mount_failures;
        PairTotals {
            gateway: self.monitor.stats(),
            refused: self.allowed.refused(),
            refused_as_too_many: self.monitor.refused_as_too_many()
                + self.mount_admission.as_ref().map_or(0, Admission::refused),
            mount_denied: mount.denied(),
            mount_unanswered: mount.unanswered(),
        }
    }

    /// Its statistics, for programs.
    fn statistics(&self) -> PairStatistics {
        PairStatistics {
            listen: self.url(),
            upstream: self.plan.upstream.to_string(),
            upstream_over: transports::summed_up(&self.plan, self.monitor.upstream_connections()),
            counters: counters(&self.totals())
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            oldest_call_seconds: self.monitor.oldest_call().as_secs_f64(),
        }
    }

    /// Its listener, as a URL.
    fn url(&self) -> String {
        format!("{}://{}", self.plan.listen.scheme.name(), self.listening)
    }

    /// Its clients, each with what its connection to the server is over.
    fn clients(&self) -> Vec<ClientStatus> {
        let upstream = self.monitor.upstream_connections();
        let mut upstream: HashMap<_, _> = upstream
            .into_iter()
            .map(|connection| (connection.client, connection))
            .collect();
        let connections = self.monitor.connections();
        let rdma = connections
            .iter()
            .map(|now| (now.id, ServerObserved::client(now, 0)));
        let tcp = self.monitor.tcp_clients();
        let tcp = tcp.iter().map(|now| (Some(now.id), over_tcp(now)));
        let clients = rdma.chain(tcp).map(|(id, client)| {
            let upstream = id.and_then(|id| upstream.remove(&id));
            let over = upstream.as_ref();
            let over =
                over.map(|upstream| transports::provider_of(&self.plan, upstream).to_owned());
            ClientStatus {
                listen: Some(self.url()),
                upstream_provider: over,
                upstream_device: upstream.and_then(|upstream| upstream.device),
                ..client
            }
        });
        clients.collect()
    }
}

/// A client over TCP.
fn over_tcp(now: &TcpClient) -> ClientStatus {
    let state = match now.in_flight {
        0 => ConnectionState::Idle,
        _ => ConnectionState::Active,
    };
    ClientStatus {
        address: now.addr.to_string(),
        provider: Some(TCP.to_owned()),
        state: state.name().to_owned(),
        age_seconds: now.age.as_secs_f64(),
        credits_in_use: now.in_flight as u64,
        calls: now.calls,
        inline_bytes_in: now.bytes_in,
        inline_bytes_out: now.bytes_out,
        ..ClientStatus::default()
    }
}

impl Observed {
    /// A gateway with these pairs, of which the first gives the control socket its name.
    pub(super) fn new(pairs: &Pairs) -> Self {
        let first = pairs.running().first();
        let observed = Self {
            listening: first.map_or(([0, 0, 0, 0], 0).into(), |pair| pair.listening),
            sockets: pairs.sockets.addresses().collect(),
            metrics: OnceLock::new(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            state: Mutex::default(),
        };
        observed.set_pairs(pairs);
        observed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the pairs.
    pub(super) fn set_pairs(&self, pairs: &Pairs) {
        self.lock().pairs = pairs.running().iter().map(Watched::new).collect();
    }

    /// Sets the pairs of the file that could not be started.
    pub(super) fn set_failed(&self, failed: Vec<Failed>) {
        self.lock().failed = failed;
    }

    /// Sets the pairs that could not be started when they were tried again. The error of the last reload is theirs then, unless
    /// it was of the file itself.
    pub(super) fn retry_failed(&self, failed: Vec<Failed>) {
        let mut state = self.lock();
        let first = |failed: &[Failed]| failed.first().map(ToString::to_string);
        if state.reloads.last_error == first(&state.failed) {
            state.reloads.last_error = first(&failed);
        }
        state.failed = failed;
    }

    /// Counts a reload of the file.
    pub(super) fn record_reload(&self, result: Result<(), String>) {
        self.lock().reloads.record(result);
    }

    /// The error of the last reload, if it failed.
    pub(super) fn last_reload_error(&self) -> Option<String> {
        self.lock().reloads.last_error.clone()
    }

    /// Connections of clients, in all pairs.
    pub(super) fn connections(&self) -> usize {
        let state = self.lock();
        let pairs = state.pairs.iter().map(|pair| pair.monitor.stats().relays);
        usize::try_from(pairs.sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Its statistics so far, as one event of the log for each pair.
    pub fn events(&self) -> Vec<PairEvent> {
        let state = self.lock();
        let event = |pair: &Watched| PairEvent {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            statistics: pair.statistics(),
        };
        state.pairs.iter().map(event).collect()
    }

    /// Logs its statistics so far, one line for each pair.
    pub fn log(&self) {
        for pair in &self.lock().pairs {
            let counters: Vec<String> = counters(&pair.totals())
                .filter(|(_, value)| *value > 0)
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            let (listen, upstream) = (pair.url(), pair.plan.upstream.to_string());
            tracing::info!(target: "gateway", listen, upstream, counters = counters.join(", "), "statistics");
        }
    }
}

/// A total of a pair: its name, what it counts, and its value.
type Total = (&'static str, &'static str, fn(&PairTotals) -> u64);

const TOTALS: [Total; 23] = [
    (
        "calls",
        "Calls of clients that were taken in to be passed on.",
        |now| now.calls,
    ),
    ("replies", "Replies of servers passed back.", |now| {
        now.replies
    }),
    (
        "callbacks",
        "Calls of servers passed on to clients.",
        |now| now.callbacks,
    ),
    (
        "callback_replies",
        "Replies of clients passed back.",
        |now| now.callback_replies,
    ),
    (
        "callbacks_refused",
        "Calls of servers refused, as the client did not say that it takes calls.",
        |now| now.callbacks_refused,
    ),
    ("bytes_up", "Bytes of messages passed to servers.", |now| {
        now.bytes_up
    }),
    (
        "bytes_down",
        "Bytes of messages passed to clients.",
        |now| now.bytes_down,
    ),
    (
        "upstream_connections",
        "Connections made to servers.",
        |now| now.upstream_connections,
    ),
    (
        "upstream_attempts_failed",
        "Failed attempts to connect to servers.",
        |now| now.upstream_attempts_failed,
    ),
    (
        "upstream_unreachable",
        "Client connections closed, as no connection to the server could be made in time.",
        |now| now.upstream_unreachable,
    ),
    (
        "upstream_lost",
        "Client connections ended by the loss of the connection to the server.",
        |now| now.upstream_lost,
    ),
    (
        "repetitions",
        "Calls dropped, as a call with the same XID was in flight.",
        |now| now.repetitions,
    ),
    (
        "larger_retries",
        "Calls repeated with a larger Reply chunk.",
        |now| now.larger_retries,
    ),
    (
        "replies_too_large",
        "Replies that fitted neither inline nor the offered chunks.",
        |now| now.replies_too_large,
    ),
    (
        "system_errors",
        "Calls answered with SYSTEM_ERR, as the connection to the server could not carry them or \
         their replies, or as there was no memory for these in 300 s.",
        |now| now.system_errors,
    ),
    (
        "clients_stalled",
        "Client connections closed, as they took no replies while others waited for memory.",
        |now| now.clients_stalled,
    ),
    (
        "denied",
        "Calls denied, as a local user claimed to be another one.",
        |now| now.denied,
    ),
    (
        "refused",
        "Connections of clients refused, to NFS or MOUNT, as their addresses are not allowed.",
        |now| now.refused,
    ),
    (
        "refused_as_too_many",
        "Connections of clients refused, to NFS or MOUNT, as there were too many of all or of one address.",
        |now| now.refused_as_too_many,
    ),
    (
        "mount_denied",
        "Calls of MOUNT over TCP denied, as a local user claimed to be another one.",
        |now| now.mount_denied,
    ),
    (
        "mount_unanswered",
        "Calls of MOUNT over TCP answered with SYSTEM_ERR, as MOUNT of the server did not answer.",
        |now| now.mount_unanswered,
    ),
    ("malformed", "Calls with a malformed header.", |now| {
        now.malformed
    }),
    (
        "timeouts",
        "Calls that the server did not answer in time.",
        |now| now.timeouts,
    ),
];

/// The counters of a pair by name: the number of client connections now, and totals.
fn counters(now: &PairTotals) -> impl Iterator<Item = (&'static str, u64)> {
    let totals = TOTALS.iter().map(|(name, _, value)| (*name, value(now)));
    std::iter::once(("connections", now.relays)).chain(totals)
}

/// The URLs of pairs that could not be started and are not among those that are served. A pair that goes on as it was before
/// may have the same.
fn not_served<T>(failed: &[Failed], served: &[(String, String, T)]) -> Vec<[String; 2]> {
    let mut all = Vec::new();
    // Where another pair goes on in its place, clients are served.
    for Failed { plan, .. } in failed.iter().filter(|failed| failed.is_retried()) {
        let urls = [plan.listen.to_string(), plan.upstream.to_string()];
        let is_served = |(listen, upstream, _): &_| [listen, upstream] == [&urls[0], &urls[1]];
        if !served.iter().any(is_served) && !all.contains(&urls) {
            all.push(urls);
        }
    }
    all
}

fn failed(failed: &Failed) -> FailedPairStatus {
    FailedPairStatus {
        listen: failed.plan.listen.to_string(),
        upstream: failed.plan.upstream.to_string(),
        error: failed.why.clone(),
        kept: failed.kept.clone(),
        attempts: failed.attempts,
    }
}

impl Tells for Observed {
    fn listening(&self) -> SocketAddr {
        self.listening
    }

    fn metrics_are_at(&self, addr: SocketAddr) {
        self.metrics.get_or_init(|| addr);
    }

    fn stats(&self) -> serde_json::Result<String> {
        let state = self.lock();
        let pairs = state.pairs.iter().map(|pair| PairStatus {
            statistics: pair.statistics(),
            mount: pair.mount.map(|addr| addr.to_string()),
            mount_socket: pair.mount_socket.clone(),
            upstream_mount: pair.plan.mount_name(),
            listeners: pair.listeners.clone(),
            allow: pair.plan.allow.iter().map(ToString::to_string).collect(),
        });
        json::line(&GatewayStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            metrics: self.metrics.get().map(ToString::to_string),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            pairs: pairs.collect(),
            failed: state.failed.iter().map(failed).collect(),
            sockets: self.sockets.iter().map(ToString::to_string).collect(),
            reloads: state.reloads.status(),
        })
    }

    fn clients(&self) -> serde_json::Result<String> {
        let state = self.lock();
        let clients: Vec<_> = state.pairs.iter().flat_map(Watched::clients).collect();
        json::line(&clients)
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let state = self.lock();
        let mut all = Families::default();
        all.start(self.started_at);
        all.reloads(&state.reloads);
        let pairs: Vec<_> = state
            .pairs
            .iter()
            .map(|pair| (pair.url(), pair.plan.upstream.to_string(), pair.totals()))
            .collect();
        let labels: Vec<[(&str, &str); 2]> = pairs
            .iter()
            .map(|(listen, upstream, _)| [("listen", &**listen), ("upstream", &**upstream)])
            .collect();
        let mut listeners = Vec::new();
        for (pair, (url, ..)) in state.pairs.iter().zip(&pairs) {
            listeners.extend(pair.listeners.iter().map(|on| Listener::of_nfs(url, on)));
            let socket = pair.mount_socket.as_deref();
            listeners.extend(pair.mount.map(|on| Listener::of_mount(url, on, socket)));
        }
        all.listeners(&listeners);
        let not_served = not_served(&state.failed, &pairs);
        let not_served: Vec<[(&str, &str); 2]> = not_served
            .iter()
            .map(|[listen, upstream]| [("listen", &**listen), ("upstream", &**upstream)])
            .collect();
        let with = |up: f64| move |labels| (labels, up);
        let served = labels.iter().map(|labels| &labels[..]).map(with(1.0));
        let lacking = not_served.iter().map(|labels| &labels[..]).map(with(0.0));
        let help = "1 for a pair that is served, 0 if it could not be started.";
        let up: Vec<(Labels<'_>, f64)> = served.chain(lacking).collect();
        all.gauges("gateway_pair_up", help, &up);
        let labelled = || labels.iter().map(|labels| &labels[..]).zip(&pairs);
        let now: Vec<(Labels<'_>, f64)> = labelled()
            .map(|(labels, (_, _, now))| (labels, now.relays as f64))
            .collect();
        let help = "Client connections with a connection to the server, or one being made.";
        all.gauges("gateway_connections", help, &now);
        let oldest = state.pairs.iter().map(|pair| pair.monitor.oldest_call());
        let oldest: Vec<(Labels<'_>, f64)> = labels
            .iter()
            .zip(oldest)
            .map(|(labels, oldest)| (&labels[..], oldest.as_secs_f64()))
            .collect();
        let help =
            "Age of the oldest call of a client that has no reply yet, in seconds; 0 without one.";
        all.gauges("gateway_oldest_call_seconds", help, &oldest);
        for (name, help, value) in TOTALS {
            let values: Vec<(Labels<'_>, u64)> = labelled()
                .map(|(labels, (_, _, now))| (labels, value(now)))
                .collect();
            all.counters(&format!("gateway_{name}_total"), help, &values);
        }
        all.0
    }
}
