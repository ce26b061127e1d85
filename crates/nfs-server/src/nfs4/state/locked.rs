//! The state of clients while it is locked.

use super::files::{self, Files, Release};
use super::local_waits::{LocalWaits, Wait};
use super::{Answer, FileKey, Outbox, Principal};
use crate::fs::{Error, HeldFile, LocalLock, LockFile};
use crate::nfs4::callbacks::{Callback, Queue};
use crate::nfs4::records::Change;
use foldhash::HashMap;
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::{ClientId, SessionId, SlotId, StateId, Status};
use nfs4_state::lock::{LockKind, Range};
use nfs4_state::{Demand, LockError, LockRequest, Locker, OpenRequest, Random, Server, Ticket};
use std::sync::Arc;
use std::time::Instant;

/// Bytes that the system is asked for at once: those of the state ids of 32 opens.
const RANDOM_BYTES: usize = 256;

/// Random numbers of the system.
pub(in crate::nfs4) struct SystemRandom {
    bytes: [u8; RANDOM_BYTES],
    /// Number of those, from the beginning, that were not given out.
    left: usize,
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self {
            bytes: [0; RANDOM_BYTES],
            left: 0,
        }
    }
}

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(RANDOM_BYTES) {
            if self.left < part.len() {
                getrandom::fill(&mut self.bytes)
                    .expect("the system had random numbers when the server started");
                self.left = RANDOM_BYTES;
            }
            let rest = self.left - part.len();
            let given = &mut self.bytes[rest..self.left];
            part.copy_from_slice(given);
            // They are nowhere but where they are used.
            given.fill(0);
            self.left = rest;
        }
    }
}

/// The state of clients while it is locked. Nothing may wait meanwhile.
///
/// OPEN, LOCK, LOCKU and LOCKT go through the methods here, which keep files and their locks together with the state; everything
/// else goes to the `server`.
pub(in crate::nfs4) struct Locked<'a> {
    pub(in crate::nfs4) server: &'a mut Server<Principal, FileKey>,
    pub(in crate::nfs4) now: Instant,
    pub(in crate::nfs4) random: &'a mut SystemRandom,
    pub(super) files: &'a mut Files,
    pub(super) local_waits: &'a mut LocalWaits,
    pub(super) out: &'a mut Outbox,
    pub(super) retries: &'a mut HashMap<(SessionId, SlotId), Box<dyn FnOnce() + Send>>,
    pub(super) answers: &'a mut HashMap<Ticket, Arc<Answer>>,
}

