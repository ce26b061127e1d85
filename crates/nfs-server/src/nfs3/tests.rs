//! The program as a client sees it: calls and replies in bytes.

#![allow(clippy::cast_possible_truncation)]

use super::*;
use crate::fs::FileId;
use crate::{
    AccessList, ExportOptions, FileSystem, HandleKey, LocalFs, LocalFsOptions, MemFs, Mount3,
    Squash,
};
use buffer::Buffer;
use bytes::Bytes;
use nfs_proto::results;
use nfs_proto::{
    Access, Arguments, Cookie, CookieVerifier, CreateVerifier, Data, Filename, NfsTime, Path,
    SetAttributes, SetTime, Stable, mount,
};
use oncrpc::xdr;
use oncrpc::xdr::{Gather, Payload, Writer};
use oncrpc::{
    AuthSys, Caller, Credential, Programs, ReceivedCall, RpcError, Service, read_reply, write_call,
};
use proptest::prelude::*;
use std::sync::Arc;

const LOOPBACK: &str = "127.0.0.1:700";

/// A server, and a client of it.
struct Peer {
    programs: Programs,
    exports: Exports,
    fs: Arc<dyn FileSystem>,
    cred: Credential,
    from: &'static str,
    /// The user behind the connection, if that is known.
    local_uid: Option<u32>,
}

impl Peer {
    fn over(fs: Arc<dyn FileSystem>, options: ExportOptions) -> Self {
        let exports = Exports::new(HandleKey::random().unwrap())
            .with("/data", Arc::clone(&fs), options)
            .unwrap();
        let nfs = Nfs3::new(exports.clone(), Pool::new(1 << 20));
        Self {
            programs: Programs::new()
                .with(NfsAcl3::new(&nfs))
                .with(nfs)
                .with(Mount3::new(exports.clone())),
            exports,
            fs,
            cred: user(0),
            from: LOOPBACK,
            local_uid: None,
        }
    }

    fn new() -> Self {
        Self::over(
            Arc::new(MemFs::new(32 << 20)),
            ExportOptions::default().with_squash(Squash::None),
        )
    }

    fn root(&self) -> FileHandle {
        self.handle(self.fs.root())
    }

    fn handle(&self, file: FileId) -> FileHandle {
        self.exports.seal(self.exports.all().exports[0].id(), file)
    }

    fn exchange(&self, call: Payload) -> Reply {
        let caller = Caller {
            local_uid: self.local_uid,
            ..Caller::new(self.from.parse().unwrap())
        };
        match self.programs.call(call, &caller) {
            Answer::Now(reply) => reply,
            Answer::Blocking(job) => job(),
            Answer::Deferred(job) => Respond::wait(job).unwrap(),
            Answer::Later(_) => panic!("nothing here is a future"),
        }
    }

    fn raw_call(&self, target: oncrpc::Procedure, args: impl FnOnce(&mut Writer)) -> Payload {
        let mut w = Writer::new(Buffer::with_capacity(4096));
        write_call(&mut w, 7, target, &self.cred);
        args(&mut w);
        w.finish()
    }

    fn raw(&self, target: oncrpc::Procedure, args: impl FnOnce(&mut Writer)) -> Reply {
        self.exchange(self.raw_call(target, args))
    }

    fn payload<'a, A: Arguments<'a>>(&self, args: &A) -> Payload {
        let target = oncrpc::Procedure {
            prog: A::PROGRAM,
            vers: A::VERSION,
            proc: A::PROCEDURE,
        };
        let call = self.raw_call(target, |w| args.write(w));
        let served = self.programs.reply_bound(ReceivedCall {
            bytes: call.head(),
            items: &[],
        });
        let reply = self.exchange(call);
        let Reply::Message(payload) = reply else {
            panic!("{} drew {reply:?}", A::NAME)
        };
        let bound = args.reply_bound();
        let data: usize = payload.items().iter().map(xdr::Item::len).sum();
        assert!(payload.head().len() <= bound.fixed, "{} fits", A::NAME);
        assert!(data <= bound.results.iter().sum(), "{} fits", A::NAME);
        if let Some(bound) = served {
            assert!(payload.head().len() <= bound.fixed, "{} fits", A::NAME);
            assert!(data <= bound.results.iter().sum(), "{} fits", A::NAME);
        } else {
            assert_eq!(A::PROGRAM, mount::Null::PROGRAM, "{} is bounded", A::NAME);
        }
        payload
    }
}

/// Sends a call and reads the reply, which must be all there is.
macro_rules! call {
    ($peer:expr, $args:expr) => {{
        let payload = $peer.payload(&$args);
        let mut r = read_reply(&payload, 7).unwrap();
        let results = reply_of(&$args, &mut r);
        r.finish().unwrap();
        // Results borrow from the reply; tests keep what they need.
        results
    }};
}

/// The status of a call that fails.
macro_rules! status {
    ($peer:expr, $args:expr) => {{
        let payload = $peer.payload(&$args);
        let mut r = read_reply(&payload, 7).unwrap();
        match r.u32().unwrap() {
            0 => panic!("{:?} succeeded", $args),
            status => Status::try_from(status).unwrap(),
        }
    }};
}

