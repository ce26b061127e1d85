//! File handles: which file has which id, and where it is.
//!
//! The fifth layer, and the last below the operations. It finds files by kernel handles
//! (`by_kernel_handle.rs`), which need no state, or by their locations (`by_location.rs`), and owns
//! what that takes: the mount by which kernel handles are opened, or the table of locations with
//! what is remembered of it. It may call the [`OpenFiles`] and the [`Volume`]; it has no use for
//! rights and durability, and knows no operation.

mod by_kernel_handle;
pub(in crate::localfs) mod by_location;
mod by_path;
mod inode_index;
pub(in crate::localfs) mod kernel;
mod locations;
mod mounts;
pub(in crate::localfs) mod names;
mod neighbours;
pub(in crate::localfs) mod table;
mod trust;

use super::id::{self, IdentifiedBy, TableId};
use super::open_files::OpenFiles;
use super::open_files::node::{Gone, Node, NodeFd};
use super::sys::{Pace, Stat, Try};
use super::volume::Volume;
use super::volume::in_flight::FileSystemId;
use crate::fs::FileId;
use arc_swap::ArcSwapOption;
use by_kernel_handle::ByKernelHandle;
use by_location::ByLocation;
use kernel::KernelHandles;
use names::Named;
use neighbours::{Neighbours, Removals};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use table::Table;

/// Number of the root directory where numbers are derived from paths.
const ROOT_BY_PATH: u64 = 1;

/// Source of the handles of an export.
pub(super) enum Resolver {
    /// Files are found by kernel handles.
    Kernel(KernelHandles),
    /// Files are found by their locations.
    Table(Table),
}

impl Resolver {
    /// Returns the id of a root directory.
    pub(super) fn identify_root(
        &self,
        by: IdentifiedBy,
        root: BorrowedFd<'_>,
        stat: &Stat,
    ) -> Result<FileId, Errno> {
        match self {
            Self::Kernel(handles) => handles.identify(root),
            Self::Table(_) => Ok(root_id(by, stat)),
        }
    }
}

/// Returns the id of a root directory without a kernel handle.
fn root_id(by: IdentifiedBy, stat: &Stat) -> FileId {
    let (number, birth) = match by.path() {
        true => (ROOT_BY_PATH, 0),
        false => (stat.attributes.fileid, stat.birth),
    };
    let id = TableId {
        number,
        birth,
        home: number,
    };
    id.into()
}

/// The way in which files are found.
#[expect(clippy::large_enum_variant, reason = "an export has one")]
enum Finder {
    Kernel(Arc<ByKernelHandle>),
    Table(ByLocation),
}

/// The file handles of an export.
pub(super) struct FileHandles {
    volume: Arc<Volume>,
    files: Arc<OpenFiles>,
    finder: Finder,
    neighbours: Arc<Neighbours>,
    /// See [`LocalFs::know_mounts`](super::LocalFs::know_mounts).
    known_mounts: ArcSwapOption<HashSet<u64>>,
}

impl FileHandles {
    pub(super) fn new(
        volume: Arc<Volume>,
        files: Arc<OpenFiles>,
        resolver: Resolver,
        file_system: FileSystemId,
    ) -> Self {
        let (of_volume, of_files) = (Arc::clone(&volume), Arc::clone(&files));
        Self {
            finder: match resolver {
                Resolver::Kernel(handles) => {
                    let finder = ByKernelHandle::new(of_volume, of_files, handles);
                    Finder::Kernel(Arc::new(finder))
                }
                Resolver::Table(table) => {
                    Finder::Table(ByLocation::new(of_volume, of_files, table))
                }
            },
            volume,
            files,
            neighbours: Neighbours::of(file_system),
            known_mounts: ArcSwapOption::empty(),
        }
    }

    /// Takes part in removals through other exports of the file system from here on.
    pub(super) fn join_neighbours(&self) {
        if let Finder::Kernel(finder) = &self.finder {
            self.neighbours.join(finder);
        }
    }

    /// Finds the file of a handle.
    pub(super) fn node(&self, file: FileId, pace: Pace) -> Try<Arc<Node>> {
        let root = self.files.root();
        if file == root.id() {
            return Ok(Arc::clone(&root.node));
        }
        match &self.finder {
            Finder::Kernel(finder) => finder.node(file, pace),
            Finder::Table(finder) => finder.node(file, pace),
        }
    }

