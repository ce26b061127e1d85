//! Attributes of a local file that is replaced, which the file in its place takes on; and its access control list.

use super::directory::{LocalDir, LocalName};
use super::entry::About;
use super::unkept::Unkept;
use nfs_proto::FileType;
use rustix::fs::XattrFlags;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The extended attribute with the access control list of a file (acl(5)).
const ACCESS: &str = "system.posix_acl_access";

/// The one with the default list of a directory.
const DEFAULT: &str = "system.posix_acl_default";

/// Bytes of a list; Linux has no longer attributes (`XATTR_SIZE_MAX`).
const MAX_LIST: usize = 64 << 10;

/// Bytes of a list before its first entry: the version.
const VERSION: usize = 4;

/// Tags of the entries of the owner, the owning group, the mask and others.
const OWNER: u16 = 0x01;
const OWNING_GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// An access control list as Linux keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessList(Vec<u8>);

impl AccessList {
    /// The list of a file; none if it has none, or its file system knows none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        // Of most files there is nothing to be read.
        let len = rustix::fs::lgetxattr_query(path, ACCESS).ok()?;
        let mut list = vec![0; len.min(MAX_LIST)];
        let len = rustix::fs::lgetxattr(path, ACCESS, &mut list[..]).ok()?;
        list.truncate(len);
        Some(Self(list))
    }

    /// The default list of a directory; none if it has none, or its file system knows none.
    fn default_of(dir: &LocalDir) -> Option<Self> {
        let path = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
        let len = rustix::fs::getxattr_query(&path, DEFAULT).ok()?;
        let mut list = vec![0; len.min(MAX_LIST)];
        let len = rustix::fs::getxattr(&path, DEFAULT, &mut list[..]).ok()?;
        list.truncate(len);
        Some(Self(list))
    }

    /// The rights of an entry.
    fn rights(&self, tag: u16) -> Option<u32> {
        let entries = self.0.get(VERSION..).unwrap_or_default();
        let mut entries = entries.as_chunks::<8>().0.iter();
        let found = entries.find(|entry| u16::from_le_bytes([entry[0], entry[1]]) == tag);
        found.map(|entry| u32::from(u16::from_le_bytes([entry[2], entry[3]])) & 0o7)
    }

    /// Permissions that a default list leaves to new files; none if it is not a whole list.
    fn left(&self) -> Option<u32> {
        let group = self.rights(MASK).or_else(|| self.rights(OWNING_GROUP))?;
        Some(self.rights(OWNER)? << 6 | group << 3 | self.rights(OTHERS)?)
    }

    /// A mode for a file without this list: its rights of the group are those of the mask where there is one
    /// (acl(5)), which the owning group need not have.
    pub(crate) fn mode_without(&self, mode: u32) -> u32 {
        let (Some(group), Some(mask)) = (self.rights(OWNING_GROUP), self.rights(MASK)) else {
            return mode;
        };
        mode & !0o070 | (group & mask) << 3
    }
}

/// Permissions that new files in a local directory may have: those that its default list leaves to them, or all but
/// those of the umask, which does not count where there is such a list (acl(5)).
pub(crate) fn permitted(dir: &LocalDir, umask: u32) -> u32 {
    let left = AccessList::default_of(dir).and_then(|list| list.left());
    left.unwrap_or(0o777 & !umask)
}

/// Attributes of a file that is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    mode: u32,
    uid: u32,
    gid: u32,
    list: Option<AccessList>,
}

impl Replaced {
    /// Those of the file that has a name; none if it is none, or something else.
    pub(crate) fn of(name: &LocalName) -> Option<Self> {
        let about = name.about().ok()?;
        let is_file = rustix::fs::FileType::from_raw_mode(about.st_mode).is_file();
        is_file.then(|| Self {
            mode: about.st_mode & 0o777,
            uid: about.st_uid,
            gid: about.st_gid,
            list: AccessList::of(&in_directory(name)),
        })
    }

