//! What a running gateway tells of itself.

use super::pairs::{Pair, Pairs};
use super::plan::PairPlan;
use crate::control::{GatewayStatus, PairStatus};
use crate::json;
use crate::serve::metrics::families::{Families, Labels};
use crate::serve::observed::{Observed as ServerObserved, Reloads};
use crate::serve::reports::Tells;
use gateway::{GatewayMonitor, GatewayStats};
use prometheus::proto::MetricFamily;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

/// A running gateway as metrics, the control socket and the log show it.
pub(super) struct Observed {
    listening: SocketAddr,
    metrics: OnceLock<SocketAddr>,
    started: Instant,
    started_at: SystemTime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pairs: Vec<Watched>,
    reloads: Reloads,
}

/// A pair, from outside.
struct Watched {
    plan: PairPlan,
    listening: SocketAddr,
    mount: Option<SocketAddr>,
    monitor: GatewayMonitor,
}

impl Watched {
    fn new(pair: &Pair) -> Self {
        Self {
            plan: pair.plan.clone(),
            listening: pair.listening,
            mount: pair.mount_addr(),
            monitor: pair.monitor(),
        }
    }

    /// Where it listens, as a URL.
    fn url(&self) -> String {
        format!("{}://{}", self.plan.listen.scheme.name(), self.listening)
    }
}

impl Observed {
    /// A gateway with these pairs, of which the first gives the control socket its name.
    pub(super) fn new(pairs: &Pairs) -> Self {
        let first = pairs.running().first();
        let observed = Self {
            listening: first.map_or(([0, 0, 0, 0], 0).into(), |pair| pair.listening),
            metrics: OnceLock::new(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            state: Mutex::default(),
        };
        observed.runs(pairs);
        observed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are its pairs from now on.
    pub(super) fn runs(&self, pairs: &Pairs) {
        self.lock().pairs = pairs.running().iter().map(Watched::new).collect();
    }

    /// The file was read again, or not, for a reason.
    pub(super) fn was_reloaded(&self, result: Result<(), String>) {
        self.lock().reloads.note(result);
    }

    /// Why the pairs are not those of the file, if the last attempt to read it again failed.
    pub(super) fn last_reload_error(&self) -> Option<String> {
        self.lock().reloads.last_error.clone()
    }

    /// Connections of clients, in all pairs.
    pub(super) fn connections(&self) -> usize {
        let state = self.lock();
        let pairs = state.pairs.iter().map(|pair| pair.monitor.stats().pairs);
        usize::try_from(pairs.sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Logs what it did so far, one event for each pair.
    pub(super) fn log(&self) {
        for pair in &self.lock().pairs {
            let counters: Vec<String> = counters(&pair.monitor.stats())
                .into_iter()
                .filter(|(_, value)| *value > 0)
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            let (listen, upstream) = (pair.url(), pair.plan.upstream.to_string());
            tracing::info!(target: "serve", listen, upstream, counters = counters.join(", "), "statistics");
        }
    }
}

/// The counters of a pair by name; the first is the number of client connections now.
fn counters(stats: &GatewayStats) -> Vec<(&'static str, u64)> {
    vec![
        ("connections", stats.pairs),
        ("calls", stats.calls),
        ("replies", stats.replies),
        ("callbacks", stats.callbacks),
        ("callback_replies", stats.callback_replies),
        ("callbacks_refused", stats.callbacks_refused),
        ("bytes_up", stats.bytes_up),
        ("bytes_down", stats.bytes_down),
        ("upstream_connections", stats.upstream_connections),
        ("upstream_unreachable", stats.upstream_unreachable),
        ("upstream_lost", stats.upstream_lost),
        ("repetitions", stats.repetitions),
        ("larger_retries", stats.larger_retries),
        ("replies_too_large", stats.replies_too_large),
        ("system_errors", stats.system_errors),
        ("denied", stats.denied),
        ("malformed", stats.malformed),
        ("timeouts", stats.timeouts),
    ]
}

/// Help texts of the counters, in the same order, without the first.
const HELP: [&str; 17] = [
    "Calls of clients passed on.",
    "Replies of servers passed back.",
    "Calls of servers passed on to clients.",
    "Replies of clients passed back.",
    "Calls of servers refused, as the client did not say that it takes calls.",
    "Bytes of messages passed to servers.",
    "Bytes of messages passed to clients.",
    "Connections made to servers.",
    "Client connections closed, as no connection to the server could be made in time.",
    "Client connections ended by the loss of the connection to the server.",
    "Calls dropped, as a call with the same XID was in flight.",
    "Calls repeated with a larger Reply chunk.",
    "Replies that fitted neither inline nor the offered chunks.",
    "Calls answered with SYSTEM_ERR, as the connection to the server could not carry them or their replies.",
    "Calls denied, as a local user claimed to be another one.",
    "Calls with a malformed header.",
    "Calls that the server did not answer in time.",
];

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
            listen: pair.url(),
            upstream: pair.plan.upstream.to_string(),
            mount: pair.mount.map(|addr| addr.to_string()),
            allow: pair.plan.allow.iter().map(ToString::to_string).collect(),
            counters: counters(&pair.monitor.stats())
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<BTreeMap<_, _>>(),
        });
        json::line(&GatewayStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            metrics: self.metrics.get().map(ToString::to_string),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            pairs: pairs.collect(),
            reloads: state.reloads.status(),
        })
    }

    fn clients(&self) -> serde_json::Result<String> {
        let state = self.lock();
        let connections = state
            .pairs
            .iter()
            .flat_map(|pair| pair.monitor.connections());
        let clients: Vec<_> = connections
            .map(|now| ServerObserved::client(&now, 0))
            .collect();
        json::line(&clients)
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let state = self.lock();
        let mut all = Families::default();
        all.start(self.started_at);
        all.reloads(&state.reloads);
        let of_pairs: Vec<(String, String, Vec<(&str, u64)>)> = state
            .pairs
            .iter()
            .map(|pair| {
                let counters = counters(&pair.monitor.stats());
                (pair.url(), pair.plan.upstream.to_string(), counters)
            })
            .collect();
        let labels: Vec<[(&str, &str); 2]> = of_pairs
            .iter()
            .map(|(listen, upstream, _)| [("listen", &**listen), ("upstream", &**upstream)])
            .collect();
        let values = |index: usize| -> Vec<(Labels<'_>, u64)> {
            let counters = of_pairs
                .iter()
                .filter_map(|(_, _, counters)| counters.get(index));
            let labelled = labels.iter().zip(counters);
            labelled
                .map(|(labels, (_, value))| (&labels[..], *value))
                .collect()
        };
        let now: Vec<_> = values(0)
            .into_iter()
            .map(|(labels, value)| (labels, value as f64))
            .collect();
        let help = "Client connections with a connection to the server, or one being made.";
        all.gauges("gateway_connections", help, &now);
        let names = of_pairs.first().map(|(_, _, counters)| &counters[1..]);
        let names = names.unwrap_or_default().iter().map(|(name, _)| name);
        for (index, (name, help)) in names.zip(HELP).enumerate() {
            all.counters(&format!("gateway_{name}_total"), help, &values(index + 1));
        }
        all.0
    }
}
