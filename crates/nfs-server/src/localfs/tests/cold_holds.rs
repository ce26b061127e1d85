//! Files that clients keep open without a descriptor, as their handles find them again.

use super::*;
use crate::fs::{ByteRange, HeldFile, LockMode};
use oncrpc::PeerGroup;

/// An export of which 8 files may be open, 6 of them as clients hold them; `None` where its handles cannot open files again.
fn export() -> Option<Export> {
    export_with(8)
}

/// An export of which so many files may be open, three quarters of them as clients hold them.
fn export_with(open_files: usize) -> Option<Export> {
    let mut export = Export::with_kernel_handles()?;
    export.restart_with(|opening| opening.open_files = Some(open_files));
    operations::held::holds_by_handle(&export.fs().layers).then_some(export)
}

fn name(n: usize) -> String {
    format!("f{n}")
}

impl Export {
    /// Opens a file for a client of this address, with its number as data.
    fn hold_for(&self, holder: PeerGroup, n: usize) -> (FileId, Arc<dyn HeldFile>) {
        self.write(&name(n), &n.to_string());
        let file = self.find(&name(n)).unwrap();
        let access = OpenAccess::READ | OpenAccess::WRITE;
        let held = (self.fs()).open(&Identity::root(), file, access, holder);
        (file, held.wait().unwrap())
    }

    /// Opens files for clients, of which each has its number as data.
    fn hold_all(&self, count: usize) -> Vec<(FileId, Arc<dyn HeldFile>)> {
        (0..count).map(|n| self.hold_for(HERE, n)).collect()
    }

    fn remove(&self, n: usize) {
        let name = name(n);
        let name = Name::new(name.as_bytes()).unwrap();
        let root = self.fs().root();
        let done = self.fs().remove(&Identity::root(), root, name).wait();
        done.result.unwrap();
    }

    fn check(&self, held: &[(FileId, Arc<dyn HeldFile>)]) {
        for (n, (file, _)) in held.iter().enumerate() {
            assert_eq!(self.read(*file).unwrap(), n.to_string().as_bytes(), "{n}");
            assert!(self.fs().open_files() <= 8);
        }
    }
}

#[test]
fn more_files_are_held_than_there_are_descriptors_and_each_can_be_used_and_locked() {
    let Some(export) = export() else { return };
    let held = export.hold_all(50);
    assert!(export.fs().open_files() <= 8);
    export.check(&held);
    // Four owners of locks at a time leave descriptors for others.
    for some in held.chunks(4) {
        let locks: Vec<_> = (some.iter())
            .map(|(_, held)| held.open_for_locks().wait().unwrap())
            .collect();
        for (n, locks) in locks.iter().enumerate() {
            let locked = locks.lock(ByteRange::ALL, LockMode::Exclusive);
            assert_eq!(locked, Ok(None), "{n}");
            assert!(export.fs().open_files() + n < 13);
        }
    }
    drop(held);
    assert!(!export.fs().layers.files.has_holds());
}

#[test]
fn lock_stays_on_a_file_whose_hold_becomes_cold() {
    let Some(export) = export() else { return };
    let held = export.hold_all(20);
    let (file, first) = &held[0];
    let locks = first.open_for_locks().wait().unwrap();
    let lock = |locks: &dyn crate::fs::LockFile| locks.lock(ByteRange::ALL, LockMode::Exclusive);
    assert_eq!(lock(&*locks), Ok(None));
    export.check(&held);
    let other = first.open_for_locks().wait().unwrap();
    assert!(lock(&*other).unwrap().is_some());
    assert_eq!(export.read(*file).unwrap(), b"0");
    drop(locks);
    assert_eq!(lock(&*other), Ok(None));
}

#[test]
fn file_with_a_cold_hold_that_a_client_removes_or_replaces_lives_on() {
    let Some(export) = export() else { return };
    let held = export.hold_all(20);
    export.write("other", "other");
    export.remove(0);
    export.rename("other", &name(1));
    export.check(&held);
    // However much is opened meanwhile.
    drop(export.hold_all(0));
    export.check(&held);
    assert_eq!(export.stat(held[0].0).unwrap().links, 0);
    assert!(held[0].1.open_for_locks().wait().is_ok());
    assert_eq!(fs::read(export.path.join(name(1))).unwrap(), b"other");
    let files: Vec<_> = held.iter().map(|(file, _)| *file).collect();
    drop(held);
    assert_eq!(export.stat(files[0]), Err(Error::Stale));
    assert_eq!(export.stat(files[1]), Err(Error::Stale));
    assert_eq!(export.stat(files[2]).unwrap().links, 1);
}

