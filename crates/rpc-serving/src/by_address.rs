//! Values of addresses, each forgotten once it is of no use.

use oncrpc::PeerGroup;
use std::collections::{HashMap, VecDeque};

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

impl<T> Unused for VecDeque<T> {
    fn is_unused(&self) -> bool {
        self.is_empty()
    }
}

/// A value of each address. An address whose value is [unused](Unused::is_unused) has none, so that no more addresses are
/// known than those of peers that do something.
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
pub struct ByAddress<T>(HashMap<PeerGroup, T>);

impl<T> Default for ByAddress<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Default + Unused> ByAddress<T> {
    /// The value of an address, if it has one.
    pub fn get(&self, group: PeerGroup) -> Option<&T> {
        self.0.get(&group)
    }

    /// Changes the value of an address, or a new one, and forgets it if it is unused then.
    pub fn change<R>(&mut self, group: PeerGroup, change: impl FnOnce(&mut T) -> R) -> R {
        let value = self.0.entry(group).or_default();
        let changed = change(value);
        if value.is_unused() {
            self.0.remove(&group);
        }
        changed
    }

    /// All values with their addresses, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (PeerGroup, &T)> {
        self.0.iter().map(|(group, value)| (*group, value))
    }

    /// Number of addresses with a value.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no address has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
