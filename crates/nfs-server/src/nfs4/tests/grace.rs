//! The grace period, as clients that had nothing before the restart see it (RFC 8881 §8.4.2.1).

use super::*;
use nfs_proto::v4::directory::{CreateArgs, CreateType, RemoveArgs, RenameArgs};
use nfs_proto::v4::fattr::Fattr;
use nfs_proto::v4::file::{ReadArgs, SetAttrArgs, WriteArgs};
use nfs_proto::v4::lock::TestStateIdArgs;
use nfs_proto::v4::session::DestroySessionArgs;
use nfs_proto::v4::{Array, StateId};
use std::path::Path;

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

/// A server with a state directory.
fn site(fs: &Arc<dyn FileSystem>, state: &Path) -> Site {
    let options = ExportOptions::default().with_squash(Squash::None);
    let exports = Exports::new(HandleKey::random().unwrap())
        .with("/srv/data", Arc::clone(fs), options)
        .unwrap();
    let settings = Nfs4Settings {
        state_dir: Some(state.into()),
        ..Nfs4Settings::default()
    };
    let nfs = Nfs4::new(
        exports,
        Pool::new(1 << 20),
        Nfs4State::open(settings).unwrap(),
    );
    Site {
        programs: Programs::new().with(nfs.clone()),
        nfs,
        fs: Arc::clone(fs),
        _dir: None,
    }
}

/// A server that was restarted while one client had a file open.
fn restarted(state: &Path) -> (Site, StateId) {
    let fs: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let before = site(&fs, state);
    let open = before.client(b"one").open("f", BOTH).state;
    drop(before);
    (site(&fs, state), open)
}

fn reclaim_complete(one_fs: bool) -> ArgOp<'static> {
    ArgOp::ReclaimComplete(ReclaimCompleteArgs { one_fs })
}

#[test]
fn all_that_could_conflict_with_a_reclaim_waits_for_the_end_of_grace() {
    let dir = tempfile::tempdir().unwrap();
    let (site, _) = restarted(dir.path());
    let other = site.client(b"other");
    let anonymous = StateId::default();
    let size = [Attribute::Size(0)];
    let in_root = [
        open("f", BOTH, ShareDeny::empty()),
        ArgOp::Remove(RemoveArgs { name: name("f") }),
    ];
    let of_file = [
        ArgOp::Read(ReadArgs {
            state: anonymous,
            offset: 0,
            count: 1,
        }),
        ArgOp::Write(WriteArgs {
            state: anonymous,
            offset: 0,
            stable: nfs_proto::Stable::Unstable,
            data: b"x"[..].into(),
        }),
        ArgOp::SetAttr(SetAttrArgs {
            state: anonymous,
            attributes: Fattr::new(&size).unwrap(),
        }),
    ];
    let rename = || {
        let rename = RenameArgs {
            from: name("d"),
            to: name("e"),
        };
        vec![ArgOp::SaveFh, ArgOp::Rename(rename)]
    };
    let make = ArgOp::Create(CreateArgs {
        kind: CreateType::Directory,
        name: name("d"),
        attributes: Fattr::default(),
    });
    let grace = Err(Status::Grace);
    other.at(&[], vec![make]).ok();
    other.at(&["f"], vec![get(&[AttributeNumber::Size])]).ok();
    for operation in in_root.clone() {
        assert_eq!(other.at(&[], vec![operation]).status(), grace);
    }
    for operation in of_file.clone() {
        assert_eq!(other.at(&["f"], vec![operation]).status(), grace);
    }
    assert_eq!(other.at(&[], rename()).status(), grace);
    site.nfs.state().end_grace();
    while site.nfs.state().is_in_grace() {
        std::thread::yield_now();
    }
    for operation in of_file {
        other.at(&["f"], vec![operation]).ok();
    }
    other.at(&[], rename()).ok();
    for operation in in_root {
        other.at(&[], vec![operation]).ok();
    }
}

#[test]
fn reclaim_complete_of_one_file_system_is_not_that_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let (site, _) = restarted(dir.path());
    let caller = Caller::new("127.0.0.1:700".parse().unwrap());
    let id = site.call(&caller, vec![exchange(b"one")]);
    let ResOp::ExchangeId(Ok(known)) = id.only() else {
        panic!("{id:?}");
    };
    let created = site.call(&caller, vec![create_session(known.client, known.sequence)]);
    let ResOp::CreateSession(Ok(created)) = created.only() else {
        panic!("{created:?}");
    };
    let one = Client {
        site: &site,
        caller,
        client: known.client,
        session: created.session,
        sequence: std::cell::Cell::new(0),
    };
    one.at(&[], vec![reclaim_complete(true)]).ok();
    assert!(site.nfs.state().is_in_grace());
    one.run(vec![reclaim_complete(false)]).ok();
    assert!(!site.nfs.state().is_in_grace());
    assert_eq!(
        one.run(vec![reclaim_complete(false)]).status(),
        Err(Status::CompleteAlready)
    );
    let session = one.session;
    one.run(vec![ArgOp::DestroySession(DestroySessionArgs { session })])
        .ok();
}

#[test]
fn state_id_of_before_the_restart_is_bad_and_not_stale() {
    let dir = tempfile::tempdir().unwrap();
    let (site, old) = restarted(dir.path());
    let one = site.client(b"one");
    // A client that is told NFS4ERR_STALE_STATEID by TEST_STATEID asks for ever.
    let states = [old];
    let test = ArgOp::TestStateId(TestStateIdArgs {
        states: Array::new(&states).unwrap(),
    });
    let tested = one.run(vec![test]);
    let ResOp::TestStateId(Ok(tested)) = tested.last() else {
        panic!("{tested:?}");
    };
    let statuses: Vec<_> = tested.statuses.iter().collect();
    assert_eq!(statuses, [Err(Status::BadStateId)]);
    let read = ArgOp::Read(ReadArgs {
        state: old,
        offset: 0,
        count: 1,
    });
    let read = one.at(&["f"], vec![read]).status();
    assert_eq!(read, Err(Status::BadStateId));
}
