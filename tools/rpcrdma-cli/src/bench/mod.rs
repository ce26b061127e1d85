//! `rpcrdma bench HOST[:PORT][/PATH]`: latency, IOPS and bandwidth of any NFS server on RPC-over-RDMA.
//!
//! Each of `--depth` times `--nconnect` tasks makes one call after another on one client. A turn takes one
//! lock, looks at the clock once, and allocates nothing beyond the call itself: data to write is one buffer
//! that all WRITEs share, and data that was read is dropped where it arrived.

mod load;
mod progress;
mod rates;
mod report;
mod server_stats;
mod subject;
mod target;
mod workload;

use crate::endpoint::Endpoint;
use crate::failure::{Ended, Usage};
use crate::interrupt::Interrupt;
use crate::output;
use crate::session::{self, Session, SessionArgs};
use anyhow::{Result, bail};
use clap::Args;
use load::{Load, Outcome};
use nfs_client::{Nfs3, current_user};
use printing::units;
use progress::Progress;
pub(crate) use report::Report;
use rpcrdma::Design;
use server_stats::ServerStats;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use subject::Subject;
use target::Target;
use tokio::time::timeout;
use workload::{Pattern, Stability, Workload};

/// Measure latency, IOPS and bandwidth of an NFS server on RPC-over-RDMA
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma bench 127.0.0.1
      round trips: NULL calls, one at a time
  rpcrdma bench --depth 32 files.example.org:20049
      NULL calls per second
  rpcrdma bench --rw randread --depth 32 127.0.0.1/dir
  rpcrdma bench --rw read --bs 1M --depth 8 127.0.0.1/large
  rpcrdma bench --rw randrw --rwmix 70 --sync sync \\
    --size 1G --time 1m nfs://127.0.0.1/dir
  rpcrdma bench --rw write --overwrite 127.0.0.1/scratch
  rpcrdma bench --json --rw randread 127.0.0.1/dir

Options, defaults and names in the JSON document are those of fio where fio has the same: \
--depth is iodepth and counts for each connection; --nconnect is numjobs. There is no cache at \
the client, as with direct=1. In a directory, a temporary file is measured; it is filled first, \
and removed at the end, also after an error or Ctrl-C. Random offsets may repeat (norandommap).

Exit codes: 0 measured, 1 a call failed (what was measured until then is printed), 2 wrong \
command line.")]
pub(crate) struct BenchArgs {
    /// Server, optionally with a file to read or a directory for a temporary file; nfs:// may
    /// precede it [default port: 20049]
    #[arg(value_name = "HOST[:PORT][/PATH]")]
    target: Target,

    /// Access pattern [default: read, or null without a PATH]
    #[arg(long, visible_alias = "readwrite", value_enum, value_name = "PATTERN")]
    rw: Option<Pattern>,

    /// Size of each READ and WRITE
    #[arg(long, default_value = "4k", value_name = "SIZE", value_parser = units::size_within::<u32>(1..=MAX_BS))]
    bs: u32,

    /// Number of outstanding calls on each connection
    #[arg(long, visible_alias = "iodepth", default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MAX_DEPTH))]
    depth: u32,

    /// Time to measure
    #[arg(long, visible_alias = "runtime", default_value = "10s", value_name = "DURATION",
        value_parser = units::parse_duration)]
    time: Duration,

    /// Time to make calls before measuring
    #[arg(long, default_value = "0", value_name = "DURATION", value_parser = units::parse_duration)]
    ramp_time: Duration,

    /// Bytes of the file to use [default: all of a file, 256 MiB of a temporary one]
    #[arg(long, value_name = "SIZE", value_parser = units::size_within::<u64>(1..=u64::MAX))]
    size: Option<u64>,

    /// Percentage of READs in `rw` and `randrw`
    #[arg(long, visible_alias = "rwmixread", default_value_t = 50, value_name = "PERCENT",
        value_parser = clap::value_parser!(u8).range(0..=100))]
    rwmix: u8,

    /// Stability of each WRITE (RFC 1813). UNSTABLE writes are followed by one COMMIT at the end,
    /// whose time is shown separately
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    sync: Stability,

    /// Allow writing to an existing file, whose content is lost
    #[arg(long)]
    overwrite: bool,

    /// Seed of the random offsets, the mix and the data [default: a new one each time, which is
    /// printed]
    #[arg(long, visible_alias = "randseed", value_name = "N")]
    seed: Option<u64>,

    /// Print one JSON document, also if a call failed
    #[arg(long)]
    json: bool,

    /// Print also the work requests, doorbells, completions and registrations of each call
    #[arg(long)]
    counts: bool,

    /// Count the work of the server too. It is a `serve` on this machine, with this control socket
    /// [default: that of the only server, as for `stats`]
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true)]
    #[expect(
        clippy::option_option,
        reason = "an option with a value that may be left out"
    )]
    server_stats: Option<Option<PathBuf>>,

    #[command(flatten)]
    session: SessionArgs,
}

impl BenchArgs {
    /// Remote invalidation designs that the client wants.
    fn designs(&self) -> Vec<Design> {
        self.session.connect.transport.remote_invalidation()
    }
}

/// Most bytes of one READ or WRITE; a server may take less.
const MAX_BS: u64 = nfs_proto::limits::MAX_DATA as u64;

/// Most calls outstanding on a connection: as many as there can be credits.
const MAX_DEPTH: i64 = 1024;

/// Most bytes of data in flight: block size times depth times connections.
const MAX_IN_FLIGHT: u64 = 1 << 30;

