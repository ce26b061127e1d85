//! Paths: their components, and what they lead to.

use crate::{Export, Fault, Node};
use nfs_proto::{FileType, Name};
use oncrpc::Transport;

/// Symbolic links that are followed in one path, as Linux does it.
const MAX_SYMLINKS: usize = 40;

/// What happens to a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// The components of a path, without empty ones and `.`.
pub(crate) fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|octet| *octet == b'/')
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
        .rposition(|octet| *octet != b'/')
        .map_or(0, |last| last + 1);
    let begin = path[..end]
        .iter()
        .rposition(|octet| *octet == b'/')
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

impl<T: Transport + Send + Sync> Export<T> {
    /// What a path leads to. `..` goes back the way the path came, and never out of the export; an
    /// absolute symbolic link begins at the root of the export (RFC 2224 §6.2).
    pub(crate) async fn find(&self, path: &[u8], last: Last) -> Result<Node, Fault> {
        let mut way = vec![self.root()];
        let mut rest: Vec<Vec<u8>> = components(path).rev().map(<[u8]>::to_vec).collect();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == b".." {
                if way.len() > 1 {
                    way.pop();
                }
                continue;
            }
            let dir = way.last().expect("the way begins at the root").handle;
            let node = self.lookup(dir, Name::new(&name)?).await?;
            let end = rest.is_empty() && last == Last::Keep;
            if node.attributes.file_type != FileType::Symlink || end {
                way.push(node);
                continue;
            }
            links += 1;
            if links > MAX_SYMLINKS {
                return Err(Fault::TooManySymlinks);
            }
            let target = self.nfs().read_link(node.handle).await?;
            if target.starts_with(b"/") {
                way.truncate(1);
            }
            rest.extend(components(&target).rev().map(<[u8]>::to_vec));
        }
        Ok(way.pop().expect("the way begins at the root"))
    }

    /// What a name in a directory stands for, with its attributes.
    pub(crate) async fn lookup(
        &self,
        dir: nfs_proto::FileHandle,
        name: Name<'_>,
    ) -> Result<Node, Fault> {
        let (handle, attributes) = self.nfs().lookup(dir, name).await?;
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => self.nfs().get_attributes(handle).await?,
        };
        Ok(Node { handle, attributes })
    }
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
