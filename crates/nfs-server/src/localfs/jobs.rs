//! Calls that run as jobs, on threads that may wait.

use super::LocalFs;
use super::layers::Layers;
use super::pending_syncs::PendingSyncs;
use super::sys::{Pace, Stop, Try};
use crate::fs::{Change, Failed, FileId, Outcome};
use std::sync::Arc;
use std::time::Instant;

/// Work on a file in progress, until this is dropped.
struct Work {
    layers: Arc<Layers>,
    file: FileId,
    since: Instant,
}

impl Work {
    fn begin(layers: &Arc<Layers>, file: FileId) -> Try<Self> {
        Ok(Self {
            since: layers.jobs.enter(file)?,
            layers: Arc::clone(layers),
            file,
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.layers.jobs.leave(self.file, self.since);
    }
}

/// Makes a job that works on a file.
pub(super) fn slow<T: Failed + 'static>(
    layers: &Arc<Layers>,
    file: FileId,
    op: impl FnOnce(&Layers) -> Try<T> + Send + 'static,
) -> Outcome<T> {
    let layers = Arc::clone(layers);
    Outcome::Slow(Box::new(move || {
        let begun = layers.jobs.begin(file);
        let result = begun.and_then(|_work| op(&layers));
        let result = result.unwrap_or_else(|stop| T::failed(stop.into()));
        layers.files.shed_if_exhausted();
        result
    }))
}

impl LocalFs {
    /// Runs an operation: at once if it need not wait, otherwise as a job.
    pub(super) fn run<T: Failed + 'static>(
        &self,
        file: FileId,
        op: impl Fn(&Layers, Pace) -> Try<T> + Send + 'static,
    ) -> Outcome<T> {
        if !self.layers.volume.local {
            return self.slow(file, move |layers| op(layers, Pace::Patient));
        }
        let result = op(&self.layers, Pace::Quick);
        self.layers.files.shed_if_exhausted();
        match result {
            Ok(value) => Outcome::Ready(value),
            Err(Stop::Fail(error)) => Outcome::Ready(T::failed(error)),
            Err(Stop::WouldBlock) => self.slow(file, move |layers| op(layers, Pace::Patient)),
        }
    }

    /// Runs an operation that may have to read a disk, and cannot be tried without: at once on a file system in memory, otherwise
    /// as a job.
    pub(super) fn run_unless_on_disk<T: Failed + 'static>(
        &self,
        file: FileId,
        op: impl Fn(&Layers, Pace) -> Try<T> + Send + 'static,
    ) -> Outcome<T> {
        match self.layers.volume.memory {
            true => self.run(file, op),
            false => self.slow(file, move |layers| op(layers, Pace::Patient)),
        }
    }

    /// Runs a change: at once if the file system is in memory and other users cannot reach it,
    /// otherwise as a job. An attempt with [`Pace::Quick`] that would have to wait must not have
    /// changed anything.
    pub(super) fn change<T: Change + Send + 'static>(
        &self,
        file: FileId,
        op: impl Fn(&Layers, Pace, &mut PendingSyncs) -> Try<T> + Send + 'static,
    ) -> Outcome<T> {
        match self.layers.volume.changes_at_once() && !self.layers.handles.may_read_disk() {
            true => self.run(file, move |layers, pace| {
                let mut pending = PendingSyncs::default();
                let result = op(layers, pace, &mut pending)?;
                layers.durability.settle(pending)?;
                Ok(result)
            }),
            false => self.change_durably(file, move |layers, pending| {
                op(layers, Pace::Patient, pending)
            }),
        }
    }

    /// Makes a job that works on a file.
    pub(super) fn slow<T: Failed + 'static>(
        &self,
        file: FileId,
        op: impl FnOnce(&Layers) -> Try<T> + Send + 'static,
    ) -> Outcome<T> {
        slow(&self.layers, file, op)
    }

    /// Runs a change as a job on a file. The job releases its thread while it waits for a sync of
    /// another thread.
    pub(super) fn change_durably<T: Change + Send + 'static>(
        &self,
        file: FileId,
        op: impl FnOnce(&Layers, &mut PendingSyncs) -> Try<T> + Send + 'static,
    ) -> Outcome<T> {
        let layers = Arc::clone(&self.layers);
        Outcome::Deferred(Box::new(move |then| {
            let mut pending = PendingSyncs::default();
            let work = Work::begin(&layers, file);
            let result = work.as_ref().map_err(|stop| *stop);
            let result = result.and_then(|_| op(&layers, &mut pending));
            let result = result.unwrap_or_else(|stop| T::failed(stop.into()));
            layers.files.shed_if_exhausted();
            layers.durability.settle_then(pending, move |paid| {
                drop(work);
                then(match paid {
                    Ok(()) => result,
                    Err(error) => result.but(error),
                });
            });
        }))
    }
}
