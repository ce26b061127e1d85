//! Reading and writing data, with and without waiting.

use super::*;
use crate::localfs::operations::data::{self, INLINE_WRITE_IN_MEMORY};

fn cached_data_is_answered_without_a_job() {
    let export = Export::new();
    export.write("f", &"x".repeat(100_000));
    let f = export.find("f").unwrap();
    assert_eq!(export.read(f).unwrap().len(), 100_000);
    let plain = fs::File::open(export.path.join("f")).unwrap();
    let mut memory = [0; 4096];
    let mut space = [std::io::IoSliceMut::new(&mut memory)];
    let haste = export.fs().layers.volume.haste();
    let supported = preadv2(&plain, &mut space, 0, haste).is_ok();
    let who = Identity::root();
    let local = export.fs();
    assert!(local.attributes(f).is_ready());
    assert!(local.access(&who, f, Access::READ).is_ready());
    let step = Step::Name(Name::new(b"f").unwrap());
    assert!(local.lookup(&who, local.root(), step).is_ready());
    assert_eq!(local.read(&who, f, 0, 100_000).is_ready(), supported);
}

#[test]
fn what_a_local_user_can_lock_in_memory_holds_up_no_connection() {
    let export = Export::in_memory();
    export.write("f", "data");
    let (who, local, f) = (Identity::root(), export.fs(), export.find("f").unwrap());
    let at_once = |unseen: &[u8]| {
        local.attributes(f).wait().unwrap();
        let data = Gather::from_elem(Bytes::from_static(b"data"), 1);
        let name = |name| Name::new(name).unwrap();
        let made = Make::File(CreateHow::Guarded(SetAttributes::default()));
        [
            local
                .write(&who, f, 0, data, Stability::Unstable)
                .is_ready(),
            local
                .make(&who, local.root(), name(b"new"), made)
                .is_ready(),
            local.remove(&who, local.root(), name(b"new")).is_ready(),
            local
                .lookup(&who, local.root(), Step::Name(Name::new(unseen).unwrap()))
                .is_ready(),
            local.read(&who, f, 0, 4).is_ready(),
        ]
    };
    assert_eq!(at_once(b"unseen"), [true; 5]);
    // Somebody opens the way there.
    let above = export.path.parent().unwrap();
    fs::set_permissions(above, PermissionsExt::from_mode(0o711)).unwrap();
    fs::set_permissions(&export.path, PermissionsExt::from_mode(0o777)).unwrap();
    local.layers.end_round();
    assert_eq!(at_once(b"another"), [false, false, false, false, true]);
}

