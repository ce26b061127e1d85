//! The cases that are measured under each design.

use super::shape::Shape;
use clap::ValueEnum;
use rpcrdma_proto::Design;
use serde::Serialize;
use std::time::Duration;
use verbs_sim::Costs;

/// Calls in flight at a time in mixed traffic.
pub(super) const DEPTH: usize = 8;

/// Chunks per call, each of which has a handle unless all are in one region.
pub(super) const STAGS: [usize; 3] = [1, 2, 4];

/// Bytes of data where costs are varied; where the cost of a page is, there have to be pages.
const VARIED: usize = 8 << 10;
const VARIED_PAGES: usize = 128 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ProviderName {
    /// Model of an RNIC, in virtual time
    #[default]
    Sim,
    /// Software iWARP over TCP on loopback, both ends on one thread
    Iwarp,
    /// An RDMA device of this machine, both ends at its address, on one thread
    Verbs,
}

impl ProviderName {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sim => "sim",
            Self::Iwarp => "iwarp",
            Self::Verbs => "verbs",
        }
    }
}

/// Calls that are in flight together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TrafficKind {
    /// One call at a time
    Alone,
    /// Eight calls at a time, every second one without data
    Mixed,
}

impl TrafficKind {
    pub(super) const ALL: [Self; 2] = [Self::Alone, Self::Mixed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Mixed => "mixed",
        }
    }
}

/// Registration of the memory of a client's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(super) enum Memory {
    /// Each chunk under a handle of its own, for the call
    Dynamic,
    /// Arguments in memory that stays registered
    Persistent,
    /// All chunks of a call under one handle
    OneRegion,
}

impl Memory {
    pub(super) const ALL: [Self; 3] = [Self::Dynamic, Self::Persistent, Self::OneRegion];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Persistent => "persistent",
            Self::OneRegion => "one_region",
        }
    }
}

/// The same calls, memory and costs under every design.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) provider: ProviderName,
    pub(super) memory: Memory,
    pub(super) shape: Shape,
    pub(super) costs: Costs,
    /// The cost that is not what it is elsewhere.
    pub(super) varied: Option<Varied>,
}

/// A cost with another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Varied {
    pub(super) cost: Cost,
    /// Nanoseconds, or how many invalidations are signalled: 0 for the last, 1 for each.
    pub(super) value: u64,
}

/// The costs that are varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Cost {
    Interrupt,
    LocalInvalidate,
    RegisterPage,
    Signal,
}

impl Case {
    /// Calls alone and mixed with small ones, with each number of handles, memory and payload.
    pub(super) fn all(
        provider: ProviderName,
        payloads: &[u32],
        service: Duration,
        costs: Costs,
    ) -> Vec<Self> {
        let case = |memory, payload: u32, stags, mixed| Self {
            provider,
            memory,
            shape: shape(payload as usize, stags, mixed, service),
            costs,
            varied: None,
        };
        let traffic = [false, true].into_iter();
        let with_memory = traffic.flat_map(|mixed| Memory::ALL.map(|memory| (mixed, memory)));
        let with_stags =
            with_memory.flat_map(|(mixed, memory)| STAGS.map(|stags| (mixed, memory, stags)));
        with_stags
            .flat_map(|(mixed, memory, stags)| {
                let payloads = payloads.iter();
                payloads.map(move |&payload| case(memory, payload, stags, mixed))
            })
            .collect()
    }

    /// Costs of the model with other values, one at a time.
    pub(super) fn varied(service: Duration, costs: Costs) -> Vec<Self> {
        let mut cases = Vec::new();
        for varied in Varied::all() {
            for (mixed, stags) in [false, true]
                .into_iter()
                .flat_map(|mixed| STAGS.map(|stags| (mixed, stags)))
            {
                let payload = match varied.cost {
                    Cost::RegisterPage => VARIED_PAGES,
                    Cost::Interrupt | Cost::LocalInvalidate | Cost::Signal => VARIED,
                };
                cases.push(Self {
                    provider: ProviderName::Sim,
                    memory: Memory::Dynamic,
                    shape: shape(payload, stags, mixed, service),
                    costs: varied.of(costs),
                    varied: Some(varied),
                });
            }
        }
        cases
    }

    /// Whether it is measured under this design.
    ///
    /// With persistent memory a client has to be the one who selects, or nothing is invalidated
    /// remotely; a call with one handle has no arguments in chunks. One region takes several chunks,
    /// and a provider that can have it. Where costs are varied, one design stands for all of which the
    /// responder takes one handle.
    pub(super) fn takes(&self, design: Option<Design>) -> bool {
        let stands_for_others = || {
            let one = [Design::PerConnection, Design::InterCall, Design::PerCallAll];
            design.is_none_or(|design| one.contains(&design))
        };
        let fits = match self.memory {
            Memory::Dynamic => true,
            Memory::Persistent => {
                self.shape.stags > 1 && design.is_none_or(Design::tolerates_persistent)
            }
            Memory::OneRegion => self.shape.stags > 1 && self.provider != ProviderName::Verbs,
        };
        let several = design.is_some_and(Design::needs_several);
        let able = !several || self.provider != ProviderName::Verbs;
        fits && able && (self.varied.is_none() || stands_for_others())
    }
}

fn shape(payload: usize, stags: usize, mixed: bool, service: Duration) -> Shape {
    Shape {
        payload,
        stags,
        depth: if mixed { DEPTH } else { 1 },
        small_between: mixed,
        service,
    }
}

impl Varied {
    fn all() -> impl Iterator<Item = Self> {
        let values = [
            (Cost::Interrupt, &[0, 1000, 2000, 4000, 10_000, 20_000][..]),
            (Cost::LocalInvalidate, &[500, 1000, 1500, 2000]),
            (Cost::RegisterPage, &[0, 20, 50, 100]),
            (Cost::Signal, &[1, 0]),
        ];
        values.into_iter().flat_map(|(cost, values)| {
            let values = values.iter();
            values.map(move |&value| Self { cost, value })
        })
    }

    fn of(self, costs: Costs) -> Costs {
        let time = Duration::from_nanos(self.value);
        match self.cost {
            Cost::Interrupt => Costs {
                interrupt: time,
                ..costs
            },
            Cost::LocalInvalidate => Costs {
                invalidate_locally: time,
                ..costs
            },
            Cost::RegisterPage => Costs {
                register_page: time,
                ..costs
            },
            Cost::Signal => Costs {
                signal_last: self.value == 0,
                ..costs
            },
        }
    }

    /// The value as it is told.
    pub(super) fn said(self) -> String {
        match (self.cost, self.value) {
            (Cost::Signal, 0) => "last".to_owned(),
            (Cost::Signal, _) => "each".to_owned(),
            (Cost::RegisterPage, ns) => format!("{ns} ns"),
            (Cost::Interrupt | Cost::LocalInvalidate, ns) => format!("{} µs", ns as f64 / 1000.0),
        }
    }
}

impl Cost {
    pub(super) const ALL: [Self; 4] = [
        Self::Interrupt,
        Self::LocalInvalidate,
        Self::RegisterPage,
        Self::Signal,
    ];

    /// Describes it, with the bytes of data of a call for which it is varied.
    pub(super) fn said(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt and wake-up (8 KiB)",
            Self::LocalInvalidate => "LOCAL_INV (8 KiB)",
            Self::RegisterPage => "registration of a page (128 KiB)",
            Self::Signal => "signalled local invalidations (8 KiB)",
        }
    }
}
