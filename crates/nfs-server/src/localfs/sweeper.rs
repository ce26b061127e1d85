//! Schedule of the thread that closes idle files.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Duration of a round. A file that was not used for a complete round is idle: it is closed 0.75 to
/// 1.5 seconds after its last use.
const ROUND: Duration = Duration::from_millis(750);

/// Wakes and ends the thread.
#[derive(Default)]
pub(super) struct Sweeper {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether any file may be open.
    awake: bool,
    ending: bool,
}

impl Sweeper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file is open.
    pub(super) fn wake(&self) {
        self.state().awake = true;
        self.changed.notify_all();
    }

    /// Notes that no file is open.
    pub(super) fn rest(&self) {
        self.state().awake = false;
        self.changed.notify_all();
    }

    /// Waits for the end of a round in which a file was open; returns false at the end of the
    /// thread.
    pub(super) fn next_round(&self) -> bool {
        let state = self
            .changed
            .wait_while(self.state(), |state| !state.awake && !state.ending)
            .unwrap_or_else(PoisonError::into_inner);
        let (state, _) = self
            .changed
            .wait_timeout_while(state, ROUND, |state| !state.ending)
            .unwrap_or_else(PoisonError::into_inner);
        !state.ending
    }

    #[cfg(test)]
    pub(super) fn wait_for_rest(&self) {
        let rests = self.changed.wait_while(self.state(), |state| state.awake);
        drop(rests);
    }
}

/// Ends the thread when an export is closed.
pub(super) struct EndSweeper(pub(super) Arc<Sweeper>);

impl Drop for EndSweeper {
    fn drop(&mut self) {
        self.0.state().ending = true;
        self.0.changed.notify_all();
    }
}