#[test]
fn files_in_memory_are_made_written_renamed_and_removed_without_a_job() {
    HANDLES.set(Handles::Table);
    let export = Export::in_memory();
    let (who, local) = (Identity::root(), export.fs());
    let root = local.root();
    let name = |name| Name::new(name).unwrap();
    let file = || Make::File(CreateHow::Guarded(SetAttributes::default()));
    let data = || Gather::from_elem(Bytes::from_static(b"data"), 1);

    // The kernel has not seen this name, and may not look it up without waiting on a disk.
    let unseen = local.lookup(&who, root, Step::Name(name(b"a")));
    let Outcome::Ready(unseen) = unseen else {
        panic!("a name is looked up at once");
    };
    assert_eq!(unseen.result.err(), Some(Error::NotFound));
    let Outcome::Ready(made) = local.make(&who, root, name(b"a"), file()) else {
        panic!("a file is made at once");
    };
    let a = made.result.unwrap().file;
    let write = |stability| local.write(&who, a, 0, data(), stability).is_ready();
    assert!(write(Stability::FileSync) && write(Stability::Unstable));
    assert!(local.commit(&who, a, 0, 0).is_ready());
    let rename = |from, to| local.rename(&who, (root, name(from)), (root, name(to)));
    assert!(rename(b"a", b"b").is_ready());
    assert_eq!(fs::read(export.path.join("b")).unwrap(), b"data");

    let directory = Make::Directory(SetAttributes::default());
    let made = local.make(&who, root, name(b"d"), directory);
    assert!(!made.is_ready(), "the table has to know of directories");
    drop(made);
    fs::write(export.path.join("c"), "c").unwrap();
    let replaced = rename(b"b", b"c");
    assert!(!replaced.is_ready(), "what is replaced may be large");
    assert_eq!(fs::read(export.path.join("c")).unwrap(), b"c");
    let dir = local.layers.files.root().ino;
    let names = local.layers.turns.names([dir; 2], Pace::Patient).unwrap();
    assert!(!local.make(&who, root, name(b"e"), file()).is_ready());
    assert!(!rename(b"b", b"f").is_ready());
    let remove = |name_| local.remove(&who, root, name(name_));
    assert!(!remove(b"b").is_ready());
    drop(names);
    assert_eq!(fs::read_dir(&export.path).unwrap().count(), 2);
    assert!(remove(b"b").is_ready());
    fs::write(export.path.join("large"), vec![0; INLINE_WRITE + 1]).unwrap();
    fs::hard_link(export.path.join("c"), export.path.join("link")).unwrap();
    for name in [&b"large"[..], b"link"] {
        let removed = remove(name);
        assert!(
            !removed.is_ready(),
            "it takes time, or the table has to know"
        );
        removed.wait().result.unwrap();
    }
    assert_eq!(fs::read_dir(&export.path).unwrap().count(), 1);

    // Rows of files are read from the disk.
    fs::create_dir(export.path.join("other")).unwrap();
    let other = export.find("other").unwrap();
    let moved = local.rename(&who, (root, name(b"c")), (other, name(b"c")));
    assert!(!moved.is_ready());
    moved.wait().result.unwrap();
    assert!(!local.make(&who, root, name(b"e"), file()).is_ready());
}

/// A client that is told so needs no COMMIT.
fn large_write_to_memory_is_stable_at_once_and_leaves_nothing_open() {
    let export = Export::in_memory();
    export.write("f", "");
    let f = export.find("f").unwrap();
    let (who, local) = (Identity::root(), export.fs());
    let node = local.layers.handles.node(f, Pace::Patient).unwrap();
    let write = |len| {
        let data = Gather::from_elem(Bytes::from(vec![7; len]), 1);
        local.write(&who, f, 0, data, Stability::Unstable)
    };
    let committed = |outcome: Outcome<Changed<WriteOut>>| outcome.wait().result.unwrap().committed;
    let is_open = || node.writer().is_some();

    assert_eq!(committed(write(INLINE_WRITE)), Stability::Unstable);
    assert!(is_open());
    let written = write(INLINE_WRITE_IN_MEMORY);
    assert!(written.is_ready());
    assert_eq!(committed(written), Stability::FileSync);
    assert!(!is_open());
    let larger = write(INLINE_WRITE_IN_MEMORY + 1);
    assert!(!larger.is_ready());
    assert_eq!(committed(larger), Stability::FileSync);
    let len = fs::metadata(export.path.join("f")).unwrap().len();
    assert_eq!(len, INLINE_WRITE_IN_MEMORY as u64 + 1);
}

fn read_that_is_partly_cached_is_completed_from_disk() {
    let export = Export::new();
    let data: Vec<u8> = (0..1_u32 << 20)
        .map(|n| u8::try_from(n >> 8 & 0xff).unwrap())
        .collect();
    fs::write(export.path.join("f"), &data).unwrap();
    let plain = fs::File::open(export.path.join("f")).unwrap();
    plain.sync_all().unwrap();
    let second_half = std::num::NonZeroU64::new(1 << 19);
    let forget = rustix::fs::Advice::DontNeed;
    rustix::fs::fadvise(&plain, 1 << 19, second_half, forget).unwrap();
    let f = export.find("f").unwrap();
    assert_eq!(export.read(f).unwrap(), data);
    let seen = export
        .fs()
        .read(&Identity::root(), f, 12_345, 1 << 20)
        .wait();
    let read = seen.result.unwrap();
    assert!(read.eof);
    assert_eq!(read.data.concat(), &data[12_345..]);
}

