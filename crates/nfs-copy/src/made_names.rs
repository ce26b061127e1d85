//! Names and files that a copy has made in a directory of its destination, none of which it replaces.
//!
//! Two names of a source can be one name there: `Makefile` and `makefile` on vfat, exFAT, NTFS, SMB, and in a directory
//! of ext4 that folds case; two spellings of one text in Unicode on APFS, HFS+ and some ZFS. Whether a destination does
//! so cannot be asked in all cases, so files are compared by their numbers, and names only to find out for which of them
//! a look at the destination is worth a call. File systems in user space may give a file another number for each spelling
//! that it is looked up by (exfat-fuse): what is found by a name that its directory does not list is found by another
//! spelling.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use unicode_normalization::UnicodeNormalization;

/// Names and files that are remembered in the directories on the way down. Of further ones, it is not found out whether
/// two have one name.
const MAX_MADE: usize = 1 << 20;

/// The same spelling for names that differ in what a file system that folds case does not tell apart.
fn of_one_case(name: &[u8]) -> Vec<u8> {
    trimmed(match std::str::from_utf8(name) {
        // Some letters have a case that only one of the two directions tells: U+017F is an s.
        Ok(name) => name.to_uppercase().to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    })
}

/// The same spelling for all names that any file system may take for one: those of one case, and of one text in Unicode.
/// The forms KC and KD take the most names for one; ext4 and f2fs leave out what is not shown besides.
fn of_one_text(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_ascii() => {
            let text: String = text.nfkd().filter(|c| !is_ignorable(*c)).collect();
            let text = text.to_uppercase().to_lowercase();
            trimmed(text.nfkd().collect::<String>().into_bytes())
        }
        Ok(_) | Err(_) => trimmed(name.to_ascii_lowercase()),
    }
}

/// FAT and SMB leave out dots and spaces at the end.
fn trimmed(mut name: Vec<u8>) -> Vec<u8> {
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    if let Some(last) = end {
        name.truncate(last + 1);
    }
    name
}

/// Whether a character has the property `Default_Ignorable_Code_Point` (Unicode 16, DerivedCoreProperties.txt).
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Names, of which those that a file system may take for one are equal.
#[derive(Debug)]
pub(super) struct FoldedNames {
    spelling: fn(&[u8]) -> Vec<u8>,
    hasher: RandomState,
    taken: HashSet<u64>,
}

/// No names, of which those are equal that any file system may take for one.
impl Default for FoldedNames {
    fn default() -> Self {
        Self::with(of_one_text)
    }
}

impl FoldedNames {
    /// No names, of which those are equal that differ in case alone.
    pub(super) fn by_case() -> Self {
        Self::with(of_one_case)
    }

    fn with(spelling: fn(&[u8]) -> Vec<u8>) -> Self {
        Self {
            spelling,
            hasher: RandomState::default(),
            taken: HashSet::new(),
        }
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one((self.spelling)(name))
    }

    /// Adds a name; returns whether it is new.
    pub(super) fn insert(&mut self, name: &[u8]) -> bool {
        let hash = self.hash(name);
        self.taken.insert(hash)
    }

    pub(super) fn contains(&self, name: &[u8]) -> bool {
        self.taken.contains(&self.hash(name))
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
pub struct Collision;

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
    fn spellings_of_one_text_are_equal() {
        let mut names = FoldedNames::default();
        let mut by_case = FoldedNames::by_case();
        for name in [
            "\u{e9}t\u{e9}",
            "\u{1112}\u{1161}\u{11ab}",
            "file",
            "\u{3a9}",
        ] {
            assert!(names.insert(name.as_bytes()) && by_case.insert(name.as_bytes()));
        }
        for name in [
            "e\u{301}te\u{301}",
            "E\u{301}TE\u{301}",
            "\u{d55c}",
            "\u{fb01}le",
            "fi\u{ad}le",
            "f\u{200d}ile",
            "\u{2126}",
        ] {
            assert!(names.contains(name.as_bytes()), "{name:?}");
        }
        // On a file system that folds case they are names of their own.
        for name in ["e\u{301}te\u{301}", "\u{d55c}", "fi\u{ad}le"] {
            assert!(!by_case.contains(name.as_bytes()), "{name:?}");
        }
        assert!(!names.contains("ete".as_bytes()));
    }

    #[test]
    fn spellings_that_a_file_system_may_take_for_one_name_are_equal() {
        check_case(FoldedNames::default());
        check_case(FoldedNames::by_case());
    }

    fn check_case(mut names: FoldedNames) {
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
