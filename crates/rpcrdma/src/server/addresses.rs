//! Per-address state of a server, which outlives the connections of the address.

use crate::driver::failed::FailedCalls;
use oncrpc::PeerGroup;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verbs::SharedReceiveQueue;

/// Addresses that are remembered when their last connection is gone.
const MAX_REMEMBERED: usize = 256;

/// The part of the shared Receives that the connections of one address may hold together, so that an
/// address whose calls wait leaves most of them to others.
const RECEIVE_SHARE: usize = 4;

/// The addresses of clients.
#[derive(Clone, Debug)]
pub(super) struct Addresses(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The Receives of all connections, if they share them.
    receives: Option<SharedReceiveQueue>,
    /// How many of these the connections of one address hold at most.
    most_receives: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<PeerGroup, Known>,
    /// Addresses that are remembered though they have no connection, the oldest first.
    remembered: VecDeque<PeerGroup>,
}

#[derive(Debug)]
struct Known {
    connections: usize,
    shared: SharedByAddress,
}

/// What the connections of one address share.
#[derive(Clone, Debug)]
pub(super) struct SharedByAddress {
    /// The calls that broke a connection (RFC 8166 §4.5.3).
    pub(super) failed_calls: FailedCalls,
    /// Where messages find memory, if connections share that: the part of the address.
    pub(super) receives: Option<SharedReceiveQueue>,
}

/// The address of one connection, which is known at least as long as this lives.
#[derive(Debug)]
pub(super) struct Address {
    addresses: Addresses,
    group: PeerGroup,
    pub(super) shared: SharedByAddress,
}

impl Addresses {
    /// None yet. Their connections share these Receives, if any: an address has a share of them where a
    /// peer that finds none is held back. Elsewhere each credit has a Receive, and needs it.
    pub(super) fn new(receives: Option<SharedReceiveQueue>, holds_peer_back: bool) -> Self {
        let blocks = receives.as_ref().map_or(0, SharedReceiveQueue::blocks);
        let most_receives = match holds_peer_back {
            true => (blocks / RECEIVE_SHARE).max(1),
            false => blocks,
        };
        Self(Arc::new(Shared {
            receives,
            most_receives,
            state: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a new connection.
    pub(super) fn connected(&self, group: PeerGroup) -> Address {
        let mut state = self.lock();
        let known = state.known.entry(group).or_insert_with(|| Known {
            connections: 0,
            shared: self.0.share(),
        });
        known.connections += 1;
        let shared = known.shared.clone();
        state.remembered.retain(|&other| other != group);
        Address {
            addresses: self.clone(),
            group,
            shared,
        }
    }
}

impl Shared {
    /// For an address that is not known.
    fn share(&self) -> SharedByAddress {
        let receives = self.receives.as_ref();
        SharedByAddress {
            failed_calls: FailedCalls::new(),
            receives: receives.map(|all| all.part(self.most_receives)),
        }
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let mut state = self.addresses.lock();
        let known = state.known.get_mut(&self.group);
        let known = known.expect("an address with a connection is known");
        known.connections -= 1;
        if known.connections > 0 {
            return;
        }
        state.remembered.push_back(self.group);
        if state.remembered.len() > MAX_REMEMBERED
            && let Some(oldest) = state.remembered.pop_front()
        {
            state.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use verbs::ReceiveShare;

    fn group(number: u32) -> PeerGroup {
        PeerGroup::of(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn only_so_many_addresses_without_a_connection_are_remembered() {
        let addresses = Addresses::new(None, true);
        let last = u32::try_from(MAX_REMEMBERED).expect("a small number");
        let here = addresses.connected(group(0));
        for number in 0..=last + 1 {
            drop(addresses.connected(group(number)));
        }
        let known = |number| addresses.lock().known.contains_key(&group(number));
        assert_eq!(addresses.lock().known.len(), MAX_REMEMBERED + 1);
        assert!(known(0), "it is connected");
        assert!(!known(1) && known(2) && known(last + 1));
        drop(here);
        assert_eq!(addresses.lock().known.len(), MAX_REMEMBERED);
    }

    /// A share of the Receives of an address, without a bound of its own.
    fn receives(address: &Address) -> ReceiveShare {
        let receives = address.shared.receives.as_ref();
        receives.expect("they are shared").attach(usize::MAX)
    }

    #[test]
    fn connections_of_one_address_share_a_quarter_of_the_receives() {
        let addresses = Addresses::new(Some(SharedReceiveQueue::new(12, 64)), true);
        let all = [1, 1, 2].map(|number| addresses.connected(group(number)));
        let [a, b, other] = [&all[0], &all[1], &all[2]].map(receives);
        let _held = [(); 2].map(|()| a.take(false).expect("there is one"));
        let last = b.take(false).expect("there is one");
        assert!(a.take(false).is_err() && b.take(false).is_err());
        drop([(); 3].map(|()| other.take(false).expect("there is one")));
        drop(last);
        assert!(a.take(false).is_ok());
    }

    #[test]
    fn address_that_comes_back_finds_its_receives_still_held() {
        let addresses = Addresses::new(Some(SharedReceiveQueue::new(4, 64)), true);
        let take = || receives(&addresses.connected(group(1))).take(false);
        let held = take().expect("there is one");
        assert!(take().is_err());
        drop(held);
        assert!(take().is_ok());
    }

    #[test]
    fn address_has_all_receives_where_no_peer_is_held_back() {
        let addresses = Addresses::new(Some(SharedReceiveQueue::new(4, 64)), false);
        let here = receives(&addresses.connected(group(1)));
        let _held = [(); 4].map(|()| here.take(false).expect("there is one"));
        assert!(here.take(false).is_err());
    }
}
