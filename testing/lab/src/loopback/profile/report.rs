//! Shares of layers, and how they are printed and drawn.

use crate::loopback::profiler::{Layer, Tally};
use crate::plot::{Bar, BarPanel, Bars, Part};
use printing::table::Columns;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

/// Samples of an end below which nothing is said about its layers: a share of a tenth would be uncertain
/// by more than a sixth of itself.
const MIN_SAMPLES: u64 = 400;

/// CPU time in which an end has taken a sample, if it takes any: a hundred of the longest ticks.
const ENOUGH_CPU_NS: u64 = 1_000_000_000;

/// Work of one end in a number of calls.
#[derive(Clone, Debug, Default)]
pub(super) struct End {
    cpu_ns: u64,
    tally: Tally,
}

impl End {
    pub(super) fn new(cpu_ns: u64, tally: Tally) -> Self {
        Self { cpu_ns, tally }
    }

    fn samples(&self) -> u64 {
        self.tally.values().sum()
    }

    fn add(&mut self, other: Self) {
        self.cpu_ns += other.cpu_ns;
        for (layer, samples) in other.tally {
            *self.tally.entry(layer).or_default() += samples;
        }
    }

    /// The same for one call.
    fn per_call(&self, calls: u64) -> Side {
        let cpu_ns = self.cpu_ns as f64 / calls.max(1) as f64;
        let samples = self.samples();
        let share = |(&layer, &of): (&Layer, &u64)| {
            let share = of as f64 / samples as f64;
            Share {
                layer: layer.name(),
                which: layer,
                samples: of,
                ns: share * cpu_ns,
                share,
            }
        };
        let layers = (samples >= MIN_SAMPLES).then(|| self.tally.iter().map(share).collect());
        Side {
            cpu_ns,
            samples,
            layers,
        }
    }
}

/// Work of both ends, over some runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Both {
    pub(super) calls: u64,
    pub(super) elapsed: Duration,
    pub(super) client: End,
    pub(super) server: End,
}

impl Both {
    pub(super) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.elapsed += other.elapsed;
        self.client.add(other.client);
        self.server.add(other.server);
    }

    pub(super) fn is_enough(&self) -> bool {
        self.client.samples() >= MIN_SAMPLES && self.server.samples() >= MIN_SAMPLES
    }

    /// Whether an end is not interrupted, however much CPU time it uses.
    pub(super) fn is_without_samples(&self) -> bool {
        let without = |end: &End| end.samples() == 0 && end.cpu_ns > ENOUGH_CPU_NS;
        without(&self.client) || without(&self.server)
    }

    /// How many calls fill this time.
    pub(super) fn calls_in(&self, time: Duration) -> f64 {
        time.as_nanos() as f64 / self.ns_per_call()
    }

    fn ns_per_call(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.calls.max(1) as f64
    }
}

/// All that was profiled.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// Below which the layers of an end are not told.
    min_samples: u64,
    /// The measurements.
    results: Vec<Row>,
}

/// One measurement.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Row {
    /// Which measurement.
    name: &'static str,
    /// Description of a call.
    call: String,
    /// Nanoseconds from one call to the next, ours and the same bytes over plain TCP.
    ns: f64,
    /// The same of plain TCP.
    plain_tcp_ns: f64,
    client: Compared,
    server: Compared,
}

/// One end, and the same end with plain TCP.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Compared {
    ours: Side,
    plain_tcp: Side,
}

/// Work of one end for a call.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Side {
    /// Nanoseconds of CPU per call.
    cpu_ns: f64,
    /// How many samples the shares stand on.
    samples: u64,
    /// Nothing, if those are too few.
    layers: Option<Vec<Share>>,
}

/// Part of a layer in the CPU time of a call at one end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Share {
    /// The layer.
    layer: &'static str,
    #[serde(skip)]
    which: Layer,
    /// Samples in this layer.
    samples: u64,
    /// Nanoseconds of CPU per call.
    ns: f64,
    /// Part of one.
    share: f64,
}

