//! OPEN, OPEN_DOWNGRADE, CLOSE, and what READ and WRITE may (RFC 8881 §9.7 to §9.9).

use super::{Entry, File, InTheWay, Kind, Open, Refusal, States, Yields, special};
use crate::Random;
use crate::address::{AddressKey, may_grow};
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::{ClientId, SpecialStateId, StateId, Status};
use std::hash::Hash;
use std::time::Instant;

/// An OPEN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenCall<'a, F> {
    pub(crate) client: ClientId,
    pub(crate) address: AddressKey,
    pub(crate) owner: &'a [u8],
    pub(crate) file: &'a F,
    pub(crate) access: ShareAccess,
    pub(crate) deny: ShareDeny,
}

/// Access without the wishes about a delegation (RFC 8881 §18.16.3).
///
/// # Errors
///
/// `Invalid`: no access, or bits of what is denied that mean nothing.
pub(crate) fn share(
    access: ShareAccess,
    deny: ShareDeny,
) -> Result<(ShareAccess, ShareDeny), Status> {
    let access = access & (ShareAccess::READ | ShareAccess::WRITE);
    let unknown = deny.bits() & !(ShareDeny::READ | ShareDeny::WRITE).bits();
    match access.is_empty() || unknown != 0 {
        true => Err(Status::Invalid),
        false => Ok((access, deny)),
    }
}

/// Bit of a value of access or denial in a set of them.
fn bit(value: u32) -> u8 {
    1 << value
}

/// Values that a set has and that are part of a value.
fn parts(set: u8, value: u32) -> impl Iterator<Item = u32> {
    (0..4).filter(move |&part| set & bit(part) != 0 && part & !value == 0)
}

/// Returns whether a value is the union of some of a set (RFC 8881 §18.18.3).
fn is_union(set: u8, value: u32) -> bool {
    parts(set, value).reduce(|all, part| all | part) == Some(value)
}

/// Removes the values from a set that are no part of a value.
fn keep_parts(set: u8, value: u32) -> u8 {
    parts(set, value).fold(0, |set, part| set | bit(part))
}

impl<F: Clone + Eq + Hash> States<F> {
    /// Opens a file, or adds to an open of the same owner (RFC 8881 §9.9, §18.16).
    pub(crate) fn open_file(
        &mut self,
        random: &mut impl Random,
        call: OpenCall<'_, F>,
        yields: Yields<'_>,
    ) -> Result<StateId, Refusal> {
        let (access, deny) = share(call.access, call.deny)?;
        self.check_shares(
            call.file,
            access.bits(),
            deny.bits(),
            Status::ShareDenied,
            yields,
        )?;
        self.enter_client(call.client, call.address);
        let owner = self.owner(call.client, call.owner, false);
        let key = (owner, call.file.clone());
        if let Some(&at) = self.opens.get(&key) {
            let open = self.open(at);
            self.set_share(at, open.access | access, open.deny | deny);
            let open = self.open_mut(at);
            open.accesses |= bit(access.bits());
            open.denies |= bit(deny.bits());
            return Ok(self.changed(at));
        }
        let its = self.address_mut(call.client).states;
        if !may_grow(its, self.entries.len(), self.limits.states) {
            self.forget_unused(owner);
            return Err(Status::Delay.into());
        }
        let open = Open {
            access,
            deny,
            accesses: bit(access.bits()),
            denies: bit(deny.bits()),
            locks: Vec::new(),
            // It is entered below.
            at_file: 0,
        };
        let at = self.insert(random, owner, call.file.clone(), Kind::Open(open));
        let key_of_file = call.file.clone();
        let file = self.files.get_or_insert_with(key_of_file, File::default);
        let at_file = file.insert(at, access, deny);
        self.open_mut(at).at_file = at_file;
        self.opens.insert(key, at);
        Ok(self.id_of(at))
    }

    /// Returns whether an address may have one more state.
    pub(crate) fn has_room(&self, address: AddressKey) -> bool {
        let its = self.addresses.get(&address).map_or(0, |its| its.states);
        may_grow(its, self.entries.len(), self.limits.states)
    }

    /// Notes that a read or write with a special state id is being executed.
    pub(crate) fn begin_io(&mut self, file: &F, writes: bool) {
        let running = self.running.entry(file.clone()).or_default();
        running[usize::from(writes)] += 1;
    }

