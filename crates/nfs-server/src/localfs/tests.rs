//! Tests that only apply to a file system on a real directory.

use super::*;
use crate::fs::{CreateHow, FileKind};
use rustix::fs::OFlags;
use rustix::io::{Errno, preadv2};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;

mod answering_fuse;
mod cold_holds;
mod data;
mod durable;
mod handles;
mod held;
mod kernel;
mod mounts;
mod overlay_and_fuse;
mod places;
mod rights;
mod root;
mod sweep;
mod turns;
mod witness;

thread_local! {
    /// How the file systems of this test find files.
    static HANDLES: Cell<Handles> = const { Cell::new(Handles::Auto) };
}

/// Runs each of these tests twice: with handles of the kernel, where this process may use them, and with
/// the table.
macro_rules! in_both_ways {
    ($($test:ident)*) => {
        mod with_kernel_handles {
            $(#[test]
            fn $test() {
                super::$test();
            })*
        }

        mod with_the_table {
            $(#[test]
            fn $test() {
                crate::localfs::tests::HANDLES.set(crate::Handles::Table);
                super::$test();
            })*
        }
    };
}
use in_both_ways;

/// Runs each of these tests with numbers of files that come from their paths, with and without their
/// inode numbers.
macro_rules! by_path {
    ($($test:ident)*) => {
        mod by_path {
            $(#[test]
            fn $test() {
                use crate::localfs::{AS_IF, IdentifiedBy, tests::HANDLES};
                HANDLES.set(crate::Handles::Table);
                for by in [IdentifiedBy::PathAndNumber, IdentifiedBy::Path] {
                    AS_IF.set(Some(by));
                    super::$test();
                }
            })*
        }
    };
}
use by_path;

/// Options of a test in a directory of its own.
fn options() -> LocalFsOptions {
    LocalFsOptions::default()
        .with_changes(Changes::Cached)
        .with_handles(HANDLES.get())
}

/// The address of a client, where it does not matter.
const HERE: PeerGroup = PeerGroup::THIS_MACHINE;

/// An export, its state, and something beside both.
struct Export {
    fs: Option<LocalFs>,
    path: PathBuf,
    state: PathBuf,
    outside: PathBuf,
    _dir: TempDir,
}

impl Export {
    /// One whose files are found with the table.
    fn with_table() -> Self {
        HANDLES.set(Handles::Table);
        Self::new()
    }

    /// One whose files are found by handles of the kernel. Where this process may not use them, there is
    /// nothing to test.
    fn with_kernel_handles() -> Option<Self> {
        let export = Self::new();
        if export.fs().has_kernel_handles() {
            return Some(export);
        }
        let root = rustix::process::geteuid().is_root();
        assert!(!root, "the file system of temporary files has no handles");
        None
    }

    fn new() -> Self {
        Self::within(&std::env::temp_dir())
    }

