//! Concurrent syncs of one directory are one.

use rustix::io::Errno;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Syncs of one directory: who comes while one is on its way waits for the next one, which one of them does
/// for all.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    state: Mutex<State>,
    /// One has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// Syncs that began, and that ended.
    began: u64,
    ended: u64,
    /// The last one that failed. The kernel tells of an error once; it is everybody's who waited for
    /// that sync.
    failed: Option<(u64, Errno)>,
}

impl GroupCommit {
    /// Returns after a sync that began no earlier than now, and what came of it.
    pub(super) fn sync(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let mut state = self.state();
        // One that has begun may have missed the caller's change.
        let wanted = state.began + 1;
        while state.running && state.ended < wanted {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.ended >= wanted {
            return match state.failed {
                Some((which, errno)) if which >= wanted => Err(errno),
                Some(_) | None => Ok(()),
            };
        }
        state.running = true;
        state.began += 1;
        let mut leading = Leading {
            commit: self,
            which: state.began,
            // Of a sync that panics nobody knows what came of it.
            result: Err(Errno::IO),
        };
        drop(state);
        leading.result = sync();
        leading.result
    }

    /// Syncs that began.
    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.state().began
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sync that runs. Its end wakes those who wait, in a panic too.
struct Leading<'a> {
    commit: &'a GroupCommit,
    which: u64,
    result: Result<(), Errno>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut state = self.commit.state();
        state.running = false;
        state.ended = self.which;
        if let Err(errno) = self.result {
            state.failed = Some((self.which, errno));
        }
        drop(state);
        self.commit.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::thread;

    /// Begins a sync that ends with `result`, and lets `WAITING` more come meanwhile.
    fn overlap(
        result: Result<(), Errno>,
        next: Result<(), Errno>,
    ) -> (u32, Vec<Result<(), Errno>>) {
        const WAITING: usize = 5;
        let commit = GroupCommit::default();
        let syncs = AtomicU32::new(0);
        let (runs, running) = channel();
        let (end, ends) = channel::<()>();
        let results = thread::scope(|scope| {
            let (commit, syncs) = (&commit, &syncs);
            let first = scope.spawn(move || {
                commit.sync(|| {
                    runs.send(()).unwrap();
                    ends.recv().unwrap();
                    result
                })
            });
            running.recv().unwrap();
            let others: Vec<_> = (0..WAITING)
                .map(|_| {
                    let (comes, came) = channel();
                    let other = scope.spawn(move || {
                        comes.send(()).unwrap();
                        commit.sync(|| {
                            syncs.fetch_add(1, SeqCst);
                            next
                        })
                    });
                    came.recv().unwrap();
                    other
                })
                .collect();
            // Nobody takes the first one, which began before they came, for theirs.
            assert_eq!(syncs.load(SeqCst), 0);
            end.send(()).unwrap();
            assert_eq!(first.join().unwrap(), result);
            others.into_iter().map(|it| it.join().unwrap()).collect()
        });
        (syncs.load(SeqCst), results)
    }

    #[test]
    fn calls_that_wait_share_the_next_sync() {
        let (syncs, results) = overlap(Err(Errno::IO), Ok(()));
        // One that was late has one of its own.
        assert!((1..=5).contains(&syncs), "{syncs}");
        assert_eq!(results, [Ok(()); 5]);
    }

    #[test]
    fn all_are_told_of_the_error_of_the_sync_they_waited_for() {
        let (_, results) = overlap(Ok(()), Err(Errno::NOSPC));
        assert_eq!(results, [Err(Errno::NOSPC); 5]);
    }

    #[test]
    fn error_is_not_told_to_those_who_come_later() {
        let commit = GroupCommit::default();
        assert_eq!(commit.sync(|| Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(commit.sync(|| Ok(())), Ok(()));
    }

    #[test]
    fn panic_of_a_sync_stops_no_later_one() {
        let commit = GroupCommit::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| commit.sync(|| panic!("a sync panics"))));
        assert!(panicked.is_err());
        assert_eq!(commit.sync(|| Ok(())), Ok(()));
    }
}