    /// Notes that it is not any more.
    pub(crate) fn end_io(&mut self, file: &F, writes: bool) {
        let running = self.running.get_mut(file);
        let running = running.expect("it was begun");
        running[usize::from(writes)] -= 1;
        if *running == [0, 0] {
            self.running.remove(file);
        }
    }

    /// Returns whether a read or write with a special state id is being executed that a denial is against.
    pub(crate) fn is_denied_running(&self, file: &F, deny: ShareDeny) -> bool {
        // Nearly always nothing is denied.
        if deny.is_empty() {
            return false;
        }
        self.running.get(file).is_some_and(|[reads, writes]| {
            (deny.contains(ShareDeny::READ) && *reads > 0)
                || (deny.contains(ShareDeny::WRITE) && *writes > 0)
        })
    }

    /// Finds out whether opens are in the way of some access and denial (RFC 8881 §9.7). Own opens count, too.
    fn check_shares(
        &self,
        file: &F,
        access: u32,
        deny: u32,
        refusal: Status,
        yields: Yields<'_>,
    ) -> Result<(), Refusal> {
        let Some(file) = self.files.get(file) else {
            return Ok(());
        };
        let mut clients = InTheWay::default();
        for at in file.conflicts(access, deny) {
            let client = self.entries[at as usize].client;
            if !yields(client) {
                return Err(refusal.into());
            }
            clients.add(client);
        }
        match clients.all() {
            clients if clients.is_empty() => Ok(()),
            clients => Err(Refusal::Yields(clients)),
        }
    }

    fn set_share(&mut self, at: u32, access: ShareAccess, deny: ShareDeny) {
        self.leave_file(at);
        let entry = &mut self.entries[at as usize];
        let file = self.files.get_mut(&entry.file).expect("an open has a file");
        let at_file = file.insert(at, access, deny);
        let open = self.open_mut(at);
        (open.access, open.deny, open.at_file) = (access, deny, at_file);
    }

    /// Takes an open from those of its file. Returns whether it was the last.
    fn leave_file(&mut self, at: u32) -> bool {
        let entry = &self.entries[at as usize];
        let Kind::Open(open) = &entry.kind else {
            unreachable!("the state is an open");
        };
        let (access, deny, at_file) = (open.access, open.deny, open.at_file);
        let file = self.files.get_mut(&entry.file).expect("an open has a file");
        let moved = file.remove(at_file, access, deny);
        let is_last = file.is_empty();
        if let Some(moved) = moved {
            self.open_mut(moved).at_file = at_file;
        }
        is_last
    }

    /// Finds an open by its own state id.
    fn open_of_file(&self, client: ClientId, file: &F, id: StateId) -> Result<u32, Status> {
        let at = self.of_file(client, file, id)?;
        match self.entries[at as usize].kind {
            Kind::Open(_) => Ok(at),
            Kind::Locks { .. } => Err(Status::BadStateId),
        }
    }

    /// Finds an open by its own state id, for a lock owner that is new in it.
    pub(super) fn open_for_locks(
        &self,
        client: ClientId,
        file: &F,
        id: StateId,
    ) -> Result<u32, Status> {
        self.open_of_file(client, file, id)
    }

