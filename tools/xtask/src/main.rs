//! The project's chores: `cargo xtask` with `ci`, `count`, `tidy`, `fuzz`, `soak`, `scale`, `compare`,
//! `ibv-layout`, `dashboard`, `dissector`, `docs`, `interop`, `guest`, `pynfs`, `record-mix`,
//! `record-messages`, `package`, `examples`, `features`, `rust-version`, `publish`, `semver`.

mod ci;
#[cfg(doc)]
pub mod design;
mod docs;
mod figures;
mod fuzz;
mod ibv_layout;
mod library;
mod package;
mod soak;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use interop::dashboard;
use measure::{compare, count, scale};

/// Development tasks of the project
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run all checks that a change must pass: format, lints, documentation, tests, interoperability
    Ci(ci::Options),
    /// Compare the instructions of calls at both ends with those that are committed (needs valgrind)
    Count(count::Options),
    /// Check what the compiler does not: compliance tables, limits, links, layers, import cycles
    Tidy(tidy::Options),
    /// Check the Grafana dashboard against a real Prometheus, a server and a gateway under load
    Dashboard(dashboard::Options),
    /// Check the dissector of contrib/wireshark against tshark and conversations in version two
    Dissector(dissector::Options),
    /// Compare or write the figures of pages, and build the documentation as a book, in target/docs/book
    Docs(docs::Options),
    /// Fuzz the parsers and state machines with libFuzzer
    Fuzz(fuzz::Options),
    /// Compare the bindings of verbs-ibv with the headers of rdma-core that are installed
    IbvLayout,
    /// Run clients and servers under faults, seed after seed, in virtual time
    Soak(soak::Options),
    /// Measure memory, rate and CPU time of a server with thousands of connections
    Scale(scale::Options),
    /// Time whole commands beside cp, Linux' NFS server and nfs-ganesha
    Compare(compare::Options),
    /// Be clients of the server that is measured
    #[command(hide = true)]
    ScaleClients(scale::ClientOptions),
    /// Test the program against a stock Debian kernel, booted in QEMU
    Interop(interop::Options),
    /// Run a program of this machine in a guest with a software RDMA device
    Guest(interop::GuestOptions),
    /// Run the NFSv4.1 suite of pynfs against the program
    Pynfs(interop::PynfsOptions),
    /// Record calls of Linux' NFS client, for `lab thresholds`
    RecordMix(interop::MixOptions),
    /// Record messages of Linux' NFS client and server, and what tshark finds in them
    RecordMessages(interop::MessageOptions),
    /// Build the Debian package and the container image
    Package(package::Options),
    /// Run the examples of the library
    Examples,
    /// Build the library with each set of features
    Features,
    /// Check that the minimum version of Rust is the one in use, or build with it
    RustVersion,
    /// Package each published crate and check it from the packages, without an upload
    Publish,
    /// Compare the public interface of published crates with the last release (cargo-semver-checks)
    Semver(library::SemverOptions),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Ci(options) => ci::run(&options),
        Chore::Count(options) => count::run(&options),
        Chore::Tidy(options) => tidy::run(&options),
        Chore::Dashboard(options) => dashboard::run(&options),
        Chore::Dissector(options) => dissector::run(&options),
        Chore::Docs(options) => docs::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::IbvLayout => ibv_layout::run(),
        Chore::Soak(options) => soak::run(&options),
        Chore::Scale(options) => scale::run(&options),
        Chore::Compare(options) => compare::run(&options),
        Chore::ScaleClients(options) => scale::run_clients(&options),
        Chore::Interop(options) => interop::run(&options, package::debian_package),
        Chore::Guest(options) => interop::run_in_guest(&options),
        Chore::Pynfs(options) => interop::run_pynfs(&options),
        Chore::RecordMix(options) => interop::record_mix(&options),
        Chore::RecordMessages(options) => interop::record_messages(&options),
        Chore::Package(options) => package::run(&options),
        Chore::Examples => library::examples(),
        Chore::Features => library::features(),
        Chore::RustVersion => library::rust_version(),
        Chore::Publish => library::publish(),
        Chore::Semver(options) => library::semver(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
