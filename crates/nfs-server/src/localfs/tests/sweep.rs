//! Nothing that nobody uses stays open.

use super::*;
use crate::localfs::id;
use std::process::Command;

/// An export whose rounds end when the test says so.
fn export() -> Export {
    let mut export = Export::new();
    export.restart_with(|_| {});
    export
}

impl Export {
    /// Makes all files idle that are not used meanwhile.
    fn pass_two_rounds(&self) {
        self.fs().layers.end_round();
        self.fs().layers.end_round();
    }

    fn write_unstably(&self, file: FileId, data: Vec<u8>) {
        let data = Gather::from_elem(Bytes::from(data), 1);
        let who = Identity::root();
        let done = self.fs().write(&who, file, 0, data, Stability::Unstable);
        done.wait().result.unwrap();
    }

    /// Descriptors of this process on removed files of the export.
    fn pinned(&self) -> Vec<PathBuf> {
        let fds = fs::read_dir("/proc/self/fd").unwrap();
        let paths = fds.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        let removed = |path: &PathBuf| path.to_string_lossy().ends_with(" (deleted)");
        paths
            .filter(|path| path.starts_with(&self.path) && removed(path))
            .collect()
    }

    fn has_writer(&self, file: FileId) -> bool {
        let node = self.fs().layers.handles.node(file, Pace::Patient).unwrap();
        node.writer().is_some()
    }
}

fn file_removed_or_replaced_by_others_gives_its_space_back() {
    let export = export();
    for name in ["read", "written", "replaced", "d/f"] {
        export.write(name, "data");
        let file = export.find(name).unwrap();
        assert_eq!(export.read(file).unwrap(), b"data");
    }
    let written = export.find("written").unwrap();
    export.write_unstably(written, b"more".to_vec());
    for name in ["read", "written"] {
        fs::remove_file(export.path.join(name)).unwrap();
    }
    export.write("new", "");
    fs::rename(export.path.join("new"), export.path.join("replaced")).unwrap();
    fs::remove_dir_all(export.path.join("d")).unwrap();
    assert!(!export.pinned().is_empty());
    export.pass_two_rounds();
    assert_eq!(export.pinned(), [""; 0].map(PathBuf::from));
}

fn file_that_a_client_removes_gives_its_space_back_at_once() {
    let export = export();
    let (root, who) = (export.fs().root(), Identity::root());
    for name in ["made", "read"] {
        let name = Name::new(name.as_bytes()).unwrap();
        let made = export.fs().make(&who, root, name, file(0o600)).wait();
        let made = made.result.unwrap().file;
        export.write_unstably(made, vec![7; 100]);
        assert_eq!(export.read(made).unwrap(), [7; 100]);
    }
    let open = export.fs().open_files();
    let remove = |name: &'static str| {
        let name = Name::new(name.as_bytes()).unwrap();
        export.fs().remove(&who, root, name).wait().result.unwrap();
    };
    remove("made");
    assert_eq!(export.fs().open_files(), open - 1);
    let other = export.path.join("other");
    fs::hard_link(export.path.join("read"), &other).unwrap();
    remove("read");
    assert_eq!(export.fs().open_files(), open - 1, "it has another name");
    remove("other");
    assert_eq!(export.pinned(), [""; 0].map(PathBuf::from));
}

fn program_can_be_executed_when_its_writer_has_vanished() {
    let export = export();
    let program = fs::read("/bin/true").unwrap();
    let who = Identity::root();
    let root = export.fs().root();
    let f = export.make_as(&who, root, "true", file(0o755)).unwrap();
    export.write_unstably(f, program);
    let path = export.path.join("true");
    let run = || Command::new(&path).status();
    let busy = run().unwrap_err();
    assert_eq!(busy.kind(), std::io::ErrorKind::ExecutableFileBusy);
    for _ in 0..2 {
        // Somebody looks at the file all the time.
        export.stat(f).unwrap();
        export.fs().layers.end_round();
    }
    assert!(!export.has_writer(f));
    // A process that another test starts has our descriptors for a moment.
    let ran = std::iter::repeat_with(run).find(|ran| {
        let kind = ran.as_ref().err().map(std::io::Error::kind);
        kind != Some(std::io::ErrorKind::ExecutableFileBusy)
    });
    assert!(ran.unwrap().unwrap().success());
}

