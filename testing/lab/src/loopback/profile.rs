//! `lab self --profile`: where the CPU time of a call goes, by layer, at both ends.
//!
//! Both processes take samples of themselves while they make the same runs as for the other figures.

mod report;

use super::child::{Child, Usage};
use super::profiler::Profiler;
use super::{LoopbackArgs, Measurement, Prepared, operations, raw, with_affinity};
use anyhow::{Context, Result, ensure};
pub(crate) use report::Report;
use report::{Both, End, Row};
use std::time::Duration;
use verbs::IoCounters;

/// How long one run takes, if the user does not say.
pub(super) const RUN_TIME: Duration = Duration::from_secs(2);

/// Repetitions beyond those asked for, each twice as long as the one before, if there are not enough
/// samples yet. An end that parks uses little CPU time, and so does one on a busy machine.
const MORE_REPETITIONS: usize = 10;

pub(super) async fn run(
    measurements: impl Iterator<Item = &Measurement>,
    args: &LoopbackArgs,
) -> Result<Report> {
    let mut profiler = Profiler::new()?;
    let mut child = Child::start().context("cannot start the second process")?;
    let mut rows = Vec::new();
    for measurement in measurements {
        if !args.json {
            eprintln!("profiling {} …", measurement.name);
        }
        let row = with_affinity(measurement.spinning, async || {
            profile(measurement, args, &mut child, &mut profiler).await
        });
        let row = row.await;
        rows.push(row.with_context(|| format!("profiling {}", measurement.name))?);
    }
    Ok(Report::new(rows))
}

async fn profile(
    m: &Measurement,
    args: &LoopbackArgs,
    child: &mut Child,
    profiler: &mut Profiler,
) -> Result<Row> {
    let run_time = args.run_time.unwrap_or(RUN_TIME);
    let prepared = Prepared::new(m, run_time, child).await?;
    let mut count = prepared.count;
    let mut plain_count = count;
    let mut ours = Both::default();
    let mut plain_tcp = Both::default();
    let repetitions = usize::from(args.repetitions);
    let mut length = run_time;
    for repetition in 0..repetitions + MORE_REPETITIONS {
        if repetition >= repetitions {
            // Longer runs would not help.
            ensure!(
                !ours.is_without_samples() && !plain_tcp.is_without_samples(),
                "a process took no sample of itself: its SIGPROF is blocked, or the system has no ITIMER_PROF"
            );
            if ours.is_enough() && plain_tcp.is_enough() {
                break;
            }
            length *= 2;
        }
        if repetition > 0 {
            // Both take as long, for as many samples.
            count = operations(ours.calls_in(length));
            plain_count = operations(plain_tcp.calls_in(length));
        }
        let load = prepared.load.run(count);
        ours.add(sampled(child, profiler, count, load).await?);
        let to = child.raw(m.spinning);
        let load = raw::run(to, prepared.exchange, m.spinning, plain_count);
        plain_tcp.add(sampled(child, profiler, plain_count, load).await?);
    }
    prepared.load.close().await;
    Ok(Row::new(m.name, m.call(), &ours, &plain_tcp))
}

/// Both ends of one run.
async fn sampled(
    child: &mut Child,
    profiler: &mut Profiler,
    count: usize,
    load: impl Future<Output = Result<raw::Measured>>,
) -> Result<Both> {
    let cpu = || Usage::of_this_process(IoCounters::default()).cpu_ns;
    child.start_sampling()?;
    profiler.start()?;
    let before = (cpu(), child.usage()?.cpu_ns);
    let measured = load.await;
    let after = (cpu(), child.usage()?.cpu_ns);
    // Names are looked up now, which takes CPU time of both.
    let client = profiler.stop();
    let server = child.stop_sampling()?;
    Ok(Both {
        calls: count as u64,
        elapsed: measured?.elapsed,
        client: End::new(after.0 - before.0, client),
        server: End::new(after.1 - before.1, server),
    })
}
