//! Finds a file of a handle without a kernel handle.
//!
//! The search goes through the open files, the last known locations in memory and in the table, and
//! at last the home: the directory in which the file was first seen. At each place the file must
//! have the same inode number and birth time, otherwise the handle is stale. Directories on the way
//! are found in the same way, so that every path begins at the root of the export.

use super::inode_index::{Entry, MAX_ENTRIES, Pass, Passes, Version};
use super::names::Link;
use super::table::{MAX_PLACES, Of, Table};
use super::trust::Trust;
use crate::fs::{Error, FileId};
use crate::localfs::id::{IdentifiedBy, TableId, number_of_path};
use crate::localfs::lru::Lru;
use crate::localfs::open_files::node::{Gone, Node, NodeFd};
use crate::localfs::open_files::{DIRECTORY_BUFFER, OpenFiles};
use crate::localfs::sys::{self, Pace, Stat, Stop, Try};
use crate::localfs::volume::Volume;
use rustix::fs::{RawDir, SeekFrom};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest depth of a directory below the root. Deeper directories are not created. They can exist
/// when whole trees are moved or local users make them; files in them are found only while the
/// directory is open.
const MAX_DEPTH: usize = 512;

/// Largest number of files whose locations are kept in memory, about 100 bytes each.
const REMEMBERED_PLACES: usize = 65_536;

/// Bytes of directory entries read to learn a name.
const NEIGHBOURS_BUFFER: usize = 4 << 10;

/// Largest number of entries read to find the name of one: those with the same cookie.
const MAX_AT_COOKIE: usize = 1024;

/// Largest number of searches of a directory that changes meanwhile.
const SEARCHES: usize = 3;

/// A file to find.
#[derive(Clone, Copy)]
struct Wanted {
    number: u64,
    birth: Option<u64>,
    home: Option<u64>,
}

impl Wanted {
    fn is(self, stat: &Stat, by: IdentifiedBy) -> bool {
        // A number that is derived from a path is compared when the file has its id.
        (by.path() || stat.attributes.fileid == self.number)
            && self.birth.is_none_or(|birth| birth == stat.birth)
    }
}

/// State of the search for one file.
pub(in crate::localfs) struct Trail {
    pace: Pace,
    /// Number of directories between this one and the file.
    depth: usize,
    /// Numbers of files that were not found, or are being searched for.
    lost: HashSet<u64>,
}

impl Trail {
    pub(in crate::localfs) fn new(pace: Pace) -> Self {
        Self {
            pace,
            depth: 0,
            lost: HashSet::new(),
        }
    }
}

/// Directories that may contain a file, each found once; `None` if it was not found.
#[derive(Default)]
struct Parents {
    found: SmallVec<[(u64, Option<Arc<Node>>); 3]>,
}

impl Parents {
    fn get(
        &mut self,
        finder: &ByLocation,
        number: u64,
        child: Wanted,
        trail: &mut Trail,
    ) -> Try<Option<Arc<Node>>> {
        if let Some((_, parent)) = self.found.iter().find(|(known, _)| *known == number) {
            return Ok(parent.clone());
        }
        let found = if number == child.number {
            Err(Error::Stale.into())
        } else {
            finder.directory(number, trail)
        };
        if !matches!(found, Err(Stop::WouldBlock)) {
            self.found.push((number, found.as_ref().ok().cloned()));
        }
        found.map(Some)
    }
}

/// Finds files by their locations.
pub(in crate::localfs) struct ByLocation {
    pub(super) volume: Arc<Volume>,
    pub(super) files: Arc<OpenFiles>,
    pub(super) trust: Trust,
    pub(in crate::localfs) table: Table,
    /// Last known locations of files, by [`Node::number`].
    links: Mutex<Lru<Link>>,
    pub(in crate::localfs) passes: Passes,
}

impl ByLocation {
    pub(super) fn new(volume: Arc<Volume>, files: Arc<OpenFiles>, table: Table) -> Self {
        Self {
            volume,
            files,
            trust: Trust::new(),
            table,
            links: Mutex::new(Lru::new(REMEMBERED_PLACES)),
            passes: Passes::new(),
        }
    }

