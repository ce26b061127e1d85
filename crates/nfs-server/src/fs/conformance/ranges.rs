//! Space of ranges of files, data and holes.

use super::{Done, Subject};
use crate::fs::{Changed, Content, Error, FileId, Reserve, SetAttributes, Sought};

const MIB: u64 = 1 << 20;

impl Subject {
    fn reserve(&self, file: FileId, range: (u64, u64), what: Reserve) -> Changed<()> {
        self.fs.reserve(&self.who, file, range, what).wait()
    }

    fn seek(&self, file: FileId, offset: u64, content: Content) -> Done<Sought> {
        self.fs.seek(&self.who, file, offset, content).wait().result
    }
}

fn at(offset: u64) -> Done<Sought> {
    let eof = false;
    Ok(Sought { offset, eof })
}

fn end(offset: u64) -> Done<Sought> {
    let eof = true;
    Ok(Sought { offset, eof })
}

pub(super) fn data_and_holes_are_found(s: &Subject) {
    let file = s.file(s.root(), "f");
    s.write(file, MIB, &[1; 1 << 20]).unwrap();
    s.set(file, SetAttributes::size(3 * MIB)).unwrap();
    let seek = |offset, content| s.seek(file, offset, content);
    assert_eq!(seek(0, Content::Data), at(MIB));
    assert_eq!(seek(0, Content::Hole), at(0));
    assert_eq!(seek(MIB + 5, Content::Data), at(MIB + 5));
    assert_eq!(seek(MIB + 5, Content::Hole), at(2 * MIB));
    assert_eq!(seek(2 * MIB + 5, Content::Hole), at(2 * MIB + 5));
    assert_eq!(seek(2 * MIB + 5, Content::Data), end(3 * MIB));
    s.write(file, 3 * MIB - 9, b"the end..").unwrap();
    assert_eq!(seek(3 * MIB - 1, Content::Data), at(3 * MIB - 1));
    assert_eq!(seek(3 * MIB - 1, Content::Hole), end(3 * MIB));
}

pub(super) fn no_data_is_found_behind_the_end(s: &Subject) {
    let file = s.file(s.root(), "f");
    for content in [Content::Data, Content::Hole] {
        assert_eq!(s.seek(file, 0, content), Err(Error::PastEnd));
    }
    s.write(file, 0, b"data").unwrap();
    for content in [Content::Data, Content::Hole] {
        assert_eq!(s.seek(file, 4, content), Err(Error::PastEnd));
        assert_eq!(s.seek(file, u64::MAX, content), Err(Error::PastEnd));
    }
}

pub(super) fn only_files_have_ranges(s: &Subject) {
    let dir = s.directory(s.root(), "d");
    for what in [Reserve::Space, Reserve::Nothing] {
        let done = s.reserve(dir, (0, 1), what);
        assert_eq!(done.result, Err(Error::IsDirectory));
        let file = s.file(s.root(), "f");
        let done = s.reserve(file, (u64::MAX, 1), Reserve::Nothing);
        assert_eq!(done.result, Err(Error::TooLarge));
        s.remove(s.root(), "f").unwrap();
    }
    let found = s.seek(dir, 0, Content::Data);
    assert_eq!(found, Err(Error::IsDirectory));
}

pub(super) fn range_without_space_reads_as_zeroes(s: &Subject) {
    let file = s.file(s.root(), "f");
    s.write(file, 0, &[1; 3 << 20]).unwrap();
    let done = s.reserve(file, (MIB - 3, MIB), Reserve::Nothing);
    assert_eq!(done.result, Ok(()));
    let (before, after) = (done.wcc.before.unwrap(), done.wcc.after.unwrap());
    assert_ne!(before.change, after.change);
    assert_eq!(after.size, 3 * MIB);
    let (data, _) = s.read(file, MIB - 4, 1 << 20);
    assert_eq!(data[0], 1);
    assert!(data[1..].iter().all(|&byte| byte == 0));
    assert_eq!(s.read(file, 2 * MIB - 3, 1).0, [1]);
    let found = s.seek(file, 0, Content::Hole).unwrap();
    assert!(
        found.offset >= MIB - 3 && found.offset < 2 * MIB,
        "{found:?}"
    );
    // Behind the end nothing is to be given back.
    let done = s.reserve(file, (9 * MIB, 1), Reserve::Nothing);
    assert_eq!(done.result, Ok(()));
    assert_eq!(s.stat(file).size, 3 * MIB);
}

pub(super) fn reserved_space_is_part_of_the_file(s: &Subject) {
    let file = s.file(s.root(), "f");
    s.write(file, 0, b"data").unwrap();
    let done = s.reserve(file, (2, MIB), Reserve::Space);
    if done.result == Err(Error::NotSupported) {
        // A file system that cannot promise space does not.
        assert_eq!(s.stat(file).size, 4);
        return;
    }
    assert_eq!(done.result, Ok(()));
    let attributes = s.stat(file);
    assert_eq!(attributes.size, MIB + 2);
    assert!(attributes.used >= MIB);
    let (data, _) = s.read(file, 0, 8);
    assert_eq!(data, b"data\0\0\0\0");
}
