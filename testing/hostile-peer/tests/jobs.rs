//! Clients that occupy as many threads as they can leave threads to others.

use buffer::{Buffer, Gather, Pool};
use bytes::Bytes;
use hostile_peer::rpc::{accepted, call_with, msg, opaque};
use hostile_peer::{PROGRAM, Peer, Target, steady, wait_until, words};
use nfs_server::{ExportOptions, Exports, HandleKey, LocalFs, LocalFsOptions, Mount3, Nfs3};
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Call, Caller, Programs, Reply, Service};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const XID: u32 = 0x0030_b500;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

const MNT: u32 = 1;
const GETATTR: u32 = 1;
const CREATE: u32 = 8;
const FSSTAT: u32 = 18;

const JUKEBOX: u32 = 10_008;

/// Connections of the attackers, and calls on each.
const CONNECTIONS: usize = 260;
const CALLS: u32 = 64;

/// Addresses of the attackers.
const ATTACKERS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];

/// Other clients, each at an address of its own.
const CLIENTS: u8 = 8;

/// Holds up the jobs of the attackers.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    /// Calls of the attackers that came, or have a thread.
    calls: AtomicUsize,
}

impl Gate {
    fn wait(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// NFS, where each job of an attacker takes until the gate is open.
struct Gated {
    programs: Programs,
    gate: Arc<Gate>,
}

impl Service for Gated {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let answer = self.programs.call(call, caller);
        if !ATTACKERS
            .iter()
            .any(|attacker| caller.addr.ip() == *attacker)
        {
            return answer;
        }
        self.gate.calls.fetch_add(1, SeqCst);
        match answer {
            Answer::Blocking(job) => {
                let gate = Arc::clone(&self.gate);
                Answer::Blocking(Box::new(move || {
                    gate.wait();
                    job()
                }))
            }
            answer => answer,
        }
    }
}

/// Opens the gate also when an assertion fails: the threads of the server end only then.
struct OpenOnDrop(Arc<Gate>);

impl Drop for OpenOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The words behind the header of a good reply.
#[track_caller]
fn results(peer: &mut Peer, target: [u32; 3], arguments: &[u32]) -> Vec<u32> {
    peer.send(&words(&msg(XID, 8, &call_with(XID, target, arguments))));
    let answer = peer.answer();
    let header = [
        &[XID, 1][..],
        &answer[2..3],
        &[0, 0, 0, 0],
        &accepted(XID, 0, &[]),
    ]
    .concat();
    assert_eq!(answer[..header.len()], header);
    answer[header.len()..].to_vec()
}

#[test]
fn calls_of_others_are_executed_while_attackers_fill_their_job_quota() {
    let dir = tempfile::tempdir().unwrap();
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir.path(), everybody).unwrap();
    let fs = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let exports = Exports::new(HandleKey::random().unwrap());
    let exports = exports.with("/export", Arc::new(fs), ExportOptions::default());
    let exports = exports.unwrap();
    let gate = Arc::new(Gate::default());
    let programs = Programs::new()
        .with(Nfs3::new(exports.clone(), Pool::new(1 << 20)))
        .with(Mount3::new(exports));
    let service = Gated {
        programs,
        gate: Arc::clone(&gate),
    };
    let config = steady().with_credits(CALLS);
    let target = Target::of_configured(config, service, NFS, 3);
    let _opens = OpenOnDrop(Arc::clone(&gate));
    let connect = |from| Peer::connect_from(from, target.addr()).expect("a connection");
    let mut first = connect(Ipv4Addr::LOCALHOST);
    let mounted = results(&mut first, [MOUNT, 3, MNT], &opaque(b"/export"));
    let root = opaque(&words(&mounted[2..])[..mounted[1] as usize]);

