//! Paths and types of files in messages.

use nfs_client::printable;
use nfs_proto::FileType;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A local path for a terminal, as [`printable`] shows it: below a copy, its names may be those of
/// a server.
pub(crate) fn path(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// A type of files in one or two words.
pub fn file_type(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Block => "block device",
        FileType::Character => "character device",
        FileType::Symlink => "symlink",
        FileType::Socket => "socket",
        FileType::Fifo => "fifo",
    }
}
