//! The project's chores: `cargo xtask` with `ci`, `tidy`, `fuzz`, `soak`, `scale`, `compare`,
//! `dashboard`, `dissector`, `docs`, `interop`, `record-mix`, `package`.

mod ci;
mod command;
mod compare;
mod compared;
mod dashboard;
mod dissector;
mod docs;
mod fuzz;
mod interop;
mod lines;
mod package;
mod root;
mod scale;
mod server;
mod soak;
mod tidy;
mod tool;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub(crate) use root::root;

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
    Tidy(tidy::Options),
    /// Check that Grafana's dashboard shows what a server tells Prometheus
    Dashboard(dashboard::Options),
    /// Check that Wireshark understands version two with the dissector of contrib/wireshark
    Dissector(dissector::Options),
    /// Build the documentation as a book, in target/docs/book
    Docs,
    /// Fuzz the parsers and state machines with libFuzzer
    Fuzz(fuzz::Options),
    /// Play clients and servers under faults, seed after seed, in virtual time
    Soak(soak::Options),
    /// Measure what thousands of connections cost a server
    Scale(scale::Options),
    /// Compare the times of whole commands with those of what people use today
    Compare(compare::Options),
    /// Be clients of the server that is measured
    #[command(hide = true)]
    ScaleClients(scale::ClientOptions),
    /// Drive a stock Debian kernel, booted in QEMU, against the program
    Interop(interop::Options),
    /// Record the calls of Linux' NFS clients at work, for `rpcrdma bench thresholds`
    RecordMix(interop::MixOptions),
    /// Make a Debian package and an image for containers
    Package(package::Options),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Ci(options) => ci::run(&options),
        Chore::Tidy(options) => tidy::run(&options),
        Chore::Dashboard(options) => dashboard::run(&options),
        Chore::Dissector(options) => dissector::run(&options),
        Chore::Docs => docs::run(),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Soak(options) => soak::run(&options),
        Chore::Scale(options) => scale::run(&options),
        Chore::Compare(options) => compare::run(&options),
        Chore::ScaleClients(options) => scale::run_clients(&options),
        Chore::Interop(options) => interop::run(&options),
        Chore::RecordMix(options) => interop::record_mix(&options),
        Chore::Package(options) => package::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
