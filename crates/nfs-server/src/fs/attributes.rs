//! File attributes, and the identity of a caller.

use smallvec::SmallVec;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bits of a mode beside the nine of permission.
pub mod mode {
    /// All bits that a mode has.
    pub const ALL: u32 = 0o7777;
    /// Set user id on execution.
    pub const SET_UID: u32 = 0o4000;
    /// Set group id on execution; of a directory: what is made in it is of its group.
    pub const SET_GID: u32 = 0o2000;
    /// Of a directory: only the owner of an entry may remove it.
    pub const STICKY: u32 = 0o1000;
}

/// Identity of a caller, after squashing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group of what it makes.
    pub gid: u32,
    /// Other groups it is in.
    pub groups: SmallVec<[u32; 16]>,
}

impl Identity {
    /// The user who may do everything.
    pub fn root() -> Self {
        Self::new(0, 0)
    }

    /// A user of one group.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: SmallVec::new(),
        }
    }

    /// Whether it is in that group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Whether it may do everything.
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
    /// The system's time.
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
    /// Its type.
    pub kind: FileKind,
    /// Permissions and the bits of [`mode`].
    pub mode: u32,
    /// Names it has.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes in it.
    pub size: u64,
    /// Bytes it takes on the disk.
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
}

impl Attributes {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The part of them by which a client sees whether a file changed.
    pub fn before(&self) -> Before {
        Before {
            size: self.size,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }
}

/// Attributes of a file from before an operation (RFC 1813 §2.6, `wcc_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Bytes in it.
    pub size: u64,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
}

/// Weak cache consistency: a file before and after an operation (RFC 1813 §2.6, `wcc_data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Before, if it is known.
    pub before: Option<Before>,
    /// After, if it is known.
    pub after: Option<Attributes>,
}

/// How to set a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// To the time of the server.
    Now,
    /// To this.
    To(Time),
}

/// Attributes to set; the others are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions and the bits of [`mode`].
    pub mode: Option<u32>,
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
    /// Only a mode.
    pub fn mode(mode: u32) -> Self {
        Self {
            mode: Some(mode),
            ..Self::default()
        }
    }

    /// Only a size.
    pub fn size(size: u64) -> Self {
        Self {
            size: Some(size),
            ..Self::default()
        }
    }
}
