//! Tests of calls that change the same file or directory at a time.

use super::*;
use crate::fs::SetTime;

/// The attributes before and after a call cover no call of another client, whose new names a client would
/// never look for otherwise (RFC 1813 §2.6).
#[test]
fn calls_in_one_directory_are_told_apart_by_its_attributes() {
    let export = Export::new();
    let (root, local) = (export.fs().root(), export.fs());
    let calls = |thread: usize| {
        let name = move |call: usize| format!("{thread} {call}");
        let (who, file) = (Identity::root(), SetAttributes::default());
        let mut wccs = Vec::new();
        for call in 0..200 {
            let (one, other) = (name(call), name(call + 1000));
            let one = Name::new(one.as_bytes()).unwrap();
            let other = Name::new(other.as_bytes()).unwrap();
            let what = Make::File(CreateHow::Guarded(file));
            wccs.push(local.make(&who, root, one, what).wait().wcc);
            wccs.push(local.rename(&who, (root, one), (root, other)).wait().from);
            wccs.push(local.remove(&who, root, other).wait().wcc);
        }
        wccs
    };
    let mut spans: Vec<(Time, Time)> = std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|thread| scope.spawn(move || calls(thread)));
        let wccs = threads.into_iter().flat_map(|calls| calls.join().unwrap());
        wccs.map(|wcc| (wcc.before.unwrap().ctime, wcc.after.unwrap().ctime))
            .collect()
    });
    spans.sort_unstable();
    for pair in spans.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:?}");
    }
}

/// Calls that leave their replies to the sync of another one have them all the same.
#[test]
fn changes_that_share_a_sync_are_all_answered() {
    let mut export = Export::new();
    export.restart_with(|opening| opening.changes = Changes::Durable);
    let (root, local) = (export.fs().root(), export.fs());
    let who = Identity::root();
    let other = Name::new(b"other").unwrap();
    let directory = Make::Directory(SetAttributes::mode(0o755));
    let other = local.make(&who, root, other, directory).wait();
    let other = other.result.unwrap().file;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let who = &who;
            scope.spawn(move || {
                for call in 0..3 {
                    let name = format!("{thread} {call}");
                    let name = Name::new(name.as_bytes()).unwrap();
                    let made = local.make(who, root, name, file(0o600));
                    assert!(matches!(made, Outcome::Deferred(_)));
                    let made = made.wait().result.unwrap().file;
                    let linked = local.link(who, made, other, name).wait();
                    assert_eq!(linked.result, Ok(()));
                    let moved = local.rename(who, (root, name), (other, name)).wait();
                    assert_eq!(moved.result, Ok(()));
                    let removed = local.remove(who, other, name).wait();
                    assert_eq!(removed.result, Ok(()));
                    let removed = local.remove(who, other, name).wait();
                    assert_eq!(removed.result, Err(Error::NotFound), "nothing is pending");
                }
            });
        }
    });
    assert_eq!(local.layers.jobs.on(root), 0);
    assert_eq!(local.layers.jobs.on(other), 0);
}

/// Each WRITE makes the file longer, so that what a client was told is a span of sizes, which no other
/// client's span may lie within.
#[test]
fn clients_that_write_at_the_same_time_are_not_each_told_that_nobody_else_did() {
    let export = Export::new();
    export.write("f", "");
    let (f, local) = (export.find("f").unwrap(), export.fs());
    let next = AtomicU64::new(0);
    let write = |stability| {
        let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
        let at = next.fetch_add(1, Relaxed);
        let done = local
            .write(&Identity::root(), f, at, data, stability)
            .wait();
        assert_eq!(done.result.unwrap().count, 1);
        done.wcc
    };
    let start = std::sync::Barrier::new(4);
    let calls = |thread: u64| {
        let mut wccs = Vec::new();
        for call in 0..300 {
            start.wait();
            wccs.push(match (thread, call % 2) {
                (0, 0) => {
                    let set = SetAttributes::mode(0o600 + call % 8);
                    let done = local.set_attributes(&Identity::root(), f, set, None);
                    done.wait().wcc
                }
                (1, _) => write(Stability::FileSync),
                _ => write(Stability::Unstable),
            });
        }
        wccs
    };
    let mut spans: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|thread| scope.spawn(move || calls(thread)));
        let wccs = threads.into_iter().flat_map(|calls| calls.join().unwrap());
        let told = wccs.filter_map(|wcc| Some((wcc.before?.size, wcc.after?.size)));
        told.collect()
    });
    spans.sort_unstable();
    for pair in spans.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:?}");
    }
    // Who is alone is told so.
    let alone = write(Stability::Unstable);
    assert_eq!(alone.before.unwrap().size + 1, alone.after.unwrap().size);
}

