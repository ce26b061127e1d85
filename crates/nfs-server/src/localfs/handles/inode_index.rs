//! Cache of the inode numbers in a directory: one pass per change of the directory.
//!
//! Without a kernel handle, a file that is not where it was last seen must be searched for by its
//! inode number. One pass over its directory answers that for all entries, and for all missing
//! ones, until the directory changes. For each entry its number and the offset before it are kept,
//! not its name.

use crate::fs::{Attributes, Time};
use crate::localfs::lru::Lru;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of cached entries of all directories, 16 bytes each. A directory with more
/// entries is read again for each search.
pub(in crate::localfs) const MAX_ENTRIES: usize = 4 << 20;

/// Largest number of directories with cached entries.
const MAX_DIRECTORIES: usize = 4096;

/// Rounds after which the entries of a directory without searches are dropped: a minute.
const KEPT_ROUNDS: u64 = 80;

/// Two ticks of the kernel's coarse clock, in nanoseconds, for the slowest kernels with 100 ticks a
/// second. A directory may change again within this time without a change of its times.
const STEP: u64 = 20_000_000;

/// The same for file systems with times in whole seconds.
const SECOND_STEP: u64 = 2_000_000_000;

/// Position of a directory entry, by inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::localfs) struct Entry {
    pub(in crate::localfs) ino: u64,
    /// Cookie of the previous entry; 0 for the first one.
    pub(in crate::localfs) before: u64,
}

/// Version of a directory, by its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs) struct Version {
    birth: u64,
    ctime: Time,
    mtime: Time,
}

impl Version {
    pub(in crate::localfs) fn of(birth: u64, attributes: &Attributes) -> Self {
        Self {
            birth,
            ctime: attributes.ctime,
            mtime: attributes.mtime,
        }
    }

    /// Whether any later change gives another version, because the clock has advanced since the
    /// last one.
    fn is_settled(self, now: Time) -> bool {
        let nanos = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        let step = if self.ctime.nanos == 0 {
            SECOND_STEP
        } else {
            STEP
        };
        nanos(now).abs_diff(nanos(self.ctime)) > u128::from(step)
    }
}

/// Result of reading all entries of a directory.
pub(in crate::localfs) struct Pass {
    version: Version,
    /// Whether an equal version at a later time means the same entries.
    settled: bool,
    /// Entries in the order of inode numbers.
    entries: Box<[Entry]>,
}

impl Pass {
    /// Creates the pass of a directory that had this version before it was read, at `now`. Without
    /// a time the pass is used for one answer only.
    pub(in crate::localfs) fn new(
        version: Version,
        now: Option<Time>,
        mut entries: Vec<Entry>,
    ) -> Self {
        entries.sort_unstable();
        Self {
            version,
            settled: now.is_some_and(|now| version.is_settled(now)),
            entries: entries.into(),
        }
    }

    /// Whether the pass is valid for a directory with this version.
    pub(in crate::localfs) fn is_of(&self, version: Version) -> bool {
        self.settled && self.version == version
    }

    /// Returns the entries with this inode number.
    pub(in crate::localfs) fn find(&self, ino: u64) -> &[Entry] {
        let begin = self.entries.partition_point(|entry| entry.ino < ino);
        let end = self.entries.partition_point(|entry| entry.ino <= ino);
        &self.entries[begin..end]
    }
}

/// The last pass over a directory, if there is one. It is locked during the pass, so that
/// concurrent searches of the directory wait for it.
pub(in crate::localfs) type LastPass = Mutex<Option<Pass>>;

/// The last pass over each directory, by inode number.
pub(in crate::localfs) struct Passes {
    kept: Mutex<Kept>,
}

struct Kept {
    passes: Lru<Slot>,
    entries: usize,
    /// Number of passes so far.
    made: u64,
}

#[derive(Default)]
struct Slot {
    pass: Arc<LastPass>,
    /// Number of its entries.
    len: usize,
}

