//! `rpcrdma bench invalidation`: the designs for remote invalidation side by side
//! (draft-cel-nfsv4-reminv-design-03 §4).
//!
//! Two ends of version two run the same calls under each design: in virtual time, with what work costs
//! an RNIC and its host, and over the software provider. It is the code of every other command that is
//! measured, below what makes and ends connections.

mod bed;
mod counted;
mod report;
mod traffic;

use crate::failure::{Ended, Usage};
use anyhow::{Context, Result};
use bed::{Bed, Simulated, Software};
use buffer::Pool;
use clap::{Args, ValueEnum};
use report::{Memory, Report, Row};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::{
    Characteristics, Config, Design, InlineThreshold, PersistentArguments, PrivateData, Receives,
    Registration, Registrations, Role, Versions, Xids,
};
use std::path::PathBuf;
use std::time::Duration;
use traffic::{Outcome, Shape, Traffic};
use verbs_sim::Costs;

/// Compare the designs for remote invalidation, and none
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma bench invalidation
  rpcrdma bench invalidation --provider sim --interrupt 20us
  rpcrdma bench invalidation --svg invalidation.svg
  rpcrdma bench invalidation --json > invalidation.json

Calls carry their data in chunks, each with a handle (STag) of its own: one for results, or as many
for arguments as for results. `mixed` traffic has eight calls under way, every second one without data;
`alone` has one. `persistent` is a client whose arguments are in memory that stays registered, which only
some designs allow.

The simulated RNIC is a model, and its times are assumptions: work is posted, taken from the queue of
completions, and registered in host time; a host that is asleep is woken by an interrupt; an RNIC sends
one message after the other. Give your own, in ns, us or ms.")]
pub(crate) struct InvalidationArgs {
    /// Measure on this only
    #[arg(long, value_enum)]
    provider: Option<ProviderName>,

    /// Measure only this design; may be given several times
    #[arg(long, value_name = "NAME")]
    design: Vec<String>,

    /// Octets of data of a call and its reply; may be given several times
    #[arg(long, value_name = "OCTETS",
        value_parser = clap::value_parser!(u32).range(16..=MAX_PAYLOAD as i64))]
    payload: Vec<u32>,

    /// Calls of each measurement [default: as many as move 32 MiB, but 16 to 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    calls: Option<u32>,

    /// Host time to post a work request
    #[arg(long, default_value = "100ns", value_name = "TIME", value_parser = time)]
    post: Duration,

    /// Host time to take a completion
    #[arg(long, default_value = "150ns", value_name = "TIME", value_parser = time)]
    completion: Duration,

    /// From a completion to a host that was asleep
    #[arg(long, default_value = "4us", value_name = "TIME", value_parser = time)]
    interrupt: Duration,

    /// Host time to register memory
    #[arg(long, default_value = "800ns", value_name = "TIME", value_parser = time)]
    register: Duration,

    /// RNIC time to invalidate a handle
    #[arg(long, default_value = "500ns", value_name = "TIME", value_parser = time)]
    invalidate: Duration,

    /// RNIC time for a message, whatever its length
    #[arg(long, default_value = "200ns", value_name = "TIME", value_parser = time)]
    message: Duration,

    /// From one RNIC to the other
    #[arg(long, default_value = "1500ns", value_name = "TIME", value_parser = time)]
    wire: Duration,

    /// Gigabits that the wire carries in a second
    #[arg(long, default_value_t = 100, value_name = "GBIT",
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    line_rate: u32,

    /// Gigaoctets that a host copies in a second
    #[arg(long, default_value_t = 10, value_name = "GB",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    copy_rate: u32,

    /// How long the server works on a call
    #[arg(long, default_value = "10us", value_name = "TIME", value_parser = time)]
    service: Duration,

    /// Draw a plot into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProviderName {
    /// The model of an RNIC, in virtual time
    Sim,
    /// Software iWARP over TCP on loopback, both ends on one thread
    Iwarp,
}

/// The largest payload: a chunk is no larger than this.
const MAX_PAYLOAD: usize = 4 << 20;

/// Octets of data of a call.
const PAYLOADS: [u32; 8] = [
    512,
    2 << 10,
    8 << 10,
    32 << 10,
    128 << 10,
    512 << 10,
    2 << 20,
    4 << 20,
];

/// Handles per call.
const STAGS: [usize; 3] = [1, 2, 4];

/// Calls under way at a time in mixed traffic.
const DEPTH: usize = 8;

/// Credits of a connection.
const CREDITS: u32 = 16;

/// Octets that one measurement moves, about: more for small calls would only take longer.
const MOVED: usize = 32 << 20;

/// How often each design has its turn over the software provider.
const TURNS: usize = 5;

/// Calls of one measurement.
const CALLS: std::ops::RangeInclusive<usize> = 16..=256;

/// Where there is no design.
const NONE: &str = "none";

