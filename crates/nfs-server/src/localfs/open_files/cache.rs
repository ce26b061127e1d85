//! Cache of files that stay open between calls.

use super::node::{Gone, Node};
use crate::localfs::lru::Lru;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
    /// Files that clients keep open, by key, whether they are among `files` or not.
    held: HashMap<u64, Arc<Node>>,
    /// Number of descriptors for locks.
    lock_files: usize,
}

impl Cache {
    /// Creates a cache for `capacity` files.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            files: Lru::new(capacity),
            by_inode: HashMap::new(),
            gone: Vec::new(),
            held: HashMap::new(),
            lock_files: 0,
        }
    }

    /// Returns a file and marks it as most recently used.
    pub(super) fn get(&mut self, key: u64) -> Option<&Arc<Node>> {
        match self.files.get(key) {
            Some(node) => Some(node),
            None => self.held.get(&key),
        }
    }

    /// Returns a file without marking it as used.
    pub(super) fn peek(&self, key: u64) -> Option<&Arc<Node>> {
        self.files.peek(key).or_else(|| self.held.get(&key))
    }

    /// Number of files, without those that are only kept as they are held.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Number of all files.
    pub(super) fn len_with_held(&self) -> usize {
        let beside = |key: &&u64| self.files.peek(**key).is_none();
        self.files.len() + self.held.keys().filter(beside).count()
    }

    /// Returns the held file with this key.
    pub(super) fn held(&self, key: u64) -> Option<&Arc<Node>> {
        self.held.get(&key)
    }

    /// Holds a file once more. No other one is held with its key.
    pub(super) fn hold(&mut self, node: &Arc<Node>) {
        node.holds.fetch_add(1, Relaxed);
        self.held
            .entry(node.key)
            .or_insert_with(|| Arc::clone(node));
    }

    /// Ends one hold of a file; returns whether it was the last.
    pub(super) fn release(&mut self, node: &Arc<Node>) -> bool {
        let last = node.holds.fetch_sub(1, Relaxed) == 1;
        if last {
            // The caller has it too: no descriptor is closed here.
            drop(self.forget_held(node));
        }
        last
    }

    /// Removes a file from the held ones, though clients have it open.
    pub(super) fn forget_held(&mut self, node: &Node) -> Option<Arc<Node>> {
        let is_it = |held: &Arc<Node>| std::ptr::eq(&**held, node);
        match self.held.get(&node.key).is_some_and(is_it) {
            true => self.held.remove(&node.key),
            false => None,
        }
    }

    /// Removes all held files.
    pub(super) fn forget_all_held(&mut self) -> HashMap<u64, Arc<Node>> {
        std::mem::take(&mut self.held)
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
        self.held.len() + self.lock_files
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
