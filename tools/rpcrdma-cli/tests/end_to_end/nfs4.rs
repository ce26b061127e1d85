//! NFSv4 clients as an administrator sees and ends them, by a small client over TCP.

use crate::running::{Served, fails, ok, text};
use crate::statistics::{get, said};
use nfs_proto::v4::lock::{LockArgs, LockType, Locker, OpenToLockOwner};
use nfs_proto::v4::open::{CreateHow, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use nfs_proto::v4::session::{
    ChannelAttributes, ClientOwner, CreateSessionArgs, CreateSessionFlags, ExchangeFlags,
    ExchangeIdArgs, ProtectArgs, ReclaimCompleteArgs, SequenceArgs,
};
use nfs_proto::v4::{
    ArgOp, CallWriter, ClientId, CompoundRes, Identifier, ResOp, SequenceId, SessionId, SlotId,
    StateId, StateOwner, Status, Tag, Verifier,
};
use nfs_proto::{Filename, NFS_PROGRAM, v4};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Procedure, ReplyBound, Transport, read_reply, write_call};
use oncrpc_tcp::Client;
use rustix::process::Signal;
use serde_json::Value;
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a call may take: longer than any machine does.
const DEADLINE: Duration = Duration::from_secs(60);

/// A client with a session, of which it uses slot 0.
struct Client4 {
    runtime: Runtime,
    transport: Client,
    client: ClientId,
    session: SessionId,
    sequence: Cell<u32>,
}

/// Results of a COMPOUND.
struct Results(Payload);

impl Results {
    fn last(&self) -> ResOp<'_> {
        let reader = read_reply(&self.0, self.xid()).expect("it succeeded");
        let mut results = CompoundRes::parse(reader).unwrap();
        let mut last = None;
        while let Some(result) = results.next_result() {
            last = Some(result.unwrap());
        }
        last.expect("a result")
    }

    fn xid(&self) -> u32 {
        let mut first = [0; 4];
        first.copy_from_slice(&self.0.head()[..4]);
        u32::from_be_bytes(first)
    }

    #[track_caller]
    fn ok(&self) {
        assert_eq!(self.last().status(), Ok(()));
    }
}

fn compound(transport: &Client, operations: Vec<ArgOp<'_>>) -> Payload {
    let mut w = Writer::default();
    let procedure = Procedure {
        prog: NFS_PROGRAM,
        vers: 4,
        proc: 1,
    };
    let credential = nfs_client::current_user();
    write_call(&mut w, transport.next_xid(), procedure, &credential);
    let mut call = CallWriter::new(&mut w, Tag::new(b"").unwrap(), 2);
    operations
        .into_iter()
        .for_each(|operation| call.push(operation));
    call.finish();
    w.finish()
}

fn name(name: &str) -> Filename<'_> {
    Filename::new(name.as_bytes()).unwrap()
}

impl Client4 {
    /// Connects to a server with `--tcp`, as a client of this name.
    fn connect(served: &Served, owner: &'static [u8]) -> Self {
        let runtime = Runtime::new().unwrap();
        let said: Value = serde_json::from_str(&served.said).unwrap();
        let listeners = said["listeners"].as_array().unwrap().iter();
        let mut tcp = listeners.filter(|listener| listener["provider"] == "tcp");
        let at = tcp.next().unwrap()["address"].as_str().unwrap();
        let transport = Client::connect(at.parse().unwrap(), DEADLINE);
        let transport = runtime.block_on(transport).unwrap();
        let mut this = Self {
            runtime,
            transport,
            client: ClientId(0),
            session: SessionId::default(),
            sequence: Cell::new(0),
        };
        let exchanged = this.call(vec![ArgOp::ExchangeId(ExchangeIdArgs {
            owner: ClientOwner {
                verifier: Verifier([1; 8]),
                owner: Identifier::new(owner).unwrap(),
            },
            flags: ExchangeFlags::empty(),
            protect: ProtectArgs::None,
            implementation: None,
        })]);
        let ResOp::ExchangeId(Ok(known)) = exchanged.last() else {
            panic!("{:?}", exchanged.last());
        };
        let channel = ChannelAttributes {
            max_request: 65_536,
            max_response: 65_536,
            max_response_cached: 4096,
            max_operations: 16,
            max_requests: 8,
            ..ChannelAttributes::default()
        };
        let created = this.call(vec![ArgOp::CreateSession(CreateSessionArgs {
            client: known.client,
            sequence: known.sequence,
            flags: CreateSessionFlags::empty(),
            fore: channel,
            back: channel,
            callback_program: 0x4000_0000,
            callback_security: v4::security::CallbackSecurities::default(),
        })]);
        let ResOp::CreateSession(Ok(session)) = created.last() else {
            panic!("{:?}", created.last());
        };
        (this.client, this.session) = (known.client, session.session);
        this
    }

