//! Removing a tree.

use crate::error::At;
use crate::in_order::InOrder;
use crate::path::{Last, join};
use crate::{DirEntry, Error, Export, Fault, Node};
use nfs_proto::{FileHandle, FileType, Name, Status};
use oncrpc::Transport;

/// How often a directory may list nothing but names that are gone when they are to be removed.
const MAX_IDLE: u32 = 3;

/// A directory that is to be emptied and then removed.
struct Doomed {
    parent: FileHandle,
    name: Vec<u8>,
    path: Vec<u8>,
    handle: FileHandle,
    idle: u32,
}

impl<T: Transport + Send + Sync> Export<T> {
    /// Removes whatever a path names, a directory with all that is in it. Symbolic links are
    /// removed, not followed.
    ///
    /// A directory is listed from its beginning again after each page was removed: removing may
    /// invalidate any place in it (RFC 1813 §3.3.16).
    ///
    /// # Errors
    ///
    /// The first thing that cannot be removed; what was removed by then is gone.
    pub async fn remove_all(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let (parent, name) = self.place(path).await.at("remove", path)?;
        let node = self.find(path, Last::Keep).await.at("remove", path)?;
        if node.attributes.file_type != FileType::Directory {
            return self.nfs().remove(parent, name).await.at("remove", path);
        }
        let mut doomed = vec![Doomed {
            parent,
            name: name.to_vec(),
            path: path.to_vec(),
            handle: node.handle,
            idle: 0,
        }];
        while let Some(last) = doomed.last_mut() {
            let page = self.list_dir(last.handle, &last.path).next_page().await?;
            if page.is_empty() {
                let name = Name::new(&last.name).at("remove", &last.path)?;
                gone(self.nfs().remove_dir(last.parent, name).await).at("remove", &last.path)?;
                doomed.pop();
                continue;
            }
            let (handle, path) = (last.handle, last.path.clone());
            let (removed, dirs) = self.remove_files(handle, &path, page).await?;
            if removed == 0 && dirs.is_empty() {
                last.idle += 1;
                if last.idle > MAX_IDLE {
                    let ghosts = Fault::Nonsense("a directory lists names that are not there");
                    return Err(ghosts).at("remove", &path);
                }
            }
            doomed.extend(dirs);
        }
        Ok(())
    }

    /// Removes of these entries what are no directories; returns how many there were, and the
    /// directories.
    async fn remove_files(
        &self,
        dir: FileHandle,
        path: &[u8],
        page: Vec<DirEntry>,
    ) -> Result<(usize, Vec<Doomed>), Error> {
        let mut page = page.into_iter();
        let mut running = InOrder::new();
        let (mut removed, mut dirs) = (0, Vec::new());
        loop {
            let depth = self.tuning().depth_of(0, self.nfs().transport());
            while running.len() < depth
                && let Some(entry) = page.next()
            {
                let path = join(path, &entry.name);
                running.push(async move {
                    let done = gone(self.remove_entry(dir, &entry).await).at("remove", &path);
                    done.map(|done| (done, entry, path))
                });
            }
            match running.next().await {
                None => return Ok((removed, dirs)),
                Some(done) => match done? {
                    (None, ..) => {}
                    (Some(None), ..) => removed += 1,
                    (Some(Some(node)), entry, path) => dirs.push(Doomed {
                        parent: dir,
                        name: entry.name,
                        path,
                        handle: node.handle,
                        idle: 0,
                    }),
                },
            }
        }
    }

    /// Removes an entry that is no directory; one that is comes back.
    async fn remove_entry(&self, dir: FileHandle, entry: &DirEntry) -> Result<Option<Node>, Fault> {
        let node = self.node_of(dir, entry).await?;
        if node.attributes.file_type == FileType::Directory {
            return Ok(Some(node));
        }
        self.nfs().remove(dir, Name::new(&entry.name)?).await?;
        Ok(None)
    }
}

/// What somebody else removed in the meantime is removed.
fn gone<R>(removed: Result<R, Fault>) -> Result<Option<R>, Fault> {
    match removed {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Status(Status::NoEntry)) => Ok(None),
        Err(fault) => Err(fault),
    }
}
