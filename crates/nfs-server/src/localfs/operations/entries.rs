//! Operations on directory entries: LOOKUP, REMOVE, RENAME, LINK.

use super::data::INLINE_WRITE;
use super::turns::Names;
use crate::fs::{
    Attributes, Changed, Error, FileId, FileKind, Found, Identity, Linked, Renamed, Seen, Wcc,
};
use crate::localfs::handles::names::Named;
use crate::localfs::layers::Layers;
use crate::localfs::open_files::node::Node;
use crate::localfs::pending_syncs::PendingSyncs;
use crate::localfs::sys::{self, Pace, Stat, Stop, Try};
use crate::localfs::volume::change_values::names::{Claim, NameChange, Own};
use crate::localfs::volume::witness::Kind;
use crate::permission::{self, EXECUTE, WRITE};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::Arc;

/// A valid name that a job owns, inline if it is short.
pub(in crate::localfs) type OwnedName = SmallVec<[u8; 32]>;

/// Whether removing this name is fast: the table has no row of the file, and its data is small.
fn goes_at_once(file: &Attributes) -> bool {
    file.kind == FileKind::Regular && file.links <= 1 && file.size <= INLINE_WRITE as u64
}

/// Exclusive access of a call to the names in its directories, until this is dropped. The
/// attributes of the directories after the call are read at that time, so that no change of another
/// call lies between the attributes before and after: a client would take it for its own (RFC 1813
/// §2.6).
pub(in crate::localfs) struct Turn<'a> {
    layers: &'a Layers,
    dirs: [(&'a Node, Option<(NameChange<'a>, &'a mut Told)>); 2],
    pub(in crate::localfs) names: Names<'a>,
    /// Changes that were made in each of the directories.
    own: [&'static [Kind]; 2],
    /// A file that was renamed, and the directory and name that it has.
    renamed: Option<(&'a Stat, BorrowedFd<'a>, &'a [u8])>,
}

impl<'a> Turn<'a> {
    fn new(
        layers: &'a Layers,
        dirs: [(&'a Node, Option<(NameChange<'a>, &'a mut Told)>); 2],
        names: Names<'a>,
    ) -> Self {
        Self {
            layers,
            dirs,
            names,
            own: [&[], &[]],
            renamed: None,
        }
    }

    /// Notes that a name was made.
    pub(in crate::localfs) fn note_made(&mut self) {
        self.own[0] = &[Kind::Made];
    }

    /// Notes that a name was removed.
    fn note_gone(&mut self) {
        self.own[0] = &[Kind::Gone];
    }

    /// Notes that a file was renamed to a name in a directory.
    fn note_renamed(&mut self, file: &'a Stat, to: &'a Node, name: &'a [u8]) {
        self.own = match self.dirs[1].1 {
            None => [&[Kind::MovedFrom, Kind::MovedTo], &[]],
            Some(_) => [&[Kind::MovedFrom], &[Kind::MovedTo]],
        };
        self.renamed = Some((file, to.path.as_fd(), name));
    }
}

/// Facts of a directory in a reply.
#[derive(Default)]
struct Told {
    after: Option<Attributes>,
    claim: Claim,
}

impl Told {
    /// Returns what a reply tells. Of a call that failed nothing is claimed.
    fn wcc(&self, before: &Attributes, succeeded: bool) -> Wcc {
        Wcc {
            before: self.claim.before.then(|| before.before()),
            after: self.after,
            atomic: succeeded && self.claim.atomic,
        }
    }
}

/// Whether a file has this name.
pub(in crate::localfs) fn is_at(file: &Stat, dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    sys::open_entry(dir, name, Pace::Patient)
        .and_then(sys::attributes_on_device)
        .is_ok_and(|now| {
            (now.device, now.attributes.fileid) == (file.device, file.attributes.fileid)
        })
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let renamed = self.renamed;
        // One that replaces the file by another has an equal event, which the kernel drops.
        let stands = || renamed.is_none_or(|(file, to, name)| is_at(file, to, name));
        for ((dir, told), events) in self.dirs.iter_mut().zip(self.own) {
            if let Some((change, told)) = told.take() {
                let own = Own {
                    events,
                    stands: &stands,
                };
                let found = self.layers.files.attributes_after_names(dir, change, &own);
                if let Ok((after, claim)) = found {
                    told.after = Some(after);
                    told.claim = claim;
                }
            }
        }
    }
}

pub(in crate::localfs) fn lookup_here(
    layers: &Layers,
    dir: FileId,
    pace: Pace,
) -> Try<Seen<Found>> {
    let node = layers.handles.node(dir, pace)?;
    let attributes = layers.files.attributes(&node)?;
    permission::check_directory(&attributes)?;
    Ok(Seen {
        attributes: Some(attributes),
        result: Ok(Found {
            file: node.id(),
            attributes,
        }),
    })
}

pub(in crate::localfs) fn lookup_parent(
    layers: &Layers,
    who: &Identity,
    dir: FileId,
    pace: Pace,
) -> Try<Seen<Found>> {
    let node = layers.handles.node(dir, pace)?;
    let attributes = layers.files.attributes(&node)?;
    permission::check_directory(&attributes)?;
    layers
        .rights
        .check(who, &node, &attributes, EXECUTE, pace)?;
    let parent = layers.handles.parent(&node, pace)?;
    let found = found(layers, &parent)?;
    Ok(Seen {
        attributes: Some(attributes),
        result: Ok(found),
    })
}

pub(in crate::localfs) fn lookup(
    layers: &Layers,
    who: &Identity,
    dir: FileId,
    name: &[u8],
    pace: Pace,
) -> Try<Seen<Found>> {
    let node = layers.handles.node(dir, pace)?;
    let attributes = layers.files.attributes(&node)?;
    let entry = || -> Try<Found> {
        permission::check_directory(&attributes)?;
        layers
            .rights
            .check(who, &node, &attributes, EXECUTE, pace)?;
        let (fd, stat) = layers.handles.open_entry_or_covered(&node, name, pace)?;
        let child = layers.handles.adopt(&node, name, fd, &stat, pace)?;
        Ok(Found {
            file: child.id(),
            attributes: Attributes {
                fileid: child.fileid,
                ..stat.attributes
            },
        })
    };
    match entry() {
        Err(Stop::WouldBlock) => Err(Stop::WouldBlock),
        result => Ok(Seen {
            attributes: Some(attributes),
            result: result.map_err(Error::from),
        }),
    }
}

pub(in crate::localfs) fn found(layers: &Layers, node: &Node) -> Try<Found> {
    Ok(Found {
        file: node.id(),
        attributes: layers.files.attributes(node)?,
    })
}

/// Begins a change of the names of a directory. It is watched only for a caller with the right to change it.
fn begin_names<'a>(layers: &'a Layers, who: &Identity, dir: &Node, pace: Pace) -> NameChange<'a> {
    let changing = layers.turns.begin(dir.ino, true);
    layers.files.begin_names(dir, changing, || {
        sys::attributes(&dir.path).is_ok_and(|now| {
            let want = WRITE | EXECUTE;
            now.is_directory() && layers.rights.check(who, dir, &now, want, pace).is_ok()
        })
    })
}

/// Runs a change of a directory, and returns the attributes before and after. The turn ends
/// when `change` drops it.
pub(in crate::localfs) fn change_directory<T>(
    layers: &Layers,
    who: &Identity,
    dir: FileId,
    pace: Pace,
    change: impl FnOnce(&Arc<Node>, &Attributes, Turn<'_>) -> Try<T>,
) -> Try<Changed<T>> {
    let node = layers.handles.node(dir, pace)?;
    let names = layers.turns.names([node.ino; 2], pace)?;
    let changing = begin_names(layers, who, &node, pace);
    let before = layers.files.attributes_before_names(&node, &changing)?;
    let mut told = Told::default();
    let dirs = [(&*node, Some((changing, &mut told))), (&*node, None)];
    let turn = Turn::new(layers, dirs, names);
    let result = permission::check_directory(&before)
        .map_err(Stop::from)
        .and_then(|()| change(&node, &before, turn));
    if matches!(result, Err(Stop::WouldBlock)) {
        return Err(Stop::WouldBlock);
    }
    Ok(Changed {
        wcc: told.wcc(&before, result.is_ok()),
        result: result.map_err(Error::from),
    })
}

pub(in crate::localfs) fn remove(
    layers: &Layers,
    who: &Identity,
    (dir, name): (FileId, &[u8]),
    directory: bool,
    pace: Pace,
    pending: &mut PendingSyncs,
) -> Try<Changed<()>> {
    change_directory(layers, who, dir, pace, |node, before, mut turn| {
        layers.rights.check(who, node, before, EXECUTE, pace)?;
        // The open descriptor keeps the data until after the lock is released: freeing it takes
        // time.
        let (open, entry) = layers.files.open_entry(node, name, pace)?;
        if pace == Pace::Quick && !goes_at_once(&entry.attributes) {
            return Err(Stop::WouldBlock);
        }
        let flags = match directory {
            true => AtFlags::REMOVEDIR,
            false => AtFlags::empty(),
        };
        // The file may be written through another name at the same time.
        let file = layers.turns.begin(entry.attributes.fileid, directory);
        let removals = layers.handles.begin_removal(&open);
        layers
            .rights
            .as_caller(who, || rustix::fs::unlinkat(&node.path, name, flags))?;
        turn.note_gone();
        drop((removals, file));
        let last = directory || is_last(layers, &open, &entry);
        let gone = layers.handles.removed(node.number, name, &entry, last);
        drop(turn);
        drop((open, gone));
        pending.push(node);
        Ok(())
    })
}

pub(in crate::localfs) fn rename(
    layers: &Layers,
    who: &Identity,
    from: &(FileId, OwnedName),
    to: &(FileId, OwnedName),
    pace: Pace,
    pending: &mut PendingSyncs,
) -> Try<Renamed> {
    let from_node = layers.handles.node(from.0, pace)?;
    let to_node = layers.handles.node(to.0, pace)?;
    let names = layers.turns.names([from_node.ino, to_node.ino], pace)?;
    let one = from_node.id() == to_node.id();
    let mut from_changing = begin_names(layers, who, &from_node, pace);
    let mut to_changing = (!one).then(|| begin_names(layers, who, &to_node, pace));
    if let Some(to_changing) = &mut to_changing {
        NameChange::see_both_or_none(&mut from_changing, to_changing);
    }
    let before = |node, changing| layers.files.attributes_before_names(node, changing);
    let from_before = before(&from_node, &from_changing)?;
    let to_before = match &to_changing {
        None => from_before,
        Some(changing) => before(&to_node, changing)?,
    };
    let (mut from_told, mut to_told) = (Told::default(), Told::default());
    let dirs = [
        (&*from_node, Some((from_changing, &mut from_told))),
        (
            &*to_node,
            to_changing.map(|changing| (changing, &mut to_told)),
        ),
    ];
    let turn = Turn::new(layers, dirs, names);
    let result = rename_entry(
        layers,
        who,
        (&from_node, &from_before, &from.1),
        (&to_node, &to_before, &to.1),
        turn,
        pace,
        pending,
    );
    if matches!(result, Err(Stop::WouldBlock)) {
        return Err(Stop::WouldBlock);
    }
    let told = if one { &from_told } else { &to_told };
    // What one directory saw alone may be the rename of another, if this one found nothing to do.
    let atomic = result.is_ok() && from_told.claim.atomic && told.claim.atomic;
    Ok(Renamed {
        from: from_told.wcc(&from_before, atomic),
        to: told.wcc(&to_before, atomic),
        result: result.map_err(Error::from),
    })
}

fn rename_entry(
    layers: &Layers,
    who: &Identity,
    (from, from_before, from_name): (&Arc<Node>, &Attributes, &[u8]),
    (to, to_before, to_name): (&Arc<Node>, &Attributes, &[u8]),
    turn: Turn<'_>,
    pace: Pace,
    pending: &mut PendingSyncs,
) -> Try<()> {
    permission::check_directory(from_before)?;
    permission::check_directory(to_before)?;
    layers.rights.check(who, from, from_before, EXECUTE, pace)?;
    if from.id() != to.id() {
        layers.rights.check(who, to, to_before, EXECUTE, pace)?;
    }
    let (open, moving) = layers.files.open_entry(from, from_name, pace)?;
    // It looks for the file when it ends.
    let mut turn = turn;
    let is_directory = moving.attributes.is_directory();
    let one = from.id() == to.id();
    let stays = one && !is_directory && !layers.volume.by.path();
    // The table has to be updated.
    if pace == Pace::Quick && !stays {
        return Err(Stop::WouldBlock);
    }
    if is_directory && !one {
        layers.handles.check_depth(to)?;
    }
    if !stays {
        layers.handles.check_storage()?;
    }
    let file = moving.attributes.fileid;
    let rename = |flags| {
        let _changing = layers.turns.begin(file, is_directory);
        layers.rights.as_caller(who, || {
            rustix::fs::renameat_with(&from.path, from_name, &to.path, to_name, flags)
        })
    };
    // Usually no entry is replaced; then none is looked up.
    let replaced = match rename(RenameFlags::NOREPLACE) {
        // Freeing a large replaced file takes time.
        Err(Errno::EXIST | Errno::INVAL) if pace == Pace::Quick => {
            return Err(Stop::WouldBlock);
        }
        // EINVAL: the file system does not support the flag.
        Err(Errno::EXIST | Errno::INVAL) => {
            let replaced = match layers.files.open_entry(to, to_name, Pace::Patient) {
                Ok(replaced) => Some(replaced),
                Err(Stop::Fail(Error::NotFound)) => None,
                Err(stop) => return Err(stop),
            };
            let _changing = replaced.as_ref().map(|(_, stat)| {
                let found = &stat.attributes;
                layers.turns.begin(found.fileid, found.is_directory())
            });
            let _removals = (replaced.as_ref()).map(|(fd, _)| layers.handles.begin_removal(fd));
            rename(RenameFlags::empty())?;
            replaced
        }
        renamed => {
            renamed?;
            None
        }
    };
    let mut gone = None;
    if let Some((fd, replaced)) = &replaced {
        // Both are names of one file: renaming one to the other does nothing.
        if replaced.is_same(&moving) && sys::open_entry(&from.path, from_name, pace).is_ok() {
            return Ok(());
        }
        turn.note_renamed(&moving, to, to_name);
        let last = replaced.attributes.is_directory() || is_last(layers, fd, replaced);
        gone = layers.handles.removed(to.number, to_name, replaced, last);
    } else {
        turn.note_renamed(&moving, to, to_name);
    }
    let moved = note_place(
        layers,
        (&open, &moving),
        Named::Moved(from, from_name),
        to,
        to_name,
    );
    drop(turn);
    drop((open, replaced, gone));
    pending.push(to);
    if stays {
        return moved;
    }
    if !one {
        pending.push(from);
    }
    moved?;
    layers.persist_places()
}

/// Whether the removed name was the last one of its file. With a table this is looked up again.
/// Without one the attributes from before are sufficient: they only decide whether the file
/// stays open.
pub(in crate::localfs) fn is_last(layers: &Layers, open: &OwnedFd, before: &Stat) -> bool {
    if layers.volume.kernel_handles {
        return before.attributes.links <= 1;
    }
    // The file may have got another name in another directory. A file system in another
    // process may refuse to tell of a removed file.
    sys::attributes(open).map_or(before.attributes.links <= 1, |now| now.links == 0)
}

/// Records a new name in the table. The other names of the file are as of now, since calls in
/// other directories may add some.
fn note_place(
    layers: &Layers,
    (open, stat): (impl AsFd, &Stat),
    from: Named<'_>,
    to: &Node,
    name: &[u8],
) -> Try<()> {
    if layers.volume.kernel_handles {
        return Ok(());
    }
    let _places = layers.turns.places(stat.attributes.fileid);
    let now = sys::stat(open, layers.volume.by).unwrap_or_else(|_| {
        // The other names it may have are kept.
        let mut stat = *stat;
        stat.attributes.links = stat.attributes.links.max(2);
        stat
    });
    layers.handles.moved(&now, from, to, name)
}

pub(in crate::localfs) fn link(
    layers: &Layers,
    who: &Identity,
    file: FileId,
    (dir, name): (FileId, &[u8]),
    pending: &mut PendingSyncs,
) -> Try<Linked> {
    let node = layers.handles.node(file, Pace::Patient)?;
    let changed = change_directory(layers, who, dir, Pace::Patient, |to, _, mut turn| {
        if node.is_directory() {
            return Err(Error::Invalid.into());
        }
        layers.handles.check_storage()?;
        let changing = layers.turns.begin(node.ino, false);
        layers.rights.as_caller(who, || {
            layers
                .volume
                .proc
                .link(node.path.as_fd(), to.path.as_fd(), name)
        })?;
        turn.note_made();
        drop(changing);
        let moved = match layers.volume.kernel_handles {
            false => {
                let stat = layers.files.stat(&node)?;
                note_place(layers, (&node.path, &stat), Named::Linked(&node), to, name)
            }
            true => Ok(()),
        };
        drop(turn);
        pending.push(to);
        moved?;
        layers.persist_places()
    })?;
    Ok(Linked {
        attributes: layers.files.attributes(&node).ok(),
        wcc: changed.wcc,
        result: changed.result,
    })
}
