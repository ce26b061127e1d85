//! Sees changes of directories by local programs.
//!
//! A directory whose names clients change is watched (inotify(7)). The kernel queues an event of each change of names while it
//! holds the lock of the directory, and of most changes of attributes, so that a change that another program has completed is in
//! the queue. Each event raises the *sequence number* of its directory: as long as that stays, nobody has changed it.
//!
//! **A change by a client** opens a [`Window`]. At its end the queue is read, which is the only system call that a change costs
//! where times are coarse, unless it is a rename. If the events of the directory within the window are exactly those of the client's own change, nobody
//! else changed the directory in between. An event that was queued before the window and not read counts as one within it. That
//! takes nothing away: the client has not seen that change either.
//!
//! - Events are compared by their kinds. The own change succeeded, so that its events are among them, and each kind comes as
//!   often as expected only if there are no others.
//! - The kernel drops an event that is equal to the last one in the queue. Two equal events of one name can follow each other
//!   only if a name is replaced twice by a rename: all others need an event in between, by which the name goes or comes. So after
//!   a rename it is also checked that the name is still that of the renamed file.
//! - **The barrier.** A change takes effect before its event is queued, both under the lock of the directory. Where the value of
//!   the change attribute is a bare ctime, a look may see the ctime of a change of which the event comes later, and which changes
//!   nothing that a client could see after that. So the lock is taken once between the look and the reading of the queue: by a
//!   lookup of a name longer than any file system has ([`passes_barrier`]), which waits for its holder, finds nothing, and is
//!   refused under the lock. A lookup, and not a removal, as it needs no right to write, is not held up by a frozen file system,
//!   and is no attempt of a removal for those who log these. Any other answer means that the lock may not have been taken, and
//!   then nothing is claimed. Where values have the sequence number in them, a change counts as made when its event is queued:
//!   until then nobody can list the directory, and after that it has another value. There is no barrier then.
//! - When a watch begins, the lock is taken once too: a change that holds it may have looked for watches before.
//! - Nothing is watched before a client of version 4 changes a name ([`Witness::want`]): version 3 has no attribute that would tell of it.
//! - A watch is begun only for a caller who may change the directory, as far as the server checks that itself. A server that is not
//!   root leaves it to the kernel, so that there a client also gets a watch by a change that is refused then.
//!
//! **A look at a directory** where times are coarse: the queue is read before and after. If both times the sequence number is the
//! same, the state is the one of that number, and has its value, which it then keeps. Once its ctime is over it is *kept* without
//! reading the queue, unless a client's change is in flight. Only a change by a local program that held the lock for that long after
//! it set the ctime is seen late then, when a client next changes a name, or at the end of a round, which there is while files are
//! open: a state with the ctime of the last one has its number in its value, also when it is settled. Where the watch has ended since,
//! such a change is not told.
//!
//! What sets the modification time alone causes no event that could be had without one for each write to a file in the directory.
//! So attributes are compared too, and a state with other ones is another state.
//!
//! **One instance of inotify for the process**: a user may have 128 in all, and a server that crosses mounts has hundreds of
//! exports. It is made when a client first changes a directory. A watch does not keep a file system from being unmounted, and
//! ends with it and with its directory. The watches that an export began end with it.
//!
//! Where there is no watch nothing is claimed: where the kernel refuses (limits, rights, seccomp), and on file systems that
//! change without it, behind a network, in another process, or in the layers below.
//!
//! **If events were lost**, the ends of watches may be among them, and another directory may get the number of one that is gone. So
//! all watches are forgotten, and begin anew with another instance after the end of the round, at which the old one is closed. Those
//! with many events are not watched for some time. A watch that does not tell of a change that a client made is forgotten too.
//!
//! The lock of the state is a leaf, and is held for calls of the kernel that do not wait, unless a watch that ends is the last that
//! holds an inode. Beginning a watch may wait for a disk (the kernel checks rights): it is done without that lock, one at a time, and a change that comes meanwhile does not wait for its own
//! watch, but is made without one.

mod barrier;
mod source;
mod watched;
mod window;

