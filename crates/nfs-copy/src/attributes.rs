//! Modes, owners and times that copies get.

use super::access_lists::RemoteList;
use super::directory::{LocalDir, LocalName};
use super::entry::{About, Time};
use super::options::Options;
use super::replaced_attributes::without_group;
use super::unkept::Unkept;
use crate::connection::Connection;
use crate::error::{Context, Error, Result};
use crate::show;
use nfs_client::{Fault, Nfs3};
use nfs_proto::{Attributes, FileHandle, FileType, SetAttributes, SetTime, Status};
use rustix::fs::{AtFlags, Gid, Timespec, Timestamps, Uid};
use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::time::{Duration, SystemTime};

/// Permissions without which what is in a directory cannot be made.
const ENTERED: u32 = 0o700;

/// Attributes that a copy is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Permissions, as far as the umask leaves them; those of a file of a server that is replaced.
    pub(crate) mode: u32,
    /// Owner and group of that file.
    pub(crate) owner: Option<(u32, u32)>,
    /// That file, which may have an access control list.
    pub(crate) replaced: Option<FileHandle>,
    /// Attributes of the source that are kept.
    pub(crate) kept: Option<Kept>,
}

/// Attributes of the source that a copy keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    mode: u32,
    uid: u32,
    gid: u32,
    atime: Time,
    mtime: Time,
}

/// A mode for a directory of this mode while it is filled, if its owner could put nothing into it. rsync does the same.
pub(crate) fn opened_mode(mode: u32) -> Option<u32> {
    let is_closed = mode & ENTERED != ENTERED && !rustix::process::geteuid().is_root();
    is_closed.then_some(mode & 0o7777 | ENTERED)
}

impl Wanted {
    /// Attributes for the copy of something in a directory where new files may have these permissions.
    pub(crate) fn of(source: &About, options: &Options, permitted: u32) -> Self {
        let kept = Kept {
            mode: source.mode,
            uid: source.uid,
            gid: source.gid,
            atime: source.atime,
            mtime: source.mtime,
        };
        Self {
            // What runs with the rights of its owner is made so by the owner, not by copying.
            mode: source.mode & 0o777 & permitted,
            owner: None,
            replaced: None,
            kept: options.preserves.then_some(kept),
        }
    }

    /// The same where this file of a server is replaced: unless attributes are kept, its mode, owner and access control list
    /// stay.
    pub(crate) fn in_place_of(self, there: Option<&About>, replaced: Option<FileHandle>) -> Self {
        match there {
            Some(there) if self.kept.is_none() && there.kind == FileType::Regular => Self {
                mode: there.mode & 0o777,
                owner: Some((there.uid, there.gid)),
                replaced,
                kept: None,
            },
            Some(_) | None => self,
        }
    }

    /// The same where the file that is replaced has these attributes by now.
    pub(super) fn in_place_of_what_is_there(self, now: &Attributes) -> Self {
        match self.replaced {
            Some(_) if now.file_type == FileType::Regular => Self {
                mode: now.mode & 0o777,
                owner: Some((now.uid, now.gid)),
                ..self
            },
            Some(_) | None => self,
        }
    }

    /// Whether the file is to have another owner than files of this user usually get.
    fn is_of_another(&self) -> bool {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let owner = self.owner;
        owner.is_some_and(|owner| owner != (uid.as_raw(), gid.as_raw()))
    }

    /// Whether a file that was made with `made` as owner and group, as far as is known, is to have others.
    fn differs(&self, owner: (u32, u32), made: Option<(u32, u32)>) -> bool {
        made.map_or_else(|| self.is_of_another(), |made| made != owner)
    }

    /// Gives a complete file on a server what it was not made with: attributes of the source, or those and the list of
    /// the file that it replaces. `made` is the owner and group that it has, if that is known.
    ///
    /// # Errors
    ///
    /// Errors of the server; [`Unkept`].
    pub(crate) async fn set_remote(
        &self,
        nfs: &Nfs3<Connection>,
        (file, path): (FileHandle, &[u8]),
        list: Option<&RemoteList>,
        made: Option<(u32, u32)>,
    ) -> Result<()> {
        match (&self.kept, self.owner, list) {
            (Some(kept), _, _) => kept.set_remote(nfs, file, path).await,
            (None, Some(owner), Some(list)) => {
                let attributes = (self.mode, owner);
                list.give(nfs, (file, path), attributes, made).await
            }
            (None, Some(owner), None)
                if self.first_mode() != self.mode || self.differs(owner, made) =>
            {
                let (uid, gid) = owner;
                let all = SetAttributes {
                    mode: Some(self.mode),
                    uid: Some(uid),
                    gid: Some(gid),
                    ..SetAttributes::default()
                };
                let no_owner = SetAttributes { uid: None, ..all };
                // Another group gets no rights that were for that one.
                let neither = SetAttributes {
                    mode: Some(without_group(self.mode)),
                    gid: None,
                    ..no_owner
                };
                let set = set_first(nfs, file, &[all, no_owner, neither]).await;
                Ok(set.map_err(|fault| nfs.error_at(fault, "change attributes of", path))?)
            }
            (None, _, _) => Ok(()),
        }
    }

