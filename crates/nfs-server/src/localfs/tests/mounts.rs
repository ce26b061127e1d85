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
