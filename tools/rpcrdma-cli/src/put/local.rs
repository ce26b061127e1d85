//! Local files on their way to a server: found in order, and small ones read ahead.
//!
//! One thread does it all, without a change of threads for each file; it is held back by the channel
//! that it feeds.

use crate::copy::SMALL_FILE;
use crate::show;
use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use nfs_proto::FileHandle;
use std::ffi::{OsStr, OsString};
use std::fs::{File, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc::Sender;

/// Something that the user named.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) target: Target,
    /// Whether it has to wait until all that was found before is copied.
    pub(super) waits: bool,
}

/// Where something goes that the user named.
pub(super) enum Target {
    /// Into this directory, to this path.
    In(Arc<Dir>, Vec<u8>),
    /// What is in it goes into this directory.
    Is(Arc<Dir>),
}

/// A directory of the server, which is made while what goes into it is read.
pub(super) struct Dir {
    pub(super) path: Vec<u8>,
    /// Set once it is known; to nothing if it cannot be made.
    handle: OnceLock<Option<FileHandle>>,
}

/// Something found, by its local path.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) what: anyhow::Result<What>,
}

/// What is to be done on the server, in order.
pub(super) enum What {
    /// A directory. What goes into it follows.
    Directory {
        parent: Arc<Dir>,
        dir: Arc<Dir>,
        mode: u32,
    },
    /// Anything else: into this directory, to this path.
    Other {
        dir: Arc<Dir>,
        to: Vec<u8>,
        content: Content,
    },
    /// What follows may replace what came before.
    Wait,
}

/// What something consists of that is no directory.
pub(super) enum Content {
    /// A file of at most [`SMALL_FILE`] bytes.
    Small { data: Bytes, mode: u32 },
    /// Any other.
    Large { file: File, size: u64, mode: u32 },
    /// The text of a symbolic link.
    Symlink(Vec<u8>),
}

impl Dir {
    /// A directory that is there.
    pub(super) fn there(path: &[u8], handle: FileHandle) -> Arc<Self> {
        Arc::new(Self {
            path: path.to_vec(),
            handle: OnceLock::from(Some(handle)),
        })
    }

    /// Its handle, if it is there.
    pub(super) fn handle(&self) -> Option<FileHandle> {
        self.handle.get().copied().flatten()
    }

    /// Sets what became of making it.
    pub(super) fn set(&self, handle: Option<FileHandle>) {
        self.handle
            .set(handle)
            .expect("a directory is made only once");
    }

    /// The path of a name in it.
    pub(super) fn join(&self, name: &OsStr) -> Vec<u8> {
        match &self.path[..] {
            [] => name.as_bytes().to_vec(),
            path => [path, b"/", name.as_bytes()].concat(),
        }
    }

    fn cannot_be_made(&self) -> bool {
        matches!(self.handle.get(), Some(None))
    }
}

/// Nobody wants to know of more.
struct Enough;

/// Finds what there is to copy, each directory before what is in it, and the files in it before the
/// directories in it.
pub(super) fn find(sources: Vec<Source>, recursive: bool, finds: &Sender<Found>) {
    let finder = Finder { recursive, finds };
    for source in sources {
        if finder.source(source).is_err() {
            return;
        }
    }
}

struct Finder<'a> {
    recursive: bool,
    finds: &'a Sender<Found>,
}

/// A directory that is to be gone through: its path, the directory it goes into, and where to.
struct Left {
    path: PathBuf,
    parent: Arc<Dir>,
    to: Vec<u8>,
}

