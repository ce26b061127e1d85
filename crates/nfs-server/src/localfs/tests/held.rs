//! Files that clients keep open, and their locks beside those of local programs.

use super::*;
use crate::fs::{ByteRange, LocalLock, LockFile, LockMode};
use crate::localfs::volume::change_values::ChangeValues;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

const WHOLE: ByteRange = ByteRange::ALL;

fn bytes(first: u64, last: u64) -> ByteRange {
    ByteRange { first, last }
}

/// A local program with a file open.
struct Program(fs::File);

impl Program {
    fn open(export: &Export, name: &str) -> Self {
        let mut options = fs::File::options();
        let opened = options.read(true).write(true).open(export.path.join(name));
        Self(opened.unwrap())
    }

    fn lock(kind: libc::c_int, range: ByteRange) -> libc::flock {
        libc::flock {
            l_type: kind.try_into().unwrap(),
            l_whence: libc::SEEK_SET.try_into().unwrap(),
            l_start: range.first.try_into().unwrap(),
            l_len: i64::try_from(range.last)
                .map_or(0, |last| last - i64::try_from(range.first).unwrap() + 1),
            l_pid: 0,
        }
    }

    /// Locks bytes for its open file description, or unlocks them.
    fn set(&self, kind: libc::c_int, range: ByteRange) -> bool {
        fcntl(&self.0, FcntlArg::F_OFD_SETLK(&Self::lock(kind, range))).is_ok()
    }

    /// Locks bytes for its process, as POSIX has it, or unlocks them.
    fn set_of_process(&self, kind: libc::c_int, range: ByteRange) -> bool {
        fcntl(&self.0, FcntlArg::F_SETLK(&Self::lock(kind, range))).is_ok()
    }
}

impl Export {
    fn hold(&self, name: &str) -> Result<Arc<dyn HeldFile>, Error> {
        let access = OpenAccess::READ | OpenAccess::WRITE;
        let file = self.find(name)?;
        self.fs().open(&Identity::root(), file, access, HERE).wait()
    }

    fn locks(&self, name: &str) -> Arc<dyn LockFile> {
        let held = self.hold(name).unwrap();
        held.open_for_locks().wait().unwrap()
    }
}

fn local_programs_and_clients_see_the_locks_of_each_other() {
    let export = Export::new();
    export.write("f", "data");
    let (program, client) = (Program::open(&export, "f"), export.locks("f"));
    let exclusive = LockMode::Exclusive;
    type Set = fn(&Program, libc::c_int, ByteRange) -> bool;
    let ways: [(Set, bool); 2] = [(Program::set, false), (Program::set_of_process, true)];
    for (set, is_tested) in ways {
        assert!(set(&program, libc::F_WRLCK, bytes(10, 19)));
        let found = LocalLock {
            range: bytes(10, 19),
            mode: exclusive,
        };
        assert_eq!(client.lock(WHOLE, exclusive), Ok(Some(found)));
        assert_eq!(
            client.lock(bytes(19, 30), LockMode::Shared),
            Ok(Some(found))
        );
        // A lock of an open file description may be one of another owner.
        let tested = is_tested.then_some(found);
        assert_eq!(client.test(bytes(0, 10), LockMode::Shared), Ok(tested));
        assert_eq!(client.test(bytes(20, u64::MAX), exclusive), Ok(None));
        assert_eq!(client.lock(bytes(20, u64::MAX), exclusive), Ok(None));
        assert!(!set(&program, libc::F_RDLCK, bytes(15, 20)));
        client.unlock(WHOLE);
        assert!(set(&program, libc::F_RDLCK, WHOLE));
        let shared = LocalLock {
            range: WHOLE,
            mode: LockMode::Shared,
        };
        assert_eq!(client.lock(bytes(5, 6), LockMode::Shared), Ok(None));
        assert_eq!(client.lock(bytes(5, 6), exclusive), Ok(Some(shared)));
        assert!(!set(&program, libc::F_WRLCK, bytes(0, 5)));
        assert!(set(&program, libc::F_WRLCK, bytes(0, 4)));
        client.unlock(WHOLE);
        assert!(set(&program, libc::F_UNLCK, WHOLE));
    }
}

