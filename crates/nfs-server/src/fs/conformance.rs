//! Conformance tests for all file systems of this crate.
//!
//! Each test is a function over a [`Subject`]; the macro at the end runs all of them over a fresh
//! [`MemFs`] and a fresh [`LocalFs`], with handles of the kernel, where there are any, and with the table,
//! also with numbers from paths.

#[cfg(test)]
mod copies;
#[cfg(test)]
mod held;
#[cfg(test)]
mod listings;
#[cfg(test)]
mod ranges;
#[cfg(test)]
mod xattrs;

use super::*;
use crate::{Changes, Handles, LocalFs, LocalFsOptions, MemFs};
use copies::{
    copy_is_for_those_who_may_read_and_write, data_is_copied_from_file_to_file,
    shared_data_is_of_two_files,
};
use held::{
    change_is_told_with_the_values_around_it, each_change_has_a_new_value_of_the_change_attribute,
    file_is_held_by_who_may_use_it, file_that_was_held_and_has_a_name_stays,
    held_file_outlives_its_last_name, held_file_outlives_its_replacement,
    locks_of_one_owner_do_not_fail, only_files_are_held,
};
use listings::{
    cookies_of_another_directory_are_refused, directory_is_listed_whole_in_small_pages,
    directory_without_search_permission_gives_no_handles,
    listing_continues_while_entries_are_added_and_removed, listing_with_attributes_gives_the_files,
};
use ranges::{
    data_and_holes_are_found, no_data_is_found_behind_the_end, only_files_have_ranges,
    range_without_space_reads_as_zeroes, reserved_space_is_part_of_the_file,
};
use tempfile::TempDir;
use xattrs::{
    attribute_is_made_replaced_and_removed_as_asked, change_of_an_attribute_is_told,
    list_has_the_names_of_users, only_files_and_directories_have_attributes,
    values_have_a_largest_size,
};

/// A file system under test, with short forms of what tests do.
struct Subject {
    fs: Box<dyn FileSystem>,
    who: Identity,
    /// Holds the directory of a `LocalFs` until the end of the test.
    _dir: Option<TempDir>,
}

type Done<T> = Result<T, Error>;

impl Subject {
    fn memory() -> Self {
        Self {
            fs: Box::new(MemFs::new(64 << 20)),
            who: Identity::root(),
            _dir: None,
        }
    }