    /// Permissions that a file has until it is complete: its owner's alone while it has another owner than it
    /// will have. A directory with the set-group-ID bit gives it another group, which may get no rights of the group
    /// of the file that is replaced.
    pub(crate) fn first_mode(&self) -> u32 {
        let favours_group = self.owner.is_some() && without_group(self.mode) != self.mode;
        match self.kept.is_some() || favours_group || self.is_of_another() {
            true => 0o600,
            false => self.mode,
        }
    }

    /// Permissions that a directory has until what is in it is there.
    pub(crate) fn first_directory_mode(&self) -> u32 {
        match self.kept {
            Some(_) => ENTERED,
            None => self.mode | ENTERED,
        }
    }

    /// The last step when a directory that was there has all that is to be in it; it had `mode`, and was
    /// [`opened`](opened_mode) or not.
    pub(crate) fn last_of_existing(&self, mode: u32, opened: bool) -> Option<Self> {
        match self.kept {
            Some(_) => Some(*self),
            None => opened.then_some(Self {
                mode: mode & 0o7777,
                owner: None,
                replaced: None,
                kept: None,
            }),
        }
    }

    /// The last step when a new directory has all that is in it; it has `mode` now.
    pub(crate) fn last_of_directory(&self, mode: u32) -> Option<Self> {
        // A directory takes on the set-group-ID bit of the one that it is in.
        let last = mode & 0o7000 | self.mode;
        (self.kept.is_some() || self.first_directory_mode() != self.mode).then_some(Self {
            mode: last,
            owner: None,
            replaced: None,
            kept: self.kept,
        })
    }
}

impl Wanted {
    /// Gives a local directory the attributes that it has in the end.
    ///
    /// # Errors
    ///
    /// One of them cannot be set.
    pub(crate) fn set_directory(&self, dir: &LocalDir) -> Result<()> {
        let set = || -> Result<()> {
            let dir = dir.readable()?;
            match &self.kept {
                Some(kept) => kept.set(&dir)?,
                None => dir.set_permissions(Permissions::from_mode(self.mode))?,
            }
            Ok(())
        };
        set().with_context(|| format!("{}: cannot change attributes", show::path(dir.path())))
    }
}

impl Kept {
    /// Gives a local file or directory these attributes; the owner as far as that is allowed. Where it is not,
    /// the right to act as the owner is not given.
    ///
    /// # Errors
    ///
    /// The first of the attributes that cannot be set. The others are set all the same.
    pub(crate) fn set(&self, file: &File) -> Result<(), Unkept> {
        let mut mode = self.mode;
        if fchown(file, Some(self.uid), Some(self.gid)).is_err() {
            mode &= 0o777;
            // As far as it goes.
            let _ = fchown(file, None, Some(self.gid));
        }
        let mode = file.set_permissions(Permissions::from_mode(mode));
        let times = FileTimes::new()
            .set_accessed(system_time(self.atime))
            .set_modified(system_time(self.mtime));
        let times = file.set_times(times);
        mode.map_err(|error| Unkept::new("mode", error))?;
        times.map_err(|error| Unkept::new("times", error))
    }

    /// Gives a local FIFO or socket its mode.
    ///
    /// # Errors
    ///
    /// The mode cannot be set.
    pub(crate) fn set_mode(&self, special: &LocalName) -> Result<(), Unkept> {
        let set = special.set_mode(self.mode & 0o777);
        set.map_err(|error| Unkept::new("mode", error))
    }

