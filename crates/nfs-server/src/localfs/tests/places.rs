//! The table leads to files that are not where their handles say.

use super::*;
use crate::localfs::id::TableId;

#[test]
fn directories_are_made_as_deep_as_they_are_found_again() {
    let mut export = Export::with_table();
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
    let mut export = Export::with_table();
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

/// State that a server that is killed now would leave behind.
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
    let mut export = Export::with_table();
    export.restart_with(|opening| opening.changes = Changes::Durable);
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

/// The sweeper forgets what was removed, and not what has its number by now.
#[test]
fn directory_made_again_with_its_number_is_found_after_a_restart() {
    crate::localfs::AS_IF.set(Some(IdentifiedBy::Path));
    let mut export = Export::with_table();
    export.restart_with(|_| {});
    export.write("d/e/f", "old");
    let e = export.find("d/e").unwrap();
    fs::remove_dir_all(export.path.join("d/e")).unwrap();
    assert_eq!(export.stat(e), Err(Error::Stale));
    export.write("d/e/f", "new");
    let f = export.find("d/e/f").unwrap();
    assert_eq!(export.find("d/e"), Ok(e), "it has the number");
    export.fs().layers.end_round();
    assert_eq!(export.read(f).unwrap(), b"new");
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"new");
}

#[test]
fn files_are_searched_for_when_the_table_is_lost() {
    let mut export = Export::with_table();
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
    let mut export = Export::with_table();
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
    let mut export = Export::with_table();
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
    let link = |ino| {
        export
            .fs()
            .layers
            .handles
            .by_location()
            .links()
            .get(ino)
            .cloned()
            .unwrap()
    };
    let ino = |file| TableId::parse(file).unwrap().number;
    for (file, name) in [(d, "d"), (g, "g")] {
        let dir = [("a", a), ("b", b), ("c", c)]
            .into_iter()
            .find(|(dir, _)| export.path.join(dir).join(name).exists());
        assert_eq!(link(ino(file)).parent, ino(dir.unwrap().1));
    }
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"below");
    assert_eq!(export.read(g).unwrap(), b"file");
}

impl Export {
    /// Waits until a change of a directory shows in its times.
    fn settle(&self, dir: &str) {
        let dir = fs::metadata(self.path.join(dir)).unwrap();
        let changed = Time {
            seconds: dir.ctime(),
            nanos: u32::try_from(dir.ctime_nsec()).unwrap(),
        };
        let since = |now: Time| {
            let nanos = i64::from(now.nanos) - i64::from(changed.nanos);
            (now.seconds - changed.seconds) * 1_000_000_000 + nanos
        };
        while since(sys::coarse_now()) <= 20_000_000 {
            std::hint::spin_loop();
        }
    }

    fn passes(&self) -> u64 {
        self.fs().layers.handles.by_location().passes.count()
    }
}

#[test]
fn one_pass_over_a_directory_finds_all_its_files_until_it_changes() {
    let mut export = Export::with_table();
    let names: Vec<String> = (0..500).map(|n| format!("d/f{n}")).collect();
    for name in &names {
        export.write(name, "");
    }
    let files: Vec<FileId> = names
        .iter()
        .map(|name| export.find(name).unwrap())
        .collect();
    for name in &names[..100] {
        fs::remove_file(export.path.join(name)).unwrap();
    }
    export.settle("d");
    export.restart();
    for _ in 0..3 {
        for (n, file) in files.iter().enumerate() {
            assert_eq!(export.stat(*file).is_ok(), n >= 100, "{n}");
        }
        assert_eq!(export.passes(), 1);
    }
    fs::rename(export.path.join("d/f400"), export.path.join("d/other")).unwrap();
    export.settle("d");
    for file in &files[..100] {
        assert_eq!(export.stat(*file), Err(Error::Stale));
    }
    assert_eq!(export.passes(), 2);
    export.fs().layers.handles.by_location().links().trim(0);
    export.fs().layers.files.close_all();
    assert!(export.stat(files[400]).is_ok());
    assert_eq!(export.find("d/other").unwrap(), files[400]);
    assert_eq!(export.passes(), 2);
}

#[test]
fn directory_whose_times_are_not_known_to_be_ours_is_passed_over_each_time() {
    let mut export = Export::with_table();
    export.write("d/f", "");
    export.write("d/g", "");
    let [f, g] = ["d/f", "d/g"].map(|path| export.find(path).unwrap());
    fs::remove_file(export.path.join("d/f")).unwrap();
    export.restart();
    export.restart_with(|opening| opening.volume.local = false);
    for pass in 1..4 {
        assert_eq!(export.stat(f), Err(Error::Stale));
        assert_eq!(export.passes(), pass);
    }
    assert!(export.stat(g).is_ok());
}

