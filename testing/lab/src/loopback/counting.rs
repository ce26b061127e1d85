//! Allocations of each operation.
//!
//! A program that counts allocations is slower, so it is another one than that whose times are
//! measured, and runs by itself: `lab self` starts it, and it starts a second process of its own.

use super::Measurement;
use super::child::{Child, Usage};
use super::load::Load;
use super::report::Allocations;
use anyhow::{Context, Result, ensure};
use printing::print;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that counts. It lies beside the one that runs.
const PROGRAM: &str = "lab-counting";

/// Operations before anything is counted, for pools to fill.
const WARM_UP: usize = 200;

/// Operations that are counted.
const COUNTED: usize = 1000;

/// Counts by the name of the measurement.
pub(super) type Counted = BTreeMap<String, Allocations>;

/// Starts the program that counts, for the measurements asked for.
///
/// # Errors
///
/// It is not there, cannot be started, or fails.
pub(super) fn ask(only: &[String]) -> Result<Counted> {
    let ours = std::env::current_exe()?;
    let program = ours.with_file_name(PROGRAM);
    ensure!(program.is_file(), "{}", how_to_get(&program, &ours));
    let only = only.iter().flat_map(|name| ["--only", name]);
    let done = Command::new(&program)
        .args(["self", "--count-allocations"])
        .args(only)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(done.status.success(), "{PROGRAM} failed: {}", done.status);
    serde_json::from_slice(&done.stdout).with_context(|| format!("{PROGRAM} is of another version"))
}

fn how_to_get(program: &Path, ours: &Path) -> String {
    let profile = ours.parent().and_then(Path::file_name);
    let profile = match profile.and_then(OsStr::to_str) {
        Some("release") => "--release ",
        Some("dist") => "--profile dist ",
        _ => "",
    };
    format!(
        "there is no {}; `cargo build {profile}-p lab` makes it",
        shorter(program).display()
    )
}

/// A path as one would type it here.
fn shorter(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).to_owned()
}

/// Is the program that counts: prints one JSON document.
pub(super) async fn count<'a>(measurements: impl Iterator<Item = &'a Measurement>) -> Result<()> {
    let mut child = Child::start().context("cannot start the second process")?;
    let mut counted = Counted::new();
    for measurement in measurements {
        let allocations = one(measurement, &mut child).await;
        let allocations = allocations.with_context(|| format!("counting {}", measurement.name))?;
        counted.insert(measurement.name.to_owned(), allocations);
    }
    print(true, &counted, |_, _| Ok(()))?;
    Ok(())
}

async fn one(m: &Measurement, child: &mut Child) -> Result<Allocations> {
    let load = m.connect(child).await?;
    load.run(WARM_UP).await?;
    let before = so_far(&load, child)?;
    load.run(COUNTED).await?;
    let after = so_far(&load, child)?;
    load.close().await;
    let per_operation = |end: usize| (after[end] - before[end]) as f64 / COUNTED as f64;
    Ok(Allocations {
        client: per_operation(0),
        server: per_operation(1),
    })
}

/// Allocations of client and server.
fn so_far(load: &Load, child: &mut Child) -> Result<[u64; 2]> {
    let client = Usage::of_this_process(load.io()).allocations;
    let counts = client.zip(child.usage()?.allocations);
    let (client, server) = counts.context("the allocator of this program does not count")?;
    Ok([client, server])
}
