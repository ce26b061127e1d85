//! File systems mounted within an export, and directories that cannot be exported.

use super::*;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

/// Has mounts of this thread alone, if this process may.
pub(super) fn mounts_alone() -> bool {
    #[expect(
        deprecated,
        reason = "the one that is not is unsafe, for what other namespaces do to memory"
    )]
    let alone = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS);
    if alone == Err(Errno::PERM) {
        return false;
    }
    alone.unwrap();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
    true
}

/// An export with the directory `mnt` and what is in it, under a mount with something else.
fn export_with_a_mount() -> Option<Export> {
    if !mounts_alone() {
        return None;
    }
    let mut export = Export::new();
    export.write("mnt/covered", "covered");
    export.write("other", "");
    export.restart_with(|_| {});
    let flags = MountFlags::empty();
    mount("none", export.path.join("mnt"), "tmpfs", flags, None).unwrap();
    export.write("mnt/mounted", "mounted");
    Some(export)
}

#[test]
fn mount_point_is_the_directory_under_the_mount() {
    let Some(mut export) = export_with_a_mount() else {
        return;
    };
    assert!(export.fs().has_kernel_handles(), "as temporary files do");
    let covered = export.find("mnt/covered").unwrap();
    assert_eq!(export.read(covered).unwrap(), b"covered");
    assert_eq!(export.find("mnt/mounted"), Err(Error::NotFound));
    let mnt = export.find("mnt").unwrap();
    let up = export.fs().lookup(&Identity::root(), mnt, Step::Parent);
    assert_eq!(up.wait().result.unwrap().file, export.fs().root());
    export.trust_nothing();
    assert!(export.stat(mnt).is_ok());
    assert_eq!(export.read(covered).unwrap(), b"covered");
    // The copy through which it was found is gone.
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let path = export.path.to_str().unwrap();
    assert_eq!(mounts.matches(path).count(), 1);
}

#[test]
fn mount_that_will_be_served_is_waited_for() {
    let Some(export) = export_with_a_mount() else {
        return;
    };
    let id = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let mnt = export.path.join("mnt");
    let line = id.lines().find(|line| line.contains(mnt.to_str().unwrap()));
    let id = line.unwrap().split(' ').next().unwrap().parse().unwrap();
    let known = |ids: &[u64]| Some(Arc::new(ids.iter().copied().collect()));
    export.fs().know_mounts(known(&[]));
    assert_eq!(export.find("mnt"), Err(Error::Busy));
    assert!(export.find("other").is_ok());
    export.fs().know_mounts(known(&[id]));
    assert!(export.find("mnt/covered").is_ok(), "it is not to be served");
    export.fs().know_mounts(None);
    assert!(export.find("mnt/covered").is_ok());
}

#[test]
fn mount_point_is_no_entry_to_who_cannot_reach_under_it() {
    HANDLES.set(Handles::Table);
    let Some(export) = export_with_a_mount() else {
        return;
    };
    assert_eq!(export.find("mnt"), Err(Error::Access));
    assert_eq!(export.find("mnt/mounted"), Err(Error::Access));
}

fn mount_point_fails_no_listing() {
    let Some(export) = export_with_a_mount() else {
        return;
    };
    let (from, budget) = (DirFrom::START, DirBudget::PAGE);
    let (who, root) = (Identity::root(), export.fs().root());
    for plus in [false, true] {
        let seen = export.fs().read_directory(&who, root, from, budget, plus);
        let page = seen.wait().result.unwrap();
        let files = page.iter().filter(|(name, _)| !name.starts_with(b"."));
        let mut files: Vec<_> = files
            .map(|(name, entry)| (name.to_vec(), entry.found.is_some()))
            .collect();
        files.sort_unstable();
        assert_eq!(files, [(b"mnt".into(), false), (b"other".into(), plus)]);
    }
}

