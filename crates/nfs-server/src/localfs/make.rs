//! Creates files and sets their owner.

use super::Inner;
use super::entries::Turn;
use super::node::{Node, NodeFd};
use super::sys::{self, Pace, Stat, Stop, Try};
use crate::fs::{
    Attributes, Changed, CreateHow, Error, FileId, FileKind, Found, Identity, Make, SetAttributes,
    SetTime, Time, mode,
};
use crate::permission::{self, EXECUTE};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::sync::{Arc, MutexGuard};

/// Mode of what is made by a caller that says none.
const DEFAULT_FILE_MODE: u32 = 0o644;
const DEFAULT_DIRECTORY_MODE: u32 = 0o755;

/// Mode of a file between an exclusive CREATE and the SETATTR that follows it.
const EXCLUSIVE_MODE: u32 = 0o600;

/// Longest text of a symbolic link, in bytes.
const MAX_LINK_TEXT: usize = 4095;

impl Inner {
    pub(super) fn make(
        &self,
        who: &Identity,
        dir: FileId,
        name: &[u8],
        what: &Make,
        pace: Pace,
    ) -> Try<Changed<Found>> {
        // Of a directory the table has to know.
        if pace == Pace::Quick && !matches!(what, Make::File(_)) {
            return Err(Stop::WouldBlock);
        }
        self.change_directory(dir, pace, |node, before, turn| {
            let maker = Maker {
                inner: self,
                who,
                dir: node,
                before,
                name,
            };
            match what {
                Make::File(how) => maker.file(how, turn, pace),
                Make::Directory(set) => maker.directory(set, turn),
                Make::Symlink(text, set) => maker.symlink(text, set, turn),
                Make::Special(kind, device, set) => maker.special(*kind, *device, set, turn),
            }
        })
    }
}

/// What the descriptor of something that was made can be used for.
enum OpenedFor {
    Nothing,
    Reading,
    /// And for reading.
    Writing,
}

/// What was just made, while nobody else changes names.
struct Made<'a> {
    fd: OwnedFd,
    opened_for: OpenedFor,
    stat: Stat,
    turn: Turn<'a>,
}

/// Makes one entry of a directory.
struct Maker<'a> {
    inner: &'a Inner,
    who: &'a Identity,
    dir: &'a Arc<Node>,
    before: &'a Attributes,
    name: &'a [u8],
}

