//! The two processes whose instructions are counted: a client that makes a number of calls, and its server.
//!
//! They take [`Turns`]. The server prints its address in one line and ends after the client, in order, so that its profile is
//! written.

use super::Row;
use super::callgrind::{self, Profile};
use super::turns::Turns;
use crate::loopback::child;
use crate::loopback::load::Load;
use crate::loopback::spinning::Spinning;
use anyhow::{Context, Result, ensure};
use rpcrdma::{Server, ServerConfig};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// Client and server of a row.
pub(super) struct Profiles {
    pub(super) client: Profile,
    pub(super) server: Profile,
}

/// Counts the instructions of both ends for this many calls of a row, their beginning and end included.
pub(super) fn count(row: &Row, calls: usize, folder: &Path) -> Result<Profiles> {
    let file = |end: &str| folder.join(format!("{}-{calls}-{end}", row.name));
    let (client, server) = (file("client"), file("server"));
    let (turns, turns_of_server) = Turns::pair()?;
    let mut serving = Serving::start(&server, turns_of_server.into())?;
    let status = end(&client)?
        .args(["count", "--client", &serving.address.to_string()])
        .args(["--only", row.name, "--calls", &calls.to_string()])
        .stdin(OwnedFd::from(turns))
        .status()
        .context(NO_VALGRIND)?;
    ensure!(status.success(), "the client ended with {status}");
    serving.end()?;
    Ok(Profiles {
        client: Profile::read(&client)?,
        server: Profile::read(&server)?,
    })
}

const NO_VALGRIND: &str =
    "cannot start valgrind, which counts instructions (Debian: apt install valgrind)";

fn end(profile: &Path) -> Result<Command> {
    Ok(callgrind::command(&std::env::current_exe()?, profile))
}

/// A server whose instructions are counted. It is killed if it is dropped before its end.
struct Serving {
    process: Child,
    address: SocketAddr,
}

impl Serving {
    fn start(profile: &Path, turns: OwnedFd) -> Result<Self> {
        let process = end(profile)?
            .args(["count", "--server"])
            .stdin(turns)
            .stdout(Stdio::piped())
            .spawn();
        let process = process.map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow::Error::new(error).context(NO_VALGRIND),
            _ => anyhow::Error::new(error).context("cannot start valgrind"),
        })?;
        let mut serving = Self {
            process,
            address: (Ipv4Addr::LOCALHOST, 0).into(),
        };
        let output = serving
            .process
            .stdout
            .take()
            .context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        serving.address = line.trim().parse().context("the server ended at once")?;
        Ok(serving)
    }

    fn end(&mut self) -> Result<()> {
        let status = self.process.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended cannot be killed, which is no fault.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Is the server, until the client has ended.
pub(super) fn serve() -> Result<()> {
    let turns = Turns::new(false)?;
    turns.runtime()?.block_on(async {
        let provider = Arc::new(Iwarp::new(Config::default().with_crc(CrcMode::Off)));
        // On the runtime here, which takes turns.
        let config = ServerConfig::default()
            .with_workers(0)
            .with_spin(Spinning::Park.policy());
        let on = (Ipv4Addr::LOCALHOST, 0).into();
        let server = Server::bind(provider, on, child::service()?, config).await?;
        writeln!(std::io::stdout(), "{}", server.local_addr())?;
        turns.over().await?;
        server.shutdown().await;
        Ok(())
    })
}

/// Is the client, for this many calls.
pub(super) fn call(row: &Row, calls: usize, server: SocketAddr) -> Result<()> {
    Turns::new(true)?.runtime()?.block_on(async {
        let load = Load::connect(server, row.operation, row.depth, false, Spinning::Park).await?;
        load.run(calls).await?;
        load.close().await;
        Ok(())
    })
}