#[test]
fn file_is_held_anew_while_a_name_of_it_is_removed() {
    let Some(export) = export() else { return };
    let held = export.hold_all(1);
    let fd = fs::File::open(export.path.join(name(0))).unwrap();
    let removals = export.fs().layers.handles.begin_removal(&fd);
    assert_eq!(removals.len(), 1);
    drop(held);
    let held = export.hold_all(1);
    drop(removals);
    export.check(&held);
    export.remove(0);
    export.check(&held);
}

#[test]
fn file_with_a_cold_hold_that_a_local_program_removes_is_stale() {
    let Some(export) = export() else { return };
    let held = export.hold_all(20);
    export.check(&held);
    fs::remove_file(export.path.join(name(0))).unwrap();
    assert_eq!(export.read(held[0].0), Err(Error::Stale));
    let locks = held[0].1.open_for_locks().wait();
    assert_eq!(locks.err(), Some(Error::Stale));
    export.check(&[]);
}

#[test]
fn file_that_a_local_program_removes_while_its_hold_is_warm_stays_so() {
    let Some(export) = export() else { return };
    let mut held = export.hold_all(1);
    fs::remove_file(export.path.join(name(0))).unwrap();
    let first = held.remove(0);
    let others = export.hold_all(20);
    export.check(&others);
    assert_eq!(export.read(first.0).unwrap(), b"0");
    drop(first.1);
    assert_eq!(export.read(first.0), Err(Error::Stale));
}

#[test]
fn files_without_a_name_have_half_of_the_descriptors_for_holds_and_others_go_with_their_names() {
    let Some(export) = export() else { return };
    let held = export.hold_all(20);
    for n in 0..10 {
        export.remove(n);
    }
    for _ in 0..2 {
        // The rest is used as before, by whoever comes.
        for (n, (file, held)) in held.iter().enumerate().skip(10) {
            assert_eq!(export.read(*file).unwrap(), n.to_string().as_bytes());
            assert!(held.open_for_locks().wait().is_ok());
        }
        // Now others have needed the descriptors.
        export.check(&held[..3]);
        let lost = |(file, _): &(FileId, _)| export.read(*file) == Err(Error::Stale);
        assert!(held[4..10].iter().filter(|held| lost(held)).count() >= 5);
    }
    drop(held);
    let again = export.hold_all(3);
    (0..3).for_each(|n| export.remove(n));
    export.check(&again);
}

#[test]
fn file_that_loses_one_of_its_names_takes_no_descriptor_for_long() {
    let Some(export) = export() else { return };
    let held = export.hold_all(20);
    for n in 0..20 {
        let path = export.path.join(name(n));
        fs::hard_link(&path, export.path.join(format!("other{n}"))).unwrap();
    }
    (0..20).for_each(|n| export.remove(n));
    export.check(&held);
    let locks: Vec<_> = (held[..4].iter())
        .map(|(_, held)| held.open_for_locks().wait())
        .collect();
    assert!(locks.iter().all(Result::is_ok));
}

#[test]
fn mode_that_changes_after_a_file_was_opened_does_not_keep_its_owner_from_it() {
    let Some(export) = export() else { return };
    let held = export.hold_all(20);
    let none = PermissionsExt::from_mode(0o000);
    fs::set_permissions(export.path.join(name(0)), none).unwrap();
    export.check(&held);
    let data = Gather::from_elem(Bytes::from_static(b"new"), 1);
    let wrote = export
        .fs()
        .write(&Identity::root(), held[0].0, 0, data, Stability::Unstable);
    assert!(wrote.wait().result.is_ok());
    assert!(held[0].1.open_for_locks().wait().is_ok());
}

#[test]
fn holds_come_and_go_while_names_do() {
    let Some(export) = export() else { return };
    let root = export.fs().root();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let export = &export;
            scope.spawn(move || {
                for round in 0..100 {
                    let text = format!("{thread}-{round}");
                    let who = Identity::root();
                    let name = Name::new(text.as_bytes()).unwrap();
                    let made = export.fs().make(&who, root, name, super::file(0o600));
                    let made = made.wait().result.unwrap().file;
                    let held: Vec<_> = (0..3)
                        .map(|_| export.fs().open(&who, made, OpenAccess::READ, HERE).wait())
                        .collect();
                    assert!(held.iter().all(Result::is_ok));
                    if round % 2 == 0 {
                        let removed = export.fs().remove(&who, root, name).wait();
                        removed.result.unwrap();
                    }
                    let used = export.read(made);
                    assert!(used.is_ok() || used == Err(Error::Stale), "{used:?}");
                    drop(held);
                    assert_eq!(export.stat(made).is_ok(), round % 2 == 1);
                }
            });
        }
    });
    assert!(!export.fs().layers.files.has_holds());
    assert_eq!(export.fs().layers.files.kept(), 0);
}