/// How long the end of the connection may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Former subcommands, which are commands of the project's `lab` now.
const OF_THE_LAB: [&str; 4] = ["self", "invalidation", "thresholds", "negotiation"];

/// Runs the command.
pub(crate) async fn run(args: &BenchArgs) -> Result<Ended> {
    let target = &args.target;
    if let Target::Server(Endpoint { host, .. }) = target
        && OF_THE_LAB.contains(&host.as_str())
    {
        bail!(Usage(format!(
            "`bench {host}` is an experiment of the source tree: `cargo run --release -p lab -- {host}`"
        )));
    }
    let interrupt = Interrupt::of_copy()?;
    let workload = workload(args, target)?;
    let mut report = match measured(args, target, workload, &interrupt).await {
        Ok(report) => report,
        // Where nothing was measured, an error says all there is to say to people.
        Err(error) if args.json => Report::failed(target, &workload, &args.designs(), error),
        Err(error) => return Err(error),
    };
    report.counts = args.counts || args.server_stats.is_some();
    output::check()?;
    printing::print(args.json, &report, Report::print)?;
    report.ended()
}

/// Connects and measures.
async fn measured(
    args: &BenchArgs,
    target: &Target,
    workload: Workload,
    interrupt: &Interrupt,
) -> Result<Report> {
    let mut session_args = args.session.clone();
    // Otherwise calls would wait for credits that nobody asked for.
    let credits = &mut session_args.connect.transport.credits;
    *credits = (*credits).max(args.depth);
    let stats = match args.server_stats.clone() {
        Some(socket) => Some(ServerStats::find(socket).await?),
        None => None,
    };
    let stats = stats.as_ref();
    let progress = Progress::new(!args.json);
    match target {
        Target::Server(server) => {
            let connecting = session_args.connect.connect(server);
            let (client, _) = interrupt.unless(connecting).await?;
            let nfs = Arc::new(Nfs3::new(client.clone(), current_user()));
            let outcome = Load::null(client.clone(), nfs, workload)
                .run(stats, interrupt, &progress)
                .await;
            let wanted = args.designs();
            let report = Report::new(target, &workload, &wanted, None, &client, outcome);
            // Nothing is lost with a connection on which no call waits.
            let _ = timeout(CLOSED_WITHIN, client.close()).await;
            Ok(report)
        }
        Target::Path(url) => {
            let mut session = Session::new(&session_args);
            let place = interrupt.unless(session.place(url)).await?;
            let (overwrite, size) = (args.overwrite, args.size);
            let named = |error| session::with_url(error, url);
            let at = (&place, session.client(&place));
            let subject = Subject::new(at, &workload, overwrite, size, interrupt).await;
            let subject = subject.map_err(named)?;
            let mut outcome = measure(&subject, workload, stats, interrupt, &progress).await;
            outcome.error = outcome.error.map(named);
            if let Err(left) = subject.remove().await.map_err(named) {
                match &outcome.error {
                    None => outcome.error = Some(left),
                    Some(_) => Ended::Well.failed(&left),
                }
            }
            let wanted = args.designs();
            let (about, client) = (Some(&subject), subject.client());
            let report = Report::new(target, &workload, &wanted, about, client, outcome);
            session.close().await;
            Ok(report)
        }
    }
}

/// Fills the file if it is a temporary one, and measures.
async fn measure(
    subject: &Subject,
    workload: Workload,
    stats: Option<&ServerStats>,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Outcome {
    let data = workload.data();
    let filled = async {
        let data = data?;
        interrupt.unless(subject.fill(&data, progress)).await?;
        anyhow::Ok(data)
    };
    let data = match filled.await {
        Ok(data) => data,
        Err(error) => {
            progress.finish();
            return Outcome::failed(error);
        }
    };
    let mut outcome = Load::file(subject, workload, &data)
        .run(stats, interrupt, progress)
        .await;
    if workload.needs_commit() && outcome.error.is_none() {
        match interrupt.unless(subject.commit()).await {
            Ok(took) => outcome.commit = Some(took),
            Err(error) => outcome.error = Some(error),
        }
    }
    outcome
}

/// Returns the workload, if its options make sense together.
fn workload(args: &BenchArgs, target: &Target) -> Result<Workload> {
    let usage = |what: String| Err(Usage(what).into());
    let pattern = match (args.rw, target) {
        (None | Some(Pattern::Null), Target::Server(_)) => Pattern::Null,
        (Some(pattern), Target::Server(server)) => {
            return usage(format!(
                "--rw {} needs a file or a directory, as in {server}/PATH",
                pattern.name()
            ));
        }
        (Some(Pattern::Null), Target::Path(_)) => {
            return usage("--rw null makes no use of a file: leave the path out".to_owned());
        }
        (None, Target::Path(_)) => Pattern::Read,
        (Some(pattern), Target::Path(_)) => pattern,
    };
    if args.time.is_zero() {
        return usage("--time 0 measures nothing".to_owned());
    }
    let connections = args.session.connect.nconnect;
    let in_flight = u64::from(args.bs) * u64::from(args.depth) * u64::from(connections);
    if pattern != Pattern::Null && in_flight > MAX_IN_FLIGHT {
        return usage(format!(
            "--bs times --depth times --nconnect is {}: more than {} in flight would have to be kept in \
             memory",
            units::size(in_flight),
            units::size(MAX_IN_FLIGHT)
        ));
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => fastrand::u64(..),
    };
    Ok(Workload {
        pattern,
        bs: args.bs,
        depth: args.depth,
        connections,
        time: args.time,
        ramp_time: args.ramp_time,
        read_percent: args.rwmix,
        sync: args.sync,
        seed,
    })
}
