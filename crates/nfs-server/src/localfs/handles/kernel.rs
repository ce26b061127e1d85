//! Kernel handles (name_to_handle_at(2)).
//!
//! A kernel handle identifies a file as long as it exists, whatever its name. No state is needed.

use crate::fs::{Error, FileId};
use crate::localfs::id;
use crate::localfs::sys::{self, ProcFd, Stop, Try};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use syscalls::FileHandle;

/// Largest number of attempts to open a handle that fails with ENOMEM. ext4 returns that also for
/// the handle of a removed file while a new file with its inode number is being created.
const OPEN_TRIES: u32 = 10;

/// Delay between two attempts.
const OPEN_PAUSE: Duration = Duration::from_millis(1);

/// Kernel handles of the mount of an export.
pub(in crate::localfs) struct KernelHandles {
    /// A directory of the mount.
    mount: OwnedFd,
    /// Length of the longest id in bytes.
    pub(in crate::localfs) longest: usize,
    /// Whether a handle that is too long was logged.
    told: AtomicBool,
}

impl KernelHandles {
    /// Opens the mount of this directory.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the file system has no handles, or its handles do not fit a [`FileId`].
    /// `EPERM`: this process may not open handles.
    pub(in crate::localfs) fn open(root: BorrowedFd<'_>, proc: &ProcFd) -> Result<Self, Errno> {
        let mount = proc.reopen(root, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let handles = Self {
            mount,
            longest: FileId::MAX,
            told: AtomicBool::new(false),
        };
        let file = handles.identify(root)?;
        let again = handles.open_file(file).map_err(|stop| match stop {
            Stop::Fail(Error::NotOwner) => Errno::PERM,
            Stop::Fail(_) | Stop::WouldBlock => Errno::OPNOTSUPP,
        })?;
        match sys::is_same(&again, root)? {
            true => Ok(handles),
            false => Err(Errno::OPNOTSUPP),
        }
    }

    /// Returns the id of a file. If the handle of the root is short enough, those of other files
    /// usually are too. Overlayfs is an exception: its handles contain those of its layers.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the handle does not fit an id. This is logged once.
    pub(in crate::localfs) fn identify(&self, fd: impl AsFd) -> Result<FileId, Errno> {
        let handle = FileHandle::of(fd.as_fd());
        let handle = handle.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let file = id::of_kernel(&handle).filter(|file| file.as_bytes().len() <= self.longest);
        file.ok_or_else(|| {
            if !self.told.swap(true, Relaxed) {
                let inode = sys::attributes(fd).map_or(0, |file| file.fileid);
                tracing::warn!(
                    inode,
                    bytes = handle.as_bytes().len(),
                    "files of this file system have longer file handles than NFS has room for: they are \
                     listed, and not served (NFS3ERR_NOTSUPP)"
                );
            }
            Errno::OPNOTSUPP
        })
    }

    /// Opens the file of a handle with `O_PATH`. May read the disk.
    pub(in crate::localfs) fn open_file(&self, file: FileId) -> Try<OwnedFd> {
        let handle = id::to_kernel(file).ok_or(Error::Stale)?;
        let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits().cast_signed();
        let open = || {
            let opened = handle.open(self.mount.as_fd(), flags);
            sys::opened(opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)))
        };
        let mut opened = open();
        for _ in 1..OPEN_TRIES {
            if !matches!(opened, Err(Errno::NOMEM)) {
                break;
            }
            std::thread::sleep(OPEN_PAUSE);
            opened = open();
        }
        opened.map_err(|errno| match errno {
            // The handle is not of this file system.
            Errno::INVAL => Error::Stale.into(),
            errno => errno.into(),
        })
    }
}
