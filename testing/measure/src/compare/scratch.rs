//! The directory on a tmpfs where everything is copied.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{statfs, statvfs};
use tempfile::TempDir;

use super::machine;

/// The file, the tree and one copy at a time take half of it; the programs need memory too.
const NEEDED_MIB: u64 = 4 << 10;

/// Type of a tmpfs in statfs(2) (linux/magic.h).
const TMPFS_MAGIC: u32 = 0x0102_1994;

/// Makes a fresh directory in `parent`, which is removed when it is dropped.
///
/// # Errors
///
/// `parent` is not on a tmpfs, or there is not enough room or memory.
pub(super) fn make(parent: &Path) -> Result<TempDir> {
    let at = parent.display();
    let needed = format!(
        "cargo xtask compare needs {NEEDED_MIB} MiB of memory on a tmpfs: give a directory with --scratch"
    );
    let kind = statfs(parent).with_context(|| format!("there is no {at}; {needed}"))?;
    ensure!(
        u64::try_from(kind.f_type).is_ok_and(|kind| kind == u64::from(TMPFS_MAGIC)),
        "{at} is not on a tmpfs; {needed}"
    );
    let room = statvfs(parent).with_context(|| format!("cannot look at {at}"))?;
    let free = (room.f_bavail * room.f_frsize) >> 20;
    ensure!(free >= NEEDED_MIB, "{at} has {free} MiB free; {needed}");
    let available = machine::available_mib()?;
    ensure!(
        available >= NEEDED_MIB,
        "{available} MiB of memory are available; {needed}"
    );
    // Out of reach of other users: our server need not fear that they have a file locked.
    tempfile::Builder::new()
        .prefix("rpcrdma-compare-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .tempdir_in(parent)
        .with_context(|| format!("cannot make a directory in {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_is_said() {
        for (place, why) in [
            ("/proc", "not on a tmpfs"),
            ("/no/such/place", "no /no/such"),
        ] {
            let error = make(Path::new(place)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(error.contains("4096 MiB"), "{error}");
        }
    }
}
