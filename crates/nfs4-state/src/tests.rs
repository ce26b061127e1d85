//! A server with its stable storage, and clients of it.

mod clients;
mod files;
mod grace;
mod listing;
mod model;
mod much;
mod sessions;

use crate::limits::Limits;
use crate::lock::Range;
use crate::*;
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, CreateSessionOk, ExchangeFlags,
    SequenceArgs, SequenceOk,
};
use nfs_proto::v4::{ClientId, SequenceId, SessionId, SlotId, StateId, Status, Verifier};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(90);
const COURTESY: Duration = Duration::from_secs(3600);

fn limits(max_requests: u32) -> ChannelLimits {
    ChannelLimits {
        max_request: 1 << 20,
        max_response: 1 << 20,
        max_response_cached: 128,
        max_operations: 8,
        max_requests,
        min_message: 512,
    }
}

fn config() -> Config {
    Config {
        lease: LEASE,
        courtesy: COURTESY,
        grace: LEASE,
        limits: Limits::default(),
        fore: limits(64),
        back: limits(16),
    }
}

fn attributes(max_requests: u32) -> ChannelAttributes {
    ChannelAttributes {
        max_request: 1 << 16,
        max_response: 1 << 16,
        max_response_cached: 128,
        max_operations: 8,
        max_requests,
        ..ChannelAttributes::default()
    }
}

/// A server whose stable storage does at once what is demanded.
struct World {
    server: Server<u32, u32>,
    now: Instant,
    rng: fastrand::Rng,
    records: BTreeMap<Arc<[u8]>, u32>,
    released: Vec<(u32, StateId)>,
    told: Vec<(ClientId, Vec<u8>, u32)>,
    recalled: Vec<SessionId>,
}

/// A client with a session.
#[derive(Clone, Copy, Debug)]
struct Peer {
    client: ClientId,
    session: SessionId,
    connection: ConnectionId,
    next: u32,
}

impl World {
    fn new(config: Config) -> Self {
        Self::recorded(config, &[])
    }

    fn recorded(config: Config, owners: &[(&str, u32)]) -> Self {
        let now = Instant::now();
        let records = owners
            .iter()
            .map(|&(owner, principal)| (owner.as_bytes().into(), principal));
        let records: BTreeMap<Arc<[u8]>, u32> = records.collect();
        Self {
            server: Server::new(now, config, recorded(&records)),
            now,
            rng: fastrand::Rng::with_seed(1),
            records,
            released: Vec::new(),
            told: Vec::new(),
            recalled: Vec::new(),
        }
    }

    /// Does what is demanded. Returns the last answer that was withheld.
    fn settle(&mut self) -> Option<Result<(), Status>> {
        let mut answer = None;
        while let Some(demand) = self.server.poll_demand() {
            match demand {
                Demand::Record(ticket, Recorded { owner, principal }) => {
                    self.records.insert(owner, principal);
                    answer = self.server.handle_recorded(ticket, true);
                }
                Demand::Remove(ticket, owner) => {
                    self.records.remove(&owner);
                    self.server.handle_removed(self.now, ticket);
                }
                Demand::NotifyLock {
                    client,
                    owner,
                    file,
                } => {
                    self.told.push((client, owner.to_vec(), file));
                }
                Demand::Release { file, state } => self.released.push((file, state)),
                Demand::RecallSlots { session, .. } => self.recalled.push(session),
            }
        }
        answer
    }

    /// Lets time pass, with all that is due on the way.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.server.poll_timeout().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            self.server.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }

    fn exchange(&mut self, owner: &str, verifier: u8, principal: u32) -> Result<Exchanged, Status> {
        self.exchange_with(owner, verifier, principal, ExchangeFlags::empty())
    }

