//! Phases of a relay, and waiting for the next one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Phases of a relay, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// No call has come.
    New,
    /// The upstream connection is being made. Calls wait for it.
    Connecting,
    /// Both connections are there.
    Up,
    /// The upstream connection has ended; calls in flight end.
    Ending,
    /// Both connections have ended, or are about to.
    Over,
}

/// The phase of a relay. Those who wait go on in the order in which they came.
#[derive(Debug)]
pub(crate) struct Phases {
    phase: Mutex<Phase>,
    changed: Notify,
}

impl Phases {
    pub(crate) fn new() -> Self {
        Self {
            phase: Mutex::new(Phase::New),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Phase {
        *self.lock()
    }

    /// Enters a later phase. Returns the one before; it stays if it is not earlier.
    pub(crate) fn enter(&self, to: Phase) -> Phase {
        let mut phase = self.lock();
        let before = *phase;
        *phase = before.max(to);
        drop(phase);
        if before < to {
            self.changed.notify_waiters();
        }
        before
    }

    /// Waits for a phase, or a later one.
    pub(crate) async fn reach(&self, phase: Phase) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.get() >= phase {
                return;
            }
            changed.await;
        }
    }
}
