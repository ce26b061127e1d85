//! Results of the measurements, and their presentation.

use super::InvalidationArgs;
use super::cases::{Case, Memory, ProviderName, Varied};
use super::counted::Counts;
use super::traffic::Outcome;
use crate::bench::median::median;
use crate::bench::work::Work;
use crate::control;
use crate::table::Columns;
use rpcrdma::IoCounters;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;
use verbs_sim::Costs;

/// All that was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    model: Model,
    /// What was measured, one entry for each case.
    rows: Vec<Row>,
}

/// What the simulated RNICs and their hosts were taken to cost, in nanoseconds.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Model {
    /// Host time to post a work request.
    post_ns: u64,
    /// Host time to take a completion.
    completion_ns: u64,
    /// From a completion to a host that was asleep.
    interrupt_ns: u64,
    /// Host time to register memory.
    register_ns: u64,
    /// The same for each page of 4 KiB.
    register_page_ns: u64,
    /// RNIC time to invalidate a handle with a Send of the peer.
    invalidate_ns: u64,
    /// RNIC time to invalidate a handle for its host.
    invalidate_locally_ns: u64,
    /// Whether the host is told of the last of several local invalidations only.
    signal_last: bool,
    /// RNIC time for a message.
    message_ns: u64,
    /// From one RNIC to the other.
    wire_ns: u64,
    /// Rate of the wire.
    line_bytes_per_second: u64,
    /// Rate at which a host copies.
    copied_bytes_per_second: u64,
    /// How long the server works on a call.
    service_ns: u64,
    /// How much each time varies.
    jitter_percent: u8,
    /// Runs of each case.
    runs: u16,
    /// Seed of the first run.
    first_seed: u64,
}

/// One measurement; counts are per call, both ends together.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Row {
    /// The provider.
    pub(super) provider: &'static str,
    /// The design for remote invalidation.
    pub(super) design: &'static str,
    pub(super) memory: Memory,
    /// The kind of calls.
    pub(super) traffic: &'static str,
    /// Handles of a call with data.
    pub(super) stags: usize,
    /// Bytes of data of such a call and its reply.
    pub(super) payload: usize,
    /// The cost that is not that of the model.
    pub(super) varied: Option<Varied>,
    /// How many calls there were in all runs.
    calls: u64,
    /// Posted by both ends, registrations included.
    pub(super) work_requests: f64,
    /// Of these, those of the client.
    client_work_requests: f64,
    /// Completions that a host has to wait for.
    pub(super) completions: f64,
    /// Completions of the client per call.
    client_completions: f64,
    /// Bytes of transport headers.
    pub(super) header_bytes: f64,
    /// Time of a call with data: of the medians of all runs.
    pub(super) latency_us: Spread,
    /// The same as a part of that with the same seed without a design.
    pub(super) of_none: Option<Spread>,
    /// Of the handles that calls exposed and that may go, the part that the client had to invalidate.
    pub(super) local_share: f64,
    /// Handles that went with the reply to another call, per call.
    inter_call: f64,
    /// Work of the client's RDMA device per call, if one was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_work: Option<Work>,
    /// Work of the server's RDMA device per call, if one was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server_work: Option<Work>,
}

/// Several values: the one in the middle, the lowest and the highest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Spread {
    /// The median.
    pub(super) median: f64,
    /// The lowest.
    pub(super) low: f64,
    /// The highest.
    pub(super) high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (values.first(), values.last());
        let (low, high) = low
            .copied()
            .zip(high.copied())
            .unwrap_or((f64::NAN, f64::NAN));
        Self {
            median: median(values),
            low,
            high,
        }
    }
}