    /// One in a new directory of `base`.
    fn within(base: &Path) -> Self {
        let dir = tempfile::tempdir_in(base).unwrap();
        let [path, state, outside] = ["export", "state", "outside"].map(|name| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        });
        fs::write(outside.join("secret"), b"secret").unwrap();
        let mut export = Self {
            fs: None,
            path,
            state,
            outside,
            _dir: dir,
        };
        export.restart();
        export
    }

    fn options(&self) -> LocalFsOptions {
        options().with_state_dir(self.state.clone())
    }

    /// Ends the server and starts it again.
    fn restart(&mut self) {
        self.fs = None;
        let options = self.options();
        self.fs = Some(LocalFs::open(&self.path, options).unwrap());
    }

    /// As after the time for which directories are trusted.
    fn trust_nothing(&mut self) {
        self.restart_as(|_| {}, |layers| layers.handles.trust_for(Duration::ZERO));
    }

    /// One that is served as if it were on a file system in memory.
    fn in_memory() -> Self {
        let mut export = Self::new();
        // Out of reach of other users of this machine.
        let above = export.path.parent().expect("it is in one");
        fs::set_permissions(above, PermissionsExt::from_mode(0o700)).unwrap();
        export.restart_with(|opening| {
            opening.volume.memory = true;
            opening.volume.look_who_can_reach();
        });
        export
    }

    /// Starts the server again, with other facts of the directory.
    fn restart_with(&mut self, change: impl FnOnce(&mut Opening)) {
        self.restart_as(change, |_| {});
    }

    /// Starts the server again, with other facts of the directory, and other limits.
    fn restart_as(&mut self, change: impl FnOnce(&mut Opening), limit: impl FnOnce(&mut Layers)) {
        let options = self.options();
        self.fs = None;
        let path = fs::canonicalize(&self.path).unwrap();
        let mut opening = Opening::new(path, options).unwrap();
        change(&mut opening);
        let mut layers = Layers::over(opening);
        limit(&mut layers);
        self.fs = Some(LocalFs::of(layers));
    }

    fn fs(&self) -> &LocalFs {
        self.fs.as_ref().unwrap()
    }

    /// The file at a path, looked up name by name.
    fn find(&self, path: &str) -> Result<FileId, Error> {
        self.find_as(&Identity::root(), path)
    }

    fn find_as(&self, who: &Identity, path: &str) -> Result<FileId, Error> {
        path.split('/').try_fold(self.fs().root(), |dir, name| {
            let step = Step::new(name.as_bytes()).unwrap();
            let seen = self.fs().lookup(who, dir, step).wait();
            seen.result.map(|found| found.file)
        })
    }

    fn stat(&self, file: FileId) -> Result<Attributes, Error> {
        self.fs().attributes(file).wait()
    }

    fn read(&self, file: FileId) -> Result<Vec<u8>, Error> {
        self.read_as(&Identity::root(), file)
    }

    fn read_as(&self, who: &Identity, file: FileId) -> Result<Vec<u8>, Error> {
        let seen = self.fs().read(who, file, 0, 1 << 20).wait();
        seen.result.map(|read| read.data.concat())
    }

    fn make_as(
        &self,
        who: &Identity,
        dir: FileId,
        name: &str,
        what: Make,
    ) -> Result<FileId, Error> {
        let name = Name::new(name.as_bytes()).unwrap();
        let done = self.fs().make(who, dir, name, what).wait();
        done.result.map(|found| found.file)
    }

    fn write(&self, path: &str, data: &str) {
        let path = self.path.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, data).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let split = |path: &str| -> (FileId, String) {
            match path.rsplit_once('/') {
                Some((dir, name)) => (self.find(dir).unwrap(), name.into()),
                None => (self.fs().root(), path.into()),
            }
        };
        let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
        let done = self.fs().rename(
            &Identity::root(),
            (from_dir, Name::new(from.as_bytes()).unwrap()),
            (to_dir, Name::new(to.as_bytes()).unwrap()),
        );
        done.wait().result.unwrap();
    }
}

fn file(mode: u32) -> Make {
    Make::File(CreateHow::Guarded(SetAttributes::mode(mode)))
}

