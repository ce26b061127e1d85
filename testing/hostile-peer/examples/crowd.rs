//! Memory and latency of a server of NFSv4 whose tables clients have filled.
//!
//! ```text
//! cargo run --release -p hostile-peer --example crowd [opens|locks] [CLIENTS] [STATES]
//! ```
//!
//! The server is in this process, with files in memory and the limits that `rpcrdma serve` has. 10,000 clients with a session each, from
//! as many addresses as the shares of the limits need, make state by COMPOUNDs until there are 1,000,000 of it: opens, each of a file and
//! by an owner of its own, or for half of it owners of locks, with two locks each. Printed are the bytes that the process has for each,
//! and the quantiles of the time that replies to one client of another address take: before, meanwhile, once the tables are full, while
//! others ask for more and are refused, while the leases of all run out, and while all they had ends. Where other programs use the CPUs,
//! the largest times say little about the server; the CPU that the costliest request took, to some milliseconds, says more.
//!
//! It needs two CPUs that are otherwise idle, and takes some minutes.

use nfs_proto::v4::file::GetAttrArgs;
use nfs_proto::v4::lock::{ExistingLockOwner, LockArgs, LockType, Locker, OpenToLockOwner};
use nfs_proto::v4::open::{
    CloseArgs, CreateHow, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny,
};
use nfs_proto::v4::session::{
    ChannelAttributes, ClientOwner, CreateSessionArgs, CreateSessionFlags, ExchangeFlags,
    ExchangeIdArgs, ProtectArgs, ReclaimCompleteArgs, SequenceArgs,
};
use nfs_proto::v4::{
    ArgOp, AttributeNumber, Bitmap, CallWriter, ClientId, CompoundRes, Handle, Identifier, ResOp,
    SequenceId, SessionId, SlotId, StateId, StateOwner, Status, Tag, Verifier,
};
use nfs_proto::{Filename, v4};
use nfs_server::{
    ExportOptions, Exports, HandleKey, MemFs, Nfs4, Nfs4Settings, Nfs4State, Nfs4Upkeep, Squash,
};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{
    Answer, AuthSys, Caller, Credential, Procedure, Programs, Reply, Respond, Service, read_reply,
    write_call,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Program number of NFS.
const NFS: u32 = 100_003;

/// Operations of one kind in a COMPOUND.
const AT_ONCE: usize = 16;

/// Locks of each owner of locks.
const LOCKS: u64 = 2;

/// Pause between two calls of the other client.
const PAUSE: Duration = Duration::from_millis(1);

/// How long the other client calls in a phase that would not end by itself.
const PHASE: Duration = Duration::from_secs(5);

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

/// A server, and its time: that of the machine and some more.
struct Site {
    programs: Programs,
    state: Nfs4State,
    later: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    /// CPU of the costliest request so far, in nanoseconds.
    costliest: AtomicU64,
}

/// Returns the CPU that this thread has used, in nanoseconds.
fn cpu() -> u64 {
    let read = std::fs::read_to_string("/proc/thread-self/schedstat");
    let read = read.expect("Linux counts the CPU of threads");
    let used = read
        .split(' ')
        .next()
        .and_then(|nanoseconds| nanoseconds.parse().ok());
    used.unwrap_or(0)
}

/// Work of the server's thread.
fn keep_up(mut upkeep: Nfs4Upkeep, is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        upkeep.run();
        thread::park_timeout(Duration::from_millis(1));
    }
}