impl Row {
    pub(super) fn new(name: &'static str, call: String, ours: &Both, plain_tcp: &Both) -> Self {
        let compared = |end: fn(&Both) -> &End| Compared {
            ours: end(ours).per_call(ours.calls),
            plain_tcp: end(plain_tcp).per_call(plain_tcp.calls),
        };
        Self {
            name,
            call,
            ns: ours.ns_per_call(),
            plain_tcp_ns: plain_tcp.ns_per_call(),
            client: compared(|both| &both.client),
            server: compared(|both| &both.server),
        }
    }

    fn sides(&self) -> [(&'static str, &Side); 4] {
        [
            ("client", &self.client.ours),
            ("client, plain TCP", &self.client.plain_tcp),
            ("server", &self.server.ours),
            ("server, plain TCP", &self.server.plain_tcp),
        ]
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{}: {}\none every {:.0} ns, over plain TCP every {:.0} ns: {:.2} times as long\n",
            self.name,
            self.call,
            self.ns,
            self.plain_tcp_ns,
            self.ns / self.plain_tcp_ns,
        )?;
        let mut table = Columns::new(&[0]);
        table.add([
            "ns of CPU a call",
            "client\nours",
            "\nplain TCP",
            "server\nours",
            "\nplain TCP",
        ]);
        let mut line = |name: &str, cells: [String; 4]| {
            table.add([name.to_owned()].into_iter().chain(cells));
        };
        let sides = self.sides().map(|(_, side)| side);
        let shares = sides.iter().flat_map(|side| side.layers.iter().flatten());
        let layers: BTreeSet<Layer> = shares.map(|share| share.which).collect();
        for layer in layers {
            line(layer.name(), sides.map(|side| side.cell(layer)));
        }
        let without_share = |number: f64| format!("{number:.0} {:>6}", "");
        line("total", sides.map(|side| without_share(side.cpu_ns)));
        line(
            "samples",
            sides.map(|side| without_share(side.samples as f64)),
        );
        writeln!(out, "{table}")
    }

    fn bars(&self) -> BarPanel {
        let bars = self.sides().map(|(label, side)| Bar {
            label,
            parts: side.parts(),
        });
        BarPanel {
            title: format!("{}: {}", self.name, self.call),
            bars: bars.into(),
        }
    }
}

impl Side {
    /// Nanoseconds and percent of one layer, as they stand in the table.
    fn cell(&self, layer: Layer) -> String {
        let Some(layers) = &self.layers else {
            return format!("? {:>6}", "");
        };
        let found = layers.iter().find(|share| share.which == layer);
        found.map_or(format!("- {:>6}", ""), |share| {
            format!("{:.0} {:>5.1}%", share.ns, 100.0 * share.share)
        })
    }

    /// Microseconds of each group of layers.
    fn parts(&self) -> Vec<Part> {
        let shares = self.layers.as_deref().unwrap_or_default();
        let of = |group: Group| {
            let shares = shares
                .iter()
                .filter(|share| Group::of(share.which) == group);
            shares.map(|share| share.ns / 1000.0).sum()
        };
        let part = |(at, group)| Part {
            series: at,
            value: of(group),
        };
        Group::ALL.into_iter().enumerate().map(part).collect()
    }
}

/// Layers that have one colour in the plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Write,
    Read,
    Data,
    Rnic,
    RpcOverRdma,
    Upper,
    Runtime,
    Waiting,
}

impl Group {
    const ALL: [Self; 8] = [
        Self::Write,
        Self::Read,
        Self::Data,
        Self::Rnic,
        Self::RpcOverRdma,
        Self::Upper,
        Self::Runtime,
        Self::Waiting,
    ];

    fn of(layer: Layer) -> Self {
        match layer {
            Layer::KernelWrite => Self::Write,
            Layer::KernelRead => Self::Read,
            Layer::Copies | Layer::Crc => Self::Data,
            Layer::IwarpProto | Layer::VerbsIwarp | Layer::Verbs | Layer::Buffer => Self::Rnic,
            Layer::RpcrdmaProto | Layer::Rpcrdma => Self::RpcOverRdma,
            Layer::Oncrpc | Layer::NfsProto | Layer::NfsClient | Layer::NfsServer => Self::Upper,
            Layer::KernelEpoll
            | Layer::KernelOther
            | Layer::Lab
            | Layer::Tokio
            | Layer::Std
            | Layer::CLibrary
            | Layer::Unknown => Self::Runtime,
            Layer::Waiting => Self::Waiting,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Write => "kernel: write",
            Self::Read => "kernel: read",
            Self::Data => "copies and CRC",
            Self::Rnic => "software RNIC (iwarp-proto, verbs-iwarp, verbs, buffer)",
            Self::RpcOverRdma => "RPC-over-RDMA (rpcrdma-proto, rpcrdma)",
            Self::Upper => "RPC and NFS (oncrpc, nfs-*)",
            Self::Runtime => "runtime and load (epoll, tokio, std, allocator, lab)",
            Self::Waiting => "waiting for the other end",
        }
    }
}

