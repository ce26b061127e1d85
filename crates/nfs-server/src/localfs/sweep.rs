//! The thread that ends the rounds of an export: in each, idle files are closed.

use super::Inner;
use std::io;
use std::sync::{Arc, Weak};

/// Starts the thread that closes idle files.
///
/// # Errors
///
/// If the thread cannot be started.
pub(super) fn start(inner: &Arc<Inner>) -> io::Result<()> {
    let sweeper = Arc::clone(inner.files.sweeper());
    let inner = Arc::downgrade(inner);
    let run = move || {
        while let Some(round) = sweeper.next_round() {
            let Some(inner) = Weak::upgrade(&inner) else {
                return;
            };
            inner.sweep();
            // The one who closes the export waits for the round, and then has the last reference.
            drop(inner);
            drop(round);
        }
    };
    let thread = std::thread::Builder::new().name("nfs-sweeper".into());
    thread.spawn(run).map(drop)
}

impl Inner {
    /// Ends a round: closes files that were not used in the last complete one.
    pub(super) fn sweep(&self) {
        let round = self.files.begin_round();
        self.handles.begin_round(round.number);
        self.listed.begin_round(round.number);
        self.volume.look_who_can_reach();
        for gone in round.gone {
            self.handles.forget(&gone);
        }
        self.durability.close_idle_writers(round.number);
        for node in round.idle {
            if self.files.sweeper().is_ending() {
                return;
            }
            if let Some(gone) = self.files.close_idle(&node, round.number) {
                self.handles.forget(&gone);
            }
        }
        self.files.end_round();
    }
}
