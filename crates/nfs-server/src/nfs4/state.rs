//! The state of all clients, shared by the connections: a lock around a [`Server`], and hands that do what it demands.
//!
//! Nothing waits while the lock is held. A thread makes the records of clients, ends leases and closes files for which
//! a CLOSE might wait (`worker.rs`); a task of the program calls clients (`callbacks.rs`). Locks of byte ranges are taken and released under the lock, in the table and on the
//! file together (`files.rs`).

mod administration;
mod error;
mod events;
mod file_key;
mod files;
mod local_waits;
mod locked;
mod principal;
#[cfg(test)]
mod tests;
mod worker;

pub use administration::Nfs4Status;
pub use error::Nfs4StateError;
pub(super) use file_key::FileKey;
pub(super) use locked::Locked;
pub(super) use principal::Principal;
#[cfg(test)]
pub(super) use tests::{Disk, Peer, World};

use super::callbacks::{Callback, Queue};
use super::records::{Change, Records};
use crate::fs::{Outcome, Then};
use crate::{MAX_READ, MAX_WRITE};
use bytes::Bytes;
use files::{Files, Release};
use foldhash::HashMap;
use local_waits::LocalWaits;
use locked::SystemRandom;
use nfs_proto::v4::{ClientId, SessionId, SlotId, Status};
use nfs4_state::limits::Limits;
use nfs4_state::{ChannelLimits, Completed, Config, Event, Request, Server, Ticket, Usage};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::Worker;

/// Bytes of a request or reply beside the data of a WRITE or READ. Linux counts on fewer.
const BESIDE_DATA: u32 = 4096;

/// Bytes of a reply that is kept for a retry: several times what Linux has kept, which is 600 at most. All slots together may keep so
/// much each.
const MAX_KEPT: u32 = 2560;

/// Files that whoever releases them closes, if that waits for nothing: as many as an open has. More are left to the thread.
const CLOSED_AT_ONCE: usize = 2;

/// Settings of the state of clients.
#[derive(Clone, Debug)]
pub struct Nfs4Settings {
    /// Time in which a client has to renew its lease.
    pub lease: Duration,
    /// Time for clients to reclaim what they had before a restart. It is at least the longest lease that one of them may have
    /// (RFC 8881 §8.4.2.1), and ends when all have said that they are done.
    pub grace: Duration,
    /// Time for which state stays after the lease ran out, if it is in nobody's way.
    pub courtesy: Duration,
    /// Directory of persistent state: the records of clients are in `nfs4` below it. Without it they are in memory: after a restart no
    /// client can reclaim what it had, and there is no grace period.
    pub state_dir: Option<PathBuf>,
    /// Limits for all clients together.
    pub limits: Limits,
    /// Limits of requests.
    pub fore: ChannelLimits,
    /// Limits of callbacks.
    pub back: ChannelLimits,
}

impl Default for Nfs4Settings {
    fn default() -> Self {
        let lease = Duration::from_secs(90);
        Self {
            lease,
            grace: lease,
            courtesy: Duration::from_secs(24 * 3600),
            state_dir: None,
            limits: Limits::default(),
            fore: ChannelLimits {
                max_request: MAX_WRITE + BESIDE_DATA,
                max_response: MAX_READ + BESIDE_DATA,
                max_response_cached: MAX_KEPT,
                max_operations: 64,
                max_requests: 128,
                min_message: 256,
            },
            back: ChannelLimits {
                max_request: 64 << 10,
                max_response: 64 << 10,
                max_response_cached: MAX_KEPT,
                max_operations: 16,
                max_requests: 64,
                min_message: 256,
            },
        }
    }
}

/// State of NFSv4 clients. Clones share it; with the last one the thread ends that makes records, ends leases and closes files.
#[derive(Clone)]
pub struct Nfs4State(Arc<Owner>);

/// Work of the thread of an [`Nfs4State`], for a caller that [does it by itself](Nfs4State::with_clock).
pub struct Nfs4Upkeep(Worker);

impl Nfs4Upkeep {
    /// Does all that is due now: makes records of clients, ends leases, and closes files.
    pub fn run(&mut self) {
        while self.0.step() {}
    }
}

impl Drop for Nfs4Upkeep {
    /// Requests that wait for the work fail: they hold the state, which holds them.
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl std::fmt::Debug for Nfs4Upkeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nfs4Upkeep").finish_non_exhaustive()
    }
}

