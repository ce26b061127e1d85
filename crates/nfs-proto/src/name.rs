//! File names: as received, and validated.

use crate::limits::{MAX_FILENAME, MAX_NAME};
use crate::{Bytes, Status};
use std::ops::Deref;

/// A name as received (`filename3`): any bytes.
pub type Filename<'a> = Bytes<'a, MAX_FILENAME>;

/// A name that can be one component of a path: 1 to 255 bytes without `/` and NUL.
///
/// It may be `.` or `..` (RFC 1813 §3.2). Dereferences to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name.
    ///
    /// # Errors
    ///
    /// The status that a server returns (RFC 1813 §3.2): `NFS3ERR_NAMETOOLONG` for too many bytes,
    /// `NFS3ERR_ACCES` for an empty name and for invalid bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Status> {
        if bytes.len() > MAX_NAME {
            return Err(Status::NameTooLong);
        }
        if bytes.is_empty() || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Status::Access);
        }
        Ok(Self(bytes))
    }

    /// Returns the bytes, with the lifetime of the message.
    pub fn get(self) -> &'a [u8] {
        self.0
    }

    /// Whether the name is `.` or `..`, which cannot be created or removed.
    pub fn is_dot(self) -> bool {
        matches!(self.0, b"." | b"..")
    }

    /// Returns the name for a message.
    pub fn filename(self) -> Filename<'a> {
        Filename::new(self.0).expect("a name is shorter than what a message can hold")
    }
}

impl<'a> TryFrom<Filename<'a>> for Name<'a> {
    type Error = Status;

    fn try_from(filename: Filename<'a>) -> Result<Self, Status> {
        Self::new(filename.get())
    }
}

impl<'a> From<Name<'a>> for Filename<'a> {
    fn from(name: Name<'a>) -> Self {
        name.filename()
    }
}

impl Deref for Name<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(bytes: &[u8], status: Status) {
        assert_eq!(Name::new(bytes), Err(status));
    }

    #[test]
    fn invalid_names_are_refused() {
        refused(b"", Status::Access);
        refused(b"a/b", Status::Access);
        refused(b"a\0", Status::Access);
        refused(&[b'x'; MAX_NAME + 1], Status::NameTooLong);
    }

    #[test]
    fn longest_name_and_names_that_are_not_utf8_are_accepted() {
        assert!(Name::new(&[b'x'; MAX_NAME]).is_ok());
        assert!(Name::new(b"\xff\xfe").is_ok());
        assert!(Name::new(b"..").unwrap().is_dot());
    }
}
