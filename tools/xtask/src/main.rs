//! The project's chores: `cargo xtask` with `ci`, `tidy`, `fuzz`, `soak`, `interop`, `record-mix`.

mod ci;
mod command;
mod fuzz;
mod interop;
mod soak;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything a change must pass: format, lints, documentation, tests, interoperability
    Ci(ci::Options),
    /// Check the compliance tables against the work tree, and the rules of the house
    Tidy,
    /// Fuzz the parsers and state machines with libFuzzer
    Fuzz(fuzz::Options),
    /// Play clients and servers under faults, seed after seed, in virtual time
    Soak(soak::Options),
    /// Drive a stock Debian kernel, booted in QEMU, against the program
    Interop(interop::Options),
    /// Record the calls of Linux' NFS clients at work, for `rpcrdma bench thresholds`
    RecordMix(interop::MixOptions),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Ci(options) => ci::run(&options),
        Chore::Tidy => tidy::run(),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Interop(options) => interop::run(&options),
        Chore::RecordMix(options) => interop::record_mix(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the work tree.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("xtask is in a folder of the work tree")
}