use super::in_flight::{InFlight, stripe};
use crate::fs::Attributes;
use crate::localfs::lru::Lru;
use barrier::TOO_LONG;
pub(super) use barrier::passes_barrier;
use foldhash::HashMap;
use rustix::fd::BorrowedFd;
use rustix::fs::inotify::ReadFlags;
use rustix::io::Errno;
use smallvec::SmallVec;
use source::{Inotify, Source};
#[cfg(not(test))]
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};
pub(super) use watched::Number;
pub(in crate::localfs) use watched::{DirectoryId, Kind};
use watched::{Facts, Watched};
pub(in crate::localfs) use window::Window;

/// Directories that are watched at a time; the least recently used goes.
const MAX_WATCHES: usize = 1024;

/// Changes of a directory by others since a client last changed it alone, after which it is not watched for a while.
const MAX_FOREIGN: u32 = 256;

/// Changes of attributes of files in a directory since a client last changed it alone, after which it is not watched for a while.
const MAX_ATTRIBUTES: u32 = 1024;

/// Changes of a directory or of attributes in it, since a client last changed it alone, that make it one of those for which events were
/// lost: it is not watched for a while then.
const MANY: u32 = 64;

/// Time for which a directory is not watched that changed too often, or that could not be.
const REST: Duration = Duration::from_secs(10);

/// Bytes of events that are read at a time.
const EVENTS_BUFFER: usize = 16 * 1024;

/// Readings of the queue by one look; if there is more, all watches begin anew.
const MAX_READINGS: usize = 16;

/// Bytes of an event without its name: watch, events, cookie, length of the name (`struct inotify_event`).
const EVENT: usize = 16;

/// Bytes of the longest event, in which a name is padded to a multiple of `EVENT`. The kernel fills a buffer as long as the next one
/// fits.
const MAX_EVENT: usize = EVENT + TOO_LONG.next_multiple_of(EVENT);

/// Groups of directories by inode number, of each of which it is known whether any is watched.
const STRIPES: usize = 1024;

#[cfg(not(test))]
static OF_THIS_PROCESS: LazyLock<Mutex<Weak<Watches>>> = LazyLock::new(Mutex::default);

// Tests run in parallel, and each must see only its own directories.
#[cfg(test)]
thread_local! {
    static OF_THIS_PROCESS: Mutex<Weak<Watches>> = Mutex::default();
}

/// The watches of an export among those of the process.
pub(in crate::localfs) struct Witness {
    /// `None` where the kernel does not tell of all changes.
    watches: Option<Arc<Watches>>,
    /// Number of the export.
    export: u64,
    in_flight: Arc<InFlight>,
    /// Whether directories are to be watched.
    wanted: AtomicBool,
}

impl Witness {
    /// One of an export on this file system, with `sees` if all of its changes are made through this kernel.
    pub(in crate::localfs) fn new(sees: bool, in_flight: Arc<InFlight>) -> Self {
        Self::among(sees.then(Watches::of_this_process), in_flight)
    }

    fn among(watches: Option<Arc<Watches>>, in_flight: Arc<InFlight>) -> Self {
        let next = |watches: &Arc<Watches>| watches.exports.fetch_add(1, Relaxed);
        Self {
            export: watches.as_ref().map_or(0, next),
            watches,
            in_flight,
            wanted: AtomicBool::new(false),
        }
    }

    /// Has directories watched from now on.
    pub(in crate::localfs) fn want(&self) {
        // Clients ask with each change: the line is written once.
        if !self.wanted.load(Relaxed) {
            self.wanted.store(true, Relaxed);
        }
    }

    /// Whether a directory may be watched, but is not.
    pub(super) fn may_watch(&self, dir: DirectoryId) -> bool {
        let watches = self.watches.as_ref();
        let Some(watches) = watches.filter(|_| self.wanted.load(Relaxed)) else {
            return false;
        };
        let state = watches.state();
        state.may_ask() && state.standing(dir) == Standing::Unknown
    }

    /// Whether the end of a round is needed before any directory is watched.
    pub(super) fn waits_for_round(&self) -> bool {
        (self.watches.as_ref()).is_some_and(|watches| watches.state().lost.is_some())
    }

