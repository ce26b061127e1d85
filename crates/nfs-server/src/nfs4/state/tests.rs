//! State with a clock and a disk that tests own, and clients of it.

mod locking;
mod records;

use super::*;
use crate::fs::{ByteRange, Error, FileId, HeldFile, LocalLock, LockFile, LockMode};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::open::{ShareAccess, ShareDeny};
use nfs_proto::v4::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, ExchangeFlags, SequenceArgs,
};
use nfs_proto::v4::{SequenceId, StateId, Verifier};
use nfs4_state::lock::Range;
use nfs4_state::{
    AddressKey, CreateCall, ExchangeCall, LockError, LockRequest, Locker, OpenRequest,
    RequestDigest, SequenceCall, Sequenced,
};
use std::sync::Weak;

pub(in crate::nfs4) const LEASE: Duration = Duration::from_secs(90);

/// State whose thread is a test.
pub(in crate::nfs4) struct World {
    pub(in crate::nfs4) state: Nfs4State,
    worker: Worker,
    now: Arc<Mutex<Instant>>,
}

/// A client with a session, that has nothing to reclaim.
#[derive(Clone, Copy, Debug)]
pub(in crate::nfs4) struct Peer {
    pub(in crate::nfs4) client: ClientId,
    pub(in crate::nfs4) session: SessionId,
}

impl World {
    pub(in crate::nfs4) fn new() -> Self {
        Self::over(Records::open(None, LEASE).unwrap(), LEASE)
    }

    /// State with so many slots for all sessions.
    pub(in crate::nfs4) fn with_slots(slots: u32) -> Self {
        let limits = Limits {
            slots,
            ..Limits::default()
        };
        let records = Records::open(None, LEASE).unwrap();
        Self::limited(records, LEASE, limits)
    }

    fn over(records: Records, lease: Duration) -> Self {
        Self::limited(records, lease, Limits::default())
    }

    fn limited(records: Records, lease: Duration, limits: Limits) -> Self {
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = Arc::clone(&now);
        let settings = Nfs4Settings {
            lease,
            grace: lease,
            limits,
            ..Nfs4Settings::default()
        };
        let clock = Box::new(move || *clock.lock().unwrap());
        let (shared, worker) = super::over(settings, records, clock);
        let owner = Owner {
            shared,
            thread: None,
        };
        Self {
            state: Nfs4State(Arc::new(owner)),
            worker,
            now,
        }
    }

    /// Lets the thread do all that it has to do now.
    pub(in crate::nfs4) fn work(&mut self) {
        while self.worker.step() {}
    }

    fn pass(&mut self, time: Duration) {
        *self.now.lock().unwrap() += time;
        self.work();
    }

    /// A client that has a session over a connection, and has not said RECLAIM_COMPLETE.
    pub(in crate::nfs4) fn connect(&mut self, name: &str, connection: u64) -> Peer {
        self.connect_as(name, 1, Principal::Sys(0), connection)
    }

    fn connect_as(
        &mut self,
        name: &str,
        instance: u8,
        principal: Principal,
        connection: u64,
    ) -> Peer {
        let attributes = ChannelAttributes {
            max_request: 4096,
            max_response: 4096,
            max_response_cached: 1024,
            max_operations: 8,
            max_requests: 8,
            ..ChannelAttributes::default()
        };
        let session = self.state.with(|locked| {
            let call = ExchangeCall {
                owner: name.as_bytes(),
                verifier: Verifier([instance; 8]),
                principal: &principal,
                address: AddressKey(connection.into()),
                flags: ExchangeFlags::empty(),
                protection: None,
            };
            let (now, random) = (locked.now, &mut *locked.random);
            let known = locked.server.exchange_id(now, random, &call).unwrap();
            let args = CreateSessionArgs {
                client: known.client,
                sequence: known.sequence,
                flags: CreateSessionFlags::CONN_BACK_CHAN,
                fore: attributes,
                back: attributes,
                callback_program: 0x4000_0000,
                callback_security: Default::default(),
            };
            let call = CreateCall {
                args: &args,
                principal: &principal,
                connection: nfs4_state::ConnectionId(connection),
                can_call: true,
                minor_version: 2,
            };
            let created = locked.server.create_session(now, random, &call).unwrap();
            (known.client, created.session)
        });
        let (client, session) = session;
        Peer { client, session }
    }