    let mut attackers = Vec::new();
    for (number, from) in ATTACKERS.into_iter().cycle().take(CONNECTIONS).enumerate() {
        let mut peer = connect(from);
        for call in 0..CALLS {
            let xid = u32::try_from(number).unwrap() << 16 | call;
            let call = call_with(xid, [NFS, 3, FSSTAT], &root);
            peer.send(&words(&msg(xid, CALLS, &call)));
        }
        attackers.push(peer);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while gate.calls.load(SeqCst) < CONNECTIONS * CALLS as usize {
        assert!(Instant::now() < deadline, "calls do not come in");
        std::thread::yield_now();
    }

    let mut took = Vec::new();
    for number in 0..CLIENTS {
        let mut client = connect([127, 0, 1, number].into());
        for file in 0..4 {
            let name = opaque(format!("{number}-{file}").as_bytes());
            let arguments = [&root[..], &name, &[0, 0, 0, 0, 0, 0, 0]].concat();
            let began = Instant::now();
            let created = results(&mut client, [NFS, 3, CREATE], &arguments);
            took.push(began.elapsed());
            assert_eq!(created[0], 0, "it is created");
            let asked = results(&mut client, [NFS, 3, GETATTR], &root);
            assert_eq!(asked[0], 0);
        }
    }
    took.sort();
    println!("CREATE takes {:?} in the median", took[took.len() / 2]);
    // An attacker is told to come again for what is beyond its share; what it need not wait for is
    // answered all the same.
    let mut more = connect(ATTACKERS[0]);
    let asked = results(&mut more, [NFS, 3, FSSTAT], &root);
    assert_eq!(asked[0], JUKEBOX);
    let asked = results(&mut more, [NFS, 3, GETATTR], &root);
    assert_eq!(asked[0], 0);
    gate.open();
    drop((attackers, more, first));
    target.assert_baseline();
}

/// The data of a reply whose end is a panic.
struct PanicsWhenDropped(Arc<AtomicUsize>);

impl AsRef<[u8]> for PanicsWhenDropped {
    fn as_ref(&self) -> &[u8] {
        &[7; 4]
    }
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        // Without a message: there are many.
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Answers NULL as a job, and procedure 1 with a reply that panics when it is dropped, once the gate is
/// open.
struct Panicking {
    gate: Arc<Gate>,
    dropped: Arc<AtomicUsize>,
}

impl Service for Panicking {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let call = match Call::parse(call, caller) {
            Ok(call) => call,
            Err(reply) => return Answer::Now(reply),
        };
        if call.proc == 0 {
            return Answer::Blocking(Box::new(|| call.void()));
        }
        let (gate, dropped) = (Arc::clone(&self.gate), Arc::clone(&self.dropped));
        Answer::Blocking(Box::new(move || {
            gate.calls.fetch_add(1, SeqCst);
            gate.wait();
            let data = Bytes::from_owner(PanicsWhenDropped(dropped));
            let mut w = call.success(Buffer::with_capacity(64));
            w.item(Gather::from_iter([data]));
            Reply::Message(w.finish())
        }))
    }
}

/// Replies that nobody takes any more are dropped by the threads that made them.
#[test]
fn panic_of_a_reply_that_nobody_takes_costs_its_address_no_thread() {
    let gate = Arc::new(Gate::default());
    let dropped = Arc::new(AtomicUsize::new(0));
    let service = Panicking {
        gate: Arc::clone(&gate),
        dropped: Arc::clone(&dropped),
    };
    let _opens = OpenOnDrop(Arc::clone(&gate));
    let config = steady().with_credits(CALLS);
    let target = Target::of_configured(config, service, PROGRAM, 2);
    let call = |procedure| {
        words(&msg(
            XID,
            CALLS,
            &call_with(XID, [PROGRAM, 2, procedure], &[]),
        ))
    };
    let others = target.stats().connections;
    let mut attacker = Peer::connect_from(ATTACKERS[0], target.addr()).unwrap();
    for _ in 0..CALLS {
        attacker.send(&call(1));
    }
    // Jobs without a thread would end with their connection.
    wait_until(|| gate.calls.load(SeqCst) == CALLS as usize);
    drop(attacker);
    wait_until(|| target.stats().connections == others);
    gate.open();
    // As many as an address may have running.
    wait_until(|| dropped.load(SeqCst) == CALLS as usize);
    let mut next = Peer::connect_from(ATTACKERS[0], target.addr()).unwrap();
    next.send(&call(0));
    assert_eq!(next.answer()[0], XID);
}
