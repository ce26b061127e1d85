//! The program as a client sees it: calls and replies in octets.

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
    Access, Arguments, Cookie, CookieVerifier, CreateVerifier, Data, Filename, NFSACL_PROGRAM,
    NfsTime, Path, SetAttributes, SetTime, Stable, mount,
};
use oncrpc::{AuthSys, Caller, Credential, Programs, RpcError, Service, read_reply, write_call};
use proptest::prelude::*;
use std::sync::Arc;
use xdr::{Gather, Payload, Writer};

const LOOPBACK: &str = "127.0.0.1:700";

/// A server, and a client of it.
struct Peer {
    programs: Programs,
    exports: Exports,
    fs: Arc<dyn FileSystem>,
    cred: Credential,
    from: &'static str,
}

impl Peer {
    fn over(fs: Arc<dyn FileSystem>, options: ExportOptions) -> Self {
        let exports = Exports::new(HandleKey::random().unwrap())
            .with("/data", Arc::clone(&fs), options)
            .unwrap();
        Self {
            programs: Programs::new()
                .with(Nfs3::new(exports.clone(), Pool::new(1 << 20)))
                .with(Mount3::new(exports.clone())),
            exports,
            fs,
            cred: user(0),
            from: LOOPBACK,
        }
    }

    fn new() -> Self {
        Self::over(
            Arc::new(MemFs::new(32 << 20)),
            ExportOptions {
                squash: Squash::None,
                ..ExportOptions::default()
            },
        )
    }

    fn root(&self) -> FileHandle {
        self.handle(self.fs.root())
    }

    fn handle(&self, file: FileId) -> FileHandle {
        self.exports.seal(self.exports.all()[0].id(), file)
    }

    fn exchange(&self, call: Payload) -> Reply {
        let caller = Caller {
            addr: self.from.parse().unwrap(),
        };
        match self.programs.call(call, &caller) {
            Answer::Now(reply) => reply,
            Answer::Blocking(job) => job(),
            Answer::Later(_) => panic!("nothing here is a future"),
        }
    }

    fn raw(&self, target: oncrpc::Procedure, args: impl FnOnce(&mut Writer)) -> Reply {
        let mut w = Writer::new(Buffer::with_capacity(4096));
        write_call(&mut w, 7, target, &self.cred);
        args(&mut w);
        self.exchange(w.finish())
    }

