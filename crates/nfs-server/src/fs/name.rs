//! Names in directories.

use super::Error;
use nfs_proto::Status;
pub use nfs_proto::limits::MAX_NAME;

/// A valid file name: 1 to [`MAX_NAME`] bytes without `/` and NUL, and neither `.` nor `..`.
///
/// A file system can append it to a directory without further checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name from a client.
    ///
    /// # Errors
    ///
    /// [`Error::NameTooLong`]; [`Error::Access`] for invalid bytes and for an empty name (RFC 1813
    /// §3.2 leaves names that a server cannot represent to it); [`Error::Invalid`] for `.` and
    /// `..`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        match bytes {
            b"." | b".." => Err(Error::Invalid),
            _ => match nfs_proto::Name::new(bytes) {
                Ok(name) => Ok(Self(name.get())),
                Err(Status::NameTooLong) => Err(Error::NameTooLong),
                Err(_) => Err(Error::Access),
            },
        }
    }

    /// Returns the bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// One step of a LOOKUP from a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// `.`: the same directory.
    Here,
    /// `..`: the parent directory; at the root, the root.
    Parent,
    /// An entry of the directory.
    Name(Name<'a>),
}

impl<'a> Step<'a> {
    /// Checks a name from a client.
    ///
    /// # Errors
    ///
    /// Those of [`Name::new`], except for `.` and `..`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        match bytes {
            b"." => Ok(Self::Here),
            b".." => Ok(Self::Parent),
            _ => Name::new(bytes).map(Self::Name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_and_names_with_slashes_are_refused() {
        fn check(bytes: &[u8], error: Error) {
            assert_eq!(Name::new(bytes), Err(error), "{bytes:?}");
        }
        check(b"", Error::Access);
        check(b".", Error::Invalid);
        check(b"..", Error::Invalid);
        check(b"../passwd", Error::Access);
        check(b"a/b", Error::Access);
        check(b"/", Error::Access);
        check(b"a\0b", Error::Access);
        check(&[b'x'; 256], Error::NameTooLong);
        for fine in [&b"..."[..], b".x", &[b'x'; 255], b"\xff\x01 \\"] {
            assert_eq!(Name::new(fine).unwrap().bytes(), fine);
        }
    }
}
