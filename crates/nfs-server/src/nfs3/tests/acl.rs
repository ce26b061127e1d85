//! Access control lists by NFSACL, on a directory of this machine.

use super::*;
use nfs_proto::acl;
use nfs_proto::acl::{
    ACL_DEFAULT, ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, AclEntry,
    AclList, AclMask, GetAcl, SetAcl,
};
use rustix::process::getuid;
use tempfile::TempDir;

/// Everything that can be asked for.
const ALL: AclMask = AclMask::all();

/// A peer of a directory whose file system has lists; none, and a word about it, where it has not.
fn peer() -> Option<(Peer, TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    let fs = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let options = ExportOptions::default().with_squash(Squash::None);
    let mut peer = Peer::over(Arc::new(fs), options);
    peer.cred = user(getuid().as_raw());
    let file = create(&peer, "probe");
    match set(&peer, file, AclMask::ACCESS, &extended(), &[]) {
        Err(Status::NotSupported) => {
            eprintln!("skipped: the file system of temporary files has no access control lists");
            None
        }
        done => {
            done.unwrap();
            Some((peer, dir))
        }
    }
}

fn entry(tag: u32, id: u32, rights: u32) -> AclEntry {
    AclEntry { tag, id, rights }
}

fn list(entries: &[AclEntry]) -> AclList {
    AclList {
        count: entries.len() as u32,
        entries: entries.to_vec(),
    }
}

/// User 4321 may read, though others may not.
fn extended() -> Vec<AclEntry> {
    vec![
        entry(ACL_USER_OBJ, 0, 6),
        entry(ACL_USER, 4321, 4),
        entry(ACL_GROUP_OBJ, 0, 0),
        entry(ACL_MASK, 0, 4),
        entry(ACL_OTHER, 0, 0),
    ]
}

fn set(
    peer: &Peer,
    file: FileHandle,
    mask: AclMask,
    access: &[AclEntry],
    default: &[AclEntry],
) -> Result<(), Status> {
    let (access, default) = (list(access), list(default));
    let args = SetAcl {
        file,
        mask,
        access,
        default,
    };
    let done: Res<acl::Done, PostOp> = call!(peer, args);
    done.map(|done| assert!(done.attributes.is_some()))
        .map_err(|failed| failed.status)
}

fn get(peer: &Peer, file: FileHandle, mask: AclMask) -> acl::Lists {
    let lists = call!(peer, GetAcl { file, mask }).unwrap();
    assert_eq!(lists.mask, mask);
    lists
}

fn mode_of(peer: &Peer, object: FileHandle) -> u32 {
    let attributes = call!(peer, args::GetAttr { object }).unwrap().attributes;
    attributes.mode
}

#[test]
fn file_without_a_list_has_that_of_its_mode() {
    let Some((peer, _dir)) = peer() else {
        return;
    };
    let file = create(&peer, "f");
    let (uid, gid) = (getuid().as_raw(), {
        let got = call!(peer, args::GetAttr { object: file }).unwrap();
        got.attributes.gid
    });
    let of_mode = [
        entry(ACL_USER_OBJ, uid, 6),
        entry(ACL_GROUP_OBJ, gid, 4),
        entry(ACL_MASK, 0, 4),
        entry(ACL_OTHER, 0, 4),
    ];
    let found = get(&peer, file, ALL);
    assert_eq!(found.access, list(&of_mode));
    assert_eq!(found.default, AclList::default());
    let counted = get(&peer, file, AclMask::ACCESS_COUNT);
    assert_eq!((counted.access.count, counted.access.entries.len()), (4, 0));
    // As it came back it is the list of the mode, and nothing but that is kept.
    set(&peer, file, AclMask::ACCESS, &of_mode, &[]).unwrap();
    assert_eq!(get(&peer, file, ALL).access, list(&of_mode));
}

#[test]
fn list_comes_back_as_it_was_set_and_is_the_mode() {
    let Some((peer, _dir)) = peer() else {
        return;
    };
    let file = create(&peer, "f");
    let mut shuffled = extended();
    shuffled.reverse();
    set(&peer, file, AclMask::ACCESS, &shuffled, &[]).unwrap();
    let rights = |found: acl::Lists| -> Vec<(u32, u32)> {
        let entries = found.access.entries.iter();
        entries.map(|entry| (entry.tag, entry.rights)).collect()
    };
    let set_ones: Vec<(u32, u32)> = extended().iter().map(|e| (e.tag, e.rights)).collect();
    assert_eq!(rights(get(&peer, file, ALL)), set_ones);
    assert_eq!(mode_of(&peer, file), 0o640, "the mask is the group's part");
    // What the mask leaves out is not touched.
    set(&peer, file, AclMask::empty(), &[], &[]).unwrap();
    assert_eq!(rights(get(&peer, file, ALL)), set_ones);
    // No entries: nothing but the mode.
    set(&peer, file, AclMask::ACCESS, &[], &[]).unwrap();
    assert_eq!(get(&peer, file, ALL).access.entries.len(), 4);
}

