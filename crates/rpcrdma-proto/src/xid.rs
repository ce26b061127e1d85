//! XIDs, and the table that finds a call by its XID.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// XID source for calls and for control messages. Clones share it.
#[derive(Clone, Debug)]
pub struct Xids(Arc<AtomicU32>);

impl Xids {
    /// Creates a sequence of XIDs that begins with `first`.
    pub fn starting_at(first: u32) -> Self {
        Self(Arc::new(AtomicU32::new(first)))
    }

    /// Returns the next XID. XIDs repeat after 2^32 calls.
    pub fn next(&self) -> u32 {
        self.0.fetch_add(1, Relaxed)
    }
}

/// Calls by XID: a table indexed by the low bits of the XID.
///
/// XIDs of one client are sequential, so calls in flight differ in their low bits, except for a few
/// that last long; these move others by a slot or two. The path of a call has no hash, and a peer
/// that makes up XIDs causes at most [`reach`](Self::reach) probes.
#[derive(Debug)]
pub(crate) struct XidTable {
    /// None before the first entry: a server may never call its client.
    slots: Box<[Option<(u32, u32)>]>,
    /// Number of slots, once there is an entry.
    size: usize,
    /// Largest distance of an entry from the slot of its XID.
    reach: usize,
    len: usize,
}

impl XidTable {
    /// Creates a table for up to `calls` calls.
    pub(crate) fn new(calls: usize) -> Self {
        Self {
            slots: Box::default(),
            size: (calls.max(8) * 2).next_power_of_two(),
            reach: 0,
            len: 0,
        }
    }

    #[inline]
    fn slot(&self, xid: u32, step: usize) -> usize {
        (xid as usize).wrapping_add(step) & (self.size - 1)
    }

    #[inline]
    fn find(&self, xid: u32) -> Option<usize> {
        (0..=self.reach)
            .map(|step| self.slot(xid, step))
            .find(|&slot| matches!(self.slots.get(slot), Some(&Some((other, _))) if other == xid))
    }

    /// Returns the value of this XID.
    #[inline]
    pub(crate) fn get(&self, xid: u32) -> Option<u32> {
        let slot = self.find(xid)?;
        self.slots[slot].map(|(_, value)| value)
    }

    /// Inserts an entry. Returns false if the XID exists or the table is full.
    pub(crate) fn insert(&mut self, xid: u32, value: u32) -> bool {
        if self.len == self.size || self.find(xid).is_some() {
            return false;
        }
        if self.slots.is_empty() {
            self.slots = vec![None; self.size].into();
        }
        let step = (0..self.slots.len())
            .find(|&step| self.slots[self.slot(xid, step)].is_none())
            .expect("a table that is not full has a free slot");
        self.slots[self.slot(xid, step)] = Some((xid, value));
        self.reach = self.reach.max(step);
        self.len += 1;
        true
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, xid: u32) {
        if let Some(slot) = self.find(xid) {
            self.slots[slot] = None;
            self.len -= 1;
            if self.len == 0 {
                self.reach = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colliding_xids_are_all_found() {
        let mut table = XidTable::new(8);
        for i in 0..8_u32 {
            assert!(table.insert(i * 16, i));
        }
        table.remove(0);
        assert_eq!(table.get(0), None);
        for i in 1..8_u32 {
            assert_eq!(table.get(i * 16), Some(i));
        }
        assert_eq!(table.get(16 * 8), None);
    }

    #[test]
    fn xid_in_use_is_not_taken_twice() {
        let mut table = XidTable::new(8);
        assert!(table.insert(5, 1));
        assert!(!table.insert(5, 2));
        table.remove(5);
        assert!(table.insert(5, 3));
        assert_eq!(table.get(5), Some(3));
    }

    #[test]
    fn full_table_takes_no_more() {
        let mut table = XidTable::new(8);
        for xid in 0..16 {
            assert!(table.insert(xid, xid));
        }
        assert!(!table.insert(16, 16));
    }
}
