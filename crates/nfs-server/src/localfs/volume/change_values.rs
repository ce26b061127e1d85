//! Values of the change attribute (RFC 8881 §5.8.1.4): no two states of a file that a client was told have the same.
//!
//! The kernel keeps no counter that a program could read, so that the values are made of ctimes. Which way is found by a probe when
//! the export is opened.
//!
//! **Fine times** (multigrain, Linux 6.13): the kernel gives a change another ctime than the state that was last looked at. The
//! value is the ctime in nanoseconds, and nothing is added.
//!
//! In memory only those of files are fine: tmpfs gives the directory of a name that is removed or linked the ctime that the file
//! gets (Linux 6.18), which may be the one that it has.
//!
//! **Coarse times**: all changes within a tick of the kernel's clock, or within a second on some file systems, have one ctime *c*.
//! With *t* as the longer of the two:
//!
//! - A state older than 2 *t* is settled, as any later change has a later ctime. Its value is *c* + 2 *t*, which no state before had,
//!   in this run of the server or another.
//! - Within the first tick, a local program can change the file once more without a trace. Each look at such a state has a value of
//!   its own, also if nothing happened; as has one while changes by clients are in flight.
//! - In between only changes by clients can have this ctime, such as a write that takes long. The value is *c* with the number of
//!   those changes, which each of them raises. If no other user of this machine can reach the export, this holds for the first tick too.
//! - A state from before the export was opened that is not settled yet may have been told by the run before, whose numbers are lost:
//!   each look has a value of its own.
//! - If the clock is set back, ctimes come for a second time. States with those have values of their own at each look until they
//!   change again, as long as this run lasts. Of what was told before it, only a state with the same nanosecond could be mistaken.
//! - A directory whose names clients change is watched, and changes by local programs are counted too
//!   ([`witness`](super::witness)). Its value is *c* with the number of all changes from the first tick on, and stays when the
//!   state settles: what clients know of the directory remains valid. Events are counted by stripes as changes are, and the end
//!   of a watch counts as an event, so that a number from before a time without a watch never comes again. A directory that is
//!   not watched any more has *c* + 2 *t*.
//!
//! Values of their own are numbers of 63 bits from a random start, with the highest bit set, which ctimes have not until 2262.
//!
//! So a client reads a file that was just written once more when it has settled. A file system of which the clock is unknown, behind
//! a network or in another process, is assumed to have a clock within a second of this one.

pub(in crate::localfs) mod names;

use super::in_flight::{Changing, InFlight, SoFar};
use super::witness::{BeforeLook, DirectoryId, Known, Number, Witness};
use crate::fs::{Attributes, ChangeKind, Time};
use crate::localfs::sys::{self, OnDevice, Stat};
use crate::localfs::volume::kind::FsKind;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::ClockId;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Changes of the file that is probed, all within a tick of a coarse clock.
const PROBES: usize = 16;

/// Nanoseconds in a second: the assumed step of times where the probe is not possible.
const SECOND: u64 = 1_000_000_000;

/// Bit of values that are no times.
const NO_TIME: u64 = 1 << 63;

/// Looks at a directory that changes meanwhile, after which its value is one of its own.
const LOOKS: usize = 2;

/// Something with attributes as the kernel told them.
pub(in crate::localfs) trait Looked {
    fn attributes(&mut self) -> &mut Attributes;

    /// Device of the file.
    fn device(&self) -> (u32, u32);
}

impl Looked for OnDevice {
    fn attributes(&mut self) -> &mut Attributes {
        &mut self.attributes
    }

    fn device(&self) -> (u32, u32) {
        self.device
    }
}

impl Looked for Stat {
    fn attributes(&mut self) -> &mut Attributes {
        &mut self.attributes
    }

    fn device(&self) -> (u32, u32) {
        self.device
    }
}

/// Returns the directory that was looked at, if it is one.
fn directory_of(seen: &mut impl Looked) -> Option<DirectoryId> {
    let device = seen.device();
    let attributes = seen.attributes();
    attributes.is_directory().then_some(DirectoryId {
        device,
        ino: attributes.fileid,
    })
}

