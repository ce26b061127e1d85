//! Per-address state of a server, which outlives the connections of the address.

use crate::driver::failed::FailedCalls;
use oncrpc::PeerGroup;
use rpc_serving::by_address::{ByAddress, Unused};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use verbs::SharedReceiveQueue;

/// Addresses that are remembered when their last connection is gone.
const MAX_REMEMBERED: usize = 256;

/// The part of the shared Receives that the connections of one address may hold together, so that an
/// address whose calls wait leaves most of them to others.
const RECEIVE_SHARE: usize = 4;

/// The addresses of clients, whichever provider their connections are over.
#[derive(Clone, Debug)]
pub(super) struct Addresses(Arc<Mutex<ByAddress<Known>>>);

impl Default for Addresses {
    fn default() -> Self {
        let known = ByAddress::remembering(MAX_REMEMBERED);
        Self(Arc::new(Mutex::new(known)))
    }
}

#[derive(Debug, Default)]
struct Known {
    connections: usize,
    failed_calls: FailedCalls,
    /// Its part of each shared receive queue that a connection of it has used.
    receives: Vec<(Arc<ReceiveQueue>, SharedReceiveQueue)>,
}

impl Unused for Known {
    fn is_unused(&self) -> bool {
        self.connections == 0
    }
}

/// The shared receive queue of all connections over one provider.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    all: SharedReceiveQueue,
    /// How many of its blocks the connections of one address hold at most.
    most: usize,
}

impl ReceiveQueue {
    /// An address has a share of the blocks where a peer that finds none is held back. Elsewhere each
    /// credit has a Receive, and needs it.
    pub(super) fn new(all: SharedReceiveQueue, holds_peer_back: bool) -> Self {
        let most = match holds_peer_back {
            true => (all.blocks() / RECEIVE_SHARE).max(1),
            false => all.blocks(),
        };
        Self { all, most }
    }
}

/// State that the connections of one address share.
#[derive(Clone, Debug)]
pub(super) struct SharedByAddress {
    /// The calls that broke a connection (RFC 8166 §4.5.3).
    pub(super) failed_calls: FailedCalls,
    /// Receives of the address, if connections over this provider share them: the part of the
    /// address.
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
    fn lock(&self) -> MutexGuard<'_, ByAddress<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a new connection over a provider with this shared receive queue, if it has one.
    pub(super) fn connected(
        &self,
        group: PeerGroup,
        receives: Option<&Arc<ReceiveQueue>>,
    ) -> Address {
        let shared = self.lock().change(group, |known| {
            known.connections += 1;
            SharedByAddress {
                failed_calls: known.failed_calls.clone(),
                receives: receives.map(|queue| known.part_of(queue)),
            }
        });
        Address {
            addresses: self.clone(),
            group,
            shared,
        }
    }
}

impl Known {
    /// The part of a shared receive queue for this address.
    fn part_of(&mut self, queue: &Arc<ReceiveQueue>) -> SharedReceiveQueue {
        let mut parts = self.receives.iter();
        if let Some((_, part)) = parts.find(|(of, _)| Arc::ptr_eq(of, queue)) {
            return part.clone();
        }
        let part = queue.all.part(queue.most);
        self.receives.push((Arc::clone(queue), part.clone()));
        part
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let mut addresses = self.addresses.lock();
        addresses.change(self.group, |known| known.connections -= 1);
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

    fn queue(blocks: usize, holds_peer_back: bool) -> Arc<ReceiveQueue> {
        let all = SharedReceiveQueue::new(blocks, 64);
        Arc::new(ReceiveQueue::new(all, holds_peer_back))
    }

    #[test]
    fn only_so_many_addresses_without_a_connection_are_remembered() {
        let addresses = Addresses::default();
        let last = u32::try_from(MAX_REMEMBERED).expect("a small number");
        let here = addresses.connected(group(0), None);
        for number in 0..=last + 1 {
            drop(addresses.connected(group(number), None));
        }
        let known = |number| addresses.lock().get(group(number)).is_some();
        assert_eq!(addresses.lock().len(), MAX_REMEMBERED + 1);
        assert!(known(0), "it is connected");
        assert!(!known(1) && known(2) && known(last + 1));
        drop(here);
        assert_eq!(addresses.lock().len(), MAX_REMEMBERED);
    }

    /// A share of the Receives of an address, without a bound of its own.
    fn receives(address: &Address) -> ReceiveShare {
        let receives = address.shared.receives.as_ref();
        receives.expect("they are shared").attach(usize::MAX)
    }

    #[test]
    fn connections_of_one_address_share_a_quarter_of_the_receives() {
        let (addresses, queue) = (Addresses::default(), queue(12, true));
        let all = [1, 1, 2].map(|number| addresses.connected(group(number), Some(&queue)));
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
        let (addresses, queue) = (Addresses::default(), queue(4, true));
        let take = || receives(&addresses.connected(group(1), Some(&queue))).take(false);
        let held = take().expect("there is one");
        assert!(take().is_err());
        drop(held);
        assert!(take().is_ok());
    }

    #[test]
    fn address_has_all_receives_where_no_peer_is_held_back() {
        let (addresses, queue) = (Addresses::default(), queue(4, false));
        let here = receives(&addresses.connected(group(1), Some(&queue)));
        let _held = [(); 4].map(|()| here.take(false).expect("there is one"));
        assert!(here.take(false).is_err());
    }

    #[test]
    fn address_has_a_part_of_the_queue_of_each_provider() {
        let (addresses, queues) = (Addresses::default(), [queue(1, true), queue(1, true)]);
        let [one, other] = queues.map(|queue| addresses.connected(group(1), Some(&queue)));
        let [one, other] = [&one, &other].map(receives);
        let _held = one.take(false).expect("there is one");
        assert!(one.take(false).is_err());
        assert!(other.take(false).is_ok());
        assert_eq!(addresses.lock().len(), 1);
    }
}
