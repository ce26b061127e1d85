//! The program as a client sees it: COMPOUNDs and their results.

mod administration;
mod change_info;
mod copies;
mod files;
mod grace;
mod handles;
mod holds;
mod hostile;
mod locking;
mod meanwhile;
mod mounting;
mod opening;
mod places;
mod ranges;
mod retries;
mod threads;
mod xattrs;

use super::*;
use crate::{ExportOptions, FileSystem, HandleKey, LocalFs, LocalFsOptions, MemFs, Squash};
use nfs_proto::v4::file::{GetAttrArgs, PutFhArgs};
use nfs_proto::v4::lock::{LockArgs, LockType, Locker, OpenToLockOwner};
use nfs_proto::v4::open::{
    CreateHow, OpenArgs, OpenClaim, OpenHow, OpenOk, ShareAccess, ShareDeny,
};
use nfs_proto::v4::session::{
    ChannelAttributes, ClientOwner, CreateSessionArgs, CreateSessionFlags, ExchangeFlags,
    ExchangeIdArgs, ProtectArgs, ReclaimCompleteArgs, SequenceArgs,
};
use nfs_proto::v4::{
    ArgOp, Attribute, AttributeNumber, Bitmap, CallWriter, ClientId, CompoundRes, Handle,
    Identifier, ResOp, SequenceId, SessionId, SlotId, StateOwner, Status, Tag, Verifier,
};
use nfs_proto::{Filename, v4};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{
    AuthSys, Caller, Credential, Procedure as RpcProcedure, Programs, ReceivedCall, Reply, Respond,
    Service, read_reply, write_call,
};
use std::sync::Arc;

/// A server, and clients of it.
struct Site {
    programs: Programs,
    nfs: Nfs4,
    fs: Arc<dyn FileSystem>,
    _dir: Option<tempfile::TempDir>,
}

impl Site {
    fn over(fs: Arc<dyn FileSystem>, dir: Option<tempfile::TempDir>) -> Self {
        let options = ExportOptions::default().with_squash(Squash::None);
        let exports = Exports::new(HandleKey::random().unwrap())
            .with("/srv/data", Arc::clone(&fs), options.clone())
            .unwrap()
            .with("/srv/other", Arc::new(MemFs::new(1 << 20)), options)
            .unwrap();
        let state = Nfs4State::open(Nfs4Settings::default()).unwrap();
        let nfs = Nfs4::new(exports, Pool::new(1 << 20), state);
        Self {
            programs: Programs::new().with(nfs.clone()),
            nfs,
            fs,
            _dir: dir,
        }
    }

    /// A server of files in memory, and one of a local directory.
    fn all() -> [Self; 2] {
        let dir = tempfile::tempdir().unwrap();
        let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
        [
            Self::over(Arc::new(MemFs::new(32 << 20)), None),
            Self::over(Arc::new(local), Some(dir)),
        ]
    }

    fn in_memory() -> Self {
        Self::over(Arc::new(MemFs::new(32 << 20)), None)
    }

    /// Calls as somebody, and returns the reply to a COMPOUND.
    fn call(&self, caller: &Caller, operations: Vec<ArgOp<'_>>) -> Results {
        self.call_as(caller, 0, 0, operations)
    }

    /// Calls as a user.
    fn call_as(&self, caller: &Caller, uid: u32, gid: u32, operations: Vec<ArgOp<'_>>) -> Results {
        let cred = Credential::Sys(AuthSys {
            uid,
            gid,
            ..AuthSys::default()
        });
        self.answer(compound_of(2, &cred, operations), caller)
    }

    /// Answers a COMPOUND.
    fn answer(&self, call: Payload, caller: &Caller) -> Results {
        let bound = self.programs.reply_bound(ReceivedCall {
            bytes: call.head(),
            items: &[],
        });
        let results = match self.programs.call(call, caller) {
            Answer::Now(reply) => Results::of(reply),
            Answer::Blocking(job) => Results::of(job()),
            Answer::Deferred(job) => Results::of(Respond::wait(job).expect("a reply")),
            Answer::Later(_) => panic!("COMPOUND waits for nothing else"),
        };
        if let Some(bound) = bound {
            let data: usize = results.body.items().iter().map(|item| item.len()).sum();
            assert!(results.body.head().len() <= bound.fixed, "{results:?}");
            assert!(data <= bound.results.iter().sum(), "{results:?}");
        }
        results
    }

