//! `cargo xtask count`: the instructions of calls, compared with those that are committed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use programs::command::{build, output};
use programs::debian;

/// The counts that are committed, as `lab count --json` prints them.
const FILE: &str = "testing/lab/counts.json";

const VALGRIND: &str = "valgrind";

/// Options of `cargo xtask count`.
#[derive(Args, Default)]
pub struct Options {
    /// Write the counts of this machine and compiler, instead of comparing
    #[arg(long)]
    write: bool,
    /// First install valgrind (apt-get, as root or with sudo)
    #[arg(long)]
    install: bool,
}

/// Whether instructions can be counted on this machine, where valgrind may first be installed.
///
/// # Errors
///
/// It is to be installed and cannot be.
pub fn is_possible(install: bool) -> Result<bool> {
    if install && !debian::has(VALGRIND) {
        debian::install(VALGRIND, VALGRIND)?;
    }
    Ok(debian::has(VALGRIND))
}

/// Counts, and compares with the committed counts, or writes them.
///
/// # Errors
///
/// Calls cost something else than they did, or they cannot be counted. Counts of another compiler say nothing about this one:
/// then that is said, and nothing is compared.
pub fn run(options: &Options) -> Result<()> {
    if !is_possible(options.install)? {
        bail!(
            "there is no valgrind, which counts instructions:\n  {}",
            debian::by_hand(VALGRIND)
        );
    }
    let file = programs::root().join(FILE);
    let committed = compiler_of(&file)?;
    let compiler = output(Command::new("rustc").arg("--version"))?;
    let compiler = compiler.trim();
    if !options.write && !committed.starts_with(&format!("{compiler},")) {
        eprintln!(
            "count: NOT compared: {FILE} is of {committed}, and here is {compiler}; `cargo xtask count --write` writes it anew"
        );
        return Ok(());
    }
    // As the interoperability run builds it.
    let lab = build(&["--release", "--package=lab"], "lab")?;
    let mut count = Command::new(lab);
    count
        .args(["count", "--json"])
        .current_dir(programs::root());
    if options.write {
        let counts = output(&mut count)?;
        return fs::write(&file, counts).with_context(|| format!("cannot write {FILE}"));
    }
    output(count.args(["--against", FILE])).map(drop)
}

/// Compiler and profile of the committed counts.
fn compiler_of(file: &PathBuf) -> Result<String> {
    let text = fs::read(file).with_context(|| format!("cannot read {FILE}"))?;
    let counts: serde_json::Value = serde_json::from_slice(&text)?;
    let compiler = counts["built_with"].as_str();
    Ok(compiler
        .with_context(|| format!("{FILE} does not say which compiler it is of"))?
        .to_owned())
}
