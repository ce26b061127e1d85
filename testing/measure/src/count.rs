//! `cargo xtask count`: the instructions of calls, compared with those that are committed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use programs::command::{build, output};
use programs::debian;

/// The counts that are committed, as `lab count --json` prints them.
const FILE: &str = "testing/lab/counts.json";

const VALGRIND: &str = "valgrind";

/// Arguments of `cargo build` for `lab`. The program is named too, and not built: with the features that it asks for, most that
/// `lab` uses is what the interoperability run has built.
const LAB: [&str; 4] = [
    "--release",
    "--package=lab",
    "--package=rpcrdma-cli",
    "--bin=lab",
];

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
/// Calls cost something else than they did, or they cannot be counted. Counts of another machine or compiler say nothing about
/// this one: then that is said, and nothing is compared.
pub fn run(options: &Options) -> Result<()> {
    if !is_possible(options.install)? {
        bail!(
            "there is no valgrind, which counts instructions:\n  {}",
            debian::by_hand(VALGRIND)
        );
    }
    let file = programs::root().join(FILE);
    let here = this_machine()?;
    if !options.write {
        let committed = counted_on(&file)?;
        if committed != here {
            eprintln!(
                "count: NOT compared: {FILE} is of {committed}, and here is {here}; `cargo xtask count --write` writes it anew"
            );
            return Ok(());
        }
    }
    let lab = build(&LAB, "lab")?;
    let mut count = Command::new(lab);
    count
        .args(["count", "--json"])
        .current_dir(programs::root());
    if options.write {
        let mut counts: Value = serde_json::from_str(&output(&mut count)?)?;
        counts[COUNTED_ON] = here.into();
        let mut counts = serde_json::to_string_pretty(&counts)?;
        counts.push('\n');
        return fs::write(&file, counts).with_context(|| format!("cannot write {FILE}"));
    }
    count.args(["--against", FILE]);
    let compared = output(&mut count).or_else(|error| {
        // What ends do each second adds to their calls on a busy machine, and takes nothing from them.
        eprintln!("count: {error:#}\ncount: once more, in case other work on this machine made the difference");
        output(&mut count)
    });
    compared.map(drop)
}

/// The key of what the committed counts depend on, beside the sources.
const COUNTED_ON: &str = "counted_on";

/// Compiler and machine of the committed counts, on which they depend beside the sources.
fn counted_on(file: &PathBuf) -> Result<String> {
    let text = fs::read(file).with_context(|| format!("cannot read {FILE}"))?;
    let counts: Value = serde_json::from_slice(&text)?;
    let machine = counts[COUNTED_ON].as_str();
    Ok(machine
        .with_context(|| format!("{FILE} does not say which machine it is of"))?
        .to_owned())
}

/// Compiler, C library, processor and valgrind here, on which counts depend beside the sources.
fn this_machine() -> Result<String> {
    let first_line = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    let said = |program: &str| output(Command::new(program).arg("--version")).map(first_line);
    let processor = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let processor = processor.map_or("unknown processor", |name| {
        name.trim_start_matches([' ', '\t', ':'])
    });
    let (compiler, library, valgrind) = (said("rustc")?, said("ldd")?, said(VALGRIND)?);
    Ok(format!("{compiler}, {library}, {processor}, {valgrind}"))
}
