//! Open files.

use super::ahead::SyncsAhead;
use super::group_commit::GroupCommit;
use super::id::TableId;
use super::sys::Stat;
use super::verdicts::Verdicts;
use crate::fs::{FileId, FileKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A descriptor that stands for a file. It is never open for writing, as the file could then not be
/// executed.
pub(super) struct NodeFd {
    fd: OwnedFd,
    readable: bool,
}

impl NodeFd {
    /// One that was opened for reading, too.
    pub(super) fn readable(fd: OwnedFd) -> Self {
        Self { fd, readable: true }
    }
}

/// One that only stands for the file.
impl From<OwnedFd> for NodeFd {
    fn from(fd: OwnedFd) -> Self {
        Self {
            fd,
            readable: false,
        }
    }
}

impl AsFd for NodeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A file that was found, and the descriptors we have of it.
pub(super) struct Node {
    file: FileId,
    /// Its number among the open files.
    pub(super) key: u64,
    pub(super) ino: u64,
    pub(super) birth: u64,
    /// The device it is on; see [`Stat::device`].
    pub(super) device: (u32, u32),
    pub(super) kind: FileKind,
    pub(super) path: NodeFd,
    /// Opened by the first read if `path` cannot be read through.
    reader: OnceLock<OwnedFd>,
    /// Open for writing from the first write to the next sync, or until nobody writes for a while: a file
    /// that is open for writing cannot be executed.
    writer: Mutex<Option<Arc<OwnedFd>>>,
    /// Round in which the writer was last used.
    pub(super) wrote: AtomicU64,
    /// Round in which data was last written that was not committed since; 0 if there is none.
    pub(super) uncommitted: AtomicU64,
    /// The write verifier, which changes when uncommitted data is lost.
    verifier: Arc<AtomicU64>,
    /// Held while data is written that need not reach a disk, and while the size is set.
    pub(super) writing: Mutex<()>,
    /// Syncs of a directory.
    pub(super) syncs: GroupCommit,
    /// The same, where there is a journal.
    pub(super) syncs_ahead: SyncsAhead,
    /// What callers may do with it.
    pub(super) verdicts: Verdicts,
    /// When a directory was last seen within the export, in milliseconds since the start; 0 is never.
    pub(super) seen: AtomicU64,
}

impl Node {
    pub(super) fn new(
        stat: &Stat,
        (file, key): (FileId, u64),
        path: impl Into<NodeFd>,
        verifier: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            file,
            key,
            ino: stat.attributes.fileid,
            birth: stat.birth,
            device: stat.device,
            kind: stat.attributes.kind,
            path: path.into(),
            reader: OnceLock::new(),
            writer: Mutex::new(None),
            wrote: AtomicU64::new(0),
            uncommitted: AtomicU64::new(0),
            verifier: Arc::clone(verifier),
            writing: Mutex::new(()),
            syncs: GroupCommit::default(),
            syncs_ahead: SyncsAhead::default(),
            verdicts: Verdicts::default(),
            seen: AtomicU64::new(0),
        }
    }

    pub(super) fn id(&self) -> FileId {
        self.file
    }

    /// Whether it is the file of that number which the kernel told of.
    pub(super) fn is(&self, stat: &Stat) -> bool {
        let told = (stat.attributes.fileid, stat.birth, stat.device);
        (self.ino, self.birth, self.device) == told
    }

    /// Inode of the directory in its handle, where that has one.
    pub(super) fn home(&self) -> u64 {
        TableId::parse(self.file).map_or(0, |id| id.home)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The descriptor to write through, if there is one.
    pub(super) fn writer(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks whether data of this file was lost. Clients hear of it by the write verifier, and send again
    /// what they have not committed (RFC 1813 §4.8).
    pub(super) fn check_writes(&self, fd: &OwnedFd) {
        let lost = syscalls::write_error(fd.as_fd());
        let lost = lost.map_err(|error| Errno::from_io_error(&error));
        if let Err(Some(errno @ (Errno::IO | Errno::NOSPC | Errno::DQUOT))) = lost {
            tracing::warn!(%errno, "data could not be written back");
            self.verifier.fetch_add(1, Relaxed);
        }
    }

    /// The descriptor to read through, if there is one yet.
    pub(super) fn reader(&self) -> Option<&OwnedFd> {
        match self.path.readable {
            true => Some(&self.path.fd),
            false => self.reader.get(),
        }
    }

    /// The descriptor to read through: this one, if there is none.
    pub(super) fn reader_or(&self, fd: OwnedFd) -> &OwnedFd {
        match self.path.readable {
            true => &self.path.fd,
            false => self.reader.get_or_init(|| fd),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.uncommitted.load(Relaxed) == 0 {
            return;
        }
        let writer = self.writer().take();
        if let Some(fd) = writer.as_deref().or(self.reader()) {
            self.check_writes(fd);
        }
    }
}

/// Where a file was last seen.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// Which file of that inode number; `None` if only its directory entry was seen.
    pub(super) known: Option<Known>,
    pub(super) parent: u64,
    pub(super) name: Box<[u8]>,
}

/// What is remembered of a file beside its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) birth: u64,
    pub(super) home: u64,
    /// Whether the table has a row for it.
    pub(super) saved: bool,
}
