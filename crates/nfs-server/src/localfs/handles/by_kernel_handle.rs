//! Finds files by kernel handles, and checks that they are within the export.
//!
//! A kernel handle opens files outside of the export too, so a directory must be seen below the
//! root of the export at least once in `DIRECTORY_TRUST` (`trust.rs`).

use super::kernel::KernelHandles;
use super::trust::Trust;
use crate::fs::{Error, FileId};
use crate::localfs::id;
use crate::localfs::open_files::OpenFiles;
use crate::localfs::open_files::held::{self, Removal};
use crate::localfs::open_files::node::{Node, NodeFd};
use crate::localfs::sys::{self, Pace, Stat, Stop, Try};
use crate::localfs::volume::Volume;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CString;
use std::sync::Arc;

/// Largest number of steps from a directory up to the root, for paths longer than the 4,095 bytes
/// that the kernel reports.
const MAX_STEPS_UP: usize = 1024;

/// Largest number of attempts to read the path of a directory that is being moved.
const TRIES: usize = 3;

/// Finds files by kernel handles.
pub(super) struct ByKernelHandle {
    volume: Arc<Volume>,
    files: Arc<OpenFiles>,
    pub(super) trust: Trust,
    pub(super) handles: KernelHandles,
}

impl ByKernelHandle {
    pub(super) fn new(volume: Arc<Volume>, files: Arc<OpenFiles>, handles: KernelHandles) -> Self {
        Self {
            volume,
            files,
            trust: Trust::new(),
            handles,
        }
    }

    /// Finds the file of a kernel handle.
    pub(super) fn node(&self, file: FileId, pace: Pace) -> Try<Arc<Node>> {
        let key = id::key_of_kernel(file);
        let open = self.files.get(key);
        let node = match open.filter(|node| node.id() == file) {
            Some(node) => node,
            None if self.volume.look(pace) == Pace::Quick => return Err(Stop::WouldBlock),
            None => {
                let fd = self.handles.open_file(file)?;
                let stat = sys::stat(&fd, self.volume.by)?;
                if stat.mount != self.files.root().mount || stat.attributes.links == 0 {
                    return Err(Error::Stale.into());
                }
                if self.volume.is_hidden(&stat) {
                    return Err(Error::Access.into());
                }
                self.files.keep_open(self.files.new_node(file, &stat, fd))
            }
        };
        self.check_within(&node, pace)?;
        Ok(node)
    }

    /// Returns the parent of a directory.
    pub(super) fn parent(&self, node: &Node, pace: Pace) -> Try<Arc<Node>> {
        let fd = sys::open_parent(&node.path, self.volume.look(pace))?;
        let file = self.handles.identify(&fd)?;
        let root = self.files.root();
        if file == root.id() {
            return Ok(Arc::clone(&root.node));
        }
        let stat = sys::stat(&fd, self.volume.by)?;
        let parent = self.files.keep_open(self.files.new_node(file, &stat, fd));
        self.check_within(&parent, pace)?;
        Ok(parent)
    }

    /// Adds a file that was found in a directory to the open files.
    pub(super) fn adopt(&self, parent: &Node, fd: NodeFd, stat: &Stat) -> Try<Arc<Node>> {
        let file = self.handles.identify(&fd)?;
        Ok(self.trust.keep_open(&self.files, (file, stat, fd), parent))
    }

    /// Whether clients hold any file of this export.
    pub(super) fn has_holds(&self) -> bool {
        self.files.has_holds()
    }

    /// Keeps a file open, if clients hold it, of which a name is to be removed. It is opened through the mount of this export.
    pub(super) fn begin_removal(&self, file: FileId) -> Option<Removal> {
        let key = id::key_of_kernel(file);
        if !self.files.has_hold_by_handle(key, file) {
            return None;
        }
        // It was found just now, and is in memory. Where descriptors have run out, files that nobody holds make room for it.
        let find = || self.node(file, Pace::Patient);
        let node = find().or_else(|_| {
            self.files.shed_if_exhausted();
            find()
        });
        held::begin_removal(&self.files, &node.ok()?)
    }