/// A file that is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs) struct Place {
    pub(in crate::localfs) id: DirectoryId,
    pub(in crate::localfs) is_directory: bool,
}

impl Place {
    /// That of a file that was looked at.
    fn of(seen: &mut impl Looked) -> Self {
        let device = seen.device();
        let attributes = seen.attributes();
        Self {
            id: DirectoryId {
                device,
                ino: attributes.fileid,
            },
            is_directory: attributes.is_directory(),
        }
    }
}

/// State of a file before a look at it.
#[derive(Clone, Copy)]
struct Before {
    file: Place,
    so_far: SoFar,
    /// Changes of a directory that a witness ever saw.
    others: u64,
    watched: Option<BeforeLook>,
}

/// A look at a file during a change of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs) enum During {
    /// Before it is made.
    Before,
    /// After it was made.
    After,
}

/// Steps of the ctimes of a file system, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    /// Multiples in which times are kept.
    grain: u64,
    /// Smallest distance of two ctimes.
    tick: u64,
}

/// The source of values of an export.
pub(in crate::localfs) struct ChangeValues {
    /// `None` with fine times.
    coarse: Option<Coarse>,
    /// Whether the times of files are fine, and those of directories are not.
    fine_files: bool,
    in_flight: Arc<InFlight>,
    /// Changes of directories by local programs.
    witness: Witness,
}

impl ChangeValues {
    /// Probes the file system of this directory, which is of some kind.
    pub(in crate::localfs) fn probe(
        root: BorrowedFd<'_>,
        kind: FsKind,
        in_flight: Arc<InFlight>,
        witness: Witness,
    ) -> Self {
        let worst = Steps {
            grain: SECOND,
            tick: SECOND,
        };
        let tick = clock_tick();
        let ticks = Steps { grain: 1, tick };
        // Whether another one has the clock of this machine is unknown.
        let found = match kind.is_local() {
            true => ctimes(root).ok().map(|ctimes| steps_of(&ctimes, tick)),
            false => None,
        };
        let fine_files = kind.is_memory() && found == Some(None);
        let steps = match found {
            Some(None) if fine_files => Some(ticks),
            Some(steps) => steps,
            None => Some(worst),
        };
        Self {
            fine_files,
            coarse: steps.map(|steps| Coarse::new(steps, Box::new(clock))),
            in_flight,
            witness,
        }
    }

    /// Returns the relation of the values of a file or directory to each other.
    pub(in crate::localfs) fn kind(&self) -> ChangeKind {
        match self.coarse {
            None => ChangeKind::TimeMetadata,
            Some(_) => ChangeKind::Undefined,
        }
    }

    /// Returns changes in flight on the file system.
    pub(in crate::localfs) fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// Looks at a file, with `alone` if no local program can change it. If it changed recently, `look` is repeated, unless it is known
    /// before which `file` it is.
    pub(in crate::localfs) fn of<T: Looked>(
        &self,
        alone: bool,
        file: Option<Place>,
        look: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(coarse) = &self.coarse else {
            return look();
        };
        // What changes after this has this ctime or a later one.
        let now = coarse.now();
        let before = file.map(|file| self.before_look(file));
        let seen = look()?;
        self.tell(coarse, (seen, before), (now, alone), look)
    }

    /// Looks at a file, once if it is no directory: then one that changed recently has a value of its own.
    pub(in crate::localfs) fn glance<T: Looked>(
        &self,
        alone: bool,
        look: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(coarse) = &self.coarse else {
            return look();
        };
        let now = coarse.now();
        let mut seen = look()?;
        if directory_of(&mut seen).is_some() {
            return self.tell(coarse, (seen, None), (now, alone), look);
        }
        if !self.fine_files {
            let attributes = seen.attributes();
            attributes.change = coarse.value(attributes.ctime, now, None, false);
        }
        Ok(seen)
    }

