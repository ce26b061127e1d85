//! Opening files for clients that keep them open.

use super::data;
use crate::fs::{Error, FileId, HeldFile, Identity, OpenAccess, Unheld};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::held::Held;
use crate::localfs::sys::{Pace, Try};
use crate::permission;
use std::sync::Arc;

/// Opens a file, if the caller may use it in this way, as READ and WRITE check it.
///
/// A process that acts for no caller has the kernel check its own rights: it opens the file.
pub(in crate::localfs) fn open(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    access: OpenAccess,
    pace: Pace,
) -> Try<Result<Arc<dyn HeldFile>, Error>> {
    let node = layers.handles.node(file, pace)?;
    permission::check_regular(node.kind)?;
    let attributes = layers.files.attributes(&node)?;
    let acts_for_callers = layers.rights.acts_for_callers();
    if access.contains(OpenAccess::READ) {
        match acts_for_callers {
            true => data::check_read(layers, who, &node, &attributes, pace)?,
            false => drop(layers.files.open_reader(&node)?),
        }
    }
    if access.contains(OpenAccess::WRITE) {
        match acts_for_callers {
            true => data::check_write(layers, who, &node, &attributes, pace)?,
            false => drop(layers.durability.writer(&node)?),
        }
    }
    // Where a handle is that of a path, a new file at the path has it: the one before cannot have it too.
    if layers.volume.by.path() {
        return Ok(Ok(Arc::new(Unheld)));
    }
    Ok(Ok(Arc::new(Held::new(&layers.files, &node)?)))
}
