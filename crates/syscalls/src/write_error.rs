//! Errors of writing data back.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Asks whether data of a file could not be written to its disk since the descriptor was opened, or was
/// last asked. It neither writes nor waits, where fsync(2) does both.
///
/// # Errors
///
/// The error of writing. Those of sync_file_range(2), as `ESPIPE` for what is no file with data.
pub fn write_error(fd: BorrowedFd<'_>) -> io::Result<()> {
    // The last byte that a file can have: there are no pages to wait for behind it, and the kernel looks
    // whether there was an error all the same.
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