#[test]
fn all_names_of_a_file_in_one_directory_are_tried() {
    let mut export = Export::with_table();
    export.write("d/a", "file");
    fs::hard_link(export.path.join("d/a"), export.path.join("d/b")).unwrap();
    let f = export.find("d/a").unwrap();
    export.fs = None;
    for (from, to) in [("d/a", "d/x"), ("d/b", "d/y")] {
        fs::rename(export.path.join(from), export.path.join(to)).unwrap();
    }
    export.restart();
    assert_eq!(export.read(f).unwrap(), b"file");
}

#[test]
fn row_of_a_file_that_is_nowhere_is_removed() {
    let mut export = Export::with_table();
    export.write("a/f", "");
    export.write("b/x", "");
    let f = export.find("a/f").unwrap();
    export.rename("a/f", "b/f");
    export.fs = None;
    fs::remove_file(export.path.join("b/f")).unwrap();
    export.restart();
    let ino = TableId::parse(f).unwrap().number;
    assert!(
        export
            .fs()
            .layers
            .handles
            .by_location()
            .row(ino)
            .unwrap()
            .is_some()
    );
    assert_eq!(export.stat(f), Err(Error::Stale));
    assert!(
        export
            .fs()
            .layers
            .handles
            .by_location()
            .row(ino)
            .unwrap()
            .is_none()
    );
}

#[test]
fn what_the_table_cannot_keep_is_refused_and_not_done() {
    let export = Export::with_table();
    export.write("a/f", "");
    export.write("b/x", "");
    let [a, b, f] = ["a", "b", "a/f"].map(|path| export.find(path).unwrap());
    let (local, who) = (export.fs(), Identity::root());
    let name = |name| Name::new(name).unwrap();
    let table = &local.layers.handles.by_location().table;
    let attempts = || {
        let make = Make::Directory(SetAttributes::mode(0o755));
        let renamed = local.rename(&who, (a, name(b"f")), (b, name(b"f"))).wait();
        let linked = local.link(&who, f, b, name(b"g")).wait();
        [
            export.make_as(&who, a, "d", make).map(|_| ()),
            renamed.result,
            linked.result,
        ]
    };
    let there = || ["a/d", "b/f", "b/g"].map(|path| export.path.join(path).exists());
    table.committed(Err(Error::NoSpace));
    assert_eq!(attempts(), [Err(Error::NoSpace); 3]);
    assert_eq!(there(), [false; 3]);
    // What needs no row is done.
    let made = export.make_as(&who, a, "g", file(0o644));
    assert!(made.is_ok());
    table.committed(Ok(()));
    assert_eq!(attempts(), [Ok(()); 3]);
    assert_eq!(there(), [true; 3]);
}

/// On a real file system that has no room left.
#[test]
fn directories_made_until_the_state_disk_is_full_are_found_and_no_more_are_made() {
    if !mounts::mounts_alone() {
        eprintln!("this process may not mount: skipped");
        return;
    }
    let mut export = Export::with_table();
    export.fs = None;
    let mount = |at: &Path, options: &std::ffi::CStr| {
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", at, "tmpfs", flags, options).unwrap();
    };
    mount(&export.path, c"size=64m");
    mount(&export.state, c"size=4m");
    let durable = |opening: &mut Opening| opening.changes = Changes::Durable;
    export.restart_with(durable);
    let who = Identity::root();
    let root = export.fs().root();
    let make = |export: &Export, number: usize| {
        let name = format!("{number:0200}");
        let dir = Make::Directory(SetAttributes::mode(0o755));
        let made = export.make_as(&who, root, &name, dir);
        made.map_err(|error| (error, export.path.join(name)))
    };
    let mut made = vec![make(&export, 0).unwrap()];

    let filler = export.state.join("filler");
    let mut full = fs::File::create(&filler).unwrap();
    while std::io::Write::write(&mut full, &[0; 4096]).is_ok() {}
    let refused = loop {
        match make(&export, made.len()) {
            Ok(dir) => made.push(dir),
            Err((error, _)) => break error,
        }
        assert!(made.len() < 20_000, "the state needs room");
    };
    assert_eq!(refused, Error::NoSpace);
    let (error, path) = make(&export, made.len() + 1).unwrap_err();
    assert_eq!(error, Error::NoSpace);
    assert!(!path.exists(), "nothing is changed");

    drop(full);
    fs::remove_file(&filler).unwrap();
    export.restart_with(durable);
    for dir in &made {
        assert!(export.stat(*dir).is_ok());
    }
    assert!(make(&export, made.len() + 1).is_ok());
    export.fs = None;
    for at in [&export.path, &export.state] {
        let flags = rustix::mount::UnmountFlags::empty();
        rustix::mount::unmount(at, flags).unwrap();
    }
}
