//! Simple model of what the server has to hold: it is told of each request with its reply, in the order in which they are executed.

use super::site::LEASE;
use super::wire::{Got, Op, Outcome, PARTS};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::{ClientId, StateId, Status};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

/// Names from here on are those of directories.
pub(super) const DIRECTORIES: u8 = 100;

/// The part of a state id that stays.
type Other = [u8; 12];

/// Circumstances of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) now: Instant,
    pub(super) client: ClientId,
    /// Whether there was a grace period when it came or when it was answered.
    pub(super) in_grace: bool,
    /// Whether there is one all the time.
    pub(super) is_in_grace: bool,
    /// The client lies: the request has to fail.
    pub(super) is_lie: bool,
}

#[derive(Debug)]
struct Client {
    machine: usize,
    renewed: Instant,
    is_complete: bool,
}

#[derive(Clone, Debug)]
struct Open {
    client: ClientId,
    owner: u8,
    file: usize,
    access: u32,
    deny: u32,
    /// The values of the OPENs that made it, as bits.
    accesses: u8,
    denies: u8,
    seqid: u32,
}

#[derive(Debug)]
struct Locks {
    client: ClientId,
    locker: u8,
    file: usize,
    open: Other,
    seqid: u32,
}

#[derive(Debug)]
struct File {
    handle: Vec<u8>,
    content: Vec<u8>,
    names: usize,
    /// Owners of locks of each part, and whether they are exclusive.
    locks: [Vec<(ClientId, u8, bool)>; PARTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    File(usize),
    Directory,
    /// A file, if the OPEN of a client that has ended made it. Nobody has written to it.
    Perhaps,
}

/// Opens that a machine had before a restart: their owners and files.
type Before = HashSet<(u8, usize)>;

#[derive(Debug, Default)]
pub(super) struct Reference {
    clients: HashMap<ClientId, Client>,
    opens: HashMap<Other, Open>,
    locks: HashMap<Other, Locks>,
    files: Vec<File>,
    names: BTreeMap<u8, Named>,
    before: HashMap<usize, Before>,
    /// Whether an owner has waited for a lock: what is free may be kept for it.
    pub(super) has_waited: bool,
    /// Whether the server may still have state of a client whose record it is to remove first.
    pub(super) is_ending: bool,
}

fn found<T>(what: impl Into<String>) -> Result<T, String> {
    Err(what.into())
}

impl Reference {
    pub(super) fn enter(&mut self, client: ClientId, machine: usize, now: Instant) {
        let entry = self.clients.entry(client).or_insert(Client {
            machine,
            renewed: now,
            is_complete: false,
        });
        entry.renewed = now;
    }