    /// The same, when it has said that it has nothing to reclaim.
    fn ready(served: &Served, owner: &'static [u8]) -> Self {
        let client = Self::connect(served, owner);
        client.complete().ok();
        client
    }

    fn complete(&self) -> Results {
        let complete = ReclaimCompleteArgs { one_fs: false };
        self.run(vec![ArgOp::ReclaimComplete(complete)])
    }

    fn call(&self, operations: Vec<ArgOp<'_>>) -> Results {
        let call = compound(&self.transport, operations);
        let bound = ReplyBound {
            fixed: 65_536,
            results: Default::default(),
        };
        Results(
            self.runtime
                .block_on(self.transport.call(call, bound))
                .unwrap(),
        )
    }

    /// Sends operations behind a SEQUENCE.
    fn run(&self, operations: Vec<ArgOp<'_>>) -> Results {
        self.sequence.set(self.sequence.get() + 1);
        let sequence = ArgOp::Sequence(SequenceArgs {
            session: self.session,
            sequence: SequenceId(self.sequence.get()),
            slot: SlotId(0),
            highest_slot: SlotId(0),
            cache_this: false,
        });
        self.call([vec![sequence], operations].concat_ops())
    }

    /// Opens a file of `/stuff` for reading and writing, which is made if it is not there.
    fn open(&self, file: &str) -> Result<StateId, Status> {
        let open = ArgOp::Open(OpenArgs {
            seqid: 0,
            access: ShareAccess::READ | ShareAccess::WRITE,
            deny: ShareDeny::empty(),
            owner: StateOwner {
                client: ClientId(0),
                owner: Identifier::new(b"a process").unwrap(),
            },
            how: OpenHow::Create(CreateHow::Unchecked(v4::fattr::Fattr::default())),
            claim: OpenClaim::Null(name(file)),
        });
        let opened = self.run(vec![ArgOp::PutRootFh, lookup("stuff"), open]);
        match opened.last() {
            ResOp::Open(opened) => opened.map(|opened| opened.state),
            other => Err(other.status().unwrap_err()),
        }
    }

    /// Locks ten bytes of a file of `/stuff`.
    fn lock(&self, file: &str, open: StateId) -> Result<(), Status> {
        let lock = ArgOp::Lock(LockArgs {
            kind: LockType::Write,
            reclaim: false,
            offset: 5,
            length: 10,
            locker: Locker::New(OpenToLockOwner {
                open_seqid: 0,
                open,
                lock_seqid: 0,
                owner: StateOwner {
                    client: ClientId(0),
                    owner: Identifier::new(b"a locker").unwrap(),
                },
            }),
        });
        let locked = self.run(vec![ArgOp::PutRootFh, lookup("stuff"), lookup(file), lock]);
        locked.last().status()
    }

    fn id(&self) -> String {
        format!("{:016x}", self.client.0)
    }
}

fn lookup(of: &str) -> ArgOp<'_> {
    ArgOp::Lookup(v4::directory::LookupArgs { name: name(of) })
}

/// Joins lists of operations.
trait ConcatOps<'a> {
    fn concat_ops(self) -> Vec<ArgOp<'a>>;
}

impl<'a> ConcatOps<'a> for [Vec<ArgOp<'a>>; 2] {
    fn concat_ops(self) -> Vec<ArgOp<'a>> {
        self.into_iter().flatten().collect()
    }
}

/// Files below a directory that a server has open.
fn open_files(served: &Served, below: &Path) -> usize {
    let fds = fs::read_dir(format!("/proc/{}/fd", served.pid())).unwrap();
    let targets = fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    targets.filter(|target| target.starts_with(below)).count()
}

/// An export of a directory beside the file, for root as root.
fn export(around: &Path, name: &str) -> String {
    let dir = around.join(name);
    fs::create_dir_all(&dir).unwrap();
    format!("[[export]]\npath = {dir:?}\nsquash = \"none\"\n")
}

