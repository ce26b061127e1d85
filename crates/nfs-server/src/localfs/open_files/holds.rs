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
use foldhash::HashMap;
use oncrpc::PeerGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The part of all descriptors for holds that files without a name may have, as its reciprocal. Others are lost with their last name.
/// Owners of locks may have the rest.
pub(super) const UNNAMED_PART: usize = 2;

/// Addresses that hold a file at which it is looked for the one that has fewest files without a name.
const HOLDERS_ASKED: usize = 8;

/// Warm holds at which it is looked for one that can become cold, beside those that turn out to have no name.
const COOL_TRIES: usize = 8;

/// Files without a name that are counted for another of their holders before one is lost.
const MOVE_TRIES: usize = 8;

/// Largest number of files without a name that wait for the sweeper to close them. Further ones are closed by the call that loses them.
const MOST_LOST: usize = 64;

/// Number of records so far, of all exports and of all their root directories.
static RECORDS: AtomicU64 = AtomicU64::new(0);

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
    /// Warm as a call removes a name of it.
    Removing(Arc<Node>),
    /// Warm as it has no name, for which an address is counted ([`Holds::unnamed`]).
    Unnamed(Arc<Node>),
}

impl Keeping {
    fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Cold => None,
            Self::Warm(node) | Self::Pinned(node) | Self::Removing(node) | Self::Unnamed(node) => {
                Some(node)
            }
        }
    }
}

