//! The interface between the NFS service and a file system.
//!
//! The terms are those of files, not of a protocol version: which caller, which file, which
//! operation. Export rules (squash, read-only, access list) are applied before a file system is
//! called, and handles are sealed after it has answered.

mod acl;
mod attributes;
mod error;
mod file_id;
mod held;
mod name;
mod outcome;
mod ranges;
mod xattr;

pub use acl::{Acl, AclEntry, AclWho, Acls, SetAcl, SetAcls};
pub use attributes::{
    Attributes, Before, ChangeKind, FileKind, Identity, SetAttributes, SetTime, Time, Wcc, mode,
};
pub use error::Error;
pub use file_id::FileId;
pub(crate) use held::Unheld;
pub use held::{ByteRange, HeldFile, LocalLock, LockFile, LockMode, OpenAccess};
pub use name::{MAX_NAME, Name, Step};
pub(crate) use outcome::{Change, Failed};
pub use outcome::{Changed, Deferred, Linked, Outcome, Renamed, Seen, Then};
pub use ranges::{Content, Reserve, Sought};
pub use xattr::{
    MAX_XATTR_NAME, MAX_XATTR_NAMES, MAX_XATTR_VALUE, SetXattr, XattrName, XattrNames,
};

use crate::permission;
use bytes::Bytes;
use oncrpc::PeerGroup;
use oncrpc::xdr;
use oncrpc::xdr::Gather;
use std::num::NonZeroU32;
use std::sync::Arc;

bitflags::bitflags! {
    /// Rights of a caller on a file (RFC 1813 §3.3.4, RFC 8276 §8.5; the values are those on the wire).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Read data or a directory.
        const READ = 0x01;
        /// Look a name up in a directory.
        const LOOKUP = 0x02;
        /// Rewrite data or change entries of a directory.
        const MODIFY = 0x04;
        /// Write new data or add entries to a directory.
        const EXTEND = 0x08;
        /// Delete an entry of a directory.
        const DELETE = 0x10;
        /// Execute a file.
        const EXECUTE = 0x20;
        /// Read extended attributes.
        const XATTR_READ = 0x40;
        /// Set and remove extended attributes.
        const XATTR_WRITE = 0x80;
        /// List extended attributes.
        const XATTR_LIST = 0x100;
    }
}

impl Access {
    /// Rights on extended attributes, which files and directories have.
    pub(crate) const XATTRS: Self = Self::XATTR_READ
        .union(Self::XATTR_WRITE)
        .union(Self::XATTR_LIST);
}

/// A file that was looked up or created, with its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Identifier of the file within the file system.
    pub file: FileId,
    /// Its attributes.
    pub attributes: Attributes,
}

/// Data of a file.
#[derive(Clone, Debug, Default)]
pub struct ReadOut {
    /// The bytes, by reference.
    pub data: Gather,
    /// Whether the data reaches the end of the file.
    pub eof: bool,
}

/// How durable written data must be before the call is answered (RFC 1813 §3.3.7, `stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// Not durable: the client commits later.
    Unstable,
    /// The data is durable, and the metadata needed to read it.
    DataSync,
    /// The data and all attributes are durable.
    FileSync,
}

impl From<nfs_proto::Stable> for Stability {
    fn from(stable: nfs_proto::Stable) -> Self {
        match stable {
            nfs_proto::Stable::Unstable => Self::Unstable,
            nfs_proto::Stable::DataSync => Self::DataSync,
            nfs_proto::Stable::FileSync => Self::FileSync,
        }
    }
}

impl From<Stability> for nfs_proto::Stable {
    fn from(stability: Stability) -> Self {
        match stability {
            Stability::Unstable => Self::Unstable,
            Stability::DataSync => Self::DataSync,
            Stability::FileSync => Self::FileSync,
        }
    }
}

/// Result of a write.
#[derive(Clone, Copy, Debug)]
pub struct WriteOut {
    /// Bytes written.
    pub count: u32,
    /// Durability of the data.
    pub committed: Stability,
}

/// How to create a regular file (RFC 1813 §3.3.8, `createhow3`).
#[derive(Clone, Copy, Debug)]
pub enum CreateHow {
    /// An existing file is used unchanged, except for its size.
    Unchecked(SetAttributes),
    /// An existing file is an error.
    Guarded(SetAttributes),
    /// An existing file is an error unless this very call, repeated, created it. The attributes are without times, which may keep the
    /// verifier; a call that is repeated has the same ones.
    Exclusive([u8; 8], SetAttributes),
}

