//! Memory for replies, shared fairly by address.
//!
//! A call to an RDMA upstream registers memory for what its reply may need (RFC 8166 §3.4.6), however
//! small the reply is in the end, and until the upstream has answered. A reply to a TCP client has its
//! memory until it is written.
//!
//! An address may hold as much as it leaves free: alone it gets half, and those who come later find
//! some. Addresses with waiting calls are served round-robin, one call each, as are the connections of
//! one address, and nobody overtakes a call that is within its share. What replies hold which no
//! client takes comes back when others need it: the connection of such a client is closed
//! ([`stalled`]). After a longer time so is that of one whose calls an RDMA upstream leaves unanswered.

mod holder;
mod small;
mod stalled;
mod woken;

use holder::Holder;
use oncrpc::{Caller, ConnectionId, PeerGroup};
use rpc_serving::fair_queue::{FairQueue, Turn};
use rpc_serving::shares::{Bound, Shares};
#[cfg(test)]
pub(crate) use small::SMALL_REPLIES;
pub(crate) use small::{RECEIVE, REPLY_COST, SMALL_REPLY, SmallReplies, SmallReply};
pub(crate) use stalled::{Stalled, Watch, Why};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Divisor for the largest lease.
const LARGEST_PART: usize = 2;

/// A budget of bytes.
#[derive(Clone, Debug)]
pub(crate) struct ReplyMemory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    bytes: Shares,
    waiting: FairQueue<ConnectionId, Waiter>,
    /// Connections with leases.
    holders: BTreeMap<ConnectionId, Holder>,
    next: u64,
    /// As long as less is left, nobody who waits can be served.
    needed: usize,
    /// Somebody looks for stalled clients as long as calls wait.
    is_watched: bool,
    /// When it was last looked for these.
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    bytes: usize,
    addr: SocketAddr,
    since: Instant,
    granted: oneshot::Sender<Lease>,
}

/// Memory of one call, returned on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    memory: ReplyMemory,
    group: PeerGroup,
    connection: ConnectionId,
    number: u64,
    bytes: usize,
}

/// A call that waits. Dropping it leaves the queue.
struct Waiting<'a> {
    memory: &'a ReplyMemory,
    group: PeerGroup,
    connection: ConnectionId,
    number: u64,
}

impl ReplyMemory {
    /// Creates a budget of so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let state = State {
            bytes: Shares::new(bytes, Bound::WhatItLeaves),
            waiting: FairQueue::default(),
            holders: BTreeMap::new(),
            next: 0,
            needed: 0,
            is_watched: false,
            looked: None,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Waits for the memory of a reply of so many bytes. A reply larger than half of the budget takes
    /// that half. If it is not there at once, `on_wait` is called: somebody has to [watch](Watch) then.
    pub(crate) async fn lease(
        &self,
        caller: &Caller,
        bytes: usize,
        on_wait: impl FnOnce(),
    ) -> Lease {
        if let Some(lease) = self.lease_at_once(caller, bytes) {
            return lease;
        }
        let (granted, lease) = oneshot::channel();
        let _waiting = self.queue(caller, bytes, granted);
        on_wait();
        let lease = lease.await;
        let lease = lease.expect("a call in the queue has its lease before it leaves that");
        self.set_woken(lease.connection, lease.number, false);
        lease
    }

    /// Lends memory that is free, if nobody waits.
    pub(crate) fn lease_at_once(&self, caller: &Caller, bytes: usize) -> Option<Lease> {
        let mut state = self.lock();
        let bytes = state.largest(bytes);
        if !state.waiting.is_empty() || !state.bytes.take(caller.group, bytes) {
            return None;
        }
        let to = (caller.connection, caller.addr);
        Some(state.lend(self, caller.group, to, bytes, None))
    }

