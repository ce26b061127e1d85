//! Files on which calls hang in the kernel.
//!
//! A job may wait for a disk, or for a lock that a local user holds, without bound. Further calls
//! on the same file would only block more threads, so they are answered jukebox, and those threads
//! serve other files.

use super::sys::Try;
use crate::fs::{Error, FileId};
use foldhash::HashMap;
use smallvec::SmallVec;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a call may take before it counts as hanging.
const HUNG_AFTER: Duration = Duration::from_secs(5);

/// Largest number of hanging calls on a file; then no further call begins.
const MAX_HUNG: usize = 8;

/// Jobs in progress, by file.
pub(super) struct JobsInProgress {
    begun: Mutex<HashMap<FileId, SmallVec<[Instant; 2]>>>,
    /// See [`HUNG_AFTER`].
    pub(super) hung_after: Duration,
}

/// A job in progress, until this is dropped.
pub(super) struct Work<'a> {
    jobs: &'a JobsInProgress,
    file: FileId,
    since: Instant,
}

impl Default for JobsInProgress {
    fn default() -> Self {
        Self {
            begun: Mutex::default(),
            hung_after: HUNG_AFTER,
        }
    }
}

impl JobsInProgress {
    fn begun(&self) -> MutexGuard<'_, HashMap<FileId, SmallVec<[Instant; 2]>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a job on a file. Fails with an error that is answered jukebox if too many jobs hang
    /// on the file.
    pub(super) fn begin(&self, file: FileId) -> Try<Work<'_>> {
        let since = self.enter(file)?;
        Ok(Work {
            jobs: self,
            file,
            since,
        })
    }

    /// Begins a job that ends with [`leave`](Self::leave), on any thread.
    pub(super) fn enter(&self, file: FileId) -> Try<Instant> {
        let since = Instant::now();
        let mut begun = self.begun();
        let calls = begun.entry(file).or_default();
        let is_hung = |call: &&Instant| since.duration_since(**call) >= self.hung_after;
        if calls.len() >= MAX_HUNG && calls.iter().filter(is_hung).count() >= MAX_HUNG {
            return Err(Error::Busy.into());
        }
        calls.push(since);
        Ok(since)
    }

    /// Ends a job that began at this time.
    pub(super) fn leave(&self, file: FileId, since: Instant) {
        let mut begun = self.begun();
        let Some(calls) = begun.get_mut(&file) else {
            return;
        };
        // Jobs that began at the same time are interchangeable.
        if let Some(at) = calls.iter().position(|other| *other == since) {
            calls.swap_remove(at);
        }
        if calls.is_empty() {
            begun.remove(&file);
        }
    }

    #[cfg(test)]
    pub(super) fn on(&self, file: FileId) -> usize {
        self.begun().get(&file).map_or(0, SmallVec::len)
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.jobs.leave(self.file, self.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(word: u64) -> FileId {
        FileId::new(&word.to_be_bytes()).expect("a good length")
    }

    #[test]
    fn calls_on_a_file_on_which_too_many_hang_are_put_off_and_those_on_others_are_not() {
        let jobs = JobsInProgress {
            hung_after: Duration::ZERO,
            ..JobsInProgress::default()
        };
        let mut hung: Vec<_> = (0..MAX_HUNG)
            .map_while(|_| jobs.begin(file(1)).ok())
            .collect();
        assert_eq!(hung.len(), MAX_HUNG);
        assert!(jobs.begin(file(1)).is_err());
        assert!(jobs.begin(file(2)).is_ok());
        hung.pop();
        assert!(jobs.begin(file(1)).is_ok());
        drop(hung);
        assert!(jobs.begun().is_empty());
    }

    #[test]
    fn calls_that_have_just_begun_do_not_hang() {
        let jobs = JobsInProgress::default();
        let many: Vec<_> = (0..100).map_while(|_| jobs.begin(file(1)).ok()).collect();
        assert_eq!(many.len(), 100);
    }
}
