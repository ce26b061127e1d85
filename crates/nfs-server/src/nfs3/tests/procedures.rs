//! Rules of RFC 1813 for single procedures, over both file systems.

use super::*;
use nfs_proto::FsProperties;
use tempfile::TempDir;

/// A file system in memory, and a directory of this machine.
fn both() -> [(Peer, Option<TempDir>); 2] {
    let dir = tempfile::tempdir().unwrap();
    let fs = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let options = ExportOptions::default().with_squash(Squash::None);
    let mut local = Peer::over(Arc::new(fs), options);
    local.cred = user(rustix::process::getuid().as_raw());
    [(Peer::new(), None), (local, Some(dir))]
}

fn attributes(peer: &Peer, object: FileHandle) -> Attributes {
    call!(peer, args::GetAttr { object }).unwrap().attributes
}

#[test]
fn write_of_nothing_succeeds_and_changes_no_time() {
    for (peer, _dir) in both() {
        let file = create(&peer, "f");
        call!(peer, write_args(file, 0, b"data")).unwrap();
        let past = SetAttributes {
            mtime: SetTime::ClientTime(NfsTime {
                seconds: 7,
                nanoseconds: 0,
            }),
            ..SetAttributes::default()
        };
        let set = args::SetAttr {
            object: file,
            attributes: past,
            guard: None,
        };
        call!(peer, set).unwrap();
        let wrote = call!(peer, write_args(file, 2, b"")).unwrap();
        assert_eq!(wrote.count, 0);
        let after = attributes(&peer, file);
        assert_eq!((after.mtime.seconds, after.size), (7, 4));
        call!(peer, write_args(file, 100, b"")).unwrap();
        assert_eq!(attributes(&peer, file).size, 4, "nor is the file longer");
    }
}

#[test]
fn data_is_as_stable_as_the_write_asked_for() {
    for (peer, _dir) in both() {
        let file = create(&peer, "f");
        for stable in [Stable::Unstable, Stable::DataSync, Stable::FileSync] {
            let write = args::Write {
                stable,
                ..write_args(file, 0, b"data")
            };
            let wrote = call!(peer, write).unwrap();
            assert!(wrote.committed >= stable, "{stable:?}");
        }
    }
}

#[test]
fn write_verifier_is_the_same_for_as_long_as_the_server_runs() {
    for (peer, _dir) in both() {
        let file = create(&peer, "f");
        let first = call!(peer, write_args(file, 0, b"a")).unwrap().verifier;
        for (offset, count) in [(0, 0), (0, 1), (1 << 30, 1 << 20)] {
            let commit = args::Commit {
                file,
                offset,
                count,
            };
            assert_eq!(call!(peer, commit).unwrap().verifier, first);
        }
        assert_eq!(
            call!(peer, write_args(file, 1, b"b")).unwrap().verifier,
            first
        );
    }
}

#[test]
fn read_at_the_end_or_of_nothing_is_no_error() {
    for (peer, _dir) in both() {
        let file = create(&peer, "f");
        call!(peer, write_args(file, 0, b"data")).unwrap();
        for (offset, count, eof) in [
            (4, 10, true),
            (5, 10, true),
            (1 << 40, 1, true),
            (0, 0, false),
            (0, 4, true),
        ] {
            let read = read_args(file, offset, count);
            let payload = peer.payload(&read);
            let mut r = read_reply(&payload, 7).unwrap();
            let read = reply_of(&read, &mut r).unwrap();
            let expected = if offset == 0 { count } else { 0 };
            assert_eq!((read.count, read.eof), (expected, eof), "{offset} {count}");
        }
    }
}

#[test]
fn access_is_answered_though_nothing_is_allowed() {
    let mut peer = Peer::new();
    peer.cred = user(1000);
    let file = create(&peer, "f");
    let set = args::SetAttr {
        object: file,
        attributes: mode(0o000),
        guard: None,
    };
    call!(peer, set).unwrap();
    let ask = args::CheckAccess {
        object: file,
        access: Access::all(),
    };
    for uid in [1000, 1001] {
        peer.cred = user(uid);
        let may = call!(peer, ask).unwrap();
        assert!(may.attributes.is_some());
        assert_eq!(may.access, Access::empty());
    }
    // The owner reads and writes it all the same, as if it had been open before.
    peer.cred = user(1000);
    call!(peer, write_args(file, 0, b"data")).unwrap();
}

