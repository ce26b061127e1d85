//! Finding a file from its handle.
//!
//! With kernel handles that is `kernel.rs`. With the table, the search goes in this order: among
//! the open files; where it was last seen, by memory and by the table; by searching its home, the
//! directory it was first seen in. At each place it must be the same inode with the same birth
//! time, otherwise the handle is stale. Directories on the way are found in the same way, so that
//! every path begins at the root of the export.

use super::id::TableId;
use super::node::{Link, Node, NodeFd};
use super::passes::{Entry, MAX_ENTRIES, Pass, Version};
use super::sweep::Gone;
use super::sys::{self, Pace, Stat, Stop, Try};
use super::table::MAX_PLACES;
use super::{Inner, Resolver, open};
use crate::fs::{Error, FileId};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

/// Most steps from the root to a file. Deeper directories are not made; they can come about by moving
/// whole trees, or from outside, and what is in them is found only while the directory is open.
const MAX_DEPTH: usize = 512;

/// How many files more are opened before it is looked whether they are too many.
const OPEN_FILES_STEP: usize = 16;

/// Bytes of directory entries read at a time.
pub(super) const DIRECTORY_BUFFER: usize = 32 << 10;

/// Bytes of directory entries read to learn a name.
const NEIGHBOURS_BUFFER: usize = 4 << 10;

/// Most entries that are read to learn the name of one: those with the same cookie.
const MAX_AT_COOKIE: usize = 1024;

/// How often a directory is searched that others change meanwhile.
const SEARCHES: usize = 3;

/// A file that is searched for.
#[derive(Clone, Copy)]
struct Wanted {
    ino: u64,
    birth: Option<u64>,
    home: Option<u64>,
}

impl Wanted {
    fn is(self, stat: &Stat) -> bool {
        stat.attributes.fileid == self.ino && self.birth.is_none_or(|birth| birth == stat.birth)
    }
}

/// What is known on the way to one file.
struct Trail {
    pace: Pace,
    /// Directories between here and the file.
    depth: usize,
    /// Inodes that could not be found, or are being searched for.
    lost: HashSet<u64>,
}

impl Trail {
    fn new(pace: Pace) -> Self {
        Self {
            pace,
            depth: 0,
            lost: HashSet::new(),
        }
    }
}

/// The directories a file may be in, each found once; `None` where it could not be.
#[derive(Default)]
struct Parents {
    found: SmallVec<[(u64, Option<Arc<Node>>); 3]>,
}

impl Parents {
    fn get(
        &mut self,
        inner: &Inner,
        ino: u64,
        child: Wanted,
        trail: &mut Trail,
    ) -> Try<Option<Arc<Node>>> {
        if let Some((_, parent)) = self.found.iter().find(|(known, _)| *known == ino) {
            return Ok(parent.clone());
        }
        let found = if ino == child.ino {
            Err(Error::Stale.into())
        } else {
            inner.directory(ino, trail)
        };
        if !matches!(found, Err(Stop::WouldBlock)) {
            self.found.push((ino, found.as_ref().ok().cloned()));
        }
        found.map(Some)
    }
}

impl Inner {
    /// The file of a handle.
    pub(super) fn node(&self, file: FileId, pace: Pace) -> Try<Arc<Node>> {
        if file == self.root.id() {
            return Ok(Arc::clone(&self.root));
        }
        match &self.resolver {
            Resolver::Kernel(handles) => self.node_of_handle(handles, file, pace),
            Resolver::Table(_) => self.node_of_row(file, pace),
        }
    }

    fn node_of_row(&self, file: FileId, pace: Pace) -> Try<Arc<Node>> {
        let TableId { ino, birth, home } = TableId::parse(file).ok_or(Error::Stale)?;
        if self.is_hidden(ino, birth) {
            return Err(Error::Access.into());
        }
        if let Some(node) = self.open_node(ino)
            && node.birth == birth
        {
            return Ok(node);
        }
        let wanted = Wanted {
            ino,
            birth: Some(birth),
            home: Some(home),
        };
        self.find(wanted, &mut Trail::new(pace))
    }

