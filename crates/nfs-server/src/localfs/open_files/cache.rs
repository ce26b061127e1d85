//! Cache of files that stay open between calls.

use super::holds::{HoldId, Holds};
use super::node::{Gone, Node};
use crate::localfs::lru::Lru;
use foldhash::HashMap;
use std::sync::Arc;

/// Largest number of removed files whose rows are still to be removed from the table. Rows of
/// further files stay.
const MAX_GONE: usize = 4096;

/// Open files by [`Node::key`], with a fixed capacity.
pub(super) struct Cache {
    files: Lru<Arc<Node>>,
    /// Keys by inode number, if the key is another number. Of two files with the same inode number,
    /// on subvolumes of btrfs, this has the one opened last.
    by_inode: HashMap<u64, u64>,
    /// Files that were found to have no name any more.
    gone: Vec<Gone>,
    /// Files that clients keep open, whether they are among `files` or not.
    held: Holds,
    /// Number of descriptors for locks.
    lock_files: usize,
}

impl Cache {
    /// Creates a cache for `capacity` files.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            files: Lru::new(capacity),
            by_inode: HashMap::default(),
            gone: Vec::new(),
            held: Holds::new(),
            lock_files: 0,
        }
    }

    /// Returns a file and marks it as most recently used.
    pub(super) fn get(&mut self, key: u64) -> Option<&Arc<Node>> {
        match self.files.get(key) {
            Some(node) => Some(node),
            None => self.held.node(key),
        }
    }

    /// Returns a file without marking it as used.
    pub(super) fn peek(&self, key: u64) -> Option<&Arc<Node>> {
        self.files.peek(key).or_else(|| self.held.node(key))
    }

    /// Returns a file that stays open whether it is held or not.
    pub(super) fn stays_open(&self, key: u64) -> Option<&Arc<Node>> {
        self.files.peek(key)
    }

    /// Number of files, without those that are only kept as they are held.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Number of all files. It looks at those that are open, of which there are fewer than holds.
    pub(super) fn len_with_held(&self) -> usize {
        let both = self
            .files
            .keys()
            .filter(|&key| self.held.node(key).is_some());
        self.files.len() + self.held.descriptors() - both.count()
    }

    /// Returns the files that clients keep open.
    pub(super) fn held(&self) -> &Holds {
        &self.held
    }

    /// Returns the files that clients keep open, to be changed, and a function that tells whether a file was used lately: it is among
    /// those that are open anyway.
    pub(super) fn held_mut(&mut self) -> (&mut Holds, impl Fn(u64) -> bool) {
        let files = &self.files;
        (&mut self.held, |key| files.peek(key).is_some())
    }

    /// Removes all held files.
    pub(super) fn forget_all_held(&mut self) -> Holds {
        std::mem::replace(&mut self.held, Holds::new())
    }

    /// Closes descriptors of held files that are found again, until there may be one more. Returns them.
    pub(super) fn make_room(&mut self, most: usize) -> Vec<Arc<Node>> {
        let most = most.saturating_sub(self.lock_files);
        let (held, was_used) = self.held_mut();
        held.make_room(most, 1, was_used)
    }

    /// Makes the hold of a file warm, if it is cold and there is room.
    pub(super) fn warm(&mut self, node: &Arc<Node>, most: usize) {
        self.held.warm(node, most.saturating_sub(self.lock_files));
    }

    /// See [`Holds::end_removal`].
    pub(super) fn end_removal(&mut self, key: u64, id: HoldId, most: usize) -> Vec<Arc<Node>> {
        let most = most.saturating_sub(self.lock_files);
        let (held, was_used) = self.held_mut();
        held.end_removal(key, id, most, was_used)
    }

    /// Counts a descriptor for locks.
    pub(super) fn add_lock_file(&mut self) {
        self.lock_files += 1;
    }

    /// Counts a descriptor for locks no more.
    pub(super) fn remove_lock_file(&mut self) {
        self.lock_files -= 1;
    }

    /// Number of files that stay open as clients keep them so, and of descriptors for locks.
    pub(super) fn kept(&self) -> usize {
        self.held.descriptors() + self.lock_files
    }

    /// Removes the least recently used files until at most `most` are open, with those that are kept.
    pub(super) fn trim_beside_kept(&mut self, most: usize) -> Vec<Arc<Node>> {
        self.trim(most.saturating_sub(self.kept()).max(1))
    }

    /// Sets the current round.
    pub(super) fn set_round(&mut self, round: u64) {
        self.files.set_round(round);
    }

    /// Whether a file was last used before a round.
    pub(super) fn is_idle(&self, key: u64, round: u64) -> bool {
        self.files.is_idle(key, round)
    }

    /// Returns the files that were last used before a round.
    pub(super) fn idle(&self, round: u64) -> impl Iterator<Item = &Arc<Node>> {
        self.files.idle(round)
    }

    /// Returns the key of the file with this inode number, if it is open.
    pub(super) fn key_of_inode(&self, ino: u64) -> Option<u64> {
        let key = self.by_inode.get(&ino).copied().unwrap_or(ino);
        let node = self.files.peek(key)?;
        (node.ino == ino).then_some(key)
    }

    /// Inserts a file; returns the evicted or replaced one, if any.
    pub(super) fn insert(&mut self, node: Arc<Node>) -> Option<Arc<Node>> {
        let (key, ino) = (node.key, node.ino);
        let gone = self.files.insert(key, node);
        self.forget(gone.as_slice());
        if key != ino {
            self.by_inode.insert(ino, key);
        }
        gone
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, key: u64) -> Option<Arc<Node>> {
        let gone = self.files.remove(key);
        self.forget(gone.as_slice());
        gone
    }

    /// Removes the least recently used half of the files.
    pub(super) fn shed(&mut self) -> Vec<Arc<Node>> {
        let gone = self.files.shed();
        self.forget(&gone);
        gone
    }

    /// Removes the least recently used files until at most `goal` are left.
    pub(super) fn trim(&mut self, goal: usize) -> Vec<Arc<Node>> {
        let gone = self.files.trim(goal);
        self.forget(&gone);
        gone
    }

    /// Notes that a file has no name any more.
    pub(super) fn note_gone(&mut self, gone: Gone) {
        if self.gone.len() < MAX_GONE {
            self.gone.push(gone);
        }
    }

    /// Returns the files that were noted since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.gone)
    }

    fn forget(&mut self, gone: &[Arc<Node>]) {
        for node in gone {
            if self.by_inode.get(&node.ino) == Some(&node.key) {
                self.by_inode.remove(&node.ino);
            }
        }
    }
}