    pub(in crate::nfs4) fn peer(&mut self, name: &str, connection: u64) -> Peer {
        let peer = self.connect(name, connection);
        let answer = self.complete(&peer);
        self.work();
        assert_eq!(*answer.lock().unwrap(), Some(Ok(())));
        peer
    }

    /// RECLAIM_COMPLETE, with the answer once it is there.
    fn complete(&mut self, peer: &Peer) -> Arc<Mutex<Option<Result<(), Status>>>> {
        let answer = Arc::new(Mutex::new(None));
        let given = Arc::clone(&answer);
        match self.state.reclaim_complete(peer.client, false) {
            Outcome::Ready(result) => *answer.lock().unwrap() = Some(result),
            Outcome::Deferred(ask) => ask(Box::new(move |result| {
                *given.lock().unwrap() = Some(result);
            })),
            Outcome::Slow(_) => panic!("it is not slow"),
        }
        answer
    }

    fn sequence(&mut self, peer: &Peer, sequence: u32) -> Result<Sequenced, Status> {
        self.state.with(|locked| {
            let args = SequenceArgs {
                session: peer.session,
                sequence: SequenceId(sequence),
                ..SequenceArgs::default()
            };
            let call = SequenceCall {
                args: &args,
                connection: nfs4_state::ConnectionId(1),
                digest: RequestDigest(1),
                operations: 1,
                size: 100,
            };
            locked.server.sequence(locked.now, &call)
        })
    }

