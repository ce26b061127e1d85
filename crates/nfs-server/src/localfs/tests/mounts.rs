//! What is mounted within an export, and what cannot be exported.

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
fn done(program: &str, args: &[&str]) -> bool {
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

/// The same, where there is no btrfs.
#[test]
fn directory_of_another_device_is_not_here_with_the_table() {
    for handles in [Handles::Table, Handles::Auto] {
        HANDLES.set(handles);
        let export = Export::new();
        let inner = &export.fs().inner;
        let mut stat = sys::stat(&inner.root.path, true).unwrap();
        assert!(inner.is_here(&stat));
        stat.device.1 += 1;
        assert_eq!(inner.is_here(&stat), export.fs().has_kernel_handles());
    }
}
