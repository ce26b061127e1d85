//! The root directory of an export.
//!
//! Clients that mount an export get the directory that was opened at the start, whatever is at its
//! path later: a disk that is unmounted must not have them write to the directory below. But if that
//! directory was removed, or the process behind a file system has ended, nothing can be done with it
//! any more. Then the next MOUNT takes the directory that is at the path, if it is of the same kind.

use super::Inner;
use super::open_files::node::Root;
use super::sys::{self, Pace, Stop, Try};
use super::volume::kind::{figures, magic};
use crate::fs::{Error, FileId};
use rustix::fd::AsFd;
use std::sync::Arc;

impl Inner {
    /// Returns the root directory for a client that mounts the export. If the one that was opened is
    /// gone, it is the one at its path.
    pub(super) fn root_to_mount(&self, pace: Pace) -> Try<FileId> {
        let root = self.files.root();
        let links = rustix::fs::fstat(&root.path).map(|found| found.st_nlink);
        if links.is_ok_and(|links| links != 0) {
            return Ok(root.id());
        }
        if pace == Pace::Quick {
            return Err(Stop::WouldBlock);
        }
        let new = self.open_root_again(&root)?.ok_or(Error::Stale)?;
        let file = new.id();
        self.files.replace_root(new);
        // Locations are of the directory before.
        self.handles.forget_all();
        tracing::warn!(
            export = %self.volume.path.display(),
            "the exported directory was gone; the one that is at its path now is served from here on"
        );
        Ok(file)
    }

    /// Opens the directory at the path of the export, if it may take the place of one that is gone.
    fn open_root_again(&self, gone: &Root) -> Try<Option<Root>> {
        let fd = sys::open_path(&self.volume.path)?;
        let stat = sys::stat(&fd, self.volume.by)?;
        let is_mount = sys::is_mount_point(&fd)?;
        // It may be the directory below a file system that is to be mounted.
        let is_of_its_kind = is_mount == gone.is_mount
            && figures(rustix::fs::fstatfs(&fd))?.as_ref().map(magic) == self.volume.magic
            && (is_mount || stat.mount == gone.mount || !self.volume.local);
        if !is_of_its_kind || self.volume.is_hidden(&stat) {
            return Ok(None);
        }
        let file = self.handles.identify_root(fd.as_fd(), &stat)?;
        let node = self.files.new_node(file, &stat, fd);
        Ok(Some(Root {
            node: Arc::new(node),
            mount: stat.mount,
            device: stat.device,
            is_mount,
        }))
    }
}