impl Report {
    pub(super) fn new(results: Vec<Row>) -> Self {
        Self {
            min_samples: MIN_SAMPLES,
            results,
        }
    }

    /// The tables for people.
    pub(crate) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        for row in &self.results {
            row.print(out)?;
        }
        writeln!(
            out,
            "Nanoseconds of CPU time of each process for one call, and percent of it, by samples at ticks of its\n\
             CPU time. A share p of n samples is uncertain by the root of p(1-p)/n: one of 10% of 4,000 by 0.5%.\n\
             `waiting` is reads of an empty socket, sched_yield and pauses; the rest of a round that finds nothing\n\
             is in the layers. `kernel: read` and `kernel: write` are system calls that moved bytes, copies\n\
             between program and socket included; a write on loopback does the work of the network for both\n\
             ends. `copies` are those of the program. `lab` makes the calls. `std` has the small\n\
             libraries in it. `-`: no sample; `?`: fewer than {} samples, so nothing is said.",
            self.min_samples
        )
    }

    pub(crate) fn plot(&self) -> Bars {
        Bars {
            title: "Where the CPU time of a call goes".into(),
            subtitle: "lab self --profile: both ends on one machine, over loopback".into(),
            series: Group::ALL.map(Group::label).into(),
            unit: "µs of CPU time per call",
            panels: self.results.iter().map(Row::bars).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(cpu_ns: u64, tally: &[(Layer, u64)]) -> End {
        End::new(cpu_ns, tally.iter().copied().collect())
    }

    #[test]
    fn layers_of_a_call_add_up_to_its_cpu_time() {
        let side = end(4_000_000, &[(Layer::Crc, 300), (Layer::Std, 100)]).per_call(1000);
        let layers = side.layers.unwrap();
        let ns: Vec<_> = layers.iter().map(|share| (share.layer, share.ns)).collect();
        assert_eq!(ns, [("CRC", 3000.0), ("std", 1000.0)]);
    }

    #[test]
    fn nothing_is_said_from_too_few_samples() {
        let samples = |n| end(1000, &[(Layer::Crc, n)]).per_call(1);
        assert!(samples(MIN_SAMPLES).layers.is_some());
        assert!(samples(MIN_SAMPLES - 1).layers.is_none());
        assert_eq!(samples(MIN_SAMPLES - 1).cell(Layer::Crc).trim(), "?");
        assert_eq!(samples(MIN_SAMPLES).cell(Layer::Std).trim(), "-");
        assert_eq!(samples(MIN_SAMPLES).cell(Layer::Crc), "1000 100.0%");
    }

    #[test]
    fn one_end_with_too_few_samples_is_not_enough() {
        let many = end(1, &[(Layer::Std, MIN_SAMPLES)]);
        let mut both = Both {
            client: many.clone(),
            ..Both::default()
        };
        assert!(!both.is_enough());
        both.add(Both {
            server: many,
            ..Both::default()
        });
        assert!(both.is_enough());
    }

    #[test]
    fn end_that_is_never_interrupted_is_seen() {
        let of = |cpu_ns, tally: &[(Layer, u64)]| Both {
            client: end(ENOUGH_CPU_NS + 1, &[(Layer::Std, 1)]),
            server: end(cpu_ns, tally),
            ..Both::default()
        };
        assert!(of(ENOUGH_CPU_NS + 1, &[]).is_without_samples());
        assert!(!of(ENOUGH_CPU_NS, &[]).is_without_samples());
        assert!(!of(ENOUGH_CPU_NS + 1, &[(Layer::Crc, 1)]).is_without_samples());
    }
}
