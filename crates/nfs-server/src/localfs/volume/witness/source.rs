//! Events of the kernel (inotify(7)).

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Changes of names, and of the attributes of the directory itself. The same for its children comes with it, and has a name.
const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Events of the kernel.
pub(super) trait Source: Send + Sync {
    /// Watches a directory, which may wait for a disk. Returns the number by which its events tell of it.
    fn watch(&self, dir: BorrowedFd<'_>) -> Result<i32, Errno>;
    fn unwatch(&self, watch: i32);
    /// Reads events, without waiting for one (`AGAIN`).
    fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno>;
}

/// An instance of inotify.
pub(super) struct Inotify(OwnedFd);

impl Inotify {
    pub(super) fn open() -> Result<Arc<dyn Source>, Errno> {
        let opened = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Arc::new(Self(opened)))
    }
}

impl Source for Inotify {
    fn watch(&self, dir: BorrowedFd<'_>) -> Result<i32, Errno> {
        // There is no call relative to a directory.
        let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
        inotify::add_watch(&self.0, path, WATCHED)
    }

    fn unwatch(&self, watch: i32) {
        // It may be gone with its directory.
        let _ = inotify::remove_watch(&self.0, watch);
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut *buffer))
    }
}
