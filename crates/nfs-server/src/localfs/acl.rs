//! Access control lists, which Linux keeps as extended attributes of a file (acl(5)).

use super::Inner;
use super::open_files::node::Node;
use super::sys::{Pace, Try};
use crate::fs::{Acl, AclEntry, AclWho, Acls, Error, FileId, Identity, Seen, SetAcl, SetAcls};
use nfs_proto::limits::MAX_ACL_ENTRIES;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// The attribute with the access list.
const ACCESS: &str = "system.posix_acl_access";
/// The attribute with the default list.
const DEFAULT: &str = "system.posix_acl_default";

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

impl Inner {
    pub(super) fn acls(&self, file: FileId, pace: Pace) -> Try<Seen<Acls>> {
        let node = self.node(file, pace)?;
        let attributes = self.files.attributes(&node)?;
        let lists = || -> Result<Acls, Error> {
            let access = list(&node, ACCESS)?;
            let default = match attributes.is_directory() {
                true => list(&node, DEFAULT)?,
                false => None,
            };
            Ok(Acls {
                access: access.unwrap_or_else(|| Acl::of_mode(attributes.mode)),
                default,
            })
        };
        Ok(Seen {
            attributes: Some(attributes),
            result: lists(),
        })
    }

    pub(super) fn set_acls(&self, who: &Identity, file: FileId, set: &SetAcls) -> Try<Seen<()>> {
        let node = self.node(file, Pace::Patient)?;
        // As for SETATTR.
        let names = match node.is_directory() {
            true => Some(self.turns.names([node.ino; 2], Pace::Patient)?),
            false => None,
        };
        let unguarded = self.turns.unguarded(node.ino, Pace::Patient)?;
        let changing = self.turns.begin(node.ino, node.is_directory());
        let before = self.files.attributes(&node)?;
        let apply = || -> Try<()> {
            if !before.is_directory() && matches!(set.default, SetAcl::To(_)) {
                return Err(Error::Invalid.into());
            }
            self.set_list(who, &node, ACCESS, &set.access)?;
            if before.is_directory() {
                self.set_list(who, &node, DEFAULT, &set.default)?;
            }
            Ok(())
        };
        let result = apply();
        let after = self.files.attributes(&node).ok();
        drop((changing, unguarded, names));
        let result = result.and_then(|()| self.persist(&node));
        Ok(Seen {
            attributes: after,
            result: result.map_err(Error::from),
        })
    }

    /// Sets or removes a list as the caller: the kernel allows only the owner to do that, and
    /// clears the set-group-id bit if the caller is not in the group.
    fn set_list(&self, who: &Identity, node: &Node, name: &str, set: &SetAcl) -> Result<(), Errno> {
        let path = path(node);
        match set {
            SetAcl::Keep => Ok(()),
            SetAcl::Remove => {
                match self.as_caller(who, || rustix::fs::removexattr(&path, name)) {
                    // The file has no list.
                    Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                    removed => removed,
                }
            }
            SetAcl::To(list) => {
                let value = encode(list);
                self.as_caller(who, || {
                    rustix::fs::setxattr(&path, name, &value, XattrFlags::empty())
                })
            }
        }
    }
}

/// Returns a path that names the file of a node. Its descriptor is opened with `O_PATH`, which
/// fgetxattr(2) does not accept.
fn path(node: &Node) -> String {
    format!("/proc/self/fd/{}", node.path.as_fd().as_raw_fd())
}

/// Reads the access list of a file; `None` if the file has none, or its file system has no lists.
pub(super) fn access_list(node: &Node) -> Result<Option<Acl>, Error> {
    list(node, ACCESS)
}

/// Reads a list of a file; `None` if the file has none, or its file system has no lists.
fn list(node: &Node, name: &str) -> Result<Option<Acl>, Error> {
    let mut value = vec![0; MAX_LIST];
    match rustix::fs::getxattr(path(node), name, value.as_mut_slice()) {
        Ok(len) => decode(&value[..len]).map(Some).ok_or(Error::Io),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        // The list has more entries than a reply can carry.
        Err(Errno::RANGE) => Err(Error::TooLarge),
        Err(errno) => Err(errno.into()),
    }
}

fn encode(list: &Acl) -> Vec<u8> {
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
