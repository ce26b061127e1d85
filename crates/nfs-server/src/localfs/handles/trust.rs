//! How long the location of a directory is trusted.

use crate::fs::FileId;
use crate::localfs::open_files::OpenFiles;
use crate::localfs::open_files::node::{Node, NodeFd};
use crate::localfs::sys::Stat;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long the location of a directory is trusted before it is looked up again. A directory that a
/// local user moves out of the export is served for at most this long.
const DIRECTORY_TRUST: Duration = Duration::from_secs(1);

/// Trust in the locations of directories.
#[derive(Clone, Copy)]
pub(super) struct Trust {
    started: Instant,
    /// See [`DIRECTORY_TRUST`].
    pub(super) lasts: Duration,
}

impl Trust {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            lasts: DIRECTORY_TRUST,
        }
    }

    /// Whether a directory was seen within the export recently.
    pub(super) fn is_trusted(self, node: &Node) -> bool {
        let seen = node.seen.load(Relaxed);
        let age = self.now().saturating_sub(seen);
        seen != 0 && u128::from(age) < self.lasts.as_millis()
    }

    /// Notes that a directory was within the export at this time.
    pub(super) fn saw(node: &Node, now: u64) {
        node.seen.store(now, Relaxed);
    }

    /// Milliseconds since the start, at least 1.
    pub(super) fn now(self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).map_or(u64::MAX, |now| now.max(1))
    }

    /// Adds a file that was found in a directory to the open files.
    pub(super) fn keep_open(
        self,
        files: &OpenFiles,
        (file, stat, fd): (FileId, &Stat, NodeFd),
        parent: &Node,
    ) -> Arc<Node> {
        let root = files.root();
        if file == root.id() {
            return Arc::clone(&root.node);
        }
        let node = files.keep_open(files.new_node(file, stat, fd));
        // A directory is trusted as long as the one that contains it.
        let seen = match parent.id() == root.id() {
            true => self.now(),
            false => parent.seen.load(Relaxed),
        };
        node.seen.fetch_max(seen, Relaxed);
        node
    }
}