#[test]
fn attributes_from_before_are_left_out_while_another_change_is_in_flight() {
    let export = Export::new();
    export.write("f", "data");
    export
        .make_as(&Identity::root(), export.fs().root(), "d", {
            Make::Directory(SetAttributes::default())
        })
        .unwrap();
    let (who, local) = (Identity::root(), export.fs());
    for (name, is_directory) in [("f", false), ("d", true)] {
        let file = export.find(name).unwrap();
        let ino = export.stat(file).unwrap().fileid;
        let set = || {
            let set = SetAttributes::mode(0o700);
            local.set_attributes(&who, file, set, None).wait().wcc
        };
        let write = || {
            let data = Gather::from_elem(Bytes::from_static(b"data"), 1);
            let done = local.write(&who, file, 0, data, Stability::Unstable);
            done.wait().wcc
        };
        let other = local.layers.turns.begin(ino, is_directory);
        assert!(set().before.is_none() && set().after.is_some());
        if !is_directory {
            assert!(write().before.is_none() && write().after.is_some());
        }
        drop(other);
        assert!(set().before.is_some());
        assert!(is_directory || write().before.is_some());
    }
}

/// RFC 1813 §3.3.2: of two clients that saw the same file, one changes it.
#[test]
fn guard_of_a_change_holds_while_others_change_the_file() {
    let export = Export::new();
    export.write("f", "");
    let (f, local) = (export.find("f").unwrap(), export.fs());
    for _ in 0..100 {
        let seen = export.stat(f).unwrap().ctime;
        // What is changed from now on has another time of change.
        while sys::coarse_now() <= seen {
            std::hint::spin_loop();
        }
        let start = std::sync::Barrier::new(3);
        let change = |mode| {
            start.wait();
            let set = SetAttributes::mode(mode);
            let done = local.set_attributes(&Identity::root(), f, set, Some(seen));
            done.wait().result
        };
        let results = std::thread::scope(|scope| {
            let change = &change;
            let changes = [0o600, 0o640, 0o644].map(|mode| scope.spawn(move || change(mode)));
            changes.map(|change| change.join().unwrap())
        });
        let refused = results.iter().filter(|&&it| it == Err(Error::NotSync));
        assert_eq!(refused.count(), 2, "{results:?}");
    }
}

/// A call that looks a name up on a slow disk has its turn for as long as that takes.
#[test]
fn call_that_waits_in_one_directory_holds_up_none_in_another() {
    let export = Export::new();
    let (root, local) = (export.fs().root(), export.fs());
    let names = local
        .layers
        .turns
        .names([local.layers.files.root().ino; 2], Pace::Patient);
    let other = (0..).map(|number| {
        fs::create_dir(export.path.join(number.to_string())).unwrap();
        export.find(&number.to_string()).unwrap()
    });
    let is_free = |dir: &FileId| {
        let ino = export.stat(*dir).unwrap().fileid;
        local.layers.turns.names([ino; 2], Pace::Quick).is_ok()
    };
    let dir = other.take(10).find(is_free).unwrap();
    let who = Identity::root();
    export.make_as(&who, dir, "f", file(0o600)).unwrap();
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    let renamed = local.rename(&who, (dir, name("f")), (dir, name("g")));
    assert_eq!(renamed.wait().result, Ok(()));
    assert_eq!(local.remove(&who, dir, name("g")).wait().result, Ok(()));
    drop(names);
    export.make_as(&who, root, "f", file(0o600)).unwrap();
}

/// The name that a REMOVE takes away was the only one when it looked; the table must not forget the file.
#[test]
fn file_that_is_given_a_name_while_another_is_removed_is_not_forgotten() {
    let export = Export::with_table();
    export.write("f", "data");
    fs::create_dir(export.path.join("d")).unwrap();
    let (f, d) = (export.find("f").unwrap(), export.find("d").unwrap());
    let (local, name) = (export.fs(), Name::new(b"f").unwrap());
    let layers = &local.layers;
    let (open, seen) = layers
        .files
        .open_entry(&layers.files.root(), b"f", Pace::Patient)
        .unwrap();
    let linked = local.link(&Identity::root(), f, d, name).wait();
    linked.result.unwrap();
    fs::remove_file(export.path.join("f")).unwrap();
    assert!(!entries::is_last(layers, &open, &seen));
    fs::remove_file(export.path.join("d/f")).unwrap();
    assert!(entries::is_last(layers, &open, &seen));
}

