//! System calls, with the flags that confine them to the export.

use super::id::IdentifiedBy;
use crate::fs::{Attributes, Error, FileKind, SetTime, Time};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, Timespec, Timestamps,
};
use rustix::io::Errno;
use siphasher::sip::SipHasher24;
use std::ffi::{CStr, CString};
use std::hash::Hasher;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Whether an operation may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// The call must not wait: it fails with [`Stop::WouldBlock`] instead.
    Quick,
    /// The call may wait: it runs on a thread for that.
    Patient,
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// The call failed.
    Fail(Error),
    /// The call would have to wait.
    WouldBlock,
}

pub(super) type Try<T> = Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fail(error)
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::AGAIN => Self::WouldBlock,
            errno => Self::Fail(errno.into()),
        }
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fail(error) => error,
            Stop::WouldBlock => Self::Busy,
        }
    }
}

/// Count of descriptor shortages. Descriptors are a limit of the process, not of an export.
static EXHAUSTED: AtomicU64 = AtomicU64::new(0);

pub(super) fn exhausted() -> u64 {
    EXHAUSTED.load(Relaxed)
}

/// Counts a descriptor shortage, if that is the result of opening a file.
pub(super) fn opened(result: Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    if matches!(result, Err(Errno::MFILE | Errno::NFILE)) {
        EXHAUSTED.fetch_add(1, Relaxed);
    }
    result
}

/// State of a file in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    /// Hash of the birth time, to distinguish files with the same inode number over time; of what
    /// else distinguishes files that have the same path over time, if they are
    /// [identified by](IdentifiedBy) that.
    pub(super) birth: u64,
    /// Birth time, if the file system has it.
    pub(super) born: Option<Time>,
    /// Mount id; 0 if the kernel does not report it.
    pub(super) mount: u64,
    /// Device, as reported by the kernel: each subvolume of btrfs has its own.
    pub(super) device: (u32, u32),
    pub(super) attributes: Attributes,
}

impl Stat {
    /// Whether this is the same file, of which both tell at one time.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let told = |stat: &Self| (stat.attributes.fileid, stat.device, stat.birth);
        told(self) == told(other)
    }
}

const STAT: StatxFlags = StatxFlags::BASIC_STATS
    .union(StatxFlags::BTIME)
    .union(StatxFlags::MNT_ID);

/// Bits of a mode that hold the type of the file.
const FILE_TYPE: u32 = 0o170_000;

fn no_crossing(pace: Pace) -> ResolveFlags {
    let flags = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    match pace {
        Pace::Quick => flags | ResolveFlags::CACHED,
        Pace::Patient => flags,
    }
}

/// Opens a directory entry of any type with `O_PATH`, symbolic links included.
pub(super) fn open_entry(dir: impl AsFd, name: &[u8], pace: Pace) -> Result<OwnedFd, Errno> {
    opened(rustix::fs::openat2(
        dir,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        no_crossing(pace),
    ))
}

/// Opens the directory at a path below another one with `O_PATH`.
pub(super) fn open_below(dir: impl AsFd, path: &[u8], pace: Pace) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = no_crossing(pace);
    opened(rustix::fs::openat2(
        dir,
        path,
        flags,
        Mode::empty(),
        resolve,
    ))
}

/// Opens the parent directory in the same mount with `O_PATH`.
pub(super) fn open_parent(dir: impl AsFd, pace: Pace) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = no_crossing(pace) - ResolveFlags::BENEATH;
    opened(rustix::fs::openat2(
        dir,
        c"..",
        flags,
        Mode::empty(),
        resolve,
    ))
}

