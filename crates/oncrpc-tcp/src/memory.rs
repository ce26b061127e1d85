//! Memory budget for the calls of all connections of a server, and for replies that wait to be written.
//!
//! A call holds its memory from the receipt of its first bytes until its reply is made. A connection
//! has [`FREE_CALLS`] of its own for small ones. For more, and for large ones, an address may hold as
//! much as it leaves free, so that whoever comes next finds some: alone it gets half, two get a third
//! each. What does not fit stays in the sockets.
//!
//! Replies have what calls leave, and at most half of the budget: a connection whose replies find no
//! memory waits for its own client, who reads them, and for no other.

use oncrpc::PeerGroup;
use rpc_serving::loans::Loans;
use rpc_serving::shares::{Bound, Shares};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// How long a call waits for memory before others must be fast that have some and are not complete.
pub(crate) const SCARCE_AFTER: Duration = Duration::from_secs(2);

/// Bytes of small calls of one connection, with what is around them, that need no memory of the budget.
pub(crate) const FREE_CALLS: usize = 64 << 10;

/// Memory of waiting replies is taken and returned in multiples of this, and not for each of them.
const OUTPUT_STEP: usize = 64 << 10;

/// Divisor for the part of the budget that replies leave to calls.
const CALLS_PART: usize = 2;

/// Bytes that the future of a service may take by which it [answers a call later](oncrpc::Answer::Later). For so many there
/// is memory in [`Limits::memory`](crate::Limits::memory), whatever its size is.
pub const FUTURE_COST: usize = 2816;

/// Bytes that a call in service occupies beside its message: its future, and what its connection keeps for it.
const CALL_COST: usize = FUTURE_COST + 512;

/// The budget.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Mutex<State>>);

struct State {
    /// Bytes, of which calls may have to give way. Those of replies are read by the clients, who lose their connections
    /// otherwise.
    bytes: Shares,
    /// Bytes of calls, by connection.
    calls: Loans<u64>,
    /// Connections that wait, each with its task.
    waiting: BTreeMap<u64, Waker>,
    /// Since when each of them waits.
    since: BTreeMap<u64, Instant>,
    /// The last number of an account, or of one that waits.
    last: u64,
}

/// The account of one connection.
pub(crate) struct Account {
    memory: Memory,
    number: u64,
    group: PeerGroup,
    /// Number of its calls with memory of the budget.
    calls: Arc<AtomicUsize>,
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

/// Owner of the memory.
enum From {
    Budget {
        memory: Memory,
        group: PeerGroup,
        /// Number of the call.
        number: u64,
        calls: Arc<AtomicUsize>,
    },
    Connection(Arc<AtomicUsize>),
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            bytes: Shares::new(bytes, Bound::WhatItLeaves),
            calls: Loans::default(),
            waiting: BTreeMap::new(),
            since: BTreeMap::new(),
            last: 0,
        })))
    }

    pub(crate) fn account(&self, group: PeerGroup) -> Account {
        Account {
            memory: self.clone(),
            number: self.lock().number(),
            group,
            calls: Arc::default(),
            waits: None,
            free: Arc::default(),
        }
    }

    /// Memory for the replies of one connection.
    pub(crate) fn output(&self, group: PeerGroup) -> OutputLease {
        OutputLease {
            memory: self.clone(),
            group,
            bytes: 0,
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
        if !state.bytes.take(self.group, more) {
            let number = self.waits.unwrap_or_else(|| state.number());
            state.waiting.insert(number, cx.waker().clone());
            if self.waits.replace(number).is_none() {
                state.since.insert(number, Instant::now());
            }
            return Poll::Pending;
        }
        let lease = lease.get_or_insert_with(|| {
            let now = Instant::now().into_std();
            let number = state.calls.lend(self.group, self.number, more, now);
            self.calls.fetch_add(1, Relaxed);
            let (memory, calls) = (self.memory.clone(), Arc::clone(&self.calls));
            let from = From::Budget {
                memory,
                group: self.group,
                number,
                calls,
            };
            Lease { from, bytes: 0 }
        });
        lease.bytes += more;
        if let From::Budget { number, .. } = &lease.from {
            state.calls.resize(*number, lease.bytes);
        }
        drop(state);
        self.stop_waiting();
        Poll::Ready(())
    }

    fn stop_waiting(&mut self) {
        if let Some(number) = self.waits.take() {
            let mut state = self.memory.lock();
            state.waiting.remove(&number);
            state.since.remove(&number);
        }
    }

    /// Whether another connection has waited for memory for so long.
    pub(crate) fn is_scarce(&self, now: Instant, after: Duration) -> bool {
        self.others_wait(&self.memory.lock(), now, after)
    }

    /// Whether calls of the connection have memory of the budget.
    pub(crate) fn holds(&self) -> bool {
        self.calls.load(Relaxed) > 0
    }

    /// Whether calls hold half of what the connection has, and have held it for so long, while others have
    /// waited for memory for as long, and no address has more than that of the connection.
    pub(crate) fn must_give_way(&self, now: Instant, after: Duration) -> bool {
        let mut state = self.memory.lock();
        self.others_wait(&state, now, after)
            && (state.calls).must_give_way(self.group, self.number, now.into_std(), after)
    }

    fn others_wait(&self, state: &State, now: Instant, after: Duration) -> bool {
        let others = state
            .since
            .iter()
            .filter(|(number, _)| Some(**number) != self.waits);
        // The first has waited for longest.
        let longest = others.map(|(_, since)| *since).next();
        longest.is_some_and(|since| now.saturating_duration_since(since) >= after)
    }

    /// Whether it waits for memory.
    pub(crate) fn waits(&self) -> bool {
        self.waits.is_some()
    }
}

