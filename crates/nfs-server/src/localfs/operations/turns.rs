//! Serialization of calls that change the same file or directory.
//!
//! The attributes before and after a call, as returned to a client, must not cover changes by
//! another client; otherwise those before are left out (RFC 1813 §2.6), because the client would
//! take all changes in between for its own. Names of a directory change one call at a time, so that
//! nearly all of these calls return both; data is written concurrently, and overlapping calls
//! detect each other.
//!
//! State is by inode number and striped: two files may share a stripe, which costs time or an
//! attribute, and nothing else. A lock of names is never held while waiting for another directory.
//!
//! Exports of one file system share it: the same file may be in several of them, one below the other.

use crate::localfs::sys::{Pace, Stop, Try};
use crate::localfs::volume::in_flight::{
    Changing, DIRECTORIES, FileSystemId, InFlight, OfFileSystems, stripe,
};
#[cfg(not(test))]
use std::sync::LazyLock;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// Number of stripes for locks of attributes, per file system.
const GUARDS: usize = 256;

#[cfg(not(test))]
static OF_FILE_SYSTEMS: LazyLock<OfFileSystems<Turns>> = LazyLock::new(OfFileSystems::default);

// Tests run in parallel on one file system, and each must see only its own overlapping calls.
#[cfg(test)]
thread_local! {
    static OF_FILE_SYSTEMS: OfFileSystems<Turns> = OfFileSystems::default();
}

/// Owner and names of each change.
pub(in crate::localfs) struct Turns {
    names: Box<[Mutex<()>]>,
    in_flight: Arc<InFlight>,
    guards: Box<[RwLock<()>]>,
    places: Box<[Mutex<()>]>,
}

impl Turns {
    /// Those of a file system, which all exports of it share, with its changes in flight.
    pub(in crate::localfs) fn of(
        file_system: FileSystemId,
        in_flight: &Arc<InFlight>,
    ) -> Arc<Self> {
        let make = || Self::new(Arc::clone(in_flight));
        #[cfg(not(test))]
        return OF_FILE_SYSTEMS.get_or(file_system, make);
        #[cfg(test)]
        OF_FILE_SYSTEMS.with(|all| all.get_or(file_system, make))
    }

    fn new(in_flight: Arc<InFlight>) -> Self {
        fn all<T: Default>(len: usize) -> Box<[T]> {
            std::iter::repeat_with(T::default).take(len).collect()
        }
        Self {
            names: all(DIRECTORIES),
            in_flight,
            guards: all(GUARDS),
            places: all(GUARDS),
        }
    }

    /// Waits until nobody else changes names of one or two directories. In haste it does not wait.
    pub(in crate::localfs) fn names(&self, dirs: [u64; 2], pace: Pace) -> Try<Names<'_>> {
        // In the same order for everybody, so that no two calls wait for each other.
        let mut at = dirs.map(|dir| stripe(dir, self.names.len()));
        at.sort_unstable();
        let [low, high] = at;
        let first = lock_at(&self.names[low], pace)?;
        let second = match low == high {
            true => None,
            false => Some(lock_at(&self.names[high], pace)?),
        };
        Ok(Names {
            _first: first,
            _second: second,
        })
    }

    /// Begins a change of a file.
    pub(in crate::localfs) fn begin(&self, ino: u64, is_directory: bool) -> Changing<'_> {
        self.in_flight.begin(ino, is_directory)
    }

    /// Held while a file is changed without a look at what it was.
    pub(in crate::localfs) fn unguarded(
        &self,
        ino: u64,
        pace: Pace,
    ) -> Try<RwLockReadGuard<'_, ()>> {
        let lock = &self.guards[stripe(ino, self.guards.len())];
        match (lock.try_read(), pace) {
            (Ok(guard), _) => Ok(guard),
            (Err(TryLockError::Poisoned(error)), _) => Ok(error.into_inner()),
            (Err(TryLockError::WouldBlock), Pace::Quick) => Err(Stop::WouldBlock),
            (Err(TryLockError::WouldBlock), Pace::Patient) => {
                Ok(lock.read().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Held while a file is changed if it is as a client saw it: nobody else writes to it, or sets its
    /// attributes.
    pub(in crate::localfs) fn guarded(&self, ino: u64) -> RwLockWriteGuard<'_, ()> {
        let lock = &self.guards[stripe(ino, self.guards.len())];
        lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while it is noted where a file is that was given a name: calls in two directories may give
    /// names to the same one. Taken last.
    pub(in crate::localfs) fn places(&self, ino: u64) -> MutexGuard<'_, ()> {
        let lock = &self.places[stripe(ino, self.places.len())];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn to change names of one or two directories.
pub(in crate::localfs) struct Names<'a> {
    _first: MutexGuard<'a, ()>,
    _second: Option<MutexGuard<'a, ()>>,
}

/// Locks a mutex that guards no data; in haste only if nobody holds it.
pub(in crate::localfs) fn lock_at(mutex: &Mutex<()>, pace: Pace) -> Try<MutexGuard<'_, ()>> {
    match (mutex.try_lock(), pace) {
        (Ok(guard), _) => Ok(guard),
        // It is locked: a second time would be for ever.
        (Err(TryLockError::Poisoned(error)), _) => Ok(error.into_inner()),
        (Err(TryLockError::WouldBlock), Pace::Quick) => Err(Stop::WouldBlock),
        (Err(TryLockError::WouldBlock), Pace::Patient) => {
            Ok(mutex.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_two_directories_are_locked_in_one_order() {
        let turns = Turns::new(Arc::default());
        let names = turns.names([1, 2], Pace::Patient);
        assert!(turns.names([2, 1], Pace::Quick).is_err());
        assert!(turns.names([2, 3], Pace::Quick).is_err());
        assert!(turns.names([3, 4], Pace::Quick).is_ok());
        drop(names);
        assert!(turns.names([2, 2], Pace::Quick).is_ok());
    }
}
