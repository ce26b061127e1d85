//! Values of addresses, each forgotten once it is of no use.

use oncrpc::PeerGroup;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A value of an address that may be of no use any more.
pub trait Unused {
    /// Whether the value is what a new one would be.
    fn is_unused(&self) -> bool;
}

impl<T> Unused for Vec<T> {
    fn is_unused(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Unused for BTreeMap<K, V> {
    fn is_unused(&self) -> bool {
        self.is_empty()
    }
}

impl Unused for usize {
    fn is_unused(&self) -> bool {
        *self == 0
    }
}

impl<T> Unused for VecDeque<T> {
    fn is_unused(&self) -> bool {
        self.is_empty()
    }
}

/// A value of each address. An address whose value is [unused](Unused::is_unused) has none, or is one of a few that are
/// [remembered](Self::remembering), so that no more addresses are known than those of peers that do something.
///
/// ```
/// use oncrpc::PeerGroup;
/// use rpc_serving::by_address::ByAddress;
///
/// let peer = PeerGroup::of([192, 0, 2, 1].into());
/// let mut names = ByAddress::<Vec<&str>>::default();
/// names.change(peer, |names| names.push("a"));
/// assert_eq!(names.change(peer, |names| names.pop()), Some("a"));
/// assert_eq!(names.len(), 0);
/// ```
#[derive(Debug)]
pub struct ByAddress<T> {
    values: HashMap<PeerGroup, T>,
    /// Addresses whose values are unused, those that have been so for longest first.
    remembered: VecDeque<PeerGroup>,
    most_remembered: usize,
}

impl<T> Default for ByAddress<T> {
    fn default() -> Self {
        Self::remembering(0)
    }
}

impl<T> ByAddress<T> {
    /// Remembers the values of the last `most` addresses whose values came out of use.
    pub fn remembering(most: usize) -> Self {
        Self {
            values: HashMap::new(),
            remembered: VecDeque::new(),
            most_remembered: most,
        }
    }

    /// The value of an address, if it has one.
    pub fn get(&self, group: PeerGroup) -> Option<&T> {
        self.values.get(&group)
    }

    /// All values with their addresses, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (PeerGroup, &T)> {
        self.values.iter().map(|(group, value)| (*group, value))
    }

    /// Number of addresses with a value.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no address has a value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl<T: Default + Unused> ByAddress<T> {
    /// Changes the value of an address, or a new one, and forgets it if it is unused then, or the one that has been unused
    /// for longest.
    pub fn change<R>(&mut self, group: PeerGroup, change: impl FnOnce(&mut T) -> R) -> R {
        let value = self.values.entry(group).or_default();
        if value.is_unused() {
            self.remembered.retain(|&other| other != group);
        }
        let changed = change(value);
        if value.is_unused() {
            self.remembered.push_back(group);
            if self.remembered.len() > self.most_remembered
                && let Some(oldest) = self.remembered.pop_front()
            {
                self.values.remove(&oldest);
            }
        }
        changed
    }
}

/// A value of each address, where addresses have turns. An address stays until its turn comes, and is forgotten then if its
/// value is [unused](Unused::is_unused): its values cost no more than a map while they are in use.
#[derive(Debug)]
pub struct InTurns<T> {
    values: HashMap<PeerGroup, T>,
    /// All addresses in the order of their turns, each once.
    turns: VecDeque<PeerGroup>,
}

impl<T> Default for InTurns<T> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<T: Default + Unused> InTurns<T> {
    /// The value of an address, if it has one.
    pub fn get(&self, group: PeerGroup) -> Option<&T> {
        self.values.get(&group)
    }

    /// The value of an address, if it has one, to be changed.
    pub fn get_mut(&mut self, group: PeerGroup) -> Option<&mut T> {
        self.values.get_mut(&group)
    }

    /// The value of an address, or a new one with a turn behind all others.
    pub fn get_or_new(&mut self, group: PeerGroup) -> &mut T {
        self.values.entry(group).or_insert_with(|| {
            self.turns.push_back(group);
            T::default()
        })
    }

    /// Changes the value of the address whose turn it is, if there is one. Its next turn is behind all others, unless it is
    /// forgotten.
    pub fn next_turn<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let group = self.turns.pop_front()?;
        let value = self.values.get_mut(&group)?;
        let changed = change(value);
        match value.is_unused() {
            true => drop(self.values.remove(&group)),
            false => self.turns.push_back(group),
        }
        Some(changed)
    }

    /// All values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(last: u8) -> PeerGroup {
        PeerGroup::of([192, 0, 2, last].into())
    }

    #[test]
    fn addresses_that_came_out_of_use_last_are_remembered() {
        let mut values = ByAddress::<usize>::remembering(2);
        let known = |values: &ByAddress<usize>| {
            let mut known: Vec<_> = (0..9)
                .filter(|&of| values.get(group(of)).is_some())
                .collect();
            known.sort_unstable();
            known
        };
        for of in 1..=4 {
            values.change(group(of), |value| *value += 1);
        }
        for of in 1..=3 {
            values.change(group(of), |value| *value -= 1);
        }
        assert_eq!(
            known(&values),
            [2, 3, 4],
            "the first was unused for longest"
        );
        values.change(group(2), |value| *value += 1);
        values.change(group(2), |value| *value -= 1);
        values.change(group(4), |value| *value -= 1);
        assert_eq!(known(&values), [2, 4], "the second was used again");
        values.change(group(5), |_| ());
        values.change(group(5), |_| ());
        assert_eq!(known(&values), [4, 5], "each is remembered once");
    }

    #[test]
    fn address_has_its_turn_behind_all_others_and_is_forgotten_when_it_is_unused() {
        let mut values = InTurns::<Vec<u8>>::default();
        for of in [1, 2, 1, 3] {
            values.get_or_new(group(of)).push(of);
        }
        let turns: Vec<_> = std::iter::from_fn(|| values.next_turn(Vec::pop)).collect();
        assert_eq!(turns, [Some(1), Some(2), Some(3), Some(1)]);
        assert_eq!(values.values().count(), 0);
        values.get_or_new(group(2)).push(4);
        assert_eq!(values.next_turn(|value| value.len()), Some(1));
        assert_eq!(values.get(group(2)), Some(&vec![4]));
    }
}
