//! Lies, crashes of the server, and the comparison of its tables with the model.

use super::reference::Reference;
use super::*;

impl Sim {
    /// Somebody tries what is another's.
    pub(super) fn lie(&mut self, at: usize) {
        let machine = &self.machines[at];
        let Some(live) = machine.live.clone() else {
            return;
        };
        let is_safe = live.epoch == self.epoch && !self.has_expired(live.client);
        let liar = 77;
        if is_safe {
            let destroyed = self.server.destroy_client(self.now, live.client, &liar);
            assert_eq!(destroyed, Err(Status::ClientIdBusy), "seed {}", self.seed);
            for held in &machine.held {
                for other in &self.machines {
                    if let Some(other) = other.live.as_ref().filter(|l| l.client != live.client) {
                        let test = self.server.test_state(other.client, held.state);
                        assert_eq!(test, Err(Status::BadStateId));
                        let freed = self.server.free_state(other.client, newest(held.state));
                        assert_eq!(freed, Err(Status::BadStateId));
                    }
                }
            }
        }
        let mut session = live.session;
        session.0[self.rng.usize(..16)] ^= 1 << self.rng.u8(..8);
        let destroyed = self.server.destroy_session(session, &liar, ConnectionId(1));
        assert_eq!(destroyed, Err(Status::BadSession));
        let call = ExchangeCall {
            owner: self.machines[at].name.as_bytes(),
            verifier: Verifier([200; 8]),
            principal: &liar,
            address: AddressKey(9),
            flags: ExchangeFlags::empty(),
            protection: None,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let exchanged = self.server.exchange_id(self.now, random, &call);
        self.collect();
        match exchanged {
            Err(status) => assert_eq!(status, Status::ClientIdInUse),
            Ok(_) => {
                assert!(!is_safe, "seed {}", self.seed);
                if live.epoch == self.epoch {
                    self.lose(live.client);
                }
            }
        }
    }

    /// The server crashes: what stable storage was to do is done in part, and nothing else is left.
    pub(super) fn crash(&mut self) {
        for _ in 0..self.rng.usize(..=self.storage.len()) {
            self.store_in_crash();
        }
        self.storage.clear();
        // Those that have not come back after the last crash must still come in time.
        let is_in_time = self.now < self.booted + LEASE;
        for before in self.before.values_mut() {
            before.must_succeed &= is_in_time;
        }
        for at in 0..self.machines.len() {
            self.machines[at].pending = None;
            let Some(live) = &self.machines[at].live else {
                continue;
            };
            if live.epoch != self.epoch || !live.is_complete {
                continue;
            }
            let client = live.client;
            // One that lost what it had does not know, and tries.
            let is_lost = self.lost.contains(&client);
            let shares = self.machines[at].held.iter();
            let shares = shares.map(|h| (h.owner, h.file, h.share.0, h.share.1));
            let shares = shares.collect();
            let before = Before {
                shares,
                locks: self.reference.locks_of(client),
                must_succeed: !is_lost && !self.has_expired(client),
                is_taken: self.taken.contains(&client),
            };
            self.before.insert(at, before);
        }
        self.reference = Reference::default();
        self.told.clear();
        self.server = Server::new(self.now, config(), recorded(&self.durable));
        self.booted = self.now;
        self.epoch += 1;
    }

    fn store_in_crash(&mut self) {
        match self.storage.pop_front() {
            Some(Demand::Record(_, Recorded { owner, principal })) => {
                self.durable.insert(owner, principal);
            }
            Some(Demand::Remove(_, owner)) => {
                self.durable.remove(&owner);
            }
            other => panic!("{other:?}"),
        }
    }

    /// The tables of the server are those of the model, and what clients have is valid.
    pub(super) fn audit(&mut self) {
        self.reference.check();
        let mut locks = BTreeSet::new();
        for file in 0..FILES {
            for (client, owner, range, kind) in self.server.locks_of(&file) {
                for byte in range.first()..=range.last() {
                    locks.insert((file, byte, client, owner[0], kind == LockKind::Exclusive));
                }
            }
        }
        let mut expected = BTreeSet::new();
        for (&(file, byte), its) in &self.reference.bytes {
            for (&(client, owner), &(kind, _)) in its {
                expected.insert((file, byte, client, owner, kind == LockKind::Exclusive));
            }
        }
        // Of clients that are leaving there may be more for a while.
        locks.retain(|&(_, _, client, _, _)| !self.lost.contains(&client));
        let of_expired = |client| self.has_expired(client);
        let missing: Vec<_> = expected.difference(&locks).collect();
        assert!(
            missing
                .iter()
                .all(|(_, _, client, _, _)| of_expired(*client)),
            "{missing:?}: seed {}",
            self.seed
        );
        let more: Vec<_> = locks.difference(&expected).collect();
        assert!(more.is_empty(), "{more:?}: seed {}", self.seed);
        for at in 0..self.machines.len() {
            let machine = &self.machines[at];
            let Some(live) = &machine.live else { continue };
            if live.epoch != self.epoch || self.has_expired(live.client) {
                continue;
            }
            let client = live.client;
            for held in machine.held.clone() {
                let states = held.locks.values().chain([&held.state]);
                for &state in states {
                    assert_eq!(self.server.test_state(client, state), Ok(()));
                }
                let io = (self.server).check_io(self.now, client, &held.file, held.state, true);
                let share = self.reference.share_mut(client, held.owner, held.file);
                let expected = match share.unwrap().union().0 & 2 {
                    0 => Err(Status::OpenMode),
                    _ => Ok(Some(held.state)),
                };
                assert_eq!(io, expected, "seed {}", self.seed);
            }
        }
    }
}
