//! An amount that peers share, divided by address.

use oncrpc::PeerGroup;
use std::collections::HashMap;

/// The most that one address may hold of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// As much as it leaves free: an address that is alone gets half of all, two get a third each, and those who come
    /// later find some.
    WhatItLeaves,
    /// This part of all: `Part(4)` is a quarter. `Part(0)` is all, as `Part(1)` is.
    Part(usize),
}

impl Bound {
    /// How much of `total` must be left for an address that holds `held` to take `amount`; `None` if it may not whatever is
    /// left, as it has its part.
    pub fn needs(self, total: usize, held: usize, amount: usize) -> Option<usize> {
        match (held, self) {
            (0, _) => Some(amount),
            (held, Self::WhatItLeaves) => Some(held + 2 * amount),
            (held, Self::Part(part)) => (held + amount <= total / part.max(1)).then_some(amount),
        }
    }
}

/// An amount of places, bytes or threads that peers share: how much is left, and how much each address holds.
///
/// An address that holds nothing may take whatever is left, so that every demand can be met once others have returned
/// enough. Beyond that, its [`Bound`] counts.
///
/// ```
/// use oncrpc::PeerGroup;
/// use rpc_serving::shares::{Bound, Shares};
///
/// let [first, second] = [1, 2].map(|last| PeerGroup::of([192, 0, 2, last].into()));
/// let mut places = Shares::new(12, Bound::WhatItLeaves);
/// assert_eq!((0..).take_while(|_| places.take(first, 1)).count(), 6);
/// assert_eq!((0..).take_while(|_| places.take(second, 1)).count(), 3);
/// assert!(places.may_take(PeerGroup::of([192, 0, 2, 3].into()), 3), "the rest is for others");
/// places.give_back(second, 3);
/// assert!(!places.take(first, 1), "6 are left, and it has as many");
/// ```
#[derive(Debug)]
pub struct Shares {
    total: usize,
    left: usize,
    bound: Bound,
    held: HashMap<PeerGroup, usize>,
}

impl Shares {
    /// An amount of `total`, all of which is free.
    pub fn new(total: usize, bound: Bound) -> Self {
        Self {
            total,
            left: total,
            bound,
            held: HashMap::new(),
        }
    }

    /// All there is.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How much nobody holds.
    pub fn left(&self) -> usize {
        self.left
    }

    /// How much an address holds.
    pub fn held_by(&self, group: PeerGroup) -> usize {
        self.held.get(&group).copied().unwrap_or(0)
    }

    /// Whether no address holds more than this one.
    pub fn has_most(&self, group: PeerGroup) -> bool {
        let held = self.held_by(group);
        self.held.values().all(|&other| other <= held)
    }

    /// The addresses that hold something, in no order.
    pub fn groups(&self) -> impl Iterator<Item = PeerGroup> {
        self.held.keys().copied()
    }

    /// Number of addresses that hold something.
    pub fn holders(&self) -> usize {
        self.held.len()
    }

    /// How much must be left for an address to take `amount`; `None` if it may not whatever is left, as it has its part.
    pub fn needs(&self, group: PeerGroup, amount: usize) -> Option<usize> {
        let held = self.held_by(group);
        self.bound.needs(self.total, held, amount)
    }

    /// Whether an address may take `amount` now.
    pub fn may_take(&self, group: PeerGroup, amount: usize) -> bool {
        let needs = self.needs(group, amount);
        needs.is_some_and(|needs| needs <= self.left)
    }

    /// Takes `amount` for an address, if it may have it now. Returns whether it did.
    pub fn take(&mut self, group: PeerGroup, amount: usize) -> bool {
        let may = self.may_take(group, amount);
        if may && amount > 0 {
            self.left -= amount;
            *self.held.entry(group).or_default() += amount;
        }
        may
    }

    /// Takes `amount` for an address, even its first, only if what is left then is at least `least`, and as much as it
    /// holds. Returns whether it did.
    pub fn take_leaving(&mut self, group: PeerGroup, amount: usize, least: usize) -> bool {
        let held = self.held_by(group) + amount;
        let may = amount + held.max(least) <= self.left;
        if may && amount > 0 {
            self.left -= amount;
            self.held.insert(group, held);
        }
        may
    }

