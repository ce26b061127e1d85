//! Exports of one file system, as a file may be in several of them: one below the other, or mounted at two places.

use super::by_kernel_handle::ByKernelHandle;
use crate::fs::FileId;
use crate::localfs::open_files::held::Removal;
use crate::localfs::volume::in_flight::{FileSystemId, OfFileSystems};
use rustix::fd::AsFd;
use smallvec::SmallVec;
#[cfg(not(test))]
use std::sync::LazyLock;
use std::sync::{Arc, PoisonError, RwLock, Weak};

#[cfg(not(test))]
static OF_FILE_SYSTEMS: LazyLock<OfFileSystems<Neighbours>> = LazyLock::new(OfFileSystems::default);

// Tests run in parallel on one file system, and each must see only its own exports.
#[cfg(test)]
thread_local! {
    static OF_FILE_SYSTEMS: OfFileSystems<Neighbours> = OfFileSystems::default();
}

/// Removals of a name in the exports whose clients hold the file.
pub(in crate::localfs) type Removals = SmallVec<[Removal; 1]>;

/// The exports of a file system whose files are found by handles of the kernel. A file has the same handle in all of them.
#[derive(Default)]
pub(super) struct Neighbours(RwLock<Vec<Weak<ByKernelHandle>>>);

impl Neighbours {
    /// Those of a file system, which all exports of it share.
    pub(super) fn of(file_system: FileSystemId) -> Arc<Self> {
        #[cfg(not(test))]
        return OF_FILE_SYSTEMS.get_or(file_system, Self::default);
        #[cfg(test)]
        OF_FILE_SYSTEMS.with(|all| all.get_or(file_system, Self::default))
    }

    /// Adds an export, until it is closed.
    pub(super) fn join(&self, export: &Arc<ByKernelHandle>) {
        let mut exports = self.0.write().unwrap_or_else(PoisonError::into_inner);
        exports.retain(|other| other.strong_count() > 0);
        exports.push(Arc::downgrade(export));
    }

    /// Keeps a file open in each export in which clients hold it, as a name of it is to be removed through one of them.
    pub(super) fn begin_removal(&self, fd: impl AsFd) -> Removals {
        let holders: SmallVec<[Arc<ByKernelHandle>; 1]> = {
            let exports = self.0.read().unwrap_or_else(PoisonError::into_inner);
            let exports = exports.iter().filter_map(Weak::upgrade);
            exports.filter(|export| export.has_holds()).collect()
        };
        let mut file: Option<FileId> = None;
        let removals = holders.iter().filter_map(|export| {
            if file.is_none() {
                file = export.handles.identify(&fd).ok();
            }
            export.begin_removal(file?)
        });
        removals.collect()
    }
}
