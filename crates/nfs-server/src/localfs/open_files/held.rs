//! Files that clients keep open.
//!
//! A file that is held stays among the open files, whether it is used or not, and when its last name is removed: handles go on
//! leading to it. All holds of a file share its [`Node`], and so its descriptors. Together with descriptors for locks
//! (`lock_file.rs`), held files that are open are at most all but one in [`OTHERS_PART`](super::limit::OTHERS_PART) of the files that
//! an export may keep open (`limit.rs`); other files have the rest. Where handles find files again, more may be held (`holds.rs`).

use super::OpenFiles;
use super::holds::{HoldId, Left, UNNAMED_PART, has_name};
use super::limit::most_held;
use super::lock_file::OfdLocks;
use super::node::Node;
use crate::fs::{Error, FileId, HeldFile, LockFile, Outcome, Unheld};
use crate::localfs::sys::Try;
use oncrpc::PeerGroup;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Largest number of times that the place of a held file is looked at again, as another one has come to it.
const TRIES: usize = 3;

/// Returns how many files and owners of locks may be held, where each takes a descriptor.
pub(in crate::localfs) fn places(files: &OpenFiles) -> usize {
    most_held(files.most())
}

/// Returns how many owners of locks there may be beside files that [are found by handles](Held::by_handle).
pub(in crate::localfs) fn places_for_locks(files: &OpenFiles) -> usize {
    let places = places(files);
    places - places / UNNAMED_PART
}

/// A file that a client has open, until this is dropped.
pub(in crate::localfs) struct Held {
    files: Arc<OpenFiles>,
    key: u64,
    file: FileId,
    hold: HoldId,
    group: PeerGroup,
    /// The file, where it is not found again.
    node: Option<Arc<Node>>,
    has_ended: bool,
}

impl Held {
    /// Holds an open file, which stays open, for a client of this address.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: as many files are held as may be.
    pub(in crate::localfs) fn new(
        files: &Arc<OpenFiles>,
        node: &Arc<Node>,
        group: PeerGroup,
    ) -> Try<Self> {
        let mut node = Arc::clone(node);
        for _ in 0..TRIES {
            let other = match hold(files, &node, group)? {
                Ok(hold) => return Ok(Self::of(files, &node, (hold, group), true)),
                Err(other) => other,
            };
            if other.id() != node.id() {
                return Err(Error::Busy.into());
            }
            // The file was closed and opened again since it was found; or it is a new one with the inode number of the held one.
            if files.volume.ids_stay() || files.is_still(&other, &node) {
                node = other;
            } else {
                files.forget_held(&other);
            }
        }
        Err(Error::Busy.into())
    }

    /// Holds a file that its handle of the kernel finds again, with its descriptor or without, for a client of this address.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: another file has its key.
    pub(in crate::localfs) fn by_handle(
        files: &Arc<OpenFiles>,
        node: &Arc<Node>,
        group: PeerGroup,
    ) -> Try<Self> {
        let most = files.most();
        let mut cache = files.cache();
        if cache
            .held()
            .file(node.key)
            .is_some_and(|file| file != node.id())
        {
            return Err(Error::Busy.into());
        }
        if cache.kept() == 0 {
            files.sweeper.wake();
        }
        let hold = cache.held_mut().0.add(node, group, true);
        let cooled = files.warm(&mut cache, node);
        let excess = cache.trim_beside_kept(most);
        drop(cache);
        drop((cooled, excess));
        Ok(Self::of(files, node, (hold, group), false))
    }

    fn of(
        files: &Arc<OpenFiles>,
        node: &Arc<Node>,
        (hold, group): (HoldId, PeerGroup),
        keeps: bool,
    ) -> Self {
        Self {
            files: Arc::clone(files),
            key: node.key,
            file: node.id(),
            hold,
            group,
            node: keeps.then(|| Arc::clone(node)),
            has_ended: false,
        }
    }

    pub(in crate::localfs) fn file(&self) -> FileId {
        self.file
    }

    /// Returns the file, if it is open.
    pub(in crate::localfs) fn node(&self) -> Option<Arc<Node>> {
        let open = || {
            let open = self.files.peek(self.key)?;
            (open.id() == self.file).then_some(open)
        };
        self.node.clone().or_else(open)
    }

    /// Opens the file once more, for an owner of locks.
    ///
    /// # Errors
    ///
    /// Those of the kernel. [`Error::Busy`]: there are as many descriptors as may be.
    pub(in crate::localfs) fn open_for_locks(
        files: &Arc<OpenFiles>,
        node: &Node,
    ) -> Result<Arc<dyn LockFile>, Error> {
        let opened = OfdLocks::open(files, node);
        files.shed_if_exhausted();
        opened.map(|locks| Arc::new(locks) as Arc<dyn LockFile>)
    }
}

