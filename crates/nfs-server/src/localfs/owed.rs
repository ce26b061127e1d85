//! Pending syncs of a change.

use super::node::Node;
use smallvec::SmallVec;
use std::sync::Arc;

/// Directories that a change leaves to be synced, so that it can be done with others'.
#[derive(Default)]
pub(super) struct Owed(SmallVec<[Arc<Node>; 2]>);

impl Owed {
    /// The names in this directory have to be on the disk.
    pub(super) fn push(&mut self, dir: &Arc<Node>) {
        self.0.push(Arc::clone(dir));
    }

    /// Takes the last one out.
    pub(super) fn pop(&mut self) -> Option<Arc<Node>> {
        self.0.pop()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map(|dir| &**dir)
    }
}
