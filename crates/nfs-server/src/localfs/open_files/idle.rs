//! Closing of idle files.
//!
//! An open descriptor keeps the space of a removed file. About once a second a thread of the export
//! looks for files not used since. With kernel handles it closes them: they are found again in one
//! step. Otherwise an open file is worth keeping, as nothing else may lead to it: only files without
//! a name are closed, and those of which the kernel cannot tell. The thread sleeps while nothing is
//! open.
//!
//! The kernel reports the loss of uncommitted data only through open descriptors. So a file with
//! such data stays open, for reading, until the kernel has written the data back.

use super::OpenFiles;
use super::node::{Gone, Node};
use rustix::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Rounds for which an idle file with data that was not committed is kept open, or one that could not be
/// opened again to be written: a minute. By default a kernel, that of a client too, begins to write data
/// back when it is 30 seconds old.
pub(in crate::localfs) const WRITE_BACK_ROUNDS: u64 = 80;

/// A round of the sweeper that has begun.
pub(in crate::localfs) struct Round {
    /// Its number.
    pub(in crate::localfs) number: u64,
    /// Files that were not used in the last complete round, and that no client keeps open.
    pub(in crate::localfs) idle: Vec<Arc<Node>>,
    /// Files that were found to have no name any more, where there are no kernel handles.
    pub(in crate::localfs) gone: Vec<Gone>,
    /// Files without a name that clients have lost, which are closed with this.
    pub(in crate::localfs) lost: Vec<Arc<Node>>,
}

impl OpenFiles {
    /// Returns the current round of the sweeper.
    pub(in crate::localfs) fn round(&self) -> u64 {
        self.round.load(Relaxed)
    }

    /// Begins a round.
    pub(in crate::localfs) fn begin_round(&self) -> Round {
        let number = self.round.fetch_add(1, Relaxed) + 1;
        let mut cache = self.cache();
        cache.set_round(number);
        Round {
            number,
            idle: cache
                .idle(number - 1)
                .filter(|node| cache.held().node(node.key).is_none())
                .map(Arc::clone)
                .collect(),
            gone: cache.take_gone(),
            lost: cache.held_mut().0.take_lost(),
        }
    }

    /// Ends a round. The thread sleeps if nothing is open.
    pub(in crate::localfs) fn end_round(&self) {
        let cache = self.cache();
        if cache.len() == 0 && cache.kept() == 0 && !cache.held().has_lost() {
            self.sweeper.rest();
        }
    }

    /// Closes a file that was idle when this round began, unless it is to stay open. Returns what
    /// identified it if it has no name any more.
    pub(in crate::localfs) fn close_idle(&self, node: &Arc<Node>, round: u64) -> Option<Gone> {
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
            return None;
        }
        let mut cache = self.cache();
        // The cache and the caller hold one reference each.
        let unused = Arc::strong_count(node) <= 2 && cache.is_idle(node.key, round - 1);
        let closed = unused.then(|| cache.remove(node.key));
        drop(cache);
        // Closing the last descriptor of a large file takes time.
        drop(closed);
        (links == Ok(0)).then(|| Gone::from(&**node))
    }

    /// Whether a file has no name any more, though it has a link: libfuse renames a removed file that
    /// is open, and removes it when it is closed. The kernel tells by the path, also for a file that
    /// really has such a name; that one is found again.
    fn is_hidden_by_fuse(&self, node: &Node) -> bool {
        let path = self.volume.proc.path(node.path.as_fd());
        !self.volume.local && path.is_ok_and(|path| path.to_bytes().ends_with(b" (deleted)"))
    }
}
