//! A local directory as a file system to export.
//!
//! ```text
//! LocalFs        the trait FileSystem: at once or as a job (jobs, read_write)
//! operations     what clients ask for
//! FileHandles    which file has which id, and where it is
//! Durability     write verifier, syncs, descriptors for writing
//! Rights         callers, and what they may do
//! OpenFiles      descriptors: the root, and files that stay open
//! Volume         properties of the file system
//! ```
//!
//! Each of the five layers below the operations is a type that knows those below it and none above;
//! its module says what it owns and which of them it calls. They have no notion of a protocol, but for
//! the errors of [`fs`](crate::fs). Beside them are values without a layer: system calls (`sys.rs`),
//! ids (`id.rs`), group commit, least recently used maps.
//!
//! The file system is confined to the directory: every name is opened by `openat2` as one component
//! beneath a directory that was reached in the same way from the root, without following symbolic
//! links and without crossing mounts. Clients interpret symbolic links.
//!
//! A server run by root acts for the caller (`rights.rs`): it makes changes with the caller's
//! identity, and before a read-only operation it asks the kernel whether the caller has the right.
//! So access control lists, quotas and reserved blocks are those of the caller. A server run by
//! another user does everything as that user.
//!
//! Limitations: on a file system without birth times (overlayfs, some in FUSE) and without kernel
//! handles, a new file with the inode number or the path of an old one has its handle; the server
//! warns of that at start. A directory that a local user moves out of the export is served for one more second. A
//! file that is moved out stays accessible to clients with its handle, as with `no_subtree_check`
//! of the kernel's server: that it is the same file is visible, but not that it has left.
//!
//! **Handles** contain a kernel handle, if the file system has them and this process may open them
//! (`handles/kernel.rs`). Kernel handles need no state, and survive renames by others and restarts. Other
//! handles contain the inode number, a hash of the birth time, and the inode number of the
//! directory in which the file was first seen. `handles/by_location.rs` finds the file of such a
//! handle, also after a restart. Where inode numbers identify no file, it is identified by the path at
//! which it was first seen (`handles/by_path.rs`).
//!
//! **Mount points** within the export are not crossed (`handles/mounts.rs`): a client sees the directory under the
//! mount, where this process may reach it.
//!
//! **Idle files are closed** (`open_files/idle.rs`): the space of a file that a local user removes is free
//! within two seconds, and a program can be executed that long after the last write to it.
//!
//! **Files that clients keep open** (NFSv4 OPEN; `open_files/held.rs`) are used by their handles until the last client closes them,
//! also if a client or a local user removes their last names. It takes a descriptor for each, and for each owner of locks, of which
//! there are so many and no more. Locks of bytes are those of the machine on local file systems (`open_files/lock_file.rs`): local
//! programs see them and are seen, and while a client may lock a file that the server may write to, it cannot be executed here. On
//! other file systems a lock could wait for another machine or process, and is known to the server alone. Where a handle is that of
//! a path, a file ends with its last name.
//!
//! **The change attribute** (`volume/change_values.rs`) is the ctime where the kernel gives each change another one, which is probed.
//! Elsewhere changes by clients are counted, and a state that a local program could change without a trace has another value at each
//! look. Once a client of version 4 changes a name, directories whose names clients change are watched for changes by local
//! programs (`volume/witness.rs`): so a client is told that nobody else changed one, and keeps what it knows of it.
//!
//! **Waiting for disks.** GETATTR, ACCESS, LOOKUP and READ are tried without waiting
//! (`RESOLVE_CACHED`, `RWF_NOWAIT`) and become a job when the kernel would have to read a disk.
//! Unstable writes of up to [`INLINE_WRITE`] bytes are tried in the same way where the file system
//! can say that it would wait (XFS, btrfs) or never does (tmpfs); ext4 cannot, and its writes are
//! jobs, as is everything that changes a directory, reads one, or syncs. On a file system in memory
//! only the table waits for a disk. If other users of this machine cannot reach the export
//! (`volume/other_users.rs`), names are looked up without a job, as are writes of up to
//! `INLINE_WRITE_IN_MEMORY` bytes; while the table has no files, files are also created, renamed
//! within a directory, synced and, if small, removed without a job. On an unknown file system, such
//! as FUSE or a network file system, even the attributes of an open file may wait: there everything
//! is a job. So are access control lists, extended attributes and holes on all but file systems in memory.

mod durability;
mod group_commit;
mod handles;
mod id;
mod jobs;
mod jobs_in_progress;
mod journal_commit;
mod known_rights;
mod layers;
mod lru;
mod open;
mod open_files;
mod operations;
mod options;
mod pending_syncs;
mod posix_acl;
mod read_write;
mod rights;
mod sys;
mod user_xattr;
mod volume;
mod write_verifier;

