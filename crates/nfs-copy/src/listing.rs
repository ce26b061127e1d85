//! Listings of directories, on either side of a copy; a walk can begin them before it gets to them.

use super::entry::{About, Entry, join};
use super::tree::{local, look_locally, unreadable};
use crate::connection::Connection;
use crate::error::{Context, Result};
use crate::show;
use nfs_client::{DirEntry, Directory, Error, Export, Fault, Node};
use nfs_proto::{FileType, Status};
use std::ffi::OsString;
use std::fs::ReadDir;
use std::future::{poll_fn, ready};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::pin::Pin;
use std::task::Poll;
use std::vec;
use tokio::task::{JoinHandle, spawn_blocking};

/// Names of a local directory that are read and sorted at a time.
const SORTED: usize = 4096;

/// Entries of a directory that is listed.
pub(crate) enum Listing<'a> {
    Local(LocalListing),
    Remote(RemoteListing<'a>),
}

/// A directory of a server that is listed.
pub(crate) struct RemoteListing<'a> {
    export: &'a Export<Connection>,
    /// Nothing when it could not be listed any further.
    entries: Option<Directory<'a, Connection>>,
    /// Why there is no first page.
    failed: Option<Error>,
    /// Entries at the beginning of those fetched in which directories were looked for.
    looked_at: usize,
}

/// A local directory that is listed.
pub(crate) struct LocalListing {
    path: Vec<u8>,
    found: vec::IntoIter<(OsString, Look)>,
    /// The rest, if there are more.
    rest: Option<ReadDir>,
    looks: Looks,
    /// Entries at the beginning of those found in which directories were looked for.
    looked_at: usize,
}

/// Extent of a listing of a local directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// Names.
    Names,
    /// Attributes too. They are read with the names: from an open directory, without its path.
    Attributes,
}

/// Attributes that were seen with the name of an entry.
enum Look {
    /// Nothing, as it was not looked at.
    Nothing,
    Done(io::Result<About>),
}

/// A listing that has begun, so that its beginning is there when a walk gets to it.
pub(super) enum Begun<'a> {
    /// By a thread.
    Local(JoinHandle<Result<LocalListing>>),
    /// By a call to the server.
    Remote(Pin<Box<dyn Future<Output = RemoteListing<'a>> + Send + 'a>>),
}

impl Begun<'_> {
    /// Begins with a local directory.
    pub(super) fn local(path: &[u8]) -> Self {
        let path = path.to_vec();
        Self::Local(spawn_blocking(move || {
            LocalListing::new(&path, Looks::Attributes)
        }))
    }
}

impl<'a> Begun<'a> {
    /// Begins with a directory of a server.
    pub(super) async fn remote(mut listing: RemoteListing<'a>) -> Self {
        let mut first: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            listing.fetch_ahead().await;
            listing
        });
        // It makes the call, and who asks for the listing waits for the reply.
        Self::Remote(
            match poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await {
                Poll::Ready(listing) => Box::pin(ready(listing)),
                Poll::Pending => first,
            },
        )
    }

    /// The listing, when its beginning is there.
    ///
    /// # Errors
    ///
    /// A local directory cannot be read. Of one on a server, the listing tells that.
    pub(super) async fn listing(self) -> Result<Listing<'a>> {
        Ok(match self {
            Self::Local(listing) => {
                Listing::Local(listing.await.expect("a listing does not panic")?)
            }
            Self::Remote(listing) => Listing::Remote(listing.await),
        })
    }
}

impl Listing<'_> {
    /// The next entry, and its name; nothing at the end. What has vanished meanwhile is left out.
    ///
    /// # Errors
    ///
    /// An entry, or the rest of the directory, cannot be read. It can be asked for more.
    pub(crate) async fn next(&mut self) -> Result<Option<(Vec<u8>, Entry)>> {
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
    pub(crate) async fn next_name(&mut self) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Local(listing) => listing.next_name(),
            Self::Remote(listing) => Ok(listing.next_entry().await?.map(|entry| entry.name)),
        }
    }

    /// A directory that is among the next entries, as far as they are known by now, and its name. Each is told once,
    /// in order.
    pub(super) fn upcoming(&mut self) -> Option<(Vec<u8>, Entry)> {
        match self {
            Self::Local(listing) => listing.upcoming(),
            Self::Remote(listing) => listing.upcoming(),
        }
    }
}

impl<'a> RemoteListing<'a> {
    pub(super) fn new(export: &'a Export<Connection>, dir: &Node, path: &[u8]) -> Self {
        Self {
            export,
            entries: Some(export.list_dir(dir.handle, path)),
            failed: None,
            looked_at: 0,
        }
    }

