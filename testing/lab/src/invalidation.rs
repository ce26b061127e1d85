//! `lab invalidation`: the designs for remote invalidation side by side
//! (draft-cel-nfsv4-reminv-design-03 §4).
//!
//! Two ends of version two run the same calls under each design: in virtual time, with what work costs
//! an RNIC and its host, over the software provider, and over an RDMA device. It is the code of every other command that is
//! measured, below what makes and ends connections.

mod cases;
mod drawing;
mod measured;
mod report;
mod shape;
mod tables;

use crate::model::{
    self, Bed, Loopback, ModelArgs, OF_THE_MODEL, Order, Outcome, Over, Simulated, Traffic,
};
use crate::usage::Usage;
use anyhow::{Context, Result, bail};
use cases::{Case, DEPTH, Memory, ProviderName, TrafficKind};
use clap::Args;
use printing::print;
use printing::units::size_within;
pub(super) use report::Report;
use report::{Row, Runs};
use rpcrdma_proto::{
    Characteristics, Config, Design, InlineThreshold, PersistentArguments, PrivateData,
    Registration, Registrations, Role,
};
use shape::Shape;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Compare remote invalidation designs, and none, on a model of an RNIC or on an RDMA device
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lab invalidation
  lab invalidation --interrupt 20us
  lab invalidation --sensitivity --svg plot.svg
  lab invalidation --provider iwarp
  lab invalidation --device rxe0 --payload 8k
  lab invalidation --json > invalidation.json

Calls carry data in chunks, each with a handle (STag): one for results, or as many for arguments \
as for results. `mixed` traffic has eight calls in flight, every second one without data; \
`alone` has one call in flight. `persistent` is a client whose arguments are in memory that \
stays registered, which only some designs allow. `one_region` is a client that registers all \
chunks of a call under one handle; then `stags` counts chunks.

The simulated RNIC is a model, and its times are assumptions. Posting work, taking completions \
and registering memory cost host time; a sleeping host is woken by an interrupt; an RNIC sends \
one message after the other. Set your own times in ns, us or ms. Each time varies by --jitter, \
and each design has the same --runs seeds. Results are the median over the runs, and the lowest \
and highest. In `mixed` traffic these two are also over the same seeds with another order of the \
calls that arrive at the same time, which nothing in the protocol decides.

Columns, per call and of both ends together where they are counts: `posts` work requests, \
registrations included; `compl.` completions that a host waits for; `wakes` those of them that \
found the host asleep; `header` bytes of transport headers; `latency us` the time of a call with data; `of none` that time as a part of the time \
without a design, with the `lowest-highest` of the runs; `local` the share of handles that the \
client had to invalidate itself; `varied` the cost that --sensitivity changed.

Options of the model are refused with other providers. With `--provider iwarp` only the counts are meaningful; the times are those of a loop on this \
machine. With `--device` or `--provider verbs` both ends use an RDMA device of this machine; the \
work that the device did is counted too, and times say as much as a loopback on that device does.")]
pub(crate) struct InvalidationArgs {
    /// Provider to measure on [default: sim, or verbs with --device]
    #[arg(long, value_enum)]
    provider: Option<ProviderName>,

    /// RDMA device to measure, as `rpcrdma devices` names it [default: the first that can be used]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Measure only this design; repeatable
    #[arg(long, value_name = "NAME")]
    design: Vec<String>,

    /// Data of a call and its reply, at least 16 bytes; repeatable
    #[arg(long, value_name = "SIZE",
        value_parser = size_within::<u32>(16..=MAX_PAYLOAD as u64))]
    payload: Vec<u32>,

    /// Number of calls of each run [default: as many as move 8 MiB, but 16 to 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    calls: Option<u32>,

    /// Measure only this traffic; repeatable
    #[arg(long, value_enum, value_name = "KIND")]
    traffic: Vec<TrafficKind>,

    /// Measure only this way to register memory; repeatable
    #[arg(long, value_enum, value_name = "KIND")]
    memory: Vec<Memory>,

    /// Measure only calls with so many chunks: 1, 2 or 4; repeatable
    #[arg(long, value_name = "N", value_parser = chunks)]
    chunks: Vec<usize>,

    #[command(flatten)]
    model: ModelArgs,

    /// Random variation of each time
    #[arg(long, default_value_t = 20, value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    jitter: u8,

    /// Number of runs, each with another seed
    #[arg(long, default_value_t = 15, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,

    /// Seed of the first run
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    seed: u64,

    /// Also vary the costs of the model one at a time
    #[arg(long)]
    sensitivity: bool,

    /// Draw a plot into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Print the tables of a page in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Options that stand on the command line.
    #[arg(skip)]
    pub(crate) given: BTreeSet<String>,
}

