//! Busy polling of the task that owns a connection.
//!
//! To be woken by the system costs several times the round trip of a call on loopback, so the task
//! polls for a while before it waits. Polling is a waste when other tasks need the CPU: so at most
//! one connection polls, it calls `sched_yield` often, and where polling kept others from the CPU
//! several times, it is left out for a while. On an idle CPU polling in vain does no harm: awake, it
//! answers sooner.

use crate::config::Spin;
use rpc_serving::turns::Turns;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How long to poll before waiting. On a quiet machine nothing shorter helps the 99th percentile.
const LIMIT: Duration = Duration::from_micros(50);

/// Rounds between two calls of `sched_yield`, in a wait for the peer.
const ROUNDS: u32 = 8;

/// Duration of a `sched_yield` from which on others need the CPU for more than a part of the same call,
/// which takes 30 µs: they keep it until the scheduler takes it from them. A task that waits has the CPU
/// when its message comes.
const LENT: Duration = Duration::from_micros(100);

/// Waits in which polling kept others from the CPU, one after the other, before it is left out.
const HARMFUL: u32 = 4;

/// Waits without polling, before it is tried again.
const LEFT_OUT: u32 = 32;

/// Event that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A message of the peer.
    Peer,
    /// Something of this process: a call to send, or the reply to a call of the peer.
    Here,
}

/// How polling went in the last waits of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Experience {
    /// Waits in which polling kept others from the CPU, without another one since.
    harmful: u32,
    /// Waits for which polling is left out.
    left_out: u32,
}

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
    /// Event that is polled for.
    wait: Option<Wait>,
    since: Option<Instant>,
    /// Others had the CPU for a while in this wait.
    lent: bool,
    peer: Experience,
    here: Experience,
}

