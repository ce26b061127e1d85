//! Opens and locks of clients.

use super::Server;
use super::listing::Revoked;
use crate::Random;
use crate::client::{Clients, Stage};
use crate::event::{ClientEnd, Event, Limit};
use crate::lock::{LockKind, Range};
use crate::state::{Denied, LockCall, LockRefusal, Locker, OpenCall, Page, Refusal, special};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::{ClientId, SpecialStateId, StateId, Status};
use std::hash::Hash;
use std::time::Instant;

/// An OPEN of a file that was found.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a, F> {
    /// The client.
    pub client: ClientId,
    /// Name of the open owner.
    pub owner: &'a [u8],
    /// The file.
    pub file: &'a F,
    /// Access. Wishes about a delegation mean nothing here.
    pub access: ShareAccess,
    /// Access that others are denied.
    pub deny: ShareDeny,
    /// Whether the client had the file open before the server's restart: CLAIM_PREVIOUS.
    pub reclaims: bool,
}

/// A LOCK.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a, F> {
    /// The client.
    pub client: ClientId,
    /// The file.
    pub file: &'a F,
    /// The bytes.
    pub range: Range,
    /// The kind, and whether the client waits.
    pub kind: LockType,
    /// The owner.
    pub locker: Locker<'a>,
    /// Whether the client had the lock before the server's restart.
    pub reclaims: bool,
}

/// A failure of LOCK or LOCKT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockError {
    /// A lock is in the way: `NFS4ERR_DENIED`.
    Denied(Denied),
    /// Another error.
    Status(Status),
}

impl From<Status> for LockError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Returns whether the state of a client gives way.
fn yields<P: Clone + Eq>(clients: &Clients<P>) -> impl Fn(ClientId) -> bool {
    move |client| {
        let client = clients.get(client);
        client.is_some_and(|client| matches!(client.stage, Stage::Courtesy | Stage::Leaving))
    }
}

impl<P: Clone + Eq, F: Clone + Eq + Hash> Server<P, F> {
    /// Opens a file, or adds to an open of the same owner (RFC 8881 §18.16).
    ///
    /// # Errors
    ///
    /// - `Invalid`: no access, or unknown bits.
    /// - `Grace`, `NoGrace`: as the grace period has it.
    /// - `ShareDenied`: an open is in the way. For a reclaim it is `ReclaimConflict`.
    /// - `Delay`: state of a client whose lease ran out is in the way, and ends now; or there is too much state. A caller
    ///   that carries out [`Demand::Remove`](crate::Demand::Remove) at once may try again before it answers. Also while what is denied is
    ///   being done with a special state id (RFC 8881 §9.1.2).
    /// - `StaleClientId`: the client is gone.
    pub fn open(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        request: &OpenRequest<'_, F>,
    ) -> Result<StateId, Status> {
        let address = self.check_grace(now, request.client, request.reclaims)?;
        if self.states.is_denied_running(request.file, request.deny) {
            return Err(Status::Delay);
        }
        let call = OpenCall {
            client: request.client,
            address,
            owner: request.owner,
            file: request.file,
            access: request.access,
            deny: request.deny,
        };
        let opened = self.states.open_file(random, call, &yields(&self.clients));
        let opened = self.settle(now, opened);
        opened.map_err(|status| match status {
            Status::ShareDenied if request.reclaims => Status::ReclaimConflict,
            status => status,
        })
    }

    /// Checks that a client may have one more open: before a file is made for it, so that an OPEN which the client has to repeat does
    /// not find the file that it made itself.
    ///
    /// # Errors
    ///
    /// `Delay`: there is too much state. `StaleClientId`: the client is gone.
    pub fn check_room(&mut self, now: Instant, client: ClientId) -> Result<(), Status> {
        let address = self.clients.usable(client)?.address;
        match self.states.has_room(address) {
            true => Ok(()),
            false => {
                self.relieve(now);
                Err(Status::Delay)
            }
        }
    }

    /// Ends clients that are in the way after their leases ran out, and what is over the limits. Both take a moment.
    fn settle<T>(&mut self, now: Instant, result: Result<T, Refusal>) -> Result<T, Status> {
        result.map_err(|refusal| match refusal {
            Refusal::Yields(clients) => self.end_expired(now, clients),
            Refusal::Status(Status::Delay) => {
                self.events.push(Event::LimitReached(Limit::Opens));
                self.relieve(now);
                Status::Delay
            }
            Refusal::Status(status) => status,
        })
    }

    fn end_expired(&mut self, now: Instant, clients: Vec<ClientId>) -> Status {
        for client in clients {
            // Others are leaving.
            if self.clients.usable(client).is_ok() {
                self.leave(now, client, Some(ClientEnd::InTheWay));
            }
        }
        Status::Delay
    }