    fn local(handles: Handles) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // A disk that is waited for at each change would make hundreds of files slow.
        let options = LocalFsOptions::default()
            .with_changes(Changes::Cached)
            .with_handles(handles);
        let fs = LocalFs::open(dir.path(), options).unwrap();
        Self {
            fs: Box::new(fs),
            who: Identity::root(),
            _dir: Some(dir),
        }
    }

    fn root(&self) -> FileId {
        self.fs.root()
    }

    fn stat(&self, file: FileId) -> Attributes {
        self.fs.attributes(file).wait().unwrap()
    }

    fn make(&self, dir: FileId, name: &str, what: Make) -> Done<FileId> {
        let done = self.fs.make(&self.who, dir, called(name), what).wait();
        done.result.map(|found| found.file)
    }

    fn file(&self, dir: FileId, name: &str) -> FileId {
        let set = SetAttributes::mode(0o644);
        self.make(dir, name, Make::File(CreateHow::Guarded(set)))
            .unwrap()
    }

    fn directory(&self, dir: FileId, name: &str) -> FileId {
        self.make(dir, name, Make::Directory(SetAttributes::mode(0o755)))
            .unwrap()
    }

    fn lookup(&self, dir: FileId, name: &str) -> Done<FileId> {
        let step = Step::new(name.as_bytes()).unwrap();
        let seen = self.fs.lookup(&self.who, dir, step).wait();
        seen.result.map(|found| found.file)
    }

    fn write(&self, file: FileId, offset: u64, data: &[u8]) -> Done<WriteOut> {
        let data = Gather::from_elem(Bytes::copy_from_slice(data), 1);
        let done = self
            .fs
            .write(&self.who, file, offset, data, Stability::Unstable);
        done.wait().result
    }

    fn read(&self, file: FileId, offset: u64, count: u32) -> (Vec<u8>, bool) {
        let seen = self.fs.read(&self.who, file, offset, count).wait();
        let read = seen.result.unwrap();
        (read.data.concat(), read.eof)
    }

    fn set(&self, file: FileId, set: SetAttributes) -> Done<()> {
        self.fs
            .set_attributes(&self.who, file, set, None)
            .wait()
            .result
    }

    fn remove(&self, dir: FileId, name: &str) -> Done<()> {
        self.fs.remove(&self.who, dir, called(name)).wait().result
    }

    fn remove_directory(&self, dir: FileId, name: &str) -> Done<()> {
        let done = self.fs.remove_directory(&self.who, dir, called(name));
        done.wait().result
    }

    fn rename(&self, from: (FileId, &str), to: (FileId, &str)) -> Done<()> {
        let from = (from.0, called(from.1));
        let to = (to.0, called(to.1));
        self.fs.rename(&self.who, from, to).wait().result
    }

    fn link(&self, file: FileId, dir: FileId, name: &str) -> Done<()> {
        let done = self.fs.link(&self.who, file, dir, called(name)).wait();
        done.result
    }

    fn page(&self, dir: FileId, from: DirFrom, total: usize, plus: bool) -> Done<DirPage> {
        let budget = DirBudget {
            total,
            per_entry: DirBudget::BASE,
            per_handle: 24,
            names: usize::MAX,
        };
        let seen = self.fs.read_directory(&self.who, dir, from, budget, plus);
        seen.wait().result
    }

    /// All names of a directory but `.` and `..`, read in pages of this size.
    fn list(&self, dir: FileId, total: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut from = DirFrom {
            cookie: 0,
            verifier: 0,
        };
        loop {
            let page = self.page(dir, from, total, false).unwrap();
            for (name, entry) in page.iter() {
                from.cookie = entry.cookie;
                names.push(String::from_utf8(name.to_vec()).unwrap());
            }
            from.verifier = page.verifier;
            if page.eof {
                names.retain(|name| name != "." && name != "..");
                return names;
            }
            assert!(!page.entries.is_empty(), "each page gets on");
        }
    }
}

