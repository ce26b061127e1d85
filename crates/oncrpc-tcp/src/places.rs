//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places of a server's connections.
#[derive(Clone)]
pub(super) struct Places {
    all: usize,
    of_address: usize,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// The place of one connection, free again when this is dropped.
pub(super) struct Place {
    places: Places,
    address: IpAddr,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All are taken.
    All,
    /// This address has its part.
    OfAddress,
}

impl Places {
    pub(super) fn new(all: usize, of_address: usize) -> Self {
        Self {
            all,
            of_address,
            taken: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this address.
    pub(super) fn take(&self, address: IpAddr) -> Result<Place, Full> {
        let address = address.to_canonical();
        let mut taken = self.lock();
        if taken.values().sum::<usize>() >= self.all {
            return Err(Full::All);
        }
        let own = taken.get(&address).copied().unwrap_or(0);
        if own >= self.of_address {
            return Err(Full::OfAddress);
        }
        taken.insert(address, own + 1);
        Ok(Place {
            places: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        match taken.get_mut(&self.address) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(taken.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_places_to_others() {
        let [us, them]: [IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
        let places = Places::new(3, 2);
        let take = |address| places.take(address);
        let first = take(us).ok();
        let second = take(us).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(take(us).err(), Some(Full::OfAddress));
        let other = take(them).ok();
        assert!(other.is_some());
        assert_eq!(take(them).err(), Some(Full::All));
        drop(first);
        let again = take(us).ok();
        assert!(again.is_some());
        drop((second, other, again));
        assert!(places.lock().is_empty());
    }
}
