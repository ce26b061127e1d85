//! Handles lead to the same file across restarts, renames and removals.

use super::*;
use crate::localfs::volume::fileid::FileIds;

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

fn handles_from_a_listing_survive_a_restart() {
    let mut export = Export::new();
    export.write("d/sub/f", "f");
    let (from, budget) = (DirFrom::START, DirBudget::PAGE);
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

fn file_removed_by_others_is_stale_though_it_is_open() {
    let export = Export::new();
    export.write("f", "data");
    let f = export.find("f").unwrap();
    assert_eq!(export.read(f).unwrap(), b"data");
    fs::remove_file(export.path.join("f")).unwrap();
    assert_eq!(export.read(f), Err(Error::Stale));
    assert_eq!(export.stat(f), Err(Error::Stale));
}

fn handles_without_state_last_as_long_as_the_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), b"x").unwrap();
    let local = LocalFs::open(dir.path(), options()).unwrap();
    let step = Step::Name(Name::new(b"f").unwrap());
    let seen = local.lookup(&Identity::root(), local.root(), step).wait();
    let found = seen.result.unwrap();
    assert!(local.attributes(found.file).wait().is_ok());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// As in a nested subvolume of btrfs, or where numbers come from handles: a client takes a file whose number changes for another one.
#[test]
fn new_file_has_the_number_that_it_has_later() {
    let mut export = Export::new();
    export.restart_with(|opening| opening.volume.file_ids = FileIds::Ids);
    let root = export.fs().root();
    let check = |name: &str, what: Make| {
        let name = Name::new(name.as_bytes()).unwrap();
        let made = export.fs().make(&Identity::root(), root, name, what).wait();
        let made = made.result.unwrap();
        assert_eq!(
            made.attributes.fileid,
            export.stat(made.file).unwrap().fileid
        );
    };
    let plain = SetAttributes::default();
    let group = SetAttributes {
        size: Some(1),
        ..plain
    };
    check("f", file(0o644));
    check("g", Make::File(CreateHow::Guarded(group)));
    check("d", Make::Directory(SetAttributes::mode(0o755)));
    check("l", Make::Symlink(b"text".as_slice().into(), plain));
    check("p", Make::Special(FileKind::Fifo, (0, 0), plain));
    for _ in 0..2 {
        check("x", Make::File(CreateHow::Exclusive([1; 8], plain)));
        check("u", Make::File(CreateHow::Unchecked(plain)));
        check(
            "s",
            Make::File(CreateHow::Unchecked(SetAttributes::size(0))),
        );
    }
}

in_both_ways! {
    handles_survive_a_restart
    handles_from_a_listing_survive_a_restart
    handles_of_moved_files_survive_a_restart
    all_names_of_a_file_lead_to_one_handle_after_a_restart
    file_that_loses_names_is_found_by_those_that_are_left
    file_renamed_by_others_within_its_directory_is_found_again
    another_file_at_the_same_path_is_not_mistaken_for_the_first
    file_removed_by_others_is_stale_though_it_is_open
    handles_without_state_last_as_long_as_the_server
}

/// On a file system that gives no numbers that identify a file, each name has a handle of its own,
/// and a file that a client moves keeps its handle, also when another one gets its name and number.
fn file_keeps_its_handle_when_another_gets_its_name() {
    let mut export = Export::new();
    let names = [("a", "first"), ("a", "second"), ("d/a", "third")];
    export.write("d/x", "");
    let mut files = Vec::new();
    for (n, (name, text)) in names.into_iter().enumerate() {
        export.write(name, text);
        files.push((export.find(name).unwrap(), text));
        export.rename(name, &format!("moved{n}"));
        export.restart();
    }
    export.write("a", "last");
    files.push((export.find("a").unwrap(), "last"));
    for _ in 0..2 {
        for (n, (file, text)) in files.iter().enumerate() {
            assert_eq!(export.read(*file).unwrap(), text.as_bytes());
            let others = &files[n + 1..];
            assert!(others.iter().all(|(other, _)| other != file));
        }
        assert_eq!(export.find("moved1").unwrap(), files[1].0);
        assert_eq!(export.find("a").unwrap(), files[3].0);
        export.restart();
    }
    // Once it is gone, a new file may have its number.
    fs::remove_file(export.path.join("moved0")).unwrap();
    fs::remove_file(export.path.join("moved1")).unwrap();
    fs::remove_file(export.path.join("a")).unwrap();
    export.write("a", "new");
    let new = export.find("a").unwrap();
    assert_eq!(export.read(new).unwrap(), b"new");
    export.rename("a", "b");
    export.write("moved0", "other");
    let other = export.find("moved0").unwrap();
    assert_ne!(other, new);
    assert_eq!(export.read(other).unwrap(), b"other");
    assert_eq!(export.read(new).unwrap(), b"new");
}

by_path! {
    handles_survive_a_restart
    handles_from_a_listing_survive_a_restart
    handles_of_moved_files_survive_a_restart
    all_names_of_a_file_lead_to_one_handle_after_a_restart
    file_that_loses_names_is_found_by_those_that_are_left
    file_removed_by_others_is_stale_though_it_is_open
    handles_without_state_last_as_long_as_the_server
    file_keeps_its_handle_when_another_gets_its_name
}
