//! Extended attributes.

use super::{Done, Subject};
use crate::fs::{
    Changed, Error, FileId, FileKind, MAX_XATTR_VALUE, Make, SetAttributes, SetXattr, XattrName,
};
use bytes::Bytes;

fn named(name: &str) -> XattrName<'_> {
    XattrName::new(name.as_bytes()).unwrap()
}

impl Subject {
    fn set_xattr(&self, file: FileId, name: &str, value: &[u8], how: SetXattr) -> Changed<()> {
        let value = Bytes::copy_from_slice(value);
        let done = self.fs.set_xattr(&self.who, file, named(name), value, how);
        done.wait()
    }

    fn xattr(&self, file: FileId, name: &str) -> Done<Vec<u8>> {
        let seen = self.fs.xattr(&self.who, file, named(name)).wait();
        seen.result.map(|value| value.to_vec())
    }

    fn xattrs(&self, file: FileId) -> Done<Vec<Vec<u8>>> {
        let seen = self.fs.xattrs(&self.who, file).wait();
        let names = seen.result?;
        let mut names: Vec<_> = names.iter().map(<[u8]>::to_vec).collect();
        names.sort();
        Ok(names)
    }

    fn remove_xattr(&self, file: FileId, name: &str) -> Changed<()> {
        self.fs.remove_xattr(&self.who, file, named(name)).wait()
    }
}

/// Whether the file system has no attributes of users, as tmpfs before Linux 6.6, and says so.
fn has_none(s: &Subject) -> bool {
    let has_none = !s.fs.abilities().xattrs;
    if has_none {
        let set = s.set_xattr(s.root(), "name", b"value", SetXattr::Either);
        assert_eq!(set.result, Err(Error::NotSupported));
    }
    has_none
}

pub(super) fn attribute_is_made_replaced_and_removed_as_asked(s: &Subject) {
    if has_none(s) {
        return;
    }
    for file in [s.file(s.root(), "f"), s.directory(s.root(), "d")] {
        let set = |value: &[u8], how| s.set_xattr(file, "name", value, how).result;
        assert_eq!(s.xattr(file, "name"), Err(Error::NoXattr));
        assert_eq!(set(b"no", SetXattr::Replace), Err(Error::NoXattr));
        assert_eq!(set(b"one", SetXattr::Create), Ok(()));
        assert_eq!(set(b"no", SetXattr::Create), Err(Error::Exists));
        assert_eq!(s.xattr(file, "name"), Ok(b"one".to_vec()));
        assert_eq!(set(b"another", SetXattr::Replace), Ok(()));
        assert_eq!(s.xattr(file, "name"), Ok(b"another".to_vec()));
        assert_eq!(set(b"", SetXattr::Either), Ok(()));
        assert_eq!(s.xattr(file, "name"), Ok(Vec::new()));
        assert_eq!(s.remove_xattr(file, "name").result, Ok(()));
        let twice = s.remove_xattr(file, "name").result;
        assert_eq!(twice, Err(Error::NoXattr));
        assert_eq!(set(b"again", SetXattr::Either), Ok(()));
    }
}

pub(super) fn change_of_an_attribute_is_told(s: &Subject) {
    if has_none(s) {
        return;
    }
    let file = s.file(s.root(), "f");
    let changes = [
        s.set_xattr(file, "name", b"one", SetXattr::Create),
        s.set_xattr(file, "name", b"two", SetXattr::Replace),
        s.remove_xattr(file, "name"),
    ];
    for changed in changes {
        let (before, after) = (changed.wcc.before.unwrap(), changed.wcc.after.unwrap());
        assert_ne!(before.change, after.change);
        assert!(before.ctime <= after.ctime);
        assert_eq!(before.mtime, after.mtime);
    }
}

pub(super) fn list_has_the_names_of_users(s: &Subject) {
    if has_none(s) {
        return;
    }
    let file = s.file(s.root(), "f");
    assert_eq!(s.xattrs(file), Ok(Vec::new()));
    // No namespace is part of a name, nor is one seen in it.
    for name in ["b", "user.a", "security.selinux"] {
        let set = s.set_xattr(file, name, b"value", SetXattr::Create);
        assert_eq!(set.result, Ok(()));
    }
    let all = [&b"b"[..], b"security.selinux", b"user.a"].map(<[u8]>::to_vec);
    assert_eq!(s.xattrs(file), Ok(all.to_vec()));
}

pub(super) fn only_files_and_directories_have_attributes(s: &Subject) {
    let link = Make::Symlink("f".into(), SetAttributes::default());
    let fifo = Make::Special(FileKind::Fifo, (0, 0), SetAttributes::mode(0o600));
    for (name, what) in [("link", link), ("fifo", fifo)] {
        let file = s.make(s.root(), name, what).unwrap();
        let set = s.set_xattr(file, "name", b"value", SetXattr::Either);
        assert_eq!(set.result, Err(Error::Invalid));
        assert_eq!(s.xattr(file, "name"), Err(Error::Invalid));
        assert_eq!(s.xattrs(file), Err(Error::Invalid));
        assert_eq!(s.remove_xattr(file, "name").result, Err(Error::Invalid));
    }
}

pub(super) fn values_have_a_largest_size(s: &Subject) {
    if has_none(s) {
        return;
    }
    let file = s.file(s.root(), "f");
    let mut value = vec![7; MAX_XATTR_VALUE + 1];
    let set = s.set_xattr(file, "name", &value, SetXattr::Either);
    assert_eq!(set.result, Err(Error::XattrTooLarge));
    value.pop();
    // Not all file systems of Linux have room for the largest values.
    match s.set_xattr(file, "name", &value, SetXattr::Either).result {
        Ok(()) => assert_eq!(s.xattr(file, "name"), Ok(value)),
        Err(error) => assert!(
            matches!(error, Error::NoSpace | Error::XattrTooLarge),
            "{error}"
        ),
    }
    let longest = "x".repeat(crate::fs::MAX_XATTR_NAME);
    let set = s.set_xattr(file, &longest, &[1; 2000], SetXattr::Either);
    assert_eq!(set.result, Ok(()));
    assert_eq!(s.xattr(file, &longest), Ok(vec![1; 2000]));
}
