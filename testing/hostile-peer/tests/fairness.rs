//! Clients that take all they can get of what connections share leave enough to others: chunk memory,
//! Receives, turns.

use buffer::{Buffer, Gather};
use bytes::Bytes;
use hostile_peer::{PROGRAM, Peer, Segment, Target, opcode, rpc, steady, wait_until, words};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Call, Caller, ReceivedCall, Reply, ReplyBound, Service};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const XID: u32 = 0x00fa_1200;

/// Procedures of the service.
const NULL: u32 = 0;
const READ: u32 = 1;
const WRITE: u32 = 2;
/// As NULL, with a reply that waits until the service lets it go.
const WAIT: u32 = 3;
/// As READ, with a reply that waits as well.
const WAIT_AND_READ: u32 = 4;

/// Bytes that are read and written with one call.
const SIZE: u32 = 1 << 20;
const BYTES: usize = SIZE as usize;

/// Most bytes of a reply without its data.
const HEADER: usize = 256;

/// Chunk memory that four READs take up.
const CHUNK_MEMORY: usize = 4 * (BYTES + HEADER);

const STAG: u32 = 0x00c0_ffee;

/// Attackers, each with this many calls.
const ATTACKERS: u8 = 4;
const CALLS: u32 = 32;

/// Bytes a second that the attackers take in, each.
const DRAINED: usize = 31 << 10;

/// Answers calls, some of them late.
#[derive(Clone)]
struct Files {
    data: Bytes,
    /// Calls that wait, or have waited.
    waiting: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Files {
    fn new() -> Self {
        Self {
            data: Bytes::from(vec![7; BYTES]),
            waiting: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        }
    }

    /// Lets all replies go.
    fn open(&self) {
        self.gate.close();
    }

    fn wait_for(&self, calls: usize) {
        wait_until(|| self.waiting.load(SeqCst) >= calls);
        assert_eq!(self.waiting.load(SeqCst), calls);
    }
}

fn answer(call: Call, data: Option<&Bytes>) -> Reply {
    let mut w = call.success(Buffer::with_capacity(64));
    if let Some(data) = data {
        w.item(Gather::from_iter([data.clone()]));
    }
    Reply::Message(w.finish())
}

impl Service for Files {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let call = match Call::parse(call, caller) {
            Ok(call) => call,
            Err(reply) => return Answer::Now(reply),
        };
        let data = matches!(call.proc, READ | WAIT_AND_READ).then_some(&self.data);
        match call.proc {
            NULL | READ => Answer::Now(answer(call, data)),
            WRITE => Answer::Now(match call.decode(|r| r.item(SIZE).map(drop)) {
                Ok(()) => call.void(),
                Err(error) => call.unreadable(error),
            }),
            WAIT | WAIT_AND_READ => {
                self.waiting.fetch_add(1, SeqCst);
                let (gate, data) = (Arc::clone(&self.gate), data.cloned());
                Answer::Later(Box::pin(async move {
                    // It is never given a permit, but closed.
                    let closed = gate.acquire().await;
                    assert!(closed.is_err());
                    answer(call, data.as_ref())
                }))
            }
            _ => Answer::Now(call.proc_unavail()),
        }
    }

    fn reply_bound(&self, call: ReceivedCall<'_>) -> Option<ReplyBound> {
        let procedure = call.bytes.get(20..24)?.try_into().ok()?;
        let has_data = matches!(u32::from_be_bytes(procedure), READ | WAIT_AND_READ);
        Some(ReplyBound {
            fixed: HEADER,
            results: has_data.then_some(BYTES).into_iter().collect(),
        })
    }
}

/// Lets calls go also when an assertion fails.
struct OpenOnDrop(Files);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A server whose chunk memory is enough for four READs, and which does not time out chunks
/// that do not come.
fn target(service: &Files) -> Target {
    let config = steady()
        .with_credits(CALLS)
        .with_chunk_memory(CHUNK_MEMORY)
        .with_pull_timeout(Duration::from_secs(300));
    Target::of_configured(config, service.clone(), PROGRAM, 2)
}

/// A call with these lists of chunks, and words behind its header.
fn call(procedure: u32, lists: &[u32], arguments: &[u32]) -> Vec<u8> {
    let fixed = [XID, 1, CALLS, 0];
    let call = rpc::call_with(XID, [PROGRAM, 2, procedure], arguments);
    words(&[&fixed, lists, &call].concat())
}