/// Object to create in a directory.
#[derive(Clone, Debug)]
pub enum Make {
    /// A regular file.
    File(CreateHow),
    /// A directory.
    Directory(SetAttributes),
    /// A symbolic link with this text, which clients interpret.
    Symlink(Bytes, SetAttributes),
    /// A named pipe, socket or device: its kind, and device numbers (major, minor).
    Special(FileKind, (u32, u32), SetAttributes),
}

/// Room for directory entries in a reply.
#[derive(Clone, Copy, Debug)]
pub struct DirBudget {
    /// Bytes of entries in the reply, at most.
    pub total: usize,
    /// Bytes of an entry in the reply, without its name and without a handle.
    pub per_entry: usize,
    /// Bytes of a handle beside its [`FileId`].
    pub per_handle: usize,
    /// Bytes of names, cookies and ids (READDIRPLUS `dircount`, RFC 1813 §3.3.17), at most. A hint,
    /// which a single entry may exceed.
    pub names: usize,
}

#[cfg(test)]
impl DirFrom {
    /// The beginning of a directory.
    pub(crate) const START: Self = Self {
        cookie: 0,
        verifier: 0,
    };
}

impl DirBudget {
    /// A page, for tests.
    #[cfg(test)]
    pub(crate) const PAGE: Self = Self {
        total: 4096,
        per_entry: Self::BASE,
        per_handle: 24,
        names: 4096,
    };

    /// Bytes of the fileid, the length of the name, the cookie and the "one more follows" of an entry.
    pub const BASE: usize = 8 + 4 + 8 + 4;

    /// Takes room for one more entry, and for a handle if it comes with its file. `first` tells
    /// that no other entry is in the reply.
    pub fn take(&mut self, name: &[u8], file: Option<FileId>, first: bool) -> bool {
        let name = xdr::padded(name.len());
        let handle = file.map_or(0, |file| {
            xdr::padded(self.per_handle + file.as_bytes().len())
        });
        let (total, names) = (self.per_entry + name + handle, Self::BASE + name);
        if total > self.total || names > self.names && !first {
            return false;
        }
        self.total -= total;
        self.names = self.names.saturating_sub(names);
        true
    }
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// End of the name in [`DirPage::names`]. It begins at the end of the previous one.
    pub name_end: usize,
    /// Number of the file.
    pub fileid: u64,
    /// Cookie to continue after this entry.
    pub cookie: u64,
    /// The file, if it was requested and could be looked up.
    pub found: Option<Found>,
}

/// A page of entries of a directory, in the directory's order.
#[derive(Clone, Debug, Default)]
pub struct DirPage {
    /// All names, concatenated.
    pub names: Vec<u8>,
    /// The entries.
    pub entries: Vec<DirEntry>,
    /// Whether the directory has no further entries.
    pub eof: bool,
    /// Cookie verifier (RFC 1813 §3.3.16).
    pub verifier: u64,
}

impl DirPage {
    /// Returns the entries with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &DirEntry)> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let name = &self.names[start..entry.name_end];
            start = entry.name_end;
            (name, entry)
        })
    }

    /// Adds an entry for which [`DirBudget::take`] had room.
    pub fn push(&mut self, name: &[u8], fileid: u64, cookie: u64, found: Option<Found>) {
        self.names.extend_from_slice(name);
        self.entries.push(DirEntry {
            name_end: self.names.len(),
            fileid,
            cookie,
            found,
        });
    }
}

/// Position in a directory at which to start reading.
#[derive(Clone, Copy, Debug)]
pub struct DirFrom {
    /// Cookie of the previous entry; 0 is the beginning.
    pub cookie: u64,
    /// Cookie verifier that came with the cookie.
    pub verifier: u64,
}

/// Space of a file system, in bytes and files (RFC 1813 §3.3.18).
#[derive(Clone, Copy, Debug, Default)]
pub struct Space {
    /// Total bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Bytes available to this caller.
    pub available: u64,
    /// Total files, existing and possible.
    pub total_files: u64,
    /// Files that can still be created.
    pub free_files: u64,
    /// Files that this caller can still create.
    pub available_files: u64,
}

