//! LOCK, LOCKT and LOCKU (RFC 8881 §18.10 to §18.12).

use super::{Holder, InTheWay, Kind, LockOwnerKey, States, Yields};
use crate::Random;
use crate::address::may_grow;
use crate::limits::MAX_LOCK_OWNERS_PER_OPEN;
use crate::lock::{Lock, LockKind, OverLimit, Range};
use crate::server::LockError;
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::open::ShareAccess;
use nfs_proto::v4::{ClientId, StateId, Status};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

/// The owner of a lock, as LOCK names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locker<'a> {
    /// By name, in an open.
    New {
        /// The open.
        open: StateId,
        /// The owner.
        owner: &'a [u8],
    },
    /// By a state id that an earlier LOCK returned.
    Existing(StateId),
}

/// A lock that is in the way (`LOCK4denied`, RFC 8881 §18.10.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The bytes.
    pub range: Range,
    /// The kind.
    pub kind: LockKind,
    /// The client of the owner; zero for one of another protocol.
    pub client: ClientId,
    /// The name of the owner; for one of another protocol, its number.
    pub owner: Arc<[u8]>,
}

/// A LOCK.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockCall<'a, F> {
    pub(crate) client: ClientId,
    pub(crate) file: &'a F,
    pub(crate) range: Range,
    pub(crate) kind: LockType,
    pub(crate) locker: Locker<'a>,
}

impl<F> LockCall<'_, F> {
    fn waits(&self) -> bool {
        matches!(self.kind, LockType::ReadWait | LockType::WriteWait)
    }
}

/// A refusal of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LockRefusal {
    Status(Status),
    /// A lock is in the way.
    Denied(Denied),
    /// Nothing is in the way but locks of these clients, whose leases have run out.
    Yields(Vec<ClientId>),
    /// The caller did not permit it.
    Vetoed(LockError),
}

impl From<Status> for LockRefusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl<F: Clone + Eq + Hash> States<F> {
    /// Locks bytes (RFC 8881 §18.10). When nothing else is in the way, `permit` decides, and is told the state of the lock owner in
    /// the open, if it has one.
    pub(crate) fn lock(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        call: LockCall<'_, F>,
        yields: Yields<'_>,
        permit: impl FnOnce(Option<StateId>) -> Result<(), LockError>,
    ) -> Result<StateId, LockRefusal> {
        let (open, owner) = match call.locker {
            Locker::Existing(id) => {
                let at = self.locks_of_file(call.client, call.file, id)?;
                (self.open_by_any(at).0, self.entries[at as usize].owner)
            }
            Locker::New { open, owner } => {
                let open = self.open_for_locks(call.client, call.file, open)?;
                (open, self.owner(call.client, owner, true))
            }
        };
        let result = self.lock_for(now, random, &call, (open, owner), yields, permit);
        self.count_gone_waiters();
        // One that neither holds nor waits is not remembered.
        if self.owners.contains(owner as usize) {
            self.forget_unused(owner);
        }
        result
    }