    fn payload<'a, A: Arguments<'a>>(&self, args: &A) -> Payload {
        let target = oncrpc::Procedure {
            prog: A::PROGRAM,
            vers: A::VERSION,
            proc: A::PROCEDURE,
        };
        let reply = self.raw(target, |w| args.write(w));
        let Reply::Message(payload) = reply else {
            panic!("{} drew {reply:?}", A::NAME)
        };
        let bound = args.reply_bound();
        let data: usize = payload.items().iter().map(xdr::Item::len).sum();
        assert!(payload.head().len() <= bound.fixed, "{} fits", A::NAME);
        assert!(data <= bound.results.iter().sum(), "{} fits", A::NAME);
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
    check(target(NFSACL_PROGRAM, 3, 0), RpcError::ProgUnavail);
    let mismatch = RpcError::ProgMismatch { low: 3, high: 3 };
    check(target(NFS_PROGRAM, 4, 0), mismatch);
    check(target(NFS_PROGRAM, 2, 0), mismatch);
    check(target(NFS_PROGRAM, 3, 22), RpcError::ProcUnavail);
}

#[test]
fn arguments_that_are_none_are_garbage_to_every_procedure() {
    let peer = Peer::new();
    for proc in 0..=21 {
        let target = oncrpc::Procedure {
            prog: NFS_PROGRAM,
            vers: NFS_V3,
            proc,
        };
        // A handle longer than any, and octets behind arguments that have none.
        let Reply::Message(payload) = peer.raw(target, |w| w.opaque(&[0; 65])) else {
            panic!("no reply to {proc}")
        };
        let error = read_reply(&payload, 7).err();
        assert_eq!(error, Some(RpcError::GarbageArgs), "procedure {proc}");
    }
}

#[test]
fn item_where_none_is_eligible_is_not_executed() {
    let peer = Peer::new();
    let target = oncrpc::Procedure {
        prog: NFS_PROGRAM,
        vers: NFS_V3,
        proc: Procedure::GetAttr as u32,
    };
    let data = Gather::from_elem(Bytes::from_static(&[0; 48]), 1);
    let reply = peer.raw(target, |w| w.item(data));
    assert!(matches!(reply, Reply::Ineligible));
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
    assert_eq!(&*read.data.octets(), b"world");

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
    assert_eq!(&*text.target.octets(), b"../f");
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

/// Reads a directory with READDIRPLUS as a client does; names, and replies it took.
fn list_plus(peer: &Peer, dir: FileHandle, max_count: u32) -> (Vec<Vec<u8>>, usize) {
    let mut names = Vec::new();
    let (mut cookie, mut verifier) = (Cookie(0), CookieVerifier::default());
    let mut replies = 0;
    loop {
        let ask = args::ReadDirPlus {
            dir,
            cookie,
            verifier,
            dir_count: max_count,
            max_count,
        };
        let payload = peer.payload(&ask);
        assert!(payload.stream_len() <= oncrpc::REPLY_HEADER + 4 + max_count as usize);
        let mut r = read_reply(&payload, 7).unwrap();
        let page = reply_of(&ask, &mut r).unwrap();
        r.finish().unwrap();
        replies += 1;
        verifier = page.verifier;
        for entry in &page.entries.0 {
            cookie = entry.cookie;
            if !matches!(entry.name.get(), b"." | b"..") {
                assert!(entry.handle.is_some() && entry.attributes.is_some());
                names.push(entry.name.get().to_vec());
            }
        }
        if page.eof {
            names.sort();
            return (names, replies);
        }
    }
}

#[test]
fn directory_of_ten_thousand_is_listed_in_bounded_replies() {
    let dir = tempfile::tempdir().unwrap();
    let mut names: Vec<Vec<u8>> = (0..10_000)
        .map(|n| format!("file-{n:05}.txt").into_bytes())
        .collect();
    for name in &names {
        std::fs::write(dir.path().join(std::str::from_utf8(name).unwrap()), b"").unwrap();
    }
    names.sort();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let peer = Peer::over(Arc::new(local), ExportOptions::default());
    let (listed, replies) = list_plus(&peer, peer.root(), 64 << 10);
    assert_eq!(listed, names);
    assert!((25..50).contains(&replies), "{replies} replies");
    // However much is asked for.
    let (listed, replies) = list_plus(&peer, peer.root(), u32::MAX);
    assert_eq!(listed, names);
    assert!(replies > 5, "{replies} replies");
}

#[test]
fn entries_without_attributes_are_more_per_reply() {
    let peer = Peer::new();
    for n in 0..100 {
        create(&peer, &format!("{n}"));
    }
    let ask = args::ReadDir {
        dir: peer.root(),
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        count: 1000,
    };
    let payload = peer.payload(&ask);
    let mut r = read_reply(&payload, 7).unwrap();
    let page = reply_of(&ask, &mut r).unwrap();
    assert!(page.entries.0.len() > 25 && !page.eof);
    let next = args::ReadDir {
        cookie: page.entries.0[10].cookie,
        verifier: page.verifier,
        ..ask
    };
    let payload = peer.payload(&next);
    let mut r = read_reply(&payload, 7).unwrap();
    let from_there = reply_of(&next, &mut r).unwrap();
    assert_eq!(from_there.entries.0[0].name, page.entries.0[11].name);
    assert_eq!(
        status!(peer, args::ReadDir { count: 100, ..ask }),
        Status::TooSmall
    );
    let stale = args::ReadDir {
        verifier: CookieVerifier(*b"whatever"),
        ..next
    };
    assert_eq!(status!(peer, stale), Status::BadCookie);
    let few = args::ReadDirPlus {
        dir: peer.root(),
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        dir_count: 0,
        max_count: 4096,
    };
    let payload = peer.payload(&few);
    let mut r = read_reply(&payload, 7).unwrap();
    assert_eq!(reply_of(&few, &mut r).unwrap().entries.0.len(), 1);
}

#[test]
fn forged_and_stale_handles_are_told_apart() {
    let peer = Peer::new();
    let file = create(&peer, "f");
    let mut octets = file.to_vec();
    octets[20] ^= 1;
    let forged = FileHandle::new(&octets).unwrap();
    for handle in [forged, FileHandle::new(b"").unwrap()] {
        let get = args::GetAttr { object: handle };
        assert_eq!(status!(peer, get), Status::BadHandle);
        assert_eq!(status!(peer, read_args(handle, 0, 1)), Status::BadHandle);
        let what = place(handle, "x");
        assert_eq!(status!(peer, args::Lookup { what }), Status::BadHandle);
        let rename = args::Rename {
            from: place(peer.root(), "f"),
            to: place(handle, "g"),
        };
        assert_eq!(status!(peer, rename), Status::BadHandle);
    }
    call!(
        peer,
        args::Remove {
            object: place(peer.root(), "f")
        }
    )
    .unwrap();
    assert_eq!(status!(peer, args::GetAttr { object: file }), Status::Stale);
    assert_eq!(status!(peer, read_args(file, 0, 1)), Status::Stale);
    assert_eq!(status!(peer, write_args(file, 0, b"x")), Status::Stale);
}

#[test]
fn handles_of_an_export_that_is_gone_are_stale() {
    let key = HandleKey::random().unwrap();
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let with = |name| {
        Exports::new(key.clone())
            .with(name, Arc::clone(&fs), ExportOptions::default())
            .unwrap()
    };
    let (old, new) = (with("/old"), with("/new"));
    let handle = old.seal(old.all()[0].id(), fs.root());
    let caller = Caller {
        addr: LOOPBACK.parse().unwrap(),
    };
    assert!(old.open(&handle, &caller).is_ok());
    assert_eq!(new.open(&handle, &caller).err(), Some(Status::Stale));
}

#[test]
fn names_that_cannot_be_are_refused_with_their_reason() {
    let peer = Peer::new();
    let root = peer.root();
    create(&peer, "f");
    let long = "x".repeat(256);
    for (name, expected) in [
        ("a/b", Status::Access),
        ("/", Status::Access),
        ("a\0b", Status::Access),
        ("", Status::Access),
        (&long, Status::NameTooLong),
    ] {
        let at = place(root, name);
        let how = args::CreateHow::Unchecked(mode(0o600));
        assert_eq!(status!(peer, args::Create { place: at, how }), expected);
        let attributes = mode(0o700);
        let dir = args::MkDir {
            place: at,
            attributes,
        };
        assert_eq!(status!(peer, dir), expected);
        let symlink = args::Symlink {
            place: at,
            attributes,
            target: Path::from(&b"x"[..]),
        };
        assert_eq!(status!(peer, symlink), expected);
        let what = args::Node::Fifo(attributes);
        assert_eq!(status!(peer, args::MkNod { place: at, what }), expected);
        assert_eq!(status!(peer, args::Lookup { what: at }), expected);
        assert_eq!(status!(peer, args::Remove { object: at }), expected);
        assert_eq!(status!(peer, args::RmDir { object: at }), expected);
        let (from, to) = (place(root, "f"), at);
        assert_eq!(status!(peer, args::Rename { from, to }), expected);
        assert_eq!(status!(peer, args::Rename { from: at, to: from }), expected);
    }
    for dots in [".", ".."] {
        let how = args::CreateHow::Unchecked(mode(0o600));
        let at = place(root, dots);
        assert_eq!(
            status!(peer, args::Create { place: at, how }),
            Status::Exist
        );
        assert_eq!(status!(peer, args::Remove { object: at }), Status::Invalid);
        let found = call!(peer, args::Lookup { what: at }).unwrap();
        assert_eq!(found.object, root);
    }
    let dot = place(root, ".");
    assert_eq!(status!(peer, args::RmDir { object: dot }), Status::Invalid);
    let dots = place(root, "..");
    assert_eq!(status!(peer, args::RmDir { object: dots }), Status::Exist);
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
fn guard_of_another_time_prevents_a_change() {
    let peer = Peer::new();
    let object = create(&peer, "f");
    let set = |nanoseconds| args::SetAttr {
        object,
        attributes: mode(0o777),
        guard: Some(NfsTime {
            seconds: 1,
            nanoseconds,
        }),
    };
    assert_eq!(status!(peer, set(0)), Status::NotSync);
    assert_eq!(status!(peer, set(2_000_000_000)), Status::NotSync);
    let kept = call!(peer, args::GetAttr { object }).unwrap();
    assert_eq!(kept.attributes.mode, 0o644);
}

#[test]
fn read_only_export_changes_nothing() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let writable = Peer::over(Arc::clone(&fs), ExportOptions::default());
    let id = {
        let file = create(&writable, "f");
        let opened = writable.exports.open(
            &file,
            &Caller {
                addr: LOOPBACK.parse().unwrap(),
            },
        );
        opened.ok().unwrap().file
    };
    let options = ExportOptions {
        read_only: true,
        squash: Squash::None,
        ..ExportOptions::default()
    };
    let peer = Peer::over(fs, options);
    let (root, file) = (peer.root(), peer.handle(id));
    let at = place(root, "x");
    let attributes = mode(0o777);
    let ro = Status::ReadOnly;
    assert_eq!(status!(peer, write_args(file, 0, b"x")), ro);
    let how = args::CreateHow::Unchecked(attributes);
    assert_eq!(status!(peer, args::Create { place: at, how }), ro);
    assert_eq!(
        status!(
            peer,
            args::MkDir {
                place: at,
                attributes
            }
        ),
        ro
    );
    let target = Path::from(&b"x"[..]);
    let symlink = args::Symlink {
        place: at,
        attributes,
        target,
    };
    assert_eq!(status!(peer, symlink), ro);
    let what = args::Node::Fifo(attributes);
    assert_eq!(status!(peer, args::MkNod { place: at, what }), ro);
    let object = place(root, "f");
    assert_eq!(status!(peer, args::Remove { object }), ro);
    assert_eq!(status!(peer, args::RmDir { object }), ro);
    let rename = args::Rename {
        from: object,
        to: at,
    };
    assert_eq!(status!(peer, rename), ro);
    assert_eq!(status!(peer, args::Link { file, link: at }), ro);
    let set = args::SetAttr {
        object: file,
        attributes,
        guard: None,
    };
    assert_eq!(status!(peer, set), ro);
    let commit = args::Commit {
        file,
        offset: 0,
        count: 0,
    };
    assert_eq!(status!(peer, commit), ro);
    let ask = args::CheckAccess {
        object: root,
        access: Access::all(),
    };
    let rights = call!(peer, ask).unwrap().access;
    assert_eq!(rights, Access::READ | Access::LOOKUP);
    let found = call!(peer, args::Lookup { what: object }).unwrap();
    assert_eq!(found.object, file);
}

#[test]
fn callers_act_as_whom_the_export_says() {
    let check = |squash, caller: Credential, owner| {
        let options = ExportOptions {
            squash,
            ..ExportOptions::default()
        };
        let mut peer = Peer::over(Arc::new(MemFs::new(1 << 20)), options);
        peer.cred = caller;
        let object = create(&peer, "f");
        let made = call!(peer, args::GetAttr { object }).unwrap().attributes;
        assert_eq!((made.uid, made.gid), (owner, owner));
    };
    check(Squash::Root, user(0), crate::ANONYMOUS);
    check(Squash::Root, user(1000), 1000);
    check(Squash::All, user(1000), crate::ANONYMOUS);
    check(Squash::None, user(0), 0);
    check(Squash::None, Credential::None, crate::ANONYMOUS);
}

#[test]
fn others_rights_are_respected() {
    let mut peer = Peer::new();
    peer.cred = user(1000);
    let file = create(&peer, "f");
    let private = args::SetAttr {
        object: file,
        attributes: mode(0o600),
        guard: None,
    };
    call!(peer, private).unwrap();
    peer.cred = user(1001);
    assert_eq!(status!(peer, read_args(file, 0, 1)), Status::Access);
    assert_eq!(status!(peer, write_args(file, 0, b"x")), Status::Access);
    assert_eq!(status!(peer, private), Status::Perm);
    let device = args::MkNod {
        place: place(peer.root(), "null"),
        what: args::Node::Character(mode(0o666), nfs_proto::Device { major: 1, minor: 3 }),
    };
    assert_eq!(status!(peer, device), Status::Perm);
}

#[test]
fn addresses_that_are_not_allowed_get_nothing() {
    let options = ExportOptions {
        allow: AccessList::new(["192.0.2.0/24".parse().unwrap()]),
        ..ExportOptions::default()
    };
    let mut peer = Peer::over(Arc::new(MemFs::new(1 << 20)), options);
    let object = peer.root();
    assert_eq!(status!(peer, args::GetAttr { object }), Status::Access);
    peer.from = "192.0.2.7:999";
    assert!(call!(peer, args::GetAttr { object }).is_ok());
}

#[test]
fn full_file_system_says_so_and_keeps_what_it_has() {
    let peer = Peer::over(Arc::new(MemFs::new(100_000)), ExportOptions::default());
    let file = create(&peer, "f");
    let data = vec![7; 60_000];
    assert_eq!(
        call!(peer, write_args(file, 0, &data)).unwrap().count,
        60_000
    );
    let more = write_args(file, 60_000, &data);
    assert_eq!(status!(peer, more), Status::NoSpace);
    let kept = call!(peer, args::GetAttr { object: file }).unwrap();
    assert_eq!(kept.attributes.size, 60_000);
    // What is overwritten takes no more room.
    assert!(call!(peer, write_args(file, 0, &data)).is_ok());
    let mut made = 0;
    let full = loop {
        let attributes = mode(0o700);
        let name = format!("d{made}");
        let ask = args::MkDir {
            place: place(peer.root(), &name),
            attributes,
        };
        match call!(peer, ask) {
            Ok(_) => made += 1,
            Err(failed) => break failed.status,
        }
    };
    assert_eq!(full, Status::NoSpace);
    assert!(made > 10);
    call!(
        peer,
        args::Remove {
            object: place(peer.root(), "f")
        }
    )
    .unwrap();
    let space = call!(peer, args::FsStat { root: peer.root() }).unwrap();
    assert!(space.free_bytes > 60_000);
}

#[test]
fn more_data_than_can_be_moved_is_cut() {
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
fn exports_are_not_crossed_by_renames_and_links() {
    let fs = || -> Arc<dyn FileSystem> { Arc::new(MemFs::new(1 << 20)) };
    let (a, b) = (fs(), fs());
    let exports = Exports::new(HandleKey::random().unwrap())
        .with("/a", Arc::clone(&a), ExportOptions::default())
        .and_then(|exports| exports.with("/b", Arc::clone(&b), ExportOptions::default()))
        .unwrap();
    let [a_root, b_root] = [(0, &a), (1, &b)].map(|(at, fs): (usize, &Arc<dyn FileSystem>)| {
        exports.seal(exports.all()[at].id(), fs.root())
    });
    let peer = Peer {
        programs: Programs::new().with(Nfs3::new(exports.clone(), Pool::new(0))),
        exports,
        fs: a,
        cred: user(0),
        from: LOOPBACK,
    };
    let file = create(&peer, "f");
    let rename = args::Rename {
        from: place(a_root, "f"),
        to: place(b_root, "f"),
    };
    assert_eq!(status!(peer, rename), Status::CrossDevice);
    let link = args::Link {
        file,
        link: place(b_root, "f"),
    };
    assert_eq!(status!(peer, link), Status::CrossDevice);
    let number = |object| {
        let found = call!(peer, args::GetAttr { object }).unwrap();
        found.attributes.fsid
    };
    assert_ne!(number(a_root), number(b_root));
}

#[test]
fn client_goes_on_after_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let (path, state) = (dir.path().join("data"), dir.path().join("state"));
    std::fs::create_dir_all(path.join("sub")).unwrap();
    std::fs::write(path.join("sub/f"), b"before").unwrap();
    let serve = || {
        let options = LocalFsOptions {
            state_dir: Some(state.clone()),
            ..LocalFsOptions::default()
        };
        let local: Arc<dyn FileSystem> = Arc::new(LocalFs::open(&path, options).unwrap());
        let options = ExportOptions {
            squash: Squash::None,
            ..ExportOptions::default()
        };
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
    assert_eq!(&*read.data.octets(), b"BEfore");
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

#[test]
fn failures_tell_attributes_where_they_are_known() {
    let peer = Peer::new();
    let what = place(peer.root(), "none");
    let failed: Res<results::Lookup, PostOp> = call!(peer, args::Lookup { what });
    let failed = failed.unwrap_err();
    assert_eq!(failed.status, Status::NoEntry);
    assert!(failed.with.is_some());
    let object = place(peer.root(), "none");
    let failed = call!(peer, args::Remove { object }).unwrap_err();
    assert!(failed.with.before.is_some() && failed.with.after.is_some());
}

proptest! {
    #[test]
    fn any_octets_for_arguments_are_answered(
        proc in 0_u32..23,
        with_handle: bool,
        words in proptest::collection::vec(prop_oneof![0_u32..4, any::<u32>()], 0..24),
    ) {
        let peer = Peer::new();
        let target = oncrpc::Procedure { prog: NFS_PROGRAM, vers: NFS_V3, proc };
        let reply = peer.raw(target, |w| {
            if with_handle {
                w.opaque(&peer.root());
            }
            for word in words {
                w.u32(word);
            }
        });
        let Reply::Message(payload) = reply else { panic!("no reply") };
        let mut r = xdr::Reader::from(&payload);
        prop_assert!(oncrpc::ReplyHeader::parse(&mut r).is_ok());
    }
}