    /// Finds the parent directory of `node`; the root is its own parent.
    pub(super) fn parent(&self, node: &Node, pace: Pace) -> Try<Arc<Node>> {
        let root = self.files.root();
        if node.id() == root.id() {
            return Ok(Arc::clone(&root.node));
        }
        match &self.finder {
            Finder::Kernel(finder) => finder.parent(node, pace),
            Finder::Table(finder) => finder.parent(node, pace),
        }
    }

    /// Adds a file that was found in a directory to the open files.
    pub(super) fn adopt(
        &self,
        parent: &Node,
        name: &[u8],
        fd: impl Into<NodeFd>,
        stat: &Stat,
        pace: Pace,
    ) -> Try<Arc<Node>> {
        match &self.finder {
            Finder::Kernel(finder) => finder.adopt(parent, fd.into(), stat),
            Finder::Table(finder) => finder.adopt(parent, name, fd.into(), stat, None, pace),
        }
    }

    /// Returns the id of a file that was found in a directory, and remembers the location.
    pub(super) fn identify(
        &self,
        parent: u64,
        name: &[u8],
        (fd, stat): (impl AsFd, &Stat),
        pace: Pace,
    ) -> Try<FileId> {
        match &self.finder {
            Finder::Kernel(finder) => Ok(finder.handles.identify(fd)?),
            Finder::Table(finder) => finder.identify(parent, name, stat, None, pace),
        }
    }

    /// Returns the id of the root directory of the export, or of one that takes its place.
    pub(super) fn identify_root(&self, root: BorrowedFd<'_>, stat: &Stat) -> Result<FileId, Errno> {
        match &self.finder {
            Finder::Kernel(finder) => finder.handles.identify(root),
            Finder::Table(_) => Ok(root_id(self.volume.by, stat)),
        }
    }

    /// Whether this file was seen before.
    pub(super) fn is_known(&self, fd: impl AsFd, stat: &Stat) -> bool {
        let key = match &self.finder {
            Finder::Kernel(finder) => finder.handles.identify(fd).ok().map(id::key_of_kernel),
            // Only the path may tell.
            Finder::Table(_) => (!self.volume.by.path()).then_some(stat.attributes.fileid),
        };
        let open = key.and_then(|key| self.files.get(key));
        // Without a birth time, a new file cannot be distinguished from an earlier one with its
        // inode number.
        stat.born.is_some() && open.is_some_and(|node| node.birth == stat.birth)
    }

    /// Checks that a file in this directory can be found again through the directories above it.
    pub(super) fn check_depth(&self, dir: &Node) -> Try<()> {
        match &self.finder {
            Finder::Kernel(finder) => finder.check_depth(dir),
            Finder::Table(finder) => finder.check_depth(dir),
        }
    }

    /// Checks that handles of created or moved files can be stored. If not, the change is not made.
    pub(super) fn check_storage(&self) -> Try<()> {
        match &self.finder {
            Finder::Kernel(_) => Ok(()),
            Finder::Table(finder) => Ok(finder.table.check()?),
        }
    }

    /// Makes the handles of created and moved files durable.
    pub(super) fn sync(&self) -> Try<()> {
        match &self.finder {
            Finder::Kernel(_) => Ok(()),
            Finder::Table(finder) => Ok(finder.table.wait()?),
        }
    }

    /// Whether the location of a file that is no directory may have to be read from a disk.
    pub(super) fn may_read_disk(&self) -> bool {
        match &self.finder {
            Finder::Kernel(_) => false,
            Finder::Table(finder) => finder.table.has_files(),
        }
    }

    /// Records a new name of a file, after a rename or a link.
    pub(super) fn moved(&self, stat: &Stat, from: Named<'_>, to: &Node, name: &[u8]) -> Try<()> {
        match &self.finder {
            Finder::Kernel(_) => Ok(()),
            Finder::Table(finder) => finder.moved(stat, from, to, name),
        }
    }

    /// Records that a name of a file was removed; its last one if `gone`.
    ///
    /// The inode number may belong to a new file already, whose location is kept. The returned node
    /// holds the file open.
    pub(super) fn removed(
        &self,
        parent: u64,
        name: &[u8],
        stat: &Stat,
        gone: bool,
    ) -> Option<Arc<Node>> {
        match &self.finder {
            Finder::Kernel(_) if gone => self.files.take_removed(stat.attributes.fileid, stat),
            Finder::Kernel(_) => None,
            Finder::Table(finder) => finder.removed(parent, name, stat, gone),
        }
    }

