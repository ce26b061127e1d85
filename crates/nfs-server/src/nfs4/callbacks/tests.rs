//! Calls to clients that answer, do not, or lie, over connections that break.

use super::running::MAX_CALLS;
use super::*;
use crate::nfs4::state::{Disk, Peer, World};
use crate::{ExportOptions, HandleKey, MemFs};
use nfs_proto::Wire;
use nfs_proto::v4::callback::{
    CbArgOp, CbCompoundArgs, CbCompoundRes, CbResOp, CbSequenceArgs, CbSequenceOk,
};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::session::{BindConnToSessionArgs, ClientDirection};
use nfs_proto::v4::{Array, SequenceId, SessionId, SlotId, Status};
use nfs4_state::Locker;
use nfs4_state::lock::Range;
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{Caller, ConnectionId, Credential, ReplyBound, TransportError};
use rpc_serving::backchannels::{BackwardCall, BackwardConnection, MessageSizes, OpenBackchannel};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A connection of a client. Calls are answered by the test.
#[derive(Debug)]
struct Line {
    caller: Caller,
    sizes: Option<MessageSizes>,
    calls: Mutex<Vec<Made>>,
}

/// A reply that the test gave, and who waits for it.
type ReplyPlace = (Option<Result<Payload, TransportError>>, Option<Waker>);

/// A call that was made.
#[derive(Debug)]
struct Made {
    bytes: Vec<u8>,
    reply: Arc<Mutex<ReplyPlace>>,
}

impl BackwardConnection for Line {
    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn set_ready(&self) {}

    fn next_xid(&self) -> u32 {
        7
    }

