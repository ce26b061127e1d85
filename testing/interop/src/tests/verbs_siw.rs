//! Our provider for hardware over siw in the guest, and our software iWARP on the host: each is the other's client.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::our_client::OurClient;
use super::sha256;
use crate::TestRun;
use crate::guest::{Boot, Guest, free_ports};
use crate::serve::Serve;

/// Ports of our server in the guest (`guest/ours.sh`): for calls, and for MOUNT.
const IN_GUEST: (u16, u16) = (20051, 20050);

/// Takes less than a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(480);

/// For one command of the host.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let export = run.work.join("export");
    fs::create_dir(&export)?;
    let serve = Serve::start(run, &export)?;
    let [port, mount_port] = free_ports()?;
    let boot = Boot {
        name: "guest",
        script: "verbs-siw.sh",
        environment: &[("HOST_PORT", serve.port.to_string())],
        program: Some(run.program),
        forwards: &[(port, IN_GUEST.0), (mount_port, IN_GUEST.1)],
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    let sum = guest.expect("sum")?;
    ensure!(
        sha256(&export.join("from-siw"))? == sum,
        "what arrived differs from what was put"
    );
    guest.expect("serving")?;
    let client = OurClient {
        run,
        port,
        mount_port,
    };
    let url = |name: &str| format!("nfs://127.0.0.1:{port}/ours/{name}");
    let got = run.work.join("got");
    let text = |path: &Path| path.display().to_string();
    client.files(&["get", &url("data"), &text(&got)], COMMAND_LIMIT)?;
    ensure!(sha256(&got)? == sum, "what was got differs");
    client.files(&["put", &text(&got), &url("from-host")], COMMAND_LIMIT)?;
    guest.tell("sum from-host")?;
    ensure!(
        guest.expect("sum")? == sum,
        "what the guest has differs from what was put"
    );
    // Files of up to 70 bytes: their READs and WRITEs move as many.
    let small = run.work.join("small");
    client.files(&["get", "-r", &url("small"), &text(&small)], COMMAND_LIMIT)?;
    client.files(
        &["put", "-r", &text(&small), &url("small-host")],
        COMMAND_LIMIT,
    )?;
    let whole = fs::read(&got)?;
    for size in 0..=70 {
        let name = size.to_string();
        let found = fs::read(small.join(&name))?;
        ensure!(found == whole[..size], "{name} was got wrong");
        guest.tell(&format!("sum small-host/{name}"))?;
        ensure!(
            guest.expect("sum")? == sha256(&small.join(&name))?,
            "{name} was put wrong"
        );
    }
    guest.tell("done")?;
    guest.finish()?;
    serve.stop()
}
