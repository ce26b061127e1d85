//! `lab self`: measures the whole path, compared with plain TCP carrying the same bytes.
//!
//! A second process serves a file in memory, and the same bytes over plain TCP. Runs of the one
//! and the other alternate; what is reported is the median of their ratios, because the speed of a
//! machine drifts by more than what is to be seen.

mod child;
mod counting;
mod counts;
mod load;
mod profile;
mod profiler;
mod raw;
mod report;
mod session;
mod spinning;

use super::median::median;
use crate::usage::Usage;
use anyhow::{Context, Result};
use child::Child;
use clap::Args;
#[cfg(test)]
pub(super) use counts::Report as CountReport;
pub(super) use counts::{CountArgs, run as count};
use load::{Load, Operation};
use printing::print;
#[cfg(test)]
pub(super) use profile::Report as ProfileReport;
pub(super) use report::Report;
use report::{Bound, Cost, Figure};
use rustix::thread::sched_setaffinity;
use spinning::{Spinning, pin};
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::Duration;

/// Measure this machine: NFS calls over loopback beside plain TCP
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  lab self
  lab self --only null --only read_1m
  lab self --json > figures.json
  lab self --profile --only read_4k_qd32
  lab self --profile --svg profile.svg

It needs two idle CPUs. `null`, `null_crc` and `null_parked` are median round-trip times of \
NULL; the others are rates. Names contain the size, and after `qd` the number of outstanding \
calls, 8 by default. Names that end in `_crc` use CRC32C, the others do not. --profile needs \
debug information in the program, as cargo builds it, and /proc; it takes about half a minute \
for each name.")]
pub(super) struct LoopbackArgs {
    /// Number of runs of each measurement; ratios are medians over them
    #[arg(short, long, default_value_t = 7, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    repetitions: u16,

    /// Approximate length of one run [default: 400ms; 2s with --profile]
    #[arg(long, value_name = "DURATION", value_parser = printing::units::parse_duration)]
    run_time: Option<Duration>,

    /// Measure only this; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Show the CPU time of a call by layer, at both ends, summed over the repetitions
    #[arg(long)]
    profile: bool,

    /// Draw a plot of the profile into this file
    #[arg(long, value_name = "FILE", requires = "profile")]
    svg: Option<PathBuf>,

    /// Show the bound that this project has set for each ratio, and how many repetitions met it
    #[arg(long, conflicts_with = "profile")]
    bounds: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Be the second process
    #[arg(long, hide = true)]
    child: bool,

    /// Count allocations, and measure nothing
    #[arg(long, hide = true)]
    count_allocations: bool,
}

/// One line of the report, before it is measured.
struct Measurement {
    name: &'static str,
    operation: Operation,
    depth: usize,
    crc: bool,
    spinning: Spinning,
    bound: Bound,
}

impl Measurement {
    /// A connection for it.
    async fn connect(&self, child: &Child) -> Result<Load> {
        let to = child.server(self.crc, self.spinning);
        Load::connect(to, self.operation, self.depth, self.crc, self.spinning).await
    }

    /// Describes a call.
    fn call(&self) -> String {
        let operation = match self.operation {
            Operation::Null => "NULL".to_owned(),
            Operation::GetAttr | Operation::GetAttr4 => "GETATTR".to_owned(),
            Operation::Read(len) | Operation::Read4(len) => format!("READ of {} KiB", len >> 10),
            Operation::Write(len) => format!("WRITE of {} KiB", len >> 10),
        };
        let crc = if self.crc { "CRC on" } else { "CRC off" };
        let ends = match self.spinning {
            Spinning::Park => ", ends park at once",
            Spinning::Adaptive => "",
        };
        format!("{operation}, depth {}, {crc}{ends}", self.depth)
    }
}

const fn measurement(
    name: &'static str,
    operation: Operation,
    depth: usize,
    crc: bool,
    bound: Bound,
) -> Measurement {
    Measurement {
        name,
        operation,
        depth,
        crc,
        spinning: Spinning::Adaptive,
        bound,
    }
}

/// All that can be measured, and what it is to reach.
const MEASUREMENTS: [Measurement; 12] = [
    measurement("null", Operation::Null, 1, false, Bound::AtMost(1.20)),
    measurement("null_crc", Operation::Null, 1, true, Bound::AtMost(1.20)),
    Measurement {
        spinning: Spinning::Park,
        ..measurement(
            "null_parked",
            Operation::Null,
            1,
            false,
            Bound::AtMost(1.12),
        )
    },
    measurement(
        "read_4k_qd1",
        Operation::Read(4 << 10),
        1,
        false,
        Bound::AtLeast(0.80),
    ),
    measurement(
        "read_4k_qd32",
        Operation::Read(4 << 10),
        32,
        false,
        Bound::AtLeast(0.60),
    ),
    measurement(
        "read_4k_qd32_crc",
        Operation::Read(4 << 10),
        32,
        true,
        Bound::AtLeast(0.52),
    ),
    measurement(
        "read_1m_qd1",
        Operation::Read(1 << 20),
        1,
        false,
        Bound::AtLeast(0.75),
    ),
    measurement(
        "read_1m_qd1_crc",
        Operation::Read(1 << 20),
        1,
        true,
        Bound::AtLeast(0.65),
    ),
    measurement(
        "read_1m",
        Operation::Read(1 << 20),
        8,
        false,
        Bound::AtLeast(0.97),
    ),
    measurement(
        "read_1m_crc",
        Operation::Read(1 << 20),
        8,
        true,
        Bound::AtLeast(0.92),
    ),
    measurement(
        "write_1m",
        Operation::Write(1 << 20),
        8,
        false,
        Bound::AtLeast(0.93),
    ),
    measurement(
        "write_1m_crc",
        Operation::Write(1 << 20),
        8,
        true,
        Bound::AtLeast(0.80),
    ),
];

