//! Calls that run as jobs, on threads that may wait.

use super::pending_syncs::PendingSyncs;
use super::sys::Try;
use super::{Inner, LocalFs};
use crate::fs::{Change, FileId, Outcome};
use std::sync::Arc;
use std::time::Instant;

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
        op: impl FnOnce(&Inner, &mut PendingSyncs) -> Try<T> + Send + 'static,
    ) -> Outcome<T> {
        let inner = Arc::clone(&self.inner);
        Outcome::Deferred(Box::new(move |then| {
            let mut pending = PendingSyncs::default();
            let work = Work::begin(&inner, file);
            let result = work.as_ref().map_err(|stop| *stop);
            let result = result.and_then(|_| op(&inner, &mut pending));
            let result = result.unwrap_or_else(|stop| T::failed(stop.into()));
            inner.files.shed_if_exhausted();
            inner.durability.settle_then(pending, move |paid| {
                drop(work);
                then(match paid {
                    Ok(()) => result,
                    Err(error) => result.but(error),
                });
            });
        }))
    }
}
