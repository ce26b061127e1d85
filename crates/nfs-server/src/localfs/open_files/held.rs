//! Files that clients keep open.
//!
//! A file that is held stays among the open files, whether it is used or not, and when its last name is removed: handles go on
//! leading to it. All holds of a file share its [`Node`], and so its descriptors. Together with descriptors for locks
//! (`lock_file.rs`), held files are at most all but one in [`OTHERS_PART`] of the files that an export may keep open
//! (`limit.rs`); other files have the rest.

use super::OpenFiles;
use super::lock_file::OfdLocks;
use super::node::Node;
use crate::fs::{Error, HeldFile, LockFile, Outcome, Unheld};
use crate::localfs::sys::Try;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The part of the files that an export may keep open for which no client holds one, as its reciprocal.
const OTHERS_PART: usize = 4;

/// Largest number of times that the place of a held file is looked at again, as another one has come to it.
const TRIES: usize = 3;

/// Returns how many files may be held, of those that may be open.
fn most_held(most: usize) -> usize {
    most - most / OTHERS_PART
}

/// Returns how many files and owners of locks may be held.
pub(in crate::localfs) fn places(files: &OpenFiles) -> usize {
    most_held(files.most())
}

/// A file that a client has open, until this is dropped.
pub(in crate::localfs) struct Held {
    files: Arc<OpenFiles>,
    node: Arc<Node>,
}

impl Held {
    /// Holds an open file.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: as many files are held as may be.
    pub(in crate::localfs) fn new(files: &Arc<OpenFiles>, node: &Arc<Node>) -> Try<Self> {
        let mut node = Arc::clone(node);
        for _ in 0..TRIES {
            let Some(other) = hold(files, &node)? else {
                let files = Arc::clone(files);
                return Ok(Self { files, node });
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
}

/// Holds a file, unless another one is held in its place; then returns that.
fn hold(files: &OpenFiles, node: &Arc<Node>) -> Result<Option<Arc<Node>>, Error> {
    let most = files.most();
    let mut cache = files.cache();
    match cache.held(node.key) {
        Some(other) if !Arc::ptr_eq(other, node) => return Ok(Some(Arc::clone(other))),
        None if cache.kept() >= most_held(most) => return Err(Error::Busy),
        Some(_) | None => {}
    }
    if cache.kept() == 0 {
        files.sweeper.wake();
    }
    cache.hold(node);
    let excess = cache.trim_beside_kept(most);
    drop(cache);
    drop(excess);
    Ok(None)
}

impl Drop for Held {
    fn drop(&mut self) {
        let released = self.files.cache().release(&self.node);
        if released && rustix::fs::fstat(&self.node.path).is_ok_and(|found| found.st_nlink == 0) {
            self.files.note_gone(&self.node);
        }
    }
}

impl HeldFile for Held {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        // Elsewhere a lock may wait for another machine or process.
        if !self.files.volume.local {
            return Unheld.open_for_locks();
        }
        let opened = OfdLocks::open(&self.files, &self.node);
        self.files.shed_if_exhausted();
        Outcome::Ready(opened.map(|locks| Arc::new(locks) as Arc<dyn LockFile>))
    }

    fn path(&self) -> Option<PathBuf> {
        let path = self.files.volume.proc.path(self.node.path.as_fd()).ok()?;
        Some(OsString::from_vec(path.into_bytes()).into())
    }
}

/// A descriptor that counts as a held file, until this is dropped.
pub(super) struct CountedDescriptor(Arc<OpenFiles>);

impl CountedDescriptor {
    pub(super) fn new(files: &Arc<OpenFiles>) -> Result<Self, Error> {
        let most = files.most();
        let mut cache = files.cache();
        if cache.kept() >= most_held(most) {
            return Err(Error::Busy);
        }
        cache.add_lock_file();
        let excess = cache.trim_beside_kept(most);
        drop(cache);
        drop(excess);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_left_for_those_that_no_client_holds() {
        assert_eq!(most_held(100), 75);
        assert_eq!(most_held(3), 3);
        assert_eq!(most_held(1), 1);
    }
}