/// Whether a directory is the root of its mount.
pub(super) fn is_mount_point(dir: impl AsFd) -> Result<bool, Errno> {
    let found = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Opens the directory at an absolute path, without following symbolic links, with `O_PATH`.
pub(super) fn open_path(path: &Path) -> Result<OwnedFd, Errno> {
    opened(rustix::fs::openat2(
        rustix::fs::CWD,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    ))
}

/// Whether two descriptors identify the same file.
pub(super) fn is_same(one: impl AsFd, other: impl AsFd) -> Result<bool, Errno> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Creates a regular file that does not exist yet, and opens it for `access`.
pub(super) fn create(
    dir: impl AsFd,
    name: &[u8],
    mode: u32,
    access: OFlags,
) -> Result<OwnedFd, Errno> {
    opened(rustix::fs::openat2(
        dir,
        name,
        access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode),
        no_crossing(Pace::Patient),
    ))
}

/// Returns the state of the file of `fd`.
pub(super) fn stat(fd: impl AsFd, by: IdentifiedBy) -> Result<Stat, Errno> {
    let found = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STAT)?;
    Ok(convert(&found, by))
}

/// Attributes of a file, and the device that it is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnDevice {
    /// As [`Stat::device`].
    pub(super) device: (u32, u32),
    pub(super) attributes: Attributes,
}

/// Returns the attributes of the file of `fd`: sufficient for most calls, and half the cost of
/// [`stat`].
pub(super) fn attributes(fd: impl AsFd) -> Result<Attributes, Errno> {
    attributes_on_device(fd).map(|found| found.attributes)
}

/// Returns the attributes of the file of `fd`, and its device.
pub(super) fn attributes_on_device(fd: impl AsFd) -> Result<OnDevice, Errno> {
    let found = rustix::fs::fstat(fd)?;
    let time = |seconds, nanos| Time {
        seconds,
        nanos: u32::try_from(nanos).unwrap_or(0),
    };
    let attributes = Attributes {
        kind: kind_of(found.st_mode),
        mode: found.st_mode & crate::fs::mode::ALL,
        links: u32::try_from(found.st_nlink).unwrap_or(u32::MAX),
        uid: found.st_uid,
        gid: found.st_gid,
        size: u64::try_from(found.st_size).unwrap_or(0),
        used: u64::try_from(found.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512),
        device: (
            rustix::fs::major(found.st_rdev),
            rustix::fs::minor(found.st_rdev),
        ),
        fileid: found.st_ino,
        atime: time(found.st_atime, found.st_atime_nsec),
        mtime: time(found.st_mtime, found.st_mtime_nsec),
        ctime: time(found.st_ctime, found.st_ctime_nsec),
        change: time(found.st_ctime, found.st_ctime_nsec).as_change(),
    };
    Ok(OnDevice {
        device: (
            rustix::fs::major(found.st_dev),
            rustix::fs::minor(found.st_dev),
        ),
        attributes,
    })
}

fn convert(found: &Statx, by: IdentifiedBy) -> Stat {
    let mask = StatxFlags::from_bits_retain(found.stx_mask);
    let has_birth = by == IdentifiedBy::Birth && mask.contains(StatxFlags::BTIME);
    let born = has_birth.then(|| time(&found.stx_btime));
    let kind = u32::from(found.stx_mode) & FILE_TYPE;
    let birth = match by {
        IdentifiedBy::Birth => born.map_or(0, hash_birth),
        IdentifiedBy::Number => 0,
        IdentifiedBy::PathAndNumber => hash([found.stx_ino, kind.into()]),
        IdentifiedBy::Path => hash([0, kind.into()]),
    };
    let mount = if mask.contains(StatxFlags::MNT_ID) {
        found.stx_mnt_id
    } else {
        0
    };
    Stat {
        birth,
        born,
        mount,
        device: (found.stx_dev_major, found.stx_dev_minor),
        attributes: Attributes {
            kind: kind_of(u32::from(found.stx_mode)),
            mode: u32::from(found.stx_mode) & crate::fs::mode::ALL,
            links: found.stx_nlink,
            uid: found.stx_uid,
            gid: found.stx_gid,
            size: found.stx_size,
            used: found.stx_blocks.saturating_mul(512),
            device: (found.stx_rdev_major, found.stx_rdev_minor),
            fileid: found.stx_ino,
            atime: time(&found.stx_atime),
            mtime: time(&found.stx_mtime),
            ctime: time(&found.stx_ctime),
            change: time(&found.stx_ctime).as_change(),
        },
    }
}