/// The kernel has one write to a file at a time: a task that waited for its turn there, behind a SETATTR
/// that cuts off gigabytes, would serve nobody meanwhile.
#[test]
fn write_to_memory_is_a_job_while_another_call_changes_the_file() {
    let export = Export::in_memory();
    export.write("f", "");
    let f = export.find("f").unwrap();
    let local = export.fs();
    let node = local.layers.handles.node(f, Pace::Patient).unwrap();
    let write = || {
        let data = Gather::from_elem(Bytes::from_static(b"data"), 1);
        local.write(&Identity::root(), f, 0, data, Stability::Unstable)
    };
    let other = node.writing.lock().unwrap();
    let waits = write();
    assert!(!waits.is_ready());
    drop(other);
    assert!(write().is_ready());
    assert_eq!(waits.wait().result.unwrap().count, 4);
}

#[test]
fn panic_of_one_call_stops_no_other_one() {
    let export = Export::new();
    let layers = &export.fs().layers;
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let _names = layers.turns.names([1, 1], Pace::Patient);
            panic!("a call panics while it changes names");
        });
        assert!(call.join().is_err());
    });
    for pace in [Pace::Quick, Pace::Patient] {
        assert!(layers.turns.names([1, 1], pace).is_ok());
    }
}

/// A server that ended meanwhile would leave the file with other rights.
#[test]
fn file_without_rights_for_its_owner_keeps_its_mode_when_it_is_read_and_written() {
    let mut export = Export::new();
    export.restart_with(|opening| opening.process.acts_for_callers = false);
    export.write("f", "data");
    let f = export.find("f").unwrap();
    let mode = PermissionsExt::from_mode(0o000);
    fs::set_permissions(export.path.join("f"), mode).unwrap();
    let before = export.stat(f).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop_capabilities();
            let (who, local) = (Identity::root(), export.fs());
            assert_eq!(export.read(f), Err(Error::Access));
            let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
            let written = local.write(&who, f, 0, data, Stability::FileSync).wait();
            assert_eq!(written.result.err(), Some(Error::Access));
            assert_eq!(local.commit(&who, f, 0, 0).wait().result, Ok(()));
        });
    });
    let after = export.stat(f).unwrap();
    assert_eq!((after.mode, after.ctime), (before.mode, before.ctime));
}

/// RFC 1813 §4.4: a client that has it open goes on using it.
#[test]
fn file_that_becomes_closed_to_its_owner_is_used_on() {
    let mut export = Export::new();
    export.restart_with(|opening| opening.process.acts_for_callers = false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop_capabilities();
            let (who, local) = (Identity::root(), export.fs());
            let f = export
                .make_as(&who, local.root(), "f", file(0o644))
                .unwrap();
            let write = |stability| {
                let data = Gather::from_elem(Bytes::from_static(b"data"), 1);
                local.write(&who, f, 0, data, stability).wait().result
            };
            write(Stability::Unstable).unwrap();
            let set = SetAttributes::mode(0o000);
            let done = local.set_attributes(&who, f, set, None).wait();
            done.result.unwrap();
            for _ in 0..2 {
                write(Stability::FileSync).unwrap();
                local.commit(&who, f, 0, 0).wait().result.unwrap();
                local.layers.end_round();
                assert_eq!(export.read(f).unwrap(), b"data");
            }
        });
    });
}

/// Without the rights of root, whoever may write to a file of somebody else may have it committed, too.
#[test]
fn file_that_can_be_written_to_and_not_read_is_committed() {
    let mut export = Export::new();
    export.restart_with(|opening| opening.process.acts_for_callers = false);
    export.write("f", "data");
    let f = export.find("f").unwrap();
    let path = export.path.join("f");
    if std::os::unix::fs::chown(&path, Some(1000), None).is_err() {
        eprintln!("not run by root: skipped");
        return;
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o222)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop_capabilities();
            let (who, local) = (Identity::root(), export.fs());
            assert_eq!(export.read(f), Err(Error::Access));
            assert_eq!(local.commit(&who, f, 0, 0).wait().result, Ok(()));
        });
    });
}

