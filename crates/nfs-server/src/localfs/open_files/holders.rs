//! The addresses of the clients that hold one file.

use oncrpc::PeerGroup;
use rpc_serving::shares::{Bound, Shares};

/// Holds of a file, by address. Most files are held by one address, and have no table for that.
pub(super) enum Holders {
    One(PeerGroup, usize),
    Many(Box<Shares>),
}

impl Holders {
    /// None of an address yet.
    pub(super) fn new(group: PeerGroup) -> Self {
        Self::One(group, 0)
    }

    pub(super) fn add(&mut self, group: PeerGroup) {
        match self {
            Self::One(its, count) if *its == group => *count += 1,
            Self::One(its, count) => {
                let mut all = Shares::new(usize::MAX, Bound::Part(1));
                all.take(*its, *count);
                all.take(group, 1);
                *self = Self::Many(Box::new(all));
            }
            Self::Many(all) => {
                all.take(group, 1);
            }
        }
    }

    pub(super) fn remove(&mut self, group: PeerGroup) {
        match self {
            Self::One(its, count) if *its == group => *count = count.saturating_sub(1),
            Self::Many(all) if all.held_by(group) > 0 => all.give_back(group, 1),
            Self::One(..) | Self::Many(_) => {}
        }
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::One(_, count) => *count == 0,
            Self::Many(all) => all.holders() == 0,
        }
    }

    /// Returns whether an address has one.
    pub(super) fn contains(&self, group: PeerGroup) -> bool {
        match self {
            Self::One(its, count) => *its == group && *count > 0,
            Self::Many(all) => all.held_by(group) > 0,
        }
    }

    /// Returns the addresses.
    pub(super) fn groups(&self) -> impl Iterator<Item = PeerGroup> {
        let (one, many) = match self {
            Self::One(its, count) => (Some(*its).filter(|_| *count > 0), None),
            Self::Many(all) => (None, Some(all.groups())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_counted_for_each_address() {
        let [one, two, three] = [1, 2, 3].map(|last| PeerGroup::of([192, 0, 2, last].into()));
        let groups = |holders: &Holders| {
            let mut groups: Vec<_> = holders.groups().collect();
            groups.sort_unstable();
            groups
        };
        let mut holders = Holders::new(one);
        assert!(holders.is_empty() && !holders.contains(one));
        for group in [one, two, one, three] {
            holders.add(group);
        }
        assert_eq!(groups(&holders), [one, two, three]);
        holders.remove(one);
        holders.remove(three);
        holders.remove(three);
        assert!(holders.contains(one) && holders.contains(two) && !holders.contains(three));
        holders.remove(one);
        assert_eq!(groups(&holders), [two]);
        assert!(!holders.is_empty());
        holders.remove(two);
        assert!(holders.is_empty());
    }
}
