//! Opens with their share reservations, owners of locks in opens, and the state ids of both (RFC 8881 §8.2, §9).

mod listing;
mod locking;
mod of_file;
mod opening;

use crate::Random;
use crate::address::AddressKey;
use crate::limits::{Limits, SEQID_WINDOW};
use crate::lock::LockTable;
use crate::steady_map::SteadyMap;
use crate::steady_slab::SteadySlab;
use foldhash::HashMap;
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::{ClientId, SpecialStateId, StateId, Status};
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

pub(crate) use listing::{Page, UsageOfClient};
pub use locking::{Denied, Locker};
pub(crate) use locking::{LockCall, LockRefusal};
use of_file::File;
pub(crate) use opening::OpenCall;

/// An owner of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A lock owner of a client.
    Nfs4(LockOwnerKey),
    /// An owner of another protocol, or a program of the server's machine. The caller numbers them.
    Other(u64),
}

/// Names a lock owner of a client within the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockOwnerKey(u32);

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// With this status.
    Status(Status),
    /// Nothing is in the way but state of these clients, whose leases have run out.
    Yields(Vec<ClientId>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Clients whose state is in the way, each once.
#[derive(Debug, Default)]
struct InTheWay(Vec<ClientId>);

impl InTheWay {
    fn add(&mut self, client: ClientId) {
        // Most of what a client has comes in a row.
        if self.0.last() != Some(&client) {
            self.0.push(client);
        }
    }

    fn all(mut self) -> Vec<ClientId> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0
    }
}

/// Whether state of a client gives way to that of others, as the client's lease has run out.
pub(crate) type Yields<'a> = &'a dyn Fn(ClientId) -> bool;

/// An open, or a lock owner in an open.
#[derive(Debug)]
struct Entry<F> {
    /// Part of the state id that nobody can guess.
    tag: u64,
    seqid: u32,
    client: ClientId,
    owner: u32,
    file: F,
    /// Place in the list of its client.
    at_client: usize,
    /// It was revoked, and names nothing but the loss (RFC 8881 §8.2.4).
    is_revoked: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Open(Open),
    Locks {
        open: u32,
        /// Place in the list of its open.
        at_open: usize,
    },
}

/// Share reservation of an open.
#[derive(Debug)]
struct Open {
    access: ShareAccess,
    deny: ShareDeny,
    /// Bit `n` is set if an OPEN with the access `n` is part of this one: to what it can be downgraded (RFC 8881 §18.18.3).
    accesses: u8,
    /// The same for what is denied.
    denies: u8,
    /// Lock owners in this open.
    locks: Vec<u32>,
    /// Place among the opens of its file that have the same access and denial.
    at_file: usize,
}

#[derive(Debug)]
struct Owner {
    client: ClientId,
    name: Arc<[u8]>,
    /// Whether it owns locks, and not opens: these are different owners, even if they have the same name.
    has_locks: bool,
    /// Number of its states and of locks that it waits for.
    uses: usize,
}

/// State of one client.
#[derive(Debug)]
struct OfClient {
    address: AddressKey,
    states: Vec<u32>,
    open_owners: BTreeMap<Arc<[u8]>, u32>,
    lock_owners: BTreeMap<Arc<[u8]>, u32>,
    opens: usize,
    locks: usize,
    waiting: usize,
    revoked: usize,
}

/// Numbers of what the clients of one address have.
#[derive(Debug, Default)]
struct OfAddress {
    /// Clients with state.
    clients: usize,
    states: usize,
    locks: usize,
    waiting: usize,
}

/// All opens and locks.
#[derive(Debug)]
pub(crate) struct States<F> {
    entries: SteadySlab<Entry<F>>,
    files: SteadyMap<F, File>,
    owners: SteadySlab<Owner>,
    clients: HashMap<ClientId, OfClient>,
    addresses: HashMap<AddressKey, OfAddress>,
    /// The open of an owner and file.
    opens: SteadyMap<(u32, F), u32>,
    /// The state of an open and lock owner.
    lock_states: SteadyMap<(u32, u32), u32>,
    pub(crate) locks: LockTable<F, Holder>,
    /// Number of locks of owners of other protocols: together they count as one address.
    other_locks: usize,
    limits: Limits,
    /// States that are gone, with their files.
    released: Vec<(F, StateId)>,
    /// Reads and writes with special state ids that are being executed.
    running: HashMap<F, [usize; 2]>,
}

