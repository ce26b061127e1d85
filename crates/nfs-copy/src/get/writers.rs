//! Threads that write small files: as many as wait for the disk, and no more than a few where nothing waits.
//!
//! Handing each file to a thread of its own costs more than writing it where the disk answers at once, as a file
//! system in memory does: threads then wait for each other. Where it does not, each file that waits needs a thread.

use crate::copy::FILES_IN_FLIGHT;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// Threads where nothing waits: one writes while another one is woken.
const FEW: usize = 2;

/// How long a file takes that has waited for the disk.
const WAITED: Duration = Duration::from_micros(100);

/// Threads that write files, one after the other.
pub(super) struct Writers(Mutex<State>);

struct State {
    /// Files that no thread has begun with. It is no more than there are files in flight.
    files: VecDeque<Job>,
    threads: usize,
    /// How many threads there are to be at most.
    limit: usize,
}

type Job = Box<dyn FnOnce() + Send>;

impl Default for Writers {
    fn default() -> Self {
        Self(Mutex::new(State {
            files: VecDeque::new(),
            threads: 0,
            limit: FEW,
        }))
    }
}

impl Writers {
    /// Has a thread write a file, and waits for that. If nobody waits any more, it does not begin with it.
    pub(super) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (ends, ended) = oneshot::channel();
        let job = Box::new(move || {
            if !ends.is_closed() {
                // Nobody wants to know after an interrupt.
                let _ = ends.send(write());
            }
        });
        let starts = {
            let mut state = self.state();
            state.files.push_back(job);
            state.start()
        };
        self.start(starts);
        ended.await.expect("a write does not panic")
    }

    fn start(self: &Arc<Self>, threads: usize) {
        for _ in 0..threads {
            let writers = Arc::clone(self);
            spawn_blocking(move || writers.run());
        }
    }

    fn run(self: &Arc<Self>) {
        let mut next = self.state().next();
        while let Some(job) = next {
            let begun = Instant::now();
            job();
            let took = begun.elapsed();
            let starts;
            (next, starts) = {
                let mut state = self.state();
                state.took(took);
                (state.next(), state.start())
            };
            self.start(starts);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How many threads are to be started for what is to be written. They count from now on.
    fn start(&mut self) -> usize {
        let room = self.limit.saturating_sub(self.threads);
        let starts = room.min(self.files.len());
        self.threads += starts;
        starts
    }

    /// The next file for a thread. If there is nothing, or there are too many threads, it ends.
    fn next(&mut self) -> Option<Job> {
        let next = match self.threads > self.limit {
            true => None,
            false => self.files.pop_front(),
        };
        if next.is_none() {
            self.threads -= 1;
        }
        next
    }

    /// Notes how long a file took.
    fn took(&mut self, time: Duration) {
        self.limit = match time >= WAITED {
            true => (2 * self.limit).min(FILES_IN_FLIGHT),
            false => (self.limit - 1).max(FEW),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn all_is_written() {
        let writers = Arc::new(Writers::default());
        let mut files = JoinSet::new();
        for number in 0..500 {
            let writers = Arc::clone(&writers);
            files.spawn(async move { writers.write(move || number).await });
        }
        let written = files.join_all().await;
        assert_eq!(written.iter().sum::<u32>(), 499 * 500 / 2);
        let state = writers.state();
        assert!(state.files.is_empty());
    }

    #[test]
    fn number_of_threads_follows_how_long_files_take() {
        let mut state = Writers::default().0.into_inner().unwrap();
        assert_eq!(state.start(), 0, "there is nothing to write");
        state.files.extend((0..100).map(|_| Box::new(|| {}) as Job));
        assert_eq!(state.start(), FEW);
        assert_eq!(state.start(), 0);
        state.took(WAITED);
        assert_eq!(state.start(), FEW);
        for _ in 0..10 {
            state.took(WAITED);
        }
        assert_eq!(state.start(), FILES_IN_FLIGHT - 2 * FEW);
        for _ in 0..FILES_IN_FLIGHT {
            state.took(Duration::ZERO);
        }
        let mut written = 0;
        for _ in 0..FILES_IN_FLIGHT {
            written += usize::from(state.next().is_some());
        }
        assert_eq!((written, state.threads), (FEW, FEW), "others have ended");
    }

    #[tokio::test]
    async fn files_that_wait_for_each_other_are_written_at_a_time() {
        let writers = Arc::new(Writers::default());
        let barrier = Arc::new(Barrier::new(FEW));
        let mut files = JoinSet::new();
        for _ in 0..FEW {
            let (writers, barrier) = (Arc::clone(&writers), Arc::clone(&barrier));
            files.spawn(async move { writers.write(move || barrier.wait().is_leader()).await });
        }
        let leaders = files.join_all().await;
        assert_eq!(leaders.into_iter().filter(|leads| *leads).count(), 1);
    }

    #[test]
    fn file_that_nobody_waits_for_is_not_begun() {
        let writers = Arc::new(Writers::default());
        // All threads that there may be are taken.
        writers.state().threads = FEW;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut write = Box::pin(writers.write(|| panic!("it is begun")));
            let waits = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(write.as_mut().poll(cx).is_pending())
            });
            assert!(waits.await);
        });
        writers.run();
        assert!(writers.state().files.is_empty());
    }
}
