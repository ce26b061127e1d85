//! Group commit: concurrent syncs of one directory share one sync.
//!
//! A caller that arrives during a sync takes part in the next one. The first such caller waits on
//! its thread, to do the next sync; the others register a continuation, and their threads are free.

use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Syncs of one directory.
#[derive(Default)]
pub(super) struct GroupCommit {
    state: Mutex<State>,
    /// Signalled when a sync ends.
    ended: Condvar,
}

/// Continuation of a caller, called with the result of the sync.
pub(super) type Then = Box<dyn FnOnce(Result<(), Errno>) + Send>;

#[derive(Default)]
struct State {
    running: bool,
    /// Number of syncs that have begun, and that have ended.
    began: u64,
    ended: u64,
    /// The last sync that failed, by number. The kernel reports an error once, and it concerns
    /// every caller that waited for that sync.
    failed: Option<(u64, Errno)>,
    /// Whether a thread waits to do the next sync.
    has_next: bool,
    /// Number of waiting threads.
    waiting: usize,
    /// Callers that take part in the next sync without a thread.
    others: Vec<Then>,
}

impl State {
    fn result_of(&self, wanted: u64) -> Result<(), Errno> {
        match self.failed {
            Some((which, errno)) if which >= wanted => Err(errno),
            Some(_) | None => Ok(()),
        }
    }
}

impl GroupCommit {
    /// Waits for a sync that begins now or later, and returns its result.
    pub(super) fn sync(&self, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        self.sync_from(self.state(), sync)
    }

    /// Calls `then` after a sync that begins now or later: on this thread, unless another thread
    /// waits to do that sync.
    pub(super) fn sync_then(&self, sync: impl FnOnce() -> Result<(), Errno>, then: Then) {
        let mut state = self.state();
        if state.running && state.has_next {
            state.others.push(then);
            return;
        }
        then(self.sync_from(state, sync));
    }

    fn sync_from(
        &self,
        mut state: MutexGuard<'_, State>,
        sync: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        // A sync that has begun may have missed the caller's change.
        let wanted = state.began + 1;
        while state.running && state.ended < wanted {
            state.has_next |= state.began < wanted;
            state.waiting += 1;
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        if state.ended >= wanted {
            return state.result_of(wanted);
        }
        state.running = true;
        state.began += 1;
        state.has_next = false;
        let mut leading = Leading {
            commit: self,
            which: state.began,
            others: std::mem::take(&mut state.others),
            // The result of a sync that panics is unknown.
            result: Err(Errno::IO),
        };
        drop(state);
        leading.result = sync();
        leading.result
    }

    /// Returns the number of syncs that have begun.
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
    others: Vec<Then>,
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
        let waiting = state.waiting;
        drop(state);
        if waiting > 0 {
            self.commit.ended.notify_all();
        }
        for then in self.others.drain(..) {
            let result = self.result;
            // Whoever panics tells its own caller by that, and nobody else.
            let _ = catch_unwind(AssertUnwindSafe(move || then(result)));
        }
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

    /// Waits until the thread that does the next sync waits for this one.
    fn until_next_waits(commit: &GroupCommit) {
        while !commit.state().has_next {
            thread::yield_now();
        }
    }

    #[test]
    fn sync_for_many_holds_two_threads() {
        let commit = GroupCommit::default();
        let syncs = AtomicU32::new(0);
        let (runs, running) = channel();
        let (end, ends) = channel::<()>();
        let (told, tells) = channel();
        let tell = |who: u32| -> Then {
            let told = told.clone();
            Box::new(move |result| told.send((who, result)).unwrap())
        };
        thread::scope(|scope| {
            let (commit, syncs) = (&commit, &syncs);
            let first = tell(0);
            scope.spawn(move || {
                let sync = || {
                    runs.send(()).unwrap();
                    ends.recv().unwrap();
                    Ok(())
                };
                commit.sync_then(sync, first);
            });
            running.recv().unwrap();
            let next = tell(1);
            scope.spawn(move || {
                let sync = || {
                    assert_eq!(commit.state().others.len(), 0, "they take part in this one");
                    syncs.fetch_add(1, SeqCst);
                    Err(Errno::NOSPC)
                };
                commit.sync_then(sync, next);
            });
            until_next_waits(commit);
            for who in 2..10 {
                // This thread goes on.
                commit.sync_then(|| panic!("another one does it"), tell(who));
            }
            assert!(
                tells.try_recv().is_err(),
                "the sync that runs is none of theirs"
            );
            end.send(()).unwrap();
        });
        assert_eq!(syncs.load(SeqCst), 1);
        let mut told: Vec<_> = tells.try_iter().collect();
        told.sort_unstable_by_key(|(who, _)| *who);
        assert_eq!(told[0], (0, Ok(())));
        let others: Vec<_> = (1..10).map(|who| (who, Err(Errno::NOSPC))).collect();
        assert_eq!(told[1..], others);
    }

    #[test]
    fn panic_of_one_who_takes_part_is_nobody_elses() {
        let commit = GroupCommit::default();
        let (told, tells) = channel();
        commit
            .state()
            .others
            .push(Box::new(|_| panic!("one who takes part panics")));
        commit
            .state()
            .others
            .push(Box::new(move |result| told.send(result).unwrap()));
        assert_eq!(commit.sync(|| Ok(())), Ok(()));
        assert_eq!(tells.recv(), Ok(Ok(())));
    }

    #[test]
    fn panic_of_a_sync_stops_no_later_one() {
        let commit = GroupCommit::default();
        let panicked = catch_unwind(AssertUnwindSafe(|| commit.sync(|| panic!("a sync panics"))));
        assert!(panicked.is_err());
        assert_eq!(commit.sync(|| Ok(())), Ok(()));
    }
}