    /// Begins to watch a directory if needed. Returns whether the watch is new, so that it does not tell of a change yet that is under
    /// way; `None` if there is none.
    pub(super) fn watch(&self, dir: DirectoryId, fd: BorrowedFd<'_>) -> Option<bool> {
        let watches = self.watches.as_ref()?;
        let is_new = watches.watch(dir, (self.export, &self.in_flight), fd);
        watches.note_activity(&watches.state());
        is_new
    }

    /// Ends the watch of a directory for some time.
    pub(super) fn rest(&self, dir: DirectoryId) {
        if let Some(watches) = &self.watches {
            let mut state = watches.state();
            if let Some(&id) = state.ids.get(&dir) {
                state.rest(id);
            }
        }
    }

    /// Opens the window of a change of names by a client, which has the turn in this directory; `None` if it is not watched.
    pub(super) fn begin(&self, dir: DirectoryId) -> Option<Window> {
        let watches = self.watches.as_ref()?;
        let mut state = watches.state();
        let (id, watched) = state.live(dir)?;
        if watched.window.is_some() {
            return None;
        }
        watched.window = Some(SmallVec::new());
        Some(Window {
            id,
            sequence: watched.sequence,
            watches: Arc::clone(watches),
        })
    }

    /// Returns what is known of a directory with these attributes, without a call of the kernel.
    pub(super) fn known(&self, dir: DirectoryId, attributes: &Attributes) -> Known {
        let Some(watches) = &self.watches else {
            return Known::Unwatched;
        };
        if !watches.stripes.has(dir) {
            return Known::Unwatched;
        }
        let state = watches.state();
        let watched = (state.ids.get(&dir)).and_then(|id| state.directories.peek(*id));
        match watched {
            Some(watched) if watched.watch.is_some() => {
                let told = watched.told.filter(|told| {
                    told.is_kept
                        && told.sequence == watched.sequence
                        && told.facts == Facts::of(attributes)
                });
                told.map_or(Known::Watched, |told| Known::Kept(told.value))
            }
            Some(_) | None => Known::Unwatched,
        }
    }

    /// Returns the state of a directory as far as events were read, before a look at it; `None` if it is not watched. If there are others
    /// in the queue, [`after_look`](Self::after_look) returns nothing.
    pub(super) fn before_quick_look(&self, dir: DirectoryId) -> Option<BeforeLook> {
        let watches = self.watches.as_ref()?;
        if !watches.stripes.has(dir) {
            return None;
        }
        let mut state = watches.state();
        let (id, watched) = state.live(dir)?;
        let sequence = watched.sequence;
        Some(BeforeLook { id, sequence })
    }

    /// Returns the state of a directory before a look at it; `None` if it is not watched.
    pub(super) fn before_look(&self, dir: DirectoryId) -> Option<BeforeLook> {
        let mut state = self.watches.as_ref()?.state();
        state.read_events();
        let (id, watched) = state.live(dir)?;
        let sequence = watched.sequence;
        Some(BeforeLook { id, sequence })
    }

    /// Returns the value of the state that was looked at since: the one that it has, or the one that is made of its number. `None` if
    /// the directory changed meanwhile. With `is_over` no later change has this ctime.
    pub(super) fn after_look(
        &self,
        before: BeforeLook,
        attributes: &Attributes,
        is_over: bool,
        value_of: impl FnOnce(Number) -> u64,
    ) -> Option<u64> {
        let mut state = self.watches.as_ref()?.state();
        state.read_events();
        let watched = state.directories.get(before.id)?;
        let is_same = watched.watch.is_some() && watched.sequence == before.sequence;
        // A client's change that is in flight may hold the lock for long after it set the ctime.
        let settles = watched.window.is_none();
        is_same.then(|| watched.tell(attributes, (is_over && settles, settles), value_of))
    }