/// Ends the thread.
struct Owner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State of clients with all that waits for it.
pub(super) struct Shared {
    inner: Mutex<Inner>,
    /// Signalled when there is work for the thread.
    work: Condvar,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
    identity: [u8; 16],
    lease: Duration,
    limits: Limits,
}

/// Everything under the lock.
struct Inner {
    server: Server<Principal, FileKey>,
    random: SystemRandom,
    files: Files,
    local_waits: LocalWaits,
    out: Outbox,
    /// Retries of requests that are being executed.
    retries: HashMap<(SessionId, SlotId), Box<dyn FnOnce() + Send>>,
    /// Withheld answers to RECLAIM_COMPLETE.
    answers: HashMap<Ticket, Arc<Answer>>,
    /// The time until which the thread sleeps; `None` while it works.
    sleep: Option<Sleep>,
    is_ending: bool,
}

/// Work that is done without the lock.
#[derive(Default)]
struct Outbox {
    /// Changes of records, in their order. A change without a ticket is nobody's.
    changes: VecDeque<(Option<Ticket>, Change)>,
    /// The disk of the records fails: changes wait until it is tried again.
    is_failing: bool,
    /// Files to close.
    released: Vec<Release>,
    /// Calls to clients.
    calls: Queue,
    /// Events for the log.
    events: VecDeque<Event>,
}

#[derive(Clone, Copy)]
struct Sleep {
    until: Option<Instant>,
}

/// An answer that comes later, to whoever asks for it then.
#[derive(Default)]
struct Answer(Mutex<Waiting>);

#[derive(Default)]
enum Waiting {
    #[default]
    Nobody,
    Result(Result<(), Status>),
    Then(Then<Result<(), Status>>),
}

impl Nfs4State {
    /// Reads the records, and starts the thread that makes records, ends leases and closes files.
    ///
    /// # Errors
    ///
    /// The state directory cannot be used or is damaged, or the system lacks something.
    pub fn open(settings: Nfs4Settings) -> Result<Self, Nfs4StateError> {
        let (shared, mut worker) = open(settings, Box::new(Instant::now))?;
        let thread = std::thread::Builder::new().name("nfs4-state".into());
        let thread = thread.spawn(move || worker.run());
        Ok(Self(Arc::new(Owner {
            shared,
            thread: Some(thread.map_err(Nfs4StateError::Thread)?),
        })))
    }

    /// Reads the records for a caller that owns the clock, and does the work of the thread by itself: simulations and tests.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn with_clock(
        settings: Nfs4Settings,
        clock: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> Result<(Self, Nfs4Upkeep), Nfs4StateError> {
        let (shared, worker) = open(settings, Box::new(clock))?;
        let owner = Owner {
            shared,
            thread: None,
        };
        Ok((Self(Arc::new(owner)), Nfs4Upkeep(worker)))
    }

    /// Runs `work` with the state locked, then carries out what it demands. `work` must not wait.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        self.0.shared.with(work)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Executes RECLAIM_COMPLETE (RFC 8881 §18.51). The result comes when the client stands on stable storage.
    pub(super) fn reclaim_complete(
        &self,
        client: ClientId,
        one_fs: bool,
    ) -> Outcome<Result<(), Status>> {
        let answer = self.with(
            |locked| match locked.server.reclaim_complete(client, one_fs)? {
                Completed::Done => Ok(None),
                Completed::AfterRecord(ticket) => {
                    let answer = Arc::new(Answer::default());
                    locked.answers.insert(ticket, Arc::clone(&answer));
                    Ok(Some(answer))
                }
            },
        );
        match answer {
            Ok(None) => Outcome::Ready(Ok(())),
            Ok(Some(answer)) => Outcome::Deferred(Box::new(move |then| answer.ask(then))),
            Err(status) => Outcome::Ready(Err(status)),
        }
    }

    /// Ends a request, keeps its reply for a retry, and lets a retry that waits for it go on.
    pub(super) fn finish(&self, request: Request, reply: Option<Bytes>) {
        let retry = self.with(|locked| {
            let result = *request.result();
            locked.server.finish(locked.now, request, reply);
            // Nearly always there are none, and nothing has to be hashed.
            match locked.retries.is_empty() {
                true => None,
                false => locked.retries.remove(&(result.session, result.slot)),
            }
        });
        if let Some(retry) = retry {
            retry();
        }
    }

