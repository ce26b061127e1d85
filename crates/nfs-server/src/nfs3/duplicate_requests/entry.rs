//! An entry of the duplicate request cache.

use super::fingerprint::{Identity, Names};
use oncrpc::{Caller, ConnectionId, PeerGroup};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long a reply is kept: longer than a client takes to reconnect. A later call with the same
/// XID is a new one, of a client whose XIDs have started again.
pub(super) const MAX_AGE: Duration = Duration::from_secs(120);

/// A call that is being executed or was executed.
pub(super) struct Entry {
    pub(super) client: PeerGroup,
    /// Connection to which the results are sent.
    pub(super) connection: ConnectionId,
    /// The credits of that connection.
    pub(super) credits: u32,
    pub(super) fingerprint: u128,
    /// Names and files that the call changes.
    pub(super) names: Names,
    /// Number of the call, in the order of the calls of its address.
    pub(super) number: u64,
    progress: Mutex<Progress>,
}

pub(super) enum Progress {
    Running(Repeated),
    /// The results of the successful call, and the time of its end.
    Done(Instant, Box<[u8]>),
    /// The call ended without results to repeat.
    Lost,
}

/// Repetitions of a call that is being executed.
#[derive(Default)]
pub(super) struct Repeated {
    /// Number of repetitions. Only the last one waits.
    pub(super) times: u64,
    /// Wakes the last repetition.
    pub(super) waker: Option<Waker>,
}

impl Entry {
    pub(super) fn new(caller: &Caller, identity: Identity, number: u64) -> Self {
        Self {
            client: caller.group,
            connection: caller.connection,
            credits: caller.credits,
            fingerprint: identity.fingerprint,
            names: identity.names,
            number,
            progress: Mutex::new(Progress::Running(Repeated::default())),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the results have expired. A call that is being executed never expires, so that a
    /// repetition cannot execute it twice.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        match &*self.lock() {
            Progress::Running(_) => false,
            Progress::Done(since, _) => now.saturating_duration_since(*since) > MAX_AGE,
            Progress::Lost => true,
        }
    }

    /// Whether the first execution sends its results on this connection.
    pub(super) fn answers_on(&self, connection: ConnectionId) -> bool {
        self.connection == connection && matches!(*self.lock(), Progress::Running(_))
    }

    /// Ends the execution, and wakes the repetition that waits for it.
    pub(super) fn end(&self, progress: Progress) {
        let before = std::mem::replace(&mut *self.lock(), progress);
        if let Progress::Running(Repeated { waker, .. }) = before {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Registers a repetition; returns its number. An earlier repetition stops waiting.
    pub(super) fn repeat(&self) -> u64 {
        let mut progress = self.lock();
        let Progress::Running(repeated) = &mut *progress else {
            return 0;
        };
        repeated.times += 1;
        let before = repeated.waker.take();
        let time = repeated.times;
        drop(progress);
        before.into_iter().for_each(Waker::wake);
        time
    }
}
