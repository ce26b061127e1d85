//! The two sides of a copy, which are looked at in the same way: local files, and those of a server.
//!
//! Local files are looked at without a change of threads; who must not wait does it on a thread of its own.

use super::entry::{Entry, join, split};
use super::listing::{Begun, Listing, LocalListing, Looks, RemoteListing};
use crate::connection::Connection;
use crate::error::{Context, Error as CopyError, Result};
use crate::place::Place;
use crate::show;
use nfs_client::{Error, Export, Fault, NfsUrl, Node};
use nfs_proto::{FileType, Name, Status};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// Symbolic links that are followed from a path that was named, as Linux does it.
const MAX_SYMLINKS: usize = 40;

/// One side of a copy.
#[derive(Clone)]
pub(crate) enum Tree {
    /// Files of this machine.
    Local,
    /// An export of a server, and the URL of its root.
    Remote(Arc<Export<Connection>>, NfsUrl),
}

/// The end of a path that was named, through symbolic links.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) path: Vec<u8>,
    /// The entry there; of a symbolic link, nothing if it leads nowhere.
    pub(crate) there: Option<Entry>,
    pub(crate) is_link: bool,
}

/// A local path.
pub(crate) fn local(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

impl Tree {
    /// The export that a place is in.
    pub(crate) fn of(place: &Place) -> Self {
        Self::Remote(Arc::clone(&place.export), place.export_url())
    }

    /// A path for messages: of a server, its URL.
    pub(crate) fn show(&self, path: &[u8]) -> String {
        match self {
            Self::Local => show::path(local(path)),
            Self::Remote(_, root) if path.is_empty() => root.to_string(),
            Self::Remote(_, root) => root.join(path).to_string(),
        }
    }

    /// The same, made when it is needed.
    pub(crate) fn named<'a>(&'a self, path: &'a [u8]) -> Named<'a> {
        Named { tree: self, path }
    }

    /// The entry of a path, if there is one; a symbolic link is not followed.
    ///
    /// # Errors
    ///
    /// If that cannot be told. So for everything below.
    pub(crate) async fn look(&self, path: &[u8]) -> Result<Option<Entry>> {
        match self {
            Self::Local => look_locally(path, Path::symlink_metadata),
            Self::Remote(export, root) => {
                let node = present(export.lstat(path).await)?;
                remote(export, root, path, node).await
            }
        }
    }

    /// The entry that a path leads to.
    pub(crate) async fn follow(&self, path: &[u8]) -> Result<Option<Entry>> {
        match self {
            Self::Local => look_locally(path, Path::metadata),
            Self::Remote(export, root) => {
                let node = present(export.stat(path).await)?;
                remote(export, root, path, node).await
            }
        }
    }

    /// Whether it says that names which differ in case only are one name. That it does not is no proof.
    pub(crate) async fn says_it_folds_case(&self) -> bool {
        match self {
            Self::Remote(export, _) => {
                let limits = export.nfs().path_conf(export.root().handle).await;
                limits.is_ok_and(|limits| limits.case_insensitive)
            }
            Self::Local => false,
        }
    }

    /// The entry of a name in a directory.
    pub(crate) async fn look_in(&self, dir: &Entry, name: &[u8]) -> Result<Option<Entry>> {
        let path = join(&dir.path, name);
        match (self, &dir.node) {
            (Self::Remote(export, root), Some(node)) => {
                let found = async {
                    let (handle, attributes) =
                        export.nfs().lookup(node.handle, Name::new(name)?).await?;
                    let attributes = match attributes {
                        Some(attributes) => attributes,
                        None => export.nfs().get_attributes(handle).await?,
                    };
                    Ok::<_, Fault>(Node { handle, attributes })
                };
                let full = root.join(&path).path;
                let found = found.await.map_err(|fault| fault.at("find", &full));
                Ok(present(found)?.map(|node| Entry::remote(path, node)))
            }
            (Self::Local, _) | (Self::Remote(..), None) => self.look(&path).await,
        }
    }

    /// The end of a path, through symbolic links at its end. Of what is reached, the path has no symbolic
    /// link as its last name, so that it can be replaced under it.
    pub(crate) async fn resolve(&self, path: &[u8]) -> Result<Resolved> {
        let mut path = path.to_vec();
        for links in 0..=MAX_SYMLINKS {
            let there = self.look(&path).await?;
            let Some(link) = there
                .as_ref()
                .filter(|entry| entry.about.kind == FileType::Symlink)
            else {
                let is_link = links > 0;
                return Ok(Resolved {
                    path,
                    there,
                    is_link,
                });
            };
            let text = self.read_link(link).await?;
            path = match text.first() {
                Some(b'/') => text,
                Some(_) | None => join(split(&path).0, &text),
            };
        }
        Err(CopyError::TooManySymlinks {
            path: self.show(&path),
        })
    }

    /// The text of a symbolic link.
    pub(crate) async fn read_link(&self, link: &Entry) -> Result<Vec<u8>> {
        match (self, &link.node) {
            (Self::Remote(export, _), Some(node)) => {
                let text = export.nfs().read_link(node.handle).await;
                Ok(text.map_err(|fault| {
                    export
                        .nfs()
                        .error_at(fault, "read symbolic link", &link.path)
                })?)
            }
            (Self::Remote(export, _), None) => Ok(export.read_link(&link.path).await?),
            (Self::Local, _) => {
                let text = local(&link.path).read_link();
                let text = text.with_context(|| unreadable(&link.path))?;
                Ok(text.into_os_string().into_vec())
            }
        }
    }

    /// Lists a directory.
    pub(crate) fn list<'a>(&'a self, dir: &Entry) -> Result<Listing<'a>> {
        self.list_with(dir, Looks::Attributes)
    }

    /// Lists a directory of which names alone are wanted.
    pub(crate) fn list_names<'a>(&'a self, dir: &Entry) -> Result<Listing<'a>> {
        self.list_with(dir, Looks::Names)
    }

    fn list_with<'a>(&'a self, dir: &Entry, looks: Looks) -> Result<Listing<'a>> {
        match self.remote_listing(dir)? {
            Some(listing) => Ok(Listing::Remote(listing)),
            None => Ok(Listing::Local(LocalListing::new(&dir.path, looks)?)),
        }
    }

    /// Begins to list a directory: on a server with a call, and otherwise on a thread.
    pub(super) async fn begin_list<'a>(&'a self, dir: &Entry) -> Result<Begun<'a>> {
        Ok(match self.remote_listing(dir)? {
            Some(listing) => Begun::remote(listing).await,
            None => Begun::local(&dir.path),
        })
    }

    /// Nothing for a local directory.
    fn remote_listing<'a>(&'a self, dir: &Entry) -> Result<Option<RemoteListing<'a>>> {
        match (self, &dir.node) {
            (Self::Remote(export, _), Some(node)) => {
                Ok(Some(RemoteListing::new(export, node, &dir.path)))
            }
            (Self::Remote(..), None) => Err(CopyError::NotOnServer {
                path: self.show(&dir.path),
            }),
            (Self::Local, _) => Ok(None),
        }
    }
}