    /// Calls `then` once the request in a slot is finished or its session is gone; at once if it is not being executed. One waits for a
    /// slot: if another comes, the one before is dropped without being called, as its connection is dead (RFC 8881 §2.10.6.2).
    pub(super) fn when_finished(
        &self,
        session: SessionId,
        slot: SlotId,
        then: Box<dyn FnOnce() + Send>,
    ) {
        let (now, dropped) =
            self.with(|locked| match locked.server.is_in_progress(session, slot) {
                true => (None, locked.retries.insert((session, slot), then)),
                false => (Some(then), None),
            });
        drop(dropped);
        if let Some(then) = now {
            then();
        }
    }

    /// Notes that a connection is gone.
    pub(super) fn connection_ended(&self, connection: oncrpc::ConnectionId) {
        self.with(|locked| (locked.server).handle_disconnect(connection_key(connection)));
    }

    /// Checks once, by CB_NULL, that the client of a session can be called (RFC 8881 §19.1.3). It takes no slot, so that nothing is
    /// lost where a client does not answer; the log tells of a failure.
    pub(super) fn check_backchannel(&self, client: ClientId, session: SessionId) {
        self.with(|locked| locked.out.calls.push(client, Callback::Null { session }));
    }

    /// Returns 16 random octets that name the server, as its owner and scope (RFC 8881 §2.5): made once, and kept in the state
    /// directory.
    pub(super) fn identity(&self) -> &[u8; 16] {
        &self.0.shared.identity
    }

    /// Returns the lease of clients.
    pub fn lease(&self) -> Duration {
        self.0.shared.lease
    }

    /// Returns how much there is.
    pub fn usage(&self) -> Usage {
        self.with(|locked| locked.server.usage())
    }

    /// Returns whether new opens and locks are refused, as clients reclaim theirs.
    pub fn is_in_grace(&self) -> bool {
        self.with(|locked| locked.server.is_in_grace())
    }

    /// Ends the grace period. Clients that have not reclaimed lose what they had.
    pub fn end_grace(&self) {
        self.with(|locked| locked.server.end_grace());
    }

    /// Ends a client with all its state.
    ///
    /// # Errors
    ///
    /// `StaleClientId`: there is no such client.
    pub fn expire_client(&self, client: ClientId) -> Result<(), Status> {
        self.with(|locked| locked.server.expire_client(locked.now, client))
    }
}

impl std::fmt::Debug for Nfs4State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Nfs4State").field(&self.usage()).finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let waker = {
            let mut inner = self.shared.lock();
            inner.is_ending = true;
            inner.out.calls.take_waker()
        };
        self.shared.work.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
        // A continuation that the thread called may have had the last clone.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // It catches panics of others and has none of its own; at the end of a server none would matter.
            let _ = thread.join();
        }
    }
}

/// Opens the state and what the thread needs for its work.
fn open(
    settings: Nfs4Settings,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
) -> Result<(Arc<Shared>, Worker), Nfs4StateError> {
    if settings.lease.is_zero() {
        return Err(Nfs4StateError::NoLease);
    }
    let records = Records::open(settings.state_dir.as_deref(), settings.lease)?;
    Ok(over(settings, records, clock))
}

/// Makes the state over records that were read.
fn over(
    settings: Nfs4Settings,
    records: Records,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
) -> (Arc<Shared>, Worker) {
    let config = Config {
        lease: settings.lease,
        courtesy: settings.courtesy,
        grace: settings.grace.max(records.lease()),
        limits: settings.limits,
        fore: settings.fore,
        back: settings.back,
    };
    let shared = Arc::new(Shared {
        inner: Mutex::new(Inner {
            server: Server::new(clock(), config, records.clients()),
            random: SystemRandom::default(),
            files: Files::default(),
            local_waits: LocalWaits::default(),
            out: Outbox::default(),
            retries: HashMap::default(),
            answers: HashMap::default(),
            sleep: None,
            is_ending: false,
        }),
        work: Condvar::new(),
        clock,
        identity: records.identity(),
        lease: settings.lease,
        limits: settings.limits,
    });
    let worker = Worker::new(Arc::clone(&shared), records);
    (shared, worker)
}

