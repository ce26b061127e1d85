//! Durability of the attributes of symbolic links, FIFOs, sockets and devices.
//!
//! fsync(2) needs a descriptor of the file itself. Opening a FIFO or a device has side effects, and
//! a symbolic link cannot be opened. Instead, another file of the same file system is synced.

use super::open_files::node::Node;
use super::sys::Try;
use super::{Changes, Inner};
use crate::fs::FileKind;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

impl Inner {
    /// Like [`persist`](Inner::persist), also for files that cannot be opened.
    pub(super) fn persist_attributes(&self, node: &Node) -> Try<()> {
        let is_special = !matches!(node.kind, FileKind::Regular | FileKind::Directory);
        match is_special && !self.volume.memory && self.changes == Changes::Durable {
            true => self.synced(self.everything.sync(|| self.sync_all_before())),
            false => self.persist(node),
        }
    }

    /// Makes all changes so far durable: by committing the journal, which is in order, or by
    /// syncing the whole file system.
    fn sync_all_before(&self) -> Result<(), Errno> {
        if self.volume.syncs.journal {
            // The file has no name, and is removed when the descriptor is closed.
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let made = rustix::fs::openat(
                &self.files.root().path,
                c".",
                flags,
                Mode::RUSR | Mode::WUSR,
            );
            if let Ok(file) = made {
                return rustix::fs::fsync(file);
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(
            &self.files.root().path,
            c".",
            flags,
            Mode::empty(),
        )?)
    }
}