// The macros are known from here on.
mod acl;
mod directories;
mod errors;
mod in_flight;
mod mounts;
mod procedures;
mod repeated;
mod reply_room;
mod rights;
mod stats;

fn reply_of<'a, 'r, A: Arguments<'a>>(_: &A, r: &mut xdr::Reader<'r>) -> A::Reply<'r> {
    A::Reply::parse(r).unwrap()
}

fn user(uid: u32) -> Credential {
    Credential::Sys(AuthSys {
        uid,
        gid: uid,
        ..AuthSys::default()
    })
}

fn place(dir: FileHandle, name: &str) -> args::Place<'_> {
    args::Place {
        dir,
        name: Filename::new(name.as_bytes()).unwrap(),
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    }
}

fn create(peer: &Peer, name: &str) -> FileHandle {
    let how = args::CreateHow::Guarded(mode(0o644));
    let place = place(peer.root(), name);
    let made = call!(peer, args::Create { place, how }).unwrap();
    assert_eq!(made.attributes.unwrap().mode, 0o644);
    made.object.unwrap()
}

fn write_args(file: FileHandle, offset: u64, data: &[u8]) -> args::Write<'_> {
    args::Write {
        file,
        offset,
        count: data.len() as u32,
        stable: Stable::Unstable,
        data: Data::from(data),
    }
}

fn read_args(file: FileHandle, offset: u64, count: u32) -> args::Read {
    args::Read {
        file,
        offset,
        count,
    }
}

#[test]
fn null_is_answered_and_other_programs_are_not_there() {
    let peer = Peer::new();
    call!(peer, args::Null);
    let target = |prog, vers, proc| oncrpc::Procedure { prog, vers, proc };
    let check = |target, error| {
        let Reply::Message(payload) = peer.raw(target, |_| {}) else {
            panic!("no reply")
        };
        assert_eq!(read_reply(&payload, 7).err(), Some(error));
    };
    check(target(100_228, 3, 0), RpcError::ProgUnavail);
    let mismatch = RpcError::ProgMismatch { low: 3, high: 3 };
    check(target(NFS_PROGRAM, 4, 0), mismatch);
    check(target(NFS_PROGRAM, 2, 0), mismatch);
    check(target(NFS_PROGRAM, 3, 22), RpcError::ProcUnavail);
}

#[test]
fn every_procedure_works_on_a_small_tree() {
    let peer = Peer::new();
    let root = peer.root();
    let file = create(&peer, "f");
    let wrote = call!(peer, write_args(file, 0, b"hello world")).unwrap();
    assert_eq!((wrote.count, wrote.committed), (11, Stable::Unstable));
    assert_eq!(wrote.wcc.before.unwrap().size, 0);
    assert_eq!(wrote.wcc.after.unwrap().size, 11);
    let commit = args::Commit {
        file,
        offset: 0,
        count: 0,
    };
    assert_eq!(call!(peer, commit).unwrap().verifier, wrote.verifier);
    let payload = peer.payload(&read_args(file, 6, 100));
    assert_eq!(payload.items().len(), 1, "data goes by reference");
    let mut r = read_reply(&payload, 7).unwrap();
    let read = reply_of(&read_args(file, 6, 100), &mut r).unwrap();
    assert_eq!((read.count, read.eof), (5, true));
    assert_eq!(&*read.data.bytes(), b"world");

    let attributes = call!(peer, args::GetAttr { object: file })
        .unwrap()
        .attributes;
    assert_eq!((attributes.size, attributes.links), (11, 1));
    let set = args::SetAttr {
        object: file,
        attributes: SetAttributes {
            size: Some(5),
            mtime: SetTime::ClientTime(NfsTime {
                seconds: 1,
                nanoseconds: 2,
            }),
            ..mode(0o600)
        },
        guard: Some(attributes.ctime),
    };
    let after = call!(peer, set).unwrap().wcc.after.unwrap();
    assert_eq!((after.size, after.mode, after.mtime.seconds), (5, 0o600, 1));
    let access = args::CheckAccess {
        object: file,
        access: Access::all(),
    };
    let rights = call!(peer, access).unwrap().access;
    assert_eq!(rights, Access::READ | Access::MODIFY | Access::EXTEND);

    let dir = call!(
        peer,
        args::MkDir {
            place: place(root, "d"),
            attributes: mode(0o755)
        }
    )
    .unwrap()
    .object
    .unwrap();
    let target = Path::from(&b"../f"[..]);
    let symlink = args::Symlink {
        place: place(dir, "l"),
        attributes: SetAttributes::default(),
        target,
    };
    let link = call!(peer, symlink).unwrap().object.unwrap();
    let payload = peer.payload(&args::ReadLink { symlink: link });
    assert_eq!(payload.items().len(), 1, "the text goes by reference");
    let mut r = read_reply(&payload, 7).unwrap();
    let text = reply_of(&args::ReadLink { symlink: link }, &mut r).unwrap();
    assert_eq!(&*text.target.bytes(), b"../f");
    let fifo = args::MkNod {
        place: place(dir, "p"),
        what: args::Node::Fifo(mode(0o600)),
    };
    assert!(call!(peer, fifo).unwrap().object.is_some());

    let hard = args::Link {
        file,
        link: place(dir, "h"),
    };
    let linked = call!(peer, hard).unwrap();
    assert_eq!(linked.attributes.unwrap().links, 2);
    let found = call!(
        peer,
        args::Lookup {
            what: place(dir, "h")
        }
    )
    .unwrap();
    assert_eq!(found.object, file);
    assert_eq!(found.attributes.unwrap().links, 2);
    assert!(found.dir_attributes.is_some());
    let rename = args::Rename {
        from: place(dir, "h"),
        to: place(root, "g"),
    };
    let renamed = call!(peer, rename).unwrap();
    assert!(renamed.from_wcc.after.is_some() && renamed.to_wcc.after.is_some());
    for name in ["l", "p"] {
        let removed = call!(
            peer,
            args::Remove {
                object: place(dir, name)
            }
        )
        .unwrap();
        assert!(removed.dir_wcc.before.is_some());
    }
    call!(
        peer,
        args::RmDir {
            object: place(root, "d")
        }
    )
    .unwrap();

    let stat = call!(peer, args::FsStat { root }).unwrap();
    assert_eq!(stat.total_bytes, 32 << 20);
    let info = call!(peer, args::FsInfo { root }).unwrap();
    assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 20));
    assert_eq!(info.dir_preferred, 64 << 10);
    let conf = call!(peer, args::PathConf { object: root }).unwrap();
    assert_eq!((conf.name_max, conf.no_trunc), (255, true));
}