impl Locked<'_> {
    /// Opens a file. On success it is held until the state ends. Otherwise the thread closes it.
    ///
    /// # Errors
    ///
    /// Those of [`Server::open`].
    pub(in crate::nfs4) fn open(
        &mut self,
        request: &OpenRequest<'_, FileKey>,
        held: Arc<dyn HeldFile>,
    ) -> Result<StateId, Status> {
        let opened = self.server.open(self.now, self.random, request);
        let released = &mut self.out.released;
        match opened {
            Ok(state) => self.files.opened(state, request.access, held, released),
            Err(_) => released.push(Release::Held(held)),
        }
        opened
    }

    /// Returns the file that is held for an open, or for the open of a lock owner.
    pub(in crate::nfs4) fn held(&self, state: StateId) -> Option<Arc<dyn HeldFile>> {
        self.files.held(state)
    }

    /// Returns whether a LOCK needs a file for its owner: the owner has locked nothing of this file so far.
    pub(in crate::nfs4) fn needs_lock_file(
        &self,
        client: ClientId,
        file: &FileKey,
        locker: Locker<'_>,
    ) -> bool {
        matches!(locker, Locker::New { .. })
            && self.files.of_locker(client, *file, locker).is_none()
    }

    /// Locks bytes, in the table and on the file or in neither. The new file is used if the owner has none.
    ///
    /// # Errors
    ///
    /// Those of [`Server::lock`]. A lock of a local program that is in the way is `Denied` to an owner without a name. A client that waits for it is
    /// called when it is gone, and nobody waits behind that client meanwhile. `Delay` also if a file is needed and there is none, as the owner's other locks have just gone.
    pub(in crate::nfs4) fn lock(
        &mut self,
        request: &LockRequest<'_, FileKey>,
        new_file: Option<Arc<dyn LockFile>>,
    ) -> Result<StateId, LockError> {
        // Files may still be locked for states that are gone.
        self.carry_out();
        let known = self
            .files
            .of_locker(request.client, *request.file, request.locker);
        let is_known = known.is_some();
        let file = known.cloned().or_else(|| new_file.clone());
        let mut is_local = false;
        let permit = |_| {
            let file = file.as_deref().ok_or(Status::Delay)?;
            let mode = files::mode(LockKind::from(request.kind));
            let answer = in_the_way(file.lock(files::bytes(request.range), mode));
            is_local = matches!(answer, Err(LockError::Denied(_)));
            answer
        };
        let locked = (self.server).lock_if(self.now, self.random, request, permit);
        if let Some(file) = file {
            match locked {
                Ok(state) => {
                    self.has_locked(request);
                    self.files.locked(state, request, file);
                }
                Err(_) if is_local => self.wait_for_local(request, file),
                Err(_) => self.out.released.push(Release::Lock(file)),
            }
        }
        if is_known || locked.is_err() {
            self.out.released.extend(new_file.map(Release::Lock));
        }
        locked
    }

    /// Notes that an owner waits for no local program any more.
    fn has_locked(&mut self, request: &LockRequest<'_, FileKey>) {
        if let Some((_, owner)) = self.files.locker(request.locker) {
            let LockRequest {
                client,
                file,
                range,
                ..
            } = *request;
            let released = &mut self.out.released;
            (self.local_waits).forget(client, file, owner, range, released);
        }
    }

    /// Notes that an owner waits for a local program, if it does.
    fn wait_for_local(&mut self, request: &LockRequest<'_, FileKey>, file: Arc<dyn LockFile>) {
        let waits = matches!(request.kind, LockType::ReadWait | LockType::WriteWait);
        let released = &mut self.out.released;
        match self.files.locker(request.locker) {
            Some((open, owner)) if waits && !request.reclaims => {
                let wait = Wait {
                    client: request.client,
                    owner: owner.into(),
                    open,
                    key: *request.file,
                    range: request.range,
                    kind: request.kind.into(),
                    file,
                    asked: self.now,
                };
                self.local_waits.enter(wait, released);
            }
            _ => released.push(Release::Lock(file)),
        }
    }

    /// Has clients called that wait for locks of local programs which are gone.
    pub(super) fn look_for_local_locks(&mut self) {
        let Outbox {
            calls, released, ..
        } = &mut *self.out;
        self.local_waits.look(self.now, calls, released);
    }

    /// Unlocks bytes, in the table and on the file.
    ///
    /// # Errors
    ///
    /// Those of [`Server::unlock`].
    pub(in crate::nfs4) fn unlock(
        &mut self,
        client: ClientId,
        file: &FileKey,
        locks: StateId,
        range: Range,
    ) -> Result<StateId, Status> {
        let state = self.server.unlock(self.now, client, file, locks, range)?;
        if let Some(file) = self.files.of_state(locks) {
            file.unlock(files::bytes(range));
        }
        Ok(state)
    }

    /// Tests whether a lock is in the way, in the table or, by the owner's own file or else by `file`, of a local program.
    ///
    /// # Errors
    ///
    /// Those of [`Server::test_lock`], and those of the file system.
    pub(in crate::nfs4) fn test_lock(
        &mut self,
        client: ClientId,
        key: &FileKey,
        (range, kind): (Range, LockKind),
        owner: &[u8],
        file: Option<&dyn LockFile>,
    ) -> Result<(), LockError> {
        (self.server).test_lock(self.now, client, key, range, kind, owner)?;
        let own = self.files.of_owner(client, *key, owner);
        match own.map(|own| &**own).or(file) {
            Some(file) => in_the_way(file.test(files::bytes(range), files::mode(kind))),
            None => Ok(()),
        }
    }

    /// Returns the calls that clients are to get.
    pub(in crate::nfs4) fn calls(&mut self) -> &mut Queue {
        &mut self.out.calls
    }

    /// Carries out what the state demands, as far as that is possible at once: locks on files go before anybody hears that they
    /// are free, as calls to clients are taken from the queue by others who have the lock then.
    pub(super) fn carry_out(&mut self) {
        while let Some(event) = self.server.poll_event() {
            self.out.events.push_back(event);
        }
        while let Some(demand) = self.server.poll_demand() {
            match demand {
                Demand::Record(ticket, client) => {
                    let change = Change::Record(client);
                    self.out.changes.push_back((Some(ticket), change));
                }
                Demand::Remove(ticket, owner) => {
                    let change = Change::Remove(owner);
                    self.out.changes.push_back((Some(ticket), change));
                }
                Demand::Release { state, .. } => {
                    let released = &mut self.out.released;
                    self.local_waits.closed(state.other, released);
                    self.files.release(self.server, state, released);
                }
                Demand::NotifyLock {
                    client,
                    owner,
                    file,
                } => {
                    let callback = Callback::NotifyLock { owner, file };
                    self.out.calls.push(client, callback);
                }
                Demand::RecallSlots { client, session } => {
                    let callback = Callback::RecallSlots { session };
                    self.out.calls.push(client, callback);
                }
            }
        }
    }
}

/// The answer of a file system about a lock.
fn in_the_way(answer: Result<Option<LocalLock>, Error>) -> Result<(), LockError> {
    match answer {
        Ok(None) => Ok(()),
        Ok(Some(local)) => Err(LockError::Denied(files::denied_by(local))),
        Err(error) => Err(LockError::Status(status(error))),
    }
}

/// The status of a lock that the file system could not make, among those that LOCK has (RFC 8881 §15.2).
fn status(error: Error) -> Status {
    match error {
        Error::Stale | Error::NotFound => Status::Stale,
        Error::NotSupported => Status::LockNotSupported,
        Error::Access | Error::NotOwner | Error::ReadOnly => Status::OpenMode,
        Error::Invalid | Error::TooLarge => Status::Invalid,
        // No locks or no memory: later there are some.
        Error::Busy | Error::NoSpace | Error::Quota => Status::Delay,
        _ => Status::ServerFault,
    }
}
