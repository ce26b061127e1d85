//! Modes, owners and times that copies get.

use super::directory::LocalName;
use super::entry::{About, Time};
use super::options::Options;
use anyhow::{anyhow, bail};
use nfs_client::{Fault, Nfs3};
use nfs_proto::{FileHandle, NfsTime, SetAttributes, SetTime, Status};
use rpcrdma::Client;
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
    /// Permissions, as far as the umask leaves them.
    pub(crate) mode: u32,
    /// What is kept of the source.
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

impl Wanted {
    pub(crate) fn of(source: &About, options: &Options) -> Self {
        let kept = Kept {
            mode: source.mode,
            uid: source.uid,
            gid: source.gid,
            atime: source.atime,
            mtime: source.mtime,
        };
        Self {
            // What runs with the rights of its owner is made so by the owner, not by copying.
            mode: source.mode & 0o777 & !options.umask,
            kept: options.preserves.then_some(kept),
        }
    }

    /// Permissions that a file has until it is complete: while it has another owner than it will have,
    /// nobody else can read it.
    pub(crate) fn first_mode(&self) -> u32 {
        match self.kept {
            Some(_) => 0o600,
            None => self.mode,
        }
    }

    /// Permissions that a directory has until what is in it is there.
    pub(crate) fn first_directory_mode(&self) -> u32 {
        match self.kept {
            Some(_) => ENTERED,
            None => self.mode | ENTERED,
        }
    }

    /// What is left to be done when a new directory has all that is in it; it has `mode` now.
    pub(crate) fn last_of_directory(&self, mode: u32) -> Option<Self> {
        // A directory takes on the set-group-ID bit of the one that it is in.
        let last = mode & 0o7000 | self.mode;
        (self.kept.is_some() || self.first_directory_mode() != self.mode).then_some(Self {
            mode: last,
            kept: self.kept,
        })
    }
}

impl Kept {
    /// Gives a local file or directory these attributes; the owner as far as that is allowed. Where it is not,
    /// the right to act as the owner is not given.
    pub(crate) fn set(&self, file: &File) -> io::Result<()> {
        let mut mode = self.mode;
        if fchown(file, Some(self.uid), Some(self.gid)).is_err() {
            mode &= 0o777;
            // As far as it goes.
            let _ = fchown(file, None, Some(self.gid));
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        let times = FileTimes::new()
            .set_accessed(system_time(self.atime))
            .set_modified(system_time(self.mtime));
        file.set_times(times)
    }

    /// Gives a local symbolic link owner and times; it has no mode.
    pub(crate) fn set_link(&self, link: &LocalName) -> io::Result<()> {
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
        Ok(rustix::fs::utimensat(dir, name, &times, flags)?)
    }

    /// Gives something on a server these attributes; the owner as far as that is allowed, as [`set`](Self::set)
    /// does.
    ///
    /// # Errors
    ///
    /// What the server says; times that NFS version 3 does not have.
    pub(crate) async fn set_remote(
        &self,
        nfs: &Nfs3<Client>,
        object: FileHandle,
        path: &[u8],
    ) -> anyhow::Result<()> {
        let (atime, mtime) = (self.time(self.atime, path)?, self.time(self.mtime, path)?);
        let times = SetAttributes {
            atime: SetTime::ClientTime(atime),
            mtime: SetTime::ClientTime(mtime),
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
        let mut tried = Ok(());
        for attributes in [all, no_owner, neither] {
            tried = nfs.set_attributes(object, attributes, None).await;
            match &tried {
                // An owner that is nobody's is refused as an argument that is not valid.
                Err(Fault::Status(Status::Perm | Status::Access | Status::Invalid)) => {}
                Ok(()) | Err(_) => break,
            }
        }
        Ok(tried.map_err(|fault| fault.at("change attributes of", path))?)
    }

    /// Gives a symbolic link on a server owner and times, as far as the server does that: some have no times for
    /// them that can be set.
    ///
    /// # Errors
    ///
    /// As [`set_remote`](Self::set_remote).
    pub(crate) async fn set_remote_link(
        &self,
        nfs: &Nfs3<Client>,
        link: FileHandle,
        path: &[u8],
    ) -> anyhow::Result<()> {
        match self.set_remote(nfs, link, path).await {
            Err(error)
                if error
                    .downcast_ref::<nfs_client::Error>()
                    .is_some_and(|error| {
                        matches!(
                            error.status(),
                            Some(Status::NotSupported | Status::Invalid | Status::Perm)
                        )
                    }) =>
            {
                Ok(())
            }
            set => set,
        }
    }

    fn time(&self, time: Time, path: &[u8]) -> anyhow::Result<NfsTime> {
        match time.for_nfs() {
            Some(time) => Ok(time),
            None => bail!(anyhow!(
                "cannot keep the times of {}: NFS version 3 has times from 1970 to 2106",
                nfs_client::printable(path)
            )),
        }
    }
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
        let wanted = Wanted::of(&source(0o6777), &options);
        assert_eq!(
            wanted,
            Wanted {
                mode: 0o750,
                kept: None
            }
        );
        assert_eq!(wanted.last_of_directory(0o2750), None);
        let closed = Wanted::of(&source(0o555), &options);
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
        let wanted = Wanted::of(&source(0o4751), &options);
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
