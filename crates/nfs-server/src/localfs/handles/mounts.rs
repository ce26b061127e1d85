//! Mount points within an export.
//!
//! File systems mounted there are not exported. Clients see the directory under the mount, if this
//! process can reach it: through a private copy of the export's mount, on which nothing is mounted.
//! The kernel handle of a directory found there opens it in the export's own mount, so the copy is
//! closed at once. If mounts are served as exports of their own, calls for a mount that is not
//! known yet are to be made again later.

use super::{FileHandles, Finder};
use crate::fs::Error;
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::{self, Pace, Stat, Stop, Try};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::collections::HashSet;
use std::sync::Arc;

impl FileHandles {
    /// See [`LocalFs::know_mounts`](crate::LocalFs::know_mounts).
    pub(in crate::localfs) fn know_mounts(&self, known: Option<Arc<HashSet<u64>>>) {
        self.known_mounts.store(known);
    }

    /// Fails with [`Error::Busy`] if the entry is a mount that is not known yet.
    fn check_known(&self, dir: &Node, name: &[u8]) -> Try<()> {
        let Some(known) = self.known_mounts.load_full() else {
            return Ok(());
        };
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let about = rustix::fs::statx(&dir.path, name, flags, StatxFlags::MNT_ID)?;
        match known.contains(&about.stx_mnt_id) {
            true => Ok(()),
            false => Err(Error::Busy.into()),
        }
    }

    /// Like [`open_entry`](crate::localfs::open_files::OpenFiles::open_entry); at a mount point, opens the directory under the
    /// mount.
    pub(in crate::localfs) fn open_entry_or_covered(
        &self,
        dir: &Node,
        name: &[u8],
        pace: Pace,
    ) -> Try<(OwnedFd, Stat)> {
        match sys::open_entry(&dir.path, name, self.volume.look(pace)) {
            Err(Errno::XDEV) if pace == Pace::Quick => Err(Stop::WouldBlock),
            Err(Errno::XDEV) => self.open_covered(dir, name),
            opened => self.files.look_at(opened?),
        }
    }

    /// Opens the directory under a mount.
    fn open_covered(&self, dir: &Node, name: &[u8]) -> Try<(OwnedFd, Stat)> {
        self.check_known(dir, name)?;
        let Finder::Kernel(finder) = &self.finder else {
            return Err(Error::Access.into());
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let covered = open_tree(&dir.path, c"", flags)
            .and_then(|copy| sys::open_entry(copy, name, Pace::Patient))
            .and_then(|fd| finder.handles.identify(fd));
        match covered {
            Ok(file) => self.files.look_at(finder.handles.open_file(file)?),
            // This process is not root, or the entry is an automount point.
            Err(Errno::PERM | Errno::INVAL | Errno::XDEV | Errno::NOSYS) => {
                Err(Error::Access.into())
            }
            Err(errno) => Err(errno.into()),
        }
    }
}
