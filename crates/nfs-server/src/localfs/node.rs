//! Open files.

use super::sys::Stat;
use crate::fs::{FileId, FileKind};
use rustix::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

/// A file that was found, and the descriptors we have of it.
pub(super) struct Node {
    pub(super) ino: u64,
    pub(super) birth: u64,
    /// Inode of the directory in its handle.
    pub(super) home: u64,
    pub(super) kind: FileKind,
    /// Stands for the file; nothing can be read through it.
    pub(super) path: OwnedFd,
    pub(super) reader: OnceLock<OwnedFd>,
    /// Open for writing from the first write to the next sync: a file that is open for writing
    /// cannot be executed.
    pub(super) writer: Mutex<Option<Arc<OwnedFd>>>,
    /// Held by a job while it writes data that need not be stable.
    pub(super) writing: Mutex<()>,
    /// When it was last seen at its place, in milliseconds since the start.
    pub(super) seen: AtomicU64,
}

impl Node {
    pub(super) fn new(stat: &Stat, home: u64, path: OwnedFd) -> Self {
        Self {
            ino: stat.attributes.fileid,
            birth: stat.birth,
            home,
            kind: stat.attributes.kind,
            path,
            reader: OnceLock::new(),
            writer: Mutex::new(None),
            writing: Mutex::new(()),
            seen: AtomicU64::new(0),
        }
    }

    pub(super) fn id(&self) -> FileId {
        FileId([self.ino, self.birth, self.home])
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
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
