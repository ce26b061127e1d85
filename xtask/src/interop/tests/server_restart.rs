//! Our server ends, and is killed, under the kernel's client; both times it comes back on the same
//! ports. File handles stay good, and what was written before counts or is written again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{MIB, sha256};
use crate::interop::TestRun;
use crate::interop::guest::{Boot, Guest};
use crate::interop::serve::{EXPORT, Serve};

/// The client waits between attempts to connect, 5 s at first.
const LIMIT: Duration = Duration::from_secs(300);

/// How much of the 64 MiB must have come when the server is killed.
const KILL_AT: usize = 8 * MIB;

/// How long that may take.
const KILL_LIMIT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(5);

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = run.work.join("export");
    fs::create_dir(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let server = Serve::start(run, &folder)?;
    let ports = (server.port, server.mount_port);
    let boot = Boot {
        name: "guest",
        script: "server-restart.sh",
        environment: &[
            ("PORT", ports.0.to_string()),
            ("MOUNT_PORT", ports.1.to_string()),
            ("SOURCE", EXPORT.into()),
        ],
        forwards: &[],
        capture: None,
        limit: LIMIT,
    };
    let mut guest = Guest::boot(run, &boot)?;

    guest.expect("restart")?;
    server.stop()?;
    let server = Serve::start_on(run, &folder, ports)?;
    guest.tell("back")?;

    guest.expect("writing")?;
    let data = folder.join("data");
    wait_for_size(&data)?;
    // Dropped, it is killed.
    drop(server);
    let server = Serve::start_on(run, &folder, ports)?;
    guest.tell("back")?;

    let sum = guest.expect("sum")?;
    guest.finish()?;
    ensure!(
        sha256(&data)? == sum,
        "the file on the host differs from the one the guest wrote"
    );
    server.stop()
}

fn wait_for_size(file: &Path) -> Result<()> {
    let start = Instant::now();
    while fs::metadata(file).map_or(0, |metadata| metadata.len()) < KILL_AT as u64 {
        ensure!(
            start.elapsed() < KILL_LIMIT,
            "nothing is written to {}",
            file.display()
        );
        thread::sleep(POLL);
    }
    Ok(())
}
