//! `cargo xtask fuzz`: the targets of the crate `fuzz` under libFuzzer.
//!
//! The stable compiler can instrument code for coverage, and bolero brings libFuzzer as source: a
//! C++ compiler is all that is needed beside Rust. What a target finds is left where the same
//! target looks for it under `cargo test`, which fails from then on.

mod build;
mod engine;

use std::num::NonZeroUsize;
use std::sync::Mutex;

use anyhow::{Result, bail};
use clap::Args;

use engine::Run;

use programs::parallel::{self, lock};

/// Seconds for each target in CI: all of them together take about half a minute.
const CI_SECONDS: u64 = 2;

#[derive(Args)]
pub(crate) struct Options {
    /// Fuzz this target; may be given several times [default: all targets]
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// How long to fuzz each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Targets to fuzz at a time
    #[arg(long, value_name = "N", default_value = "1")]
    jobs: NonZeroUsize,
    /// Afterwards replace each committed corpus by the smallest that covers as much, found inputs
    /// included
    #[arg(long)]
    minimise: bool,
    /// Print the names of the targets and stop
    #[arg(long)]
    list: bool,
    /// First install the Debian package that is needed (apt-get, as root or with sudo)
    #[arg(long)]
    install: bool,
}

impl Options {
    /// Every target, briefly.
    pub(crate) fn for_ci(install: bool) -> Self {
        Self {
            target: Vec::new(),
            seconds: CI_SECONDS,
            jobs: parallel::one_for_each_cpu(),
            minimise: false,
            list: false,
            install,
        }
    }
}

/// Fuzzes.
///
/// # Errors
///
/// What is needed is missing, or at least one target found something.
pub(crate) fn run(options: &Options) -> Result<()> {
    build::provide_compiler(options.install)?;
    let program = build::program()?;
    let known = engine::targets(&program)?;
    if options.list {
        known.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if let Some(unknown) = options.target.iter().find(|name| !known.contains(name)) {
        bail!("no target {unknown}; there are {}", known.join(", "));
    }
    let chosen = match options.target.as_slice() {
        [] => known,
        some => some.to_vec(),
    };
    let failed = Mutex::new(Vec::new());
    parallel::each(options.jobs, chosen, |target| {
        let run = Run::new(&program, &target);
        if let Err(error) = run.fuzz(options.seconds, options.minimise) {
            eprintln!("{target}: {error:#}");
            lock(&failed).push(target);
        }
    });
    let failed = lock(&failed);
    if failed.is_empty() {
        return Ok(());
    }
    bail!("findings in {}", failed.join(", "))
}
