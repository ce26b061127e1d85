//! The server that is measured: `rpcrdma serve` in a process of its own.

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::cpu;
use crate::lines::Lines;

/// A running server. Dropped, it is killed.
pub struct Server {
    child: Child,
    /// Address of its listener.
    pub addr: SocketAddrV4,
    /// Address of its listener for TCP without RDMA, if it has one.
    pub tcp: Option<SocketAddrV4>,
    // Read to its end, so that the server never waits for somebody who reads.
    _said: Lines,
}

impl Server {
    /// Serves the directory `export` to this machine, with further options of `rpcrdma serve`. What it
    /// keeps and logs is below `scratch`.
    ///
    /// # Errors
    ///
    /// It does not start, or does not say where it listens.
    pub fn start(program: &Path, export: &Path, scratch: &Path, options: &[&str]) -> Result<Self> {
        fs::create_dir_all(export)?;
        let any = SocketAddrV4::new([127, 0, 0, 1].into(), 0);
        Self::start_at(program, export, scratch, any, options)
    }

    /// The same of a directory that is there, which may be given another name as `/NAME=DIR`, at this address.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub fn start_at(
        program: &Path,
        export: &Path,
        scratch: &Path,
        at: SocketAddrV4,
        options: &[&str],
    ) -> Result<Self> {
        fs::create_dir_all(scratch)?;
        let mut log = fs::File::options();
        let log = log.create(true).append(true);
        let log = log.open(scratch.join("serve.log"))?;
        let mut child = Command::new(program)
            .arg("serve")
            .arg(export)
            .args(["--listen", &at.to_string(), "--mount-port", "0", "--json"])
            .arg("--state-dir")
            .arg(scratch.join("state"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let said = Lines::of(child.stdout.take().context("its output is a pipe")?);
        // From here on an early return kills the server.
        let mut server = Self {
            child,
            addr: at,
            tcp: None,
            _said: said,
        };
        let line = server
            ._said
            .next()
            .context("the server does not say it listens")?;
        let port = line["listening"]
            .as_str()
            .and_then(|addr| addr.parse().ok());
        server.addr = port.with_context(|| format!("the server's first line: {line}"))?;
        let mut listeners = line["listeners"].as_array().into_iter().flatten();
        let tcp = listeners.find(|listener| listener["provider"] == "tcp");
        server.tcp = tcp.and_then(|tcp| tcp["address"].as_str()?.parse().ok());
        Ok(server)
    }

    /// Bytes of memory that it has in use (VmRSS).
    pub fn resident(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.context("no VmRSS")? << 10)
    }

    /// Seconds of CPU that it has used, in ticks of 10 ms as a rule.
    pub fn cpu(&self) -> Result<f64> {
        cpu::of_process(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