impl Site {
    fn new(settings: Nfs4Settings) -> Self {
        let options = ExportOptions::default().with_squash(Squash::None);
        let exports = Exports::new(HandleKey::random().expect("the system has random numbers"));
        let exports = exports.with("/", Arc::new(MemFs::new(64 << 30)), options);
        let later = Arc::new(AtomicU64::new(0));
        let of_clock = Arc::clone(&later);
        let clock = move || Instant::now() + Duration::from_secs(of_clock.load(Relaxed));
        let (state, upkeep) = Nfs4State::with_clock(settings, clock).expect("no disk is needed");
        let is_over = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_over);
        thread::spawn(move || keep_up(upkeep, &of_thread));
        let pool = buffer::Pool::new(64 << 20);
        let exports = exports.expect("one export");
        Self {
            programs: Programs::new().with(Nfs4::new(exports, pool, state.clone())),
            state,
            later,
            is_over,
            costliest: AtomicU64::new(0),
        }
    }

    fn call(&self, caller: &Caller, operations: Vec<ArgOp<'_>>) -> Payload {
        let mut w = Writer::default();
        let procedure = Procedure {
            prog: NFS,
            vers: 4,
            proc: 1,
        };
        let root = AuthSys {
            uid: 0,
            gid: 0,
            ..AuthSys::default()
        };
        write_call(&mut w, 7, procedure, &Credential::Sys(root));
        let mut call = CallWriter::new(&mut w, Tag::default(), 2);
        operations
            .into_iter()
            .for_each(|operation| call.push(operation));
        call.finish();
        let reply = match self.programs.call(w.finish(), caller) {
            Answer::Now(reply) => reply,
            Answer::Blocking(job) => job(),
            Answer::Deferred(job) => Respond::wait(job).expect("a reply"),
            Answer::Later(_) => panic!("COMPOUND waits for nothing else"),
        };
        match reply {
            Reply::Message(reply) => reply,
            other => panic!("{other:?}"),
        }
    }
}

