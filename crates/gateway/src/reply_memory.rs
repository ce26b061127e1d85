//! Memory for replies, shared fairly by address.
//!
//! A call to an RDMA upstream registers memory for what its reply may need (RFC 8166 §3.4.6), however
//! small the reply is in the end. A reply to a TCP client that does not read stays with its call.
//!
//! An address may hold as much as it leaves free: alone it gets half, and those who come later find
//! some. Addresses with waiting calls are served round-robin, one call each, and nobody overtakes a
//! call that is within its share. What replies hold which no client takes comes back when others need
//! it: the connection of such a client is closed.

mod woken;

use oncrpc::{Caller, ConnectionId, PeerGroup, ReplyBound};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Divisor for the largest lease.
const LARGEST_PART: usize = 2;

/// Smallest reply in bytes that counts: a smaller one comes inline.
const SMALL: usize = 4096;

/// How long a call waits for memory, and a client takes no reply that is there, before the client
/// loses its connection, so that others go on.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// How often a call that has waited for so long looks for such clients.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

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

#[derive(Debug, Default)]
struct Group {
    held: usize,
    /// Waiting calls by number, in the order of their arrival.
    queue: BTreeMap<u64, Waiter>,
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
    /// When the client last took a reply, or had room for all.
    since: Instant,
    /// It is being closed.
    is_closing: bool,
}

/// What one lease of a connection holds.
#[derive(Debug)]
struct Held {
    bytes: usize,
    /// Its call could go on, and waits for room at the client.
    is_woken: bool,
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

/// A client that takes none of its replies while others wait for memory.
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

    /// Waits for the memory of a reply; `None` if it needs none. A reply larger than half of the
    /// budget takes that half. Passes clients that must lose their connections to `close`.
    pub(crate) async fn lease(
        &self,
        caller: &Caller,
        reply: &ReplyBound,
        close: impl Fn(Stalled),
    ) -> Option<Lease> {
        let bytes = reply
            .results
            .iter()
            .fold(reply.fixed, |sum, &len| sum.saturating_add(len));
        if bytes <= SMALL {
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
                    pause = LOOK_AGAIN;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a call, and serves it if it is its turn.
    fn queue(&self, waiter: Waiter, group: PeerGroup) -> Waiting<'_> {
        let mut state = self.lock();
        let number = state.number();
        let of = state.groups.entry(group).or_default();
        let is_first = of.queue.is_empty();
        of.queue.insert(number, waiter);
        if is_first {
            state.turns.push_back(group);
        }
        self.serve(state);
        Waiting {
            memory: self,
            group,
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
            let Some(first) = group.queue.first_entry() else {
                continue;
            };
            let bytes = first.get().bytes;
            if !may_hold(group.held, bytes, left) {
                state.turns.push_back(of);
                continue;
            }
            if bytes > left {
                // Nobody overtakes it.
                state.turns.push_front(of);
                break;
            }
            let waiter = first.remove();
            group.held += bytes;
            let waits = !group.queue.is_empty();
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
        if let Some(holder) = state.holders.get_mut(&connection) {
            let waited = holder.waits();
            if let Some(held) = holder.leases.get_mut(&number) {
                held.is_woken = is_woken;
            }
            // One had room, or is the first that waits.
            if !waited || !is_woken {
                holder.since = Instant::now();
            }
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

    /// Makes the lease of a call. The bytes are counted as those of its address already.
    fn lend(
        &mut self,
        memory: &ReplyMemory,
        group: PeerGroup,
        waiter: Waiter,
    ) -> (Lease, oneshot::Sender<Lease>) {
        self.left -= waiter.bytes;
        let number = self.number();
        let holder = self.holders.entry(waiter.connection).or_insert(Holder {
            group,
            addr: waiter.addr,
            leases: HashMap::new(),
            since: Instant::now(),
            is_closing: false,
        });
        let bytes = waiter.bytes;
        holder.leases.insert(
            number,
            Held {
                bytes,
                is_woken: true,
            },
        );
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
        closing
            .flat_map(|holder| holder.leases.values())
            .map(|held| held.bytes)
            .sum()
    }

    /// Bytes that the next calls of all addresses wait for.
    fn awaited(&self) -> usize {
        let groups = self.turns.iter().filter_map(|of| self.groups.get(of));
        let firsts = groups.filter_map(|group| group.queue.values().next());
        firsts.map(|waiter| waiter.bytes).sum()
    }

    fn forget_if_unused(&mut self, of: PeerGroup) {
        if let Some(group) = self.groups.get(&of)
            && group.held == 0
            && group.queue.is_empty()
        {
            self.groups.remove(&of);
        }
    }
}

impl Holder {
    /// Whether calls wait for room at the client.
    fn waits(&self) -> bool {
        self.leases.values().any(|held| held.is_woken)
    }
}

impl Waiting<'_> {
    /// Chooses a client whose memory others need: the address that holds most, and of this the
    /// connection that has stood still for longest. Only an address that holds less may have it.
    fn reclaim(&self, now: Instant) -> Option<Stalled> {
        let mut state = self.memory.lock();
        let own = state.groups.get(&self.group)?;
        let is_first = own.queue.keys().next() == Some(&self.number);
        if !is_first || state.returning() >= state.awaited() {
            return None;
        }
        let (held, groups) = (own.held, &state.groups);
        let held_by = |of| groups.get(&of).map_or(0, |group: &Group| group.held);
        let stalled = state.holders.iter().filter(|(_, holder)| {
            held_by(holder.group) > held
                && now.saturating_duration_since(holder.since) >= STALLED_AFTER
                && holder.waits()
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
        if group.queue.remove(&self.number).is_none() {
            return;
        }
        if group.queue.is_empty() {
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
            holder.leases.remove(&self.number);
            holder.since = Instant::now();
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
