//! The metrics: names, help and values.
//!
//! Names keep to the conventions of Prometheus: seconds and bytes, `_total` for what only grows.

use crate::control::ListenerStatus;
use crate::reloads::Reloads;
use crate::server::observed::Snapshot;
use nfs_server::{ExportStats, LatencyHistogram, Nfs4Status};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

/// Label of the exports that have no counters of their own; names of exports begin with `/`.
const FURTHER_EXPORTS: &str = "other";

/// Every metric, with its values of that moment.
pub(crate) fn families(now: &Snapshot) -> Vec<MetricFamily> {
    let mut all = Families::default();
    all.process(now);
    all.nfs(now);
    all.exports(now);
    all.nfs4(now);
    all.duplicate_requests(now);
    all.connections(now);
    all.clients(now);
    all.transport(now);
    all.0
}

/// Names and values of labels.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// An address where clients connect, as a metric shows it.
pub(crate) struct Listener<'a> {
    service: &'static str,
    /// The URL of the server, or of the pair of a gateway.
    listen: &'a str,
    address: Cow<'a, str>,
    provider: &'a str,
    device: &'a str,
    socket: &'a str,
}

impl<'a> Listener<'a> {
    /// One for NFS.
    pub(crate) fn of_nfs(listen: &'a str, on: &'a ListenerStatus) -> Self {
        Self {
            service: "nfs",
            listen,
            address: Cow::Borrowed(&on.address),
            provider: &on.provider,
            device: on.device.as_deref().unwrap_or_default(),
            socket: on.socket.as_deref().unwrap_or_default(),
        }
    }

    /// One for MOUNT, with the name of its socket of the service manager.
    pub(crate) fn of_mount(listen: &'a str, on: SocketAddr, socket: Option<&'a str>) -> Self {
        Self {
            service: "mount",
            listen,
            address: Cow::Owned(on.to_string()),
            provider: "tcp",
            device: "",
            socket: socket.unwrap_or_default(),
        }
    }

    fn labels(&self) -> [(&str, &str); 6] {
        [
            ("service", self.service),
            ("listen", self.listen),
            ("address", &self.address),
            ("provider", self.provider),
            ("device", self.device),
            ("socket", self.socket),
        ]
    }
}

/// Metrics that are being put together.
#[derive(Default)]
pub(crate) struct Families(pub Vec<MetricFamily>);

