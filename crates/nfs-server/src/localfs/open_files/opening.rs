//! Opens entries of directories, and files again for reading.

use super::OpenFiles;
use super::node::Node;
use crate::fs::Error;
use crate::localfs::sys::{self, Pace, Stat, Stop, Try};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of directory entries read at a time.
pub(in crate::localfs) const DIRECTORY_BUFFER: usize = 32 << 10;

impl OpenFiles {
    /// Opens an entry with `O_PATH` and returns its attributes. Asking by name would reach a file
    /// system mounted there, which may hang while other calls wait to change names.
    pub(in crate::localfs) fn open_entry(
        &self,
        dir: &Node,
        name: &[u8],
        pace: Pace,
    ) -> Try<(OwnedFd, Stat)> {
        let opened = sys::open_entry(&dir.path, name, self.volume.look(pace));
        let fd = opened.map_err(|errno| match errno {
            // The entry is a mount point, and the mounted file system is not exported.
            Errno::XDEV => Stop::Fail(Error::Access),
            errno => errno.into(),
        })?;
        self.look_at(fd)
    }

    /// Returns an opened file with its attributes, unless it is hidden from clients.
    pub(in crate::localfs) fn look_at(&self, fd: OwnedFd) -> Try<(OwnedFd, Stat)> {
        let stat = self.volume.glance(&fd)?;
        if !self.is_here(&stat) {
            self.tell_elsewhere(fd.as_fd(), &stat);
            return Err(Error::Access.into());
        }
        match self.volume.is_hidden(&stat) {
            true => Err(Error::Access.into()),
            false => Ok((fd, stat)),
        }
    }

    /// Logs once that a file is on another device of the same mount, and therefore not served.
    fn tell_elsewhere(&self, fd: BorrowedFd<'_>, stat: &Stat) {
        if stat.mount != self.root().mount || self.told_elsewhere.swap(true, Relaxed) {
            return;
        }
        let path = self.volume.proc.path(fd).unwrap_or_default();
        tracing::warn!(
            export = %self.volume.path.display(),
            path = %path.to_bytes().escape_ascii(),
            "a subvolume below an export is not served (NFS3ERR_ACCES), nor are others: its files have inode \
             numbers of other files, from which only the kernel's file handles distinguish them, and \
             the server may not open those (it lacks CAP_DAC_READ_SEARCH, or was told to use a table); \
             export the subvolume itself"
        );
    }

    /// Whether a file is in the exported file system, and not in one mounted within it. Without
    /// kernel handles, a subvolume of btrfs counts as mounted: a snapshot has the inode numbers and
    /// birth times of its source.
    pub(in crate::localfs) fn is_here(&self, stat: &Stat) -> bool {
        let is_elsewhere = stat.device != self.root().device && !self.volume.by.path();
        stat.mount == self.root().mount && (self.volume.kernel_handles || !is_elsewhere)
    }

    /// Opens a directory for reading its entries.
    pub(in crate::localfs) fn open_directory(&self, node: &Node) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.volume.proc.reopen(node.path.as_fd(), flags)
    }

    /// Returns the descriptor of a file for reading, which stays open.
    pub(in crate::localfs) fn open_reader<'a>(&self, node: &'a Node) -> Try<&'a OwnedFd> {
        if let Some(fd) = node.reader() {
            return Ok(fd);
        }
        let fd = self.volume.proc.reopen(node.path.as_fd(), OFlags::RDONLY)?;
        Ok(node.reader_or(fd))
    }
}