    /// Returns `amount` of what an address holds.
    ///
    /// # Panics
    ///
    /// If the address does not hold so much.
    pub fn give_back(&mut self, group: PeerGroup, amount: usize) {
        if amount == 0 {
            return;
        }
        let held = self
            .held
            .get_mut(&group)
            .expect("an address that holds something");
        *held = held.checked_sub(amount).expect("no more than it holds");
        if *held == 0 {
            self.held.remove(&group);
        }
        self.left += amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(last: u8) -> PeerGroup {
        PeerGroup::of([192, 0, 2, last].into())
    }

    fn bounds() -> impl Strategy<Value = Bound> {
        prop_oneof![
            Just(Bound::WhatItLeaves),
            (2..6_usize).prop_map(Bound::Part),
        ]
    }

    proptest! {
        /// Whatever one address less than all has taken, another can take something, at the latest when one of the others
        /// returns what it holds; and nothing is lost.
        #[test]
        fn no_address_keeps_another_from_its_share(
            bound in bounds(),
            total in 1..1000_usize,
            steps in prop::collection::vec((0..6_u8, 0..300_usize, any::<bool>()), 0..200),
        ) {
            let mut shares = Shares::new(total, bound);
            let mut taken: HashMap<u8, Vec<usize>> = HashMap::new();
            for (last, amount, takes) in steps {
                let of_address = taken.entry(last).or_default();
                if takes && shares.take(group(last), amount) {
                    of_address.push(amount);
                } else if !takes && let Some(amount) = of_address.pop() {
                    shares.give_back(group(last), amount);
                }
                let all: usize = taken.values().flatten().sum();
                prop_assert_eq!(shares.left(), total - all);
            }
            // One address alone leaves a newcomer something.
            let others: usize = taken.values().flatten().sum();
            if shares.holders() == 1 && others > 0 && taken.values().flatten().count() > 1 {
                let most_at_once = taken.values().flatten().max().copied().unwrap_or(0);
                prop_assert!(others <= total / 2 + most_at_once);
            }
            for (last, amounts) in taken {
                amounts.into_iter().for_each(|amount| shares.give_back(group(last), amount));
            }
            prop_assert_eq!((shares.left(), shares.holders()), (total, 0));
            prop_assert!(shares.may_take(group(200), total));
        }
    }

    #[test]
    fn address_may_hold_as_much_as_it_leaves() {
        let mut shares = Shares::new(100, Bound::WhatItLeaves);
        assert!(shares.take(group(1), 30) && shares.take(group(1), 20));
        assert!(!shares.take(group(1), 1));
        assert!(
            shares.take(group(2), 50),
            "the first of an address in any case"
        );
        assert!(!shares.take(group(2), 1) && !shares.take(group(3), 1));
        shares.give_back(group(2), 50);
        assert_eq!(shares.needs(group(1), 5), Some(60));
        shares.give_back(group(1), 5);
        assert!(shares.take(group(1), 5));
    }

    #[test]
    fn what_leaves_a_part_is_less_than_that_from_the_first() {
        let mut shares = Shares::new(100, Bound::WhatItLeaves);
        assert!(!shares.take_leaving(group(1), 60, 50));
        assert!(shares.take_leaving(group(1), 30, 50) && shares.take_leaving(group(2), 20, 50));
        assert!(!shares.take_leaving(group(3), 1, 50));
        assert!(shares.take(group(3), 50), "the rest is there for others");
    }

    #[test]
    fn address_may_hold_its_part() {
        let mut shares = Shares::new(100, Bound::Part(4));
        assert!(shares.take(group(1), 60), "it has nothing yet");
        assert!(!shares.take(group(1), 1));
        assert_eq!(shares.needs(group(1), 1), None);
        assert!(shares.take(group(2), 20) && shares.take(group(2), 5));
        assert!(!shares.take(group(2), 1));
        assert!(shares.has_most(group(1)) && !shares.has_most(group(2)));
    }

    #[test]
    fn addresses_that_hold_something_are_told() {
        let mut shares = Shares::new(100, Bound::Part(1));
        assert_eq!(shares.groups().count(), 0);
        for (last, amount) in [(1, 10), (2, 30), (3, 20)] {
            assert!(shares.take(group(last), amount));
        }
        shares.give_back(group(2), 30);
        let mut groups: Vec<_> = shares.groups().collect();
        groups.sort_unstable();
        assert_eq!(groups, [group(1), group(3)]);
    }
}
