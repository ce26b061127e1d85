//! Who is connected, and what each connection may take up: the limits of a server that hold for its
//! connections together.

use crate::ServerConfig;
use crate::failed::FailedCalls;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Addresses that are remembered when their last connection is gone, for what their calls did.
const MAX_REMEMBERED: usize = 256;

/// The connections of a server by their address.
#[derive(Clone, Debug)]
pub(super) struct Guests {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    most: usize,
    most_per_address: usize,
    connections: usize,
    /// Octets left for Receives.
    receive_memory: usize,
    by_address: HashMap<IpAddr, Guest>,
    /// Addresses that are remembered though they have no connection, the oldest first.
    remembered: VecDeque<IpAddr>,
}

#[derive(Debug, Default)]
struct Guest {
    connections: usize,
    failed: FailedCalls,
}

/// The place of one connection. Dropping it makes room for another.
#[derive(Debug)]
pub(super) struct Place {
    guests: Guests,
    addr: IpAddr,
    receive_memory: usize,
    /// Calls of this client that broke a connection (RFC 8166 §4.5.3).
    pub(super) failed: FailedCalls,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    #[error("too many connections")]
    Connections,
    #[error("too many connections from this address")]
    ConnectionsOfAddress,
}

impl Guests {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                most: config.max_connections,
                most_per_address: config.max_connections_per_address,
                connections: 0,
                receive_memory: config.receive_memory,
                by_address: HashMap::new(),
                remembered: VecDeque::new(),
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection from there.
    pub(super) fn enter(&self, addr: IpAddr) -> Result<Place, NoPlace> {
        let addr = addr.to_canonical();
        let mut inner = self.lock();
        if inner.connections >= inner.most {
            return Err(NoPlace::Connections);
        }
        let most = inner.most_per_address;
        let known = inner.by_address.get(&addr);
        if known.map_or(0, |guest| guest.connections) >= most {
            return Err(NoPlace::ConnectionsOfAddress);
        }
        let guest = inner.by_address.entry(addr).or_default();
        guest.connections += 1;
        let failed = guest.failed.clone();
        inner.connections += 1;
        inner.remembered.retain(|&other| other != addr);
        Ok(Place {
            guests: self.clone(),
            addr,
            receive_memory: 0,
            failed,
        })
    }
}

impl Place {
    /// How many of `wanted` Receives of `size` octets this connection may have: all, as long as they
    /// are at most an eighth of what is left for others; none if nothing is left. The memory is
    /// taken from then on.
    pub(super) fn take_receives(&mut self, wanted: usize, size: usize) -> usize {
        let mut inner = self.guests.lock();
        let left = inner.receive_memory / size;
        // The last ones are given one by one.
        let receives = wanted.min((left / 8).max(1)).min(left);
        let octets = receives * size;
        inner.receive_memory -= octets;
        drop(inner);
        self.receive_memory += octets;
        receives
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.guests.lock();
        inner.connections -= 1;
        inner.receive_memory += self.receive_memory;
        let guest = inner
            .by_address
            .get_mut(&self.addr)
            .expect("an address with a connection is known");
        guest.connections -= 1;
        if guest.connections > 0 {
            return;
        }
        inner.remembered.push_back(self.addr);
        if inner.remembered.len() > MAX_REMEMBERED
            && let Some(oldest) = inner.remembered.pop_front()
        {
            inner.by_address.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guests(most: usize, per_address: usize, receive_memory: usize) -> Guests {
        Guests::new(&ServerConfig {
            max_connections: most,
            max_connections_per_address: per_address,
            receive_memory,
            ..ServerConfig::default()
        })
    }

    fn addr(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn one_connection_too_many_has_no_place_until_another_is_gone() {
        let guests = guests(2, 2, 0);
        let first = guests.enter(addr(1)).expect("there is room");
        let _second = guests.enter(addr(2)).expect("there is room");
        assert_eq!(guests.enter(addr(3)).err(), Some(NoPlace::Connections));
        drop(first);
        assert!(guests.enter(addr(3)).is_ok());
    }

    #[test]
    fn one_address_does_not_have_all_places() {
        let guests = guests(10, 2, 0);
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        let _places = [addr(1), mapped].map(|addr| guests.enter(addr).expect("there is room"));
        let refused = guests.enter(addr(1)).err();
        assert_eq!(refused, Some(NoPlace::ConnectionsOfAddress));
        assert!(guests.enter(addr(2)).is_ok());
    }

    #[test]
    fn address_that_never_had_a_connection_is_not_remembered() {
        let guests = guests(10, 0, 0);
        assert!(guests.enter(addr(1)).is_err());
        assert!(guests.lock().by_address.is_empty());
    }

    #[test]
    fn receives_get_fewer_as_memory_does_and_come_back() {
        let guests = guests(100, 100, 1000 * 10);
        let enter = || guests.enter(addr(1)).expect("there is room");
        let mut places: Vec<_> = (0..100).map(|_| enter()).collect();
        let taken: Vec<usize> = places
            .iter_mut()
            .map(|place| place.take_receives(100, 10))
            .collect();
        assert_eq!(taken[0], 100);
        assert!(taken.is_sorted_by(|a, b| a >= b), "{taken:?}");
        assert!(taken.iter().sum::<usize>() <= 1000);
        assert_eq!(taken[99], 0);
        drop(places);
        assert_eq!(enter().take_receives(100, 10), 100);
    }

    #[test]
    fn only_so_many_addresses_without_a_connection_are_remembered() {
        let guests = guests(10, 10, 0);
        let last = u32::try_from(MAX_REMEMBERED).expect("a small number");
        let here = guests
            .enter(IpAddr::from(0_u32.to_be_bytes()))
            .expect("there is room");
        for number in 0..=last + 1 {
            let place = guests.enter(IpAddr::from(number.to_be_bytes()));
            drop(place.expect("there is room"));
        }
        let known = |number: u32| {
            let addr = IpAddr::from(number.to_be_bytes());
            guests.lock().by_address.contains_key(&addr)
        };
        assert_eq!(guests.lock().by_address.len(), MAX_REMEMBERED + 1);
        assert!(known(0), "it is connected");
        assert!(!known(1) && known(2) && known(last + 1));
        drop(here);
        assert_eq!(guests.lock().by_address.len(), MAX_REMEMBERED);
    }
}
