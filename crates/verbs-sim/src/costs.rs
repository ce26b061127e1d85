//! Cost model of a host and its RNIC.

use crate::rng::Rng;
use std::time::Duration;

/// Bytes of memory that an RNIC has one address for.
const PAGE: usize = 4096;

/// Costs of operations at one end, in virtual time. None by default.
///
/// The host and the RNIC of an end work side by side. The host is busy with what it posts,
/// registers, copies and takes from its queue of completions; the RNIC sends one message after the
/// other, and invalidates. Sends and Writes are taken to be unsignalled, as a careful user of verbs
/// posts them: their completions cost nothing. Those of Receives, Reads and Invalidates cost
/// [`completion`](Self::completion), and [`interrupt`](Self::interrupt) before it if they find the
/// host asleep, which it is whenever it has nothing to do; of Invalidates that the RNIC has at one
/// time [`signal_last`](Self::signal_last) leaves one such completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Host time to post a piece of work.
    pub post: Duration,
    /// Host time to take a completion.
    pub completion: Duration,
    /// From a completion to a host that was asleep and is now awake: interrupt and context switch.
    pub interrupt: Duration,
    /// Host time to register memory.
    pub register: Duration,
    /// Host time to register memory, beyond that, for each page of it.
    pub register_page: Duration,
    /// RNIC time to invalidate a handle as the peer's Send says.
    pub invalidate: Duration,
    /// RNIC time to invalidate a handle as a work request of its host says.
    pub invalidate_locally: Duration,
    /// Of Invalidates behind each other only the last has a completion that the host waits for.
    pub signal_last: bool,
    /// RNIC time for each message, whatever its length.
    pub message: Duration,
    /// From one RNIC to the other.
    pub wire: Duration,
    /// Bytes that go onto the wire in a second; 0 for any number.
    pub line_rate: u64,
    /// Bytes that the host copies in a second, in or out of persistent memory; 0 for any number.
    pub copy_rate: u64,
    /// Percent by which each of these times is longer or shorter, drawn anew each time; 100 at most.
    pub jitter: u8,
    /// Seed of the jitter.
    pub seed: u64,
}

/// How far the host and the RNIC of one end have come.
#[derive(Debug)]
pub(crate) struct Clock {
    costs: Costs,
    /// When the host has done what it began.
    host: Duration,
    /// When the RNIC has.
    rnic: Duration,
    /// When the last Receive that completed can be seen: they complete in order.
    received: Duration,
    /// When the last message of the RNIC is at the other end: they arrive in order.
    arrived: Duration,
    /// Times that a completion found the host asleep.
    wakeups: u64,
    rng: Rng,
}

impl Clock {
    pub(crate) fn new(costs: Costs) -> Self {
        Self {
            costs,
            host: Duration::ZERO,
            rnic: Duration::ZERO,
            received: Duration::ZERO,
            arrived: Duration::ZERO,
            wakeups: 0,
            rng: Rng::new(costs.seed),
        }
    }

    /// A time somewhat longer or shorter.
    fn varied(&mut self, time: Duration) -> Duration {
        let jitter = u32::from(self.costs.jitter.min(100));
        if jitter == 0 || time.is_zero() {
            return time;
        }
        let least = time * (100 - jitter) / 100;
        self.rng.between(least, time * (100 + jitter) / 100)
    }

    /// Whether only the last of several Invalidates has a completion that the host waits for.
    pub(crate) fn signals_last(&self) -> bool {
        self.costs.signal_last
    }

    /// When the host has done what it began.
    pub(crate) fn host(&self) -> Duration {
        self.host
    }

    /// Times that a completion found the host asleep.
    pub(crate) fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// The host posts: when that is done.
    pub(crate) fn post(&mut self, now: Duration) -> Duration {
        self.work(now, self.costs.post)
    }

    /// The host registers so many bytes of memory.
    pub(crate) fn register(&mut self, now: Duration, bytes: usize) {
        let pages = u32::try_from(bytes.div_ceil(PAGE)).unwrap_or(u32::MAX);
        let pages = self.costs.register_page.saturating_mul(pages);
        self.work(now, self.costs.register.saturating_add(pages));
    }

    /// The host copies so many bytes.
    pub(crate) fn copy(&mut self, now: Duration, bytes: usize) {
        self.work(now, at_rate(bytes, self.costs.copy_rate));
    }

    /// The host takes a completion that it could see from `visible` on.
    pub(crate) fn complete(&mut self, now: Duration, visible: Duration) {
        if self.host <= visible {
            self.wakeups += 1;
            self.work(now, self.costs.interrupt);
        }
        self.work(now, self.costs.completion);
    }

    fn work(&mut self, now: Duration, cost: Duration) -> Duration {
        // A host without costs has no clock of its own.
        if !cost.is_zero() {
            self.host = self.host.max(now) + self.varied(cost);
        }
        self.host.max(now)
    }

    /// The RNIC sends a message of so many bytes: when it has, which is when work completes, and
    /// when the message is at the other end.
    pub(crate) fn send(&mut self, now: Duration, bytes: usize) -> (Duration, Duration) {
        let time = self.varied(self.costs.message) + at_rate(bytes, self.costs.line_rate);
        self.rnic = self.rnic.max(now) + time;
        let wire = self.varied(self.costs.wire);
        self.arrived = self.arrived.max(self.rnic + wire);
        (self.rnic, self.arrived)
    }

    /// When the RNIC has sent all that it was given so far.
    pub(crate) fn sent(&self, now: Duration) -> Duration {
        self.rnic.max(now)
    }

    /// The RNIC invalidates a handle for its host: when it has.
    pub(crate) fn invalidate(&mut self, now: Duration) -> Duration {
        let time = self.varied(self.costs.invalidate_locally);
        self.rnic = self.rnic.max(now) + time;
        self.rnic
    }

    /// A message is here that invalidates so many handles, one after the other: when its Receive can
    /// be seen.
    pub(crate) fn receive(&mut self, now: Duration, invalidates: usize) -> Duration {
        let time = (0..invalidates)
            .map(|_| self.varied(self.costs.invalidate))
            .sum();
        self.received = self.received.max(now + time);
        self.received
    }
}

/// How long so many bytes take.
fn at_rate(bytes: usize, rate: u64) -> Duration {
    match rate {
        0 => Duration::ZERO,
        _ => {
            let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        }
    }
}
