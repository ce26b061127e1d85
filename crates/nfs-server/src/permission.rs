//! Unix permission checks, for file systems that act on behalf of a caller.

use crate::fs::{Access, Attributes, Error, FileKind, Identity, SetAttributes, SetTime, mode};

/// Permission bit to read.
pub(crate) const READ: u32 = 4;
/// Permission bit to write.
pub(crate) const WRITE: u32 = 2;
/// Permission bit to execute or search.
pub(crate) const EXECUTE: u32 = 1;

/// Whether the mode bits grant all of `want` to `who`.
pub(crate) fn granted(who: &Identity, file: &Attributes, want: u32) -> bool {
    if who.is_root() {
        // Root may execute a file only if it has an execute bit.
        return want & EXECUTE == 0 || file.is_directory() || file.mode & 0o111 != 0;
    }
    let class = if who.uid == file.uid {
        file.mode >> 6
    } else if who.in_group(file.gid) {
        file.mode >> 3
    } else {
        file.mode
    };
    class & want == want
}

/// Returns an error unless the mode bits grant all of `want` to `who`.
pub(crate) fn check(who: &Identity, file: &Attributes, want: u32) -> Result<(), Error> {
    if granted(who, file, want) {
        Ok(())
    } else {
        Err(Error::Access)
    }
}

/// Checks permission to read data (RFC 1813 §4.4). The owner may always read, since the server does
/// not know a client's open, which may have been before a change of mode. Execute permission allows
/// reading, since a client executes a file by reading it.
pub(crate) fn check_read(who: &Identity, file: &Attributes) -> Result<(), Error> {
    if who.uid == file.uid || granted(who, file, READ) || granted(who, file, EXECUTE) {
        Ok(())
    } else {
        Err(Error::Access)
    }
}

/// Checks permission to write data; the owner may always write (RFC 1813 §4.4).
pub(crate) fn check_write(who: &Identity, file: &Attributes) -> Result<(), Error> {
    if who.uid == file.uid || granted(who, file, WRITE) {
        Ok(())
    } else {
        Err(Error::Access)
    }
}

/// Checks permission to add an entry to a directory.
pub(crate) fn check_add(who: &Identity, dir: &Attributes) -> Result<(), Error> {
    check_directory(dir)?;
    check(who, dir, WRITE | EXECUTE)
}

/// Checks permission to remove `entry` from a directory, which may be sticky.
pub(crate) fn check_take(
    who: &Identity,
    dir: &Attributes,
    entry: &Attributes,
) -> Result<(), Error> {
    check_add(who, dir)?;
    let sticky = dir.mode & mode::STICKY != 0;
    if sticky && !who.is_root() && who.uid != dir.uid && who.uid != entry.uid {
        return Err(Error::NotOwner);
    }
    Ok(())
}

/// Checks that a file is a directory.
pub(crate) fn check_directory(dir: &Attributes) -> Result<(), Error> {
    if dir.is_directory() {
        Ok(())
    } else {
        Err(Error::NotDirectory)
    }
}

/// Checks that a file is a regular file.
pub(crate) fn check_regular(kind: FileKind) -> Result<(), Error> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Error::IsDirectory),
        FileKind::BlockDevice
        | FileKind::CharacterDevice
        | FileKind::Symlink
        | FileKind::Socket
        | FileKind::Fifo => Err(Error::Invalid),
    }
}

/// Checks permission to change attributes. The owner may set mode and times, and the group to one
/// of the caller's own; only root may set the owner; write permission is sufficient to set the
/// times to now.
///
/// `writes` checks whether the caller may write.
pub(crate) fn check_set<E: From<Error>>(
    who: &Identity,
    file: &Attributes,
    set: &SetAttributes,
    writes: impl Fn() -> Result<(), E>,
) -> Result<(), E> {
    let owner = who.is_root() || who.uid == file.uid;
    if set.size.is_some() {
        check_regular(file.kind)?;
        if !owner {
            writes()?;
        }
    }
    if set.mode.is_some() && !owner {
        return Err(Error::NotOwner.into());
    }
    if let Some(uid) = set.uid
        && !who.is_root()
        && (!owner || uid != file.uid)
    {
        return Err(Error::NotOwner.into());
    }
    if let Some(gid) = set.gid
        && !who.is_root()
        && (!owner || gid != file.gid && !who.in_group(gid))
    {
        return Err(Error::NotOwner.into());
    }
    for time in [set.atime, set.mtime] {
        match time {
            SetTime::Keep => {}
            SetTime::Now if owner => {}
            SetTime::Now => writes()?,
            SetTime::To(_) if owner => {}
            SetTime::To(_) => return Err(Error::NotOwner.into()),
        }
    }
    Ok(())
}

/// Returns the mode that a caller may set on a file of group `gid`: the set-group-id bit only for
/// members of the group, on directories too.
pub(crate) fn settable_mode(who: &Identity, gid: u32, wanted: u32) -> u32 {
    let wanted = wanted & mode::ALL;
    if who.is_root() || who.in_group(gid) {
        wanted
    } else {
        wanted & !mode::SET_GID
    }
}

/// Returns the mode after a change of the owner, or a write by a user other than root: set-user-id
/// and set-group-id bits of programs are cleared.
pub(crate) fn without_privilege(kind: FileKind, bits: u32) -> u32 {
    if kind != FileKind::Regular {
        return bits;
    }
    let group = if bits & 0o010 != 0 { mode::SET_GID } else { 0 };
    bits & !(mode::SET_UID | group)
}

