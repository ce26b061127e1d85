//! Directory listing, page by page.

use crate::error::At;
use crate::{Error, Fault, Nfs3};
use nfs_proto::limits::MAX_DIRECTORY_REPLY;
use nfs_proto::{Attributes, Cookie, CookieVerifier, FileHandle, FileId, Status};
use oncrpc::Transport;
use std::collections::VecDeque;

/// An entry of a directory; never `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Name of the entry: any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// File number (inode number).
    pub file_id: FileId,
    /// Attributes, if the server returned them with the entry.
    pub attributes: Option<Attributes>,
    /// Handle, if the server returned it with the entry.
    pub handle: Option<FileHandle>,
}

/// A directory listing in progress. It holds one page at a time, however large the directory is.
#[derive(Debug)]
pub struct Directory<'c, T> {
    nfs: &'c Nfs3<T>,
    dir: FileHandle,
    path: Vec<u8>,
    size: u32,
    place: (Cookie, CookieVerifier),
    plus: bool,
    ended: bool,
    page: VecDeque<DirEntry>,
    circle: Circle,
}

/// Finds a listing that goes in a circle, as no cookie comes twice: of all places one is remembered at a time, twice as
/// far on each time (Brent's algorithm).
#[derive(Debug, Default)]
struct Circle {
    place: (Cookie, CookieVerifier),
    /// Pages since that place.
    pages: u64,
    /// Pages after which another place is remembered.
    until: u64,
}

impl Circle {
    /// Whether a listing was at this place before.
    fn is_closed_by(&mut self, place: (Cookie, CookieVerifier)) -> bool {
        if place == self.place {
            return true;
        }
        self.pages += 1;
        if self.pages > self.until {
            self.place = place;
            self.pages = 0;
            self.until = self.until.saturating_mul(2).max(1);
        }
        false
    }
}

/// Entries that one call returned.
struct Page {
    entries: VecDeque<DirEntry>,
    next: (Cookie, CookieVerifier),
    eof: bool,
}

impl<'c, T: Transport> Directory<'c, T> {
    pub(crate) fn new(nfs: &'c Nfs3<T>, dir: FileHandle, path: &[u8], size: u32) -> Self {
        Self {
            nfs,
            dir,
            path: path.to_vec(),
            size,
            place: Default::default(),
            plus: true,
            ended: false,
            page: VecDeque::new(),
            circle: Circle::default(),
        }
    }

    /// Path of the directory.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Handle of the directory.
    pub fn handle(&self) -> FileHandle {
        self.dir
    }

    /// Returns the next entry, in the server's order; `None` at the end.
    ///
    /// # Errors
    ///
    /// The server's error: [`Status::BadCookie`] if the directory changed so much that the listing
    /// cannot continue.
    pub async fn next(&mut self) -> Result<Option<DirEntry>, Error> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                return Ok(Some(entry));
            }
            if self.ended {
                return Ok(None);
            }
            self.fetch_page().await?;
        }
    }

    /// Fetches the next page, unless entries of the last one are left or the directory has ended. A listing can so
    /// begin before its entries are needed.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub async fn fetch_ahead(&mut self) -> Result<(), Error> {
        match self.page.is_empty() && !self.ended {
            true => self.fetch_page().await,
            false => Ok(()),
        }
    }

    /// Returns the entries that [`next`](Self::next) returns without a call to the server, in order.
    pub fn fetched(&self) -> impl ExactSizeIterator<Item = &DirEntry> {
        self.page.iter()
    }

    async fn fetch_page(&mut self) -> Result<(), Error> {
        let page = self.fetch().await.at("list", self.nfs.full(&self.path))?;
        self.place = page.next;
        self.ended = page.eof;
        self.page = page.entries;
        Ok(())
    }

    /// Returns all entries of the next reply that has any; empty at the end.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next).
    pub async fn next_page(&mut self) -> Result<Vec<DirEntry>, Error> {
        let Some(first) = self.next().await? else {
            return Ok(Vec::new());
        };
        let mut page = vec![first];
        page.extend(self.page.drain(..));
        Ok(page)
    }

    /// One page. A server without READDIRPLUS, or one that does not want it here, is asked with
    /// READDIR; one to which the page is too small gets a larger one.
    async fn fetch(&mut self) -> Result<Page, Fault> {
        loop {
            let page = match self.plus {
                true => self.fetch_plus().await,
                false => self.fetch_names().await,
            };
            match page {
                Err(Fault::Status(Status::NotSupported)) if self.plus => self.plus = false,
                Err(Fault::Status(Status::TooSmall)) if self.size < MAX_DIRECTORY_REPLY => {
                    self.size = (self.size * 2).min(MAX_DIRECTORY_REPLY);
                }
                page => return page.and_then(|page| self.moved_on(page)),
            }
        }
    }

    async fn fetch_plus(&self) -> Result<Page, Fault> {
        let reply = self
            .nfs
            .read_dir_plus(self.dir, self.place, self.size)
            .await?;
        let list = reply.results()?.map_err(|failed| failed.status)?;
        let entries = list.entries.0;
        Ok(Page {
            next: self.behind(entries.last().map(|last| last.cookie), list.verifier),
            eof: list.eof,
            entries: entries
                .iter()
                .filter(|entry| !is_dot(&entry.name))
                .map(|entry| DirEntry {
                    name: entry.name.to_vec(),
                    file_id: entry.file_id,
                    attributes: entry.attributes,
                    handle: entry.handle,
                })
                .collect(),
        })
    }

    async fn fetch_names(&self) -> Result<Page, Fault> {
        let reply = self.nfs.read_dir(self.dir, self.place, self.size).await?;
        let list = reply.results()?.map_err(|failed| failed.status)?;
        let entries = list.entries.0;
        Ok(Page {
            next: self.behind(entries.last().map(|last| last.cookie), list.verifier),
            eof: list.eof,
            entries: entries
                .iter()
                .filter(|entry| !is_dot(&entry.name))
                .map(|entry| DirEntry {
                    name: entry.name.to_vec(),
                    file_id: entry.file_id,
                    attributes: None,
                    handle: None,
                })
                .collect(),
        })
    }

    fn behind(&self, last: Option<Cookie>, verifier: CookieVerifier) -> (Cookie, CookieVerifier) {
        (last.unwrap_or(self.place.0), verifier)
    }

    /// A page that does not end the directory must lead on, or listing would never end; and its
    /// names must be names.
    fn moved_on(&mut self, page: Page) -> Result<Page, Fault> {
        if !page.eof && (page.next.0 == self.place.0 || self.circle.is_closed_by(page.next)) {
            return Err(Fault::Nonsense("a page of a directory does not lead on"));
        }
        for entry in &page.entries {
            nfs_proto::Name::new(&entry.name)
                .map_err(|_| Fault::Nonsense("a directory has a name that is none"))?;
        }
        Ok(page)
    }
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