/// Options of this command that only the model has, beside those of the model itself.
const SIMULATED: [&str; 3] = ["jitter", "seed", "sensitivity"];

/// Parses a number of chunks of a call.
fn chunks(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    number
        .filter(|number| cases::STAGS.contains(number))
        .ok_or_else(|| "it is not 1, 2 or 4".to_owned())
}

/// The largest payload: a chunk is no larger than this.
const MAX_PAYLOAD: usize = 4 << 20;

/// Bytes of data of a call.
const PAYLOADS: [u32; 7] = [
    512,
    2 << 10,
    8 << 10,
    32 << 10,
    128 << 10,
    512 << 10,
    4 << 20,
];

/// Bytes that one measurement moves, about: more for small calls would only take longer.
const MOVED: usize = 8 << 20;

/// Calls of one run.
const CALLS: std::ops::RangeInclusive<usize> = 16..=128;

/// Name of the rows without a design.
const NONE: &str = "none";

pub(crate) async fn run(args: &InvalidationArgs) -> Result<()> {
    let designs = designs(&args.design)?;
    let payloads = match args.payload.as_slice() {
        [] => &PAYLOADS[..],
        some => some,
    };
    let provider = args.provider()?;
    let over = match provider {
        ProviderName::Sim => None,
        ProviderName::Iwarp => Some(Over::software()),
        ProviderName::Verbs => Some(Over::device(args.device.as_deref())?),
    };
    let costs = args.model.costs(args.jitter);
    let mut cases = Case::all(provider, payloads, args.model.service, costs);
    if args.sensitivity {
        cases.extend(Case::varied(args.model.service, costs));
    }
    cases.retain(|case| args.asks_for(case));
    let mut rows = Vec::new();
    for case in cases {
        let fit = designs.iter().filter(|&&design| case.takes(design));
        let fit: Vec<Option<Design>> = fit.copied().collect();
        let runs = side_by_side(args, over.as_ref(), &fit, &case).await?;
        let without = fit.iter().position(Option::is_none);
        let without = without.map(|index| &runs[index]);
        for (&design, runs) in fit.iter().zip(&runs) {
            rows.push(Row::new(name(design), &case, runs, without));
        }
    }
    let report = Report::new(costs, args, rows);
    if let Some(path) = &args.svg {
        std::fs::write(path, report.plot().to_svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let table = match args.markdown {
        true => Report::markdown,
        false => Report::print,
    };
    print(args.json, &report, table)?;
    Ok(())
}

fn name(design: Option<Design>) -> &'static str {
    design.map_or(NONE, Design::name)
}

/// Those asked for, or none and all of them.
fn designs(asked: &[String]) -> Result<Vec<Option<Design>>> {
    let all = [None].into_iter().chain(Design::ALL.map(Some));
    let all: Vec<Option<Design>> = all.collect();
    if let Some(unknown) = asked
        .iter()
        .find(|asked| all.iter().all(|&design| name(design) != **asked))
    {
        let names: Vec<&str> = all.into_iter().map(name).collect();
        return Err(Usage(format!(
            "there is no design {unknown}; there are {}",
            names.join(", ")
        ))
        .into());
    }
    let wanted = |design: &Option<Design>| {
        asked.is_empty() || asked.iter().any(|asked| asked == name(*design))
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// All runs of each design. Each has its turn with every seed, as the speed of a real machine drifts.
///
/// Where several calls arrive at the same time, the model runs them in both orders.
async fn side_by_side(
    args: &InvalidationArgs,
    over: Option<&Over>,
    designs: &[Option<Design>],
    case: &Case,
) -> Result<Vec<Runs>> {
    let mut runs: Vec<Runs> = designs.iter().map(|_| Runs::default()).collect();
    for seed in (args.seed..).take(args.runs.into()) {
        for (&design, runs) in designs.iter().zip(&mut runs) {
            let payload = case.shape.payload;
            let said = || format!("{}, {payload} bytes", name(design));
            let outcome = measure(args, over, design, case, (seed, Order::Arrival)).await;
            runs.usual.push(outcome.with_context(said)?);
            if over.is_none() && case.shape.depth > 1 {
                let outcome = measure(args, over, design, case, (seed, Order::MemoryLast)).await;
                runs.reordered.push(outcome.with_context(said)?);
            }
        }
    }
    Ok(runs)
}

async fn measure(
    args: &InvalidationArgs,
    over: Option<&Over>,
    design: Option<Design>,
    case: &Case,
    (seed, order): (u64, Order),
) -> Result<Outcome> {
    let (memory, shape) = (case.memory, case.shape);
    let client = config(Role::Client, design, memory, shape);
    let server = config(Role::Server, design, memory, shape);
    let few = (MOVED / shape.payload).clamp(*CALLS.start(), *CALLS.end()) as u64;
    let calls = args.calls.map_or(few, u64::from);
    let configs = [&client, &server];
    match over {
        None => {
            let ends = Simulated::connect(case.costs, seed, &client, &server)?;
            run_on(ends, configs, design, (order, shape), calls)
        }
        Some(over) => {
            let ends = Loopback::connect(over, &client, &server).await?;
            // Nobody is simulated here, so nobody is to be waited for.
            let shape = Shape {
                service: Duration::ZERO,
                ..shape
            };
            run_on(ends, configs, design, (order, shape), calls)
        }
    }
}

fn run_on<B: Bed>(
    ends: (B, B::Qp, B::Qp),
    configs: [&Config; 2],
    design: Option<Design>,
    (order, shape): (Order, Shape),
    calls: u64,
) -> Result<Outcome> {
    Traffic::new(ends, configs, design, order, shape).measure(calls)
}

/// How one end is set up for a design.
fn config(role: Role, design: Option<Design>, memory: Memory, shape: Shape) -> Config {
    let persistent = match (role, memory) {
        (Role::Client, Memory::Persistent) => Some(PersistentArguments {
            regions: DEPTH * shape.stags,
            bytes: shape.part(),
        }),
        (Role::Client, Memory::Dynamic | Memory::OneRegion) | (Role::Server, _) => None,
    };
    let registrations = match persistent {
        Some(_) => Registrations::OF_CALLS.with(Registration::Persistent),
        None => Registrations::OF_CALLS,
    };
    let agreed_by_characteristic = design.filter(|design| match design {
        Design::PerVersion | Design::PerConnection => false,
        Design::Fixed
        | Design::PerCall
        | Design::PerCallSeveral
        | Design::InterCall
        | Design::PerCallAll => true,
    });
    let plain = model::config(role, InlineThreshold::DEFAULT, MAX_PAYLOAD);
    Config {
        own: PrivateData {
            remote_invalidation: design == Some(Design::PerConnection),
            ..plain.own
        },
        characteristics: Characteristics {
            designs: agreed_by_characteristic.into_iter().collect(),
            remote_invalidation_by_version: design == Some(Design::PerVersion),
            ..Characteristics::default()
        },
        registrations,
        persistent,
        one_region: role == Role::Client && memory == Memory::OneRegion,
        ..plain
    }
}

impl InvalidationArgs {
    /// Returns the provider to measure on.
    fn provider(&self) -> Result<ProviderName> {
        let provider = match (self.provider, &self.device) {
            (None, None) => ProviderName::default(),
            (None | Some(ProviderName::Verbs), _) => ProviderName::Verbs,
            (Some(provider), None) => provider,
            (Some(provider), Some(_)) => bail!(Usage(format!(
                "--device names an RDMA device, which --provider {} does not use: leave one of the two out",
                provider.name()
            ))),
        };
        let mut of_the_model = OF_THE_MODEL.iter().chain(&SIMULATED);
        let of_the_model = of_the_model.find(|option| self.given.contains(**option));
        match of_the_model {
            Some(option) if provider != ProviderName::Sim => bail!(Usage(format!(
                "--{} is an option of the model of an RNIC, which --provider {} does not use: leave it out",
                option.replace('_', "-"),
                provider.name()
            ))),
            Some(_) | None => Ok(provider),
        }
    }

    /// Whether the calls of a case are to be measured.
    fn asks_for(&self, case: &Case) -> bool {
        let Self {
            traffic,
            memory,
            chunks,
            ..
        } = self;
        (traffic.is_empty() || traffic.contains(&case.shape.traffic()))
            && (memory.is_empty() || memory.contains(&case.memory))
            && (chunks.is_empty() || chunks.contains(&case.shape.stags))
    }
}
