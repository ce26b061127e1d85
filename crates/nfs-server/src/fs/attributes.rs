//! File attributes, and the identity of a caller.

use smallvec::SmallVec;
use std::num::NonZeroU32;
use std::time::{SystemTime, UNIX_EPOCH};

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// Bits of a mode beside the nine permission bits.
pub mod mode {
    /// All bits of a mode.
    pub const ALL: u32 = 0o7777;
    /// Set user id on execution.
    pub const SET_UID: u32 = 0o4000;
    /// Set group id on execution; on a directory: new entries inherit its group.
    pub const SET_GID: u32 = 0o2000;
    /// On a directory: only the owner of an entry may remove it.
    pub const STICKY: u32 = 0o1000;
}

/// Identity of a caller, after squashing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id, the group of new files.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: SmallVec<[u32; 16]>,
}

impl Identity {
    /// Returns the identity of root.
    pub fn root() -> Self {
        Self::new(0, 0)
    }

    /// Creates the identity of a user with one group.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: SmallVec::new(),
        }
    }

    /// Whether the caller is a member of the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether the caller is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum FileKind {
    Regular,
    Directory,
    BlockDevice,
    CharacterDevice,
    Symlink,
    Socket,
    Fifo,
}

/// A point in time, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanos: u32,
}

impl Time {
    /// Rounds down to steps of this many nanoseconds.
    pub(crate) fn in_steps_of(self, step: NonZeroU32) -> Self {
        let second = i128::from(NANOS_PER_SECOND);
        let nanos = i128::from(self.seconds) * second + i128::from(self.nanos);
        let rounded = nanos - nanos.rem_euclid(step.get().into());
        match (
            i64::try_from(rounded.div_euclid(second)),
            u32::try_from(rounded.rem_euclid(second)),
        ) {
            (Ok(seconds), Ok(nanos)) => Self { seconds, nanos },
            // Before the first second that there is.
            _ => self,
        }
    }

    /// Returns the nanoseconds since 1970 as a value of [`Attributes::change`]: no two times up to the year 2554 have the same.
    pub fn as_change(self) -> u64 {
        let seconds = self.seconds.cast_unsigned();
        seconds
            .wrapping_mul(NANOS_PER_SECOND.into())
            .wrapping_add(self.nanos.into())
    }

    /// Returns the current time.
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        }
    }
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type of the file.
    pub kind: FileKind,
    /// Permissions and the bits of [`mode`].
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes allocated on the disk.
    pub used: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Number of the file within its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// Value that differs between any two states of the file that a client can have seen (RFC 8881 §5.8.1.4, `change`).
    pub change: u64,
}

impl Attributes {
    /// Whether the file is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Returns the attributes by which a client detects changes of a file.
    pub fn before(&self) -> Before {
        Before {
            size: self.size,
            mtime: self.mtime,
            ctime: self.ctime,
            change: self.change,
        }
    }
}

/// Relation of the values of [`Attributes::change`] of a file (RFC 7862 §12.2.3, `change_attr_type4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeKind {
    /// A later state may have a smaller value (`NFS4_CHANGE_TYPE_IS_UNDEFINED`).
    #[default]
    Undefined,
    /// A later state has a larger value (`NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR`).
    Increasing,
    /// The values are [ctimes](Attributes::ctime) in nanoseconds (`NFS4_CHANGE_TYPE_IS_TIME_METADATA`).
    TimeMetadata,
}

/// Attributes of a file from before an operation (RFC 1813 §2.6, `wcc_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// See [`Attributes::change`].
    pub change: u64,
}

/// Weak cache consistency data: attributes before and after an operation (RFC 1813 §2.6,
/// `wcc_data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Attributes before the operation, if known.
    pub before: Option<Before>,
    /// Attributes after the operation, if known.
    pub after: Option<Attributes>,
    /// Whether the operation succeeded, and it is certain that no change of others lies between both (RFC 8881 §10.8.1). Known of changes of
    /// names, and of extended attributes.
    pub atomic: bool,
}

/// Change of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Keep the time.
    #[default]
    Keep,
    /// Set it to the server's time.
    Now,
    /// Set it to this time.
    To(Time),
}

/// Attributes to set; `None` leaves one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions and the bits of [`mode`].
    pub mode: Option<u32>,
    /// Permissions in `mode` that a new object does not get, unless its directory has a default access control list, which decides then
    /// (RFC 8275). Nothing for an object that is there.
    pub umask: u32,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes in the file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the data.
    pub mtime: SetTime,
}

impl SetAttributes {
    /// Sets only a mode.
    pub fn mode(mode: u32) -> Self {
        Self {
            mode: Some(mode),
            ..Self::default()
        }
    }

    /// Sets only a size.
    pub fn size(size: u64) -> Self {
        Self {
            size: Some(size),
            ..Self::default()
        }
    }
}
