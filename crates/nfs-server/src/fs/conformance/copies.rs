//! Copies between files, and shared data.

use super::{Done, Subject};
use crate::fs::{Error, FileId, Identity, SetAttributes};

const KIB: u64 = 1 << 10;

impl Subject {
    fn copy(&self, from: (FileId, u64), to: (FileId, u64), len: u64) -> Done<u64> {
        self.fs.copy(&self.who, from, to, len).wait().result
    }

    fn clone_range(&self, from: (FileId, u64), to: (FileId, u64), len: u64) -> Done<()> {
        self.fs.clone_range(&self.who, from, to, len).wait().result
    }
}

/// Whether the file system, or the kernel for it, makes no copies.
fn has_none(s: &Subject, (from, to): (FileId, FileId)) -> bool {
    s.copy((from, 0), (to, 0), 1) == Err(Error::NotSupported)
}

pub(super) fn data_is_copied_from_file_to_file(s: &Subject) {
    let (from, to) = (s.file(s.root(), "from"), s.file(s.root(), "to"));
    s.write(from, 0, b"some data").unwrap();
    if has_none(s, (from, to)) {
        return;
    }
    s.write(to, 0, b"0123").unwrap();
    assert_eq!(s.copy((from, 5), (to, 2), 4), Ok(4));
    assert_eq!(s.read(to, 0, 100), (b"01data".to_vec(), true));
    assert_eq!(s.copy((from, 0), (to, 8), 4), Ok(4));
    assert_eq!(s.read(to, 0, 100).0, b"01data\0\0some");
    assert_eq!(s.read(from, 0, 100).0, b"some data");
    let far = s.copy((from, 0), (to, u64::MAX), 4);
    assert_eq!(far, Err(Error::TooLarge));
    let dir = s.directory(s.root(), "d");
    assert_eq!(s.copy((dir, 0), (to, 0), 4), Err(Error::IsDirectory));
    assert_eq!(s.copy((from, 0), (dir, 0), 4), Err(Error::IsDirectory));
}

pub(super) fn shared_data_is_of_two_files(s: &Subject) {
    let (from, to) = (s.file(s.root(), "from"), s.file(s.root(), "to"));
    s.write(from, 0, &[1; 192 << 10]).unwrap();
    s.write(to, 0, &[2; 192 << 10]).unwrap();
    let clone = |to, at| s.clone_range((from, 64 * KIB), (to, at), 64 * KIB);
    let Some(block) = s.fs.abilities().clone_block else {
        assert_eq!(clone(to, 0), Err(Error::NotSupported));
        return;
    };
    assert!(u64::from(block.get()) <= 64 * KIB);
    assert_eq!(clone(to, 64 * KIB), Ok(()));
    s.write(from, 64 * KIB, b"changed").unwrap();
    let (data, _) = s.read(to, 0, 192 << 10);
    let expected: Vec<u8> = [2, 1, 2]
        .iter()
        .flat_map(|&byte| [byte; 64 << 10])
        .collect();
    assert_eq!(data, expected);
    assert_eq!(clone(from, 192 * KIB), Ok(()));
    assert_eq!(s.stat(from).size, 256 * KIB);
    assert_eq!(s.read(from, 192 * KIB, 9).0, b"changed\x01\x01");
}

pub(super) fn copy_is_for_those_who_may_read_and_write(s: &Subject) {
    let (from, to) = (s.file(s.root(), "from"), s.file(s.root(), "to"));
    s.write(from, 0, b"data").unwrap();
    let user = Identity::new(12_345, 12_345);
    let acts = s.fs.access(&user, to, crate::fs::Access::MODIFY).wait();
    if has_none(s, (from, to)) || acts.result != Ok(crate::fs::Access::empty()) {
        // All callers have the rights of the server.
        return;
    }
    let copy = |from, to| s.fs.copy(&user, (from, 0), (to, 0), 4).wait().result;
    assert_eq!(copy(from, to), Err(Error::Access));
    s.set(to, SetAttributes::mode(0o666)).unwrap();
    assert_eq!(copy(from, to), Ok(4));
    s.set(from, SetAttributes::mode(0o600)).unwrap();
    assert_eq!(copy(from, to), Err(Error::Access));
}