    /// Gives a local symbolic link owner and times; it has no mode.
    ///
    /// # Errors
    ///
    /// The times cannot be set.
    pub(crate) fn set_link(&self, link: &LocalName) -> Result<(), Unkept> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let (dir, name) = (link.dir(), link.name());
        if rustix::fs::chownat(dir, name, Some(uid), Some(gid), flags).is_err() {
            // As far as it goes.
            let _ = rustix::fs::chownat(dir, name, None, Some(gid), flags);
        }
        let time = |time: Time| Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.into(),
        };
        let times = Timestamps {
            last_access: time(self.atime),
            last_modification: time(self.mtime),
        };
        let set = rustix::fs::utimensat(dir, name, &times, flags);
        set.map_err(|errno| Unkept::new("times", io::Error::from(errno)))
    }

    /// Gives something on a server these attributes; the owner as far as that is allowed, as [`set`](Self::set)
    /// does.
    ///
    /// # Errors
    ///
    /// Errors of the server; times that NFS version 3 does not have. What can be set, is set all the same.
    pub(crate) async fn set_remote(
        &self,
        nfs: &Nfs3<Connection>,
        object: FileHandle,
        path: &[u8],
    ) -> Result<()> {
        let time = |time: Time| match time.for_nfs() {
            Some(time) => SetTime::ClientTime(time),
            None => SetTime::DontChange,
        };
        let times = SetAttributes {
            atime: time(self.atime),
            mtime: time(self.mtime),
            ..SetAttributes::default()
        };
        let all = SetAttributes {
            mode: Some(self.mode),
            uid: Some(self.uid),
            gid: Some(self.gid),
            ..times
        };
        let no_owner = SetAttributes {
            mode: Some(self.mode & 0o777),
            uid: None,
            ..all
        };
        let neither = SetAttributes {
            gid: None,
            ..no_owner
        };
        let set = set_first(nfs, object, &[all, no_owner, neither]).await;
        if let Err(fault @ Fault::Status(_)) = set {
            // Each of them may be possible by itself. What is told is why all were not.
            let mode = SetAttributes {
                mode: neither.mode,
                ..SetAttributes::default()
            };
            let _ = set_first(nfs, object, &[mode]).await;
            let _ = set_first(nfs, object, &[times]).await;
            return Err(nfs.error_at(fault, "change attributes of", path).into());
        }
        set.map_err(|fault| nfs.error_at(fault, "change attributes of", path))?;
        match self.atime.for_nfs().and(self.mtime.for_nfs()) {
            Some(_) => Ok(()),
            None => {
                let unkept =
                    Unkept::new("times", "NFS version 3 has those from 1970 to 2106 alone");
                Err(unkept).with_context(|| nfs_client::printable(path))
            }
        }
    }

    /// Gives a symbolic link on a server owner and times, as far as the server does that: some have no times for
    /// them that can be set.
    ///
    /// # Errors
    ///
    /// As [`set_remote`](Self::set_remote).
    pub(crate) async fn set_remote_link(
        &self,
        nfs: &Nfs3<Connection>,
        link: FileHandle,
        path: &[u8],
    ) -> Result<()> {
        match self.set_remote(nfs, link, path).await {
            Err(error)
                if matches!(
                    error.status(),
                    Some(Status::NotSupported | Status::Invalid | Status::Perm)
                ) =>
            {
                Ok(())
            }
            set => set,
        }
    }
}

/// Sets the first of these that the server does not refuse to this user.
async fn set_first(
    nfs: &Nfs3<Connection>,
    object: FileHandle,
    choices: &[SetAttributes],
) -> Result<(), Fault> {
    let mut tried = Ok(());
    for attributes in choices {
        tried = nfs.set_attributes(object, *attributes, None).await;
        match &tried {
            // An owner that is nobody's is refused as an argument that is not valid.
            Err(Fault::Status(Status::Perm | Status::Access | Status::Invalid)) => {}
            Ok(()) | Err(_) => break,
        }
    }
    tried
}

/// Whether an error of attributes leaves the data as it is: the server answers, and does not set them.
pub(crate) fn is_of_attributes(error: &Error) -> bool {
    matches!(error.cause(), Error::Unkept(_)) || error.status().is_some()
}

/// A time as the library has it.
fn system_time(time: Time) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanoseconds.into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let begin = match time.seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(seconds),
        _ => SystemTime::UNIX_EPOCH.checked_sub(seconds),
    };
    // Every time that a file system has is one that the system has.
    begin.unwrap_or(SystemTime::UNIX_EPOCH) + nanos
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn source(mode: u32) -> About {
        let at = |seconds| Time {
            seconds,
            nanoseconds: 123_456_789,
        };
        About {
            kind: nfs_proto::FileType::Regular,
            mode,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            size: 0,
            id: 1,
            fs: 1,
            links: 1,
            atime: at(-5),
            mtime: at(1_000_000_000),
            ctime: at(0),
        }
    }

    #[test]
    fn umask_takes_permissions_away_and_no_copy_acts_as_its_owner() {
        let options = Options {
            umask: 0o027,
            ..Options::default()
        };
        let wanted = Wanted::of(&source(0o6777), &options, 0o777 & !options.umask);
        assert_eq!(
            wanted,
            Wanted {
                mode: 0o750,
                owner: None,
                replaced: None,
                kept: None
            }
        );
        assert_eq!(wanted.last_of_directory(0o2750), None);
        let closed = Wanted::of(&source(0o555), &options, 0o777 & !options.umask);
        assert_eq!(closed.first_directory_mode(), 0o750);
        assert_eq!(closed.last_of_directory(0o2750).unwrap().mode, 0o2550);
    }

    #[test]
    fn mode_and_times_are_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = Options {
            preserves: true,
            ..Options::default()
        };
        let wanted = Wanted::of(&source(0o4751), &options, 0o777 & !options.umask);
        wanted.kept.unwrap().set(file.as_file()).unwrap();
        let about = file.as_file().metadata().unwrap();
        assert_eq!(about.mode() & 0o7777, 0o4751);
        assert_eq!(
            (about.mtime(), about.mtime_nsec()),
            (1_000_000_000, 123_456_789)
        );
        assert_eq!((about.atime(), about.atime_nsec()), (-5, 123_456_789));
    }
}
