//! Access checks.

use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;

/// Checks whether this thread, by its file system identity, has all rights in `access` to an open
/// file (faccessat2(2), Linux 5.8). `fd` may be opened with `O_PATH`.
///
/// # Errors
///
/// `ACCESS`: a right is missing. `ROFS`: the file system is read-only. `NOSYS`: the kernel is
/// older, or a sandbox denies the call. Others as for faccessat2(2).
pub fn check_access(fd: impl AsFd, access: Access) -> Result<(), Errno> {
    let flags = AtFlags::EACCESS | AtFlags::EMPTY_PATH;
    // SAFETY: faccessat2(2) reads the path, which is an empty C string of static lifetime, and writes no
    // memory of the process. The descriptor is borrowed, so that it is open meanwhile.
    #[allow(unsafe_code, reason = "rustix refuses an empty path here")]
    let result = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            access.bits(),
            flags.bits(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, openat};

    #[test]
    fn rights_are_told_of_a_descriptor_that_only_stands_for_a_file() {
        let open = |path: &str| openat(CWD, path, OFlags::PATH, Mode::empty()).unwrap();
        let root = open("/");
        assert_eq!(
            check_access(&root, Access::READ_OK | Access::EXEC_OK),
            Ok(())
        );
        // Nobody executes a file without an x, root included.
        let file = open("/proc/self/status");
        assert_eq!(check_access(&file, Access::READ_OK), Ok(()));
        assert_eq!(check_access(&file, Access::EXEC_OK), Err(Errno::ACCESS));
    }
}