/// Next step after a round without work.
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
            wait: None,
            since: None,
            lent: false,
            peer: Experience::default(),
            here: Experience::default(),
        };
        spinner.busy();
        spinner
    }

    /// Records a round with work.
    pub(crate) fn busy(&mut self) {
        self.ends();
        if !self.active {
            self.active = true;
            self.activity.0.fetch_add(1, Relaxed);
        }
    }

    /// Records a round without work, and decides what to do next.
    pub(crate) async fn idle(&mut self, wait: Wait) -> Idle {
        let alone = self.activity.0.load(Relaxed) <= 1;
        if self.policy == Spin::Park || !alone || !several_cpus() {
            // That says nothing of polling.
            self.wait = None;
            return self.park();
        }
        if self.policy == Spin::Adaptive && self.wait.is_none() && self.of(wait).leave_out() {
            return self.park();
        }
        self.wait = Some(wait);
        self.round = self.round.wrapping_add(1);
        // What is of this process comes by the runtime.
        if wait == Wait::Peer && !self.round.is_multiple_of(ROUNDS) {
            std::hint::spin_loop();
            return Idle::Again;
        }
        let before = Instant::now();
        // Without this the peer, on the same CPU, waits for the end of our time slice.
        std::thread::yield_now();
        self.yielded(before.elapsed());
        tokio::task::yield_now().await;
        // If others had the CPU for as long as to poll, they are to have it.
        let since = *self.since.get_or_insert(before);
        if self.policy == Spin::Adaptive && since.elapsed() > LIMIT {
            return self.park();
        }
        Idle::Yielded
    }

    /// Records how long `sched_yield` took.
    fn yielded(&mut self, took: Duration) {
        self.lent |= took > LENT;
    }

    /// Records the end of a wait, if polling has begun.
    fn ends(&mut self) {
        let lent = std::mem::take(&mut self.lent);
        self.since = None;
        if let Some(wait) = self.wait.take() {
            self.of(wait).record(lent);
        }
    }

    fn of(&mut self, wait: Wait) -> &mut Experience {
        match wait {
            Wait::Peer => &mut self.peer,
            Wait::Here => &mut self.here,
        }
    }

    fn park(&mut self) -> Idle {
        self.ends();
        self.leave();
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

impl Experience {
    /// Whether to wait without polling.
    fn leave_out(&mut self) -> bool {
        let left_out = self.left_out > 0;
        self.left_out = self.left_out.saturating_sub(1);
        left_out
    }

    /// Records a wait with polling.
    fn record(&mut self, was_harmful: bool) {
        if !was_harmful {
            self.harmful = 0;
            return;
        }
        self.harmful += 1;
        if self.harmful >= HARMFUL {
            // The next time it does harm, it is left out at once.
            self.harmful = HARMFUL - 1;
            self.left_out = LEFT_OUT;
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

/// Waits for a turn, if other connections of its address may have theirs.
pub(crate) async fn begin_turn(turns: &mut Turns) {
    std::future::poll_fn(|cx| poll_turn(turns, cx)).await;
}

/// The same, as a poll.
pub(crate) fn poll_turn(turns: &mut Turns, cx: &mut Context<'_>) -> Poll<()> {
    turns.poll_begin(cx, next_round)
}

/// Wakes the task once those that are ready have run and the runtime has looked for I/O.
fn next_round(cx: &mut Context<'_>) {
    // Its first poll leaves the waker with the runtime for that.
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
}

/// Yields to the tasks that were woken, without polling the system.
pub(crate) async fn after_others() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
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
        assert_eq!(run(spinner.idle(Wait::Peer)), Idle::Park);
    }

    #[test]
    fn with_two_active_connections_nobody_spins() {
        let activity = Activity::default();
        let mut first = Spinner::new(Spin::Always, activity.clone());
        let mut second = Spinner::new(Spin::Always, activity);
        assert_eq!(run(first.idle(Wait::Peer)), Idle::Park);
        if several_cpus() {
            assert_ne!(
                run(second.idle(Wait::Peer)),
                Idle::Park,
                "the other one waits now"
            );
        }
        first.busy();
        assert_eq!(run(second.idle(Wait::Peer)), Idle::Park);
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
            assert_ne!(run(second.idle(Wait::Peer)), Idle::Park);
        }
        first.busy();
        assert_eq!(run(second.idle(Wait::Peer)), Idle::Park);
    }

    #[test]
    fn dropped_connection_is_not_active() {
        let activity = Activity::default();
        drop(Spinner::new(Spin::Adaptive, activity.clone()));
        assert_eq!(activity.0.load(Relaxed), 0);
    }

    #[test]
    fn polling_that_does_harm_is_left_out_for_a_while_and_tried_again() {
        let mut waits = Experience::default();
        for _ in 0..HARMFUL {
            assert!(!waits.leave_out());
            waits.record(true);
        }
        for _ in 0..2 {
            for _ in 0..LEFT_OUT {
                assert!(waits.leave_out());
            }
            assert!(!waits.leave_out(), "it is tried again, once");
            waits.record(true);
        }
    }

    #[test]
    fn polling_that_does_harm_now_and_then_is_not_left_out() {
        let mut waits = Experience::default();
        for _ in 0..3 {
            for _ in 1..HARMFUL {
                waits.record(true);
            }
            waits.record(false);
        }
        assert!(!waits.leave_out());
    }

    #[test]
    fn polling_that_keeps_others_from_the_cpu_is_left_out() {
        if !several_cpus() {
            return;
        }
        let mut spinner = Spinner::new(Spin::Adaptive, Activity::default());
        for _ in 0..HARMFUL {
            assert_eq!(run(spinner.idle(Wait::Peer)), Idle::Again);
            spinner.yielded(2 * LENT);
            // The message comes, but late.
            spinner.busy();
        }
        for _ in 0..LEFT_OUT {
            assert_eq!(run(spinner.idle(Wait::Peer)), Idle::Park);
            spinner.busy();
        }
        assert_eq!(run(spinner.idle(Wait::Peer)), Idle::Again);
    }

    #[test]
    fn polling_in_vain_on_an_idle_cpu_does_no_harm() {
        if !several_cpus() {
            return;
        }
        let mut spinner = Spinner::new(Spin::Adaptive, Activity::default());
        spinner.peer.harmful = HARMFUL - 1;
        assert_eq!(run(spinner.idle(Wait::Peer)), Idle::Again);
        assert_eq!(spinner.park(), Idle::Park);
        assert_eq!(spinner.peer.harmful, 0);
    }
}
