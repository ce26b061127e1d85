//! Names and files that a copy has made in a directory of its destination, none of which it replaces.
//!
//! Two names of a source can be one name there: `Makefile` and `makefile` on vfat, exFAT, NTFS, SMB, and in a directory
//! of ext4 that folds case. Whether a destination does so cannot be asked in all cases, so files are compared by their
//! numbers, and names only to find out for which of them a look at the destination is worth a call.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names and files that are remembered in the directories on the way down. Of further ones, it is not found out whether
/// two have one name.
const MAX_MADE: usize = 1 << 20;

/// The same spelling for names that a file system may take for one.
fn folded(name: &[u8]) -> Vec<u8> {
    let name = match std::str::from_utf8(name) {
        // Some letters have a case that only one of the two directions tells: U+017F is an s.
        Ok(name) => name.to_uppercase().to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    };
    // FAT and SMB leave out dots and spaces at the end.
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    name[..end.map_or(name.len(), |last| last + 1)].to_vec()
}

/// Names, of which those that a file system may take for one are equal.
#[derive(Debug, Default)]
pub(super) struct FoldedNames {
    hasher: RandomState,
    taken: HashSet<u64>,
}

impl FoldedNames {
    /// Adds a name; returns whether it is new.
    pub(super) fn insert(&mut self, name: &[u8]) -> bool {
        self.taken.insert(self.hasher.hash_one(folded(name)))
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        self.taken.contains(&self.hasher.hash_one(folded(name)))
    }

    pub(super) fn len(&self) -> usize {
        self.taken.len()
    }
}

/// Numbers of a file: of its file system, and in it.
pub(crate) type FileId = (u64, u64);

/// A name of a copy is another one at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "something else of this copy has that name already, or one that the destination does not tell apart from it"
)]
pub(crate) struct Collision;

/// Names and files that a copy has made in one directory.
#[derive(Debug)]
pub(crate) struct Made {
    state: Mutex<State>,
    /// How many more may be remembered in all directories.
    room: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    names: FoldedNames,
    files: HashSet<FileId>,
}

impl Made {
    /// Nothing made so far, in the first directory of a copy.
    pub(crate) fn new() -> Self {
        Self::with(Arc::new(AtomicUsize::new(MAX_MADE)))
    }

    fn with(room: Arc<AtomicUsize>) -> Self {
        let state = Mutex::default();
        Self { state, room }
    }

    /// Nothing made so far, in another directory of the same copy.
    pub(super) fn beside(&self) -> Self {
        Self::with(Arc::clone(&self.room))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes_room(&self) -> bool {
        let taken = self
            .room
            .fetch_update(Relaxed, Relaxed, |room| room.checked_sub(1));
        taken.is_ok()
    }

    /// Notes a name that something gets; returns whether what has got one before may have the same.
    pub(crate) fn may_have(&self, name: &[u8]) -> bool {
        let mut state = self.state();
        if state.names.contains(name) {
            return true;
        }
        if self.takes_room() {
            state.names.insert(name);
        }
        false
    }

    /// Notes a file, before it gets its name.
    pub(crate) fn note(&self, file: FileId) {
        let mut state = self.state();
        if !state.files.contains(&file) && self.takes_room() {
            state.files.insert(file);
        }
    }

    /// Whether the copy has made this file here.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.state().files.contains(&file)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let taken = state.names.len() + state.files.len();
        self.room.fetch_add(taken, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_that_a_file_system_may_take_for_one_name_are_equal() {
        let mut names = FoldedNames::default();
        for name in ["Makefile", "\u{c9}t\u{e9}", "\u{17f}hort", "a", "\u{ff}"] {
            assert!(names.insert(name.as_bytes()), "{name}");
        }
        for name in [
            "makefile",
            "MAKEFILE",
            "makefile. .",
            "\u{e9}T\u{c9}",
            "Short",
            "A.",
        ] {
            assert!(names.contains(name.as_bytes()), "{name}");
        }
        for name in [&b"makefil"[..], b"b", b".", b"\xff"] {
            assert!(!names.contains(name), "{name:?}");
        }
        assert!(names.insert(b"\xffA") && names.contains(b"\xffa"));
    }

    #[test]
    fn room_is_shared_by_directories_and_returns_when_they_are_left() {
        let first = Made::new();
        first.room.store(3, Relaxed);
        let second = first.beside();
        assert!(!first.may_have(b"a") && first.may_have(b"A"));
        assert!(!second.may_have(b"a"), "it is another directory");
        second.note((1, 1));
        second.note((1, 1));
        first.note((1, 2));
        assert!(second.has((1, 1)) && !first.has((1, 1)));
        assert!(!first.has((1, 2)), "there is no room");
        assert!(!first.may_have(b"b") && !first.may_have(b"b"));
        drop(second);
        first.note((1, 2));
        assert!(first.has((1, 2)));
    }
}
