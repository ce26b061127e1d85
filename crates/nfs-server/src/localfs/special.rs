//! Durability of the attributes of symbolic links, FIFOs, sockets and devices.
//!
//! fsync(2) needs a descriptor of the file itself. Opening a FIFO or a device has side effects, and
//! a symbolic link cannot be opened. Instead, another file of the same file system is synced.

use super::kind::FsKind;
use super::node::Node;
use super::sys::Try;
use super::{Changes, Inner};
use crate::fs::FileKind;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

impl Inner {
    /// Like [`persist`](Inner::persist), also for files that cannot be opened.
    pub(super) fn persist_attributes(&self, node: &Node) -> Try<()> {
        let is_special = !matches!(node.kind, FileKind::Regular | FileKind::Directory);
        match is_special && !self.memory && self.changes == Changes::Durable {
            true => self.synced(self.everything.sync(|| self.sync_all_before())),
            false => self.persist(node),
        }
    }

    /// Makes all changes so far durable: by committing the journal, which is in order, or by
    /// syncing the whole file system.
    fn sync_all_before(&self) -> Result<(), Errno> {
        if self.journal {
            // The file has no name, and is removed when the descriptor is closed.
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let made = rustix::fs::openat(&self.root().path, c".", flags, Mode::RUSR | Mode::WUSR);
            if let Ok(file) = made {
                return rustix::fs::fsync(file);
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(
            &self.root().path,
            c".",
            flags,
            Mode::empty(),
        )?)
    }
}

impl FsKind {
    /// Whether one transaction creates a file with all its attributes. XFS creates the file and its
    /// name in one transaction, and sets the inherited access control list and the security label
    /// in later ones, which a sync of the directory may not include.
    pub(super) fn makes_whole(self) -> bool {
        self == Self::Ext
    }

    /// Whether a sync makes all earlier changes durable: the log of XFS and the journal of ext4, if
    /// it has one, are written in order. A sync of a directory then makes its new files durable
    /// too, since one transaction creates a file and its name. `device` is the device of the file
    /// system.
    pub(super) fn has_journal(self, device: (u32, u32)) -> bool {
        match self {
            Self::Xfs => true,
            Self::Ext => has_journal(device).unwrap_or(false),
            Self::Btrfs | Self::Overlay | Self::Memory | Self::Disk | Self::Other => false,
        }
    }
}

/// Whether this device has a journal: `/proc/fs/jbd2` lists journals by device and inode. A journal
/// on another device is not found.
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
