//! Durability of data and of changes.
//!
//! The fourth layer. It owns the write verifier, the rule when changes reach the disk, the syncs
//! that calls share, and the descriptors that are open for writing (`writers.rs`). It may call the
//! [`Rights`], the [`OpenFiles`] and the [`Volume`]; how data is written, and what a client is told of
//! it, is for the operations.

mod writers;

use super::group_commit::GroupCommit;
use super::open_files::OpenFiles;
use super::open_files::node::Node;
use super::options::Changes;
use super::pending_syncs::PendingSyncs;
use super::rights::Rights;
use super::sys::{Stop, Try};
use super::volume::Volume;
use super::write_verifier::WriteVerifier;
use crate::fs::{Error, FileKind};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Durability of an export.
pub(super) struct Durability {
    volume: Arc<Volume>,
    files: Arc<OpenFiles>,
    rights: Arc<Rights>,
    verifier: WriteVerifier,
    changes: Changes,
    /// Group commit of the whole file system.
    everything: GroupCommit,
    /// Keys of files that may be open for writing.
    writers: Mutex<HashSet<u64>>,
}

/// How to make a file durable.
enum Way<'a> {
    /// No sync is needed.
    None,
    /// Sync this descriptor.
    File(&'a OwnedFd),
    /// Sync the whole file system, because this user may not open the file.
    FileSystem,
}

impl Durability {
    pub(super) fn new(
        volume: Arc<Volume>,
        files: Arc<OpenFiles>,
        rights: Arc<Rights>,
        verifier: WriteVerifier,
        changes: Changes,
    ) -> Self {
        Self {
            volume,
            files,
            rights,
            verifier,
            changes,
            everything: GroupCommit::default(),
            writers: Mutex::default(),
        }
    }

    /// Returns the write verifier.
    pub(super) fn verifier(&self) -> u64 {
        self.verifier.get()
    }

    /// Whether changes are to be durable before a call is answered.
    pub(super) fn is_demanded(&self) -> bool {
        self.changes == Changes::Durable
    }

    /// Makes all data and attributes of a regular file durable. The result is that of the sync; an
    /// error that prevents it is returned in its place.
    pub(super) fn commit(&self, node: &Node) -> Try<Result<(), Errno>> {
        let open = node.writer().clone();
        // Data written from now on is not part of this COMMIT.
        let uncommitted = node.uncommitted.swap(0, Relaxed);
        let synced = self
            .sync_file(node, open.as_deref(), uncommitted != 0)
            .inspect_err(|_| {
                // Nothing was synced, so that it is still to be.
                node.uncommitted.fetch_max(uncommitted, Relaxed);
            })?;
        drop(open);
        if let Err(errno) = synced {
            self.note_loss(errno);
        }
        self.close_writer(node);
        Ok(synced)
    }