impl Finder<'_> {
    fn tell(&self, path: PathBuf, what: anyhow::Result<What>) -> Result<(), Enough> {
        let found = Found { path, what };
        self.finds.blocking_send(found).map_err(|_| Enough)
    }

    /// What the user named: a symbolic link stands for what it leads to.
    fn source(&self, source: Source) -> Result<(), Enough> {
        let Source {
            path,
            target,
            waits,
        } = source;
        if waits {
            self.tell(PathBuf::new(), Ok(What::Wait))?;
        }
        let about = path
            .metadata()
            .with_context(|| format!("cannot read {}", show::path(&path)));
        let about = match about {
            Ok(about) => about,
            Err(error) => return self.tell(path, Err(error)),
        };
        if about.is_dir() && !self.recursive {
            let error = anyhow!("{} is a directory: copy it with -r", show::path(&path));
            return self.tell(path, Err(error));
        }
        match target {
            Target::Is(dir) => self.tree(&path, dir),
            Target::In(parent, to) if about.is_dir() => {
                let dir = self.directory(&path, &about, parent, to)?;
                self.tree(&path, dir)
            }
            Target::In(dir, to) => self.other(path, Ok(about.file_type()), dir, to),
        }
    }

    /// Tells what is in a directory and those in it.
    fn tree(&self, top: &Path, dir: Arc<Dir>) -> Result<(), Enough> {
        let mut left = Vec::new();
        self.entries(top, &dir, &mut left)?;
        while let Some(Left { path, parent, to }) = left.pop() {
            if parent.cannot_be_made() {
                continue;
            }
            let about = path
                .symlink_metadata()
                .with_context(|| format!("cannot read {}", show::path(&path)));
            match about {
                Ok(about) => {
                    let dir = self.directory(&path, &about, parent, to)?;
                    self.entries(&path, &dir, &mut left)?;
                }
                Err(error) => self.tell(path, Err(error))?,
            }
        }
        Ok(())
    }

    /// Tells of a directory.
    fn directory(
        &self,
        path: &Path,
        about: &Metadata,
        parent: Arc<Dir>,
        to: Vec<u8>,
    ) -> Result<Arc<Dir>, Enough> {
        let dir = Arc::new(Dir {
            path: to,
            handle: OnceLock::new(),
        });
        let made = What::Directory {
            parent,
            dir: Arc::clone(&dir),
            mode: about.mode(),
        };
        self.tell(path.to_owned(), Ok(made))?;
        Ok(dir)
    }

    /// Tells what is in a directory; the directories in it are added to `left`.
    fn entries(&self, path: &Path, dir: &Arc<Dir>, left: &mut Vec<Left>) -> Result<(), Enough> {
        let entries = match sorted_entries(path) {
            Ok(entries) => entries,
            Err(error) => return self.tell(path.to_owned(), Err(error)),
        };
        let mut directories = Vec::new();
        for (name, file_type) in entries {
            if dir.cannot_be_made() {
                return Ok(());
            }
            let (path, to) = (path.join(&name), dir.join(&name));
            if file_type.as_ref().is_ok_and(FileType::is_dir) {
                let parent = Arc::clone(dir);
                directories.push(Left { path, parent, to });
            } else {
                self.other(path, file_type, Arc::clone(dir), to)?;
            }
        }
        left.extend(directories.into_iter().rev());
        Ok(())
    }

    /// Tells of what is no directory.
    fn other(
        &self,
        path: PathBuf,
        file_type: io::Result<FileType>,
        dir: Arc<Dir>,
        to: Vec<u8>,
    ) -> Result<(), Enough> {
        let what = content(&path, file_type).map(|content| What::Other { dir, to, content });
        self.tell(path, what)
    }
}

/// The names in a directory in order, and what they stand for.
fn sorted_entries(dir: &Path) -> anyhow::Result<Vec<(OsString, io::Result<FileType>)>> {
    let unreadable = || format!("cannot read the directory {}", show::path(dir));
    let mut entries = Vec::new();
    for entry in dir.read_dir().with_context(unreadable)? {
        let entry = entry.with_context(unreadable)?;
        entries.push((entry.file_name(), entry.file_type()));
    }
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(entries)
}

/// Reads a small file, opens another, or reads the text of a symbolic link.
fn content(path: &Path, file_type: io::Result<FileType>) -> anyhow::Result<Content> {
    let unreadable = || format!("cannot read {}", show::path(path));
    let file_type = file_type.with_context(unreadable)?;
    if file_type.is_symlink() {
        let text = path.read_link().with_context(unreadable)?;
        return Ok(Content::Symlink(OsString::from(text).into_vec()));
    }
    if !file_type.is_file() {
        bail!(
            "{} is neither a file nor a directory nor a symbolic link: it is not copied",
            show::path(path)
        );
    }
    let file = File::open(path).with_context(unreadable)?;
    let about = file.metadata().with_context(unreadable)?;
    let (size, mode) = (about.len(), about.mode());
    if let Ok(room) = usize::try_from(size)
        && size <= SMALL_FILE
    {
        // One byte more than it has: so the read that finds its end needs no more memory.
        let mut data = Vec::with_capacity(room + 1);
        let mut start = (&file).take(SMALL_FILE + 1);
        start.read_to_end(&mut data).with_context(unreadable)?;
        if data.len() as u64 <= SMALL_FILE {
            let data = Bytes::from(data);
            return Ok(Content::Small { data, mode });
        }
    }
    // A file that grew meanwhile is not a small one either.
    let size = size.max(SMALL_FILE + 1);
    Ok(Content::Large { file, size, mode })
}