#[test]
fn directory_has_a_default_list_that_new_files_get() {
    let Some((peer, _dir)) = peer() else {
        return;
    };
    let make = args::MkDir {
        place: place(peer.root(), "d"),
        attributes: mode(0o755),
    };
    let dir = call!(peer, make).unwrap().object.unwrap();
    let default: Vec<AclEntry> = extended()
        .into_iter()
        .map(|entry| AclEntry {
            tag: entry.tag | ACL_DEFAULT,
            ..entry
        })
        .collect();
    set(&peer, dir, AclMask::DEFAULT, &[], &default).unwrap();
    let found = get(&peer, dir, ALL);
    assert_eq!(found.access.entries.len(), 4);
    assert_eq!(found.default.count, 5);
    let tags: Vec<u32> = found
        .default
        .entries
        .iter()
        .map(|entry| entry.tag)
        .collect();
    assert!(tags.iter().all(|tag| tag & ACL_DEFAULT != 0), "{tags:?}");
    assert_eq!(mode_of(&peer, dir), 0o755);

    let how = args::CreateHow::Guarded(mode(0o644));
    let place = place(dir, "f");
    let made = call!(peer, args::Create { place, how }).unwrap();
    let list = get(&peer, made.object.unwrap(), ALL).access;
    assert!(list.entries.contains(&entry(ACL_USER, 4321, 4)), "{list:?}");

    set(&peer, dir, AclMask::DEFAULT, &[], &[]).unwrap();
    assert_eq!(get(&peer, dir, ALL).default, AclList::default());
    // Only directories have one.
    let file = create(&peer, "f");
    let refused = set(&peer, file, AclMask::DEFAULT, &[], &default);
    assert_eq!(refused, Err(Status::Invalid));
}

#[test]
fn what_is_no_list_is_refused() {
    let peer = Peer::new();
    let file = create(&peer, "f");
    let invalid = |access: AclList, mask| {
        let args = SetAcl {
            file,
            mask,
            access,
            default: AclList::default(),
        };
        assert_eq!(status!(peer, args), Status::Invalid);
    };
    invalid(list(&extended()[..4]), AclMask::ACCESS);
    invalid(list(&[entry(0x40, 0, 7)]), AclMask::ACCESS);
    invalid(list(&extended()), AclMask::from_bits_retain(0x11));
    let mut wrong_count = list(&extended());
    wrong_count.count = 4;
    invalid(wrong_count, AclMask::ACCESS);
    let mask = AclMask::from_bits_retain(0x10);
    assert_eq!(status!(peer, GetAcl { file, mask }), Status::Invalid);
    let group_twice = [entry(ACL_GROUP, 5, 7), entry(ACL_GROUP, 5, 6)];
    invalid(
        list(&[extended(), group_twice.to_vec()].concat()),
        AclMask::ACCESS,
    );
}

#[test]
fn file_system_without_lists_says_so() {
    let peer = Peer::new();
    let file = create(&peer, "f");
    let mask = ALL;
    assert_eq!(status!(peer, GetAcl { file, mask }), Status::NotSupported);
    let refused = set(&peer, file, AclMask::ACCESS, &extended(), &[]);
    assert_eq!(refused, Err(Status::NotSupported));
    call!(peer, acl::Null);
}

#[test]
fn lists_are_the_owners_to_set() {
    let Some((mut peer, _dir)) = peer() else {
        return;
    };
    let file = create(&peer, "f");
    if !as_user(&mut peer, 4321) {
        return;
    }
    let refused = set(&peer, file, AclMask::ACCESS, &extended(), &[]);
    assert_eq!(refused, Err(Status::Perm));
    assert_eq!(
        get(&peer, file, ALL).access.entries.len(),
        4,
        "all may look"
    );
}

/// The peer as another user, if the server can act for several.
fn as_user(peer: &mut Peer, uid: u32) -> bool {
    if !getuid().is_root() {
        eprintln!("skipped: only root serves several users");
        return false;
    }
    peer.cred = user(uid);
    true
}

fn may(peer: &Peer, object: FileHandle) -> Access {
    let access = Access::READ | Access::MODIFY;
    call!(peer, args::CheckAccess { object, access })
        .unwrap()
        .access
}

