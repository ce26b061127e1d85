//! Local directories that are held open.
//!
//! Everything that a copy makes, replaces, removes or reads in such a directory is named in it (openat(2)), and a directory in it
//! is entered only if it is one and no symbolic link. So whoever can change a tree while it is copied cannot lead the
//! copy out of it: this matters where root copies into or from a directory of somebody else.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A local directory that is held open.
#[derive(Debug)]
pub(crate) struct LocalDir {
    fd: OwnedFd,
    /// The path at which it was found.
    path: PathBuf,
    /// Whether this copy has made it, so that names are free there but for those that it has given.
    is_new: bool,
}

/// A name in a local directory.
#[derive(Clone, Debug)]
pub(crate) struct LocalName {
    dir: Arc<LocalDir>,
    name: OsString,
}

/// Flags that open a directory: no right to read it is needed to use what is in it.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl LocalDir {
    /// A directory that was named: symbolic links are followed.
    ///
    /// # Errors
    ///
    /// If there is none. So for everything below.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            fd: rustix::fs::open(path, DIRECTORY, Mode::empty())?,
            path: path.to_owned(),
            is_new: false,
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it.
    pub(crate) fn name(self: &Arc<Self>, name: impl Into<OsString>) -> LocalName {
        LocalName {
            dir: Arc::clone(self),
            name: name.into(),
        }
    }

    /// Sets its permissions, also if they do not let it be read.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
    }

    /// The directory, to be read, or changed itself.
    pub(crate) fn readable(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, c".", flags, Mode::empty())?.into())
    }
}

impl AsFd for LocalDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl LocalName {
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(crate) fn dir(&self) -> &LocalDir {
        &self.dir
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path.join(&self.name)
    }

    /// Another name in the same directory.
    pub(crate) fn beside(&self, name: &OsStr) -> Self {
        self.dir.name(name)
    }

    /// The directory of this name.
    pub(crate) fn enter(&self) -> io::Result<Arc<LocalDir>> {
        self.entered(false)
    }

    /// The directory of this name, which was made just now.
    pub(crate) fn enter_new(&self) -> io::Result<Arc<LocalDir>> {
        self.entered(true)
    }

