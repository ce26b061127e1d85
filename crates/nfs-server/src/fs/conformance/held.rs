//! Files that clients keep open, and values of the change attribute.

use super::{Done, Subject};
use crate::LocalFs;
use crate::fs::{
    ByteRange, Error, FileId, FileKind, HeldFile, Identity, LockMode, Make, OpenAccess,
    SetAttributes, Stability,
};
use bytes::Bytes;
use oncrpc::PeerGroup;
use oncrpc::xdr::Gather;
use std::sync::Arc;

impl Subject {
    fn open(&self, file: FileId, access: OpenAccess) -> Done<Arc<dyn HeldFile>> {
        let holder = PeerGroup::THIS_MACHINE;
        self.fs.open(&self.who, file, access, holder).wait()
    }
}

pub(super) fn held_file_outlives_its_last_name(s: &Subject) {
    let file = s.file(s.root(), "f");
    s.write(file, 0, b"data").unwrap();
    let access = OpenAccess::READ | OpenAccess::WRITE;
    let one = s.open(file, access).unwrap();
    let other = s.open(file, OpenAccess::READ).unwrap();
    s.remove(s.root(), "f").unwrap();
    assert_eq!(s.lookup(s.root(), "f").err(), Some(Error::NotFound));
    assert_eq!((s.stat(file).links, s.stat(file).size), (0, 4));
    assert_eq!(s.read(file, 0, 10), (b"data".to_vec(), true));
    s.write(file, 4, b" and more").unwrap();
    s.set(file, SetAttributes::size(8)).unwrap();
    assert_eq!(s.fs.commit(&s.who, file, 0, 0).wait().result, Ok(()));
    assert_eq!(s.link(file, s.root(), "again"), Err(Error::NotFound));
    // A file of the same name is another file.
    let new = s.file(s.root(), "f");
    assert_ne!(new, file);
    s.write(new, 0, b"new").unwrap();
    drop(one);
    // Whoever has the handle uses the file.
    let late = s.open(file, OpenAccess::READ).unwrap();
    drop(other);
    assert_eq!(s.read(file, 0, 10), (b"data and".to_vec(), true));
    drop(late);
    assert_eq!(s.fs.attributes(file).wait(), Err(Error::Stale));
    assert_eq!(s.open(file, OpenAccess::READ).err(), Some(Error::Stale));
    assert_eq!(s.read(new, 0, 10), (b"new".to_vec(), true));
}

pub(super) fn held_file_outlives_its_replacement(s: &Subject) {
    let (old, new) = (s.file(s.root(), "old"), s.file(s.root(), "new"));
    s.write(old, 0, b"old").unwrap();
    let held = s.open(old, OpenAccess::READ).unwrap();
    s.rename((s.root(), "new"), (s.root(), "old")).unwrap();
    assert_eq!(s.read(old, 0, 10), (b"old".to_vec(), true));
    assert_eq!(s.lookup(s.root(), "old"), Ok(new));
    drop(held);
    assert_eq!(s.fs.attributes(old).wait(), Err(Error::Stale));
}

pub(super) fn file_that_was_held_and_has_a_name_stays(s: &Subject) {
    let file = s.file(s.root(), "f");
    let held = s.open(file, OpenAccess::WRITE).unwrap();
    s.link(file, s.root(), "g").unwrap();
    s.remove(s.root(), "f").unwrap();
    drop(held);
    assert_eq!(s.stat(file).links, 1);
    s.write(file, 0, b"x").unwrap();
}

pub(super) fn only_files_are_held(s: &Subject) {
    let open = |file| s.open(file, OpenAccess::READ).err();
    assert_eq!(open(s.directory(s.root(), "d")), Some(Error::IsDirectory));
    let text = Bytes::from_static(b"to");
    let link = Make::Symlink(text, SetAttributes::default());
    let link = s.make(s.root(), "l", link).unwrap();
    assert_eq!(open(link), Some(Error::Invalid));
    let fifo = Make::Special(FileKind::Fifo, (0, 0), SetAttributes::default());
    let fifo = s.make(s.root(), "p", fifo).unwrap();
    assert_eq!(open(fifo), Some(Error::Invalid));
}

