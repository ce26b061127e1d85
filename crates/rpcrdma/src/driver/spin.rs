//! Busy polling of the task that owns a connection.
//!
//! To be woken by the system costs several times the round trip of a call on loopback, so the task
//! polls for a while before it waits. Polling is a waste when other tasks need the CPU: so at most
//! one connection polls, and it calls `sched_yield` often.

use crate::config::Spin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long to poll before waiting. On a quiet machine nothing shorter helps the 99th percentile.
const LIMIT: Duration = Duration::from_micros(50);

/// Rounds between two calls of `sched_yield`.
const ROUNDS: u32 = 8;

/// Number of active connections among those that share CPUs: of one worker of a server, or of all
/// clients of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<AtomicUsize>);

/// Busy polling of one connection.
#[derive(Debug)]
pub(crate) struct Spinner {
    policy: Spin,
    activity: Activity,
    active: bool,
    round: u32,
    since: Option<Instant>,
}

/// What to do after a round without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Poll again.
    Again,
    /// Poll again, but read the clock first: other tasks had the CPU meanwhile.
    Yielded,
    /// Stop polling and wait.
    Park,
}

impl Spinner {
    pub(crate) fn new(policy: Spin, activity: Activity) -> Self {
        let mut spinner = Self {
            policy,
            activity,
            active: false,
            round: 0,
            since: None,
        };
        spinner.busy();
        spinner
    }

    /// Records a round with work.
    pub(crate) fn busy(&mut self) {
        self.since = None;
        if !self.active {
            self.active = true;
            self.activity.0.fetch_add(1, Relaxed);
        }
    }

    /// Records a round without work, and decides what to do next.
    pub(crate) async fn idle(&mut self) -> Idle {
        let alone = self.activity.0.load(Relaxed) <= 1;
        if self.policy == Spin::Park || !alone || !several_cpus() {
            return self.park();
        }
        self.round = self.round.wrapping_add(1);
        if !self.round.is_multiple_of(ROUNDS) {
            std::hint::spin_loop();
            return Idle::Again;
        }
        // Without this the peer, on the same CPU, waits for the end of our time slice.
        std::thread::yield_now();
        tokio::task::yield_now().await;
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.policy == Spin::Adaptive && since.elapsed() > LIMIT {
            return self.park();
        }
        Idle::Yielded
    }

    fn park(&mut self) -> Idle {
        self.leave();
        self.since = None;
        Idle::Park
    }

    /// Stops counting as active until the next [`busy`](Self::busy), because the connection ends or
    /// there is none.
    pub(crate) fn leave(&mut self) {
        if self.active {
            self.active = false;
            self.activity.0.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.leave();
    }
}

fn several_cpus() -> bool {
    static SEVERAL: OnceLock<bool> = OnceLock::new();
    *SEVERAL.get_or_init(|| std::thread::available_parallelism().is_ok_and(|n| n.get() > 1))
}

/// Yields to the tasks that were woken, without polling the system.
pub(crate) async fn after_others() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if waited {
            return std::task::Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(future)
    }

    #[test]
    fn one_that_parks_never_looks_twice() {
        let mut spinner = Spinner::new(Spin::Park, Activity::default());
        assert_eq!(run(spinner.idle()), Idle::Park);
    }

    #[test]
    fn with_two_active_connections_nobody_spins() {
        let activity = Activity::default();
        let mut first = Spinner::new(Spin::Always, activity.clone());
        let mut second = Spinner::new(Spin::Always, activity);
        assert_eq!(run(first.idle()), Idle::Park);
        if several_cpus() {
            assert_ne!(run(second.idle()), Idle::Park, "the other one waits now");
        }
        first.busy();
        assert_eq!(run(second.idle()), Idle::Park);
    }

    #[test]
    fn one_without_a_connection_keeps_no_other_from_spinning() {
        let activity = Activity::default();
        let mut first = Spinner::new(Spin::Always, activity.clone());
        let mut second = Spinner::new(Spin::Always, activity.clone());
        first.leave();
        first.leave();
        assert_eq!(activity.0.load(Relaxed), 1);
        if several_cpus() {
            assert_ne!(run(second.idle()), Idle::Park);
        }
        first.busy();
        assert_eq!(run(second.idle()), Idle::Park);
    }

    #[test]
    fn dropped_connection_is_not_active() {
        let activity = Activity::default();
        drop(Spinner::new(Spin::Adaptive, activity.clone()));
        assert_eq!(activity.0.load(Relaxed), 0);
    }
}