#[test]
fn rename_of_a_file_to_another_of_its_names_does_nothing() {
    for (peer, _dir) in both() {
        let file = create(&peer, "a");
        let (from, to) = (place(peer.root(), "a"), place(peer.root(), "b"));
        call!(peer, args::Link { file, link: to }).unwrap();
        call!(peer, args::Rename { from, to }).unwrap();
        call!(peer, args::Rename { from, to: from }).unwrap();
        for what in [from, to] {
            let found = call!(peer, args::Lookup { what }).unwrap();
            assert_eq!(found.object, file);
        }
        assert_eq!(attributes(&peer, file).links, 2);
    }
}

#[test]
fn mknod_makes_nothing_that_has_a_procedure_of_its_own() {
    for (peer, _dir) in both() {
        let place = place(peer.root(), "x");
        for what in [
            args::Node::Regular,
            args::Node::Directory,
            args::Node::Symlink,
        ] {
            assert_eq!(status!(peer, args::MkNod { place, what }), Status::BadType);
        }
        let none = status!(peer, args::Lookup { what: place });
        assert_eq!(none, Status::NoEntry);
    }
}

#[test]
fn entries_of_a_directory_have_the_numbers_of_their_files() {
    for (peer, _dir) in both() {
        let file = create(&peer, "f");
        let list = args::ReadDir {
            dir: peer.root(),
            cookie: Cookie(0),
            verifier: CookieVerifier::default(),
            count: 4096,
        };
        let payload = peer.payload(&list);
        let mut r = read_reply(&payload, 7).unwrap();
        let page = reply_of(&list, &mut r).unwrap();
        assert!(page.eof);
        let numbers: Vec<(&[u8], u64)> = page
            .entries
            .0
            .iter()
            .map(|entry| (entry.name.get(), entry.file_id.0))
            .collect();
        let expected = attributes(&peer, file).file_id.0;
        assert!(numbers.contains(&(&b"f"[..], expected)), "{numbers:?}");
        assert!(numbers.iter().all(|&(_, number)| number != 0));
    }
}

#[test]
fn fsinfo_and_pathconf_tell_what_is_done() {
    for (peer, _dir) in both() {
        let root = peer.root();
        let info = call!(peer, args::FsInfo { root }).unwrap();
        assert!(info.read_preferred <= info.read_max && info.write_preferred <= info.write_max);
        let properties = FsProperties::LINK
            | FsProperties::SYMLINK
            | FsProperties::HOMOGENEOUS
            | FsProperties::CANSETTIME;
        assert_eq!(info.properties, properties);
        // Of any file, not only of the root.
        let object = create(&peer, "f");
        assert!(call!(peer, args::FsInfo { root: object }).is_ok());
        let limits = call!(peer, args::PathConf { object }).unwrap();
        assert!(limits.no_trunc && limits.chown_restricted && limits.case_preserving);
        assert!(!limits.case_insensitive);
        assert_eq!(limits.name_max, 255);
    }
}

#[test]
fn names_of_a_file_system_that_folds_case_are_one_and_keep_their_spelling() {
    let fs = MemFs::new(1 << 20).folding_case();
    let peer = Peer::over(
        Arc::new(fs),
        ExportOptions::default().with_squash(Squash::None),
    );
    let object = peer.root();
    assert!(
        call!(peer, args::PathConf { object })
            .unwrap()
            .case_insensitive
    );
    let (file, other) = (create(&peer, "Makefile"), create(&peer, "other"));
    let what = place(object, "makefile");
    let found = call!(peer, args::Lookup { what }).unwrap();
    assert_eq!(found.object, file);
    let renamed = args::Rename {
        from: place(object, "OTHER"),
        to: place(object, "makefile"),
    };
    assert!(call!(peer, renamed).is_ok());
    let what = place(object, "MAKEFILE");
    let found = call!(peer, args::Lookup { what }).unwrap();
    assert_eq!(found.object, other);
    let list = args::ReadDir {
        dir: object,
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        count: 4096,
    };
    let payload = peer.payload(&list);
    let mut r = read_reply(&payload, 7).unwrap();
    let page = reply_of(&list, &mut r).unwrap();
    let names: Vec<_> = page
        .entries
        .0
        .iter()
        .map(|entry| entry.name.get())
        .collect();
    assert!(
        names.contains(&&b"Makefile"[..]) && names.len() == 3,
        "{names:?}"
    );
}
