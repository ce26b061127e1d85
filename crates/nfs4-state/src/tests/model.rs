//! Clients that crash, repeat themselves, lie and move, and a server that restarts, against a simple model of what they hold.
//!
//! A run is decided by its seed. Stable storage does what is demanded some time later, in order; what it has not done
//! when the server crashes is lost.

mod adversity;
mod reference;

use super::*;
use crate::limits::RESERVATION;
use crate::lock::LockKind;
use bytes::Bytes;
use nfs_proto::v4::lock::LockType::{ReadWait, WriteWait};
use reference::{BYTES, Reference};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

const FILES: u32 = 2;
const OWNERS: u8 = 2;

/// A session, as its client knows it.
#[derive(Clone, Debug)]
struct Live {
    client: ClientId,
    session: SessionId,
    /// Next sequence id of each slot.
    slots: Vec<u32>,
    /// Which instance of the server made it.
    epoch: u32,
    /// It has sent RECLAIM_COMPLETE.
    is_complete: bool,
}

/// An open, as its client knows it, with the state ids of lock owners in it.
#[derive(Clone, Debug)]
struct Held {
    owner: u8,
    file: u32,
    state: StateId,
    /// Access and denial.
    share: (u32, u32),
    locks: HashMap<u8, StateId>,
}

#[derive(Debug)]
struct Machine {
    name: String,
    principal: u32,
    instance: u8,
    live: Option<Live>,
    /// Its RECLAIM_COMPLETE is not answered.
    pending: Option<Ticket>,
    held: Vec<Held>,
    /// It is switched off until then.
    silent_until: Instant,
}

/// State of a machine before the server's restart.
#[derive(Clone, Debug)]
struct Before {
    shares: Vec<(u8, u32, u32, u32)>,
    locks: Vec<(u32, u64, u8, (LockKind, u8))>,
    /// Its lease had not run out.
    must_succeed: bool,
    /// Others may have had it since.
    is_taken: bool,
}

struct Sim {
    seed: u64,
    has_slow_disk: bool,
    /// It crashes at the worst of moments.
    is_to_crash: bool,
    server: Server<u32, u32>,
    epoch: u32,
    booted: Instant,
    now: Instant,
    rng: fastrand::Rng,
    durable: BTreeMap<Arc<[u8]>, u32>,
    storage: VecDeque<Demand<u32, u32>>,
    machines: Vec<Machine>,
    reference: Reference,
    /// Last renewal of each client id.
    renewed: HashMap<ClientId, Instant>,
    /// Client ids that are gone.
    lost: HashSet<ClientId>,
    /// Those from which something was taken.
    taken: HashSet<ClientId>,
    executed: HashSet<(SessionId, u32, u32)>,
    before: HashMap<usize, Before>,
    told: Vec<(ClientId, Vec<u8>, u32, Instant)>,
    tally: [usize; 7],
}

