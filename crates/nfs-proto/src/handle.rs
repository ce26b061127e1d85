//! File handles.

use crate::Wire;
use crate::limits::MAX_HANDLE;
use oncrpc::xdr::{Error, Reader, Writer};
use std::fmt;
use std::ops::Deref;

/// A file handle (`nfs_fh3`): up to 64 bytes, opaque to clients.
///
/// Stored inline, without an allocation. Dereferences to its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    len: u8,
    /// Zero after `len` bytes, so that equal handles are equal as values.
    bytes: [u8; MAX_HANDLE as usize],
}

impl FileHandle {
    /// Creates a handle of these bytes; `None` if there are more than 64.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; MAX_HANDLE as usize];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self {
            len: u8::try_from(bytes.len()).ok()?,
            bytes: all,
        })
    }
}

impl Deref for FileHandle {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(")?;
        for byte in &**self {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

impl Wire<'_> for FileHandle {
    const MAX: usize = 4 + MAX_HANDLE as usize;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        let bytes = r.opaque(MAX_HANDLE)?;
        Ok(Self::new(bytes).expect("the reader keeps to the limit"))
    }

    fn write(&self, w: &mut Writer) {
        w.opaque(self);
    }
}
