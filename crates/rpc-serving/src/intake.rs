//! The accept loop of a server, from which each listener has its connections.

use crate::admission::Admission;
use crate::ends::{Ends, Stop};
use crate::turns::TURNS;
use crate::warning_log::WarningLog;
use std::time::Duration;
use tokio::time::sleep;

/// How long to wait when the system gives no connection, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long to wait for evicted connections to end before it is looked at again whether they have.
const LEAVING_PAUSE: Duration = Duration::from_millis(5);

/// Takes in the connections of one listener, until the server stops. It logs meanwhile [how many
/// warnings](WarningLog::summarise_when_due) were not logged.
#[derive(Debug)]
pub struct Intake<'a> {
    admission: &'a Admission,
    log: &'a WarningLog,
    ends: Ends,
    /// Connections since other tasks had a turn.
    in_round: usize,
}

impl<'a> Intake<'a> {
    /// The loop of a listener whose server stops with `stop`.
    pub fn new(admission: &'a Admission, log: &'a WarningLog, stop: &Stop) -> Self {
        Self {
            admission,
            log,
            ends: stop.join(),
            in_round: 0,
        }
    }

    /// Waits for the next connection, once few enough of those that were [evicted](Admission::is_crowded) still end; `None`
    /// once the server stops. `accept` is polled only when one may be taken in. Peers that connect again and again leave other tasks their turns.
    pub async fn next<T>(&mut self, accept: impl Future<Output = T>) -> Option<T> {
        if self.in_round == TURNS {
            self.in_round = 0;
            tokio::task::yield_now().await;
        }
        let accepted = async {
            while self.admission.is_crowded() {
                sleep(LEAVING_PAUSE).await;
            }
            accept.await
        };
        tokio::select! {
            biased;
            // First, as there may be a connection, or none to be had, each time.
            _ = self.ends.asked() => None,
            // It never ends: a listener need not bear that nobody waits for a connection any more.
            never = self.log.summarise_when_due() => match never {},
            accepted = accepted => {
                self.in_round += 1;
                Some(accepted)
            }
        }
    }

    /// Waits for a while after the system gave no connection, or until the server stops.
    pub async fn pause(&mut self) {
        let _ = tokio::time::timeout(ACCEPT_PAUSE, self.ends.asked()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::ConnectionLimits;
    use oncrpc::PeerGroup;
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::rc::Rc;
    use tokio::task::LocalSet;

    #[tokio::test]
    async fn other_tasks_have_a_turn_after_a_few_connections() {
        let (admission, log) = (
            Admission::new(ConnectionLimits::new(9, 9)),
            WarningLog::default(),
        );
        let mut intake = Intake::new(&admission, &log, &Stop::default());
        let local = LocalSet::new();
        let turns = Rc::new(Cell::new(0));
        let other = Rc::clone(&turns);
        local.spawn_local(async move {
            loop {
                other.set(other.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let taken = async {
            let before = turns.get();
            let mut taken = 0;
            while turns.get() == before {
                assert_eq!(intake.next(ready(())).await, Some(()));
                taken += 1;
            }
            taken
        };
        assert_eq!(local.run_until(taken).await, TURNS + 1);
    }

    #[tokio::test]
    async fn no_connection_is_taken_in_while_too_many_that_were_evicted_still_end() {
        let (admission, log) = (
            Admission::new(ConnectionLimits::new(4, 4)),
            WarningLog::default(),
        );
        let mut intake = Intake::new(&admission, &log, &Stop::default());
        let address = PeerGroup::of([192, 0, 2, 1].into());
        let admit = || {
            admission
                .admit(address, || {})
                .expect("another may be evicted")
        };
        let [evicted, _second, _third] = [(); 3].map(|()| admit());
        assert!(evicted.is_evicted() && admission.is_crowded());
        let leaves = async {
            tokio::task::yield_now().await;
            drop(evicted);
        };
        let taken = intake.next(async { admission.is_crowded() });
        assert_eq!(tokio::join!(taken, leaves).0, Some(false));
    }

    #[tokio::test]
    async fn stop_ends_the_loop_and_a_pause_in_it() {
        let (admission, log) = (
            Admission::new(ConnectionLimits::new(9, 9)),
            WarningLog::default(),
        );
        let stop = Stop::default();
        let mut intake = Intake::new(&admission, &log, &stop);
        let stops = async { stop.set() };
        assert_eq!(tokio::join!(intake.next(pending::<()>()), stops).0, None);
        intake.pause().await;
        assert_eq!(intake.next(ready(())).await, None);
    }
}
