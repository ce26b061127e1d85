//! Removing a tree.

use crate::error::At;
use crate::in_order::InOrder;
use crate::path::{Last, join};
use crate::{DirEntry, Error, Export, Fault, Node};
use nfs_proto::{FileHandle, FileType, Name, Status};
use oncrpc::Transport;
use std::collections::HashSet;

/// How often a directory may list nothing but names that are gone when they are to be removed.
const MAX_IDLE: u32 = 3;

/// Entries of one directory that cannot be removed before the rest of it is left alone: each is
/// remembered, so as not to be tried again.
const MAX_KEPT: usize = 1000;

/// Directories within directories that are removed; a server that invents more is given up.
const MAX_DEPTH: usize = 1000;

/// A directory that is to be emptied and then removed.
struct Doomed {
    parent: FileHandle,
    name: Vec<u8>,
    path: Vec<u8>,
    handle: FileHandle,
    /// Directories above it that are removed too.
    depth: usize,
    idle: u32,
    /// Names in it that cannot be removed.
    kept: HashSet<Vec<u8>>,
}

impl Doomed {
    fn new(
        parent: FileHandle,
        name: &[u8],
        path: Vec<u8>,
        handle: FileHandle,
        depth: usize,
    ) -> Self {
        Self {
            parent,
            name: name.to_vec(),
            path,
            handle,
            depth,
            idle: 0,
            kept: HashSet::new(),
        }
    }
}

/// Outcome for something that was to be removed with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The file, or the directory, of this path is removed; the path begins as those of errors do.
    Removed(Vec<u8>),
    /// It was not removed.
    Failed(Error),
}

/// Outcome for an entry.
enum Fate {
    Removed,
    /// Another client removed it.
    Gone,
    /// The object is a directory.
    Directory(Node),
}

impl<T: Transport + Send + Sync> Export<T> {
    /// Removes the object at a path, directories with their contents. Symbolic links are removed,
    /// not followed.
    ///
    /// An entry that cannot be removed is reported to `failed` and left, and so are its parent
    /// directories; the rest is removed.
    ///
    /// After each removed page a directory is listed from its beginning again, because removing may
    /// invalidate any cookie (RFC 1813 §3.3.16).
    ///
    /// # Errors
    ///
    /// If the path names nothing that can be removed, or the server stops answering. Entries
    /// removed by then stay removed.
    pub async fn remove_all(
        &self,
        path: impl AsRef<[u8]>,
        mut failed: impl FnMut(Error),
    ) -> Result<(), Error> {
        let tell = |removal| match removal {
            Removal::Removed(_) => {}
            Removal::Failed(error) => failed(error),
        };
        self.remove_tree(path, tell).await
    }

    /// As [`remove_all`](Self::remove_all), but also tells what was removed.
    ///
    /// # Errors
    ///
    /// As [`remove_all`](Self::remove_all).
    pub async fn remove_tree(
        &self,
        path: impl AsRef<[u8]>,
        mut tell: impl FnMut(Removal),
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let (parent, name) = self.place(path).await.at("remove", self.full(path))?;
        let node = self
            .find(path, Last::Keep)
            .await
            .at("remove", self.full(path))?;
        if node.attributes.file_type != FileType::Directory {
            let removed = self.nfs().remove(parent, name).await;
            removed.at("remove", self.full(path))?;
            tell(Removal::Removed(self.full(path).to_vec()));
            return Ok(());
        }
        let first = Doomed::new(parent, &name, path.to_vec(), node.handle, 0);
        // Each directory is behind the one that it is in.
        let mut doomed = vec![first];
        while let Some(mut last) = doomed.pop() {
            let mut left = match self.empty(&mut last, &mut tell).await {
                Ok(None) => !last.kept.is_empty(),
                Ok(Some(below)) => {
                    doomed.push(last);
                    doomed.extend(below);
                    continue;
                }
                Err(error) => {
                    tolerate(error, &mut tell)?;
                    true
                }
            };
            if !left {
                let name = Name::new(&last.name).at("remove", self.full(&last.path))?;
                let removed = gone(self.nfs().remove_dir(last.parent, name).await);
                match removed.at("remove", self.full(&last.path)) {
                    Ok(Some(())) => tell(Removal::Removed(self.full(&last.path).to_vec())),
                    Ok(None) => {}
                    Err(error) => {
                        tolerate(error, &mut tell)?;
                        left = true;
                    }
                }
            }
            if left && let Some(above) = doomed.iter_mut().rfind(|d| d.handle == last.parent) {
                above.kept.insert(last.name);
            }
        }
        Ok(())
    }

