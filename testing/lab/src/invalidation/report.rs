//! Results of the measurements, and their presentation.

use super::InvalidationArgs;
use super::cases::{Case, Memory, ProviderName, Varied};
use crate::median::median;
use crate::model::{Assumptions, Counts, Outcome};
use printing::table::Columns;
use printing::work::Work;
use rpcrdma::IoCounters;
use serde::Serialize;
use std::io::Write;
use verbs_sim::Costs;

/// All that was measured.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    model: Model,
    /// Measurements, one entry for each case.
    rows: Vec<Row>,
}

/// Assumed costs, and the runs of each case.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Model {
    #[serde(flatten)]
    costs: Assumptions,
    /// Runs of each case.
    runs: u16,
    /// Seed of the first run.
    first_seed: u64,
}

/// Runs of one design in one case, one for each seed.
#[derive(Default)]
pub(super) struct Runs {
    /// With calls in the order in which the library serves them.
    pub(super) usual: Vec<Outcome>,
    /// With another order of calls that arrive at the same time, where there are such.
    pub(super) reordered: Vec<Outcome>,
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
    /// Of these, completions that found the host asleep and woke it; 0 where it is not known.
    pub(super) wakeups: f64,
    /// Wake-ups of the client per call.
    client_wakeups: f64,
    /// Bytes of transport headers.
    pub(super) header_bytes: f64,
    /// Time of a call with data in microseconds: over the medians of all runs. Low and high are also over runs
    /// with another order of calls that arrive at the same time.
    pub(super) latency_us: Spread,
    /// The same as a part of the time with the same seed and order without a design.
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
    /// The median is that of `usual` alone.
    fn of(usual: Vec<f64>, reordered: Vec<f64>) -> Self {
        let all = || usual.iter().chain(&reordered).copied();
        Self {
            low: all().fold(f64::NAN, f64::min),
            high: all().fold(f64::NAN, f64::max),
            median: median(usual),
        }
    }
}

impl Row {
    pub(super) fn new(
        design: &'static str,
        case: &Case,
        runs: &Runs,
        without: Option<&Runs>,
    ) -> Self {
        let mut calls = 0;
        let mut io = [IoCounters::default(); 2];
        let [mut client, mut server] = [Counts::default(); 2];
        let mut wakeups = [0, 0];
        let (mut remote, mut local, mut inter_call) = (0, 0, 0);
        for run in &runs.usual {
            calls += run.calls;
            client += run.counts[0];
            server += run.counts[1];
            io[0] += run.io[0];
            io[1] += run.io[1];
            wakeups[0] += run.wakeups[0];
            wakeups[1] += run.wakeups[1];
            remote += run.client.remote_invalidations;
            local += run.client.local_invalidations;
            inter_call += run.client.remote_invalidations_inter_call;
        }
        let each = |count: u64| count as f64 / calls as f64;
        let work = |counts: &Counts| counts.posted + counts.registrations;
        let is_device = case.provider == ProviderName::Verbs;
        let [client_work, server_work] = io.map(|io| {
            let work = Work::new(&printing::work::counts(&io), calls);
            work.filter(|_| is_device)
        });
        let latency = |run: &Outcome| latency(run, case);
        let latencies = |runs: &[Outcome]| runs.iter().map(latency).collect();
        let of_none = without.map(|without| {
            let parts = |runs: &[Outcome], without: &[Outcome]| {
                let pairs = runs.iter().zip(without);
                let parts = pairs.map(|(run, without)| latency(run) / latency(without));
                parts.collect()
            };
            Spread::of(
                parts(&runs.usual, &without.usual),
                parts(&runs.reordered, &without.reordered),
            )
        });
        Self {
            provider: case.provider.name(),
            design,
            memory: case.memory,
            traffic: case.shape.traffic().name(),
            stags: case.shape.stags,
            payload: case.shape.payload,
            varied: case.varied,
            calls,
            work_requests: each(work(&client) + work(&server)),
            client_work_requests: each(work(&client)),
            completions: each(client.completions + server.completions),
            client_completions: each(client.completions),
            wakeups: each(wakeups[0] + wakeups[1]),
            client_wakeups: each(wakeups[0]),
            header_bytes: each(client.header_bytes + server.header_bytes),
            latency_us: Spread::of(latencies(&runs.usual), latencies(&runs.reordered)),
            of_none,
            local_share: local as f64 / (remote + local).max(1) as f64,
            inter_call: each(inter_call),
            client_work,
            server_work,
        }
    }
}

/// Microseconds of the median call with data of a run.
fn latency(run: &Outcome, case: &Case) -> f64 {
    let with_data = run.latencies.iter();
    let with_data = with_data.filter(|(number, _)| case.shape.has_data(*number));
    median(
        with_data
            .map(|(_, time)| time.as_secs_f64() * 1e6)
            .collect(),
    )
}

impl Report {
    pub(super) fn new(costs: Costs, args: &InvalidationArgs, rows: Vec<Row>) -> Self {
        Self {
            model: Model {
                costs: Assumptions::new(&costs, args.model.service),
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
        let mut table = Columns::new(&[0, 1, 2, 5, 14]);
        table.add([
            "provider",
            "traffic",
            "memory",
            "stags",
            "bytes",
            "design",
            "posts",
            "compl.",
            "wakes",
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
                format!("{:.2}", row.wakeups),
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