    fn entered(&self, is_new: bool) -> io::Result<Arc<LocalDir>> {
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty())?;
        let path = self.path();
        Ok(Arc::new(LocalDir { fd, path, is_new }))
    }

    /// Whether something may have the name that this copy has not made. It takes no look at the directory, whose lock
    /// those wait for who make files in it.
    pub(crate) fn may_be_taken(&self) -> bool {
        !self.dir.is_new
    }

    /// Opens a file, which is no symbolic link. Nobody is waited for who opens the other end of a FIFO.
    pub(crate) fn open(&self, flags: OFlags, mode: u32) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        Ok(rustix::fs::openat(&self.dir, &self.name, flags, mode)?.into())
    }

    /// Attributes of what has the name.
    pub(crate) fn about(&self) -> io::Result<Stat> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::statat(&self.dir, &self.name, flags)?)
    }

    /// Numbers of device and inode of what has the name.
    pub(crate) fn id(&self) -> io::Result<(u64, u64)> {
        let about = self.about()?;
        Ok((about.st_dev, about.st_ino))
    }

    /// Whether its directory lists this very name. What has the name otherwise has another spelling of it, on a file
    /// system that does not tell the two apart. It reads the whole directory.
    pub(crate) fn is_listed(&self) -> io::Result<bool> {
        for entry in Dir::read_from(self.dir.readable()?)? {
            if entry?.file_name().to_bytes() == self.name.as_bytes() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The text of a symbolic link.
    pub(crate) fn read_link(&self) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.dir, &self.name, Vec::new())?.into_bytes())
    }

    pub(crate) fn make_directory(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(
            &self.dir,
            &self.name,
            Mode::from_raw_mode(mode),
        )?)
    }

    pub(crate) fn make_link(&self, text: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(text, &self.dir, &self.name)?)
    }

    /// Makes a FIFO or a socket.
    pub(crate) fn make_special(&self, is_socket: bool, mode: u32) -> io::Result<()> {
        let kind = match is_socket {
            true => FileType::Socket,
            false => FileType::Fifo,
        };
        let mode = Mode::from_raw_mode(mode);
        Ok(rustix::fs::mknodat(&self.dir, &self.name, kind, mode, 0)?)
    }

    /// Sets the permissions of a FIFO or socket. A symbolic link that took its place is not followed.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty())?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        if !matches!(kind, FileType::Fifo | FileType::Socket) {
            return Err(Errno::NOENT.into());
        }
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?)
    }

    /// Removes it: an empty directory, or anything else.
    pub(crate) fn remove(&self, is_directory: bool) -> io::Result<()> {
        let flags = match is_directory {
            true => AtFlags::REMOVEDIR,
            false => AtFlags::empty(),
        };
        Ok(rustix::fs::unlinkat(&self.dir, &self.name, flags)?)
    }

    /// Gives it another name, in place of what has that name.
    pub(crate) fn replace(&self, to: &Self) -> io::Result<()> {
        Ok(rustix::fs::renameat(
            &self.dir, &self.name, &to.dir, &to.name,
        )?)
    }

    /// Gives it another name, which nothing has, if the file system knows how: [`AlreadyExists`](io::ErrorKind::AlreadyExists)
    /// otherwise.
    pub(crate) fn rename_new(&self, to: &Self) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(
            &self.dir, &self.name, &to.dir, &to.name, flags,
        )?)
    }

    /// Gives it another name, which nothing has: [`AlreadyExists`](io::ErrorKind::AlreadyExists) otherwise.
    pub(crate) fn name_new(&self, to: &Self) -> io::Result<()> {
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.dir, &self.name, &to.dir, &to.name, flags) {
            // A file system may not know how, and may have no links either.
            Err(Errno::INVAL | Errno::NOSYS) => match self.link(to) {
                Ok(()) => self.remove(false),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
                Err(_) => match to.about() {
                    Ok(_) => Err(Errno::EXIST.into()),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => self.replace(to),
                    Err(error) => Err(error),
                },
            },
            named => Ok(named?),
        }
    }

    /// Makes a further name of it, which nothing has.
    pub(crate) fn link(&self, to: &Self) -> io::Result<()> {
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(
            &self.dir, &self.name, &to.dir, &to.name, flags,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn directory_is_entered_and_used_wherever_its_path_leads_by_then() {
        let around = tempfile::tempdir().unwrap();
        let (dir, moved) = (around.path().join("dir"), around.path().join("moved"));
        let elsewhere = around.path().join("elsewhere");
        for path in [&dir, &elsewhere] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("old"), "old").unwrap();
        }
        let top = LocalDir::open(around.path()).unwrap();
        let held = top.name("dir").enter().unwrap();
        std::fs::rename(&dir, &moved).unwrap();
        symlink(&elsewhere, &dir).unwrap();
        assert!(top.name("dir").enter().is_err(), "it is a symbolic link");
        held.name("new").make_directory(0o700).unwrap();
        held.name("old").remove(false).unwrap();
        assert!(moved.join("new").is_dir() && !moved.join("old").exists());
        assert_eq!(elsewhere.read_dir().unwrap().count(), 1);
    }

    #[test]
    fn name_is_listed_in_its_own_spelling() {
        let around = tempfile::tempdir().unwrap();
        std::fs::write(around.path().join("Makefile"), "").unwrap();
        let dir = LocalDir::open(around.path()).unwrap();
        assert!(dir.name("Makefile").is_listed().unwrap());
        assert!(!dir.name("makefile").is_listed().unwrap());
    }

    #[test]
    fn new_name_replaces_nothing() {
        let around = tempfile::tempdir().unwrap();
        std::fs::write(around.path().join("a"), "a").unwrap();
        std::fs::write(around.path().join("b"), "b").unwrap();
        let dir = LocalDir::open(around.path()).unwrap();
        let (a, b, c) = (dir.name("a"), dir.name("b"), dir.name("c"));
        let error = a.name_new(&b).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(b.path()).unwrap(), b"b");
        a.name_new(&c).unwrap();
        assert_eq!(std::fs::read(c.path()).unwrap(), b"a");
        assert!(a.about().is_err());
    }
}