    /// Adds the value to what was seen after `now`.
    fn tell<T: Looked>(
        &self,
        coarse: &Coarse,
        (mut seen, before): (T, Option<Before>),
        (now, alone): (u64, bool),
        look: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let found = *seen.attributes();
        let dir = directory_of(&mut seen);
        if self.fine_files && dir.is_none() {
            return Ok(seen);
        }
        let file = Place::of(&mut seen);
        let before = before.filter(|before| before.file == file);
        let settled = coarse.settled(found.ctime, now);
        let value = match (settled, self.known(dir, &found), before) {
            (Some(_), Known::Kept(value), _) | (Some(value), Known::Unwatched, _) => value,
            (None, Known::Unwatched, Some(before)) => {
                let number = self.number_since(before);
                coarse.value(found.ctime, now, number, alone)
            }
            (None, Known::Unwatched, None) => {
                let before = self.before_look(file);
                seen = look()?;
                let number = self.number_since(before);
                coarse.value(seen.attributes().ctime, now, number, alone)
            }
            (None, Known::Kept(_), before) | (_, Known::Watched, before) => {
                let watched = before.and_then(|before| before.watched);
                let told = watched.and_then(|before| {
                    self.witness
                        .after_look(before, &found, settled.is_some(), |number| {
                            coarse.counted(found.ctime, now, number)
                        })
                });
                match told {
                    Some(value) => value,
                    None => return self.of_watched(coarse, dir, look),
                }
            }
        };
        seen.attributes().change = value;
        Ok(seen)
    }

    /// Returns what is known of a file before a look at it, without a call of the kernel.
    fn before_look(&self, file: Place) -> Before {
        let Place { id, is_directory } = file;
        Before {
            file,
            so_far: self.in_flight.so_far(id.ino, is_directory),
            others: self.seen_of(is_directory.then_some(id)),
            watched: match is_directory {
                true => self.witness.before_quick_look(id),
                false => None,
            },
        }
    }

    /// Returns the number of changes that led to the state that was seen since; `None` if one is in flight or was made meanwhile, or a
    /// watch has ended.
    fn number_since(&self, before: Before) -> Option<u64> {
        let Place { id, is_directory } = before.file;
        let changes = before.so_far.settled()?;
        let is_same = self.in_flight.so_far(id.ino, is_directory) == before.so_far
            && self.seen_of(is_directory.then_some(id)) == before.others;
        is_same.then(|| changes.wrapping_add(before.others))
    }

    /// Looks at a directory that is watched. If it is not any more, or changes all the time, the look has a value of its own.
    fn of_watched<T: Looked>(
        &self,
        coarse: &Coarse,
        dir: Option<DirectoryId>,
        look: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for _ in 0..LOOKS {
            let Some(before) = dir.and_then(|dir| self.witness.before_look(dir)) else {
                break;
            };
            let now = coarse.now();
            let mut seen = look()?;
            let attributes = seen.attributes();
            let ctime = attributes.ctime;
            let is_over = coarse.settled(ctime, now).is_some();
            let value = self
                .witness
                .after_look(before, attributes, is_over, |number| {
                    coarse.counted(ctime, now, number)
                });
            if let Some(value) = value {
                attributes.change = value;
                return Ok(seen);
            }
        }
        let now = coarse.now();
        let mut seen = look()?;
        let attributes = seen.attributes();
        attributes.change = coarse.value(attributes.ctime, now, None, false);
        Ok(seen)
    }

    fn known(&self, dir: Option<DirectoryId>, found: &Attributes) -> Known {
        dir.map_or(Known::Unwatched, |dir| self.witness.known(dir, found))
    }

    /// Returns the number of changes of a directory that a witness ever saw.
    fn seen_of(&self, dir: Option<DirectoryId>) -> u64 {
        dir.map_or(0, |dir| self.in_flight.seen(dir.ino))
    }

    /// Whether directories are watched again only after the end of a round.
    pub(in crate::localfs) fn waits_for_round(&self) -> bool {
        self.witness.waits_for_round()
    }

    /// Reads events, so that changes that were late are seen though nobody looks.
    pub(in crate::localfs) fn end_round(&self) {
        self.witness.end_round();
    }

