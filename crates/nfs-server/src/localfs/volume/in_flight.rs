//! Changes through this server that are in flight.
//!
//! State is by inode number and striped: two files may share a stripe, which costs an attribute or a new value of the change
//! attribute, and nothing else. Exports of one file system share it: the same file may be in several of them.

use std::collections::HashMap;
#[cfg(not(test))]
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Number of stripes for directories, per file system.
pub(in crate::localfs) const DIRECTORIES: usize = 1024;

/// Number of stripes for overlapping changes of files, per file system.
const FILES: usize = 4096;

/// Identifies a file system.
pub(in crate::localfs) type FileSystemId = (u32, u32);

/// State of each exported file system.
pub(in crate::localfs) struct OfFileSystems<T>(Mutex<HashMap<FileSystemId, Weak<T>>>);

impl<T> Default for OfFileSystems<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> OfFileSystems<T> {
    /// Returns the state of a file system, as long as any export of it has it; makes one otherwise.
    pub(in crate::localfs) fn get_or(
        &self,
        file_system: FileSystemId,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = all.get(&file_system).and_then(Weak::upgrade) {
            return state;
        }
        all.retain(|_, state| state.strong_count() > 0);
        let state = Arc::new(make());
        all.insert(file_system, Arc::downgrade(&state));
        state
    }
}

#[cfg(not(test))]
static OF_FILE_SYSTEMS: LazyLock<OfFileSystems<InFlight>> = LazyLock::new(OfFileSystems::default);

// Tests run in parallel on one file system, and each must see only its own changes.
#[cfg(test)]
thread_local! {
    static OF_FILE_SYSTEMS: OfFileSystems<InFlight> = OfFileSystems::default();
}

/// Changes in flight on a file system.
pub(in crate::localfs) struct InFlight {
    /// Of directories and of other files apart: there are many more of the latter, and what clients are
    /// told of a directory saves them more calls.
    directories: Box<[Overlaps]>,
    files: Box<[Overlaps]>,
    /// Changes of directories that were seen by a [witness](super::witness), and its watches that ended.
    seen: Box<[AtomicU64]>,
}

impl Default for InFlight {
    fn default() -> Self {
        fn all<T: Default>(len: usize) -> Box<[T]> {
            std::iter::repeat_with(T::default).take(len).collect()
        }
        Self {
            directories: all(DIRECTORIES),
            files: all(FILES),
            seen: all(DIRECTORIES),
        }
    }
}

impl InFlight {
    /// Those of a file system, which all exports of it share.
    pub(in crate::localfs) fn of(file_system: FileSystemId) -> Arc<Self> {
        #[cfg(not(test))]
        return OF_FILE_SYSTEMS.get_or(file_system, Self::default);
        #[cfg(test)]
        OF_FILE_SYSTEMS.with(|all| all.get_or(file_system, Self::default))
    }

    fn overlaps(&self, ino: u64, is_directory: bool) -> &Overlaps {
        let overlaps = match is_directory {
            true => &self.directories,
            false => &self.files,
        };
        &overlaps[stripe(ino, overlaps.len())]
    }

    /// Begins a change of a file.
    pub(in crate::localfs) fn begin(&self, ino: u64, is_directory: bool) -> Changing<'_> {
        self.overlaps(ino, is_directory).begin()
    }

    /// Counts a change of a directory that a witness saw, or the end of its watch: what is told of the directory from now on has another
    /// number than what was told before.
    pub(in crate::localfs) fn raise_seen(&self, ino: u64) {
        self.seen[stripe(ino, self.seen.len())].fetch_add(1, SeqCst);
    }

    /// Returns the number of those.
    pub(in crate::localfs) fn seen(&self, ino: u64) -> u64 {
        self.seen[stripe(ino, self.seen.len())].load(SeqCst)
    }

    /// Returns the changes of a file so far.
    pub(in crate::localfs) fn so_far(&self, ino: u64, is_directory: bool) -> SoFar {
        self.overlaps(ino, is_directory).so_far()
    }
}

/// Changes of some files: those in flight in the lower half, and those that ever began in the upper one.
#[derive(Default)]
struct Overlaps(AtomicU64);

impl Overlaps {
    const ONE_BEGAN: u64 = 1 << 32;

    /// Returns the changes of these files so far.
    fn so_far(&self) -> SoFar {
        SoFar(self.0.load(SeqCst))
    }

    fn begin(&self) -> Changing<'_> {
        let before = self.0.fetch_add(Self::ONE_BEGAN + 1, SeqCst);
        Changing {
            overlaps: self,
            first: before.is_multiple_of(Self::ONE_BEGAN),
            began: (before / Self::ONE_BEGAN).wrapping_add(1) % Self::ONE_BEGAN,
        }
    }
}

/// Changes of some files through this server until some moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::localfs) struct SoFar(u64);

impl SoFar {
    /// Returns the number of changes that were made, if none is in flight.
    pub(in crate::localfs) fn settled(self) -> Option<u64> {
        self.0
            .is_multiple_of(Overlaps::ONE_BEGAN)
            .then_some(self.began())
    }

    /// Returns the number of changes that ever began.
    pub(in crate::localfs) fn began(self) -> u64 {
        self.0 / Overlaps::ONE_BEGAN
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

    /// Returns the number of changes that were made before this one, and with it, unless another overlaps with it so far.
    pub(in crate::localfs) fn around(&self) -> Option<(u64, u64)> {
        let before = self.began.wrapping_sub(1) % Overlaps::ONE_BEGAN;
        self.is_alone().then_some((before, self.began))
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.overlaps.0.fetch_sub(1, SeqCst);
    }
}

/// Spreads inode numbers, which often follow each other or are multiples of something.
pub(in crate::localfs) fn stripe(ino: u64, stripes: usize) -> usize {
    let spread = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(spread).unwrap_or(0) % stripes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_overlap_are_not_alone() {
        let turns = InFlight::default();
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
        let turns = InFlight::default();
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
        let turns = InFlight::default();
        let file = turns.begin(1, false);
        assert!(turns.begin(1, true).is_alone());
        assert!(file.is_alone());
    }

    #[test]
    fn exports_of_one_file_system_share_them_and_those_of_others_do_not() {
        let all = OfFileSystems::<InFlight>::default();
        let of = |which| all.get_or((8, which), InFlight::default);
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

    #[test]
    fn changes_are_counted_from_their_beginning_and_settled_at_their_end() {
        let turns = InFlight::default();
        let so_far = || turns.so_far(1, false).settled();
        assert_eq!(so_far(), Some(0));
        let one = turns.begin(1, false);
        assert_eq!((so_far(), one.around()), (None, Some((0, 1))));
        let other = turns.begin(1, false);
        assert!(one.around().is_none() && other.around().is_none());
        drop((one, other));
        assert_eq!(so_far(), Some(2));
    }
}
