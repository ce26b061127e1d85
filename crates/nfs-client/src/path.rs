//! Paths and their components.

use crate::Fault;
use nfs_proto::Name;

/// Treatment of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// The components of a path, without empty ones and `.`.
pub(crate) fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
}

/// The directory and the last component of a path.
///
/// # Errors
///
/// [`Fault::NotAnEntry`] if the path ends in no name, and the status of a name that cannot be one.
pub(crate) fn split(path: &[u8]) -> Result<(&[u8], Name<'_>), Fault> {
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |last| last + 1);
    let begin = path[..end]
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    let last = &path[begin..end];
    if last.is_empty() {
        return Err(Fault::NotAnEntry);
    }
    let name = Name::new(last)?;
    if name.is_dot() {
        return Err(Fault::NotAnEntry);
    }
    Ok((&path[..begin], name))
}

/// `dir/name`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::Status;

    #[track_caller]
    fn check(path: &str, dir: &str, name: &str) {
        let (at, last) = split(path.as_bytes()).unwrap();
        assert_eq!((at, last.get()), (dir.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn last_component_is_split_off() {
        check("/a/b", "/a/", "b");
        check("/a/b//", "/a/", "b");
        check("b", "", "b");
        check("/b", "/", "b");
    }

    #[test]
    fn path_that_names_no_entry_is_refused() {
        for path in ["", "/", "//", "/a/..", "a/.", "."] {
            assert_eq!(
                split(path.as_bytes()).unwrap_err(),
                Fault::NotAnEntry,
                "{path}"
            );
        }
        let long = [b'x'; 256];
        assert_eq!(
            split(&long).unwrap_err(),
            Fault::Status(Status::NameTooLong)
        );
    }

    #[test]
    fn empty_components_and_dots_are_left_out() {
        let names: Vec<_> = components(b"//a/./b/../c/").collect();
        assert_eq!(names, [&b"a"[..], b"b", b"..", b"c"]);
    }
}