/// Few files can be open at a time, so that all of them come and go below the feet of the others.
fn calls_at_the_same_time_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let options = options().with_open_files(3);
    let local = LocalFs::open(dir.path(), options).unwrap();
    let who = Identity::root();
    let make = |dir, name: &str, what| {
        let name = Name::new(name.as_bytes()).unwrap();
        let done = local.make(&who, dir, name, what).wait();
        done.result.unwrap().file
    };
    let directory = || Make::Directory(SetAttributes::mode(0o755));
    let (a, b) = (
        make(local.root(), "a", directory()),
        make(local.root(), "b", directory()),
    );
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (local, who) = (&local, &who);
            scope.spawn(move || {
                for round in 0..100 {
                    let text = format!("{thread}-{round}");
                    let (first, second) = (format!("f{text}"), format!("g{text}"));
                    let (first, second) = (
                        Name::new(first.as_bytes()).unwrap(),
                        Name::new(second.as_bytes()).unwrap(),
                    );
                    let made = local.make(who, a, first, file(0o644)).wait();
                    let made = made.result.unwrap().file;
                    let data = Gather::from_elem(Bytes::from(text.clone()), 1);
                    let wrote = local.write(who, made, 0, data, Stability::Unstable);
                    wrote.wait().result.unwrap();
                    local.link(who, made, b, second).wait().result.unwrap();
                    let found = local.lookup(who, b, Step::Name(second)).wait();
                    assert_eq!(found.result.unwrap().file, made);
                    local
                        .rename(who, (b, second), (a, second))
                        .wait()
                        .result
                        .unwrap();
                    local.remove(who, a, first).wait().result.unwrap();
                    let read = local.read(who, made, 0, 100).wait().result.unwrap();
                    assert_eq!(read.data.concat(), text.as_bytes());
                    let found = local.lookup(who, a, Step::Name(second)).wait();
                    assert_eq!(found.result.unwrap().file, made);
                    if round % 2 == 0 {
                        local.remove(who, a, second).wait().result.unwrap();
                        let gone = local.attributes(made).wait();
                        assert_eq!(gone, Err(Error::Stale));
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(dir.path().join("a")).unwrap().count(), 4 * 50);
    assert_eq!(fs::read_dir(dir.path().join("b")).unwrap().count(), 0);
}

#[test]
fn write_verifier_changes_at_a_restart() {
    let mut export = Export::new();
    let before = export.fs().write_verifier();
    assert_eq!(export.fs().write_verifier(), before);
    export.restart();
    assert_ne!(export.fs().write_verifier(), before);
}

#[test]
fn data_lost_while_attributes_are_synced_changes_the_write_verifier() {
    let export = Export::new();
    let before = export.fs().write_verifier();
    let layers = &export.fs().layers;
    assert!(layers.durability.synced(Err(Errno::INVAL)).is_ok());
    assert_eq!(export.fs().write_verifier(), before);
    assert!(layers.durability.synced(Err(Errno::IO)).is_err());
    assert_ne!(export.fs().write_verifier(), before);
}

/// Else who writes beyond what is allowed makes all other clients send again what they wrote.
#[test]
fn write_that_is_refused_leaves_the_write_verifier() {
    let export = Export::new();
    export.write("f", "");
    let f = export.find("f").unwrap();
    let before = export.fs().write_verifier();
    let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
    let end = export.fs().abilities().max_file_size;
    let who = Identity::root();
    let done = export.fs().write(&who, f, end, data, Stability::FileSync);
    assert_eq!(done.wait().result.err(), Some(Error::TooLarge));
    assert_eq!(export.fs().write_verifier(), before);
}

fn symbolic_links_out_of_the_export_are_not_followed() {
    let export = Export::new();
    symlink(&export.outside, export.path.join("dir")).unwrap();
    symlink(export.outside.join("secret"), export.path.join("file")).unwrap();
    for path in ["dir", "file"] {
        let link = export.find(path).unwrap();
        assert_eq!(export.stat(link).unwrap().kind, FileKind::Symlink);
        assert_eq!(export.read(link), Err(Error::Invalid));
    }
    assert_eq!(export.find("dir/secret"), Err(Error::NotDirectory));
    // Nothing that a link points to is changed through it.
    let link = export.find("file").unwrap();
    let set = SetAttributes {
        mode: Some(0o777),
        mtime: crate::fs::SetTime::To(Time::default()),
        ..SetAttributes::default()
    };
    let before = fs::metadata(export.outside.join("secret")).unwrap();
    let done = export
        .fs()
        .set_attributes(&Identity::root(), link, set, None)
        .wait();
    assert_eq!(done.result, Ok(()));
    let after = fs::metadata(export.outside.join("secret")).unwrap();
    assert_eq!(after.mode(), before.mode());
    assert_eq!(after.mtime(), before.mtime());
    let unchecked = Make::File(CreateHow::Unchecked(SetAttributes::size(0)));
    let made = export.make_as(&Identity::root(), export.fs().root(), "file", unchecked);
    assert_eq!(made, Err(Error::Exists));
    assert_eq!(fs::read(export.outside.join("secret")).unwrap(), b"secret");
}

fn there_is_nothing_above_the_root() {
    let export = Export::new();
    assert_eq!(export.find("..").unwrap(), export.fs().root());
    assert_eq!(export.find("../../..").unwrap(), export.fs().root());
    assert_eq!(export.find("../outside"), Err(Error::NotFound));
}

fn directory_that_was_moved_out_of_the_export_is_not_served() {
    let mut export = Export::new();
    export.write("d/sub/f", "file");
    export.trust_nothing();
    let (sub, d) = (export.find("d/sub").unwrap(), export.find("d").unwrap());
    assert!(export.stat(sub).is_ok());
    fs::rename(export.path.join("d"), export.outside.join("d")).unwrap();
    assert_eq!(export.stat(d), Err(Error::Stale));
    assert_eq!(export.stat(sub), Err(Error::Stale));
    let made = export.make_as(&Identity::root(), sub, "x", file(0o600));
    assert_eq!(made, Err(Error::Stale));
    assert!(!export.outside.join("d/sub/x").exists());
}

fn directory_swapped_for_a_link_never_leads_out() {
    let mut export = Export::new();
    export.write("d/secret", "inside");
    symlink(&export.outside, export.path.join("link")).unwrap();
    export.trust_nothing();
    let path = export.path.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let (a, b) = (path.join("d"), path.join("link"));
                rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, b, exchange)
                    .unwrap();
            }
        }
    });
    let mut inside = 0;
    for _ in 0..3000 {
        if let Ok(file) = export.find("d/secret") {
            // Between the two steps it may be gone, but never be the other one.
            if let Ok(data) = export.read(file) {
                assert_eq!(data, b"inside");
                inside += 1;
            }
        }
    }
    stop.store(true, Relaxed);
    swapper.join().unwrap();
    assert!(
        inside > 0,
        "the swapping was slow enough to find it at times"
    );
}

