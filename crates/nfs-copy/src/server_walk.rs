//! A directory tree on a server, in order: each directory both before and after what is in it.

use crate::connection::Connection;
use crate::file_error::FileError;
use crate::place::{Of, Place};
use nfs_client::{Node, Walk, WalkEntry};
use nfs_proto::FileType;

/// A step of a walk.
pub enum Visit {
    /// A directory. What is in it follows.
    Enter(Place, Node),
    /// Anything else.
    Other(Place, Node),
    /// The end of what is in the directory that was entered last and not left yet.
    Leave(Place),
}

/// A walk through what is in a directory, without that directory itself. Symbolic links are not followed.
pub struct ServerWalk<'a> {
    top: &'a Place,
    walk: Walk<'a, Connection>,
    /// Directories that were entered and not left yet.
    way: Vec<WalkEntry>,
    /// Found, and told once the directories that it is not in have been left.
    next: Option<WalkEntry>,
    ended: bool,
}

impl<'a> ServerWalk<'a> {
    /// Begins a walk.
    ///
    /// # Errors
    ///
    /// There is no directory.
    pub async fn new(top: &'a Place) -> Result<Self, FileError> {
        Ok(Self {
            top,
            walk: top.export.walk(&top.path).await.of(top)?,
            way: Vec::new(),
            next: None,
            ended: false,
        })
    }

    /// The next step; nothing at the end.
    ///
    /// # Errors
    ///
    /// Errors of the server. The walk can go on: it leaves out what the error is about.
    pub async fn next(&mut self) -> Result<Option<Visit>, FileError> {
        if self.next.is_none() && !self.ended {
            self.next = self.walk.next().await.of(self.top)?;
            self.ended = self.next.is_none();
        }
        let leave = self.way.last().is_some_and(|last| match &self.next {
            Some(next) => !is_in(&next.path, &last.path),
            None => true,
        });
        if leave {
            let left = self.way.pop();
            return Ok(left.map(|left| Visit::Leave(self.top.found(&left.path))));
        }
        let Some(found) = self.next.take() else {
            return Ok(None);
        };
        let place = self.top.found(&found.path);
        let node = found.node;
        if node.attributes.file_type != FileType::Directory {
            return Ok(Some(Visit::Other(place, node)));
        }
        self.way.push(found);
        Ok(Some(Visit::Enter(place, node)))
    }

    /// Neither goes into the directory that was entered last nor leaves it.
    pub fn skip(&mut self) {
        self.walk.skip();
        self.way.pop();
    }
}

fn is_in(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|below| below.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_in_a_directory_and_not_beside_one_whose_name_it_begins_with() {
        assert!(is_in(b"/a/b", b"/a") && is_in(b"a/b/c", b"a/b"));
        assert!(!is_in(b"/ab", b"/a") && !is_in(b"/a", b"/a") && !is_in(b"/b/a", b"/a"));
    }
}
