//! The root directory of an export.
//!
//! Clients that mount an export get the directory that was opened at the start, whatever is at its
//! path later: a disk that is unmounted must not have them write to the directory below. But if that
//! directory was removed, or the process behind a file system has ended, nothing can be done with it
//! any more. Then the next MOUNT takes the directory that is at the path, if it is of the same kind.

use crate::fs::{Error, FileId};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Root;
use crate::localfs::sys::{self, Pace, Stop, Try};
use crate::localfs::volume::kind::{figures, magic};
use rustix::fd::AsFd;
use std::sync::Arc;

/// Returns the root directory for a client that mounts the export. If the one that was opened is
/// gone, it is the one at its path.
pub(in crate::localfs) fn root_to_mount(layers: &Layers, pace: Pace) -> Try<FileId> {
    let root = layers.files.root();
    let links = rustix::fs::fstat(&root.path).map(|found| found.st_nlink);
    if links.is_ok_and(|links| links != 0) {
        return Ok(root.id());
    }
    if pace == Pace::Quick {
        return Err(Stop::WouldBlock);
    }
    let new = open_root_again(layers, &root)?.ok_or(Error::Stale)?;
    let file = new.id();
    layers.files.replace_root(new);
    // Locations are of the directory before.
    layers.handles.forget_all();
    tracing::warn!(
        export = %layers.volume.path.display(),
        "the exported directory was gone; the one that is at its path now is served from here on"
    );
    Ok(file)
}

/// Opens the directory at the path of the export, if it may take the place of one that is gone.
fn open_root_again(layers: &Layers, gone: &Root) -> Try<Option<Root>> {
    let fd = sys::open_path(&layers.volume.path)?;
    let stat = sys::stat(&fd, layers.volume.by)?;
    let is_mount = sys::is_mount_point(&fd)?;
    // It may be the directory below a file system that is to be mounted.
    let is_of_its_kind = is_mount == gone.is_mount
        && figures(rustix::fs::fstatfs(&fd))?.as_ref().map(magic) == layers.volume.magic
        && (is_mount || stat.mount == gone.mount || !layers.volume.local);
    if !is_of_its_kind || layers.volume.is_hidden(&stat) {
        return Ok(None);
    }
    let file = layers.handles.identify_root(fd.as_fd(), &stat)?;
    let node = layers.files.new_node(file, &stat, fd);
    Ok(Some(Root {
        node: Arc::new(node),
        mount: stat.mount,
        device: stat.device,
        is_mount,
    }))
}
