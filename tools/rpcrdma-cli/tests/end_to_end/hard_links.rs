//! Files with several names that are copied.

use crate::memory::{serve, with};
use crate::running::{Served, ok};
use nfs_proto::Procedure;
use nfs_server::{LocalFs, LocalFsOptions};
use std::fs::hard_link;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A small and a large file with several names each, in two directories, and one with a name elsewhere.
fn tree(dir: &Path, elsewhere: &Path) {
    std::fs::create_dir_all(dir.join("deep")).unwrap();
    for (name, size) in [("small", 5_000), ("large", 300_000)] {
        let file = dir.join(name);
        std::fs::write(&file, vec![b'c'; size]).unwrap();
        hard_link(&file, dir.join(format!("{name}-too"))).unwrap();
        hard_link(&file, dir.join("deep").join(name)).unwrap();
    }
    std::fs::write(elsewhere, "content").unwrap();
    hard_link(elsewhere, dir.join("one-here")).unwrap();
    std::fs::write(dir.join("single"), "content").unwrap();
}

#[track_caller]
fn check(dir: &Path) {
    let number = |name: &str| dir.join(name).metadata().unwrap().ino();
    let links = |name: &str| dir.join(name).metadata().unwrap().nlink();
    for (name, size) in [("small", 5_000), ("large", 300_000)] {
        assert_eq!(std::fs::read(dir.join(name)).unwrap(), vec![b'c'; size]);
        assert_eq!(links(name), 3, "{name}");
        assert_eq!(number(name), number(&format!("{name}-too")));
        assert_eq!(number(name), number(&format!("deep/{name}")));
    }
    assert_ne!(number("small"), number("large"));
    for name in ["one-here", "single"] {
        assert_eq!(std::fs::read(dir.join(name)).unwrap(), b"content");
        assert_eq!(links(name), 1, "{name}");
    }
    let entries = dir.read_dir().unwrap().count();
    assert_eq!(entries, 7, "nothing temporary is left");
}

#[test]
fn names_of_one_file_are_names_of_one_copy_both_ways() {
    let served = Served::new(&[]);
    let from = served.around.path().join("tree");
    tree(&from, &served.around.path().join("elsewhere"));
    // The second time they replace what is there.
    for _ in 0..2 {
        ok(&["put", "-r", from.to_str().unwrap(), &served.url("")]);
        check(&served.dir.join("tree"));
    }
    let back = served.around.path().join("back");
    std::fs::create_dir(&back).unwrap();
    for _ in 0..2 {
        ok(&["get", "-r", &served.url("tree"), back.to_str().unwrap()]);
        check(&back.join("tree"));
    }
}

#[test]
fn further_name_of_a_file_that_is_not_copied_again_is_a_link_to_its_copy() {
    let served = Served::new(&[]);
    let (from, back) = (served.around.path(), served.beside("back"));
    for dir in ["d", "e", "back"] {
        std::fs::create_dir(from.join(dir)).unwrap();
    }
    std::fs::write(from.join("d/1"), "content").unwrap();
    hard_link(from.join("d/1"), from.join("d/2")).unwrap();
    let both = || {
        let dirs = ["d", "e"].map(|name| served.beside(name));
        ok(&["put", "-rpu", &dirs[0], &dirs[1], &served.url("")]);
        ok(&["get", "-rpu", &served.url("d"), &served.url("e"), &back]);
    };
    both();
    hard_link(from.join("d/1"), from.join("e/3")).unwrap();
    both();
    for dir in [&served.dir, Path::new(&back)] {
        let about = ["d/1", "d/2", "e/3"].map(|name| dir.join(name).metadata().unwrap());
        let expected = about[0].ino();
        assert!(
            about
                .iter()
                .all(|about| (about.ino(), about.nlink()) == (expected, 3))
        );
    }
    // What was changed there is no copy of it, even if it has the same size.
    for (name, changed) in [("e/4", "newer content"), ("e/5", "CONTENT")] {
        for dir in [&served.dir, Path::new(&back)] {
            std::fs::write(dir.join("d/1"), changed).unwrap();
        }
        hard_link(from.join("d/1"), from.join(name)).unwrap();
        both();
        for dir in [&served.dir, Path::new(&back)] {
            assert_eq!(std::fs::read(dir.join(name)).unwrap(), b"content");
            assert_eq!(std::fs::read(dir.join("d/1")).unwrap(), changed.as_bytes());
        }
    }
}

#[test]
fn temporary_name_does_not_stay_where_somebody_else_has_made_the_link() {
    let source = with(&["a"]);
    hard_link(source.path().join("a"), source.path().join("b")).unwrap();
    let there = with(&["b"]);
    let dir = there.path().to_owned();
    let files = LocalFs::open(&dir, LocalFsOptions::default()).unwrap();
    let url = serve(files, move |procedure, number| {
        // The first gives "a" its name, the second is to put a link in the place of "b".
        if procedure == Procedure::Rename && number == 1 {
            std::fs::remove_file(dir.join("b")).unwrap();
            hard_link(dir.join("a"), dir.join("b")).unwrap();
        }
        None
    });
    let all = format!("{}/.", source.path().display());
    ok(&["put", "-r", &all, &format!("{url}/")]);
    let names = there.path().read_dir().unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    let number = |name: &str| there.path().join(name).metadata().unwrap().ino();
    assert_eq!(number("a"), number("b"));
}
