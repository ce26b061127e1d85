//! A hash table that grows in small steps.

use foldhash::fast::RandomState;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash};

/// Parts of a table. The largest table has a million entries, and so a part a few thousand, which are moved within a fraction of a
/// millisecond.
const PARTS: usize = 1 << u8::BITS;

/// A [`HashMap`] in parts, each of which grows by itself. A hash table moves all its entries when it grows: with a million of them
/// everybody else would wait for a part of a second.
#[derive(Debug)]
pub struct SteadyMap<K, V, S = RandomState> {
    parts: Box<[HashMap<K, V, S>]>,
    hasher: S,
    len: usize,
}

impl<K, V, S: Default> Default for SteadyMap<K, V, S> {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| HashMap::default()).collect(),
            hasher: S::default(),
            len: 0,
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> SteadyMap<K, V, S> {
    fn part(&self, key: &(impl Hash + ?Sized)) -> usize {
        let [part, ..] = self.hasher.hash_one(key).to_le_bytes();
        usize::from(part)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether there is a value with this key.
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Returns the value with this key.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.parts[self.part(key)].get(key)
    }

    /// Returns the value with this key, to be changed.
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let part = self.part(key);
        self.parts[part].get_mut(key)
    }

    /// Returns the value with this key, which is made if there is none.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let part = self.part(&key);
        match self.parts[part].entry(key) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(free) => {
                self.len += 1;
                free.insert(make())
            }
        }
    }

    /// Enters a value. Returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let part = self.part(&key);
        let before = self.parts[part].insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Removes a value.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let part = self.part(key);
        let removed = self.parts[part].remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_until_they_are_removed() {
        let mut map: SteadyMap<_, _> = SteadyMap::default();
        for key in 0..10_000_u32 {
            assert_eq!(map.insert(key, key), None);
            *map.get_or_insert_with(key, || 0) += 1;
        }
        assert_eq!(map.insert(7, 7), Some(8));
        assert_eq!(
            (map.len(), map.get(&7), map.get(&8)),
            (10_000, Some(&7), Some(&9))
        );
        assert_eq!(*map.get_or_insert_with(10_000, || 5), 5);
        for key in 0..=10_000 {
            assert!(map.contains_key(&key) && map.get_mut(&key).is_some());
            assert!(map.remove(&key).is_some());
            assert!(!map.contains_key(&key) && map.remove(&key).is_none());
        }
        assert!(map.is_empty());
    }

    #[test]
    fn parts_of_a_large_table_are_small() {
        let mut map: SteadyMap<_, _> = SteadyMap::default();
        (0..1_000_000_u32).for_each(|key| assert!(map.insert(key, ()).is_none()));
        let largest = map.parts.iter().map(HashMap::len).max();
        assert!(largest.is_some_and(|largest| largest < 5000), "{largest:?}");
    }
}
