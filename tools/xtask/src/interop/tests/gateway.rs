//! The kernel's client on nfs-ganesha, in each version of NFS, with our gateway between them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::load;
use crate::interop::TestRun;
use crate::interop::guest::{Boot, Guest};
use crate::interop::namespaces::Namespaces;

/// Takes two minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(900);

/// Of ganesha to come up.
const SERVER_LIMIT: Duration = Duration::from_secs(60);

/// Entries of the large directory.
const ENTRIES: usize = 1000;

/// Where ganesha listens, in a network of its own.
const NFS_PORT: u16 = 2049;
const MOUNT_PORT: u16 = 20048;

/// Without a gateway, over TCP: tells a fault of the test, the client or the server from one of ours.
pub(super) fn reference(run: &TestRun<'_>) -> Result<()> {
    let folder = export(run)?;
    let mut ganesha = ganesha(run, &folder)?;
    let environment = environment("tcp", NFS_PORT, MOUNT_PORT);
    let boot = Boot {
        name: "guest",
        script: "gateway.sh",
        environment: &environment,
        within: Some(&ganesha),
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    guest.expect("loaded")?;
    ganesha.ask("restart")?;
    guest.ask("moved")?;
    guest.tell("stop")?;
    let errors = guest.expect("errors")?;
    run.report.say(run.name, &format!("{errors} changes came again"));
    guest.finish()
}

fn export(run: &TestRun<'_>) -> Result<PathBuf> {
    let folder = load::export(run)?;
    let many = folder.join("many");
    fs::create_dir(&many)?;
    for number in 0..ENTRIES {
        File::create(many.join(format!("entry-{number}")))?;
    }
    Ok(folder)
}

fn ganesha(run: &TestRun<'_>, folder: &PathBuf) -> Result<Namespaces> {
    let work = run.work.join("ganesha");
    fs::create_dir(&work)?;
    let environment = [
        ("WORK", work.display().to_string()),
        ("EXPORT", folder.display().to_string()),
        ("LOG", run.logs.join("ganesha.log").display().to_string()),
        ("NFS_PORT", NFS_PORT.to_string()),
        ("MOUNT_PORT", MOUNT_PORT.to_string()),
    ];
    let errors = File::create(run.logs.join("ganesha-script.log"))?;
    Namespaces::start("ganesha.sh", &environment, errors, SERVER_LIMIT)
}

fn environment(proto: &str, port: u16, mount_port: u16) -> [(&'static str, String); 7] {
    [
        ("SERVER", "10.0.2.2".into()),
        ("PROTO", proto.into()),
        ("PORT", port.to_string()),
        ("MOUNT_PORT", mount_port.to_string()),
        ("VERSIONS", "3 4.0 4.1 4.2".into()),
        ("LOADED", "4.2".into()),
        ("ENTRIES", ENTRIES.to_string()),
    ]
}