fn file_that_shrinks_while_it_is_read_is_read_to_its_new_end() {
    let export = Export::new();
    export.write("f", &"x".repeat(10_000));
    let f = export.find("f").unwrap();
    let (layers, who) = (&export.fs().layers, Identity::root());
    let mut reading = data::begin_read(layers, &who, f, 0, 10_000, Pace::Patient)
        .unwrap_or_else(|stop| panic!("{stop:?}"));
    export.write("f", "short");
    assert!(data::read_on(layers, &mut reading, Pace::Patient).unwrap());
    let read = reading.finish().result.unwrap();
    assert_eq!((read.data.concat(), read.eof), (b"short".to_vec(), true));
}

fn memory_of_reads_goes_back_to_its_pool() {
    let export = Export::new();
    export.write("f", &"x".repeat(100_000));
    let f = export.find("f").unwrap();
    for _ in 0..10 {
        export.read(f).unwrap();
    }
    let stats = export.fs().layers.pool.stats();
    assert_eq!((stats.out, stats.misses), (0, 1));
}

fn written_file_is_not_kept_open_for_writing() {
    let export = Export::new();
    export.write("f", "");
    let f = export.find("f").unwrap();
    let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
    let who = Identity::root();
    let done = export.fs().write(&who, f, 0, data, Stability::Unstable);
    done.wait().result.unwrap();
    export.fs().commit(&who, f, 0, 0).wait().result.unwrap();
    let node = export.fs().layers.handles.node(f, Pace::Patient).unwrap();
    assert!(node.writer().is_none());
}

/// A client that has older data cached learns from the times that it is old, also after a crash.
fn write_with_data_sync_is_stable_with_its_times() {
    let export = Export::new();
    export.write("f", "");
    let f = export.find("f").unwrap();
    let (who, data) = (Identity::root(), Bytes::from_static(b"x"));
    let data = Gather::from_elem(data, 1);
    let done = export.fs().write(&who, f, 0, data, Stability::DataSync);
    let committed = done.wait().result.unwrap().committed;
    assert_eq!(committed, Stability::FileSync);
}

fn file_can_be_executed_when_it_was_made_truncated_or_written_durably() {
    let export = Export::new();
    let who = Identity::root();
    let make = Make::File(CreateHow::Guarded(SetAttributes {
        size: Some(10),
        ..SetAttributes::mode(0o755)
    }));
    let f = export.make_as(&who, export.fs().root(), "f", make).unwrap();
    let check = |after: &str| {
        let node = export.fs().layers.handles.node(f, Pace::Patient).unwrap();
        let flags = rustix::fs::fcntl_getfl(&node.path).unwrap();
        assert!(!flags.intersects(OFlags::WRONLY | OFlags::RDWR), "{after}");
        assert!(node.writer().is_none(), "{after}");
    };
    check("made");
    let set = SetAttributes::size(3);
    let done = export.fs().set_attributes(&who, f, set, None).wait();
    done.result.unwrap();
    check("truncated");
    let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
    let done = export.fs().write(&who, f, 0, data, Stability::DataSync);
    done.wait().result.unwrap();
    check("written");
}

in_both_ways! {
    cached_data_is_answered_without_a_job
    large_write_to_memory_is_stable_at_once_and_leaves_nothing_open
    read_that_is_partly_cached_is_completed_from_disk
    file_that_shrinks_while_it_is_read_is_read_to_its_new_end
    memory_of_reads_goes_back_to_its_pool
    written_file_is_not_kept_open_for_writing
    write_with_data_sync_is_stable_with_its_times
    file_can_be_executed_when_it_was_made_truncated_or_written_durably
}

#[test]
fn data_that_is_lost_is_told_of_with_its_directory() {
    let export = Export::new();
    let layers = &export.fs().layers;
    let said = crate::captured_log::captured_log(|| layers.durability.note_loss(Errno::IO));
    let directory = format!("directory={} error=Input/output", export.path.display());
    assert!(said.contains(&directory), "{said}");
    assert!(said.contains("could not be written to its disk"), "{said}");
}