impl Sim {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let machines = (0..4).map(|at| Machine {
            name: format!("machine {at}"),
            principal: at,
            instance: 1,
            live: None,
            pending: None,
            held: Vec::new(),
            silent_until: now,
        });
        Self {
            seed,
            has_slow_disk: seed % 2 == 1,
            is_to_crash: false,
            server: Server::new(now, config(), []),
            epoch: 0,
            booted: now,
            now,
            rng: fastrand::Rng::with_seed(seed),
            durable: BTreeMap::new(),
            storage: VecDeque::new(),
            machines: machines.collect(),
            reference: Reference::default(),
            renewed: HashMap::new(),
            lost: HashSet::new(),
            taken: HashSet::new(),
            executed: HashSet::new(),
            before: HashMap::new(),
            told: Vec::new(),
            tally: [0; 7],
        }
    }

    fn has_expired(&self, client: ClientId) -> bool {
        let renewed = self.renewed.get(&client);
        renewed.is_none_or(|&at| self.now >= at + LEASE)
    }

    /// Others may have what a client had.
    fn lose(&mut self, client: ClientId) {
        assert!(
            self.has_expired(client),
            "lost while its lease lived: seed {}",
            self.seed
        );
        self.reference.end(client);
        self.lost.insert(client);
    }

    /// Something was granted that is in conflict with what these clients have.
    fn take_from(&mut self, clients: BTreeSet<ClientId>) {
        for client in clients {
            self.lose(client);
            self.taken.insert(client);
            self.is_to_crash = self.has_slow_disk && self.rng.bool();
            self.tally[6] += 1;
        }
    }

    fn collect(&mut self) {
        while let Some(demand) = self.server.poll_demand() {
            match demand {
                Demand::Record(..) | Demand::Remove(..) => self.storage.push_back(demand),
                Demand::NotifyLock {
                    client,
                    owner,
                    file,
                } => {
                    self.told.push((client, owner.to_vec(), file, self.now));
                }
                Demand::Release { .. } | Demand::RecallSlots { .. } => {}
            }
        }
    }

    /// Stable storage does the first thing demanded of it, and reports unless the server crashes before.
    fn store(&mut self, reports: bool) {
        match self.storage.pop_front() {
            Some(Demand::Record(ticket, Recorded { owner, principal })) => {
                self.durable.insert(owner, principal);
                if reports {
                    let answer = self.server.handle_recorded(ticket, true);
                    self.answered(ticket, answer.expect("the ticket was issued"));
                }
            }
            Some(Demand::Remove(ticket, owner)) => {
                self.durable.remove(&owner);
                if reports {
                    self.server.handle_removed(self.now, ticket);
                }
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        self.collect();
    }

    fn answered(&mut self, ticket: Ticket, answer: Result<(), Status>) {
        let waits = |machine: &&mut Machine| machine.pending == Some(ticket);
        if let Some(machine) = self.machines.iter_mut().find(waits) {
            machine.pending = None;
            match answer {
                Ok(()) => machine.live.as_mut().unwrap().is_complete = true,
                Err(status) => assert_eq!(status, Status::StaleClientId),
            }
        }
    }

    /// A machine has a session: what its earlier client id had is gone.
    fn connected(&mut self, at: usize, client: ClientId, session: SessionId) {
        let earlier = self.machines[at].live.take().map(|live| live.client);
        if let Some(earlier) = earlier.filter(|&earlier| earlier != client) {
            self.reference.end(earlier);
            // It may be leaving, and not be gone as yet.
            if self.has_expired(earlier) {
                self.lost.insert(earlier);
            }
        }
        self.machines[at].held.clear();
        self.renewed.insert(client, self.now);
        self.machines[at].live = Some(Live {
            client,
            session,
            slots: vec![1; 8],
            epoch: self.epoch,
            is_complete: false,
        });
    }

    /// A machine reclaims what it had before a restart, and says that this is all.
    fn complete(&mut self, at: usize, client: ClientId) {
        if let Some(before) = self.before.remove(&at) {
            self.reclaim(at, client, &before);
        }
        match self.server.reclaim_complete(client, false) {
            Ok(Completed::Done) => {
                self.machines[at].live.as_mut().unwrap().is_complete = true;
            }
            Ok(Completed::AfterRecord(ticket)) => self.machines[at].pending = Some(ticket),
            Err(status) => panic!("{status:?}: seed {}", self.seed),
        }
        self.collect();
    }

    fn reclaim(&mut self, at: usize, client: ClientId, before: &Before) {
        let in_time = self.now < self.booted + LEASE;
        let mut machine = std::mem::take(&mut self.machines[at].held);
        for &(owner, file, access, deny) in &before.shares {
            match self.call_open(client, owner, file, access, deny, true) {
                Ok(state) => {
                    assert!(!before.is_taken, "others had it: seed {}", self.seed);
                    let conflicts = self.reference.share_conflicts(file, access, deny);
                    assert!(conflicts.is_empty(), "seed {}", self.seed);
                    self.reference.open(client, owner, file, access, deny);
                    machine.push(Held {
                        owner,
                        file,
                        state,
                        share: (access, deny),
                        locks: HashMap::new(),
                    });
                    self.tally[0] += 1;
                }
                Err(status) => {
                    assert_eq!(status, Status::NoGrace, "seed {}", self.seed);
                    assert!(!(before.must_succeed && in_time), "seed {}", self.seed);
                }
            }
        }
        for &(file, byte, owner, (kind, via)) in &before.locks {
            let held = machine
                .iter_mut()
                .find(|h| (h.owner, h.file) == (via, file));
            let Some(held) = held else {
                continue;
            };
            let request = LockRequest {
                client,
                file: &file,
                range: Range::of_bytes(byte, byte).unwrap(),
                kind: kind.into(),
                locker: Locker::New {
                    open: newest(held.state),
                    owner: &[owner],
                },
                reclaims: true,
            };
            let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
            let state = self.server.lock(self.now, random, &request);
            let share = self.reference.share_mut(client, via, file).unwrap();
            let (access, _) = share.union();
            if state == Err(LockError::Status(Status::OpenMode)) {
                // The open was downgraded after the lock was made.
                assert!(kind == LockKind::Exclusive && access == 1 || access == 2);
                continue;
            }
            let state = state.expect("the open was reclaimed, and its locks are free");
            held.locks.insert(owner, state);
            let bytes = (byte, byte);
            let locker = (client, owner);
            let conflicts = self.reference.lock_conflicts(locker, file, bytes, kind);
            assert!(conflicts.is_empty(), "seed {}", self.seed);
            self.reference.lock(locker, file, bytes, Some((kind, via)));
        }
        self.machines[at].held = machine;
    }

    fn call_open(
        &mut self,
        client: ClientId,
        owner: u8,
        file: u32,
        access: u32,
        deny: u32,
        reclaims: bool,
    ) -> Result<StateId, Status> {
        let request = OpenRequest {
            client,
            owner: &[owner],
            file: &file,
            access: ShareAccess::from_bits_retain(access),
            deny: ShareDeny::from_bits_retain(deny),
            reclaims,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let opened = self.server.open(self.now, random, &request);
        self.collect();
        opened
    }

    /// A machine gets a client id and a session.
    fn connect(&mut self, at: usize) {
        let machine = &self.machines[at];
        let call = ExchangeCall {
            owner: machine.name.as_bytes(),
            verifier: Verifier([machine.instance; 8]),
            principal: &machine.principal,
            address: AddressKey(1),
            flags: ExchangeFlags::empty(),
            protection: None,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let known = self.server.exchange_id(self.now, random, &call);
        let known = known.expect("nobody else has its owner");
        let args = CreateSessionArgs {
            client: known.client,
            sequence: known.sequence,
            flags: CreateSessionFlags::CONN_BACK_CHAN,
            fore: attributes(8),
            back: attributes(4),
            callback_program: 0x4000_0000,
            callback_security: Default::default(),
        };
        let call = CreateCall {
            args: &args,
            principal: &machine.principal,
            connection: ConnectionId(self.rng.u64(..100)),
            can_call: true,
            minor_version: 1,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        match self.server.create_session(self.now, random, &call) {
            Ok(session) => {
                let again = self.server.create_session(self.now, random, &call);
                assert_eq!(again, Ok(session));
                self.connected(at, known.client, session.session);
            }
            Err(status) => panic!("{status:?}: seed {}", self.seed),
        }
        self.collect();
    }

    /// Begins a request on a slot, which may be sent more than once. `None` if the session is gone.
    fn begin(&mut self, at: usize) -> Option<(Request, SequenceArgs)> {
        let live = self.machines[at].live.clone()?;
        let slot = self.rng.usize(..live.slots.len());
        let args = SequenceArgs {
            session: live.session,
            sequence: SequenceId(live.slots[slot]),
            slot: SlotId(u32::try_from(slot).unwrap()),
            highest_slot: SlotId(7),
            cache_this: true,
        };
        let request = match self.send(&args) {
            Ok(Sequenced::New(request)) => request,
            Ok(other) => panic!("{other:?}: seed {}", self.seed),
            Err(status) => {
                assert_eq!(status, Status::BadSession, "seed {}", self.seed);
                let is_ended = live.epoch != self.epoch || self.has_expired(live.client);
                assert!(is_ended, "a session was lost: seed {}", self.seed);
                if live.epoch == self.epoch {
                    self.lose(live.client);
                    self.machines[at].live = None;
                    self.machines[at].held.clear();
                }
                return None;
            }
        };
        let key = (live.session, args.slot.0, args.sequence.0);
        assert!(
            self.executed.insert(key),
            "executed twice: seed {}",
            self.seed
        );
        self.renewed.insert(live.client, self.now);
        if self.rng.u8(..4) == 0 {
            assert!(matches!(self.send(&args), Ok(Sequenced::InProgress)));
        }
        let live = self.machines[at].live.as_mut().unwrap();
        live.slots[slot] += 1;
        Some((request, args))
    }

    fn send(&mut self, args: &SequenceArgs) -> Result<Sequenced, Status> {
        let call = SequenceCall {
            args,
            connection: ConnectionId(self.rng.u64(..100)),
            digest: RequestDigest(u64::from(args.sequence.0)),
            operations: 2,
            size: 200,
        };
        self.server.sequence(self.now, &call)
    }

    /// Ends a request, and sends it again.
    fn end(&mut self, request: Request, args: &SequenceArgs) {
        let is_kept = self.rng.bool();
        let reply = Bytes::from(format!("{:?} {:?}", args.slot, args.sequence));
        self.server
            .finish(self.now, request, is_kept.then(|| reply.clone()));
        for _ in 0..self.rng.u8(..3) {
            match self.send(args) {
                Ok(Sequenced::Replay(again)) => assert!(is_kept && again == reply),
                Ok(Sequenced::Uncached(result)) => {
                    assert!(!is_kept && result.sequence == args.sequence);
                }
                other => panic!("{other:?}: seed {}", self.seed),
            }
        }
        let wrong = SequenceArgs {
            sequence: SequenceId(args.sequence.0 + 2 + self.rng.u32(..9)),
            ..*args
        };
        assert_eq!(self.send(&wrong).err(), Some(Status::SequenceMisordered));
    }

    /// A refusal may be due to clients whose leases ran out, or that are leaving.
    fn may_be_delayed(&self, conflicts: &BTreeSet<ClientId>) -> bool {
        let is_leaving = |demand: &Demand<u32, u32>| matches!(demand, Demand::Remove(..));
        conflicts.iter().any(|&client| self.has_expired(client))
            || self.storage.iter().any(is_leaving)
    }

    fn open(&mut self, at: usize, client: ClientId) {
        let (owner, file) = (self.rng.u8(..OWNERS), self.rng.u32(..FILES));
        let access = self.rng.u32(1..4);
        let deny = self.rng.choice([0, 0, 0, 1, 2, 3]).unwrap();
        let conflicts = self.reference.share_conflicts(file, access, deny);
        match self.call_open(client, owner, file, access, deny, false) {
            Ok(state) => {
                assert!(!self.server.is_in_grace(), "seed {}", self.seed);
                self.take_from(conflicts);
                self.reference.open(client, owner, file, access, deny);
                let mut held = self.machines[at].held.iter_mut();
                match held.find(|held| (held.owner, held.file) == (owner, file)) {
                    Some(held) => {
                        assert_eq!(held.state.other, state.other);
                        assert_eq!(held.state.seqid + 1, state.seqid);
                        held.state = state;
                        held.share = (held.share.0 | access, held.share.1 | deny);
                    }
                    None => self.machines[at].held.push(Held {
                        owner,
                        file,
                        state,
                        share: (access, deny),
                        locks: HashMap::new(),
                    }),
                }
                self.tally[1] += 1;
            }
            Err(Status::ShareDenied) => {
                assert!(
                    !conflicts.is_empty(),
                    "nothing is in the way: seed {}",
                    self.seed
                );
                self.tally[2] += 1;
            }
            Err(Status::Delay) => {
                assert!(self.may_be_delayed(&conflicts), "seed {}", self.seed);
            }
            Err(Status::Grace) => assert!(self.server.is_in_grace(), "seed {}", self.seed),
            Err(status) => panic!("{status:?}: seed {}", self.seed),
        }
    }

    fn pick(&mut self, at: usize) -> Option<usize> {
        match self.machines[at].held.len() {
            0 => None,
            held => Some(self.rng.usize(..held)),
        }
    }

    fn close(&mut self, at: usize, client: ClientId) {
        if let Some(which) = self.pick(at) {
            let Held {
                owner, file, state, ..
            } = self.machines[at].held.swap_remove(which);
            let closed = self.server.close(self.now, client, &file, state);
            assert!(closed.is_ok(), "{closed:?}: seed {}", self.seed);
            let again = self.server.close(self.now, client, &file, state);
            assert_eq!(again, Err(Status::BadStateId));
            self.reference.close(client, owner, file);
        }
    }

    fn downgrade(&mut self, at: usize, client: ClientId) {
        let Some(which) = self.pick(at) else { return };
        let (access, deny) = (self.rng.u32(1..4), self.rng.u32(..4));
        let held = &mut self.machines[at].held[which];
        let downgraded = self.server.downgrade(
            client,
            &held.file,
            held.state,
            ShareAccess::from_bits_retain(access),
            ShareDeny::from_bits_retain(deny),
        );
        let share = self
            .reference
            .share_mut(client, held.owner, held.file)
            .unwrap();
        // Each union of some of the parts, by trying all.
        let parts = share.parts.clone();
        let unions = |of: fn(&(u32, u32)) -> u32, wanted: u32| {
            let values: BTreeSet<u32> = parts.iter().map(of).collect();
            let values: Vec<u32> = values.into_iter().collect();
            (1..1_u32 << values.len()).any(|some| {
                let some = (0..values.len()).filter(|&at| some >> at & 1 != 0);
                some.fold(0, |all, at| all | values[at]) == wanted
            })
        };
        match unions(|part| part.0, access) && unions(|part| part.1, deny) {
            true => {
                held.state = downgraded.expect("it is a union");
                held.share = (access, deny);
                // What a later downgrade may be is what is left of each.
                let mut left = Vec::new();
                let accesses = parts.iter().map(|p| p.0).filter(|a| a & !access == 0);
                let accesses: Vec<u32> = accesses.collect();
                for denies in parts.iter().map(|p| p.1).filter(|d| d & !deny == 0) {
                    left.extend(accesses.iter().map(|&access| (access, denies)));
                }
                share.parts = left;
            }
            false => assert_eq!(downgraded, Err(Status::Invalid), "seed {}", self.seed),
        }
    }

    fn lock(&mut self, at: usize, client: ClientId) {
        let Some(which) = self.pick(at) else { return };
        let owner = self.rng.u8(..OWNERS);
        let kinds = [LockType::Read, LockType::Write, ReadWait, WriteWait];
        let lock_type = self.rng.choice(kinds).unwrap();
        let kind = LockKind::from(lock_type);
        let first = self.rng.u64(..BYTES);
        let last = self.rng.u64(first..BYTES);
        let Held {
            owner: via,
            file,
            state,
            ref locks,
            ..
        } = self.machines[at].held[which];
        let name = [owner];
        let locker = match locks.get(&owner) {
            Some(&state) if self.rng.bool() => Locker::Existing(state),
            _ => Locker::New {
                open: newest(state),
                owner: &name,
            },
        };
        let request = LockRequest {
            client,
            file: &file,
            range: Range::of_bytes(first, last).unwrap(),
            kind: lock_type,
            locker,
            reclaims: false,
        };
        let conflicts = (self.reference).lock_conflicts((client, owner), file, (first, last), kind);
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let locked = self.server.lock(self.now, random, &request);
        self.collect();
        let share = self.reference.share_mut(client, via, file).unwrap();
        let (access, _) = share.union();
        let may = match kind {
            LockKind::Shared => access & 1 != 0,
            LockKind::Exclusive => access & 2 != 0,
        };
        match locked {
            Ok(state) => {
                assert!(may && !self.server.is_in_grace(), "seed {}", self.seed);
                self.take_from(conflicts);
                let bytes = (first, last);
                self.reference
                    .lock((client, owner), file, bytes, Some((kind, via)));
                self.machines[at].held[which].locks.insert(owner, state);
                self.tally[3] += 1;
            }
            Err(LockError::Denied(denied)) if conflicts.contains(&denied.client) => {
                self.tally[4] += 1;
            }
            Err(LockError::Denied(denied)) => {
                let waits = matches!(lock_type, ReadWait | WriteWait);
                let (now, its) = (self.now, (denied.client, denied.owner.to_vec(), file));
                let was_told = self.told.iter().any(|(client, owner, file, at)| {
                    (*client, owner.clone(), *file) == its && now < *at + RESERVATION
                });
                assert!(
                    waits && was_told,
                    "nothing is in the way: seed {}",
                    self.seed
                );
                self.tally[5] += 1;
            }
            Err(LockError::Status(Status::OpenMode)) => assert!(!may, "seed {}", self.seed),
            Err(LockError::Status(Status::Delay)) => {
                assert!(self.may_be_delayed(&conflicts), "seed {}", self.seed);
            }
            Err(LockError::Status(Status::Grace)) => {
                assert!(self.server.is_in_grace(), "seed {}", self.seed);
            }
            Err(LockError::Status(status)) => panic!("{status:?}: seed {}", self.seed),
        }
    }

    fn unlock(&mut self, at: usize, client: ClientId) {
        let Some(which) = self.pick(at) else { return };
        let held = &mut self.machines[at].held[which];
        let owner = self.rng.u8(..OWNERS);
        let Some(state) = held.locks.get_mut(&owner) else {
            return;
        };
        let first = self.rng.u64(..BYTES);
        let last = self.rng.u64(first..BYTES);
        let range = Range::of_bytes(first, last).unwrap();
        let unlocked = self
            .server
            .unlock(self.now, client, &held.file, *state, range);
        *state = unlocked.expect("the state is held");
        let file = held.file;
        self.reference
            .lock((client, owner), file, (first, last), None);
    }

    fn operate(&mut self, at: usize) {
        let is_off = self.now < self.machines[at].silent_until;
        if is_off || self.machines[at].pending.is_some() {
            return;
        }
        let Some((request, args)) = self.begin(at) else {
            return self.connect(at);
        };
        let client = request.client();
        match self.rng.u8(..12) {
            _ if !self.machines[at].live.as_ref().unwrap().is_complete => {
                self.complete(at, client);
            }
            0..3 => self.open(at, client),
            3 => self.close(at, client),
            4 => self.downgrade(at, client),
            5..9 => self.lock(at, client),
            9..11 => self.unlock(at, client),
            _ => {}
        }
        self.collect();
        // The client may have been ended in the meantime only if its lease had run out, and it has just been renewed.
        self.end(request, &args);
    }

    fn step(&mut self) {
        let at = self.rng.usize(..self.machines.len());
        match self.rng.u8(..100) {
            0..60 => self.operate(at),
            60..72 if self.has_slow_disk && self.rng.u8(..8) > 0 => {}
            60..72 => self.store(true),
            72..82 => self.now += Duration::from_secs(self.rng.u64(..15)),
            82..88 => {
                self.server.handle_timeout(self.now);
                self.collect();
            }
            88 => {
                let silence = LEASE.mul_f64(1.0 + self.rng.f64() * 1.5);
                self.machines[at].silent_until = self.now + silence;
            }
            91 if self.rng.u8(..3) == 0 => {
                // It restarts, and knows nothing.
                let machine = &mut self.machines[at];
                machine.instance = machine.instance.wrapping_add(1);
                machine.held.clear();
                machine.pending = None;
                self.before.remove(&at);
                self.connect(at);
            }
            92 if self.rng.u8(..6) == 0 => self.crash(),
            93..95 => self.lie(at),
            95 => {
                let connection = ConnectionId(self.rng.u64(..100));
                self.server.handle_disconnect(connection);
            }
            _ => self.audit(),
        }
        if std::mem::take(&mut self.is_to_crash) {
            self.crash();
        }
        if !self.server.is_in_grace() {
            for before in self.before.values_mut() {
                (before.is_taken, before.must_succeed) = (true, false);
            }
        }
    }

    /// All clients are silent from now on: nothing is left of them.
    fn fade(&mut self) {
        for connection in 0..100 {
            self.server.handle_disconnect(ConnectionId(connection));
        }
        self.collect();
        while !self.storage.is_empty() {
            self.store(true);
        }
        while let Some(due) = self.server.poll_timeout() {
            self.now = self.now.max(due);
            self.server.handle_timeout(self.now);
            self.collect();
            while !self.storage.is_empty() {
                self.store(true);
            }
        }
        assert_eq!(
            self.server.entries(),
            0,
            "seed {}: {:#?}",
            self.seed,
            self.server
        );
        assert!(self.durable.is_empty(), "seed {}", self.seed);
    }
}

#[test]
fn clients_hold_what_the_model_says_through_crashes_lies_and_restarts() {
    let mut tally = [0; 7];
    for seed in 0..120 {
        let mut sim = Sim::new(seed);
        for _ in 0..1000 {
            sim.step();
        }
        sim.fade();
        for (all, its) in tally.iter_mut().zip(sim.tally) {
            *all += its;
        }
    }
    // Reclaims; opens granted and denied; locks granted, denied, and kept for those who wait; state of expired clients taken.
    let enough = [300, 1000, 1000, 1000, 500, 1, 20];
    let is_enough = tally.iter().zip(enough).all(|(&had, least)| had >= least);
    assert!(is_enough, "the runs must come by everything: {tally:?}");
}
