//! File systems that are mounted below an export.

use super::*;
use crate::ExportError;
use nfs_proto::mount::DirPath;

/// An export with a directory `d`, in that `sub`, and another file system mounted there, in which another
/// is mounted at `deep`.
fn crossing() -> (Peer, [Arc<dyn FileSystem>; 2]) {
    let mut peer = Peer::new();
    let make = |peer: &Peer, dir: FileHandle, name: &str| {
        let place = place(dir, name);
        let attributes = mode(0o755);
        let made = call!(peer, args::MkDir { place, attributes }).unwrap();
        made.object.unwrap()
    };
    let dir = make(&peer, peer.root(), "d");
    make(&peer, dir, "sub");
    let below: [Arc<dyn FileSystem>; 2] =
        std::array::from_fn(|_| Arc::new(MemFs::new(1 << 20)) as Arc<dyn FileSystem>);
    let here = peer.exports.none();
    let seal = |fs: &Arc<dyn FileSystem>| {
        let alone = here.none().with(
            "/x",
            Arc::clone(fs),
            ExportOptions::default().with_squash(Squash::None),
        );
        let exports = alone.unwrap();
        Peer {
            programs: Programs::new().with(Nfs3::new(exports.clone(), Pool::new(0))),
            exports,
            fs: Arc::clone(fs),
            cred: user(0),
            from: LOOPBACK,
            local_uid: None,
        }
    };
    let inner = seal(&below[0]);
    make(&inner, inner.root(), "deep");
    create(&seal(&below[1]), "treasure");
    let mounted = peer
        .exports
        .clone()
        .with_mount("/data/d/sub", Arc::clone(&below[0]))
        .and_then(|exports| exports.with_mount("/data/d/sub/deep", Arc::clone(&below[1])));
    peer.exports.replace(&mounted.unwrap());
    peer.cred = user(0);
    (peer, below)
}

fn look(peer: &Peer, dir: FileHandle, name: &str) -> (FileHandle, u64) {
    let what = place(dir, name);
    let found = call!(peer, args::Lookup { what }).unwrap();
    (found.object, found.attributes.unwrap().fsid)
}

#[test]
fn mounted_file_systems_are_entered_by_name_and_left_by_dot_dot() {
    let (peer, _) = crossing();
    let (d, data) = look(&peer, peer.root(), "d");
    let (sub, first) = look(&peer, d, "sub");
    let (deep, second) = look(&peer, sub, "deep");
    assert!(
        data != first && first != second && second != data,
        "each has a number"
    );
    look(&peer, deep, "treasure");
    assert_eq!(look(&peer, deep, ".").0, deep);
    assert_eq!(look(&peer, deep, ".."), (sub, first));
    assert_eq!(look(&peer, sub, ".."), (d, data));
    // By its path it is the same.
    for (path, handle) in [("/data/d/sub", sub), ("/d/sub/deep", deep)] {
        let path = DirPath::new(path.as_bytes()).unwrap();
        let mounted = call!(peer, mount::Mount { path }).unwrap();
        assert_eq!(mounted.handle, handle);
    }
    let payload = peer.payload(&mount::Export);
    let mut r = read_reply(&payload, 7).unwrap();
    let listed = reply_of(&mount::Export, &mut r);
    let listed: Vec<&[u8]> = listed.0.iter().map(|export| export.path.get()).collect();
    assert_eq!(listed, [&b"/data"[..], b"/"]);
}

#[test]
fn handles_of_mounted_file_systems_outlast_the_list() {
    let (peer, [sub_fs, _]) = crossing();
    let (sub, _) = look(&peer, look(&peer, peer.root(), "d").0, "sub");
    let data = peer.exports.none().with(
        "/data",
        Arc::clone(&peer.fs),
        ExportOptions::default().with_squash(Squash::None),
    );
    let data = data.unwrap();
    peer.exports.replace(&data);
    assert_eq!(status!(peer, args::GetAttr { object: sub }), Status::Stale);
    let again = data.with_mount("/data/d/sub", sub_fs).unwrap();
    peer.exports.replace(&again);
    call!(peer, args::GetAttr { object: sub }).unwrap();
}

