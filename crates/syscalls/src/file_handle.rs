//! File handles of the kernel (name_to_handle_at(2)).

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `MAX_HANDLE_SZ` of the kernel.
const MAX: u8 = 128;

/// A file handle of the kernel. It identifies a file of one file system whatever its name, as long
/// as the file exists, also across restarts of the machine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileHandle {
    kind: c_int,
    len: u8,
    /// Zero after `len` bytes, so that equal handles are equal as values.
    bytes: [u8; FileHandle::MAX],
}

/// `struct file_handle` with room for the handle bytes.
#[repr(C)]
struct Raw {
    head: libc::file_handle,
    bytes: [u8; FileHandle::MAX],
}

// The kernel reads and writes the handle bytes directly after the head.
const _: () = assert!(std::mem::offset_of!(Raw, bytes) == size_of::<libc::file_handle>());

impl FileHandle {
    /// Largest length of a handle in bytes.
    pub const MAX: usize = MAX as usize;

    /// Makes a handle of this type and these bytes; `None` if there are more than
    /// [`MAX`](Self::MAX).
    pub fn new(kind: c_int, bytes: &[u8]) -> Option<Self> {
        let mut all = [0; Self::MAX];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self {
            kind,
            len: u8::try_from(bytes.len()).ok()?,
            bytes: all,
        })
    }

    /// Returns the handle of an open file. The descriptor may be opened with `O_PATH`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the file system has no handles. `EOVERFLOW`: the handle has more than
    /// [`MAX`](Self::MAX) bytes.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mut raw = Raw {
            head: libc::file_handle {
                handle_bytes: MAX.into(),
                handle_type: 0,
                f_handle: [],
            },
            bytes: [0; Self::MAX],
        };
        let mut mount: c_int = 0;
        // SAFETY: the path is a string that ends with zero. Behind the head of `raw` there are as many
        // bytes as it says, which the kernel may write, and the pointer is one to all of `raw`. `mount` is
        // a place for an int. All of them outlive the call, which keeps none of the pointers.
        #[allow(unsafe_code, reason = "this call has no safe wrapper")]
        let failed = unsafe {
            libc::name_to_handle_at(
                fd.as_raw_fd(),
                c"".as_ptr(),
                (&raw mut raw).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        let len = usize::try_from(raw.head.handle_bytes).unwrap_or(usize::MAX);
        let bytes = raw.bytes.get(..len);
        bytes
            .and_then(|bytes| Self::new(raw.head.handle_type, bytes))
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))
    }

    /// Opens the file of this handle with `flags` of open(2). Permissions of the directories above
    /// it are not checked. `mount` is any file or directory of the mount in which to open it, and
    /// must not be opened with `O_PATH`.
    ///
    /// # Errors
    ///
    /// `ESTALE`: the file does not exist. `EPERM`: the calling thread lacks `CAP_DAC_READ_SEARCH`.
    /// Others as for open(2).
    pub fn open(&self, mount: BorrowedFd<'_>, flags: c_int) -> io::Result<OwnedFd> {
        let mut raw = Raw {
            head: libc::file_handle {
                handle_bytes: self.len.into(),
                handle_type: self.kind,
                f_handle: [],
            },
            bytes: self.bytes,
        };
        // SAFETY: behind the head of `raw` there are at least as many bytes as it says, and the pointer is
        // one to all of `raw`, which outlives the call. The kernel keeps no pointer to it.
        #[allow(unsafe_code, reason = "this call has no safe wrapper")]
        let fd = unsafe {
            libc::open_by_handle_at(
                mount.as_raw_fd(),
                (&raw mut raw).cast(),
                flags | libc::O_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel made this descriptor just now, and nothing else knows of it.
        #[allow(unsafe_code, reason = "a number becomes a descriptor")]
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Type of the handle, which defines the meaning of its bytes.
    pub fn kind(&self) -> c_int {
        self.kind
    }

    /// Bytes of the handle.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileHandle")
            .field("kind", &self.kind)
            .field("bytes", &self.as_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::fd::AsFd;

    /// A directory of this test alone.
    struct Dir(std::path::PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn handle_leads_to_its_file_whatever_its_name() {
        let dir = Dir::new("file-handle");
        let (first, second) = (dir.0.join("first"), dir.0.join("second"));
        fs::write(&first, "data").unwrap();
        let handle = match FileHandle::of(fs::File::open(&first).unwrap().as_fd()) {
            Ok(handle) => handle,
            Err(error) => {
                // As of overlayfs without `nfs_export`.
                assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
                return;
            }
        };
        fs::rename(&first, &second).unwrap();
        let again = FileHandle::of(fs::File::open(&second).unwrap().as_fd()).unwrap();
        assert_eq!(again, handle);
        let copy = FileHandle::new(handle.kind(), handle.as_bytes()).unwrap();
        assert_eq!(copy, handle);
        let mount = fs::File::open(&dir.0).unwrap();
        let opened = match copy.open(mount.as_fd(), libc::O_RDONLY) {
            Ok(opened) => opened,
            Err(error) => {
                // Not by everybody.
                assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                return;
            }
        };
        let mut text = String::new();
        fs::File::from(opened).read_to_string(&mut text).unwrap();
        assert_eq!(text, "data");
        fs::remove_file(&second).unwrap();
        let error = copy.open(mount.as_fd(), libc::O_RDONLY).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    }

    #[test]
    fn handles_have_at_most_128_bytes() {
        assert!(FileHandle::new(1, &[0; 128]).is_some());
        assert_eq!(FileHandle::new(1, &[0; 129]), None);
    }

    #[test]
    fn file_systems_without_handles_say_so() {
        let file = fs::File::open("/proc/self/status").unwrap();
        let error = FileHandle::of(file.as_fd()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
