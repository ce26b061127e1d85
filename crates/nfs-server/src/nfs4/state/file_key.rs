//! Names of files in the state of clients.

use crate::fs::FileId;

/// Names a file of an export.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::nfs4) struct FileKey {
    pub(in crate::nfs4) export: u32,
    pub(in crate::nfs4) file: FileId,
}
