//! State of a server of NFS version 4, with arbitrary events.

use crate::memory::within_and_back;
use crate::script::Script;
use bytes::Bytes;
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, ExchangeFlags, SequenceArgs,
};
use nfs_proto::v4::{ClientId, SequenceId, SessionId, SlotId, StateId, Verifier};
use nfs4_state::limits::Limits;
use nfs4_state::lock::{LockKind, Range};
use nfs4_state::{
    AddressKey, ChannelLimits, Completed, Config, ConnectionId, CreateCall, Demand, ExchangeCall,
    LockRequest, Locker, OpenRequest, Recorded, Request, RequestDigest, SequenceCall, Sequenced,
    Server, Ticket, Usage,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Memory for all tables at their limits, with the slots of sessions.
const MEMORY: usize = 4 << 20;

const EVENTS: usize = 400;

const LIMITS: Limits = Limits {
    clients: 8,
    sessions: 8,
    slots: 32,
    states: 12,
    locks: 12,
    waiters: 4,
};

const LEASE: Duration = Duration::from_secs(90);

const OWNERS: [&[u8]; 3] = [b"a", b"b", b"c"];

/// Ids that are remembered.
const REMEMBERED: usize = 8;

/// A script of events: nothing is beyond its limit, and in the end nothing is left.
pub fn nfs4_state(bytes: &[u8]) {
    within_and_back(MEMORY, || {
        let mut world = World::new(Script::new(bytes));
        for _ in 0..EVENTS {
            if world.script.is_over() {
                break;
            }
            world.event();
            world.check();
        }
        world.end();
    });
}

struct World<'a> {
    script: Script<'a>,
    server: Server<u32, u32>,
    now: Instant,
    /// The source of ids: whoever guesses has none.
    random: u64,
    clients: Vec<(ClientId, SequenceId)>,
    sessions: Vec<(SessionId, u32)>,
    /// Clients that have or had a session: others cannot do anything.
    confirmed: Vec<ClientId>,
    states: Vec<StateId>,
    requests: Vec<Request>,
    storage: VecDeque<Stored>,
}

enum Stored {
    Made(Ticket),
    Removed(Ticket),
}

impl<'a> World<'a> {
    fn new(mut script: Script<'a>) -> Self {
        let now = Instant::now();
        let channel = ChannelLimits {
            max_request: 4096,
            max_response: 4096,
            max_response_cached: 1024,
            max_operations: 8,
            max_requests: 8,
            min_message: 256,
        };
        let config = Config {
            lease: LEASE,
            courtesy: 4 * LEASE,
            grace: LEASE,
            limits: LIMITS,
            fore: channel,
            back: channel,
        };
        let recorded = OWNERS[..script.below(3)].iter().map(|owner| Recorded {
            owner: (*owner).into(),
            principal: 0,
        });
        Self {
            server: Server::new(now, config, recorded),
            script,
            now,
            random: 1,
            clients: Vec::new(),
            sessions: Vec::new(),
            confirmed: Vec::new(),
            states: Vec::new(),
            requests: Vec::new(),
            storage: VecDeque::new(),
        }
    }

    fn client(&mut self) -> ClientId {
        match self.confirmed.is_empty() {
            true => ClientId(self.script.long()),
            false => self.confirmed[self.script.below(self.confirmed.len())],
        }
    }

    fn client_id(&mut self) -> (ClientId, SequenceId) {
        match self.clients.is_empty() || self.script.one_in(32) {
            true => (
                ClientId(self.script.long()),
                SequenceId(self.script.number()),
            ),
            false => self.clients[self.script.below(self.clients.len())],
        }
    }

    fn state(&mut self) -> StateId {
        let mut state = match self.states.is_empty() {
            true => StateId::default(),
            false => self.states[self.script.below(self.states.len())],
        };
        if self.script.one_in(8) {
            state.seqid = self.script.number();
        }
        if self.script.one_in(16) {
            state.other[self.script.below(12)] ^= self.script.byte();
        }
        state
    }

    fn range(&mut self) -> Range {
        let (offset, length) = (self.script.long() % 16, self.script.long());
        Range::new(offset, length).unwrap_or(Range::ALL)
    }

