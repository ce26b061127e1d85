//! Setting attributes.

use super::data;
use crate::fs::{
    Attributes, Changed, Error, FileId, FileKind, Identity, SetAttributes, SetTime, Time, Wcc, mode,
};
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::sys::{self, Pace, Try};
use crate::localfs::volume::change_values::During;
use crate::permission::{self, WRITE};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Gid, Mode, Uid};

/// The id that chown(2) takes as "do not change", and that no user has.
const NOBODYS: u32 = u32::MAX;

pub(in crate::localfs) fn set_attributes(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    set: SetAttributes,
    guard: Option<Time>,
) -> Try<Changed<()>> {
    let node = layers.handles.node(file, Pace::Patient)?;
    let (wcc, result) = in_turn(layers, &node, guard.is_some(), |before| {
        // RFC 1813 §3.3.2: compared with the change time that the client last saw.
        if guard.is_some_and(|guard| !same_on_the_wire(guard, before.ctime)) {
            return Err(Error::NotSync.into());
        }
        apply(layers, who, &node, before, &set)
    })?;
    let result = result.and_then(|()| layers.durability.persist_attributes(&node));
    Ok(Changed {
        wcc,
        result: result.map_err(Error::from),
    })
}

/// Changes attributes of a file, or lists beside them, in its turn: alone, if the change depends on those that there are.
/// Returns the attributes around the change, and its result. Nothing is synced.
pub(super) fn in_turn<T, E>(
    layers: &Layers,
    node: &Node,
    depends: bool,
    change: impl FnOnce(&Attributes) -> Result<T, E>,
) -> Try<(Wcc, Result<T, E>)> {
    // The attributes of a directory are changed under the lock of its names.
    let _names = match node.is_directory() {
        true => Some(layers.turns.names([node.ino; 2], Pace::Patient)?),
        false => None,
    };
    let (_alone, _beside) = match depends && !node.is_directory() {
        true => (Some(layers.turns.guarded(node.ino)), None),
        false => (None, Some(layers.turns.unguarded(node.ino, Pace::Patient)?)),
    };
    let changing = layers.turns.begin(node.ino, node.is_directory());
    let before = (&changing, During::Before);
    let before = layers.files.attributes_during(node, before)?;
    let result = change(&before);
    // Read before a sync: the client would take later changes of others for its own.
    let after = (&changing, During::After);
    let after = layers.files.attributes_during(node, after).ok();
    let is_alone = changing.is_alone();
    let wcc = Wcc {
        before: is_alone.then(|| before.before()),
        after,
        // Others may change the file unseen.
        atomic: false,
    };
    Ok((wcc, result))
}

/// Sets attributes as the caller. The change is not atomic, and setting the size, which comes
/// first, may destroy data: so rights are checked before anything is changed.
pub(in crate::localfs) fn apply(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    before: &Attributes,
    set: &SetAttributes,
) -> Try<()> {
    if layers.rights.acts_for_callers() {
        permission::check_set(who, before, set, || {
            layers.rights.check(who, node, before, WRITE, Pace::Patient)
        })?;
    }
    if set.size.is_some() {
        permission::check_regular(before.kind)?;
    }
    apply_unchecked(layers, who, node, before, set)
}

/// Sets attributes, the size first, because truncation clears mode bits that are set later.
/// Invalid values are refused before anything is changed.
///
/// Each step is done as the caller, so that the kernel clears set-user-id and set-group-id
/// bits, and keeps a set-group-id bit only for members of the group.
pub(in crate::localfs) fn apply_unchecked(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    before: &Attributes,
    set: &SetAttributes,
) -> Try<()> {
    let too_large = set.size.is_some_and(|size| i64::try_from(size).is_err());
    if too_large {
        return Err(Error::TooLarge.into());
    }
    if set.uid == Some(NOBODYS) || set.gid == Some(NOBODYS) {
        return Err(Error::Invalid.into());
    }
    if let Some(size) = set.size {
        data::truncate(layers, who, node, size)?;
    }
    // Also if owner and group stay what they are: chown(2) clears set-id bits and moves the ctime.
    if set.uid.is_some() || set.gid.is_some() {
        let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
        layers.rights.as_caller(who, || {
            rustix::fs::chownat(&node.path, c"", uid, gid, AtFlags::EMPTY_PATH)
        })?;
    }
    if let Some(mode) = set.mode
        // Linux ignores the mode of symbolic links.
        && before.kind != FileKind::Symlink
    {
        chmod(layers, who, node, mode & mode::ALL)?;
    }
    set_times(layers, who, node, before, set)
}

fn set_times(
    layers: &Layers,
    who: &Identity,
    node: &Node,
    before: &Attributes,
    set: &SetAttributes,
) -> Try<()> {
    if set.atime == SetTime::Keep && set.mtime == SetTime::Keep {
        return Ok(());
    }
    let times = sys::timestamps(set.atime, set.mtime);
    let set_times = || match node.reader() {
        Some(fd) => rustix::fs::futimens(fd, &times),
        None => layers.volume.proc.utimens(node.path.as_fd(), &times),
    };
    // A caller with write permission may set the times to now. The kernel allows that only for
    // both times at once, but a client that truncates a file sets one of them.
    let is_owner = who.is_root() || who.uid == before.uid;
    match is_owner {
        true => layers.rights.as_caller(who, set_times)?,
        false => set_times()?,
    }
    Ok(())
}

/// Sets the mode, through an open descriptor if there is one.
///
/// A client that has the file open goes on reading it whatever its mode becomes (RFC 1813
/// §4.4). Without the rights of root, it is opened for that before.
fn chmod(layers: &Layers, who: &Identity, node: &Node, mode: u32) -> Try<()> {
    if !layers.rights.acts_for_callers() && node.kind == FileKind::Regular && mode & 0o400 == 0 {
        // If it cannot be read now, no client has it open for reading.
        let _ = layers.files.open_reader(node);
    }
    let writer = node.writer();
    let raw = Mode::from_raw_mode(mode);
    layers
        .rights
        .as_caller(who, || match (&*writer, node.reader()) {
            (Some(fd), _) => rustix::fs::fchmod(fd, raw),
            (None, Some(fd)) => rustix::fs::fchmod(fd, raw),
            (None, None) => layers.volume.proc.chmod(node.path.as_fd(), mode),
        })?;
    Ok(())
}

/// Whether two times are equal on the wire, with 32 bits of seconds.
fn same_on_the_wire(a: Time, b: Time) -> bool {
    a.nanos == b.nanos && a.seconds & 0xffff_ffff == b.seconds & 0xffff_ffff
}
