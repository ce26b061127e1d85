//! Files that clients keep open, and locks on them (NFSv4 OPEN and LOCK).

use super::{Error, Outcome};
use std::path::PathBuf;
use std::sync::Arc;

bitflags::bitflags! {
    /// Uses for which a client opens a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenAccess: u32 {
        /// Reading.
        const READ = 0x1;
        /// Writing.
        const WRITE = 0x2;
    }
}

/// Bytes of a file, from the first to the last; `u64::MAX` as the last is the end of the file, however long it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub first: u64,
    /// Last byte, not before the first.
    pub last: u64,
}

impl ByteRange {
    /// A whole file.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };
}

/// Kind of a lock of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Others may hold such locks of the same bytes.
    Shared,
    /// No other may hold a lock of the same bytes.
    Exclusive,
}

/// A lock of a program of this machine that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLock {
    /// The bytes.
    pub range: ByteRange,
    /// The kind.
    pub mode: LockMode,
}

/// A file that a client has open. Until it is dropped, the file can be used by its [`FileId`](super::FileId), also if its last
/// name is removed meanwhile.
///
/// Dropping it may wait for a disk, unless it [has ended](Self::end_at_once).
pub trait HeldFile: Send + Sync {
    /// Opens the file once more for an owner of locks: locks of different owners exclude each other. The owner also locks by it what it
    /// locks through other opens, with other access: so it is open for reading and writing where the server can have that.
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>>;

    /// Returns the path of the file on this machine, for an administrator, if it can be found out. It may be another one soon. It may wait
    /// for a disk.
    fn path(&self) -> Option<PathBuf> {
        None
    }

    /// Ends it before it is dropped, if that waits for nothing. Returns whether it has ended: dropping it does nothing more then that
    /// could wait.
    fn end_at_once(&mut self) -> bool {
        false
    }
}

/// A file that is open for one owner of locks. Its locks end when it is dropped, which may wait for a disk.
///
/// The other operations must not wait: a file system whose locks are far away holds none, and leaves them to the server.
pub trait LockFile: Send + Sync {
    /// Locks bytes, in place of what this owner has locked of them. Returns the lock that is in the way, if one is.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn lock(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error>;

    /// Unlocks bytes. It cannot fail in a way that matters: what is not unlocked is when this is dropped.
    fn unlock(&self, range: ByteRange);

    /// Returns a lock of a program of this machine that is in the way of such a lock. Those of other [`LockFile`]s are not looked
    /// for.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn test(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error>;
}

/// A file of a file system where the server's own table of locks is all there is, and a file ends with its last name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unheld;

impl HeldFile for Unheld {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        Outcome::Ready(Ok(Arc::new(Self)))
    }

    fn end_at_once(&mut self) -> bool {
        true
    }
}

impl LockFile for Unheld {
    fn lock(&self, _: ByteRange, _: LockMode) -> Result<Option<LocalLock>, Error> {
        Ok(None)
    }

    fn unlock(&self, _: ByteRange) {}

    fn test(&self, _: ByteRange, _: LockMode) -> Result<Option<LocalLock>, Error> {
        Ok(None)
    }
}