    /// Looks at a file from within a change of it.
    pub(in crate::localfs) fn during<T: Looked>(
        &self,
        alone: bool,
        (changing, during): (&Changing<'_>, During),
        look: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(coarse) = &self.coarse else {
            return look();
        };
        let now = coarse.now();
        let mut seen = look()?;
        let dir = directory_of(&mut seen);
        if self.fine_files && dir.is_none() {
            return Ok(seen);
        }
        if self.known(dir, seen.attributes()) != Known::Unwatched {
            return self.of_watched(coarse, dir, look);
        }
        let others = self.seen_of(dir);
        let number = changing.around().map(|(before, after)| {
            let changes = match during {
                During::Before => before,
                During::After => after,
            };
            changes.wrapping_add(others)
        });
        let seen_ctime = seen.attributes().ctime;
        seen.attributes().change = coarse.value(seen_ctime, now, number, alone);
        Ok(seen)
    }

    /// Returns what sees changes by local programs.
    pub(in crate::localfs) fn witness(&self) -> &Witness {
        &self.witness
    }

    /// With another witness.
    #[cfg(test)]
    pub(in crate::localfs) fn seen_by(mut self, witness: Witness) -> Self {
        self.witness = witness;
        self
    }

    /// As on a kernel with coarse times.
    #[cfg(test)]
    pub(in crate::localfs) fn coarsely(in_flight: Arc<InFlight>) -> Self {
        let steps = Steps {
            grain: 1,
            tick: clock_tick(),
        };
        Self {
            coarse: Some(Coarse::new(steps, Box::new(clock))),
            fine_files: false,
            witness: Witness::new(true, Arc::clone(&in_flight)),
            in_flight,
        }
    }
}

/// Returns the clock by which the kernel gives ctimes, and one that is not set, in nanoseconds. Their difference changes only when the
/// former is set.
fn clock() -> (u64, u64) {
    let nanos = |id| {
        let now = rustix::time::clock_gettime(id);
        Time {
            seconds: now.tv_sec,
            nanos: u32::try_from(now.tv_nsec).unwrap_or(0),
        }
        .as_change()
    };
    let mut steady = nanos(ClockId::MonotonicCoarse);
    loop {
        let now = nanos(ClockId::RealtimeCoarse);
        let again = nanos(ClockId::MonotonicCoarse);
        // Both are of one tick.
        if again == steady {
            return (now, steady);
        }
        steady = again;
    }
}

/// Returns the tick of the kernel's clock in nanoseconds.
fn clock_tick() -> u64 {
    let tick = rustix::time::clock_getres(ClockId::RealtimeCoarse);
    u64::try_from(tick.tv_nsec).map_or(SECOND, |tick| tick.max(1))
}

/// Changes a file without a name, and returns its ctimes. Nothing is written.
fn ctimes(root: BorrowedFd<'_>) -> Result<Vec<u64>, Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, c".", flags, Mode::RUSR | Mode::WUSR)?;
    let look = |n: usize| {
        let mode = match n % 2 {
            0 => Mode::RUSR,
            _ => Mode::RUSR | Mode::WUSR,
        };
        rustix::fs::fchmod(file.as_fd(), mode)?;
        Ok(sys::attributes(&file)?.change)
    };
    (0..PROBES).map(look).collect()
}

/// Returns the steps of ctimes of changes that followed each other within a tick; `None` if they are fine.
fn steps_of(ctimes: &[u64], clock_tick: u64) -> Option<Steps> {
    if ctimes.windows(2).all(|two| two[0] < two[1]) {
        return None;
    }
    let mut grain = 1;
    while grain < SECOND && ctimes.iter().all(|ctime| ctime.is_multiple_of(grain * 10)) {
        grain *= 10;
    }
    Some(Steps {
        grain,
        tick: clock_tick.max(grain),
    })
}

/// A clock by which files get their ctimes, and one that is not set.
type Clock = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

/// Values where several changes have one ctime.
struct Coarse {
    steps: Steps,
    /// Time at which the export was opened.
    opened: u64,
    clock: Clock,
    /// Latest time that the clock told.
    latest: AtomicU64,
    /// The clock less the one that is not set.
    ahead: AtomicU64,
    /// First and last time that came twice; none, if they are in this order.
    repeated: (AtomicU64, AtomicU64),
    setting_back: Mutex<()>,
    /// Next value of its own.
    own: AtomicU64,
}

impl Coarse {
    fn new(steps: Steps, clock: Clock) -> Self {
        let (now, steady) = clock();
        Self {
            steps,
            opened: now,
            clock,
            latest: AtomicU64::new(now),
            ahead: AtomicU64::new(now.wrapping_sub(steady)),
            repeated: (AtomicU64::new(u64::MAX), AtomicU64::new(0)),
            setting_back: Mutex::default(),
            own: AtomicU64::new(crate::fs::fresh_verifier()),
        }
    }

