//! The root directory of an export.
//!
//! Clients that mount an export get the directory that was opened at the start, whatever is at its
//! path later: a disk that is unmounted must not have them write to the directory below. But if that
//! directory was removed, or the process behind a file system has ended, nothing can be done with it
//! any more. Then the next MOUNT takes the directory that is at the path, if it is of the same kind.

use super::id::{self, IdentifiedBy, TableId};
use super::kind::{figures, magic};
use super::node::Node;
use super::sys::{self, Pace, Stat, Stop, Try};
use super::{Inner, Resolver};
use crate::fs::{Error, FileId};
use arc_swap::Guard;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::Arc;

/// Number of the root directory where numbers are derived from paths.
const ROOT_BY_PATH: u64 = 1;

/// The root directory of an export.
pub(super) struct Root {
    pub(super) node: Arc<Node>,
    pub(super) mount: u64,
    pub(super) device: (u32, u32),
    /// Whether a file system is mounted there.
    pub(super) is_mount: bool,
}

impl Deref for Root {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

/// Returns the id of a root directory, and its key among the open files.
pub(super) fn identify(
    resolver: &Resolver,
    by: IdentifiedBy,
    root: BorrowedFd<'_>,
    stat: &Stat,
) -> Result<(FileId, u64), Errno> {
    if let Resolver::Kernel(handles) = resolver {
        let file = handles.identify(root)?;
        return Ok((file, id::key_of_kernel(file)));
    }
    let (number, birth) = match by.path() {
        true => (ROOT_BY_PATH, 0),
        false => (stat.attributes.fileid, stat.birth),
    };
    let id = TableId {
        number,
        birth,
        home: number,
    };
    Ok((id.into(), number))
}

impl Inner {
    pub(super) fn root(&self) -> Guard<Arc<Root>> {
        self.root.load()
    }

    /// Returns the root directory for a client that mounts the export. If the one that was opened is
    /// gone, it is the one at its path.
    pub(super) fn root_to_mount(&self, pace: Pace) -> Try<FileId> {
        let root = self.root();
        let links = rustix::fs::fstat(&root.path).map(|found| found.st_nlink);
        if links.is_ok_and(|links| links != 0) {
            return Ok(root.id());
        }
        if pace == Pace::Quick {
            return Err(Stop::WouldBlock);
        }
        let new = self.open_root_again(&root)?.ok_or(Error::Stale)?;
        let file = new.id();
        self.root.store(Arc::new(new));
        // What is open or remembered is of the directory before.
        let mut caches = self.caches();
        let gone = (caches.open.trim(0), caches.links.trim(0));
        drop(caches);
        drop(gone);
        tracing::warn!(
            export = %self.path.display(),
            "the exported directory was gone; the one that is at its path now is served from here on"
        );
        Ok(file)
    }

    /// Opens the directory at the path of the export, if it may take the place of one that is gone.
    fn open_root_again(&self, gone: &Root) -> Try<Option<Root>> {
        let fd = sys::open_path(&self.path)?;
        let stat = sys::stat(&fd, self.by)?;
        let is_mount = sys::is_mount_point(&fd)?;
        // It may be the directory below a file system that is to be mounted.
        let is_of_its_kind = is_mount == gone.is_mount
            && figures(rustix::fs::fstatfs(&fd))?.as_ref().map(magic) == self.magic
            && (is_mount || stat.mount == gone.mount || !self.local);
        if !is_of_its_kind || self.is_hidden(&stat) {
            return Ok(None);
        }
        let (file, key) = identify(&self.resolver, self.by, fd.as_fd(), &stat)?;
        let fileid = self.file_ids.of_root(key, &stat);
        let node = Node::new(&stat, (file, key, fileid), fd, &self.verifier);
        Ok(Some(Root {
            node: Arc::new(node),
            mount: stat.mount,
            device: stat.device,
            is_mount,
        }))
    }
}
