//! `rpcrdma bench`: measures a server, or this implementation itself.
//!
//! - `bench HOST[/PATH]` ([`server`]) measures any NFS server on RPC-over-RDMA.
//! - `bench self` ([`loopback`]) compares this client and server with plain TCP on loopback.
//! - `bench invalidation` and `bench thresholds` evaluate designs of the protocol.

mod invalidation;
mod loopback;
mod median;
mod output;
mod plot;
mod server;
mod thresholds;

use crate::endpoint::Endpoint;
use crate::failure::{Ended, Usage};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use invalidation::InvalidationArgs;
use loopback::LoopbackArgs;
use server::{ServerArgs, Target};
use std::io::Write;
use thresholds::ThresholdsArgs;

/// Measure latency, IOPS and bandwidth of an NFS server on RPC-over-RDMA
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  rpcrdma bench 127.0.0.1                                 round trips: NULL calls, one at a time
  rpcrdma bench --depth 32 files.example.org:20049        calls per second
  rpcrdma bench --rw randread --bs 4k --depth 32 nfs://127.0.0.1/dir
  rpcrdma bench --rw read --bs 1M --depth 8 --nconnect 2 127.0.0.1/dir/large.iso
  rpcrdma bench --rw randrw --rwmix 70 --sync sync --size 1G --time 1m 127.0.0.1/dir
  rpcrdma bench --rw write --overwrite 127.0.0.1/dir/scratch
  rpcrdma bench --json --rw randread 127.0.0.1/dir | jq .read.lat_ns
  rpcrdma bench self                                      this program beside plain TCP on loopback

Options, defaults and names in the JSON document are those of fio where there is such a thing there: --depth is
fio's iodepth, and counts for each connection (--nconnect), which is fio's numjobs. Calls go to the server
directly: there is no cache on this side, as with fio's --direct=1. In a directory, the measured file is a
temporary one, which is filled first and removed at the end, after an error and an interrupt too. Offsets of
random patterns are drawn from --seed, with repetition (fio's norandommap).

Exit codes: 0 measured, 1 a call failed (what was measured until then is printed), 2 the command line was not
understood.")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    #[command(name = "self")]
    Loopback(LoopbackArgs),
    Invalidation(InvalidationArgs),
    Thresholds(ThresholdsArgs),
}

/// What there is to measure, one line each.
const CHOICES: &str = "\
rpcrdma bench HOST[:PORT]         round trips of NULL calls to a server
rpcrdma bench HOST[:PORT]/PATH    reads, and writes if asked for, of a file there
rpcrdma bench self                this client and server beside plain TCP
rpcrdma bench invalidation        designs for remote invalidation, on a model
rpcrdma bench thresholds          RDMA operations by inline threshold
";

/// Runs the command.
pub(crate) async fn run(args: BenchArgs) -> Result<Ended> {
    match args.command {
        Some(BenchCommand::Loopback(args)) => loopback::run(args).await,
        Some(BenchCommand::Invalidation(args)) => invalidation::run(&args).await,
        Some(BenchCommand::Thresholds(args)) => thresholds::run(&args),
        None => match &args.server.target {
            Some(Target::Server(Endpoint { host, .. })) if BenchCommand::has_subcommand(host) => {
                bail!(Usage(format!(
                    "options of `bench {host}` go behind its name"
                )))
            }
            Some(target) => server::run(&args.server, target).await,
            None => {
                write!(std::io::stderr(), "{CHOICES}")?;
                bail!(Usage(
                    "say what to measure; --help has the options".to_owned()
                ))
            }
        },
    }
}

/// Names, schemas and commands of what `--json` prints.
#[cfg(test)]
pub(crate) fn schemas() -> Vec<(&'static str, schemars::Schema, &'static str)> {
    use schemars::schema_for;
    vec![
        ("bench", schema_for!(server::Report), "bench --json"),
        (
            "bench-self",
            schema_for!(loopback::Report),
            "bench self --json",
        ),
        (
            "bench-self-profile",
            schema_for!(loopback::ProfileReport),
            "bench self --profile --json",
        ),
        (
            "bench-invalidation",
            schema_for!(invalidation::Report),
            "bench invalidation --json",
        ),
        (
            "bench-thresholds",
            schema_for!(thresholds::Report),
            "bench thresholds --json",
        ),
    ]
}