impl Row {
    pub(super) fn new(
        design: &'static str,
        case: &Case,
        runs: &[Outcome],
        without: Option<&[Outcome]>,
    ) -> Self {
        let mut calls = 0;
        let mut io = [IoCounters::default(); 2];
        let [mut client, mut server] = [Counts::default(); 2];
        let (mut remote, mut local, mut inter_call) = (0, 0, 0);
        for run in runs {
            calls += run.calls;
            client += run.counts[0];
            server += run.counts[1];
            io[0] += run.io[0];
            io[1] += run.io[1];
            remote += run.client.remote_invalidations;
            local += run.client.local_invalidations;
            inter_call += run.client.remote_invalidations_inter_call;
        }
        let each = |count: u64| count as f64 / calls as f64;
        let work = |counts: &Counts| counts.posted + counts.registrations;
        let is_device = case.provider == ProviderName::Verbs;
        let [client_work, server_work] = io.map(|io| {
            let work = Work::new(&control::work(&io), calls);
            work.filter(|_| is_device)
        });
        let of_none = without.map(|without| {
            let pairs = runs.iter().zip(without);
            Spread::of(pairs.map(|(run, without)| latency(run) / latency(without)))
        });
        Self {
            provider: case.provider.name(),
            design,
            memory: case.memory,
            traffic: if case.shape.small_between {
                "mixed"
            } else {
                "alone"
            },
            stags: case.shape.stags,
            payload: case.shape.payload,
            varied: case.varied,
            calls,
            work_requests: each(work(&client) + work(&server)),
            client_work_requests: each(work(&client)),
            completions: each(client.completions + server.completions),
            client_completions: each(client.completions),
            header_bytes: each(client.header_bytes + server.header_bytes),
            latency_us: Spread::of(runs.iter().map(latency)),
            of_none,
            local_share: local as f64 / (remote + local).max(1) as f64,
            inter_call: each(inter_call),
            client_work,
            server_work,
        }
    }
}

/// Microseconds of the median call with data of a run.
fn latency(run: &Outcome) -> f64 {
    median(
        run.latencies
            .iter()
            .map(|time| time.as_secs_f64() * 1e6)
            .collect(),
    )
}

impl Report {
    pub(super) fn new(costs: Costs, args: &InvalidationArgs, rows: Vec<Row>) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            model: Model {
                post_ns: ns(costs.post),
                completion_ns: ns(costs.completion),
                interrupt_ns: ns(costs.interrupt),
                register_ns: ns(costs.register),
                register_page_ns: ns(costs.register_page),
                invalidate_ns: ns(costs.invalidate),
                invalidate_locally_ns: ns(costs.invalidate_locally),
                signal_last: costs.signal_last,
                message_ns: ns(costs.message),
                wire_ns: ns(costs.wire),
                line_bytes_per_second: costs.line_rate,
                copied_bytes_per_second: costs.copy_rate,
                service_ns: ns(args.service),
                jitter_percent: costs.jitter,
                runs: args.runs,
                first_seed: args.seed,
            },
            rows,
        }
    }

    /// The rows that a table or a plot is of.
    pub(super) fn rows(&self, of: impl Fn(&Row) -> bool) -> Vec<&Row> {
        self.rows.iter().filter(|row| of(row)).collect()
    }

    /// The table for people.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut table = Columns::new(&[0, 1, 2, 5, 13]);
        table.add([
            "provider",
            "traffic",
            "memory",
            "stags",
            "bytes",
            "design",
            "posts",
            "compl.",
            "header",
            "latency us",
            "of none",
            "lowest-highest",
            "local",
            "varied",
        ]);
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        // What is to be compared stands together.
        rows.sort_by_key(|row| {
            let Row {
                provider,
                traffic,
                stags,
                payload,
                ..
            } = row;
            (
                *provider != "sim",
                *traffic,
                row.memory.name(),
                *stags,
                *payload,
                row.varied.map(|varied| (varied.cost, varied.value)),
            )
        });
        for row in rows {
            let (share, range) = match row.of_none {
                Some(of_none) => (
                    format!("{:.3}", of_none.median),
                    format!("{:.3}-{:.3}", of_none.low, of_none.high),
                ),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let varied = row.varied.map_or_else(String::new, |varied| {
                format!("{} {}", varied.cost.said(), varied.said())
            });
            table.add([
                row.provider.to_owned(),
                row.traffic.to_owned(),
                row.memory.name().to_owned(),
                row.stags.to_string(),
                row.payload.to_string(),
                row.design.to_owned(),
                format!("{:.2}", row.work_requests),
                format!("{:.2}", row.completions),
                format!("{:.1}", row.header_bytes),
                format!("{:.2}", row.latency_us.median),
                share,
                range,
                format!("{:.0}%", row.local_share * 100.0),
                varied,
            ]);
        }
        write!(out, "{table}")?;
        self.print_devices(out)
    }
}