use crate::fs::{
    Abilities, Access, Acls, Attributes, Changed, Content, DirBudget, DirFrom, DirPage, Error,
    FileId, FileSystem, Found, HeldFile, Identity, Linked, Make, Name, OpenAccess, Outcome,
    ReadOut, Renamed, Reserve, Seen, SetAcls, SetAttributes, SetXattr, Sought, Space, Stability,
    Step, Time, WriteOut, XattrName, XattrNames,
};
use crate::permission;
use bytes::Bytes;
#[cfg(test)]
pub(crate) use id::IdentifiedBy;
use layers::Layers;
use oncrpc::PeerGroup;
use oncrpc::xdr::Gather;
pub use open::OpenError;
use open::Opening;
use open_files::sweeper::EndSweeper;
pub use operations::data::INLINE_WRITE;
use operations::{
    acl, attributes, copies, data, entries, held, listing, make, ranges, root, xattrs,
};
pub use options::{Changes, Handles, LocalFsOptions};
use rustix::fd::AsFd;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use sys::{Pace, Stop};
use user_xattr::KernelName;
use volume::Volume;

/// Longest symbolic link text, in bytes, that file systems keep in the inode, so that reading it
/// needs no disk.
const SHORT_LINK: u64 = 59;

/// A local directory as a file system.
#[derive(Clone)]
pub struct LocalFs {
    /// Dropped first: the thread that closes idle files uses `layers` no more after that.
    _sweeps: Arc<EndSweeper>,
    layers: Arc<Layers>,
}

impl LocalFs {
    /// Opens a directory for export.
    ///
    /// # Errors
    ///
    /// If it is not a directory, cannot be opened, or the state cannot be stored.
    pub fn open(path: impl AsRef<Path>, options: LocalFsOptions) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let path = std::fs::canonicalize(path).map_err(|error| OpenError::Directory {
            path: path.into(),
            error,
        })?;
        let local = Self::of(Layers::over(Opening::new(path.clone(), options)?));
        local
            .layers
            .start_rounds()
            .map_err(|error| OpenError::Kernel {
                path,
                what: "a thread that closes idle files",
                error,
            })?;
        Ok(local)
    }

    /// One whose idle files nobody closes.
    fn of(layers: Layers) -> Self {
        layers.handles.join_neighbours();
        Self {
            _sweeps: Arc::new(EndSweeper(Arc::clone(layers.files.sweeper()))),
            layers: Arc::new(layers),
        }
    }

    /// Whether this process acts for the caller with the caller's rights, instead of as the user
    /// who runs it: it runs as root and can change its identity.
    pub fn acts_for_callers() -> bool {
        open::acts_for_callers().is_ok_and(|acts| acts)
    }

    /// Makes lookups of unknown mount points within the directory fail with [`Error::Busy`],
    /// instead of showing the directory under the mount. `known` has the ids of known mounts
    /// (`statx`, `STATX_MNT_ID`). For exports that cross mounts: clients must not see or write to
    /// the directory under a mount that is about to be served. With `None`, which is the default,
    /// every mount is known.
    pub fn know_mounts(&self, known: Option<Arc<HashSet<u64>>>) {
        self.layers.handles.know_mounts(known);
    }

    /// Whether files are found by kernel handles, which need no state and survive renames by others
    /// and restarts, instead of by a table.
    pub fn has_kernel_handles(&self) -> bool {
        self.layers.volume.kernel_handles
    }

    /// Returns device and inode number of the exported directory. It is another one after the
    /// directory was removed and made again; see
    /// [`root_to_mount`](FileSystem::root_to_mount).
    ///
    /// # Errors
    ///
    /// If the kernel cannot tell.
    pub fn identity(&self) -> std::io::Result<(u64, u64)> {
        let found = rustix::fs::fstat(&self.layers.files.root().path)?;
        Ok((found.st_dev, found.st_ino))
    }
}

impl FileSystem for LocalFs {
    fn root(&self) -> FileId {
        self.layers.files.root().id()
    }

    fn root_to_mount(&self) -> Outcome<Result<FileId, Error>> {
        self.run(self.root(), |layers, pace| {
            Ok(Ok(root::root_to_mount(layers, pace)?))
        })
    }

    fn abilities(&self) -> Abilities {
        self.layers.volume.abilities
    }

    fn write_verifier(&self) -> u64 {
        self.layers.durability.verifier()
    }

    fn watch_names(&self) {
        self.layers.volume.changes.witness().want();
    }

    fn open_files(&self) -> usize {
        self.layers.files.len()
    }

    fn most_held(&self) -> Option<usize> {
        match held::holds_by_handle(&self.layers) {
            true => None,
            false => Some(open_files::held::places(&self.layers.files)),
        }
    }

