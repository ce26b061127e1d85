//! More calls than can be under way.

use super::*;

/// The peer of a server with as many calls under way as possible, and these.
fn full() -> (Peer, Vec<Answer>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let options = ExportOptions {
        squash: Squash::None,
        ..ExportOptions::default()
    };
    let peer = Peer::over(Arc::new(local), options);
    let under_way: Vec<Answer> = (0..MAX_UNDER_WAY)
        .map(|_| {
            let target = oncrpc::Procedure {
                prog: NFS_PROGRAM,
                vers: NFS_V3,
                proc: Procedure::FsStat as u32,
            };
            let mut w = Writer::new(Buffer::with_capacity(256));
            write_call(&mut w, 7, target, &peer.cred);
            args::FsStat { root: peer.root() }.write(&mut w);
            let caller = Caller::new(peer.from.parse().unwrap());
            let answer = peer.programs.call(w.finish(), &caller);
            assert!(matches!(answer, Answer::Blocking(_)), "it asks the disk");
            answer
        })
        .collect();
    (peer, under_way, dir)
}

#[test]
fn call_beyond_those_that_can_be_under_way_is_put_off_whatever_it_is() {
    let (peer, under_way, _dir) = full();
    let root = peer.root();
    let object = place(root, "x");
    call!(peer, args::Null);
    macro_rules! put_off {
        ($($args:expr),+ $(,)?) => {$(
            let args = $args;
            let payload = peer.payload(&args);
            let mut r = read_reply(&payload, 7).unwrap();
            let status = reply_of(&args, &mut r).err().unwrap().status;
            assert_eq!(status, Status::Jukebox, "{args:?}");
            r.finish().unwrap();
        )+};
    }
    let how = args::CreateHow::Guarded(mode(0o644));
    let (attributes, target) = (mode(0o644), Path::from(&b"text"[..]));
    let (cookie, verifier) = (Cookie(0), CookieVerifier::default());
    put_off!(
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
    // Whether a call was executed or given up: its place is free again.
    let mut under_way = under_way;
    let Some(Answer::Blocking(job)) = under_way.pop() else {
        panic!("they are jobs")
    };
    job();
    assert!(call!(peer, args::FsStat { root }).is_ok());
    drop(under_way);
    create(&peer, "x");
}
