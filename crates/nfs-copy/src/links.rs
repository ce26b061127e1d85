//! Hard links within what is copied: a file with several names is copied once, and its other names are made links
//! to the copy.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

/// Files with several names that are remembered at a time. Names of further ones are copied each by itself.
const MAX_LINKED: usize = 65_536;

/// A file, whatever its name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    /// Which server it is on, if there are several.
    pub(crate) server: usize,
    /// Its file system.
    pub(crate) fs: u64,
    /// Its number there.
    pub(crate) id: u64,
}

/// The copy of a file, once there is one. Who has it locked makes it, and those who have other names of the file
/// wait; if that fails, the next of them does.
pub(crate) type FirstCopy<T> = Arc<tokio::sync::Mutex<Option<T>>>;

/// Files with several names, and where their copies are.
#[derive(Debug)]
pub(crate) struct Links<T>(Mutex<HashMap<FileKey, Known<T>>>);

#[derive(Debug)]
struct Known<T> {
    copy: FirstCopy<T>,
    /// Names of the file that were not seen so far.
    left: u32,
}

impl<T> Default for Links<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Links<T> {
    /// The copy of a file that has so many names, one of which is seen now. None if it has no other name, or
    /// there is no room to remember it.
    pub(crate) fn of(&self, file: FileKey, names: u32) -> Option<FirstCopy<T>> {
        let left = names.checked_sub(2)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = all.len() < MAX_LINKED;
        match all.entry(file) {
            Entry::Occupied(mut known) => {
                let copy = Arc::clone(&known.get().copy);
                match known.get().left {
                    0 => drop(known.remove()),
                    left => known.get_mut().left = left - 1,
                }
                Some(copy)
            }
            Entry::Vacant(place) if has_room => {
                let copy = FirstCopy::default();
                place.insert(Known {
                    copy: Arc::clone(&copy),
                    left,
                });
                Some(copy)
            }
            Entry::Vacant(_) => None,
        }
    }
}

/// Notes a copy that an earlier run has made, unless another one is made now.
pub(crate) fn note_kept<T>(first: &FirstCopy<T>, copy: T) {
    if let Ok(mut first) = first.try_lock() {
        first.get_or_insert(copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(id: u64) -> FileKey {
        FileKey {
            server: 0,
            fs: 1,
            id,
        }
    }

    #[test]
    fn names_of_one_file_share_its_copy_and_are_forgotten_with_the_last() {
        let links = Links::<()>::default();
        assert!(links.of(file(1), 1).is_none() && links.of(file(1), 0).is_none());
        let first = links.of(file(1), 3).unwrap();
        let other = links.of(file(2), 2).unwrap();
        assert!(!Arc::ptr_eq(&first, &other));
        for _ in 0..2 {
            assert!(Arc::ptr_eq(&first, &links.of(file(1), 3).unwrap()));
        }
        assert_eq!(links.0.lock().unwrap().len(), 1);
        // A name that was made meanwhile.
        assert!(!Arc::ptr_eq(&first, &links.of(file(1), 3).unwrap()));
    }

    #[test]
    fn number_of_files_that_are_remembered_is_bounded() {
        let links = Links::<()>::default();
        for id in 0..MAX_LINKED as u64 {
            assert!(links.of(file(id), 2).is_some());
        }
        assert!(links.of(file(u64::MAX), 2).is_none());
        assert!(links.of(file(0), 2).is_some(), "it is its last name");
        assert!(links.of(file(u64::MAX), 2).is_some());
    }
}