    fn lock_for(
        &mut self,
        now: Instant,
        random: &mut impl Random,
        call: &LockCall<'_, F>,
        (open, owner): (u32, u32),
        yields: Yields<'_>,
        permit: impl FnOnce(Option<StateId>) -> Result<(), LockError>,
    ) -> Result<StateId, LockRefusal> {
        let (kind, range) = (LockKind::from(call.kind), call.range);
        let needed = match kind {
            LockKind::Shared => ShareAccess::READ,
            LockKind::Exclusive => ShareAccess::WRITE,
        };
        // RFC 8881 §18.10.4: as POSIX has it.
        if !self.open(open).access.contains(needed) {
            return Err(Status::OpenMode.into());
        }
        let holder = Holder::Nfs4(LockOwnerKey(owner));
        let in_the_way = match self.in_the_way(call.file, holder, range, kind, yields) {
            Ok(()) if call.waits() => self.locks.reservation(now, call.file, holder, range, kind),
            Ok(()) => None,
            Err(LockInTheWay::Held(lock)) => Some(lock),
            Err(LockInTheWay::Yields(clients)) => return Err(LockRefusal::Yields(clients)),
        };
        if let Some(lock) = in_the_way {
            match call.waits() {
                true => self.wait(now, call, (open, owner)),
                // RFC 8881 §9.6: a client that no longer waits says so by a LOCK that does not wait.
                false => self.locks.forget_waiters_of(call.file, holder, range),
            }
            return Err(LockRefusal::Denied(self.denied(&lock)));
        }
        let known = self.lock_states.get(&(open, owner)).copied();
        let of_address = self.address_mut(call.client);
        let (states, locks) = (of_address.states, of_address.locks);
        let has_room = known.is_some()
            || may_grow(states, self.entries.len(), self.limits.states)
                && self.open(open).locks.len() < MAX_LOCK_OWNERS_PER_OPEN;
        if !has_room
            || !may_grow(locks, self.locks.held(), self.limits.locks)
            || !self.locks.has_room(call.file, holder, range, true)
        {
            return Err(Status::Delay.into());
        }
        permit(known.map(|at| self.id_of(at))).map_err(LockRefusal::Vetoed)?;
        let at = known.unwrap_or_else(|| {
            let at_open = self.open(open).locks.len();
            let kind = Kind::Locks { open, at_open };
            let at = self.insert(random, owner, call.file.clone(), kind);
            self.open_mut(open).locks.push(at);
            self.lock_states.insert((open, owner), at);
            at
        });
        let held = self.locks.held();
        let locked = self.locks.lock(now, call.file, holder, range, kind, at);
        locked.expect("there is room");
        self.count_locks(call.client, held);
        Ok(match known {
            Some(_) => self.changed(at),
            None => self.id_of(at),
        })
    }

    /// Finds a lock that is in the way, or the clients whose locks are, if all of them yield.
    fn in_the_way(
        &self,
        file: &F,
        holder: Holder,
        range: Range,
        kind: LockKind,
        yields: Yields<'_>,
    ) -> Result<(), LockInTheWay> {
        let mut clients = InTheWay::default();
        for lock in self.locks.conflicts(file, holder, range, kind) {
            match lock.owner {
                Holder::Nfs4(LockOwnerKey(owner)) => {
                    let client = self.owners[owner as usize].client;
                    if !yields(client) {
                        return Err(LockInTheWay::Held(*lock));
                    }
                    clients.add(client);
                }
                Holder::Other(_) => return Err(LockInTheWay::Held(*lock)),
            }
        }
        match clients.all() {
            clients if clients.is_empty() => Ok(()),
            clients => Err(LockInTheWay::Yields(clients)),
        }
    }

    /// Enters an owner among those that wait, if it and its client may.
    fn wait(&mut self, now: Instant, call: &LockCall<'_, F>, (open, owner): (u32, u32)) {
        let its = self.address_mut(call.client).waiting;
        if may_grow(its, self.locks.waiting(), self.limits.waiters) {
            let holder = Holder::Nfs4(LockOwnerKey(owner));
            let kind = call.kind.into();
            let holder = (holder, open);
            if self.locks.wait(now, call.file, holder, call.range, kind) {
                self.owners[owner as usize].uses += 1;
                self.client_mut(call.client).waiting += 1;
                self.address_mut(call.client).waiting += 1;
            }
        }
    }

    /// Counts waiters that are gone as uses of their owners that have ended.
    fn count_gone_waiters(&mut self) {
        for holder in self.locks.drain_gone() {
            if let Holder::Nfs4(LockOwnerKey(owner)) = holder {
                let client = self.owners[owner as usize].client;
                self.client_mut(client).waiting -= 1;
                self.address_mut(client).waiting -= 1;
                self.unuse(owner);
            }
        }
    }

    /// Lets owners wait no more through an open.
    pub(super) fn forget_waiters(&mut self, file: &F, open: u32) {
        self.locks.forget_waiters_through(file, open);
        self.count_gone_waiters();
    }

