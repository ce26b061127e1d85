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
use super::node::Node;
use super::table::Of;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// Rounds for which an idle file with data that was not committed is kept open, or one that could not be
/// opened again to be written: a minute. By default a kernel, that of a client too, begins to write data
/// back when it is 30 seconds old.
const WRITE_BACK_ROUNDS: u64 = 80;

/// Largest number of removed files whose rows are still to be removed from the table. Rows of
/// further files stay.
const MAX_GONE: usize = 4096;

/// A file without a name.
pub(super) struct Gone {
    pub(super) number: u64,
    pub(super) of: Of,
    pub(super) birth: u64,
}

/// Starts the thread that closes idle files.
///
/// # Errors
///
/// If the thread cannot be started.
pub(super) fn start(inner: &Arc<Inner>) -> io::Result<()> {
    let sweeper = Arc::clone(&inner.sweeper);
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
        let round = self.round.fetch_add(1, Relaxed) + 1;
        let (idle, gone) = {
            let mut caches = self.caches();
            caches.open.set_round(round);
            let idle: Vec<_> = caches.open.idle(round - 1).map(Arc::clone).collect();
            (idle, std::mem::take(&mut caches.gone))
        };
        self.passes.begin_round(round);
        self.listed.begin_round(round);
        self.volume.look_who_can_reach();
        for gone in gone {
            self.forget(&gone);
        }
        self.close_idle_writers(round);
        for node in idle {
            if self.sweeper.is_ending() {
                return;
            }
            self.close_idle(&node, round);
        }
        let caches = self.caches();
        if caches.open.len() == 0 {
            self.sweeper.rest();
        }
    }

    fn close_idle(&self, node: &Arc<Node>, round: u64) {
        let links = rustix::fs::fstat(&node.path).map(|stat| stat.st_nlink);
        let wrote = node.uncommitted.load(Relaxed);
        let may_lose_data = wrote != 0 && round < wrote.saturating_add(WRITE_BACK_ROUNDS);
        let stays = match links {
            Ok(0) => false,
            // A writer that is still open must stay so.
            Ok(_) => {
                !self.volume.kernel_handles && !self.is_hidden_by_fuse(node)
                    || may_lose_data
                    || node.writer().is_some()
            }
            // A file system in another process refuses to tell of a removed file. If the file has
            // other names, or answers later, it is looked for again.
            Err(_) => may_lose_data,
        };
        if stays {
            return;
        }
        let mut caches = self.caches();
        // The cache and this function hold one reference each.
        let unused = Arc::strong_count(node) <= 2 && caches.open.is_idle(node.key, round - 1);
        let closed = unused.then(|| caches.open.remove(node.key));
        drop(caches);
        // Closing the last descriptor of a large file takes time.
        drop(closed);
        if links == Ok(0) {
            self.forget(&Gone::from(&**node));
        }
    }

    /// Whether a file has no name any more, though it has a link: libfuse renames a removed file that
    /// is open, and removes it when it is closed. The kernel tells by the path, also for a file that
    /// really has such a name; that one is found again.
    fn is_hidden_by_fuse(&self, node: &Node) -> bool {
        let path = self.volume.proc.path(node.path.as_fd());
        !self.volume.local && path.is_ok_and(|path| path.to_bytes().ends_with(b" (deleted)"))
    }

    fn close_idle_writers(&self, round: u64) {
        let writers: Vec<u64> = self.writers().iter().copied().collect();
        for key in writers {
            let node = self.caches().open.peek(key).map(Arc::clone);
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
        node.wrote.store(self.round.load(Relaxed), Relaxed);
    }

    /// Notes a write that is to be committed later.
    pub(super) fn wrote_unstably(&self, node: &Node) {
        if !self.volume.memory {
            node.uncommitted.store(self.round.load(Relaxed), Relaxed);
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
        !self.as_root
            && self.round.load(Relaxed) < until
            && self.attributes(node).is_ok_and(|now| now.mode & 0o200 == 0)
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

    /// Notes that a file has no name any more.
    pub(super) fn note_gone(&self, node: &Node) {
        self.drop_node(node);
        if !self.volume.kernel_handles {
            let mut caches = self.caches();
            if caches.gone.len() < MAX_GONE {
                caches.gone.push(Gone::from(node));
            }
        }
    }

    /// Removes the location of a removed file.
    pub(super) fn forget(&self, gone: &Gone) {
        let Some(table) = self.table() else { return };
        let mut caches = self.caches();
        let link = caches.links.get(gone.number).and_then(|link| link.known);
        if link.is_some_and(|known| known.birth == gone.birth) {
            caches.links.remove(gone.number);
        }
        drop(caches);
        table.remove(gone.number, gone.of, gone.birth);
    }
}

impl From<&Node> for Gone {
    fn from(node: &Node) -> Self {
        Self {
            number: node.number,
            of: if node.is_directory() {
                Of::Directory
            } else {
                Of::File
            },
            birth: node.birth,
        }
    }
}
