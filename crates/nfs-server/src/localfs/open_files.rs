//! Cache of files that stay open between calls.

use super::lru::Lru;
use super::node::Node;
use std::collections::HashMap;
use std::sync::Arc;

/// Open files by [`Node::key`], at most a fixed number of them.
pub(super) struct OpenFiles {
    files: Lru<Arc<Node>>,
    /// Their keys by inode number, where that is not the key. Of two with the same number, on subvolumes of
    /// btrfs, the last one that was opened is here.
    by_inode: HashMap<u64, u64>,
}

impl OpenFiles {
    /// Room for so many.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            files: Lru::new(capacity),
            by_inode: HashMap::new(),
        }
    }

    /// The file, which is then the last one to be closed.
    pub(super) fn get(&mut self, key: u64) -> Option<&mut Arc<Node>> {
        self.files.get(key)
    }

    /// The file, which is not used by that.
    pub(super) fn peek(&self, key: u64) -> Option<&Arc<Node>> {
        self.files.peek(key)
    }

    /// Files in it.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Uses from now on are in this round.
    pub(super) fn set_round(&mut self, round: u64) {
        self.files.set_round(round);
    }

    /// Whether a file was last used before a round.
    pub(super) fn is_idle(&self, key: u64, round: u64) -> bool {
        self.files.is_idle(key, round)
    }

    /// The files that were last used before a round.
    pub(super) fn idle(&self, round: u64) -> impl Iterator<Item = &Arc<Node>> {
        self.files.idle(round)
    }

    /// The key of the file with this inode number, if it is open.
    pub(super) fn key_of_inode(&self, ino: u64) -> Option<u64> {
        let key = self.by_inode.get(&ino).copied().unwrap_or(ino);
        let node = self.files.peek(key)?;
        (node.ino == ino).then_some(key)
    }

    /// Puts a file in; the one that had to go, or was there before, comes back.
    pub(super) fn insert(&mut self, node: Arc<Node>) -> Option<Arc<Node>> {
        let (key, ino) = (node.key, node.ino);
        let gone = self.files.insert(key, node);
        self.forget(gone.as_slice());
        if key != ino {
            self.by_inode.insert(ino, key);
        }
        gone
    }

    /// Takes a file out.
    pub(super) fn remove(&mut self, key: u64) -> Option<Arc<Node>> {
        let gone = self.files.remove(key);
        self.forget(gone.as_slice());
        gone
    }

    /// Takes half of the files out, those not used for longest.
    pub(super) fn shed(&mut self) -> Vec<Arc<Node>> {
        let gone = self.files.shed();
        self.forget(&gone);
        gone
    }

    /// Takes those not used for longest out until no more than `goal` are left.
    pub(super) fn trim(&mut self, goal: usize) -> Vec<Arc<Node>> {
        let gone = self.files.trim(goal);
        self.forget(&gone);
        gone
    }

    fn forget(&mut self, gone: &[Arc<Node>]) {
        for node in gone {
            if self.by_inode.get(&node.ino) == Some(&node.key) {
                self.by_inode.remove(&node.ino);
            }
        }
    }
}