    /// A client with a session.
    fn client(&self, name: &'static [u8]) -> Client<'_> {
        self.client_from(name, Caller::new("127.0.0.1:700".parse().unwrap()))
    }

    /// A client with a session, at some address.
    fn client_from(&self, name: &'static [u8], caller: Caller) -> Client<'_> {
        let id = self.call(&caller, vec![exchange(name)]);
        let ResOp::ExchangeId(Ok(known)) = id.only() else {
            panic!("{id:?}");
        };
        let created = self.call(&caller, vec![create_session(known.client, known.sequence)]);
        let ResOp::CreateSession(Ok(session)) = created.only() else {
            panic!("{created:?}");
        };
        let client = Client {
            site: self,
            caller,
            client: known.client,
            session: session.session,
            sequence: std::cell::Cell::new(0),
        };
        let complete = ArgOp::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        client.run(vec![complete]).ok();
        client
    }
}

/// A client with a session, of which it uses slot 0.
struct Client<'s> {
    site: &'s Site,
    caller: Caller,
    client: ClientId,
    session: SessionId,
    sequence: std::cell::Cell<u32>,
}

impl Client<'_> {
    fn sequence(&self, sequence: u32, cache_this: bool) -> ArgOp<'static> {
        ArgOp::Sequence(SequenceArgs {
            session: self.session,
            sequence: SequenceId(sequence),
            slot: SlotId(0),
            highest_slot: SlotId(0),
            cache_this,
        })
    }

    /// Sends operations behind a new SEQUENCE.
    fn run(&self, operations: Vec<ArgOp<'_>>) -> Results {
        self.sequence.set(self.sequence.get() + 1);
        self.again(operations)
    }

    /// Sends operations behind the SEQUENCE of the last request.
    fn again(&self, operations: Vec<ArgOp<'_>>) -> Results {
        let mut all = vec![self.sequence(self.sequence.get(), true)];
        all.extend(operations);
        self.site.call(&self.caller, all)
    }

    /// Sends operations on a file or directory below the root of the export.
    fn at(&self, path: &[&'static str], operations: Vec<ArgOp<'_>>) -> Results {
        let mut all = vec![ArgOp::PutRootFh, lookup("srv"), lookup("data")];
        all.extend(path.iter().copied().map(lookup));
        all.extend(operations);
        self.run(all)
    }

    /// Opens a file, which is made if it is not there.
    fn open(&self, name: &'static str, access: ShareAccess) -> OpenOk<'static> {
        let opened = self.at(&[], vec![open(name, access, ShareDeny::empty())]);
        match opened.last() {
            ResOp::Open(Ok(opened)) => OpenOk {
                delegation: v4::delegation::Delegation::None,
                ..opened
            },
            other => panic!("{other:?}"),
        }
    }
}

/// Results of a COMPOUND.
#[derive(Debug)]
struct Results {
    body: Payload,
}

impl Results {
    fn of(reply: Reply) -> Self {
        let Reply::Message(body) = reply else {
            panic!("{reply:?}");
        };
        Self { body }
    }

    fn all(&self) -> (Result<(), Status>, Vec<ResOp<'_>>) {
        let reader = read_reply(&self.body, 7).expect("it succeeded");
        let mut results = CompoundRes::parse(reader).unwrap();
        let status = results.status;
        let mut all = Vec::new();
        while let Some(result) = results.next_result() {
            all.push(result.unwrap());
        }
        results.finish().unwrap();
        assert_eq!(all.last().map_or(status, ResOp::status), status);
        (status, all)
    }

    fn status(&self) -> Result<(), Status> {
        self.all().0
    }

    #[track_caller]
    fn ok(&self) {
        assert_eq!(self.status(), Ok(()), "{:?}", self.all().1);
    }

    fn only(&self) -> ResOp<'_> {
        let (_, mut all) = self.all();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn last(&self) -> ResOp<'_> {
        self.all().1.pop().expect("a result")
    }

    /// The attributes of the last result, which is that of a GETATTR.
    #[track_caller]
    fn attributes(&self) -> Vec<Attribute<'_>> {
        match self.last() {
            ResOp::GetAttr(Ok(found)) => found.attributes.iter().map(Result::unwrap).collect(),
            other => panic!("{other:?}"),
        }
    }
}