/// As READ and WRITE grant it (RFC 1813 §4.4).
pub(super) fn file_is_held_by_who_may_use_it(s: &Subject) {
    if !LocalFs::acts_for_callers() {
        return;
    }
    let file = s.file(s.root(), "f");
    let (owner, other) = (Identity::new(1000, 1000), Identity::new(2000, 2000));
    let to_owner = SetAttributes {
        uid: Some(owner.uid),
        gid: Some(owner.gid),
        ..SetAttributes::default()
    };
    s.set(file, to_owner).unwrap();
    let (read, write) = (OpenAccess::READ, OpenAccess::WRITE);
    let refused = |who: &Identity, access| {
        let opened = s.fs.open(who, file, access, PeerGroup::THIS_MACHINE);
        opened.wait().err()
    };
    let modes = [
        (0o600, Some(Error::Access), Some(Error::Access)),
        (0o604, None, Some(Error::Access)),
        (0o601, None, Some(Error::Access)),
        (0o602, Some(Error::Access), None),
        (0o000, Some(Error::Access), Some(Error::Access)),
    ];
    for (mode, reading, writing) in modes {
        s.set(file, SetAttributes::mode(mode)).unwrap();
        assert_eq!(refused(&other, read), reading, "{mode:o}");
        assert_eq!(refused(&other, write), writing, "{mode:o}");
        let both = reading.or(writing);
        assert_eq!(refused(&other, read | write), both, "{mode:o}");
        assert_eq!(refused(&owner, read | write), None, "{mode:o}");
    }
}

pub(super) fn locks_of_one_owner_do_not_fail(s: &Subject) {
    let file = s.file(s.root(), "f");
    let held = s.open(file, OpenAccess::READ | OpenAccess::WRITE).unwrap();
    let locks = held.open_for_locks().wait().unwrap();
    for mode in [LockMode::Shared, LockMode::Exclusive, LockMode::Shared] {
        assert_eq!(locks.lock(ByteRange::ALL, mode), Ok(None));
        assert_eq!(locks.test(ByteRange::ALL, mode), Ok(None));
    }
    locks.unlock(ByteRange::ALL);
}

pub(super) fn each_change_has_a_new_value_of_the_change_attribute(s: &Subject) {
    let (root, file) = (s.root(), s.file(s.root(), "f"));
    let mut told = vec![(s.stat(root).change, s.stat(file).change)];
    let mut check = |what: &str, directory: bool| {
        let now = (s.stat(root).change, s.stat(file).change);
        assert!(told.iter().all(|(_, file)| *file != now.1), "{what}");
        assert!(
            !directory || told.iter().all(|(root, _)| *root != now.0),
            "{what}"
        );
        told.push(now);
    };
    s.write(file, 0, b"data").unwrap();
    check("write", false);
    s.write(file, 0, b"more").unwrap();
    check("write", false);
    s.set(file, SetAttributes::size(2)).unwrap();
    check("truncate", false);
    s.set(file, SetAttributes::mode(0o600)).unwrap();
    check("chmod", false);
    s.link(file, root, "g").unwrap();
    check("link", true);
    s.rename((root, "g"), (root, "h")).unwrap();
    check("rename", true);
    s.remove(root, "h").unwrap();
    check("remove", true);
}

pub(super) fn change_is_told_with_the_values_around_it(s: &Subject) {
    let file = s.file(s.root(), "f");
    for _ in 0..100 {
        let data = Gather::from_elem(Bytes::from_static(b"xyz"), 1);
        let wrote =
            s.fs.write(&s.who, file, 0, data, Stability::Unstable)
                .wait();
        let (before, after) = (wrote.wcc.before.unwrap(), wrote.wcc.after.unwrap());
        assert_ne!(before.change, after.change);
    }
}