    /// Syncs a file by its descriptor for writing, or by one of its own.
    fn sync_file(
        &self,
        node: &Node,
        open: Option<&OwnedFd>,
        has_uncommitted: bool,
    ) -> Try<Result<(), Errno>> {
        if let Some(fd) = open {
            return Ok(rustix::fs::fsync(fd));
        }
        match self.files.open_reader(node) {
            Ok(fd) => return Ok(rustix::fs::fsync(fd)),
            // A file can be writable and not readable for this user, or neither by now.
            Err(Stop::Fail(Error::Access)) => {}
            Err(stop) => return Err(stop),
        }
        match self.volume.proc.reopen(node.path.as_fd(), OFlags::WRONLY) {
            Ok(fd) => Ok(rustix::fs::fsync(fd)),
            // The sync of a whole file system is no work to have for the asking.
            Err(Errno::ACCESS) if !has_uncommitted => Ok(Ok(())),
            Err(Errno::ACCESS) => {
                let root = self.files.open_directory(&self.files.root())?;
                Ok(rustix::fs::syncfs(root))
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Changes the write verifier after a failed write-back, which the kernel reports only once.
    /// The data may be lost: with a new verifier, clients send again what they have not committed
    /// (RFC 1813 §4.8).
    pub(super) fn note_loss(&self, errno: Errno) {
        if errno != Errno::AGAIN {
            tracing::warn!(
                directory = %self.volume.path.display(),
                error = %std::io::Error::from(errno),
                "data of an export could not be written to its disk, and may be lost: clients that still \
                 have it send it again"
            );
            self.verifier.change();
        }
    }

    /// Does the pending syncs of a change on this thread.
    pub(super) fn settle(&self, pending: PendingSyncs) -> Try<()> {
        pending.iter().try_for_each(|dir| self.persist(dir))
    }

    /// Does the pending syncs of a change and then calls `then`, on any thread.
    pub(super) fn settle_then(
        self: &Arc<Self>,
        mut pending: PendingSyncs,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let Some(last) = pending.pop() else {
            return then(Ok(()));
        };
        let way = match self.settle(pending).and_then(|()| self.way(&last)) {
            Ok(way) => way,
            Err(stop) => return then(Err(stop.into())),
        };
        let Way::File(fd) = way else {
            return then(self.sync(&last, way).map_err(Error::from));
        };
        let durability = Arc::clone(self);
        let ended = move |result| then(durability.synced(result).map_err(Error::from));
        let sync = || rustix::fs::fsync(fd);
        match self.volume.syncs.journal {
            true => last.journal_syncs.sync_then(sync, Box::new(ended)),
            false => last.syncs.sync_then(sync, Box::new(ended)),
        }
    }

    /// Makes the attributes or entries of a file durable, where changes are to be. A file that cannot be opened, such as a
    /// symbolic link, is as durable as its directory.
    pub(super) fn persist(&self, node: &Node) -> Try<()> {
        self.sync(node, self.way(node)?)
    }

    fn way<'a>(&self, node: &'a Node) -> Try<Way<'a>> {
        if self.volume.memory
            || self.changes == Changes::Cached
            || !matches!(node.kind, FileKind::Regular | FileKind::Directory)
        {
            return Ok(Way::None);
        }
        if let Some(fd) = node.reader() {
            return Ok(Way::File(fd));
        }
        match self.volume.proc.reopen(node.path.as_fd(), OFlags::RDONLY) {
            // The directory is kept open for reading, because more of its names will change.
            Ok(fd) => Ok(Way::File(node.reader_or(fd))),
            Err(Errno::ACCESS) => Ok(Way::FileSystem),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self, node: &Node, way: Way<'_>) -> Try<()> {
        self.synced(match way {
            Way::None => return Ok(()),
            Way::File(fd) if node.is_directory() => node.syncs.sync(|| rustix::fs::fsync(fd)),
            Way::File(fd) => rustix::fs::fsync(fd),
            Way::FileSystem => rustix::fs::syncfs(self.files.open_directory(&self.files.root())?),
        })
    }

    /// Checks the result of a sync. The kernel may report lost data here, and not again to the
    /// COMMIT of that data.
    pub(super) fn synced(&self, result: Result<(), Errno>) -> Try<()> {
        match result {
            // The file system has no disk.
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => {
                self.note_loss(errno);
                Err(Stop::from(errno))
            }
        }
    }

    /// Like [`persist`](Self::persist), also for files that cannot be opened.
    ///
    /// fsync(2) needs a descriptor of the file itself. Opening a FIFO or a device has side effects,
    /// and a symbolic link cannot be opened. Instead, another file of the same file system is synced.
    pub(super) fn persist_attributes(&self, node: &Node) -> Try<()> {
        let is_special = !matches!(node.kind, FileKind::Regular | FileKind::Directory);
        match is_special && !self.volume.memory && self.changes == Changes::Durable {
            true => self.synced(self.everything.sync(|| self.sync_all_before())),
            false => self.persist(node),
        }
    }

    /// Makes all changes so far durable: by committing the journal, which is in order, or by
    /// syncing the whole file system.
    fn sync_all_before(&self) -> Result<(), Errno> {
        if self.volume.syncs.journal {
            // The file has no name, and is removed when the descriptor is closed.
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            let made = rustix::fs::openat(
                &self.files.root().path,
                c".",
                flags,
                Mode::RUSR | Mode::WUSR,
            );
            if let Ok(file) = made {
                return rustix::fs::fsync(file);
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(
            &self.files.root().path,
            c".",
            flags,
            Mode::empty(),
        )?)
    }

    /// Returns the number of syncs of the whole file system.
    #[cfg(test)]
    pub(super) fn syncs_of_everything(&self) -> u64 {
        self.everything.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localfs::Handles;
    use crate::localfs::open::Opening;
    use crate::localfs::open::tests::opened;
    use crate::localfs::sys::{Pace, ProcFd};
    use std::path::Path;

    fn durability(path: &Path, changes: Changes) -> Durability {
        durability_of(opened(path, Handles::Table), changes)
    }

    fn durability_of(mut opening: Opening, changes: Changes) -> Durability {
        opening.volume.memory = false;
        let volume = Arc::new(opening.volume);
        let verifier = opening.verifier;
        let files = OpenFiles::new(Arc::clone(&volume), opening.root, verifier.clone(), None);
        let files = Arc::new(files);
        let rights = Rights::new(Arc::clone(&volume), Arc::clone(&files), opening.process);
        Durability::new(volume, files, Arc::new(rights), verifier, changes)
    }

    #[test]
    fn changes_of_a_directory_are_synced_if_they_are_to_be_durable() {
        let dir = tempfile::tempdir().unwrap();
        for (changes, syncs) in [(Changes::Cached, 0), (Changes::Durable, 2)] {
            let durability = durability(dir.path(), changes);
            let root = durability.files.root();
            durability.persist(&root).unwrap();
            let mut pending = PendingSyncs::default();
            pending.push(&root.node);
            durability.settle(pending).unwrap();
            assert_eq!(root.syncs.count(), syncs);
        }
    }

    #[test]
    fn commit_that_cannot_open_the_file_leaves_its_data_uncommitted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        let empty = tempfile::tempdir().unwrap();
        let mut opening = opened(dir.path(), Handles::Table);
        let directory = std::fs::File::open(empty.path()).unwrap();
        opening.volume.proc = ProcFd::empty(directory.into());
        let durability = durability_of(opening, Changes::Cached);
        let files = &durability.files;
        let root = files.root();
        let (fd, stat) = files.open_entry(&root, b"f", Pace::Patient).unwrap();
        let file = crate::fs::FileId::new(&[7; 8]).unwrap();
        let node = files.keep_open(files.new_node(file, &stat, fd));
        node.uncommitted.store(3, Relaxed);
        assert!(durability.commit(&node).is_err());
        assert_eq!(node.uncommitted.load(Relaxed), 3);
    }

    #[test]
    fn writer_is_closed_when_it_was_idle_for_a_round() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        let durability = durability(dir.path(), Changes::Cached);
        let files = &durability.files;
        let (fd, stat) = files
            .open_entry(&files.root(), b"f", Pace::Patient)
            .unwrap();
        let file = crate::fs::FileId::new(&[7; 8]).unwrap();
        let node = files.keep_open(files.new_node(file, &stat, fd));
        let is_open = || node.writer().is_some();
        let end_round = || durability.close_idle_writers(files.begin_round().number);
        drop(durability.writer(&node).unwrap());
        end_round();
        assert!(is_open());
        durability.wrote_unstably(&node);
        end_round();
        assert!(!is_open());
        assert!(
            node.reader().is_some(),
            "the loss of its data is to be heard of"
        );
        drop(durability.writer(&node).unwrap());
        assert!(matches!(durability.commit(&node), Ok(Ok(()))));
        assert!(!is_open());
    }

    #[test]
    fn verifier_changes_when_data_is_lost_and_not_when_there_is_no_disk() {
        let dir = tempfile::tempdir().unwrap();
        let durability = durability(dir.path(), Changes::Cached);
        let before = durability.verifier();
        assert!(durability.synced(Err(Errno::OPNOTSUPP)).is_ok());
        durability.note_loss(Errno::AGAIN);
        assert_eq!(durability.verifier(), before);
        assert!(durability.synced(Err(Errno::NOSPC)).is_err());
        assert_ne!(durability.verifier(), before);
    }
}
