//! `cargo xtask scale`: measures what thousands of connections cost a server.
//!
//! The server, `rpcrdma serve`, and the clients are processes of their own, on loopback. Each client
//! sets up a connection and calls NULL once; some go on calling, all others are idle.

mod clients;
mod crowd;
mod report;
mod wire;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::compared::Compared;
use crowd::{Crowd, Load};
use programs::command;
use programs::server::Server;
use report::{Aim, Report};

pub use clients::{ClientOptions, run as run_clients};

/// Options of `cargo xtask scale`.
#[derive(Args)]
#[command(
    after_help = "It needs two CPUs that are otherwise idle, and takes about a minute. Each \
connection takes a descriptor in the server and one in a process of clients."
)]
pub struct Options {
    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u16).range(100..=60_000))]
    connections: u16,

    /// The program that serves [default: build it, optimised]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Connections that are busy while all others are idle.
const BUSY: usize = 100;

/// Connections that are busy where the CPU of a call is measured.
const FEW: usize = 10;
const MANY: usize = 1000;

/// How often, and for how long, connections are busy.
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_secs(1);

/// How long after the last connection has gone memory is to be given back.
const AFTERWARDS: Duration = Duration::from_secs(10);

const MIB: f64 = (1 << 20) as f64;

/// Most memory with 10,000 connections, and so for each of them.
const MEMORY: f64 = 1024.0 * MIB;
const MEMORY_IS_FOR: f64 = 10_000.0;

/// Measures, and prints a table.
///
/// # Errors
///
/// Something cannot be measured, or a figure is not what it is to be.
pub fn run(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => command::build(&[command::SHIPPED, "--package=rpcrdma-cli"], "rpcrdma")?,
    };
    let scratch = programs::root().join("target/xtask/scale");
    std::fs::create_dir_all(&scratch).context("cannot make a folder for scratch files")?;
    let connections = usize::from(options.connections);
    // Room for one more, so that what is refused is not the last.
    let server = serve(&program, &scratch.join("crowded"), connections + 1)?;
    let beside = serve(&program, &scratch.join("beside"), connections + 1)?;
    let report = measure(&server, &beside, connections, !options.json)?;
    match options.json {
        true => println!("{:#}", report.json()),
        false => print!("{report}"),
    }
    match report.missed() {
        0 => Ok(()),
        missed => bail!("scale: {missed} figures are not what they are to be"),
    }
}

/// Measures `server` with ever more connections. The speed of a machine drifts, so what it does with
/// them is compared, round by round, with what the server `beside` it does with a hundred.
fn measure(server: &Server, beside: &Server, connections: usize, talk: bool) -> Result<Report> {
    let say = |what: &str| {
        if talk {
            eprintln!("{what} …");
        }
    };
    let mut report = Report::default();
    let begin = Instant::now();
    let before = server.resident()?;

    say("a hundred connections");
    let mut few = Crowd::new(beside.addr);
    let made = few.grow_to(BUSY)?;
    ensure!(
        made.made == BUSY,
        "{} of {BUSY} connections: {:?}",
        made.made,
        made.why
    );

    say("a thousand connections");
    let mut crowd = Crowd::new(server.addr);
    let many = connections.min(MANY);
    let mut opened = crowd.grow_to(many)?;
    // As many as there are, where there are fewer.
    let many = many.min(opened.made);
    let cpu = Compared::in_turn(
        ROUNDS,
        || cpu_per_call(beside, &mut few, FEW),
        || cpu_per_call(server, &mut crowd, many),
    )?;

    say("all connections");
    if opened.failed == 0 {
        opened.add(crowd.grow_to(connections)?);
    }
    let with_all = server.resident()?;
    let there = crowd.count()?;
    let rates = Compared::in_turn(ROUNDS, || rate(&mut few), || rate(&mut crowd))?;

    say("none");
    drop(crowd);
    thread::sleep(AFTERWARDS);
    let after = server.resident()?;

    let there = there as f64;
    let grown = with_all.saturating_sub(before) as f64;
    let mib = |bytes: u64| bytes as f64 / MIB;
    let kept = after.saturating_sub(before) as f64 / MIB;
    let each = MEMORY / MEMORY_IS_FOR / 1024.0;
    report.add(
        "connections with one NULL each",
        there,
        "",
        Aim::AtLeast(connections as f64),
    );
    report.add(
        "  made in a second",
        opened.made as f64 / opened.seconds,
        "",
        Aim::None,
    );
    let grant = opened.least_grant.unwrap_or(0) as f64;
    report.add(
        "  fewest credits granted",
        grant,
        "",
        Aim::AtLeast(f64::from(wire::CREDITS)),
    );
    report.add(
        "memory of the server (VmRSS) before",
        mib(before),
        "MiB",
        Aim::None,
    );
    report.add(
        "  with all connections",
        mib(with_all),
        "MiB",
        Aim::AtMost(MEMORY / MIB),
    );
    report.add(
        "  for each connection",
        grown / there / 1024.0,
        "KiB",
        Aim::AtMost(each),
    );
    report.add(
        "  10 s after all have gone, beyond that before",
        kept,
        "MiB",
        Aim::AtMost(64.0),
    );
    report.add(
        "NULLs in a second of 100 busy connections alone",
        rates.first.median,
        "",
        Aim::None,
    );
    report.add("  with all others idle", rates.second.median, "", Aim::None);
    report.add("  ratio", rates.ratio.median, "", Aim::AtLeast(0.9));
    report.add(
        "CPU of the server for a NULL, 10 busy connections",
        cpu.first.median,
        "us",
        Aim::None,
    );
    report.add(
        "  busy connections in comparison",
        many as f64,
        "",
        Aim::AtLeast(MANY as f64),
    );
    report.add(
        "  CPU of the server for a NULL with them",
        cpu.second.median,
        "us",
        Aim::None,
    );
    report.add("  ratio", cpu.ratio.median, "", Aim::AtMost(1.3));
    report.add(
        "time of this run",
        begin.elapsed().as_secs_f64(),
        "s",
        Aim::None,
    );
    report.why = opened.why;
    Ok(report)
}

/// Serves an empty directory, without CRCs.
fn serve(program: &Path, scratch: &Path, connections: usize) -> Result<Server> {
    let options = [
        "--no-crc",
        "--idle-timeout",
        "0",
        "--max-connections",
        &connections.to_string(),
    ];
    Server::start(program, &scratch.join("export"), scratch, &options)
}

/// NULLs in a second of a hundred busy connections.
fn rate(crowd: &mut Crowd) -> Result<f64> {
    let Load { calls, seconds } = crowd.busy(BUSY, ROUND)?;
    Ok(calls / seconds)
}

/// Microseconds of the server's CPU for a NULL with so many busy connections.
fn cpu_per_call(server: &Server, crowd: &mut Crowd, connections: usize) -> Result<f64> {
    let before = server.cpu()?;
    let load = crowd.busy(connections, ROUND)?;
    Ok((server.cpu()? - before) * 1e6 / load.calls)
}
