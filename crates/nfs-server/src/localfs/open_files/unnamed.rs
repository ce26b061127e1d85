//! Held files that nothing but their descriptors leads to, divided by address.

use foldhash::HashMap;
use oncrpc::PeerGroup;
use rpc_serving::by_address::ByAddress;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of the files without a name that stay open, each counted for an address. How many there may be is for the caller to say.
#[derive(Default)]
pub(super) struct Unnamed {
    /// The address of each, and its place in the order in which they were counted.
    files: HashMap<u64, (PeerGroup, u64)>,
    /// The files of each address by their place in that order.
    of: ByAddress<BTreeMap<u64, u64>>,
    /// The addresses by the number of their files.
    by_number: BTreeSet<(usize, PeerGroup)>,
    /// Place of the next file.
    next: u64,
}

impl Unnamed {
    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Number of files of an address.
    pub(super) fn len_of(&self, group: PeerGroup) -> usize {
        self.of.get(group).map_or(0, BTreeMap::len)
    }

    /// Counts a file for an address, in place of another one, if it was counted.
    pub(super) fn add(&mut self, group: PeerGroup, key: u64) {
        self.remove(key);
        let place = self.next;
        self.next += 1;
        self.files.insert(key, (group, place));
        self.change(group, |files| files.insert(place, key));
    }

    /// Counts a file no more.
    pub(super) fn remove(&mut self, key: u64) {
        if let Some((group, place)) = self.files.remove(&key) {
            self.change(group, |files| files.remove(&place));
        }
    }

    /// Changes the files of an address; `change` returns one that was there before, if any.
    fn change(
        &mut self,
        group: PeerGroup,
        change: impl FnOnce(&mut BTreeMap<u64, u64>) -> Option<u64>,
    ) {
        let (before, after) = self.of.change(group, |files| {
            let before = files.len();
            change(files);
            (before, files.len())
        });
        self.by_number.remove(&(before, group));
        if after > 0 {
            self.by_number.insert((after, group));
        }
    }

    /// Returns the address that is counted for a file.
    pub(super) fn group_of(&self, key: u64) -> Option<PeerGroup> {
        self.files.get(&key).map(|&(group, _)| group)
    }

    /// Returns the file that is to be lost for one of this address: the one that was counted first of those of the address with most of
    /// them, if that has more even then.
    pub(super) fn to_lose_for(&self, group: PeerGroup) -> Option<u64> {
        let &(most, heaviest) = self.by_number.last()?;
        if most <= self.len_of(group) + 1 {
            return None;
        }
        let first = self.of.get(heaviest)?.first_key_value();
        first.map(|(_, &key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(last: u8) -> PeerGroup {
        PeerGroup::of([192, 0, 2, last].into())
    }

    #[test]
    fn file_of_the_address_with_most_is_lost_for_one_of_another() {
        let mut unnamed = Unnamed::default();
        assert_eq!(unnamed.to_lose_for(group(1)), None);
        for key in 0..4 {
            unnamed.add(group(1), key);
        }
        unnamed.add(group(2), 10);
        assert_eq!(unnamed.to_lose_for(group(1)), None);
        assert_eq!(unnamed.to_lose_for(group(2)), Some(0));
        unnamed.remove(0);
        unnamed.add(group(2), 11);
        assert_eq!(unnamed.to_lose_for(group(2)), None, "three and two");
        assert_eq!(unnamed.to_lose_for(group(3)), Some(1));
    }

    #[test]
    fn file_is_counted_for_one_address() {
        let mut unnamed = Unnamed::default();
        unnamed.add(group(1), 7);
        unnamed.add(group(2), 7);
        assert_eq!((unnamed.len(), unnamed.group_of(7)), (1, Some(group(2))));
        assert_eq!([1, 2].map(|last| unnamed.len_of(group(last))), [0, 1]);
        unnamed.remove(8);
        unnamed.remove(7);
        assert_eq!((unnamed.len(), unnamed.len_of(group(2))), (0, 0));
    }
}
