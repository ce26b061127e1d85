//! What was measured, and how it is shown.

use super::traffic::{Outcome, Shape};
use super::{NONE, ProviderName};
use crate::bench::plot::{Axis, Figure, Line, Panel, Scale, Series, Unit};
use rpcrdma_proto::Design;
use serde::Serialize;
use std::io::Write;
use std::time::Duration;
use verbs_sim::Costs;

/// All that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    model: Model,
    rows: Vec<Row>,
}

/// What the simulated RNICs and their hosts were taken to cost, in nanoseconds.
#[derive(Debug, Serialize)]
struct Model {
    post_ns: u64,
    completion_ns: u64,
    interrupt_ns: u64,
    register_ns: u64,
    invalidate_ns: u64,
    message_ns: u64,
    wire_ns: u64,
    line_octets_per_second: u64,
    copied_octets_per_second: u64,
    service_ns: u64,
}

/// Where a client has the arguments of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Memory {
    /// In memory that is registered for the call.
    Dynamic,
    /// In memory that stays registered.
    Persistent,
}

/// One measurement; counts are per call, both ends together.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    provider: &'static str,
    design: &'static str,
    memory: Memory,
    traffic: &'static str,
    /// Handles of a call with data.
    stags: usize,
    /// Octets of data of such a call and its reply.
    payload: usize,
    /// How many calls there were.
    calls: u64,
    /// Posted by both ends, registrations included.
    work_requests: f64,
    /// Of these, those of the client.
    client_work_requests: f64,
    /// Completions that a host has to wait for.
    completions: f64,
    client_completions: f64,
    /// Octets of transport headers.
    header_octets: f64,
    /// Median time of a call with data.
    latency_us: f64,
    /// Of the handles that calls exposed and that may go, the part that the client had to invalidate.
    local_share: f64,
    /// Handles that went with the reply to another call, per call.
    inter_call: f64,
}

impl Memory {
    pub(super) const ALL: [Self; 2] = [Self::Dynamic, Self::Persistent];

    /// Whether a client can have such memory under a design: it has to be the one who selects, or
    /// nothing is invalidated remotely. A call with one handle has no arguments in chunks.
    pub(super) fn fits(self, design: Option<Design>, stags: usize) -> bool {
        match self {
            Self::Dynamic => true,
            Self::Persistent => stags > 1 && design.is_none_or(Design::tolerates_persistent),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Persistent => "persistent",
        }
    }
}

impl Row {
    pub(super) fn new(
        provider: ProviderName,
        design: &'static str,
        memory: Memory,
        shape: Shape,
        outcome: &Outcome,
    ) -> Self {
        let calls = outcome.calls as f64;
        let [client, server] = &outcome.counts;
        let work = |counts: &super::counted::Counts| counts.posted + counts.registrations;
        let exposed = outcome.client.remote_invalidations + outcome.client.local_invalidations;
        let mut latencies = outcome.latencies.clone();
        latencies.sort_unstable();
        let median = latencies.get(latencies.len() / 2).copied();
        Self {
            provider: match provider {
                ProviderName::Sim => "sim",
                ProviderName::Iwarp => "iwarp",
            },
            design,
            memory,
            traffic: if shape.small_between {
                "mixed"
            } else {
                "alone"
            },
            stags: shape.stags,
            payload: shape.payload,
            calls: outcome.calls,
            work_requests: (work(client) + work(server)) as f64 / calls,
            client_work_requests: work(client) as f64 / calls,
            completions: (client.completions + server.completions) as f64 / calls,
            client_completions: client.completions as f64 / calls,
            header_octets: (client.header_octets + server.header_octets) as f64 / calls,
            latency_us: median.unwrap_or_default().as_secs_f64() * 1e6,
            local_share: outcome.client.local_invalidations as f64 / exposed.max(1) as f64,
            inter_call: outcome.client.remote_invalidations_inter_call as f64 / calls,
        }
    }

    /// Whether it is the same measurement but for the design.
    fn is_beside(&self, other: &Self) -> bool {
        (
            self.provider,
            self.memory,
            self.traffic,
            self.stags,
            self.payload,
        ) == (
            other.provider,
            other.memory,
            other.traffic,
            other.stags,
            other.payload,
        )
    }
}