    fn exchange_with(
        &mut self,
        owner: &str,
        verifier: u8,
        principal: u32,
        flags: ExchangeFlags,
    ) -> Result<Exchanged, Status> {
        let call = ExchangeCall {
            owner: owner.as_bytes(),
            verifier: Verifier([verifier; 8]),
            principal: &principal,
            address: AddressKey(principal.into()),
            flags,
            protection: None,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let exchanged = self.server.exchange_id(self.now, random, &call);
        self.settle();
        exchanged
    }

    fn create(
        &mut self,
        known: Exchanged,
        principal: u32,
        connection: u64,
    ) -> Result<CreateSessionOk, Status> {
        self.create_with(known, principal, connection, attributes(8))
    }

    fn create_with(
        &mut self,
        known: Exchanged,
        principal: u32,
        connection: u64,
        fore: ChannelAttributes,
    ) -> Result<CreateSessionOk, Status> {
        let args = CreateSessionArgs {
            client: known.client,
            sequence: known.sequence,
            flags: CreateSessionFlags::CONN_BACK_CHAN,
            fore,
            back: attributes(4),
            callback_program: 0x4000_0000,
            callback_security: Default::default(),
        };
        let call = CreateCall {
            args: &args,
            principal: &principal,
            connection: ConnectionId(connection),
            can_call: true,
            minor_version: 1,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let created = self.server.create_session(self.now, random, &call);
        self.settle();
        created
    }

    /// RECLAIM_COMPLETE.
    fn complete(&mut self, peer: &Peer) -> Result<(), Status> {
        match self.server.reclaim_complete(peer.client, false)? {
            Completed::Done => Ok(()),
            Completed::AfterRecord(_) => self.settle().expect("the answer that was withheld"),
        }
    }

    /// A client with a session that has nothing to reclaim.
    #[track_caller]
    fn peer(&mut self, owner: &str, principal: u32) -> Peer {
        let peer = self.new_peer(owner, principal);
        self.complete(&peer).unwrap();
        peer
    }

    #[track_caller]
    fn new_peer(&mut self, owner: &str, principal: u32) -> Peer {
        let known = self.exchange(owner, 1, principal).unwrap();
        let connection = u64::from(principal);
        let session = self.create(known, principal, connection).unwrap();
        Peer {
            client: known.client,
            session: session.session,
            connection: ConnectionId(connection),
            next: 1,
        }
    }

    fn sequence_args(&self, peer: &Peer) -> SequenceArgs {
        SequenceArgs {
            session: peer.session,
            sequence: SequenceId(peer.next),
            slot: SlotId(0),
            highest_slot: SlotId(0),
            cache_this: false,
        }
    }

    fn sequence(&mut self, peer: &Peer) -> Result<Sequenced, Status> {
        let args = self.sequence_args(peer);
        self.server.sequence(
            self.now,
            &SequenceCall {
                args: &args,
                connection: peer.connection,
                digest: RequestDigest(u64::from(peer.next)),
                operations: 1,
                size: 100,
            },
        )
    }

    /// Renews a lease.
    fn renew(&mut self, peer: &mut Peer) -> Result<SequenceOk, Status> {
        let Sequenced::New(request) = self.sequence(peer)? else {
            panic!("the request is new")
        };
        let result = *request.result();
        peer.next += 1;
        self.server.finish(self.now, request, None);
        Ok(result)
    }

    fn open(
        &mut self,
        peer: &Peer,
        owner: &str,
        file: u32,
        access: u32,
        deny: u32,
    ) -> Result<StateId, Status> {
        self.open_with(peer, owner, file, access, deny, false)
    }

    fn open_with(
        &mut self,
        peer: &Peer,
        owner: &str,
        file: u32,
        access: u32,
        deny: u32,
        reclaims: bool,
    ) -> Result<StateId, Status> {
        let request = OpenRequest {
            client: peer.client,
            owner: owner.as_bytes(),
            file: &file,
            access: ShareAccess::from_bits_retain(access),
            deny: ShareDeny::from_bits_retain(deny),
            reclaims,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let opened = self.server.open(self.now, random, &request);
        self.settle();
        opened
    }

    fn lock(
        &mut self,
        peer: &Peer,
        file: u32,
        locker: Locker<'_>,
        kind: LockType,
        bytes: (u64, u64),
    ) -> Result<StateId, LockError> {
        self.lock_with(peer, file, locker, kind, bytes, false)
    }

    fn lock_with(
        &mut self,
        peer: &Peer,
        file: u32,
        locker: Locker<'_>,
        kind: LockType,
        (offset, length): (u64, u64),
        reclaims: bool,
    ) -> Result<StateId, LockError> {
        let request = LockRequest {
            client: peer.client,
            file: &file,
            range: Range::new(offset, length)?,
            kind,
            locker,
            reclaims,
        };
        let random = &mut |bytes: &mut [u8]| self.rng.fill(bytes);
        let locked = self.server.lock(self.now, random, &request);
        self.settle();
        locked
    }

    fn unlock(
        &mut self,
        peer: &Peer,
        file: u32,
        locks: StateId,
        (offset, length): (u64, u64),
    ) -> Result<StateId, Status> {
        let range = Range::new(offset, length)?;
        let (now, client) = (self.now, peer.client);
        let unlocked = self.server.unlock(now, client, &file, locks, range);
        self.settle();
        unlocked
    }

    fn check_io(
        &mut self,
        peer: &Peer,
        file: u32,
        state: StateId,
        writes: bool,
    ) -> Result<Option<StateId>, Status> {
        let checked = self
            .server
            .check_io(self.now, peer.client, &file, state, writes);
        self.settle();
        checked
    }

    fn close(&mut self, peer: &Peer, file: u32, open: StateId) -> Result<StateId, Status> {
        let closed = self.server.close(self.now, peer.client, &file, open);
        self.settle();
        closed
    }
}

fn recorded(records: &BTreeMap<Arc<[u8]>, u32>) -> Vec<Recorded<u32>> {
    let records = records.iter().map(|(owner, &principal)| Recorded {
        owner: Arc::clone(owner),
        principal,
    });
    records.collect()
}

fn newest(state: StateId) -> StateId {
    StateId { seqid: 0, ..state }
}