/// Of which one is above the other, and has its files by a table.
#[test]
fn file_with_a_cold_hold_that_a_client_removes_by_another_export_lives_on() {
    let Some(export) = export() else { return };
    for handles in [Handles::Auto, Handles::Table] {
        let held = export.hold_all(20);
        export.write("other", "other");
        export.check(&held);
        let above = options().with_handles(handles);
        let above = LocalFs::open(export.path.parent().unwrap(), above).unwrap();
        let who = Identity::root();
        let step = Step::new(b"export").unwrap();
        let dir = above.lookup(&who, above.root(), step).wait();
        let dir = dir.result.unwrap().file;
        let name = |name: &'static [u8]| Name::new(name).unwrap();
        let removed = above.remove(&who, dir, name(b"f0")).wait();
        removed.result.unwrap();
        let renamed = above.rename(&who, (dir, name(b"other")), (dir, name(b"f1")));
        renamed.wait().result.unwrap();
        export.check(&held);
        assert_eq!(export.stat(held[0].0).unwrap().links, 0, "{handles:?}");
        let replaced = fs::read(export.path.join("f1")).unwrap();
        assert_eq!(replaced, b"other");
        fs::remove_file(export.path.join("f1")).unwrap();
    }
}

fn address(last: u8) -> PeerGroup {
    PeerGroup::of([192, 0, 2, last].into())
}

#[test]
fn address_that_removes_many_files_it_has_open_loses_its_own_and_not_those_of_others() {
    let Some(export) = export() else { return };
    let mut held: Vec<_> = (0..10).map(|n| export.hold_for(address(1), n)).collect();
    (0..10).for_each(|n| export.remove(n));
    let lives = |n: usize, file: FileId| match export.read(file) {
        Ok(data) => {
            assert_eq!(data, n.to_string().as_bytes());
            true
        }
        Err(error) => {
            assert_eq!(error, Error::Stale);
            false
        }
    };
    let living = |held: &[(FileId, Arc<dyn HeldFile>)]| -> Vec<usize> {
        // Until others need it, a descriptor stays.
        let others: Vec<_> = (20..40).map(|n| export.hold_for(address(9), n)).collect();
        for (n, (file, _)) in (20..).zip(&others) {
            assert!(lives(n, *file));
        }
        drop(others);
        export.fs().layers.files.close_all();
        let all = held.iter().enumerate();
        all.filter(|(n, (file, _))| lives(*n, *file))
            .map(|(n, _)| n)
            .collect()
    };
    assert_eq!(living(&held), [0, 1, 2], "half of the descriptors");
    for last in [2, 3] {
        let n = held.len();
        held.push(export.hold_for(address(last), n));
        export.remove(n);
    }
    assert_eq!(living(&held), [2, 10, 11]);
    // They have equal parts now.
    let n = held.len();
    held.push(export.hold_for(address(2), n));
    export.remove(n);
    assert_eq!(living(&held), [2, 10, 11]);
    drop(held);
    let again: Vec<_> = (0..3).map(|n| export.hold_for(address(1), n)).collect();
    (0..3).for_each(|n| export.remove(n));
    assert_eq!(living(&again), [0, 1, 2]);
}

#[test]
fn file_without_a_name_that_several_addresses_hold_is_counted_for_one_that_still_does() {
    let Some(export) = export() else { return };
    let own = export.hold_for(address(2), 0);
    export.remove(0);
    let (file, first) = export.hold_for(address(1), 1);
    let held = [2, 1].map(|last| export.hold_for(address(last), 1).1);
    export.remove(1);
    // That of address 1, which had none.
    drop(first);
    let [second, of_first] = held;
    drop(of_first);
    assert_eq!(export.read(file).unwrap(), b"1");
    // Address 2 has two, and loses the first of them.
    let others = [(3, 3), (4, 4)].map(|(last, n)| export.hold_for(address(last), n));
    [3, 4].into_iter().for_each(|n| export.remove(n));
    export.fs().layers.files.close_all();
    assert_eq!(export.read(own.0), Err(Error::Stale));
    for (n, (file, _)) in [3, 4].into_iter().zip(&others) {
        assert_eq!(export.read(*file).unwrap(), n.to_string().as_bytes());
    }
    assert_eq!(export.read(file).unwrap(), b"1");
    drop(second);
    assert_eq!(export.read(file), Err(Error::Stale));
}

#[test]
fn removal_that_takes_no_file_away_loses_no_file_of_another_address() {
    let Some(export) = export() else { return };
    let full: Vec<_> = (0..3).map(|n| export.hold_for(address(1), n)).collect();
    (0..3).for_each(|n| export.remove(n));
    let other = export.hold_for(address(2), 3);
    let beside = export.path.join("beside");
    fs::hard_link(export.path.join(name(3)), &beside).unwrap();
    let (root, who) = (export.fs().root(), Identity::new(1001, 1001));
    let named = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    // In a directory where the caller may not do that.
    let refused = export.fs().remove(&who, root, named("f3")).wait();
    assert_eq!(refused.result, Err(Error::Access));
    export.write("more", "more");
    let (from, to) = ((root, named("more")), (root, named("f3")));
    let refused = export.fs().rename(&who, from, to).wait();
    assert_eq!(refused.result, Err(Error::Access));
    // To another name of the same file, which does nothing.
    export.rename("beside", "f3");
    assert!(beside.exists());
    export.remove(3);
    export.fs().layers.files.close_all();
    export.check(&full);
    assert_eq!(export.read(other.0).unwrap(), b"3");
}

