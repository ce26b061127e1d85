//! Access rights, squashing and authentication flavours.

use super::*;
use crate::{UserDatabase, UserEntry, UserGroups};
use nfs_proto::acl::Null as AclNull;
use oncrpc::AuthStat;
use std::io;

/// User 1000 is in the groups 100 to 139.
struct Database;

impl UserDatabase for Database {
    fn user(&self, uid: u32) -> io::Result<Option<UserEntry>> {
        let groups = (100..140).collect();
        Ok((uid == 1000).then_some(UserEntry { gid: 100, groups }))
    }
}

/// A peer whose groups come from a database, and a file of somebody else's that a group may read.
fn peer_with_groups(of_everybody: bool, group: u32) -> (Peer, FileHandle) {
    let mut peer = Peer::new();
    let users = UserGroups::new(Database);
    let users = match of_everybody {
        true => users.of_everybody(),
        false => users,
    };
    let nfs = Nfs3::new(peer.exports.clone(), Pool::new(1 << 20)).with_users(users);
    let file = create(&peer, "f");
    let attributes = SetAttributes {
        mode: Some(0o640),
        gid: Some(group),
        ..SetAttributes::default()
    };
    let set = args::SetAttr {
        object: file,
        attributes,
        guard: None,
    };
    call!(peer, set).unwrap();
    peer.programs = Programs::new().with(nfs);
    (peer, file)
}

/// User 1000, who says to be in a group that it is not in.
fn claiming(gid: u32) -> Credential {
    Credential::Sys(AuthSys {
        uid: 1000,
        gid: 1000,
        gids: [gid].into_iter().collect(),
        ..AuthSys::default()
    })
}

fn may_read(peer: &Peer, object: FileHandle) -> bool {
    let access = Access::READ;
    let allowed = call!(peer, args::CheckAccess { object, access }).unwrap();
    allowed.access == access
}

#[test]
fn user_of_this_machine_has_the_groups_of_the_user_database() {
    for (group, may) in [(139, true), (200, false)] {
        let (mut peer, file) = peer_with_groups(false, group);
        peer.cred = claiming(200);
        // Of another machine what is claimed is believed.
        assert_eq!(may_read(&peer, file), !may);
        peer.local_uid = Some(1000);
        assert_eq!(may_read(&peer, file), may);
        let made = call!(
            peer,
            args::GetAttr {
                object: create(&peer, "g")
            }
        );
        assert_eq!(made.unwrap().attributes.gid, 100);
    }
}

#[test]
fn more_than_sixteen_groups_count_if_all_are_looked_up() {
    for (group, may) in [(139, true), (200, false)] {
        let (mut peer, file) = peer_with_groups(true, group);
        peer.cred = claiming(200);
        assert_eq!(may_read(&peer, file), may);
        let made = call!(
            peer,
            args::GetAttr {
                object: create(&peer, "g")
            }
        );
        assert_eq!(made.unwrap().attributes.gid, 1000, "the one it acts in");
    }
}

#[test]
fn groups_are_looked_up_by_a_job_and_known_afterwards() {
    let (mut peer, file) = peer_with_groups(true, 139);
    peer.cred = claiming(200);
    let call = || {
        peer.raw_call(target::<args::GetAttr>(), |w| {
            args::GetAttr { object: file }.write(w)
        })
    };
    let caller = Caller::new(LOOPBACK.parse().unwrap());
    let Answer::Deferred(job) = peer.programs.call(call(), &caller) else {
        panic!("the user database is not to be asked here");
    };
    assert!(matches!(Respond::wait(job), Some(Reply::Message(_))));
    assert!(matches!(
        peer.programs.call(call(), &caller),
        Answer::Now(_)
    ));
}

fn target<'a, A: Arguments<'a>>() -> oncrpc::Procedure {
    oncrpc::Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    }
}

#[test]
fn read_only_export_changes_nothing() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let writable = Peer::over(Arc::clone(&fs), ExportOptions::default());
    let id = {
        let file = create(&writable, "f");
        let opened = writable.exports.open(
            &file,
            &Caller::new(LOOPBACK.parse().unwrap()),
            &Default::default(),
        );
        opened.ok().unwrap().file
    };
    let options = ExportOptions::default()
        .with_read_only(true)
        .with_squash(Squash::None);
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
        let options = ExportOptions::default().with_squash(squash);
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
    let options =
        ExportOptions::default().with_allow(AccessList::new(["192.0.2.0/24".parse().unwrap()]));
    let mut peer = Peer::over(Arc::new(MemFs::new(1 << 20)), options);
    let object = peer.root();
    assert_eq!(status!(peer, args::GetAttr { object }), Status::Access);
    peer.from = "192.0.2.7:999";
    assert!(call!(peer, args::GetAttr { object }).is_ok());
}

#[test]
fn unsupported_auth_flavours_may_only_call_null() {
    let (rpcsec_gss, auth_tls, unknown) = (6, 7, 0x1234_5678);
    for (flavour, at_null, elsewhere) in [
        (rpcsec_gss, Some(AuthStat::RejectedCred), AuthStat::TooWeak),
        (auth_tls, None, AuthStat::BadCred),
        (unknown, None, AuthStat::TooWeak),
    ] {
        let mut peer = Peer::new();
        peer.cred = Credential::Other {
            flavour,
            body: [0; 8].into_iter().collect(),
        };
        let check = |payload: Payload, stat: Option<AuthStat>| {
            let error = stat.map(RpcError::Auth);
            assert_eq!(read_reply(&payload, 7).err(), error, "{flavour}");
        };
        check(peer.payload(&args::Null), at_null);
        check(peer.payload(&mount::Null), at_null);
        check(peer.payload(&AclNull), at_null);
        let object = peer.root();
        check(peer.payload(&args::GetAttr { object }), Some(elsewhere));
        let path = mount::DirPath::new(b"/data").unwrap();
        check(peer.payload(&mount::Mount { path }), Some(elsewhere));
    }
}