    pub(in crate::localfs) fn links(&self) -> MutexGuard<'_, Lru<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the file of a handle.
    pub(super) fn node(&self, file: FileId, pace: Pace) -> Try<Arc<Node>> {
        let TableId {
            number,
            birth,
            home,
        } = TableId::parse(file).ok_or(Error::Stale)?;
        if let Some(node) = self.open_node(number)
            && node.birth == birth
        {
            return Ok(node);
        }
        let wanted = Wanted {
            number,
            birth: Some(birth),
            home: Some(home),
        };
        self.find(wanted, &mut Trail::new(pace))
    }

    /// Finds a directory by its number.
    pub(in crate::localfs) fn directory(&self, number: u64, trail: &mut Trail) -> Try<Arc<Node>> {
        if number == self.files.root().number {
            return Ok(Arc::clone(&self.files.root().node));
        }
        // In a directory that the kernel does not know any more, nothing is found, though it may be in
        // the one that has its name now.
        if let Some(node) = self.open_node(number)
            && (self.volume.ids_stay() || self.files.attributes(&node).is_ok())
        {
            return Ok(node);
        }
        let wanted = Wanted {
            number,
            birth: None,
            home: None,
        };
        self.find(wanted, trail)
    }

    /// Finds the parent directory of `node`; the root is its own parent.
    pub(in crate::localfs) fn parent(&self, node: &Node, pace: Pace) -> Try<Arc<Node>> {
        let root = self.files.root();
        if node.id() == root.id() {
            return Ok(Arc::clone(&root.node));
        }
        let remembered = self.links().get(node.number).map(|link| link.parent);
        let parent = match remembered {
            Some(parent) => parent,
            None if pace == Pace::Quick => return Err(Stop::WouldBlock),
            None => {
                let (_, row) = self.table.get(node.number)?.ok_or(Error::Stale)?;
                row.places.first().ok_or(Error::Stale)?.parent
            }
        };
        self.directory(parent, &mut Trail::new(pace))
    }

    /// Checks that a file in this directory can be found again through the directories above it.
    pub(in crate::localfs) fn check_depth(&self, dir: &Node) -> Try<()> {
        let mut at = dir.number;
        for _ in 0..MAX_DEPTH - 2 {
            if at == self.files.root().number {
                return Ok(());
            }
            let remembered = self.links().get(at).map(|link| link.parent);
            let parent = remembered.or_else(|| {
                let (_, row) = self.table.get(at).ok()??;
                row.places.first().map(|place| place.parent)
            });
            match parent {
                Some(parent) => at = parent,
                None => return Ok(()),
            }
        }
        Err(Error::NameTooLong.into())
    }

    /// Returns an open file by its number. A directory must have been seen at its location
    /// recently.
    fn open_node(&self, number: u64) -> Option<Arc<Node>> {
        let node = self.files.get(number)?;
        (!node.is_directory() || self.trust.is_trusted(&node)).then_some(node)
    }

