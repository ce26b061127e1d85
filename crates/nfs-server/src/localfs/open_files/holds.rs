//! Records of files that clients keep open.
//!
//! A hold is *warm* while the file has a descriptor for it, and *cold* otherwise: then the next use opens the file by its handle.
//! Where handles of the kernel find files, and the server's own rights open them, the number of holds has no limit here. Beyond a number of
//! warm ones, one that was not used lately becomes cold. One whose last name is removed stays warm, as nothing else leads to the file.
//! If clients remove it by an export of this server, it is made warm before, in all exports. If a local program removes the file of a cold
//! hold, the file is lost.
//!
//! The record is the one place where holds are counted: open files ([`Node`]) come and go below it.

use super::holders::Holders;
use super::node::Node;
use super::unnamed::Unnamed;
use crate::fs::FileId;
use crate::localfs::lru::Lru;
use oncrpc::PeerGroup;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The part of all descriptors for holds that files without a name may have, as its reciprocal. Others are lost with their last name.
/// Owners of locks may have the rest.
pub(super) const UNNAMED_PART: usize = 2;

/// Addresses that hold a file at which it is looked for the one that has fewest files without a name.
const HOLDERS_ASKED: usize = 8;

/// Warm holds at which it is looked for one that can become cold.
const COOL_TRIES: usize = 8;

/// Tells a record from the one that was there before for the same file, or for another one with its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldId(u64);

/// A file that clients keep open.
struct Hold {
    file: FileId,
    id: HoldId,
    holders: Holders,
    /// Calls in service that remove a name of the file.
    removals: usize,
    keeping: Keeping,
}

enum Keeping {
    Cold,
    /// Warm until others need the descriptor.
    Warm(Arc<Node>),
    /// Warm as long as it is held: its handle does not find it again.
    Pinned(Arc<Node>),
    /// Warm as it has no name, or is losing one, for which an address is counted ([`Holds::unnamed`]).
    Unnamed(Arc<Node>),
}

impl Keeping {
    fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Cold => None,
            Self::Warm(node) | Self::Pinned(node) | Self::Unnamed(node) => Some(node),
        }
    }
}

impl Hold {
    /// Whether this open file is the one that is held. Where handles do not find files, another one may have its id.
    fn is_of(&self, node: &Node) -> bool {
        self.file == node.id()
            && match &self.keeping {
                Keeping::Pinned(held) => std::ptr::eq(&**held, node),
                Keeping::Cold | Keeping::Warm(_) | Keeping::Unnamed(..) => true,
            }
    }
}

/// The rest of a record after a hold ended.
pub(super) enum Left {
    /// Others hold the file.
    Held,
    /// Nobody does. The file is there if it was warm.
    Nothing(Option<Arc<Node>>),
    /// The record was gone before.
    Gone,
}

/// Files that clients keep open, by [`Node::key`].
pub(super) struct Holds {
    holds: HashMap<u64, Hold>,
    /// Warm holds that may become cold, the one that was warm longest first.
    order: Lru<()>,
    /// Number of warm holds.
    descriptors: usize,
    /// Those of them that have no name, or are losing one.
    unnamed: Unnamed,
    /// Number of records so far.
    records: u64,
}