impl Hold {
    /// Whether this open file is the one that is held. Where handles do not find files, another one may have its id.
    fn is_of(&self, node: &Node) -> bool {
        self.file == node.id()
            && match &self.keeping {
                Keeping::Pinned(held) => std::ptr::eq(&**held, node),
                Keeping::Cold | Keeping::Warm(_) | Keeping::Removing(_) | Keeping::Unnamed(_) => {
                    true
                }
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
    /// Those of them that have no name.
    unnamed: Unnamed,
    /// Files without a name that are to be closed where nobody waits: freeing their data takes time.
    lost: Vec<Arc<Node>>,
}

impl Holds {
    pub(super) fn new() -> Self {
        Self {
            holds: HashMap::default(),
            order: Lru::new(usize::MAX),
            descriptors: 0,
            unnamed: Unnamed::default(),
            lost: Vec::new(),
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

    /// Takes the files that clients have lost and nobody has closed yet.
    pub(super) fn take_lost(&mut self) -> Vec<Arc<Node>> {
        std::mem::take(&mut self.lost)
    }

    /// Returns whether there are files that clients have lost and nobody has closed yet.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
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
        let hold = self.holds.entry(node.key).or_insert_with(|| Hold {
            file: node.id(),
            id: HoldId(RECORDS.fetch_add(1, Relaxed)),
            holders: Holders::new(group),
            removals: 0,
            keeping: match may_cool {
                true => Keeping::Cold,
                false => {
                    self.descriptors += 1;
                    Keeping::Pinned(Arc::clone(node))
                }
            },
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

    /// Makes holds cold that are warm for longest and were not used lately, until so many more may be warm. Returns files to close.
    pub(super) fn make_room(
        &mut self,
        most: usize,
        more: usize,
        was_used: impl Fn(u64) -> bool,
    ) -> Vec<Arc<Node>> {
        let mut closed = Vec::new();
        let mut tries = 0;
        while tries < COOL_TRIES
            && self.descriptors + more > most
            && let Some(key) = self.order.oldest()
        {
            let is_last = tries + 1 == COOL_TRIES;
            if !is_last && (was_used(key) || self.has_uncommitted_data(key)) {
                self.order.get(key);
                tries += 1;
            } else if self.cool(key, most, &mut closed) {
                tries += 1;
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

    /// Takes the descriptor of a warm hold away, or keeps it for a file that a local program has removed meanwhile. Returns whether it is
    /// taken.
    fn cool(&mut self, key: u64, most: usize, closed: &mut Vec<Arc<Node>>) -> bool {
        self.order.remove(key);
        let Some(Hold {
            keeping: Keeping::Warm(node),
            ..
        }) = self.holds.get(&key)
        else {
            return true;
        };
        let node = Arc::clone(node);
        let has_name = has_name(&node);
        let stays = !has_name && self.place_without_name(key, most, closed);
        let keeping = match stays {
            true => Keeping::Unnamed(node),
            false => {
                self.descriptors -= 1;
                match has_name {
                    true => closed.push(node),
                    false => self.close_lost(node, closed),
                }
                Keeping::Cold
            }
        };
        if let Some(hold) = self.holds.get_mut(&key) {
            hold.keeping = keeping;
        }
        !stays
    }

    /// Takes a place among the files without a name for one that is held. If there is none left, a file of the address with most of them
    /// is lost, if that is another one, and gives its descriptor. Returns whether it did; otherwise this file has to be lost.
    fn place_without_name(&mut self, key: u64, most: usize, closed: &mut Vec<Arc<Node>>) -> bool {
        let Some(group) = self.group_with_fewest(key) else {
            return false;
        };
        if self.unnamed.len() >= most / UNNAMED_PART {
            match self.file_to_lose_for(group) {
                Some(lost) => self.lose(lost, closed),
                None => return false,
            }
        }
        self.unnamed.add(group, key);
        true
    }

    /// Returns the file that is to be lost for one of this address. A file that an address with fewer holds too counts for that one from now
    /// on, and is not lost.
    fn file_to_lose_for(&mut self, group: PeerGroup) -> Option<u64> {
        for _ in 0..MOVE_TRIES {
            let key = self.unnamed.to_lose_for(group)?;
            let counted = self.unnamed.group_of(key)?;
            let next = self
                .group_with_fewest(key)
                .filter(|&next| self.unnamed.len_of(next) + 1 < self.unnamed.len_of(counted));
            match next {
                Some(next) => self.unnamed.add(next, key),
                None => return Some(key),
            }
        }
        self.unnamed.to_lose_for(group)
    }

    /// Returns the address that has fewest files without a name, of those that hold a file.
    fn group_with_fewest(&self, key: u64) -> Option<PeerGroup> {
        let groups = self.holds.get(&key)?.holders.groups();
        groups
            .take(HOLDERS_ASKED)
            .min_by_key(|&group| self.unnamed.len_of(group))
    }

    /// Takes the descriptor of a file without a name away: its clients have lost it.
    fn lose(&mut self, key: u64, closed: &mut Vec<Arc<Node>>) {
        self.unnamed.remove(key);
        let Some(hold) = self.holds.get_mut(&key) else {
            return;
        };
        match std::mem::replace(&mut hold.keeping, Keeping::Cold) {
            Keeping::Unnamed(node) => {
                self.descriptors -= 1;
                self.close_lost(node, closed);
            }
            other => hold.keeping = other,
        }
    }

    /// Has a file without a name closed by the sweeper, if not too many wait for that.
    fn close_lost(&mut self, node: Arc<Node>, closed: &mut Vec<Arc<Node>>) {
        match self.lost.len() < MOST_LOST {
            true => self.lost.push(node),
            false => closed.push(node),
        }
    }

    /// Keeps a file warm, of which a call removes a name, until [`end_removal`](Self::end_removal). A cold one becomes warm with this node,
    /// whether there is room or not: the name may stay, and there are no more such calls than threads. Returns the record, if the file is
    /// held and its handle finds it again.
    pub(super) fn begin_removal(&mut self, node: &Arc<Node>) -> Option<HoldId> {
        let hold = self.holds.get_mut(&node.key);
        let hold = hold.filter(|hold| hold.file == node.id())?;
        match std::mem::replace(&mut hold.keeping, Keeping::Cold) {
            Keeping::Cold => {
                self.descriptors += 1;
                hold.keeping = Keeping::Removing(Arc::clone(node));
            }
            Keeping::Warm(node) => {
                self.order.remove(node.key);
                hold.keeping = Keeping::Removing(node);
            }
            pinned @ Keeping::Pinned(_) => {
                hold.keeping = pinned;
                return None;
            }
            keeping @ (Keeping::Removing(_) | Keeping::Unnamed(_)) => hold.keeping = keeping,
        }
        hold.removals += 1;
        Some(hold.id)
    }

    /// Ends the removal of a name. A file that has another one, or could not be removed, may become cold again; otherwise it takes a place
    /// among those without a name. If it gets none, it stays as long as its descriptor is not needed. Returns files to close.
    pub(super) fn end_removal(
        &mut self,
        key: u64,
        id: HoldId,
        most: usize,
        was_used: impl Fn(u64) -> bool,
    ) -> Vec<Arc<Node>> {
        // Its holds may all have ended meanwhile, and new ones begun.
        let hold = self.holds.get_mut(&key).filter(|hold| hold.id == id);
        let Some(hold) = hold else {
            return Vec::new();
        };
        hold.removals = hold.removals.saturating_sub(1);
        let (Keeping::Removing(node) | Keeping::Unnamed(node)) = &hold.keeping else {
            return Vec::new();
        };
        let (node, has_name) = (Arc::clone(node), has_name(node));
        let is_counted = matches!(hold.keeping, Keeping::Unnamed(_));
        if hold.removals > 0 || is_counted && !has_name {
            return Vec::new();
        }
        // Not to be closed or lost for another one until its own place is known.
        hold.keeping = Keeping::Removing(Arc::clone(&node));
        self.unnamed.remove(key);
        let mut closed = self.make_room(most, 0, was_used);
        let keeping = match !has_name && self.place_without_name(key, most, &mut closed) {
            true => Keeping::Unnamed(node),
            false => {
                self.order.insert(key, ());
                Keeping::Warm(node)
            }
        };
        if let Some(hold) = self.holds.get_mut(&key) {
            hold.keeping = keeping;
        }
        // There was no room without it.
        if self.descriptors > most && self.order.peek(key).is_some() {
            self.cool(key, most, &mut closed);
        }
        closed
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
            Keeping::Pinned(node) | Keeping::Removing(node) => {
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

/// Whether a file has a name.
pub(super) fn has_name(node: &Node) -> bool {
    rustix::fs::fstat(&node.path).map_or(true, |found| found.st_nlink != 0)
}
