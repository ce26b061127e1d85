//! Rate and latency of an NFS server over TCP or RDMA.
//!
//! Made to compare ways to one server, directly and through relays, and servers with each other. Each command prints one
//! line of JSON. `cargo xtask compare --gateway` and `--random-reads` run it.

mod connection;
mod idle;
mod load;
mod random;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use connection::{Connection, Crc};
use load::File;
use nfs_client::{Export, Mount, current_user};
use tokio::runtime::Runtime;

/// Measure an NFS server over TCP or RDMA
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the file, read it, and compare: what is measured is then known to work
    Check(Place),
    /// Median time of NULL, one by one, in microseconds
    Null(Timed),
    /// Median time of GETATTR, one by one, in microseconds
    Getattr(Timed),
    /// READs of 1 MiB, eight in flight, in MiB/s
    Read(Timed),
    /// WRITEs of 1 MiB (UNSTABLE), eight in flight, in MiB/s
    Write(Timed),
    /// READs of 4 KiB at random places of the file, which "check" wrote, with 32 in flight on each connection: how many in
    /// which time, and the seconds of CPU of the server, of this program, and of the machine with all that runs on it
    Random {
        #[command(flatten)]
        timed: Timed,

        #[command(flatten)]
        load: random::Load,
    },
    /// Open connections, call NULL once on each, and keep them until standard input ends
    Idle {
        /// The NFS server, or what relays to it
        #[arg(long, value_name = "ADDR:PORT")]
        nfs: SocketAddr,

        /// Connections
        #[arg(long, value_name = "N", default_value_t = 1000,
            value_parser = clap::value_parser!(u16).range(1..=60_000))]
        connections: u16,
    },
}

#[derive(Args)]
struct Place {
    /// The NFS server, or what relays to it
    #[arg(long, value_name = "ADDR:PORT")]
    nfs: SocketAddr,

    /// The MOUNT server [default: the NFS server]
    #[arg(long, value_name = "ADDR:PORT")]
    mount: Option<SocketAddr>,

    /// They speak RPC-over-RDMA, over software iWARP, with CRCs (`on`) or without
    #[arg(long, value_name = "CRC", num_args = 0..=1, default_missing_value = "on")]
    rdma: Option<Crc>,

    /// The export, where the file is made
    #[arg(long, value_name = "PATH", default_value = "/")]
    export: String,

    /// Name of the file
    #[arg(long, value_name = "NAME", default_value = "relay-load")]
    name: String,

    /// Size of the file
    #[arg(long, value_name = "MIB", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: u64,
}

#[derive(Args)]
struct Timed {
    #[command(flatten)]
    place: Place,

    /// How long to measure, after a tenth of that without, or a quarter for `random`
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(10..=600_000))]
    time: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    runtime()?.block_on(async {
        match command {
            Command::Check(place) => open(place).await?.check().await,
            Command::Null(timed) => open(&timed.place).await?.null(span(timed)).await,
            Command::Getattr(timed) => open(&timed.place).await?.getattr(span(timed)).await,
            Command::Read(timed) => open(&timed.place).await?.read(span(timed)).await,
            Command::Write(timed) => open(&timed.place).await?.write(span(timed)).await,
            Command::Random { timed, load } => random::run(&timed.place, load, span(timed)),
            Command::Idle { nfs, connections } => idle::run(*nfs, (*connections).into()).await,
        }
    })
}

/// One thread, so that no figure has the time of a change of threads within this process.
fn runtime() -> Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_all().build()?)
}

fn span(timed: &Timed) -> Duration {
    Duration::from_millis(timed.time)
}

async fn open(place: &Place) -> Result<File> {
    let mount = Connection::open(place.mount.unwrap_or(place.nfs), place.rdma).await?;
    let mounted = Mount::new(mount, current_user())
        .mount(&place.export)
        .await?;
    let nfs = Connection::open(place.nfs, place.rdma).await?;
    let export = Export::open(nfs, current_user(), mounted.handle).await?;
    File::open(export, &place.name, place.mib).await
}
