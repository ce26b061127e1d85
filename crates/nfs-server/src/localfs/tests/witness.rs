//! Changes of names by clients, and by local programs at the same time.

use super::*;
use crate::fs::{SetTime, Wcc};
use crate::localfs::operations::entries::{change_directory, is_at};
use crate::localfs::volume::change_values::ChangeValues;
use crate::localfs::volume::change_values::names::{Claim, Own};
use crate::localfs::volume::in_flight::InFlight;
use crate::localfs::volume::kind::FsKind;
use crate::localfs::volume::witness::{Kind, Witness};

/// Kinds of ctimes of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// As they are here.
    Probed,
    /// As before Linux 6.13.
    Coarse,
}

const BOTH: [Times; 2] = [Times::Probed, Times::Coarse];

/// An export that other users can reach, whose clients do not want it to be watched.
fn export_of_no_watches() -> Export {
    let export = Export::new();
    let above = export.path.parent().expect("it is in one");
    fs::set_permissions(above, PermissionsExt::from_mode(0o755)).unwrap();
    export
}

/// The same, watched.
fn export_with(times: Times) -> Export {
    let mut export = export_of_no_watches();
    export.restart_with(|opening| {
        if times == Times::Coarse {
            let in_flight = Arc::clone(opening.volume.changes.in_flight());
            opening.volume.changes = ChangeValues::coarsely(in_flight);
        }
    });
    export.fs().watch_names();
    export
}

fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn make(export: &Export, dir: FileId, of: &str, what: Make) -> Changed<Found> {
    let done = export.fs().make(&Identity::root(), dir, name(of), what);
    let done = done.wait();
    assert!(done.result.is_ok(), "{of}: {:?}", done.result);
    done
}

/// Waits until no change has the ctime of changes so far.
fn settle() {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::RealtimeCoarse);
    let since = std::time::Instant::now();
    let ticks = Duration::from_nanos(u64::try_from(tick.tv_nsec).unwrap()) * 4;
    while since.elapsed() < ticks {
        std::hint::spin_loop();
    }
}

/// Changes of directories that follow each other.
struct Chain {
    times: Times,
    last: u64,
}

impl Chain {
    fn new(times: Times, export: &Export, dir: FileId) -> Self {
        let last = export.stat(dir).unwrap().change;
        Self { times, last }
    }

    /// The next change is atomic, and begins where the last one ended.
    #[track_caller]
    fn goes_on(&mut self, wcc: Wcc) {
        let times = self.times;
        assert!(wcc.atomic, "{times:?}: {wcc:?}");
        let (before, after) = (wcc.before.unwrap(), wcc.after.unwrap());
        assert_eq!(before.change, self.last, "{times:?}");
        assert_ne!(before.change, after.change, "{times:?}");
        self.last = after.change;
    }
}

fn changes_of_a_quiet_directory_are_atomic_and_follow_each_other() {
    for times in BOTH {
        let export = export_with(times);
        let (root, who) = (export.fs().root(), Identity::root());
        let set = SetAttributes::mode(0o700);
        settle();
        let mut chain = Chain::new(times, &export, root);
        let d = make(&export, root, "d", Make::Directory(set));
        chain.goes_on(d.wcc);
        let d = d.result.unwrap().file;
        let mut in_d = Chain::new(times, &export, d);
        let f = make(&export, root, "f", file(0o400));
        chain.goes_on(f.wcc);
        let f = f.result.unwrap().file;
        let exclusive = Make::File(CreateHow::Exclusive([7; 8], SetAttributes::default()));
        for what in [
            Make::Symlink(Bytes::from_static(b"text"), SetAttributes::default()),
            Make::Special(FileKind::Fifo, (0, 0), set),
            exclusive,
        ] {
            chain.goes_on(make(&export, root, "x", what).wcc);
            let removed = export.fs().remove(&who, root, name("x")).wait();
            chain.goes_on(removed.wcc);
        }
        let linked = export.fs().link(&who, f, root, name("l")).wait();
        chain.goes_on(linked.wcc);
        let rename = |from: (FileId, &'static str), to: (FileId, &'static str)| {
            let (from, to) = ((from.0, name(from.1)), (to.0, name(to.1)));
            let done = export.fs().rename(&who, from, to).wait();
            done.result.unwrap();
            done
        };
        let within = rename((root, "l"), (root, "m"));
        assert_eq!(within.from, within.to);
        chain.goes_on(within.from);
        settle();
        in_d.last = export.stat(d).unwrap().change;
        let out = rename((root, "m"), (d, "m"));
        chain.goes_on(out.from);
        in_d.goes_on(out.to);
        make(&export, root, "o", file(0o600));
        chain.last = export.stat(root).unwrap().change;
        // One replaces another.
        let back = rename((d, "m"), (root, "o"));
        chain.goes_on(back.to);
        in_d.goes_on(back.from);
        let same = rename((root, "f"), (root, "o"));
        assert!(same.from.atomic, "{times:?}: both are one file");
        assert_eq!(same.from.before.unwrap().change, chain.last);
        assert_eq!(same.from.after.unwrap().change, chain.last);
        let removed = export.fs().remove_directory(&who, root, name("d")).wait();
        chain.goes_on(removed.wcc);
        settle();
        chain.goes_on(make(&export, root, "last", file(0o600)).wcc);
    }
}

