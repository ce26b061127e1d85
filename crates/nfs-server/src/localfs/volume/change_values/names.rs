//! Values of a directory around a change of its names by a client, and whether nobody else changed it in between.

use super::{ChangeValues, During, Looked};
use crate::localfs::sys::Pace;
use crate::localfs::volume::in_flight::Changing;
use crate::localfs::volume::witness::{DirectoryId, Kind, Window, passes_barrier};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// A change of the names of a directory by a client, which is in flight.
pub(in crate::localfs) struct NameChange<'a> {
    changing: Changing<'a>,
    /// `None` if local programs may change the directory unseen.
    window: Option<Window>,
    /// Whether no local program can change the directory.
    alone: bool,
    pace: Pace,
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
    /// Begins a change of names, with the turn in the directory. With `alone` no local program can change it.
    pub(in crate::localfs) fn begin_names<'a>(
        &self,
        alone: bool,
        (dir, fd): (DirectoryId, BorrowedFd<'_>),
        changing: Changing<'a>,
        pace: Pace,
    ) -> NameChange<'a> {
        let mut window = self.witness.begin(dir, fd);
        let unknown = |window: &mut Window| {
            window.is_new() && !alone && (pace == Pace::Quick || !passes_barrier(fd))
        };
        if let Some(window) = window.take_if(unknown) {
            window.rest();
        }
        NameChange {
            changing,
            window,
            alone,
            pace,
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
        let value = window.before(attributes, |number| {
            coarse.value(ctime, now, Some(number), true)
        });
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
            pace,
        } = change;
        let Some(window) = window else {
            let seen = self.during(alone, (&changing, During::After), look)?;
            let is_alone = changing.is_alone();
            let claim = Claim {
                before: is_alone,
                atomic: is_alone && alone,
            };
            return Ok((seen, claim));
        };
        let (seen, by_itself, certain) = match &self.coarse {
            None => {
                let seen = look()?;
                let certain = alone || pace == Pace::Patient && passes_barrier(fd);
                (seen, window.end(own.events, own.stands), certain)
            }
            Some(coarse) => {
                let now = coarse.now();
                let mut seen = look()?;
                let attributes = seen.attributes();
                let ctime = attributes.ctime;
                let told = window.end_telling(own.events, own.stands, attributes, |number| {
                    coarse.value(ctime, now, Some(number), true)
                });
                match told {
                    Some(value) => {
                        attributes.change = value;
                        (seen, true, true)
                    }
                    None => (self.of(alone, look)?, false, false),
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
