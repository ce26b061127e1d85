//! Access control lists of files, which Linux keeps as extended attributes (acl(5)).

use super::open_files::node::Node;
use crate::fs::{Acl, AclEntry, AclWho, Error};
use nfs_proto::limits::MAX_ACL_ENTRIES;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// The attribute with the access list.
pub(super) const ACCESS: &str = "system.posix_acl_access";
/// The attribute with the default list.
pub(super) const DEFAULT: &str = "system.posix_acl_default";

/// Version of the format, a little-endian word at the beginning.
const VERSION: [u8; 4] = 2_u32.to_le_bytes();
/// Bytes of an entry: tag and rights of two bytes, the number of a user or group of four.
const ENTRY: usize = 8;
/// Largest size of a list in bytes.
const MAX_LIST: usize = VERSION.len() + MAX_ACL_ENTRIES as usize * ENTRY;

/// The tags of entries.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Sets the list of a file. It is one system call.
pub(super) fn write(path: &str, name: &str, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty())
}

/// Removes the list of a file. It is one system call.
pub(super) fn remove(path: &str, name: &str) -> Result<(), Errno> {
    rustix::fs::removexattr(path, name)
}

/// Returns a path that names the file of a node. Its descriptor is opened with `O_PATH`, which
/// fgetxattr(2) does not accept.
pub(super) fn path(node: &Node) -> String {
    format!("/proc/self/fd/{}", node.path.as_fd().as_raw_fd())
}

/// Whether the file system of a directory has lists.
pub(super) fn are_supported(directory: BorrowedFd<'_>) -> bool {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let found = rustix::fs::getxattr(path, ACCESS, &mut [0; MAX_LIST][..]);
    matches!(found, Ok(_) | Err(Errno::NODATA))
}

/// Reads a list of a file; `None` if the file has none, or its file system has no lists.
pub(super) fn read(node: &Node, name: &str) -> Result<Option<Acl>, Error> {
    let mut value = vec![0; MAX_LIST];
    match rustix::fs::getxattr(path(node), name, value.as_mut_slice()) {
        Ok(len) => decode(&value[..len]).map(Some).ok_or(Error::Io),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        // The list has more entries than a reply can carry.
        Err(Errno::RANGE) => Err(Error::TooLarge),
        Err(errno) => Err(errno.into()),
    }
}

/// Encodes a list as Linux keeps it.
pub(super) fn encode(list: &Acl) -> Vec<u8> {
    let mut value = VERSION.to_vec();
    for AclEntry { who, rights } in list.entries() {
        let (tag, id) = match *who {
            AclWho::Owner => (OWNER, u32::MAX),
            AclWho::User(id) => (USER, id),
            AclWho::OwningGroup => (OWNING_GROUP, u32::MAX),
            AclWho::Group(id) => (GROUP, id),
            AclWho::Mask => (MASK, u32::MAX),
            AclWho::Other => (OTHER, u32::MAX),
        };
        value.extend(tag.to_le_bytes());
        value.extend(&rights.to_le_bytes()[..2]);
        value.extend(id.to_le_bytes());
    }
    value
}

fn decode(value: &[u8]) -> Option<Acl> {
    let entries = value.strip_prefix(&VERSION)?;
    let (entries, []) = entries.as_chunks::<ENTRY>() else {
        return None;
    };
    let entries = entries.iter().map(|&[a, b, c, d, e, f, g, h]| {
        let id = u32::from_le_bytes([e, f, g, h]);
        let who = match u16::from_le_bytes([a, b]) {
            OWNER => AclWho::Owner,
            USER => AclWho::User(id),
            OWNING_GROUP => AclWho::OwningGroup,
            GROUP => AclWho::Group(id),
            MASK => AclWho::Mask,
            OTHER => AclWho::Other,
            _ => return None,
        };
        let rights = u16::from_le_bytes([c, d]).into();
        Some(AclEntry { who, rights })
    });
    Acl::new(entries.collect::<Option<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_kept_in_the_form_of_linux() {
        let entry = |who, rights| AclEntry { who, rights };
        let list = Acl::new(vec![
            entry(AclWho::Owner, 6),
            entry(AclWho::User(0x0102_0304), 7),
            entry(AclWho::OwningGroup, 4),
            entry(AclWho::Group(5), 1),
            entry(AclWho::Mask, 7),
            entry(AclWho::Other, 0),
        ])
        .unwrap();
        let value = encode(&list);
        let expected: [&[u8]; 7] = [
            &[2, 0, 0, 0],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 7, 0, 4, 3, 2, 1],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[8, 0, 1, 0, 5, 0, 0, 0],
            &[0x10, 0, 7, 0, 255, 255, 255, 255],
            &[0x20, 0, 0, 0, 255, 255, 255, 255],
        ];
        assert_eq!(value, expected.concat());
        assert_eq!(decode(&value), Some(list));
        assert_eq!(decode(&value[1..]), None);
        assert_eq!(decode(&value[..value.len() - 1]), None);
        assert_eq!(decode(&value[..12]), None, "the owner alone");
    }
}
