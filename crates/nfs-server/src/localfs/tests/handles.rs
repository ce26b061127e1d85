//! Handles lead to the same file across restarts, renames and removals.

use super::*;
use crate::localfs::id::TableId;

#[test]
fn handles_survive_a_restart() {
    let mut export = Export::new();
    export.write("a/b/c/deep", "deep");
    export.write("top", "top");
    let files: Vec<FileId> = ["a", "a/b", "a/b/c", "a/b/c/deep", "top"]
        .map(|path| export.find(path).unwrap())
        .into();
    let root = export.fs().root();
    for _ in 0..2 {
        export.restart();
        assert_eq!(export.fs().root(), root);
        // The deepest first: nothing on the way to it was looked up.
        assert_eq!(export.read(files[3]).unwrap(), b"deep");
        assert_eq!(export.read(files[4]).unwrap(), b"top");
        for file in &files {
            assert!(export.stat(*file).is_ok());
        }
        assert_eq!(export.find("a/b/c/deep").unwrap(), files[3]);
        let parent = export
            .fs()
            .lookup(&Identity::root(), files[2], Step::Parent)
            .wait();
        assert_eq!(parent.result.unwrap().file, files[1]);
    }
}

#[test]
fn directories_are_made_as_deep_as_they_are_found_again() {
    let mut export = Export::new();
    let who = Identity::root();
    let mut dir = export.fs().root();
    let mut depth = 0;
    let error = loop {
        let make = Make::Directory(SetAttributes::mode(0o755));
        match export.make_as(&who, dir, "d", make) {
            Ok(made) => dir = made,
            Err(error) => break error,
        }
        depth += 1;
    };
    assert_eq!(error, Error::NameTooLong);
    assert!((500..600).contains(&depth), "{depth}");
    let deepest = export.make_as(&who, dir, "f", file(0o644)).unwrap();
    export.restart();
    assert_eq!(export.read(deepest).unwrap(), b"");
    export.trust_nothing();
    assert_eq!(export.read(deepest).unwrap(), b"");
    assert!(export.stat(dir).is_ok());
}

/// Were each directory looked for at each of its places anew, this would take 2^30 steps.
#[test]
fn long_way_through_a_directory_that_is_gone_takes_few_steps() {
    let mut export = Export::new();
    let mut dir = export.fs().root();
    let mut path = export.path.clone();
    for _ in 0..30 {
        let make = Make::Directory(SetAttributes::mode(0o755));
        dir = export.make_as(&Identity::root(), dir, "d", make).unwrap();
        path.push("d");
    }
    fs::write(path.join("f"), b"").unwrap();
    export.trust_nothing();
    let mut deep = "d/".repeat(30);
    deep.push('f');
    let f = export.find(&deep).unwrap();
    fs::rename(export.path.join("d"), export.outside.join("d")).unwrap();
    export.restart();
    assert_eq!(export.stat(f), Err(Error::Stale));
    // What is remembered in memory leads astray as well as the table.
    fs::rename(export.outside.join("d"), export.path.join("d")).unwrap();
    export.trust_nothing();
    assert_eq!(export.find(&deep).unwrap(), f);
    fs::rename(export.path.join("d"), export.outside.join("d")).unwrap();
    assert_eq!(export.stat(dir), Err(Error::Stale));
}

#[test]
fn handles_from_a_listing_survive_a_restart() {
    let mut export = Export::new();
    export.write("d/sub/f", "f");
    let budget = DirBudget {
        total: 4096,
        per_entry: 24,
        per_handle: 24,
        names: 4096,
    };
    let from = DirFrom {
        cookie: 0,
        verifier: 0,
    };
    let list = |export: &Export, dir, name: &[u8]| {
        let seen = export
            .fs()
            .read_directory(&Identity::root(), dir, from, budget, true);
        let page = seen.wait().result.unwrap();
        let found = page.iter().find(|(found, _)| *found == name);
        found.unwrap().1.found.unwrap().file
    };
    let dir = list(&export, export.fs().root(), b"d");
    let sub = list(&export, dir, b"sub");
    let file = list(&export, sub, b"f");
    export.restart();
    assert_eq!(export.read(file).unwrap(), b"f");
}