#[test]
fn file_that_is_held_by_an_address_with_few_others_is_lost_for_none() {
    let Some(export) = export() else { return };
    // Address 2 has one already when the file goes that both hold: it counts for address 1.
    let of_two = export.hold_for(address(2), 9);
    export.remove(9);
    let both = [1, 2].map(|last| export.hold_for(address(last), 0));
    export.remove(0);
    drop(of_two);
    let held: Vec<_> = (1..3).map(|n| export.hold_for(address(1), n)).collect();
    let newcomer = export.hold_for(address(3), 3);
    (1..4).for_each(|n| export.remove(n));
    export.fs().layers.files.close_all();
    assert_eq!(export.read(both[0].0).unwrap(), b"0");
    assert_eq!(export.read(held[0].0), Err(Error::Stale));
    assert_eq!(export.read(held[1].0).unwrap(), b"2");
    assert_eq!(export.read(newcomer.0).unwrap(), b"3");
}

#[test]
fn removed_file_finds_a_place_after_local_programs_removed_many() {
    let Some(export) = export_with(80) else {
        return;
    };
    // Of these 60 are warm, and the first one is cold.
    let held = export.hold_all(61);
    export.fs().layers.files.close_all();
    for n in 1..=20 {
        fs::remove_file(export.path.join(name(n))).unwrap();
    }
    export.remove(0);
    export.fs().layers.files.close_all();
    for (n, (file, _)) in held.iter().enumerate().take(21) {
        assert_eq!(export.read(*file).unwrap(), n.to_string().as_bytes());
    }
}

#[test]
fn hold_that_ends_late_does_not_end_one_that_began_after_the_root_was_replaced() {
    let Some(export) = export() else { return };
    let before = export.hold_all(1);
    let file = fs::File::open(export.path.join(name(0))).unwrap();
    let removals = export.fs().layers.handles.begin_removal(&file);
    assert_eq!(export.fs().layers.files.forget_all_held(), 1);
    let held = export.hold_all(1);
    drop((removals, before));
    export.remove(0);
    export.check(&held);
    export.fs().layers.files.close_all();
    export.check(&held);
}

#[test]
fn file_that_is_lost_is_closed_by_the_sweeper() {
    let Some(export) = export() else { return };
    let held: Vec<_> = [1, 1, 1, 2]
        .into_iter()
        .enumerate()
        .map(|(n, last)| export.hold_for(address(last), n))
        .collect();
    let freed = |n: usize| {
        let opened = fs::read_dir("/proc/self/fd").unwrap();
        let path = fs::canonicalize(&export.path).unwrap().join(name(n));
        let deleted = format!("{} (deleted)", path.display());
        let mut targets = opened.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        !targets.any(|target| target.to_string_lossy() == deleted)
    };
    (0..4).for_each(|n| export.remove(n));
    export.fs().layers.files.close_all();
    assert_eq!(export.read(held[0].0), Err(Error::Stale));
    assert!(!freed(0), "by the call");
    drop(export.fs().layers.files.begin_round());
    assert!(freed(0));
}

#[test]
fn call_that_found_a_file_before_it_was_closed_and_held_sees_that_it_is_held() {
    let Some(export) = export() else { return };
    export.write(&name(0), "0");
    let layers = &export.fs().layers;
    let file = export.find(&name(0)).unwrap();
    let node = layers.handles.node(file, Pace::Patient).unwrap();
    layers.files.close_all();
    let held = export.hold_all(1);
    export.remove(0);
    assert!(layers.files.attributes(&node).is_ok());
    export.check(&held);
    drop(held);
    assert!(layers.files.attributes(&node).is_err());
}

#[test]
fn path_of_a_held_file_is_told_without_a_descriptor_and_not_made_up() {
    let Some(export) = export() else { return };
    let held = export.hold_all(20);
    export.remove(19);
    export.check(&held);
    let path = fs::canonicalize(&export.path).unwrap();
    for (n, (_, held)) in held.iter().enumerate() {
        let expected = match n {
            19 => None,
            _ => Some(path.join(name(n))),
        };
        let deleted = |path: &PathBuf| path.to_string_lossy().ends_with(" (deleted)");
        assert_eq!(held.path().filter(|path| !deleted(path)), expected, "{n}");
    }
    assert!(export.fs().open_files() <= 8);
}