/// It has another path than the one within the export.
fn state_directory_within_the_export_is_not_served() {
    if !mounts::mounts_alone() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("state")).unwrap();
    fs::write(dir.path().join("state/handle.key"), b"key").unwrap();
    rustix::mount::mount_bind(dir.path().join("state"), elsewhere.path()).unwrap();
    let options = options().with_state_dir(elsewhere.path().to_owned());
    let local = LocalFs::open(dir.path(), options).unwrap();
    let who = Identity::root();
    let name = Name::new(b"state").unwrap();
    let seen = local.lookup(&who, local.root(), Step::Name(name)).wait();
    assert_eq!(seen.result.err(), Some(Error::Access));
    let renamed = local.rename(
        &who,
        (local.root(), name),
        (local.root(), Name::new(b"other").unwrap()),
    );
    assert_eq!(renamed.wait().result, Err(Error::Access));
    let removed = local.remove_directory(&who, local.root(), name).wait();
    assert_eq!(removed.result, Err(Error::Access));
    for plus in [false, true] {
        let (from, budget) = (DirFrom::START, DirBudget::PAGE);
        let seen = local.read_directory(&who, local.root(), from, budget, plus);
        let page = seen.wait().result.unwrap();
        assert!(page.iter().all(|(found, _)| found != b"state"));
    }
}

/// Somebody's write takes privilege away while the owner sets another mode, which stays.
fn mode_that_was_read_before_is_not_given_back() {
    let export = Export::new();
    let who = Identity::root();
    let f = export.make_as(&who, export.fs().root(), "f", file(0o777));
    let f = f.unwrap();
    let set = |mode| {
        let set = SetAttributes::mode(mode);
        let done = export.fs().set_attributes(&who, f, set, None).wait();
        done.result.unwrap();
    };
    for _ in 0..300 {
        set(0o4777);
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
                let other = Identity::new(1001, 1001);
                start.wait();
                let done = export.fs().write(&other, f, 0, data, Stability::Unstable);
                // It may have been too late to be allowed.
                let _ = done.wait();
            });
            start.wait();
            set(0o600);
        });
        assert_eq!(export.stat(f).unwrap().mode, 0o600);
    }
}

fn refused_attributes_do_not_cost_the_data() {
    let export = Export::new();
    export.write("f", "data");
    let f = export.find("f").unwrap();
    for (uid, gid) in [(Some(u32::MAX), None), (None, Some(u32::MAX))] {
        let set = SetAttributes {
            uid,
            gid,
            ..SetAttributes::size(0)
        };
        let done = export.fs().set_attributes(&Identity::root(), f, set, None);
        assert_eq!(done.wait().result, Err(Error::Invalid));
        assert_eq!(export.read(f).unwrap(), b"data");
    }
}

fn number_of_open_files_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let options = options().with_open_files(4);
    let local = LocalFs::open(dir.path(), options).unwrap();
    let who = Identity::root();
    let mut files = Vec::new();
    for n in 0..50 {
        fs::create_dir(dir.path().join(format!("d{n}"))).unwrap();
        fs::write(dir.path().join(format!("d{n}/f")), format!("{n}")).unwrap();
        let find = |dir, name: &str| {
            let step = Step::new(name.as_bytes()).unwrap();
            local.lookup(&who, dir, step).wait().result.unwrap().file
        };
        files.push(find(find(local.root(), &format!("d{n}")), "f"));
    }
    for _ in 0..2 {
        for (n, file) in files.iter().enumerate() {
            let read = local.read(&who, *file, 0, 10).wait().result.unwrap();
            assert_eq!(read.data.concat(), format!("{n}").as_bytes());
        }
    }
    assert!(local.layers.files.len() <= 4);
}

