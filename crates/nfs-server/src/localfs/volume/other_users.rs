//! Checks whether other users of this machine can reach an export.
//!
//! A user with an open file can hold its lock in the kernel for any time: write(2) and getdents(2)
//! hold the lock of the inode while they wait for memory of the process, which may be mapped from a
//! FUSE file system that never answers. Other changes of that file or directory wait in the kernel,
//! and cannot be interrupted.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Search permission of the group and of others. An access control list grants no more than the
/// group bits.
const SEARCH_BY_OTHERS: u32 = 0o011;

/// Whether a user other than root and `me` can reach the directory at `path`. Any other owner or
/// group of a directory on the way counts as another user.
pub(super) fn others_can_reach(path: &Path, me: u32) -> bool {
    !path.ancestors().any(|dir| {
        std::fs::metadata(dir).is_ok_and(|dir| {
            dir.mode() & SEARCH_BY_OTHERS == 0 && (dir.uid() == 0 || dir.uid() == me)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directory_below_a_closed_one_is_out_of_reach() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let me = rustix::process::geteuid().as_raw();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&inner, 0o777);
        set(dir.path(), 0o700);
        assert!(!others_can_reach(&inner, me), "the one above has mode 0700");
        for open in [0o701, 0o710] {
            set(dir.path(), open);
            assert!(others_can_reach(&inner, me), "{open:o}");
        }
        set(&inner, 0o744);
        assert!(
            !others_can_reach(&inner, me),
            "to be listed is not to be entered"
        );
        assert_eq!(
            others_can_reach(&inner, me + 1),
            me != 0,
            "its owner is another"
        );
    }
}
