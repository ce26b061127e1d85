//! Access rights, squashing and authentication flavours.

use super::*;

#[test]
fn read_only_export_changes_nothing() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let writable = Peer::over(Arc::clone(&fs), ExportOptions::default());
    let id = {
        let file = create(&writable, "f");
        let opened = writable
            .exports
            .open(&file, &Caller::new(LOOPBACK.parse().unwrap()));
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
fn callers_act_as_the_identity_that_the_export_maps_them_to() {
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
fn unsupported_auth_flavours_may_only_call_null() {
    let mut peer = Peer::new();
    let rpcsec_gss = 6;
    peer.cred = Credential::Other {
        flavour: rpcsec_gss,
        body: [0; 8].into_iter().collect(),
    };
    call!(peer, args::Null);
    call!(peer, mount::Null);
    let refused = |payload: Payload| {
        let error = RpcError::Auth(oncrpc::AuthStat::TooWeak);
        assert_eq!(read_reply(&payload, 7).err(), Some(error));
    };
    let object = peer.root();
    refused(peer.payload(&args::GetAttr { object }));
    refused(peer.payload(&mount::Mount {
        path: mount::DirPath::new(b"/data").unwrap(),
    }));
}