/// Limits and properties of a file system, for FSINFO and PATHCONF (RFC 1813 §3.3.19, §3.3.20).
///
/// The default has times in nanoseconds, names of 255 bytes, one link per file, and sizes up to the largest
/// signed 64-bit number.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// Largest file, in bytes.
    pub max_file_size: u64,
    /// Resolution of times, in nanoseconds.
    pub time_step: u32,
    /// Largest number of hard links to a file.
    pub max_links: u32,
    /// Longest name, in bytes.
    pub max_name: u32,
    /// Whether names that differ in case only are one name.
    pub case_insensitive: bool,
    /// Whether files have access control lists ([`FileSystem::acls`]).
    pub lists: bool,
    /// Whether files and directories have extended attributes ([`FileSystem::xattr`]).
    pub xattrs: bool,
    /// Block of which ranges that share data are multiples, in bytes, if there are any ([`FileSystem::clone_range`]).
    pub clone_block: Option<NonZeroU32>,
    /// Relation of the values of [`Attributes::change`] of a file.
    pub change: ChangeKind,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            max_file_size: i64::MAX.unsigned_abs(),
            time_step: 1,
            max_links: 1,
            max_name: 255,
            case_insensitive: false,
            lists: false,
            xattrs: false,
            clone_block: None,
            change: ChangeKind::Undefined,
        }
    }
}

/// A file system that can be exported.
///
/// Each operation returns its result at once if it need not wait, and otherwise a job for a thread
/// that may wait ([`Outcome`]). All connections share one value. Operations by `who` follow the
/// Unix permission rules, as far as the file system can act for others than itself.
///
/// A file system that is only read implements `root`, `attributes`, `lookup`, `read` and `read_directory`. The
/// operations that change something fail with [`Error::ReadOnly`] by default. The example `custom_file_system`
/// of the crate `rpcrdma` implements one.
pub trait FileSystem: Send + Sync {
    /// Returns the root directory.
    fn root(&self) -> FileId;

    /// Returns the root directory for a client that mounts the file system, which may have become
    /// another one since the last. By default that of [`root`](Self::root).
    fn root_to_mount(&self) -> Outcome<Result<FileId, Error>> {
        Outcome::Ready(Ok(self.root()))
    }

    /// Returns the limits and properties.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// Returns the write verifier, which changes whenever uncommitted data may have been lost, as
    /// at a restart (RFC 1813 §3.3.7). By default 0, for read-only file systems.
    fn write_verifier(&self) -> u64 {
        0
    }

    /// Has the directories whose names clients change watched from now on for changes by others: clients of version 4 keep what
    /// they know of a directory if they are told that nobody else has changed it (RFC 8881 §18.25.4). Asked by each change of theirs.
    /// By default nothing, for file systems that nobody else changes.
    fn watch_names(&self) {}

    /// Returns the number of files and directories kept open between calls, for statistics.
    fn open_files(&self) -> usize {
        0
    }

    /// Returns how many files clients may [hold open](Self::open) at a time, with owners of locks in them; `None` for any number. An address
    /// gets at most as many as it leaves free.
    fn most_held(&self) -> Option<usize> {
        None
    }

    /// Returns how many owners of locks there may be at a time, with files that are held open where those have a
    /// [limit](Self::most_held), too; `None` for any number.
    fn most_lock_owners(&self) -> Option<usize> {
        self.most_held()
    }

    /// Returns the attributes of a file.
    fn attributes(&self, file: FileId) -> Outcome<Result<Attributes, Error>>;