/// The name of a file, for messages.
pub(crate) struct Named<'a> {
    tree: &'a Tree,
    path: &'a [u8],
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tree.show(self.path))
    }
}

/// Something that was found on a server.
async fn remote(
    export: &Export<Connection>,
    root: &NfsUrl,
    path: &[u8],
    node: Option<Node>,
) -> Result<Option<Entry>> {
    let Some(mut node) = node else {
        return Ok(None);
    };
    if node == export.root() {
        // Its attributes are those of when it was mounted.
        let now = export.nfs().get_attributes(node.handle).await;
        node.attributes = now.map_err(|fault| fault.at("find", &root.join(path).path))?;
    }
    Ok(Some(Entry::remote(path.to_vec(), node)))
}

/// Nothing, where there is none.
fn present<T>(found: Result<T, Error>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.status() == Some(Status::NoEntry) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn look_locally(
    path: &[u8],
    look: impl FnOnce(&Path) -> io::Result<std::fs::Metadata>,
) -> Result<Option<Entry>> {
    match look(local(path)) {
        Ok(about) => Ok(Some(Entry::local(path.to_vec(), &about))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| unreadable(path)),
    }
}

pub(super) fn unreadable(path: &[u8]) -> String {
    format!("{}: cannot read", show::path(local(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(path: &Path) -> Vec<u8> {
        path.as_os_str().as_bytes().to_vec()
    }

    #[tokio::test]
    async fn symbolic_links_are_resolved_to_where_a_file_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let link = |text: &str, name: &str| {
            std::os::unix::fs::symlink(text, dir.path().join(name)).unwrap();
        };
        std::fs::write(dir.path().join("file"), "").unwrap();
        link("file", "one");
        link(dir.path().join("one").to_str().unwrap(), "two");
        link("nowhere", "dangling");
        link("loop", "loop");
        let resolve = async |name: &str| Tree::Local.resolve(&bytes(&dir.path().join(name))).await;
        let two = resolve("two").await.unwrap();
        assert_eq!(two.path, bytes(&dir.path().join("file")));
        assert!(two.is_link && two.there.is_some());
        let nowhere = resolve("dangling").await.unwrap();
        assert!(nowhere.is_link && nowhere.there.is_none());
        let nothing = resolve("nothing").await.unwrap();
        assert!(!nothing.is_link && nothing.there.is_none());
        let error = resolve("loop").await.unwrap_err();
        assert!(error.to_string().contains("too many levels"), "{error}");
    }
}
