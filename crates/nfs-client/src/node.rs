//! Files, directories and links found by path.

use nfs_proto::{Attributes, FileHandle};

/// A file system object found by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// File handle.
    pub handle: FileHandle,
    /// Attributes at the time of the lookup.
    pub attributes: Attributes,
}
