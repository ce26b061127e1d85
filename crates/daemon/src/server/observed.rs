//! Status of a running server, for metrics, the control socket and the log.

use super::live_exports::{AbsentExports, LiveExports};
use super::plan::{ClientPlan, Plan};
use super::state_report::Administered4;
use crate::control::nfs4::StateAction;
use crate::control::shown;
use crate::control::{
    ClientStatus, ConnectionCounts, DuplicateRequests, ExportStatus, ListenerStatus,
    ProcedureStatus, RuleStatus, ServerEvent, ServerStatistics, ServerStatus,
};
use crate::listening::{Listening, TCP, provider_name};
use crate::metrics::families::families;
use crate::reloads::Reloads;
use crate::reports::Tells;
use nfs_server::{
    DuplicateRequestStats, ExportStats, Mount3, Nfs3, Nfs4Status, NfsAcl3, ProcedureStats,
    ProgramStats, Squash,
};
use printing::json;
use prometheus::proto::MetricFamily;
use rpcrdma::{ConnectionState, ConnectionStats, ServerMonitor, ServerStats};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

/// A running server as metrics, the control socket and the log show it.
pub struct Observed {
    monitor: ServerMonitor,
    /// Of TCP without RDMA, if that is served.
    tcp: Option<oncrpc_tcp::ServerMonitor>,
    programs: CountedPrograms,
    pub(super) nfs4: Administered4,
    listening: Listening,
    /// Addresses of MOUNT, and the name of the sockets of the service manager that it uses, if it uses any.
    mount: (Vec<SocketAddr>, Option<&'static str>),
    metrics: OnceLock<SocketAddr>,
    started: Instant,
    started_at: SystemTime,
    administered: Mutex<Administered>,
}

impl Tells for Observed {
    fn listening(&self) -> SocketAddr {
        self.listening()
    }

    fn metrics_are_at(&self, addr: SocketAddr) {
        self.metrics_are_at(addr);
    }

    fn stats(&self) -> serde_json::Result<String> {
        json::line(&self.status())
    }

    fn clients(&self) -> serde_json::Result<String> {
        json::line(&self.clients())
    }

    fn nfs4_clients(&self) -> serde_json::Result<String> {
        json::line(&self.nfs4.clients(&self.peers()))
    }

    fn held(&self, client: Option<&str>) -> serde_json::Result<String> {
        json::line(&self.nfs4.held(client))
    }

    fn state(&self, action: Option<&StateAction>) -> serde_json::Result<String> {
        json::line(&self.nfs4.state(action))
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        families(&self.snapshot())
    }
}

/// The programs of a server.
pub(super) struct CountedPrograms {
    pub(super) nfs: Nfs3,
    pub(super) acl: NfsAcl3,
    pub(super) mount: Mount3,
}

/// The exports, and the reloads.
#[derive(Default)]
struct Administered {
    exports: Vec<ExportStatus>,
    reloads: Reloads,
}

/// Counters of a server at one moment.
pub(crate) struct Snapshot {
    pub(crate) server: ServerStats,
    pub(crate) connections: Vec<ConnectionStats>,
    pub(crate) tcp: oncrpc_tcp::ServerStats,
    pub(crate) tcp_connections: Vec<oncrpc_tcp::ConnectionStats>,
    pub(crate) programs: [ProgramStats; 4],
    pub(crate) nfs4: Nfs4Status,
    pub(crate) export_stats: Vec<ExportStats>,
    pub(crate) duplicates: DuplicateRequestStats,
    pub(crate) open_files: usize,
    pub(crate) started_at: SystemTime,
    pub(crate) exports: Vec<ExportStatus>,
    pub(crate) reloads: Reloads,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) mount: (Vec<SocketAddr>, Option<&'static str>),
}

/// Names and numbers as text, without those that are zero.
fn counts<'a>(all: impl Iterator<Item = (&'a str, u64)>) -> String {
    let counted = all.filter(|(_, count)| *count > 0);
    let texts: Vec<_> = counted
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    texts.join(", ")
}

