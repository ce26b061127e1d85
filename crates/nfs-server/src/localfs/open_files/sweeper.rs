//! Schedule of the thread that closes idle files.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for the end of a round when an export is closed. A round takes longer only where the kernel does not
/// answer, as for a file system of a server that is gone.
const ROUND_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Duration of a round. A file that was not used for a complete round is idle: it is closed 0.75 to
/// 1.5 seconds after its last use.
const ROUND: Duration = Duration::from_millis(750);

/// Wakes and ends the thread.
#[derive(Default)]
pub(in crate::localfs) struct Sweeper {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether any file may be open.
    awake: bool,
    /// Whether the thread uses the export.
    sweeping: bool,
    ending: bool,
}

impl Sweeper {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a file is open. The thread is woken only if there was none.
    pub(in crate::localfs) fn wake(&self) {
        let was_awake = std::mem::replace(&mut self.state().awake, true);
        if !was_awake {
            self.changed.notify_all();
        }
    }

    /// Notes that no file is open.
    pub(in crate::localfs) fn rest(&self) {
        self.state().awake = false;
        self.changed.notify_all();
    }

    /// Waits for the end of a round in which a file was open. Until the result is dropped, the
    /// end of the export waits for this thread. Returns `None` at the end of the thread.
    pub(in crate::localfs) fn next_round(&self) -> Option<Sweeping<'_>> {
        let state = self
            .changed
            .wait_while(self.state(), |state| !state.awake && !state.ending)
            .unwrap_or_else(PoisonError::into_inner);
        let (state, _) = self
            .changed
            .wait_timeout_while(state, ROUND, |state| !state.ending)
            .unwrap_or_else(PoisonError::into_inner);
        self.begin(state)
    }

    fn begin(&self, mut state: MutexGuard<'_, State>) -> Option<Sweeping<'_>> {
        if state.ending {
            return None;
        }
        state.sweeping = true;
        Some(Sweeping(self))
    }

    /// Begins the end of a round at once.
    #[cfg(test)]
    pub(in crate::localfs) fn begin_now(&self) -> Option<Sweeping<'_>> {
        self.begin(self.state())
    }

    /// Whether the export is being closed.
    pub(in crate::localfs) fn is_ending(&self) -> bool {
        self.state().ending
    }

    #[cfg(test)]
    pub(in crate::localfs) fn wait_for_rest(&self) {
        let rests = self.changed.wait_while(self.state(), |state| state.awake);
        drop(rests);
    }
}

/// A round that is being ended, until this is dropped.
pub(in crate::localfs) struct Sweeping<'a>(&'a Sweeper);

impl Drop for Sweeping<'_> {
    fn drop(&mut self) {
        self.0.state().sweeping = false;
        self.0.changed.notify_all();
    }
}

/// Ends the thread when an export is closed, and waits until it uses the export no more: the state
/// of the export, which it would hold open, can then be opened by the next server.
pub(in crate::localfs) struct EndSweeper(pub(in crate::localfs) Arc<Sweeper>);

impl Drop for EndSweeper {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ending = true;
        self.0.changed.notify_all();
        let ended = self
            .0
            .changed
            .wait_timeout_while(state, ROUND_ENDS_WITHIN, |state| state.sweeping);
        if ended.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            tracing::warn!("an export is closed while the kernel does not answer for its files");
        }
    }
}