    /// Gives them to another file: no one gets rights by it that the replaced file did not give.
    ///
    /// # Errors
    ///
    /// The mode cannot be set. That an owner is not kept by who is not allowed to is none.
    pub(crate) fn give_to(&self, file: &File) -> Result<(), Unkept> {
        let about = file
            .metadata()
            .map_err(|error| Unkept::new("mode", error))?;
        let mut has_group = about.gid() == self.gid;
        if (about.uid(), about.gid()) != (self.uid, self.gid) {
            has_group |= fchown(file, Some(self.uid), Some(self.gid)).is_ok()
                || fchown(file, None, Some(self.gid)).is_ok();
        }
        let list = self.list.as_ref().filter(|_| has_group);
        let has_list = list.is_some_and(|list| {
            rustix::fs::fsetxattr(file, ACCESS, &list.0, XattrFlags::empty()).is_ok()
        });
        if !has_list {
            remove_list(file);
        }
        let mode = match (&self.list, has_group) {
            (_, false) => without_group(self.mode),
            (Some(list), true) if !has_list => list.mode_without(self.mode),
            (_, true) => self.mode,
        };
        let set = file.set_permissions(Permissions::from_mode(mode));
        set.map_err(|error| Unkept::new("mode", error))
    }
}

/// Takes the access control list from a file that the default list of its directory has given it: a mode that is set later
/// would let its entries count.
pub(crate) fn remove_list(file: &File) {
    // There may be none, and a file system may have no lists.
    let _ = rustix::fs::fremovexattr(file, ACCESS);
}

/// A mode for a file with another group, which may do no more than others.
pub(crate) fn without_group(mode: u32) -> u32 {
    mode & !0o070 | mode & 0o070 & (mode & 0o007) << 3
}

/// The mode of something local, for who gets no list with it.
pub(crate) fn mode_for_others(path: &Path, about: &About) -> u32 {
    match about.kind {
        FileType::Symlink => about.mode,
        _ => AccessList::of(path).map_or(about.mode, |list| list.mode_without(about.mode)),
    }
}

/// A path of what has a name, whatever the path of its directory leads to by now (proc_pid_fd(5)).
fn in_directory(name: &LocalName) -> PathBuf {
    let dir = name.dir().as_fd().as_raw_fd();
    let dir = Path::new("/proc/self/fd").join(dir.to_string());
    dir.join(OsStr::new(name.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list as Linux has it: tag, rights, user or group.
    fn list(entries: &[(u16, u16, u32)]) -> AccessList {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, who) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(who.to_le_bytes());
        }
        AccessList(bytes)
    }

    /// Rights of a user beside those of the owner, the group and others.
    fn for_a_user() -> AccessList {
        let none = u32::MAX;
        list(&[
            (0x01, 6, none),
            (0x02, 6, 1234),
            (0x04, 0, none),
            (0x10, 6, none),
            (0x20, 0, none),
        ])
    }

    #[test]
    fn group_does_not_get_the_rights_of_the_mask() {
        assert_eq!(for_a_user().mode_without(0o4660), 0o4600);
        let none = u32::MAX;
        let plain = list(&[(0x01, 6, none), (0x04, 4, none), (0x20, 4, none)]);
        assert_eq!(plain.mode_without(0o644), 0o644);
        for cut in [0, 3, 4, 11, 20] {
            let mut cut_off = for_a_user();
            cut_off.0.truncate(cut);
            assert_eq!(cut_off.mode_without(0o660), 0o660);
        }
    }

    #[test]
    fn other_group_may_do_no_more_than_others() {
        assert_eq!(without_group(0o660), 0o600);
        assert_eq!(without_group(0o664), 0o644);
        assert_eq!(without_group(0o717), 0o717);
    }

    #[test]
    fn mode_and_list_are_taken_on() {
        let dir = tempfile::tempdir().unwrap();
        let name = LocalDir::open(dir.path()).unwrap().name("file");
        assert!(Replaced::of(&name).is_none());
        std::fs::write(name.path(), "").unwrap();
        let mode = Permissions::from_mode(0o4660);
        std::fs::set_permissions(name.path(), mode).unwrap();
        let set = rustix::fs::lsetxattr(name.path(), ACCESS, &for_a_user().0, XattrFlags::empty());
        let replaced = Replaced::of(&name).unwrap();
        assert_eq!(
            (replaced.mode, replaced.list.is_some()),
            (0o660, set.is_ok())
        );
        let other = tempfile::NamedTempFile::new_in(dir.path()).unwrap();
        replaced.give_to(other.as_file()).unwrap();
        assert_eq!(other.as_file().metadata().unwrap().mode() & 0o7777, 0o660);
        assert_eq!(AccessList::of(other.path()), replaced.list);
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        assert!(Replaced::of(&name.beside(OsStr::new("dir"))).is_none());
    }
}