    /// Takes access and denials from an open (RFC 8881 §18.18.3).
    pub(crate) fn downgrade(
        &mut self,
        client: ClientId,
        file: &F,
        id: StateId,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<StateId, Status> {
        let (access, deny) = share(access, deny)?;
        let at = self.open_of_file(client, file, id)?;
        let open = self.open_mut(at);
        if !is_union(open.accesses, access.bits()) || !is_union(open.denies, deny.bits()) {
            return Err(Status::Invalid);
        }
        open.accesses = keep_parts(open.accesses, access.bits());
        open.denies = keep_parts(open.denies, deny.bits());
        self.set_share(at, access, deny);
        Ok(self.changed(at))
    }

    /// Closes an open. Locks in it are released, as they may be (RFC 8881 §9.8).
    pub(crate) fn close(
        &mut self,
        now: Instant,
        client: ClientId,
        file: &F,
        id: StateId,
    ) -> Result<(), Status> {
        let at = self.open_of_file(client, file, id)?;
        self.release_open(now, at);
        Ok(())
    }

    /// Ends an open with the locks in it.
    fn release_open(&mut self, now: Instant, at: u32) {
        let locks = std::mem::take(&mut self.open_mut(at).locks);
        self.release_locks(now, &locks);
        locks.into_iter().for_each(|locks| self.remove(locks));
        self.detach_open(at);
        self.remove(at);
    }

    /// Takes an open from all lists but that of its client.
    fn detach_open(&mut self, at: u32) {
        let is_last = self.leave_file(at);
        let Entry {
            client,
            owner,
            file: key,
            ..
        } = &self.entries[at as usize];
        let (client, key) = (*client, (*owner, key.clone()));
        self.opens.remove(&key);
        if is_last {
            self.files.remove(&key.1);
        }
        // Nobody waits through an open that is gone.
        if self.client_mut(client).waiting > 0 {
            self.forget_waiters(&key.1, at);
        }
    }

    /// Ends state of a client: at most so many of its states. Returns whether that was all.
    pub(crate) fn remove_some(&mut self, now: Instant, client: ClientId, most: usize) -> bool {
        let last = |states: &Self| {
            let its = states.clients.get(&client);
            its.and_then(|its| its.states.last().copied())
        };
        let mut left = most;
        while let Some(at) = last(self) {
            if left == 0 {
                return false;
            }
            let entry = &mut self.entries[at as usize];
            left -= match (entry.is_revoked, &mut entry.kind) {
                (true, _) => {
                    self.remove(at);
                    1
                }
                (false, Kind::Open(open)) if open.locks.len() >= left => {
                    let some = open.locks.split_off(open.locks.len() - left);
                    self.release_locks(now, &some);
                    some.into_iter().for_each(|locks| self.remove(locks));
                    left
                }
                (false, Kind::Open(open)) => {
                    let ended = open.locks.len() + 1;
                    self.release_open(now, at);
                    ended
                }
                (false, Kind::Locks { .. }) => {
                    self.release_locks(now, &[at]);
                    self.detach_locks(at);
                    self.remove(at);
                    1
                }
            };
        }
        true
    }

    /// Revokes all opens and locks of a file (RFC 8881 §8.5). Returns the number of states.
    pub(crate) fn revoke_file(&mut self, now: Instant, file: &F) -> usize {
        let opens = self.files.get(file).map(|file| file.opens().collect());
        let mut revoked = 0;
        for at in opens.unwrap_or_else(Vec::new) {
            let locks = std::mem::take(&mut self.open_mut(at).locks);
            self.release_locks(now, &locks);
            for locks in locks {
                self.mark_revoked(locks);
                revoked += 1;
            }
            self.detach_open(at);
            self.mark_revoked(at);
            revoked += 1;
        }
        revoked
    }

    /// Checks whether the state id of a READ, a WRITE or a SETATTR of the size allows it (RFC 8881 §8.2.5, §9.1.2).
    /// Returns the open; a special state id has none.
    ///
    /// This is on the path of each call: no allocation, and but for special state ids no table that is searched by the file.
    pub(crate) fn check_io(
        &self,
        client: ClientId,
        file: &F,
        id: StateId,
        writes: bool,
        yields: Yields<'_>,
    ) -> Result<Option<StateId>, Refusal> {
        let needed = match writes {
            true => ShareAccess::WRITE,
            false => ShareAccess::READ,
        };
        match special(id)? {
            None => {}
            Some(SpecialStateId::ReadBypass) if !writes => return Ok(None),
            Some(SpecialStateId::Anonymous | SpecialStateId::ReadBypass) => {
                // RFC 8881 §8.2.3: an open that denies the access denies it here.
                self.check_shares(file, needed.bits(), 0, Status::Locked, yields)?;
                return Ok(None);
            }
            Some(SpecialStateId::Current | SpecialStateId::Invalid) => {
                return Err(Status::BadStateId.into());
            }
        }
        let at = self.of_file(client, file, id)?;
        let (at, open) = self.open_by_any(at);
        if !open.access.contains(needed) {
            // RFC 8881 §9.1.2: reading by an open for writing may be allowed, as clients write parts of their pages; not
            // against one that denies reading.
            let own = usize::from(open.deny.contains(ShareDeny::READ));
            let of_file = self.files.get(file);
            if writes || of_file.is_some_and(|file| file.denying_reads() > own) {
                return Err(Status::OpenMode.into());
            }
        }
        Ok(Some(self.id_of(at)))
    }
}
