//! Walks a directory tree.

use crate::again::Again;
use crate::error::At;
use crate::path::join;
use crate::{DirEntry, Directory, Error, Export, Fault, Node};
use nfs_proto::{FileType, Name, Status};
use oncrpc::Transport;

/// Directories within directories that are walked; a server that invents more is given up.
const MAX_DEPTH: usize = 1000;

/// An entry found by a [`Walk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEntry {
    /// Path of the entry, which begins with that of the walk's root.
    pub path: Vec<u8>,
    /// Handle and attributes.
    pub node: Node,
}

/// A walk through a tree, each directory before its entries. It holds one page of entries per
/// level.
#[derive(Debug)]
pub struct Walk<'c, T> {
    export: &'c Export<T>,
    way: Vec<Directory<'c, T>>,
    /// Found, and to be gone into with the next step.
    enter: Option<WalkEntry>,
}

impl<'c, T: Transport + Send + Sync> Walk<'c, T> {
    pub(crate) fn new(export: &'c Export<T>, from: Directory<'c, T>) -> Self {
        Self {
            export,
            way: vec![from],
            enter: None,
        }
    }

    /// Returns the next entry; `None` at the end. Entries that vanished since their directory was
    /// listed are skipped.
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call. The walk may continue without the affected entry.
    pub async fn next(&mut self) -> Result<Option<WalkEntry>, Error> {
        if let Some(found) = self.enter.take() {
            if self.way.len() >= MAX_DEPTH {
                let deep = Fault::Nonsense("directories are nested without end");
                return Err(deep).at("walk through", self.export.full(&found.path));
            }
            self.way
                .push(self.export.list_dir(found.node.handle, &found.path));
        }
        while let Some(directory) = self.way.last_mut() {
            let entry = match directory.next().await {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    self.way.pop();
                    continue;
                }
                Err(error) => {
                    self.way.pop();
                    return Err(error);
                }
            };
            let (dir, path) = (directory.handle(), join(directory.path(), &entry.name));
            let node = match self.export.node_of(dir, &entry).await {
                Ok(node) => node,
                Err(Fault::Status(Status::NoEntry | Status::Stale)) => continue,
                Err(fault) => return Err(fault).at("find", self.export.full(&path)),
            };
            let found = WalkEntry { path, node };
            if node.attributes.file_type == FileType::Directory {
                self.enter = Some(found.clone());
            }
            return Ok(Some(found));
        }
        Ok(None)
    }

    /// Skips the contents of the directory that was returned last.
    pub fn skip(&mut self) {
        self.enter = None;
    }
}

impl<T: Transport + Send + Sync> Export<T> {
    /// Returns the handle and attributes of an entry, and looks them up if the listing lacks them.
    ///
    /// # Errors
    ///
    /// The error of LOOKUP: [`Status::NoEntry`] if the entry has vanished.
    pub async fn node_of(
        &self,
        dir: nfs_proto::FileHandle,
        entry: &DirEntry,
    ) -> Result<Node, Fault> {
        match (entry.handle, entry.attributes) {
            (Some(handle), Some(attributes)) => Ok(Node { handle, attributes }),
            _ => {
                let mut again = Again::default();
                loop {
                    match self.lookup(dir, Name::new(&entry.name)?).await {
                        Err(fault) if again.after(&fault) => {}
                        found => return found,
                    }
                }
            }
        }
    }
}
