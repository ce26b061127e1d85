//! Open files.

use crate::fs::{FileId, FileKind};
use crate::localfs::group_commit::GroupCommit;
use crate::localfs::id::TableId;
use crate::localfs::journal_commit::JournalCommit;
use crate::localfs::known_rights::KnownRights;
use crate::localfs::sys::Stat;
use crate::localfs::write_verifier::WriteVerifier;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A descriptor that identifies a file. It is never open for writing, since such a file could not
/// be executed.
pub(in crate::localfs) struct NodeFd {
    fd: OwnedFd,
    readable: bool,
}

impl NodeFd {
    /// A descriptor that is open for reading.
    pub(in crate::localfs) fn readable(fd: OwnedFd) -> Self {
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
pub(in crate::localfs) struct Node {
    file: FileId,
    /// Key among the open files.
    pub(in crate::localfs) key: u64,
    /// Inode number when the file was opened.
    pub(in crate::localfs) ino: u64,
    /// Number that identifies the file within the export, with `birth` over time: the inode
    /// number, or a [hash of the path](crate::localfs::id::number_of_path).
    pub(in crate::localfs) number: u64,
    /// Number that clients are told (`fileid`): it stays while the file has its handle.
    pub(in crate::localfs) fileid: u64,
    pub(in crate::localfs) birth: u64,
    /// Device of the file; see [`Stat::device`].
    pub(in crate::localfs) device: (u32, u32),
    pub(in crate::localfs) kind: FileKind,
    pub(in crate::localfs) path: NodeFd,
    /// Opened by the first read if `path` cannot be read through.
    reader: OnceLock<OwnedFd>,
    /// Descriptor for writing, open from the first write to the next sync, or until the file is
    /// idle: a file that is open for writing cannot be executed.
    writer: Mutex<Option<Arc<OwnedFd>>>,
    /// Round of the last use of the writer.
    pub(in crate::localfs) wrote: AtomicU64,
    /// Round of the last write that was not committed; 0 if there is none.
    pub(in crate::localfs) uncommitted: AtomicU64,
    /// The write verifier, which changes when uncommitted data is lost.
    verifier: WriteVerifier,
    /// Held during writes without a sync, and while the size is set.
    pub(in crate::localfs) writing: Mutex<()>,
    /// Syncs of a directory.
    pub(in crate::localfs) syncs: GroupCommit,
    /// Syncs of a directory, on file systems with a journal.
    pub(in crate::localfs) journal_syncs: JournalCommit,
    /// Cached rights of callers.
    pub(in crate::localfs) rights: KnownRights,
    /// Time at which a directory was last seen within the export, in milliseconds since the start;
    /// 0 is never.
    pub(in crate::localfs) seen: AtomicU64,
}

impl Node {
    pub(in crate::localfs) fn new(
        stat: &Stat,
        (file, key, fileid): (FileId, u64, u64),
        path: impl Into<NodeFd>,
        verifier: &WriteVerifier,
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
            verifier: verifier.clone(),
            writing: Mutex::new(()),
            syncs: GroupCommit::default(),
            journal_syncs: JournalCommit::default(),
            rights: KnownRights::default(),
            seen: AtomicU64::new(0),
        }
    }

    pub(in crate::localfs) fn id(&self) -> FileId {
        self.file
    }

    /// Whether this is the file with these attributes, and not another one with its inode number.
    pub(in crate::localfs) fn is(&self, stat: &Stat) -> bool {
        let told = (stat.attributes.fileid, stat.birth, stat.device);
        (self.ino, self.birth, self.device) == told
    }

    /// Number of the home in the handle; 0 for a kernel handle.
    pub(in crate::localfs) fn home(&self) -> u64 {
        TableId::parse(self.file).map_or(0, |id| id.home)
    }

    pub(in crate::localfs) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns the descriptor for writing, if it is open.
    pub(in crate::localfs) fn writer(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether data of this file was lost. If so, changes the write verifier, so that
    /// clients send again what they have not committed (RFC 1813 §4.8).
    pub(in crate::localfs) fn check_writes(&self, fd: &OwnedFd) {
        let lost = syscalls::write_error(fd.as_fd());
        let lost = lost.map_err(|error| Errno::from_io_error(&error));
        if let Err(Some(errno @ (Errno::IO | Errno::NOSPC | Errno::DQUOT))) = lost {
            tracing::warn!(%errno, "data could not be written back");
            self.verifier.change();
        }
    }

    /// Returns the descriptor for reading, if it is open.
    pub(in crate::localfs) fn reader(&self) -> Option<&OwnedFd> {
        match self.path.readable {
            true => Some(&self.path.fd),
            false => self.reader.get(),
        }
    }

    /// Returns the descriptor for reading; `fd` becomes it if there is none.
    pub(in crate::localfs) fn reader_or(&self, fd: OwnedFd) -> &OwnedFd {
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
pub(in crate::localfs) struct Root {
    pub(in crate::localfs) node: Arc<Node>,
    pub(in crate::localfs) mount: u64,
    pub(in crate::localfs) device: (u32, u32),
    /// Whether a file system is mounted there.
    pub(in crate::localfs) is_mount: bool,
}

impl Deref for Root {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// Identity of a file that has no name any more.
pub(in crate::localfs) struct Gone {
    pub(in crate::localfs) number: u64,
    pub(in crate::localfs) birth: u64,
    pub(in crate::localfs) is_directory: bool,
}

impl From<&Node> for Gone {
    fn from(node: &Node) -> Self {
        Self {
            number: node.number,
            birth: node.birth,
            is_directory: node.is_directory(),
        }
    }
}