    /// Returns the path of a file on this machine, without keeping it open; `None` if the kernel does not know by which name it was
    /// found, as its handle does not tell.
    pub(super) fn path(&self, file: FileId) -> Option<CString> {
        let open = self.files.peek(id::key_of_kernel(file));
        let path = match open.filter(|node| node.id() == file) {
            Some(node) => self.volume.proc.path(node.path.as_fd()),
            None => {
                let fd = self.handles.open_file(file).ok()?;
                self.volume.proc.path(fd.as_fd())
            }
        };
        let root = self.volume.proc.path(self.files.root().path.as_fd());
        let (path, root) = (path.ok()?, root.ok()?);
        // A file without a known name is shown as the root of everything.
        let is_below = below(path.to_bytes(), root.to_bytes()).is_some_and(|below| below != b".");
        is_below.then_some(path)
    }

    /// Checks that a directory is below the root of the export. This cannot be checked for a file:
    /// it may have many names, and the kernel need not know one.
    fn check_within(&self, node: &Node, pace: Pace) -> Try<()> {
        if !node.is_directory() || self.trust.is_trusted(node) {
            return Ok(());
        }
        let now = self.trust.now();
        match self.is_within(node.path.as_fd(), self.volume.look(pace))? {
            true => {
                Trust::saw(node, now);
                Ok(())
            }
            false => {
                self.files.drop_node(node);
                Err(Error::Stale.into())
            }
        }
    }

    /// Whether a directory is below the root. Its path is only a hint: the proof is that the same
    /// directory is found at that path from the root.
    fn is_within(&self, dir: BorrowedFd<'_>, pace: Pace) -> Try<bool> {
        for _ in 0..TRIES {
            let (Ok(root), Ok(path)) = (
                self.volume.proc.path(self.files.root().path.as_fd()),
                self.volume.proc.path(dir),
            ) else {
                break;
            };
            let Some(path) = below(path.to_bytes(), root.to_bytes()) else {
                continue;
            };
            match sys::open_below(&self.files.root().path, path, pace) {
                Ok(found) if sys::is_same(&found, dir)? => return Ok(true),
                Err(Errno::AGAIN) if pace == Pace::Quick => return Err(Stop::WouldBlock),
                Ok(_) | Err(_) => {}
            }
        }
        if pace == Pace::Quick {
            return Err(Stop::WouldBlock);
        }
        Ok(self.steps_up(dir)?.is_some())
    }

    /// Returns the directories from one up to the root, or `None` if it is not below the root. This
    /// is slow.
    fn steps_up(&self, dir: BorrowedFd<'_>) -> Try<Option<usize>> {
        let mut above: Option<OwnedFd> = None;
        for steps in 0..=MAX_STEPS_UP {
            let at = above.as_ref().map_or(dir, AsFd::as_fd);
            if sys::is_same(at, &self.files.root().path)? {
                return Ok(Some(steps));
            }
            let parent = match sys::open_parent(at, Pace::Patient) {
                Ok(parent) => parent,
                // For the root of a mount, and for an unreachable directory.
                Err(Errno::XDEV | Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            };
            if sys::is_same(&parent, at)? {
                return Ok(None);
            }
            above = Some(parent);
        }
        Ok(None)
    }

    /// Checks that a new directory in this one can be found from the root.
    pub(super) fn check_depth(&self, dir: &Node) -> Try<()> {
        // A path that the kernel reports has fewer steps.
        match self.volume.proc.path(dir.path.as_fd()) {
            Err(Errno::NAMETOOLONG) => match self.steps_up(dir.path.as_fd())? {
                Some(steps) if steps < MAX_STEPS_UP => Ok(()),
                _ => Err(Error::NameTooLong.into()),
            },
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Returns the part of `path` below `root`; `.` for the root.
fn below<'p>(path: &'p [u8], root: &[u8]) -> Option<&'p [u8]> {
    let rest = match root {
        b"/" => path.strip_prefix(b"/")?,
        root => match path.strip_prefix(root)? {
            [] => b"",
            [b'/', rest @ ..] => rest,
            _ => return None,
        },
    };
    Some(if rest.is_empty() { b"." } else { rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_below_a_root_at_whole_names() {
        let check = |path: &'static str, root: &str, expected: Option<&str>| {
            let found = below(path.as_bytes(), root.as_bytes());
            assert_eq!(found, expected.map(str::as_bytes), "{path} {root}");
        };
        check("/srv/a/b", "/srv", Some("a/b"));
        check("/srv", "/srv", Some("."));
        check("/srvs/a", "/srv", None);
        check("/sr", "/srv", None);
        check("/a", "/", Some("a"));
        check("/", "/", Some("."));
        check("(unreachable)/a", "/", None);
    }
}
