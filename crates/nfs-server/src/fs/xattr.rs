//! Extended attributes of users (xattr(7), RFC 8276): small named values beside the data of a file or a directory.

use super::Error;

/// Longest name, in bytes: what Linux allows, without the namespace `user.`.
pub const MAX_XATTR_NAME: usize = 250;

/// Largest value, in bytes. Linux allows no larger one on any file system.
pub const MAX_XATTR_VALUE: usize = 64 << 10;

/// Largest size of all names of a file, each with one byte more for its end. Linux lists no more.
pub const MAX_XATTR_NAMES: usize = 64 << 10;

/// A valid name of an extended attribute: 1 to [`MAX_XATTR_NAME`] bytes without NUL.
///
/// It has no namespace: all names are those of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct XattrName<'a>(&'a [u8]);

impl<'a> XattrName<'a> {
    /// Checks a name from a client.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an empty name and one with a NUL, [`Error::NameTooLong`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(Error::Invalid);
        }
        match bytes.len() > MAX_XATTR_NAME {
            true => Err(Error::NameTooLong),
            false => Ok(Self(bytes)),
        }
    }

    /// Returns the bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Treatment of an attribute that exists already (RFC 8276 §8.4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// It is replaced, or a new one is made.
    Either,
    /// It is an error.
    Create,
    /// It is replaced; if there is none, that is an error.
    Replace,
}

/// Names of extended attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XattrNames(Vec<u8>);

impl XattrNames {
    /// Adds a name.
    pub fn push(&mut self, name: XattrName<'_>) {
        self.0.extend_from_slice(name.bytes());
        self.0.push(0);
    }

    /// Returns the names, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let names = self.0.strip_suffix(&[0]);
        names
            .into_iter()
            .flat_map(|all| all.split(|&byte| byte == 0))
    }

    /// Returns the bytes of all names, each with one more for its end.
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_empty_and_end_in_time() {
        assert_eq!(XattrName::new(b""), Err(Error::Invalid));
        assert_eq!(XattrName::new(b"a\0b"), Err(Error::Invalid));
        assert!(XattrName::new(&[b'x'; MAX_XATTR_NAME]).is_ok());
        let long = [b'x'; MAX_XATTR_NAME + 1];
        assert_eq!(XattrName::new(&long), Err(Error::NameTooLong));
    }

    #[test]
    fn list_has_the_names_that_were_added() {
        let mut names = XattrNames::default();
        assert_eq!(names.iter().count(), 0);
        for name in ["a", "bc"] {
            names.push(XattrName::new(name.as_bytes()).unwrap());
        }
        let all: Vec<&[u8]> = names.iter().collect();
        assert_eq!(all, [b"a".as_slice(), b"bc"]);
        assert_eq!(names.size(), 5);
    }
}
