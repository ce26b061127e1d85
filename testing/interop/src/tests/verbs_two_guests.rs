//! Two guests with rxe between them: what a client and a server in one guest cannot show. Messages cross a wire, and a
//! machine can vanish.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::TestRun;
use crate::guest::{Boot, Guest};

/// Takes about a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(600);

/// The machines, and their addresses on the cable.
const SERVER: (&str, &str) = ("server", "10.0.4.1");
const CLIENT: (&str, &str) = ("client", "10.0.4.2");

/// Files of 8 MiB that the server holds in the end.
const FILES: usize = 3;

/// Packets that the data takes each way at least.
const PACKETS: u64 = 3 * 8 * (1 << 20) / 4096;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let mut server = boot(run, SERVER.0, CLIENT.0, "verbs-two-guests-server.sh")?;
    server.expect("ready")?;
    let mut client = boot(run, CLIENT.0, SERVER.0, "verbs-two-guests.sh")?;
    for _ in 0..FILES {
        let line = client.expect("held")?;
        let (path, sum) = line.split_once(' ').context("no checksum")?;
        server.tell(&format!("sum {path}"))?;
        let held = server.expect("sum")?;
        ensure!(held == sum, "the server holds another {path}");
        client.tell("continue")?;
    }
    client.expect("at-work")?;
    server.tell("connections 1")?;
    server.expect("connections")?;
    // With calls that arrive while its machine stands still, the server has something to send to a client that is off.
    // A connection that carries nothing at that moment lasts until it has been unused for long enough.
    server.stand_still()?;
    client.tell("continue")?;
    client.expect("switch-off")?;
    drop(client);
    server.go_on()?;
    server.tell("connections 0")?;
    let milliseconds = server.expect("connections")?;
    run.report.say(
        run.name,
        &format!("our server is rid of a client without power after {milliseconds} ms"),
    );
    server.tell("stop")?;
    for counter in ["sent_pkts", "rcvd_pkts"] {
        let packets = counted(&mut server, counter)?;
        run.report.say(run.name, &format!("{counter} {packets}"));
        ensure!(packets > PACKETS, "the data did not cross the cable");
    }
    for counter in [
        "duplicate_request",
        "out_of_seq_request",
        "retry_exceeded_err",
    ] {
        let count = counted(&mut server, counter)?;
        run.report.say(run.name, &format!("{counter} {count}"));
    }
    server.finish()
}

fn boot<'a>(run: &'a TestRun<'a>, name: &str, wired_to: &str, script: &str) -> Result<Guest<'a>> {
    let addresses = [SERVER, CLIENT].map(|(_, address)| address.to_owned());
    let [of_server, of_client] = addresses;
    let boot = Boot {
        name,
        script,
        environment: &[("SERVER", of_server), ("CLIENT", of_client)],
        program: Some(run.program),
        wired_to: Some(wired_to),
        limit: LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)
}

/// A counter of the server's device.
fn counted(server: &mut Guest<'_>, name: &str) -> Result<u64> {
    let line = server.expect("counter")?;
    let count = line.strip_prefix(name).map(str::trim);
    let count = count.with_context(|| format!("{line} where {name} was expected"))?;
    Ok(count.parse()?)
}
