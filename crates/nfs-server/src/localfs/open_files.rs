//! Files that are open.
//!
//! The second layer. It owns the descriptors of the export: the root directory, and the files that
//! stay open between calls, with the time of their last use. It opens entries of directories, and
//! nothing that is not in the exported file system. It may call the [`Volume`], and knows neither
//! handles nor callers: how a file is found, and who may use it, is for the layers above.
//!
//! **Idle files are closed** (`idle.rs`), and files that clients hold open are not, as far as there are descriptors for them (`held.rs`,
//! `holds.rs`).

mod cache;
pub(in crate::localfs) mod held;
mod holders;
mod holds;
mod idle;
mod limit;
mod lock_file;
pub(in crate::localfs) mod node;
mod opening;
pub(in crate::localfs) mod sweeper;
mod unnamed;

use crate::fs::{Attributes, Error, FileId};
use crate::localfs::id;
use crate::localfs::sys::{self, Stat, Stop, Try};
use crate::localfs::volume::Volume;
use crate::localfs::volume::change_values::names::{Claim, NameChange, Own};
use crate::localfs::volume::change_values::{During, Place};
use crate::localfs::volume::in_flight::Changing;
use crate::localfs::volume::witness::DirectoryId;
use crate::localfs::write_verifier::WriteVerifier;
use arc_swap::{ArcSwap, Guard};
use cache::Cache;
pub(in crate::localfs) use idle::WRITE_BACK_ROUNDS;
use limit::Counted;
use node::{Gone, Node, NodeFd, Root};
pub(in crate::localfs) use opening::DIRECTORY_BUFFER;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sweeper::Sweeper;

/// Names an open file among those of the machine.
pub(in crate::localfs) fn place(node: &Node) -> Place {
    Place {
        id: DirectoryId {
            device: node.device,
            ino: node.ino,
        },
        is_directory: node.is_directory(),
    }
}

/// Number of newly opened files after which the limit of open files is checked.
const OPEN_FILES_STEP: usize = 16;

/// The open files of an export.
pub(in crate::localfs) struct OpenFiles {
    volume: Arc<Volume>,
    root: ArcSwap<Root>,
    cache: Mutex<Cache>,
    verifier: WriteVerifier,
    sweeper: Arc<Sweeper>,
    /// Current round of the sweeper, from 1.
    round: AtomicU64,
    /// Largest number of files kept open; `None` for a share of the process's limit.
    limit: Option<usize>,
    /// Count of descriptor shortages at the time when files were last closed for one.
    shed_at: AtomicU64,
    _counted: Counted,
    /// Whether a file on another device, which is not served, was logged.
    told_elsewhere: AtomicBool,
}