fn descriptors_are_given_back_when_there_are_no_more() {
    let export = Export::new();
    for n in 0..20 {
        export.write(&format!("f{n}"), "");
        export.find(&format!("f{n}")).unwrap();
    }
    assert!(export.fs().layers.files.len() >= 20);
    // As a LOOKUP finds out, which tells of it beside the attributes of the directory.
    assert!(sys::opened(Err(Errno::MFILE)).is_err());
    export.stat(export.fs().root()).unwrap();
    assert!(export.fs().layers.files.len() <= 10);
    assert!(export.find("f0").is_ok());
}

/// Whoever holds the lock of the table waits for a disk.
#[test]
fn answers_without_a_job_do_not_touch_the_table() {
    let mut export = Export::with_table();
    export.write("d/f", "");
    let d = export.find("d").unwrap();
    let f = export.find("d/f").unwrap();
    let who = Identity::root();
    let name = |name| Step::Name(Name::new(name).unwrap());
    export.restart();
    let local = export.fs();
    let busy = local.layers.handles.by_location().table.hold();
    assert!(!local.attributes(f).is_ready());
    assert!(!local.attributes(d).is_ready());
    assert!(!local.lookup(&who, local.root(), name(b"d")).is_ready());
    drop(busy);
    assert!(export.find("d/f").is_ok() && export.find("d").is_ok());
    let busy = local.layers.handles.by_location().table.hold();
    assert!(local.attributes(f).is_ready());
    assert!(local.lookup(&who, local.root(), name(b"d")).is_ready());
    assert!(local.lookup(&who, d, name(b"f")).is_ready());
    assert!(local.lookup(&who, d, Step::Parent).is_ready());
    drop(busy);
}

fn operations_on_unknown_file_systems_always_run_as_jobs() {
    let mut export = Export::new();
    export.write("f", "data");
    export.restart_with(|opening| opening.volume.local = false);
    let f = export.find("f").unwrap();
    assert_eq!(export.read(f).unwrap(), b"data");
    let (who, local) = (Identity::root(), export.fs());
    let step = Step::Name(Name::new(b"f").unwrap());
    let data = Gather::from_elem(Bytes::from_static(b"x"), 1);
    assert!(!local.attributes(f).is_ready());
    assert!(!local.lookup(&who, local.root(), step).is_ready());
    assert!(!local.read(&who, f, 0, 4).is_ready());
    let wrote = local.write(&who, f, 0, data, Stability::Unstable);
    assert!(!wrote.is_ready());
    assert!(!local.space(f).is_ready());
}

#[test]
fn directories_that_cannot_be_exported_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| LocalFs::open(path, LocalFsOptions::default());
    let message = |path: &Path| open(path).err().unwrap().to_string();
    let none = dir.path().join("none");
    assert!(
        message(&none).contains("none: cannot open the directory: No such file"),
        "{}",
        message(&none)
    );
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(
        message(&file).contains("Not a directory"),
        "{}",
        message(&file)
    );
    let options = LocalFsOptions::default()
        .with_state_dir(file)
        .with_handles(Handles::Table);
    let error = LocalFs::open(dir.path(), options)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("--state-dir"), "{error}");
}

#[test]
fn state_directory_cannot_be_exported() {
    let export = Export::with_table();
    let around = export.state.parent().unwrap().to_owned();
    for path in [export.state.clone(), export.state.join("exports"), around] {
        let opened = LocalFs::open(&path, export.options());
        let error = opened.err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, OpenError::OwnState { .. }), "{text}");
        assert!(text.contains("--state-dir"), "{text}");
    }
}

#[test]
fn second_server_of_the_same_directory_is_refused() {
    let export = Export::with_table();
    let second = LocalFs::open(&export.path, export.options());
    assert!(matches!(second.err(), Some(OpenError::InUse { .. })));
}

in_both_ways! {
    calls_at_the_same_time_do_not_disturb_each_other
    symbolic_links_out_of_the_export_are_not_followed
    there_is_nothing_above_the_root
    directory_that_was_moved_out_of_the_export_is_not_served
    directory_swapped_for_a_link_never_leads_out
    state_directory_within_the_export_is_not_served
    mode_that_was_read_before_is_not_given_back
    refused_attributes_do_not_cost_the_data
    number_of_open_files_is_bounded
    descriptors_are_given_back_when_there_are_no_more
    operations_on_unknown_file_systems_always_run_as_jobs
}
