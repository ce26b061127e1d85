//! Handles of the kernel: what they survive, and where they end.

use super::*;
use crate::localfs::handles::Resolver;
use crate::localfs::id;

#[test]
fn export_with_kernel_handles_has_no_state_on_the_disk() {
    let Some(export) = Export::with_kernel_handles() else {
        return;
    };
    export.write("d/f", "file");
    let f = export.find("d/f").unwrap();
    assert!(id::to_kernel(f).is_some() && id::to_kernel(export.fs().root()).is_some());
    export.rename("d/f", "f");
    assert_eq!(export.read(f).unwrap(), b"file");
    assert_eq!(fs::read_dir(&export.state).unwrap().count(), 0);
}

#[test]
fn handle_survives_renames_by_others_and_a_restart() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    export.write("a/d/f", "file");
    export.write("b/x", "");
    let [d, f] = ["a/d", "a/d/f"].map(|path| export.find(path).unwrap());
    fs::rename(export.path.join("a/d"), export.path.join("b/e")).unwrap();
    assert!(export.stat(d).is_ok());
    export.restart();
    fs::rename(export.path.join("b/e/f"), export.path.join("g")).unwrap();
    assert_eq!(export.read(f).unwrap(), b"file");
    assert!(export.stat(d).is_ok());
    assert_eq!(export.find("b/e").unwrap(), d);
    assert_eq!(export.find("g").unwrap(), f);
    let parent = export
        .fs()
        .lookup(&Identity::root(), d, Step::Parent)
        .wait();
    assert_eq!(parent.result.unwrap().file, export.find("b").unwrap());
}

/// As that of an export moved within its file system: nothing in a handle names a place.
#[test]
fn handle_survives_a_move_of_the_whole_export() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    export.write("d/f", "file");
    let [d, f] = ["d", "d/f"].map(|path| export.find(path).unwrap());
    export.trust_nothing();
    let moved = export.outside.join("moved");
    fs::rename(&export.path, &moved).unwrap();
    assert!(export.stat(d).is_ok(), "the open root moved along");
    export.path = moved;
    export.restart();
    assert!(export.stat(d).is_ok());
    assert_eq!(export.read(f).unwrap(), b"file");
}

#[test]
fn directory_moved_out_of_the_export_is_stale_by_its_handle_alone() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    export.write("d/sub/f", "file");
    let [d, sub, f] = ["d", "d/sub", "d/sub/f"].map(|path| export.find(path).unwrap());
    fs::rename(export.path.join("d"), export.outside.join("d")).unwrap();
    export.restart();
    for dir in [d, sub] {
        assert_eq!(export.stat(dir), Err(Error::Stale));
        let who = Identity::root();
        let up = export.fs().lookup(&who, dir, Step::Parent).wait();
        assert_eq!(up.result.err(), Some(Error::Stale));
        assert_eq!(
            export.make_as(&who, dir, "x", file(0o600)),
            Err(Error::Stale)
        );
    }
    // Of a file it cannot be told whether it still has a name within: as with knfsd's no_subtree_check.
    assert_eq!(export.read(f).unwrap(), b"file");
    fs::rename(export.outside.join("d"), export.path.join("e")).unwrap();
    assert!(export.stat(d).is_ok() && export.stat(sub).is_ok());
}

#[test]
fn directory_is_not_trusted_for_longer_than_the_one_it_was_found_in() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    export.write("a/b/c/f", "");
    export.restart_as(
        |_| {},
        |layers| layers.handles.trust_for(Duration::from_secs(3600)),
    );
    let a = export.find("a").unwrap();
    let layers = &export.fs().layers;
    let node = |file| layers.handles.node(file, Pace::Patient).unwrap();
    let old = node(a);
    old.seen.store(1, Relaxed);
    // Not by the path from the root, which would find the first of them anew.
    let below = |dir, name| {
        let step = Step::Name(Name::new(name).unwrap());
        let found = export.fs().lookup(&Identity::root(), dir, step).wait();
        found.result.unwrap().file
    };
    let b = below(a, b"b");
    let c = below(b, b"c");
    assert_eq!(node(b).seen.load(Relaxed), 1);
    assert_eq!(node(c).seen.load(Relaxed), 1);
}

/// The kernel tells no path of more than 4095 bytes.
#[test]
fn directory_with_a_path_too_long_to_tell_is_within_the_export() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    let who = Identity::root();
    let mut dir = export.fs().root();
    let mut dirs = Vec::new();
    for _ in 0..40 {
        let name = "n".repeat(200);
        let make = Make::Directory(SetAttributes::mode(0o755));
        dir = export.make_as(&who, dir, &name, make).unwrap();
        dirs.push(dir);
    }
    export.trust_nothing();
    for dir in dirs {
        assert!(export.stat(dir).is_ok());
    }
    let top = export.path.join("n".repeat(200));
    fs::rename(&top, export.outside.join("top")).unwrap();
    assert_eq!(export.stat(dir), Err(Error::Stale));
    fs::rename(export.outside.join("top"), top).unwrap();
    assert!(export.stat(dir).is_ok());
}

#[test]
fn directories_are_made_as_deep_as_they_can_be_seen_to_be_within() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    let who = Identity::root();
    let name = "n".repeat(4);
    let mut dir = export.fs().root();
    let mut depth = 0;
    let error = loop {
        let make = Make::Directory(SetAttributes::mode(0o755));
        match export.make_as(&who, dir, &name, make) {
            Ok(made) => dir = made,
            Err(error) => break error,
        }
        depth += 1;
    };
    assert_eq!(error, Error::NameTooLong);
    assert!((1000..1100).contains(&depth), "{depth}");
    let deepest = export.make_as(&who, dir, "f", file(0o644)).unwrap();
    export.trust_nothing();
    assert!(export.stat(dir).is_ok());
    assert_eq!(export.read(deepest).unwrap(), b"");
}

#[test]
fn handle_of_the_other_way_is_stale() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    export.write("f", "file");
    let by_kernel = export.find("f").unwrap();
    let options = export.options().with_handles(Handles::Table);
    export.fs = None;
    export.fs = Some(LocalFs::open(&export.path, options).unwrap());
    assert_eq!(export.stat(by_kernel), Err(Error::Stale));
    let by_table = export.find("f").unwrap();
    export.restart();
    assert_eq!(export.stat(by_table), Err(Error::Stale));
    assert!(export.stat(by_kernel).is_ok());
}

#[test]
fn file_whose_handle_is_too_long_is_listed_and_not_served() {
    let Some(mut export) = Export::with_kernel_handles() else {
        return;
    };
    export.write("f", "data");
    export.restart_with(|opening| match &mut opening.resolver {
        Resolver::Kernel(handles) => handles.longest = 4,
        Resolver::Table(_) => panic!("it has handles of the kernel"),
    });
    assert_eq!(export.find("f"), Err(Error::NotSupported));
    let (who, local) = (Identity::root(), export.fs());
    let (from, budget) = (DirFrom::START, DirBudget::PAGE);
    let page = local.read_directory(&who, local.root(), from, budget, true);
    let page = page.wait().result.unwrap();
    let found = page.iter().find(|(name, _)| *name == b"f");
    assert!(found.unwrap().1.found.is_none());
    let name = Name::new(b"new").unwrap();
    let made = Make::Directory(SetAttributes::default());
    let made = local.make(&who, local.root(), name, made).wait();
    assert_eq!(made.result.err(), Some(Error::NotSupported));
    assert!(
        !export.path.join("new").exists(),
        "what nobody could use is not left"
    );
}
