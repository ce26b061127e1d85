//! Which calls broke connections, by client address: it outlives the connections (RFC 8166 §4.5.3).

use crate::driver::failed::FailedCalls;
use oncrpc::AddressGroup;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Addresses that are remembered when their last connection is gone.
const MAX_REMEMBERED: usize = 256;

/// The calls of each address that broke a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    by_address: HashMap<AddressGroup, Known>,
    /// Addresses that are remembered though they have no connection, the oldest first.
    remembered: VecDeque<AddressGroup>,
}

#[derive(Debug, Default)]
struct Known {
    connections: usize,
    calls: FailedCalls,
}

/// The calls of the address of one connection, which are remembered at least as long as this lives.
#[derive(Debug)]
pub(super) struct FailuresOfAddress {
    failures: Failures,
    address: AddressGroup,
    pub(super) calls: FailedCalls,
}

impl Failures {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of the address of a new connection.
    pub(super) fn of(&self, address: AddressGroup) -> FailuresOfAddress {
        let mut inner = self.lock();
        let known = inner.by_address.entry(address).or_default();
        known.connections += 1;
        let calls = known.calls.clone();
        inner.remembered.retain(|&other| other != address);
        FailuresOfAddress {
            failures: self.clone(),
            address,
            calls,
        }
    }
}

impl Drop for FailuresOfAddress {
    fn drop(&mut self) {
        let mut inner = self.failures.lock();
        let known = inner
            .by_address
            .get_mut(&self.address)
            .expect("an address with a connection is known");
        known.connections -= 1;
        if known.connections > 0 {
            return;
        }
        inner.remembered.push_back(self.address);
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
    use std::net::IpAddr;

    fn address(number: u32) -> AddressGroup {
        AddressGroup::of(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn only_so_many_addresses_without_a_connection_are_remembered() {
        let failures = Failures::default();
        let last = u32::try_from(MAX_REMEMBERED).expect("a small number");
        let here = failures.of(address(0));
        for number in 0..=last + 1 {
            drop(failures.of(address(number)));
        }
        let known = |number| failures.lock().by_address.contains_key(&address(number));
        assert_eq!(failures.lock().by_address.len(), MAX_REMEMBERED + 1);
        assert!(known(0), "it is connected");
        assert!(!known(1) && known(2) && known(last + 1));
        drop(here);
        assert_eq!(failures.lock().by_address.len(), MAX_REMEMBERED);
    }
}
