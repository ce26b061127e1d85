//! Waits for changes of a directory that are not complete.

use rustix::fd::BorrowedFd;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::ffi::CStr;

/// Bytes of a name that no file system has: those of ZFS have up to 1023. A path may have 4095.
pub(super) const TOO_LONG: usize = 1280;

/// A name of that length.
const NO_NAME: &CStr = {
    static BYTES: [u8; TOO_LONG + 1] = {
        let mut bytes = [b'-'; TOO_LONG + 1];
        bytes[TOO_LONG] = 0;
        bytes
    };
    match CStr::from_bytes_with_nul(&BYTES) {
        Ok(name) => name,
        Err(_) => panic!("the last byte alone is zero"),
    }
};

/// Takes the lock of a directory in the kernel once, so that the events of all changes before are queued. Returns whether it was
/// taken for certain. It waits for whoever has it.
///
/// A name that is not cached is looked up under the lock, and every file system refuses one of that length there (ENAMETOOLONG).
pub(in crate::localfs::volume) fn passes_barrier(dir: BorrowedFd<'_>) -> bool {
    barrier_answer(rustix::fs::statat(dir, NO_NAME, AtFlags::SYMLINK_NOFOLLOW).map(drop))
}

fn barrier_answer(answer: Result<(), Errno>) -> bool {
    answer == Err(Errno::NAMETOOLONG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;

    #[test]
    fn lock_of_a_directory_is_taken_for_certain_only_if_the_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::open(dir.path()).unwrap();
        assert!(passes_barrier(open.as_fd()));
        let file = tempfile::tempfile().unwrap();
        assert!(!passes_barrier(file.as_fd()));
        // It is refused before its file system is asked.
        std::fs::remove_dir(dir.path()).unwrap();
        assert!(!passes_barrier(open.as_fd()));
        for answer in [
            Ok(()),
            Err(Errno::NOENT),
            Err(Errno::ACCESS),
            Err(Errno::INVAL),
            Err(Errno::ROFS),
        ] {
            assert!(!barrier_answer(answer), "{answer:?}");
        }
    }
}