    /// Counts a change of the locks of a client, of which all had `before` together.
    fn count_locks(&mut self, client: ClientId, before: usize) {
        let held = self.locks.held();
        let of_address = self.address_mut(client);
        of_address.locks = of_address.locks + held - before;
        let of_client = self.client_mut(client);
        of_client.locks = of_client.locks + held - before;
    }

    fn denied(&self, lock: &Lock<Holder>) -> Denied {
        let (client, owner) = match lock.owner {
            Holder::Nfs4(LockOwnerKey(owner)) => {
                let owner = &self.owners[owner as usize];
                (owner.client, owner.name.clone())
            }
            Holder::Other(number) => (ClientId(0), number.to_be_bytes().as_slice().into()),
        };
        Denied {
            range: lock.range,
            kind: lock.kind,
            client,
            owner,
        }
    }

    /// Finds a lock owner in an open by its state id.
    fn locks_of_file(&self, client: ClientId, file: &F, id: StateId) -> Result<u32, Status> {
        let at = self.of_file(client, file, id)?;
        match self.entries[at as usize].kind {
            Kind::Locks { .. } => Ok(at),
            Kind::Open(_) => Err(Status::BadStateId),
        }
    }

    /// Tests whether a lock is in the way (RFC 8881 §18.11). Own locks are not.
    pub(crate) fn test_lock(
        &self,
        client: ClientId,
        file: &F,
        range: Range,
        kind: LockKind,
        owner: &[u8],
        yields: Yields<'_>,
    ) -> Result<(), LockRefusal> {
        let its = self.clients.get(&client);
        let owner = its.and_then(|its| its.lock_owners.get(owner));
        // An owner without locks and state has no number, and no lock is its own.
        let holder = Holder::Nfs4(LockOwnerKey(owner.copied().unwrap_or(u32::MAX)));
        let result = self.in_the_way(file, holder, range, kind, yields);
        result.map_err(|in_the_way| match in_the_way {
            LockInTheWay::Held(lock) => LockRefusal::Denied(self.denied(&lock)),
            LockInTheWay::Yields(clients) => LockRefusal::Yields(clients),
        })
    }

    /// Unlocks bytes (RFC 8881 §18.12).
    ///
    /// # Errors
    ///
    /// - Those of state ids.
    /// - `LockRange`: a lock would become two, and there would be too many.
    pub(crate) fn unlock(
        &mut self,
        now: Instant,
        client: ClientId,
        file: &F,
        id: StateId,
        range: Range,
    ) -> Result<StateId, Status> {
        let at = self.locks_of_file(client, file, id)?;
        let holder = Holder::Nfs4(LockOwnerKey(self.entries[at as usize].owner));
        let held = self.locks.held();
        let unlocked = self.locks.unlock(now, file, holder, range);
        self.count_locks(client, held);
        self.count_gone_waiters();
        unlocked.map_err(|OverLimit| Status::LockRange)?;
        Ok(self.changed(at))
    }

    /// Locks bytes for an owner of another protocol.
    pub(crate) fn lock_other(
        &mut self,
        now: Instant,
        file: &F,
        owner: u64,
        range: Range,
        kind: LockKind,
        yields: Yields<'_>,
    ) -> Result<(), LockRefusal> {
        let holder = Holder::Other(owner);
        match self.in_the_way(file, holder, range, kind, yields) {
            Ok(()) => {}
            Err(LockInTheWay::Held(lock)) => return Err(LockRefusal::Denied(self.denied(&lock))),
            Err(LockInTheWay::Yields(clients)) => return Err(LockRefusal::Yields(clients)),
        }
        let held = self.locks.held();
        if !may_grow(self.other_locks, held, self.limits.locks) {
            return Err(Status::Delay.into());
        }
        let locked = (self.locks).lock(now, file, holder, range, kind, u32::MAX);
        self.other_locks = self.other_locks + self.locks.held() - held;
        self.count_gone_waiters();
        locked.map_err(|OverLimit| Status::Delay.into())
    }

