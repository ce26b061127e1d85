//! Closing of idle files.
//!
//! An open descriptor keeps the space of a removed file, and one open for writing keeps the file
//! from being executed. About once a second a thread of the export looks for files not used since.
//! With kernel handles it closes them: they are found again in one step. With the table an open
//! file is worth keeping, as nothing else may lead to it: only files without a name are closed, and
//! those of which the kernel cannot tell. The thread sleeps while nothing is open.
//!
//! The kernel reports the loss of uncommitted data only through open descriptors. So a file with
//! such data stays open, for reading, until the kernel has written the data back.

use super::Inner;
use super::open_files::WRITE_BACK_ROUNDS;
use super::open_files::node::{Gone, Node};
use super::table::Of;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// Starts the thread that closes idle files.
///
/// # Errors
///
/// If the thread cannot be started.
pub(super) fn start(inner: &Arc<Inner>) -> io::Result<()> {
    let sweeper = Arc::clone(inner.files.sweeper());
    let inner = Arc::downgrade(inner);
    let run = move || {
        while let Some(round) = sweeper.next_round() {
            let Some(inner) = Weak::upgrade(&inner) else {
                return;
            };
            inner.sweep();
            // The one who closes the export waits for the round, and then has the last reference.
            drop(inner);
            drop(round);
        }
    };
    let thread = std::thread::Builder::new().name("nfs-sweeper".into());
    thread.spawn(run).map(drop)
}

impl Inner {
    /// Ends a round: closes files that were not used in the last complete one.
    pub(super) fn sweep(&self) {
        let round = self.files.begin_round();
        self.passes.begin_round(round.number);
        self.listed.begin_round(round.number);
        self.volume.look_who_can_reach();
        for gone in round.gone {
            self.forget(&gone);
        }
        self.close_idle_writers(round.number);
        for node in round.idle {
            if self.files.sweeper().is_ending() {
                return;
            }
            if let Some(gone) = self.files.close_idle(&node, round.number) {
                self.forget(&gone);
            }
        }
        self.files.end_round();
    }

    fn close_idle_writers(&self, round: u64) {
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
    pub(super) fn keep_writer(&self, node: &Node, fd: Arc<OwnedFd>) -> Arc<OwnedFd> {
        self.wrote(node);
        let mut writer = node.writer();
        self.writers().insert(node.key);
        Arc::clone(writer.get_or_insert(fd))
    }

    /// Notes a use of the writer of a file.
    pub(super) fn wrote(&self, node: &Node) {
        node.wrote.store(self.files.round(), Relaxed);
    }

    /// Notes a write that is to be committed later.
    pub(super) fn wrote_unstably(&self, node: &Node) {
        if !self.volume.memory {
            node.uncommitted.store(self.files.round(), Relaxed);
        }
    }

    /// Closes the writer of a file, unless another call is using it or it could not be opened
    /// again. Another descriptor stays open to learn of the loss of uncommitted data.
    pub(super) fn close_writer(&self, node: &Node) {
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
                Err(errno) => self.note_loss(errno, crate::fs::Stability::FileSync),
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

    /// Removes the location of a removed file.
    pub(super) fn forget(&self, gone: &Gone) {
        let Some(table) = self.table() else { return };
        let mut links = self.links();
        let link = links.get(gone.number).and_then(|link| link.known);
        if link.is_some_and(|known| known.birth == gone.birth) {
            links.remove(gone.number);
        }
        drop(links);
        let of = match gone.is_directory {
            true => Of::Directory,
            false => Of::File,
        };
        table.remove(gone.number, of, gone.birth);
    }
}
