//! Invalid calls and the errors they draw.

use super::*;
use oncrpc::xdr;

#[test]
fn arguments_that_are_none_are_garbage_to_every_procedure() {
    let peer = Peer::new();
    for proc in 0..=21 {
        let target = oncrpc::Procedure {
            prog: NFS_PROGRAM,
            vers: NFS_V3,
            proc,
        };
        // A handle longer than any, and bytes behind arguments that have none.
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
fn forged_and_stale_handles_are_told_apart() {
    let peer = Peer::new();
    let file = create(&peer, "f");
    let changed = |at: usize| {
        let mut bytes = file.to_vec();
        bytes[at] ^= 1;
        FileHandle::new(&bytes).unwrap()
    };
    // Of another key, as far as can be told; of no format there is; and none at all.
    let forged = [
        (changed(20), Status::Stale),
        (changed(0), Status::BadHandle),
        (FileHandle::new(b"").unwrap(), Status::BadHandle),
    ];
    for (handle, expected) in forged {
        let get = args::GetAttr { object: handle };
        assert_eq!(status!(peer, get), expected);
        assert_eq!(status!(peer, read_args(handle, 0, 1)), expected);
        let what = place(handle, "x");
        assert_eq!(status!(peer, args::Lookup { what }), expected);
        let rename = args::Rename {
            from: place(peer.root(), "f"),
            to: place(handle, "g"),
        };
        assert_eq!(status!(peer, rename), expected);
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
    let handle = old.seal(old.all().exports[0].id(), fs.root());
    let caller = Caller::new(LOOPBACK.parse().unwrap());
    assert!(old.open(&handle, &caller, &Default::default()).is_ok());
    assert_eq!(
        new.open(&handle, &caller, &Default::default()).err(),
        Some(Status::Stale)
    );
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
fn setattr_guard_with_another_ctime_prevents_the_change() {
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
fn exports_are_not_crossed_by_renames_and_links() {
    let fs = || -> Arc<dyn FileSystem> { Arc::new(MemFs::new(1 << 20)) };
    let (a, b) = (fs(), fs());
    let exports = Exports::new(HandleKey::random().unwrap())
        .with("/a", Arc::clone(&a), ExportOptions::default())
        .and_then(|exports| exports.with("/b", Arc::clone(&b), ExportOptions::default()))
        .unwrap();
    let [a_root, b_root] = [(0, &a), (1, &b)].map(|(at, fs): (usize, &Arc<dyn FileSystem>)| {
        exports.seal(exports.all().exports[at].id(), fs.root())
    });
    let peer = Peer {
        programs: Programs::new().with(Nfs3::new(exports.clone(), Pool::new(0))),
        exports,
        fs: a,
        cred: user(0),
        from: LOOPBACK,
        local_uid: None,
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
    fn any_bytes_for_arguments_are_answered(
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
