//! Operations on directory entries: LOOKUP, REMOVE, RENAME, LINK.

use super::node::Node;
use super::sys::{self, Pace, Stat, Stop, Try};
use super::{INLINE_WRITE, Inner};
use crate::fs::{
    Attributes, Changed, Error, FileId, FileKind, Found, Identity, Linked, Renamed, Seen, Wcc,
};
use crate::permission::{self, EXECUTE};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::{Arc, MutexGuard};

/// A checked name in a job. Most names are short enough to need no memory of their own.
pub(super) type OwnedName = SmallVec<[u8; 32]>;

/// Whether the end of this name takes no time: the table knows nothing of the file, and its data is small.
fn goes_at_once(file: &Attributes) -> bool {
    file.kind == FileKind::Regular && file.links <= 1 && file.size <= INLINE_WRITE as u64
}

/// The turn of a call that changes names: nobody else does until this is dropped, and the attributes of
/// its directories after the call are noted then. A client whose copy is as old as those before takes
/// all that came between for its own doing (RFC 1813 §2.6).
pub(super) struct Turn<'a> {
    inner: &'a Inner,
    dirs: [&'a Node; 2],
    after: [Option<&'a mut Option<Attributes>>; 2],
    pub(super) names: MutexGuard<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        for (dir, after) in self.dirs.iter().zip(&mut self.after) {
            if let Some(after) = after {
                **after = self.inner.attributes(dir).ok();
            }
        }
    }
}

impl Inner {
    pub(super) fn lookup_here(&self, dir: FileId, pace: Pace) -> Try<Seen<Found>> {
        let node = self.node(dir, pace)?;
        let attributes = self.attributes(&node)?;
        permission::check_directory(&attributes)?;
        Ok(Seen {
            attributes: Some(attributes),
            result: Ok(Found {
                file: node.id(),
                attributes,
            }),
        })
    }

    pub(super) fn lookup_parent(
        &self,
        who: &Identity,
        dir: FileId,
        pace: Pace,
    ) -> Try<Seen<Found>> {
        let node = self.node(dir, pace)?;
        let attributes = self.attributes(&node)?;
        permission::check_directory(&attributes)?;
        self.check(who, &node, &attributes, EXECUTE, pace)?;
        let parent = self.parent(&node, pace)?;
        let found = self.found(&parent)?;
        Ok(Seen {
            attributes: Some(attributes),
            result: Ok(found),
        })
    }