impl Report {
    pub(super) fn new(costs: Costs, service: Duration, rows: Vec<Row>) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            model: Model {
                post_ns: ns(costs.post),
                completion_ns: ns(costs.completion),
                interrupt_ns: ns(costs.interrupt),
                register_ns: ns(costs.register),
                invalidate_ns: ns(costs.invalidate),
                message_ns: ns(costs.message),
                wire_ns: ns(costs.wire),
                line_octets_per_second: costs.line_rate,
                copied_octets_per_second: costs.copy_rate,
                service_ns: ns(service),
            },
            rows,
        }
    }

    /// The latency of the same without remote invalidation.
    fn without(&self, row: &Row) -> Option<f64> {
        let without = |other: &&Row| other.design == NONE && row.is_beside(other);
        Some(self.rows.iter().find(without)?.latency_us)
    }

    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{:<8} {:<7} {:<10} {:>5} {:>8} {:<17} {:>6} {:>6} {:>7} {:>11} {:>7} {:>6}",
            "provider",
            "traffic",
            "memory",
            "stags",
            "octets",
            "design",
            "posts",
            "compl.",
            "header",
            "latency us",
            "of none",
            "local"
        )?;
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
                *provider == "iwarp",
                *traffic,
                row.memory.name(),
                *stags,
                *payload,
            )
        });
        for row in rows {
            let share = match self.without(row) {
                Some(without) => format!("{:.3}", row.latency_us / without),
                None => "-".to_owned(),
            };
            writeln!(
                out,
                "{:<8} {:<7} {:<10} {:>5} {:>8} {:<17} {:>6.2} {:>6.2} {:>7.1} {:>11.2} {:>7} {:>5.0}%",
                row.provider,
                row.traffic,
                row.memory.name(),
                row.stags,
                row.payload,
                row.design,
                row.work_requests,
                row.completions,
                row.header_octets,
                row.latency_us,
                share,
                row.local_share * 100.0
            )?;
        }
        Ok(())
    }

    /// The latency under each design beside that without any, in the model.
    pub(super) fn plot(&self) -> Figure {
        let mut panels = Vec::new();
        for traffic in ["alone", "mixed"] {
            for stags in super::STAGS {
                let of_panel = |row: &&Row| {
                    row.provider == "sim" && row.traffic == traffic && row.stags == stags
                };
                let rows: Vec<&Row> = self.rows.iter().filter(of_panel).collect();
                if rows.is_empty() {
                    continue;
                }
                panels.push(Panel {
                    title: match (traffic, stags) {
                        ("alone", 1) => "One call at a time, 1 STag each".to_owned(),
                        ("alone", _) => format!("One call at a time, {stags} STags each"),
                        (_, 1) => "Eight at a time, half without data, 1 STag each".to_owned(),
                        (_, _) => {
                            format!("Eight at a time, half without data, {stags} STags each")
                        }
                    },
                    x: Axis {
                        label: "octets of data in a call",
                        scale: Scale::Log(2),
                        unit: Unit::Octets,
                    },
                    y: Axis {
                        label: "time of a call, of that without",
                        scale: Scale::Linear,
                        unit: Unit::Number,
                    },
                    series: self.lines(&rows),
                });
            }
        }
        Figure {
            title: "Remote invalidation: how long a call takes under each design".into(),
            subtitle: "Simulated RNICs, each design beside none at all; less is better".into(),
            columns: super::STAGS.len(),
            panels,
        }
    }

    fn lines(&self, rows: &[&Row]) -> Vec<Series> {
        let mut series: Vec<Series> = Vec::new();
        for row in rows.iter().filter(|row| row.design != NONE) {
            let label = match row.memory {
                Memory::Dynamic => row.design.to_owned(),
                Memory::Persistent => format!("{}, persistent", row.design),
            };
            let Some(without) = self.without(row) else {
                continue;
            };
            let point = (row.payload as f64, row.latency_us / without);
            match series.iter_mut().find(|series| series.label == label) {
                Some(series) => series.points.push(point),
                None => series.push(Series {
                    label,
                    line: match row.memory {
                        Memory::Dynamic => Line::Solid,
                        Memory::Persistent => Line::Dashed,
                    },
                    points: vec![point],
                }),
            }
        }
        series
    }
}