fn locks_are_raised_and_lowered_and_end_with_their_owner() {
    let export = Export::new();
    export.write("f", "data");
    let (program, client) = (Program::open(&export, "f"), export.locks("f"));
    assert_eq!(client.lock(WHOLE, LockMode::Exclusive), Ok(None));
    assert_eq!(client.lock(bytes(10, 19), LockMode::Shared), Ok(None));
    assert!(program.set(libc::F_RDLCK, bytes(10, 19)));
    assert!(!program.set(libc::F_RDLCK, bytes(9, 9)));
    assert!(!program.set(libc::F_RDLCK, bytes(20, 20)));
    // In vain: what it has stays.
    let in_the_way = client.lock(WHOLE, LockMode::Exclusive).unwrap();
    assert!(in_the_way.is_some());
    assert!(!program.set(libc::F_WRLCK, bytes(10, 19)));
    client.unlock(bytes(0, 9));
    assert!(program.set(libc::F_WRLCK, bytes(0, 9)));
    drop(client);
    assert!(program.set(libc::F_WRLCK, WHOLE));
}

fn owners_of_locks_exclude_each_other_and_other_files_do_not_matter() {
    let export = Export::new();
    export.write("f", "data");
    export.write("g", "data");
    let (one, other) = (export.locks("f"), export.locks("f"));
    let exclusive = LockMode::Exclusive;
    assert_eq!(one.lock(bytes(0, 9), exclusive), Ok(None));
    let found = LocalLock {
        range: bytes(0, 9),
        mode: exclusive,
    };
    assert_eq!(other.lock(bytes(9, 10), LockMode::Shared), Ok(Some(found)));
    assert_eq!(other.test(bytes(9, 10), LockMode::Shared), Ok(None));
    assert_eq!(other.lock(bytes(10, 19), exclusive), Ok(None));
    assert_eq!(export.locks("g").lock(WHOLE, exclusive), Ok(None));
    // Another descriptor of the file is closed.
    assert_eq!(export.read(export.find("f").unwrap()).unwrap(), b"data");
    export.fs().layers.files.close_all();
    drop(export.locks("f"));
    assert!(one.lock(WHOLE, exclusive).unwrap().is_some());
    drop(other);
    assert_eq!(one.lock(WHOLE, exclusive), Ok(None));
}

fn ranges_beyond_what_the_kernel_has_are_left_to_the_server() {
    const END: u64 = i64::MAX.unsigned_abs();
    let export = Export::new();
    export.write("f", "data");
    let (one, other) = (export.locks("f"), export.locks("f"));
    let exclusive = LockMode::Exclusive;
    assert_eq!(one.lock(bytes(END + 1, END + 5), exclusive), Ok(None));
    assert_eq!(other.lock(bytes(END + 6, u64::MAX), exclusive), Ok(None));
    assert_eq!(other.lock(bytes(END, END + 5), exclusive), Ok(None));
    assert_eq!(one.lock(bytes(0, END - 1), exclusive), Ok(None));
    let found = one.lock(bytes(0, u64::MAX), exclusive).unwrap().unwrap();
    assert_eq!(found.range, bytes(END, u64::MAX));
}

/// As those of FUSE or NFS, which could wait for another process or machine.
fn locks_on_other_file_systems_are_those_of_the_server_alone() {
    let mut export = Export::new();
    export.write("f", "data");
    export.restart_with(|opening| opening.volume.local = false);
    let (program, client) = (Program::open(&export, "f"), export.locks("f"));
    assert!(program.set(libc::F_WRLCK, WHOLE));
    assert_eq!(client.lock(WHOLE, LockMode::Exclusive), Ok(None));
    assert_eq!(client.test(WHOLE, LockMode::Exclusive), Ok(None));
    client.unlock(WHOLE);
    assert!(!Program::open(&export, "f").set(libc::F_RDLCK, WHOLE));
}

/// Without the rights of root, files are opened with those of the user who runs the server.
#[test]
fn process_that_acts_for_nobody_holds_what_it_may_open() {
    let mut export = Export::new();
    export.restart_with(|opening| opening.process.acts_for_callers = false);
    export.write("f", "data");
    let set_mode = |mode| {
        let mode = PermissionsExt::from_mode(mode);
        fs::set_permissions(export.path.join("f"), mode).unwrap();
    };
    let f = export.find("f").unwrap();
    let open = |access| export.fs().open(&Identity::root(), f, access, HERE).wait();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            turns::drop_capabilities();
            set_mode(0o400);
            assert_eq!(open(OpenAccess::WRITE).err(), Some(Error::Access));
            let held = open(OpenAccess::READ).unwrap();
            let locks = held.open_for_locks().wait().unwrap();
            assert_eq!(locks.lock(WHOLE, LockMode::Shared), Ok(None));
            let exclusive = locks.lock(WHOLE, LockMode::Exclusive);
            assert_eq!(exclusive, Err(Error::Access));
            // Whoever has it open goes on reading it.
            set_mode(0o000);
            assert_eq!(export.read(f).unwrap(), b"data");
            set_mode(0o200);
            assert!(open(OpenAccess::WRITE).is_ok());
        });
    });
}