/// Returns the group and the mode bits that a new entry inherits from `dir`.
pub(crate) fn inherited(who: &Identity, dir: &Attributes, kind: FileKind) -> (u32, u32) {
    if dir.mode & mode::SET_GID == 0 {
        return (who.gid, 0);
    }
    let bits = if kind == FileKind::Directory {
        mode::SET_GID
    } else {
        0
    };
    (dir.gid, bits)
}

/// Returns the rights among `wanted` that the permission bits of a caller allow (RFC 1813 §3.3.4).
/// `granted` is called only for bits that `wanted` needs.
pub(crate) fn access<E>(
    is_directory: bool,
    wanted: Access,
    mut granted: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Access, E> {
    let of_directories = [
        (Access::READ, READ),
        (Access::LOOKUP, EXECUTE),
        (Access::MODIFY | Access::EXTEND, WRITE),
        (Access::DELETE, WRITE | EXECUTE),
        (Access::XATTR_READ | Access::XATTR_LIST, READ),
        (Access::XATTR_WRITE, WRITE),
    ];
    let of_files = [
        (Access::READ, READ),
        (Access::MODIFY | Access::EXTEND, WRITE),
        (Access::EXECUTE, EXECUTE),
        (Access::XATTR_READ | Access::XATTR_LIST, READ),
        (Access::XATTR_WRITE, WRITE),
    ];
    let rights: &[_] = if is_directory {
        &of_directories
    } else {
        &of_files
    };
    let mut may = Access::empty();
    for &(right, bits) in rights {
        if wanted.intersects(right) && granted(bits)? {
            may |= right;
        }
    }
    Ok(may & wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Time;

    fn file(kind: FileKind, mode: u32, uid: u32, gid: u32) -> Attributes {
        Attributes {
            kind,
            mode,
            links: 1,
            uid,
            gid,
            size: 0,
            used: 0,
            device: (0, 0),
            fileid: 1,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            change: 0,
        }
    }

    #[test]
    fn first_matching_permission_class_decides() {
        let file = file(FileKind::Regular, 0o057, 10, 20);
        let other_groups = Identity {
            groups: [7, 20].into_iter().collect(),
            ..Identity::new(11, 1)
        };
        assert!(!granted(&Identity::new(10, 20), &file, READ));
        assert!(granted(&Identity::new(11, 20), &file, READ | EXECUTE));
        assert!(!granted(&other_groups, &file, WRITE));
        assert!(granted(&Identity::new(11, 21), &file, READ | WRITE));
        assert!(granted(&Identity::root(), &file, READ | WRITE | EXECUTE));
    }

    #[test]
    fn sticky_directory_keeps_entries_for_their_owners() {
        let dir = file(FileKind::Directory, 0o1777, 1, 1);
        let entry = file(FileKind::Regular, 0o666, 2, 2);
        assert_eq!(check_take(&Identity::new(2, 2), &dir, &entry), Ok(()));
        assert_eq!(check_take(&Identity::new(1, 1), &dir, &entry), Ok(()));
        assert_eq!(
            check_take(&Identity::new(3, 3), &dir, &entry),
            Err(Error::NotOwner)
        );
    }

    fn set(who: &Identity, file: &Attributes, set: &SetAttributes) -> Result<(), Error> {
        check_set(who, file, set, || check(who, file, WRITE))
    }

    #[test]
    fn only_root_changes_owners() {
        let mine = file(FileKind::Regular, 0o600, 5, 5);
        let give = |uid, gid| SetAttributes {
            uid,
            gid,
            ..SetAttributes::default()
        };
        let me = Identity {
            groups: [6].into_iter().collect(),
            ..Identity::new(5, 5)
        };
        assert_eq!(set(&me, &mine, &give(Some(5), Some(6))), Ok(()));
        assert_eq!(set(&me, &mine, &give(Some(6), None)), Err(Error::NotOwner));
        assert_eq!(set(&me, &mine, &give(None, Some(7))), Err(Error::NotOwner));
        assert_eq!(
            set(&Identity::root(), &mine, &give(Some(6), Some(7))),
            Ok(())
        );
    }

    #[test]
    fn set_group_id_bit_is_for_members_of_the_group() {
        let member = Identity {
            groups: [7].into_iter().collect(),
            ..Identity::new(5, 5)
        };
        assert_eq!(settable_mode(&member, 7, 0o2775), 0o2775);
        assert_eq!(settable_mode(&member, 8, 0o2775), 0o775);
        assert_eq!(settable_mode(&Identity::root(), 8, 0o2775), 0o2775);
    }

    #[test]
    fn users_who_may_write_a_file_may_set_its_times_to_now() {
        let open = file(FileKind::Regular, 0o666, 5, 5);
        let stranger = Identity::new(9, 9);
        let now = SetAttributes {
            mtime: SetTime::Now,
            ..SetAttributes::default()
        };
        let then = SetAttributes {
            mtime: SetTime::To(Time::default()),
            ..SetAttributes::default()
        };
        assert_eq!(set(&stranger, &open, &now), Ok(()));
        assert_eq!(set(&stranger, &open, &then), Err(Error::NotOwner));
    }
}