    /// Sets attributes. With a `guard`, only if the file's ctime is equal to it.
    fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: SetAttributes,
        guard: Option<Time>,
    ) -> Outcome<Changed<()>> {
        let _ = (who, file, set, guard);
        Outcome::Ready(Changed::failed(Error::ReadOnly))
    }

    /// Looks up a name in a directory. The attributes beside the result are those of the directory.
    fn lookup(&self, who: &Identity, dir: FileId, step: Step<'_>) -> Outcome<Seen<Found>>;

    /// Returns which of the `wanted` rights the caller has. By default those that the mode grants
    /// to the owner, the group and others.
    fn access(&self, who: &Identity, file: FileId, wanted: Access) -> Outcome<Seen<Access>> {
        let who = who.clone();
        self.attributes(file).map(move |attributes| {
            let file = match attributes {
                Ok(file) => file,
                Err(error) => return Seen::failed(error),
            };
            let granted = permission::access(file.is_directory(), wanted, |want| {
                Ok(permission::granted(&who, &file, want))
            });
            Seen {
                attributes: Some(file),
                result: granted,
            }
        })
    }

    /// Opens a file for a client that keeps it open, if the caller may use it in this way. `holder` is the address of the client:
    /// where there is only so much for files that are kept open, it is divided by address. By default the file ends with its last
    /// name all the same, and its locks are those of the server alone.
    fn open(
        &self,
        who: &Identity,
        file: FileId,
        access: OpenAccess,
        _holder: PeerGroup,
    ) -> Outcome<Result<Arc<dyn HeldFile>, Error>> {
        let mut wanted = Access::empty();
        if access.contains(OpenAccess::READ) {
            wanted |= Access::READ;
        }
        if access.contains(OpenAccess::WRITE) {
            wanted |= Access::MODIFY;
        }
        let granted = self.access(who, file, wanted);
        granted.map(move |granted| match granted.result?.contains(wanted) {
            true => Ok(Arc::new(held::Unheld) as Arc<dyn HeldFile>),
            false => Err(Error::Access),
        })
    }

    /// Returns the text of a symbolic link. By default there are none.
    fn read_link(&self, who: &Identity, file: FileId) -> Outcome<Seen<Bytes>> {
        let _ = (who, file);
        Outcome::Ready(Seen::failed(Error::Invalid))
    }

    /// Reads up to `count` bytes at `offset`.
    fn read(&self, who: &Identity, file: FileId, offset: u64, count: u32)
    -> Outcome<Seen<ReadOut>>;

    /// Writes data at `offset`, and extends the file if needed.
    fn write(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        data: Gather,
        stability: Stability,
    ) -> Outcome<Changed<WriteOut>> {
        let _ = (who, file, offset, data, stability);
        Outcome::Ready(Changed::failed(Error::ReadOnly))
    }

    /// Makes written data durable. With `count` 0, up to the end of the file.
    fn commit(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Outcome<Changed<()>> {
        let _ = (who, file, offset, count);
        Outcome::Ready(Changed::failed(Error::ReadOnly))
    }

    /// Creates a file in a directory.
    fn make(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
        what: Make,
    ) -> Outcome<Changed<Found>> {
        let _ = (who, dir, name, what);
        Outcome::Ready(Changed::failed(Error::ReadOnly))
    }

    /// Removes an entry that is not a directory.
    fn remove(&self, who: &Identity, dir: FileId, name: Name<'_>) -> Outcome<Changed<()>> {
        let _ = (who, dir, name);
        Outcome::Ready(Changed::failed(Error::ReadOnly))
    }

    /// Removes an empty directory.
    fn remove_directory(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
    ) -> Outcome<Changed<()>> {
        let _ = (who, dir, name);
        Outcome::Ready(Changed::failed(Error::ReadOnly))
    }

    /// Renames a file, replacing an existing target.
    fn rename(
        &self,
        who: &Identity,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Outcome<Renamed> {
        let _ = (who, from, to);
        Outcome::Ready(Renamed::failed(Error::ReadOnly))
    }

    /// Creates a hard link to a file.
    fn link(&self, who: &Identity, file: FileId, dir: FileId, name: Name<'_>) -> Outcome<Linked> {
        let _ = (who, file, dir, name);
        Outcome::Ready(Linked::failed(Error::ReadOnly))
    }

    /// Reads entries of a directory, with their files if `plus`.
    fn read_directory(
        &self,
        who: &Identity,
        dir: FileId,
        from: DirFrom,
        budget: DirBudget,
        plus: bool,
    ) -> Outcome<Seen<DirPage>>;

    /// Returns the space of the file system. By default zero.
    fn space(&self, file: FileId) -> Outcome<Seen<Space>> {
        let seen = |attributes| Seen::new(attributes, Space::default());
        self.attributes(file)
            .map(move |attributes| attributes.map_or_else(Seen::failed, seen))
    }

    /// Returns the access control lists of a file. By default not supported.
    fn acls(&self, file: FileId) -> Outcome<Seen<Acls>> {
        let _ = file;
        Outcome::Ready(Seen::failed(Error::NotSupported))
    }

    /// Sets access control lists; the access list also sets the mode. By default not supported.
    fn set_acls(&self, who: &Identity, file: FileId, set: SetAcls) -> Outcome<Seen<()>> {
        let _ = (who, file, set);
        Outcome::Ready(Seen::failed(Error::NotSupported))
    }

    /// Returns the value of an extended attribute, of at most [`MAX_XATTR_VALUE`] bytes. By default not supported.
    ///
    /// Regular files and directories have extended attributes; for others each operation on them is [`Error::Invalid`].
    fn xattr(&self, who: &Identity, file: FileId, name: XattrName<'_>) -> Outcome<Seen<Bytes>> {
        let _ = (who, file, name);
        Outcome::Ready(Seen::failed(Error::NotSupported))
    }

    /// Sets an extended attribute. By default not supported.
    fn set_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: XattrName<'_>,
        value: Bytes,
        how: SetXattr,
    ) -> Outcome<Changed<()>> {
        let _ = (who, file, name, value, how);
        Outcome::Ready(Changed::failed(Error::NotSupported))
    }

    /// Returns the names of the extended attributes of a file, in any order, of at most [`MAX_XATTR_NAMES`] bytes. By default not
    /// supported.
    fn xattrs(&self, who: &Identity, file: FileId) -> Outcome<Seen<XattrNames>> {
        let _ = (who, file);
        Outcome::Ready(Seen::failed(Error::NotSupported))
    }

    /// Removes an extended attribute. By default not supported.
    fn remove_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: XattrName<'_>,
    ) -> Outcome<Changed<()>> {
        let _ = (who, file, name);
        Outcome::Ready(Changed::failed(Error::NotSupported))
    }

    /// Reserves space for a range of a regular file, or gives it back. By default not supported.
    fn reserve(
        &self,
        who: &Identity,
        file: FileId,
        (offset, len): (u64, u64),
        what: Reserve,
    ) -> Outcome<Changed<()>> {
        let _ = (who, file, offset, len, what);
        Outcome::Ready(Changed::failed(Error::NotSupported))
    }

    /// Copies up to `len` bytes, at least one, from an offset of a regular file to one of another, and extends that if needed. All
    /// bytes to copy are before the end of the first. Returns how many were copied; they are not durable yet. By default not
    /// supported.
    fn copy(
        &self,
        who: &Identity,
        from: (FileId, u64),
        to: (FileId, u64),
        len: u64,
    ) -> Outcome<Changed<u64>> {
        let _ = (who, from, to, len);
        Outcome::Ready(Changed::failed(Error::NotSupported))
    }

    /// Makes a range of a regular file share the data of another range, of the same file or another one, at once
    /// ([`Abilities::clone_block`]). By default not supported.
    fn clone_range(
        &self,
        who: &Identity,
        from: (FileId, u64),
        to: (FileId, u64),
        len: u64,
    ) -> Outcome<Changed<()>> {
        let _ = (who, from, to, len);
        Outcome::Ready(Changed::failed(Error::NotSupported))
    }

    /// Finds the first data or hole of a regular file from an offset on, which is before the end of the file. By default all is
    /// data.
    fn seek(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        content: Content,
    ) -> Outcome<Seen<Sought>> {
        // The caller has to be one who may read.
        self.read(who, file, offset, 0).map(move |seen| {
            let Some(attributes) = seen.attributes else {
                return Seen::failed(seen.result.err().unwrap_or(Error::NotSupported));
            };
            let found = match (offset < attributes.size, content) {
                (false, _) => Err(Error::PastEnd),
                (true, Content::Data) => Ok(Sought::of(Some(offset), attributes.size)),
                (true, Content::Hole) => Ok(Sought::of(None, attributes.size)),
            };
            Seen {
                attributes: Some(attributes),
                result: seen.result.and(found),
            }
        })
    }
}

/// A write verifier that no other run of the server has.
pub(crate) fn fresh_verifier() -> u64 {
    getrandom::u64().unwrap_or_else(|_| {
        // Without randomness the time of the start tells this run from others as well.
        let now = Time::now();
        now.seconds.unsigned_abs() << 30 | u64::from(now.nanos)
    })
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod differential;