#[test]
fn list_lets_another_user_read_and_write() {
    let Some((mut peer, _dir)) = peer() else {
        return;
    };
    let file = create(&peer, "f");
    let mut entries = extended();
    set(&peer, file, AclMask::ACCESS, &entries, &[]).unwrap();
    if !as_user(&mut peer, 4321) {
        return;
    }
    assert_eq!(may(&peer, file), Access::READ);
    assert_eq!(status!(peer, write_args(file, 0, b"x")), Status::Access);
    peer.cred = user(0);
    entries[1].rights = 6;
    entries[3].rights = 6;
    set(&peer, file, AclMask::ACCESS, &entries, &[]).unwrap();
    peer.cred = user(4321);
    assert_eq!(may(&peer, file), Access::READ | Access::MODIFY);
    // Not the call of before, whose result would be given again.
    assert_eq!(call!(peer, write_args(file, 0, b"y")).unwrap().count, 1);
    let payload = peer.payload(&read_args(file, 0, 1));
    assert_eq!(payload.items().len(), 1);
    // The owning group is in the mask too, and has nothing.
    peer.cred = user(4322);
    assert_eq!(may(&peer, file), Access::empty());
    assert_eq!(status!(peer, read_args(file, 0, 1)), Status::Access);
}

#[test]
fn set_group_id_bit_is_lost_where_a_stranger_to_the_group_sets_a_list() {
    let Some((mut peer, _dir)) = peer() else {
        return;
    };
    let file = create(&peer, "f");
    let set_mode = args::SetAttr {
        object: file,
        attributes: SetAttributes {
            uid: Some(4321),
            gid: Some(77),
            ..mode(0o2755)
        },
        guard: None,
    };
    if !as_user(&mut peer, 0) {
        return;
    }
    call!(peer, set_mode).unwrap();
    assert_eq!(mode_of(&peer, file), 0o2755);
    peer.cred = user(4321);
    set(&peer, file, AclMask::ACCESS, &extended(), &[]).unwrap();
    assert_eq!(mode_of(&peer, file), 0o640);
}

#[test]
fn lists_of_a_read_only_export_stay_as_they_are() {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let options = ExportOptions::default().with_read_only(true);
    let peer = Peer::over(fs, options);
    let refused = set(&peer, peer.root(), AclMask::ACCESS, &extended(), &[]);
    assert_eq!(refused, Err(Status::ReadOnly));
}

#[test]
fn longest_list_is_answered_within_its_bound() {
    let Some((peer, _dir)) = peer() else {
        return;
    };
    let file = create(&peer, "f");
    let mut entries = extended();
    entries.extend((0..2000).map(|id| entry(ACL_USER, 5000 + id, 1)));
    // As many as the file system can keep, and the protocol has room for.
    entries.truncate(1024);
    while let Err(status) = set(&peer, file, AclMask::ACCESS, &entries, &[]) {
        assert!(
            matches!(status, Status::NoSpace | Status::TooBig),
            "{status:?}"
        );
        entries.truncate(entries.len() / 2);
    }
    assert!(entries.len() > 100);
    let found = get(&peer, file, ALL);
    assert_eq!(found.access.entries.len(), entries.len());
}

#[test]
fn unsupported_auth_flavours_may_not_look_at_lists() {
    let mut peer = Peer::new();
    let file = peer.root();
    peer.cred = Credential::Other {
        flavour: 6,
        body: [0; 8].into_iter().collect(),
    };
    let payload = peer.payload(&GetAcl { file, mask: ALL });
    let error = RpcError::Auth(oncrpc::AuthStat::TooWeak);
    assert_eq!(read_reply(&payload, 7).err(), Some(error));
}

#[test]
fn copy_of_a_setacl_does_not_undo_a_later_one() {
    let Some((peer, _dir)) = peer() else {
        return;
    };
    let file = create(&peer, "f");
    let call = |xid: u32, rights| {
        let mut entries = extended();
        entries[1].rights = rights;
        let args = SetAcl {
            file,
            mask: AclMask::ACCESS,
            access: list(&entries),
            default: AclList::default(),
        };
        let target = oncrpc::Procedure {
            prog: SetAcl::PROGRAM,
            vers: SetAcl::VERSION,
            proc: SetAcl::PROCEDURE,
        };
        let mut w = Writer::default();
        write_call(&mut w, xid, target, &peer.cred);
        args.write(&mut w);
        assert!(matches!(peer.exchange(w.finish()), Reply::Message(_)));
        get(&peer, file, ALL).access.entries[1].rights
    };
    assert_eq!(call(1, 4), 4);
    assert_eq!(call(2, 6), 6);
    assert_eq!(call(1, 4), 6);
}
