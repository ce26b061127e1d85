//! A bounded map that evicts the least recently used value.

use foldhash::HashMap;

const NONE: usize = usize::MAX;

/// A map with integer keys and a fixed capacity.
pub(super) struct Lru<V> {
    index: HashMap<u64, usize>,
    slots: Vec<Slot<V>>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
    capacity: usize,
    /// The current round, a number set by the owner.
    round: u64,
}

struct Slot<V> {
    key: u64,
    /// Round of the last use.
    used: u64,
    value: Option<V>,
    newer: usize,
    older: usize,
}

impl<V> Lru<V> {
    /// Creates a map for `capacity` values, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            index: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity: capacity.max(1),
            round: 0,
        }
    }

    /// Returns a value and marks it as most recently used.
    pub(super) fn get(&mut self, key: u64) -> Option<&mut V> {
        let at = *self.index.get(&key)?;
        if at != self.newest {
            self.unlink(at);
            self.link(at);
        }
        self.slots[at].used = self.round;
        self.slots[at].value.as_mut()
    }

    /// Returns a value without marking it as used.
    pub(super) fn peek(&self, key: u64) -> Option<&V> {
        self.slots[*self.index.get(&key)?].value.as_ref()
    }

    /// Returns a value to be changed without marking it as used.
    pub(super) fn peek_mut(&mut self, key: u64) -> Option<&mut V> {
        let at = *self.index.get(&key)?;
        self.slots[at].value.as_mut()
    }

    /// Returns all keys, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = u64> {
        self.index.keys().copied()
    }

    /// Sets the current round.
    pub(super) fn set_round(&mut self, round: u64) {
        self.round = round;
    }

    /// Whether a value was last used before a round.
    pub(super) fn is_idle(&self, key: u64, round: u64) -> bool {
        let at = self.index.get(&key);
        at.is_some_and(|&at| self.slots[at].used < round)
    }

    /// Returns the values that were last used before a round.
    pub(super) fn idle(&self, round: u64) -> impl Iterator<Item = &V> {
        let slot = |at: usize| self.slots.get(at);
        std::iter::successors(slot(self.oldest), move |last| slot(last.newer))
            .take_while(move |slot| slot.used < round)
            .filter_map(|slot| slot.value.as_ref())
    }

    /// Inserts a value; returns the evicted or replaced one, if any.
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
            used: self.round,
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

    /// Returns the key of the least recently used value.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.slots.get(self.oldest).map(|slot| slot.key)
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, key: u64) -> Option<V> {
        let at = self.index.remove(&key)?;
        self.unlink(at);
        self.free.push(at);
        self.slots[at].value.take()
    }

    /// Number of values.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Removes the least recently used half of the values.
    pub(super) fn shed(&mut self) -> Vec<V> {
        self.trim(self.index.len() / 2)
    }

    /// Removes the least recently used values until at most `goal` are left.
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
    fn values_are_idle_until_they_are_used() {
        let mut lru = Lru::new(10);
        lru.insert(1, "a");
        lru.insert(2, "b");
        lru.set_round(1);
        lru.get(1);
        lru.insert(3, "c");
        lru.set_round(2);
        assert!(lru.peek(2).is_some());
        let idle = |lru: &Lru<_>, round| lru.idle(round).copied().collect::<Vec<_>>();
        assert_eq!(idle(&lru, 0), [""; 0]);
        assert_eq!(idle(&lru, 1), ["b"]);
        assert_eq!(idle(&lru, 2), ["b", "a", "c"]);
        assert!(lru.is_idle(2, 1) && !lru.is_idle(1, 1) && !lru.is_idle(4, 1));
        // The one that was used last is used again.
        lru.get(3);
        assert_eq!(idle(&lru, 2), ["b", "a"]);
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
