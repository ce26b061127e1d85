//! Names and last known locations of files.

use super::open_files::node::Node;

/// How a file got a name.
#[derive(Clone, Copy)]
pub(super) enum Named<'a> {
    /// It was renamed, and had this name in this directory before.
    Moved(&'a Node, &'a [u8]),
    /// It is this file, and was given one more name.
    Linked(&'a Node),
}

/// Last known location of a file.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// The file with this number; `None` if only its directory entry was seen.
    pub(super) known: Option<Known>,
    pub(super) parent: u64,
    pub(super) name: Box<[u8]>,
}

/// Facts of a file beside its location.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) birth: u64,
    pub(super) home: u64,
    /// Whether the table has a row for it.
    pub(super) saved: bool,
}