    fn event(&mut self) {
        let now = self.now;
        let mut random = {
            let seed = &mut self.random;
            let mut next = *seed;
            *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            move |bytes: &mut [u8]| {
                for byte in bytes {
                    next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (next >> 56) as u8;
                }
            }
        };
        let owner = self.script.pick(&OWNERS);
        let principal = u32::from(self.script.one_in(8));
        let connection = ConnectionId(self.script.below(6) as u64);
        let file = self.script.pick(&[0, 1, 2]);
        match self.script.below(24) {
            0 | 1 => {
                let call = ExchangeCall {
                    owner,
                    verifier: Verifier([self.script.pick(&[0, 1, 2]); 8]),
                    principal: &principal,
                    address: AddressKey(self.script.below(2) as u128),
                    flags: match self.script.byte() {
                        0..224 => ExchangeFlags::empty(),
                        _ => ExchangeFlags::from_bits_retain(self.script.number()),
                    },
                    protection: None,
                };
                if let Ok(known) = self.server.exchange_id(now, &mut random, &call) {
                    remember(&mut self.clients, (known.client, known.sequence));
                }
            }
            2 | 3 => {
                let (client, sequence) = self.client_id();
                let channel = ChannelAttributes {
                    max_request: self.script.pick(&[4096, 4096, 4096, 100, u32::MAX]),
                    max_response: 4096,
                    max_response_cached: self.script.pick(&[1024, 0, u32::MAX]),
                    max_operations: 8,
                    max_requests: self.script.pick(&[1, 4, 64, u32::MAX, 0]),
                    ..ChannelAttributes::default()
                };
                let args = CreateSessionArgs {
                    client,
                    sequence,
                    flags: CreateSessionFlags::CONN_BACK_CHAN,
                    fore: channel,
                    back: channel,
                    callback_program: 1,
                    callback_security: Default::default(),
                };
                let call = CreateCall {
                    args: &args,
                    principal: &principal,
                    connection,
                    can_call: self.script.flag(),
                    minor_version: 1,
                };
                if let Ok(created) = self.server.create_session(now, &mut random, &call) {
                    remember(&mut self.sessions, (created.session, 0));
                    remember(&mut self.confirmed, client);
                    for known in &mut self.clients {
                        if known.0 == client {
                            known.1 = SequenceId(sequence.0.wrapping_add(1));
                        }
                    }
                }
            }
            4..7 => self.sequence(connection),
            7 | 8 => {
                if !self.requests.is_empty() {
                    let at = self.script.below(self.requests.len());
                    let request = self.requests.swap_remove(at);
                    let len = self.script.below(2000);
                    let reply = self.script.flag().then(|| Bytes::from(vec![0; len]));
                    self.server.finish(self.now, request, reply);
                }
            }
            9 | 10 => {
                let client = self.client();
                if let Ok(Completed::AfterRecord(_)) =
                    self.server.reclaim_complete(client, self.script.one_in(8))
                {
                    self.collect();
                }
            }
            11..14 => {
                let client = self.client();
                let request = OpenRequest {
                    client,
                    owner,
                    file: &file,
                    access: ShareAccess::from_bits_retain(self.script.pick(&[0, 1, 2, 3])),
                    deny: ShareDeny::from_bits_retain(self.script.pick(&[0, 0, 0, 1, 2, 3, 4])),
                    reclaims: self.script.one_in(6),
                };
                if let Ok(state) = self.server.open(now, &mut random, &request) {
                    remember(&mut self.states, state);
                }
            }
            14 | 15 => {
                let client = self.client();
                let (range, state) = (self.range(), self.state());
                let kinds = [
                    LockType::Read,
                    LockType::Write,
                    LockType::ReadWait,
                    LockType::WriteWait,
                ];
                let request = LockRequest {
                    client,
                    file: &file,
                    range,
                    kind: self.script.pick(&kinds),
                    locker: match self.script.flag() {
                        true => Locker::New { open: state, owner },
                        false => Locker::Existing(state),
                    },
                    reclaims: self.script.one_in(6),
                };
                if let Ok(state) = self.server.lock(now, &mut random, &request) {
                    remember(&mut self.states, state);
                }
            }
            16 => {
                let client = self.client();
                let (range, state) = (self.range(), self.state());
                refused_or_not(self.server.unlock(now, client, &file, state, range));
            }
            17 => {
                let client = self.client();
                let state = self.state();
                match self.script.below(4) {
                    0 => refused_or_not(self.server.close(now, client, &file, state)),
                    1 => refused_or_not(self.server.free_state(client, state)),
                    2 => {
                        let access = ShareAccess::from_bits_retain(self.script.pick(&[0, 1, 2, 3]));
                        let deny = ShareDeny::from_bits_retain(self.script.pick(&[0, 1, 2, 3]));
                        refused_or_not(self.server.downgrade(client, &file, state, access, deny));
                    }
                    _ => {
                        let writes = self.script.flag();
                        refused_or_not(self.server.check_io(now, client, &file, state, writes));
                        refused_or_not(self.server.test_state(client, state));
                    }
                }
            }
            18 => {
                let range = self.range();
                let other = self.script.below(2) as u64;
                match self.script.flag() {
                    true => {
                        drop(
                            self.server
                                .lock_other(now, &file, other, range, LockKind::Exclusive),
                        )
                    }
                    false => refused_or_not(self.server.unlock_other(now, &file, other, range)),
                }
            }
            19 => match self.script.below(6) {
                0 => self.server.handle_disconnect(connection),
                1 => self.server.end_grace(),
                2 => refused_or_not(self.server.revoke_file(now, &file)),
                3 => {
                    let client = self.client();
                    refused_or_not(self.server.expire_client(now, client));
                }
                4 => {
                    let client = self.client();
                    refused_or_not(self.server.destroy_client(now, client, &principal));
                }
                _ => {
                    let session = self.session();
                    refused_or_not(self.server.destroy_session(session, &principal, connection));
                }
            },
            20 | 21 => {
                let seconds = self.script.pick(&[1, 10, 89, 91, 200, 2000]);
                self.now += Duration::from_secs(seconds);
                self.server.handle_timeout(self.now);
            }
            _ => {
                self.collect();
                let is_durable = !self.script.one_in(6);
                self.store(is_durable);
            }
        }
    }

