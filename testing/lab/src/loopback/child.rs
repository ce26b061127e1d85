//! The second process: a file in memory, served in every way that is measured.
//!
//! It says in one line of JSON where it listens, answers each line on its standard input with another,
//! and ends with its input.

use super::profiler::{Profiler, Tally};
use super::raw;
use super::spinning::{Spinning, pin};
use crate::allocations;
use anyhow::{Context, Result, bail, ensure};
use buffer::Pool;
use nfs_server::{
    ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3, Nfs4, Nfs4Settings, Nfs4State,
};
use oncrpc::{Programs, Service};
use rpcrdma::{Server, ServerConfig};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use tokio::net::TcpListener;
use verbs::IoCounters;
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// Resources that a process has used.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Usage {
    pub(super) cpu_ns: u64,
    pub(super) syscalls: u64,
    /// `None` where the allocator does not count.
    pub(super) allocations: Option<u64>,
    pub(super) bytes_copied: u64,
    pub(super) resident: u64,
}

impl Usage {
    pub(super) fn of_this_process(io: IoCounters) -> Self {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let ns = cpu.tv_sec * 1_000_000_000 + cpu.tv_nsec;
        Self {
            cpu_ns: u64::try_from(ns).unwrap_or(0),
            syscalls: io.reads + io.writes,
            allocations: allocations::count(),
            bytes_copied: io.bytes_copied,
            resident: resident(),
        }
    }
}

/// Bytes of memory that this process has touched and not given back; 0 if nobody knows.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Addresses at which the second process listens.
#[derive(Debug, Deserialize, Serialize)]
struct Addresses {
    /// Plain TCP: ends that spin, and ends that park.
    raw: [SocketAddr; 2],
    /// CRC off and on, first those that spin, then those that park.
    servers: [SocketAddr; 4],
}

/// Which of the servers it is.
fn index(crc: bool, spinning: Spinning) -> usize {
    usize::from(crc) + 2 * usize::from(spinning == Spinning::Park)
}

/// The second process, seen from the first. It ends when this is dropped.
pub(super) struct Child {
    process: std::process::Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    addresses: Addresses,
}

impl Child {
    pub(super) fn start() -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["self", "--child"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = process.stdin.take();
        let mut answers = BufReader::new(process.stdout.take().context("its output is a pipe")?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        ensure!(!line.is_empty(), "it ended at once");
        let addresses = serde_json::from_str(&line)?;
        Ok(Self {
            process,
            ask,
            answers,
            addresses,
        })
    }

    pub(super) fn raw(&self, spinning: Spinning) -> SocketAddr {
        self.addresses.raw[usize::from(spinning == Spinning::Park)]
    }

    pub(super) fn server(&self, crc: bool, spinning: Spinning) -> SocketAddr {
        self.addresses.servers[index(crc, spinning)]
    }

    /// Resources that it has used so far.
    pub(super) fn usage(&mut self) -> Result<Usage> {
        self.ask(USAGE)
    }

    /// Has it take samples of itself.
    pub(super) fn start_sampling(&mut self) -> Result<()> {
        self.ask(START_SAMPLING)
    }

    /// Ends that, and gives what it found.
    pub(super) fn stop_sampling(&mut self) -> Result<Tally> {
        self.ask(STOP_SAMPLING)
    }

    fn ask<A: DeserializeOwned>(&mut self, question: &str) -> Result<A> {
        let ask = self.ask.as_mut().context("it is asked until it ends")?;
        writeln!(ask, "{question}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).context("the second process ended")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It ends with its input; nothing useful is left to do if it does not.
        self.ask = None;
        let _ = self.process.wait();
    }
}

/// Requests to it.
const USAGE: &str = "usage";
const START_SAMPLING: &str = "start sampling";
const STOP_SAMPLING: &str = "stop sampling";

/// Bytes that files of the measured server may have together.
const MEMORY: u64 = 256 << 20;

/// Is the second process, until its input ends.
pub(super) async fn serve() -> Result<()> {
    let service = service()?;
    let mut servers = Vec::new();
    let mut raw = Vec::new();
    for spinning in [Spinning::Adaptive, Spinning::Park] {
        if spinning == Spinning::Park {
            pin(1)?;
        }
        raw.push(start_raw()?);
        for crc in [CrcMode::Off, CrcMode::On] {
            let provider = Arc::new(Iwarp::new(Config::default().with_crc(crc)));
            let config = ServerConfig::default()
                .with_workers(1)
                .with_spin(spinning.policy());
            let on = (Ipv4Addr::LOCALHOST, 0).into();
            servers.push(Server::bind(provider, on, Arc::clone(&service), config).await?);
        }
    }
    let mut at = servers.iter().map(Server::local_addr);
    let mut next = || at.next().context("there are four servers");
    let addresses = Addresses {
        raw: [raw[0], raw[1]],
        servers: [next()?, next()?, next()?, next()?],
    };
    say(&addresses)?;
    // Standard input blocks, so it has a thread of its own.
    tokio::task::spawn_blocking(move || {
        let mut profiler = Profiler::default();
        for line in std::io::stdin().lines() {
            match line?.as_str() {
                USAGE => {
                    let mut io = IoCounters::default();
                    for server in &servers {
                        io += server.stats().io;
                    }
                    say(&Usage::of_this_process(io))?;
                }
                START_SAMPLING => say(&profiler.start()?)?,
                STOP_SAMPLING => say(&profiler.stop())?,
                unknown => bail!("there is no answer to {unknown}"),
            }
        }
        Ok(())
    })
    .await?
}

/// Plain TCP on a thread of its own.
fn start_raw() -> Result<SocketAddr> {
    let listener = raw::listen()?;
    let at = listener.local_addr()?;
    let listener = listener.into_std()?;
    std::thread::Builder::new()
        .name("raw".into())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async { raw::serve(TcpListener::from_std(listener)?).await })
        })?;
    Ok(at)
}

fn say(what: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// NFS of both versions and MOUNT, of a file system in memory.
pub(super) fn service() -> Result<Arc<dyn Service>> {
    let exports = Exports::new(HandleKey::random()?).with(
        "/",
        Arc::new(MemFs::new(MEMORY)),
        ExportOptions::default(),
    )?;
    let pool = Pool::new(64 << 20);
    let state = Nfs4State::open(Nfs4Settings::default())?;
    Ok(Arc::new(
        Programs::new()
            .with(Nfs3::new(exports.clone(), pool.clone()))
            .with(Nfs4::new(exports.clone(), pool, state))
            .with(Mount3::new(exports)),
    ))
}