impl<F: Clone + Eq + Hash> States<F> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            entries: SteadySlab::new(),
            files: SteadyMap::default(),
            owners: SteadySlab::new(),
            clients: HashMap::default(),
            addresses: HashMap::default(),
            opens: SteadyMap::default(),
            lock_states: SteadyMap::default(),
            locks: LockTable::new(limits.locks),
            other_locks: 0,
            limits,
            released: Vec::new(),
            running: HashMap::default(),
        }
    }

    /// Number of opens and of lock owners in opens.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether a client has state.
    pub(crate) fn has_any(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Number of states of a client that were revoked, and not freed as yet.
    pub(crate) fn revoked(&self, client: ClientId) -> usize {
        self.clients.get(&client).map_or(0, |its| its.revoked)
    }

    fn id_of(&self, at: u32) -> StateId {
        let entry = &self.entries[at as usize];
        let mut other = [0; 12];
        other[..4].copy_from_slice(&at.to_be_bytes());
        other[4..].copy_from_slice(&entry.tag.to_be_bytes());
        StateId {
            seqid: entry.seqid,
            other,
        }
    }

    /// Finds a state of a client, revoked or not, with any seqid (RFC 8881 §8.2.4).
    ///
    /// # Errors
    ///
    /// `BadStateId`: special state ids, those of others, and those that never were or are gone.
    fn known(&self, client: ClientId, id: StateId) -> Result<u32, Status> {
        let [a, b, c, d, tag @ ..] = id.other;
        let at = u32::from_be_bytes([a, b, c, d]);
        match self.entries.get(at as usize) {
            Some(entry) if entry.tag == u64::from_be_bytes(tag) && entry.client == client => Ok(at),
            _ => Err(Status::BadStateId),
        }
    }

    /// Finds a state of a client (RFC 8881 §8.2.4).
    ///
    /// # Errors
    ///
    /// - `BadStateId`: there is no such state, or its seqid is still to come.
    /// - `AdminRevoked`: it was revoked.
    /// - `OldStateId`: the state has changed since.
    fn valid(&self, client: ClientId, id: StateId) -> Result<u32, Status> {
        let at = self.known(client, id)?;
        let entry = &self.entries[at as usize];
        if entry.is_revoked {
            return Err(Status::AdminRevoked);
        }
        check_seqid(id.seqid, entry.seqid)?;
        Ok(at)
    }

    /// Finds a state of a client and file.
    fn of_file(&self, client: ClientId, file: &F, id: StateId) -> Result<u32, Status> {
        let at = self.known(client, id)?;
        match self.entries[at as usize].file == *file {
            true => self.valid(client, id),
            false => Err(Status::BadStateId),
        }
    }

    /// Returns an open and its place, by its own state id or by that of a lock owner in it.
    fn open_by_any(&self, at: u32) -> (u32, &Open) {
        match &self.entries[at as usize].kind {
            Kind::Open(open) => (at, open),
            Kind::Locks { open, .. } => (*open, self.open(*open)),
        }
    }

    fn open(&self, at: u32) -> &Open {
        match &self.entries[at as usize].kind {
            Kind::Open(open) => open,
            Kind::Locks { .. } => unreachable!("locks are in an open"),
        }
    }

    fn open_mut(&mut self, at: u32) -> &mut Open {
        match &mut self.entries[at as usize].kind {
            Kind::Open(open) => open,
            Kind::Locks { .. } => unreachable!("locks are in an open"),
        }
    }

    /// Counts a change of a state, and returns its new id (RFC 8881 §8.2.2).
    fn changed(&mut self, at: u32) -> StateId {
        let seqid = &mut self.entries[at as usize].seqid;
        *seqid = seqid.checked_add(1).unwrap_or(1);
        self.id_of(at)
    }

    /// Tests a state id as TEST_STATEID does (RFC 8881 §18.48.3).
    ///
    /// # Errors
    ///
    /// Those of any use of the state. Special state ids are bad here.
    pub(crate) fn test(&self, client: ClientId, id: StateId) -> Result<(), Status> {
        self.valid(client, id).map(drop)
    }

    /// Frees a state without locks, or one that was revoked (RFC 8881 §18.38.3).
    ///
    /// # Errors
    ///
    /// - `BadStateId`, `OldStateId`: as of any state id.
    /// - `LocksHeld`: it is an open, or locks are held.
    pub(crate) fn free(&mut self, client: ClientId, id: StateId) -> Result<(), Status> {
        let at = self.known(client, id)?;
        let entry = &self.entries[at as usize];
        if !entry.is_revoked {
            check_seqid(id.seqid, entry.seqid)?;
            match &entry.kind {
                Kind::Open(_) => return Err(Status::LocksHeld),
                Kind::Locks { .. } if self.locks.has(&entry.file, at) => {
                    return Err(Status::LocksHeld);
                }
                Kind::Locks { .. } => self.detach_locks(at),
            }
        }
        self.remove(at);
        Ok(())
    }

    /// Enters a state.
    fn insert(&mut self, random: &mut impl Random, owner: u32, file: F, kind: Kind) -> u32 {
        let owner_entry = &mut self.owners[owner as usize];
        owner_entry.uses += 1;
        let client = owner_entry.client;
        self.address_mut(client).states += 1;
        let of_client = self.clients.get_mut(&client);
        let of_client = of_client.expect("a client with an owner has an entry");
        let at_client = of_client.states.len();
        of_client.opens += usize::from(matches!(kind, Kind::Open(_)));
        let at = self.entries.insert(Entry {
            tag: tag(random),
            seqid: 1,
            client,
            owner,
            file,
            at_client,
            is_revoked: false,
            kind,
        });
        let at = u32::try_from(at).expect("states have a limit");
        of_client.states.push(at);
        at
    }

    /// Removes a state that is in no list but that of its client.
    fn remove(&mut self, at: u32) {
        let id = self.id_of(at);
        let entry = self.entries.remove(at as usize);
        self.address_mut(entry.client).states -= 1;
        let of_client = self.client_mut(entry.client);
        of_client.states.swap_remove(entry.at_client);
        let moved = of_client.states.get(entry.at_client).copied();
        if entry.is_revoked {
            of_client.revoked -= 1;
        } else {
            of_client.opens -= usize::from(matches!(entry.kind, Kind::Open(_)));
            self.released.push((entry.file, id));
        }
        if let Some(moved) = moved {
            self.entries[moved as usize].at_client = entry.at_client;
        }
        self.unuse(entry.owner);
    }

    /// Takes the effect of a state that is in no list but that of its client, and keeps its id.
    fn mark_revoked(&mut self, at: u32) {
        let id = self.id_of(at);
        let entry = &mut self.entries[at as usize];
        entry.is_revoked = true;
        let (client, file) = (entry.client, entry.file.clone());
        let is_open = matches!(entry.kind, Kind::Open(_));
        let of_client = self.client_mut(client);
        of_client.revoked += 1;
        of_client.opens -= usize::from(is_open);
        self.released.push((file, id));
    }

    fn client_mut(&mut self, client: ClientId) -> &mut OfClient {
        let of_client = self.clients.get_mut(&client);
        of_client.expect("a client with an owner has an entry")
    }

    /// Numbers of the address of a client.
    fn address_mut(&mut self, client: ClientId) -> &mut OfAddress {
        let address = self.client_mut(client).address;
        let of_address = self.addresses.get_mut(&address);
        of_address.expect("an address with a client has an entry")
    }

    /// Enters a client, if it has no state as yet.
    fn enter_client(&mut self, client: ClientId, address: AddressKey) {
        self.clients.entry(client).or_insert_with(|| {
            self.addresses.entry(address).or_default().clients += 1;
            OfClient {
                address,
                states: Vec::new(),
                open_owners: BTreeMap::new(),
                lock_owners: BTreeMap::new(),
                opens: 0,
                locks: 0,
                waiting: 0,
                revoked: 0,
            }
        });
    }

    /// Finds an owner of a client that has an entry, or enters it without a use.
    fn owner(&mut self, client: ClientId, name: &[u8], has_locks: bool) -> u32 {
        let of_client = self.clients.get_mut(&client);
        let of_client = of_client.expect("the client was entered");
        let names = match has_locks {
            true => &mut of_client.lock_owners,
            false => &mut of_client.open_owners,
        };
        if let Some(&owner) = names.get(name) {
            return owner;
        }
        let name: Arc<[u8]> = name.into();
        let owner = self.owners.insert(Owner {
            client,
            name: name.clone(),
            has_locks,
            uses: 0,
        });
        let owner = u32::try_from(owner).expect("owners have a limit");
        names.insert(name, owner);
        owner
    }

    /// Counts one use of an owner less.
    fn unuse(&mut self, owner: u32) {
        self.owners[owner as usize].uses -= 1;
        self.forget_unused(owner);
    }

    /// Forgets an owner without use, and a client without owners.
    fn forget_unused(&mut self, owner: u32) {
        if self.owners[owner as usize].uses > 0 {
            return;
        }
        let Owner {
            client,
            name,
            has_locks,
            ..
        } = self.owners.remove(owner as usize);
        let of_client = self.client_mut(client);
        match has_locks {
            true => of_client.lock_owners.remove(&name),
            false => of_client.open_owners.remove(&name),
        };
        if of_client.open_owners.is_empty() && of_client.lock_owners.is_empty() {
            let address = of_client.address;
            self.clients.remove(&client);
            let of_address = self.addresses.get_mut(&address);
            let of_address = of_address.expect("an address with a client has an entry");
            of_address.clients -= 1;
            if of_address.clients == 0 {
                self.addresses.remove(&address);
            }
        }
    }

    /// Takes the states that are gone, with their files: their last ids.
    pub(crate) fn drain_released(&mut self) -> impl Iterator<Item = (F, StateId)> {
        self.released.drain(..)
    }

    #[cfg(test)]
    pub(crate) fn set_seqid(&mut self, state: StateId, seqid: u32) {
        let [a, b, c, d, ..] = state.other;
        self.entries[u32::from_be_bytes([a, b, c, d]) as usize].seqid = seqid;
    }

    /// Number of all entries, for tests of what is left.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.entries.len()
            + self.files.len()
            + self.owners.len()
            + self.clients.len()
            + self.addresses.len()
            + self.opens.len()
            + self.lock_states.len()
            + self.locks.held()
            + self.locks.waiting()
            + self.running.len()
    }
}