impl Maker<'_> {
    fn file(&self, how: &CreateHow, turn: Turn<'_>, pace: Pace) -> Try<Found> {
        let (set, mode) = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => {
                (*set, set.mode.unwrap_or(DEFAULT_FILE_MODE))
            }
            CreateHow::Exclusive(verifier) => (exclusive_times(*verifier), EXCLUSIVE_MODE),
        };
        let create = || -> Try<Made<'_>> {
            let inner = self.inner;
            inner.permit(|| permission::check_add(self.who, self.before))?;
            // The owner writes to a file that was made read-only through the descriptor it was made
            // with; others are opened when they are written to.
            let (opened_for, access) = match mode & 0o200 {
                0 => (OpenedFor::Writing, OFlags::RDWR),
                _ => (OpenedFor::Reading, OFlags::RDONLY),
            };
            let first = self.first_mode(&set, mode);
            let fd = sys::create(&self.dir.path, self.name, first, access)?;
            let stat = sys::stat(&fd, inner.births)?;
            Ok(Made {
                fd,
                opened_for,
                stat,
                turn,
            })
        };
        match create() {
            Ok(made) => self.finish(made, &set, mode),
            Err(Stop::Fail(Error::Exists | Error::Access)) if pace == Pace::Quick => {
                Err(Stop::WouldBlock)
            }
            Err(Stop::Fail(Error::Exists | Error::Access)) => self.existing(how),
            Err(stop) => Err(stop),
        }
    }

    /// Mode that a regular file is made with. Nobody else may open it before it has its owner and
    /// group; where neither makes a difference to anybody else's rights, one step is enough.
    fn first_mode(&self, set: &SetAttributes, mode: u32) -> u32 {
        let inner = self.inner;
        let keeps_owner = set.uid.unwrap_or(self.who.uid) == inner.me.uid
            && (self.who.is_root() || self.who.uid == inner.me.uid);
        let group_like_others = (mode >> 3) & 0o7 == mode & 0o7;
        match !inner.as_root || keeps_owner && group_like_others {
            true => mode & 0o777,
            false => mode & 0o700,
        }
    }

    /// What CREATE does if there is such a name already, or no right to add one.
    fn existing(&self, how: &CreateHow) -> Try<Found> {
        let opened = self
            .inner
            .permit(|| permission::check(self.who, self.before, EXECUTE))
            .map_err(Stop::from)
            .and_then(|()| self.inner.open_entry(self.dir, self.name, Pace::Patient));
        let (fd, stat) = match opened {
            Ok(opened) => opened,
            Err(Stop::Fail(Error::NotFound)) => return Err(Error::Access.into()),
            Err(stop) => return Err(stop),
        };
        if stat.attributes.kind != FileKind::Regular {
            return Err(Error::Exists.into());
        }
        let node = self
            .inner
            .adopt(self.dir, self.name, fd, &stat, None, Pace::Patient)?;
        match how {
            CreateHow::Guarded(_) => return Err(Error::Exists.into()),
            CreateHow::Exclusive(verifier) => {
                let times = exclusive_times(*verifier);
                let same = SetTime::To(stat.attributes.atime) == times.atime
                    && SetTime::To(stat.attributes.mtime) == times.mtime
                    && stat.attributes.size == 0;
                if !same {
                    return Err(Error::Exists.into());
                }
            }
            CreateHow::Unchecked(set) => {
                if let Some(size) = set.size {
                    self.inner.apply(
                        self.who,
                        &node,
                        &stat.attributes,
                        &SetAttributes::size(size),
                    )?;
                    self.inner.persist(&node)?;
                }
            }
        }
        self.inner.found(&node)
    }

    fn directory(&self, set: &SetAttributes, turn: Turn<'_>) -> Try<Found> {
        self.inner
            .permit(|| permission::check_add(self.who, self.before))
            .map_err(|error| self.or_exists(error))?;
        self.inner.check_depth(self.dir)?;
        self.inner.check_places()?;
        let mode = set.mode.unwrap_or(DEFAULT_DIRECTORY_MODE);
        let first = Mode::from_raw_mode(mode & 0o700);
        let made = self.make_entry(FileKind::Directory, mode, turn, || {
            rustix::fs::mkdirat(&self.dir.path, self.name, first)
        })?;
        self.finish(made, set, mode)
    }

    fn symlink(&self, text: &[u8], set: &SetAttributes, turn: Turn<'_>) -> Try<Found> {
        if text.is_empty() || text.contains(&0) {
            return Err(Error::Invalid.into());
        }
        if text.len() > MAX_LINK_TEXT {
            return Err(Error::NameTooLong.into());
        }
        self.inner
            .permit(|| permission::check_add(self.who, self.before))
            .map_err(|error| self.or_exists(error))?;
        let made = self.make_entry(FileKind::Symlink, 0o777, turn, || {
            rustix::fs::symlinkat(text, &self.dir.path, self.name)
        })?;
        self.finish(made, set, 0o777)
    }

    fn special(
        &self,
        kind: FileKind,
        device: (u32, u32),
        set: &SetAttributes,
        turn: Turn<'_>,
    ) -> Try<Found> {
        let (file_type, device) = match kind {
            FileKind::Fifo => (FileType::Fifo, 0),
            FileKind::Socket => (FileType::Socket, 0),
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                // As mknod(2): only root makes devices.
                if !self.inner.as_root || !self.who.is_root() {
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
        self.inner
            .permit(|| permission::check_add(self.who, self.before))
            .map_err(|error| self.or_exists(error))?;
        let mode = set.mode.unwrap_or(DEFAULT_FILE_MODE);
        let first = Mode::from_raw_mode(mode & 0o700);
        let made = self.make_entry(kind, mode, turn, || {
            rustix::fs::mknodat(&self.dir.path, self.name, file_type, first, device)
        })?;
        self.finish(made, set, mode)
    }

    /// Who may not add an entry is told if it is there, as mkdir(2) does.
    fn or_exists(&self, error: Error) -> Error {
        let searchable = permission::granted(self.inner.acting(self.who), self.before, EXECUTE);
        match self.inner.stat_entry(self.dir, self.name, Pace::Patient) {
            Ok(_) if searchable => Error::Exists,
            _ => error,
        }
    }

    /// Makes what can only be made by name, and opens it.
    ///
    /// It is given to the caller next. Through us nobody can put another file in its place, as names
    /// change one at a time; somebody on this machine can, and then it must be seen that it is not
    /// ours to give away.
    fn make_entry<'a>(
        &self,
        kind: FileKind,
        mode: u32,
        turn: Turn<'a>,
        make: impl FnOnce() -> Result<(), Errno>,
    ) -> Try<Made<'a>> {
        let inner = self.inner;
        let begin = sys::coarse_now();
        make()?;
        let opened = inner.open_entry(self.dir, self.name, Pace::Patient);
        let (fd, stat) = opened.inspect_err(|_| {
            self.unmake(&turn.names, |stat| self.is_fresh(stat, kind, mode, begin));
        })?;
        if !self.is_fresh(&stat, kind, mode, begin) || inner.is_known(&fd, &stat) {
            return Err(Error::Busy.into());
        }
        Ok(Made {
            fd,
            opened_for: OpenedFor::Nothing,
            stat,
            turn,
        })
    }

    /// Whether a file is one that was just made with these rights, as far as can be told by looking.
    fn is_fresh(&self, stat: &Stat, kind: FileKind, mode: u32, begin: Time) -> bool {
        let found = &stat.attributes;
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let rights = mode & 0o700;
        found.kind == kind
            && found.uid == self.inner.me.uid
            // Some file systems count no names of directories within a directory.
            && found.links <= links
            // The umask of this process may have taken some away; symbolic links have all.
            && (kind == FileKind::Symlink || found.mode & 0o777 & !rights == 0)
            && (!self.inner.local || is_since(found.mtime, begin))
            && (!self.inner.local || stat.born.is_none_or(|born| is_since(born, begin)))
    }

    /// Gives what was made its owner, group and mode, whatever the umask of this process is.
    fn finish(&self, made: Made<'_>, set: &SetAttributes, mode: u32) -> Try<Found> {
        let inner = self.inner;
        let Made {
            fd,
            opened_for,
            stat,
            turn,
        } = made;
        let set = self.missing(set, mode, &stat.attributes);
        let is_same = |other: &Stat| {
            other.attributes.fileid == stat.attributes.fileid && other.birth == stat.birth
        };
        let kept = self.keep(fd, opened_for, &stat);
        if kept.is_err() {
            self.unmake(&turn.names, is_same);
        }
        drop(turn);
        let (node, writer) = kept?;
        if let Some(fd) = writer {
            inner.keep_writer(&node, fd);
        }
        let as_made = set == SetAttributes::default();
        if !as_made && let Err(stop) = inner.apply_unchecked(&node, &stat.attributes, &set) {
            self.unmake(&inner.names(), is_same);
            return Err(stop);
        }
        inner.persist(&node)?;
        inner.persist(self.dir)?;
        if node.is_directory() {
            inner.persist_places()?;
        }
        if as_made {
            return Ok(Found {
                file: node.id(),
                attributes: stat.attributes,
            });
        }
        inner.found(&node)
    }

    /// What is to be set on a file that was just made, beside what it has already.
    fn missing(&self, set: &SetAttributes, mode: u32, made: &Attributes) -> SetAttributes {
        let inner = self.inner;
        let (gid, bits) = if inner.as_root {
            permission::inherited(self.who, self.before, made.kind)
        } else {
            // The kernel has inherited what there is.
            (made.gid, made.mode & mode::SET_GID)
        };
        let mut set = SetAttributes {
            mode: Some(mode | bits),
            uid: set.uid.or(Some(self.who.uid)),
            gid: set.gid.or(Some(gid)),
            ..*set
        };
        if !inner.as_root {
            (set.uid, set.gid) = (None, None);
        } else if !self.who.is_root() {
            (set.uid, set.gid) = (Some(self.who.uid), Some(gid));
        }
        if let Some(mode) = set.mode {
            let gid = set.gid.unwrap_or(gid);
            let mode = permission::settable_mode(inner.acting(self.who), gid, mode);
            set.mode = Some(mode | bits);
        }
        set.uid = set.uid.filter(|&uid| uid != made.uid);
        set.gid = set.gid.filter(|&gid| gid != made.gid);
        // A change of the owner may take bits away.
        let keeps_mode = set.uid.is_none() && set.gid.is_none();
        set.mode = set.mode.filter(|&mode| !keeps_mode || mode != made.mode);
        // Only a regular file has a size, and none yet.
        set.size = set
            .size
            .filter(|&size| made.kind == FileKind::Regular && size != 0);
        set
    }

    /// Takes what was made among the open files. A descriptor that is open for writing comes back: what
    /// stands for a file must not be, or it could not be executed here.
    fn keep(
        &self,
        fd: OwnedFd,
        opened_for: OpenedFor,
        stat: &Stat,
    ) -> Try<(Arc<Node>, Option<Arc<OwnedFd>>)> {
        let inner = self.inner;
        let (path, writer) = match opened_for {
            OpenedFor::Writing => {
                let path = inner.proc.reopen(fd.as_fd(), OFlags::PATH)?;
                (path.into(), Some(Arc::new(fd)))
            }
            OpenedFor::Reading => (NodeFd::readable(fd), None),
            OpenedFor::Nothing => (fd.into(), None),
        };
        let node = inner.adopt(self.dir, self.name, path, stat, None, Pace::Patient)?;
        Ok((node, writer))
    }

    /// Removes what could not be made as it was asked for, if the name is still that of `ours`.
    fn unmake(&self, _: &MutexGuard<'_, ()>, ours: impl FnOnce(&Stat) -> bool) {
        let inner = self.inner;
        let Ok((fd, stat)) = inner.open_entry(self.dir, self.name, Pace::Patient) else {
            return;
        };
        let flags = if stat.attributes.is_directory() {
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        if ours(&stat) && rustix::fs::unlinkat(&self.dir.path, self.name, flags).is_ok() {
            inner.removed(self.dir.ino, self.name, (&fd, &stat), true);
        }
    }
}

