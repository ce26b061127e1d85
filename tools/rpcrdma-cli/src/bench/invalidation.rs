//! `rpcrdma bench invalidation`: the designs for remote invalidation side by side
//! (draft-cel-nfsv4-reminv-design-03 §4).
//!
//! Two ends of version two run the same calls under each design: in virtual time, with what work costs
//! an RNIC and its host, over the software provider, and over an RDMA device. It is the code of every other command that is
//! measured, below what makes and ends connections.

mod bed;
mod cases;
mod counted;
mod drawing;
mod measured;
mod report;
mod tables;
mod traffic;

use crate::bench::output::print;
use crate::failure::{Ended, Usage};
use crate::serve::Given;
use crate::units::{parse_duration, size_within};
use anyhow::{Context, Result, bail};
use bed::{Bed, Loopback, Over, Simulated};
use buffer::Pool;
use cases::{Case, DEPTH, Memory, ProviderName};
use clap::{Args, ValueEnum};
pub(super) use report::Report;
use report::Row;
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::{
    Characteristics, Config, Design, InlineThreshold, PersistentArguments, PrivateData, Receives,
    Registration, Registrations, Role, Versions, Xids,
};
use std::path::PathBuf;
use std::time::Duration;
use traffic::{Outcome, Shape, Traffic};
use verbs_sim::Costs;

/// Compare remote invalidation designs, and none, on a model of an RNIC or on an RDMA device
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma bench invalidation
  rpcrdma bench invalidation --interrupt 20us
  rpcrdma bench invalidation --sensitivity --svg plot.svg
  rpcrdma bench invalidation --provider iwarp
  rpcrdma bench invalidation --device rxe0 --payload 8k
  rpcrdma bench invalidation --json > invalidation.json

Calls carry data in chunks, each with a handle (STag): one for results, or as many for arguments \
as for results. `mixed` traffic has eight calls in flight, every second one without data; \
`alone` has one call in flight. `persistent` is a client whose arguments are in memory that \
stays registered, which only some designs allow. `one_region` is a client that registers all \
chunks of a call under one handle; then `stags` counts chunks.

The simulated RNIC is a model, and its times are assumptions. Posting work, taking completions \
and registering memory cost host time; a sleeping host is woken by an interrupt; an RNIC sends \
one message after the other. Set your own times in ns, us or ms. Each time varies by --jitter, \
and each design has the same --runs seeds. Results are the median over the runs, and the lowest \
and highest.

Columns, per call and of both ends together where they are counts: `posts` work requests, \
registrations included; `compl.` completions that a host waits for; `header` bytes of transport \
headers; `latency us` the time of a call with data; `of none` that time as a part of the time \
without a design, with the `lowest-highest` of the runs; `local` the share of handles that the \
client had to invalidate itself; `varied` the cost that --sensitivity changed.

Options of the model are refused with other providers. With `--provider iwarp` only the counts are meaningful; the times are those of a loop on this \
machine. With `--device` or `--provider verbs` both ends use an RDMA device of this machine; the \
work that the device did is counted too, and times say as much as a loopback on that device does.")]
pub(crate) struct InvalidationArgs {
    /// Where to measure [default: sim, or verbs with --device]
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

    /// Host time to post a work request
    #[arg(long, default_value = "100ns", value_name = "DURATION", value_parser = parse_duration)]
    post: Duration,

    /// Host time to take a completion from its queue
    #[arg(long, default_value = "150ns", value_name = "DURATION", value_parser = parse_duration)]
    completion: Duration,

    /// Time from a completion until a sleeping host is awake
    #[arg(long, default_value = "4us", value_name = "DURATION", value_parser = parse_duration)]
    interrupt: Duration,

    /// Host time to register memory
    #[arg(long, default_value = "800ns", value_name = "DURATION", value_parser = parse_duration)]
    register: Duration,

    /// Additional host time to register each page of 4 KiB
    #[arg(long, default_value = "20ns", value_name = "DURATION", value_parser = parse_duration)]
    register_page: Duration,

    /// RNIC time to invalidate a handle by a Send of the peer
    #[arg(long, default_value = "500ns", value_name = "DURATION", value_parser = parse_duration)]
    invalidate: Duration,

    /// RNIC time to invalidate a handle by a work request of its host
    #[arg(long, default_value = "1us", value_name = "DURATION", value_parser = parse_duration)]
    local_invalidate: Duration,

    /// Which of several local invalidations are signalled
    #[arg(long, value_enum, default_value_t)]
    signal: Signal,

    /// RNIC time for each message, whatever its length
    #[arg(long, default_value = "200ns", value_name = "DURATION", value_parser = parse_duration)]
    message: Duration,

    /// Time from one RNIC to the other
    #[arg(long, default_value = "1500ns", value_name = "DURATION", value_parser = parse_duration)]
    wire: Duration,

    /// Rate of the wire in gigabits per second
    #[arg(long, default_value_t = 100, value_name = "GBIT",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    line_rate: u32,

    /// Rate at which a host copies, in gigabytes per second
    #[arg(long, default_value_t = 10, value_name = "GB",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    copy_rate: u32,

    /// Time that the server works on a call
    #[arg(long, default_value = "10us", value_name = "DURATION", value_parser = parse_duration)]
    service: Duration,

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

    /// What of this was given on the command line.
    #[arg(skip)]
    pub(super) given: Given,
}