impl OpenFiles {
    /// Opens none but the root. An open file changes the verifier when its data is lost.
    pub(in crate::localfs) fn new(
        volume: Arc<Volume>,
        root: Root,
        verifier: WriteVerifier,
        limit: Option<usize>,
    ) -> Self {
        Self {
            volume,
            root: ArcSwap::from_pointee(root),
            cache: Mutex::new(Cache::new(limit.unwrap_or(limit::MOST))),
            verifier,
            sweeper: Arc::default(),
            round: AtomicU64::new(1),
            limit,
            shed_at: AtomicU64::new(sys::exhausted()),
            _counted: Counted::new(),
            told_elsewhere: AtomicBool::new(false),
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the root directory of the export.
    pub(in crate::localfs) fn root(&self) -> Guard<Arc<Root>> {
        self.root.load()
    }

    /// Takes another root directory. All other files are closed: they are of the one before.
    pub(in crate::localfs) fn replace_root(&self, root: Root) {
        self.root.store(Arc::new(root));
        let mut cache = self.cache();
        let gone = (cache.trim(0), cache.forget_all_held());
        drop(cache);
        drop(gone);
    }

    /// Returns the thread's schedule for closing idle files.
    pub(in crate::localfs) fn sweeper(&self) -> &Arc<Sweeper> {
        &self.sweeper
    }

    /// Makes the hold of a file warm, if there is room for its descriptor. Returns files to close.
    fn warm(&self, cache: &mut Cache, node: &Arc<Node>) -> Vec<Arc<Node>> {
        let most = limit::most_held(self.most());
        let cooled = cache.make_room(most);
        cache.warm(node, most);
        cooled
    }

    /// Returns whether clients hold any file.
    pub(in crate::localfs) fn has_holds(&self) -> bool {
        !self.cache().held().is_empty()
    }

    /// Returns whether clients hold a file that its handle finds again after its descriptor was closed.
    pub(in crate::localfs) fn has_hold_by_handle(&self, key: u64, file: FileId) -> bool {
        self.cache().held().may_be_cold(key, file)
    }

    /// Number of files that are open, beside the root.
    pub(in crate::localfs) fn len(&self) -> usize {
        self.cache().len_with_held()
    }

    /// Largest number of files to keep open.
    fn most(&self) -> usize {
        self.limit.unwrap_or_else(limit::share_of_files)
    }

    /// Returns an open file by its [key](Node::key).
    pub(in crate::localfs) fn get(&self, key: u64) -> Option<Arc<Node>> {
        self.cache().get(key).map(Arc::clone)
    }

    /// Returns an open file by its key, without a use of it.
    pub(in crate::localfs) fn peek(&self, key: u64) -> Option<Arc<Node>> {
        self.cache().peek(key).map(Arc::clone)
    }

    /// Returns the current state of a file. A file without a name is stale, unless it is held.
    pub(in crate::localfs) fn stat(&self, node: &Node) -> Try<Stat> {
        let stat = self.volume.stat(&node.path);
        let stat = stat.map_err(|errno| self.lost(node, errno))?;
        self.check_named(node, stat.attributes.links)?;
        Ok(stat)
    }

    /// Returns the current attributes of a file. A file without a name is stale, unless it is held.
    pub(in crate::localfs) fn attributes(&self, node: &Node) -> Try<Attributes> {
        self.named(node, self.volume.attributes(&node.path, place(node)))
    }

    /// Returns the attributes of a file before or after a change of it that is in flight.
    pub(in crate::localfs) fn attributes_during(
        &self,
        node: &Node,
        changing: (&Changing<'_>, During),
    ) -> Try<Attributes> {
        self.named(node, self.volume.attributes_during(&node.path, changing))
    }

    /// Begins a change of the names of a directory, in the turn of the caller, who `has_rights` to it, if asked.
    pub(in crate::localfs) fn begin_names<'a>(
        &self,
        dir: &Node,
        changing: Changing<'a>,
        has_rights: impl FnOnce() -> bool,
    ) -> NameChange<'a> {
        let id = place(dir).id;
        if self.volume.changes.waits_for_round() {
            self.sweeper.wake();
        }
        self.volume
            .begin_names((id, dir.path.as_fd()), changing, has_rights)
    }

    /// Returns the attributes of a directory before its names change.
    pub(in crate::localfs) fn attributes_before_names(
        &self,
        dir: &Node,
        change: &NameChange<'_>,
    ) -> Try<Attributes> {
        let found = self
            .volume
            .attributes_before_names(dir.path.as_fd(), change);
        self.named(dir, found)
    }

    /// Returns the attributes of a directory after its names changed, and their relation to those before.
    pub(in crate::localfs) fn attributes_after_names(
        &self,
        dir: &Node,
        change: NameChange<'_>,
        own: &Own<'_>,
    ) -> Try<(Attributes, Claim)> {
        let fd = dir.path.as_fd();
        let (found, claim) = match self.volume.attributes_after_names(fd, change, own) {
            Ok((found, claim)) => (Ok(found), claim),
            Err(errno) => (Err(errno), Claim::default()),
        };
        Ok((self.named(dir, found)?, claim))
    }

    fn named(&self, node: &Node, found: Result<Attributes, Errno>) -> Try<Attributes> {
        let attributes = found.map_err(|errno| self.lost(node, errno))?;
        self.check_named(node, attributes.links)?;
        Ok(Attributes {
            fileid: node.fileid,
            ..attributes
        })
    }

    /// Closes an open file of which the kernel cannot tell any more, and returns the error for the
    /// client. The next call looks the file up again: a file system in another process answers in
    /// this way for a removed file, and for all if the process has ended.
    fn lost(&self, node: &Node, errno: Errno) -> Stop {
        self.drop_node(node);
        if !self.volume.local {
            self.forget_held(node);
        }
        match errno {
            Errno::NOENT => Error::Stale.into(),
            errno => Stop::Fail(errno.into()),
        }
    }

    fn check_named(&self, node: &Node, links: u32) -> Result<(), Error> {
        if links == 0 && !self.cache().held().holds(node) {
            self.note_gone(node);
            return Err(Error::Stale);
        }
        Ok(())
    }

    /// Notes that a file has no name any more.
    fn note_gone(&self, node: &Node) {
        self.drop_node(node);
        if !self.volume.kernel_handles {
            self.cache().note_gone(Gone::from(node));
        }
    }

    /// Removes a file from the held ones, though clients have it open.
    fn forget_held(&self, node: &Node) {
        let gone = self.cache().held_mut().0.forget(node);
        drop(gone);
    }

    /// Removes a file from the open ones; calls in service keep it open, as do clients that hold it.
    pub(in crate::localfs) fn drop_node(&self, node: &Node) {
        let mut cache = self.cache();
        let gone = match cache.get(node.key) {
            Some(open) if open.id() == node.id() => cache.remove(node.key),
            _ => None,
        };
        drop(cache);
        drop(gone);
    }

    /// Removes a file from the open ones whose last name was removed, by its number and its state
    /// until then. The returned node holds the file open.
    pub(in crate::localfs) fn take_removed(&self, number: u64, stat: &Stat) -> Option<Arc<Node>> {
        let by_path = self.volume.by.path();
        let mut cache = self.cache();
        let key = match by_path {
            true => Some(number),
            false => cache.key_of_inode(number),
        };
        let is_it = |node: &Arc<Node>| match by_path {
            true => node.birth == stat.birth,
            false => node.is(stat),
        };
        match key {
            Some(key) if cache.peek(key).is_some_and(is_it) => cache.remove(key),
            Some(_) | None => None,
        }
    }

    /// Makes an open file of a descriptor.
    pub(in crate::localfs) fn new_node(
        &self,
        file: FileId,
        stat: &Stat,
        fd: impl Into<NodeFd>,
    ) -> Node {
        let key = id::key_of(file);
        let fileid = self.volume.file_ids.number(file, stat.attributes.fileid);
        Node::new(stat, (file, key, fileid), fd, &self.verifier)
    }

    /// Adds a file to the open files, unless it is among them.
    pub(in crate::localfs) fn keep_open(&self, node: Node) -> Arc<Node> {
        let mut cache = self.cache();
        let mut other = None;
        while let Some(known) = cache.get(node.key)
            && known.id() == node.id()
            && !other
                .as_ref()
                .is_some_and(|other| Arc::ptr_eq(other, known))
        {
            let known = Arc::clone(known);
            if self.volume.ids_stay() {
                return known;
            }
            drop(cache);
            if self.is_still(&known, &node) {
                return known;
            }
            other = Some(known);
            cache = self.cache();
        }
        let is_cold = cache.held().is_cold(node.key, node.id());
        let node = Arc::new(node);
        if cache.len() == 0 {
            self.sweeper.wake();
        }
        let cooled = match is_cold {
            true => self.warm(&mut cache, &node),
            false => Vec::new(),
        };
        let gone = cache.insert(Arc::clone(&node));
        // The limit of the process is read only when many files are open.
        let excess = match self.limit {
            None if cache.len().is_multiple_of(OPEN_FILES_STEP) => {
                cache.trim_beside_kept(limit::share_of_files())
            }
            Some(limit) if cache.kept() != 0 => cache.trim_beside_kept(limit),
            Some(_) | None => Vec::new(),
        };
        drop(cache);
        // Their descriptors are closed here, not under the lock.
        drop((excess, cooled));
        drop(gone);
        node
    }

    /// Whether an open file still is the file that was just found, and not one that was removed and
    /// had its inode number. A file system in another process refuses to tell of a removed file.
    fn is_still(&self, known: &Node, found: &Node) -> bool {
        sys::stat(&known.path, self.volume.by).is_ok_and(|now| {
            now.attributes.links != 0
                && (now.attributes.fileid, now.device) == (found.ino, found.device)
        })
    }

    /// Closes files if descriptors have run out since the last time, in the process or the machine.
    /// The call that failed is to be made again.
    pub(in crate::localfs) fn shed_if_exhausted(&self) {
        let exhausted = sys::exhausted();
        if self.shed_at.swap(exhausted, Relaxed) != exhausted {
            let gone = self.cache().shed();
            tracing::debug!(files = gone.len(), "out of descriptors");
            drop(gone);
        }
    }

    #[cfg(test)]
    pub(in crate::localfs) fn kept(&self) -> usize {
        self.cache().kept()
    }

    #[cfg(test)]
    pub(in crate::localfs) fn forget_all_held(&self) -> usize {
        let gone = self.cache().forget_all_held();
        gone.descriptors()
    }

    #[cfg(test)]
    pub(in crate::localfs) fn close_all(&self) {
        let gone = self.cache().trim(0);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::localfs::Handles;
    use crate::localfs::open::tests::opened;
    use crate::localfs::sys::Pace;
    use std::path::Path;

    /// Open files of a directory, of which handles of any bytes lead to any file.
    fn open(path: &Path, kernel_handles: bool) -> OpenFiles {
        std::fs::write(path.join("f"), "data").unwrap();
        let mut opening = opened(path, Handles::Table);
        opening.volume.kernel_handles = kernel_handles;
        let volume = Arc::new(opening.volume);
        OpenFiles::new(volume, opening.root, opening.verifier, None)
    }

    fn keep_f(files: &OpenFiles) -> Arc<Node> {
        let (fd, stat) = files
            .open_entry(&files.root(), b"f", Pace::Patient)
            .unwrap();
        let file = FileId::new(&[7; 8]).unwrap();
        files.keep_open(files.new_node(file, &stat, fd))
    }

    #[test]
    fn file_that_is_found_again_is_the_open_one() {
        let dir = tempfile::tempdir().unwrap();
        let files = open(dir.path(), true);
        let node = keep_f(&files);
        assert!(Arc::ptr_eq(&node, &keep_f(&files)));
        assert!(
            files
                .get(node.key)
                .is_some_and(|open| Arc::ptr_eq(&node, &open))
        );
        assert_eq!(files.len(), 1);
        files.drop_node(&node);
        assert_eq!(files.len(), 0);
        assert!(!Arc::ptr_eq(&node, &keep_f(&files)));
    }

    #[test]
    fn idle_file_is_closed_where_its_handle_finds_it_again() {
        let dir = tempfile::tempdir().unwrap();
        for kernel_handles in [true, false] {
            let files = open(dir.path(), kernel_handles);
            drop(keep_f(&files));
            files.begin_round();
            let round = files.begin_round();
            assert_eq!((round.idle.len(), round.gone.len()), (1, 0));
            for node in &round.idle {
                assert!(files.close_idle(node, round.number).is_none());
            }
            assert_eq!(files.len(), usize::from(!kernel_handles));
        }
    }

    #[test]
    fn file_that_lost_its_name_is_closed_and_told_to_those_who_remember_it() {
        let dir = tempfile::tempdir().unwrap();
        for kernel_handles in [true, false] {
            let files = open(dir.path(), kernel_handles);
            let node = keep_f(&files);
            assert!(files.attributes(&node).is_ok());
            std::fs::remove_file(dir.path().join("f")).unwrap();
            let stale = files.attributes(&node);
            assert!(matches!(stale, Err(Stop::Fail(Error::Stale))), "{stale:?}");
            assert_eq!(files.len(), 0);
            let gone = files.begin_round().gone;
            let gone: Vec<u64> = gone.iter().map(|gone| gone.number).collect();
            let told = if kernel_handles {
                vec![]
            } else {
                vec![node.number]
            };
            assert_eq!(gone, told);
        }
    }
}