fn null() -> Vec<u8> {
    call(NULL, &[0, 0, 0], &[])
}

/// A call with a Write chunk of this many bytes.
fn reading(procedure: u32, length: u32) -> Vec<u8> {
    call(procedure, &[0, 1, 1, STAG, length, 0, 0, 0, 0], &[])
}

/// A call with a Read chunk of this many bytes.
fn writing(length: u32) -> Vec<u8> {
    const AFTER_LENGTH: u32 = 44;
    let lists = [1, AFTER_LENGTH, STAG, length, 0, 0, 0, 0, 0];
    call(WRITE, &lists, &[length])
}

/// Asserts that a client at an address of its own reads a MiB while attackers go on: the
/// [limit](Peer::answer) of its wait is far below the time limits of the server.
#[track_caller]
fn assert_others_read(target: &Target) {
    let mut client = Peer::connect_from([127, 0, 1, 1].into(), target.addr()).unwrap();
    client.memory.insert(STAG, vec![0; BYTES]);
    let began = Instant::now();
    client.send(&reading(READ, SIZE));
    let reply = client.answer();
    let took = began.elapsed();
    println!("READ takes {took:?}");
    assert_eq!((reply[0], reply[3]), (XID, 0));
    assert!(client.memory[&STAG].iter().all(|&byte| byte == 7));
}

/// An address for each attacker, or one for all.
#[derive(Clone, Copy)]
enum From {
    One,
    Each,
}

impl From {
    fn address(self, number: u8) -> Ipv4Addr {
        match self {
            Self::One => [127, 0, 0, 2].into(),
            Self::Each => [127, 0, 0, 2 + number].into(),
        }
    }

    /// Attackers that have made this call as often as they may.
    fn attackers(self, target: &Target, message: &[u8]) -> Vec<Peer> {
        let attacker = |number| {
            let mut peer = Peer::connect_from(self.address(number), target.addr()).unwrap();
            for _ in 0..CALLS {
                peer.send(message);
            }
            peer
        };
        (0..ATTACKERS).map(attacker).collect()
    }

    /// Waits until they have all the chunk memory they can get.
    fn wait_for_memory(self, target: &Target) {
        let addresses = match self {
            Self::One => 1,
            Self::Each => usize::from(ATTACKERS),
        };
        wait_until(|| target.stats().chunk_memory >= addresses * BYTES);
    }
}

/// Takes in what comes, slowly, until there is word from the other end of `stop`, or it is gone.
fn drain(attackers: &mut [Peer], stop: &mpsc::Receiver<()>, drained: &AtomicUsize) {
    const PAUSES: u32 = 10;
    while stop.recv_timeout(Duration::from_secs(1) / PAUSES) == Err(RecvTimeoutError::Timeout) {
        for attacker in &mut *attackers {
            attacker.take_in(DRAINED / PAUSES as usize);
        }
        drained.fetch_add(DRAINED / PAUSES as usize, SeqCst);
    }
}

/// Results that are taken in slowly.
#[track_caller]
fn check_results(from: From) {
    let target = target(&Files::new());
    let mut attackers = from.attackers(&target, &reading(READ, SIZE));
    let (stop, stopped) = mpsc::channel();
    let drained = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (attackers, drained) = (&mut attackers, &drained);
        scope.spawn(move || drain(attackers, &stopped, drained));
        // The attack ends also when an assertion fails.
        let _stop = stop;
        // The buffers of the kernel take in a lot at first.
        wait_until(|| drained.load(SeqCst) >= DRAINED);
        from.wait_for_memory(&target);
        let before = drained.load(SeqCst);
        assert_others_read(&target);
        // It did not wait until an attacker had taken in its own.
        let meanwhile = drained.load(SeqCst) - before;
        assert!(meanwhile < BYTES / 2, "{meanwhile} bytes are taken in");
    });
    drop(attackers);
    target.assert_baseline();
}

/// Arguments that never come.
#[track_caller]
fn check_arguments(from: From) {
    let target = target(&Files::new());
    let attackers = from.attackers(&target, &writing(SIZE));
    from.wait_for_memory(&target);
    assert_others_read(&target);
    drop(attackers);
    target.assert_baseline();
}

