//! Memory for replies, shared fairly by address.
//!
//! A call to an RDMA upstream registers memory for what its reply may need (RFC 8166 §3.4.6), however
//! small the reply is in the end, and until the upstream has answered. A reply to a TCP client has its
//! memory until it is written.
//!
//! An address may hold as much as it leaves free: alone it gets half, and those who come later find
//! some. Addresses with waiting calls are served round-robin, one call each, as are the connections of
//! one address, and nobody overtakes a call that is within its share. What replies hold which no
//! client takes comes back when others need it: the connection of such a client is closed.

mod group;
mod woken;

use group::Group;
use oncrpc::{Caller, ConnectionId, PeerGroup};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Divisor for the largest lease.
const LARGEST_PART: usize = 2;

/// Largest reply in bytes that needs no lease: it comes inline.
const SMALL_REPLY: usize = 4096;

/// How long a call waits for memory, and a client takes too little of the replies that are there,
/// before the client loses its connection, so that others go on.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// Divisor for what a client returns of the memory that it holds within [`STALLED_AFTER`], so that it
/// does not count as standing still: a client that takes only small replies keeps no large ones.
const RETURNED_PART: usize = 32;

/// How often a call that has waited for [`STALLED_AFTER`] looks for a connection to close.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(250);

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
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    connection: ConnectionId,
    addr: SocketAddr,
    granted: oneshot::Sender<Lease>,
}

#[derive(Debug)]
struct Holder {
    group: PeerGroup,
    addr: SocketAddr,
    /// Leases by number.
    leases: HashMap<u64, Held>,
    /// Bytes of these.
    held: usize,
    /// Since when the client has not returned its part of what it holds.
    since: Instant,
    /// Bytes returned since then.
    returned: usize,
    /// It is being closed.
    is_closing: bool,
}