    /// Finds a file with the table. Each directory that may contain the file is found once, and
    /// directories that could not be found are noted in `trail`. The number of steps is thus
    /// proportional to the length of the path, however many known locations are wrong.
    fn find(&self, wanted: Wanted, trail: &mut Trail) -> Try<Arc<Node>> {
        if trail.depth >= MAX_DEPTH || !trail.lost.insert(wanted.number) {
            return Err(Error::Stale.into());
        }
        trail.depth += 1;
        let found = self.find_along(wanted, trail);
        trail.depth -= 1;
        if found.is_ok() {
            trail.lost.remove(&wanted.number);
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
        let remembered = self.links().get(wanted.number).cloned();
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
        let row = self.table.get(wanted.number).or_else(|error| {
            // The file may still be in its home.
            attempt(Err(error.into()))?;
            Ok::<_, Stop>(None)
        })?;
        let mut lost = None;
        if let Some((of, row)) = row
            && wanted.birth.is_none_or(|birth| birth == row.birth)
        {
            let known = Wanted {
                number: wanted.number,
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
                number: wanted.number,
                birth: row.birth,
                is_directory: of == Of::Directory,
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
        // All possible locations are known, and the file is at none of them.
        let searched =
            !parents.found.is_empty() && parents.found.iter().all(|(_, dir)| dir.is_some());
        if let Some(lost) = lost.filter(|_| searched && worst == Error::Stale) {
            self.forget(&lost);
        }
        Err(worst.into())
    }

    /// Opens the entry at a location, if it is the wanted file.
    fn enter(
        &self,
        wanted: Wanted,
        parent: &Node,
        name: &[u8],
        pace: Pace,
    ) -> Try<Option<Arc<Node>>> {
        let fd = sys::open_entry(&parent.path, name, self.volume.look(pace))?;
        let stat = sys::stat(&fd, self.volume.by)?;
        if !wanted.is(&stat, self.volume.by) || !self.files.is_here(&stat) {
            return Ok(None);
        }
        if self.volume.is_hidden(&stat) {
            return Err(Error::Access.into());
        }
        let node = self.adopt(parent, name, fd.into(), &stat, wanted.home, pace)?;
        Ok((node.number == wanted.number).then_some(node))
    }

    /// Searches a directory for the file.
    fn search(&self, wanted: Wanted, parent: &Node) -> Try<Option<Arc<Node>>> {
        if self.volume.by.path() {
            return self.search_by_name(wanted, parent);
        }
        let last = self.passes.of(parent.number);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..SEARCHES {
            let version = Version::of(parent.birth, &self.files.attributes(parent)?);
            let pass = match last.take().filter(|pass| pass.is_of(version)) {
                Some(pass) => pass,
                None => self.pass_over(parent, version, wanted.number)?,
            };
            match self.search_in(&pass, wanted, parent) {
                // The directory has changed since the pass.
                Err(Stop::Fail(Error::NotFound)) => {}
                searched => {
                    *last = Some(pass);
                    return searched;
                }
            }
        }
        // The directory changes all the time.
        Err(Error::Busy.into())
    }

    /// Searches a directory for the name under which the file was first seen.
    fn search_by_name(&self, wanted: Wanted, parent: &Node) -> Try<Option<Arc<Node>>> {
        let Some(birth) = wanted.birth else {
            return Ok(None);
        };
        let fd = self.files.open_directory(parent)?;
        let mut memory = Vec::with_capacity(DIRECTORY_BUFFER);
        let mut raw = RawDir::new(&fd, memory.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if number_of_path(parent.number, name, birth, 0) == wanted.number {
                return self.enter(wanted, parent, name, Pace::Patient);
            }
        }
        Ok(None)
    }

    fn search_in(&self, pass: &Pass, wanted: Wanted, parent: &Node) -> Try<Option<Arc<Node>>> {
        for entry in pass.find(wanted.number) {
            let name = self.name_at(*entry, parent)?.ok_or(Error::NotFound)?;
            if let Some(node) = self.enter(wanted, parent, &name, Pace::Patient)? {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// Reads all entries of a directory. If there are too many to keep, the pass has those of `ino`
    /// only.
    fn pass_over(&self, parent: &Node, version: Version, ino: u64) -> Try<Pass> {
        let now = sys::coarse_now();
        let fd = self.files.open_directory(parent)?;
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
        let keep = self.passes.made(parent.number, len) && self.volume.local;
        Ok(Pass::new(version, keep.then_some(now), entries))
    }

    /// Reads the name of an entry, if it still exists. The locations of its neighbours are
    /// remembered too: after a restart, they are usually needed next.
    fn name_at(&self, at: Entry, parent: &Node) -> Try<Option<Box<[u8]>>> {
        let fd = self.files.open_directory(parent)?;
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
                self.remember_entry(entry.ino(), parent.number, name);
            }
            seen += 1;
            if entries.is_buffer_empty() && (found.is_some() || seen >= MAX_AT_COOKIE) {
                break;
            }
        }
        Ok(found)
    }

    fn remember_entry(&self, ino: u64, parent: u64, name: &[u8]) {
        let mut links = self.links();
        if links.get(ino).is_none() {
            links.insert(
                ino,
                Link {
                    known: None,
                    parent,
                    name: name.into(),
                },
            );
        }
    }

    /// Adds a file that was found in a directory to the open files.
    pub(super) fn adopt(
        &self,
        parent: &Node,
        name: &[u8],
        fd: NodeFd,
        stat: &Stat,
        home: Option<u64>,
        pace: Pace,
    ) -> Try<Arc<Node>> {
        let file = self.identify(parent.number, name, stat, home, pace)?;
        Ok(self.trust.keep_open(&self.files, (file, stat, fd), parent))
    }

    /// Begins a round of the sweeper.
    pub(super) fn begin_round(&self, round: u64) {
        self.passes.begin_round(round);
    }
}