#[test]
fn results_that_one_address_takes_in_slowly_hold_up_nobody() {
    check_results(From::One);
}

#[test]
fn results_that_several_addresses_take_in_slowly_hold_up_nobody() {
    check_results(From::Each);
}

#[test]
fn arguments_that_never_come_from_one_address_hold_up_nobody() {
    check_arguments(From::One);
}

#[test]
fn arguments_that_never_come_from_several_addresses_hold_up_nobody() {
    check_arguments(From::Each);
}

/// That the service takes its time is not the fault of the client, whose connections stay.
#[test]
fn results_that_take_long_to_make_take_no_more_memory_than_the_share_of_their_address() {
    let service = Files::new();
    let _opens = OpenOnDrop(service.clone());
    let target = target(&service);
    let attackers = From::One.attackers(&target, &reading(WAIT_AND_READ, SIZE));
    service.wait_for(1);
    assert_others_read(&target);
    service.wait_for(1);
    drop(attackers);
    service.open();
    target.assert_baseline();
}

#[test]
fn small_calls_that_offer_much_lease_what_their_replies_can_take() {
    const OFFERED: u32 = 4 << 20;
    let service = Files::new();
    let _opens = OpenOnDrop(service.clone());
    let target = target(&service);
    let in_reply_chunk = call(WAIT, &[0, 0, 1, 1, STAG, OFFERED, 0, 0], &[]);
    for offer in [in_reply_chunk, reading(WAIT, OFFERED)] {
        let before = service.waiting.load(SeqCst);
        let attackers = From::Each.attackers(&target, &offer);
        let calls = usize::from(ATTACKERS) * CALLS as usize;
        service.wait_for(before + calls);
        assert!(target.stats().chunk_memory <= calls * HEADER);
        assert_others_read(&target);
        drop(attackers);
    }
    service.open();
    target.assert_baseline();
}

/// Blocks of the shared receive queue, and how many of them one address has at most.
const BLOCKS: usize = 1024;
const SHARE: usize = BLOCKS / 4;

fn target_with_few_receives(service: &Files) -> Target {
    let config = steady()
        .with_credits(64)
        // Those of a server that speaks both versions have as many bytes.
        .with_receive_memory(BLOCKS * (8 << 10))
        // Longer than anybody waits in vain.
        .with_pull_timeout(Duration::from_secs(300));
    Target::of_configured(config, service.clone(), PROGRAM, 2)
}

/// Clients of one address that have made these calls.
fn calling(target: &Target, connections: usize, calls: &[Vec<u8>]) -> Vec<Peer> {
    let attacker = |_| {
        let mut peer = Peer::connect_from([127, 0, 0, 2].into(), target.addr()).unwrap();
        calls.iter().for_each(|call| peer.send(call));
        peer
    };
    (0..connections).map(attacker).collect()
}

/// Asserts that clients at 20 other addresses are served, and our own.
#[track_caller]
fn assert_others_are_served(target: &Target) {
    for number in 0..20 {
        let mut client = Peer::connect_from([127, 0, 1, number].into(), target.addr()).unwrap();
        for _ in 0..4 {
            client.send(&null());
            assert_eq!(client.answer()[0], XID);
        }
    }
    target.assert_serves();
}

#[test]
fn calls_that_hold_all_receives_they_can_get_leave_receives_to_others() {
    const CONNECTIONS: usize = 260;
    const CALLS: usize = 64;
    let service = Files::new();
    let _opens = OpenOnDrop(service.clone());
    let target = target_with_few_receives(&service);
    let waiting = vec![call(WAIT, &[0, 0, 0], &[]); CALLS];
    let mut attackers = calling(&target, CONNECTIONS, &waiting);
    service.wait_for(SHARE);
    assert_others_are_served(&target);
    // The attackers have no more by now, and lose nothing when they get more.
    service.wait_for(SHARE);
    service.open();
    for attacker in &mut attackers {
        for _ in 0..CALLS {
            assert_eq!(attacker.answer()[0], XID);
        }
    }
    service.wait_for(CONNECTIONS * CALLS);
    drop(attackers);
    target.assert_baseline();
}