    async fn next(&mut self) -> Result<Option<(Vec<u8>, Entry)>> {
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
                Err(fault) => return Err(self.export.nfs().error_at(fault, "find", &path).into()),
            }
        }
    }

    /// # Errors
    ///
    /// The directory cannot be listed any further. It has ended then.
    async fn next_entry(&mut self) -> Result<Option<DirEntry>, Error> {
        if let Some(error) = self.failed.take() {
            self.entries = None;
            return Err(error);
        }
        let Some(entries) = &mut self.entries else {
            return Ok(None);
        };
        let next = entries.next().await;
        self.looked_at = self.looked_at.saturating_sub(1);
        if next.is_err() {
            self.entries = None;
        }
        next
    }

    async fn fetch_ahead(&mut self) {
        if let Some(entries) = &mut self.entries {
            self.failed = entries.fetch_ahead().await.err();
        }
    }

    fn upcoming(&mut self) -> Option<(Vec<u8>, Entry)> {
        let entries = self.entries.as_ref()?;
        let nodes = entries.fetched().skip(self.looked_at).map(|entry| {
            let (handle, attributes) = (entry.handle?, entry.attributes?);
            let node = Node { handle, attributes };
            (attributes.file_type == FileType::Directory).then_some((&entry.name, node))
        });
        for found in nodes {
            self.looked_at += 1;
            if let Some((name, node)) = found {
                let entry = Entry::remote(join(entries.path(), name), node);
                return Some((name.clone(), entry));
            }
        }
        None
    }
}

impl LocalListing {
    pub(super) fn new(path: &[u8], looks: Looks) -> Result<Self> {
        let entries = local(path).read_dir().with_context(|| unlistable(path))?;
        let mut listing = Self {
            path: path.to_vec(),
            found: Vec::new().into_iter(),
            rest: Some(entries),
            looks,
            looked_at: 0,
        };
        listing.read()?;
        Ok(listing)
    }

    /// Reads some entries, in order: all of a directory that is not large.
    fn read(&mut self) -> Result<()> {
        let Some(mut rest) = self.rest.take() else {
            return Ok(());
        };
        let mut found = Vec::new();
        for entry in rest.by_ref().take(SORTED) {
            let entry = entry.with_context(|| unlistable(&self.path))?;
            let look = match self.looks {
                Looks::Names => Look::Nothing,
                Looks::Attributes => Look::Done(entry.metadata().map(|about| (&about).into())),
            };
            found.push((entry.file_name(), look));
        }
        if found.len() == SORTED {
            self.rest = Some(rest);
        }
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        self.found = found.into_iter();
        self.looked_at = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(Vec<u8>, Entry)>> {
        loop {
            let Some((name, look)) = self.next_found()? else {
                return Ok(None);
            };
            let path = join(&self.path, &name);
            let entry = match look {
                Look::Nothing => look_locally(&path, std::path::Path::symlink_metadata)?,
                Look::Done(Ok(about)) => Some(Entry {
                    path,
                    about,
                    node: None,
                }),
                Look::Done(Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
                Look::Done(Err(error)) => return Err(error).with_context(|| unreadable(&path)),
            };
            if let Some(entry) = entry {
                return Ok(Some((name, entry)));
            }
        }
    }

    /// The next name alone.
    ///
    /// # Errors
    ///
    /// The rest of the directory cannot be read.
    pub(crate) fn next_name(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.next_found()?.map(|(name, _)| name))
    }

    fn next_found(&mut self) -> Result<Option<(Vec<u8>, Look)>> {
        if self.found.len() == 0 {
            self.read()?;
        }
        self.looked_at = self.looked_at.saturating_sub(1);
        let found = self.found.next();
        Ok(found.map(|(name, look)| (name.into_vec(), look)))
    }

    fn upcoming(&mut self) -> Option<(Vec<u8>, Entry)> {
        for (name, look) in self.found.as_slice().iter().skip(self.looked_at) {
            self.looked_at += 1;
            if let Look::Done(Ok(about)) = look
                && about.is_directory()
            {
                let name = name.clone().into_vec();
                let entry = Entry {
                    path: join(&self.path, &name),
                    about: *about,
                    node: None,
                };
                return Some((name, entry));
            }
        }
        None
    }
}

fn unlistable(path: &[u8]) -> String {
    format!("{}: cannot read the directory", show::path(local(path)))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

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
                let about = local(&entry.path).symlink_metadata().unwrap();
                assert_eq!(entry.about, About::from(&about));
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
    async fn directories_to_come_are_told_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "c", "e"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        for name in ["b", "d"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let listing = LocalListing::new(&bytes(dir.path()), Looks::Attributes).unwrap();
        let mut listing = Listing::Local(listing);
        let next = listing.next().await.unwrap().unwrap();
        assert_eq!(next.0, b"a");
        let (name, entry) = listing.upcoming().unwrap();
        assert_eq!(
            (&name[..], entry.path),
            (&b"c"[..], bytes(&dir.path().join("c")))
        );
        let names = [listing.next().await, listing.next().await];
        let names = names.map(|next| next.unwrap().unwrap().0);
        assert_eq!(names, [b"b", b"c"]);
        assert_eq!(listing.upcoming().unwrap().0, b"e");
        assert!(listing.upcoming().is_none());
        assert_eq!(listing.next_name().await.unwrap().unwrap(), b"d");
        assert_eq!(listing.next_name().await.unwrap().unwrap(), b"e");
        assert!(listing.upcoming().is_none() && listing.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn listing_that_has_begun_is_as_any_other() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let begun = Begun::local(&bytes(dir.path()));
        let mut listing = begun.listing().await.unwrap();
        assert_eq!(listing.next().await.unwrap().unwrap().0, b"file");
        assert!(listing.next().await.unwrap().is_none());
        let absent = Begun::local(&bytes(&dir.path().join("absent")));
        assert!(absent.listing().await.is_err());
    }
}