    /// A directory that is in another one's place.
    fn directory(&self, ino: u64, trail: &mut Trail) -> Try<Arc<Node>> {
        if ino == self.root.ino {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(node) = self.open_node(ino) {
            return Ok(node);
        }
        let wanted = Wanted {
            ino,
            birth: None,
            home: None,
        };
        self.find(wanted, trail)
    }

    /// The directory that `node` is in; the root is in itself.
    pub(super) fn parent(&self, node: &Node, pace: Pace) -> Try<Arc<Node>> {
        if node.id() == self.root.id() {
            return Ok(Arc::clone(&self.root));
        }
        let table = match &self.resolver {
            Resolver::Kernel(handles) => return self.parent_by_kernel(handles, node, pace),
            Resolver::Table(table) => table,
        };
        let remembered = self.caches().links.get(node.ino).map(|link| link.parent);
        let parent = match remembered {
            Some(parent) => parent,
            None if pace == Pace::Quick => return Err(Stop::WouldBlock),
            None => {
                let (_, row) = table.get(node.ino)?.ok_or(Error::Stale)?;
                row.places.first().ok_or(Error::Stale)?.parent
            }
        };
        self.directory(parent, &mut Trail::new(pace))
    }

    /// Whether this very file was seen before.
    pub(super) fn is_known(&self, fd: impl AsFd, stat: &Stat) -> bool {
        let Ok(key) = self.key(fd, stat) else {
            return false;
        };
        let mut caches = self.caches();
        let open = caches.open.get(key);
        // Without a time of birth a new file is not told from the last one of its number.
        stat.born.is_some() && open.is_some_and(|node| node.birth == stat.birth)
    }

    /// Whether something in this directory can be found again, by going through the directories
    /// above it.
    pub(super) fn check_depth(&self, dir: &Node) -> Try<()> {
        let Resolver::Table(table) = &self.resolver else {
            return self.check_steps(dir);
        };
        let mut at = dir.ino;
        for _ in 0..MAX_DEPTH - 2 {
            if at == self.root.ino {
                return Ok(());
            }
            let remembered = self.caches().links.get(at).map(|link| link.parent);
            let parent = remembered.or_else(|| {
                let (_, row) = table.get(at).ok()??;
                row.places.first().map(|place| place.parent)
            });
            match parent {
                Some(parent) => at = parent,
                None => return Ok(()),
            }
        }
        Err(Error::NameTooLong.into())
    }

    pub(super) fn is_hidden(&self, ino: u64, birth: u64) -> bool {
        self.hidden == Some((ino, birth))
    }

    /// A file that is open, and, if it is a directory, was seen at its place recently. Inode numbers are
    /// the keys.
    fn open_node(&self, ino: u64) -> Option<Arc<Node>> {
        let node = Arc::clone(self.caches().open.get(ino)?);
        (!node.is_directory() || self.is_trusted(&node)).then_some(node)
    }

    /// Whether a directory was seen within the export recently.
    pub(super) fn is_trusted(&self, node: &Node) -> bool {
        let seen = node.seen.load(Relaxed);
        let age = self.now().saturating_sub(seen);
        seen != 0 && u128::from(age) < self.trust.as_millis()
    }

    /// A directory was within the export at that time.
    pub(super) fn saw(&self, node: &Node, now: u64) {
        node.seen.store(now, Relaxed);
    }

    /// Milliseconds since the start, from one on.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).map_or(u64::MAX, |now| now.max(1))
    }

    /// Closes a file, but for calls that use it.
    pub(super) fn drop_node(&self, node: &Node) {
        let mut caches = self.caches();
        let gone = match caches.open.get(node.key) {
            Some(open) if open.id() == node.id() => caches.open.remove(node.key),
            _ => None,
        };
        drop(caches);
        drop(gone);
    }

    /// Each directory that may hold the file is found once here, and one that could not be found is
    /// in `trail`, so that the whole way takes steps in proportion to its length, however many of the
    /// places on it are remembered wrongly.
    fn find(&self, wanted: Wanted, trail: &mut Trail) -> Try<Arc<Node>> {
        if trail.depth >= MAX_DEPTH || !trail.lost.insert(wanted.ino) {
            return Err(Error::Stale.into());
        }
        trail.depth += 1;
        let found = self.find_along(wanted, trail);
        trail.depth -= 1;
        if found.is_ok() {
            trail.lost.remove(&wanted.ino);
        }
        found
    }