    fn margin(&self) -> u64 {
        self.steps.tick.saturating_mul(2)
    }

    /// Returns the time, and notes if the clock was set back.
    fn now(&self) -> u64 {
        let (now, steady) = (self.clock)();
        let ahead = now.wrapping_sub(steady);
        if ahead != self.ahead.load(Relaxed) {
            self.note_setting(now, ahead);
        }
        if self.latest.load(Relaxed) < now {
            self.latest.fetch_max(now, Relaxed);
        }
        now
    }

    fn note_setting(&self, now: u64, ahead: u64) {
        let _one = self
            .setting_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = self.ahead.swap(ahead, Relaxed);
        let back = before.wrapping_sub(ahead).cast_signed();
        if back <= 0 {
            return;
        }
        let latest = self.latest.swap(now, Relaxed);
        let from = latest.saturating_sub(back.unsigned_abs());
        let (first, last) = &self.repeated;
        first.fetch_min(from.saturating_sub(self.margin()), Relaxed);
        last.fetch_max(latest.saturating_add(self.margin()), Relaxed);
    }

    fn is_repeated(&self, ctime: u64) -> bool {
        let (first, last) = &self.repeated;
        first.load(Relaxed) <= ctime && ctime <= last.load(Relaxed)
    }

    /// Returns the value of a state that was looked at after `now`, if it is settled.
    fn settled(&self, ctime: Time, now: u64) -> Option<u64> {
        let settled = ctime.as_change().checked_add(self.margin())?;
        // A later change has a later ctime than that.
        let later = settled.checked_add(self.steps.grain)?;
        (now >= later && !self.is_repeated(ctime.as_change())).then_some(settled)
    }

    /// Returns the value of a state that was looked at after `now`, with the number of changes through this server that led to it, if
    /// that is known. With `alone` there are no others.
    fn value(&self, ctime: Time, now: u64, changes: Option<u64>, alone: bool) -> u64 {
        let settled = self.settled(ctime, now);
        settled.unwrap_or_else(|| self.unsettled(ctime, now, changes, alone))
    }

    /// Returns the value of a state of a directory that is watched, and was looked at after `now`.
    fn counted(&self, ctime: Time, now: u64, of: Number) -> u64 {
        let settled = self.settled(ctime, now).filter(|_| of.may_settle);
        settled.unwrap_or_else(|| self.unsettled(ctime, now, Some(of.number), true))
    }

    fn unsettled(&self, ctime: Time, now: u64, changes: Option<u64>, alone: bool) -> u64 {
        let ctime = ctime.as_change();
        let ticked = ctime
            .checked_add(self.steps.grain)
            .is_some_and(|next| next <= now);
        // The next ctime is a tick away.
        let numbers = (self.steps.tick / 4).max(1);
        match changes {
            Some(changes)
                if (ticked || alone) && ctime > self.opened && !self.is_repeated(ctime) =>
            {
                ctime.wrapping_add(changes % numbers)
            }
            Some(_) | None => self.own.fetch_add(1, Relaxed) | NO_TIME,
        }
    }
}

#[cfg(test)]
mod tests;
