//! Properties of the exported file system.
//!
//! The lowest layer. It owns what stays the same while a directory is exported: where it is, which
//! kind of file system that is, how its files are told apart, and its limits. All layers above may
//! ask it. It calls the kernel ([`sys`](super::sys)) and no other layer.

pub(in crate::localfs) mod change_values;
pub(in crate::localfs) mod fileid;
pub(in crate::localfs) mod in_flight;
pub(in crate::localfs) mod kind;
mod other_users;
pub(in crate::localfs) mod witness;

use crate::fs::{Abilities, Attributes, Space};
use crate::localfs::id::IdentifiedBy;
use crate::localfs::sys::{self, Pace, ProcFd, Stat, Try};
use change_values::names::{Claim, NameChange, Own};
use change_values::{ChangeValues, During, Place};
use fileid::FileIds;
use in_flight::Changing;
use kind::{FsKind, SyncExtent, figures};
use other_users::others_can_reach;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{Errno, ReadWriteFlags};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use witness::DirectoryId;

/// The exported file system.
pub(in crate::localfs) struct Volume {
    /// Path of the exported directory when it was opened.
    pub(in crate::localfs) path: PathBuf,
    /// Access to files by the descriptors of this process.
    pub(in crate::localfs) proc: ProcFd,
    /// Kind of the file system, as statfs(2) tells it.
    pub(in crate::localfs) magic: Option<u32>,
    /// Identification of files.
    pub(in crate::localfs) by: IdentifiedBy,
    /// Whether the kernel has handles for files, which find a file whatever its name is. Otherwise
    /// files are found by their locations.
    pub(in crate::localfs) kernel_handles: bool,
    pub(in crate::localfs) file_ids: FileIds,
    /// The state directory of the server, if it is in the export by another path than its own: it is
    /// hidden from clients.
    pub(in crate::localfs) hidden: Option<Hidden>,
    pub(in crate::localfs) abilities: Abilities,
    pub(in crate::localfs) changes: ChangeValues,
    /// Whether this is a known local file system: no network file system, and none in another
    /// process.
    pub(in crate::localfs) local: bool,
    /// Whether the file system is in memory.
    pub(in crate::localfs) memory: bool,
    /// Whether the file system is in memory and other users of this machine cannot reach it.
    closed: AtomicBool,
    /// Whether access control lists say nothing about the owner of a file.
    pub(in crate::localfs) posix_lists: bool,
    /// Whether the file system is mounted `noexec`.
    pub(in crate::localfs) no_exec: bool,
    pub(in crate::localfs) syncs: SyncExtent,
    /// Whether directories are listed in the order of a hash of the names, as positions shift.
    pub(in crate::localfs) by_name: bool,
}

/// Facts of a file system from which its properties follow.
pub(in crate::localfs) struct VolumeFacts {
    pub(in crate::localfs) path: PathBuf,
    pub(in crate::localfs) proc: ProcFd,
    pub(in crate::localfs) kind: FsKind,
    pub(in crate::localfs) magic: Option<u32>,
    pub(in crate::localfs) by: IdentifiedBy,
    pub(in crate::localfs) kernel_handles: bool,
    pub(in crate::localfs) file_ids: FileIds,
    pub(in crate::localfs) hidden: Option<Hidden>,
    pub(in crate::localfs) abilities: Abilities,
    pub(in crate::localfs) changes: ChangeValues,
    pub(in crate::localfs) no_exec: bool,
    /// Mount id of the exported directory.
    pub(in crate::localfs) mount: u64,
    /// Device of the file system.
    pub(in crate::localfs) device: (u32, u32),
}

/// The state directory of the server.
pub(in crate::localfs) struct Hidden {
    /// Open, so that no other file gets its inode number.
    _open: std::fs::File,
    stat: Stat,
    by: IdentifiedBy,
}

impl Hidden {
    pub(in crate::localfs) fn new(open: std::fs::File, stat: Stat, by: IdentifiedBy) -> Self {
        Self {
            _open: open,
            stat,
            by,
        }
    }

    /// Device of the directory.
    pub(in crate::localfs) fn device(&self) -> (u32, u32) {
        self.stat.device
    }

    fn is(&self, stat: &Stat) -> bool {
        let told = |stat: &Stat| (stat.attributes.fileid, stat.birth);
        // A snapshot of btrfs is another device, and has a copy.
        let same_device = self.by == IdentifiedBy::Birth || self.stat.device == stat.device;
        told(&self.stat) == told(stat) && same_device
    }
}

