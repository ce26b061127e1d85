//! The opens of one file, by what they may and deny.

use nfs_proto::v4::open::{ShareAccess, ShareDeny};

/// Opens with the same access and denial.
#[derive(Debug)]
struct Class {
    access: ShareAccess,
    deny: ShareDeny,
    opens: Vec<u32>,
}

/// A file that is open. Its opens are of twelve classes at most: what is in the way of one more is found without a look at those that are
/// not, however many there are.
#[derive(Debug, Default)]
pub(super) struct File {
    classes: Vec<Class>,
}

impl File {
    /// Enters an open, and returns its place.
    pub(super) fn insert(&mut self, open: u32, access: ShareAccess, deny: ShareDeny) -> usize {
        let is_it = |class: &Class| (class.access, class.deny) == (access, deny);
        let at = self.classes.iter().position(is_it).unwrap_or_else(|| {
            // Most files have one.
            self.classes.reserve_exact(1);
            self.classes.push(Class {
                access,
                deny,
                opens: Vec::new(),
            });
            self.classes.len() - 1
        });
        let opens = &mut self.classes[at].opens;
        opens.push(open);
        opens.len() - 1
    }

    /// Removes an open from its place. Returns the one that has its place now.
    pub(super) fn remove(
        &mut self,
        place: usize,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Option<u32> {
        let is_it = |class: &Class| (class.access, class.deny) == (access, deny);
        let at = self.classes.iter().position(is_it);
        let at = at.expect("an open is one of its file");
        let opens = &mut self.classes[at].opens;
        opens.swap_remove(place);
        let moved = opens.get(place).copied();
        if opens.is_empty() {
            self.classes.swap_remove(at);
        }
        moved
    }

    /// Returns the opens that are in the way of one (RFC 8881 §9.7).
    pub(super) fn conflicts(&self, access: u32, deny: u32) -> impl Iterator<Item = u32> {
        let classes = self.classes.iter().filter(move |class| {
            class.deny.bits() & access != 0 || class.access.bits() & deny != 0
        });
        classes.flat_map(|class| class.opens.iter().copied())
    }

    /// Returns the number of opens that deny reading.
    pub(super) fn denying_reads(&self) -> usize {
        let classes = self.classes.iter();
        let denying = classes.filter(|class| class.deny.contains(ShareDeny::READ));
        denying.map(|class| class.opens.len()).sum()
    }

    /// Returns all opens.
    pub(super) fn opens(&self) -> impl Iterator<Item = u32> {
        let classes = self.classes.iter();
        classes.flat_map(|class| class.opens.iter().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a list of all opens says.
        #[test]
        fn opens_in_the_way_are_those_that_deny_or_are_denied(
            steps in prop::collection::vec((1..4_u32, 0..4_u32, any::<prop::sample::Index>(), any::<bool>()), 1..60),
            (access, deny) in (1..4_u32, 0..4_u32),
        ) {
            let (mut file, mut all) = (File::default(), Vec::<(u32, u32, u32, usize)>::new());
            for (number, (access, deny, index, removes)) in (0..).zip(steps) {
                if removes && !all.is_empty() {
                    let (_, access, deny, place) = all.swap_remove(index.index(all.len()));
                    let (access, deny) = (ShareAccess::from_bits_retain(access), ShareDeny::from_bits_retain(deny));
                    if let Some(moved) = file.remove(place, access, deny) {
                        let its = all.iter_mut().find(|(number, ..)| *number == moved).unwrap();
                        its.3 = place;
                    }
                } else {
                    let place = file.insert(
                        number,
                        ShareAccess::from_bits_retain(access),
                        ShareDeny::from_bits_retain(deny),
                    );
                    all.push((number, access, deny, place));
                }
            }
            let sorted = |mut list: Vec<u32>| { list.sort_unstable(); list };
            let numbers = |list: Vec<&(u32, u32, u32, usize)>| sorted(list.iter().map(|open| open.0).collect());
            let expected = all.iter().filter(|open| open.2 & access != 0 || open.1 & deny != 0);
            prop_assert_eq!(sorted(file.conflicts(access, deny).collect()), numbers(expected.collect()));
            prop_assert_eq!(sorted(file.opens().collect()), numbers(all.iter().collect()));
            let denying = all.iter().filter(|open| open.2 & 1 != 0).count();
            prop_assert_eq!(file.denying_reads(), denying);
            prop_assert_eq!(file.is_empty(), all.is_empty());
        }
    }
}