    /// Keeps a file open, of which a name is to be removed, in each export of its file system in which clients hold it.
    pub(super) fn begin_removal(&self, fd: impl AsFd) -> Removals {
        self.neighbours.begin_removal(fd)
    }

    /// Returns the path on this machine of a file that its handle finds again, if there is one. May read the disk.
    pub(super) fn path(&self, file: FileId) -> Option<PathBuf> {
        match &self.finder {
            Finder::Kernel(finder) => {
                let path = finder.path(file)?;
                Some(OsString::from_vec(path.into_bytes()).into())
            }
            Finder::Table(_) => None,
        }
    }

    /// Removes the location of a removed file, which is not open any more.
    pub(super) fn forget(&self, gone: &Gone) {
        let Finder::Table(finder) = &self.finder else {
            return;
        };
        // Where birth times do not distinguish the two, a new file may have its number by now, and the location is
        // that of the new one.
        let open = self.files.peek(gone.number);
        if open.is_none_or(|node| node.birth != gone.birth) {
            finder.forget(gone);
        }
    }

    /// Forgets all locations that are not in the table.
    pub(super) fn forget_all(&self) {
        if let Finder::Table(finder) = &self.finder {
            let gone = finder.links().trim(0);
            drop(gone);
        }
    }

    /// Begins a round of the sweeper.
    pub(super) fn begin_round(&self, round: u64) {
        if let Finder::Table(finder) = &self.finder {
            finder.begin_round(round);
        }
    }

    /// Trusts the location of a directory for this long.
    #[cfg(test)]
    pub(super) fn trust_for(&mut self, lasts: std::time::Duration) {
        match &mut self.finder {
            Finder::Kernel(finder) => {
                let finder = Arc::get_mut(finder).expect("it has no neighbours yet");
                finder.trust.lasts = lasts;
            }
            Finder::Table(finder) => finder.trust.lasts = lasts,
        }
    }

    #[cfg(test)]
    pub(super) fn by_location(&self) -> &ByLocation {
        match &self.finder {
            Finder::Kernel(_) => panic!("files are found by kernel handles"),
            Finder::Table(finder) => finder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Error;
    use crate::localfs::Handles;
    use crate::localfs::open::tests::opened;
    use crate::localfs::sys::Stop;

    #[test]
    fn handle_leads_to_its_file_after_it_was_closed_and_to_nothing_after_it_was_removed() {
        for way in [Handles::Auto, Handles::Table] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir(dir.path().join("d")).unwrap();
            std::fs::write(dir.path().join("d/f"), "data").unwrap();
            let opening = opened(dir.path(), way);
            let volume = Arc::new(opening.volume);
            let files = OpenFiles::new(Arc::clone(&volume), opening.root, opening.verifier, None);
            let files = Arc::new(files);
            let handles =
                FileHandles::new(volume, Arc::clone(&files), opening.resolver, opening.device);
            let find = |dir: &Node, name: &[u8]| {
                let (fd, stat) = files.open_entry(dir, name, Pace::Patient).unwrap();
                handles.adopt(dir, name, fd, &stat, Pace::Patient).unwrap()
            };
            let root = Arc::clone(&files.root().node);
            let d = find(&root, b"d").id();
            let f = find(&handles.node(d, Pace::Patient).unwrap(), b"f").id();
            files.close_all();
            handles.forget_all();
            let node = handles.node(f, Pace::Patient).unwrap();
            assert_eq!(node.id(), f);
            let parent = handles.node(d, Pace::Patient).unwrap();
            let above = handles.parent(&parent, Pace::Patient).unwrap();
            assert_eq!((parent.id(), above.id()), (d, root.id()));

            let stat = files.stat(&node).unwrap();
            std::fs::remove_file(dir.path().join("d/f")).unwrap();
            let open = handles.removed(parent.number, b"f", &stat, true);
            assert!(open.is_some_and(|open| Arc::ptr_eq(&open, &node)));
            drop(node);
            let found = handles.node(f, Pace::Patient).map(|node| node.id());
            assert!(matches!(found, Err(Stop::Fail(Error::Stale))), "{found:?}");
        }
    }
}
