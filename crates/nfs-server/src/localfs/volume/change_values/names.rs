//! Values of a directory around a change of its names by a client, and whether nobody else changed it in between.

use super::{ChangeValues, During, Looked};
use crate::localfs::volume::in_flight::Changing;
use crate::localfs::volume::witness::{DirectoryId, Kind, Window, passes_barrier};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// A change of the names of a directory by a client, which is in flight.
pub(in crate::localfs) struct NameChange<'a> {
    changing: Changing<'a>,
    /// `None` if local programs may change the directory unseen.
    window: Option<Window>,
    /// Whether no other user of this machine can reach the directory. Root can, and what has it open.
    alone: bool,
}

/// Changes that a client made.
pub(in crate::localfs) struct Own<'a> {
    /// Their events, in their order; none if the call failed or changed nothing.
    pub(in crate::localfs) events: &'a [Kind],
    /// Whether the change still stands. Asked if a later one by others may have no event of its own.
    pub(in crate::localfs) stands: &'a dyn Fn() -> bool,
}

/// The relation of the looks before and after a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::localfs) struct Claim {
    /// Whether no change of others is known to lie between them, so that the client may take the difference for its own change.
    pub(in crate::localfs) before: bool,
    /// Whether it is certain that none does.
    pub(in crate::localfs) atomic: bool,
}

impl NameChange<'_> {
    /// Leaves a rename between two directories to be seen in both or none: the events of two renames of files of other
    /// directories to one name are one, unless there is another one between them, as that of the other directory of this rename.
    pub(in crate::localfs) fn see_both_or_none(one: &mut Self, other: &mut Self) {
        if one.window.is_none() || other.window.is_none() {
            (one.window, other.window) = (None, None);
        }
    }
}

impl ChangeValues {
    /// Begins a change of names, with the turn in the directory. With `alone` no other user of this machine can reach it. It is watched
    /// from now on if the caller `has_rights` to change it, which is asked if it is not watched yet.
    pub(in crate::localfs) fn begin_names<'a>(
        &self,
        alone: bool,
        (dir, fd): (DirectoryId, BorrowedFd<'_>),
        changing: Changing<'a>,
        has_rights: impl FnOnce() -> bool,
    ) -> NameChange<'a> {
        if self.witness.may_watch(dir)
            && has_rights()
            && self.witness.watch(dir, fd) == Some(true)
            && !passes_barrier(fd)
        {
            self.witness.rest(dir);
        }
        NameChange {
            changing,
            window: self.witness.begin(dir),
            alone,
        }
    }

    /// Looks at the directory before the change is made.
    pub(in crate::localfs) fn before_names<T: Looked>(
        &self,
        change: &NameChange<'_>,
        look: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (Some(coarse), Some(window)) = (&self.coarse, &change.window) else {
            return self.during(change.alone, (&change.changing, During::Before), look);
        };
        let now = coarse.now();
        let mut seen = look()?;
        let attributes = seen.attributes();
        let ctime = attributes.ctime;
        let value = window.before(attributes, |number| coarse.counted(ctime, now, number));
        attributes.change = value.unwrap_or_else(|| coarse.value(ctime, now, None, false));
        Ok(seen)
    }

    /// Looks at the directory of `fd` after the change was made, or failed. The value of the look before is valid only if the
    /// claim says so.
    pub(in crate::localfs) fn after_names<T: Looked>(
        &self,
        change: NameChange<'_>,
        own: &Own<'_>,
        fd: BorrowedFd<'_>,
        look: impl Fn() -> Result<T, Errno>,
    ) -> Result<(T, Claim), Errno> {
        let NameChange {
            changing,
            window,
            alone,
        } = change;
        let Some(window) = window else {
            let seen = self.during(alone, (&changing, During::After), look)?;
            let claim = Claim {
                before: changing.is_alone(),
                atomic: false,
            };
            return Ok((seen, claim));
        };
        let (seen, by_itself, certain) = match &self.coarse {
            None => {
                let seen = look()?;
                let certain = passes_barrier(fd);
                (seen, window.end(own.events, own.stands), certain)
            }
            Some(coarse) => {
                let now = coarse.now();
                let mut seen = look()?;
                let attributes = seen.attributes();
                let ctime = attributes.ctime;
                let told = window.end_telling(own.events, own.stands, attributes, |number| {
                    coarse.counted(ctime, now, number)
                });
                match told {
                    Some(value) => {
                        attributes.change = value;
                        (seen, true, true)
                    }
                    None => (self.of(alone, None, look)?, false, false),
                }
            }
        };
        let before = by_itself && changing.is_alone();
        let claim = Claim {
            before,
            atomic: before && certain,
        };
        Ok((seen, claim))
    }
}
