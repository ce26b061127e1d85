//! Memory budget for the calls of all connections of a server.
//!
//! A call holds its memory from the receipt of its first bytes until its reply is made. A connection
//! has [`FREE_CALLS`] of its own for small ones. For more, and for large ones, an address may hold as
//! much as it leaves free, so that whoever comes next finds some: alone it gets half, two get a third
//! each. What does not fit stays in the sockets.

use oncrpc::PeerGroup;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes of small calls of one connection, with what is around them, that need no memory of the budget.
pub(crate) const FREE_CALLS: usize = 64 << 10;

/// Bytes that a call in service occupies beside its message.
const CALL_COST: usize = 2048;

/// The budget.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<State>>);

struct State {
    /// Bytes left.
    left: usize,
    /// Bytes held by each address.
    held: HashMap<PeerGroup, usize>,
    /// Connections that wait, each with its task.
    waiting: BTreeMap<u64, Waker>,
    next: u64,
}

/// The account of one connection.
pub(crate) struct Account {
    memory: Memory,
    group: PeerGroup,
    /// Its number among those that wait, if it does.
    waits: Option<u64>,
    /// Bytes of its calls in service that are not of the budget.
    free: Arc<AtomicUsize>,
}

/// Memory of one call, returned on drop.
pub(crate) struct Lease {
    from: From,
    bytes: usize,
}

/// Whose memory it is.
enum From {
    Budget(Memory, PeerGroup),
    Connection(Arc<AtomicUsize>),
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            left: bytes,
            held: HashMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
        })))
    }

    pub(crate) fn account(&self, group: PeerGroup) -> Account {
        Account {
            memory: self.clone(),
            group,
            waits: None,
            free: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
    /// Memory of the connection for a call of this many bytes, if it has so much: for one call in any
    /// case.
    pub(crate) fn take_free(&mut self, message: usize) -> Option<Lease> {
        let bytes = cost(message);
        let more = |held| (held == 0 || held + bytes <= FREE_CALLS).then_some(held + bytes);
        self.free.fetch_update(Relaxed, Relaxed, more).ok()?;
        self.stop_waiting();
        Some(Lease {
            from: From::Connection(Arc::clone(&self.free)),
            bytes,
        })
    }

    /// Enlarges a lease to this many bytes, or waits for memory.
    pub(crate) fn poll_enlarge(
        &mut self,
        cx: &Context<'_>,
        lease: &mut Option<Lease>,
        bytes: usize,
    ) -> Poll<()> {
        let have = lease.as_ref().map_or(0, |lease| lease.bytes);
        let more = bytes.saturating_sub(have);
        let mut state = self.memory.lock();
        if !state.take(self.group, more) {
            let number = self.waits.unwrap_or(state.next);
            state.next = state.next.max(number + 1);
            state.waiting.insert(number, cx.waker().clone());
            self.waits = Some(number);
            return Poll::Pending;
        }
        drop(state);
        self.stop_waiting();
        let lease = lease.get_or_insert_with(|| Lease {
            from: From::Budget(self.memory.clone(), self.group),
            bytes: 0,
        });
        lease.bytes += more;
        Poll::Ready(())
    }

    fn stop_waiting(&mut self) {
        if let Some(number) = self.waits.take() {
            self.memory.lock().waiting.remove(&number);
        }
    }

    /// Whether it waits for memory.
    pub(crate) fn waits(&self) -> bool {
        self.waits.is_some()
    }
}

/// Bytes that a call with a message of this many occupies in service.
pub(crate) fn cost(message: usize) -> usize {
    message + CALL_COST
}

impl State {
    fn take(&mut self, group: PeerGroup, bytes: usize) -> bool {
        let Some(left) = self.left.checked_sub(bytes) else {
            return false;
        };
        let held = self.held.get(&group).copied().unwrap_or(0);
        // An address without any may have the last of it.
        if held > 0 && held + bytes > left {
            return false;
        }
        self.left = left;
        self.held.insert(group, held + bytes);
        true
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (memory, group) = match &self.from {
            From::Budget(memory, group) => (memory, group),
            From::Connection(free) => {
                free.fetch_sub(self.bytes, Relaxed);
                return;
            }
        };
        let mut state = memory.lock();
        state.left += self.bytes;
        if let Some(held) = state.held.get_mut(group) {
            *held -= self.bytes;
            if *held == 0 {
                state.held.remove(group);
            }
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn group(last: u8) -> PeerGroup {
        PeerGroup::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    fn take(account: &mut Account, bytes: usize) -> Option<Lease> {
        let (mut lease, cx) = (None, Context::from_waker(Waker::noop()));
        let taken = account.poll_enlarge(&cx, &mut lease, bytes);
        taken.is_ready().then(|| lease.unwrap())
    }

    #[test]
    fn address_leaves_as_much_as_it_holds() {
        let memory = Memory::new(100);
        let (mut greedy, mut other) = (memory.account(group(1)), memory.account(group(2)));
        let mut held: Vec<_> = (0..5).map(|_| take(&mut greedy, 10).unwrap()).collect();
        assert!(take(&mut greedy, 10).is_none());
        assert!(greedy.waits());
        let theirs = take(&mut other, 50).unwrap();
        assert!(take(&mut other, 1).is_none());
        held.pop();
        assert!(take(&mut greedy, 5).is_none());
        drop(theirs);
        assert!(take(&mut greedy, 5).is_some());
        assert!(!greedy.waits());
    }

    #[test]
    fn connection_has_memory_of_its_own_for_some_small_calls_or_any_one() {
        let memory = Memory::new(100);
        let mut account = memory.account(group(1));
        let large = account.take_free(2 * FREE_CALLS).expect("it is the first");
        assert!(account.take_free(1).is_none());
        drop(large);
        let mut small: Vec<_> = std::iter::from_fn(|| account.take_free(100)).collect();
        assert_eq!(small.len(), FREE_CALLS / cost(100));
        small.pop();
        assert!(account.take_free(100).is_some());
        assert_eq!(memory.lock().left, 100);
    }

    #[test]
    fn lease_grows_with_its_record_and_comes_back_whole() {
        let memory = Memory::new(100);
        let mut account = memory.account(group(1));
        let (mut lease, cx) = (None, Context::from_waker(Waker::noop()));
        for bytes in [10, 30, 30, 50] {
            assert!(account.poll_enlarge(&cx, &mut lease, bytes).is_ready());
        }
        assert!(account.poll_enlarge(&cx, &mut lease, 60).is_pending());
        drop(lease);
        assert_eq!(memory.lock().left, 100);
        assert!(memory.lock().held.is_empty());
    }
}