#[test]
fn mounted_file_system_is_entered_by_those_who_may_search_the_directory_above() {
    let (mut peer, _) = crossing();
    let (d, _) = look(&peer, peer.root(), "d");
    let set = args::SetAttr {
        object: d,
        attributes: mode(0o700),
        guard: None,
    };
    call!(peer, set).unwrap();
    peer.cred = user(1000);
    let what = place(d, "sub");
    assert_eq!(status!(peer, args::Lookup { what }), Status::Access);
    for path in ["/data/d/sub", "/data/d/sub/deep"] {
        let path = DirPath::new(path.as_bytes()).unwrap();
        let refused = call!(peer, mount::Mount { path }).unwrap_err();
        assert_eq!(refused, mount::MountStatus::Access);
    }
}

#[test]
fn listing_leaves_mounted_file_systems_to_a_lookup() {
    let (peer, _) = crossing();
    let (d, _) = look(&peer, peer.root(), "d");
    let how = args::CreateHow::Guarded(mode(0o644));
    let file = place(d, "file");
    call!(peer, args::Create { place: file, how }).unwrap();
    let list = args::ReadDirPlus {
        dir: d,
        cookie: Cookie(0),
        verifier: CookieVerifier::default(),
        dir_count: 4096,
        max_count: 8192,
    };
    let payload = peer.payload(&list);
    let mut r = read_reply(&payload, 7).unwrap();
    let page = reply_of(&list, &mut r).unwrap();
    let mut seen = Vec::new();
    for entry in &page.entries.0 {
        seen.push((entry.name.get().to_vec(), entry.handle.is_some()));
    }
    seen.sort();
    assert!(seen.contains(&(b"sub".to_vec(), false)), "{seen:?}");
    assert!(seen.contains(&(b"file".to_vec(), true)), "{seen:?}");
}

#[test]
fn mounts_that_nothing_leads_to_are_refused() {
    let (peer, [fs, _]) = crossing();
    let with = |path: &str| peer.exports.clone().with_mount(path, Arc::clone(&fs)).err();
    let missing = |path: &str| Some(ExportError::NotReached(path.to_owned()));
    for path in ["/other", "/data/none/sub", "/data/d/sub/deep/none/x"] {
        assert_eq!(with(path), missing(path));
    }
    assert!(matches!(with("/data"), Some(ExportError::Duplicate(_))));
    assert!(matches!(
        with("/data/d/sub"),
        Some(ExportError::Duplicate(_))
    ));
}

#[test]
fn directory_below_what_was_unmounted_is_not_shown_in_its_place() {
    let (peer, [sub_fs, _]) = crossing();
    let (d, _) = look(&peer, peer.root(), "d");
    let (sub, _) = look(&peer, d, "sub");
    let export = |exports: crate::Exports| {
        let options = ExportOptions::default().with_squash(Squash::None);
        exports
            .with("/data", Arc::clone(&peer.fs), options)
            .unwrap()
    };
    let unmounted = export(peer.exports.none()).with_unmounted("/data/d/sub");
    let unmounted = unmounted.unwrap();
    assert!(unmounted.clone().with_unmounted("/data/none/sub").is_err());
    peer.exports.replace(&unmounted);
    let what = place(d, "sub");
    assert_eq!(status!(peer, args::Lookup { what }), Status::Stale);
    assert_eq!(status!(peer, args::GetAttr { object: sub }), Status::Stale);
    for path in ["/data/d/sub", "/d/sub", "/data/d/sub/deep"] {
        let path = DirPath::new(path.as_bytes()).unwrap();
        let refused = call!(peer, mount::Mount { path }).unwrap_err();
        assert_eq!(refused, mount::MountStatus::NoEntry);
    }
    assert_eq!(look(&peer, peer.root(), "d").0, d);
    // It is back, and then the list is a new one.
    let back = export(peer.exports.none()).with_mount("/data/d/sub", sub_fs);
    peer.exports.replace(&back.unwrap());
    assert_eq!(look(&peer, d, "sub").0, sub);
    peer.exports.replace(&export(peer.exports.none()));
    assert_ne!(look(&peer, d, "sub").0, sub);
}
