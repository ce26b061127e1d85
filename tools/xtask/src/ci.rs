//! `cargo xtask ci`: the same checks as `.ci/run`, in the same order.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::{docs, fuzz, library, tidy};
use measure::count;
use programs::command::cargo;

#[derive(Args)]
pub(crate) struct Options {
    /// First install the Debian packages that the interoperability run and counts of instructions need (apt-get, root or sudo)
    #[arg(long)]
    install: bool,
    /// Leave out the interoperability run
    #[arg(long)]
    no_interop: bool,
}

/// One check by cargo.
struct Check {
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const CHECKS: [Check; 5] = [
    Check {
        name: "format",
        arguments: &["fmt", "--all", "--check"],
        environment: &[],
    },
    Check {
        name: "lints",
        arguments: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
    },
    // Tests that need a device are not among all targets. With the features of the whole workspace, as above.
    Check {
        name: "device tests",
        arguments: &[
            "clippy",
            "--workspace",
            "--test",
            "conformance",
            "--test",
            "stack",
            "--test",
            "software_iwarp",
            "--",
            "-D",
            "warnings",
        ],
        environment: &[],
    },
    Check {
        name: "documentation",
        arguments: &["doc", "--workspace", "--no-deps"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
    },
    Check {
        name: "tests",
        arguments: &["test", "--workspace"],
        environment: &[],
    },
];

/// Runs every check and says at the end which ones failed.
///
/// # Errors
///
/// At least one check failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut results = Vec::new();
    for check in &CHECKS {
        announce(check.name);
        let start = Instant::now();
        let status = cargo()
            .args(check.arguments)
            .envs(check.environment.iter().copied())
            .status()?;
        results.push((check.name, status.success(), start.elapsed()));
    }
    let mut step = |name, step: &dyn Fn() -> Result<()>| {
        announce(name);
        let start = Instant::now();
        let done = step();
        if let Err(error) = &done {
            eprintln!("ci: {error:#}");
        }
        results.push((name, done.is_ok(), start.elapsed()));
    };
    step("tidy", &|| tidy::run(&tidy::Options::default()));
    step("examples", &library::examples);
    step("features", &library::features);
    step("minimum Rust", &library::rust_version);
    step("packages", &library::publish);
    step("book", &|| docs::run(&docs::Options::default()));
    step("fuzzing", &|| {
        fuzz::run(&fuzz::Options::for_ci(options.install))
    });
    if !options.no_interop {
        step("interoperability", &|| {
            interop::run(
                &interop::Options::for_ci(options.install),
                crate::package::debian_package,
            )
        });
    }
    // Behind it, as it builds the same program.
    match count::is_possible(options.install) {
        Ok(false) => eprintln!("\nci: instructions are NOT counted: there is no valgrind"),
        Ok(true) | Err(_) => step("instructions", &|| count::run(&count::Options::default())),
    }
    summary(&results)
}

fn announce(name: &str) {
    eprintln!("\n==== ci: {name}");
}

fn summary(results: &[(&str, bool, Duration)]) -> Result<()> {
    eprintln!("\n==== ci: summary");
    for (name, passed, took) in results {
        let verdict = if *passed { "ok" } else { "FAILED" };
        eprintln!("{name:<20} {verdict:<8} {:>7.1} s", took.as_secs_f64());
    }
    let failed: Vec<_> = results
        .iter()
        .filter(|(_, passed, _)| !passed)
        .map(|(name, ..)| *name)
        .collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}
