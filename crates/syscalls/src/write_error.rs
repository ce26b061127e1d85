//! Errors of write-back.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Checks whether write-back of the file has failed since the descriptor was opened or last
/// checked. Unlike fsync(2), this neither writes nor waits.
///
/// # Errors
///
/// The error of the write-back. Others as for sync_file_range(2), such as `ESPIPE` for a descriptor
/// without data.
pub fn write_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    // The range is the last possible byte of a file: it has no pages to wait for, and the kernel
    // still checks for an error.
    let last = i64::MAX - 1;
    // SAFETY: the call has no pointers. It waits for pages of one byte to be written, and writes none.
    #[allow(unsafe_code, reason = "this call has no safe wrapper")]
    let failed = unsafe {
        libc::sync_file_range(fd.as_raw_fd(), last, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    };
    match failed {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn file_whose_data_was_written_has_no_error() {
        let path = std::env::temp_dir().join(format!("write-error-{}", std::process::id()));
        std::fs::write(&path, "data").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        write_error(file.as_fd()).unwrap();
        let (pipe, _other) = io::pipe().unwrap();
        let error = write_error(pipe.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESPIPE));
    }
}
