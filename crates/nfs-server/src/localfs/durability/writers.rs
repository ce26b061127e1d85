//! Descriptors that are open for writing.
//!
//! A file that is open for writing cannot be executed on this machine, so its writer is closed when
//! it is idle, or when its data was synced.

use super::Durability;
use crate::localfs::open_files::WRITE_BACK_ROUNDS;
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::Try;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};

impl Durability {
    /// Returns a descriptor that is open for writing.
    pub(in crate::localfs) fn writer(&self, node: &Node) -> Try<Arc<OwnedFd>> {
        let open = node.writer().clone();
        if let Some(fd) = open {
            self.wrote(node);
            return Ok(fd);
        }
        let fd = Arc::new(self.volume.proc.reopen(node.path.as_fd(), OFlags::WRONLY)?);
        Ok(self.keep_writer(node, fd))
    }

    /// Closes writers that were not used in the last complete round.
    pub(in crate::localfs) fn close_idle_writers(&self, round: u64) {
        let writers: Vec<u64> = self.writers().iter().copied().collect();
        for key in writers {
            let node = self.files.peek(key);
            let Some(node) = node else {
                // The writer was closed with the file.
                self.writers().remove(&key);
                continue;
            };
            if node.wrote.load(Relaxed) < round - 1 {
                self.close_writer(&node);
            }
        }
    }

    /// Returns the keys of files that may be open for writing.
    fn writers(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a descriptor for writing until the file is idle.
    pub(in crate::localfs) fn keep_writer(&self, node: &Node, fd: Arc<OwnedFd>) -> Arc<OwnedFd> {
        self.wrote(node);
        let mut writer = node.writer();
        self.writers().insert(node.key);
        Arc::clone(writer.get_or_insert(fd))
    }

    /// Notes a use of the writer of a file.
    pub(in crate::localfs) fn wrote(&self, node: &Node) {
        node.wrote.store(self.files.round(), Relaxed);
    }

    /// Notes a write that is to be committed later.
    pub(in crate::localfs) fn wrote_unstably(&self, node: &Node) {
        if !self.volume.memory {
            node.uncommitted.store(self.files.round(), Relaxed);
        }
    }

    /// Closes the writer of a file, unless another call is using it or it could not be opened
    /// again. Another descriptor stays open to learn of the loss of uncommitted data.
    pub(in crate::localfs) fn close_writer(&self, node: &Node) {
        if self.is_last_writer(node) {
            return;
        }
        let uncommitted = node.uncommitted.load(Relaxed) != 0;
        let hears = !uncommitted || self.can_hear(node);
        let fd = {
            let mut writer = node.writer();
            if writer.as_ref().is_some_and(|fd| Arc::strong_count(fd) > 1) {
                return;
            }
            self.writers().remove(&node.key);
            writer.take()
        };
        let Some(fd) = fd else { return };
        if !uncommitted {
            return;
        }
        if !hears {
            // The file is not readable for this user, so its data is written back now.
            match rustix::fs::fsync(&*fd) {
                Ok(()) => node.uncommitted.store(0, Relaxed),
                Err(errno) => self.note_loss(errno),
            }
        }
        node.check_writes(&fd);
    }

    /// Whether a client that has the file open may have more to write, and this process could not
    /// open it again: without the rights of root, by the mode of the file (RFC 1813 §4.4).
    fn is_last_writer(&self, node: &Node) -> bool {
        let until = node.wrote.load(Relaxed).saturating_add(WRITE_BACK_ROUNDS);
        !self.rights.acts_for_callers()
            && self.files.round() < until
            && self
                .files
                .attributes(node)
                .is_ok_and(|now| now.mode & 0o200 == 0)
    }

    /// Opens the file for reading unless it is open; returns whether that succeeded.
    fn can_hear(&self, node: &Node) -> bool {
        if node.reader().is_none()
            && let Ok(fd) = self.volume.proc.reopen(node.path.as_fd(), OFlags::RDONLY)
        {
            node.reader_or(fd);
        }
        node.reader().is_some()
    }
}