#[test]
fn file_systems_that_the_kernel_makes_up_are_refused() {
    for (path, kind) in [("/proc", "proc"), ("/proc/self", "proc"), ("/sys", "sysfs")] {
        let error = LocalFs::open(path, options()).err().unwrap().to_string();
        assert!(error.contains(kind), "{error}");
        assert!(error.contains("no file handles"), "{error}");
    }
}

in_both_ways! {
    mount_point_fails_no_listing
}

/// Runs a program; whether there is one, and it succeeds.
pub(super) fn done(program: &str, args: &[&str]) -> bool {
    let output = std::process::Command::new(program).args(args).output();
    output.is_ok_and(|output| output.status.success())
}

/// A btrfs in a file, on a mount point of this thread's.
struct Btrfs {
    at: PathBuf,
    _dir: TempDir,
}

impl Btrfs {
    /// None where there can be none.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
        let file = fs::File::create(&image).unwrap();
        // Less than this, and mkfs.btrfs refuses; it is a hole.
        file.set_len(256 << 20).unwrap();
        fs::create_dir(&at).unwrap();
        let [image, mnt] = [&image, &at].map(|path| path.to_str().unwrap());
        let made = mounts_alone()
            && done("mkfs.btrfs", &["-q", image])
            && done("mount", &["-t", "btrfs", "-o", "loop", image, mnt]);
        if !made {
            eprintln!("no btrfs to be had (mkfs.btrfs, mount, the module, root): skipped");
            return None;
        }
        Some(Self { at, _dir: dir })
    }

    /// A new subvolume.
    fn subvolume(&self, path: &str) -> PathBuf {
        let path = self.at.join(path);
        assert!(done(
            "btrfs",
            &["subvolume", "create", path.to_str().unwrap()]
        ));
        path
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        assert!(done("umount", &[self.at.to_str().unwrap()]));
    }
}

/// The roots of all subvolumes have one inode number, and a snapshot has those of what it is of.
#[test]
fn subvolumes_of_btrfs_are_told_apart() {
    let Some(btrfs) = Btrfs::new() else {
        return;
    };
    let outer = btrfs.subvolume("outer");
    let inner = btrfs.subvolume("outer/inner");
    fs::write(outer.join("f"), "outer").unwrap();
    fs::write(inner.join("f"), "inner").unwrap();
    assert_eq!(
        fs::metadata(&outer).unwrap().ino(),
        fs::metadata(&inner).unwrap().ino()
    );
    let find = |handles, path: &str| {
        HANDLES.set(handles);
        let local = LocalFs::open(&outer, options()).unwrap();
        assert_eq!(local.has_kernel_handles(), handles == Handles::Auto);
        let who = Identity::root();
        let found = path.split('/').try_fold(local.root(), |dir, name| {
            let step = Step::Name(Name::new(name.as_bytes()).unwrap());
            let found = local.lookup(&who, dir, step).wait().result;
            found.map(|found| found.file)
        })?;
        let read = local.read(&who, found, 0, 100).wait().result?;
        Ok(read.data.concat())
    };
    assert_eq!(find(Handles::Table, "f"), Ok(b"outer".to_vec()));
    assert_eq!(find(Handles::Table, "inner"), Err(Error::Access));
    assert_eq!(find(Handles::Auto, "f"), Ok(b"outer".to_vec()));
    assert_eq!(find(Handles::Auto, "inner/f"), Ok(b"inner".to_vec()));
}

