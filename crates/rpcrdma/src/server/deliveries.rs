//! Queries of the service whether the client has received its replies.

use oncrpc::DeliveryQuery;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Time within which a client acknowledges replies. TCP may delay an acknowledgement by up to half a
/// second (RFC 1122 §4.2.3.2).
const DELIVERY_TIME: Duration = Duration::from_millis(500);

/// Interval of looks for acknowledgements, of which the kernel does not notify.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Queries about one connection. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Deliveries(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// A query came since the last look.
    asked: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Queries without an answer. Each is of a call in service on another connection.
    queries: Vec<DeliveryQuery>,
    /// When the oldest of them expires.
    until: Option<Instant>,
    owner: Option<Waker>,
    has_ended: bool,
}

impl Deliveries {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a query, which the owner of the connection answers.
    pub(super) fn ask(&self, query: DeliveryQuery) {
        let mut state = self.lock();
        if state.has_ended {
            // Dropped behind the lock.
            return drop(state);
        }
        state.queries.push(query);
        self.0.asked.store(true, SeqCst);
        let owner = state.owner.clone();
        drop(state);
        owner.into_iter().for_each(Waker::wake);
    }

    /// Sets the task to be woken by queries.
    pub(super) fn set_owner(&self, owner: &Waker) {
        self.lock().owner = Some(owner.clone());
    }

    /// Whether a query came since the last look.
    pub(super) fn is_asked(&self) -> bool {
        self.0.asked.load(SeqCst)
    }

    /// Answers the queries if all replies are delivered, or their time is up. Returns when to look
    /// again.
    pub(super) fn look(
        &self,
        now: Instant,
        is_delivered: impl FnOnce() -> bool,
    ) -> Option<Instant> {
        self.0.asked.store(false, SeqCst);
        let mut state = self.lock();
        if state.queries.is_empty() {
            return None;
        }
        let until = *state.until.get_or_insert(now + DELIVERY_TIME);
        let delivered = is_delivered();
        if !delivered && now < until {
            return Some(now + LOOK_AGAIN);
        }
        state.until = None;
        let queries = std::mem::take(&mut state.queries);
        drop(state);
        match delivered {
            true => queries.into_iter().for_each(DeliveryQuery::delivered),
            false => drop(queries),
        }
        None
    }

    /// Handles the end of the connection: nothing is known of its replies any more.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let queries = std::mem::take(&mut state.queries);
        drop(state);
        drop(queries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::{Caller, Connections};
    use std::sync::mpsc::{Receiver, channel};

    /// Queries about a connection, and the answers to `count` of them.
    fn asked(count: usize) -> (Deliveries, Receiver<bool>) {
        let (connections, deliveries) = (Connections::default(), Deliveries::default());
        let connection = Caller::new(([127, 0, 0, 1], 1).into()).connection;
        let ask = deliveries.clone();
        let open = connections.add(connection, |_| ());
        let _open = open.answering_queries(move |query| ask.ask(query));
        let (answer, answers) = channel();
        for _ in 0..count {
            let answer = answer.clone();
            connections.ask_delivery(connection, move |is| answer.send(is).unwrap());
        }
        (deliveries, answers)
    }

    #[test]
    fn queries_are_answered_when_all_is_delivered_and_given_up_in_time() {
        let now = Instant::now();
        let (deliveries, answers) = asked(2);
        assert!(deliveries.is_asked());
        assert_eq!(deliveries.look(now, || false), Some(now + LOOK_AGAIN));
        assert!(!deliveries.is_asked() && answers.try_recv().is_err());
        assert_eq!(deliveries.look(now + LOOK_AGAIN, || true), None);
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [true; 2]);

        let (deliveries, answers) = asked(1);
        assert!(deliveries.look(now, || false).is_some());
        assert_eq!(deliveries.look(now + DELIVERY_TIME, || false), None);
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [false]);
        assert_eq!(
            deliveries.look(now, || unreachable!("nothing is asked")),
            None
        );
    }

    #[test]
    fn query_about_a_connection_that_ends_has_no_answer() {
        let (deliveries, answers) = asked(1);
        deliveries.end();
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [false]);
    }
}