#[test]
fn attributes_of_what_cannot_be_opened_are_synced_too() {
    let mut export = Export::new();
    symlink("text", export.path.join("symlink")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, export.path.join("fifo"), fifo, mode, 0).unwrap();
    for changes in [Changes::Cached, Changes::Durable] {
        export.restart_with(|opening| {
            opening.volume.memory = false;
            opening.changes = changes;
        });
        for name in ["symlink", "fifo"] {
            let set = SetAttributes {
                mtime: SetTime::Now,
                ..SetAttributes::default()
            };
            let file = export.find(name).unwrap();
            let done = export
                .fs()
                .set_attributes(&Identity::root(), file, set, None);
            done.wait().result.unwrap();
        }
        let syncs = export.fs().layers.durability.syncs_of_everything();
        assert_eq!(syncs, if changes == Changes::Durable { 2 } else { 0 });
    }
    // By either way.
    export.restart_with(|opening| {
        let syncs = &mut opening.volume.syncs;
        syncs.journal = !syncs.journal;
    });
    let node = export
        .fs()
        .layers
        .handles
        .node(export.find("fifo").unwrap(), Pace::Patient);
    export
        .fs()
        .layers
        .durability
        .persist_attributes(&node.unwrap())
        .unwrap();
}

/// From here on this thread has the rights that modes grant, run by root too.
pub(super) fn drop_capabilities() {
    let none = rustix::thread::CapabilitySets {
        effective: rustix::thread::CapabilitySet::empty(),
        permitted: rustix::thread::CapabilitySet::empty(),
        inheritable: rustix::thread::CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).unwrap();
}

/// CREATE of a name that is there, or not, or goes at that moment, is CREATE all the same.
#[test]
fn create_does_not_miss_a_name_that_is_removed_meanwhile() {
    let export = Export::new();
    let (root, who) = (export.fs().root(), Identity::root());
    let removes = || {
        for _ in 0..3000 {
            let name = Name::new(b"f").unwrap();
            let _ = export.fs().remove(&who, root, name).wait();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(removes);
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3000 {
                    let what = Make::File(CreateHow::Unchecked(SetAttributes::default()));
                    export.make_as(&who, root, "f", what).unwrap();
                }
            });
        }
    });
}

#[test]
fn calls_on_a_file_that_hangs_are_put_off_and_others_go_on() {
    let mut export = Export::new();
    export.restart_as(|_| {}, |layers| layers.jobs.hung_after = Duration::ZERO);
    export.write("f", "data");
    export.write("other", "data");
    let (f, other) = (export.find("f").unwrap(), export.find("other").unwrap());
    let who = Identity::root();
    let write = |file| {
        let data = Gather::from_elem(Bytes::from_static(b"more"), 1);
        let stability = Stability::Unstable;
        let written = export.fs().write(&who, file, 0, data, stability).wait();
        written.result.map(|out| out.count)
    };
    let node = export.fs().layers.handles.node(f, Pace::Patient).unwrap();
    let held = node.writing.lock().unwrap();
    std::thread::scope(|scope| {
        let hung: Vec<_> = (0..8).map(|_| scope.spawn(|| write(f))).collect();
        while export.fs().layers.jobs.on(f) < 8 {
            std::thread::yield_now();
        }
        assert_eq!(write(f), Err(Error::Busy));
        assert_eq!(write(other), Ok(4));
        drop(held);
        for call in hung {
            assert_eq!(call.join().unwrap(), Ok(4));
        }
    });
    assert_eq!(write(f), Ok(4));
}

#[test]
fn client_of_a_nested_export_is_told_that_one_of_the_outer_export_wrote() {
    let export = Export::new();
    fs::create_dir(export.path.join("d")).unwrap();
    export.write("d/f", "data");
    let nested = LocalFs::open(export.path.join("d"), options()).unwrap();
    let step = Step::Name(Name::new(b"f").unwrap());
    let who = Identity::root();
    let f = nested.lookup(&who, nested.root(), step).wait().result;
    let f = f.unwrap().file;
    let ino = fs::metadata(export.path.join("d/f")).unwrap().ino();
    let write = || {
        let data = Gather::from_elem(Bytes::from_static(b"more"), 1);
        let stability = Stability::Unstable;
        nested.write(&who, f, 0, data, stability).wait().wcc
    };
    let other = export.fs().layers.turns.begin(ino, false);
    assert!(write().before.is_none());
    drop(other);
    assert!(write().before.is_some());
}
