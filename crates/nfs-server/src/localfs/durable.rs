//! Syncs that must end before a call is answered.

use super::open_files::node::Node;
use super::owed::Owed;
use super::sys::{Stop, Try};
use super::{Changes, Inner, LocalFs};
use crate::fs::{Change, Error, FileId, FileKind, Outcome, Stability};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Instant;

/// How to make a file durable.
enum Way<'a> {
    /// No sync is needed.
    None,
    /// Sync this descriptor.
    File(&'a OwnedFd),
    /// Sync the whole file system, because this user may not open the file.
    FileSystem,
}

/// Work on a file in progress, until this is dropped.
struct Work {
    inner: Arc<Inner>,
    file: FileId,
    since: Instant,
}

impl Work {
    fn begin(inner: &Arc<Inner>, file: FileId) -> Try<Self> {
        Ok(Self {
            since: inner.working.enter(file)?,
            inner: Arc::clone(inner),
            file,
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.inner.working.leave(self.file, self.since);
    }
}

impl LocalFs {
    /// Runs a change as a job on a file. The job releases its thread while it waits for a sync of
    /// another thread.
    pub(super) fn change_durably<T: Change + Send + 'static>(
        &self,
        file: FileId,
        op: impl FnOnce(&Inner, &mut Owed) -> Try<T> + Send + 'static,
    ) -> Outcome<T> {
        let inner = Arc::clone(&self.inner);
        Outcome::Deferred(Box::new(move |then| {
            let mut owed = Owed::default();
            let work = Work::begin(&inner, file);
            let result = work.as_ref().map_err(|stop| *stop);
            let result = result.and_then(|_| op(&inner, &mut owed));
            let result = result.unwrap_or_else(|stop| T::failed(stop.into()));
            inner.files.shed_if_exhausted();
            inner.pay(owed, move |paid| {
                drop(work);
                then(match paid {
                    Ok(()) => result,
                    Err(error) => result.but(error),
                });
            });
        }))
    }
}

impl Inner {
    /// Does the pending syncs of a change on this thread.
    pub(super) fn pay_here(&self, owed: Owed) -> Try<()> {
        owed.iter().try_for_each(|dir| self.persist(dir))
    }

    /// Does the pending syncs of a change and then calls `then`, on any thread.
    fn pay(
        self: &Arc<Self>,
        mut owed: Owed,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let Some(last) = owed.pop() else {
            return then(Ok(()));
        };
        let way = match self.pay_here(owed).and_then(|()| self.way(&last)) {
            Ok(way) => way,
            Err(stop) => return then(Err(stop.into())),
        };
        let Way::File(fd) = way else {
            return then(self.sync(&last, way).map_err(Error::from));
        };
        let inner = Arc::clone(self);
        let ended = move |result| then(inner.synced(result).map_err(Error::from));
        let sync = || rustix::fs::fsync(fd);
        match self.volume.syncs.journal {
            true => last.syncs_ahead.sync_then(sync, Box::new(ended)),
            false => last.syncs.sync_then(sync, Box::new(ended)),
        }
    }

    /// Makes the attributes or entries of a file durable. A file that cannot be opened, such as a
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
                self.note_loss(errno, Stability::FileSync);
                Err(Stop::from(errno))
            }
        }
    }
}