fn json(args: &[&str]) -> Vec<Value> {
    let said = text(&ok(args));
    let lines = said.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn clients_of_version_four_are_shown_with_what_they_hold() {
    let served = Served::new(&["--tcp", "0", "--metrics", "0", "--squash", "none"]);
    let control = said(&served, "control");
    assert_eq!(
        text(&ok(&["clients", "--nfs4", "--socket", &control])),
        "no NFSv4 clients\n"
    );
    let client = Client4::ready(&served, b"host \xff");
    let open = client.open("file").unwrap();
    client.lock("file", open).unwrap();

    let all = json(&["clients", "--nfs4", "--json", "--socket", &control]);
    let [shown] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(shown["id"], client.id());
    assert_eq!(shown["name"], "host \\xff");
    let address = client.transport.local_addr().unwrap().to_string();
    assert_eq!(shown["addresses"], serde_json::json!([address]));
    for (member, value) in [
        ("minor_version", 2),
        ("sessions", 1),
        ("slots", 8),
        ("opens", 1),
        ("locks", 1),
    ] {
        assert_eq!(shown[member], value, "{member}: {shown}");
    }
    let both = text(&ok(&["clients", "--socket", &control]));
    assert!(
        both.starts_with("at ") && both.contains("\n\nNFSv4 client "),
        "{both}"
    );
    assert!(both.contains(&client.id()), "{both}");

    let held = json(&["clients", "--locks", "--json", "--socket", &control]);
    let [opened, locked] = &held[..] else {
        panic!("{held:?}");
    };
    assert_eq!(
        (&opened["kind"], &locked["kind"]),
        (&"open".into(), &"locks".into())
    );
    let path = fs::canonicalize(served.dir.join("file")).unwrap();
    assert_eq!(opened["path"], path.to_str().unwrap());
    assert_eq!(
        (&opened["export"], &opened["owner"]),
        (&"/stuff".into(), &"a process".into())
    );
    let lock = serde_json::json!([{"first": 5, "last": 14, "exclusive": true}]);
    assert_eq!(locked["locks"], lock);
    let listed = text(&ok(&[
        "clients",
        "--locks",
        "--of",
        &client.id(),
        "--socket",
        &control,
    ]));
    assert!(listed.contains("write 5-14"), "{listed}");
    let nobody = ["clients", "--locks", "--of", "nobody", "--socket", &control];
    fails(&nobody, 1, "there is no NFSv4 client nobody");

    let state = json(&["state", "--json", "--socket", &control]).remove(0);
    assert_eq!(
        (&state["grace"], &state["lease_seconds"]),
        (&false.into(), &90.0.into())
    );
    for member in ["clients", "sessions", "locks"] {
        assert_eq!(state[member]["now"], 1, "{state}");
    }
    let metrics = get(&said(&served, "metrics"), "/metrics");
    for metric in [
        "rpcrdma_nfs4_clients 1\n",
        "rpcrdma_nfs4_locks 1\n",
        "rpcrdma_nfs4_grace 0\n",
        "rpcrdma_nfs_calls_total{procedure=\"LOCK\",program=\"nfs4\"} 1\n",
        "rpcrdma_nfs4_limit{what=\"clients\"} 10000\n",
    ] {
        let swapped = metric.replace(
            "procedure=\"LOCK\",program=\"nfs4\"",
            "program=\"nfs4\",procedure=\"LOCK\"",
        );
        assert!(
            metrics.contains(metric) || metrics.contains(&swapped),
            "{metric} is not in {metrics}"
        );
    }
    let stats = text(&ok(&["stats", "--socket", &control]));
    assert!(stats.contains("\nnfs4/LOCK "), "{stats}");
}

#[test]
fn probe_tells_owner_lease_and_session_and_leaves_nothing() {
    let served = Served::new(&["--lease", "20s"]);
    let report = json(&["probe", "--json", "-c1", &served.listening]).remove(0);
    assert_eq!(report["nfs4_minor_versions"], serde_json::json!([1, 2]));
    let seen = &report["nfs4"];
    assert_eq!(
        (&seen["minor_version"], &seen["lease_seconds"]),
        (&2.into(), &20.into())
    );
    assert_eq!(seen["server_owner"], seen["server_scope"]);
    assert_eq!(seen["server_owner"].as_str().unwrap().len(), 32);
    let session = &seen["session"];
    assert!(session["max_requests"].as_u64().unwrap() > 1, "{session}");
    assert!(
        session["max_response_bytes"].as_u64().unwrap() >= 1 << 20,
        "{session}"
    );
    let shown = text(&ok(&["probe", "-c1", &served.listening]));
    for part in [
        "  NFS version 4  4.1, 4.2\n",
        "scope the same\n",
        "  lease          20 s\n",
        " slots, ",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let control = said(&served, "control");
    let state = json(&["state", "--json", "--socket", &control]).remove(0);
    assert_eq!(
        (&state["clients"]["now"], &state["sessions"]["now"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn administrator_ends_a_client_and_releases_an_export() {
    let mut served = Served::new(&["--tcp", "0", "--squash", "none"]);
    let control = said(&served, "control");
    let [one, two] = [&b"one"[..], b"two"].map(|owner| Client4::ready(&served, owner));
    let open = one.open("file").unwrap();
    one.lock("file", open).unwrap();
    assert_eq!(
        two.open("file").and_then(|open| two.lock("file", open)),
        Err(Status::Denied)
    );

    let done = text(&ok(&["state", "--expire", "one", "--socket", &control]));
    assert!(done.contains("client one is ended"), "{done}");
    served.hear("the state of an NFSv4 client ends: the administrator has ended it");
    assert_eq!(one.open("file"), Err(Status::BadSession));
    // Its record goes first.
    let open = loop {
        let open = two.open("file").unwrap();
        match two.lock("file", open) {
            Err(Status::Delay | Status::Denied) => {}
            locked => break locked.map(|()| open).unwrap(),
        }
    };
    let again = ["state", "--expire", "one", "--socket", &control];
    fails(&again, 1, "there is no NFSv4 client one");

    let done = text(&ok(&["state", "--release", "/stuff", "--socket", &control]));
    assert!(
        done.contains("2 opens and owners of locks in /stuff are revoked"),
        "{done}"
    );
    assert_eq!(two.lock("file", open), Err(Status::AdminRevoked));
    let unknown = ["state", "--release", "/none", "--socket", &control];
    fails(&unknown, 1, "no export /none is served");
    let no_grace = ["state", "--end-grace", "--socket", &control];
    fails(&no_grace, 1, "there is no grace period now");
}

#[test]
fn export_that_a_reload_removes_gives_its_file_system_back() {
    let mut served = Served::configured(
        |around| {
            format!(
                "tcp = 0\n{}{}",
                export(around, "stuff"),
                export(around, "other")
            )
        },
        &["--provider", "iwarp"],
    );
    let client = Client4::ready(&served, b"client");
    let open = client.open("file").unwrap();
    client.lock("file", open).unwrap();
    let dir = fs::canonicalize(&served.dir).unwrap();
    assert!(open_files(&served, &dir) > 0);
    let rest = format!("tcp = 0\n{}", export(served.around.path(), "other"));
    served.configure(&rest);
    served.signal(Signal::HUP);
    served.hear("opens and locks of NFSv4 clients are revoked");
    // Calls that were in service end, and a thread closes the files.
    while open_files(&served, &dir) > 0 {
        std::thread::yield_now();
    }
    let flags = match client.run(Vec::new()).last() {
        ResOp::Sequence(Ok(sequence)) => sequence.status,
        other => panic!("{other:?}"),
    };
    assert!(flags.contains(v4::session::SequenceStatus::ADMIN_STATE_REVOKED));
}

#[test]
fn restart_is_told_with_its_grace_period_and_the_end_of_that() {
    let kept = tempfile::tempdir().unwrap();
    let state_dir = kept.path().join("state");
    let args = [
        "--provider",
        "iwarp",
        "--state-dir",
        state_dir.to_str().unwrap(),
    ];
    let exports = |_: &Path| format!("tcp = 0\nlease = \"60s\"\n{}", export(kept.path(), "stuff"));
    let served = Served::configured(exports, &args);
    let first = Client4::ready(&served, b"client");
    first.open("file").unwrap();
    served.stop(Signal::KILL);
    let mut served = Served::configured(exports, &args);
    let state = said(&served, "control");
    served.hear("NFSv4 clients of before the restart may reclaim their locks");
    let shown = text(&ok(&["state", "--socket", &state]));
    assert!(shown.contains("1 client has still to reclaim"), "{shown}");
    let other = Client4::ready(&served, b"another");
    assert_eq!(other.open("file"), Err(Status::Grace));
    ok(&["state", "--end-grace", "--socket", &state]);
    served.hear("the administrator has ended the time to reclaim locks");
    while other.open("file") == Err(Status::Grace) {}
}
