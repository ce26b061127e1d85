//! Reading, setting, listing and removing extended attributes.

use super::attributes;
use crate::fs::{Changed, Error, FileId, FileKind, Identity, Seen, SetXattr, XattrNames};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::pending_syncs::PendingSyncs;
use crate::localfs::posix_acl::path;
use crate::localfs::sys::{Pace, Try};
use crate::localfs::user_xattr::{self, KernelName};
use crate::permission::READ;
use bytes::Bytes;
use rustix::io::Errno;

pub(in crate::localfs) fn xattr(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    name: &KernelName,
    pace: Pace,
) -> Try<Seen<Bytes>> {
    see(layers, who, file, pace, |node| {
        user_xattr::read(node, name).map(Bytes::from)
    })
}

pub(in crate::localfs) fn xattrs(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    pace: Pace,
) -> Try<Seen<XattrNames>> {
    see(layers, who, file, pace, user_xattr::names)
}

/// Reads as the caller may: Linux asks for the right to read the file for values, and here it is needed for names too, which
/// other programs of this machine can list without.
fn see<T>(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    pace: Pace,
    read: impl FnOnce(&Node) -> Result<T, Error>,
) -> Try<Seen<T>> {
    let node = layers.handles.node(file, pace)?;
    check_kind(&node)?;
    let attributes = layers.files.attributes(&node)?;
    layers.rights.check(who, &node, &attributes, READ, pace)?;
    Ok(Seen {
        attributes: Some(attributes),
        result: read(&node),
    })
}

pub(in crate::localfs) fn set_xattr(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    (name, value): (&KernelName, &[u8]),
    how: SetXattr,
    pending: &mut PendingSyncs,
) -> Try<Changed<()>> {
    change(layers, who, file, pending, |path| {
        user_xattr::write(path, name, value, how)
    })
}

pub(in crate::localfs) fn remove_xattr(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    name: &KernelName,
    pending: &mut PendingSyncs,
) -> Try<Changed<()>> {
    change(layers, who, file, pending, |path| {
        user_xattr::remove(path, name)
    })
}

/// Makes a change as the caller: the kernel asks for the right to write the file, and in a sticky directory for its owner.
fn change(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    pending: &mut PendingSyncs,
    call: impl FnOnce(&str) -> Result<(), Errno>,
) -> Try<Changed<()>> {
    let node = layers.handles.node(file, Pace::Patient)?;
    check_kind(&node)?;
    let path = path(&node);
    let (wcc, result) = attributes::in_turn(layers, &node, false, |_| {
        layers.rights.as_caller(who, || call(&path))
    })?;
    if result.is_ok() {
        pending.push(&node);
    }
    Ok(Changed {
        wcc,
        result: result.map_err(user_xattr::error),
    })
}

/// Checks that a file is of a kind that has extended attributes of users (xattr(7)).
fn check_kind(node: &Node) -> Try<()> {
    match node.kind {
        FileKind::Regular | FileKind::Directory => Ok(()),
        _ => Err(Error::Invalid.into()),
    }
}