    pub(super) fn renew(&mut self, client: ClientId, now: Instant) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.renewed = now;
        }
    }

    pub(super) fn is_complete(&self, client: ClientId) -> bool {
        self.clients
            .get(&client)
            .is_some_and(|client| client.is_complete)
    }

    fn has_expired(&self, client: ClientId, now: Instant) -> bool {
        let client = self.clients.get(&client);
        client.is_none_or(|client| now >= client.renewed + LEASE)
    }

    /// Whether some client may have lost its state without a request that told of it.
    pub(super) fn is_uncertain(&self, now: Instant) -> bool {
        self.clients.keys().any(|&id| self.has_expired(id, now))
    }

    /// The client id of a machine, as others have not taken it.
    pub(super) fn of_machine(&self, machine: usize) -> Vec<ClientId> {
        let its = self
            .clients
            .iter()
            .filter(|(_, client)| client.machine == machine);
        its.map(|(&id, _)| id).collect()
    }

    /// The server took the state of a client.
    pub(super) fn lose(&mut self, client: ClientId, now: Instant) -> Result<(), String> {
        if !self.has_expired(client, now) {
            return found(format!(
                "state of {client:?} is gone while its lease lives: {:?}",
                self.clients.get(&client)
            ));
        }
        self.is_ending |= self.clients.contains_key(&client);
        self.end(client);
        Ok(())
    }

    /// A client has no state any more.
    pub(super) fn end(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.opens.retain(|_, open| open.client != client);
        self.locks.retain(|_, locks| locks.client != client);
        for file in &mut self.files {
            for part in &mut file.locks {
                part.retain(|(its, ..)| *its != client);
            }
        }
    }

    /// The server has ended, with a grace period that was still on or not.
    pub(super) fn restart(&mut self, now: Instant, was_in_grace: bool) {
        let mut before = HashMap::new();
        for (&id, client) in &self.clients {
            if client.is_complete && !self.has_expired(id, now) {
                before.insert(client.machine, self.state_of(id));
            }
        }
        if was_in_grace {
            for (machine, state) in self.before.drain() {
                before.entry(machine).or_insert(state);
            }
        }
        self.before = before;
        self.clients.clear();
        self.opens.clear();
        self.locks.clear();
        for file in &mut self.files {
            file.locks = Default::default();
        }
    }

    /// The time for reclaims is over.
    pub(super) fn end_grace(&mut self) {
        self.before.clear();
    }

    fn state_of(&self, client: ClientId) -> Before {
        let opens = self.opens.values().filter(|open| open.client == client);
        opens.map(|open| (open.owner, open.file)).collect()
    }

    /// Number of opens and lock owners, and of locks.
    pub(super) fn usage(&self) -> (usize, usize) {
        let locks = self.files.iter().map(|file| {
            let owners: BTreeSet<_> = file
                .locks
                .iter()
                .flatten()
                .map(|(client, locker, _)| (client.0, *locker))
                .collect();
            let runs = owners.iter().map(|owner| file.runs(*owner));
            runs.sum::<usize>()
        });
        (self.opens.len() + self.locks.len(), locks.sum())
    }

    fn file(&self, handle: &[u8]) -> Option<usize> {
        self.files.iter().position(|file| file.handle == handle)
    }

    /// Takes a request with its reply.
    pub(super) fn apply(
        &mut self,
        when: Circumstances,
        op: &Op,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let Outcome { status, got, .. } = outcome;
        if when.is_lie {
            return match status {
                Ok(()) => found("a lie was believed"),
                Err(_) => Ok(()),
            };
        }
        match status {
            Err(Status::Delay) => return Ok(()),
            Err(Status::Grace) => {
                return match when.in_grace || !self.is_complete(when.client) {
                    true => Ok(()),
                    false => found("a grace period that is over"),
                };
            }
            // The client has ended meanwhile.
            Err(_) if !self.clients.contains_key(&when.client) => {
                if let Op::Open { name, .. } = op {
                    self.names.entry(*name).or_insert(Named::Perhaps);
                }
                return Ok(());
            }
            Err(Status::Stale) => {
                return match op.handle().and_then(|handle| self.file(handle)) {
                    Some(file) if self.files[file].names == 0 => match self.is_held(file, when.now)
                    {
                        true => found("an open file is gone"),
                        false => Ok(()),
                    },
                    _ => found("a file with a name is gone"),
                };
            }
            Err(status @ (Status::BadStateId | Status::OldStateId)) => {
                return self.check_refused(when, op, *status);
            }
            _ => {}
        }
        match op {
            Op::Renew => Ok(()),
            Op::Complete => match (status, self.clients.get_mut(&when.client)) {
                // An earlier request ended with its connection while the client was recorded.
                (Ok(()) | Err(Status::CompleteAlready), Some(client)) => {
                    client.is_complete = true;
                    self.before.remove(&client.machine);
                    Ok(())
                }
                // The reply was made before the client ended.
                (Ok(()), None) => Ok(()),
                (other, _) => found(format!("RECLAIM_COMPLETE: {other:?}")),
            },
            Op::Open {
                owner,
                name,
                access,
                deny,
                guarded,
            } => {
                let known = match self.names.get(name) {
                    Some(Named::File(file)) => Some(*file),
                    Some(Named::Directory) => return found("files have other names"),
                    Some(Named::Perhaps) if *guarded && *status == Err(Status::Exist) => {
                        return Ok(());
                    }
                    Some(Named::Perhaps) | None => None,
                };
                let (state, handle) = match (status, got) {
                    (Ok(()), Got::Opened(state, handle)) => (state, handle),
                    (Err(Status::Exist), _) if *guarded && known.is_some() => return Ok(()),
                    (Err(Status::ShareDenied), _) if known.is_some() => {
                        return self.check_denied(known, (*access, *deny));
                    }
                    _ => return found(format!("OPEN: {outcome:?}")),
                };
                let file = match known {
                    Some(_) if *guarded => return found("a file was made twice"),
                    Some(file) if self.files[file].handle != *handle => {
                        return found("another file has the name");
                    }
                    Some(file) => file,
                    None => {
                        self.files.push(File::new(handle));
                        self.names.insert(*name, Named::File(self.files.len() - 1));
                        self.files.len() - 1
                    }
                };
                self.opened(when, *state, file, (*owner, *access, *deny), false)
            }
            Op::OpenHandle {
                owner,
                handle,
                access,
                deny,
                reclaims,
            } => {
                let Some(file) = self.file(handle) else {
                    return found("an unknown handle is opened");
                };
                let share = (*owner, *access, *deny);
                let machine = self.clients[&when.client].machine;
                match (status, got) {
                    (Ok(()), Got::Opened(state, _)) => {
                        self.opened(when, *state, file, share, *reclaims)
                    }
                    (Err(Status::ShareDenied), _) if !reclaims => {
                        self.check_denied(Some(file), (*access, *deny))
                    }
                    // A client that did not get the reply to its CLOSE reclaims what others have.
                    (Err(Status::ReclaimConflict), _) if *reclaims => {
                        self.check_denied(Some(file), (*access, *deny))
                    }
                    (Err(Status::NoGrace), _) if *reclaims => {
                        match when.is_in_grace && self.had_open(machine, file, *owner) {
                            true => found("a client may not reclaim what it had"),
                            false => Ok(()),
                        }
                    }
                    _ => found(format!("OPEN by handle: {outcome:?}")),
                }
            }
            Op::Close { state, .. } => match status {
                Ok(()) => self.closed(when.client, *state),
                Err(_) => found(format!("CLOSE: {outcome:?}")),
            },
            Op::Downgrade {
                state,
                access,
                deny,
                ..
            } => self.downgrade(*state, (*access, *deny), outcome),
            Op::Lock { .. } => self.lock(when, op, outcome),
            Op::Unlock { state, range, .. } => {
                let (Ok(()), Got::State(new)) = (status, got) else {
                    return found(format!("LOCKU: {outcome:?}"));
                };
                let Some(locks) = self.locks.get_mut(&state.other) else {
                    return found("LOCKU of a state that is gone");
                };
                if new.seqid != locks.seqid + 1 {
                    return found("LOCKU was executed twice");
                }
                locks.seqid = new.seqid;
                let owner = (locks.client, locks.locker);
                let file = &mut self.files[locks.file];
                file.release(owner, *range);
                Ok(())
            }
            Op::Write {
                handle,
                state,
                offset,
                data,
            } => match status {
                Ok(()) => {
                    let Some(file) = self.file(handle) else {
                        return found("WRITE to a file that is not known");
                    };
                    self.check_io(when, file, *state, 2)?;
                    let content = &mut self.files[file].content;
                    let end = offset + data.len();
                    content.resize(content.len().max(end), 0);
                    content[*offset..end].copy_from_slice(data);
                    Ok(())
                }
                Err(Status::Locked | Status::OpenMode) => Ok(()),
                Err(_) => found(format!("WRITE: {outcome:?}")),
            },
            Op::Read { handle, state } => match (status, got) {
                (Ok(()), Got::Data(data)) => {
                    let Some(file) = self.file(handle) else {
                        return found("READ of a file that is not known");
                    };
                    self.check_io(when, file, *state, 1)?;
                    match self.files[file].content == *data {
                        true => Ok(()),
                        false => found(format!(
                            "READ of {data:?}, where {:?} was written",
                            self.files[file].content
                        )),
                    }
                }
                (Err(Status::Locked | Status::OpenMode), _) => Ok(()),
                _ => found(format!("READ: {outcome:?}")),
            },
            Op::Rename { from, to } => match (status, self.names.get(from).copied()) {
                (Err(Status::NoEntry), None) => Ok(()),
                (Err(Status::NoEntry), Some(Named::Perhaps)) => {
                    self.names.remove(from);
                    Ok(())
                }
                (Ok(()), Some(entry)) => {
                    if from != to {
                        self.names.remove(from);
                        self.unlink(*to);
                        self.names.insert(*to, entry);
                    }
                    Ok(())
                }
                _ => found(format!("RENAME: {outcome:?}")),
            },
            Op::Remove { name } => match (status, self.names.get(name)) {
                (Err(Status::NoEntry), None) => Ok(()),
                (Ok(()), Some(_)) | (Err(Status::NoEntry), Some(Named::Perhaps)) => {
                    self.unlink(*name);
                    Ok(())
                }
                _ => found(format!("REMOVE: {outcome:?}")),
            },
            Op::MakeDirectory { name } => match (status, self.names.contains_key(name)) {
                (Err(Status::Exist), true) => Ok(()),
                (Ok(()), false) => {
                    self.names.insert(*name, Named::Directory);
                    Ok(())
                }
                _ => found(format!("CREATE: {outcome:?}")),
            },
            Op::Test { states } => {
                let (Ok(()), Got::Statuses(statuses)) = (status, got) else {
                    return found(format!("TEST_STATEID: {outcome:?}"));
                };
                for (state, status) in states.iter().zip(statuses) {
                    self.check_tested(when.client, *state, *status)?;
                }
                Ok(())
            }
        }
    }

    /// Checks that a state id was refused that is not valid: a client that has several requests on their way may use one that is
    /// gone, or has changed.
    fn check_refused(&self, when: Circumstances, op: &Op, status: Status) -> Result<(), String> {
        let state = match op {
            Op::Lock {
                known: Some(state), ..
            } => *state,
            Op::Lock { open, .. } => *open,
            Op::Close { state, .. }
            | Op::Downgrade { state, .. }
            | Op::Unlock { state, .. }
            | Op::Write { state, .. }
            | Op::Read { state, .. } => *state,
            _ => return found(format!("{status:?} of {op:?}")),
        };
        self.check_tested(when.client, state, Err(status))
    }

    /// RFC 8881 §18.48.3: what is not a valid state id of the client is bad, old or expired, and never of another server instance.
    fn check_tested(
        &self,
        client: ClientId,
        state: StateId,
        status: Result<(), Status>,
    ) -> Result<(), String> {
        let open = self.opens.get(&state.other);
        let open = open.map(|open| (open.client, open.seqid));
        let locks = self.locks.get(&state.other);
        let known = open.or(locks.map(|locks| (locks.client, locks.seqid)));
        let expected = match known {
            Some((its, _)) if its != client => Err(Status::BadStateId),
            Some((_, seqid)) if state.seqid == 0 || state.seqid == seqid => Ok(()),
            Some((_, seqid)) if state.seqid < seqid => Err(Status::OldStateId),
            _ => Err(Status::BadStateId),
        };
        match status == expected {
            true => Ok(()),
            false => found(format!(
                "state id {state:?}: {status:?} where {expected:?} is right"
            )),
        }
    }

    fn had_open(&self, machine: usize, file: usize, owner: u8) -> bool {
        let before = self.before.get(&machine);
        before.is_some_and(|opens| opens.contains(&(owner, file)))
    }

    /// Whether a client with a lease has the file open, or may still reclaim that it had.
    fn is_held(&self, file: usize, now: Instant) -> bool {
        let mut opens = self.opens.values();
        opens.any(|open| open.file == file && !self.has_expired(open.client, now))
    }

    fn opened(
        &mut self,
        when: Circumstances,
        state: StateId,
        file: usize,
        (owner, access, deny): (u8, u32, u32),
        reclaims: bool,
    ) -> Result<(), String> {
        if when.is_in_grace != reclaims && (when.is_in_grace || !when.in_grace) {
            return found("OPEN in the wrong period");
        }
        // RFC 8881 §9.7: own opens count, too.
        let others = self.opens.values().filter(|open| {
            open.file == file && (open.access & deny != 0 || open.deny & access != 0)
        });
        let others: BTreeSet<u64> = others.map(|open| open.client.0).collect();
        for other in others {
            self.lose(ClientId(other), when.now)
                .map_err(|what| format!("shares in conflict: {what}"))?;
        }
        if !self.clients.contains_key(&when.client) {
            return found("OPEN of a client that is gone");
        }
        let known = self.opens.iter().find(|(_, open)| {
            open.file == file && (open.client, open.owner) == (when.client, owner)
        });
        let seqid = match known {
            Some((other, open)) if *other == state.other => open.seqid + 1,
            Some(_) => return found("an owner has two opens of a file"),
            None => 1,
        };
        if state.seqid != seqid {
            return found(format!("OPEN was executed twice: {state:?}"));
        }
        let open = self.opens.entry(state.other).or_insert(Open {
            client: when.client,
            owner,
            file,
            access: 0,
            deny: 0,
            accesses: 0,
            denies: 0,
            seqid,
        });
        open.access |= access;
        open.deny |= deny;
        open.accesses |= 1 << access;
        open.denies |= 1 << deny;
        open.seqid = seqid;
        Ok(())
    }

    fn check_denied(&self, file: Option<usize>, (access, deny): (u32, u32)) -> Result<(), String> {
        let conflicts = |open: &Open| {
            Some(open.file) == file && (open.access & deny != 0 || open.deny & access != 0)
        };
        match self.opens.values().any(conflicts) {
            true => Ok(()),
            false => found("a share is denied, and nobody has one"),
        }
    }

    fn closed(&mut self, client: ClientId, state: StateId) -> Result<(), String> {
        match self.opens.remove(&state.other) {
            Some(open) if open.client == client => {}
            other => return found(format!("CLOSE of {other:?}")),
        }
        let gone: Vec<_> = self
            .locks
            .extract_if(|_, locks| locks.open == state.other)
            .collect();
        for (_, locks) in gone {
            let owner = (locks.client, locks.locker);
            self.files[locks.file].release(owner, (0, PARTS - 1));
        }
        Ok(())
    }

    /// RFC 8881 §18.18.3: what is left is the union of what some of the OPENs had.
    fn downgrade(
        &mut self,
        state: StateId,
        (access, deny): (u32, u32),
        outcome: &Outcome,
    ) -> Result<(), String> {
        let Some(open) = self.opens.get_mut(&state.other) else {
            return found("OPEN_DOWNGRADE of a state that is gone");
        };
        let (accesses, denies) = (parts(open.accesses, access), parts(open.denies, deny));
        let is_allowed = union(accesses) == Some(access) && union(denies) == Some(deny);
        match (outcome.status, &outcome.got) {
            (Ok(()), Got::State(new)) if is_allowed && new.seqid == open.seqid + 1 => {
                open.seqid = new.seqid;
                (open.access, open.deny) = (access, deny);
                (open.accesses, open.denies) = (accesses, denies);
                Ok(())
            }
            (Err(Status::Invalid), _) if !is_allowed => Ok(()),
            _ => found(format!("OPEN_DOWNGRADE of {open:?}: {outcome:?}")),
        }
    }

    fn lock(&mut self, when: Circumstances, op: &Op, outcome: &Outcome) -> Result<(), String> {
        let Op::Lock {
            handle,
            open,
            known,
            locker,
            range,
            kind,
            reclaims,
        } = op
        else {
            return found("it is a LOCK");
        };
        let Some(file) = self.file(handle) else {
            return found("LOCK of a file that is not known");
        };
        let exclusive = matches!(kind, LockType::Write | LockType::WriteWait);
        self.has_waited |= matches!(kind, LockType::WriteWait | LockType::ReadWait);
        let owner = (when.client, *locker);
        let parts = &self.files[file].locks[range.0..=range.1];
        let others = parts.iter().flatten().filter(|(client, by, is_exclusive)| {
            (*client, *by) != owner && (exclusive || *is_exclusive)
        });
        let others: BTreeSet<u64> = others.map(|(client, ..)| client.0).collect();
        let state = match (outcome.status, &outcome.got) {
            (Ok(()), Got::State(state)) => *state,
            (Err(Status::Denied), _) => {
                return match others.is_empty() && !self.has_waited {
                    true => found("a lock is denied, and nobody has one"),
                    false => Ok(()),
                };
            }
            (Err(Status::OpenMode), _) => return Ok(()),
            (Err(Status::ReclaimConflict), _) if *reclaims && !others.is_empty() => return Ok(()),
            (Err(Status::NoGrace), _) if *reclaims => {
                return match when.is_in_grace {
                    true => found("a client may not reclaim its lock"),
                    false => Ok(()),
                };
            }
            _ => return found(format!("LOCK: {outcome:?}")),
        };
        if when.is_in_grace != *reclaims && (when.is_in_grace || !when.in_grace) {
            return found("LOCK in the wrong period");
        }
        for other in others {
            self.lose(ClientId(other), when.now)
                .map_err(|what| format!("two owners of a lock: {what}"))?;
        }
        if !self.clients.contains_key(&when.client) {
            return found("LOCK of a client that is gone");
        }
        let by_name = self
            .locks
            .iter()
            .find(|(_, locks)| (locks.client, locks.locker) == owner && locks.file == file);
        let seqid = match by_name {
            Some((other, locks)) if *other == state.other => locks.seqid + 1,
            Some(_) => return found("an owner of locks has two states"),
            None if known.is_some() => return found("LOCK with a state that is gone"),
            None => 1,
        };
        if state.seqid != seqid {
            return found("LOCK was executed twice");
        }
        let locks = self.locks.entry(state.other).or_insert(Locks {
            client: when.client,
            locker: *locker,
            file,
            open: open.other,
            seqid,
        });
        locks.seqid = seqid;
        self.files[file].release(owner, *range);
        for part in &mut self.files[file].locks[range.0..=range.1] {
            part.push((when.client, *locker, exclusive));
        }
        Ok(())
    }

    /// Checks that data may be read or written with a state id, which may be the anonymous one.
    fn check_io(
        &self,
        when: Circumstances,
        file: usize,
        state: StateId,
        access: u32,
    ) -> Result<(), String> {
        if state == StateId::default() {
            let denies = |open: &Open| {
                open.file == file
                    && open.deny & access != 0
                    && !self.has_expired(open.client, when.now)
            };
            return match self.opens.values().any(denies) {
                true => found("data is accessed that an open denies"),
                false => Ok(()),
            };
        }
        // The request may have been on its way when the state ended.
        Ok(())
    }

    fn unlink(&mut self, name: u8) {
        if let Some(Named::File(file)) = self.names.remove(&name) {
            self.files[file].names = 0;
        }
    }

    /// Returns the names that there are, and perhaps some more.
    pub(super) fn names(&self) -> Vec<u8> {
        self.names.keys().copied().collect()
    }

    pub(super) fn has_name(&self, name: u8) -> bool {
        self.names.contains_key(&name)
    }
}