    fn find_along(&self, mut wanted: Wanted, trail: &mut Trail) -> Try<Arc<Node>> {
        let mut parents = Parents::default();
        let mut worst = Error::Stale;
        let mut attempt = |result: Try<Option<Arc<Node>>>| match result {
            Ok(found) => Ok(found),
            Err(Stop::WouldBlock) => Err(Stop::WouldBlock),
            Err(Stop::Fail(Error::NotFound | Error::Stale | Error::NotDirectory)) => Ok(None),
            Err(Stop::Fail(error)) => {
                worst = error;
                Ok(None)
            }
        };
        let remembered = self.caches().links.get(wanted.ino).cloned();
        if let Some(link) = &remembered {
            let parent = attempt(parents.get(self, link.parent, wanted, trail))?;
            if let Some(parent) = parent
                && let Some(node) = attempt(self.enter(wanted, &parent, &link.name, trail.pace))?
            {
                return Ok(node);
            }
        }
        if trail.pace == Pace::Quick {
            // The table may have to be read from a disk.
            return Err(Stop::WouldBlock);
        }
        let row = self.row(wanted.ino).or_else(|error| {
            // It may be at home all the same.
            attempt(Err(error.into()))?;
            Ok::<_, Stop>(None)
        })?;
        let mut lost = None;
        if let Some((of, row)) = row
            && wanted.birth.is_none_or(|birth| birth == row.birth)
        {
            let known = Wanted {
                ino: wanted.ino,
                birth: Some(row.birth),
                home: Some(row.home),
            };
            for place in &row.places {
                let parent = attempt(parents.get(self, place.parent, wanted, trail))?;
                if let Some(parent) = parent
                    && let Some(node) =
                        attempt(self.enter(known, &parent, &place.name, trail.pace))?
                {
                    return Ok(node);
                }
            }
            wanted.home = wanted.home.or(known.home);
            lost = Some(Gone {
                ino: wanted.ino,
                of,
                birth: row.birth,
            });
        }
        if let Some(home) = wanted.home {
            attempt(parents.get(self, home, wanted, trail))?;
        }
        for (_, parent) in &parents.found {
            if let Some(parent) = parent
                && let Some(node) = attempt(self.search(wanted, parent))?
            {
                return Ok(node);
            }
        }
        // Where it may be is known in full, and it is not there.
        let searched =
            !parents.found.is_empty() && parents.found.iter().all(|(_, dir)| dir.is_some());
        if let Some(lost) = lost.filter(|_| searched && worst == Error::Stale) {
            self.forget(&lost);
        }
        Err(worst.into())
    }

    /// The file at a place, if it is the wanted one.
    fn enter(
        &self,
        wanted: Wanted,
        parent: &Node,
        name: &[u8],
        pace: Pace,
    ) -> Try<Option<Arc<Node>>> {
        let fd = sys::open_entry(&parent.path, name, self.look(pace))?;
        let stat = sys::stat(&fd, self.births)?;
        if !wanted.is(&stat) || !self.is_here(&stat) {
            return Ok(None);
        }
        self.adopt(parent, name, fd, &stat, wanted.home, pace)
            .map(Some)
    }

    /// Searches a directory for the inode.
    fn search(&self, wanted: Wanted, parent: &Node) -> Try<Option<Arc<Node>>> {
        let last = self.passes.of(parent.ino);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..SEARCHES {
            let version = Version::of(parent.birth, &self.attributes(parent)?);
            let pass = match last.take().filter(|pass| pass.is_of(version)) {
                Some(pass) => pass,
                None => self.pass_over(parent, version, wanted.ino)?,
            };
            match self.search_in(&pass, wanted, parent) {
                // The directory has changed since.
                Err(Stop::Fail(Error::NotFound)) => {}
                searched => {
                    *last = Some(pass);
                    return searched;
                }
            }
        }
        // Others change it all the time.
        Err(Error::Busy.into())
    }

