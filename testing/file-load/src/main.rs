//! Times of many small files on an NFS server, or in a directory of this machine.
//!
//! Each phase prints one line of JSON. The phases are the same over RPC-over-RDMA and over TCP, so that
//! servers can be compared which have only one of them, and every call is made by the same client.

mod local;
mod phases;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Parser};
use nfs_client::{Export, Mount, current_user};
use oncrpc::Transport;
use phases::Phases;
use serde_json::json;

/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time many small files on an NFS server, or in a directory
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    place: Place,

    /// Address of MOUNT over TCP, if not that of NFS
    #[arg(long, value_name = "ADDR:PORT", requires = "tcp")]
    mount: Option<SocketAddr>,

    /// The export
    #[arg(long, value_name = "PATH", default_value = "/")]
    export: String,

    /// A directory made for this run, in the export or in the local directory; it is removed again
    #[arg(long, value_name = "NAME", default_value = "file-load")]
    name: String,

    /// Files of each phase
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,

    /// Bytes of each file
    #[arg(long, value_name = "BYTES", default_value_t = 4096,
        value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    size: u32,

    /// Files in flight
    #[arg(long, value_name = "N", default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,

    /// Files that are made one after the other
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    alone: u32,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Place {
    /// A server of RPC-over-RDMA, over software iWARP
    #[arg(long, value_name = "ADDR:PORT")]
    rdma: Option<SocketAddr>,

    /// A server over TCP
    #[arg(long, value_name = "ADDR:PORT")]
    tcp: Option<SocketAddr>,

    /// A directory of this machine, used by as many threads as files are in flight
    #[arg(long, value_name = "DIR")]
    local: Option<PathBuf>,
}

/// How much there is to do.
#[derive(Clone, Copy)]
struct Amount {
    files: u32,
    alone: u32,
    size: usize,
    depth: u32,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("file-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Arguments) -> Result<()> {
    let amount = Amount {
        files: args.files,
        alone: args.alone,
        size: usize::try_from(args.size)?,
        depth: args.depth.into(),
    };
    if let Some(dir) = &args.place.local {
        return local::run(&dir.join(&args.name), amount);
    }
    tokio::runtime::Runtime::new()?.block_on(over_network(args, amount))
}

async fn over_network(args: &Arguments, amount: Amount) -> Result<()> {
    if let Some(addr) = args.place.rdma {
        let provider = Arc::new(verbs_iwarp::Iwarp::new(verbs_iwarp::Config::default()));
        let client = rpcrdma::Client::connect(provider, addr, rpcrdma::ClientConfig::default())
            .await
            .with_context(|| format!("cannot connect to {addr}"))?;
        return phases(args, amount, client.clone(), client).await;
    }
    let addr = args.place.tcp.context("no server")?;
    let connect = |addr: SocketAddr| async move {
        oncrpc_tcp::Client::connect(addr, TIMEOUT)
            .await
            .with_context(|| format!("cannot connect to {addr}"))
    };
    let mount = connect(args.mount.unwrap_or(addr)).await?;
    phases(args, amount, mount, connect(addr).await?).await
}

async fn phases<M, T>(args: &Arguments, amount: Amount, mount: M, nfs: T) -> Result<()>
where
    M: Transport + Send + Sync,
    T: Transport + Send + Sync + 'static,
{
    let mounted = Mount::new(mount, current_user())
        .mount(&args.export)
        .await?;
    let export = Export::open(nfs, current_user(), mounted.handle).await?;
    Phases::new(export, &args.name, amount).await?.run().await
}

/// Says how long a phase took.
fn say(phase: &str, depth: u32, files: u32, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    let line = json!({ "phase": phase, "depth": depth, "files": files, "seconds": seconds });
    println!("{line}");
}

/// The name of a file.
fn file_name(phase: &str, number: u32) -> String {
    format!("{phase}-{number:08}")
}
