//! Tests of calls that change the same file or directory at a time.

use super::*;

/// What a client is told of a directory before and after its call covers no call of another client, whose
/// new names it would never look for otherwise (RFC 1813 §2.6).
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

/// The kernel has one write to a file at a time: a task that waited for its turn there, behind a SETATTR
/// that cuts off gigabytes, would serve nobody meanwhile.
#[test]
fn write_to_memory_is_a_job_while_another_call_changes_the_file() {
    let export = Export::in_memory();
    export.write("f", "");
    let f = export.find("f").unwrap();
    let local = export.fs();
    let node = local.inner.node(f, Pace::Patient).unwrap();
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
    let inner = &export.fs().inner;
    std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let _names = inner.names();
            panic!("a call panics while it changes names");
        });
        assert!(call.join().is_err());
    });
    for pace in [Pace::Quick, Pace::Patient] {
        assert!(inner.names_at(pace).is_ok());
    }
}

/// To open it for its owner, its mode is changed for a moment, for which a disk may be waited.
#[test]
fn file_without_rights_for_its_owner_is_read_by_a_job() {
    let mut export = Export::new();
    export.restart_with(|inner| {
        inner.as_root = false;
        inner.haste = ReadWriteFlags::empty();
    });
    export.write("f", "data");
    let f = export.find("f").unwrap();
    let mode = PermissionsExt::from_mode(0o000);
    fs::set_permissions(export.path.join("f"), mode).unwrap();
    let read = || export.fs().read(&Identity::root(), f, 0, 4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop_capabilities();
            let job = read();
            assert!(!job.is_ready());
            assert_eq!(job.wait().result.unwrap().data.concat(), b"data");
            assert!(read().is_ready());
        });
    });
}

/// The owner writes to a file that is read-only: for a moment its mode is another one.
#[test]
fn modes_are_set_while_read_only_files_are_opened_to_be_written() {
    const TIMES: usize = 2000;
    let mut export = Export::new();
    export.restart_with(|inner| inner.as_root = false);
    export.write("f", "");
    let f = export.find("f").unwrap();
    let local = export.fs();
    let node = local.inner.node(f, Pace::Patient).unwrap();
    let mode = |mode| {
        let set = SetAttributes::mode(mode);
        let done = local.set_attributes(&Identity::root(), f, set, None);
        done.wait().result.unwrap();
    };
    mode(0o400);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop_capabilities();
            for _ in 0..TIMES {
                local.inner.writer(&node, Pace::Patient).unwrap();
                node.writer().take();
            }
        });
        for _ in 0..TIMES {
            mode(0o400);
        }
    });
    let now = export.stat(f).unwrap().mode;
    assert_eq!(now, 0o400);
}

/// From here on this thread has the rights that modes grant, run by root too.
fn drop_capabilities() {
    let none = rustix::thread::CapabilitySets {
        effective: rustix::thread::CapabilitySet::empty(),
        permitted: rustix::thread::CapabilitySet::empty(),
        inheritable: rustix::thread::CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).unwrap();
}