    /// Unlocks bytes for an owner of another protocol.
    pub(crate) fn unlock_other(
        &mut self,
        now: Instant,
        file: &F,
        owner: u64,
        range: Range,
    ) -> Result<(), Status> {
        let held = self.locks.held();
        let unlocked = self.locks.unlock(now, file, Holder::Other(owner), range);
        self.other_locks = self.other_locks + self.locks.held() - held;
        self.count_gone_waiters();
        unlocked.map_err(|OverLimit| Status::LockRange)
    }

    /// Releases the locks that are held through states of one open, in one pass over those of the file.
    pub(super) fn release_locks(&mut self, now: Instant, states: &[u32]) {
        for &at in states {
            let entry = &self.entries[at as usize];
            let Kind::Locks { open, .. } = entry.kind else {
                unreachable!("the state has locks");
            };
            self.lock_states.remove(&(open, entry.owner));
        }
        let Some(&first) = states.first() else {
            return;
        };
        let mut order = states.to_vec();
        order.sort_unstable();
        let entry = &self.entries[first as usize];
        let client = entry.client;
        let held = self.locks.held();
        (self.locks).release(now, &entry.file, |via| order.binary_search(&via).is_ok());
        self.count_locks(client, held);
        self.count_gone_waiters();
    }

    /// Takes a lock owner without locks from its open.
    pub(super) fn detach_locks(&mut self, at: u32) {
        let entry = &self.entries[at as usize];
        let Kind::Locks { open, at_open } = entry.kind else {
            unreachable!("the state has locks");
        };
        self.lock_states.remove(&(open, entry.owner));
        let locks = &mut self.open_mut(open).locks;
        locks.swap_remove(at_open);
        let moved = locks.get(at_open).copied();
        if let Some(moved) = moved
            && let Kind::Locks { at_open: its, .. } = &mut self.entries[moved as usize].kind
        {
            *its = at_open;
        }
    }

    /// Returns what the owner of a state has locked of its file, through any open. Nothing for a state that has no locks or was
    /// revoked.
    pub(crate) fn locks_of_owner(
        &self,
        client: ClientId,
        id: StateId,
    ) -> impl Iterator<Item = (Range, LockKind)> {
        let entry = self.known(client, id).map(|at| &self.entries[at as usize]);
        let entry = entry
            .ok()
            .filter(|entry| matches!(entry.kind, Kind::Locks { .. }) && !entry.is_revoked);
        let locks = entry.map(|entry| {
            let holder = Holder::Nfs4(LockOwnerKey(entry.owner));
            let locks = self.locks.of_file(&entry.file).iter();
            locks.filter(move |lock| lock.owner == holder)
        });
        let locks = locks.into_iter().flatten();
        locks.map(|lock| (lock.range, lock.kind))
    }

    #[cfg(test)]
    pub(crate) fn locks_of(&self, file: &F) -> Vec<(ClientId, Arc<[u8]>, Range, LockKind)> {
        let locks = self.locks.of_file(file).iter();
        let locks = locks.map(|lock| {
            let Denied { client, owner, .. } = self.denied(lock);
            (client, owner, lock.range, lock.kind)
        });
        locks.collect()
    }

    /// Takes the owners that are to be told that the lock they wait for is free.
    pub(crate) fn drain_told(&mut self) -> Vec<(F, ClientId, Arc<[u8]>)> {
        let owners = &self.owners;
        let told = self.locks.drain_told();
        told.filter_map(|(file, holder)| match holder {
            Holder::Nfs4(LockOwnerKey(owner)) => {
                // It may be gone since.
                let owner = owners.get(owner as usize)?;
                Some((file, owner.client, owner.name.clone()))
            }
            Holder::Other(_) => None,
        })
        .collect()
    }
}

/// Locks that are in the way of one.
enum LockInTheWay {
    /// This one, at least.
    Held(Lock<Holder>),
    /// None but those of clients that yield.
    Yields(Vec<ClientId>),
}