/// Memory of the replies of one connection that wait to be written, returned on drop.
pub(crate) struct OutputLease {
    memory: Memory,
    group: PeerGroup,
    bytes: usize,
}

impl OutputLease {
    /// Bytes that are leased.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Resizes the lease to this many bytes, or a little more. Returns whether there is so much.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let bytes = bytes.next_multiple_of(OUTPUT_STEP);
        if bytes > self.bytes {
            let taken = self
                .memory
                .lock()
                .take_for_reply(self.group, bytes - self.bytes);
            if taken {
                self.bytes = bytes;
            }
            return taken;
        }
        // One step more is kept, so that single replies do not move it to and fro.
        if bytes + OUTPUT_STEP < self.bytes || bytes == 0 {
            self.give_back(self.bytes - bytes);
        }
        true
    }

    fn give_back(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes -= bytes;
            State::give_back(self.memory.lock(), self.group, bytes);
        }
    }
}

impl Drop for OutputLease {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

impl Lease {
    /// Returns what is lent beyond this many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        let From::Budget {
            memory,
            group,
            number,
            ..
        } = &self.from
        else {
            // It has what its call costs.
            return;
        };
        if surplus == 0 {
            return;
        }
        self.bytes -= surplus;
        let mut state = memory.lock();
        state.calls.resize(*number, self.bytes);
        State::give_back(state, *group, surplus);
    }
}

/// Bytes that a call with a message of this many occupies in service.
pub(crate) fn cost(message: usize) -> usize {
    message + CALL_COST
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes bytes for a reply, which leaves a part to calls.
    fn take_for_reply(&mut self, group: PeerGroup, bytes: usize) -> bool {
        let for_calls = self.bytes.total() / CALLS_PART;
        self.bytes.take_leaving(group, bytes, for_calls)
    }

    /// Returns bytes, and wakes the connections that wait for some.
    fn give_back(mut state: MutexGuard<'_, Self>, group: PeerGroup, bytes: usize) {
        state.bytes.give_back(group, bytes);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (memory, group, number) = match &self.from {
            From::Budget {
                memory,
                group,
                number,
                calls,
            } => {
                calls.fetch_sub(1, Relaxed);
                (memory, group, number)
            }
            From::Connection(free) => {
                free.fetch_sub(self.bytes, Relaxed);
                return;
            }
        };
        let mut state = memory.lock();
        state.calls.resize(*number, 0);
        State::give_back(state, *group, self.bytes);
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
        assert_eq!(memory.lock().bytes.left(), 100);
    }

    #[test]
    fn replies_of_all_addresses_leave_half_of_the_budget_to_calls() {
        let memory = Memory::new(16 * OUTPUT_STEP);
        let mut outputs: Vec<_> = (1..=9).map(|host| memory.output(group(host))).collect();
        let mut has_room = |at: usize, steps: usize| outputs[at].resize(steps * OUTPUT_STEP - 1);
        assert!(has_room(0, 4) && has_room(0, 7));
        assert!(has_room(1, 1) && !has_room(2, 1), "that is half of it");
        assert!(has_room(0, 3), "less is always possible");
        assert!(has_room(2, 4) && !has_room(2, 5));
        assert_eq!(memory.lock().bytes.left(), 8 * OUTPUT_STEP);
        let mut caller = memory.account(group(9));
        let call = take(&mut caller, 8 * OUTPUT_STEP);
        assert!(call.is_some(), "calls may have the other half");
        drop((call, outputs));
        let state = memory.lock();
        assert_eq!(state.bytes.left(), state.bytes.total());
        assert_eq!(state.bytes.holders(), 0);
    }

    #[test]
    fn replies_of_one_address_do_not_keep_the_calls_of_another_from_giving_way() {
        const AFTER: Duration = Duration::from_secs(30);
        let memory = Memory::new(16 * OUTPUT_STEP);
        let mut output = memory.output(group(1));
        assert!(output.resize(7 * OUTPUT_STEP));
        let (mut holds, mut waits) = (memory.account(group(2)), memory.account(group(3)));
        let _old = take(&mut holds, 4 * OUTPUT_STEP).expect("it is free");
        assert!(take(&mut waits, 6 * OUTPUT_STEP).is_none());
        let now = Instant::now();
        assert!(!holds.must_give_way(now, AFTER));
        assert!(holds.must_give_way(now + AFTER, AFTER));
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
        assert_eq!(memory.lock().bytes.left(), 100);
        assert!(memory.lock().bytes.holders() == 0 && memory.lock().calls.is_empty());
    }
}
