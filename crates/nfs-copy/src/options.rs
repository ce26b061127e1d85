//! Options of copies.

use crate::exclude::Exclude;
use crate::sparse::Sparse;

/// Options of a copy.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether directories are copied.
    pub recursive: bool,
    /// Whether modes, times and owners are kept.
    pub preserves: bool,
    /// Whether a symbolic link that is named as a source is copied, and not what it leads to.
    pub copies_links: bool,
    /// Whether FIFOs and sockets are made again.
    pub makes_special: bool,
    /// Whether what is there stays as it is.
    pub keeps_existing: bool,
    /// Whether only what is older is replaced.
    pub updates: bool,
    /// Whether things at the destination that the source directory lacks are removed after everything was copied.
    pub deletes: bool,
    /// Whether nothing is changed, and events say what would be done.
    pub dry_run: bool,
    /// When copies have holes.
    pub sparse: Sparse,
    /// Whether large files that are cut off are kept, and continued.
    pub resumes: bool,
    /// Names that are left out.
    pub exclude: Exclude,
    /// Permission bits that new files do not get, unless modes are kept.
    pub umask: u32,
    /// To what times at the destination are rounded, in nanoseconds; [`put`](crate::put()) and [`cp`](crate::cp())
    /// ask the server too.
    pub resolution: i128,
}

/// No options, and the usual umask.
impl Default for Options {
    fn default() -> Self {
        Self {
            recursive: false,
            preserves: false,
            copies_links: false,
            makes_special: false,
            keeps_existing: false,
            updates: false,
            deletes: false,
            dry_run: false,
            sparse: Sparse::default(),
            resumes: false,
            exclude: Exclude::default(),
            umask: 0o022,
            resolution: 1,
        }
    }
}
