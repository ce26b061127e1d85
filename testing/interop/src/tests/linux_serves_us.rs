//! Our client at work on the kernel's server.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::kernel_server::KernelServer;
use super::our_client::OurClient;
use super::{MIB, sha256, write_noise};
use crate::TestRun;
use crate::relay::Relay;

/// Size of the files that are moved, in MiB.
const BIG_MIB: usize = 64;

/// How often a new connection is made. Without a remedy for siw's lost wake-up, in which a first
/// message that comes too early stays unread, about half of them hang.
const CONNECTIONS: usize = 50;

const GUEST_LIMIT: Duration = Duration::from_secs(480);

/// For a command that moves little.
const SHORT_LIMIT: Duration = Duration::from_secs(30);

/// For one that moves a large file.
const LONG_LIMIT: Duration = Duration::from_secs(120);

/// For one new connection with one call. What had hung and was freed by a retry shows here.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, BIG_MIB, GUEST_LIMIT)?;
    let client = OurClient {
        run,
        port: server.port,
        mount_port: server.mount_port,
    };

    client.step("ping");
    client.ping(5, SHORT_LIMIT)?;

    client.step("version two is turned down");
    check_versions(run, &server)?;

    client.step("ls -lR");
    let listing = client
        .files(&["ls", "-lR", &client.url("shelf")], SHORT_LIMIT)?
        .stdout;
    for name in ["hello", "sub", "deep", "file", "link", "big"] {
        ensure!(
            listing.contains(name),
            "ls -lR does not show {name}:\n{listing}"
        );
    }
    let said = client
        .files(&["cat", &client.url("shelf/sub/deep/file")], SHORT_LIMIT)?
        .stdout;
    ensure!(said == "deep\n", "cat shows {said:?}");

    client.step("put 64 MiB");
    let local = run.work.join("local");
    write_noise(&local, BIG_MIB * MIB)?;
    let local_name = local.display().to_string();
    client.files(&["put", &local_name, &client.url("inbox/put")], LONG_LIMIT)?;
    ensure!(
        server.sum("inbox/put")? == sha256(&local)?,
        "what arrived differs from what was put"
    );

    client.step("get 64 MiB");
    let got = run.work.join("got").display().to_string();
    client.files(&["get", &client.url("shelf/big"), &got], LONG_LIMIT)?;
    ensure!(
        server.sum("shelf/big")? == sha256(got.as_ref())?,
        "what was got differs"
    );

    client.step("50 connections in a row");
    let mut slowest = Duration::ZERO;
    for number in 1..=CONNECTIONS {
        let ping = client.ping(1, CONNECTION_LIMIT);
        let took = ping
            .map_err(|error| error.context(format!("connection {number}")))?
            .took;
        slowest = slowest.max(took);
    }
    client.step(&format!(
        "the slowest of them took {:.2} s",
        slowest.as_secs_f64()
    ));
    server.stop()
}

/// The kernel turns version two down with ERR_VERS, and our client goes on in version one on the
/// connection on which it heard that (cel-01 §5.2).
fn check_versions(run: &TestRun<'_>, server: &KernelServer<'_>) -> Result<()> {
    let relay = Relay::start(server.port)?;
    let client = OurClient {
        run,
        port: relay.port,
        mount_port: server.mount_port,
    };
    let Err(refused) = client.ping_speaking("2", SHORT_LIMIT) else {
        bail!("the kernel speaks version two");
    };
    let words = "the peer supports versions 1 to 1";
    ensure!(
        format!("{refused:#}").contains(words),
        "it is not ERR_VERS that turned it down: {refused:#}"
    );
    let before = relay.taken_in();
    let said = client.ping_speaking("auto", SHORT_LIMIT)?.stdout;
    for part in ["\"rpcrdma_version\":1", "\"received\":3"] {
        ensure!(said.contains(part), "ping does not say {part}: {said}");
    }
    let connections = relay.taken_in() - before;
    ensure!(connections == 1, "it took {connections} connections");
    Ok(())
}