/// Hashes a birth time. Handles need to distinguish times, not to contain them.
fn hash_birth(born: Time) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write_i64(born.seconds);
    hasher.write_u32(born.nanos);
    hasher.finish()
}

fn hash(words: [u64; 2]) -> u64 {
    let mut hasher = SipHasher24::new();
    for word in words {
        hasher.write_u64(word);
    }
    hasher.finish()
}

/// Returns the kernel's coarse time, which new files get.
pub(super) fn coarse_now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Time {
        seconds: now.tv_sec,
        nanos: u32::try_from(now.tv_nsec).unwrap_or(0),
    }
}

fn time(from: &rustix::fs::StatxTimestamp) -> Time {
    Time {
        seconds: from.tv_sec,
        nanos: from.tv_nsec,
    }
}

fn kind_of(mode: u32) -> FileKind {
    use rustix::fs::FileType;
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::Symlink => FileKind::Symlink,
        FileType::Socket => FileKind::Socket,
        FileType::Fifo => FileKind::Fifo,
        FileType::RegularFile | FileType::Unknown => FileKind::Regular,
    }
}

/// Converts times for utimensat(2).
pub(super) fn timestamps(atime: SetTime, mtime: SetTime) -> Timestamps {
    fn one(time: SetTime) -> Timespec {
        let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        match time {
            SetTime::Keep => special(rustix::fs::UTIME_OMIT),
            SetTime::Now => special(rustix::fs::UTIME_NOW),
            SetTime::To(time) => Timespec {
                tv_sec: time.seconds,
                tv_nsec: time.nanos.into(),
            },
        }
    }
    Timestamps {
        last_access: one(atime),
        last_modification: one(mtime),
    }
}

/// The directory `/proc/self/fd`. It gives access to the file of an `O_PATH` descriptor, whatever
/// its name is by now.
pub(super) struct ProcFd(OwnedFd);

impl ProcFd {
    pub(super) fn open() -> Result<Self, Errno> {
        rustix::fs::openat(
            rustix::fs::CWD,
            c"/proc/self/fd",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(Self)
    }

    /// One that finds no file.
    #[cfg(test)]
    pub(super) fn empty(directory: OwnedFd) -> Self {
        Self(directory)
    }

    /// Opens the file of `fd`.
    pub(super) fn reopen(&self, fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.with(fd, |dir, name| {
            opened(rustix::fs::openat(
                dir,
                name,
                flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
                Mode::empty(),
            ))
        })
    }

    /// Returns the path of the file of `fd`, if the kernel knows one.
    pub(super) fn path(&self, fd: BorrowedFd<'_>) -> Result<CString, Errno> {
        self.with(fd, |dir, name| {
            rustix::fs::readlinkat(dir, name, Vec::new())
        })
    }

    /// Returns the length of an extended attribute in bytes, also for an `O_PATH` descriptor.
    pub(super) fn xattr_len(&self, fd: BorrowedFd<'_>, name: &CStr) -> Result<usize, Errno> {
        // Before Linux 6.13 there is no call relative to a directory.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::getxattr(path, name, &mut [0_u8; 0])
    }

    pub(super) fn chmod(&self, fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
        self.with(fd, |dir, name| {
            rustix::fs::chmodat(dir, name, Mode::from_raw_mode(mode), AtFlags::empty())
        })
    }

    pub(super) fn utimens(&self, fd: BorrowedFd<'_>, times: &Timestamps) -> Result<(), Errno> {
        self.with(fd, |dir, name| {
            rustix::fs::utimensat(dir, name, times, AtFlags::empty())
        })
    }

    pub(super) fn link(
        &self,
        fd: BorrowedFd<'_>,
        dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.with(fd, |proc, number| {
            rustix::fs::linkat(proc, number, dir, name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    fn with<T>(
        &self,
        fd: BorrowedFd<'_>,
        act: impl FnOnce(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        act(self.0.as_fd(), rustix::path::DecInt::from_fd(fd).as_c_str())
    }
}
