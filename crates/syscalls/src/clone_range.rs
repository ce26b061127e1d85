//! Sharing of data between files.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::ioctl::{self, Setter, opcode};
use std::os::fd::AsRawFd;

/// `struct file_clone_range` of `linux/fs.h`.
#[repr(C)]
struct FileCloneRange {
    source: i64,
    source_offset: u64,
    source_len: u64,
    target_offset: u64,
}

/// `FICLONERANGE` of `linux/fs.h`.
const FICLONERANGE: ioctl::Opcode = opcode::write::<FileCloneRange>(0x94, 13);

/// Makes a range of a file share the data of a range of another file, or of the same, until either is written to
/// (ioctl_ficlonerange(2)).
///
/// # Errors
///
/// Those of the kernel, such as `EOPNOTSUPP` on file systems without shared data.
pub fn clone_range(
    source: impl AsFd,
    source_offset: u64,
    target: impl AsFd,
    target_offset: u64,
    len: u64,
) -> Result<(), Errno> {
    let source = source.as_fd();
    let range = FileCloneRange {
        source: source.as_raw_fd().into(),
        source_offset,
        source_len: len,
        target_offset,
    };
    // SAFETY: the kernel reads a `struct file_clone_range`, which has the layout of this type, and keeps no reference to it. The
    // descriptor in it is open for as long as `source` is borrowed.
    #[allow(unsafe_code, reason = "this call has no safe wrapper")]
    unsafe {
        ioctl::ioctl(target, Setter::<FICLONERANGE, FileCloneRange>::new(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use std::fs::File;
    use std::io::{Read, Write};

    fn unnamed() -> File {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR);
        file.unwrap().into()
    }

    #[test]
    fn file_has_the_data_of_another_or_the_kernel_says_that_it_cannot() {
        let mut source = unnamed();
        source.write_all(&[7; 8192]).unwrap();
        let mut target = unnamed();
        match clone_range(&source, 0, &target, 0, 8192) {
            Ok(()) => {
                let mut data = Vec::new();
                target.read_to_end(&mut data).unwrap();
                assert_eq!(data, [7; 8192]);
            }
            Err(error) => assert!(matches!(error, Errno::OPNOTSUPP | Errno::NOTTY), "{error}"),
        }
    }
}