#[test]
fn exclusive_create_is_answered_the_same_when_repeated() {
    let peer = Peer::new();
    let exclusive = |verifier| args::Create {
        place: place(peer.root(), "f"),
        how: args::CreateHow::Exclusive(CreateVerifier(verifier)),
    };
    let first = call!(peer, exclusive(*b"12345678")).unwrap().object;
    assert_eq!(call!(peer, exclusive(*b"12345678")).unwrap().object, first);
    assert_eq!(status!(peer, exclusive(*b"12345679")), Status::Exist);
}

#[test]
fn reads_and_writes_beyond_the_largest_size_are_truncated() {
    let peer = Peer::new();
    let file = create(&peer, "f");
    let data = vec![1; (1 << 20) + 5];
    let wrote = call!(peer, write_args(file, 0, &data)).unwrap();
    assert_eq!(wrote.count, 1 << 20);
    call!(peer, write_args(file, 1 << 20, b"tail")).unwrap();
    let ask = read_args(file, 0, u32::MAX);
    let payload = peer.payload(&ask);
    let mut r = read_reply(&payload, 7).unwrap();
    let read = reply_of(&ask, &mut r).unwrap();
    assert_eq!((read.count, read.eof), (1 << 20, false));
    let lying = args::Write {
        count: 3,
        ..write_args(file, 0, b"four")
    };
    assert_eq!(status!(peer, lying), Status::Invalid);
}

#[test]
fn client_goes_on_after_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (path, state) = (dir.path().join("data"), dir.path().join("state"));
    std::fs::create_dir_all(path.join("sub")).unwrap();
    std::fs::write(path.join("sub/f"), b"before").unwrap();
    let serve = || {
        let options = LocalFsOptions::default().with_state_dir(state.clone());
        let local: Arc<dyn FileSystem> = Arc::new(LocalFs::open(&path, options).unwrap());
        let options = ExportOptions::default().with_squash(Squash::None);
        let key = HandleKey::load_or_create(&state).unwrap();
        let exports = Exports::new(key)
            .with("/data", Arc::clone(&local), options)
            .unwrap();
        Peer {
            programs: Programs::new()
                .with(Nfs3::new(exports.clone(), Pool::new(1 << 20)))
                .with(Mount3::new(exports.clone())),
            exports,
            fs: local,
            cred: user(0),
            from: LOOPBACK,
            local_uid: None,
        }
    };
    let peer = serve();
    let path = mount::DirPath::new(b"/data").unwrap();
    let root = call!(peer, mount::Mount { path }).unwrap().handle;
    let sub = call!(
        peer,
        args::Lookup {
            what: place(root, "sub")
        }
    );
    let file = call!(
        peer,
        args::Lookup {
            what: place(sub.unwrap().object, "f")
        }
    );
    let file = file.unwrap().object;
    let wrote = call!(peer, write_args(file, 0, b"BE")).unwrap();
    drop(peer);
    let peer = serve();
    let payload = peer.payload(&read_args(file, 0, 100));
    let mut r = read_reply(&payload, 7).unwrap();
    let read = reply_of(&read_args(file, 0, 100), &mut r).unwrap();
    assert_eq!(&*read.data.bytes(), b"BEfore");
    let commit = args::Commit {
        file,
        offset: 0,
        count: 0,
    };
    let after = call!(peer, commit).unwrap().verifier;
    assert_ne!(after, wrote.verifier, "the client writes again");
    let again = call!(peer, mount::Mount { path }).unwrap().handle;
    assert_eq!(again, root);
}