/// A moment of a change, at which a local program makes another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Never,
    Before,
    After,
}

/// A change by a local program, below the path of the export.
type Local<'a> = &'a dyn Fn(&Path);

/// Makes a directory as clients do.
fn make_while(export: &Export, of: &str, at: At, local: Local<'_>) -> Wcc {
    let layers = &export.fs().layers;
    let root = export.fs().root();
    let done = change_directory(
        layers,
        &Identity::root(),
        root,
        Pace::Patient,
        |node, _, mut turn| {
            if at == At::Before {
                local(&export.path);
            }
            let mode = rustix::fs::Mode::from_raw_mode(0o700);
            rustix::fs::mkdirat(&node.path, of, mode)?;
            turn.note_made();
            if at == At::After {
                local(&export.path);
            }
            drop(turn);
            Ok(())
        },
    );
    let done = done.unwrap();
    assert_eq!(done.result, Ok(()));
    done.wcc
}

fn change_of_a_local_program_amid_one_of_a_client_is_told() {
    for times in BOTH {
        let export = export_with(times);
        export.write("victim", "");
        let changes: [(&str, Local<'_>); 5] = [
            ("create", &|dir| fs::write(dir.join("new"), b"").unwrap()),
            ("rename", &|dir| {
                fs::rename(dir.join("new"), dir.join("newer")).unwrap();
            }),
            ("remove", &|dir| fs::remove_file(dir.join("newer")).unwrap()),
            ("link", &|dir| {
                fs::hard_link(dir.join("victim"), dir.join("link")).unwrap();
            }),
            ("chmod", &|dir| {
                fs::set_permissions(dir, PermissionsExt::from_mode(0o711)).unwrap();
                fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
            }),
        ];
        for at in [At::Before, At::After] {
            for (what, change) in &changes {
                let quiet = make_while(&export, &format!("{at:?} {what} 1"), At::Never, change);
                assert!(quiet.atomic, "{times:?} {at:?} {what}");
                let raced = make_while(&export, &format!("{at:?} {what} 2"), at, change);
                let told = (raced.atomic, raced.before);
                assert_eq!(told, (false, None), "{times:?} {at:?} {what}");
                let now = export.stat(export.fs().root()).unwrap().change;
                assert_eq!(raced.after.unwrap().change, now);
                assert_ne!(quiet.after.unwrap().change, now);
            }
            fs::remove_file(export.path.join("link")).unwrap();
            let next = make_while(&export, &format!("{at:?}"), At::Never, &|_| {});
            // The kernel told of the removal, and nobody had read it.
            assert!(!next.atomic, "{times:?}");
        }
    }
}

#[test]
fn attributes_of_a_file_in_the_directory_are_no_change_of_it() {
    for times in BOTH {
        let export = export_with(times);
        export.write("f", "");
        let chmod = |dir: &Path| {
            fs::set_permissions(dir.join("f"), PermissionsExt::from_mode(0o600)).unwrap();
            fs::write(dir.join("f"), b"data").unwrap();
        };
        for (n, at) in [At::Before, At::After].into_iter().enumerate() {
            assert!(make_while(&export, &n.to_string(), at, &chmod).atomic);
        }
    }
}

/// Clients keep what they know of it.
#[test]
fn value_of_a_directory_stays_when_it_settles() {
    let export = export_with(Times::Coarse);
    let root = export.fs().root();
    settle();
    let value = || export.stat(root).unwrap().change;
    let told = make(&export, root, "f", file(0o600)).wcc.after.unwrap();
    assert_eq!(value(), told.change);
    settle();
    assert_eq!((value(), value()), (told.change, told.change));
    let named = export.fs().lookup(&Identity::root(), root, Step::Here);
    let named = named.wait().result.unwrap().attributes.change;
    assert_eq!(named, told.change);
    export.write("local", "");
    let changed = value();
    assert_ne!(changed, told.change);
    assert_eq!(value(), changed, "within the tick");
    settle();
    assert_eq!(value(), changed);
    let witness = export.fs().layers.volume.changes.witness();
    witness.end_watches();
    let unwatched = value();
    assert_ne!(unwatched, changed);
    assert_eq!(value(), unwatched);
}

#[test]
fn attributes_that_a_client_sets_are_told_within_the_tick() {
    let export = export_with(Times::Coarse);
    let root = export.fs().root();
    let first = make(&export, root, "f", file(0o600)).wcc.after.unwrap();
    let mut told = HashSet::from([first.change]);
    for n in 0..10 {
        let set = SetAttributes {
            mtime: SetTime::To(Time {
                seconds: n,
                nanos: 0,
            }),
            ..SetAttributes::default()
        };
        let done = export
            .fs()
            .set_attributes(&Identity::root(), root, set, None);
        let after = done.wait().wcc.after.unwrap().change;
        assert!(told.insert(after));
        assert_eq!(export.stat(root).unwrap().change, after);
    }
}

#[test]
fn nothing_is_claimed_of_a_call_that_failed() {
    for times in BOTH {
        let export = export_with(times);
        let (root, who) = (export.fs().root(), Identity::root());
        make(&export, root, "f", file(0o600));
        let before = export.stat(root).unwrap().change;
        let failed = [
            export.fs().remove(&who, root, name("none")).wait().wcc,
            export.fs().make(&who, root, name("f"), file(0)).wait().wcc,
            (export
                .fs()
                .rename(&who, (root, name("none")), (root, name("f"))))
            .wait()
            .from,
        ];
        for wcc in failed {
            assert!(!wcc.atomic, "{times:?}");
            assert_eq!(wcc.before.unwrap().change, before);
            assert_eq!(wcc.after.unwrap().change, before);
        }
    }
}

#[test]
fn names_are_watched_only_once_a_client_wants_to_be_told_of_others() {
    let export = export_of_no_watches();
    let root = export.fs().root();
    assert!(!make(&export, root, "before", file(0o600)).wcc.atomic);
    export.fs().watch_names();
    assert!(make(&export, root, "after", file(0o600)).wcc.atomic);
}

#[test]
fn nothing_is_claimed_where_the_kernel_does_not_tell_of_all_changes() {
    for times in BOTH {
        let mut export = export_with(times);
        export.restart_with(|opening| {
            let in_flight = Arc::<InFlight>::default();
            let witness = Witness::new(false, Arc::clone(&in_flight));
            opening.volume.changes = match times {
                Times::Probed => {
                    let root = opening.root.node.path.as_fd();
                    ChangeValues::probe(root, FsKind::Disk, in_flight, witness)
                }
                Times::Coarse => ChangeValues::coarsely(in_flight).seen_by(witness),
            };
        });
        export.fs().watch_names();
        let made = make(&export, export.fs().root(), "f", file(0o600)).wcc;
        assert!(!made.atomic && made.before.is_some(), "{times:?}");
    }
}

#[test]
fn changes_where_no_other_user_can_reach_the_export_are_atomic_only_if_they_are_seen() {
    for watched in [true, false] {
        let mut export = Export::in_memory();
        export.restart_with(|opening| {
            let in_flight = Arc::<InFlight>::default();
            let witness = Witness::new(watched, Arc::clone(&in_flight));
            opening.volume.changes = ChangeValues::coarsely(in_flight).seen_by(witness);
            opening.volume.memory = true;
            opening.volume.look_who_can_reach();
        });
        export.fs().watch_names();
        let (root, who) = (export.fs().root(), Identity::root());
        let made = export.fs().make(&who, root, name("f"), file(0o600));
        // With a table of handles it depends on its rows.
        assert!(made.is_ready() || !export.fs().has_kernel_handles());
        let made = made.wait();
        // Root is no other user.
        assert_eq!(made.wcc.atomic, watched);
        let f = made.result.unwrap().file;
        let user = XattrName::new(b"name").unwrap();
        let value = Bytes::from_static(b"value");
        let set = export
            .fs()
            .set_xattr(&who, f, user, value, SetXattr::Either);
        let set = set.wait();
        assert!(!set.wcc.atomic && set.wcc.after.is_some());
        let raced = make_while(&export, "raced", At::After, &|dir| {
            fs::write(dir.join("new"), b"").unwrap();
        });
        assert!(!raced.atomic);
    }
}

/// Two renames of files of other directories to one name have equal events, of which the kernel drops the second.
#[test]
fn rename_whose_file_is_replaced_is_not_taken_for_the_only_one() {
    for times in BOTH {
        let export = export_with(times);
        for file in ["a", "b", "elsewhere/c"] {
            export.write(file, "");
        }
        let layers = &export.fs().layers;
        let root = layers.files.root();
        let renamed = [Kind::MovedFrom, Kind::MovedTo];
        let run = |from: &str, local: &dyn Fn()| {
            let changing = layers.turns.begin(root.ino, true);
            let change = layers.files.begin_names(&root, changing, || true);
            layers
                .files
                .attributes_before_names(&root, &change)
                .unwrap();
            let moving = fs::File::open(export.path.join(from)).unwrap();
            let moving = sys::stat(&moving, layers.volume.by).unwrap();
            fs::rename(export.path.join(from), export.path.join("to")).unwrap();
            local();
            let own = Own {
                events: &renamed,
                stands: &|| is_at(&moving, root.path.as_fd(), b"to"),
            };
            let after = layers.files.attributes_after_names(&root, change, &own);
            after.unwrap().1
        };
        assert!(run("a", &|| {}).atomic, "{times:?}");
        let before = export.stat(root.id()).unwrap().change;
        let raced = run("b", &|| {
            let from = export.path.join("elsewhere/c");
            fs::rename(from, export.path.join("to")).unwrap();
        });
        assert_eq!(raced, Claim::default(), "{times:?}");
        assert_ne!(export.stat(root.id()).unwrap().change, before);
        // It has as many names as before.
        fs::write(export.path.join("b"), "").unwrap();
        fs::write(export.path.join("elsewhere/c"), "").unwrap();
        let raced = run("b", &|| {
            let (to, elsewhere) = (export.path.join("to"), export.path.join("elsewhere"));
            fs::hard_link(&to, elsewhere.join("l")).unwrap();
            fs::rename(elsewhere.join("c"), to).unwrap();
        });
        assert_eq!(raced, Claim::default(), "{times:?}");
    }
}

#[test]
fn client_without_rights_costs_no_watch() {
    let export = export_with(Times::Coarse);
    let layers = &export.fs().layers;
    if !layers.rights.acts_for_callers() {
        eprintln!("not root: skipped");
        return;
    }
    let root = export.fs().root();
    let watched = || layers.volume.changes.witness().len();
    let other = Identity::new(12345, 12345);
    let refused = export.fs().make(&other, root, name("f"), file(0o600));
    assert_eq!(refused.wait().result.map(|_| ()), Err(Error::Access));
    assert_eq!(watched(), 0);
    make(&export, root, "f", file(0o600));
    assert_eq!(watched(), 1);
}

/// The event of a rename by a local program is in the queue, and the one of the client's rename to the same name is dropped.
#[test]
fn rename_from_a_directory_that_is_not_seen_is_not_told_by_the_events_of_the_other() {
    let export = export_with(Times::Coarse);
    fs::create_dir(export.path.join("d")).unwrap();
    let (root, d) = (export.fs().root(), export.find("d").unwrap());
    let layers = &export.fs().layers;
    let node = layers.handles.node(d, Pace::Patient).unwrap();
    let who = Identity::root();
    // Within a tick, but for a few.
    for n in 0..20 {
        for file in ["d/x", "local"] {
            export.write(file, "");
        }
        let told = make(&export, root, &n.to_string(), file(0o600));
        let told = told.wcc.after.unwrap().change;
        let elsewhere = export.outside.join("local");
        fs::rename(export.path.join("local"), &elsewhere).unwrap();
        assert_ne!(export.stat(root).unwrap().change, told);
        let told = export.stat(root).unwrap().change;
        // Another change has its window in the directory.
        let changing = layers.turns.begin(node.ino, true);
        let _window = layers.files.begin_names(&node, changing, || true);
        fs::rename(elsewhere, export.path.join("to")).unwrap();
        let renamed = export.fs().rename(&who, (d, name("x")), (root, name("to")));
        let to = renamed.wait().to;
        assert!(!to.atomic);
        assert_ne!(to.before.unwrap().change, told);
        assert_ne!(to.after.unwrap().change, told);
    }
}

/// A directory in the names of which a program works all the time is seen as changed by others, or is as it was.
#[test]
fn changes_at_the_same_time_are_told_apart() {
    for times in BOTH {
        let export = export_with(times);
        let (root, who) = (export.fs().root(), Identity::root());
        let end = AtomicBool::new(false);
        let claims = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut changes = 0_u64;
                while !end.load(Relaxed) {
                    fs::write(export.path.join("local"), b"").unwrap();
                    fs::remove_file(export.path.join("local")).unwrap();
                    changes += 2;
                    if changes.is_multiple_of(64) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut claims = Vec::new();
            for n in 0..300 {
                let made = make(&export, root, &n.to_string(), file(0o600)).wcc;
                claims.push(made);
                let removed = export.fs().remove(&who, root, name(&n.to_string()));
                claims.push(removed.wait().wcc);
            }
            end.store(true, Relaxed);
            claims
        });
        let mut seen = HashSet::new();
        for wcc in claims {
            let after = wcc.after.unwrap();
            assert!(seen.insert(after.change), "{times:?}");
            assert!(wcc.before.is_some() || !wcc.atomic);
        }
    }
}

in_both_ways! {
    changes_of_a_quiet_directory_are_atomic_and_follow_each_other
    change_of_a_local_program_amid_one_of_a_client_is_told
}