impl Observed {
    /// A server that listens there, and for MOUNT at the other addresses, with sockets of this name of the service manager.
    pub(super) fn new(
        (monitor, tcp): (ServerMonitor, Option<oncrpc_tcp::ServerMonitor>),
        (programs, nfs4): (CountedPrograms, Administered4),
        listening: Listening,
        mount: (Vec<SocketAddr>, Option<&'static str>),
    ) -> Self {
        Self {
            monitor,
            tcp,
            programs,
            nfs4,
            listening,
            mount,
            metrics: OnceLock::new(),
            started: Instant::now(),
            started_at: SystemTime::now(),
            administered: Mutex::default(),
        }
    }

    /// Notes the address of metrics.
    pub fn metrics_are_at(&self, addr: SocketAddr) {
        self.metrics.get_or_init(|| addr);
    }

    /// Sets the exports.
    pub(super) fn set_exports(&self, live: &LiveExports) {
        let exports = live.plans().iter();
        let exports = exports.map(|plan| export(plan, live.absent())).collect();
        self.administered().exports = exports;
    }

    /// Counts a reload of the file.
    pub(super) fn record_reload(&self, result: Result<(), String>) {
        self.administered().reloads.record(result);
    }

    /// The error of the last reload, if it failed.
    pub(super) fn last_reload_error(&self) -> Option<String> {
        self.administered().reloads.last_error.clone()
    }

    fn administered(&self) -> MutexGuard<'_, Administered> {
        let locked = self.administered.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    /// The first address of RPC-over-RDMA.
    pub fn listening(&self) -> SocketAddr {
        self.listening.first()
    }

    /// Its statistics so far, as an event of the log.
    pub fn event(&self) -> ServerEvent {
        let now = self.snapshot();
        let mut statistics = self.statistics(&now);
        statistics
            .procedures
            .retain(|procedure| procedure.calls > 0);
        let absent = now.exports.iter().filter(|export| export.absent.is_some());
        let exports_absent = absent.count();
        ServerEvent {
            exports_served: now.exports.len() - exports_absent,
            exports_absent,
            statistics,
        }
    }

    /// Logs its statistics so far in a line.
    pub fn log(&self) {
        let now = self.snapshot();
        let exports = now.exports.len();
        let connections = now.connection_counts();
        let procedures = || now.programs.iter().flat_map(|of| &of.procedures);
        let names: Vec<_> = now
            .programs
            .iter()
            .flat_map(|of| of.procedures.iter().map(|p| shown(of.program, p.name)))
            .collect();
        let calls = names.iter().zip(procedures());
        let calls = counts(calls.map(|(name, of)| (&**name, of.calls)));
        tracing::info!(
            target: "serve",
            exports,
            connections = connections.now(),
            active = connections.active,
            version_one = now.server.version_one,
            version_two = now.server.version_two,
            accepted = connections.accepted,
            refused = connections.refused,
            evicted = connections.evicted,
            unanswered = connections.unanswered,
            credits_granted = now.credits_granted(),
            credits_in_use = now.credits_in_use(),
            jobs = now.jobs(),
            jobs_in_flight = now.jobs_in_flight(),
            chunk_memory = now.server.chunk_memory,
            open_files = now.open_files,
            calls,
            failed = procedures().map(ProcedureStats::failed).sum::<u64>(),
            calls_again = now.duplicates.hits,
            results_kept = now.duplicates.entries,
            results_evicted = now.duplicates.evicted,
            bytes_in = now.bytes_in(),
            bytes_out = now.bytes_out(),
            rdma = counts(now.server.counters.iter()),
            "statistics"
        );
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let (exports, reloads) = {
            let now = self.administered();
            (now.exports.clone(), now.reloads.clone())
        };
        Snapshot {
            server: self.monitor.stats(),
            connections: self.monitor.connections(),
            tcp: self.tcp.as_ref().map(|tcp| tcp.stats()).unwrap_or_default(),
            tcp_connections: self.tcp_connections(),
            programs: [
                self.programs.nfs.stats(),
                self.nfs4.nfs.stats(),
                self.programs.acl.stats(),
                self.programs.mount.stats(),
            ],
            nfs4: self.nfs4.status(),
            export_stats: self.programs.nfs.export_stats(),
            duplicates: self.programs.nfs.duplicate_requests(),
            open_files: self.programs.nfs.open_files(),
            started_at: self.started_at,
            exports,
            reloads,
            listeners: self.listening.listeners(),
            mount: self.mount.clone(),
        }
    }

    /// Its status for the control socket.
    pub fn status(&self) -> ServerStatus {
        let now = self.snapshot();
        ServerStatus {
            listeners: now.listeners.clone(),
            mount: self
                .mount
                .0
                .first()
                .map(ToString::to_string)
                .unwrap_or_default(),
            mounts: self.mount.0.iter().map(ToString::to_string).collect(),
            mount_socket: self.mount.1.map(str::to_owned),
            metrics: self.metrics.get().map(ToString::to_string),
            exports: now.exports.clone(),
            reloads: now.reloads.status(),
            statistics: self.statistics(&now),
        }
    }

    fn statistics(&self, now: &Snapshot) -> ServerStatistics {
        let counters = now.server.counters.iter();
        ServerStatistics {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            listening: self.listening.first().to_string(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: now.connection_counts(),
            credits_granted: now.credits_granted(),
            credits_in_use: now.credits_in_use(),
            jobs: now.jobs(),
            jobs_in_flight: now.jobs_in_flight(),
            chunk_memory_bytes: now.server.chunk_memory as u64,
            open_files: now.open_files as u64,
            duplicate_requests: DuplicateRequests {
                hits: now.duplicates.hits,
                misses: now.duplicates.misses,
                refused: now.duplicates.refused,
                evicted: now.duplicates.evicted,
                expired: now.duplicates.expired,
                entries: now.duplicates.entries as u64,
            },
            rdma: counters
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            work: printing::work::counts(&now.server.io),
            bytes_in: now.bytes_in(),
            bytes_out: now.bytes_out(),
            procedures: now.programs.iter().flat_map(procedures).collect(),
        }
    }

    fn tcp_connections(&self) -> Vec<oncrpc_tcp::ConnectionStats> {
        let tcp = self.tcp.as_ref();
        tcp.map(|tcp| tcp.connections()).unwrap_or_default()
    }

    /// Addresses of clients by the numbers of their connections.
    fn peers(&self) -> HashMap<u64, SocketAddr> {
        let over_rdma = self.monitor.connections().into_iter();
        let over_rdma = over_rdma.filter_map(|now| Some((now.id?.number(), now.peer)));
        let over_tcp = self.tcp_connections().into_iter();
        over_rdma
            .chain(over_tcp.map(|now| (now.id.number(), now.peer)))
            .collect()
    }

    /// Its connections, for the control socket, with the address that each has come to, as a URL, if there are several.
    pub fn clients(&self) -> Vec<ClientStatus> {
        let again = |id| self.programs.nfs.duplicate_requests_on(id);
        let has_several = self.listening.asked.len() > 1 || self.tcp.is_some();
        let over_rdma = self.monitor.connections().into_iter().map(|now| {
            let listen = format!("rdma://{}", now.listener);
            (Self::client(&now, now.id.map_or(0, again)), listen)
        });
        let over_tcp = self.tcp_connections().into_iter().map(|now| {
            let listener = now.listener.as_ref().map(ToString::to_string);
            let listen = format!("tcp://{}", listener.unwrap_or_default());
            (over_tcp(&now, again(now.id)), listen)
        });
        let all = over_rdma.chain(over_tcp);
        all.map(|(client, listen)| ClientStatus {
            listen: has_several.then_some(listen),
            ..client
        })
        .collect()
    }

    /// A connection, and how many calls on it came again and were not executed twice.
    pub fn client(now: &ConnectionStats, duplicate_request_hits: u64) -> ClientStatus {
        let counters = &now.counters;
        ClientStatus {
            address: now.peer.to_string(),
            listen: None,
            // What a connection uses is published with its first call.
            provider: now
                .id
                .map(|_| provider_name(now.device.is_some()).to_owned()),
            device: now.device.as_deref().map(str::to_owned),
            upstream_provider: None,
            upstream_device: None,
            state: now.state.name().to_owned(),
            version: now.version.map(|version| version.number()),
            age_seconds: now.since.elapsed().as_secs_f64(),
            credits_granted: now.credits_granted,
            credits_in_use: now.credits_in_use as u64,
            calls: counters.calls_received,
            jobs: now.jobs,
            jobs_in_flight: now.jobs_in_flight as u64,
            duplicate_request_hits,
            read_chunks: counters.read_chunks_pulled,
            write_chunks: counters.write_chunks_filled,
            reply_chunks: counters.reply_chunks_filled,
            rdma_bytes_in: counters.read_bytes_pulled,
            rdma_bytes_out: counters.write_bytes_posted + counters.reply_bytes_posted,
            inline_bytes_in: counters.inline_bytes_received,
            inline_bytes_out: counters.inline_bytes_sent,
            registrations: counters.registrations,
            local_invalidations: counters.local_invalidations,
            remote_invalidations: counters.remote_invalidations,
            invalidations_sent: counters.invalidations_sent,
            chunk_memory_bytes: now.chunk_memory as u64,
        }
    }
}

/// State of a connection of TCP without RDMA.
fn state_over_tcp(now: &oncrpc_tcp::ConnectionStats) -> ConnectionState {
    match (now.is_closing, now.calls, now.in_flight) {
        (true, ..) => ConnectionState::Draining,
        (false, 0, _) => ConnectionState::Setup,
        (false, _, 0) => ConnectionState::Idle,
        (false, ..) => ConnectionState::Active,
    }
}

/// A client over TCP without RDMA, and how many of its calls came again and were not executed twice.
fn over_tcp(now: &oncrpc_tcp::ConnectionStats, duplicate_request_hits: u64) -> ClientStatus {
    ClientStatus {
        address: now.peer.to_string(),
        provider: Some(TCP.to_owned()),
        state: state_over_tcp(now).name().to_owned(),
        age_seconds: now.since.elapsed().as_secs_f64(),
        credits_in_use: now.in_flight as u64,
        calls: now.calls,
        jobs: now.jobs,
        jobs_in_flight: now.jobs_in_flight as u64,
        duplicate_request_hits,
        inline_bytes_in: now.bytes_in,
        inline_bytes_out: now.bytes_out,
        ..ClientStatus::default()
    }
}

/// A rule for the control socket.
pub fn rule_status(rule: &ClientPlan) -> RuleStatus {
    let options = rule.options;
    RuleStatus {
        clients: rule.clients.to_string(),
        read_only: options.read_only,
        squash: match options.squash {
            Squash::Root => "root",
            Squash::RemoteRoot => "remote-root",
            Squash::All => "all",
            Squash::None => "none",
        }
        .to_owned(),
        anonuid: options.anonymous.uid,
        anongid: options.anonymous.gid,
    }
}

fn export(plan: &Plan, absent: &AbsentExports) -> ExportStatus {
    let clients = plan.clients.iter();
    ExportStatus {
        name: plan.export.name.clone(),
        directory: plan.export.dir.to_string_lossy().into_owned(),
        read_only: plan.read_only(),
        clients: clients.map(|rule| rule.clients.to_string()).collect(),
        rules: plan.clients.iter().map(rule_status).collect(),
        absent: absent.get(&plan.export.name).cloned(),
    }
}

fn procedures(of: &ProgramStats) -> Vec<ProcedureStatus> {
    let procedures = of.procedures.iter();
    procedures
        .map(|procedure| ProcedureStatus {
            program: of.program.to_owned(),
            name: procedure.name.to_owned(),
            calls: procedure.calls,
            errors: procedure
                .errors
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(class, count)| (class.name().to_owned(), *count))
                .collect(),
            latency_buckets: procedure.latency.buckets.to_vec(),
            latency_sum_seconds: procedure.latency.sum.as_secs_f64(),
        })
        .collect()
}

impl Snapshot {
    pub(crate) fn connection_counts(&self) -> ConnectionCounts {
        let mut counts = ConnectionCounts {
            version_one: self.server.version_one as u64,
            version_two: self.server.version_two as u64,
            accepted: self.server.accepted + self.tcp.accepted,
            refused: self.server.refused + self.tcp.refused,
            evicted: self.server.evicted + self.tcp.evicted,
            unanswered: self.server.unanswered,
            ..ConnectionCounts::default()
        };
        let over_rdma = self.connections.iter().map(|now| now.state);
        let over_tcp = self.tcp_connections.iter().map(state_over_tcp);
        for state in over_rdma.chain(over_tcp) {
            *match state {
                ConnectionState::Setup => &mut counts.setup,
                ConnectionState::Idle => &mut counts.idle,
                ConnectionState::Active => &mut counts.active,
                ConnectionState::Draining => &mut counts.draining,
            } += 1;
        }
        counts
    }