    /// Reads events, so that changes that were late are seen though nobody looks.
    pub(super) fn end_round(&self) {
        if let Some(watches) = &self.watches
            && watches.any.load(Relaxed)
        {
            let mut state = watches.state();
            state.read_events();
            let lost = state.lost.take();
            watches.note_activity(&state);
            drop(state);
            // Closing it waits for those who look for its watches.
            drop(lost);
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        if let Some(watches) = &self.watches {
            watches.state().end_of_export(self.export);
        }
    }
}

/// Knowledge of a directory without a call of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Unwatched,
    /// It is watched, and the queue has to be read.
    Watched,
    /// It has this value.
    Kept(u64),
}

/// Relation of a directory to watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unknown,
    Watched,
    Rests,
}

/// State of a directory before a look.
#[derive(Clone, Copy)]
pub(super) struct BeforeLook {
    id: u64,
    sequence: u64,
}

/// Groups of directories with watches.
struct Stripes(Box<[AtomicU32]>);

impl Stripes {
    fn new() -> Self {
        let none = std::iter::repeat_with(AtomicU32::default);
        Self(none.take(STRIPES).collect())
    }

    fn of(&self, dir: DirectoryId) -> &AtomicU32 {
        &self.0[stripe(dir.ino, self.0.len())]
    }

    /// Whether a directory may be watched.
    fn has(&self, dir: DirectoryId) -> bool {
        self.of(dir).load(Relaxed) > 0
    }
}

/// Watches of all exports.
struct Watches {
    state: Mutex<State>,
    /// Held while a watch begins.
    beginning: Mutex<()>,
    /// Whether there is something to do at the end of a round.
    any: AtomicBool,
    stripes: Arc<Stripes>,
    /// Exports so far.
    exports: AtomicU64,
}

impl Watches {
    fn of_this_process() -> Arc<Self> {
        fn get_or_make(known: &Mutex<Weak<Watches>>) -> Arc<Watches> {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.upgrade().unwrap_or_else(|| {
                let made = Arc::new(Watches::new(Inotify::open));
                *known = Arc::downgrade(&made);
                made
            })
        }
        #[cfg(not(test))]
        return get_or_make(&OF_THIS_PROCESS);
        #[cfg(test)]
        OF_THIS_PROCESS.with(get_or_make)
    }