    /// Bytes that are free.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.lock().bytes.left()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a call, and serves it if it is its turn.
    fn queue(&self, caller: &Caller, bytes: usize, granted: oneshot::Sender<Lease>) -> Waiting<'_> {
        let mut state = self.lock();
        let number = state.number();
        let waiter = Waiter {
            number,
            bytes: state.largest(bytes),
            addr: caller.addr,
            since: Instant::now(),
            granted,
        };
        let (group, connection) = (caller.group, caller.connection);
        state.waiting.push(group, connection, waiter);
        self.serve(state, group);
        Waiting {
            memory: self,
            group,
            connection,
            number,
        }
    }

    /// Lends what is free to the calls that wait, in turn, after something has changed for this address.
    fn serve(&self, mut state: MutexGuard<'_, State>, changed: PeerGroup) {
        let State {
            bytes,
            waiting,
            needed,
            ..
        } = &mut *state;
        if waiting.is_empty() {
            return;
        }
        if let Some(next) = waiting.next_of(changed) {
            *needed = bytes
                .needs(changed, next.bytes)
                .map_or(*needed, |needs| needs.min(*needed));
        }
        if bytes.left() < *needed {
            return;
        }
        *needed = usize::MAX;
        let served = waiting.pop_all(|of, waiter| {
            if bytes.take(of, waiter.bytes) {
                return Turn::Takes;
            }
            if let Some(needs) = bytes.needs(of, waiter.bytes) {
                *needed = needs.min(*needed);
            }
            match bytes.held_by(of) {
                // Nobody overtakes it.
                0 => Turn::Waits,
                _ => Turn::IsPassed,
            }
        });
        let mut granted = Vec::with_capacity(served.len());
        for (of, connection, waiter) in served {
            // Its call is woken by this.
            let woken = Some(Instant::now());
            let to = (connection, waiter.addr);
            let lease = state.lend(self, of, to, waiter.bytes, woken);
            granted.push((lease, waiter.granted));
        }
        drop(state);
        for (lease, to) in granted {
            // One that does not wait any more returns it.
            let _ = to.send(lease);
        }
    }

    fn set_woken(&self, connection: ConnectionId, number: u64, is_woken: bool) {
        if let Some(holder) = self.lock().holders.get_mut(&connection) {
            holder.set_woken(number, is_woken);
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Part of the budget that a reply of this many bytes takes.
    fn largest(&self, bytes: usize) -> usize {
        bytes.min(self.bytes.total() / LARGEST_PART)
    }

    /// Makes the lease of a call that has got its bytes, and was woken then if it has waited.
    fn lend(
        &mut self,
        memory: &ReplyMemory,
        group: PeerGroup,
        (connection, addr): (ConnectionId, SocketAddr),
        bytes: usize,
        woken: Option<Instant>,
    ) -> Lease {
        let number = self.number();
        let holder = self.holders.entry(connection);
        let holder = holder.or_insert_with(|| Holder::new(group, addr));
        holder.lend(number, bytes, woken);
        Lease {
            memory: memory.clone(),
            group,
            connection,
            number,
            bytes,
        }
    }
}

impl Lease {
    /// Bytes that are lent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that the reply is with the connection of the client, where it waits to be written and needs
    /// this many bytes. What is beyond these is returned now, the others when it is written.
    pub(crate) fn hand_over(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        let mut state = self.memory.lock();
        state.bytes.give_back(self.group, more);
        if let Some(holder) = state.holders.get_mut(&self.connection) {
            holder.shrink(self.number, more);
            holder.set_woken(self.number, true);
        }
        self.memory.serve(state, self.group);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        let is_it = |waiter: &Waiter| waiter.number == self.number;
        let removed = state.waiting.remove(self.group, self.connection, is_it);
        if removed.is_none() {
            return;
        }
        // Those behind it move up. It may have been the one that nobody overtakes.
        state.needed = 0;
        self.memory.serve(state, self.group);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.bytes.give_back(self.group, self.bytes);
        if let Some(holder) = state.holders.get_mut(&self.connection) {
            holder.give_back(self.number);
            if holder.is_empty() {
                state.holders.remove(&self.connection);
            }
        }
        self.memory.serve(state, self.group);
    }
}

#[cfg(test)]
mod tests;
