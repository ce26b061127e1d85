//! Durability of the attributes of symbolic links, FIFOs, sockets and devices.
//!
//! fsync(2) needs a descriptor of the file itself, which these do not have: opening a FIFO or a
//! device uses it, and a symbolic link cannot be opened. What works is what their file system does
//! for another file of it.

use super::kind::FsKind;
use super::node::Node;
use super::sys::Try;
use super::{Changes, Inner};
use crate::fs::FileKind;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

impl Inner {
    /// As [`persist`](Inner::persist), also for what cannot be opened.
    pub(super) fn persist_attributes(&self, node: &Node) -> Try<()> {
        let is_special = !matches!(node.kind, FileKind::Regular | FileKind::Directory);
        match is_special && !self.memory && self.changes == Changes::Durable {
            true => self.synced(self.everything.sync(|| self.sync_all_before())),
            false => self.persist(node),
        }
    }

    /// Has all that was changed so far reach the disk: by a journal that is written in order, or else by
    /// all that the file system has to write.
    fn sync_all_before(&self) -> Result<(), Errno> {
        if self.journal {
            // It has no name, and is gone with the descriptor.
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let made = rustix::fs::openat(&self.root.path, c".", flags, Mode::RUSR | Mode::WUSR);
            if let Ok(file) = made {
                return rustix::fs::fsync(file);
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(
            &self.root.path,
            c".",
            flags,
            Mode::empty(),
        )?)
    }
}

impl FsKind {
    /// Whether one transaction makes a file with all that it has. That of XFS makes the file and its name, and
    /// further ones give it the access control list that it inherits, and its label: a sync of the directory
    /// need not reach as far.
    pub(super) fn makes_whole(self) -> bool {
        self == Self::Ext
    }

    /// Whether a sync of a new file puts all on the disk that was changed before it: the log of XFS and the
    /// journal of ext4, where it has one, are written up to that file, in order. So a sync of a directory puts
    /// the new files in it on the disk as well, as they were made: one transaction makes a file and its name.
    /// `device` is that of the file system.
    pub(super) fn has_journal(self, device: (u32, u32)) -> bool {
        match self {
            Self::Xfs => true,
            Self::Ext => has_journal(device).unwrap_or(false),
            Self::Btrfs | Self::Overlay | Self::Memory | Self::Disk | Self::Other => false,
        }
    }
}

/// Whether there is a journal on this device, which the kernel names by the device and its inode
/// (`/proc/fs/jbd2`). One on a device of its own is not looked for.
fn has_journal(device: (u32, u32)) -> Option<bool> {
    let device = std::fs::read_link(format!("/sys/dev/block/{}:{}", device.0, device.1)).ok()?;
    let prefix = format!("{}-", device.file_name()?.to_str()?);
    let journals = std::fs::read_dir("/proc/fs/jbd2").ok()?;
    let mut names = journals.filter_map(|journal| journal.ok()?.file_name().into_string().ok());
    let is_its = |name: String| {
        let inode = name.strip_prefix(&prefix);
        inode.is_some_and(|inode| inode.parse::<u64>().is_ok())
    };
    Some(names.any(is_its))
}
