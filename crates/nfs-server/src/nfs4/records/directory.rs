//! The directory of the records: its file, that only its owner can change or read it, and that one server uses it.

use super::Disk;
use crate::handle::is_trusted;
use crate::nfs4::state::Nfs4StateError;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, fsync, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Largest file that is read.
const MAX_FILE: u64 = 256 << 20;

/// Directory of the records in a state directory.
const NAME: &str = "nfs4";

/// The file with the records, and its name while it is being made.
const FILE: &str = "clients";
const NEW: &str = "clients.new";

/// A file that is locked while a server uses the records. The other one is replaced.
const LOCK: &str = "lock";

/// The directory of the records of one server.
pub(super) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    /// The file with the records; `None` after an error, when nothing may be appended to it.
    file: Option<File>,
    /// Held as long as the directory is used.
    _lock: OwnedFd,
}

impl Directory {
    /// Opens the directory of the records in a state directory, which are created if they are missing. Returns the bytes of the file;
    /// `None` if there is none.
    ///
    /// # Errors
    ///
    /// It cannot be used, others can change it, or another server uses it.
    pub(super) fn open(state_dir: &Path) -> Result<(Self, Option<Vec<u8>>), Nfs4StateError> {
        let path = state_dir.join(NAME);
        let failed = |error: io::Error| Nfs4StateError::Directory {
            path: path.clone(),
            error,
        };
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path);
        made.map_err(failed)?;
        let above = open_directory(state_dir)?;
        let fd = open_directory(&path)?;
        let lock = create(&fd, LOCK, OFlags::empty()).map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Nfs4StateError::InUse { path }),
            Err(errno) => return Err(failed(errno.into())),
        }
        let bytes = read(&fd, &path)?;
        if bytes.is_none() {
            // The directory may be new, and no record outlives its name.
            fsync(&above).map_err(|errno| failed(errno.into()))?;
        }
        let directory = Self {
            path,
            fd,
            file: None,
            _lock: lock,
        };
        Ok((directory, bytes))
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> PathBuf {
        self.path.join(FILE)
    }
}

impl Disk for Directory {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.file.take().ok_or(io::ErrorKind::Other)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        self.file = Some(file);
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file = None;
        // One may be there that was not complete.
        match unlinkat(&self.fd, NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut file = File::from(create(&self.fd, NEW, OFlags::EXCL)?);
        file.write_all(bytes)?;
        file.sync_all()?;
        renameat(&self.fd, NEW, &self.fd, FILE)?;
        fsync(&self.fd)?;
        self.file = Some(file);
        Ok(())
    }
}

/// Opens a file that no other user can read; creates it if it is missing.
fn create(directory: &OwnedFd, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Opens a directory in which no other user can replace a file. The way to it may have links.
fn open_directory(path: &Path) -> Result<OwnedFd, Nfs4StateError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty());
    let looked_at = opened.and_then(|fd| Ok((fstat(&fd)?, fd)));
    let path = path.to_owned();
    let (about, fd) = match looked_at {
        Ok(found) => found,
        Err(errno) => {
            let error = errno.into();
            return Err(Nfs4StateError::Directory { path, error });
        }
    };
    let is_others = about.st_mode & 0o022 != 0;
    match is_others || !is_trusted(about.st_uid, rustix::process::geteuid().as_raw()) {
        true => Err(Nfs4StateError::NotPrivate { path }),
        false => Ok(fd),
    }
}

fn read(directory: &OwnedFd, path: &Path) -> Result<Option<Vec<u8>>, Nfs4StateError> {
    let path = path.join(FILE);
    // A FIFO would not be opened before it is written to.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(directory, FILE, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.and_then(|fd| Ok((fstat(&fd)?, fd))),
    };
    let read = opened.map_err(io::Error::from).and_then(|(about, fd)| {
        let is_file = FileType::from_raw_mode(about.st_mode).is_file();
        let is_own = is_trusted(about.st_uid, rustix::process::geteuid().as_raw());
        if !is_file || !is_own {
            return Ok(None);
        }
        let size = u64::try_from(about.st_size).unwrap_or(u64::MAX);
        if size > MAX_FILE {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut bytes = Vec::new();
        File::from(fd).take(MAX_FILE).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    });
    match read {
        Ok(Some(bytes)) => Ok(Some(bytes)),
        Ok(None) => Err(Nfs4StateError::NotPrivate { path }),
        Err(error) => Err(Nfs4StateError::Directory { path, error }),
    }
}
