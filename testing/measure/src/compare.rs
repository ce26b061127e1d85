//! `cargo xtask compare`: times of whole commands beside those of what people use today.
//!
//! `rpcrdma get` and `rpcrdma put`, with `rpcrdma serve` on loopback, beside `cp`. With `--guest`: our server
//! beside the kernel's, under the kernel's client in a virtual machine. With `--ganesha`: many small files on
//! our server beside nfs-ganesha, on a disk. With `--gateway`: two gateways beside two socats, as ways to
//! nfs-ganesha; with `--gateway --guest`: one gateway beside one socat, under the kernel's client. With
//! `--random-reads`: small READs from our server beside nfs-ganesha, or with `--guest` the kernel's server.

mod content;
mod copies;
mod files;
mod linux;
mod machine;
mod random_reads;
mod relays;
mod requirements;
mod scratch;
mod servers;
mod table;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;

use programs::command;
use table::Table;

/// Options of `cargo xtask compare`.
#[derive(Args)]
#[command(
    after_help = "It needs a machine that is otherwise idle, and takes some minutes. Where other work \
cannot be stopped, root can put it last: chrt -r 1 cargo xtask compare. Without --guest it needs 4 GiB of \
memory on a tmpfs; with --guest it needs what cargo xtask interop does."
)]
pub struct Options {
    /// Compare servers instead: ours with the kernel's, both in Debian 12's kernel booted in QEMU. With
    /// --gateway: that kernel's client, through one gateway with one socat
    #[arg(long, conflicts_with_all = ["scratch", "only"])]
    guest: bool,

    /// Version of NFS of --guest
    #[arg(long, value_name = "VERSION", default_value = "3", requires = "guest", conflicts_with = "loads",
        value_parser = ["3", "4.1", "4.2"])]
    nfs: String,

    /// Compare many small files on a disk instead: our server with nfs-ganesha, as root
    #[arg(long, conflicts_with_all = ["guest", "scratch"])]
    ganesha: bool,

    /// Compare ways to nfs-ganesha instead, as root: two gateways (TCP to RDMA to TCP) with two socats
    #[arg(long, group = "loads", conflicts_with_all = ["ganesha", "only"])]
    gateway: bool,

    /// Compare random READs of 4 KiB instead, over 1, 4 and 16 connections with 32 in flight on each: from our server over
    /// RDMA and TCP, and from nfs-ganesha over TCP, as root. With --guest: from ours and the kernel's, and all in the guest
    #[arg(long, group = "loads", conflicts_with_all = ["ganesha", "only"])]
    random_reads: bool,

    /// Milliseconds of each measurement of --gateway and --random-reads
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "loads",
        value_parser = clap::value_parser!(u32).range(10..=60_000))]
    time: u32,

    /// Idle connections with which --gateway measures memory
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "gateway",
        value_parser = clap::value_parser!(u16).range(1..=9000))]
    connections: u16,

    /// A directory on the disk where --ganesha makes its files [default: target/xtask]
    #[arg(long, value_name = "DIR", requires = "ganesha")]
    disk: Option<PathBuf>,

    /// Files that --ganesha makes in each phase
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "ganesha",
        value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    files: u32,

    /// First install the Debian packages that --guest needs (apt-get, as root or with sudo)
    #[arg(long, requires = "guest")]
    install: bool,

    /// How often each is timed
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,

    /// Only rows with this in their name (may be given again)
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,

    /// The program to time [default: build it, optimised]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// A directory of a tmpfs, where everything is copied
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Options {
    fn selects(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| row.contains(text.as_str()))
    }
}

/// Compares, and prints a table.
///
/// # Errors
///
/// Something cannot be measured. A ratio that is too high is no error.
pub fn run(options: &Options) -> Result<()> {
    let program = match &options.program {
        Some(program) => program.canonicalize().context("no such program")?,
        None => command::build(&[command::SHIPPED, "--package=rpcrdma-cli"], "rpcrdma")?,
    };
    let machine = machine::facts()?;
    let begin = Instant::now();
    let rounds = usize::from(options.rounds);
    let say = |what: &str| {
        if !options.json {
            eprintln!("{what} ...");
        }
    };
    if options.random_reads {
        let amount = random_reads::Amount {
            rounds: options.rounds,
            milliseconds: options.time,
        };
        let reads = match options.guest {
            true => random_reads::in_guest(&program, amount, options.install)?,
            false => random_reads::on_host(&program, &options.scratch, amount)?,
        };
        let seconds = begin.elapsed().as_secs_f64();
        match options.json {
            true => println!(
                "{:#}",
                json!({ "machine": machine.json(), "seconds": seconds, "random_reads": reads.json() })
            ),
            false => print!("On {machine}\n{reads}"),
        }
        return Ok(());
    }
    if options.gateway && !options.guest {
        let amount = relays::Amount {
            rounds: options.rounds,
            milliseconds: options.time,
            connections: options.connections,
        };
        let relays = relays::measure(&program, &options.scratch, amount)?;
        let seconds = begin.elapsed().as_secs_f64();
        match options.json {
            true => println!(
                "{:#}",
                json!({ "machine": machine.json(), "seconds": seconds, "relays": relays.json() })
            ),
            false => print!("On {machine}\n{relays}"),
        }
        return Ok(());
    }
    let (rows, guest) = if options.guest {
        let (rows, guest) = match options.gateway {
            true => linux::measure(&program, rounds, options.install)?,
            false => servers::measure(&program, &options.nfs, rounds, options.install)?,
        };
        (rows, Some(guest))
    } else {
        let selects = |name: &str| options.selects(name);
        let rows = match options.ganesha {
            true => {
                let disk = options.disk.clone();
                let disk = disk.unwrap_or_else(|| programs::root().join("target/xtask"));
                files::measure(&program, &disk, options.files, rounds, &selects)?
            }
            false => copies::measure(&program, &options.scratch, rounds, &selects, &say)?,
        };
        ensure!(!rows.is_empty(), "no row has such a name");
        (rows, None)
    };
    let table = Table {
        machine,
        guest,
        rounds,
        seconds: begin.elapsed().as_secs_f64(),
        rows,
    };
    match options.json {
        true => println!("{:#}", table.json()),
        false => print!("{table}"),
    }
    Ok(())
}
