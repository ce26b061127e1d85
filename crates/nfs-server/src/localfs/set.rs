//! Setting attributes.

use super::Inner;
use super::open_files::node::Node;
use super::sys::{self, Pace, Try};
use crate::fs::{
    Attributes, Changed, Error, FileId, FileKind, Identity, SetAttributes, SetTime, Time, Wcc, mode,
};
use crate::permission::{self, WRITE};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Gid, Mode, Uid};

/// The id that chown(2) takes as "do not change", and that no user has.
const NOBODYS: u32 = u32::MAX;

impl Inner {
    pub(super) fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: SetAttributes,
        guard: Option<Time>,
    ) -> Try<Changed<()>> {
        let node = self.handles.node(file, Pace::Patient)?;
        // The attributes of a directory are changed under the lock of its names.
        let names = match node.is_directory() {
            true => Some(self.turns.names([node.ino; 2], Pace::Patient)?),
            false => None,
        };
        let (alone, beside) = match guard {
            Some(_) if !node.is_directory() => (Some(self.turns.guarded(node.ino)), None),
            _ => (None, Some(self.turns.unguarded(node.ino, Pace::Patient)?)),
        };
        let changing = self.turns.begin(node.ino, node.is_directory());
        let before = self.files.attributes(&node)?;
        // RFC 1813 §3.3.2: compared with the change time that the client last saw.
        let result = if guard.is_some_and(|guard| !same_on_the_wire(guard, before.ctime)) {
            Err(Error::NotSync.into())
        } else {
            self.apply(who, &node, &before, &set)
        };
        // Read before the sync: the client would take later changes of others for its own.
        let after = self.files.attributes(&node).ok();
        let wcc = Wcc {
            before: changing.is_alone().then(|| before.before()),
            after,
        };
        drop((changing, alone, beside, names));
        let result = result.and_then(|()| self.durability.persist_attributes(&node));
        Ok(Changed {
            wcc,
            result: result.map_err(Error::from),
        })
    }

    /// Sets attributes as the caller. The change is not atomic, and setting the size, which comes
    /// first, may destroy data: so rights are checked before anything is changed.
    pub(super) fn apply(
        &self,
        who: &Identity,
        node: &Node,
        before: &Attributes,
        set: &SetAttributes,
    ) -> Try<()> {
        if self.rights.acts_for_callers() {
            permission::check_set(who, before, set, || {
                self.rights.check(who, node, before, WRITE, Pace::Patient)
            })?;
        }
        if set.size.is_some() {
            permission::check_regular(before.kind)?;
        }
        self.apply_unchecked(who, node, before, set)
    }

    /// Sets attributes, the size first, because truncation clears mode bits that are set later.
    /// Invalid values are refused before anything is changed.
    ///
    /// Each step is done as the caller, so that the kernel clears set-user-id and set-group-id
    /// bits, and keeps a set-group-id bit only for members of the group.
    pub(super) fn apply_unchecked(
        &self,
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
            self.truncate(who, node, size)?;
        }
        // Also if owner and group stay what they are: chown(2) clears set-id bits and moves the ctime.
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            self.rights.as_caller(who, || {
                rustix::fs::chownat(&node.path, c"", uid, gid, AtFlags::EMPTY_PATH)
            })?;
        }
        if let Some(mode) = set.mode
            // Linux ignores the mode of symbolic links.
            && before.kind != FileKind::Symlink
        {
            self.chmod(who, node, mode & mode::ALL)?;
        }
        self.set_times(who, node, before, set)
    }

    fn set_times(
        &self,
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
            None => self.volume.proc.utimens(node.path.as_fd(), &times),
        };
        // A caller with write permission may set the times to now. The kernel allows that only for
        // both times at once, but a client that truncates a file sets one of them.
        let is_owner = who.is_root() || who.uid == before.uid;
        match is_owner {
            true => self.rights.as_caller(who, set_times)?,
            false => set_times()?,
        }
        Ok(())
    }

    /// Sets the mode, through an open descriptor if there is one.
    ///
    /// A client that has the file open goes on reading it whatever its mode becomes (RFC 1813
    /// §4.4). Without the rights of root, it is opened for that before.
    fn chmod(&self, who: &Identity, node: &Node, mode: u32) -> Try<()> {
        if !self.rights.acts_for_callers() && node.kind == FileKind::Regular && mode & 0o400 == 0 {
            // If it cannot be read now, no client has it open for reading.
            let _ = self.files.open_reader(node);
        }
        let writer = node.writer();
        let raw = Mode::from_raw_mode(mode);
        self.rights
            .as_caller(who, || match (&*writer, node.reader()) {
                (Some(fd), _) => rustix::fs::fchmod(fd, raw),
                (None, Some(fd)) => rustix::fs::fchmod(fd, raw),
                (None, None) => self.volume.proc.chmod(node.path.as_fd(), mode),
            })?;
        Ok(())
    }
}

/// Whether two times are equal on the wire, with 32 bits of seconds.
fn same_on_the_wire(a: Time, b: Time) -> bool {
    a.nanos == b.nanos && a.seconds & 0xffff_ffff == b.seconds & 0xffff_ffff
}