    pub(in crate::nfs4) fn renew(&mut self, peer: &Peer, sequence: u32) -> Result<(), Status> {
        match self.sequence(peer, sequence)? {
            Sequenced::New(request) => self.state.finish(request, None),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    pub(in crate::nfs4) fn open(
        &mut self,
        peer: &Peer,
        owner: &[u8],
        access: u32,
        held: Arc<dyn HeldFile>,
    ) -> Result<StateId, Status> {
        self.open_with(peer, owner, access, held, false)
    }

    fn open_with(
        &mut self,
        peer: &Peer,
        owner: &[u8],
        access: u32,
        held: Arc<dyn HeldFile>,
        reclaims: bool,
    ) -> Result<StateId, Status> {
        self.state.with(|locked| {
            let request = OpenRequest {
                client: peer.client,
                owner,
                file: &key(),
                access: ShareAccess::from_bits_retain(access),
                deny: ShareDeny::empty(),
                reclaims,
            };
            locked.open(&request, held)
        })
    }

    pub(in crate::nfs4) fn lock(
        &mut self,
        peer: &Peer,
        locker: Locker<'_>,
        kind: LockType,
        range: Range,
        new_file: Option<Arc<dyn LockFile>>,
    ) -> Result<StateId, LockError> {
        self.state.with(|locked| {
            let request = LockRequest {
                client: peer.client,
                file: &key(),
                range,
                kind,
                locker,
                reclaims: false,
            };
            locked.lock(&request, new_file)
        })
    }

    pub(in crate::nfs4) fn unlock(&mut self, peer: &Peer, locks: StateId, range: Range) {
        let unlocked = (self.state).with(|locked| locked.unlock(peer.client, &key(), locks, range));
        unlocked.unwrap();
    }

    fn close(&mut self, peer: &Peer, open: StateId) {
        let closed = self.state.with(|locked| {
            let open = StateId { seqid: 0, ..open };
            locked.server.close(locked.now, peer.client, &key(), open)
        });
        closed.unwrap();
    }
}

/// The file of all tests.
pub(in crate::nfs4) fn key() -> FileKey {
    FileKey {
        export: 1,
        file: FileId::of_words([1, 2, 3]),
    }
}

/// A file with locks as the kernel has them: each owner's own, and those of a local program.
#[derive(Clone, Default)]
pub(in crate::nfs4) struct Disk(Arc<Mutex<DiskState>>);

#[derive(Default)]
struct DiskState {
    /// Lock of each of the first bytes, by owner; owner 0 is a local program.
    locks: HashMap<(u64, u64), LockMode>,
    next: u64,
    /// Files that are open, or locked.
    open: usize,
    error: Option<Error>,
    /// State that no file may be closed under the lock of.
    state: Option<Weak<Owner>>,
}

/// Bytes that the disk tells apart. Locks may go beyond them.
pub(in crate::nfs4) const BYTES: u64 = 12;

struct DiskFile {
    disk: Disk,
    owner: u64,
}

impl Disk {
    pub(in crate::nfs4) fn held(&self) -> Arc<dyn HeldFile> {
        self.file()
    }

    pub(in crate::nfs4) fn lock_file(&self) -> Arc<dyn LockFile> {
        self.file()
    }

    fn file(&self) -> Arc<DiskFile> {
        let mut state = self.0.lock().unwrap();
        state.open += 1;
        state.next += 1;
        let (disk, owner) = (self.clone(), state.next);
        Arc::new(DiskFile { disk, owner })
    }

    fn open_files(&self) -> usize {
        self.0.lock().unwrap().open
    }

    /// Locks bytes for a local program, in place of what it has.
    fn lock_locally(&self, range: Option<(u64, u64)>, mode: LockMode) -> bool {
        let mut state = self.0.lock().unwrap();
        state.locks.retain(|&(owner, _), _| owner != 0);
        let Some((first, last)) = range else {
            return true;
        };
        let is_free = state.conflict(0, ByteRange { first, last }, mode).is_none();
        if is_free {
            state
                .locks
                .extend((first..=last).map(|byte| ((0, byte), mode)));
        }
        is_free
    }
}

fn bytes_of(range: ByteRange) -> std::ops::Range<u64> {
    range.first.min(BYTES)..range.last.saturating_add(1).min(BYTES)
}

impl DiskState {
    fn conflict(&self, owner: u64, range: ByteRange, mode: LockMode) -> Option<LocalLock> {
        let exclusive = LockMode::Exclusive;
        let mut locks = self.locks.iter();
        let found = locks.find(|&(&(its, byte), &other)| {
            its != owner
                && bytes_of(range).contains(&byte)
                && (mode == exclusive || other == exclusive)
        });
        found.map(|(&(_, byte), &mode)| LocalLock {
            range: ByteRange {
                first: byte,
                last: byte,
            },
            mode,
        })
    }
}

impl HeldFile for DiskFile {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        Outcome::Ready(Ok(self.disk.lock_file()))
    }
}

impl LockFile for DiskFile {
    fn lock(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error> {
        let mut state = self.disk.0.lock().unwrap();
        if let Some(error) = state.error {
            return Err(error);
        }
        if let Some(lock) = state.conflict(self.owner, range, mode) {
            return Ok(Some(lock));
        }
        let locks = bytes_of(range).map(|byte| ((self.owner, byte), mode));
        state.locks.extend(locks);
        Ok(None)
    }

    fn unlock(&self, range: ByteRange) {
        let mut state = self.disk.0.lock().unwrap();
        let owner = self.owner;
        state
            .locks
            .retain(|&(its, byte), _| its != owner || !bytes_of(range).contains(&byte));
    }

    fn test(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error> {
        let state = self.disk.0.lock().unwrap();
        Ok(state.conflict(self.owner, range, mode))
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let mut disk = self.disk.0.lock().unwrap();
        let owner = self.owner;
        disk.locks.retain(|&(its, _), _| its != owner);
        disk.open -= 1;
        let state = disk.state.as_ref().and_then(Weak::upgrade);
        drop(disk);
        if let Some(state) = state {
            assert!(
                state.shared.inner.try_lock().is_ok(),
                "closed while the state is locked"
            );
        }
    }
}
