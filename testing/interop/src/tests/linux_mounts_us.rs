//! The kernel's client at work on our server.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::io::Errno;

use super::{ENTRIES, INLINE, sha256};
use crate::TestRun;
use crate::guest::{Boot, Guest};
use crate::serve::{EXPORT, Serve};

/// The guest takes about a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(480);

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = run.work.join("export");
    fs::create_dir(&folder)?;
    // The guest's root keeps its name, but is nobody special to a server that does not run as root.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    make_entries(&folder.join("many"), ENTRIES)?;
    let server = Serve::start(run, &folder)?;
    let lists = has_lists(&folder)?;
    if !lists {
        let where_ = folder.display();
        run.report.say(
            run.name,
            &format!("without access control lists, which {where_} cannot have"),
        );
    }
    let address = ("10.0.2.2", server.port, server.mount_port, EXPORT);
    let sum = drive(run, address, lists, Some(run.program))?;
    ensure!(
        sha256(&folder.join("data"))? == sum,
        "the file on the host differs from the one the guest wrote"
    );
    let left = fs::read_dir(&folder)?.count();
    ensure!(left == 2, "{left} names are left in the export, not 2");
    ensure!(
        fs::read_dir(folder.join("many"))?.count() == ENTRIES,
        "the large directory changed"
    );
    server.stop()
}

/// Boots a client for a server (address, port, MOUNT port, path), and returns the checksum of the
/// file `data` that it leaves there. `lists` is whether files there can have access control lists. With a program, its
/// gateway in the guest takes a mount over TCP to the server at last.
pub(super) fn drive(
    run: &TestRun<'_>,
    server: (&str, u16, u16, &str),
    lists: bool,
    program: Option<&Path>,
) -> Result<String> {
    let (address, port, mount_port, source) = server;
    let as_root = rustix::process::geteuid().is_root();
    let boot = Boot {
        name: "guest",
        script: "linux-mounts-us.sh",
        environment: &[
            ("SERVER", address.into()),
            ("PORT", port.to_string()),
            ("MOUNT_PORT", mount_port.to_string()),
            ("SOURCE", source.into()),
            ("INLINE", INLINE.into()),
            ("ENTRIES", ENTRIES.to_string()),
            ("OWNER_KEPT", u8::from(as_root).to_string()),
            ("LISTS", u8::from(lists).to_string()),
            ("GATEWAY", u8::from(program.is_some()).to_string()),
        ],
        program,
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    let sum = guest.expect("sum")?;
    guest.finish()?;
    Ok(sum)
}

/// Whether files in a folder can have access control lists.
fn has_lists(folder: &Path) -> Result<bool> {
    // Removing the list that is not there is refused where there can be none.
    match rustix::fs::removexattr(folder, "system.posix_acl_access") {
        Ok(()) | Err(Errno::NODATA) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn make_entries(folder: &Path, entries: usize) -> Result<()> {
    fs::create_dir(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?;
    for number in 0..entries {
        File::create(folder.join(format!("entry-{number}")))?;
    }
    Ok(())
}
