//! Pending syncs of a change.

use super::open_files::node::Node;
use smallvec::SmallVec;
use std::sync::Arc;

/// Directories and files that a change leaves to be synced, so that the syncs can be shared with other calls.
#[derive(Default)]
pub(super) struct PendingSyncs(SmallVec<[Arc<Node>; 2]>);

impl PendingSyncs {
    /// Adds a directory whose names have to be durable, or a file or directory whose attributes have to.
    pub(super) fn push(&mut self, node: &Arc<Node>) {
        self.0.push(Arc::clone(node));
    }

    /// Removes the last directory.
    pub(super) fn pop(&mut self) -> Option<Arc<Node>> {
        self.0.pop()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().map(|dir| &**dir)
    }
}