fn file_that_is_written_to_stays_open_for_writing() {
    let export = export();
    export.write("f", "");
    let f = export.find("f").unwrap();
    for _ in 0..4 {
        export.write_unstably(f, b"data".to_vec());
        export.fs().layers.end_round();
        assert!(export.has_writer(f));
    }
    export.fs().layers.end_round();
    assert!(!export.has_writer(f));
    export.write_unstably(f, b"more".to_vec());
    assert_eq!(export.read(f).unwrap(), b"more");
}

/// To a file that is not open the kernel does not tell that its data was lost.
fn file_with_uncommitted_data_stays_open_for_as_long_as_it_takes_to_write_back() {
    let mut export = export();
    export.restart_with(|opening| opening.volume.memory = false);
    export.write("f", "");
    let f = export.find("f").unwrap();
    export.write_unstably(f, b"data".to_vec());
    let layers = &export.fs().layers;
    let key = layers.handles.node(f, Pace::Patient).unwrap().key;
    let is_readable = || {
        let node = layers.files.peek(key);
        node.map(|node| node.reader().is_some())
    };
    export.pass_two_rounds();
    assert_eq!(is_readable(), Some(true));
    for _ in 0..100 {
        layers.end_round();
    }
    let kernel = export.fs().has_kernel_handles();
    assert_eq!(is_readable(), (!kernel).then_some(true));
    // Once it is committed it need not be.
    export.write_unstably(f, b"data".to_vec());
    let committed = export.fs().commit(&Identity::root(), f, 0, 0).wait();
    committed.result.unwrap();
    export.pass_two_rounds();
    assert_eq!(is_readable().is_none(), kernel);
}

fn file_in_use_by_a_call_is_not_closed_under_it() {
    let export = export();
    export.write("f", "data");
    let f = export.find("f").unwrap();
    let node = export.fs().layers.handles.node(f, Pace::Patient).unwrap();
    export.pass_two_rounds();
    let again = export.fs().layers.handles.node(f, Pace::Patient).unwrap();
    assert!(Arc::ptr_eq(&node, &again));
}

#[test]
fn rows_of_files_that_others_removed_are_removed() {
    let mut export = Export::with_table();
    export.write("a/f", "");
    export.write("a/seen", "");
    export.write("b/x", "");
    for (from, to) in [("a/f", "b/f"), ("a/seen", "b/seen")] {
        export.find(from).unwrap();
        export.rename(from, to);
    }
    export.restart_with(|_| {});
    let [a, idle, seen] = ["a", "b/f", "b/seen"].map(|path| export.find(path).unwrap());
    let row = |file| {
        let ino = id::TableId::parse(file).unwrap().number;
        export.fs().layers.handles.by_location().row(ino).unwrap()
    };
    assert!(row(a).is_some() && row(idle).is_some() && row(seen).is_some());
    fs::remove_file(export.path.join("b/f")).unwrap();
    fs::remove_file(export.path.join("b/seen")).unwrap();
    fs::remove_dir_all(export.path.join("a")).unwrap();
    assert_eq!(export.stat(seen), Err(Error::Stale));
    export.pass_two_rounds();
    for file in [a, idle, seen] {
        assert_eq!(row(file), None);
        assert_eq!(export.stat(file), Err(Error::Stale));
    }
}

#[test]
fn thread_closes_what_is_idle_and_rests_then() {
    let Some(export) = Export::with_kernel_handles() else {
        return;
    };
    for _ in 0..2 {
        export.write("f", "data");
        assert!(export.find("f").is_ok());
        export.fs().layers.files.sweeper().wait_for_rest();
        assert_eq!(export.fs().layers.files.len(), 0);
    }
}

in_both_ways! {
    file_removed_or_replaced_by_others_gives_its_space_back
    file_that_a_client_removes_gives_its_space_back_at_once
    program_can_be_executed_when_its_writer_has_vanished
    file_that_is_written_to_stays_open_for_writing
    file_with_uncommitted_data_stays_open_for_as_long_as_it_takes_to_write_back
    file_in_use_by_a_call_is_not_closed_under_it
}

#[test]
fn export_is_opened_again_right_after_it_was_closed_while_a_round_ends() {
    let mut export = Export::with_table();
    let sweeper = Arc::clone(export.fs().layers.files.sweeper());
    let layers = Arc::downgrade(&export.fs().layers);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let round = sweeper.begin_now().unwrap();
            let used = layers.upgrade().unwrap();
            tell.send(()).unwrap();
            while !sweeper.is_ending() {
                std::thread::yield_now();
            }
            drop(used);
            drop(round);
        });
        told.recv().unwrap();
        // The state cannot be opened while the thread uses the one that was open before.
        export.restart();
    });
    assert!(sweeper.begin_now().is_none());
}
