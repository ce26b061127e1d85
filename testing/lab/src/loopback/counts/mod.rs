//! `lab count`: instructions of a call by layer, without the kernel's.
//!
//! Both ends run under callgrind, once with few calls and once with more; the difference belongs to the calls. They take turns, so
//! that what an end does for a call does not depend on time.

mod callgrind;
mod ends;
mod instructions;
mod report;
mod turns;

use super::load::Operation;
use crate::usage::Usage;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use ends::Profiles;
use printing::print;
pub(crate) use report::Report;
use report::{Counted, End};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Count the instructions of calls at both ends, by layer
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  cargo run --profile dist -p lab -- count
  lab count --only null --layers
  lab count --json > counts.json
  lab count --against counts.json
  lab count --from counts.json --markdown

It needs valgrind and debug information in the program, and takes about a minute. Counts depend on the compiler, the profile, \
the C library and the instructions that the CPU has, and not on other work of the machine. Calls of version 3, and COMPOUNDs of \
version 4.1 with SEQUENCE and PUTFH, go over software iWARP without CRC, with ends that park; each runs until it would sleep, and then the other. --against exits with 1 where \
instructions, branches, atomic instructions or copied bytes differ by more than 3 %, or a call makes other allocations, and says \
which layers differ.")]
pub(crate) struct CountArgs {
    /// Count only this; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Show the instructions of each layer
    #[arg(long)]
    layers: bool,

    /// Compare with the counts in this file, made with --json
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// Show the counts in this file, and count nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["against", "only"])]
    from: Option<PathBuf>,

    /// Print the tables of a page
    #[arg(long, conflicts_with = "json")]
    markdown: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Be the server
    #[arg(long, hide = true)]
    server: bool,

    /// Be the client of this server
    #[arg(long, hide = true, requires = "calls")]
    client: Option<SocketAddr>,

    /// Number of calls of the client
    #[arg(long, hide = true)]
    calls: Option<usize>,
}

/// Calls that are counted.
struct Row {
    name: &'static str,
    operation: Operation,
    depth: usize,
    /// Calls whose instructions are counted.
    calls: usize,
}

const fn row(name: &'static str, operation: Operation, depth: usize, calls: usize) -> Row {
    Row {
        name,
        operation,
        depth,
        calls,
    }
}

/// All that can be counted.
const ROWS: [Row; 9] = [
    row("null", Operation::Null, 1, 300),
    row("read_4k", Operation::Read(4 << 10), 1, 300),
    row("read_4k_qd32", Operation::Read(4 << 10), 32, 1280),
    row("read_4k_v4", Operation::Read4(4 << 10), 1, 300),
    row("getattr", Operation::GetAttr, 1, 300),
    row("getattr_v4", Operation::GetAttr4, 1, 300),
    row("write_4k", Operation::Write(4 << 10), 1, 300),
    row("read_1m", Operation::Read(1 << 20), 1, 32),
    row("write_1m", Operation::Write(1 << 20), 1, 32),
];

/// Runs the command.
pub(crate) fn run(args: CountArgs) -> Result<()> {
    if args.server {
        return ends::serve();
    }
    let known = |name: &String| ROWS.iter().any(|row| row.name == name);
    if let Some(unknown) = args.only.iter().find(|name| !known(name)) {
        let names = ROWS.map(|row| row.name).join(", ");
        return Err(Usage(format!("there is no row {unknown}; there are {names}")).into());
    }
    let rows = || {
        ROWS.iter()
            .filter(|row| args.only.is_empty() || args.only.iter().any(|name| name == row.name))
    };
    if let (Some(server), Some(calls)) = (args.client, args.calls) {
        let row = rows().next().context("a client makes calls of one row")?;
        return ends::call(row, calls, server);
    }
    let report = match &args.from {
        Some(path) => Report::read(path)?,
        None => count(rows(), args.json)?,
    };
    if args.markdown {
        print(false, &report, Report::print_markdown)?;
    } else if args.layers {
        print(args.json, &report, Report::print_layers)?;
    } else {
        print(args.json, &report, Report::print)?;
    }
    match &args.against {
        Some(path) => report.compare(&Report::read(path)?),
        None => Ok(()),
    }
}

fn count<'a>(rows: impl Iterator<Item = &'a Row>, quiet: bool) -> Result<Report> {
    let folder = Scratch::new()?;
    let mut counted = Vec::new();
    for row in rows {
        if !quiet {
            eprintln!("counting {} …", row.name);
        }
        let of = |calls| {
            ends::count(row, calls, &folder.0).with_context(|| format!("counting {}", row.name))
        };
        // As many for pools to fill, and the tasks of all that are in flight at once.
        let both = std::thread::scope(|scope| {
            let few = scope.spawn(|| of(row.calls));
            let more = of(2 * row.calls);
            (few.join(), more)
        });
        let few = both
            .0
            .map_err(|_| anyhow!("counting {} has panicked", row.name));
        let (few, more): (Profiles, Profiles) = (few??, both.1?);
        counted.push(Counted {
            name: row.name.to_owned(),
            client: End::new(&more.client.since(&few.client), row.calls)?,
            server: End::new(&more.server.since(&few.server), row.calls)?,
        });
    }
    Ok(Report::new(counted))
}

/// A directory of this run, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("lab-count-{}", std::process::id()));
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left lies in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