impl Holds {
    pub(super) fn new() -> Self {
        Self {
            holds: HashMap::new(),
            order: Lru::new(usize::MAX),
            descriptors: 0,
            unnamed: Unnamed::default(),
            records: 0,
        }
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// Number of descriptors that are kept for holds.
    pub(super) fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// Returns the file with this key, if its hold is warm.
    pub(super) fn node(&self, key: u64) -> Option<&Arc<Node>> {
        self.holds.get(&key)?.keeping.node()
    }

    /// Returns the file that is held with this key.
    pub(super) fn file(&self, key: u64) -> Option<FileId> {
        self.holds.get(&key).map(|hold| hold.file)
    }

    /// Returns whether clients keep an open file.
    pub(super) fn holds(&self, node: &Node) -> bool {
        let hold = self.holds.get(&node.key);
        hold.is_some_and(|hold| hold.is_of(node))
    }

    /// Returns whether a file is held without a descriptor.
    pub(super) fn is_cold(&self, key: u64, file: FileId) -> bool {
        let hold = self.holds.get(&key);
        hold.is_some_and(|hold| hold.file == file && matches!(hold.keeping, Keeping::Cold))
    }

    /// Returns whether a file is held that its handle finds again.
    pub(super) fn may_be_cold(&self, key: u64, file: FileId) -> bool {
        let hold = self.holds.get(&key);
        hold.is_some_and(|hold| hold.file == file && !matches!(hold.keeping, Keeping::Pinned(_)))
    }

    /// Holds a file once more for a client of this address. No other one is held with its key. A new hold is cold if it may be, and
    /// pinned otherwise.
    pub(super) fn add(&mut self, node: &Arc<Node>, group: PeerGroup, may_cool: bool) -> HoldId {
        let hold = self.holds.entry(node.key).or_insert_with(|| {
            self.records += 1;
            Hold {
                file: node.id(),
                id: HoldId(self.records),
                holders: Holders::new(group),
                removals: 0,
                keeping: match may_cool {
                    true => Keeping::Cold,
                    false => {
                        self.descriptors += 1;
                        Keeping::Pinned(Arc::clone(node))
                    }
                },
            }
        });
        hold.holders.add(group);
        hold.id
    }

    /// Makes the hold of a file warm, if it is cold, and one more may be warm.
    pub(super) fn warm(&mut self, node: &Arc<Node>, most: usize) {
        if self.descriptors >= most {
            return;
        }
        let hold = self.holds.get_mut(&node.key);
        if let Some(hold) = hold.filter(|hold| hold.file == node.id())
            && matches!(hold.keeping, Keeping::Cold)
        {
            hold.keeping = Keeping::Warm(Arc::clone(node));
            self.descriptors += 1;
            self.order.insert(node.key, ());
        }
    }

    /// Makes holds cold that are warm for longest and were not used lately, until one more may be warm. Returns the files to close.
    pub(super) fn make_room(
        &mut self,
        most: usize,
        was_used: impl Fn(u64) -> bool,
    ) -> Vec<Arc<Node>> {
        let mut closed = Vec::new();
        for tries in 1..=COOL_TRIES {
            let oldest = match self.descriptors < most {
                true => None,
                false => self.order.oldest(),
            };
            let Some(key) = oldest else {
                break;
            };
            if (was_used(key) || self.has_uncommitted_data(key)) && tries < COOL_TRIES {
                self.order.get(key);
            } else {
                closed.extend(self.cool(key, most));
            }
        }
        closed
    }

    /// Whether data was written to a file that the client has not committed since: the kernel tells only files that stay open that it
    /// was lost.
    fn has_uncommitted_data(&self, key: u64) -> bool {
        self.node(key)
            .is_some_and(|node| node.uncommitted.load(Relaxed) != 0)
    }

    /// Takes the descriptor of a warm hold away, or keeps it for a file that a local program has removed meanwhile. Returns the files to
    /// close.
    fn cool(&mut self, key: u64, most: usize) -> Vec<Arc<Node>> {
        self.order.remove(key);
        let Some(Hold {
            keeping: Keeping::Warm(node),
            ..
        }) = self.holds.get(&key)
        else {
            return Vec::new();
        };
        let node = Arc::clone(node);
        let mut closed = Vec::new();
        let stays = !has_name(&node) && self.place_without_name(key, most, &mut closed);
        let keeping = match stays {
            true => Keeping::Unnamed(node),
            false => {
                self.descriptors -= 1;
                closed.push(node);
                Keeping::Cold
            }
        };
        if let Some(hold) = self.holds.get_mut(&key) {
            hold.keeping = keeping;
        }
        closed
    }

    /// Takes a place among the files without a name for one that is held. If there is none left, a file of the address with most of them
    /// is lost, if that is another one. Returns whether it did; otherwise this file has to be lost.
    fn place_without_name(&mut self, key: u64, most: usize, closed: &mut Vec<Arc<Node>>) -> bool {
        let Some(group) = self.group_with_fewest(key) else {
            return false;
        };
        if self.unnamed.len() >= most / UNNAMED_PART {
            match self.unnamed.to_lose_for(group) {
                Some(lost) => closed.extend(self.lose(lost)),
                None => return false,
            }
        }
        self.unnamed.add(group, key);
        true
    }

    /// Returns the address that has fewest files without a name, of those that hold a file.
    fn group_with_fewest(&self, key: u64) -> Option<PeerGroup> {
        let groups = self.holds.get(&key)?.holders.groups();
        groups
            .take(HOLDERS_ASKED)
            .min_by_key(|&group| self.unnamed.len_of(group))
    }

    /// Takes the descriptor of a file without a name away: its clients have lost it.
    fn lose(&mut self, key: u64) -> Option<Arc<Node>> {
        let hold = self.holds.get_mut(&key)?;
        match std::mem::replace(&mut hold.keeping, Keeping::Cold) {
            Keeping::Unnamed(node) => {
                self.unnamed.remove(key);
                self.descriptors -= 1;
                Some(node)
            }
            other => {
                hold.keeping = other;
                None
            }
        }
    }

    /// Keeps a file warm, of which a call removes a name, until [`end_removal`](Self::end_removal). A cold one becomes warm with this node.
    /// Returns the record, if the file is held, its handle finds it again, and there is room for one more without a name; and files to
    /// close.
    pub(super) fn begin_removal(
        &mut self,
        node: &Arc<Node>,
        most: usize,
    ) -> (Option<HoldId>, Vec<Arc<Node>>) {
        let mut closed = Vec::new();
        let key = node.key;
        let Some(hold) = (self.holds.get(&key)).filter(|hold| hold.file == node.id()) else {
            return (None, closed);
        };
        let (is_cold, warm) = match &hold.keeping {
            Keeping::Pinned(_) => return (None, closed),
            Keeping::Unnamed(..) => (false, None),
            Keeping::Warm(node) => (false, Some(Arc::clone(node))),
            Keeping::Cold => (true, Some(Arc::clone(node))),
        };
        if let Some(node) = warm {
            if !self.place_without_name(key, most, &mut closed) {
                return (None, closed);
            }
            if is_cold && self.descriptors >= most {
                self.unnamed.remove(key);
                return (None, closed);
            }
            self.descriptors += usize::from(is_cold);
            self.order.remove(key);
            if let Some(hold) = self.holds.get_mut(&key) {
                hold.keeping = Keeping::Unnamed(node);
            }
        }
        let hold = self.holds.get_mut(&key);
        let id = hold.map(|hold| {
            hold.removals += 1;
            hold.id
        });
        (id, closed)
    }

    /// Ends the removal of a name. A file that has another one may become cold again.
    pub(super) fn end_removal(&mut self, key: u64, id: HoldId) {
        // Its holds may all have ended meanwhile, and new ones begun.
        let hold = self.holds.get_mut(&key).filter(|hold| hold.id == id);
        let Some(hold) = hold else {
            return;
        };
        hold.removals -= 1;
        if let Keeping::Unnamed(node) = &hold.keeping
            && hold.removals == 0
            && has_name(node)
        {
            self.unnamed.remove(key);
            hold.keeping = Keeping::Warm(Arc::clone(node));
            self.order.insert(key, ());
        }
    }

    /// Ends one hold of a file by a client of this address.
    pub(super) fn release(&mut self, key: u64, id: HoldId, group: PeerGroup) -> Left {
        let hold = self.holds.get_mut(&key).filter(|hold| hold.id == id);
        let Some(hold) = hold else {
            return Left::Gone;
        };
        hold.holders.remove(group);
        if hold.holders.is_empty() {
            return Left::Nothing(self.remove(key));
        }
        let counted = self.unnamed.group_of(key);
        if counted.is_some_and(|counted| !hold.holders.contains(counted))
            && let Some(next) = self.group_with_fewest(key)
        {
            self.unnamed.add(next, key);
        }
        Left::Held
    }

    /// Removes a file, though clients have it open.
    pub(super) fn forget(&mut self, node: &Node) -> Option<Arc<Node>> {
        let is_it = |held: &Arc<Node>| std::ptr::eq(&**held, node);
        match self.node(node.key).is_some_and(is_it) {
            true => self.remove(node.key),
            false => None,
        }
    }

    fn remove(&mut self, key: u64) -> Option<Arc<Node>> {
        let hold = self.holds.remove(&key)?;
        match hold.keeping {
            Keeping::Cold => None,
            Keeping::Warm(node) => {
                self.order.remove(key);
                self.descriptors -= 1;
                Some(node)
            }
            Keeping::Pinned(node) => {
                self.descriptors -= 1;
                Some(node)
            }
            Keeping::Unnamed(node) => {
                self.unnamed.remove(key);
                self.descriptors -= 1;
                Some(node)
            }
        }
    }
}

fn has_name(node: &Node) -> bool {
    rustix::fs::fstat(&node.path).map_or(true, |found| found.st_nlink != 0)
}