#[test]
fn handles_of_moved_files_survive_a_restart() {
    let mut export = Export::new();
    export.write("a/f", "file");
    export.write("a/d/g", "below");
    export.write("b/x", "");
    let (f, d, g) = (
        export.find("a/f").unwrap(),
        export.find("a/d").unwrap(),
        export.find("a/d/g").unwrap(),
    );
    export.rename("a/f", "b/f2");
    export.rename("a/d", "b/d2");
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"file");
    assert_eq!(export.read(g).unwrap(), b"below");
    assert!(export.stat(d).is_ok());
    // They keep their handles, and after coming back home as well.
    assert_eq!(export.find("b/f2").unwrap(), f);
    assert_eq!(export.find("b/d2").unwrap(), d);
    export.rename("b/f2", "a/f3");
    export.restart();
    assert_eq!(export.find("a/f3").unwrap(), f);
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"file");
}

/// What a server that is killed now would leave behind.
fn crash(export: &Export) -> TempDir {
    let left = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(export.state.join("exports")).unwrap() {
        let entry = entry.unwrap();
        let to = left.path().join("exports").join(entry.file_name());
        fs::create_dir_all(&to).unwrap();
        fs::copy(entry.path().join("handles.redb"), to.join("handles.redb")).unwrap();
    }
    left
}

#[test]
fn handles_of_what_was_made_and_moved_survive_a_crash() {
    let mut export = Export::new();
    export.restart_with(|inner| inner.changes = Changes::Durable);
    let who = Identity::root();
    let root = export.fs().root();
    let dir = || Make::Directory(SetAttributes::mode(0o755));
    let a = export.make_as(&who, root, "a", dir()).unwrap();
    let b = export.make_as(&who, a, "b", dir()).unwrap();
    let f = export.make_as(&who, b, "f", file(0o644)).unwrap();
    let g = export.make_as(&who, b, "g", file(0o644)).unwrap();
    let after = |left: &TempDir, file| {
        let mut options = export.options();
        options.state_dir = Some(left.path().into());
        let local = LocalFs::open(&export.path, options).unwrap();
        local.attributes(file).wait()
    };
    assert!(after(&crash(&export), f).is_ok());
    export.rename("a/b", "b");
    export.rename("b/g", "g");
    let left = crash(&export);
    assert!(after(&left, f).is_ok() && after(&left, g).is_ok());
}

#[test]
fn all_names_of_a_file_lead_to_one_handle_after_a_restart() {
    let mut export = Export::new();
    export.write("a/f", "file");
    export.write("b/x", "");
    let f = export.find("a/f").unwrap();
    let b = export.find("b").unwrap();
    let linked = export
        .fs()
        .link(&Identity::root(), f, b, Name::new(b"g").unwrap());
    linked.wait().result.unwrap();
    export.restart();
    assert_eq!(export.find("b/g").unwrap(), f);
    assert_eq!(export.find("a/f").unwrap(), f);
    let a = export.find("a").unwrap();
    let removed = export
        .fs()
        .remove(&Identity::root(), a, Name::new(b"f").unwrap());
    removed.wait().result.unwrap();
    assert_eq!(export.find("b/g").unwrap(), f);
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"file");
}

#[test]
fn file_that_loses_names_is_found_by_those_that_are_left() {
    let mut export = Export::new();
    export.write("a/f", "file");
    let f = export.find("a/f").unwrap();
    let who = Identity::root();
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    for dir in ["b", "c", "d"] {
        export.write(&format!("{dir}/x"), "");
        let dir = export.find(dir).unwrap();
        let linked = export.fs().link(&who, f, dir, name("g")).wait();
        linked.result.unwrap();
    }
    let remove = |export: &Export, dir: &str, old| {
        let dir = export.find(dir).unwrap();
        let removed = export.fs().remove(&who, dir, name(old)).wait();
        removed.result.unwrap();
    };
    export.restart();
    // The last one remembered, and the one at home.
    for (dir, old) in [("d", "g"), ("a", "f"), ("b", "g")] {
        remove(&export, dir, old);
        export.restart();
        assert_eq!(export.read(f).unwrap(), b"file", "{dir}");
    }
    assert_eq!(export.find("c/g").unwrap(), f);
}

#[test]
fn file_renamed_by_others_within_its_directory_is_found_again() {
    let mut export = Export::new();
    export.write("d/f", "file");
    export.write("d/sub/g", "below");
    let (f, g) = (export.find("d/f").unwrap(), export.find("d/sub/g").unwrap());
    export.fs = None;
    fs::rename(export.path.join("d/f"), export.path.join("d/other")).unwrap();
    fs::rename(export.path.join("d/sub"), export.path.join("d/bus")).unwrap();
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"file");
    assert_eq!(export.read(g).unwrap(), b"below");
}