impl Families {
    fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        self.push(format!("rpcrdma_{name}"), help, kind, metrics);
    }

    fn push(&mut self, name: String, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        // A family without values is none.
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name);
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    /// Adds a family of counters with these values.
    pub(crate) fn counters(&mut self, name: &str, help: &str, values: &[(Labels<'_>, u64)]) {
        let metrics = values
            .iter()
            .map(|(labels, value)| counter(labels, *value as f64));
        self.add(name, help, MetricType::COUNTER, metrics.collect());
    }

    /// Adds a family of gauges with these values.
    pub(crate) fn gauges(&mut self, name: &str, help: &str, values: &[(Labels<'_>, f64)]) {
        let metrics = values.iter().map(|(labels, value)| gauge(labels, *value));
        self.add(name, help, MetricType::GAUGE, metrics.collect());
    }

    /// A counter of the process, which has the same name in every program.
    pub(super) fn process_counter(&mut self, name: &str, help: &str, value: f64) {
        let name = format!("process_{name}");
        self.push(name, help, MetricType::COUNTER, vec![counter(&[], value)]);
    }

    /// A gauge of the process, which has the same name in every program.
    pub(super) fn process_gauge(&mut self, name: &str, help: &str, value: f64) {
        let name = format!("process_{name}");
        self.push(name, help, MetricType::GAUGE, vec![gauge(&[], value)]);
    }

    /// Version, start time and resources of the process, of every long-running command.
    pub(crate) fn start(&mut self, started_at: SystemTime) {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.gauges(
            "build_info",
            "Version of the server, as a label of the value 1.",
            &[(&version, 1.0)],
        );
        let started = started_at.duration_since(UNIX_EPOCH);
        self.gauges(
            "start_time_seconds",
            "Time at which the server started, in seconds since 1970.",
            &[(&[], started.unwrap_or_default().as_secs_f64())],
        );
        self.process_resources();
    }

    /// Reloads of a configuration file.
    pub(crate) fn reloads(&mut self, reloads: &Reloads) {
        self.counters(
            "reloads_total",
            "Times that the configuration file was read again. With an error in it nothing changes; a pair of a gateway \
             that cannot be started is a failure too.",
            &[
                (&[("result", "success")], reloads.succeeded),
                (&[("result", "failure")], reloads.failed),
            ],
        );
        let is_good = reloads.last_error.is_none();
        self.gauges(
            "last_reload_successful",
            "1 if the last reload succeeded, or there was none; a pair of a gateway that could not be started is a failure \
             until it has started.",
            &[(&[], f64::from(u8::from(is_good)))],
        );
    }

    /// Listeners for clients.
    pub(crate) fn listeners(&mut self, listeners: &[Listener<'_>]) {
        let labels: Vec<_> = listeners.iter().map(Listener::labels).collect();
        let values: Vec<(Labels<'_>, f64)> =
            labels.iter().map(|labels| (&labels[..], 1.0)).collect();
        let help = "Where clients connect, as labels of the value 1: socket is the name of the service manager's.";
        self.gauges("listener_info", help, &values);
    }

    fn process(&mut self, now: &Snapshot) {
        self.start(now.started_at);
        let first = now.listeners.first().map_or("", |first| &first.address);
        let url = format!("rdma://{first}");
        let listeners = now.listeners.iter();
        let mut listeners: Vec<_> = listeners.map(|on| Listener::of_nfs(&url, on)).collect();
        let (mount, socket) = &now.mount;
        let mount = mount.iter();
        listeners.extend(mount.map(|addr| Listener::of_mount(&url, *addr, *socket)));
        self.listeners(&listeners);
        self.gauges(
            "open_files",
            "Files and directories kept open between calls.",
            &[(&[], now.open_files as f64)],
        );
        let absent = now.exports.iter().filter(|export| export.absent.is_some());
        let absent = absent.count();
        let served = now.exports.len() - absent;
        self.gauges(
            "exports",
            "Exports, by whether they are served: absent ones need not be there.",
            &[
                (&[("state", "served")], served as f64),
                (&[("state", "absent")], absent as f64),
            ],
        );
        self.reloads(&now.reloads);
    }

    fn nfs(&mut self, now: &Snapshot) {
        let programs = now.programs.iter();
        let (labels, procedures): (Vec<_>, Vec<_>) = programs
            .flat_map(|of| {
                let procedures = of.procedures.iter();
                procedures.map(|p| ([("program", of.program), ("procedure", p.name)], p))
            })
            .unzip();
        let calls = labels.iter().zip(&procedures);
        let calls: Vec<_> = calls.map(|(label, p)| (&label[..], p.calls)).collect();
        self.counters(
            "nfs_calls_total",
            "Calls of NFS version 3, NFSACL and MOUNT, and operations of NFS version 4 (nfs4), that were answered, by procedure.",
            &calls,
        );
        let errors: Vec<_> = labels
            .iter()
            .zip(&procedures)
            .flat_map(|([program, name], procedure)| {
                let classes = procedure.errors.iter();
                classes.map(|(class, count)| ([*program, *name, ("class", class.name())], *count))
            })
            .collect();
        let errors: Vec<_> = errors.iter().map(|(l, count)| (&l[..], *count)).collect();
        self.counters(
            "nfs_errors_total",
            "Calls of NFS, NFSACL and MOUNT that failed, by procedure and kind of failure.",
            &errors,
        );
        let latencies = labels.iter().zip(&procedures).map(|(label, procedure)| {
            let mut metric = labelled(label);
            metric.set_histogram(histogram(&procedure.latency));
            metric
        });
        self.add(
            "nfs_call_duration_seconds",
            "Time to answer calls of NFS, NFSACL and MOUNT, by procedure. Of calls that are answered at once a sample is \
             measured, and counts for the others.",
            MetricType::HISTOGRAM,
            latencies.collect(),
        );
    }

    /// By export, of which [`nfs_server::MAX_COUNTED_EXPORTS`] have values of their own.
    fn exports(&mut self, now: &Snapshot) {
        let named = now.export_stats.iter();
        let named: Vec<(&str, &ExportStats)> = named
            .map(|export| (export.name.as_deref().unwrap_or(FURTHER_EXPORTS), export))
            .collect();
        let operations: Vec<_> = named
            .iter()
            .flat_map(|(name, export)| {
                let classes = export.operations.iter();
                classes.map(|(class, count)| ([("export", *name), ("class", class.name())], *count))
            })
            .collect();
        let errors: Vec<_> = named
            .iter()
            .flat_map(|(name, export)| {
                let classes = export.errors.iter();
                classes.map(|(class, count)| ([("export", *name), ("class", class.name())], *count))
            })
            .collect();
        let bytes: Vec<_> = named
            .iter()
            .flat_map(|(name, export)| {
                let ways = [("read", export.bytes_read), ("write", export.bytes_written)];
                ways.map(|(class, count)| ([("export", *name), ("class", class)], count))
            })
            .collect();
        self.counters(
            "export_operations_total",
            "Executed operations of NFS and NFSACL, by export and class: read, write (and COMMIT), metadata (attributes, \
             names and directories are read), change.",
            &values(&operations),
        );
        self.counters(
            "export_errors_total",
            "Operations that failed, by export and kind of failure.",
            &values(&errors),
        );
        self.counters(
            "export_bytes_total",
            "Bytes of file data that were read and written, by export.",
            &values(&bytes),
        );
    }

    /// State of clients of NFS version 4.
    fn nfs4(&mut self, now: &Snapshot) {
        let Nfs4Status { usage, limits, .. } = now.nfs4;
        let gauges = [
            (
                "nfs4_clients",
                "Clients of NFS version 4.",
                usage.clients,
                limits.clients,
            ),
            (
                "nfs4_sessions",
                "Sessions of NFS version 4.",
                usage.sessions,
                limits.sessions,
            ),
            (
                "nfs4_opens",
                "Opens of NFS version 4, and owners of locks in them.",
                usage.states,
                limits.states,
            ),
            (
                "nfs4_locks",
                "Locks of byte ranges.",
                usage.locks,
                limits.locks,
            ),
            (
                "nfs4_lock_waiters",
                "Owners that wait for locks of byte ranges.",
                usage.waiters,
                limits.waiters,
            ),
        ];
        for (name, help, value, _) in &gauges {
            self.gauges(name, help, &[(&[], *value as f64)]);
        }
        let labels = gauges.map(|(name, _, _, limit)| {
            let what = name.trim_start_matches("nfs4_");
            ([("what", what)], limit as f64)
        });
        let limits: Vec<_> = labels
            .iter()
            .map(|(label, value)| (&label[..], *value))
            .collect();
        self.gauges(
            "nfs4_limit",
            "How many of these there may be: of what an address has, at most as much as it leaves free.",
            &limits,
        );
        self.gauges(
            "nfs4_grace",
            "1 while new opens and locks wait, as clients reclaim those that they had before the server was restarted.",
            &[(&[], f64::from(u8::from(now.nfs4.is_in_grace)))],
        );
        self.gauges(
            "nfs4_clients_awaited",
            "Clients that have not reclaimed yet what they had before the server was restarted.",
            &[(&[], now.nfs4.awaited as f64)],
        );
    }

    fn duplicate_requests(&mut self, now: &Snapshot) {
        let duplicates = &now.duplicates;
        self.counters(
            "duplicate_request_cache_lookups_total",
            "Calls that were looked up in the duplicate request cache: hits came again, and were not \
             executed.",
            &[
                (&[("result", "hit")], duplicates.hits),
                (&[("result", "miss")], duplicates.misses),
                (&[("result", "refused")], duplicates.refused),
            ],
        );
        self.counters(
            "duplicate_request_cache_evictions_total",
            "Results that the duplicate request cache forgot.",
            &[
                (&[("reason", "age")], duplicates.expired),
                (&[("reason", "room")], duplicates.evicted),
            ],
        );
        self.gauges(
            "duplicate_request_cache_entries",
            "Calls in the duplicate request cache.",
            &[(&[], duplicates.entries as f64)],
        );
    }

    fn connections(&mut self, now: &Snapshot) {
        let counts = now.connection_counts();
        self.gauges(
            "connections",
            "Connections, by what they are doing.",
            &[
                (&[("state", "setup")], counts.setup as f64),
                (&[("state", "idle")], counts.idle as f64),
                (&[("state", "active")], counts.active as f64),
                (&[("state", "draining")], counts.draining as f64),
            ],
        );
        self.gauges(
            "connections_by_version",
            "Connections, by the version of RPC-over-RDMA that is spoken.",
            &[
                (&[("version", "1")], counts.version_one as f64),
                (&[("version", "2")], counts.version_two as f64),
            ],
        );
        let listeners = now.listeners.iter();
        let of_listeners =
            listeners.map(|on| ([("address", &*on.address)], now.connections_to(on)));
        let of_listeners: Vec<_> = of_listeners.collect();
        let of_listeners = of_listeners
            .iter()
            .map(|(label, count)| (&label[..], *count as f64));
        self.gauges(
            "connections_by_listener",
            "Connections, by the address of the server that they came to.",
            &of_listeners.collect::<Vec<_>>(),
        );
        let mut one = |name, help, value| self.counters(name, help, &[(&[], value)]);
        one(
            "connections_accepted_total",
            "Connections that were accepted.",
            counts.accepted,
        );
        one(
            "connections_refused_total",
            "Connections that were refused, or never said what they wanted; over RDMA without those of addresses that no export is for.",
            counts.refused,
        );
        one(
            "connections_evicted_total",
            "Connections that gave way to those of other addresses.",
            counts.evicted,
        );
        one(
            "connections_unanswered_total",
            "Connections closed because their clients did not answer calls of the server.",
            counts.unanswered,
        );
        one(
            "jobs_total",
            "Calls that were answered by jobs.",
            now.jobs(),
        );
        let mut one = |name, help, value: u64| self.gauges(name, help, &[(&[], value as f64)]);
        one(
            "jobs_in_flight",
            "Jobs that have brought no reply yet.",
            now.jobs_in_flight(),
        );
        one(
            "credits_granted",
            "Credits that clients are granted, of all connections.",
            now.credits_granted(),
        );
        one(
            "credits_in_use",
            "Calls in flight, each on a credit, of all connections.",
            now.credits_in_use(),
        );
        one(
            "chunk_memory_bytes",
            "Memory that is lent to calls whose data moves by RDMA.",
            now.server.chunk_memory as u64,
        );
    }

    /// By address, of which there are as many as connections at most.
    fn clients(&mut self, now: &Snapshot) {
        let mut clients: BTreeMap<IpAddr, (u64, u64)> = BTreeMap::new();
        for peer in now.peers() {
            clients.entry(peer.ip().to_canonical()).or_default().0 += 1;
        }
        for connection in &now.connections {
            let (_, in_use) = clients
                .entry(connection.peer.ip().to_canonical())
                .or_default();
            *in_use += connection.credits_in_use as u64;
        }
        let clients: Vec<_> = clients
            .into_iter()
            .map(|(address, values)| (address.to_string(), values))
            .collect();
        let labels: Vec<_> = clients.iter().map(|(a, _)| [("client", &a[..])]).collect();
        let values = || labels.iter().zip(&clients).map(|(l, (_, v))| (&l[..], v));
        let connections: Vec<_> = values().map(|(l, v)| (l, v.0 as f64)).collect();
        let in_use: Vec<_> = values().map(|(l, v)| (l, v.1 as f64)).collect();
        self.gauges(
            "client_connections",
            "Connections, by address of the client.",
            &connections,
        );
        self.gauges(
            "client_credits_in_use",
            "Calls in flight over RDMA, by address of the client.",
            &in_use,
        );
    }

    fn transport(&mut self, now: &Snapshot) {
        let (counters, io) = (&now.server.counters, &now.server.io);
        self.counters(
            "chunks_total",
            "Chunks whose data was moved by RDMA: Read chunks of calls, Write and Reply chunks of \
             replies.",
            &[
                (&[("kind", "read")], counters.read_chunks_pulled),
                (&[("kind", "write")], counters.write_chunks_filled),
                (&[("kind", "reply")], counters.reply_chunks_filled),
            ],
        );
        let rdma_out = counters.write_bytes_posted + counters.reply_bytes_posted;
        self.counters(
            "rdma_bytes_total",
            "Bytes in chunks, moved by RDMA.",
            &both_ways(counters.read_bytes_pulled, rdma_out),
        );
        self.counters(
            "inline_bytes_total",
            "Bytes of messages, headers and what is inline.",
            &both_ways(counters.inline_bytes_received, counters.inline_bytes_sent),
        );
        self.counters(
            "network_bytes_total",
            "Bytes on the network, with all framing above TCP.",
            &both_ways(now.bytes_in(), now.bytes_out()),
        );
        let labels: Vec<_> = io
            .work
            .iter()
            .map(|(kind, count)| ([("kind", kind)], count))
            .collect();
        let work: Vec<_> = labels.iter().map(|(l, count)| (&l[..], *count)).collect();
        self.counters(
            "work_total",
            "What RDMA devices were asked for and reported, by kind: work requests, doorbells, \
             completions, registrations.",
            &work,
        );
        self.counters(
            "copied_bytes_total",
            "Bytes of payload that the transport copied within memory.",
            &[(&[], io.bytes_copied)],
        );
        self.counters(
            "messages_total",
            "Calls received and replies sent.",
            &both_ways(
                counters.calls_received + now.tcp.calls,
                counters.replies_sent + now.tcp.replies,
            ),
        );
        self.counters(
            "registrations_total",
            "Memory registered for calls to clients.",
            &[(&[], counters.registrations)],
        );
        self.counters(
            "invalidations_total",
            "Handles of the server that were invalidated, by whom.",
            &[
                (&[("by", "local")], counters.local_invalidations),
                (&[("by", "remote")], counters.remote_invalidations),
            ],
        );
        self.counters(
            "invalidations_sent_total",
            "Handles of clients that were invalidated with replies.",
            &[(&[], counters.invalidations_sent)],
        );
        self.counters(
            "oversized_messages_total",
            "Messages of clients that were longer than was announced to them.",
            &[(&[], counters.oversized)],
        );
        self.counters(
            "memory_waits_total",
            "Calls that waited for chunk memory.",
            &[(&[], counters.memory_waits)],
        );
    }
}

/// Values of a counter that has two labels.
fn values<'a>(labelled: &'a [([(&'a str, &'a str); 2], u64)]) -> Vec<(Labels<'a>, u64)> {
    let all = labelled.iter();
    all.map(|(labels, count)| (&labels[..], *count)).collect()
}

/// Values of a counter in both directions.
fn both_ways(received: u64, sent: u64) -> [(Labels<'static>, u64); 2] {
    [
        (&[("direction", "in")], received),
        (&[("direction", "out")], sent),
    ]
}

fn counter(labels: Labels<'_>, value: f64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = labelled(labels);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: Labels<'_>, value: f64) -> Metric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = labelled(labels);
    metric.set_gauge(gauge);
    metric
}

fn labelled(labels: Labels<'_>) -> Metric {
    let pairs = labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    });
    Metric::from_label(pairs.collect())
}

/// Buckets hold what is in those before, too; the last one is made by the encoder.
fn histogram(latency: &LatencyHistogram) -> Histogram {
    let mut below = 0;
    let buckets = latency.buckets.iter().enumerate();
    let buckets = buckets.filter_map(|(index, calls)| {
        below += calls;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(LatencyHistogram::bound(index)?.as_secs_f64());
        bucket.set_cumulative_count(below);
        Some(bucket)
    });
    let buckets = buckets.collect();
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets);
    histogram.set_sample_count(latency.count());
    histogram.set_sample_sum(latency.sum.as_secs_f64());
    histogram
}
