//! The project's chores: `cargo xtask ci`, `cargo xtask tidy`, `cargo xtask interop`.

mod ci;
mod command;
mod interop;
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
    /// Drive a stock Debian kernel, booted in QEMU, against the program
    Interop(interop::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Ci(options) => ci::run(&options),
        Chore::Tidy => tidy::run(),
        Chore::Interop(options) => interop::run(&options),
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
        .parent()
        .expect("xtask is a folder of the work tree")
}
