//! Group commit on file systems with a journal: at most two syncs of a directory at a time, each
//! for many callers.
//!
//! The journal is committed in transactions: changes made during one commit go into the next. With
//! one sync in each of two transactions the journal never waits for a thread to wake up. A caller
//! that arrives while two syncs are in flight registers, and the first sync to end starts the next
//! one for all registered callers. No caller waits for another thread.
//!
//! Without a journal, the kernel may report an error of two concurrent syncs to only one of them;
//! `group_commit.rs` handles that case.

use super::group_commit::Then;
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest number of syncs at a time.
const MAX_SYNCS: usize = 2;

/// Largest number of syncs that a thread does in a row while another thread can take over.
const MAX_ROUNDS: u32 = 16;

/// Syncs of one directory.
#[derive(Default)]
pub(super) struct JournalCommit {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: usize,
    /// Callers that take part in the next sync.
    others: Vec<Then>,
}

impl JournalCommit {
    /// Calls `then` after a sync that begins now or later, on this thread or another one.
    pub(super) fn sync_then(&self, sync: impl Fn() -> Result<(), Errno>, then: Then) {
        let mut state = self.state();
        state.others.push(then);
        if state.running >= MAX_SYNCS {
            return;
        }
        state.running += 1;
        let mut leading = Leading {
            syncs: self,
            batch: std::mem::take(&mut state.others),
        };
        drop(state);
        let mut rounds = 0;
        while !leading.batch.is_empty() {
            leading.answer(sync());
            rounds += 1;
            leading.go_on(rounds);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that syncs for the callers in `batch`.
struct Leading<'a> {
    syncs: &'a JournalCommit,
    batch: Vec<Then>,
}

impl Leading<'_> {
    fn answer(&mut self, result: Result<(), Errno>) {
        for then in self.batch.drain(..) {
            // A panic of one caller's continuation must not affect the others.
            let _ = catch_unwind(AssertUnwindSafe(move || then(result)));
        }
    }

    /// Takes the callers that registered meanwhile, unless another thread does.
    fn go_on(&mut self, rounds: u32) {
        let mut state = self.syncs.state();
        if rounds < MAX_ROUNDS || state.running == 1 {
            self.batch = std::mem::take(&mut state.others);
        }
        if self.batch.is_empty() {
            state.running -= 1;
        }
    }
}

impl Drop for Leading<'_> {
    /// The result of a sync that panicked is unknown.
    fn drop(&mut self) {
        while !self.batch.is_empty() {
            self.answer(Err(Errno::IO));
            self.go_on(MAX_ROUNDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn third_sync_waits_for_no_thread_and_is_for_all_who_came() {
        let syncs = JournalCommit::default();
        let third = AtomicU32::new(0);
        let (told, tells) = channel();
        let tell = |who: u32| -> Then {
            let told = told.clone();
            Box::new(move |result| told.send((who, result)).unwrap())
        };
        let (runs, running) = channel();
        let [first, second] = [(); 2].map(|()| channel::<()>());
        thread::scope(|scope| {
            let (syncs, third) = (&syncs, &third);
            let begin = |who: u32, ends: std::sync::mpsc::Receiver<()>| {
                let (runs, then) = (runs.clone(), tell(who));
                let sync = move || match ends.try_recv() {
                    // Its second time: all who came take part.
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                        third.fetch_add(1, SeqCst);
                        Err(Errno::NOSPC)
                    }
                    _ => {
                        runs.send(()).unwrap();
                        let _ = ends.recv();
                        Ok(())
                    }
                };
                scope.spawn(move || syncs.sync_then(sync, then));
            };
            let ((end_first, ends_first), (end_second, ends_second)) = (first, second);
            begin(0, ends_first);
            running.recv().unwrap();
            begin(1, ends_second);
            running.recv().unwrap();
            for who in 2..10 {
                // This thread goes on.
                syncs.sync_then(|| panic!("two are on their way"), tell(who));
            }
            assert!(tells.try_recv().is_err(), "neither is theirs");
            drop(end_first);
            let told: Vec<_> = tells.iter().take(9).collect();
            assert_eq!(told[0], (0, Ok(())));
            let others: Vec<_> = (2..10).map(|who| (who, Err(Errno::NOSPC))).collect();
            assert_eq!(told[1..], others);
            drop(end_second);
        });
        assert_eq!(third.load(SeqCst), 1);
        assert_eq!(tells.recv(), Ok((1, Ok(()))));
        assert_eq!(syncs.state().running, 0);
    }

    #[test]
    fn panic_of_a_sync_is_an_error_for_those_who_took_part_and_stops_no_later_one() {
        let syncs = JournalCommit::default();
        let (told, tells) = channel();
        let tell = || -> Then {
            let told = told.clone();
            Box::new(move |result| told.send(result).unwrap())
        };
        let first = tell();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            syncs.sync_then(|| panic!("a sync panics"), first);
        }));
        assert!(panicked.is_err());
        assert_eq!(tells.try_recv(), Ok(Err(Errno::IO)));
        syncs.sync_then(|| Ok(()), tell());
        assert_eq!(tells.try_recv(), Ok(Ok(())));
        assert_eq!(syncs.state().running, 0);
    }

    #[test]
    fn panic_of_one_who_takes_part_is_nobody_elses() {
        let syncs = JournalCommit::default();
        let (told, tells) = channel();
        let panics: Then = Box::new(|_| panic!("one who takes part panics"));
        syncs.state().others.push(panics);
        syncs.sync_then(
            || Ok(()),
            Box::new(move |result| told.send(result).unwrap()),
        );
        assert_eq!(tells.try_recv(), Ok(Ok(())));
    }
}
