//! Held files that nothing but their descriptors leads to, divided by address.

use crate::localfs::lru::Lru;
use oncrpc::PeerGroup;
use rpc_serving::shares::{Bound, Shares};

/// Keys of the files without a name that stay open, each counted for an address.
pub(super) struct Unnamed {
    /// The address of each, the file first that was removed first.
    files: Lru<PeerGroup>,
    /// How many each address has. How many there may be is for the caller to say.
    shares: Shares,
}

impl Default for Unnamed {
    fn default() -> Self {
        Self {
            files: Lru::new(usize::MAX),
            shares: Shares::new(usize::MAX, Bound::Part(1)),
        }
    }
}

impl Unnamed {
    /// Number of files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Number of files of an address.
    pub(super) fn len_of(&self, group: PeerGroup) -> usize {
        self.shares.held_by(group)
    }

    /// Counts a file for an address, in place of another one, if it was counted.
    pub(super) fn add(&mut self, group: PeerGroup, key: u64) {
        self.remove(key);
        self.files.insert(key, group);
        self.shares.take(group, 1);
    }

    /// Counts a file no more.
    pub(super) fn remove(&mut self, key: u64) {
        if let Some(group) = self.files.remove(key) {
            self.shares.give_back(group, 1);
        }
    }

    /// Returns the address that is counted for a file.
    pub(super) fn group_of(&self, key: u64) -> Option<PeerGroup> {
        self.files.peek(key).copied()
    }

    /// Returns the file that is to be lost for one of this address: the one that was removed first of those of the address with most of
    /// them, if that has more even then.
    pub(super) fn to_lose_for(&self, group: PeerGroup) -> Option<u64> {
        let heaviest = self.shares.heaviest()?;
        if self.len_of(heaviest) <= self.len_of(group) + 1 {
            return None;
        }
        let mut files = self.files.oldest_first();
        files.find(|&(_, &its)| its == heaviest).map(|(key, _)| key)
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