fn held_file_removed_by_others_is_used_until_it_is_released_however_idle_it_is() {
    let mut export = Export::new();
    export.restart_with(|_| {});
    export.write("f", "data");
    let file = export.find("f").unwrap();
    let held = export.hold("f").unwrap();
    fs::remove_file(export.path.join("f")).unwrap();
    for _ in 0..3 {
        export.fs().layers.end_round();
    }
    export.fs().layers.files.close_all();
    assert_eq!(export.fs().open_files(), 1);
    assert_eq!(export.stat(file).unwrap().links, 0);
    assert_eq!(export.read(file).unwrap(), b"data");
    let locks = held.open_for_locks().wait().unwrap();
    assert_eq!(locks.lock(WHOLE, LockMode::Exclusive), Ok(None));
    drop(held);
    assert_eq!(export.stat(file), Err(Error::Stale));
    assert_eq!(export.fs().open_files(), 0);
    // Where inode numbers are used again at once, it may have that of the one before.
    export.write("f", "new");
    let new = export.find("f").unwrap();
    assert_ne!(new, file);
    assert_eq!(export.read(new).unwrap(), b"new");
    assert_eq!(export.stat(file), Err(Error::Stale));
}

#[test]
fn hold_ends_at_once_unless_its_file_would_be_closed() {
    let mut export = Export::new();
    export.restart_with(|_| {});
    let end_at_once = |held: &mut Arc<dyn HeldFile>| {
        let held = Arc::get_mut(held).unwrap();
        held.end_at_once()
    };
    for name in ["f", "closed", "removed"] {
        export.write(name, "data");
    }
    let (mut one, mut other) = (export.hold("f").unwrap(), export.hold("f").unwrap());
    assert!(end_at_once(&mut one));
    assert!(export.fs().layers.files.has_holds());
    assert!(end_at_once(&mut other));
    assert!(!export.fs().layers.files.has_holds());
    drop((one, other));
    assert!(export.read(export.find("f").unwrap()).is_ok());

    let mut held = export.hold("closed").unwrap();
    export.fs().layers.files.close_all();
    assert!(!end_at_once(&mut held));
    drop(held);
    assert!(!export.fs().layers.files.has_holds());

    let removed = export.find("removed").unwrap();
    let mut held = export.hold("removed").unwrap();
    fs::remove_file(export.path.join("removed")).unwrap();
    assert!(!end_at_once(&mut held));
    drop(held);
    assert_eq!(export.stat(removed), Err(Error::Stale));
}

/// Kernel handles need no row; a table has one of each file that was moved.
#[test]
fn row_of_a_held_file_is_removed_after_it_was_released() {
    let mut export = Export::with_table();
    export.restart_with(|_| {});
    export.write("d/f", "data");
    export.write("e/other", "");
    export.rename("d/f", "e/f");
    let file = export.find("e/f").unwrap();
    let held = export.hold("e/f").unwrap();
    fs::remove_file(export.path.join("e/f")).unwrap();
    let number = crate::localfs::id::TableId::parse(file).unwrap().number;
    let has_row = || {
        let finder = export.fs().layers.handles.by_location();
        finder.table.get(number).unwrap().is_some()
    };
    export.fs().layers.end_round();
    assert_eq!(export.read(file).unwrap(), b"data");
    assert!(has_row());
    drop(held);
    export.fs().layers.end_round();
    assert!(!has_row());
    assert_eq!(export.stat(file), Err(Error::Stale));
}

#[test]
fn files_and_locks_that_clients_keep_are_bounded_where_handles_do_not_find_them() {
    let mut export = Export::with_table();
    export.restart_with(|opening| opening.open_files = Some(8));
    for n in 0..20 {
        export.write(&format!("{n}"), "data");
    }
    let mut held: Vec<_> = (0..5)
        .map(|n| export.hold(&n.to_string()).unwrap())
        .collect();
    // Each of them once more takes no descriptor.
    held.extend((0..5).map(|n| export.hold(&n.to_string()).unwrap()));
    let locks = held[0].open_for_locks().wait().unwrap();
    assert_eq!(export.hold("5").err(), Some(Error::Busy));
    assert_eq!(held[1].open_for_locks().wait().err(), Some(Error::Busy));
    for n in 0..20 {
        let file = export.find(&n.to_string()).unwrap();
        assert_eq!(export.read(file).unwrap(), b"data");
        assert!(export.fs().open_files() <= 8);
    }
    drop(locks);
    held.push(export.hold("5").unwrap());
    assert_eq!(export.hold("6").err(), Some(Error::Busy));
    drop(held);
    export.hold("6").unwrap();
}

