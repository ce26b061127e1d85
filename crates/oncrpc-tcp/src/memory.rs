//! Memory budget for the large calls of all connections of a server.
//!
//! A call holds its memory from the receipt of its first bytes until its reply is made. An address
//! may hold as much as it leaves free, so that whoever comes next finds some: alone it gets half,
//! two get a third each. What does not fit stays in the sockets.

use oncrpc::PeerGroup;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The budget.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<State>>);

struct State {
    /// Bytes left.
    left: usize,
    /// Bytes held by each address.
    held: HashMap<PeerGroup, usize>,
    /// Connections that wait, each with its task.
    waiting: HashMap<u64, Waker>,
    next: u64,
}

/// The account of one connection.
pub(crate) struct Account {
    memory: Memory,
    group: PeerGroup,
    /// Its number among those that wait, if it does.
    waits: Option<u64>,
}

/// Memory of one call, returned on drop.
pub(crate) struct Lease {
    memory: Memory,
    group: PeerGroup,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            left: bytes,
            held: HashMap::new(),
            waiting: HashMap::new(),
            next: 0,
        })))
    }

    pub(crate) fn account(&self, group: PeerGroup) -> Account {
        Account {
            memory: self.clone(),
            group,
            waits: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Account {
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
        if let Some(number) = self.waits.take() {
            state.waiting.remove(&number);
        }
        drop(state);
        let lease = lease.get_or_insert_with(|| Lease {
            memory: self.memory.clone(),
            group: self.group,
            bytes: 0,
        });
        lease.bytes += more;
        Poll::Ready(())
    }

    /// Whether it waits for memory.
    pub(crate) fn waits(&self) -> bool {
        self.waits.is_some()
    }
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
        let mut state = self.memory.lock();
        state.left += self.bytes;
        if let Some(held) = state.held.get_mut(&self.group) {
            *held -= self.bytes;
            if *held == 0 {
                state.held.remove(&self.group);
            }
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(number) = self.waits {
            self.memory.lock().waiting.remove(&number);
        }
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