    fn session(&mut self) -> SessionId {
        match self.sessions.is_empty() {
            true => SessionId::default(),
            false => self.sessions[self.script.below(self.sessions.len())].0,
        }
    }

    fn sequence(&mut self, connection: ConnectionId) {
        if self.sessions.is_empty() {
            return;
        }
        let at = self.script.below(self.sessions.len());
        let (session, last) = self.sessions[at];
        let sequence = match self.script.below(8) {
            0 => last,
            1 => self.script.number(),
            _ => last.wrapping_add(1),
        };
        let args = SequenceArgs {
            session,
            sequence: SequenceId(sequence),
            slot: SlotId(self.script.pick(&[0, 0, 0, 1, 7, u32::MAX])),
            highest_slot: SlotId(self.script.pick(&[0, 1, 7, u32::MAX])),
            cache_this: self.script.flag(),
        };
        let call = SequenceCall {
            args: &args,
            connection,
            digest: RequestDigest(self.script.below(2) as u64),
            operations: self.script.pick(&[1, 2, 3, 8, 9]),
            size: self.script.pick(&[100, 100, 100, u32::MAX]),
        };
        if let Ok(Sequenced::New(request)) = self.server.sequence(self.now, &call) {
            assert!(request.result().highest_slot >= request.result().slot);
            self.sessions[at].1 = sequence;
            self.requests.push(request);
        }
    }

    /// Takes what the server demands.
    fn collect(&mut self) {
        while let Some(demand) = self.server.poll_demand() {
            match demand {
                Demand::Record(ticket, _) => self.storage.push_back(Stored::Made(ticket)),
                Demand::Remove(ticket, _) => self.storage.push_back(Stored::Removed(ticket)),
                Demand::NotifyLock { .. } | Demand::Release { .. } | Demand::RecallSlots { .. } => {
                }
            }
        }
    }

    /// Stable storage does the first thing that was demanded.
    fn store(&mut self, is_durable: bool) {
        match self.storage.pop_front() {
            Some(Stored::Made(ticket)) => {
                let answer = self.server.handle_recorded(ticket, is_durable);
                assert!(answer.is_some(), "somebody waits");
            }
            Some(Stored::Removed(ticket)) => self.server.handle_removed(self.now, ticket),
            None => {}
        }
    }

    fn check(&mut self) {
        let usage = self.server.usage();
        assert!(usage.clients <= LIMITS.clients, "{usage:?}");
        assert!(usage.sessions <= LIMITS.sessions, "{usage:?}");
        assert!(usage.states <= LIMITS.states, "{usage:?}");
        assert!(usage.locks <= LIMITS.locks, "{usage:?}");
        assert!(usage.waiters <= LIMITS.waiters, "{usage:?}");
    }

    /// All clients are silent for long, and others release their locks.
    fn end(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            self.server.finish(self.now, request, None);
        }
        for file in 0..3 {
            for other in 0..2 {
                let released = self.server.unlock_other(self.now, &file, other, Range::ALL);
                assert_eq!(released, Ok(()));
            }
        }
        for _ in 0..8 {
            self.now += 4 * LEASE;
            self.server.handle_timeout(self.now);
            self.collect();
            while !self.storage.is_empty() {
                self.store(true);
                self.collect();
            }
        }
        assert_eq!(self.server.usage(), Usage::default());
        assert!(!self.server.is_in_grace());
        assert!(self.server.poll_demand().is_none());
    }
}

/// Any event may be refused.
fn refused_or_not<T>(_: T) {}

fn remember<T>(all: &mut Vec<T>, new: T) {
    if all.len() == REMEMBERED {
        all.remove(0);
    }
    all.push(new);
}
