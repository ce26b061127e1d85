//! `cargo xtask semver`: whether the versions of the published crates tell of breaking changes.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::rust_version::target_dir;
use programs::command::{line, output};
use programs::tool::Tool;

/// Compares interfaces; this version knows the form of rustdoc's output that the minimum version of Rust
/// writes.
const SEMVER_CHECKS: Tool = Tool {
    name: "cargo-semver-checks",
    version: "0.51.0",
    arguments: &[],
};

/// The revision to compare with as long as no release has a tag: the first one with the interface that
/// is to be kept.
const FIRST_BASELINE: &str = "a8dbf4b9";

#[derive(Args)]
pub(crate) struct Options {
    /// Revision of the last release [default: the last tag v*; if there is none, the first baseline]
    #[arg(long, value_name = "REV")]
    baseline: Option<String>,
    /// Check only this crate; can be given several times
    #[arg(long, short, value_name = "CRATE")]
    package: Vec<String>,
}

/// Compares the public interface of each published crate with that of the last release.
///
/// # Errors
///
/// A breaking change without the version that tells of it; or the tool cannot be had.
pub(crate) fn run(options: &Options) -> Result<()> {
    let baseline = match &options.baseline {
        Some(revision) => revision.clone(),
        None => last_release(),
    };
    // A revision that is not there is told before the tool is built.
    let mut resolve = git();
    resolve.args(["rev-parse", "--verify", "--quiet"]);
    resolve.arg(format!("{baseline}^{{commit}}"));
    let commit = output(&mut resolve).with_context(|| format!("no revision '{baseline}'"))?;
    let tool = SEMVER_CHECKS.find(&target_dir()?.join("tools"), |what| eprintln!("{what}"))?;
    eprintln!("comparing with {baseline}");
    let mut check = Command::new(tool);
    check.current_dir(programs::root());
    check.args(["semver-checks", "--baseline-rev", commit.trim()]);
    match &options.package[..] {
        [] => {
            check.arg("--workspace");
        }
        packages => {
            packages.iter().for_each(|package| {
                check.args(["--package", package]);
            });
        }
    }
    let status = check.status().with_context(|| line(&check))?;
    if !status.success() {
        bail!("a breaking change needs another version (or the comparison failed)");
    }
    Ok(())
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(programs::root());
    git
}

/// The last tag of a release, or the first baseline.
fn last_release() -> String {
    let mut describe = git();
    describe.args(["describe", "--tags", "--abbrev=0", "--match", "v*"]);
    match output(&mut describe) {
        Ok(tag) => tag.trim().to_owned(),
        Err(_) => FIRST_BASELINE.to_owned(),
    }
}