    /// Connections that came to a listener. One over software iWARP and one over devices may have the same address.
    pub(crate) fn connections_to(&self, on: &ListenerStatus) -> usize {
        if on.provider == TCP {
            let listeners = self.tcp_connections.iter().filter_map(|now| now.listener);
            return listeners.filter(|at| at.to_string() == on.address).count();
        }
        let over_devices = on.provider == provider_name(true);
        let here = self.connections.iter().filter(|now| {
            now.listener.to_string() == on.address && now.device.is_some() == over_devices
        });
        here.count()
    }

    pub(crate) fn credits_granted(&self) -> u64 {
        let granted = self.connections.iter().map(|now| now.credits_granted);
        granted.map(u64::from).sum()
    }

    pub(crate) fn credits_in_use(&self) -> u64 {
        let in_use = self.connections.iter().map(|now| now.credits_in_use);
        in_use.sum::<usize>() as u64
    }

    /// Addresses of clients, one for each connection.
    pub(crate) fn peers(&self) -> impl Iterator<Item = SocketAddr> {
        let over_rdma = self.connections.iter().map(|now| now.peer);
        over_rdma.chain(self.tcp_connections.iter().map(|now| now.peer))
    }

    pub(crate) fn jobs(&self) -> u64 {
        self.server.jobs + self.tcp.jobs
    }

    pub(crate) fn jobs_in_flight(&self) -> u64 {
        let over_rdma = self.connections.iter().map(|now| now.jobs_in_flight);
        let over_tcp = self.tcp_connections.iter().map(|now| now.jobs_in_flight);
        over_rdma.chain(over_tcp).sum::<usize>() as u64
    }

    pub(crate) fn bytes_in(&self) -> u64 {
        self.server.io.bytes_in + self.tcp.bytes_in
    }

    pub(crate) fn bytes_out(&self) -> u64 {
        self.server.io.bytes_out + self.tcp.bytes_out
    }
}
