//! Creates files and sets their owner.

use super::attributes;
use super::entries::{self, Turn};
use super::turns::Names;
use crate::fs::{
    Attributes, Changed, CreateHow, Error, FileId, FileKind, Found, Identity, Make, SetAttributes,
    SetTime, Time, mode,
};
use crate::localfs::layers::Layers;
use crate::localfs::open_files;
use crate::localfs::open_files::node::{Node, NodeFd};
use crate::localfs::pending_syncs::PendingSyncs;
use crate::localfs::sys::{self, Pace, Stat, Stop, Try};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::Arc;

/// Mode of a new file or directory if the caller gives none.
const DEFAULT_FILE_MODE: u32 = 0o644;
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

/// Mode of a file between an exclusive CREATE and the SETATTR that follows it.
const EXCLUSIVE_MODE: u32 = 0o600;

/// Longest text of a symbolic link, in bytes.
const MAX_LINK_TEXT: usize = 4095;

pub(in crate::localfs) fn make(
    layers: &Layers,
    who: &Identity,
    dir: FileId,
    name: &[u8],
    what: &Make,
    pace: Pace,
    pending: &mut PendingSyncs,
) -> Try<Changed<Found>> {
    // A new directory needs a row in the table.
    if pace == Pace::Quick && !matches!(what, Make::File(_)) {
        return Err(Stop::WouldBlock);
    }
    entries::change_directory(layers, who, dir, pace, |node, _, turn| {
        let maker = Maker {
            layers,
            who,
            dir: node,
            name,
        };
        match what {
            Make::File(how) => maker.file(how, turn, pace, pending),
            Make::Directory(set) => maker.directory(set, turn, pending),
            Make::Symlink(text, set) => maker.symlink(text, set, turn, pending),
            Make::Special(kind, device, set) => maker.special(*kind, *device, set, turn, pending),
        }
    })
}

/// Access mode of the descriptor of a new object.
enum OpenedFor {
    Nothing,
    Reading,
    /// Open for reading and writing.
    Writing,
}

/// A new object, while the names of its directory are locked.
struct Made<'a> {
    fd: OwnedFd,
    opened_for: OpenedFor,
    stat: Stat,
    turn: Turn<'a>,
}

/// Creates one directory entry.
struct Maker<'a> {
    layers: &'a Layers,
    who: &'a Identity,
    dir: &'a Arc<Node>,
    name: &'a [u8],
}