/// Reads the results of a COMPOUND, and its status.
fn results(reply: &Payload, mut each: impl FnMut(ResOp<'_>)) -> Result<(), Status> {
    let reader = read_reply(reply, 7).expect("the call succeeds");
    let mut results = CompoundRes::parse(reader).expect("the reply is one to a COMPOUND");
    let status = results.status;
    while let Some(result) = results.next_result() {
        each(result.expect("a result"));
    }
    status
}

/// An address that a default export serves, of which there are enough.
fn caller(address: usize) -> Caller {
    let number = u32::from(Ipv4Addr::new(127, 0, 0, 1)) + u32::try_from(address).expect("few");
    Caller::new((Ipv4Addr::from(number), 700).into())
}

/// A client with a session, of which it uses slot 0.
struct Client {
    site: Arc<Site>,
    caller: Caller,
    session: SessionId,
    sequence: u32,
}

impl Client {
    /// Makes a client with a session.
    ///
    /// # Errors
    ///
    /// There is no room for one more client of this address.
    fn new(site: &Arc<Site>, name: &str, caller: Caller) -> Result<Self, Status> {
        let exchange = ArgOp::ExchangeId(ExchangeIdArgs {
            owner: ClientOwner {
                verifier: Verifier([1; 8]),
                owner: Identifier::new(name.as_bytes()).expect("a short name"),
            },
            flags: ExchangeFlags::empty(),
            protect: ProtectArgs::None,
            implementation: None,
        });
        let mut known = None;
        results(&site.call(&caller, vec![exchange]), |result| {
            if let ResOp::ExchangeId(Ok(found)) = result {
                known = Some((found.client, found.sequence));
            }
        })?;
        let (client, sequence) = known.ok_or(Status::ServerFault)?;
        let channel = ChannelAttributes {
            max_request: 1 << 20,
            max_response: 1 << 20,
            max_response_cached: 7584,
            max_operations: 64,
            max_requests: 64,
            ..ChannelAttributes::default()
        };
        let create = ArgOp::CreateSession(CreateSessionArgs {
            client,
            sequence,
            flags: CreateSessionFlags::empty(),
            fore: channel,
            back: channel,
            callback_program: 0x4000_0000,
            callback_security: v4::security::CallbackSecurities::default(),
        });
        let mut session = None;
        results(&site.call(&caller, vec![create]), |result| {
            if let ResOp::CreateSession(Ok(made)) = result {
                session = Some(made.session);
            }
        })?;
        let mut client = Self {
            site: Arc::clone(site),
            caller,
            session: session.ok_or(Status::ServerFault)?,
            sequence: 0,
        };
        let complete = ArgOp::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        client.run(vec![complete], |_| {})?;
        Ok(client)
    }

    fn run(
        &mut self,
        operations: Vec<ArgOp<'_>>,
        each: impl FnMut(ResOp<'_>),
    ) -> Result<(), Status> {
        self.sequence += 1;
        let sequence = ArgOp::Sequence(SequenceArgs {
            session: self.session,
            sequence: SequenceId(self.sequence),
            slot: SlotId(0),
            highest_slot: SlotId(0),
            cache_this: false,
        });
        let mut all = vec![sequence];
        all.extend(operations);
        results(&self.site.call(&self.caller, all), each)
    }

    /// Opens files, which are made if they are not there, and locks two bytes of each if it is to.
    ///
    /// # Errors
    ///
    /// There is no room for more.
    fn fill(&mut self, files: std::ops::Range<usize>, locks: bool) -> Result<(), Status> {
        let files: Vec<_> = files.collect();
        for files in files.chunks(AT_ONCE) {
            let names: Vec<_> = files.iter().map(|number| format!("{number:08}")).collect();
            let mut operations = Vec::new();
            for name in &names {
                operations.extend([ArgOp::PutRootFh, open(name, name.as_bytes())]);
                if locks {
                    for place in 0..LOCKS {
                        operations.push(lock(name.as_bytes(), place));
                    }
                    // A session has so many operations in a request.
                    if operations.len() + 2 + LOCKS as usize > 60 {
                        self.run(std::mem::take(&mut operations), |_| {})?;
                    }
                }
            }
            let before = cpu();
            let done = self.run(operations, |_| {});
            let cost = cpu() - before;
            self.site.costliest.fetch_max(cost, Relaxed);
            done?;
        }
        Ok(())
    }
}

/// Prints the CPU of the costliest request of the others since the last time.
fn print_costliest(site: &Site) {
    let cost = Duration::from_nanos(site.costliest.swap(0, Relaxed));
    println!("{:<24} the costliest request took {cost:?} of CPU", "");
}

fn open<'a>(name: &'a str, owner: &'a [u8]) -> ArgOp<'a> {
    ArgOp::Open(OpenArgs {
        seqid: 0,
        access: BOTH,
        deny: ShareDeny::empty(),
        owner: StateOwner {
            client: ClientId(0),
            owner: Identifier::new(owner).expect("a short name"),
        },
        how: OpenHow::Create(CreateHow::Unchecked(v4::fattr::Fattr::default())),
        claim: OpenClaim::Null(Filename::new(name.as_bytes()).expect("a short name")),
    })
}

/// Locks a byte: the first by an owner that is new in the current open, the others by the state id of the one before.
fn lock(owner: &[u8], place: u64) -> ArgOp<'_> {
    let current = StateId {
        seqid: 1,
        other: [0; 12],
    };
    ArgOp::Lock(LockArgs {
        kind: LockType::Write,
        reclaim: false,
        offset: 2 * place,
        length: 1,
        locker: match place {
            0 => Locker::New(OpenToLockOwner {
                open_seqid: 0,
                open: current,
                lock_seqid: 0,
                owner: StateOwner {
                    client: ClientId(0),
                    owner: Identifier::new(owner).expect("a short name"),
                },
            }),
            _ => Locker::Existing(ExistingLockOwner {
                state: current,
                lock_seqid: 0,
            }),
        },
    })
}

/// The client whose replies are timed.
struct Honest {
    client: Client,
    handle: Vec<u8>,
    opened: usize,
}

/// Times of its replies.
#[derive(Default)]
struct Times {
    getattr: Vec<Duration>,
    open: Vec<Duration>,
}

impl Honest {
    fn new(site: &Arc<Site>) -> Self {
        let mut client =
            Client::new(site, "honest", caller(1 << 20)).expect("nobody else is there");
        let mut handle = Vec::new();
        let operations = vec![ArgOp::PutRootFh, open("honest", b"honest"), ArgOp::GetFh];
        let opened = client.run(operations, |result| {
            if let ResOp::GetFh(Ok(found)) = result {
                handle = found.handle.to_vec();
            }
        });
        opened.expect("the server is empty");
        Self {
            client,
            handle,
            opened: 0,
        }
    }

    /// Makes files, and keeps none open.
    fn make(&mut self, files: std::ops::Range<usize>) {
        let names: Vec<_> = files.map(|number| format!("{number:08}")).collect();
        let mut operations = Vec::new();
        for name in &names {
            let state = StateId {
                seqid: 1,
                other: [0; 12],
            };
            let close = ArgOp::Close(CloseArgs { seqid: 0, state });
            operations.extend([ArgOp::PutRootFh, open(name, b"honest"), close]);
        }
        self.client.run(operations, |_| {}).expect("there is room");
    }

    /// Asks for attributes, and opens a new file.
    fn call(&mut self, times: &mut Times) {
        let put = || {
            ArgOp::PutFh(nfs_proto::v4::file::PutFhArgs {
                handle: Handle::new(&self.handle).expect("a handle"),
            })
        };
        let get = ArgOp::GetAttr(GetAttrArgs {
            wanted: Bitmap::of([AttributeNumber::Size as u32, AttributeNumber::Change as u32]),
        });
        let begin = Instant::now();
        let done = self.client.run(vec![put(), get], |_| {});
        times.getattr.push(begin.elapsed());
        done.expect("GETATTR is served");
        self.opened += 1;
        let name = format!("honest-{}", self.opened);
        let operations = vec![ArgOp::PutRootFh, open(&name, b"honest")];
        let mut state = None;
        let begin = Instant::now();
        let done = self.client.run(operations, |result| {
            if let ResOp::Open(Ok(opened)) = result {
                state = Some(opened.state);
            }
        });
        times.open.push(begin.elapsed());
        done.expect("OPEN is served");
        let state = state.expect("it is open");
        let close = ArgOp::Close(CloseArgs { seqid: 0, state });
        let name = Filename::new(name.as_bytes()).expect("a short name");
        let find = ArgOp::Lookup(v4::directory::LookupArgs { name });
        let remove = ArgOp::Remove(v4::directory::RemoveArgs { name });
        let operations = vec![ArgOp::PutRootFh, find, close, ArgOp::PutRootFh, remove];
        self.client.run(operations, |_| {}).expect("it was open");
    }

    /// Calls now and then until `is_over`, and prints how long the replies took.
    fn measure(&mut self, phase: &str, is_over: impl Fn() -> bool) {
        let mut times = Times::default();
        while !is_over() || times.open.len() < 100 {
            self.call(&mut times);
            thread::sleep(PAUSE);
        }
        print(phase, "GETATTR", times.getattr);
        print("", "OPEN", times.open);
    }
}

fn print(phase: &str, operation: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1000];
    let quantiles = [500, 990, 999, 1000]
        .map(|per_mille| format!("{:>9.0}", at(per_mille).as_secs_f64() * 1e6));
    println!(
        "{phase:<24} {operation:<8} {:>6} {}",
        times.len(),
        quantiles.join(" ")
    );
}

