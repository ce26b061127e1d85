//! `cargo xtask soak`: clients and servers under faults, seed after seed.

use anyhow::{Result, bail};
use clap::Args;

use programs::command::cargo;

#[derive(Args)]
pub(crate) struct Options {
    /// Stop after so many seconds [default: 10, or none where --seeds is given]
    #[arg(long)]
    seconds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after so many seeds
    #[arg(long)]
    seeds: Option<u64>,
    /// Only this scenario; may be given several times
    #[arg(long = "scenario", value_name = "NAME")]
    scenarios: Vec<String>,
    /// Go on after a seed that shows something, and count them
    #[arg(long)]
    keep_going: bool,
    /// Say what happens: with one seed and one scenario, to replay it
    #[arg(short, long)]
    verbose: bool,
    /// List the scenarios
    #[arg(long)]
    list: bool,
}

/// Builds the program, optimised but with its checks, and runs it.
///
/// # Errors
///
/// It cannot be built, or a seed shows something that must not be; it has said what.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = cargo();
    command.args([
        "run",
        "--quiet",
        "--profile",
        "fuzz",
        "--package",
        "soak",
        "--",
    ]);
    command.arg(format!("--seed={}", options.seed));
    command.args(
        options
            .seconds
            .map(|seconds| format!("--seconds={seconds}")),
    );
    command.args(options.seeds.map(|seeds| format!("--seeds={seeds}")));
    command.args(
        options
            .scenarios
            .iter()
            .map(|name| format!("--scenario={name}")),
    );
    let flags = [
        (options.keep_going, "--keep-going"),
        (options.verbose, "--verbose"),
        (options.list, "--list"),
    ];
    command.args(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag));
    let status = command.status()?;
    if !status.success() {
        bail!("the soak failed ({status})");
    }
    Ok(())
}
