//! XIDs in flight on an upstream connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tokio::time::Instant;

/// The XIDs of calls in flight.
#[derive(Debug, Default)]
pub(crate) struct Xids {
    in_flight: HashMap<u32, InFlight>,
    /// When the last call of the client came.
    last: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    origin: Origin,
    since: Instant,
}

impl InFlight {
    fn of(origin: Origin) -> Self {
        Self {
            origin,
            since: Instant::now(),
        }
    }
}

/// Origin of the call that has an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Client,
    Gateway,
}

/// Outcome of looking up the XID of a client's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Its XID is free, and now its own.
    Now,
    /// It repeats a call in flight.
    Repetition,
    /// The gateway chose the same XID for a call of its own, whose end must be waited for.
    InUse,
}

impl Xids {
    /// Takes the XID of a client's call.
    pub(crate) fn take(&mut self, xid: u32) -> Taken {
        match self.in_flight.entry(xid) {
            Entry::Vacant(free) => {
                let call = free.insert(InFlight::of(Origin::Client));
                self.last = Some(call.since);
                Taken::Now
            }
            Entry::Occupied(taken) => match taken.get().origin {
                Origin::Client => Taken::Repetition,
                Origin::Gateway => Taken::InUse,
            },
        }
    }

    /// Takes an XID for a call of the gateway: the first of `next` that is not in flight.
    pub(crate) fn take_own(&mut self, mut next: impl FnMut() -> u32) -> u32 {
        loop {
            let xid = next();
            if let Entry::Vacant(free) = self.in_flight.entry(xid) {
                free.insert(InFlight::of(Origin::Gateway));
                return xid;
            }
        }
    }

    /// Frees an XID.
    pub(crate) fn free(&mut self, xid: u32) {
        self.in_flight.remove(&xid);
    }

    /// When the call came that has been in flight for longest.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.in_flight.values().map(|one| one.since).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// When the last call of the client came, if there was one.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_takes_no_xid_in_flight_and_a_client_waits_for_its_own() {
        let mut xids = Xids::default();
        assert_eq!((xids.take(7), xids.oldest().is_some()), (Taken::Now, true));
        assert_eq!(xids.take(7), Taken::Repetition);
        let mut next = 6;
        let own = xids.take_own(|| {
            next += 1;
            next
        });
        assert_eq!(own, 8);
        assert_eq!(xids.take(8), Taken::InUse);
        xids.free(8);
        assert_eq!(xids.take(8), Taken::Now);
        xids.free(7);
        xids.free(8);
        assert!(xids.is_empty());
    }
}