/// Bytes of memory that the process has.
fn memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has /proc");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.map_or(0, |pages: usize| pages * 4096)
}

fn each(bytes: usize, count: usize) -> usize {
    bytes / count.max(1)
}

/// Clients from as many addresses as it takes, each of which makes as many as it may.
fn crowd(site: &Arc<Site>, count: usize) -> (Vec<Client>, usize) {
    let (mut clients, mut address) = (Vec::new(), 0);
    while clients.len() < count {
        match Client::new(site, &format!("client {}", clients.len()), caller(address)) {
            Ok(client) => clients.push(client),
            Err(Status::Delay) => address += 1,
            Err(status) => panic!("{status:?}"),
        }
    }
    (clients, address + 1)
}

/// Has the clients make state until there is none left for any of them. Returns the number of files.
fn fill(clients: &mut [Client], states: usize, locks: bool) {
    let per_client = states.div_ceil(clients.len()) / if locks { 2 } else { 1 };
    for (number, client) in clients.iter_mut().enumerate() {
        let first = number * per_client;
        // Those of an address that has its share are refused.
        client.fill(first..first + per_client, locks).ok();
    }
    // What the shares leave goes to the address that has least, by and by.
    let mut next = clients.len() * per_client;
    while let Some(client) = clients.last_mut() {
        if client.fill(next..next + 1, locks).is_err() {
            break;
        }
        next += 1;
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| {
        args.get(at).map_or(default, |given| {
            given.parse().expect("a number of clients or states")
        })
    };
    let locks = args.first().is_some_and(|what| what == "locks");
    let (count, states): (usize, usize) = (number(1, 10_000), number(2, 1_000_000));
    let mut settings = Nfs4Settings::default();
    settings.limits.clients = count;
    settings.limits.states = states;
    let (lease, courtesy) = (settings.lease, settings.courtesy);
    let site = Arc::new(Site::new(settings));
    let mut honest = Honest::new(&site);
    println!(
        "{:<24} {:<8} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "", "", "calls", "p50 (us)", "p99", "p99.9", "max"
    );
    let phase_ends = |begin: Instant| move || begin.elapsed() > PHASE;
    honest.measure("alone", phase_ends(Instant::now()));

    let files = states / if locks { 2 } else { 1 };
    let empty = memory();
    for first in (0..files + AT_ONCE).step_by(AT_ONCE) {
        honest.make(first..first + AT_ONCE);
    }
    println!(
        "{files} files: {} bytes each, which are those of the file system",
        each(memory() - empty, files)
    );
    let empty = memory();
    // One place is the honest client's.
    let (mut clients, addresses) = crowd(&site, count - 1);
    let with_clients = memory();
    println!(
        "{} clients with a session each, of {addresses} addresses: {} bytes each",
        clients.len(),
        each(with_clients - empty, clients.len())
    );

    let filled = Arc::new(AtomicBool::new(false));
    let of_thread = Arc::clone(&filled);
    let filling = thread::spawn(move || {
        fill(&mut clients, states, locks);
        of_thread.store(true, Relaxed);
        clients
    });
    honest.measure("while they fill", || filled.load(Relaxed));
    print_costliest(&site);
    let mut clients = filling.join().expect("no panic");
    let usage = site.state.usage();
    println!(
        "{} opens and owners of locks, {} locks: {} bytes for each of {files} open files with what is its",
        usage.states,
        usage.locks,
        each(memory() - with_clients, files)
    );
    honest.measure("full", phase_ends(Instant::now()));

    let asked = Arc::new(AtomicUsize::new(0));
    let (is_over, of_thread) = (Arc::new(AtomicBool::new(false)), Arc::clone(&asked));
    let over = Arc::clone(&is_over);
    let asking = thread::spawn(move || {
        while !over.load(Relaxed) {
            for client in &mut clients {
                client.fill(0..1, locks).ok();
                of_thread.fetch_add(1, Relaxed);
            }
        }
        clients
    });
    honest.measure("others ask for more", phase_ends(Instant::now()));
    is_over.store(true, Relaxed);
    drop(asking.join());
    print_costliest(&site);
    println!("{} requests of others meanwhile", asked.load(Relaxed));

    // The honest client calls before each step, so that its own lease does not run out.
    for _ in 0..2 {
        honest.call(&mut Times::default());
        site.later.fetch_add(lease.as_secs() / 2 + 1, Relaxed);
    }
    honest.measure("their leases run out", phase_ends(Instant::now()));
    for _ in 0..courtesy.as_secs() / (lease.as_secs() / 2) + 2 {
        honest.call(&mut Times::default());
        site.later.fetch_add(lease.as_secs() / 2, Relaxed);
    }
    let state = site.state.clone();
    let begin = Instant::now();
    honest.measure("all they had ends", move || state.usage().states <= 1);
    println!(
        "it took {:?}; the process has {} MiB",
        begin.elapsed(),
        memory() >> 20
    );
    site.is_over.store(true, Relaxed);
}