/// The number by which the state knows a connection.
pub(super) fn connection_key(connection: oncrpc::ConnectionId) -> nfs4_state::ConnectionId {
    nfs4_state::ConnectionId(connection.number())
}

impl Shared {
    /// Runs `work` with the state locked, then carries out what it demands.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        let mut inner = self.lock();
        let now = (self.clock)();
        let destroyed = inner.server.sessions_destroyed();
        let mut locked = inner.locked(now);
        let result = work(&mut locked);
        locked.carry_out();
        let retries = match inner.server.sessions_destroyed() == destroyed {
            true => None,
            false => Some(inner.retries_without_session()),
        };
        let few = inner.out.take_few_released();
        let must_work = inner.must_work();
        let waker = inner.out.calls.waker_if_needed();
        drop(inner);
        let must_close = !few.is_empty() && self.leave_to_thread(few);
        if must_work || must_close {
            self.work.notify_one();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(retries) = retries {
            retries.into_iter().for_each(|retry| retry());
        }
        result
    }

    /// Closes files, and leaves those to the thread that may have to wait for a disk. Returns whether it is to be woken for them.
    fn leave_to_thread(&self, mut released: SmallVec<[Release; CLOSED_AT_ONCE]>) -> bool {
        released.retain(|file| !file.end_at_once());
        if released.is_empty() {
            return false;
        }
        let mut inner = self.lock();
        inner.out.released.extend(released);
        inner.must_work()
    }

    /// Registers the task that calls clients. Returns whether it is to end.
    pub(super) fn register(&self, waker: &Waker) -> bool {
        let mut inner = self.lock();
        inner.out.calls.register(waker);
        inner.is_ending
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn locked(&mut self, now: Instant) -> Locked<'_> {
        Locked {
            server: &mut self.server,
            now,
            random: &mut self.random,
            files: &mut self.files,
            local_waits: &mut self.local_waits,
            out: &mut self.out,
            retries: &mut self.retries,
            answers: &mut self.answers,
        }
    }

    /// Takes the retries of requests whose sessions are gone. They go on, and find that out.
    fn retries_without_session(&mut self) -> Vec<Box<dyn FnOnce() + Send>> {
        let server = &self.server;
        let gone = |&(session, slot): &(_, _), _: &mut _| !server.is_in_progress(session, slot);
        self.retries
            .extract_if(gone)
            .map(|(_, retry)| retry)
            .collect()
    }

    /// Returns whether the thread is to be woken.
    fn must_work(&self) -> bool {
        self.sleep.is_some_and(|sleep| self.has_work(sleep))
    }

    /// Returns whether there is something to do for the thread before it would wake up.
    fn has_work(&self, sleep: Sleep) -> bool {
        let is_earlier = |due| sleep.until.is_none_or(|until| due < until);
        self.is_ending || self.out.has_work() || self.due().is_some_and(is_earlier)
    }

    /// Returns the time at which there is something to do for the thread, whatever happens.
    fn due(&self) -> Option<Instant> {
        let timers = [self.server.poll_timeout(), self.local_waits.due()];
        timers.into_iter().flatten().min()
    }
}

impl Outbox {
    /// Takes the files that are to be closed, if they are few.
    fn take_few_released(&mut self) -> SmallVec<[Release; CLOSED_AT_ONCE]> {
        match self.released.len() {
            1..=CLOSED_AT_ONCE => self.released.drain(..).collect(),
            _ => SmallVec::new(),
        }
    }

    fn has_work(&self) -> bool {
        !self.released.is_empty()
            || !self.events.is_empty()
            || (!self.changes.is_empty() && !self.is_failing)
    }
}

impl Answer {
    /// Passes the result to `then`, now or when it is there.
    fn ask(&self, then: Then<Result<(), Status>>) {
        let mut waiting = self.lock();
        match std::mem::take(&mut *waiting) {
            Waiting::Result(result) => {
                drop(waiting);
                then(result);
            }
            Waiting::Nobody | Waiting::Then(_) => *waiting = Waiting::Then(then),
        }
    }

    /// Has the result.
    fn give(&self, result: Result<(), Status>) {
        let mut waiting = self.lock();
        match std::mem::replace(&mut *waiting, Waiting::Result(result)) {
            Waiting::Then(then) => {
                drop(waiting);
                then(result);
            }
            Waiting::Nobody | Waiting::Result(_) => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
