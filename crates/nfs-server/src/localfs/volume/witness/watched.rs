//! A directory that is watched: the events that came, and the value that was told of its last state.

use crate::fs::{Attributes, Time};
use crate::localfs::volume::in_flight::InFlight;
use rustix::fs::inotify::ReadFlags;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;

/// Identifies a directory among those of the machine, while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::localfs) struct DirectoryId {
    pub(in crate::localfs) device: (u32, u32),
    pub(in crate::localfs) ino: u64,
}

/// Kind of a change of names, as an event tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs) enum Kind {
    Made,
    Gone,
    MovedFrom,
    MovedTo,
    /// Of the attributes or the place of the directory, or one without an event.
    Other,
}

impl Kind {
    pub(super) fn of(events: ReadFlags) -> Self {
        let kinds = [
            (ReadFlags::CREATE, Self::Made),
            (ReadFlags::DELETE, Self::Gone),
            (ReadFlags::MOVED_FROM, Self::MovedFrom),
            (ReadFlags::MOVED_TO, Self::MovedTo),
        ];
        let found = kinds.iter().find(|(flag, _)| events.contains(*flag));
        found.map_or(Self::Other, |(_, kind)| *kind)
    }
}

/// Number of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs::volume) struct Number {
    /// Larger for each later state.
    pub(in crate::localfs::volume) number: u64,
    /// Whether the value of a settled state may do without it.
    pub(in crate::localfs::volume) may_settle: bool,
}

/// Attributes that another change than that of a name has others of, or that tell states apart. The time of access is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    ctime: Time,
    mtime: Time,
    mode: u32,
    owner: (u32, u32),
    links: u32,
    size: u64,
}

impl Facts {
    pub(super) fn of(attributes: &Attributes) -> Self {
        Self {
            ctime: attributes.ctime,
            mtime: attributes.mtime,
            mode: attributes.mode,
            owner: (attributes.uid, attributes.gid),
            links: attributes.links,
            size: attributes.size,
        }
    }
}

/// The value of a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) sequence: u64,
    pub(super) facts: Facts,
    pub(super) value: u64,
    /// Whether no later change can have its ctime.
    pub(super) is_kept: bool,
}

/// A directory that is watched, or rests.
pub(super) struct Watched {
    pub(super) dir: DirectoryId,
    pub(super) export: u64,
    pub(super) in_flight: Arc<InFlight>,
    /// `None` while it rests.
    pub(super) watch: Option<i32>,
    /// End of its rest.
    pub(super) rests_until: Instant,
    /// Raised by each event.
    pub(super) sequence: u64,
    /// Changes by others since a client last changed it alone.
    pub(super) foreign: u32,
    /// Changes of attributes of its files since then.
    pub(super) attributes: u32,
    /// Events in the window that is open.
    pub(super) window: Option<SmallVec<[Kind; 2]>>,
    pub(super) told: Option<Told>,
}

impl Watched {
    /// Returns a number that each change raises, of a client or another one, and no other state was told with.
    fn number(&self) -> u64 {
        let began = self.in_flight.so_far(self.dir.ino, true).began();
        began.wrapping_add(self.in_flight.seen(self.dir.ino))
    }

    pub(super) fn raise(&mut self) {
        self.sequence += 1;
        self.in_flight.raise_seen(self.dir.ino);
    }

    pub(super) fn note(&mut self, kind: Kind) {
        self.raise();
        self.foreign = self.foreign.saturating_add(1);
        if let Some(window) = &mut self.window
            // More than any change by a client has.
            && window.len() <= 2
        {
            window.push(kind);
        }
    }

    /// Returns the value of the state with the sequence number, and has it for further looks; without any call of the kernel if
    /// `is_over`.
    pub(super) fn tell(
        &mut self,
        attributes: &Attributes,
        (is_over, may_settle): (bool, bool),
        value_of: impl FnOnce(Number) -> u64,
    ) -> u64 {
        let facts = Facts::of(attributes);
        let last = self.told;
        let known = last.filter(|told| told.sequence == self.sequence);
        let (value, was_kept) = match known {
            Some(told) if told.facts == facts => (told.value, told.is_kept),
            known => {
                let has_last_ctime = last.is_some_and(|told| told.facts.ctime == facts.ctime);
                // A change without an event, which the ctime does not tell apart either.
                if known.is_some() && has_last_ctime {
                    self.raise();
                }
                let number = Number {
                    number: self.number(),
                    may_settle: may_settle && !has_last_ctime,
                };
                (value_of(number), false)
            }
        };
        self.told = Some(Told {
            sequence: self.sequence,
            facts,
            value,
            is_kept: was_kept || is_over,
        });
        value
    }
}