/// What one lease of a connection holds.
#[derive(Debug)]
struct Held {
    bytes: usize,
    /// Since when its call could go on, and waits for room at the client.
    woken: Option<Instant>,
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

/// A client that does not take its replies while others wait for memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stalled {
    pub(crate) connection: ConnectionId,
    pub(crate) addr: SocketAddr,
    pub(crate) group: PeerGroup,
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
        };
        Self(Arc::new(Shared {
            total: bytes,
            state: Mutex::new(state),
        }))
    }

    /// Waits for the memory of a reply of so many bytes; `None` if it needs none. A reply larger than
    /// half of the budget takes that half. Passes clients that must lose their connections to `close`.
    pub(crate) async fn lease(
        &self,
        caller: &Caller,
        bytes: usize,
        close: impl Fn(Stalled),
    ) -> Option<Lease> {
        if bytes <= SMALL_REPLY {
            return None;
        }
        let (granted, mut lease) = oneshot::channel();
        let waiting = self.queue(
            Waiter {
                bytes: bytes.min(self.0.total / LARGEST_PART),
                connection: caller.connection,
                addr: caller.addr,
                granted,
            },
            caller.group,
        );
        let mut pause = STALLED_AFTER;
        loop {
            // A sender that is gone has granted.
            tokio::select! {
                biased;
                lease = &mut lease => {
                    let lease = lease.ok()?;
                    self.set_woken(lease.connection, lease.number, false);
                    return Some(lease);
                }
                () = tokio::time::sleep(pause) => {
                    if let Some(stalled) = waiting.reclaim(Instant::now()) {
                        close(stalled);
                    }
                    pause = RECLAIM_INTERVAL;
                }
            }
        }
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
        self.serve(state);
        Waiting {
            memory: self,
            group: of,
            connection,
            number,
        }
    }

    /// Lends what is free to the calls that wait, in turn.
    fn serve(&self, mut state: MutexGuard<'_, State>) {
        let mut granted = Vec::new();
        // Addresses in the queue that may have the next turn.
        let mut left_to_ask = state.turns.len();
        while left_to_ask > 0
            && let Some(of) = state.turns.pop_front()
        {
            left_to_ask -= 1;
            let left = state.left;
            let group = state.groups.entry(of).or_default();
            let Some(bytes) = group.next().map(|waiter| waiter.bytes) else {
                continue;
            };
            if !may_hold(group.held, bytes, left) {
                state.turns.push_back(of);
                continue;
            }
            if bytes > left {
                // Nobody overtakes it.
                state.turns.push_front(of);
                break;
            }
            let Some(waiter) = group.take_next() else {
                continue;
            };
            group.held += bytes;
            let waits = group.waits();
            granted.push(state.lend(self, of, waiter));
            if waits {
                state.turns.push_back(of);
            }
            left_to_ask = state.turns.len();
        }
        drop(state);
        for (lease, to) in granted {
            // One that does not wait any more returns it.
            let _ = to.send(lease);
        }
    }

    fn set_woken(&self, connection: ConnectionId, number: u64, is_woken: bool) {
        let mut state = self.lock();
        let holder = state.holders.get_mut(&connection);
        let Some(held) = holder.and_then(|holder| holder.leases.get_mut(&number)) else {
            return;
        };
        held.woken = match (is_woken, held.woken) {
            (false, _) => None,
            (true, Some(before)) => Some(before),
            (true, None) => Some(Instant::now()),
        };
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

    /// Makes the lease of a call. The bytes are counted as those of its address already.
    fn lend(
        &mut self,
        memory: &ReplyMemory,
        group: PeerGroup,
        waiter: Waiter,
    ) -> (Lease, oneshot::Sender<Lease>) {
        self.left -= waiter.bytes;
        let (number, now) = (self.number(), Instant::now());
        let holder = self.holders.entry(waiter.connection).or_insert(Holder {
            group,
            addr: waiter.addr,
            leases: HashMap::new(),
            held: 0,
            since: now,
            returned: 0,
            is_closing: false,
        });
        let bytes = waiter.bytes;
        holder.held += bytes;
        // Its call was woken by this.
        let woken = Some(now);
        holder.leases.insert(number, Held { bytes, woken });
        let lease = Lease {
            memory: memory.clone(),
            group,
            connection: waiter.connection,
            number,
            bytes,
        };
        (lease, waiter.granted)
    }

    /// Bytes that connections return which are being closed.
    fn returning(&self) -> usize {
        let closing = self.holders.values().filter(|holder| holder.is_closing);
        closing.map(|holder| holder.held).sum()
    }

    /// Bytes that the next calls of all addresses wait for.
    fn awaited(&self) -> usize {
        let groups = self.turns.iter().filter_map(|of| self.groups.get(of));
        let next = groups.filter_map(Group::next);
        next.map(|waiter| waiter.bytes).sum()
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

impl Holder {
    /// Returns a lease.
    fn give_back(&mut self, number: u64) {
        let Some(lease) = self.leases.remove(&number) else {
            return;
        };
        self.held -= lease.bytes;
        self.returned += lease.bytes;
        if self.returned >= self.held / RETURNED_PART {
            (self.since, self.returned) = (Instant::now(), 0);
        }
    }

    /// Whether the client has returned too little for long although replies wait for it.
    fn stands_still(&self, now: Instant) -> bool {
        let is_long = |since| now.saturating_duration_since(since) >= STALLED_AFTER;
        let mut woken = self.leases.values().filter_map(|held| held.woken);
        is_long(self.since) && woken.any(is_long)
    }
}

impl Waiting<'_> {
    /// Chooses a client whose memory others need: the address that holds most, and of this the
    /// connection that has stood still for longest. Only an address that holds less may have it, or
    /// a connection of the same address that holds less.
    fn reclaim(&self, now: Instant) -> Option<Stalled> {
        let mut state = self.memory.lock();
        let own = state.groups.get(&self.group)?;
        let is_first = own.is_first(self.connection, self.number);
        if !is_first || state.returning() >= state.awaited() {
            return None;
        }
        let own_connection = state.holders.get(&self.connection);
        let (held, held_here) = (own.held, own_connection.map_or(0, |holder| holder.held));
        let groups = &state.groups;
        let held_by = |of| groups.get(&of).map_or(0, |group: &Group| group.held);
        let has_more = |holder: &Holder| match holder.group == self.group {
            true => holder.held > held_here,
            false => held_by(holder.group) > held,
        };
        let stalled = state.holders.iter().filter(|(_, holder)| {
            !holder.is_closing && has_more(holder) && holder.stands_still(now)
        });
        let longest = |holder: &Holder| now.saturating_duration_since(holder.since);
        let (&connection, _) =
            stalled.max_by_key(|(_, holder)| (held_by(holder.group), longest(holder)))?;
        let holder = state.holders.get_mut(&connection)?;
        holder.is_closing = true;
        Some(Stalled {
            connection,
            addr: holder.addr,
            group: holder.group,
        })
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
        // Those behind it move up.
        self.memory.serve(state);
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
            if holder.leases.is_empty() {
                state.holders.remove(&self.connection);
            }
        }
        state.forget_if_unused(self.group);
        self.memory.serve(state);
    }
}

#[cfg(test)]
mod tests;
