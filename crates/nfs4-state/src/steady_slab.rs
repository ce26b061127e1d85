//! A slab that grows in small steps.

use slab::Slab;
use std::ops::{Index, IndexMut};

/// Places of a part.
const PART: usize = 4096;

/// Values in numbered places, in parts: a [`Slab`] moves all of its values when it grows.
#[derive(Debug)]
pub(crate) struct SteadySlab<T> {
    parts: Vec<Slab<T>>,
    /// Parts with free places.
    with_room: Vec<usize>,
    len: usize,
}

impl<T> SteadySlab<T> {
    pub(crate) fn new() -> Self {
        Self {
            parts: Vec::new(),
            with_room: Vec::new(),
            len: 0,
        }
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns a number beyond those of all places.
    pub(crate) fn places(&self) -> usize {
        match self.parts.split_last() {
            Some((last, full)) => full.len() * PART + last.capacity().min(PART),
            None => 0,
        }
    }

    /// Returns the value in a place.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.parts.get(at / PART)?.get(at % PART)
    }

    /// Returns whether there is a value in a place.
    pub(crate) fn contains(&self, at: usize) -> bool {
        self.get(at).is_some()
    }

    /// Enters a value, and returns its place.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        let part = self.with_room.last().copied().unwrap_or_else(|| {
            self.parts.push(Slab::new());
            self.with_room.push(self.parts.len() - 1);
            self.parts.len() - 1
        });
        let place = self.parts[part].insert(value);
        if self.parts[part].len() == PART {
            self.with_room.pop();
        }
        self.len += 1;
        part * PART + place
    }

    /// Removes the value of a place.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(crate) fn remove(&mut self, at: usize) -> T {
        let part = &mut self.parts[at / PART];
        if part.len() == PART {
            self.with_room.push(at / PART);
        }
        self.len -= 1;
        part.remove(at % PART)
    }
}

impl<T> Index<usize> for SteadySlab<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.parts[at / PART][at % PART]
    }
}

impl<T> IndexMut<usize> for SteadySlab<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.parts[at / PART][at % PART]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn values_keep_their_places_and_free_places_are_used_again() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut slab, mut expected) = (SteadySlab::new(), HashMap::new());
        for round in 0..60_000 {
            let removes = round % 10_000 > 6000;
            let at = rng.usize(..=slab.places());
            if removes && slab.contains(at) {
                assert_eq!(Some(slab.remove(at)), expected.remove(&at));
            } else {
                let at = slab.insert(round);
                assert_eq!(expected.insert(at, round), None);
                slab[at] += 1;
                assert_eq!(slab[at], round + 1);
                slab[at] -= 1;
            }
            assert_eq!(slab.len(), expected.len());
        }
        assert!(slab.parts.len() > 2);
        for at in 0..slab.places() {
            assert_eq!(slab.get(at), expected.get(&at));
        }
        assert_eq!(slab.get(slab.places()), None);
        let places = slab.places();
        for at in (0..places).filter(|at| expected.contains_key(at)) {
            slab.remove(at);
        }
        let again = (0..expected.len()).map(|value| slab.insert(value));
        assert!(again.max().is_some_and(|last| last < places));
        assert_eq!(slab.places(), places);
    }
}
