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

mod group;
mod holder;
mod small;
mod stalled;
mod woken;

use group::Group;
use holder::Holder;
use oncrpc::{Caller, ConnectionId, PeerGroup};
#[cfg(test)]
pub(crate) use small::SMALL_REPLIES;
pub(crate) use small::{RECEIVE, REPLY_COST, SMALL_REPLY, SmallReplies, SmallReply};
pub(crate) use stalled::{Stalled, Watch, Why};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Divisor for the largest lease.
const LARGEST_PART: usize = 2;

/// A budget of bytes.
#[derive(Clone, Debug)]
pub(crate) struct ReplyMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: usize,
    /// Addresses with leases or waiting calls.
    groups: HashMap<PeerGroup, Group>,
    /// Round-robin queue of addresses with waiting calls.
    turns: VecDeque<PeerGroup>,
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
    bytes: usize,
    connection: ConnectionId,
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
            left: bytes,
            groups: HashMap::new(),
            turns: VecDeque::new(),
            holders: BTreeMap::new(),
            next: 0,
            needed: 0,
            is_watched: false,
            looked: None,
        };
        Self(Arc::new(Shared {
            total: bytes,
            state: Mutex::new(state),
        }))
    }

    /// Waits for the memory of a reply of so many bytes. A reply larger than half of the budget takes
    /// that half. If it is not there at once, `on_wait` is called: somebody has to [watch](Watch) then.
    pub(crate) async fn lease(
        &self,
        caller: &Caller,
        bytes: usize,
        on_wait: impl FnOnce(),
    ) -> Lease {
        let bytes = bytes.min(self.0.total / LARGEST_PART);
        if let Some(lease) = self.lease_at_once(caller, bytes) {
            return lease;
        }
        let (granted, lease) = oneshot::channel();
        let waiter = Waiter {
            bytes,
            connection: caller.connection,
            addr: caller.addr,
            since: Instant::now(),
            granted,
        };
        let _waiting = self.queue(waiter, caller.group);
        on_wait();
        let lease = lease.await;
        let lease = lease.expect("a call in the queue has its lease before it leaves that");
        self.set_woken(lease.connection, lease.number, false);
        lease
    }

    /// Lends memory that is free, if nobody waits.
    pub(crate) fn lease_at_once(&self, caller: &Caller, bytes: usize) -> Option<Lease> {
        let bytes = bytes.min(self.0.total / LARGEST_PART);
        let mut state = self.lock();
        let held = state.groups.get(&caller.group).map_or(0, |of| of.held);
        if !state.turns.is_empty() || bytes > state.left || !may_hold(held, bytes, state.left) {
            return None;
        }
        Some(state.lend(
            self,
            caller.group,
            (caller.connection, caller.addr),
            bytes,
            None,
        ))
    }

    /// Bytes that are free.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.lock().left
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a call, and serves it if it is its turn.
    fn queue(&self, waiter: Waiter, of: PeerGroup) -> Waiting<'_> {
        let mut state = self.lock();
        let (number, connection) = (state.number(), waiter.connection);
        let group = state.groups.entry(of).or_default();
        let is_first = !group.waits();
        group.push(number, waiter);
        if is_first {
            state.turns.push_back(of);
        }
        self.serve(state, of);
        Waiting {
            memory: self,
            group: of,
            connection,
            number,
        }
    }

    /// Lends what is free to the calls that wait, in turn, after something has changed for this address.
    fn serve(&self, mut state: MutexGuard<'_, State>, changed: PeerGroup) {
        if state.turns.is_empty() {
            return;
        }
        let needed = state.groups.get(&changed).and_then(Group::needs);
        state.needed = needed.unwrap_or(usize::MAX).min(state.needed);
        if state.left < state.needed {
            return;
        }
        let mut granted = Vec::new();
        // Addresses in the queue that may have the next turn. One that was passed over finds no more
        // when others were served.
        let mut left_to_ask = state.turns.len();
        let mut needed = usize::MAX;
        while left_to_ask > 0
            && let Some(of) = state.turns.pop_front()
        {
            left_to_ask -= 1;
            let left = state.left;
            let group = state.groups.entry(of).or_default();
            let (Some(bytes), Some(needs)) =
                (group.next().map(|waiter| waiter.bytes), group.needs())
            else {
                continue;
            };
            if group.held == 0 && bytes > left {
                // Nobody overtakes it.
                needed = needed.min(bytes);
                state.turns.push_front(of);
                break;
            }
            if !may_hold(group.held, bytes, left) {
                needed = needed.min(needs);
                state.turns.push_back(of);
                continue;
            }
            let Some(waiter) = group.take_next() else {
                continue;
            };
            let waits = group.waits();
            let to = (waiter.connection, waiter.addr);
            // Its call is woken by this.
            let lease = state.lend(self, of, to, bytes, Some(Instant::now()));
            granted.push((lease, waiter.granted));
            if waits {
                state.turns.push_back(of);
                left_to_ask += 1;
            }
        }
        state.needed = needed;
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

/// Whether an address that holds so much may have so much more: as much as it leaves free, and the
/// first of it in any case.
fn may_hold(held: usize, bytes: usize, left: usize) -> bool {
    held == 0 || held + 2 * bytes <= left
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Makes the lease of a call, which was woken then if it has waited.
    fn lend(
        &mut self,
        memory: &ReplyMemory,
        group: PeerGroup,
        (connection, addr): (ConnectionId, SocketAddr),
        bytes: usize,
        woken: Option<Instant>,
    ) -> Lease {
        self.left -= bytes;
        self.groups.entry(group).or_default().held += bytes;
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

    fn forget_if_unused(&mut self, of: PeerGroup) {
        if let Some(group) = self.groups.get(&of)
            && group.held == 0
            && !group.waits()
        {
            self.groups.remove(&of);
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
        state.left += more;
        if let Some(group) = state.groups.get_mut(&self.group) {
            group.held -= more;
        }
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
        let Some(group) = state.groups.get_mut(&self.group) else {
            return;
        };
        if !group.remove(self.connection, self.number) {
            return;
        }
        if !group.waits() {
            state.turns.retain(|&other| other != self.group);
        }
        state.forget_if_unused(self.group);
        // Those behind it move up. It may have been the one that nobody overtakes.
        state.needed = 0;
        self.memory.serve(state, self.group);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        state.left += self.bytes;
        if let Some(group) = state.groups.get_mut(&self.group) {
            group.held -= self.bytes;
        }
        if let Some(holder) = state.holders.get_mut(&self.connection) {
            holder.give_back(self.number);
            if holder.is_empty() {
                state.holders.remove(&self.connection);
            }
        }
        state.forget_if_unused(self.group);
        self.memory.serve(state, self.group);
    }
}

#[cfg(test)]
mod tests;
