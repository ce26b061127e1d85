//! The experiments behind `docs/design`, run from the source tree: `cargo run --release -p lab -- COMMAND`.
//!
//! - `self` (`loopback`) compares client and server of this implementation with plain TCP.
//! - `count` (`loopback::counts`) counts the instructions of a call, by layer.
//! - `invalidation` compares the designs for remote invalidation.
//! - `thresholds` counts and times RDMA operations by inline threshold.
//! - `negotiation` measures Receives that grow in version two.
//!
//! The last three run on a `model` of RNICs in virtual time, and `invalidation` over providers of this machine, too.

mod allocations;
#[cfg(doc)]
pub mod design;
mod invalidation;
mod loopback;
mod median;
mod model;
mod negotiation;
mod plot;
#[cfg(test)]
mod schemas;
mod thresholds;
mod usage;

use anyhow::Result;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use invalidation::InvalidationArgs;
use loopback::{CountArgs, LoopbackArgs};
use negotiation::NegotiationArgs;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use thresholds::ThresholdsArgs;
use usage::Usage;

/// The experiments behind the design pages of rpcrdma
#[derive(Debug, Parser)]
#[command(
    name = "lab",
    after_help = "Examples:
  cargo run --release -p lab -- self
  cargo run --release -p lab -- count
  cargo run --release -p lab -- invalidation --sensitivity --svg plot.svg
  cargo run --release -p lab -- thresholds
  cargo run --release -p lab -- negotiation --json

Exit codes: 0 measured, 1 it failed, 2 wrong command line."
)]
struct Lab {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    #[command(name = "self")]
    Loopback(LoopbackArgs),
    Count(CountArgs),
    Invalidation(Box<InvalidationArgs>),
    Thresholds(Box<ThresholdsArgs>),
    Negotiation(Box<NegotiationArgs>),
}

/// Runs the experiment that the arguments of the process name.
///
/// `allocations` tells how often this process asked for memory so far, if its allocator counts.
pub fn main(allocations: Option<fn() -> u64>) -> ExitCode {
    allocations::set(allocations);
    let matches = Lab::command().get_matches();
    let lab = Lab::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let error = match run(lab.experiment, &matches) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    // Nothing useful is left to do if standard error cannot be written.
    let _ = writeln!(io::stderr(), "lab: {error:#}");
    match error.is::<Usage>() {
        true => ExitCode::from(2),
        false => ExitCode::FAILURE,
    }
}

fn run(experiment: Experiment, matches: &ArgMatches) -> Result<()> {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    match experiment {
        Experiment::Loopback(args) => runtime()?.block_on(loopback::run(args)),
        Experiment::Count(args) => loopback::count(args),
        Experiment::Invalidation(mut args) => {
            args.given = given(matches);
            runtime()?.block_on(invalidation::run(&args))
        }
        Experiment::Thresholds(args) => thresholds::run(&args),
        Experiment::Negotiation(args) => negotiation::run(&args),
    }
}

/// Options of the experiment that stand on the command line.
fn given(matches: &ArgMatches) -> BTreeSet<String> {
    let Some((_, of_experiment)) = matches.subcommand() else {
        return BTreeSet::new();
    };
    let given = of_experiment.ids().map(|id| id.as_str()).filter(|id| {
        let source = of_experiment.value_source(id);
        source == Some(clap::parser::ValueSource::CommandLine)
    });
    given.map(str::to_owned).collect()
}

/// Whether nobody reads the output any more.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.any(|cause: &io::Error| cause.kind() == ErrorKind::BrokenPipe)
}