fn called(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn time(seconds: i64) -> SetTime {
    SetTime::To(Time { seconds, nanos: 0 })
}

/// Attributes without the value of the change attribute, which another look at a file that just changed may not repeat.
fn state(attributes: Attributes) -> Attributes {
    Attributes {
        change: 0,
        ..attributes
    }
}

fn root_is_a_directory_of_its_own(s: &Subject) {
    let root = s.root();
    assert!(s.stat(root).is_directory());
    assert_eq!(s.lookup(root, ".").unwrap(), root);
    assert_eq!(s.lookup(root, "..").unwrap(), root);
    assert!(s.list(root, 4096).is_empty());
}

fn file_data_reads_back_as_written(s: &Subject) {
    let file = s.file(s.root(), "f");
    assert_eq!(s.lookup(s.root(), "f").unwrap(), file);
    let written = s.write(file, 0, b"hello world").unwrap();
    assert_eq!(written.count, 11);
    assert_eq!(s.read(file, 0, 100), (b"hello world".to_vec(), true));
    assert_eq!(s.read(file, 0, 5), (b"hello".to_vec(), false));
    assert_eq!(s.read(file, 6, 5), (b"world".to_vec(), true));
    assert_eq!(s.read(file, 6, 0), (vec![], false));
    assert_eq!(s.read(file, 11, 5), (vec![], true));
    assert_eq!(s.read(file, 1 << 40, 5), (vec![], true));
    s.write(file, 6, b"W").unwrap();
    assert_eq!(s.read(file, 0, 100).0, b"hello World");
    assert_eq!(s.stat(file).size, 11);
}

fn data_in_several_pieces_is_written_in_order(s: &Subject) {
    let file = s.file(s.root(), "f");
    let pieces: Gather = [&b"abc"[..], b"", &[b'x'; 100_000], b"end"]
        .into_iter()
        .map(Bytes::copy_from_slice)
        .collect();
    let whole = pieces.concat();
    for stability in [
        Stability::Unstable,
        Stability::DataSync,
        Stability::FileSync,
    ] {
        let done =
            s.fs.write(&s.who, file, 5, pieces.clone(), stability)
                .wait();
        let written = done.result.unwrap();
        assert_eq!(written.count as usize, whole.len());
        assert!(written.committed >= stability);
    }
    assert_eq!(s.read(file, 5, 1 << 20), (whole, true));
    let done = s.fs.commit(&s.who, file, 0, 0).wait();
    assert_eq!(done.result, Ok(()));
}

fn holes_read_as_zeroes(s: &Subject) {
    let file = s.file(s.root(), "f");
    s.write(file, 1 << 20, b"end").unwrap();
    let (data, eof) = s.read(file, (1 << 20) - 1000, 2000);
    assert!(eof);
    assert_eq!(data.len(), 1003);
    assert!(data[..1000].iter().all(|&byte| byte == 0));
    assert_eq!(&data[1000..], b"end");
    assert!(s.stat(file).used < 1 << 20);
}

fn truncated_data_reads_as_zeroes_after_extension(s: &Subject) {
    let file = s.file(s.root(), "f");
    s.write(file, 0, b"hello").unwrap();
    s.set(file, SetAttributes::size(2)).unwrap();
    s.set(file, SetAttributes::size(4)).unwrap();
    assert_eq!(s.read(file, 0, 10), (b"he\0\0".to_vec(), true));
}

fn changes_beyond_the_largest_file_are_refused(s: &Subject) {
    let file = s.file(s.root(), "f");
    let most = s.fs.abilities().max_file_size;
    assert_eq!(s.write(file, most, b"xx").err(), Some(Error::TooLarge));
    assert_eq!(s.write(file, u64::MAX, b"x").err(), Some(Error::TooLarge));
    assert_eq!(
        s.set(file, SetAttributes::size(u64::MAX)),
        Err(Error::TooLarge)
    );
    assert_eq!(s.stat(file).size, 0);
}

fn data_operations_take_files_only(s: &Subject) {
    let dir = s.directory(s.root(), "d");
    let text = Bytes::from_static(b"to");
    let link = s
        .make(s.root(), "l", Make::Symlink(text, SetAttributes::default()))
        .unwrap();
    let read = |file| s.fs.read(&s.who, file, 0, 1).wait().result.err();
    assert_eq!(read(dir), Some(Error::IsDirectory));
    assert_eq!(read(link), Some(Error::Invalid));
    assert_eq!(s.write(dir, 0, b"x").err(), Some(Error::IsDirectory));
    assert_eq!(s.write(link, 0, b"x").err(), Some(Error::Invalid));
    let commit = s.fs.commit(&s.who, dir, 0, 0).wait();
    assert_eq!(commit.result, Err(Error::IsDirectory));
    let size = s.set(dir, SetAttributes::size(0));
    assert_eq!(size, Err(Error::IsDirectory));
    let text = s.fs.read_link(&s.who, dir).wait().result.err();
    assert_eq!(text, Some(Error::Invalid));
}

fn directory_operations_take_directories_only(s: &Subject) {
    let file = s.file(s.root(), "f");
    assert_eq!(s.lookup(file, "x").err(), Some(Error::NotDirectory));
    assert_eq!(s.lookup(file, ".").err(), Some(Error::NotDirectory));
    assert_eq!(s.lookup(file, "..").err(), Some(Error::NotDirectory));
    assert_eq!(s.remove(file, "x"), Err(Error::NotDirectory));
    assert_eq!(s.remove_directory(file, "x"), Err(Error::NotDirectory));
    assert_eq!(s.link(file, file, "x"), Err(Error::NotDirectory));
    assert_eq!(
        s.rename((s.root(), "f"), (file, "x")),
        Err(Error::NotDirectory)
    );
    let made = s.make(file, "x", Make::Directory(SetAttributes::default()));
    assert_eq!(made.err(), Some(Error::NotDirectory));
    let from = DirFrom {
        cookie: 0,
        verifier: 0,
    };
    let page = s.page(file, from, 4096, false);
    assert_eq!(page.err(), Some(Error::NotDirectory));
}

fn guarded_create_of_an_existing_name_fails_and_unchecked_reuses_it(s: &Subject) {
    let guarded = Make::File(CreateHow::Guarded(SetAttributes::mode(0o600)));
    let file = s.make(s.root(), "f", guarded.clone()).unwrap();
    s.write(file, 0, b"data").unwrap();
    let again = s.make(s.root(), "f", guarded.clone());
    assert_eq!(again.err(), Some(Error::Exists));
    let unchecked = |set| Make::File(CreateHow::Unchecked(set));
    let mode = SetAttributes::mode(0o777);
    assert_eq!(s.make(s.root(), "f", unchecked(mode)).unwrap(), file);
    let kept = s.stat(file);
    assert_eq!((kept.size, kept.mode), (4, 0o600));
    let empty = SetAttributes::size(0);
    assert_eq!(s.make(s.root(), "f", unchecked(empty)).unwrap(), file);
    assert_eq!(s.stat(file).size, 0);
    s.directory(s.root(), "d");
    let over = s.make(s.root(), "d", unchecked(mode));
    assert_eq!(over.err(), Some(Error::Exists));
    let over = s.make(s.root(), "f", Make::Directory(mode));
    assert_eq!(over.err(), Some(Error::Exists));
}

fn exclusive_create_may_be_repeated(s: &Subject) {
    let exclusive = |verifier: &[u8; 8]| {
        let set = SetAttributes::default();
        Make::File(CreateHow::Exclusive(*verifier, set))
    };
    let file = s.make(s.root(), "f", exclusive(b"\xffbcdefgh")).unwrap();
    let again = s.make(s.root(), "f", exclusive(b"\xffbcdefgh"));
    assert_eq!(again.unwrap(), file);
    let other = s.make(s.root(), "f", exclusive(b"\xffbcdefgi"));
    assert_eq!(other.err(), Some(Error::Exists));
    // The client sets the times, after which the call cannot be a repetition.
    let set = SetAttributes {
        mode: Some(0o640),
        atime: time(1),
        mtime: SetTime::Now,
        ..SetAttributes::default()
    };
    s.set(file, set).unwrap();
    let late = s.make(s.root(), "f", exclusive(b"\xffbcdefgh"));
    assert_eq!(late.err(), Some(Error::Exists));
}

fn new_objects_lack_what_the_umask_of_their_caller_has(s: &Subject) {
    let set = SetAttributes {
        umask: 0o027,
        ..SetAttributes::mode(0o1777)
    };
    for (name, what) in [
        ("f", Make::File(CreateHow::Unchecked(set))),
        ("g", Make::File(CreateHow::Guarded(set))),
        ("x", Make::File(CreateHow::Exclusive([1; 8], set))),
        ("d", Make::Directory(set)),
        ("p", Make::Special(FileKind::Fifo, (0, 0), set)),
    ] {
        let made = s.make(s.root(), name, what).unwrap();
        assert_eq!(s.stat(made).mode, 0o1750, "{name}");
    }
}

fn modes_are_set_whatever_the_umask(s: &Subject) {
    let all = SetAttributes::mode(0o777);
    let file = s
        .make(s.root(), "f", Make::File(CreateHow::Unchecked(all)))
        .unwrap();
    let dir = s.make(s.root(), "d", Make::Directory(all)).unwrap();
    assert_eq!(s.stat(file).mode, 0o777);
    assert_eq!(s.stat(dir).mode, 0o777);
    s.set(file, SetAttributes::mode(0o4510)).unwrap();
    assert_eq!(s.stat(file).mode, 0o4510);
}

/// As chown(2) does. A client leaves that to the server.
fn owner_or_group_that_is_set_again_clears_the_set_id_bits(s: &Subject) {
    let file = s.file(s.root(), "f");
    let Attributes { uid, gid, .. } = s.stat(file);
    let kept = SetAttributes::default();
    let uid = SetAttributes {
        uid: Some(uid),
        ..kept
    };
    let gid = SetAttributes {
        gid: Some(gid),
        ..kept
    };
    for set in [uid, gid] {
        s.set(file, SetAttributes::mode(0o6755)).unwrap();
        assert_eq!(s.stat(file).mode, 0o6755);
        s.set(file, set).unwrap();
        assert_eq!(s.stat(file).mode, 0o755, "{set:?}");
    }
}

fn times_are_set_to_what_is_asked(s: &Subject) {
    let file = s.file(s.root(), "f");
    let before = s.stat(file);
    let set = SetAttributes {
        atime: SetTime::To(Time {
            seconds: 1_000_000_000,
            nanos: 123_456_789,
        }),
        mtime: time(4_000_000_000),
        ..SetAttributes::default()
    };
    s.set(file, set).unwrap();
    let found = s.stat(file);
    assert_eq!(found.atime.seconds, 1_000_000_000);
    assert_eq!(found.atime.nanos, 123_456_789);
    assert_eq!(found.mtime.seconds, 4_000_000_000);
    assert!(found.ctime >= before.ctime);
    let set = SetAttributes {
        mtime: SetTime::Now,
        ..SetAttributes::default()
    };
    s.set(file, set).unwrap();
    let touched = s.stat(file);
    assert_eq!(touched.atime, found.atime);
    assert!(touched.mtime.seconds < 4_000_000_000);
}

fn guarded_setattr_needs_the_current_ctime(s: &Subject) {
    let file = s.file(s.root(), "f");
    let ctime = s.stat(file).ctime;
    let set = |guard| {
        let set = SetAttributes::mode(0o600);
        s.fs.set_attributes(&s.who, file, set, Some(guard)).wait()
    };
    let wrong = Time {
        seconds: ctime.seconds - 1,
        ..ctime
    };
    let refused = set(wrong);
    assert_eq!(refused.result, Err(Error::NotSync));
    assert_eq!(s.stat(file).mode, 0o644);
    assert_eq!(refused.wcc.after.map(state), Some(state(s.stat(file))));
    assert_eq!(set(ctime).result, Ok(()));
    assert_eq!(s.stat(file).mode, 0o600);
}

fn changes_return_attributes_from_before_and_after(s: &Subject) {
    let root = s.root();
    let before = s.stat(root);
    let set = SetAttributes::default();
    let made =
        s.fs.make(&s.who, root, called("d"), Make::Directory(set))
            .wait();
    let from_before = |wcc: Wcc| {
        wcc.before.map(|before| Before {
            change: 0,
            ..before
        })
    };
    assert_eq!(from_before(made.wcc), Some(state(before).before()));
    assert_eq!(made.wcc.after.map(state), Some(state(s.stat(root))));
    assert_eq!(made.wcc.after.unwrap().links, before.links + 1);
    let file = s.file(root, "f");
    let before = s.stat(file);
    let data = Gather::from_elem(Bytes::from_static(b"xyz"), 1);
    let wrote =
        s.fs.write(&s.who, file, 0, data, Stability::Unstable)
            .wait();
    assert_eq!(from_before(wrote.wcc), Some(state(before).before()));
    assert_eq!(wrote.wcc.after.unwrap().size, 3);
    let failed = s.fs.remove(&s.who, root, called("none")).wait();
    assert_eq!(failed.result, Err(Error::NotFound));
    assert_eq!(failed.wcc.after.map(state), Some(state(s.stat(root))));
    let seen = s.fs.lookup(&s.who, root, Step::Name(called("none"))).wait();
    assert_eq!(seen.attributes.map(state), Some(state(s.stat(root))));
}

fn symbolic_links_are_text(s: &Subject) {
    let long = "x/".repeat(1000);
    for (name, text) in [("out", "../../etc/passwd"), ("abs", "/"), ("long", &long)] {
        let text = Bytes::copy_from_slice(text.as_bytes());
        let what = Make::Symlink(text.clone(), SetAttributes::default());
        let link = s.make(s.root(), name, what).unwrap();
        assert_eq!(s.stat(link).kind, FileKind::Symlink);
        assert_eq!(s.lookup(s.root(), name).unwrap(), link);
        assert_eq!(s.fs.read_link(&s.who, link).wait().result.unwrap(), text);
        // Nothing is looked up through it.
        assert_eq!(s.lookup(link, "x").err(), Some(Error::NotDirectory));
    }
    for text in [&b""[..], b"a\0b"] {
        let what = Make::Symlink(Bytes::from_static(text), SetAttributes::default());
        assert_eq!(s.make(s.root(), "bad", what).err(), Some(Error::Invalid));
    }
}

fn special_files_are_made_and_never_opened(s: &Subject) {
    for (name, kind) in [("fifo", FileKind::Fifo), ("socket", FileKind::Socket)] {
        let what = Make::Special(kind, (0, 0), SetAttributes::mode(0o600));
        let file = s.make(s.root(), name, what).unwrap();
        assert_eq!((s.stat(file).kind, s.stat(file).mode), (kind, 0o600));
        let read = s.fs.read(&s.who, file, 0, 1).wait().result;
        assert_eq!(read.err(), Some(Error::Invalid));
    }
    let what = Make::Special(FileKind::Regular, (0, 0), SetAttributes::default());
    assert_eq!(s.make(s.root(), "x", what).err(), Some(Error::BadType));
}

fn removed_files_are_stale(s: &Subject) {
    let file = s.file(s.root(), "f");
    let dir = s.directory(s.root(), "d");
    s.write(file, 0, b"x").unwrap();
    assert_eq!(s.remove(s.root(), "d"), Err(Error::IsDirectory));
    assert_eq!(s.remove_directory(s.root(), "f"), Err(Error::NotDirectory));
    s.remove(s.root(), "f").unwrap();
    s.remove_directory(s.root(), "d").unwrap();
    for gone in [file, dir] {
        assert_eq!(s.fs.attributes(gone).wait(), Err(Error::Stale));
    }
    let read = s.fs.read(&s.who, file, 0, 1).wait().result;
    assert_eq!(read.err(), Some(Error::Stale));
    assert_eq!(s.lookup(s.root(), "f").err(), Some(Error::NotFound));
    assert_eq!(s.remove(s.root(), "f"), Err(Error::NotFound));
    let made = s.make(dir, "x", Make::Directory(SetAttributes::default()));
    assert_eq!(made.err(), Some(Error::Stale));
    // A file of the same name is another file.
    assert_ne!(s.file(s.root(), "f"), file);
}

fn directories_that_are_not_empty_cannot_be_removed(s: &Subject) {
    let dir = s.directory(s.root(), "d");
    s.file(dir, "f");
    assert_eq!(s.remove_directory(s.root(), "d"), Err(Error::NotEmpty));
    s.remove(dir, "f").unwrap();
    assert_eq!(s.remove_directory(s.root(), "d"), Ok(()));
}

fn renamed_files_keep_their_handles(s: &Subject) {
    let (a, b) = (s.directory(s.root(), "a"), s.directory(s.root(), "b"));
    let file = s.file(a, "f");
    s.write(file, 0, b"data").unwrap();
    s.rename((a, "f"), (a, "g")).unwrap();
    assert_eq!(s.lookup(a, "g").unwrap(), file);
    s.rename((a, "g"), (b, "h")).unwrap();
    assert_eq!(s.lookup(b, "h").unwrap(), file);
    assert_eq!(s.lookup(a, "g").err(), Some(Error::NotFound));
    assert_eq!(s.read(file, 0, 10).0, b"data");
    // A directory with what is in it.
    s.rename((s.root(), "b"), (a, "b")).unwrap();
    assert_eq!(s.lookup(a, "b").unwrap(), b);
    assert_eq!(s.lookup(b, "..").unwrap(), a);
    assert_eq!(s.lookup(b, "h").unwrap(), file);
    assert_eq!(s.read(file, 0, 10).0, b"data");
}

fn rename_replaces_only_compatible_targets(s: &Subject) {
    let root = s.root();
    let (old, new) = (s.file(root, "old"), s.file(root, "new"));
    s.rename((root, "new"), (root, "old")).unwrap();
    assert_eq!(s.lookup(root, "old").unwrap(), new);
    assert_eq!(s.fs.attributes(old).wait(), Err(Error::Stale));
    let (empty, full) = (s.directory(root, "empty"), s.directory(root, "full"));
    s.file(full, "f");
    assert_eq!(
        s.rename((root, "empty"), (root, "full")),
        Err(Error::NotEmpty)
    );
    s.rename((root, "full"), (root, "empty")).unwrap();
    assert_eq!(s.fs.attributes(empty).wait(), Err(Error::Stale));
    assert_eq!(
        s.rename((root, "old"), (root, "empty")),
        Err(Error::IsDirectory)
    );
    assert_eq!(
        s.rename((root, "empty"), (root, "old")),
        Err(Error::NotDirectory)
    );
    assert_eq!(s.rename((root, "none"), (root, "x")), Err(Error::NotFound));
    // Into itself.
    assert_eq!(s.rename((root, "empty"), (full, "x")), Err(Error::Invalid));
}

fn hard_links_are_one_file(s: &Subject) {
    let root = s.root();
    let dir = s.directory(root, "d");
    let file = s.file(root, "a");
    s.write(file, 0, b"data").unwrap();
    s.link(file, root, "b").unwrap();
    s.link(file, dir, "c").unwrap();
    assert_eq!(s.stat(file).links, 3);
    for (dir, name) in [(root, "b"), (dir, "c"), (root, "a")] {
        assert_eq!(s.lookup(dir, name).unwrap(), file, "{name}");
    }
    assert_eq!(s.link(file, root, "b"), Err(Error::Exists));
    assert_eq!(s.link(dir, root, "e"), Err(Error::Invalid));
    // Renaming one name to the other leaves both, as POSIX has it.
    s.rename((root, "a"), (root, "b")).unwrap();
    assert_eq!(s.stat(file).links, 3);
    s.remove(root, "a").unwrap();
    s.remove(root, "b").unwrap();
    assert_eq!(s.stat(file).links, 1);
    assert_eq!(s.read(file, 0, 10).0, b"data");
    assert_eq!(s.lookup(dir, "c").unwrap(), file);
    s.remove(dir, "c").unwrap();
    assert_eq!(s.fs.attributes(file).wait(), Err(Error::Stale));
}

fn failed_creation_leaves_nothing_behind(s: &Subject) {
    let too_large = SetAttributes {
        size: Some(u64::MAX),
        ..SetAttributes::mode(0o644)
    };
    let make = Make::File(CreateHow::Guarded(too_large));
    let made = s.make(s.root(), "f", make);
    assert_eq!(made.err(), Some(Error::TooLarge));
    assert_eq!(s.lookup(s.root(), "f").err(), Some(Error::NotFound));
    s.file(s.root(), "f");
}

fn longest_names_work(s: &Subject) {
    let name = "n".repeat(MAX_NAME);
    let file = s.file(s.root(), &name);
    assert_eq!(s.lookup(s.root(), &name).unwrap(), file);
    assert_eq!(s.list(s.root(), 4096), [name]);
}

fn unknown_handles_are_stale(s: &Subject) {
    let known = s.file(s.root(), "f");
    let known = known.as_bytes();
    let changed = |at: usize| {
        let mut bytes = known.to_vec();
        bytes[at] ^= 0x55;
        FileId::new(&bytes)
    };
    let others = [
        FileId::new(&known[..known.len() - 1]),
        FileId::new(&[0xff; FileId::MAX]),
        FileId::new(&[0]),
    ];
    // What follows may only say where to look for it.
    let changed = (0..known.len().min(16)).map(changed);
    let of_known = s.fs.attributes(s.lookup(s.root(), "f").unwrap()).wait();
    for file in changed.chain(others).flatten() {
        match s.fs.attributes(file).wait() {
            // tmpfs does not look at the kind of a handle of the kernel.
            Ok(found) => assert_eq!(Ok(found), of_known, "{file:?}"),
            Err(error) => {
                assert_eq!(error, Error::Stale, "{file:?}");
                assert_eq!(s.lookup(file, "x").err(), Some(Error::Stale));
            }
        }
    }
}

fn file_system_space_is_reported(s: &Subject) {
    let space = s.fs.space(s.root()).wait().result.unwrap();
    assert!(space.total > 0 && space.free <= space.total);
    assert!(space.available <= space.free);
}

macro_rules! over_all {
    ($($test:ident)*) => {
        mod memory {
            $(#[test]
            fn $test() {
                super::$test(&super::Subject::memory());
            })*
        }

        mod local {
            use crate::Handles;
            $(#[test]
            fn $test() {
                super::$test(&super::Subject::local(Handles::Auto));
            })*
        }

        mod local_with_table {
            use crate::Handles;
            $(#[test]
            fn $test() {
                super::$test(&super::Subject::local(Handles::Table));
            })*
        }
    };
}

over_all! {
    root_is_a_directory_of_its_own
    file_data_reads_back_as_written
    data_in_several_pieces_is_written_in_order
    holes_read_as_zeroes
    truncated_data_reads_as_zeroes_after_extension
    changes_beyond_the_largest_file_are_refused
    data_operations_take_files_only
    directory_operations_take_directories_only
    guarded_create_of_an_existing_name_fails_and_unchecked_reuses_it
    exclusive_create_may_be_repeated
    new_objects_lack_what_the_umask_of_their_caller_has
    modes_are_set_whatever_the_umask
    owner_or_group_that_is_set_again_clears_the_set_id_bits
    times_are_set_to_what_is_asked
    guarded_setattr_needs_the_current_ctime
    changes_return_attributes_from_before_and_after
    symbolic_links_are_text
    special_files_are_made_and_never_opened
    removed_files_are_stale
    held_file_outlives_its_last_name
    held_file_outlives_its_replacement
    file_that_was_held_and_has_a_name_stays
    only_files_are_held
    file_is_held_by_who_may_use_it
    locks_of_one_owner_do_not_fail
    each_change_has_a_new_value_of_the_change_attribute
    change_is_told_with_the_values_around_it
    attribute_is_made_replaced_and_removed_as_asked
    change_of_an_attribute_is_told
    list_has_the_names_of_users
    only_files_and_directories_have_attributes
    values_have_a_largest_size
    copy_is_for_those_who_may_read_and_write
    data_is_copied_from_file_to_file
    shared_data_is_of_two_files
    data_and_holes_are_found
    no_data_is_found_behind_the_end
    only_files_have_ranges
    range_without_space_reads_as_zeroes
    reserved_space_is_part_of_the_file
    directories_that_are_not_empty_cannot_be_removed
    renamed_files_keep_their_handles
    rename_replaces_only_compatible_targets
    hard_links_are_one_file
    directory_is_listed_whole_in_small_pages
    listing_continues_while_entries_are_added_and_removed
    listing_with_attributes_gives_the_files
    failed_creation_leaves_nothing_behind
    directory_without_search_permission_gives_no_handles
    cookies_of_another_directory_are_refused
    longest_names_work
    unknown_handles_are_stale
    file_system_space_is_reported
}

/// Those about names, with numbers of files that come from their paths.
macro_rules! by_path {
    ($($test:ident)*) => {
        mod local_by_path {
            use crate::localfs::{AS_IF, IdentifiedBy};
            $(#[test]
            fn $test() {
                AS_IF.set(Some(IdentifiedBy::Path));
                super::$test(&super::Subject::local(crate::Handles::Table));
            })*
        }

        mod local_by_path_and_number {
            use crate::localfs::{AS_IF, IdentifiedBy};
            $(#[test]
            fn $test() {
                AS_IF.set(Some(IdentifiedBy::PathAndNumber));
                super::$test(&super::Subject::local(crate::Handles::Table));
            })*
        }
    };
}

by_path! {
    root_is_a_directory_of_its_own
    guarded_create_of_an_existing_name_fails_and_unchecked_reuses_it
    exclusive_create_may_be_repeated
    changes_return_attributes_from_before_and_after
    symbolic_links_are_text
    special_files_are_made_and_never_opened
    directories_that_are_not_empty_cannot_be_removed
    renamed_files_keep_their_handles
    rename_replaces_only_compatible_targets
    hard_links_are_one_file
    directory_is_listed_whole_in_small_pages
    listing_continues_while_entries_are_added_and_removed
    listing_with_attributes_gives_the_files
    failed_creation_leaves_nothing_behind
    cookies_of_another_directory_are_refused
    longest_names_work
    unknown_handles_are_stale
}
