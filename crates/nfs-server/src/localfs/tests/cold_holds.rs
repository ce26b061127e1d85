//! Files that clients keep open without a descriptor, as their handles find them again.

use super::*;
use crate::fs::{ByteRange, HeldFile, LockMode};

/// An export of which 8 files may be open, 6 of them as clients hold them; `None` where its handles cannot open files again.
fn export() -> Option<Export> {
    let mut export = Export::with_kernel_handles()?;
    export.restart_with(|opening| opening.open_files = Some(8));
    operations::held::holds_by_handle(&export.fs().layers).then_some(export)
}

fn name(n: usize) -> String {
    format!("f{n}")
}

impl Export {
    /// Opens files for clients, of which each has its number as data.
    fn hold_all(&self, count: usize) -> Vec<(FileId, Arc<dyn HeldFile>)> {
        let hold = |n: usize| {
            self.write(&name(n), &n.to_string());
            let file = self.find(&name(n)).unwrap();
            let access = OpenAccess::READ | OpenAccess::WRITE;
            let held = self.fs().open(&Identity::root(), file, access).wait();
            (file, held.unwrap())
        };
        (0..count).map(hold).collect()
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
    let stat = sys::stat(&fd, id::IdentifiedBy::Number).unwrap();
    let removal = export.fs().layers.handles.begin_removal(&fd, &stat);
    assert!(removal.is_some());
    drop(held);
    let held = export.hold_all(1);
    drop(removal);
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
        export.check(&held[..3]);
        let lost = |(file, _): &(FileId, _)| export.read(*file) == Err(Error::Stale);
        assert!(held[4..10].iter().filter(|held| lost(held)).count() >= 5);
        // The rest is used as before, by whoever comes.
        for (n, (file, held)) in held.iter().enumerate().skip(10) {
            assert_eq!(export.read(*file).unwrap(), n.to_string().as_bytes());
            assert!(held.open_for_locks().wait().is_ok());
        }
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
                        .map(|_| export.fs().open(&who, made, OpenAccess::READ).wait())
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