    fn search_in(&self, pass: &Pass, wanted: Wanted, parent: &Node) -> Try<Option<Arc<Node>>> {
        for entry in pass.find(wanted.ino) {
            let name = self.name_at(*entry, parent)?.ok_or(Error::NotFound)?;
            if let Some(node) = self.enter(wanted, parent, &name, Pace::Patient)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Reads all entries of a directory. Of one with too many to keep it is an answer for `ino` alone.
    fn pass_over(&self, parent: &Node, version: Version, ino: u64) -> Try<Pass> {
        let now = sys::coarse_now();
        let fd = self.open_directory(parent)?;
        let mut memory = Vec::with_capacity(DIRECTORY_BUFFER);
        let mut raw = RawDir::new(&fd, memory.spare_capacity_mut());
        let (mut entries, mut len, mut before) = (Vec::new(), 0, 0);
        while let Some(entry) = raw.next() {
            let entry = entry?;
            len += 1;
            if len <= MAX_ENTRIES || entry.ino() == ino && entries.len() < MAX_ENTRIES + MAX_PLACES
            {
                entries.push(Entry {
                    ino: entry.ino(),
                    before,
                });
            }
            before = entry.next_entry_cookie();
        }
        let keep = self.passes.made(parent.ino, len) && self.local;
        Ok(Pass::new(version, keep.then_some(now), entries))
    }

    /// The name of an entry, if it is still there. Its neighbours are remembered as well: who asks for one
    /// file of a directory after a restart soon asks for those.
    fn name_at(&self, at: Entry, parent: &Node) -> Try<Option<Box<[u8]>>> {
        let fd = self.open_directory(parent)?;
        rustix::fs::seek(&fd, SeekFrom::Start(at.before))?;
        let mut memory = Vec::with_capacity(NEIGHBOURS_BUFFER);
        let mut entries = RawDir::new(&fd, memory.spare_capacity_mut());
        let (mut found, mut seen) = (None, 0);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if entry.ino() == at.ino && found.is_none() {
                found = Some(name.into());
            } else if name != b"." && name != b".." {
                self.remember_entry(entry.ino(), parent.ino, name);
            }
            seen += 1;
            if entries.is_buffer_empty() && (found.is_some() || seen >= MAX_AT_COOKIE) {
                break;
            }
        }
        Ok(found)
    }

    pub(super) fn open_directory(&self, node: &Node) -> Result<OwnedFd, Errno> {
        self.proc
            .reopen(node.path.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY)
    }

    fn remember_entry(&self, ino: u64, parent: u64, name: &[u8]) {
        let mut caches = self.caches();
        if caches.links.get(ino).is_none() {
            caches.links.insert(
                ino,
                Link {
                    known: None,
                    parent,
                    name: name.into(),
                },
            );
        }
    }

    /// Takes a file that was found in a directory among the open ones.
    pub(super) fn adopt(
        &self,
        parent: &Node,
        name: &[u8],
        fd: impl Into<NodeFd>,
        stat: &Stat,
        home: Option<u64>,
        pace: Pace,
    ) -> Try<Arc<Node>> {
        let fd = fd.into();
        let file = self.identify(parent.ino, name, (fd.as_fd(), stat), home, pace)?;
        if file == self.root.id() {
            return Ok(Arc::clone(&self.root));
        }
        let key = self.key_of(file, stat);
        let node = self.keep_open(Node::new(stat, (file, key), fd, &self.verifier));
        // It is as far within the export as the directory it is in was seen to be.
        let seen = match parent.id() == self.root.id() {
            true => self.now(),
            false => parent.seen.load(Relaxed),
        };
        node.seen.fetch_max(seen, Relaxed);
        Ok(node)
    }

    /// Takes a file among the open ones, if it is not there yet.
    pub(super) fn keep_open(&self, node: Node) -> Arc<Node> {
        let mut caches = self.caches();
        let known = caches.open.get(node.key);
        if let Some(known) = known.filter(|known| known.id() == node.id()) {
            return Arc::clone(known);
        }
        let node = Arc::new(node);
        if caches.open.len() == 0 {
            self.sweeper.0.wake();
        }
        let gone = caches.open.insert(Arc::clone(&node));
        // The system is asked for its limit only when there are many.
        let excess = match self.open_files {
            None if caches.open.len().is_multiple_of(OPEN_FILES_STEP) => {
                caches.open.trim(open::share_of_files())
            }
            _ => Vec::new(),
        };
        drop(caches);
        // Their descriptors are closed here, not under the lock.
        drop(excess);
        drop(gone);
        node
    }
}
