//! Setting attributes.

use super::Inner;
use super::node::Node;
use super::sys::{self, Pace, Try};
use crate::fs::{
    Attributes, Changed, Error, FileId, FileKind, Identity, SetAttributes, SetTime, Time, Wcc,
};
use crate::permission;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Gid, Mode, Uid};

/// A number that chown takes for "leave it", and that is therefore nobody's.
const NOBODYS: u32 = u32::MAX;

impl Inner {
    pub(super) fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: SetAttributes,
        guard: Option<Time>,
    ) -> Try<Changed<()>> {
        let node = self.node(file, Pace::Patient)?;
        let before = self.attributes(&node)?;
        // RFC 1813 §3.3.2: compared with the change time that the client last saw.
        let result = if guard.is_some_and(|guard| !same_on_the_wire(guard, before.ctime)) {
            Err(Error::NotSync.into())
        } else {
            self.apply(who, &node, &before, &set)
        };
        // Not from after the sync: what others change meanwhile would be taken for the caller's doing.
        let wcc = Wcc {
            before: Some(before.before()),
            after: self.attributes(&node).ok(),
        };
        let result = result.and_then(|()| self.persist(&node));
        Ok(Changed {
            wcc,
            result: result.map_err(Error::from),
        })
    }

    /// Sets attributes if `who` may.
    pub(super) fn apply(
        &self,
        who: &Identity,
        node: &Node,
        before: &Attributes,
        set: &SetAttributes,
    ) -> Try<()> {
        let mut set = *set;
        self.permit(|| permission::check_set(who, before, &set))?;
        if set.size.is_some() {
            permission::check_regular(before.kind)?;
            self.take_privilege(who, node, before, Pace::Patient)?;
        }
        if let Some(mode) = set.mode {
            let gid = set.gid.unwrap_or(before.gid);
            set.mode = Some(permission::settable_mode(self.acting(who), gid, mode));
        }
        self.apply_unchecked(node, before, &set)
    }

    /// Sets attributes, the size first: it takes away what the later ones may give. What can be seen
    /// to be wrong is refused before anything is changed.
    pub(super) fn apply_unchecked(
        &self,
        node: &Node,
        before: &Attributes,
        set: &SetAttributes,
    ) -> Try<()> {
        let too_large = set.size.is_some_and(|size| i64::try_from(size).is_err());
        if too_large {
            return Err(Error::TooLarge.into());
        }
        let uid = set.uid.filter(|&uid| uid != before.uid);
        let gid = set.gid.filter(|&gid| gid != before.gid);
        if uid == Some(NOBODYS) || gid == Some(NOBODYS) {
            return Err(Error::Invalid.into());
        }
        if let Some(size) = set.size {
            self.truncate(node, size)?;
        }
        let modes = self.modes();
        if uid.is_some() || gid.is_some() {
            rustix::fs::chownat(
                &node.path,
                c"",
                uid.map(Uid::from_raw),
                gid.map(Gid::from_raw),
                AtFlags::EMPTY_PATH,
            )?;
        }
        if let Some(mode) = set.mode
            // Linux keeps no mode for symbolic links.
            && before.kind != FileKind::Symlink
        {
            self.chmod(node, mode)?;
        }
        drop(modes);
        if set.atime != SetTime::Keep || set.mtime != SetTime::Keep {
            let times = sys::timestamps(set.atime, set.mtime);
            match node.reader() {
                Some(fd) => rustix::fs::futimens(fd, &times)?,
                None => self.proc.utimens(node.path.as_fd(), &times)?,
            }
        }
        Ok(())
    }

    /// Sets the mode, through a descriptor that is open if there is one.
    fn chmod(&self, node: &Node, mode: u32) -> Try<()> {
        let writer = node.writer();
        let set = match (&*writer, node.reader()) {
            (Some(fd), _) => rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)),
            (None, Some(fd)) => rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)),
            (None, None) => self.proc.chmod(node.path.as_fd(), mode),
        };
        Ok(set?)
    }
}

/// Whether two times are the same to a client, which sees 32 bits of the seconds.
fn same_on_the_wire(a: Time, b: Time) -> bool {
    a.nanos == b.nanos && a.seconds & 0xffff_ffff == b.seconds & 0xffff_ffff
}