    fn call(&self, call: Payload, _: ReplyBound) -> BackwardCall<'_> {
        let reply = Arc::default();
        self.calls.lock().unwrap().push(Made {
            bytes: call.head().to_vec(),
            reply: Arc::clone(&reply),
        });
        Box::pin(poll_fn(move |cx| {
            let mut reply = reply.lock().unwrap();
            match reply.0.take() {
                Some(reply) => Poll::Ready(reply),
                None => {
                    reply.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn depth(&self) -> usize {
        1
    }

    fn message_sizes(&self) -> Option<MessageSizes> {
        self.sizes
    }
}

impl Line {
    fn made(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// The sequence and the lock owner of the last call.
    fn last(&self) -> (u32, u32, Vec<u8>) {
        let calls = self.calls.lock().unwrap();
        let (sequence, minor, owner) = parse(&calls.last().unwrap().bytes);
        (sequence.sequence.0, minor, owner)
    }

    /// Answers the last call.
    fn answer(&self, reply: Result<Payload, TransportError>) {
        let calls = self.calls.lock().unwrap();
        let mut slot = calls.last().unwrap().reply.lock().unwrap();
        slot.0 = Some(reply);
        let waker = slot.1.take();
        drop(slot);
        drop(calls);
        waker.unwrap().wake();
    }

    /// Answers the last call with this result of CB_SEQUENCE.
    fn sequence(&self, status: Result<(), Status>) {
        let bytes = self.calls.lock().unwrap().last().unwrap().bytes.clone();
        let (sequence, ..) = parse(&bytes);
        let ok = CbSequenceOk {
            session: sequence.session,
            sequence: sequence.sequence,
            slot: sequence.slot,
            ..CbSequenceOk::default()
        };
        let results = [
            CbResOp::Sequence(status.map(|()| ok)),
            CbResOp::NotifyLock(Err(Status::NotSupported)),
        ];
        let count = if status.is_ok() { 2 } else { 1 };
        self.answer(Ok(reply(|w| {
            let compound = CbCompoundRes {
                status: Err(status.err().unwrap_or(Status::NotSupported)),
                tag: Default::default(),
                results: Array::new(&results[..count]).unwrap(),
            };
            compound.write(w);
        })));
    }
}

/// A reply of a client that accepts the call.
fn reply(results: impl FnOnce(&mut Writer)) -> Payload {
    let mut w = Writer::default();
    w.words([7, 1, 0, 0, 0, 0]);
    results(&mut w);
    w.finish()
}

/// Reads CB_SEQUENCE, the minor version, and the owner of a CB_NOTIFY_LOCK or the target of a CB_RECALL_SLOT.
fn parse(call: &[u8]) -> (CbSequenceArgs<'_>, u32, Vec<u8>) {
    let mut r = Reader::new(call);
    let [xid, _, _, program, version, procedure] = r.words().unwrap();
    assert_eq!((xid, program, version, procedure), (7, 0x4000_0000, 1, 1));
    // No credential, no verifier: AUTH_NONE.
    assert_eq!(r.words::<4>().unwrap(), [0; 4]);
    let args = CbCompoundArgs::parse(&mut r).unwrap();
    let operations: Vec<_> = args.operations.iter().collect();
    let (sequence, told) = match &operations[..] {
        [CbArgOp::Sequence(sequence), CbArgOp::NotifyLock(lock)] => {
            (sequence, lock.owner.owner.to_vec())
        }
        [CbArgOp::Sequence(sequence), CbArgOp::RecallSlot(recall)] => {
            let target = recall.target_highest_slot.0;
            (sequence, target.to_be_bytes().to_vec())
        }
        _ => panic!("{operations:?}"),
    };
    assert_eq!(
        (sequence.slot, sequence.highest_slot),
        (SlotId(0), SlotId(0))
    );
    (*sequence, args.minor_version, told)
}

/// The task that makes calls, run by the test.
struct Task {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    woken: Arc<Count>,
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Task {
    /// Runs as long as something wakes it. Returns how it stands.
    fn run(&mut self) -> Poll<()> {
        let waker = Arc::clone(&self.woken).into();
        let mut cx = Context::from_waker(&waker);
        for _ in 0..10_000 {
            if self.woken.0.swap(0, Relaxed) == 0 {
                return Poll::Pending;
            }
            if self.future.as_mut().poll(&mut cx).is_ready() {
                return Poll::Ready(());
            }
        }
        panic!("it wakes itself for ever");
    }
}

/// State, connections, and the task.
struct Net {
    world: World,
    task: Task,
    backchannels: Backchannels,
    open: Vec<OpenBackchannel>,
    disk: Disk,
    /// Holds the lock that others wait for.
    holder: Option<(Peer, nfs_proto::v4::StateId)>,
}

impl Net {
    fn new() -> Self {
        Self::over(World::new())
    }

    fn over(mut world: World) -> Self {
        let exports = Exports::new(HandleKey::random().unwrap());
        let exports = exports
            .with("/", Arc::new(MemFs::new(1 << 20)), ExportOptions::default())
            .unwrap();
        let backchannels = Backchannels::default();
        let future = Box::pin(world.state.callbacks(backchannels.clone(), &exports));
        let woken = Arc::new(Count(AtomicUsize::new(1)));
        let mut task = Task { future, woken };
        assert!(task.run().is_pending());
        let disk = Disk::default();
        let holder = world.peer("holder", 1_000_000);
        let mut net = Self {
            world,
            task,
            backchannels,
            open: Vec::new(),
            disk,
            holder: None,
        };
        let open = net.world.open(&holder, b"o", 3, net.disk.held()).unwrap();
        net.holder = Some((holder, open));
        net
    }

    fn line(&mut self, connection: u64, address: u8, sizes: Option<MessageSizes>) -> Arc<Line> {
        let addr: SocketAddr = ([192, 0, 2, address], 700).into();
        let mut caller = Caller::new(addr);
        caller.connection = ConnectionId::of_number(connection);
        let line = Arc::new(Line {
            caller,
            sizes,
            calls: Mutex::default(),
        });
        self.open
            .push(self.backchannels.open(Arc::clone(&line) as _));
        line
    }

    /// A client with a connection.
    fn client(&mut self, connection: u64, address: u8) -> (Peer, Arc<Line>) {
        let peer = self.world.peer(&connection.to_string(), connection);
        (peer, self.line(connection, address, None))
    }

    /// Makes these clients wait for a lock, and frees it.
    fn free_lock(&mut self, waiting: &[Peer], owner: &[u8]) {
        let (holder, open) = self.holder.unwrap();
        let locker = |open| Locker::New { open, owner };
        let file = || Some(self.disk.lock_file());
        let all = Range::ALL;
        let held = (self.world)
            .lock(&holder, locker(open), LockType::Write, all, file())
            .unwrap();
        for peer in waiting {
            let open = self.world.open(peer, b"o", 3, self.disk.held()).unwrap();
            let open = nfs_proto::v4::StateId { seqid: 0, ..open };
            let kind = LockType::ReadWait;
            let denied = self.world.lock(peer, locker(open), kind, all, file());
            assert!(denied.is_err());
        }
        self.world.unlock(&holder, held, all);
        assert!(self.task.run().is_pending());
    }

    /// Whether the back channel of a session can be used.
    fn works(&self, peer: &Peer) -> bool {
        let session = peer.session;
        (self.world.state).with(|locked| {
            let begun = locked.server.begin_callback(session);
            if begun.is_some() {
                let result = nfs4_state::CallbackResult::NotExecuted;
                (locked.server.end_callback(locked.now, session, result)).unwrap();
            }
            begun.is_some()
        })
    }

    fn bind(&self, peer: &Peer, connection: u64) {
        let args = BindConnToSessionArgs {
            session: peer.session,
            direction: ClientDirection::ForeOrBoth,
            use_rdma: false,
        };
        let principal = crate::nfs4::state::Principal::of(&Credential::None);
        let connection = nfs4_state::ConnectionId(connection);
        let bound = (self.world.state)
            .with(|locked| (locked.server).bind_connection(&args, &principal, connection, true));
        bound.unwrap();
    }
}

fn disconnected() -> TransportError {
    let cause = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    TransportError::Disconnected(cause.into())
}

#[test]
fn owner_that_waits_is_told_when_the_lock_is_free() {
    let mut net = Net::new();
    let (peer, line) = net.client(1, 1);
    for (n, owner) in [(1, b"first"), (2, b"other")] {
        net.free_lock(&[peer], owner);
        assert_eq!(line.made(), n);
        let (sequence, minor, told) = line.last();
        assert_eq!((sequence as usize, minor, &*told), (n, 2, &owner[..]));
        assert!(!net.works(&peer), "its slot is in use");
        line.sequence(Ok(()));
        assert!(net.task.run().is_pending());
        assert!(net.works(&peer));
    }
}

#[test]
fn client_that_does_not_answer_delays_no_other_and_is_not_called_again() {
    let mut net = Net::new();
    let (silent, silent_line) = net.client(1, 1);
    let (other, line) = net.client(2, 2);
    net.free_lock(&[silent, other], b"l");
    assert_eq!((silent_line.made(), line.made()), (1, 1));
    line.sequence(Ok(()));
    net.free_lock(&[silent, other], b"m");
    assert_eq!(
        (silent_line.made(), line.made()),
        (1, 2),
        "one call at a time"
    );
    line.sequence(Ok(()));
    silent_line.answer(Err(TransportError::TimedOut(Duration::from_secs(9))));
    assert!(net.task.run().is_pending());
    assert!(!net.works(&silent) && net.works(&other));
    assert_eq!(silent_line.made(), 1, "its back channel is lost");
}

#[test]
fn lost_call_is_sent_again_over_another_connection_of_the_session() {
    let check = |status: Option<Status>, works| {
        let mut net = Net::new();
        let (peer, first) = net.client(1, 1);
        net.bind(&peer, 2);
        let second = net.line(2, 1, None);
        net.free_lock(&[peer], b"l");
        assert_eq!((first.made(), second.made()), (1, 0));
        first.answer(Err(disconnected()));
        assert!(net.task.run().is_pending());
        assert_eq!(second.made(), 1);
        let sent = |line: &Line| line.calls.lock().unwrap()[0].bytes.clone();
        assert_eq!(sent(&first), sent(&second), "RFC 8881 §2.10.6.2");
        match status {
            Some(status) => second.sequence(Err(status)),
            None => second.answer(Err(disconnected())),
        }
        assert!(net.task.run().is_pending());
        assert_eq!(net.works(&peer), works, "{status:?}");
    };
    // The client has seen it, and kept no reply.
    check(Some(Status::RetryUncachedReply), true);
    check(Some(Status::SequenceFalseRetry), true);
    check(Some(Status::Delay), false);
    check(None, false);
}

#[test]
fn slot_is_kept_where_the_client_has_not_executed_a_call_and_lost_where_nobody_knows() {
    let check = |answer: &dyn Fn(&Line), works: bool| {
        let mut net = Net::new();
        let (peer, line) = net.client(1, 1);
        net.free_lock(&[peer], b"l");
        answer(&line);
        assert!(net.task.run().is_pending());
        assert_eq!(net.works(&peer), works);
        if works {
            net.free_lock(&[peer], b"m");
            assert_eq!(line.last().0, 1, "the same sequence id");
        }
    };
    check(&|line| line.sequence(Err(Status::BadSession)), true);
    check(&|line| line.sequence(Err(Status::Delay)), true);
    check(
        &|line| line.sequence(Err(Status::SequenceMisordered)),
        false,
    );
    let unavailable = || {
        let mut w = Writer::default();
        w.words([7, 1, 0, 0, 0, 1]);
        w.finish()
    };
    check(&|line| line.answer(Ok(unavailable())), true);
    check(&|line| line.answer(Ok(reply(|_| {}))), false);
    check(
        &|line| line.answer(Ok(reply(|w| w.words([0, 0, 0])))),
        false,
    );
    check(
        &|line| line.answer(Ok(reply(|w| w.words([10021, 0, 0])))),
        true,
    );
    check(&|line| line.answer(Err(disconnected())), false);
    check(
        &|line| line.answer(Err(TransportError::TooLarge { len: 2, limit: 1 })),
        true,
    );
    check(
        &|line| line.answer(Err(TransportError::Refused("x"))),
        false,
    );
}

#[test]
fn reply_of_another_session_slot_or_sequence_id_is_none() {
    let mut net = Net::new();
    let (peer, line) = net.client(1, 1);
    net.free_lock(&[peer], b"l");
    let results = [CbResOp::Sequence(Ok(CbSequenceOk {
        session: SessionId([9; 16]),
        sequence: SequenceId(1),
        ..CbSequenceOk::default()
    }))];
    line.answer(Ok(reply(|w| {
        let compound = CbCompoundRes {
            status: Ok(()),
            tag: Default::default(),
            results: Array::new(&results).unwrap(),
        };
        compound.write(w);
    })));
    assert!(net.task.run().is_pending());
    assert!(!net.works(&peer));
}

#[test]
fn call_that_does_not_fit_a_connection_is_not_sent_there() {
    let mut net = Net::new();
    let peer = net.world.peer("1", 1);
    let most = |call, reply| Some(MessageSizes { call, reply });
    let lines = [most(100, 4096), most(4096, 100), most(4096, 4096)];
    for connection in [2, 3] {
        net.bind(&peer, connection);
    }
    let lines = [(1, lines[0]), (2, lines[1]), (3, lines[2])];
    let lines = lines.map(|(n, sizes)| net.line(n, 1, sizes));
    net.free_lock(&[peer], b"l");
    assert_eq!(lines.each_ref().map(|line| line.made()), [0, 0, 1]);
    lines[2].sequence(Ok(()));
    assert!(net.task.run().is_pending() && net.works(&peer));
}

#[test]
fn address_leaves_calls_to_others() {
    let mut net = Net::new();
    let many = MAX_CALLS as u64;
    let (peers, lines): (Vec<_>, Vec<_>) = (0..many).map(|n| net.client(n, 1)).unzip();
    net.free_lock(&peers, b"l");
    let made = |lines: &[Arc<Line>]| lines.iter().filter(|line| line.made() > 0).count();
    assert_eq!(made(&lines), MAX_CALLS / 2);
    let (other, line) = net.client(many, 2);
    net.free_lock(&[other], b"l");
    assert_eq!(line.made(), 1);
    line.sequence(Ok(()));
    for _ in 0..MAX_CALLS {
        let next = lines.iter().find(|line| {
            let calls = line.calls.lock().unwrap();
            calls
                .iter()
                .any(|call| call.reply.lock().unwrap().1.is_some())
        });
        next.expect("a call is being made").sequence(Ok(()));
        assert!(net.task.run().is_pending());
    }
    assert_eq!(made(&lines), MAX_CALLS, "each had its turn");
}

#[test]
fn way_to_a_client_is_checked_without_a_slot() {
    let mut net = Net::new();
    let (peer, line) = net.client(1, 1);
    for answer in [
        Ok(reply(|_| {})),
        Err(TransportError::TimedOut(Duration::from_secs(9))),
    ] {
        net.world.state.check_backchannel(peer.client, peer.session);
        assert!(net.task.run().is_pending());
        let calls = line.calls.lock().unwrap();
        let call = Reader::new(&calls.last().unwrap().bytes)
            .words::<6>()
            .unwrap();
        assert_eq!(call[3..], [0x4000_0000, 1, 0], "CB_NULL");
        drop(calls);
        line.answer(answer);
        assert!(net.task.run().is_pending() && net.works(&peer));
    }
}

#[test]
fn client_with_too_many_slots_is_told_when_others_lack_some() {
    // Each session wants four beside those that it has anyway, as has the one of the holder.
    let mut net = Net::over(World::with_slots(24));
    let (first, line) = net.client(1, 1);
    let mut lines = Vec::new();
    for n in 2..7 {
        lines.push(net.client(n, 2).1);
    }
    assert!(net.task.run().is_pending());
    assert_eq!(line.made(), 1);
    let (sequence, _, told) = line.last();
    let target = (net.world.state).with(|locked| locked.server.recalled_slots(first.session));
    let target = target.unwrap();
    assert_eq!((sequence, told), (1, target.0.to_be_bytes().to_vec()));
    assert!(target < SlotId(7));
    line.sequence(Ok(()));
    assert!(net.task.run().is_pending());
    // It reads the target in three results, and then the slots are taken back.
    for sequence in 1..5 {
        net.world.renew(&first, sequence).unwrap();
    }
    let target = (net.world.state).with(|locked| locked.server.recalled_slots(first.session));
    assert_eq!(target, None);
    assert_eq!(line.made(), 1, "once for each target");
    assert!(net.works(&first));
}

#[test]
fn client_that_has_given_slots_back_meanwhile_is_not_told() {
    let mut net = Net::over(World::with_slots(24));
    let (first, line) = net.client(1, 1);
    for n in 2..7 {
        net.client(n, 2);
    }
    for sequence in 1..5 {
        net.world.renew(&first, sequence).unwrap();
    }
    assert!(net.task.run().is_pending());
    assert_eq!(line.made(), 0);
}

#[test]
fn client_without_a_connection_is_not_waited_for() {
    let mut net = Net::new();
    let peer = net.world.peer("1", 1);
    net.free_lock(&[peer], b"l");
    assert!(net.works(&peer));
    let waiting = (net.world.state).with(|locked| locked.calls().take().is_some());
    assert!(!waiting);
}

#[test]
fn task_ends_with_the_state() {
    let Net {
        world, mut task, ..
    } = Net::new();
    let state = world.state.clone();
    drop(world);
    assert!(task.run().is_pending());
    drop(state);
    assert!(task.run().is_ready());
}
