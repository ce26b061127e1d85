//! Opening files for clients that keep them open.

use super::data;
use crate::fs::{Error, FileId, HeldFile, Identity, LockFile, OpenAccess, Outcome, Unheld};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::held::Held;
use crate::localfs::sys::{Pace, Try};
use crate::localfs::volume::Volume;
use crate::permission;
use oncrpc::PeerGroup;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Opens a file for a client of this address, if the caller may use it in this way, as READ and WRITE check it.
///
/// A process that acts for no caller has the kernel check its own rights: it opens the file.
pub(in crate::localfs) fn open(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    (access, holder): (OpenAccess, PeerGroup),
    pace: Pace,
) -> Try<Result<Opened, Error>> {
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
        return Ok(Ok(Opened::Unheld));
    }
    Ok(Ok(match holds_by_handle(layers) {
        true => Opened::ByHandle(Held::by_handle(&layers.files, &node, holder)?),
        false => Opened::Held(Held::new(&layers.files, &node, holder)?),
    }))
}

/// Whether files that clients hold open are found again after their descriptors were closed, and this process may open them again
/// whatever their modes.
pub(in crate::localfs) fn holds_by_handle(layers: &Layers) -> bool {
    let Volume {
        kernel_handles,
        local,
        ..
    } = &*layers.volume;
    *kernel_handles && *local && layers.rights.acts_for_callers()
}

/// A file that was opened for a client.
pub(in crate::localfs) enum Opened {
    /// It stays open.
    Held(Held),
    /// Its handle finds it again.
    ByHandle(Held),
    /// It is not held.
    Unheld,
}

impl Opened {
    /// Returns the file for the client. It does not keep the export.
    pub(in crate::localfs) fn held(self, layers: Weak<Layers>) -> Arc<dyn HeldFile> {
        match self {
            Self::Held(held) => Arc::new(held),
            Self::ByHandle(held) => Arc::new(ByHandle { layers, held }),
            Self::Unheld => Arc::new(Unheld),
        }
    }
}

/// A held file that is opened again by its handle when it is needed.
struct ByHandle {
    layers: Weak<Layers>,
    held: Held,
}

impl HeldFile for ByHandle {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        let Some(layers) = self.layers.upgrade() else {
            return Outcome::Ready(Err(Error::Stale));
        };
        if let Some(node) = self.held.node() {
            return Outcome::Ready(Held::open_for_locks(&layers.files, &node));
        }
        let file = self.held.file();
        layers.slow(file, move |layers| {
            let node = layers.handles.node(file, Pace::Patient)?;
            Ok(Held::open_for_locks(&layers.files, &node))
        })
    }

    fn path(&self) -> Option<PathBuf> {
        self.layers.upgrade()?.handles.path(self.held.file())
    }

    fn end_at_once(&mut self) -> bool {
        self.held.end_at_once()
    }
}