/// Two runs over plain TCP, one before and one after ours, must agree this well for a repetition
/// to count: otherwise the machine did something else meanwhile.
const AGREEMENT: f64 = 0.12;

/// Operations of the first run, which finds out how many fill the time.
const CALIBRATION: usize = 200;

/// Operations of one run at most.
const MOST_OPERATIONS: usize = 10_000_000;

/// Runs the command.
pub(super) async fn run(args: LoopbackArgs) -> Result<()> {
    if args.child {
        return child::serve().await;
    }
    if let Some(unknown) = args
        .only
        .iter()
        .find(|name| MEASUREMENTS.iter().all(|m| m.name != **name))
    {
        let names: Vec<_> = MEASUREMENTS.iter().map(|m| m.name).collect();
        return Err(Usage(format!(
            "there is no measurement {unknown}; there are {}",
            names.join(", ")
        ))
        .into());
    }
    let asked_for =
        |m: &&Measurement| args.only.is_empty() || args.only.iter().any(|name| name == m.name);
    let measurements = MEASUREMENTS.iter().filter(asked_for);
    if args.count_allocations {
        return counting::count(measurements).await;
    }
    if args.profile {
        // It takes minutes, after which it would be late to find out that the plot cannot be written.
        if let Some(path) = &args.svg {
            let there = OpenOptions::new().append(true).create(true).open(path);
            there.with_context(|| format!("cannot write {}", path.display()))?;
        }
        let report = profile::run(measurements, &args).await?;
        if let Some(path) = &args.svg {
            std::fs::write(path, report.plot().to_svg())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        print(args.json, &report, profile::Report::print)?;
        return Ok(());
    }
    let allocations = counting::ask(&args.only).unwrap_or_else(|error| {
        eprintln!("allocations are not counted: {error:#}");
        counting::Counted::new()
    });
    let mut child = Child::start().context("cannot start the second process")?;
    let mut results = Vec::new();
    for measurement in measurements {
        if !args.json {
            eprintln!("measuring {} …", measurement.name);
        }
        let figure = with_affinity(measurement.spinning, async || {
            measure(measurement, &args, &mut child).await
        });
        let figure = figure
            .await
            .with_context(|| format!("measuring {}", measurement.name))?;
        results.push(Figure {
            allocations: allocations.get(measurement.name).copied(),
            ..figure
        });
    }
    let idle_connection = load::idle_connection(&mut child).await?;
    let report = Report {
        results,
        idle_connection,
    };
    let table = match args.bounds {
        true => Report::print_with_bounds,
        false => Report::print,
    };
    print(args.json, &report, table)?;
    Ok(())
}

/// Runs one measurement on the CPUs it needs.
async fn with_affinity<T>(
    spinning: Spinning,
    measure: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    let allowed = match spinning {
        Spinning::Park => Some(pin(0)?),
        Spinning::Adaptive => None,
    };
    let measured = measure().await;
    if let Some(allowed) = allowed {
        sched_setaffinity(None, &allowed)?;
    }
    measured
}

/// How long one run takes, if the user does not say.
const RUN_TIME: Duration = Duration::from_millis(400);

/// A connection that has carried some calls.
struct Prepared {
    load: Load,
    /// How many operations fill the time of a run.
    count: usize,
    /// The bytes of one of them on the wire.
    exchange: raw::Exchange,
}

impl Prepared {
    async fn new(m: &Measurement, run_time: Duration, child: &Child) -> Result<Self> {
        let load = m.connect(child).await?;
        let mut calibration = CALIBRATION;
        let mut warm = load.run(calibration).await?;
        while warm.elapsed < run_time.min(RUN_TIME) / 4 && calibration < MOST_OPERATIONS / 4 {
            calibration *= 4;
            warm = load.run(calibration).await?;
        }
        let rate = calibration as f64 / warm.elapsed.as_secs_f64();
        let count = operations(rate * run_time.as_secs_f64());
        let before = load.io();
        load.run(count).await?;
        let io = load.io();
        let per_operation = |bytes: u64| usize::try_from(bytes / count as u64);
        let exchange = raw::Exchange {
            request: per_operation(io.bytes_out - before.bytes_out)?.max(1),
            reply: per_operation(io.bytes_in - before.bytes_in)?.max(1),
            depth: m.depth,
        };
        Ok(Self {
            load,
            count,
            exchange,
        })
    }
}

async fn measure(m: &Measurement, args: &LoopbackArgs, child: &mut Child) -> Result<Figure> {
    let run_time = args.run_time.unwrap_or(RUN_TIME);
    let Prepared {
        load,
        count,
        exchange,
    } = Prepared::new(m, run_time, child).await?;
    let value = |run: &raw::Measured| match m.operation.data() {
        0 => micros(run, 50.0),
        _ => count as f64 / run.elapsed.as_secs_f64(),
    };
    let mut runs = Vec::new();
    let mut costs = Vec::new();
    let mut raw_before =
        value(&raw::run(child.raw(m.spinning), exchange, m.spinning, count).await?);
    for _ in 0..args.repetitions {
        let started = Snapshot::take(&load, child)?;
        let ours = load.run(count).await?;
        costs.push(started.until(&Snapshot::take(&load, child)?, count));
        let raw_after = value(&raw::run(child.raw(m.spinning), exchange, m.spinning, count).await?);
        let raw = f64::midpoint(raw_before, raw_after);
        let agree = (raw_before - raw_after).abs() <= raw * AGREEMENT;
        runs.push(Run {
            ours: value(&ours),
            raw,
            agree,
            p50: micros(&ours, 50.0),
            p99: micros(&ours, 99.0),
        });
        raw_before = raw_after;
    }
    load.close().await;
    Ok(figure(m, &runs, &costs, exchange))
}

/// Microseconds that so many percent of the exchanges did not exceed.
fn micros(run: &raw::Measured, percent: f64) -> f64 {
    run.latencies.percentile(percent).as_secs_f64() * 1e6
}

/// One repetition.
struct Run {
    ours: f64,
    raw: f64,
    agree: bool,
    p50: f64,
    p99: f64,
}

fn figure(m: &Measurement, runs: &[Run], costs: &[Cost], exchange: raw::Exchange) -> Figure {
    let agreed = runs.iter().filter(|run| run.agree).count();
    // On a machine where hardly anything agrees, all of it says more than one or two runs do.
    let all = agreed * 2 < runs.len();
    let used: Vec<&Run> = runs.iter().filter(|run| all || run.agree).collect();
    let over = |f: fn(&Run) -> f64| median(used.iter().map(|run| f(run)).collect());
    let (unit, scale) = match m.operation.data() {
        0 => ("us", 1.0),
        len if len >= 1 << 20 => ("MiB/s", f64::from(len) / f64::from(1 << 20)),
        _ => ("kop/s", 0.001),
    };
    let cost = |f: fn(&Cost) -> f64| median(costs.iter().map(f).collect());
    Figure {
        name: m.name,
        value: over(|run| run.ours) * scale,
        unit,
        raw: over(|run| run.raw) * scale,
        ratio: over(|run| run.ours / run.raw),
        bound: m.bound,
        agreed,
        repetitions: runs.len(),
        p50_us: over(|run| run.p50),
        p99_us: over(|run| run.p99),
        cost: Cost {
            client_cpu_us: cost(|c| c.client_cpu_us),
            server_cpu_us: cost(|c| c.server_cpu_us),
            client_syscalls: cost(|c| c.client_syscalls),
            server_syscalls: cost(|c| c.server_syscalls),
            bytes_copied: cost(|c| c.bytes_copied),
        },
        allocations: None,
        bytes_out: exchange.request as u64,
        bytes_in: exchange.reply as u64,
    }
}

/// Resources that both processes have used so far.
struct Snapshot {
    client: child::Usage,
    server: child::Usage,
}

impl Snapshot {
    fn take(load: &Load, child: &mut Child) -> Result<Self> {
        Ok(Self {
            client: child::Usage::of_this_process(load.io()),
            server: child.usage()?,
        })
    }

    /// Cost of `count` operations between this and a later one.
    fn until(&self, later: &Self, count: usize) -> Cost {
        let per = |before: u64, after: u64| (after - before) as f64 / count as f64;
        let (c, s) = ((&self.client, &later.client), (&self.server, &later.server));
        Cost {
            client_cpu_us: per(c.0.cpu_ns, c.1.cpu_ns) / 1000.0,
            server_cpu_us: per(s.0.cpu_ns, s.1.cpu_ns) / 1000.0,
            client_syscalls: per(c.0.syscalls, c.1.syscalls),
            server_syscalls: per(s.0.syscalls, s.1.syscalls),
            bytes_copied: per(c.0.bytes_copied, c.1.bytes_copied)
                + per(s.0.bytes_copied, s.1.bytes_copied),
        }
    }
}

/// A number of operations for one run, within reason.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is clamped first"
)]
fn operations(wanted: f64) -> usize {
    wanted.clamp(100.0, MOST_OPERATIONS as f64) as usize
}