fn compound(minor: u32, operations: Vec<ArgOp<'_>>) -> Payload {
    compound_of(minor, &root(), operations)
}

fn compound_of(minor: u32, cred: &Credential, operations: Vec<ArgOp<'_>>) -> Payload {
    let mut w = Writer::default();
    let procedure = RpcProcedure {
        prog: NFS_PROGRAM,
        vers: 4,
        proc: 1,
    };
    write_call(&mut w, 7, procedure, cred);
    let mut call = CallWriter::new(&mut w, Tag::new(b"tag").unwrap(), minor);
    for operation in operations {
        call.push(operation);
    }
    call.finish();
    w.finish()
}

fn root() -> Credential {
    Credential::Sys(AuthSys {
        uid: 0,
        gid: 0,
        ..AuthSys::default()
    })
}

fn exchange(owner: &'static [u8]) -> ArgOp<'static> {
    ArgOp::ExchangeId(ExchangeIdArgs {
        owner: ClientOwner {
            verifier: Verifier([1; 8]),
            owner: Identifier::new(owner).unwrap(),
        },
        flags: ExchangeFlags::SUPP_MOVED_REFER | ExchangeFlags::BIND_PRINC_STATEID,
        protect: ProtectArgs::None,
        implementation: None,
    })
}

/// As Linux asks over RDMA.
fn create_session(client: ClientId, sequence: SequenceId) -> ArgOp<'static> {
    ArgOp::CreateSession(CreateSessionArgs {
        client,
        sequence,
        flags: CreateSessionFlags::PERSIST | CreateSessionFlags::CONN_BACK_CHAN,
        fore: ChannelAttributes {
            max_request: 1_049_620,
            max_response: 1_049_480,
            max_response_cached: 7584,
            max_operations: 8,
            max_requests: 64,
            ..ChannelAttributes::default()
        },
        back: ChannelAttributes {
            max_request: 4068,
            max_response: 4068,
            max_response_cached: 0,
            max_operations: 2,
            max_requests: 16,
            ..ChannelAttributes::default()
        },
        callback_program: 0x4000_0000,
        callback_security: v4::security::CallbackSecurities::default(),
    })
}

fn name(name: &str) -> Filename<'_> {
    Filename::new(name.as_bytes()).unwrap()
}

fn lookup(of: &str) -> ArgOp<'_> {
    ArgOp::Lookup(v4::directory::LookupArgs { name: name(of) })
}

fn put(handle: &[u8]) -> ArgOp<'_> {
    ArgOp::PutFh(PutFhArgs {
        handle: Handle::new(handle).unwrap(),
    })
}

fn get(numbers: &[AttributeNumber]) -> ArgOp<'static> {
    ArgOp::GetAttr(GetAttrArgs {
        wanted: Bitmap::of(numbers.iter().map(|&number| number as u32)),
    })
}

fn open(of: &'static str, access: ShareAccess, deny: ShareDeny) -> ArgOp<'static> {
    ArgOp::Open(OpenArgs {
        seqid: 0,
        access,
        deny,
        owner: StateOwner {
            client: ClientId(0),
            owner: Identifier::new(b"process").unwrap(),
        },
        how: OpenHow::Create(CreateHow::Unchecked(v4::fattr::Fattr::default())),
        claim: OpenClaim::Null(name(of)),
    })
}

/// A LOCK by a new owner of this name.
fn lock_by(
    owner: &[u8],
    open: v4::StateId,
    kind: LockType,
    (offset, length): (u64, u64),
) -> ArgOp<'_> {
    ArgOp::Lock(LockArgs {
        kind,
        reclaim: false,
        offset,
        length,
        locker: Locker::New(OpenToLockOwner {
            open_seqid: 0,
            open,
            lock_seqid: 0,
            owner: StateOwner {
                client: ClientId(0),
                owner: Identifier::new(owner).unwrap(),
            },
        }),
    })
}

fn lock(open: v4::StateId, kind: LockType, offset: u64, length: u64) -> ArgOp<'static> {
    lock_by(b"locker", open, kind, (offset, length))
}