fn holds_of_one_file_come_and_go_at_the_same_time() {
    let export = Export::new();
    export.write("f", "data");
    let file = export.find("f").unwrap();
    let last = export.hold("f").unwrap();
    fs::remove_file(export.path.join("f")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let root = Identity::root();
                    let open = export.fs().open(&root, file, OpenAccess::READ, HERE);
                    let held = open.wait().unwrap();
                    assert_eq!(export.read(file).unwrap(), b"data");
                    drop(held);
                }
            });
        }
    });
    assert_eq!(export.stat(file).unwrap().links, 0);
    drop(last);
    assert_eq!(export.stat(file), Err(Error::Stale));
}

/// As before Linux 6.13: local programs change the file, and a directory, within a tick of the clock.
fn states_are_told_apart_where_times_are_coarse() {
    let mut export = Export::new();
    export.write("f", "");
    export.restart_with(|opening| {
        let in_flight = Arc::clone(opening.volume.changes.in_flight());
        opening.volume.changes = ChangeValues::coarsely(in_flight);
    });
    let (root, file) = (export.fs().root(), export.find("f").unwrap());
    let mut told = HashSet::new();
    let mut is_new = |value: u64| told.insert(value);
    for n in 0..300 {
        match n % 3 {
            0 => export.write("f", &n.to_string()),
            1 => {
                let who = Identity::root();
                let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
                let wrote = export.fs().write(&who, file, 0, data, Stability::Unstable);
                assert!(is_new(wrote.wait().wcc.after.unwrap().change));
                export.write("f", "");
            }
            _ => {
                let set = SetAttributes::mode(0o600 | (n % 8));
                let set = export
                    .fs()
                    .set_attributes(&Identity::root(), file, set, None);
                set.wait().result.unwrap();
            }
        }
        assert!(is_new(export.stat(file).unwrap().change));
        export.write(&format!("new-{n}"), "");
        assert!(is_new(!export.stat(root).unwrap().change));
        let step = Step::new(b"f").unwrap();
        let seen = export.fs().lookup(&Identity::root(), root, step).wait();
        let found = seen.result.unwrap().attributes.change;
        assert!(is_new(found) || found == export.stat(file).unwrap().change);
    }
}

/// So a client that creates many files takes all changes of the directory for its own.
fn changes_of_a_directory_follow_each_other_without_a_gap_where_no_local_user_can_reach_it() {
    let mut export = Export::in_memory();
    export.restart_with(|opening| {
        let in_flight = Arc::clone(opening.volume.changes.in_flight());
        opening.volume.changes = ChangeValues::coarsely(in_flight);
        opening.volume.memory = true;
        opening.volume.look_who_can_reach();
    });
    let opened = sys::coarse_now();
    while sys::coarse_now() <= opened {
        std::hint::spin_loop();
    }
    let make = |n: u32| {
        let (name, root) = (n.to_string(), export.fs().root());
        let name = Name::new(name.as_bytes()).unwrap();
        let made = export.fs().make(&Identity::root(), root, name, file(0o644));
        let wcc = made.wait().wcc;
        (wcc.before.unwrap().change, wcc.after.unwrap().change)
    };
    let mut last = make(0).1;
    for n in 1..300 {
        let (before, after) = make(n);
        // It settles if the test is held up for some ticks, which have up to 10 ms.
        assert!(before.abs_diff(last) <= 2 * 10_000_000);
        assert_ne!(before, after);
        last = after;
    }
}

in_both_ways! {
    local_programs_and_clients_see_the_locks_of_each_other
    locks_are_raised_and_lowered_and_end_with_their_owner
    owners_of_locks_exclude_each_other_and_other_files_do_not_matter
    ranges_beyond_what_the_kernel_has_are_left_to_the_server
    locks_on_other_file_systems_are_those_of_the_server_alone
    held_file_removed_by_others_is_used_until_it_is_released_however_idle_it_is
    holds_of_one_file_come_and_go_at_the_same_time
    states_are_told_apart_where_times_are_coarse
    changes_of_a_directory_follow_each_other_without_a_gap_where_no_local_user_can_reach_it
}
