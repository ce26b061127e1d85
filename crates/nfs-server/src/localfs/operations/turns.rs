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
use std::collections::HashMap;
use std::sync::TryLockError;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

/// Number of stripes for locks of directory names, per file system.
const DIRECTORIES: usize = 1024;

/// Number of stripes for overlapping changes of files, per file system.
const FILES: usize = 4096;

/// Number of stripes for locks of attributes, per file system.
const GUARDS: usize = 256;

/// Identifies a file system.
pub(in crate::localfs) type FileSystemId = (u32, u32);

/// State of each exported file system.
#[derive(Default)]
struct OfFileSystems(Mutex<HashMap<FileSystemId, Weak<Turns>>>);

#[cfg(not(test))]
static OF_FILE_SYSTEMS: std::sync::LazyLock<OfFileSystems> =
    std::sync::LazyLock::new(OfFileSystems::default);

// Tests run in parallel on one file system, and each must see only its own overlapping calls.
#[cfg(test)]
thread_local! {
    static OF_FILE_SYSTEMS: OfFileSystems = OfFileSystems::default();
}

/// Owner and names of each change.
pub(in crate::localfs) struct Turns {
    names: Box<[Mutex<()>]>,
    /// Of directories and of other files apart: there are many more of the latter, and what clients are
    /// told of a directory saves them more calls.
    directories: Box<[Overlaps]>,
    files: Box<[Overlaps]>,
    guards: Box<[RwLock<()>]>,
    places: Box<[Mutex<()>]>,
}

impl Default for Turns {
    fn default() -> Self {
        fn all<T: Default>(len: usize) -> Box<[T]> {
            std::iter::repeat_with(T::default).take(len).collect()
        }
        Self {
            names: all(DIRECTORIES),
            directories: all(DIRECTORIES),
            files: all(FILES),
            guards: all(GUARDS),
            places: all(GUARDS),
        }
    }
}

impl OfFileSystems {
    fn turns(&self, file_system: FileSystemId) -> Arc<Turns> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = all.get(&file_system).and_then(Weak::upgrade) {
            return turns;
        }
        all.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::default();
        all.insert(file_system, Arc::downgrade(&turns));
        turns
    }
}

impl Turns {
    /// Those of a file system, which all exports of it share.
    pub(in crate::localfs) fn of(file_system: FileSystemId) -> Arc<Self> {
        #[cfg(not(test))]
        return OF_FILE_SYSTEMS.turns(file_system);
        #[cfg(test)]
        OF_FILE_SYSTEMS.with(|all| all.turns(file_system))
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
        let overlaps = match is_directory {
            true => &self.directories,
            false => &self.files,
        };
        overlaps[stripe(ino, overlaps.len())].begin()
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

/// Changes of some files: those in flight in the lower half, and those that ever began in the upper one.
#[derive(Default)]
struct Overlaps(AtomicU64);

impl Overlaps {
    const ONE_BEGAN: u64 = 1 << 32;

    fn begin(&self) -> Changing<'_> {
        let before = self.0.fetch_add(Self::ONE_BEGAN + 1, SeqCst);
        Changing {
            overlaps: self,
            first: before.is_multiple_of(Self::ONE_BEGAN),
            began: (before / Self::ONE_BEGAN).wrapping_add(1) % Self::ONE_BEGAN,
        }
    }
}

/// A change of a file that is in flight: begun before its attributes are looked at, and dropped after they
/// were looked at again.
pub(in crate::localfs) struct Changing<'a> {
    overlaps: &'a Overlaps,
    /// Whether no other one was in flight when it began.
    first: bool,
    began: u64,
}

impl Changing<'_> {
    /// Whether no other change overlaps with it so far.
    pub(in crate::localfs) fn is_alone(&self) -> bool {
        let now = self.overlaps.0.load(SeqCst);
        self.first && now / Overlaps::ONE_BEGAN == self.began
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.overlaps.0.fetch_sub(1, SeqCst);
    }
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

/// Spreads inode numbers, which often follow each other or are multiples of something.
fn stripe(ino: u64, stripes: usize) -> usize {
    let spread = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(spread).unwrap_or(0) % stripes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_overlap_are_not_alone() {
        let turns = Turns::default();
        let alone = turns.begin(1, false);
        assert!(alone.is_alone());
        let later = turns.begin(1, false);
        assert!(!alone.is_alone() && !later.is_alone());
        drop(alone);
        // What was in flight when it began may have been seen by it.
        assert!(!later.is_alone());
        drop(later);
        assert!(turns.begin(1, false).is_alone());
    }

    #[test]
    fn change_that_began_and_ended_meanwhile_is_seen() {
        let turns = Turns::default();
        let long = turns.begin(1, false);
        drop(turns.begin(1, false));
        assert!(!long.is_alone());
    }

    #[test]
    fn count_of_changes_that_began_starts_over() {
        let overlaps = Overlaps(AtomicU64::new(u64::from(u32::MAX) << 32));
        let changing = overlaps.begin();
        assert!(changing.is_alone());
        drop(overlaps.begin());
        assert!(!changing.is_alone());
    }

    #[test]
    fn directories_are_told_apart_from_files() {
        let turns = Turns::default();
        let file = turns.begin(1, false);
        assert!(turns.begin(1, true).is_alone());
        assert!(file.is_alone());
    }

    #[test]
    fn names_of_two_directories_are_locked_in_one_order() {
        let turns = Turns::default();
        let names = turns.names([1, 2], Pace::Patient);
        assert!(turns.names([2, 1], Pace::Quick).is_err());
        assert!(turns.names([2, 3], Pace::Quick).is_err());
        assert!(turns.names([3, 4], Pace::Quick).is_ok());
        drop(names);
        assert!(turns.names([2, 2], Pace::Quick).is_ok());
    }

    #[test]
    fn exports_of_one_file_system_share_turns_and_those_of_others_do_not() {
        let all = OfFileSystems::default();
        let of = |which| all.turns((8, which));
        let (one, other) = (of(1), of(2));
        assert!(Arc::ptr_eq(&one, &of(1)) && !Arc::ptr_eq(&one, &other));
        drop(one);
        let _third = of(3);
        assert_eq!(
            all.0.lock().unwrap().len(),
            2,
            "the first is not exported any more"
        );
    }
}