impl Passes {
    pub(in crate::localfs) fn new() -> Self {
        Self {
            kept: Mutex::new(Kept {
                passes: Lru::new(MAX_DIRECTORIES),
                entries: 0,
                made: 0,
            }),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last pass over a directory.
    pub(in crate::localfs) fn of(&self, ino: u64) -> Arc<LastPass> {
        let mut kept = self.kept();
        if let Some(slot) = kept.passes.get(ino) {
            return Arc::clone(&slot.pass);
        }
        let pass = Arc::<LastPass>::default();
        let slot = Slot {
            pass: Arc::clone(&pass),
            len: 0,
        };
        let gone = kept.passes.insert(ino, slot);
        kept.forget(gone);
        pass
    }

    /// Counts the entries of a new pass, and drops other passes if there are too many. Returns
    /// whether to keep the new one.
    pub(in crate::localfs) fn made(&self, ino: u64, len: usize) -> bool {
        let mut kept = self.kept();
        kept.made += 1;
        let known = match kept.passes.peek(ino) {
            Some(slot) => slot.len,
            None => return false,
        };
        kept.entries -= known;
        let keep = len <= MAX_ENTRIES;
        let len = if keep { len } else { 0 };
        kept.entries += len;
        if let Some(slot) = kept.passes.get(ino) {
            slot.len = len;
        }
        // The new pass was used last and fits alone.
        while kept.entries > MAX_ENTRIES {
            let goal = kept.passes.len() - 1;
            for gone in kept.passes.trim(goal) {
                kept.forget(Some(gone));
            }
        }
        keep
    }

    /// Begins a round, and drops passes that were not used for many rounds.
    pub(in crate::localfs) fn begin_round(&self, round: u64) {
        let mut kept = self.kept();
        kept.passes.set_round(round);
        let idle = kept.passes.idle(round.saturating_sub(KEPT_ROUNDS)).count();
        let goal = kept.passes.len() - idle;
        for gone in kept.passes.trim(goal) {
            kept.forget(Some(gone));
        }
    }

    #[cfg(test)]
    pub(in crate::localfs) fn count(&self) -> u64 {
        self.kept().made
    }
}

impl Kept {
    fn forget(&mut self, slot: Option<Slot>) {
        self.entries -= slot.map_or(0, |slot| slot.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanos: u32) -> Time {
        Time { seconds, nanos }
    }

    fn version(ctime: Time) -> Version {
        Version {
            birth: 1,
            ctime,
            mtime: ctime,
        }
    }

    #[test]
    fn pass_finds_all_entries_of_an_inode() {
        let entry = |ino, before| Entry { ino, before };
        let entries = vec![entry(9, 0), entry(3, 4), entry(9, 7), entry(5, 8)];
        let pass = Pass::new(version(at(1, 0)), Some(at(9, 0)), entries);
        assert_eq!(pass.find(9), [entry(9, 0), entry(9, 7)]);
        assert_eq!(pass.find(3), [entry(3, 4)]);
        assert_eq!(pass.find(4), []);
    }

    #[test]
    fn pass_is_good_until_the_directory_changes() {
        let pass = |now| Pass::new(version(at(5, 1)), Some(now), Vec::new());
        assert!(pass(at(5, 20_000_002)).is_of(version(at(5, 1))));
        assert!(!pass(at(5, 20_000_002)).is_of(version(at(5, 30_000_000))));
        // It may have changed once more in the same step of the clock.
        assert!(!pass(at(5, 20_000_001)).is_of(version(at(5, 1))));
        assert!(!pass(at(5, 1)).is_of(version(at(5, 1))));
        let alone = Pass::new(version(at(5, 1)), None, Vec::new());
        assert!(!alone.is_of(version(at(5, 1))));
        let other = Version {
            birth: 2,
            ..version(at(5, 1))
        };
        assert!(!pass(at(9, 0)).is_of(other));
        // Where times are whole seconds, within the same second.
        let second = |now| Pass::new(version(at(5, 0)), Some(now), Vec::new());
        assert!(!second(at(5, 900_000_000)).is_of(version(at(5, 0))));
        assert!(second(at(8, 0)).is_of(version(at(5, 0))));
    }

    #[test]
    fn number_of_entries_is_bounded() {
        let passes = Passes::new();
        let keep = |ino, len| {
            passes.of(ino);
            passes.made(ino, len)
        };
        assert!(keep(1, MAX_ENTRIES / 2) && keep(2, MAX_ENTRIES / 2));
        assert_eq!(passes.kept().passes.len(), 2);
        assert!(keep(3, 1));
        assert!(passes.kept().passes.peek(1).is_none());
        assert_eq!(passes.kept().entries, MAX_ENTRIES / 2 + 1);
        assert!(!keep(4, MAX_ENTRIES + 1));
        assert_eq!(passes.kept().entries, MAX_ENTRIES / 2 + 1);
        assert!(keep(2, 7));
        assert_eq!(passes.kept().entries, 8);
        assert_eq!(passes.count(), 5);
    }

    #[test]
    fn passes_that_nobody_asks_for_are_forgotten() {
        let passes = Passes::new();
        for ino in [1, 2] {
            passes.of(ino);
            passes.made(ino, 10);
        }
        passes.begin_round(50);
        passes.of(1);
        passes.begin_round(100);
        assert_eq!(passes.kept().entries, 10);
        passes.begin_round(131);
        assert_eq!(passes.kept().entries, 0);
    }
}
