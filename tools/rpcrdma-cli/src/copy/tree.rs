//! The two sides of a copy, which are looked at in the same way: local files, and those of a server.
//!
//! Local files are looked at without a change of threads; who must not wait does it on a thread of its own.

use super::entry::{Entry, join, split};
use crate::session::Place;
use crate::show;
use anyhow::{Context, bail};
use nfs_client::{DirEntry, Directory, Error, Export, Fault, NfsUrl, Node};
use nfs_proto::{FileType, Name, Status};
use rpcrdma::Client;
use std::ffi::{OsStr, OsString};
use std::fs::ReadDir;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::vec;

/// Names of a local directory that are read and sorted at a time.
const SORTED: usize = 4096;

/// Symbolic links that are followed from what the user named, as Linux does it.
const MAX_SYMLINKS: usize = 40;

/// One side of a copy.
#[derive(Clone)]
pub(crate) enum Tree {
    /// Files of this machine.
    Local,
    /// An export of a server, and the URL of its root.
    Remote(Arc<Export<Client>>, NfsUrl),
}

/// Where something that the user named leads, through symbolic links.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) path: Vec<u8>,
    /// What is there; of a symbolic link, nothing if it leads nowhere.
    pub(crate) there: Option<Entry>,
    pub(crate) is_link: bool,
}

/// Entries of a directory that is listed.
pub(crate) enum Listing<'a> {
    Local(LocalListing),
    Remote(RemoteListing<'a>),
}

/// A directory of a server that is listed.
pub(crate) struct RemoteListing<'a> {
    export: &'a Export<Client>,
    /// Nothing when it could not be listed any further.
    entries: Option<Directory<'a, Client>>,
}

/// A local directory that is listed.
pub(crate) struct LocalListing {
    path: Vec<u8>,
    names: vec::IntoIter<OsString>,
    /// Where there are more.
    rest: Option<ReadDir>,
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

    /// What is there, if anything; a symbolic link is not followed.
    ///
    /// # Errors
    ///
    /// If that cannot be told. So for everything below.
    pub(crate) async fn look(&self, path: &[u8]) -> anyhow::Result<Option<Entry>> {
        match self {
            Self::Local => look_locally(path, Path::symlink_metadata),
            Self::Remote(export, root) => {
                let node = present(export.lstat(path).await)?;
                remote(export, root, path, node).await
            }
        }
    }

    /// What a path leads to.
    pub(crate) async fn follow(&self, path: &[u8]) -> anyhow::Result<Option<Entry>> {
        match self {
            Self::Local => look_locally(path, Path::metadata),
            Self::Remote(export, root) => {
                let node = present(export.stat(path).await)?;
                remote(export, root, path, node).await
            }
        }
    }

    /// What has a name in a directory.
    pub(crate) async fn look_in(&self, dir: &Entry, name: &[u8]) -> anyhow::Result<Option<Entry>> {
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

    /// Where a path leads, through symbolic links at its end. Of what is reached, the path has no symbolic
    /// link as its last name, so that it can be replaced under it.
    pub(crate) async fn resolve(&self, path: &[u8]) -> anyhow::Result<Resolved> {
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
        bail!("{}: too many levels of symbolic links", self.show(&path))
    }

    /// The text of a symbolic link.
    pub(crate) async fn read_link(&self, link: &Entry) -> anyhow::Result<Vec<u8>> {
        match (self, &link.node) {
            (Self::Remote(export, _), Some(node)) => {
                let text = export.nfs().read_link(node.handle).await;
                Ok(text.map_err(|fault| fault.at("read symbolic link", &link.path))?)
            }
            (Self::Remote(export, _), None) => Ok(export.read_link(&link.path).await?),
            (Self::Local, _) => {
                let text = local(&link.path).read_link();
                let text = text.with_context(|| unreadable(&link.path))?;
                Ok(text.into_os_string().into_vec())
            }
        }
    }

    /// Begins to list a directory.
    pub(crate) fn list<'a>(&'a self, dir: &Entry) -> anyhow::Result<Listing<'a>> {
        match (self, &dir.node) {
            (Self::Remote(export, _), Some(node)) => {
                let entries = Some(export.list_dir(node.handle, &dir.path));
                Ok(Listing::Remote(RemoteListing { export, entries }))
            }
            (Self::Remote(..), None) => bail!("{} is not on this server", self.show(&dir.path)),
            (Self::Local, _) => Ok(Listing::Local(LocalListing::new(&dir.path)?)),
        }
    }
}

