//! The kernel's client, version 4.1 and 4.2, at work on our server, over RDMA and over TCP; and programs of the server's
//! machine, whose locks the clients respect.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use super::linux_mounts_us::make_entries;
use crate::TestRun;
use crate::guest::{Boot, Guest, free_ports};
use crate::program::stripped;
use crate::serve::{EXPORT, Serve};
use programs::command::{build_as_tested, output};

/// The guest takes two to three minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(900);

/// Entries of the directory that each version lists, and of the one that is listed once.
const ENTRIES: usize = 300;
const LARGE: usize = 10_000;

/// Program of the guest that locks bytes.
pub(super) const LOCKS: &str = "file-locks";

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let locks = lock_program(run)?;
    let folder = run.work.join("export");
    fs::create_dir(&folder)?;
    // The guest's root keeps its name, but is nobody special to a server that does not run as root.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    make_entries(&folder.join("many"), ENTRIES)?;
    make_entries(&folder.join("large"), LARGE)?;
    let [tcp] = free_ports()?;
    let server = Serve::start_with(run, &folder, &["--tcp", &format!("127.0.0.1:{tcp}")])?;
    let as_root = rustix::process::geteuid().is_root();
    let boot = Boot {
        name: "guest",
        script: "linux-mounts-us-v4.sh",
        environment: &[
            ("SERVER", "10.0.2.2".into()),
            ("PORT", server.port.to_string()),
            ("TCP_PORT", tcp.to_string()),
            ("MOUNT_PORT", server.mount_port.to_string()),
            ("ROOT", EXPORT.into()),
            ("COMPLETE", "1".into()),
            ("ENTRIES", ENTRIES.to_string()),
            ("LARGE", LARGE.to_string()),
            ("OWNER_KEPT", u8::from(as_root).to_string()),
        ],
        files: &[(LOCKS, &locks)],
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    local_locks(&mut guest, &folder.join("local-lock"))?;
    guest.finish()?;
    let clients = output(
        Command::new(run.program)
            .args(["clients", "--nfs4", "--json", "--socket"])
            .arg(&server.control),
    )?;
    ensure!(
        clients.is_empty(),
        "after unmounting there are clients: {clients}"
    );
    let left = fs::read_dir(&folder)?.count();
    ensure!(left == 2, "{left} names are left in the export, not 2");
    server.stop()
}

/// Builds the program of the guest that locks bytes.
pub(super) fn lock_program(run: &TestRun<'_>) -> Result<PathBuf> {
    let built = build_as_tested("testing/interop", "--bin", LOCKS)?;
    stripped(&built, &run.work.join(LOCKS))
}

/// Plays the program on the server's machine, which is this one, as the guest asks for it.
fn local_locks(guest: &mut Guest<'_>, path: &Path) -> Result<()> {
    let mut held = None;
    for expected in ["lock", "unlock", "busy", "lock", "unlock"] {
        let asked = guest.expect("local")?;
        ensure!(asked == expected, "the guest asks for {asked}");
        let is_as_expected = match expected {
            "lock" => {
                let file = open(path)?;
                let locked = is_locked(&file)?;
                held = Some(file);
                locked
            }
            "unlock" => held.take().is_some(),
            _ => !is_locked(&open(path)?)?,
        };
        if !is_as_expected {
            bail!("a program on the server could not: {expected}");
        }
        guest.tell("done")?;
    }
    Ok(())
}

pub(super) fn open(path: &Path) -> Result<File> {
    let opened = File::options().read(true).write(true).open(path);
    opened.with_context(|| path.display().to_string())
}

/// Locks a file for this process, and returns false if somebody else has locked it.
pub(super) fn is_locked(file: &File) -> Result<bool> {
    let whole = libc::flock {
        l_type: libc::F_WRLCK.try_into()?,
        l_whence: libc::SEEK_SET.try_into()?,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_SETLK(&whole)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
