//! The connection is closed because nobody uses it, by our server or by the kernel's client, and then
//! the client wants something again.

use std::time::Duration;

use anyhow::Result;

use super::load;
use crate::TestRun;
use crate::relay::Relay;
use crate::serve::Serve;

/// The kernel's client closes a connection on which nothing happened for five minutes.
const KERNEL_LIMIT: Duration = Duration::from_secs(500);

/// Our server closes it after this many seconds when it is told so.
const IDLE_SECONDS: &str = "2";

const LIMIT: Duration = Duration::from_secs(240);

/// How long our server's end of it may take to show.
const GONE_LIMIT: Duration = Duration::from_secs(60);

/// It is our server that closes.
pub(super) fn server_closes(run: &TestRun<'_>) -> Result<()> {
    closes(
        run,
        &["--idle-timeout", IDLE_SECONDS],
        3,
        (LIMIT, GONE_LIMIT),
    )
}

/// It is the kernel's client that closes.
pub(super) fn client_closes(run: &TestRun<'_>) -> Result<()> {
    let limits = (2 * KERNEL_LIMIT, KERNEL_LIMIT);
    closes(run, &["--idle-timeout", "0"], 1, limits)
}

fn closes(
    run: &TestRun<'_>,
    options: &[&str],
    rounds: usize,
    (limit, gone_limit): (Duration, Duration),
) -> Result<()> {
    let folder = load::export(run)?;
    let server = Serve::start_with(run, &folder, options)?;
    let relay = Relay::start(server.port)?;
    let ports = (relay.port, server.mount_port);
    let rounds_of_guest = [("ROUNDS", rounds.to_string())];
    let mut guest = load::boot(run, "idle.sh", ports, &rounds_of_guest, limit)?;
    for _ in 0..rounds {
        guest.expect("idle")?;
        relay.wait_until_gone(gone_limit)?;
        guest.tell("stop")?;
    }
    guest.finish()?;
    server.stop()
}