    pub(super) fn lookup(
        &self,
        who: &Identity,
        dir: FileId,
        name: &[u8],
        pace: Pace,
    ) -> Try<Seen<Found>> {
        let node = self.node(dir, pace)?;
        let attributes = self.attributes(&node)?;
        let entry = || -> Try<Found> {
            permission::check_directory(&attributes)?;
            self.check(who, &node, &attributes, EXECUTE, pace)?;
            let (fd, stat) = self.open_entry_or_covered(&node, name, pace)?;
            let child = self.adopt(&node, name, fd, &stat, None, pace)?;
            Ok(Found {
                file: child.id(),
                attributes: stat.attributes,
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

    pub(super) fn open_entry(&self, dir: &Node, name: &[u8], pace: Pace) -> Try<(OwnedFd, Stat)> {
        let opened = sys::open_entry(&dir.path, name, self.look(pace));
        let fd = opened.map_err(|errno| match errno {
            // A mount point: what is mounted there is not exported.
            Errno::XDEV => Stop::Fail(Error::Access),
            errno => errno.into(),
        })?;
        self.look_at(fd)
    }

    /// What was opened, unless clients do not get to see it.
    pub(super) fn look_at(&self, fd: OwnedFd) -> Try<(OwnedFd, Stat)> {
        let stat = sys::stat(&fd, self.births)?;
        self.check_visible(&stat)?;
        Ok((fd, stat))
    }

    /// Attributes of an entry. To ask for them by name would ask what is mounted there, which may never
    /// answer, while nobody else can change names.
    pub(super) fn stat_entry(&self, dir: &Node, name: &[u8], pace: Pace) -> Try<Stat> {
        self.open_entry(dir, name, pace).map(|(_, stat)| stat)
    }

    /// Neither our own state nor what is mounted within the export.
    fn check_visible(&self, stat: &Stat) -> Result<(), Error> {
        if stat.mount != self.mount || self.is_hidden(stat.attributes.fileid, stat.birth) {
            return Err(Error::Access);
        }
        Ok(())
    }

    pub(super) fn found(&self, node: &Node) -> Try<Found> {
        Ok(Found {
            file: node.id(),
            attributes: self.attributes(node)?,
        })
    }

    /// Runs a change of a directory and tells of it before and after. The turn of `change` ends when it
    /// drops that.
    pub(super) fn change_directory<T>(
        &self,
        dir: FileId,
        pace: Pace,
        change: impl FnOnce(&Arc<Node>, &Attributes, Turn<'_>) -> Try<T>,
    ) -> Try<Changed<T>> {
        let node = self.node(dir, pace)?;
        let names = self.names_at(pace)?;
        let before = self.attributes(&node)?;
        let mut after = None;
        let turn = Turn {
            inner: self,
            dirs: [&node, &node],
            after: [Some(&mut after), None],
            names,
        };
        let result = permission::check_directory(&before)
            .map_err(Stop::from)
            .and_then(|()| change(&node, &before, turn));
        if matches!(result, Err(Stop::WouldBlock)) {
            return Err(Stop::WouldBlock);
        }
        Ok(Changed {
            wcc: Wcc {
                before: Some(before.before()),
                after,
            },
            result: result.map_err(Error::from),
        })
    }

    pub(super) fn remove(
        &self,
        who: &Identity,
        dir: FileId,
        name: &[u8],
        directory: bool,
        pace: Pace,
    ) -> Try<Changed<()>> {
        self.change_directory(dir, pace, |node, before, turn| {
            self.check(who, node, before, EXECUTE, pace)?;
            // While it is open its data stays: that is given back without the lock.
            let (open, entry) = self.open_entry(node, name, pace)?;
            if pace == Pace::Quick && !goes_at_once(&entry.attributes) {
                return Err(Stop::WouldBlock);
            }
            let flags = match directory {
                true => AtFlags::REMOVEDIR,
                false => AtFlags::empty(),
            };
            self.as_caller(who, || rustix::fs::unlinkat(&node.path, name, flags))?;
            let last = directory || entry.attributes.links <= 1;
            let gone = self.removed(node.ino, name, (&open, &entry), last);
            drop(turn);
            drop((open, gone));
            self.persist(node)
        })
    }

    pub(super) fn rename(
        &self,
        who: &Identity,
        from: &(FileId, OwnedName),
        to: &(FileId, OwnedName),
        pace: Pace,
    ) -> Try<Renamed> {
        let from_node = self.node(from.0, pace)?;
        let to_node = self.node(to.0, pace)?;
        let names = self.names_at(pace)?;
        let from_before = self.attributes(&from_node)?;
        let one = from_node.ino == to_node.ino;
        let to_before = match one {
            true => from_before,
            false => self.attributes(&to_node)?,
        };
        let (mut from_after, mut to_after) = (None, None);
        let turn = Turn {
            inner: self,
            dirs: [&from_node, &to_node],
            after: [Some(&mut from_after), (!one).then_some(&mut to_after)],
            names,
        };
        let result = self.rename_entry(
            who,
            (&from_node, &from_before, &from.1),
            (&to_node, &to_before, &to.1),
            turn,
            pace,
        );
        if matches!(result, Err(Stop::WouldBlock)) {
            return Err(Stop::WouldBlock);
        }
        let wcc = |before: &Attributes, after| Wcc {
            before: Some(before.before()),
            after,
        };
        Ok(Renamed {
            from: wcc(&from_before, from_after),
            to: match one {
                true => wcc(&from_before, from_after),
                false => wcc(&to_before, to_after),
            },
            result: result.map_err(Error::from),
        })
    }

    fn rename_entry(
        &self,
        who: &Identity,
        (from, from_before, from_name): (&Node, &Attributes, &[u8]),
        (to, to_before, to_name): (&Node, &Attributes, &[u8]),
        turn: Turn<'_>,
        pace: Pace,
    ) -> Try<()> {
        permission::check_directory(from_before)?;
        permission::check_directory(to_before)?;
        self.check(who, from, from_before, EXECUTE, pace)?;
        self.check(who, to, to_before, EXECUTE, pace)?;
        let moving = self.stat_entry(from, from_name, pace)?;
        let stays = from.ino == to.ino && !moving.attributes.is_directory();
        let replaced = match pace {
            Pace::Quick if stays => None,
            // The table has to know.
            Pace::Quick => return Err(Stop::WouldBlock),
            Pace::Patient => match self.open_entry(to, to_name, Pace::Patient) {
                Ok(replaced) => Some(replaced),
                Err(Stop::Fail(Error::NotFound)) => None,
                Err(stop) => return Err(stop),
            },
        };
        if moving.attributes.is_directory() && from.ino != to.ino {
            self.check_depth(to)?;
        }
        if !stays {
            self.check_places()?;
        }
        let flags = match pace {
            // What would be replaced may be large: it takes time to go.
            Pace::Quick => RenameFlags::NOREPLACE,
            Pace::Patient => RenameFlags::empty(),
        };
        let rename = || rustix::fs::renameat_with(&from.path, from_name, &to.path, to_name, flags);
        match self.as_caller(who, rename) {
            Err(Errno::EXIST | Errno::INVAL) if pace == Pace::Quick => {
                return Err(Stop::WouldBlock);
            }
            renamed => renamed?,
        }
        let file = moving.attributes.fileid;
        let mut gone = None;
        if let Some((fd, replaced)) = &replaced {
            // Two names of one file: renaming one to the other does nothing.
            if replaced.attributes.fileid == file {
                return Ok(());
            }
            let last = replaced.attributes.is_directory() || replaced.attributes.links <= 1;
            gone = self.removed(to.ino, to_name, (fd, replaced), last);
        }
        let moved = self.moved(&moving, (from.ino, Some(from_name)), to, to_name);
        drop(turn);
        drop((replaced, gone));
        self.persist(to)?;
        if stays {
            return moved;
        }
        if from.ino != to.ino {
            self.persist(from)?;
        }
        moved?;
        self.persist_places()
    }

    pub(super) fn link(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &[u8],
    ) -> Try<Linked> {
        let node = self.node(file, Pace::Patient)?;
        let changed = self.change_directory(dir, Pace::Patient, |to, _, turn| {
            if node.is_directory() {
                return Err(Error::Invalid.into());
            }
            self.check_places()?;
            self.as_caller(who, || {
                self.proc.link(node.path.as_fd(), to.path.as_fd(), name)
            })?;
            let moved = self.moved(&self.stat(&node)?, (node.home(), None), to, name);
            drop(turn);
            self.persist(to)?;
            moved?;
            self.persist_places()
        })?;
        Ok(Linked {
            attributes: self.attributes(&node).ok(),
            wcc: changed.wcc,
            result: changed.result,
        })
    }
}