#[test]
fn another_file_at_the_same_path_is_not_mistaken_for_the_first() {
    let mut export = Export::new();
    export.write("f", "old");
    export.write("d/f", "below");
    let (f, d) = (export.find("f").unwrap(), export.find("d").unwrap());
    export.fs = None;
    fs::remove_file(export.path.join("f")).unwrap();
    fs::remove_dir_all(export.path.join("d")).unwrap();
    export.write("f", "new");
    export.write("d/f", "new");
    export.restart();
    assert_eq!(export.stat(f), Err(Error::Stale));
    assert_eq!(export.read(f), Err(Error::Stale));
    assert_eq!(export.stat(d), Err(Error::Stale));
}

#[test]
fn file_removed_by_others_is_stale_though_it_is_open() {
    let export = Export::new();
    export.write("f", "data");
    let f = export.find("f").unwrap();
    assert_eq!(export.read(f).unwrap(), b"data");
    fs::remove_file(export.path.join("f")).unwrap();
    assert_eq!(export.read(f), Err(Error::Stale));
    assert_eq!(export.stat(f), Err(Error::Stale));
}

#[test]
fn files_are_searched_for_when_the_table_is_lost() {
    let mut export = Export::new();
    export.write("d/f", "file");
    export.write("top", "top");
    let (d, f, top) = (
        export.find("d").unwrap(),
        export.find("d/f").unwrap(),
        export.find("top").unwrap(),
    );
    export.fs = None;
    for entry in fs::read_dir(export.state.join("exports")).unwrap() {
        fs::remove_file(entry.unwrap().path().join("handles.redb")).unwrap();
    }
    export.restart();
    assert_eq!(export.read(top).unwrap(), b"top");
    // Whoever asks for the directory leads the way to what is in it.
    assert!(export.stat(d).is_ok());
    assert_eq!(export.read(f).unwrap(), b"file");
}

#[test]
fn damaged_table_is_an_error_that_names_it() {
    let mut export = Export::new();
    export.fs = None;
    for entry in fs::read_dir(export.state.join("exports")).unwrap() {
        fs::write(entry.unwrap().path().join("handles.redb"), b"no such store").unwrap();
    }
    let error = LocalFs::open(&export.path, export.options()).err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Damaged { .. }), "{text}");
    assert!(
        text.contains("handles.redb") && text.contains("remove it"),
        "{text}"
    );
}

/// Two connections pull a directory and a file to and fro; each handle leads to where it ended.
#[test]
fn concurrent_renames_leave_correct_table_rows() {
    let mut export = Export::new();
    for dir in ["a", "b", "c"] {
        export.write(&format!("{dir}/x"), "");
    }
    export.write("a/d/f", "below");
    export.write("a/g", "file");
    let [d, f, g] = ["a/d", "a/d/f", "a/g"].map(|path| export.find(path).unwrap());
    let [a, b, c] = ["a", "b", "c"].map(|path| export.find(path).unwrap());
    let (local, who) = (export.fs(), Identity::root());
    std::thread::scope(|scope| {
        for dirs in [[a, b], [b, c], [c, a]] {
            let who = &who;
            scope.spawn(move || {
                for round in 0..200 {
                    let (from, to) = (dirs[round % 2], dirs[(round + 1) % 2]);
                    for name in [&b"d"[..], b"g"] {
                        let name = Name::new(name).unwrap();
                        // Another one may have taken it already.
                        let _ = local.rename(who, (from, name), (to, name)).wait();
                    }
                }
            });
        }
    });
    let caches = |ino| export.fs().inner.caches().links.get(ino).cloned().unwrap();
    let ino = |file| TableId::parse(file).unwrap().ino;
    for (file, name) in [(d, "d"), (g, "g")] {
        let dir = [("a", a), ("b", b), ("c", c)]
            .into_iter()
            .find(|(dir, _)| export.path.join(dir).join(name).exists());
        assert_eq!(caches(ino(file)).parent, ino(dir.unwrap().1));
    }
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"below");
    assert_eq!(export.read(g).unwrap(), b"file");
}

#[test]
fn handles_without_state_last_as_long_as_the_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), b"x").unwrap();
    let local = LocalFs::open(dir.path(), LocalFsOptions::default()).unwrap();
    let step = Step::Name(Name::new(b"f").unwrap());
    let seen = local.lookup(&Identity::root(), local.root(), step).wait();
    let found = seen.result.unwrap();
    assert!(local.attributes(found.file).wait().is_ok());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