impl Maker<'_> {
    fn file(
        &self,
        how: &CreateHow,
        mut turn: Turn<'_>,
        pace: Pace,
        pending: &mut PendingSyncs,
    ) -> Try<Found> {
        let (set, mode) = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => {
                (*set, self.mode(set, DEFAULT_FILE_MODE)?)
            }
            CreateHow::Exclusive(verifier, set) => {
                let mode = self.mode(set, EXCLUSIVE_MODE)?;
                let SetAttributes { atime, mtime, .. } = exclusive_times(*verifier);
                let set = SetAttributes {
                    atime,
                    mtime,
                    ..*set
                };
                (set, mode)
            }
        };
        let layers = self.layers;
        // A file with a read-only mode is written through the descriptor that created it; other
        // files are opened by the first write.
        let (opened_for, access) = match mode & 0o200 {
            0 => (OpenedFor::Writing, OFlags::RDWR),
            _ => (OpenedFor::Reading, OFlags::RDONLY),
        };
        let created = layers.rights.as_caller(self.who, || {
            sys::create(&self.dir.path, self.name, mode & mode::ALL, access)
        });
        match created {
            Ok(fd) => {
                turn.note_made();
                let stat = layers.volume.glance(&fd)?;
                let made = Made {
                    fd,
                    opened_for,
                    stat,
                    turn,
                };
                self.finish(made, &set, mode, pending)
            }
            Err(Errno::EXIST) if pace == Pace::Quick => Err(Stop::WouldBlock),
            Err(Errno::EXIST) => self.existing(how, turn),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Handles CREATE of a name that exists.
    fn existing(&self, how: &CreateHow, turn: Turn<'_>) -> Try<Found> {
        // The name exists, and the lock on names keeps it until the file is open.
        let (fd, stat) = self
            .layers
            .files
            .open_entry(self.dir, self.name, Pace::Patient)?;
        drop(turn);
        if stat.attributes.kind != FileKind::Regular {
            return Err(Error::Exists.into());
        }
        let node = self
            .layers
            .handles
            .adopt(self.dir, self.name, fd, &stat, Pace::Patient)?;
        match how {
            CreateHow::Guarded(_) => return Err(Error::Exists.into()),
            CreateHow::Exclusive(verifier, set) => {
                let times = exclusive_times(*verifier);
                let same = SetTime::To(stat.attributes.atime) == times.atime
                    && SetTime::To(stat.attributes.mtime) == times.mtime
                    && stat.attributes.size == set.size.unwrap_or(0)
                    && self.may_have_made(set, &stat.attributes);
                if !same {
                    return Err(Error::Exists.into());
                }
                // The call that created the file may have ended before its sync.
                self.layers.durability.persist(&node)?;
                self.layers.durability.persist(self.dir)?;
            }
            CreateHow::Unchecked(set) => {
                if let Some(size) = set.size {
                    let _unguarded = self.layers.turns.unguarded(node.ino, Pace::Patient)?;
                    let _changing = self.layers.turns.begin(node.ino, false);
                    attributes::apply(
                        self.layers,
                        self.who,
                        &node,
                        &stat.attributes,
                        &SetAttributes::size(size),
                    )?;
                    self.layers.durability.persist(&node)?;
                }
                // As above. Data that other clients have written is not synced: they commit it
                // themselves.
                self.layers.durability.persist(self.dir)?;
                if set.size.is_some() {
                    return found_as_it_is(self.layers, &node);
                }
            }
        }
        Ok(found_with(&node, stat.attributes))
    }

    fn directory(
        &self,
        set: &SetAttributes,
        turn: Turn<'_>,
        pending: &mut PendingSyncs,
    ) -> Try<Found> {
        self.layers.handles.check_depth(self.dir)?;
        self.layers.handles.check_storage()?;
        let mode = self.mode(set, DEFAULT_DIRECTORY_MODE)?;
        let first = Mode::from_raw_mode(mode & mode::ALL);
        let made = self.make_entry(FileKind::Directory, mode, turn, || {
            rustix::fs::mkdirat(&self.dir.path, self.name, first)
        })?;
        self.finish(made, set, mode, pending)
    }

    fn symlink(
        &self,
        text: &[u8],
        set: &SetAttributes,
        turn: Turn<'_>,
        pending: &mut PendingSyncs,
    ) -> Try<Found> {
        if text.is_empty() || text.contains(&0) {
            return Err(Error::Invalid.into());
        }
        if text.len() > MAX_LINK_TEXT {
            return Err(Error::NameTooLong.into());
        }
        let made = self.make_entry(FileKind::Symlink, 0o777, turn, || {
            rustix::fs::symlinkat(text, &self.dir.path, self.name)
        })?;
        self.finish(made, set, 0o777, pending)
    }

    fn special(
        &self,
        kind: FileKind,
        device: (u32, u32),
        set: &SetAttributes,
        turn: Turn<'_>,
        pending: &mut PendingSyncs,
    ) -> Try<Found> {
        let (file_type, device) = match kind {
            FileKind::Fifo => (FileType::Fifo, 0),
            FileKind::Socket => (FileType::Socket, 0),
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                // As with mknod(2), only root creates devices.
                if !self.layers.rights.acts_for_callers() || !self.who.is_root() {
                    return Err(Error::NotOwner.into());
                }
                let file_type = if kind == FileKind::BlockDevice {
                    FileType::BlockDevice
                } else {
                    FileType::CharacterDevice
                };
                (file_type, rustix::fs::makedev(device.0, device.1))
            }
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                return Err(Error::BadType.into());
            }
        };
        let mode = self.mode(set, DEFAULT_FILE_MODE)?;
        let first = Mode::from_raw_mode(mode & mode::ALL);
        let made = self.make_entry(kind, mode, turn, || {
            rustix::fs::mknodat(&self.dir.path, self.name, file_type, first, device)
        })?;
        self.finish(made, set, mode, pending)
    }

    /// Creates an object that can only be created by name, and opens it.
    ///
    /// A server run by root may change the owner of the object next. Clients cannot replace it
    /// meanwhile, because the names of the directory are locked; a local user can, so the opened
    /// object is compared with the one that was created.
    fn make_entry<'a>(
        &self,
        kind: FileKind,
        mode: u32,
        mut turn: Turn<'a>,
        make: impl FnOnce() -> Result<(), Errno>,
    ) -> Try<Made<'a>> {
        let layers = self.layers;
        let begin = sys::coarse_now();
        layers.rights.as_caller(self.who, make)?;
        turn.note_made();
        let opened = layers.files.open_entry(self.dir, self.name, Pace::Patient);
        let (fd, stat) = opened.inspect_err(|_| {
            self.unmake(&turn.names, |stat| self.is_fresh(stat, kind, mode, begin));
        })?;
        if !self.is_fresh(&stat, kind, mode, begin) || layers.handles.is_known(&fd, &stat) {
            return Err(Error::Busy.into());
        }
        Ok(Made {
            fd,
            opened_for: OpenedFor::Nothing,
            stat,
            turn,
        })
    }

    /// Whether a file can be the one that was just created with these rights, by its attributes.
    fn is_fresh(&self, stat: &Stat, kind: FileKind, mode: u32, begin: Time) -> bool {
        let found = &stat.attributes;
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        // Some file systems do not count subdirectories as links.
        if found.kind != kind || found.links > links {
            return false;
        }
        // Other file systems may have their own clock, and a fixed owner and mode for all files:
        // FAT, many in FUSE, a server that squashes. Attributes are set next as the caller, whose
        // rights decide.
        if !self.layers.volume.local {
            return true;
        }
        let rights = mode & 0o777;
        found.uid == self.layers.rights.acting(self.who).uid
            // The umask or a default list may have cleared bits; symbolic links have all of them.
            && (kind == FileKind::Symlink || found.mode & 0o777 & !rights == 0)
            && is_since(found.mtime, begin)
            && stat.born.is_none_or(|born| is_since(born, begin))
    }

    /// Whether a file has an owner that a new file of the caller would have. Another one may be a trap: its maker chose its times, and
    /// a caller that takes it for its own sets more of its attributes. Other file systems may have a fixed owner for all files.
    fn may_have_made(&self, set: &SetAttributes, found: &Attributes) -> bool {
        let rights = &self.layers.rights;
        let given = set.uid.filter(|_| self.chooses_owner());
        !self.layers.volume.local
            || found.uid == rights.acting(self.who).uid
            || given == Some(found.uid)
    }

    /// Whether the caller may give a new object to somebody else.
    fn chooses_owner(&self) -> bool {
        self.layers.rights.acts_for_callers() && self.who.is_root()
    }

    /// Sets the remaining attributes of a new object.
    fn finish(
        &self,
        made: Made<'_>,
        set: &SetAttributes,
        mode: u32,
        pending: &mut PendingSyncs,
    ) -> Try<Found> {
        let layers = self.layers;
        let Made {
            fd,
            opened_for,
            stat,
            turn,
        } = made;
        let set = self.missing(set, mode, &stat.attributes)?;
        let regular = stat.attributes.kind == FileKind::Regular;
        let made_whole = regular
            && layers.volume.syncs.journal
            && (layers.volume.syncs.makes_whole || has_nothing_extra(&fd));
        let is_same = |other: &Stat| other.is_same(&stat);
        let kept = self.keep(fd, opened_for, &stat);
        if kept.is_err() {
            self.unmake(&turn.names, is_same);
        }
        drop(turn);
        let (node, writer) = kept?;
        if let Some(fd) = writer {
            layers.durability.keep_writer(&node, fd);
        }
        let as_made = set == SetAttributes::default();
        // Other calls may have found the object by now.
        let changing = layers.turns.begin(node.ino, node.is_directory());
        if !as_made
            && let Err(stop) =
                attributes::apply_unchecked(layers, self.who, &node, &stat.attributes, &set)
        {
            let names = layers.turns.names([self.dir.ino; 2], Pace::Patient)?;
            self.unmake(&names, is_same);
            return Err(stop);
        }
        drop(changing);
        // One sync is enough for a regular file: that of the directory, which is shared with other
        // calls.
        let by_directory = as_made && made_whole;
        match as_made {
            true if by_directory => {}
            true => layers.durability.persist(&node)?,
            false => layers.durability.persist_attributes(&node)?,
        }
        if by_directory || !(regular && layers.volume.syncs.names) {
            pending.push(self.dir);
        }
        if node.is_directory() {
            layers.persist_places()?;
        }
        if as_made {
            return Ok(found_with(&node, stat.attributes));
        }
        found_as_it_is(layers, &node)
    }

    /// Returns the attributes that a new object does not have yet.
    ///
    /// Only root sets owner and group; objects of other callers are created with them.
    fn missing(&self, set: &SetAttributes, mode: u32, made: &Attributes) -> Try<SetAttributes> {
        let chooses = self.chooses_owner();
        let uid = set.uid.filter(|&uid| chooses && uid != made.uid);
        let gid = set.gid.filter(|&gid| chooses && gid != made.gid);
        let is_directory = made.kind == FileKind::Directory;
        // mkdir(2) ignores these bits.
        let special = mode & (mode::SET_UID | mode::SET_GID);
        let special = if is_directory { special } else { 0 };
        let wanted = made.mode | special | self.taken(mode, made)?;
        // A change of the owner clears these bits, except on directories.
        let lost = !is_directory
            && (uid.is_some() || gid.is_some())
            && wanted & (mode::SET_UID | mode::SET_GID) != 0;
        let set_mode = made.kind != FileKind::Symlink && (wanted != made.mode || lost);
        Ok(SetAttributes {
            mode: set_mode.then_some(wanted),
            umask: 0,
            uid,
            gid,
            // Only a regular file has a size, which is 0.
            size: set
                .size
                .filter(|&size| made.kind == FileKind::Regular && size != 0),
            ..*set
        })
    }

    /// Returns the mode with which an object is created. The caller's umask counts as that of a process on this machine does.
    fn mode(&self, set: &SetAttributes, default: u32) -> Try<u32> {
        let mode = set.mode.unwrap_or(default);
        match mode & 0o777 & set.umask {
            0 => Ok(mode),
            masked => match self.has_default_list()? {
                true => Ok(mode),
                false => Ok(mode & !masked),
            },
        }
    }

    /// Returns the mode bits that the umask of this process cleared. With a default access control
    /// list the kernel applies the list and not the umask, and bits that the list cleared stay
    /// cleared.
    fn taken(&self, mode: u32, made: &Attributes) -> Try<u32> {
        let taken = mode & 0o777 & !made.mode;
        if taken == 0 || taken & !self.layers.rights.umask() != 0 || made.kind == FileKind::Symlink
        {
            return Ok(0);
        }
        match self.has_default_list()? {
            true => Ok(0),
            false => Ok(taken),
        }
    }

    /// Returns whether the directory has a default access control list, from which new objects inherit theirs.
    fn has_default_list(&self) -> Try<bool> {
        const DEFAULT_LIST: &CStr = c"system.posix_acl_default";
        let Layers { files, volume, .. } = self.layers;
        let found = match files.open_reader(self.dir) {
            Ok(fd) => rustix::fs::fgetxattr(fd, DEFAULT_LIST, &mut [0_u8; 0]),
            // It may be one that this process must not read.
            Err(_) => volume.proc.xattr_len(self.dir.path.as_fd(), DEFAULT_LIST),
        };
        match found {
            Ok(_) => Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Adds a new file to the open files. Returns the descriptor if it is open for writing: the
    /// descriptor of a [`Node`] is not, or the file could not be executed on this machine.
    fn keep(
        &self,
        fd: OwnedFd,
        opened_for: OpenedFor,
        stat: &Stat,
    ) -> Try<(Arc<Node>, Option<Arc<OwnedFd>>)> {
        let layers = self.layers;
        let (path, writer) = match opened_for {
            OpenedFor::Writing => {
                let path = layers.volume.proc.reopen(fd.as_fd(), OFlags::PATH)?;
                (path.into(), Some(Arc::new(fd)))
            }
            OpenedFor::Reading => (NodeFd::readable(fd), None),
            OpenedFor::Nothing => (fd.into(), None),
        };
        let node = layers
            .handles
            .adopt(self.dir, self.name, path, stat, Pace::Patient)?;
        Ok((node, writer))
    }

    /// Removes a new object whose attributes could not be set, if its name still refers to it
    /// according to `ours`.
    fn unmake(&self, _: &Names<'_>, ours: impl FnOnce(&Stat) -> bool) {
        let layers = self.layers;
        let Ok((open, stat)) = layers.files.open_entry(self.dir, self.name, Pace::Patient) else {
            return;
        };
        if !ours(&stat) {
            return;
        }
        let flags = if stat.attributes.is_directory() {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        let _changing = layers.turns.begin(self.dir.ino, true);
        // Another client may have opened it already.
        let _removals = layers.handles.begin_removal(&open);
        let unlink = || rustix::fs::unlinkat(&self.dir.path, self.name, flags);
        if layers.rights.as_caller(self.who, unlink).is_ok() {
            layers
                .handles
                .removed(self.dir.number, self.name, &stat, true);
        }
    }
}

/// Whether a file has no extended attributes: no inherited access control list and no security
/// label.
fn has_nothing_extra(fd: impl AsFd) -> bool {
    // A buffer of one byte fits no name (`ERANGE`). With an empty buffer, rustix returns 0 in any
    // case.
    matches!(
        rustix::fs::flistxattr(fd, &mut [0_u8; 1]),
        Ok(0) | Err(Errno::OPNOTSUPP)
    )
}

/// Returns the file that CREATE created or found. If it was removed since, the reply has no
/// attributes: NFS3ERR_STALE would refer to the directory.
fn found_as_it_is(layers: &Layers, node: &Node) -> Try<Found> {
    let attributes = layers
        .volume
        .attributes(&node.path, open_files::place(node))?;
    Ok(found_with(node, attributes))
}

/// Returns a file with its attributes, as the kernel tells them, and the number that clients are told.
fn found_with(node: &Node, attributes: Attributes) -> Found {
    Found {
        file: node.id(),
        attributes: Attributes {
            fileid: node.fileid,
            ..attributes
        },
    }
}

/// Whether a time of a file is `begin` or later, allowing for file systems with times in whole
/// seconds.
fn is_since(time: Time, begin: Time) -> bool {
    time >= begin || time.nanos == 0 && time.seconds >= begin.seconds
}

/// Encodes the verifier of an exclusive CREATE in the times of the file, until the client sets them
/// (RFC 1813 §3.3.8). The sign bit is omitted: not every file system has times before 1970 or after
/// 2038.
fn exclusive_times(verifier: [u8; 8]) -> SetAttributes {
    let word = |at: usize| {
        let bytes = [0, 1, 2, 3].map(|offset| verifier[at + offset]);
        SetTime::To(Time {
            seconds: i64::from(u32::from_be_bytes(bytes) & 0x7fff_ffff),
            nanos: 0,
        })
    };
    SetAttributes {
        atime: word(0),
        mtime: word(4),
        ..SetAttributes::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{FileSystem, OpenAccess, Step};
    use crate::localfs::open::Opening;
    use crate::localfs::operations::held;
    use crate::localfs::{Changes, LocalFs, LocalFsOptions};
    use oncrpc::PeerGroup;
    use rustix::fs::{XattrFlags, fsetxattr};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    /// Somebody on this machine moves a directory to where one was just made.
    #[test]
    fn files_that_were_not_just_created_do_not_change_owner() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        std::fs::set_permissions(&victim, PermissionsExt::from_mode(0o700)).unwrap();
        // What is made when the clock is past its time is younger. A kernel with finer times may have
        // given it one that the coarse clock has yet to reach.
        let victim = std::fs::metadata(&victim).unwrap();
        let made = Time {
            seconds: victim.mtime(),
            nanos: u32::try_from(victim.mtime_nsec()).unwrap(),
        };
        while sys::coarse_now() <= made {
            std::hint::spin_loop();
        }
        let options = LocalFsOptions::default().with_changes(Changes::Cached);
        let local = LocalFs::open(dir.path(), options).unwrap();
        let layers = &local.layers;
        let make = |name: &'static str| {
            let root = layers.files.root().id();
            let changed = entries::change_directory(
                layers,
                &Identity::root(),
                root,
                Pace::Patient,
                |node, _, turn| {
                    let maker = Maker {
                        layers,
                        who: &Identity::root(),
                        dir: node,
                        name: b"new",
                    };
                    let made = maker.make_entry(FileKind::Directory, 0o700, turn, move || {
                        let root = &layers.files.root().path;
                        let mode = Mode::from_raw_mode(0o700);
                        rustix::fs::mkdirat(root, "new", mode)?;
                        rustix::fs::renameat(root, name, root, "new")
                    });
                    made.map(|_| ())
                },
            );
            changed.unwrap().result
        };
        assert_eq!(make("victim"), Err(Error::Busy));
        std::fs::remove_dir(dir.path().join("new")).unwrap();
        assert_eq!(make("new"), Ok(()));
    }

    /// As FAT, a squashed NFS and many file systems in FUSE do.
    #[test]
    fn directory_is_made_where_the_file_system_chooses_owner_and_rights() {
        let dir = tempfile::tempdir().unwrap();
        let options = LocalFsOptions::default();
        let make = |local, name: &str| {
            let mut opening = Opening::new(dir.path().to_owned(), options.clone()).unwrap();
            opening.volume.local = local;
            let layers = &Layers::over(opening);
            let root = layers.files.root().id();
            let changed = entries::change_directory(
                layers,
                &Identity::root(),
                root,
                Pace::Patient,
                |node, _, turn| {
                    let maker = Maker {
                        layers,
                        who: &Identity::root(),
                        dir: node,
                        name: name.as_bytes(),
                    };
                    let made = maker.make_entry(FileKind::Directory, 0o700, turn, || {
                        let mode = Mode::from_raw_mode(0o777);
                        rustix::fs::mkdirat(&layers.files.root().path, name, mode)?;
                        rustix::fs::chmodat(&layers.files.root().path, name, mode, AtFlags::empty())
                    });
                    made.map(|_| ())
                },
            );
            changed.unwrap().result
        };
        assert_eq!(make(true, "one"), Err(Error::Busy));
        assert_eq!(make(false, "two"), Ok(()));
    }

    /// One of which attributes could not be set.
    #[test]
    fn file_that_another_client_opened_before_its_maker_removes_it_lives_on() {
        let dir = tempfile::tempdir().unwrap();
        let local = LocalFs::open(dir.path(), LocalFsOptions::default().with_open_files(8));
        let local = local.unwrap();
        let layers = &local.layers;
        if !held::holds_by_handle(layers) {
            return;
        }
        let who = Identity::root();
        let open = |name: &str| {
            std::fs::write(dir.path().join(name), name).unwrap();
            let step = Step::new(name.as_bytes()).unwrap();
            let found = local.lookup(&who, local.root(), step).wait();
            let file = found.result.unwrap().file;
            let holder = PeerGroup::THIS_MACHINE;
            let held = local.open(&who, file, OpenAccess::READ, holder).wait();
            (file, held.unwrap())
        };
        let (file, _held) = open("new");
        let _others: Vec<_> = (0..20).map(|n| open(&n.to_string())).collect();
        let root = local.root();
        let unmade = entries::change_directory(
            layers,
            &Identity::root(),
            root,
            Pace::Patient,
            |node, _, turn| {
                let maker = Maker {
                    layers,
                    who: &who,
                    dir: node,
                    name: b"new",
                };
                maker.unmake(&turn.names, |_| true);
                Ok(())
            },
        );
        unmade.unwrap().result.unwrap();
        assert!(!dir.path().join("new").exists());
        layers.files.close_all();
        let read = local.read(&who, file, 0, 10).wait();
        assert_eq!(read.result.unwrap().data.concat(), b"new");
    }

    #[test]
    fn inherited_access_control_list_is_something_extra() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::File::create(dir.path().join(name)).unwrap();
        let plain = make("plain");
        // Where every file has a label, every file is synced.
        if !has_nothing_extra(&plain) {
            return;
        }
        let entry = |tag: u16, rights: u16, id: u32| {
            [
                &tag.to_le_bytes()[..],
                &rights.to_le_bytes(),
                &id.to_le_bytes(),
            ]
            .concat()
        };
        let list = [
            2_u32.to_le_bytes().to_vec(),
            entry(0x01, 7, u32::MAX),
            entry(0x02, 7, 1000),
            entry(0x04, 0, u32::MAX),
            entry(0x10, 7, u32::MAX),
            entry(0x20, 0, u32::MAX),
        ]
        .concat();
        let root = std::fs::File::open(dir.path()).unwrap();
        let set = fsetxattr(
            &root,
            c"system.posix_acl_default",
            &list,
            XattrFlags::empty(),
        );
        set.expect("the file system has access control lists");
        assert!(!has_nothing_extra(make("inherits")));
    }
}
