//! Our server is killed under two clients of version 4, which hold locks and write, and comes back with the state that it kept on
//! disk: the clients reclaim what they had, and no program notices.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::linux_mounts_us_v4::{LOCKS, is_locked, lock_program, open};
use crate::TestRun;
use crate::guest::{Boot, Guest, free_ports};
use crate::serve::{EXPORT, Serve};

/// A kill takes about ten seconds, most of which the client waits before it connects again.
const LIMIT: Duration = Duration::from_secs(900);

/// Time of a lease, and of the grace period where somebody does not reclaim.
const LEASE: &str = "10s";

/// Time that a client may take to reclaim what it has, and from then to the first OPEN of something new, in milliseconds.
const RECLAIM_LIMIT: u32 = 2000;

/// Three kills.
pub(super) fn few(run: &TestRun<'_>) -> Result<()> {
    killed(run, 3)
}

/// Twelve.
pub(super) fn many(run: &TestRun<'_>) -> Result<()> {
    killed(run, 12)
}

fn killed(run: &TestRun<'_>, kills: usize) -> Result<()> {
    let locks = lock_program(run)?;
    let folder = run.work.join("export");
    fs::create_dir(&folder)?;
    // The guest's root keeps its name, but is nobody special to a server that does not run as root.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let [tcp] = free_ports()?;
    let tcp_address = format!("127.0.0.1:{tcp}");
    let options = ["--tcp", &tcp_address, "--lease", LEASE];
    let mut server = Serve::start_with(run, &folder, &options)?;
    let ports = server.ports();
    let boot = Boot {
        name: "guest",
        script: "v4-restart.sh",
        environment: &[
            ("SERVER", "10.0.2.2".into()),
            ("PORT", server.port.to_string()),
            ("TCP_PORT", tcp.to_string()),
            ("MOUNT_PORT", server.mount_port.to_string()),
            ("ROOT", EXPORT.into()),
            ("RECLAIM_LIMIT", RECLAIM_LIMIT.to_string()),
        ],
        files: &[(LOCKS, &locks)],
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    guest.expect("locked")?;
    let shared = folder.join("locked");
    for kill in 1..=kills {
        ensure!(
            !is_locked(&open(&shared)?)?,
            "before kill {kill} the clients hold no lock on the server's machine"
        );
        server.kill();
        ensure!(is_locked(&open(&shared)?)?, "a killed server holds locks");
        guest.tell("killed")?;
        server = Serve::start_on(run, &folder, ports, &options)?;
        guest.expect("done")?;
        for note in guest.take_notes() {
            run.report.say(run.name, &format!("kill {kill}: {note}"));
        }
    }
    guest.tell("stop")?;
    guest.expect("wrote")?;
    for name in ["records-a", "records-b"] {
        let records = fs::read_to_string(folder.join(name))?;
        let as_written = (records.lines().enumerate())
            .all(|(number, line)| line == format!("record {number:08}"));
        ensure!(as_written, "{name} is not as it was written");
    }
    guest.tell("seen")?;
    guest.finish()?;
    server.stop()
}
