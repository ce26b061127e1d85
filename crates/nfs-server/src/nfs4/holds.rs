//! Files that clients hold open, divided by address: an export can hold only so many, as each takes a descriptor.

use crate::fs::{ByteRange, Error, HeldFile, LocalLock, LockFile, LockMode, Outcome};
use foldhash::HashMap;
use nfs_proto::v4::Status;
use oncrpc::PeerGroup;
use rpc_serving::shares::{Bound, Shares};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places for files that are held, by the number of the export. Of an export, an address has at most as many as it leaves free.
#[derive(Clone, Default)]
pub(super) struct Holds(Arc<Mutex<HashMap<u32, Shares>>>);

/// A place for a file that is held, or for an owner of locks in one. It is free again when this is dropped.
pub(super) struct Place {
    holds: Holds,
    export: u32,
    group: PeerGroup,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Shares>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one of at most so many places for a client of this address; `None` where there is a place for any number.
    ///
    /// # Errors
    ///
    /// `Delay`: the address has as many as there are left.
    pub(super) fn take(
        &self,
        export: u32,
        most: Option<usize>,
        group: PeerGroup,
    ) -> Result<Option<Place>, Status> {
        let Some(most) = most else {
            return Ok(None);
        };
        let mut exports = self.lock();
        let shares = exports
            .entry(export)
            .or_insert_with(|| Shares::new(most, Bound::WhatItLeaves));
        if shares.holders() == 0 && shares.total() != most {
            *shares = Shares::new(most, Bound::WhatItLeaves);
        }
        match shares.take(group, 1) {
            true => Ok(Some(Place {
                holds: self.clone(),
                export,
                group,
            })),
            false => Err(Status::Delay),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut exports = self.holds.lock();
        if let Some(shares) = exports.get_mut(&self.export) {
            shares.give_back(self.group, 1);
            if shares.holders() == 0 {
                exports.remove(&self.export);
            }
        }
    }
}

/// Something that is held, with its place.
struct InPlace<T: ?Sized> {
    // Dropped first: a place is free once its descriptor is.
    inner: Arc<T>,
    _place: Place,
}

/// Holds a file in its place, for as long as it is held.
pub(super) fn held_in(place: Option<Place>, inner: Arc<dyn HeldFile>) -> Arc<dyn HeldFile> {
    match place {
        Some(place) => Arc::new(InPlace {
            inner,
            _place: place,
        }),
        None => inner,
    }
}

/// The same for the file of an owner of locks.
pub(super) fn locks_in(place: Option<Place>, inner: Arc<dyn LockFile>) -> Arc<dyn LockFile> {
    match place {
        Some(place) => Arc::new(InPlace {
            inner,
            _place: place,
        }),
        None => inner,
    }
}

impl HeldFile for InPlace<dyn HeldFile> {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        self.inner.open_for_locks()
    }

    fn path(&self) -> Option<PathBuf> {
        self.inner.path()
    }

    fn end_at_once(&mut self) -> bool {
        Arc::get_mut(&mut self.inner).is_some_and(HeldFile::end_at_once)
    }
}

impl LockFile for InPlace<dyn LockFile> {
    fn lock(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error> {
        self.inner.lock(range, mode)
    }

    fn unlock(&self, range: ByteRange) {
        self.inner.unlock(range);
    }

    fn test(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error> {
        self.inner.test(range, mode)
    }
}