pub(crate) async fn run(args: &InvalidationArgs) -> Result<Ended> {
    let designs = designs(&args.design)?;
    let payloads = match args.payload.as_slice() {
        [] => &PAYLOADS[..],
        some => some,
    };
    let mut rows = Vec::new();
    for provider in [ProviderName::Sim, ProviderName::Iwarp] {
        if args.provider.is_some_and(|only| only != provider) {
            continue;
        }
        for (stags, small_between, memory) in kinds() {
            let fit = designs.iter().filter(|&&design| memory.fits(design, stags));
            let fit: Vec<Option<Design>> = fit.copied().collect();
            for &payload in payloads {
                let shape = Shape {
                    payload: payload as usize,
                    stags,
                    depth: if small_between { DEPTH } else { 1 },
                    small_between,
                    service: args.service,
                };
                let outcomes = side_by_side(args, provider, &fit, memory, shape).await?;
                let all = fit.iter().zip(&outcomes);
                rows.extend(all.map(|(&design, outcome)| {
                    Row::new(provider, name(design), memory, shape, outcome)
                }));
            }
        }
    }
    let report = Report::new(args.costs(), args.service, rows);
    if let Some(path) = &args.svg {
        std::fs::write(path, report.plot().to_svg())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    super::print(args.json, &report, Report::print)?;
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

/// Handles per call, whether every second call is one without data, and where arguments are.
fn kinds() -> impl Iterator<Item = (usize, bool, Memory)> {
    let traffic = [false, true].into_iter();
    let with_memory = traffic.flat_map(|small| Memory::ALL.map(|memory| (small, memory)));
    STAGS.into_iter().flat_map(move |stags| {
        with_memory
            .clone()
            .map(move |(small, memory)| (stags, small, memory))
    })
}

/// Measures each design. Where a real machine is in it, that is done in turns, as its speed drifts by
/// more than what is to be seen.
async fn side_by_side(
    args: &InvalidationArgs,
    provider: ProviderName,
    designs: &[Option<Design>],
    memory: Memory,
    shape: Shape,
) -> Result<Vec<Outcome>> {
    let turns = match provider {
        ProviderName::Sim => 1,
        ProviderName::Iwarp => TURNS,
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for turn in 0..turns {
        for (index, &design) in designs.iter().enumerate() {
            let outcome = measure(args, provider, design, memory, shape).await;
            let outcome =
                outcome.with_context(|| format!("{}, {} octets", name(design), shape.payload))?;
            match turn {
                0 => outcomes.push(outcome),
                _ => outcomes[index].latencies.extend(outcome.latencies),
            }
        }
    }
    Ok(outcomes)
}

async fn measure(
    args: &InvalidationArgs,
    provider: ProviderName,
    design: Option<Design>,
    memory: Memory,
    shape: Shape,
) -> Result<Outcome> {
    let client = config(Role::Client, design, memory, shape);
    let server = config(Role::Server, design, memory, shape);
    let few = (MOVED / shape.payload).clamp(*CALLS.start(), *CALLS.end()) as u64;
    let calls = args.calls.map_or(few, u64::from);
    let configs = [&client, &server];
    match provider {
        ProviderName::Sim => {
            let ends = Simulated::connect(args.costs(), &client, &server)?;
            run_on(ends, configs, design, shape, calls)
        }
        ProviderName::Iwarp => {
            let ends = Software::connect(&client, &server).await?;
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
            octets: shape.part(),
        }),
        (Role::Client, Memory::Dynamic) | (Role::Server, _) => None,
    };
    let registrations = match persistent {
        Some(_) => Registrations::OF_CALLS.with(Registration::Persistent),
        None => Registrations::OF_CALLS,
    };
    let agreed_by_characteristic = design.filter(|design| match design {
        Design::PerVersion | Design::PerConnection => false,
        Design::Fixed | Design::PerCall | Design::PerCallSeveral | Design::InterCall => true,
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
        backward_credits: 0,
        reserve_credit: false,
        max_chunk: MAX_PAYLOAD,
        max_segment: 0,
        registrations,
        persistent,
        receives: Receives::Posted,
        pool: Pool::new(2 * DEPTH * MAX_PAYLOAD),
    }
}

impl InvalidationArgs {
    fn costs(&self) -> Costs {
        Costs {
            post: self.post,
            completion: self.completion,
            interrupt: self.interrupt,
            register: self.register,
            invalidate: self.invalidate,
            message: self.message,
            wire: self.wire,
            line_rate: u64::from(self.line_rate) * 1_000_000_000 / 8,
            copy_rate: u64::from(self.copy_rate) * 1_000_000_000,
        }
    }
}

/// A time as a whole number with a unit.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u32 = digits
        .parse()
        .map_err(|_| format!("{text} is no whole number with ns, us or ms behind it"))?;
    match &text[digits.len()..] {
        "ns" => Ok(Duration::from_nanos(number.into())),
        "us" => Ok(Duration::from_micros(number.into())),
        "ms" => Ok(Duration::from_millis(number.into())),
        _ => Err(format!("{text} is to end in ns, us or ms")),
    }
}
