//! Our server ends, and is killed, under the kernel's client; each time it comes back on the same
//! ports. File handles stay good, what was acknowledged as stable is there, what was not is written
//! again, and only a kill has the server forget which calls it has executed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::load::{self, WAIT_LIMIT, check_stable};
use super::{MIB, sha256};
use crate::TestRun;
use crate::relay::{End, Relay, To};
use crate::serve::Serve;

/// The client waits between attempts to connect, 5 s at first.
const LIMIT: Duration = Duration::from_secs(600);

/// How often the server ends in good order under load.
const RESTARTS: usize = 2;

/// How often it is killed under load; every other time its last replies do not arrive.
const KILLS: usize = 10;

/// Calls that have to be in flight before a server is killed whose replies do not arrive: those of a
/// burst (`load.sh`).
const LEAST_UNANSWERED: usize = 8;

/// How much of the one large write must have come when the server is killed.
const KILL_AT: u64 = 8 * MIB as u64;

const POLL: Duration = Duration::from_millis(2);

/// Unit of the blocks of stat, in bytes.
const BLOCK: u64 = 512;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = load::export(run)?;
    let mut server = Serve::start(run, &folder)?;
    let ports = server.ports();
    let relay = Relay::start(server.port)?;
    let through = (relay.port, server.mount_port);
    let numbers = [
        ("RESTARTS", RESTARTS.to_string()),
        ("KILLS", KILLS.to_string()),
    ];
    let mut guest = load::boot(run, "server-restart.sh", through, &numbers, LIMIT)?;

    guest.expect("restart")?;
    server.stop()?;
    server = Serve::start_on(run, &folder, ports, &[])?;
    guest.tell("stop")?;

    guest.expect("loaded")?;
    for _ in 0..RESTARTS {
        server.stop()?;
        check_stable(&mut guest, &folder)?;
        server = Serve::start_on(run, &folder, ports, &[])?;
        guest.ask("moved")?;
    }
    guest.tell("stop")?;

    guest.expect("killing")?;
    for kill in 0..KILLS {
        if kill % 2 == 1 {
            // It has executed all calls in flight, and the client knows of none.
            guest.ask("ready")?;
            relay.hold(To::Client);
            guest.ask(&format!("burst {kill}"))?;
            guest.ask(&format!("unanswered {LEAST_UNANSWERED}"))?;
            relay.wait_for_silence(To::Server, WAIT_LIMIT)?;
        }
        server.kill();
        relay.cut(End::Reset);
        check_stable(&mut guest, &folder)?;
        server = Serve::start_on(run, &folder, ports, &[])?;
        guest.ask("moved")?;
    }
    guest.tell("stop")?;

    let all: u64 = guest.expect("writing")?.parse()?;
    let file = folder.join("lost");
    wait_for_bytes(&file)?;
    server.kill();
    lose(&file, all)?;
    server = Serve::start_on(run, &folder, ports, &[])?;
    guest.tell("stop")?;

    let sum = guest.expect("sum")?;
    guest.finish()?;
    ensure!(
        sha256(&file)? == sum,
        "the file on the host differs from the one the guest wrote"
    );
    server.stop()
}

fn wait_for_bytes(file: &Path) -> Result<()> {
    let start = Instant::now();
    while bytes(file)? < KILL_AT {
        ensure!(
            start.elapsed() < WAIT_LIMIT,
            "nothing is written to {}",
            file.display()
        );
        thread::sleep(POLL);
    }
    Ok(())
}

/// Bytes that a file has room for: those that were written, in whichever order.
fn bytes(file: &Path) -> Result<u64> {
    let about = fs::metadata(file).with_context(|| file.display().to_string())?;
    Ok(about.blocks() * BLOCK)
}

/// Takes away what a server wrote and was not told to commit.
fn lose(file: &Path, all: u64) -> Result<()> {
    let had = bytes(file)?;
    ensure!(
        had < all,
        "the whole write of {all} bytes came before the server was killed, and may be committed"
    );
    Ok(File::options().write(true).open(file)?.set_len(0)?)
}