/// Something that was found on a server.
async fn remote(
    export: &Export<Client>,
    root: &NfsUrl,
    path: &[u8],
    node: Option<Node>,
) -> anyhow::Result<Option<Entry>> {
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
fn present<T>(found: Result<T, Error>) -> anyhow::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.status() == Some(Status::NoEntry) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn look_locally(
    path: &[u8],
    look: impl FnOnce(&Path) -> io::Result<std::fs::Metadata>,
) -> anyhow::Result<Option<Entry>> {
    match look(local(path)) {
        Ok(about) => Ok(Some(Entry::local(path.to_vec(), &about))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| unreadable(path)),
    }
}

fn unreadable(path: &[u8]) -> String {
    format!("{}: cannot read", show::path(local(path)))
}

impl Listing<'_> {
    /// The next entry, and its name; nothing at the end. What has vanished meanwhile is left out.
    ///
    /// # Errors
    ///
    /// An entry, or the rest of the directory, cannot be read. It can be asked for more.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<(Vec<u8>, Entry)>> {
        match self {
            Self::Local(listing) => listing.next(),
            Self::Remote(listing) => listing.next().await,
        }
    }

    /// The next name alone.
    ///
    /// # Errors
    ///
    /// The rest of the directory cannot be read.
    pub(crate) async fn next_name(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        match self {
            Self::Local(listing) => listing.next_name(),
            Self::Remote(listing) => Ok(listing.next_entry().await?.map(|entry| entry.name)),
        }
    }
}

impl RemoteListing<'_> {
    async fn next(&mut self) -> anyhow::Result<Option<(Vec<u8>, Entry)>> {
        loop {
            let Some(entry) = self.next_entry().await? else {
                return Ok(None);
            };
            let Some(entries) = &self.entries else {
                return Ok(None);
            };
            let path = join(entries.path(), &entry.name);
            match self.export.node_of(entries.handle(), &entry).await {
                Ok(node) => return Ok(Some((entry.name, Entry::remote(path, node)))),
                Err(Fault::Status(Status::NoEntry | Status::Stale)) => {}
                Err(fault) => return Err(fault.at("find", &path).into()),
            }
        }
    }

    /// # Errors
    ///
    /// The directory cannot be listed any further. It has ended then.
    async fn next_entry(&mut self) -> Result<Option<DirEntry>, Error> {
        let Some(entries) = &mut self.entries else {
            return Ok(None);
        };
        let next = entries.next().await;
        if next.is_err() {
            self.entries = None;
        }
        next
    }
}

impl LocalListing {
    fn new(path: &[u8]) -> anyhow::Result<Self> {
        let entries = local(path).read_dir().with_context(|| unlistable(path))?;
        let mut listing = Self {
            path: path.to_vec(),
            names: Vec::new().into_iter(),
            rest: Some(entries),
        };
        listing.read_names()?;
        Ok(listing)
    }

    /// Reads some names, in order: all of a directory that is not large.
    fn read_names(&mut self) -> anyhow::Result<()> {
        let Some(mut rest) = self.rest.take() else {
            return Ok(());
        };
        let mut names = Vec::new();
        for entry in rest.by_ref().take(SORTED) {
            let entry = entry.with_context(|| unlistable(&self.path))?;
            names.push(entry.file_name());
        }
        if names.len() == SORTED {
            self.rest = Some(rest);
        }
        names.sort();
        self.names = names.into_iter();
        Ok(())
    }

    fn next(&mut self) -> anyhow::Result<Option<(Vec<u8>, Entry)>> {
        loop {
            let Some(name) = self.next_name()? else {
                return Ok(None);
            };
            let path = join(&self.path, &name);
            if let Some(entry) = look_locally(&path, Path::symlink_metadata)? {
                return Ok(Some((name, entry)));
            }
        }
    }

    /// The next name alone.
    ///
    /// # Errors
    ///
    /// The rest of the directory cannot be read.
    pub(crate) fn next_name(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        if self.names.len() == 0 {
            self.read_names()?;
        }
        Ok(self.names.next().map(OsString::into_vec))
    }
}

fn unlistable(path: &[u8]) -> String {
    format!("{}: cannot read the directory", show::path(local(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn bytes(path: &Path) -> Vec<u8> {
        path.as_os_str().as_bytes().to_vec()
    }

    #[tokio::test]
    async fn directory_of_any_size_is_listed_whole_and_a_small_one_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = BTreeSet::new();
        for number in 0..SORTED + 10 {
            let name = format!("{number:05}");
            std::fs::write(dir.path().join(&name), "").unwrap();
            expected.insert(name.into_bytes());
        }
        let small = dir.path().join("small");
        std::fs::create_dir(&small).unwrap();
        expected.insert(b"small".to_vec());
        for name in ["c", "a", "b"] {
            std::fs::write(small.join(name), "").unwrap();
        }
        let names = async |path: &Path| {
            let dir = Tree::Local.look(&bytes(path)).await.unwrap().unwrap();
            let mut listing = Tree::Local.list(&dir).unwrap();
            let mut names = Vec::new();
            while let Some((name, entry)) = listing.next().await.unwrap() {
                assert_eq!(entry.path, join(&bytes(path), &name));
                names.push(name);
            }
            names
        };
        let all = names(dir.path()).await;
        assert_eq!(all.len(), expected.len());
        assert_eq!(BTreeSet::from_iter(all), expected);
        assert_eq!(names(&small).await, [b"a", b"b", b"c"]);
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
