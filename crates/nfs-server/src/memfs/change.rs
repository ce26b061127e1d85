//! Operations that change files and directories, after permissions and limits were checked.

use super::MAX_FILE;
use super::tree::{Body, Inode, Tree};
use crate::fs::{
    Attributes, CreateHow, Error, FileKind, Identity, Make, SetAttributes, SetTime, Time,
};
use crate::permission::{self, EXECUTE, WRITE};

/// Handles the creation of an object whose name exists: an error, except for CREATE.
pub(super) fn existing(
    tree: &mut Tree,
    who: &Identity,
    there: u64,
    what: &Make,
) -> Result<u64, Error> {
    let attributes = tree.get(there)?.attributes(there);
    let Make::File(how) = what else {
        return Err(Error::Exists);
    };
    if attributes.kind != FileKind::Regular {
        return Err(Error::Exists);
    }
    match how {
        CreateHow::Guarded(_) => Err(Error::Exists),
        CreateHow::Exclusive(verifier, _) => {
            if tree.get(there)?.verifier == Some(*verifier) {
                Ok(there)
            } else {
                Err(Error::Exists)
            }
        }
        CreateHow::Unchecked(set) => {
            if let Some(size) = set.size {
                let set = SetAttributes::size(size);
                permission::check_set(who, &attributes, &set, || {
                    permission::check(who, &attributes, WRITE)
                })?;
                set_attributes(tree, who, there, &attributes, &set)?;
            }
            Ok(there)
        }
    }
}

pub(super) fn make(
    tree: &mut Tree,
    who: &Identity,
    (dir, before): (u64, &Attributes),
    name: &[u8],
    what: Make,
) -> Result<u64, Error> {
    let (body, mut set, verifier) = match what {
        Make::File(CreateHow::Exclusive(verifier, set)) => {
            let mode = set.mode.or(Some(0o600));
            (Body::file(), SetAttributes { mode, ..set }, Some(verifier))
        }
        Make::File(CreateHow::Unchecked(set) | CreateHow::Guarded(set)) => {
            (Body::file(), set, None)
        }
        Make::Directory(set) => (Body::directory(dir, tree.names()), set, None),
        Make::Symlink(text, set) => {
            if text.is_empty() || text.contains(&0) {
                return Err(Error::Invalid);
            }
            (
                Body::Symlink(text),
                SetAttributes {
                    mode: Some(0o777),
                    ..set
                },
                None,
            )
        }
        Make::Special(kind, device, set) => {
            match kind {
                FileKind::Fifo | FileKind::Socket => {}
                FileKind::CharacterDevice | FileKind::BlockDevice if who.is_root() => {}
                FileKind::CharacterDevice | FileKind::BlockDevice => return Err(Error::NotOwner),
                FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                    return Err(Error::BadType);
                }
            }
            (Body::Special(kind, device), set, None)
        }
    };
    let kind = body.kind();
    let (gid, bits) = permission::inherited(who, before, kind);
    let default = if kind == FileKind::Directory {
        0o755
    } else {
        0o644
    };
    let mut inode = Inode::new(body, who.uid, gid);
    let umask = match kind {
        FileKind::Symlink => 0,
        _ => set.umask,
    };
    let mode = set.mode.unwrap_or(default) & !umask;
    inode.mode = permission::settable_mode(who, gid, mode) | bits;
    let made = tree.add(dir, name, inode)?;
    if !who.is_root() {
        (set.uid, set.gid) = (None, None);
    }
    if kind != FileKind::Regular {
        set.size = None;
    }
    (set.mode, set.umask) = (None, 0);
    let attributes = tree.get(made)?.attributes(made);
    if let Err(error) = set_attributes(tree, who, made, &attributes, &set) {
        tree.unlink(dir, name)?;
        return Err(error);
    }
    // Not before it has its size.
    tree.get_mut(made)?.verifier = verifier;
    Ok(made)
}

pub(super) fn set_attributes(
    tree: &mut Tree,
    who: &Identity,
    number: u64,
    before: &Attributes,
    set: &SetAttributes,
) -> Result<(), Error> {
    if *set == SetAttributes::default() {
        return Ok(());
    }
    if let Some(size) = set.size {
        if size > MAX_FILE {
            return Err(Error::TooLarge);
        }
        tree.resize(number, 0, |content| content.truncate(size))?;
    }
    let step = tree.time_step;
    let inode = tree.get_mut(number)?;
    if set.size.is_some() {
        inode.touch_data();
    }
    // As on Linux, also if owner and group stay what they are.
    if set.uid.is_some() || set.gid.is_some() {
        inode.mode = permission::without_privilege(before.kind, inode.mode);
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    // As on Linux, the mode of symbolic links is fixed.
    if let Some(wanted) = set.mode
        && before.kind != FileKind::Symlink
    {
        inode.mode = permission::settable_mode(who, inode.gid, wanted);
    }
    let now = Time::now();
    for (time, set) in [(&mut inode.atime, set.atime), (&mut inode.mtime, set.mtime)] {
        match set {
            SetTime::Keep => {}
            SetTime::Now => *time = now,
            SetTime::To(to) => *time = to.in_steps_of(step),
        }
    }
    if set.atime != SetTime::Keep || set.mtime != SetTime::Keep {
        // After this the client does not repeat the CREATE of the file.
        inode.verifier = None;
    }
    inode.touch();
    Ok(())
}

pub(super) fn entry_to_take(
    tree: &Tree,
    who: &Identity,
    (dir, before): (u64, &Attributes),
    name: &[u8],
) -> Result<Attributes, Error> {
    permission::check_directory(before)?;
    permission::check(who, before, EXECUTE)?;
    let entry = tree
        .get(dir)?
        .directory()?
        .get(name)
        .ok_or(Error::NotFound)?;
    let entry = tree.get(entry)?.attributes(entry);
    permission::check_take(who, before, &entry)?;
    Ok(entry)
}

pub(super) fn rename(
    tree: &mut Tree,
    who: &Identity,
    (from, from_before, from_name): (u64, &Attributes, &[u8]),
    (to, to_before, to_name): (u64, &Attributes, &[u8]),
) -> Result<(), Error> {
    permission::check_directory(from_before)?;
    permission::check_directory(to_before)?;
    let moving = entry_to_take(tree, who, (from, from_before), from_name)?;
    permission::check_add(who, to_before)?;
    if moving.is_directory() {
        if from != to {
            // The `..` of the moved directory changes.
            permission::check(who, &moving, WRITE)?;
        }
        if tree.is_within(to, moving.fileid)? {
            return Err(Error::Invalid);
        }
    }
    // As on vfat and ext4, the entry that is replaced keeps its spelling.
    let to_name = &*tree.get(to)?.directory()?.spelling(to_name);
    match entry_to_take(tree, who, (to, to_before), to_name) {
        Err(Error::NotFound) => {}
        Err(error) => return Err(error),
        // Both are names of one file: nothing changes.
        Ok(there) if there.fileid == moving.fileid => return Ok(()),
        // A directory above the moved object cannot be replaced by it.
        Ok(there) if there.is_directory() && tree.is_within(from, there.fileid)? => {
            return Err(Error::NotEmpty);
        }
        Ok(there) => match (moving.is_directory(), there.is_directory()) {
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            (true, true) if !tree.get(there.fileid)?.directory()?.is_empty() => {
                return Err(Error::NotEmpty);
            }
            (true, true) | (false, false) => tree.unlink(to, to_name)?,
        },
    }
    tree.move_entry((from, from_name), (to, to_name))
}