impl Volume {
    pub(in crate::localfs) fn new(facts: VolumeFacts) -> Self {
        let VolumeFacts { kind, by, .. } = facts;
        let volume = Self {
            path: facts.path,
            proc: facts.proc,
            magic: facts.magic,
            by,
            kernel_handles: facts.kernel_handles,
            file_ids: facts.file_ids,
            hidden: facts.hidden,
            abilities: Abilities {
                change: facts.changes.kind(),
                ..facts.abilities
            },
            changes: facts.changes,
            // With numbers from paths, each step may read the table.
            local: kind.is_local() && !by.path(),
            memory: kind.is_memory(),
            closed: AtomicBool::new(false),
            posix_lists: kind.has_posix_lists(),
            no_exec: facts.no_exec,
            syncs: SyncExtent::of(kind, facts.mount, facts.device),
            by_name: !kind.keeps_positions() || by.path(),
        };
        volume.look_who_can_reach();
        volume
    }

    /// Whether changes are made at once, on the task of a connection: they wait neither for a disk
    /// nor for other users.
    pub(in crate::localfs) fn changes_at_once(&self) -> bool {
        self.memory && self.is_closed()
    }

    /// Updates whether other users can reach the export.
    pub(in crate::localfs) fn look_who_can_reach(&self) {
        if self.memory {
            let me = rustix::process::geteuid().as_raw();
            let closed = !others_can_reach(&self.path, me);
            self.closed.store(closed, Relaxed);
        }
    }

    /// Whether no other user of this machine can reach the export.
    pub(in crate::localfs) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Returns the attributes of an open file: sufficient for most calls, and half the cost of [`stat`](Self::stat).
    pub(in crate::localfs) fn attributes(
        &self,
        fd: impl AsFd,
        file: Place,
    ) -> Result<Attributes, Errno> {
        let alone = self.is_closed();
        let look = || sys::attributes_on_device(&fd);
        let seen = self.changes.of(alone, Some(file), look);
        seen.map(|seen| seen.attributes)
    }

    /// Returns the attributes of a file before or after a change of it that is in flight.
    pub(in crate::localfs) fn attributes_during(
        &self,
        fd: impl AsFd,
        changing: (&Changing<'_>, During),
    ) -> Result<Attributes, Errno> {
        let look = || sys::attributes_on_device(&fd);
        let seen = self.changes.during(self.is_closed(), changing, look);
        seen.map(|seen| seen.attributes)
    }

    /// Begins a change of the names of a directory, in the turn of the caller, who `has_rights` to it, if asked.
    pub(in crate::localfs) fn begin_names<'a>(
        &self,
        dir: (DirectoryId, BorrowedFd<'_>),
        changing: Changing<'a>,
        has_rights: impl FnOnce() -> bool,
    ) -> NameChange<'a> {
        self.changes
            .begin_names(self.is_closed(), dir, changing, has_rights)
    }

    /// Returns the attributes of a directory before its names change.
    pub(in crate::localfs) fn attributes_before_names(
        &self,
        fd: BorrowedFd<'_>,
        change: &NameChange<'_>,
    ) -> Result<Attributes, Errno> {
        let look = || sys::attributes_on_device(fd);
        let seen = self.changes.before_names(change, look);
        seen.map(|seen| seen.attributes)
    }

    /// Returns the attributes of a directory after its names changed, and their relation to those before.
    pub(in crate::localfs) fn attributes_after_names(
        &self,
        fd: BorrowedFd<'_>,
        change: NameChange<'_>,
        own: &Own<'_>,
    ) -> Result<(Attributes, Claim), Errno> {
        let look = || sys::attributes_on_device(fd);
        let seen = self.changes.after_names(change, own, fd, look);
        seen.map(|(seen, claim)| (seen.attributes, claim))
    }

    /// Returns the state of a file.
    pub(in crate::localfs) fn stat(&self, fd: impl AsFd) -> Result<Stat, Errno> {
        let look = || sys::stat(&fd, self.by);
        self.changes.of(self.is_closed(), None, look)
    }

