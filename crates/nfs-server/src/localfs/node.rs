//! Open files.

use super::ahead::SyncsAhead;
use super::group_commit::GroupCommit;
use super::id::TableId;
use super::sys::Stat;
use super::verdicts::Verdicts;
use crate::fs::{FileId, FileKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A descriptor that identifies a file. It is never open for writing, since such a file could not
/// be executed.
pub(super) struct NodeFd {
    fd: OwnedFd,
    readable: bool,
}

impl NodeFd {
    /// A descriptor that is open for reading.
    pub(super) fn readable(fd: OwnedFd) -> Self {
        Self { fd, readable: true }
    }
}

/// A descriptor opened with `O_PATH`.
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

/// An open file with its descriptors.
pub(super) struct Node {
    file: FileId,
    /// Key among the open files.
    pub(super) key: u64,
    /// Inode number when the file was opened.
    pub(super) ino: u64,
    /// Number that identifies the file within the export, with `birth` over time: the inode
    /// number, or a [hash of the path](super::id::number_of_path).
    pub(super) number: u64,
    /// Number that clients are told (`fileid`): it stays while the file has its handle.
    pub(super) fileid: u64,
    pub(super) birth: u64,
    /// Device of the file; see [`Stat::device`].
    pub(super) device: (u32, u32),
    pub(super) kind: FileKind,
    pub(super) path: NodeFd,
    /// Opened by the first read if `path` cannot be read through.
    reader: OnceLock<OwnedFd>,
    /// Descriptor for writing, open from the first write to the next sync, or until the file is
    /// idle: a file that is open for writing cannot be executed.
    writer: Mutex<Option<Arc<OwnedFd>>>,
    /// Round of the last use of the writer.
    pub(super) wrote: AtomicU64,
    /// Round of the last write that was not committed; 0 if there is none.
    pub(super) uncommitted: AtomicU64,
    /// The write verifier, which changes when uncommitted data is lost.
    verifier: Arc<AtomicU64>,
    /// Held during writes without a sync, and while the size is set.
    pub(super) writing: Mutex<()>,
    /// Syncs of a directory.
    pub(super) syncs: GroupCommit,
    /// Syncs of a directory, on file systems with a journal.
    pub(super) syncs_ahead: SyncsAhead,
    /// Cached rights of callers.
    pub(super) verdicts: Verdicts,
    /// Time at which a directory was last seen within the export, in milliseconds since the start;
    /// 0 is never.
    pub(super) seen: AtomicU64,
}

impl Node {
    pub(super) fn new(
        stat: &Stat,
        (file, key, fileid): (FileId, u64, u64),
        path: impl Into<NodeFd>,
        verifier: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            file,
            key,
            ino: stat.attributes.fileid,
            number: TableId::parse(file).map_or(stat.attributes.fileid, |id| id.number),
            fileid,
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

    /// Whether this is the file with these attributes, and not another one with its inode number.
    pub(super) fn is(&self, stat: &Stat) -> bool {
        let told = (stat.attributes.fileid, stat.birth, stat.device);
        (self.ino, self.birth, self.device) == told
    }

    /// Number of the home in the handle; 0 for a kernel handle.
    pub(super) fn home(&self) -> u64 {
        TableId::parse(self.file).map_or(0, |id| id.home)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns the descriptor for writing, if it is open.
    pub(super) fn writer(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether data of this file was lost. If so, changes the write verifier, so that
    /// clients send again what they have not committed (RFC 1813 §4.8).
    pub(super) fn check_writes(&self, fd: &OwnedFd) {
        let lost = syscalls::write_error(fd.as_fd());
        let lost = lost.map_err(|error| Errno::from_io_error(&error));
        if let Err(Some(errno @ (Errno::IO | Errno::NOSPC | Errno::DQUOT))) = lost {
            tracing::warn!(%errno, "data could not be written back");
            self.verifier.fetch_add(1, Relaxed);
        }
    }

    /// Returns the descriptor for reading, if it is open.
    pub(super) fn reader(&self) -> Option<&OwnedFd> {
        match self.path.readable {
            true => Some(&self.path.fd),
            false => self.reader.get(),
        }
    }

    /// Returns the descriptor for reading; `fd` becomes it if there is none.
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

/// The root directory of an export.
pub(super) struct Root {
    pub(super) node: Arc<Node>,
    pub(super) mount: u64,
    pub(super) device: (u32, u32),
    /// Whether a file system is mounted there.
    pub(super) is_mount: bool,
}

impl Deref for Root {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// How a file got a name.
#[derive(Clone, Copy)]
pub(super) enum Named<'a> {
    /// It was renamed, and had this name in this directory before.
    Moved(&'a Node, &'a [u8]),
    /// It is this file, and was given one more name.
    Linked(&'a Node),
}

/// Last known location of a file.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// The file with this number; `None` if only its directory entry was seen.
    pub(super) known: Option<Known>,
    pub(super) parent: u64,
    pub(super) name: Box<[u8]>,
}

/// Facts of a file beside its location.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) birth: u64,
    pub(super) home: u64,
    /// Whether the table has a row for it.
    pub(super) saved: bool,
}
