//! A bounded map that evicts the least recently used value.

use std::collections::HashMap;

const NONE: usize = usize::MAX;

/// Values by number, at most a fixed number of them.
pub(super) struct Lru<V> {
    index: HashMap<u64, usize>,
    slots: Vec<Slot<V>>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
    capacity: usize,
}

struct Slot<V> {
    key: u64,
    value: Option<V>,
    newer: usize,
    older: usize,
}

impl<V> Lru<V> {
    /// Room for `capacity` values, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity: capacity.max(1),
        }
    }

    /// The value, which is then the last one to be forgotten.
    pub(super) fn get(&mut self, key: u64) -> Option<&mut V> {
        let at = *self.index.get(&key)?;
        if at != self.newest {
            self.unlink(at);
            self.link(at);
        }
        self.slots[at].value.as_mut()
    }

    /// Puts a value in; the one that had to go, or was there before, comes back.
    pub(super) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        if let Some(old) = self.get(key) {
            return Some(std::mem::replace(old, value));
        }
        let gone = if self.index.len() >= self.capacity {
            self.remove(self.slots[self.oldest].key)
        } else {
            None
        };
        let slot = Slot {
            key,
            value: Some(value),
            newer: NONE,
            older: NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.index.insert(key, at);
        self.link(at);
        gone
    }

    /// Takes a value out.
    pub(super) fn remove(&mut self, key: u64) -> Option<V> {
        let at = self.index.remove(&key)?;
        self.unlink(at);
        self.free.push(at);
        self.slots[at].value.take()
    }

    /// Values in it.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Takes half of the values out, those not used for longest.
    pub(super) fn shed(&mut self) -> Vec<V> {
        self.trim(self.index.len() / 2)
    }

    /// Takes those not used for longest out until no more than `goal` are left.
    pub(super) fn trim(&mut self, goal: usize) -> Vec<V> {
        let mut gone = Vec::new();
        while self.index.len() > goal {
            gone.extend(self.remove(self.slots[self.oldest].key));
        }
        gone
    }

    fn link(&mut self, at: usize) {
        self.slots[at].newer = NONE;
        self.slots[at].older = self.newest;
        match self.newest {
            NONE => self.oldest = at,
            newest => self.slots[newest].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: usize) {
        let Slot { newer, older, .. } = self.slots[at];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_value_is_evicted() {
        let mut lru = Lru::new(2);
        assert_eq!(lru.insert(1, "a"), None);
        assert_eq!(lru.insert(2, "b"), None);
        assert_eq!(lru.get(1), Some(&mut "a"));
        assert_eq!(lru.insert(3, "c"), Some("b"));
        assert_eq!(lru.get(2), None);
        assert_eq!(lru.get(1), Some(&mut "a"));
        assert_eq!(lru.remove(1), Some("a"));
        assert_eq!(lru.insert(4, "d"), None);
        assert_eq!(lru.insert(5, "e"), Some("c"));
        assert_eq!(lru.len(), 2);
    }

    #[test]
    fn shedding_keeps_the_most_recently_used() {
        let mut lru = Lru::new(10);
        for key in 0..10 {
            lru.insert(key, key);
        }
        lru.get(0);
        assert_eq!(lru.shed(), [1, 2, 3, 4, 5]);
        assert!(lru.get(0).is_some() && lru.get(9).is_some());
    }
}