    /// Returns the state of a file with one look, unless it is a directory: the change attribute of a file that changed recently has a
    /// value of its own.
    pub(in crate::localfs) fn glance(&self, fd: impl AsFd) -> Result<Stat, Errno> {
        let look = || sys::stat(&fd, self.by);
        self.changes.glance(self.is_closed(), look)
    }

    /// Returns the pace for looking up a name. In memory no lookup waits for a disk, so the lookup
    /// of an uncached name need not become a job, unless other users can lock the directory.
    pub(in crate::localfs) fn look(&self, pace: Pace) -> Pace {
        if self.changes_at_once() {
            Pace::Patient
        } else {
            pace
        }
    }

    /// Returns the flags for reads and writes without waiting. File systems in memory need none, and
    /// some reject them.
    pub(in crate::localfs) fn haste(&self) -> ReadWriteFlags {
        match self.memory {
            true => ReadWriteFlags::empty(),
            false => ReadWriteFlags::NOWAIT,
        }
    }

    /// Whether an id never leads to another file, and an open file can always be asked.
    pub(in crate::localfs) fn ids_stay(&self) -> bool {
        self.local && self.by == IdentifiedBy::Birth
    }

    /// Whether this is the state directory of the server.
    pub(in crate::localfs) fn is_hidden(&self, stat: &Stat) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden.is(stat))
    }

    /// Whether the file with this inode number may be the state directory of the server.
    pub(in crate::localfs) fn may_be_hidden(&self, ino: u64) -> bool {
        let hidden = self.hidden.as_ref();
        hidden.is_some_and(|hidden| hidden.stat.attributes.fileid == ino)
    }

    /// Returns the space of the file system of `root`: nothing, if it does not know.
    pub(in crate::localfs) fn space(root: BorrowedFd<'_>) -> Try<Space> {
        let Some(found) = figures(rustix::fs::fstatvfs(root))? else {
            return Ok(Space::default());
        };
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(Space {
            total: bytes(found.f_blocks),
            free: bytes(found.f_bfree),
            available: bytes(found.f_bavail),
            total_files: found.f_files,
            free_files: found.f_ffree,
            available_files: found.f_favail,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localfs::Handles;
    use crate::localfs::open::tests::{AS_IF, opened};
    use std::fs::{File, Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn state_directory_is_hidden_whatever_its_path_is() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["state", "other"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut volume = opened(dir.path(), Handles::Table).volume;
        let open = |name: &str| File::open(dir.path().join(name)).unwrap();
        let by = volume.by;
        let stat = |name: &str| sys::stat(open(name), by).unwrap();
        assert!(!volume.is_hidden(&stat("state")));
        volume.hidden = Some(Hidden::new(open("state"), stat("state"), by));
        std::fs::rename(dir.path().join("state"), dir.path().join("moved")).unwrap();
        assert!(volume.is_hidden(&stat("moved")) && !volume.is_hidden(&stat("other")));
        let may_be = |name: &str| volume.may_be_hidden(stat(name).attributes.fileid);
        assert!(may_be("moved") && !may_be("other"));
    }

    #[test]
    fn export_is_listed_by_name_only_where_positions_do_not_stay() {
        let dir = tempfile::tempdir().unwrap();
        let system = rustix::fs::statfs(dir.path()).unwrap();
        let stay = FsKind::of(Some(&system)).keeps_positions();
        for way in [Handles::Auto, Handles::Table] {
            assert_eq!(opened(dir.path(), way).volume.by_name, !stay);
        }
        AS_IF.set(Some(IdentifiedBy::Path));
        assert!(opened(dir.path(), Handles::Table).volume.by_name);
    }

    #[test]
    fn names_in_memory_are_looked_up_at_once_unless_others_can_lock_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut volume = opened(dir.path(), Handles::Table).volume;
        let looks = |volume: &Volume, mode| {
            set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            volume.look_who_can_reach();
            (volume.look(Pace::Quick), volume.changes_at_once())
        };
        volume.memory = true;
        assert_eq!(looks(&volume, 0o700), (Pace::Patient, true));
        assert_eq!(volume.haste(), ReadWriteFlags::empty());
        assert_eq!(looks(&volume, 0o755), (Pace::Quick, false));
        let mut volume = opened(dir.path(), Handles::Table).volume;
        volume.memory = false;
        assert_eq!(looks(&volume, 0o700), (Pace::Quick, false));
        assert_eq!(volume.haste(), ReadWriteFlags::NOWAIT);
    }
}