/// Options of the model, which other providers do not have.
const OF_THE_MODEL: [&str; 16] = [
    "post",
    "completion",
    "interrupt",
    "register",
    "register_page",
    "invalidate",
    "local_invalidate",
    "signal",
    "message",
    "wire",
    "line_rate",
    "copy_rate",
    "service",
    "jitter",
    "seed",
    "sensitivity",
];

/// Which local invalidations have a completion that the host waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Signal {
    /// All of them
    #[default]
    Each,
    /// The last of those that the RNIC has at one time
    Last,
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

/// Credits of a connection.
const CREDITS: u32 = 16;

/// Bytes that one measurement moves, about: more for small calls would only take longer.
const MOVED: usize = 8 << 20;

/// Calls of one run.
const CALLS: std::ops::RangeInclusive<usize> = 16..=128;

/// Where there is no design.
const NONE: &str = "none";

pub(crate) async fn run(args: &InvalidationArgs) -> Result<Ended> {
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
    let mut cases = Case::all(provider, payloads, args.service, args.costs());
    if args.sensitivity {
        cases.extend(Case::varied(args.service, args.costs()));
    }
    let mut rows = Vec::new();
    for case in cases {
        let fit = designs.iter().filter(|&&design| case.takes(design));
        let fit: Vec<Option<Design>> = fit.copied().collect();
        let runs = side_by_side(args, over.as_ref(), &fit, &case).await?;
        let without = fit.iter().position(Option::is_none);
        let without = without.map(|index| runs[index].as_slice());
        for (&design, runs) in fit.iter().zip(&runs) {
            rows.push(Row::new(name(design), &case, runs, without));
        }
    }
    let report = Report::new(args.costs(), args, rows);
    if let Some(path) = &args.svg {
        std::fs::write(path, report.plot().to_svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let table = match args.markdown {
        true => Report::markdown,
        false => Report::print,
    };
    print(args.json, &report, table)?;
    Ok(Ended::Well)
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
async fn side_by_side(
    args: &InvalidationArgs,
    over: Option<&Over>,
    designs: &[Option<Design>],
    case: &Case,
) -> Result<Vec<Vec<Outcome>>> {
    let mut runs: Vec<Vec<Outcome>> = designs.iter().map(|_| Vec::new()).collect();
    for seed in (args.seed..).take(args.runs.into()) {
        for (&design, runs) in designs.iter().zip(&mut runs) {
            let outcome = measure(args, over, design, case, seed).await;
            let payload = case.shape.payload;
            runs.push(outcome.with_context(|| format!("{}, {payload} bytes", name(design)))?);
        }
    }
    Ok(runs)
}

async fn measure(
    args: &InvalidationArgs,
    over: Option<&Over>,
    design: Option<Design>,
    case: &Case,
    seed: u64,
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
            run_on(ends, configs, design, shape, calls)
        }
        Some(over) => {
            let ends = Loopback::connect(over, &client, &server).await?;
            // Nobody is simulated here, so nobody is to be waited for.
            let shape = Shape {
                service: Duration::ZERO,
                ..shape
            };
            run_on(ends, configs, design, shape, calls)
        }
    }
}

fn run_on<B: Bed>(
    ends: (B, B::Qp, B::Qp),
    configs: [&Config; 2],
    design: Option<Design>,
    shape: Shape,
    calls: u64,
) -> Result<Outcome> {
    Traffic::new(ends, configs, design, shape).measure(calls)
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
    Config {
        role,
        versions: Versions::Two,
        dialect: Dialect::default(),
        xids: Xids::starting_at(0x8000_0000),
        own: PrivateData {
            send: InlineThreshold::DEFAULT,
            receive: InlineThreshold::DEFAULT,
            remote_invalidation: design == Some(Design::PerConnection),
        },
        characteristics: Characteristics {
            designs: agreed_by_characteristic.into_iter().collect(),
            remote_invalidation_by_version: design == Some(Design::PerVersion),
            ..Characteristics::default()
        },
        credits: CREDITS,
        first_grant: 0,
        backward_credits: 0,
        reserve_credit: false,
        max_chunk: MAX_PAYLOAD,
        max_segment: 0,
        registrations,
        persistent,
        one_region: role == Role::Client && memory == Memory::OneRegion,
        receives: Receives::Posted,
        pool: Pool::new(2 * DEPTH * MAX_PAYLOAD),
    }
}

impl InvalidationArgs {
    /// What is measured.
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
        let of_the_model = OF_THE_MODEL.iter().find(|option| self.given.has(option));
        match of_the_model {
            Some(option) if provider != ProviderName::Sim => bail!(Usage(format!(
                "--{} is an option of the model of an RNIC, which --provider {} does not use: leave it out",
                option.replace('_', "-"),
                provider.name()
            ))),
            Some(_) | None => Ok(provider),
        }
    }

    fn costs(&self) -> Costs {
        Costs {
            post: self.post,
            completion: self.completion,
            interrupt: self.interrupt,
            register: self.register,
            register_page: self.register_page,
            invalidate: self.invalidate,
            invalidate_locally: self.local_invalidate,
            signal_last: self.signal == Signal::Last,
            message: self.message,
            wire: self.wire,
            line_rate: u64::from(self.line_rate) * 1_000_000_000 / 8,
            copy_rate: u64::from(self.copy_rate) * 1_000_000_000,
            jitter: self.jitter,
            seed: 0,
        }
    }
}
