//! Extended attributes of a file.

use crate::fs::{Error, MAX_XATTR_NAMES, MAX_XATTR_VALUE, SetXattr, XattrName, XattrNames};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Bookkeeping of an attribute, in bytes.
const XATTR: u64 = 128;

/// The extended attributes of a file.
#[derive(Default)]
pub(super) struct Xattrs {
    values: BTreeMap<Box<[u8]>, Bytes>,
    /// Memory used, in bytes.
    used: u64,
    /// Bytes of a list of the names.
    listed: usize,
}

impl Xattrs {
    /// Returns the memory used, in bytes.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn get(&self, name: XattrName<'_>) -> Option<Bytes> {
        self.values.get(name.bytes()).cloned()
    }

    pub(super) fn names(&self) -> XattrNames {
        let mut names = XattrNames::default();
        // They were checked when they were set.
        let all = self.values.keys().map(|name| XattrName::new(name));
        all.flatten().for_each(|name| names.push(name));
        names
    }

    /// Checks that an attribute can be set; returns the memory that is used after that, in bytes.
    pub(super) fn check_set(
        &self,
        name: XattrName<'_>,
        value: &Bytes,
        how: SetXattr,
    ) -> Result<u64, Error> {
        if value.len() > MAX_XATTR_VALUE {
            return Err(Error::XattrTooLarge);
        }
        let before = match (self.values.get(name.bytes()), how) {
            (Some(_), SetXattr::Create) => return Err(Error::Exists),
            (None, SetXattr::Replace) => return Err(Error::NoXattr),
            (Some(before), SetXattr::Either | SetXattr::Replace) => size(name, before),
            (None, SetXattr::Either | SetXattr::Create) => {
                if self.listed + listed(name) > MAX_XATTR_NAMES {
                    return Err(Error::NoSpace);
                }
                0
            }
        };
        Ok(self.used - before + size(name, value))
    }

    /// Sets an attribute.
    pub(super) fn set(&mut self, name: XattrName<'_>, value: Bytes) {
        self.used += size(name, &value);
        match self.values.insert(name.bytes().into(), value) {
            Some(before) => self.used -= size(name, &before),
            None => self.listed += listed(name),
        }
    }

    pub(super) fn remove(&mut self, name: XattrName<'_>) -> Result<(), Error> {
        let value = self.values.remove(name.bytes()).ok_or(Error::NoXattr)?;
        self.used -= size(name, &value);
        self.listed -= listed(name);
        Ok(())
    }
}

/// Returns the memory of an attribute, in bytes.
fn size(name: XattrName<'_>, value: &Bytes) -> u64 {
    XATTR + (name.bytes().len() + value.len()) as u64
}

/// Returns the bytes of a name in a list.
fn listed(name: XattrName<'_>) -> usize {
    name.bytes().len() + 1
}