/// The part of a state id that nobody can guess. No state id is special (RFC 8881 §8.2.3).
fn tag(random: &mut impl Random) -> u64 {
    loop {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        match u64::from_ne_bytes(bytes) {
            0 | u64::MAX => {}
            tag => break tag,
        }
    }
}

/// Compares a seqid with that of a state (RFC 8881 §8.2.2): zero is the newest, and after the largest comes one.
///
/// # Errors
///
/// `OldStateId` for one before, `BadStateId` for one to come.
fn check_seqid(seqid: u32, newest: u32) -> Result<(), Status> {
    let has_wrapped = newest < SEQID_WINDOW && seqid > u32::MAX - SEQID_WINDOW;
    let is_to_wrap = seqid < SEQID_WINDOW && newest > u32::MAX - SEQID_WINDOW;
    match seqid {
        0 => Ok(()),
        seqid if seqid == newest => Ok(()),
        _ if has_wrapped => Err(Status::OldStateId),
        _ if is_to_wrap => Err(Status::BadStateId),
        seqid if seqid < newest => Err(Status::OldStateId),
        _ => Err(Status::BadStateId),
    }
}

/// Returns whether a state id is special or reserved: nothing can be found by it (RFC 8881 §8.2.3).
pub(crate) fn special(id: StateId) -> Result<Option<SpecialStateId>, Status> {
    match (id.special(), id.other) {
        (Some(special), _) => Ok(Some(special)),
        (None, other) if other == [0; 12] || other == [0xff; 12] => Err(Status::BadStateId),
        (None, _) => Ok(None),
    }
}
