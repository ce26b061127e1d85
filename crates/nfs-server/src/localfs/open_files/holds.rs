//! Records of files that clients keep open.
//!
//! A hold is *warm* while the file has a descriptor for it, and *cold* otherwise: then the next use opens the file by its handle.
//! Where handles of the kernel find files, and the server's own rights open them, the number of holds has no limit here. Beyond a number of
//! warm ones, one that was not used lately becomes cold. One whose last name is removed stays warm, as nothing else leads to the file.
//! If clients of the export remove it, it is made warm before. If a local program removes the file of a cold hold, or a client by another
//! export of the same file system, the file is lost.

use super::node::Node;
use crate::fs::FileId;
use crate::localfs::lru::Lru;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The part of all descriptors for holds that files without a name may have, as its reciprocal. Others are lost with their last name.
/// Owners of locks may have the rest.
pub(super) const UNNAMED_PART: usize = 2;

/// Warm holds at which it is looked for one that can become cold.
const COOL_TRIES: usize = 8;

/// A file that clients keep open.
struct Hold {
    file: FileId,
    /// Number of holds: nodes of the file share it.
    count: Arc<AtomicUsize>,
    /// Whether the handle finds the file again after its descriptor was closed.
    may_cool: bool,
    /// Calls in service that remove a name of the file.
    removals: usize,
    keeping: Keeping,
}

enum Keeping {
    Cold,
    /// Warm until others need the descriptor.
    Warm(Arc<Node>),
    /// Warm as long as it is held.
    Pinned(Arc<Node>),
}

impl Keeping {
    fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Cold => None,
            Self::Warm(node) | Self::Pinned(node) => Some(node),
        }
    }
}

/// Files that clients keep open, by [`Node::key`].
pub(super) struct Holds {
    holds: HashMap<u64, Hold>,
    /// Warm holds that may become cold, the one that was warm longest first.
    order: Lru<()>,
    /// Number of warm holds.
    descriptors: usize,
    /// Number of those that are pinned, though their handles would find them again: they have no name, or are losing one.
    unnamed: usize,
}

impl Holds {
    pub(super) fn new() -> Self {
        Self {
            holds: HashMap::new(),
            order: Lru::new(usize::MAX),
            descriptors: 0,
            unnamed: 0,
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

    /// Returns the count of the holds of a file, if there is one.
    pub(super) fn count_of(&self, key: u64, file: FileId) -> Option<Arc<AtomicUsize>> {
        let hold = self.holds.get(&key).filter(|hold| hold.file == file);
        hold.map(|hold| Arc::clone(&hold.count))
    }

    /// Holds a file once more. No other one is held with its key. A new hold is cold if it may be, and pinned otherwise.
    pub(super) fn add(&mut self, node: &Arc<Node>, may_cool: bool) -> Arc<AtomicUsize> {
        let descriptors = &mut self.descriptors;
        let hold = self.holds.entry(node.key).or_insert_with(|| Hold {
            file: node.id(),
            count: Arc::clone(&node.holds),
            may_cool,
            removals: 0,
            keeping: match may_cool {
                true => Keeping::Cold,
                false => {
                    *descriptors += 1;
                    Keeping::Pinned(Arc::clone(node))
                }
            },
        });
        hold.count.fetch_add(1, Relaxed);
        Arc::clone(&hold.count)
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

    fn cool(&mut self, key: u64, most: usize) -> Option<Arc<Node>> {
        self.order.remove(key);
        let hold = self.holds.get_mut(&key)?;
        match std::mem::replace(&mut hold.keeping, Keeping::Cold) {
            // A local program has removed it while it was warm.
            Keeping::Warm(node) if !has_name(&node) && self.unnamed < most / UNNAMED_PART => {
                hold.keeping = Keeping::Pinned(node);
                self.unnamed += 1;
                None
            }
            Keeping::Warm(node) => {
                self.descriptors -= 1;
                Some(node)
            }
            other => {
                hold.keeping = other;
                None
            }
        }
    }

    /// Keeps a file warm, of which a call removes a name, until [`end_removal`](Self::end_removal). A cold one becomes warm with the node of
    /// `open`. Returns the count of its holds; `None` if it is not held, or there is no room for one more without a name.
    pub(super) fn begin_removal(
        &mut self,
        (key, file): (u64, FileId),
        most: usize,
        open: impl FnOnce(&Arc<AtomicUsize>) -> Option<Arc<Node>>,
    ) -> Option<Arc<AtomicUsize>> {
        let hold = self.holds.get_mut(&key);
        let hold = hold.filter(|hold| hold.file == file && hold.may_cool)?;
        let is_full = self.unnamed >= most / UNNAMED_PART;
        hold.keeping = match std::mem::replace(&mut hold.keeping, Keeping::Cold) {
            Keeping::Pinned(node) => Keeping::Pinned(node),
            Keeping::Warm(node) if is_full => {
                hold.keeping = Keeping::Warm(node);
                return None;
            }
            Keeping::Warm(node) => {
                self.order.remove(key);
                self.unnamed += 1;
                Keeping::Pinned(node)
            }
            Keeping::Cold => {
                if is_full || self.descriptors >= most {
                    return None;
                }
                let node = open(&hold.count)?;
                self.descriptors += 1;
                self.unnamed += 1;
                Keeping::Pinned(node)
            }
        };
        hold.removals += 1;
        Some(Arc::clone(&hold.count))
    }

    /// Ends the removal of a name. A file that has another one may become cold again.
    pub(super) fn end_removal(&mut self, key: u64, count: &Arc<AtomicUsize>) {
        let hold = self.holds.get_mut(&key);
        let Some(hold) = hold.filter(|hold| Arc::ptr_eq(&hold.count, count)) else {
            return;
        };
        // Its holds may all have ended meanwhile, and new ones begun.
        let Some(left) = hold.removals.checked_sub(1) else {
            return;
        };
        hold.removals = left;
        if let Keeping::Pinned(node) = &hold.keeping
            && hold.removals == 0
            && has_name(node)
        {
            hold.keeping = Keeping::Warm(Arc::clone(node));
            self.unnamed -= 1;
            self.order.insert(key, ());
        }
    }

    /// Ends one hold of a file. With the last one, returns the file if it was warm.
    pub(super) fn release(
        &mut self,
        key: u64,
        count: &Arc<AtomicUsize>,
    ) -> (bool, Option<Arc<Node>>) {
        let was_last = count.fetch_sub(1, Relaxed) == 1;
        let is_it = |hold: &Hold| Arc::ptr_eq(&hold.count, count);
        match was_last && self.holds.get(&key).is_some_and(is_it) {
            true => (true, self.remove(key)),
            false => (was_last, None),
        }
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
                self.unnamed -= usize::from(hold.may_cool);
                Some(node)
            }
        }
    }
}

fn has_name(node: &Node) -> bool {
    rustix::fs::fstat(&node.path).map_or(true, |found| found.st_nlink != 0)
}
