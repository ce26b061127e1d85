//! Memory for replies, shared fairly by address.
//!
//! A call to an RDMA upstream registers memory for what its reply may need (RFC 8166 §3.4.6), however
//! small the reply is in the end. A reply to a TCP client that does not read stays with its call.

use oncrpc::{PeerGroup, ReplyBound};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Divisor for the share of one address.
const SHARE: usize = 4;

/// Bytes of one permit.
const UNIT: usize = 1024;

/// Smallest reply in bytes that counts: a smaller one comes inline.
const SMALL: usize = 4096;

/// A budget of bytes. An address holds a quarter of it at most; within its quarter, calls wait in
/// order.
#[derive(Debug)]
pub(crate) struct ReplyMemory {
    units: usize,
    all: Arc<Semaphore>,
    /// Quarters of addresses with calls.
    shares: Mutex<HashMap<PeerGroup, Weak<Semaphore>>>,
}

/// Memory of one call.
#[derive(Debug)]
pub(crate) struct Lease {
    _of_all: OwnedSemaphorePermit,
    _of_address: OwnedSemaphorePermit,
}

impl ReplyMemory {
    /// Creates a budget of so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).clamp(SHARE, Semaphore::MAX_PERMITS);
        Self {
            units,
            all: Arc::new(Semaphore::new(units)),
            shares: Mutex::default(),
        }
    }

    /// Waits for the memory of a reply; `None` if it needs none. A reply larger than the quarter of
    /// an address takes all of that.
    pub(crate) async fn lease(&self, of: PeerGroup, reply: &ReplyBound) -> Option<Lease> {
        let bytes = reply
            .results
            .iter()
            .fold(reply.fixed, |sum, &len| sum.saturating_add(len));
        if bytes <= SMALL {
            return None;
        }
        let units = bytes.div_ceil(UNIT).min(self.units / SHARE);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let share = self.share(of);
        // Semaphores that are never closed always lend in the end.
        let of_address = share.acquire_many_owned(units).await.ok()?;
        let of_all = Arc::clone(&self.all).acquire_many_owned(units).await.ok()?;
        Some(Lease {
            _of_all: of_all,
            _of_address: of_address,
        })
    }

    fn share(&self, of: PeerGroup) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&of).and_then(Weak::upgrade) {
            return share;
        }
        // Those of addresses without calls are gone.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.units / SHARE));
        shares.insert(of, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn address(number: u32) -> PeerGroup {
        PeerGroup::of(IpAddr::from(number.to_be_bytes()))
    }

    fn reply(bytes: usize) -> ReplyBound {
        ReplyBound::new(100).with_result(bytes)
    }

    fn poll<T>(lease: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match lease.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(lease) => Some(lease),
            Poll::Pending => None,
        }
    }

    #[test]
    fn address_waits_for_its_own_quarter_and_others_do_not_wait_for_it() {
        let memory = ReplyMemory::new(4 << 20);
        let large = reply((1 << 20) - 1024);
        let mut first = pin!(memory.lease(address(1), &large));
        let first = poll(first.as_mut()).expect("there is enough");
        let mut second = pin!(memory.lease(address(1), &large));
        assert!(poll(second.as_mut()).is_none());
        let mut other = pin!(memory.lease(address(2), &large));
        let _other = poll(other.as_mut()).expect("it has its own quarter");
        drop(first);
        assert!(poll(second.as_mut()).is_some());
    }

    #[test]
    fn small_reply_needs_no_memory_and_a_huge_one_is_lent_a_quarter() {
        let memory = ReplyMemory::new(4 << 20);
        let bound = reply(usize::MAX);
        let mut huge = pin!(memory.lease(address(1), &bound));
        let _huge = poll(huge.as_mut()).expect("it is lent").expect("a lease");
        let bound = ReplyBound::new(200);
        let mut small = pin!(memory.lease(address(2), &bound));
        assert!(poll(small.as_mut()).expect("at once").is_none());
        assert_eq!(memory.all.available_permits(), 3 << 10);
    }

    #[test]
    fn shares_of_addresses_without_calls_are_forgotten() {
        let memory = ReplyMemory::new(4 << 20);
        for number in 0..1000 {
            let reply = reply(8192);
            let mut lease = pin!(memory.lease(address(number), &reply));
            drop(poll(lease.as_mut()).expect("there is enough"));
        }
        let shares = memory.shares.lock().expect("no panic holds it");
        assert!(shares.len() <= 1);
    }
}