/// Values of a set that are part of a value.
fn parts(set: u8, value: u32) -> u8 {
    let is_part = |part: &u32| set & (1 << part) != 0 && part & !value == 0;
    (0..4).filter(is_part).fold(0, |set, part| set | 1 << part)
}

fn union(set: u8) -> Option<u32> {
    let values = (0..4).filter(|value| set & (1 << value) != 0);
    values.reduce(|all, value| all | value)
}

impl File {
    fn new(handle: &[u8]) -> Self {
        Self {
            handle: handle.to_vec(),
            content: Vec::new(),
            names: 1,
            locks: Default::default(),
        }
    }

    fn release(&mut self, owner: (ClientId, u8), (first, last): (usize, usize)) {
        for part in &mut self.locks[first..=last] {
            part.retain(|(client, locker, _)| (*client, *locker) != owner);
        }
    }

    /// Number of locks of an owner, if those beside each other of one kind are one.
    fn runs(&self, (client, locker): (u64, u8)) -> usize {
        let mut last = None;
        let mut runs = 0;
        for part in &self.locks {
            let its = part
                .iter()
                .find(|(its, by, _)| (its.0, *by) == (client, locker))
                .map(|(_, _, exclusive)| *exclusive);
            runs += usize::from(its.is_some() && its != last);
            last = its;
        }
        runs
    }
}

impl Op {
    /// The handle of its file, if it names it by that.
    pub(super) fn handle(&self) -> Option<&[u8]> {
        match self {
            Self::OpenHandle { handle, .. }
            | Self::Close { handle, .. }
            | Self::Lock { handle, .. }
            | Self::Downgrade { handle, .. }
            | Self::Unlock { handle, .. }
            | Self::Write { handle, .. }
            | Self::Read { handle, .. } => Some(handle),
            _ => None,
        }
    }
}
