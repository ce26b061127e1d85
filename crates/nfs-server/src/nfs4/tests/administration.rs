//! Lists of what clients hold, its end, and counters.

use super::*;
use crate::ErrorClass;
use nfs_proto::v4::file::ReadArgs;

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

fn read(state: v4::StateId) -> ArgOp<'static> {
    ArgOp::Read(ReadArgs {
        state,
        offset: 0,
        count: 10,
    })
}

#[test]
fn opens_and_locks_are_listed_with_export_and_file() {
    for site in Site::all() {
        let (one, two) = (site.client(b"one"), site.client(b"two"));
        let open = one.open("f", BOTH).state;
        one.at(&["f"], vec![lock(open, LockType::Write, 5, 10)])
            .ok();
        two.open("g", ShareAccess::READ);
        let all = site.nfs.held_states(None, 100);
        assert!(!all.has_more);
        let [opened, locked, other] = &all.states[..] else {
            panic!("{all:?}");
        };
        assert_eq!(
            (opened.client, locked.client, other.client),
            (one.client, one.client, two.client)
        );
        assert_eq!(
            (&*opened.owner, &*locked.owner),
            (&b"process"[..], &b"locker"[..])
        );
        for state in &all.states {
            assert_eq!(state.export.as_deref(), Some("/srv/data"));
            let is_local = site._dir.is_some();
            assert_eq!(state.path.is_some(), is_local);
        }
        if let Some(path) = &locked.path {
            assert!(path.ends_with("f"), "{path:?}");
        }
        let StateKind::Locks { locks, .. } = &locked.kind else {
            panic!("{locked:?}");
        };
        assert_eq!((locks[0].0.first(), locks[0].0.last()), (5, 14));
        let of_two = site.nfs.held_states(Some(two.client), 100);
        assert_eq!(of_two.states.len(), 1);
        let few = site.nfs.held_states(None, 2);
        assert!(few.has_more && few.states.len() == 2);
    }
}

#[test]
fn release_of_an_export_revokes_all_in_it_and_nothing_else() {
    for site in Site::all() {
        let client = site.client(b"one");
        let open = client.open("f", BOTH).state;
        client
            .at(&["f"], vec![lock(open, LockType::Write, 5, 10)])
            .ok();
        assert_eq!(site.nfs.release_export("/srv/other"), Some(0));
        assert_eq!(site.nfs.release_export("/srv"), None);
        client.at(&["f"], vec![read(open)]).ok();
        assert_eq!(site.nfs.release_export("/srv/data"), Some(2));
        let refused = client.at(&["f"], vec![read(open)]);
        assert_eq!(refused.status(), Err(Status::AdminRevoked));
        assert_eq!(site.nfs.state().usage().locks, 0);
        assert!(
            site.nfs
                .held_states(None, 9)
                .states
                .iter()
                .all(|s| s.is_revoked)
        );
        let open = client.open("f", BOTH).state;
        client.at(&["f"], vec![read(open)]).ok();
    }
}

#[test]
fn state_of_an_export_that_is_removed_or_has_another_file_system_ends() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let open = client.open("f", BOTH).state;
    let exports = &site.nfs.inner.exports;
    let with = |named: &[(&str, &Arc<dyn FileSystem>)]| {
        let options = || ExportOptions::default().with_squash(Squash::None);
        named.iter().fold(exports.none(), |all, (name, fs)| {
            all.with(name, Arc::clone(fs), options()).unwrap()
        })
    };
    let other: Arc<dyn FileSystem> = Arc::new(MemFs::new(1 << 20));
    let replace = |all| {
        let before = exports.before();
        exports.replace(&all);
        site.nfs.exports_replaced(&before)
    };
    assert_eq!(
        replace(with(&[("/srv/data", &site.fs), ("/new", &other)])),
        0
    );
    client.at(&["f"], vec![read(open)]).ok();
    let absent = with(&[("/new", &other)]);
    let absent = absent.with_absent("/srv/data", "no disk", ExportOptions::default());
    assert_eq!(replace(absent.unwrap()), 0, "it comes back");
    assert_eq!(replace(with(&[("/srv/data", &site.fs)])), 0);
    client.at(&["f"], vec![read(open)]).ok();
    assert_eq!(replace(with(&[("/srv/data", &other)])), 1);
    client.open("f", BOTH);
    assert_eq!(replace(with(&[("/new", &site.fs)])), 1);
}

#[test]
fn client_is_ended_by_its_id_or_its_name() {
    let site = Site::in_memory();
    let (one, two) = (site.client(b"one"), site.client(b"two \xff"));
    let state = site.nfs.state();
    let expire = |named| state.expire_client(state.find_client(named)?);
    let status = state.status();
    assert_eq!((status.usage.clients, status.is_in_grace), (2, false));
    assert_eq!(expire("three"), Err(Status::StaleClientId));
    let id = format!("{:016x}", one.client.0);
    assert_eq!(expire(&id), Ok(()));
    assert_eq!(expire("two \\xff"), Ok(()));
    let ended = two.run(Vec::new());
    assert_eq!(ended.status(), Err(Status::BadSession));
}

#[test]
fn operations_are_counted_with_their_errors_and_bytes() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let open = client.open("f", BOTH).state;
    let written = client.at(
        &["f"],
        vec![ArgOp::Write(v4::file::WriteArgs {
            state: open,
            offset: 0,
            stable: nfs_proto::Stable::FileSync,
            data: nfs_proto::Data::from(&b"hello"[..]),
        })],
    );
    written.ok();
    client.at(&["f"], vec![read(open)]).ok();
    client.at(&["none"], vec![]).status().unwrap_err();
    let stats = site.nfs.stats();
    let of = |name| {
        let mut all = stats.procedures.iter();
        all.find(|of| of.name == name).unwrap()
    };
    let calls = ["READ", "WRITE", "OPEN", "EXCHANGE_ID"].map(|name| of(name).calls);
    assert_eq!((stats.program, calls), ("nfs4", [1, 1, 1, 1]));
    assert_eq!(of("SEQUENCE").calls, 5);
    let failed = of("LOOKUP").errors[ErrorClass::NotFound as usize];
    assert_eq!(failed, (ErrorClass::NotFound, 1));
    let exports = site.nfs.inner.exports.stats();
    assert_eq!((exports[0].bytes_read, exports[0].bytes_written), (5, 5));
}
