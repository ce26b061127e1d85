//! A gateway in front of a [`Server`](crate::server::Server): `rpcrdma gateway` in a process of its own.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::lines::Lines;

/// A running gateway with metrics. Dropped, it is killed.
pub struct Gateway {
    /// Address to which clients connect.
    pub addr: SocketAddrV4,
    /// Address of its metrics.
    pub metrics: SocketAddr,
    _process: Process,
}

struct Process {
    child: Child,
    // Read to its end, so that the gateway never waits for somebody who reads.
    said: Lines,
}

impl Gateway {
    /// Passes calls of clients over software iWARP on to a server over RDMA. What it logs is below `scratch`.
    ///
    /// # Errors
    ///
    /// It does not start, or does not say where it listens.
    pub fn start(program: &Path, server: SocketAddrV4, scratch: &Path) -> Result<Self> {
        Self::listening(program, "rdma", server, scratch)
    }

    /// The same for clients over TCP, which may claim to be any user.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub fn over_tcp(program: &Path, server: SocketAddrV4, scratch: &Path) -> Result<Self> {
        Self::listening(program, "tcp", server, scratch)
    }

    fn listening(program: &Path, over: &str, server: SocketAddrV4, scratch: &Path) -> Result<Self> {
        let log = fs::File::create(scratch.join("gateway.log"))?;
        let mut child = Command::new(program)
            .args(["gateway", "--json", "--listen"])
            .arg(format!("{over}://127.0.0.1:0"))
            .args((over == "tcp").then_some("--trust-local"))
            .args(["--upstream", &format!("rdma://{server}")])
            .args(["--metrics", "0", "--control-socket"])
            .arg(scratch.join("gateway.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let said = Lines::of(child.stdout.take().context("its output is a pipe")?);
        // From here on an early return kills the gateway.
        let process = Process { child, said };
        let line = process.said.next();
        let line = line.context("the gateway does not say that it listens")?;
        let addr = line["pairs"][0]["listen"].as_str();
        let addr = addr.and_then(|url| url.split_once("://")?.1.parse().ok());
        let metrics = line["metrics"].as_str().and_then(|addr| addr.parse().ok());
        let unclear = || format!("the gateway's first line: {line}");
        Ok(Self {
            addr: addr.with_context(unclear)?,
            metrics: metrics.with_context(unclear)?,
            _process: process,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
