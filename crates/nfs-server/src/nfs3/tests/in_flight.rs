//! Limits on calls in flight.

use super::*;
use nfs_proto::acl;

/// A call of this client, with these arguments.
fn call_of<'a, A: Arguments<'a>>(peer: &Peer, from: &str, args: &A) -> Call {
    let target = oncrpc::Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    };
    let mut w = Writer::new(Buffer::with_capacity(1024));
    write_call(&mut w, 7, target, &peer.cred);
    args.write(&mut w);
    Call::parse(w.finish(), &Caller::new(from.parse().unwrap())).unwrap()
}

/// A server whose file system asks the disk, and the program of its client.
fn slow() -> (Peer, Nfs3, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let options = ExportOptions::default().with_squash(Squash::None);
    let peer = Peer::over(Arc::new(local), options);
    let nfs = Nfs3::new(peer.exports.clone(), Pool::new(1 << 20));
    (peer, nfs, dir)
}

/// Whether a call is answered with NFS3ERR_JUKEBOX.
fn is_jukebox(answer: &Answer) -> bool {
    let Answer::Now(Reply::Message(payload)) = answer else {
        return false;
    };
    let mut r = read_reply(payload, 7).unwrap();
    Status::try_from(r.u32().unwrap()) == Ok(Status::Jukebox)
}

#[test]
fn client_that_has_its_share_in_flight_leaves_the_others_theirs() {
    let (peer, nfs, _dir) = slow();
    let root = peer.root();
    let ask = |from: &str| nfs.call(call_of(&peer, from, &args::FsStat { root }));
    let busy = LOOPBACK;
    let mut in_flight: Vec<Answer> = (0..MAX_IN_FLIGHT / 2)
        .map(|_| ask(busy))
        .inspect(|answer| assert!(matches!(answer, Answer::Blocking(_)), "it asks the disk"))
        .collect();
    assert!(is_jukebox(&ask(busy)));
    // What needs no thread is answered all the same.
    let attributes = args::GetAttr { object: root };
    let answer = nfs.call(call_of(&peer, busy, &attributes));
    assert!(matches!(answer, Answer::Now(_)) && !is_jukebox(&answer));
    let what = place(root, "x");
    let attributes = mode(0o755);
    let create = args::MkDir {
        place: what,
        attributes,
    };
    assert!(is_jukebox(&nfs.call(call_of(&peer, busy, &create))));
    // So are the calls of others, and they are executed.
    let Answer::Deferred(job) = nfs.call(call_of(&peer, "127.0.0.2:700", &create)) else {
        panic!("another client has room")
    };
    let Some(Reply::Message(payload)) = Respond::wait(job) else {
        panic!("it has a reply")
    };
    let created = reply_of(&create, &mut read_reply(&payload, 7).unwrap());
    assert!(created.is_ok());
    // Whether a call was executed or given up: its place is free again.
    let Some(Answer::Blocking(job)) = in_flight.pop() else {
        panic!("they are jobs")
    };
    job();
    assert!(matches!(ask(busy), Answer::Blocking(_)));
    drop(in_flight);
    assert!(matches!(ask(busy), Answer::Blocking(_)));
}

#[test]
fn jukebox_is_a_result_of_every_procedure() {
    let peer = Peer::new();
    let root = peer.root();
    let object = place(root, "x");
    macro_rules! check {
        ($($args:expr),+ $(,)?) => {$(
            let args = $args;
            let Reply::Message(payload) = jukebox::reply(call_of(&peer, LOOPBACK, &args)) else {
                panic!("it is a result")
            };
            let mut r = read_reply(&payload, 7).unwrap();
            let status = reply_of(&args, &mut r).err().unwrap().status;
            assert_eq!(status, Status::Jukebox, "{args:?}");
            r.finish().unwrap();
        )+};
    }
    let how = args::CreateHow::Guarded(mode(0o644));
    let (attributes, target) = (mode(0o644), Path::from(&b"text"[..]));
    let (cookie, verifier) = (Cookie(0), CookieVerifier::default());
    check!(
        acl::GetAcl {
            file: root,
            mask: acl::AclMask::all()
        },
        acl::SetAcl {
            file: root,
            mask: acl::AclMask::empty(),
            access: acl::AclList::default(),
            default: acl::AclList::default()
        },
        args::GetAttr { object: root },
        args::SetAttr {
            object: root,
            attributes,
            guard: None
        },
        args::Lookup { what: object },
        args::CheckAccess {
            object: root,
            access: Access::all()
        },
        args::ReadLink { symlink: root },
        read_args(root, 0, 10),
        write_args(root, 0, b"x"),
        args::Create { place: object, how },
        args::MkDir {
            place: object,
            attributes
        },
        args::Symlink {
            place: object,
            attributes,
            target: target.clone()
        },
        args::MkNod {
            place: object,
            what: args::Node::Fifo(attributes)
        },
        args::Remove { object },
        args::RmDir { object },
        args::Rename {
            from: object,
            to: object
        },
        args::Link {
            file: root,
            link: object
        },
        args::ReadDir {
            dir: root,
            cookie,
            verifier,
            count: 4096
        },
        args::ReadDirPlus {
            dir: root,
            cookie,
            verifier,
            dir_count: 4096,
            max_count: 4096
        },
        args::FsStat { root },
        args::FsInfo { root },
        args::PathConf { object: root },
        args::Commit {
            file: root,
            offset: 0,
            count: 0
        },
    );
}
