//! Names and last known locations of files.

use crate::localfs::open_files::node::Node;

/// How a file got a name.
#[derive(Clone, Copy)]
pub(in crate::localfs) enum Named<'a> {
    /// It was renamed, and had this name in this directory before.
    Moved(&'a Node, &'a [u8]),
    /// It is this file, and was given one more name.
    Linked(&'a Node),
}

/// Last known location of a file.
#[derive(Clone, Debug)]
pub(in crate::localfs) struct Link {
    /// The file with this number; `None` if only its directory entry was seen.
    pub(in crate::localfs) known: Option<Known>,
    pub(in crate::localfs) parent: u64,
    pub(in crate::localfs) name: Box<[u8]>,
}

/// Facts of a file beside its location.
#[derive(Clone, Copy, Debug)]
pub(in crate::localfs) struct Known {
    pub(in crate::localfs) birth: u64,
    pub(in crate::localfs) home: u64,
    /// Whether the table has a row for it.
    pub(in crate::localfs) saved: bool,
}