/// Whether a time of a file is not before `begin`; some file systems know seconds only.
fn is_since(time: Time, begin: Time) -> bool {
    time >= begin || time.nanos == 0 && time.seconds >= begin.seconds
}

/// The verifier of an exclusive CREATE is kept in the times of the file until the client sets them
/// (RFC 1813 §3.3.8). The sign bit is left out: not every file system has times before 1970 or
/// beyond 2038.
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
    use super::super::{Changes, LocalFs, LocalFsOptions};
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn file_has_rights_for_others_only_with_its_owner_and_group() {
        let dir = tempfile::tempdir().unwrap();
        let options = LocalFsOptions {
            changes: Changes::Cached,
            ..LocalFsOptions::default()
        };
        let mut inner =
            super::super::Inner::open(dir.path().canonicalize().unwrap(), options).unwrap();
        inner.me = Identity::new(0, 0);
        let before = inner.attributes(&inner.root).unwrap();
        let given_away = SetAttributes {
            uid: Some(1001),
            ..SetAttributes::default()
        };
        let (root, user) = (Identity::root(), Identity::new(1001, 0));
        let mut check = |as_root, who, set: &SetAttributes, mode, expected| {
            inner.as_root = as_root;
            let maker = Maker {
                inner: &inner,
                who,
                dir: &inner.root,
                before: &before,
                name: b"new",
            };
            assert_eq!(maker.first_mode(set, mode), expected, "{mode:o}");
        };
        let none = SetAttributes::default();
        check(true, &root, &none, 0o644, 0o644);
        check(true, &root, &none, 0o4755, 0o755);
        // The group may become another one.
        check(true, &root, &none, 0o640, 0o600);
        check(true, &root, &none, 0o604, 0o600);
        check(true, &root, &given_away, 0o644, 0o600);
        check(true, &user, &none, 0o644, 0o600);
        // Only root's files may have another owner than who says so.
        check(
            true,
            &user,
            &SetAttributes {
                uid: Some(0),
                ..none
            },
            0o644,
            0o600,
        );
        check(false, &user, &none, 0o640, 0o640);
    }

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
        let options = LocalFsOptions {
            changes: Changes::Cached,
            ..LocalFsOptions::default()
        };
        let local = LocalFs::open(dir.path(), options).unwrap();
        let inner = &local.inner;
        let make = |name: &'static str| {
            let root = inner.root.id();
            let changed = inner.change_directory(root, Pace::Patient, |node, before, turn| {
                let maker = Maker {
                    inner,
                    who: &Identity::new(1001, 1001),
                    dir: node,
                    before,
                    name: b"new",
                };
                let made = maker.make_entry(FileKind::Directory, 0o700, turn, move || {
                    let root = &inner.root.path;
                    let mode = Mode::from_raw_mode(0o700);
                    rustix::fs::mkdirat(root, "new", mode)?;
                    rustix::fs::renameat(root, name, root, "new")
                });
                made.map(|_| ())
            });
            changed.unwrap().result
        };
        assert_eq!(make("victim"), Err(Error::Busy));
        std::fs::remove_dir(dir.path().join("new")).unwrap();
        assert_eq!(make("new"), Ok(()));
    }
}
