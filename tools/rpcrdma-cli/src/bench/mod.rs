//! `rpcrdma bench`: measures a server, or this implementation itself.
//!
//! - `bench HOST[/PATH]` ([`server`]) measures any NFS server on RPC-over-RDMA.
//! - `bench self` ([`loopback`]) compares this client and server with plain TCP on loopback.
//! - `bench invalidation`, `bench thresholds` and `bench negotiation` evaluate designs of the protocol.

mod invalidation;
mod loopback;
mod median;
mod model;
mod negotiation;
mod output;
mod plot;
mod server;
mod thresholds;
mod work;

use crate::endpoint::Endpoint;
use crate::failure::{Ended, Usage};
use crate::serve::Given;
use anyhow::{Result, bail};
use clap::{ArgMatches, Args, Subcommand};
use invalidation::InvalidationArgs;
use loopback::LoopbackArgs;
use negotiation::NegotiationArgs;
use server::{ServerArgs, Target};
use std::io::Write;
use thresholds::ThresholdsArgs;

/// Measure latency, IOPS and bandwidth of an NFS server on RPC-over-RDMA
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
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
  rpcrdma bench self
      this program over loopback, beside plain TCP

Options, defaults and names in the JSON document are those of fio where fio has the same: \
--depth is iodepth and counts for each connection; --nconnect is numjobs. There is no cache at \
the client, as with direct=1. In a directory, a temporary file is measured; it is filled first, \
and removed at the end, also after an error or Ctrl-C. Random offsets may repeat (norandommap).

Exit codes: 0 measured, 1 a call failed (what was measured until then is printed), 2 wrong \
command line.")]
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
    Invalidation(Box<InvalidationArgs>),
    Thresholds(Box<ThresholdsArgs>),
    Negotiation(Box<NegotiationArgs>),
}

impl BenchArgs {
    /// Notes what stands on the command line for `invalidation`, of which not every provider has every option.
    pub(crate) fn note(&mut self, matches: &ArgMatches) {
        if let (Some(BenchCommand::Invalidation(args)), Some((_, given))) =
            (&mut self.command, matches.subcommand())
        {
            args.given = Given::of::<InvalidationArgs>(given);
        }
    }
}

/// What there is to measure, one line each.
const CHOICES: &str = "\
rpcrdma bench HOST[:PORT]         round trips of NULL calls to a server
rpcrdma bench HOST[:PORT]/PATH    reads, and writes if asked for, of a file there
rpcrdma bench self                this client and server beside plain TCP
rpcrdma bench invalidation        designs for remote invalidation, on a model or a device
rpcrdma bench thresholds          RDMA operations and times by inline threshold, on the model
rpcrdma bench negotiation         Receives that grow in version two, on the model
";

/// Runs the command.
pub(crate) async fn run(args: BenchArgs) -> Result<Ended> {
    match args.command {
        Some(BenchCommand::Loopback(args)) => loopback::run(args).await,
        Some(BenchCommand::Invalidation(args)) => invalidation::run(&args).await,
        Some(BenchCommand::Thresholds(args)) => thresholds::run(&args),
        Some(BenchCommand::Negotiation(args)) => negotiation::run(&args),
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
        (
            "bench-negotiation",
            schema_for!(negotiation::Report),
            "bench negotiation --json",
        ),
    ]
}