    fn most_lock_owners(&self) -> Option<usize> {
        let files = &self.layers.files;
        Some(match held::holds_by_handle(&self.layers) {
            true => open_files::held::places_for_locks(files),
            false => open_files::held::places(files),
        })
    }

    fn attributes(&self, file: FileId) -> Outcome<Result<Attributes, Error>> {
        self.run(file, move |layers, pace| {
            let node = layers.handles.node(file, pace)?;
            Ok(Ok(layers.files.attributes(&node)?))
        })
    }

    fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: SetAttributes,
        guard: Option<Time>,
    ) -> Outcome<Changed<()>> {
        let who = who.clone();
        self.slow(file, move |layers| {
            attributes::set_attributes(layers, &who, file, set, guard)
        })
    }

    fn lookup(&self, who: &Identity, dir: FileId, step: Step<'_>) -> Outcome<Seen<Found>> {
        let who = who.clone();
        match step {
            Step::Here => self.run(dir, move |layers, pace| {
                entries::lookup_here(layers, dir, pace)
            }),
            Step::Parent => self.run(dir, move |layers, pace| {
                entries::lookup_parent(layers, &who, dir, pace)
            }),
            Step::Name(name) => {
                let name = entries::OwnedName::from_slice(name.bytes());
                self.run(dir, move |layers, pace| {
                    entries::lookup(layers, &who, dir, &name, pace)
                })
            }
        }
    }

    fn access(&self, who: &Identity, file: FileId, wanted: Access) -> Outcome<Seen<Access>> {
        let who = who.clone();
        self.run(file, move |layers, pace| {
            let node = layers.handles.node(file, pace)?;
            let attributes = layers.files.attributes(&node)?;
            let granted = permission::access(node.is_directory(), wanted, |want| {
                layers.rights.may(&who, &node, &attributes, want, pace)
            })?;
            Ok(Seen {
                attributes: Some(attributes),
                result: Ok(granted),
            })
        })
    }

    fn open(
        &self,
        who: &Identity,
        file: FileId,
        access: OpenAccess,
        holder: PeerGroup,
    ) -> Outcome<Result<Arc<dyn HeldFile>, Error>> {
        let who = who.clone();
        let layers = Arc::downgrade(&self.layers);
        let opened = self.run(file, move |layers, pace| {
            held::open(layers, &who, file, (access, holder), pace)
        });
        opened.map(|opened| opened.map(|opened| opened.held(layers)))
    }

    fn read_link(&self, _: &Identity, file: FileId) -> Outcome<Seen<Bytes>> {
        self.run(file, move |layers, pace| {
            let node = layers.handles.node(file, pace)?;
            let attributes = layers.files.attributes(&node)?;
            if pace == Pace::Quick && attributes.size > SHORT_LINK {
                return Err(Stop::WouldBlock);
            }
            Ok(Seen {
                attributes: Some(attributes),
                result: data::read_link(&node).map_err(Error::from),
            })
        })
    }

    fn read(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Outcome<Seen<ReadOut>> {
        self.read_data(who, file, offset, count)
    }

    fn write(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        data: Gather,
        stability: Stability,
    ) -> Outcome<Changed<WriteOut>> {
        self.write_data(who, file, offset, data, stability)
    }

    fn commit(&self, who: &Identity, file: FileId, _: u64, _: u32) -> Outcome<Changed<()>> {
        let who = who.clone();
        self.change(file, move |layers, pace, _| {
            data::commit(layers, &who, file, pace)
        })
    }

    fn make(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
        what: Make,
    ) -> Outcome<Changed<Found>> {
        let (who, name) = (who.clone(), entries::OwnedName::from_slice(name.bytes()));
        self.change(dir, move |layers, pace, pending| {
            make::make(layers, &who, dir, &name, &what, pace, pending)
        })
    }

    fn remove(&self, who: &Identity, dir: FileId, name: Name<'_>) -> Outcome<Changed<()>> {
        let (who, name) = (who.clone(), entries::OwnedName::from_slice(name.bytes()));
        self.change(dir, move |layers, pace, pending| {
            entries::remove(layers, &who, (dir, &name), false, pace, pending)
        })
    }

    fn remove_directory(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
    ) -> Outcome<Changed<()>> {
        let (who, name) = (who.clone(), entries::OwnedName::from_slice(name.bytes()));
        self.change_durably(dir, move |layers, pending| {
            entries::remove(layers, &who, (dir, &name), true, Pace::Patient, pending)
        })
    }

    fn rename(
        &self,
        who: &Identity,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Outcome<Renamed> {
        let who = who.clone();
        let from = (from.0, entries::OwnedName::from_slice(from.1.bytes()));
        let to = (to.0, entries::OwnedName::from_slice(to.1.bytes()));
        self.change(from.0, move |layers, pace, pending| {
            let _work = match pace {
                Pace::Patient if to.0 != from.0 => Some(layers.jobs.begin(to.0)?),
                Pace::Patient | Pace::Quick => None,
            };
            entries::rename(layers, &who, &from, &to, pace, pending)
        })
    }

    fn link(&self, who: &Identity, file: FileId, dir: FileId, name: Name<'_>) -> Outcome<Linked> {
        let (who, name) = (who.clone(), entries::OwnedName::from_slice(name.bytes()));
        self.change_durably(file, move |layers, pending| {
            let _work = layers.jobs.begin(dir)?;
            entries::link(layers, &who, file, (dir, &name), pending)
        })
    }

    fn read_directory(
        &self,
        who: &Identity,
        dir: FileId,
        from: DirFrom,
        budget: DirBudget,
        plus: bool,
    ) -> Outcome<Seen<DirPage>> {
        let who = who.clone();
        self.slow(dir, move |layers| {
            listing::read_directory(layers, &who, dir, from, budget, plus)
        })
    }

    fn space(&self, file: FileId) -> Outcome<Seen<Space>> {
        self.slow(file, move |layers| {
            let node = layers.handles.node(file, Pace::Patient)?;
            Ok(Seen {
                attributes: Some(layers.files.attributes(&node)?),
                result: Volume::space(layers.files.root().path.as_fd()).map_err(Error::from),
            })
        })
    }

    fn acls(&self, file: FileId) -> Outcome<Seen<Acls>> {
        self.run_unless_on_disk(file, move |layers, pace| acl::acls(layers, file, pace))
    }

    fn set_acls(&self, who: &Identity, file: FileId, set: SetAcls) -> Outcome<Seen<()>> {
        let who = who.clone();
        self.slow(file, move |layers| acl::set_acls(layers, &who, file, &set))
    }

    fn xattr(&self, who: &Identity, file: FileId, name: XattrName<'_>) -> Outcome<Seen<Bytes>> {
        let (who, name) = (who.clone(), KernelName::of(name));
        self.run_unless_on_disk(file, move |layers, pace| {
            xattrs::xattr(layers, &who, file, &name, pace)
        })
    }

    fn set_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: XattrName<'_>,
        value: Bytes,
        how: SetXattr,
    ) -> Outcome<Changed<()>> {
        let (who, name) = (who.clone(), KernelName::of(name));
        self.change_durably(file, move |layers, pending| {
            xattrs::set_xattr(layers, &who, file, (&name, &value), how, pending)
        })
    }

    fn xattrs(&self, who: &Identity, file: FileId) -> Outcome<Seen<XattrNames>> {
        let who = who.clone();
        self.run_unless_on_disk(file, move |layers, pace| {
            xattrs::xattrs(layers, &who, file, pace)
        })
    }

    fn remove_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: XattrName<'_>,
    ) -> Outcome<Changed<()>> {
        let (who, name) = (who.clone(), KernelName::of(name));
        self.change_durably(file, move |layers, pending| {
            xattrs::remove_xattr(layers, &who, file, &name, pending)
        })
    }

    fn reserve(
        &self,
        who: &Identity,
        file: FileId,
        range: (u64, u64),
        what: Reserve,
    ) -> Outcome<Changed<()>> {
        let who = who.clone();
        self.change_durably(file, move |layers, pending| {
            ranges::reserve(layers, &who, file, range, what, pending)
        })
    }

    fn copy(
        &self,
        who: &Identity,
        from: (FileId, u64),
        to: (FileId, u64),
        len: u64,
    ) -> Outcome<Changed<u64>> {
        let who = who.clone();
        self.slow(to.0, move |layers| {
            let _work = layers.jobs.begin(from.0)?;
            copies::copy(layers, &who, from, to, len)
        })
    }

    fn clone_range(
        &self,
        who: &Identity,
        from: (FileId, u64),
        to: (FileId, u64),
        len: u64,
    ) -> Outcome<Changed<()>> {
        let who = who.clone();
        self.change_durably(to.0, move |layers, pending| {
            let _work = match from.0 == to.0 {
                true => None,
                false => Some(layers.jobs.begin(from.0)?),
            };
            copies::clone_range(layers, &who, from, to, len, pending)
        })
    }

    fn seek(
        &self,
        who: &Identity,
        file: FileId,
        offset: u64,
        content: Content,
    ) -> Outcome<Seen<Sought>> {
        let who = who.clone();
        // The kernel waits for other calls that change the file, which may be those of local users.
        match self.layers.volume.changes_at_once() {
            true => self.run(file, move |layers, pace| {
                ranges::seek(layers, &who, file, offset, content, pace)
            }),
            false => self.slow(file, move |layers| {
                ranges::seek(layers, &who, file, offset, content, Pace::Patient)
            }),
        }
    }
}

#[cfg(test)]
pub(crate) use open::tests::AS_IF;
#[cfg(test)]
mod tests;
