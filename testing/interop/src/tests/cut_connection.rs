//! The connection between the kernel's client and our server is cut in every way there is, while the
//! client works. The server lives on, so it knows which calls it has executed: not one may fail.

use std::time::Duration;

use anyhow::Result;

use super::load::{self, WAIT_LIMIT};
use crate::TestRun;
use crate::guest::Guest;
use crate::relay::{End, Relay, To};
use crate::serve::Serve;

const LIMIT: Duration = Duration::from_secs(600);

/// Ways to cut a connection.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// At once.
    Now(End),
    /// Behind so many more bytes, amid a frame.
    Within(To, u64),
    /// When everything that can be said is said, and nothing of it has arrived.
    Unheard(To),
}

const CUTS: [Cut; 7] = [
    Cut::Now(End::Reset),
    Cut::Now(End::Close),
    Cut::Within(To::Server, 20_001),
    Cut::Within(To::Client, 30_003),
    // The server has executed all calls, and the client knows of none.
    Cut::Unheard(To::Client),
    Cut::Unheard(To::Server),
    Cut::Unheard(To::Client),
];

/// Calls that have to be in flight when nothing is heard: the server grants as many credits at least.
const LEAST_UNANSWERED: usize = 32;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = load::export(run)?;
    let server = Serve::start(run, &folder)?;
    let relay = Relay::start(server.port)?;
    let ports = (relay.port, server.mount_port);
    let cuts = [("CUTS", CUTS.len().to_string())];
    let mut guest = load::boot(run, "cut-connection.sh", ports, &cuts, LIMIT)?;
    guest.expect("loaded")?;
    for cut in CUTS {
        let before = relay.taken_in();
        make(cut, &relay, &mut guest)?;
        relay.wait_for_connection(before, WAIT_LIMIT)?;
        guest.ask("moved")?;
        run.report.say(run.name, &format!("went on after {cut:?}"));
    }
    guest.tell("stop")?;
    guest.finish()?;
    server.stop()
}

fn make(cut: Cut, relay: &Relay, guest: &mut Guest<'_>) -> Result<()> {
    match cut {
        Cut::Now(end) => relay.cut(end),
        Cut::Within(to, bytes) => relay.cut_after(to, bytes, End::Close),
        Cut::Unheard(to) => {
            guest.ask("ready")?;
            guest.ask("open")?;
            relay.hold(to);
            guest.ask(&format!("burst {}", relay.taken_in()))?;
            guest.ask("stampede")?;
            let from = match to {
                To::Client => To::Server,
                To::Server => To::Client,
            };
            guest.ask(&format!("unanswered {LEAST_UNANSWERED}"))?;
            relay.wait_for_silence(from, WAIT_LIMIT)?;
            relay.cut(End::Reset);
        }
    }
    Ok(())
}
