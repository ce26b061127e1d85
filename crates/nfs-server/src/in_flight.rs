//! Limits on the calls of a program that wait for a thread or a disk, in total and per client.

use oncrpc::{Caller, PeerGroup};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of a program that wait for a thread or a disk.
///
/// A client may have as many as there are places left. A single client thus gets half of all
/// places, and two get a third each, so that some are always left for another client.
#[derive(Clone)]
pub(crate) struct InFlight {
    most: usize,
    now: Arc<Mutex<Counts>>,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_client: HashMap<PeerGroup, usize>,
}

/// The place of one call, which is freed when this is dropped.
pub(crate) struct Counted {
    in_flight: InFlight,
    client: PeerGroup,
}

impl InFlight {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            now: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a call of this client, if the client may have another one.
    pub(crate) fn enter(&self, caller: &Caller) -> Option<Counted> {
        let client = caller.group;
        let mut now = self.lock();
        let left = self.most - now.all;
        let own = now.by_client.get(&client).copied().unwrap_or(0);
        // A client without a place gets the last one.
        if left == 0 || own > 0 && own >= left {
            return None;
        }
        now.all += 1;
        now.by_client.insert(client, own + 1);
        drop(now);
        Some(Counted {
            in_flight: self.clone(),
            client,
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut now = self.in_flight.lock();
        now.all -= 1;
        if let Some(own) = now.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                now.by_client.remove(&self.client);
            }
        }
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
        assert_eq!(in_flight.lock().all, 100);
        assert!(in_flight.enter(&caller(200)).is_none());
        drop((second, others));
        assert_eq!(in_flight.lock().by_client.len(), 1);
        assert!(in_flight.enter(&caller(200)).is_some());
        drop(first);
        assert!(in_flight.lock().by_client.is_empty());
    }
}
