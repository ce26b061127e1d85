//! Files, directories and links found by path.

use nfs_proto::{Attributes, FileHandle};

/// A file, directory or anything else that a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its handle.
    pub handle: FileHandle,
    /// Its attributes when it was looked up.
    pub attributes: Attributes,
}