    fn new(open: impl Fn() -> Result<Arc<dyn Source>, Errno> + Send + 'static) -> Self {
        let stripes = Arc::new(Stripes::new());
        Self {
            state: Mutex::new(State {
                open: Box::new(open),
                source: None,
                lost: None,
                asked_again: None,
                buffer: Box::default(),
                directories: Lru::new(MAX_WATCHES),
                ids: HashMap::default(),
                by_watch: HashMap::default(),
                next_id: 0,
                noisy: Vec::new(),
                strays: 0,
                stripes: Arc::clone(&stripes),
                is_reported: false,
            }),
            beginning: Mutex::new(()),
            stripes,
            any: AtomicBool::new(false),
            exports: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_activity(&self, state: &State) {
        let any = !state.by_watch.is_empty() || state.lost.is_some();
        self.any.store(any, Relaxed);
    }

    /// As [`Witness::watch`], without the lock of the state while the kernel is asked.
    fn watch(
        &self,
        dir: DirectoryId,
        (export, in_flight): (u64, &Arc<InFlight>),
        fd: BorrowedFd<'_>,
    ) -> Option<bool> {
        let _one = match self.beginning.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut state = self.state();
        match state.standing(dir) {
            Standing::Unknown => {}
            Standing::Watched => return Some(false),
            Standing::Rests => return None,
        }
        let source = Arc::clone(state.open_source()?);
        let strays = state.strays;
        drop(state);
        let watch = source.watch(fd);
        let mut state = self.state();
        let is_current = (state.source.as_ref()).is_some_and(|now| Arc::ptr_eq(now, &source));
        if !is_current {
            // It may be the last use of one that lost events, and closing that waits.
            state.lost.get_or_insert(source);
            return None;
        }
        // It may have ended already, if the directory was removed.
        if let Ok(watch) = watch
            && state.strays != strays
        {
            source.unwatch(watch);
            return None;
        }
        let watched = Watched {
            dir,
            export,
            in_flight: Arc::clone(in_flight),
            watch: watch.ok(),
            rests_until: Instant::now() + REST,
            sequence: 0,
            foreign: 0,
            attributes: 0,
            window: None,
            told: None,
        };
        state.insert(watched, watch)
    }
}

struct State {
    open: Box<dyn Fn() -> Result<Arc<dyn Source>, Errno> + Send>,
    source: Option<Arc<dyn Source>>,
    /// One that lost events. There is no other one until it is closed.
    lost: Option<Arc<dyn Source>>,
    /// Time at which the kernel may be asked again, after it had no room.
    asked_again: Option<Instant>,
    buffer: Box<[u8]>,
    /// By their numbers.
    directories: Lru<Watched>,
    ids: HashMap<DirectoryId, u64>,
    by_watch: HashMap<i32, u64>,
    next_id: u64,
    /// Directories that changed too often, whose watches are to end.
    noisy: Vec<u64>,
    /// Watches that ended and were not known.
    strays: u64,
    stripes: Arc<Stripes>,
    /// Whether it was logged that the kernel refuses.
    is_reported: bool,
}

impl State {
    fn standing(&self, dir: DirectoryId) -> Standing {
        let known = self.ids.get(&dir).copied();
        match known.and_then(|id| self.directories.peek(id)) {
            Some(Watched { watch: Some(_), .. }) => Standing::Watched,
            Some(resting) if Instant::now() < resting.rests_until => Standing::Rests,
            Some(_) | None => Standing::Unknown,
        }
    }

    /// Adds a directory that was to be watched. Returns `Some(true)` if it is.
    fn insert(&mut self, watched: Watched, watch: Result<i32, Errno>) -> Option<bool> {
        if let Some(&id) = self.ids.get(&watched.dir) {
            self.forget(id);
        }
        if let Err(errno) = watch {
            self.report(errno);
            if errno == Errno::NOSPC {
                self.asked_again = Some(Instant::now() + REST);
            }
            // It takes no place of another one.
            if self.directories.len() >= MAX_WATCHES {
                return None;
            }
        }
        let watch = watch.ok();
        // Another number for the same directory: one of them is wrong.
        if let Some(other) = watch.and_then(|watch| self.by_watch.get(&watch).copied()) {
            self.forget(other);
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        let dir = watched.dir;
        let gone = self.directories.insert(id, watched);
        self.ids.insert(dir, id);
        if let Some(gone) = gone {
            self.unwatch(&gone);
        }
        self.by_watch.insert(watch?, id);
        self.stripes.of(dir).fetch_add(1, Relaxed);
        Some(true)
    }

    /// Whether the kernel may have room for one more watch.
    fn may_ask(&self) -> bool {
        let waits = |again| Instant::now() < again;
        self.lost.is_none() && !self.asked_again.is_some_and(waits)
    }

    fn open_source(&mut self) -> Option<&Arc<dyn Source>> {
        if !self.may_ask() {
            return None;
        }
        if self.source.is_none() {
            match (self.open)() {
                Ok(source) => {
                    self.source = Some(source);
                    self.buffer = vec![0; EVENTS_BUFFER].into();
                }
                Err(errno) => {
                    self.asked_again = Some(Instant::now() + REST);
                    self.report(errno);
                }
            }
        }
        self.source.as_ref()
    }

    fn report(&mut self, errno: Errno) {
        if !self.is_reported {
            self.is_reported = true;
            tracing::info!(
                error = %std::io::Error::from(errno),
                "cannot watch directories for changes by local programs (inotify): clients look names up again after each change"
            );
        }
    }

    /// Returns a directory that is watched.
    fn live(&mut self, dir: DirectoryId) -> Option<(u64, &mut Watched)> {
        let id = *self.ids.get(&dir)?;
        let watched = self.directories.get(id)?;
        watched.watch.is_some().then_some((id, watched))
    }

    /// Reads all events that are queued.
    fn read_events(&mut self) {
        let Some(source) = self.source.clone() else {
            return;
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut lost = true;
        for _ in 0..MAX_READINGS {
            match source.read(&mut buffer) {
                Ok(len) => {
                    let events = &buffer[..len.min(EVENTS_BUFFER)];
                    if !self.note_all(events) {
                        break;
                    }
                    lost = buffer.len() - events.len() < MAX_EVENT;
                }
                Err(errno) => lost = errno != Errno::AGAIN,
            }
            if !lost {
                break;
            }
        }
        self.buffer = buffer;
        for id in std::mem::take(&mut self.noisy) {
            self.rest(id);
        }
        if lost {
            self.start_over();
        }
    }

    /// Notes events as the kernel wrote them; returns whether these are all, and were understood.
    fn note_all(&mut self, mut events: &[u8]) -> bool {
        while !events.is_empty() {
            let Some((event, rest)) = events.split_first_chunk::<EVENT>() else {
                return false;
            };
            let word = |at: usize| [0, 1, 2, 3].map(|byte| event[at + byte]);
            let len = usize::try_from(u32::from_ne_bytes(word(12))).unwrap_or(usize::MAX);
            let Some((name, rest)) = rest.split_at_checked(len) else {
                return false;
            };
            let what = ReadFlags::from_bits_retain(u32::from_ne_bytes(word(4)));
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                return false;
            }
            self.note(i32::from_ne_bytes(word(0)), what, !name.is_empty());
            events = rest;
        }
        true
    }

    fn note(&mut self, watch: i32, events: ReadFlags, has_name: bool) {
        let ends = events.contains(ReadFlags::IGNORED);
        // Events of a watch that has ended may follow it.
        let Some(&id) = self.by_watch.get(&watch) else {
            self.strays += u64::from(ends);
            return;
        };
        if ends {
            self.forget(id);
            return;
        }
        let Some(watched) = self.directories.peek_mut(id) else {
            return;
        };
        // Attributes of a file in the directory.
        if events.contains(ReadFlags::ATTRIB) && has_name {
            watched.attributes = watched.attributes.saturating_add(1);
        } else {
            watched.note(Kind::of(events));
        }
        if watched.foreign > MAX_FOREIGN || watched.attributes > MAX_ATTRIBUTES {
            self.noisy.push(id);
        }
    }

    /// Events were lost, and with them maybe ends of watches: forgets all.
    fn start_over(&mut self) {
        self.lost = self.source.take();
        let all: Vec<u64> = self.by_watch.values().copied().collect();
        for id in all {
            let watched = self.directories.peek(id);
            match watched.is_some_and(|watched| watched.foreign + watched.attributes > MANY) {
                true => self.rest(id),
                false => self.forget(id),
            }
        }
    }

    /// Ends the watch of a directory for some time.
    fn rest(&mut self, id: u64) {
        let Some(watched) = self.directories.peek_mut(id) else {
            return;
        };
        let Some(watch) = watched.watch.take() else {
            return;
        };
        watched.rests_until = Instant::now() + REST;
        watched.told = None;
        // What is told of it from now on is told apart from what was told.
        watched.raise();
        let dir = watched.dir;
        self.end_watch(watch, dir);
    }

    fn end_watch(&mut self, watch: i32, dir: DirectoryId) {
        self.by_watch.remove(&watch);
        self.stripes.of(dir).fetch_sub(1, Relaxed);
        if let Some(source) = &self.source {
            source.unwatch(watch);
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(gone) = self.directories.remove(id) {
            self.unwatch(&gone);
        }
    }

    /// Ends the watch of a directory that is no longer among these.
    fn unwatch(&mut self, gone: &Watched) {
        self.ids.remove(&gone.dir);
        if let Some(watch) = gone.watch {
            gone.in_flight.raise_seen(gone.dir.ino);
            self.end_watch(watch, gone.dir);
        }
    }

    fn end_of_export(&mut self, export: u64) {
        let is_of_it = |id: &u64| {
            let watched = self.directories.peek(*id);
            watched.is_some_and(|watched| watched.export == export)
        };
        let all: Vec<u64> = self.directories.keys().filter(is_of_it).collect();
        for id in all {
            self.forget(id);
        }
    }
}

#[cfg(test)]
pub(in crate::localfs) use tests::Model;

#[cfg(test)]
mod tests;