/// While a Read is outstanding a connection gets a block for each of its calls: it is not to be at the
/// cost of others.
#[test]
fn unanswered_reads_do_not_take_the_receives_of_others() {
    const CONNECTIONS: usize = 20;
    const CALLS: usize = 63;
    const { assert!(CONNECTIONS * CALLS > BLOCKS) };
    let service = Files::new();
    let _opens = OpenOnDrop(service.clone());
    let target = target_with_few_receives(&service);
    let mut attackers = calling(&target, CONNECTIONS, &[writing(8)]);
    wait_until(|| target.stats().chunk_memory >= 8 * CONNECTIONS);
    for attacker in &mut attackers {
        for _ in 0..CALLS {
            attacker.send(&call(WAIT, &[0, 0, 0], &[]));
        }
    }
    service.wait_for(CONNECTIONS * CALLS);
    assert_others_are_served(&target);
    service.open();
    drop(attackers);
    target.assert_baseline();
}

/// Clients of four addresses get all blocks with calls whose Read chunks never come. They owe what they
/// hold the blocks for, and lose their connections once others wait.
#[test]
fn four_addresses_do_not_keep_all_receives_with_chunks_that_never_come() {
    const CALLS: usize = 64;
    let service = Files::new();
    let target = target_with_few_receives(&service);
    let from_one = |address: u8| {
        let (from, to) = ([127, 0, 0, 2 + address].into(), target.addr());
        let attacker = move |_| Peer::connect_from(from, to);
        (0..SHARE / CALLS).map(attacker)
    };
    let attackers: Option<Vec<Peer>> = (0..4).flat_map(from_one).collect();
    let mut attackers = attackers.expect("there is room");
    for attacker in &mut attackers {
        for _ in 0..CALLS {
            attacker.send(&writing(8));
        }
    }
    // One call of each connection is being pulled, at least.
    wait_until(|| target.stats().chunk_memory >= 8 * attackers.len());
    assert_others_are_served(&target);
    drop(attackers);
    target.assert_baseline();
}

/// Sets this when it is dropped.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// FPDUs without payload that connections send without a pause cost their turns, however small they
/// are. Time says little on a busy machine: what the server takes in during a call of another client
/// says more.
#[test]
fn floods_of_empty_segments_delay_only_their_senders() {
    const FLOODS: u8 = 64;
    /// FPDUs during all honest calls: enough that it does not matter that counters are published now and
    /// then.
    const TAKEN_IN: u64 = 65_536 * FLOODS as u64;
    /// FPDUs during a call: 1024 in a turn, of which each connection has a few in a row. Eight times as
    /// many are no failure, as the client waits for a processor too.
    const MOST: u64 = 8 * 4 * 1024 * FLOODS as u64;
    let target = Target::start();
    let mut client = Peer::connect_from([127, 0, 1, 1].into(), target.addr()).unwrap();
    let flood = |number: u8| {
        let from = [127, 0, 0, 2 + number % 4].into();
        Peer::connect_from(from, target.addr()).expect("there is room")
    };
    let mut floods: Vec<Peer> = (0..FLOODS).map(flood).collect();
    let empty = Segment::tagged(opcode::WRITE, 0, 0, &[]);
    let framed = [empty.clone(), empty.not_last()].map(|empty| floods[0].framed(&empty.emit()));
    let flood = framed.concat().repeat(2048);
    let stop = AtomicBool::new(false);
    let taken_in = || target.stats().io.bytes_in / 20;
    std::thread::scope(|scope| {
        for half in floods.chunks_mut(usize::from(FLOODS) / 2) {
            let (stop, flood) = (&stop, &flood);
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    half.iter_mut().for_each(|peer| peer.bytes(flood));
                }
            });
        }
        let _ends = OnDrop(&stop);
        wait_until(|| taken_in() >= 4000 * u64::from(FLOODS));
        let before = taken_in();
        let mut took = Vec::new();
        while taken_in() < before + TAKEN_IN {
            let began = Instant::now();
            client.send(&null());
            assert_eq!(client.answer()[0], XID);
            took.push(began.elapsed());
        }
        let each = (taken_in() - before) / took.len() as u64;
        took.sort();
        println!("NULL takes {:?} in the median", took[took.len() / 2]);
        println!("{each} FPDUs are taken in during a call");
        assert!(each <= MOST, "{each} FPDUs are taken in during a call");
    });
}