/// The numbers that each way of asking gives for what is in a directory, by path.
fn numbers(local: &LocalFs, dir: FileId, path: &str, all: &mut Vec<(String, u64)>) {
    let (who, from) = (Identity::root(), DirFrom::START);
    let list = |plus| {
        let page = local.read_directory(&who, dir, from, DirBudget::PAGE, plus);
        page.wait().result.unwrap()
    };
    let own = local.attributes(dir).wait().unwrap().fileid;
    let (plain, plus) = (list(false), list(true));
    let told = |page: &crate::fs::DirPage, name: &[u8]| {
        let entry = page.iter().find(|(found, _)| *found == name);
        entry.unwrap().1.fileid
    };
    for page in [&plain, &plus] {
        assert_eq!(told(page, b"."), own, "{path}");
        let up = local.lookup(&who, dir, Step::Parent).wait().result.unwrap();
        assert_eq!(told(page, b".."), up.attributes.fileid, "{path}");
    }
    for (name, entry) in plus.iter().filter(|(name, _)| !name.starts_with(b".")) {
        let step = Step::new(name).unwrap();
        let found = local.lookup(&who, dir, step).wait().result.unwrap();
        let number = found.attributes.fileid;
        assert_eq!(entry.fileid, number);
        assert_eq!(entry.found.unwrap().attributes.fileid, number);
        assert_eq!(told(&plain, name), number);
        assert_eq!(local.attributes(found.file).wait().unwrap().fileid, number);
        let path = format!("{path}/{}", String::from_utf8_lossy(name));
        all.push((path.clone(), number));
        if found.attributes.is_directory() {
            numbers(local, found.file, &path, all);
        }
    }
}

/// Programs take files of one fsid and fileid for names of one file, and copy it once.
#[test]
fn files_of_subvolumes_and_snapshots_have_numbers_of_their_own() {
    let Some(btrfs) = Btrfs::new() else {
        return;
    };
    let outer = btrfs.subvolume("outer");
    let inner = btrfs.subvolume("outer/inner");
    for dir in [&outer, &inner] {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/f"), "text").unwrap();
        fs::hard_link(dir.join("d/f"), dir.join("link")).unwrap();
    }
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let snapshot = [
        "subvolume",
        "snapshot",
        &path(&inner),
        &path(&outer.join("snapshot")),
    ];
    assert!(done("btrfs", &snapshot));
    HANDLES.set(Handles::Auto);
    let local = LocalFs::open(&outer, options()).unwrap();
    let mut all = Vec::new();
    numbers(&local, local.root(), "", &mut all);
    assert_eq!(all.len(), 3 * 3 + 2);
    let of = |path: &str| all.iter().find(|(found, _)| found == path).unwrap().1;
    for dir in ["", "/inner", "/snapshot"] {
        assert_eq!(of(&format!("{dir}/d/f")), of(&format!("{dir}/link")));
    }
    let different: HashSet<u64> = all.iter().map(|(_, number)| *number).collect();
    assert_eq!(different.len(), 3 * 2 + 2);
    // Those of the export itself are the inode numbers, as before.
    assert_eq!(of("/link"), fs::metadata(outer.join("link")).unwrap().ino());
}

#[test]
fn subvolume_that_cannot_be_served_is_told_of_with_the_reason() {
    let Some(btrfs) = Btrfs::new() else {
        return;
    };
    let outer = btrfs.subvolume("outer");
    btrfs.subvolume("outer/inner");
    HANDLES.set(Handles::Table);
    let local = LocalFs::open(&outer, options()).unwrap();
    let said = crate::captured_log::captured_log(|| {
        for _ in 0..2 {
            let step = Step::new(b"inner").unwrap();
            let seen = local.lookup(&Identity::root(), local.root(), step).wait();
            assert_eq!(seen.result.err(), Some(Error::Access));
        }
    });
    assert_eq!(said.matches("a subvolume").count(), 1, "{said}");
    assert!(
        said.contains("CAP_DAC_READ_SEARCH") && said.contains("outer/inner"),
        "{said}"
    );
}

/// The same, where there is no btrfs.
#[test]
fn directory_of_another_device_is_not_here_with_the_table() {
    for handles in [Handles::Table, Handles::Auto] {
        HANDLES.set(handles);
        let export = Export::new();
        let layers = &export.fs().layers;
        let mut stat = sys::stat(&layers.files.root().path, IdentifiedBy::Birth).unwrap();
        assert!(layers.files.is_here(&stat));
        stat.device.1 += 1;
        assert_eq!(
            layers.files.is_here(&stat),
            export.fs().has_kernel_handles()
        );
    }
}
