//! Locks of clients as locks of open file descriptions (fcntl(2), `F_OFD_SETLK`).
//!
//! Each owner of locks has an open file description of its own, so that the kernel tells owners apart, and local programs that lock
//! bytes of the file, in this way or in that of POSIX, see these locks and are seen. flock(2) is apart from both.
//!
//! Offsets of the kernel end at 2⁶³ − 1. A range that reaches beyond is cut there, and one that lies beyond is not locked in the
//! kernel at all: no file has such bytes, no local program can lock them, and the server's own table has the whole range. So two
//! ranges overlap in the kernel only if they overlap.

use super::OpenFiles;
use super::held::{CountedDescriptor, open_for_locks};
use super::node::Node;
use crate::fs::{ByteRange, Error, LocalLock, LockFile, LockMode};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// Largest number of attempts to lock bytes of which a conflicting lock is gone when it is looked for.
const TRIES: usize = 2;

/// Process id of locks of open file descriptions.
const NO_PROCESS: libc::pid_t = -1;

/// An open file description for the locks of one owner.
pub(super) struct OfdLocks {
    fd: OwnedFd,
    _counted: CountedDescriptor,
}

impl OfdLocks {
    /// Opens a file once more.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: as many descriptors are kept as may be, or a lease of a local program is in the way.
    pub(super) fn open(files: &Arc<OpenFiles>, node: &Node) -> Result<Self, Error> {
        let counted = CountedDescriptor::new(files)?;
        Ok(Self {
            fd: open_for_locks(files, node)?,
            _counted: counted,
        })
    }
}

impl LockFile for OfdLocks {
    /// Locks bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Access`]: this process may not open the file in the way that the lock needs, for writing if it is exclusive.
    /// [`Error::Busy`]: it is locked each time, and nothing is in the way when that is looked for.
    fn lock(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error> {
        match wanted(range, kind_of(mode)) {
            Some(lock) => lock_bytes(&self.fd, lock),
            None => Ok(None),
        }
    }

    fn unlock(&self, range: ByteRange) {
        let Some(lock) = wanted(range, libc::F_UNLCK) else {
            return;
        };
        if let Err(error) = set(&self.fd, &lock) {
            tracing::debug!(%error, "bytes of a file stay locked until it is closed");
        }
    }

    /// Returns a POSIX lock of a local program that is in the way. One of an open file description is not told from those of other
    /// owners, which the server knows.
    fn test(&self, range: ByteRange, mode: LockMode) -> Result<Option<LocalLock>, Error> {
        let Some(lock) = wanted(range, kind_of(mode)) else {
            return Ok(None);
        };
        match find(&self.fd, lock) {
            Ok(found) => Ok(found
                .filter(|(_, process)| *process != NO_PROCESS)
                .map(|(lock, _)| lock)),
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn lock_bytes(fd: &OwnedFd, lock: libc::flock) -> Result<Option<LocalLock>, Error> {
    for _ in 0..TRIES {
        match set(fd, &lock) {
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
            Err(Errno::AGAIN | Errno::ACCESS) => {}
            Err(Errno::BADF) => return Err(Error::Access),
            Err(errno) => return Err(errno.into()),
        }
        if let Some((found, _)) = find(fd, lock)? {
            return Ok(Some(found));
        }
    }
    Err(Error::Busy)
}

fn kind_of(mode: LockMode) -> libc::c_int {
    match mode {
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    }
}

/// Returns a lock for the kernel; `None` if the kernel has no such bytes.
fn wanted(range: ByteRange, kind: libc::c_int) -> Option<libc::flock> {
    let first = i64::try_from(range.first).ok()?;
    let len = match i64::try_from(range.last) {
        Ok(last) if last < i64::MAX => last - first + 1,
        // To the end.
        Ok(_) | Err(_) => 0,
    };
    Some(libc::flock {
        l_type: libc::c_short::try_from(kind).ok()?,
        l_whence: libc::c_short::try_from(libc::SEEK_SET).ok()?,
        l_start: first,
        l_len: len,
        l_pid: 0,
    })
}

fn set(fd: &OwnedFd, lock: &libc::flock) -> Result<(), Errno> {
    done(fcntl(fd, FcntlArg::F_OFD_SETLK(lock)))
}

/// Returns a lock that is in the way of this one, and its process.
fn find(fd: &OwnedFd, mut lock: libc::flock) -> Result<Option<(LocalLock, libc::pid_t)>, Errno> {
    done(fcntl(fd, FcntlArg::F_OFD_GETLK(&mut lock)))?;
    let mode = match libc::c_int::from(lock.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => LockMode::Shared,
        _ => LockMode::Exclusive,
    };
    let first = u64::try_from(lock.l_start).unwrap_or(0);
    let last = match u64::try_from(lock.l_len) {
        Ok(len @ 1..) => first.saturating_add(len - 1),
        Ok(0) | Err(_) => u64::MAX,
    };
    let range = ByteRange { first, last };
    Ok(Some((LocalLock { range, mode }, lock.l_pid)))
}

fn done(result: nix::Result<libc::c_int>) -> Result<(), Errno> {
    match result {
        Ok(_) => Ok(()),
        Err(errno) => Err(Errno::from_raw_os_error(errno as i32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_lock_for_which_the_file_is_not_open_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reader: OwnedFd = std::fs::File::open(file.path()).unwrap().into();
        let lock = |kind| lock_bytes(&reader, wanted(ByteRange::ALL, kind).unwrap());
        assert_eq!(lock(libc::F_RDLCK), Ok(None));
        assert_eq!(lock(libc::F_WRLCK), Err(Error::Access));
    }

    #[test]
    fn ranges_end_where_the_offsets_of_the_kernel_do() {
        const END: u64 = i64::MAX.unsigned_abs();
        fn check(range: (u64, u64), expected: Option<(i64, i64)>) {
            let range = ByteRange {
                first: range.0,
                last: range.1,
            };
            let lock = wanted(range, libc::F_RDLCK);
            let found = lock.map(|lock| (lock.l_start, lock.l_len));
            assert_eq!(found, expected, "{range:?}");
        }
        check((0, 0), Some((0, 1)));
        check((5, 9), Some((5, 5)));
        check((0, u64::MAX), Some((0, 0)));
        check((5, END - 1), Some((5, i64::MAX - 5)));
        check((0, END - 1), Some((0, i64::MAX)));
        check((5, END), Some((5, 0)));
        check((5, END + 7), Some((5, 0)));
        check((END, END), Some((i64::MAX, 0)));
        check((END + 1, END + 7), None);
        check((END + 1, u64::MAX), None);
        check((u64::MAX, u64::MAX), None);
    }
}
