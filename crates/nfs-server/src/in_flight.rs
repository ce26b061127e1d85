//! Limits on the calls of a program that wait for a thread or a disk, in total and per client.

use oncrpc::{Caller, PeerGroup};
use rpc_serving::shares::{Bound, Shares};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of a program that wait for a thread or a disk. A client may have as many as there are places left.
#[derive(Clone)]
pub(crate) struct InFlight(Arc<Mutex<Shares>>);

/// The place of one call, which is freed when this is dropped.
pub(crate) struct Counted {
    in_flight: InFlight,
    client: PeerGroup,
}

impl InFlight {
    pub(crate) fn new(most: usize) -> Self {
        let places = Shares::new(most, Bound::WhatItLeaves);
        Self(Arc::new(Mutex::new(places)))
    }

    fn lock(&self) -> MutexGuard<'_, Shares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a call of this client, if the client may have another one.
    pub(crate) fn enter(&self, caller: &Caller) -> Option<Counted> {
        let client = caller.group;
        self.lock().take(client, 1).then(|| Counted {
            in_flight: self.clone(),
            client,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.in_flight.lock().give_back(self.client, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(last: u8) -> Caller {
        Caller::new(([127, 0, 0, last], 700).into())
    }

    #[test]
    fn client_may_use_as_many_calls_as_it_leaves_free() {
        let in_flight = InFlight::new(100);
        let fill = |last| -> Vec<Counted> {
            std::iter::from_fn(|| in_flight.enter(&caller(last))).collect()
        };
        let first = fill(1);
        let second = fill(2);
        assert_eq!((first.len(), second.len()), (50, 25));
        let others: Vec<Vec<Counted>> = (3..30).map(fill).collect();
        assert_eq!(in_flight.lock().left(), 0);
        assert!(in_flight.enter(&caller(200)).is_none());
        drop((second, others));
        assert_eq!(in_flight.lock().holders(), 1);
        assert!(in_flight.enter(&caller(200)).is_some());
        drop(first);
        assert_eq!(in_flight.lock().holders(), 0);
    }
}