    /// Removes what is on the next page of a directory, and returns the directories found there;
    /// none if nothing is left that could be removed.
    ///
    /// # Errors
    ///
    /// If this directory has to be left as it is.
    async fn empty(
        &self,
        dir: &mut Doomed,
        tell: &mut impl FnMut(Removal),
    ) -> Result<Option<Vec<Doomed>>, Error> {
        if dir.kept.len() > MAX_KEPT {
            return Err(Fault::TooManyLeft(MAX_KEPT)).at("remove", self.full(&dir.path));
        }
        let page = self.next_of(dir).await?;
        if page.is_empty() {
            return Ok(None);
        }
        let before = dir.kept.len();
        let (removed, below) = self.remove_files(dir, page, tell).await?;
        if removed == 0 && below.is_empty() && dir.kept.len() == before {
            dir.idle += 1;
            if dir.idle > MAX_IDLE {
                let ghosts = Fault::Nonsense("a directory lists names that are not there");
                return Err(ghosts).at("remove", self.full(&dir.path));
            }
        }
        if !below.is_empty() && dir.depth >= MAX_DEPTH {
            let deep = Fault::Nonsense("directories are nested without end");
            return Err(deep).at("remove", self.full(&dir.path));
        }
        Ok(Some(below))
    }

    /// The first page of a directory with entries that were not tried; empty if there is none.
    async fn next_of(&self, dir: &Doomed) -> Result<Vec<DirEntry>, Error> {
        let mut list = self.list_dir(dir.handle, &dir.path);
        loop {
            let mut page = list.next_page().await?;
            let ended = page.is_empty();
            page.retain(|entry| !dir.kept.contains(&entry.name));
            if ended || !page.is_empty() {
                return Ok(page);
            }
        }
    }

    /// Removes of these entries what are no directories; returns how many there were, and the
    /// directories.
    async fn remove_files(
        &self,
        dir: &mut Doomed,
        page: Vec<DirEntry>,
        tell: &mut impl FnMut(Removal),
    ) -> Result<(usize, Vec<Doomed>), Error> {
        let mut page = page.into_iter();
        let mut running = InOrder::new();
        let (mut removed, mut dirs) = (0, Vec::new());
        loop {
            let depth = self.tuning().depth(self.nfs().transport());
            while running.len() < depth
                && dir.kept.len() <= MAX_KEPT
                && let Some(entry) = page.next()
            {
                let (handle, path) = (dir.handle, join(&dir.path, &entry.name));
                running.push(async move {
                    let fate = self.remove_entry(handle, &entry).await;
                    (fate.at("remove", self.full(&path)), entry.name, path)
                });
            }
            let Some((fate, name, path)) = running.next().await else {
                return Ok((removed, dirs));
            };
            match fate {
                Ok(Fate::Gone) => {}
                Ok(Fate::Removed) => {
                    removed += 1;
                    tell(Removal::Removed(self.full(&path).to_vec()));
                }
                Ok(Fate::Directory(node)) => {
                    let below = Doomed::new(dir.handle, &name, path, node.handle, dir.depth + 1);
                    dirs.push(below);
                }
                Err(error) => {
                    tolerate(error, tell)?;
                    dir.kept.insert(name);
                }
            }
        }
    }

    /// Removes an entry, unless it is a directory.
    async fn remove_entry(&self, dir: FileHandle, entry: &DirEntry) -> Result<Fate, Fault> {
        let Some(node) = gone(self.node_of(dir, entry).await)? else {
            return Ok(Fate::Gone);
        };
        if node.attributes.file_type == FileType::Directory {
            return Ok(Fate::Directory(node));
        }
        let removed = self.nfs().remove(dir, Name::new(&entry.name)?).await;
        Ok(gone(removed)?.map_or(Fate::Gone, |()| Fate::Removed))
    }
}

/// Tells of what the server refuses: the rest can still be done.
///
/// # Errors
///
/// Anything else, where nothing more can be done.
fn tolerate(error: Error, tell: &mut impl FnMut(Removal)) -> Result<(), Error> {
    if !matches!(
        error.fault,
        Fault::Status(_) | Fault::Nonsense(_) | Fault::TooManyLeft(_)
    ) {
        return Err(error);
    }
    tell(Removal::Failed(error));
    Ok(())
}

/// An object that another client removed in the meantime counts as removed.
fn gone<R>(removed: Result<R, Fault>) -> Result<Option<R>, Fault> {
    match removed {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Status(Status::NoEntry)) => Ok(None),
        Err(fault) => Err(fault),
    }
}
