//! Turns of calls of MOUNT at the server, each of which has a connection and perhaps a reserved port there.

use oncrpc::PeerGroup;
use rpc_serving::by_address::{ByAddress, Unused};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls at the server at a time, of all clients.
const MOUNT_CALLS: usize = 32;

/// Calls of one address that are at the server or wait among those of others.
const MOUNT_CALLS_OF_ADDRESS: usize = 4;

/// Time that a call waits for its turn, before it is answered with an error.
const MOUNT_WAIT: Duration = Duration::from_secs(30);

/// Gives turns to calls: in their order, and to no address many at a time.
#[derive(Debug)]
pub(crate) struct MountTurns {
    of_all: Arc<Semaphore>,
    /// Permits of [`of_all`](Self::of_all), with those that calls hold.
    calls: Mutex<usize>,
    addresses: Arc<Addresses>,
}

/// A call that is at the server. Dropping it ends its turn.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    // Dropped after the other permit, so that the address does not get another place in the queue before this one is free.
    _of_address: OwnedSemaphorePermit,
    // Dropped last: with it the address may be forgotten.
    _call: CallOfAddress,
}

/// The addresses with calls.
#[derive(Debug, Default)]
struct Addresses(Mutex<ByAddress<AddressTurns>>);

/// The turns of an address.
#[derive(Debug)]
struct AddressTurns {
    /// Calls that have a turn or wait for one.
    calls: usize,
    permits: Arc<Semaphore>,
}

/// A call of an address, with a turn or without. Dropping it may forget the address.
#[derive(Debug)]
struct CallOfAddress {
    group: PeerGroup,
    addresses: Arc<Addresses>,
}

impl MountTurns {
    pub(crate) fn new() -> Self {
        Self {
            of_all: Arc::new(Semaphore::new(MOUNT_CALLS)),
            calls: Mutex::new(MOUNT_CALLS),
            addresses: Arc::default(),
        }
    }

    /// Limits the calls at the server further, where descriptors are few. Calls that are there stay.
    pub(crate) fn limit(&self, most: usize) {
        let most = most.min(MOUNT_CALLS);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = most.checked_sub(*calls) {
            self.of_all.add_permits(more);
            *calls = most;
        } else {
            *calls -= self.of_all.forget_permits(*calls - most);
        }
    }

    /// Waits for the turn of a call; `None` if it does not come in [`MOUNT_WAIT`].
    pub(crate) async fn take(&self, group: PeerGroup) -> Option<Turn> {
        let (call, of_address) = CallOfAddress::begin(group, &self.addresses);
        let permits = async {
            // An address stands in the queue of all with a few calls only.
            let of_address = of_address.acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.of_all).acquire_owned().await.ok()?;
            Some((of_all, of_address))
        };
        let (of_all, of_address) = tokio::time::timeout(MOUNT_WAIT, permits).await.ok()??;
        Some(Turn {
            _of_all: of_all,
            _of_address: of_address,
            _call: call,
        })
    }
}

impl CallOfAddress {
    /// Counts a call of an address, and returns the turns of that address.
    fn begin(group: PeerGroup, addresses: &Arc<Addresses>) -> (Self, Arc<Semaphore>) {
        let permits = addresses.lock().change(group, |turns| {
            turns.calls += 1;
            Arc::clone(&turns.permits)
        });
        let call = Self {
            group,
            addresses: Arc::clone(addresses),
        };
        (call, permits)
    }
}

impl Drop for CallOfAddress {
    fn drop(&mut self) {
        let mut addresses = self.addresses.lock();
        addresses.change(self.group, |turns| turns.calls -= 1);
    }
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, ByAddress<AddressTurns>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for AddressTurns {
    fn default() -> Self {
        Self {
            calls: 0,
            permits: Arc::new(Semaphore::new(MOUNT_CALLS_OF_ADDRESS)),
        }
    }
}

impl Unused for AddressTurns {
    fn is_unused(&self) -> bool {
        self.calls == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn address(last: u8) -> PeerGroup {
        PeerGroup::of(IpAddr::from([192, 0, 2, last]))
    }

    /// Turns of so many calls of an address, which are there at once.
    async fn take(turns: &MountTurns, of: u8, calls: usize) -> Vec<Turn> {
        let mut taken = Vec::new();
        for _ in 0..calls {
            taken.push(turns.take(address(of)).await.expect("it is free"));
        }
        taken
    }

    fn poll(wait: Pin<&mut impl Future<Output = Option<Turn>>>) -> Option<Turn> {
        let mut cx = Context::from_waker(Waker::noop());
        match wait.poll(&mut cx) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn address_with_many_calls_does_not_keep_another_one_waiting() {
        let turns = MountTurns::new();
        let mut first = take(&turns, 1, MOUNT_CALLS_OF_ADDRESS).await;
        let mut further: Vec<_> = (0..100).map(|_| Box::pin(turns.take(address(1)))).collect();
        assert!(further.iter_mut().all(|wait| poll(wait.as_mut()).is_none()));
        let _other = take(&turns, 2, MOUNT_CALLS_OF_ADDRESS).await;
        first.pop();
        let next: Vec<_> = further
            .iter_mut()
            .filter_map(|wait| poll(wait.as_mut()))
            .collect();
        assert_eq!(next.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_many_addresses_have_no_more_connections_than_permitted_and_wait_no_longer() {
        let turns = MountTurns::new();
        let mut taken = Vec::new();
        for of in 0..MOUNT_CALLS / MOUNT_CALLS_OF_ADDRESS {
            let of = u8::try_from(of).expect("there are few");
            taken.extend(take(&turns, of, MOUNT_CALLS_OF_ADDRESS).await);
        }
        let mut waits = pin!(turns.take(address(200)));
        assert!(poll(waits.as_mut()).is_none());
        assert!(waits.await.is_none(), "it ends after {MOUNT_WAIT:?}");
        taken.pop();
        assert!(turns.take(address(200)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_fewer_where_descriptors_are_few() {
        let turns = MountTurns::new();
        let free = || turns.of_all.available_permits();
        turns.limit(3);
        assert_eq!(free(), 3);
        turns.limit(1000);
        assert_eq!(free(), MOUNT_CALLS);
        let taken = take(&turns, 1, 4).await;
        turns.limit(1);
        assert_eq!(free(), 0);
        drop(taken);
        turns.limit(1);
        assert_eq!(free(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_without_calls_are_forgotten() {
        let turns = MountTurns::new();
        for last in 0..=255 {
            drop(turns.take(address(last)).await);
        }
        assert_eq!(turns.addresses.lock().len(), 0);
        let taken = take(&turns, 1, MOUNT_CALLS_OF_ADDRESS).await;
        let mut given_up = Box::pin(turns.take(address(1)));
        assert!(poll(given_up.as_mut()).is_none());
        drop(taken);
        assert_eq!(turns.addresses.lock().len(), 1, "a call waits");
        drop(given_up);
        assert_eq!(turns.addresses.lock().len(), 0);
    }
}