    /// Takes access and denials from an open (RFC 8881 §18.18).
    ///
    /// # Errors
    ///
    /// - `Invalid`: this is not what some of the OPENs had.
    /// - Those of state ids.
    pub fn downgrade(
        &mut self,
        client: ClientId,
        file: &F,
        open: StateId,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<StateId, Status> {
        self.states.downgrade(client, file, open, access, deny)
    }

    /// Closes an open, and releases the locks in it (RFC 8881 §18.2). Returns the state id of the reply, which is not valid.
    ///
    /// # Errors
    ///
    /// Those of state ids.
    pub fn close(
        &mut self,
        now: Instant,
        client: ClientId,
        file: &F,
        open: StateId,
    ) -> Result<StateId, Status> {
        self.states.close(now, client, file, open)?;
        self.pass_on();
        Ok(SpecialStateId::Invalid.into())
    }

    /// Checks whether a state id allows to read or write a file (RFC 8881 §8.2.5). Returns the open, of which a special
    /// state id has none. The caller puts the current state id in its place before.
    ///
    /// # Errors
    ///
    /// - Those of state ids.
    /// - `OpenMode`: the open has no such access.
    /// - `Locked`: the state id is special, and an open denies the access.
    /// - `Grace`: the state id is special, and an open that denies the access may still be reclaimed.
    /// - `Delay`: an open of a client whose lease ran out denies the access, and ends now.
    pub fn check_io(
        &mut self,
        now: Instant,
        client: ClientId,
        file: &F,
        state: StateId,
        writes: bool,
    ) -> Result<Option<StateId>, Status> {
        if self.grace.is_on() && special(state)?.is_some() {
            return Err(Status::Grace);
        }
        let checked = (self.states).check_io(client, file, state, writes, &yields(&self.clients));
        self.settle(now, checked)
    }

    /// Notes that what [`check_io`](Self::check_io) allowed to a special state id is being executed, until
    /// [`end_special_io`](Self::end_special_io): nobody is granted a denial of it meanwhile (RFC 8881 §9.1.2).
    ///
    /// With the state id of an open nothing has to be noted: the open itself is in the way of a denial.
    pub fn begin_special_io(&mut self, file: &F, writes: bool) {
        self.states.begin_io(file, writes);
    }

    /// Notes that it is not being executed any more.
    ///
    /// # Panics
    ///
    /// If it was not begun.
    pub fn end_special_io(&mut self, file: &F, writes: bool) {
        self.states.end_io(file, writes);
    }

    /// Locks bytes (RFC 8881 §18.10). An owner that waits is told by [`Demand::NotifyLock`](crate::Demand::NotifyLock).
    ///
    /// # Errors
    ///
    /// - `Denied`: a lock is in the way, or one is kept for an owner that waits for longer. For a reclaim it is `ReclaimConflict`.
    /// - Those of state ids.
    /// - `OpenMode`: the open has no access for such a lock.
    /// - `Grace`, `NoGrace`, `Delay`, `StaleClientId`: as for [`open`](Self::open).
    pub fn lock(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        request: &LockRequest<'_, F>,
    ) -> Result<StateId, LockError> {
        self.lock_if(now, random, request, |_| Ok(()))
    }

    /// Locks bytes as [`lock`](Self::lock) does, if somebody else agrees who also has locks, as the kernel does: `permit` is called when
    /// nothing here is in the way any more. It is told the state id of the lock owner in this open, if there is one. If it
    /// agrees, the lock is made; if not, nothing is changed, and the client does not count as one that waits.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), and that of `permit`. `Denied` of it becomes `ReclaimConflict` for a reclaim, too.
    pub fn lock_if(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        request: &LockRequest<'_, F>,
        permit: impl FnOnce(Option<StateId>) -> Result<(), LockError>,
    ) -> Result<StateId, LockError> {
        self.check_grace(now, request.client, request.reclaims)?;
        let call = LockCall {
            client: request.client,
            file: request.file,
            range: request.range,
            kind: match request.reclaims {
                // What is in the way of a reclaim is not waited for.
                true => LockKind::from(request.kind).into(),
                false => request.kind,
            },
            locker: request.locker,
        };
        let locked = (self.states).lock(now, random, call, &yields(&self.clients), permit);
        let locked = locked.map_err(|refusal| self.lock_error(now, refusal));
        self.pass_on();
        locked.map_err(|error| match error {
            LockError::Denied(_) if request.reclaims => Status::ReclaimConflict.into(),
            error => error,
        })
    }

    fn lock_error(&mut self, now: Instant, refusal: LockRefusal) -> LockError {
        match refusal {
            LockRefusal::Denied(denied) => LockError::Denied(denied),
            LockRefusal::Yields(clients) => self.end_expired(now, clients).into(),
            LockRefusal::Status(Status::Delay) => {
                self.events.push(Event::LimitReached(Limit::Locks));
                self.relieve(now);
                Status::Delay.into()
            }
            LockRefusal::Status(status) => status.into(),
            LockRefusal::Vetoed(error) => error,
        }
    }

    /// Returns what the owner of a state has locked of its file, through any of its opens; nothing for a state without locks.
    pub fn locks_of_owner(
        &self,
        client: ClientId,
        locks: StateId,
    ) -> impl Iterator<Item = (Range, LockKind)> {
        self.states.locks_of_owner(client, locks)
    }

    /// Tests whether a lock is in the way (RFC 8881 §18.11).
    ///
    /// # Errors
    ///
    /// - `Denied`: one is.
    /// - `Grace`: one may still be reclaimed.
    /// - `Delay`: one of a client whose lease ran out is, and ends now.
    pub fn test_lock(
        &mut self,
        now: Instant,
        client: ClientId,
        file: &F,
        range: Range,
        kind: LockKind,
        owner: &[u8],
    ) -> Result<(), LockError> {
        if self.grace.is_on() {
            return Err(Status::Grace.into());
        }
        let tested =
            (self.states).test_lock(client, file, range, kind, owner, &yields(&self.clients));
        tested.map_err(|refusal| self.lock_error(now, refusal))
    }

    /// Unlocks bytes (RFC 8881 §18.12).
    ///
    /// # Errors
    ///
    /// - Those of state ids.
    /// - `LockRange`: a lock would become two, and there would be too many.
    pub fn unlock(
        &mut self,
        now: Instant,
        client: ClientId,
        file: &F,
        locks: StateId,
        range: Range,
    ) -> Result<StateId, Status> {
        let unlocked = self.states.unlock(now, client, file, locks, range);
        self.pass_on();
        unlocked
    }

    /// Locks bytes for an owner of another protocol, such as NLM, or a program of this machine. It does not wait: the caller asks
    /// again.
    ///
    /// # Errors
    ///
    /// - `Denied`: a lock is in the way.
    /// - `Grace`: one may still be reclaimed.
    /// - `Delay`: there are too many locks, or one of a client whose lease ran out is in the way, and ends now.
    pub fn lock_other(
        &mut self,
        now: Instant,
        file: &F,
        owner: u64,
        range: Range,
        kind: LockKind,
    ) -> Result<(), LockError> {
        if self.grace.is_on() {
            return Err(Status::Grace.into());
        }
        let locked =
            (self.states).lock_other(now, file, owner, range, kind, &yields(&self.clients));
        let locked = locked.map_err(|refusal| self.lock_error(now, refusal));
        self.pass_on();
        locked
    }

    /// Unlocks bytes for an owner of another protocol.
    ///
    /// # Errors
    ///
    /// `LockRange`: a lock would become two, and there would be too many.
    pub fn unlock_other(
        &mut self,
        now: Instant,
        file: &F,
        owner: u64,
        range: Range,
    ) -> Result<(), Status> {
        let unlocked = self.states.unlock_other(now, file, owner, range);
        self.pass_on();
        unlocked
    }

    /// Tests a state id as one of TEST_STATEID (RFC 8881 §18.48).
    ///
    /// # Errors
    ///
    /// `BadStateId`, `OldStateId`, `AdminRevoked`: those of state ids.
    pub fn test_state(&self, client: ClientId, state: StateId) -> Result<(), Status> {
        self.states.test(client, state)
    }

    /// Frees a state without locks, or one that was revoked (FREE_STATEID, RFC 8881 §18.38).
    ///
    /// # Errors
    ///
    /// - `LocksHeld`: it is an open, or locks are held.
    /// - `BadStateId`, `OldStateId`: those of state ids.
    pub fn free_state(&mut self, client: ClientId, state: StateId) -> Result<(), Status> {
        self.states.free(client, state)?;
        self.pass_on();
        Ok(())
    }

    /// Revokes all opens and locks of a file, as an administrator does who no longer exports it (RFC 8881 §8.5). Returns the number of
    /// state ids that now are revoked.
    pub fn revoke_file(&mut self, now: Instant, file: &F) -> usize {
        let revoked = self.states.revoke_file(now, file);
        self.pass_on();
        revoked
    }

    /// Revokes all opens and locks of files for which `is_of` is true, as [`revoke_file`](Self::revoke_file) does, of the states at the
    /// places from `from` on: at most `max` places are looked at.
    pub fn revoke_where(
        &mut self,
        now: Instant,
        (from, max): (u32, u32),
        is_of: impl Fn(&F) -> bool,
    ) -> Revoked {
        let page = Page::at(&self.states, from, max);
        let (files, next) = page.files(is_of);
        let states = files.iter().map(|file| self.revoke_file(now, file)).sum();
        Revoked { states, next }
    }
}