/// Holds a file, unless another one is held in its place; then returns that.
fn hold(
    files: &OpenFiles,
    node: &Arc<Node>,
    group: PeerGroup,
) -> Result<Result<HoldId, Arc<Node>>, Error> {
    let most = files.most();
    let mut cache = files.cache();
    match cache.held().node(node.key) {
        Some(other) if !Arc::ptr_eq(other, node) => return Ok(Err(Arc::clone(other))),
        None if cache.kept() >= most_held(most) => return Err(Error::Busy),
        Some(_) | None => {}
    }
    if cache.kept() == 0 {
        files.sweeper.wake();
    }
    let hold = cache.held_mut().0.add(node, group, false);
    let excess = cache.trim_beside_kept(most);
    drop(cache);
    drop(excess);
    Ok(Ok(hold))
}

impl Held {
    fn release(&mut self) -> Left {
        self.has_ended = true;
        let mut cache = self.files.cache();
        cache.held_mut().0.release(self.key, self.hold, self.group)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // What was forgotten may have a new file in its place.
        let Left::Nothing(warm) = self.release() else {
            return;
        };
        if let Some(node) = self.node.as_ref().or(warm.as_ref())
            && rustix::fs::fstat(&node.path).is_ok_and(|found| found.st_nlink == 0)
        {
            self.files.note_gone(node);
        }
    }
}

impl HeldFile for Held {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        // Elsewhere a lock may wait for another machine or process.
        match &self.node {
            Some(node) if self.files.volume.local => {
                Outcome::Ready(Self::open_for_locks(&self.files, node))
            }
            Some(_) | None => Unheld.open_for_locks(),
        }
    }

    fn path(&self) -> Option<PathBuf> {
        let path = self
            .files
            .volume
            .proc
            .path(self.node()?.path.as_fd())
            .ok()?;
        Some(OsString::from_vec(path.into_bytes()).into())
    }

    /// A file that stays open is not closed by it, and one with a name has nothing to be freed.
    fn end_at_once(&mut self) -> bool {
        if !self.files.volume.local {
            return false;
        }
        let open = self.files.cache().stays_open(self.key).map(Arc::clone);
        let ends = open.is_some_and(|open| {
            let is_it = |node| Arc::ptr_eq(node, &open);
            open.id() == self.file && self.node.as_ref().is_none_or(is_it) && has_name(&open)
        });
        if ends {
            self.release();
        }
        ends
    }
}

/// Keeps a file open that clients hold, if they do and its handle finds it again, as a name of it is to be removed: it may be the last one.
pub(in crate::localfs) fn begin_removal(
    files: &Arc<OpenFiles>,
    node: &Arc<Node>,
) -> Option<Removal> {
    let mut cache = files.cache();
    if cache.kept() == 0 {
        files.sweeper.wake();
    }
    let hold = cache.held_mut().0.begin_removal(node)?;
    drop(cache);
    Some(Removal {
        files: Arc::clone(files),
        key: node.key,
        hold,
    })
}

/// The removal of a name of a file that clients hold, until this is dropped.
pub(in crate::localfs) struct Removal {
    files: Arc<OpenFiles>,
    key: u64,
    hold: HoldId,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let most = most_held(self.files.most());
        let mut cache = self.files.cache();
        let closed = cache.end_removal(self.key, self.hold, most);
        drop(cache);
        drop(closed);
    }
}

/// A descriptor that counts as a held file, until this is dropped.
pub(super) struct CountedDescriptor(Arc<OpenFiles>);

impl CountedDescriptor {
    pub(super) fn new(files: &Arc<OpenFiles>) -> Result<Self, Error> {
        let most = files.most();
        let mut cache = files.cache();
        let cooled = cache.make_room(most_held(most));
        if cache.kept() >= most_held(most) {
            return Err(Error::Busy);
        }
        cache.add_lock_file();
        let excess = cache.trim_beside_kept(most);
        drop(cache);
        drop((cooled, excess));
        Ok(Self(Arc::clone(files)))
    }
}

impl Drop for CountedDescriptor {
    fn drop(&mut self) {
        self.0.cache().remove_lock_file();
    }
}

/// Opens the file of a node for locks, with the rights of this process: for reading and writing if it may, as each kind of lock needs
/// one of the two.
pub(super) fn open_for_locks(files: &OpenFiles, node: &Node) -> Result<OwnedFd, Error> {
    let open = |flags| files.volume.proc.reopen(node.path.as_fd(), flags);
    let opened = match open(OFlags::RDWR) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {
            match open(OFlags::RDONLY) {
                Err(Errno::ACCESS) => open(OFlags::WRONLY),
                opened => opened,
            }
        }
        opened => opened,
    };
    Ok(opened?)
}
