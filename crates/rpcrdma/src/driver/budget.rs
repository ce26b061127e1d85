//! Memory for the chunks of calls in service, shared fairly by the connections of a server.

use crate::driver::clock;
use oncrpc::PeerGroup;
use slab::Slab;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Divisor for the share of one address: its connections together hold at most a quarter of a
/// budget, so that an address that returns nothing leaves most of it to others.
const SHARE: usize = 4;

/// Time between two connections that give way: what one returns may be enough.
const GIVE_WAY_PAUSE: Duration = Duration::from_millis(250);

/// How often it is looked whether a connection must give way.
const GIVE_WAY_LOOK: Duration = Duration::from_secs(2);

/// Budget of bytes for the chunks of calls in service, on all connections that share it.
///
/// A call takes all it needs at once, for its chunks and its reply, so that no call waits for more
/// while it holds some. Addresses with waiting calls are served round-robin, one call each;
/// connections of one address are served first come, first served.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    /// How long calls may hold bytes for which others wait.
    unanswered: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: usize,
    groups: HashMap<PeerGroup, Group>,
    /// Round-robin queue of groups with waiting calls.
    turns: VecDeque<PeerGroup>,
    waiters: Slab<Waiter>,
    /// Leases by number.
    lent: BTreeMap<u64, Lent>,
    /// The last number of an account or a lease.
    last: u64,
    /// When a connection gave way last.
    gave_way: Option<Instant>,
}

/// What one lease holds.
#[derive(Debug)]
struct Lent {
    account: u64,
    bytes: usize,
    since: Instant,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct Group {
    accounts: usize,
    taken: usize,
    /// Queue of waiters.
    queue: VecDeque<usize>,
    in_turns: bool,
}

/// An account with a waiting call.
#[derive(Debug)]
struct Waiter {
    bytes: usize,
    since: Instant,
    waker: Waker,
    /// Whether the bytes are already reserved for it.
    granted: bool,
}

/// One connection's access to a [`Budget`].
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    number: u64,
    group: PeerGroup,
    waiter: Option<usize>,
    held: Arc<AtomicUsize>,
}

/// Bytes taken from a [`Budget`], returned on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: Budget,
    /// Its number, if it holds anything.
    number: u64,
    group: PeerGroup,
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Budget {
    /// Creates a budget of `total` bytes.
    pub(crate) fn new(total: usize) -> Self {
        Self::giving_way(total, None)
    }

    /// The same, in which calls may hold bytes for so long while others wait for them.
    pub(crate) fn giving_way(total: usize, unanswered: Option<Duration>) -> Self {
        let state = State {
            free: total,
            ..State::default()
        };
        Self(Arc::new(Shared {
            total,
            unanswered,
            state: Mutex::new(state),
        }))
    }

    /// Returns the number of free bytes.
    pub(crate) fn free(&self) -> usize {
        self.lock().free
    }

    /// Opens an account for a new connection from this address.
    pub(crate) fn account(&self, group: PeerGroup) -> Account {
        let mut state = self.lock();
        state.groups.entry(group).or_default().accounts += 1;
        Account {
            budget: self.clone(),
            number: state.number(),
            group,
            waiter: None,
            held: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a group may take this many more bytes. The first call of a group always may.
    fn allows(&self, group: &Group, bytes: usize) -> bool {
        group.taken == 0 || group.taken + bytes <= self.0.total / SHARE
    }

    /// Returns bytes of a group, and wakes the accounts that got them.
    fn give_back(&self, mut state: MutexGuard<'_, State>, of: PeerGroup, bytes: usize) {
        state.free += bytes;
        let group = state.group(of);
        group.taken -= bytes;
        let returns = !group.in_turns && !group.queue.is_empty();
        group.in_turns |= returns;
        if returns {
            state.turns.push_back(of);
        }
        state.forget_if_unused(of);
        self.serve(state);
    }

    /// Assigns free bytes to waiters in turn.
    fn serve(&self, mut state: MutexGuard<'_, State>) {
        let mut wakers = Vec::new();
        let inner = &mut *state;
        while let Some(&of) = inner.turns.front() {
            let group = inner.groups.get_mut(&of).expect("a group that waits");
            let next = group.queue.front().copied();
            let waiter = next.map(|key| &mut inner.waiters[key]);
            let waiter = waiter.filter(|waiter| self.allows(group, waiter.bytes));
            if let Some(waiter) = waiter {
                let Some(left) = inner.free.checked_sub(waiter.bytes) else {
                    break;
                };
                inner.free = left;
                group.taken += waiter.bytes;
                waiter.granted = true;
                wakers.push(waiter.waker.clone());
                group.queue.pop_front();
            } else {
                // It waits for bytes of its own.
                group.in_turns = false;
            }
            inner.turns.pop_front();
            group.in_turns &= !group.queue.is_empty();
            if group.in_turns {
                inner.turns.push_back(of);
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn group(&mut self, of: PeerGroup) -> &mut Group {
        self.groups.get_mut(&of).expect("a group that is in use")
    }

    fn forget_if_unused(&mut self, of: PeerGroup) {
        let group = self.group(of);
        if group.accounts == 0 && group.taken == 0 {
            self.groups.remove(&of);
        }
    }
}

impl Account {
    /// Takes `bytes`, or the whole budget if it is smaller. If they are not free, or others wait
    /// for them, the account queues with this demand, and `waker` is woken when a repeated call
    /// returns them.
    pub(crate) fn take(&mut self, bytes: usize, waker: &Waker) -> Option<Lease> {
        if bytes == 0 && self.waiter.is_none() {
            // It waits for nobody.
            return Some(self.empty());
        }
        let budget = &self.budget;
        let bytes = bytes.min(budget.0.total);
        let mut state = budget.lock();
        if let Some(key) = self.waiter {
            let waiter = &mut state.waiters[key];
            if !waiter.granted {
                waiter.waker.clone_from(waker);
                return None;
            }
            self.waiter = None;
            let bytes = state.waiters.remove(key).bytes;
            return Some(self.lease(&mut state, bytes));
        }
        let nobody_waits = state.turns.is_empty();
        let left = state.free.checked_sub(bytes).filter(|_| nobody_waits);
        let group = state.group(self.group);
        let allowed = group.queue.is_empty() && budget.allows(group, bytes);
        if let Some(left) = left.filter(|_| allowed) {
            group.taken += bytes;
            state.free = left;
            return Some(self.lease(&mut state, bytes));
        }
        let joins = allowed && !group.in_turns;
        group.in_turns |= joins;
        if joins {
            state.turns.push_back(self.group);
        }
        let key = state.waiters.insert(Waiter {
            bytes,
            since: clock::now(),
            waker: waker.clone(),
            granted: false,
        });
        state.group(self.group).queue.push_back(key);
        self.waiter = Some(key);
        None
    }

    /// Whether another connection waits for bytes that this one holds: one of another address
    /// within its share, or one of the same address.
    pub(crate) fn others_wait(&self) -> bool {
        let mut state = self.budget.lock();
        let own = self.waiter;
        let neighbours = &state.group(self.group).queue;
        let neighbour_waits = neighbours.iter().any(|&key| Some(key) != own);
        let mut turns = state.turns.iter();
        neighbour_waits || turns.any(|&group| group != self.group)
    }

    /// Returns the bytes held by leases of this account.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// When to look again whether the connection must give way; `None` if it need not.
    pub(crate) fn next_look(&self, now: Instant) -> Option<Instant> {
        let is_limited = self.budget.0.unanswered.is_some() && self.held() > 0;
        is_limited.then(|| now + GIVE_WAY_LOOK)
    }

    /// Whether the connection must give way: its calls hold half of what it has, and have held it for the
    /// time of the budget, while others have waited for bytes as long, and no address has more than that of
    /// the connection.
    pub(crate) fn must_give_way(&self, now: Instant) -> bool {
        let Some(after) = self.budget.0.unanswered else {
            return false;
        };
        if self.held() == 0 {
            return false;
        }
        let mut state = self.budget.lock();
        let is_long = |since| now.saturating_duration_since(since) >= after;
        let waits = |key: &usize| Some(*key) != self.waiter && is_long(state.waiters[*key].since);
        let group = &state.groups[&self.group];
        let mut turns = state.turns.iter().filter(|&&of| of != self.group);
        let is_awaited = group.queue.iter().any(waits)
            || turns.any(|of| state.groups[of].queue.front().is_some_and(waits));
        let paused = state.gave_way.is_some_and(|at| now < at + GIVE_WAY_PAUSE);
        if !is_awaited || paused {
            return false;
        }
        let (mut old, mut all) = (0, 0);
        for lent in state.lent.values().filter(|of| of.account == self.number) {
            all += lent.bytes;
            if is_long(lent.since) {
                old += lent.bytes;
            }
        }
        let most = state
            .groups
            .values()
            .all(|other| other.taken <= group.taken);
        let must = old > 0 && 2 * old >= all && most;
        if must {
            state.gave_way = Some(now);
        }
        must
    }

    fn empty(&self) -> Lease {
        Lease {
            budget: self.budget.clone(),
            number: 0,
            group: self.group,
            held: Arc::clone(&self.held),
            bytes: 0,
        }
    }

    fn lease(&self, state: &mut State, bytes: usize) -> Lease {
        if bytes == 0 {
            return self.empty();
        }
        self.held.fetch_add(bytes, Relaxed);
        let number = state.number();
        let lent = Lent {
            account: self.number,
            bytes,
            since: clock::now(),
        };
        state.lent.insert(number, lent);
        Lease {
            budget: self.budget.clone(),
            number,
            group: self.group,
            held: Arc::clone(&self.held),
            bytes,
        }
    }
}

impl Lease {
    /// Whether nothing is lent.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            // It keeps no group: that may be gone with its last account.
            return;
        }
        self.held.fetch_sub(bytes, Relaxed);
        let mut state = self.budget.lock();
        if let Some(lent) = state.lent.get_mut(&self.number) {
            lent.bytes -= bytes;
            if lent.bytes == 0 {
                state.lent.remove(&self.number);
            }
        }
        self.budget.give_back(state, self.group, bytes);
    }
}

impl oncrpc::Lease for Lease {
    fn shrink(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        if surplus > 0 {
            self.bytes -= surplus;
            self.give_back(surplus);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

impl Drop for Account {
    /// Leaves the queue, and serves the next waiters.
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.group(self.group).accounts -= 1;
        let Some(key) = self.waiter else {
            return state.forget_if_unused(self.group);
        };
        let Waiter { bytes, granted, .. } = state.waiters.remove(key);
        if granted {
            return self.budget.give_back(state, self.group, bytes);
        }
        state.group(self.group).queue.retain(|&other| other != key);
        if state.group(self.group).queue.is_empty() {
            state.group(self.group).in_turns = false;
            state.turns.retain(|&other| other != self.group);
        }
        state.forget_if_unused(self.group);
        self.budget.serve(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::Lease as _;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// A connection with an account, and how often it was woken.
    struct Customer {
        account: Account,
        woken: Arc<Woken>,
    }

    impl Customer {
        fn of(budget: &Budget, address: u8) -> Self {
            let address = Ipv4Addr::new(10, 0, 0, address).into();
            Self {
                account: budget.account(PeerGroup::of(address)),
                woken: Arc::default(),
            }
        }

        fn take(&mut self, bytes: usize) -> Option<Lease> {
            let waker = Waker::from(Arc::clone(&self.woken));
            self.account.take(bytes, &waker)
        }

        fn woken(&self) -> u32 {
            self.woken.0.load(SeqCst)
        }
    }

    fn customers<const N: usize>(budget: &Budget, addresses: [u8; N]) -> [Customer; N] {
        addresses.map(|address| Customer::of(budget, address))
    }

    #[test]
    fn waiter_is_woken_when_bytes_come_back() {
        let budget = Budget::new(100);
        let [mut a, mut b] = customers(&budget, [1, 2]);
        let lease = a.take(60).expect("free");
        assert!(b.take(60).is_none() && a.account.others_wait());
        assert!(!b.account.others_wait());
        assert_eq!(b.woken(), 0);
        drop(lease);
        assert_eq!(b.woken(), 1);
        assert!(!a.account.others_wait(), "they are taken for it already");
        assert_eq!(budget.free(), 40);
        assert!(b.take(60).is_some());
    }

    #[test]
    fn more_than_all_is_all() {
        let budget = Budget::new(100);
        let mut a = Customer::of(&budget, 1);
        let lease = a.take(1000).expect("nothing is taken");
        assert_eq!((budget.free(), a.account.held()), (0, 100));
        drop(lease);
        assert_eq!((budget.free(), a.account.held()), (100, 0));
    }

    #[test]
    fn addresses_have_their_turn_and_nobody_overtakes() {
        let budget = Budget::new(100);
        let [mut a, mut b, mut c, mut d] = customers(&budget, [1, 2, 3, 2]);
        let lease = a.take(90).expect("free");
        assert!(b.take(60).is_none());
        // There would be enough for these, but they came later.
        assert!(d.take(10).is_none());
        assert!(c.take(10).is_none());
        drop(lease);
        // The second of address 2 would be beyond its share.
        assert_eq!((b.woken(), c.woken(), d.woken()), (1, 1, 0));
        drop(b.take(60).expect("its turn"));
        assert_eq!(d.woken(), 1);
        assert!(c.take(10).is_some() && d.take(10).is_some());
    }

    #[test]
    fn address_has_a_share_only_however_many_connections_it_has() {
        let budget = Budget::new(100);
        let [mut a, mut b, mut c] = customers(&budget, [1, 1, 2]);
        let first = a.take(20).expect("free");
        let second = b.take(5).expect("within its share");
        assert!(b.take(5).is_none());
        assert!(a.account.others_wait(), "for bytes of their address");
        assert!(!c.account.others_wait(), "its own share is used up");
        assert!(c.take(75).is_some());
        drop(second);
        assert_eq!(b.woken(), 1);
        drop(first);
        assert!(b.take(5).is_some());
    }

    #[test]
    fn first_call_of_an_address_may_be_larger_than_its_share() {
        let budget = Budget::new(100);
        let [mut a, mut b] = customers(&budget, [1, 1]);
        let lease = a.take(60).expect("the first");
        assert!(b.take(60).is_none() && a.account.others_wait());
        drop(lease);
        assert!(b.take(60).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_without_a_reply_give_way_to_those_that_wait_for_long() {
        let limit = Duration::from_secs(30);
        let budget = Budget::giving_way(100, Some(limit));
        let [mut a, mut b, mut c] = customers(&budget, [1, 2, 3]);
        let dead = a.take(60).expect("free");
        let mut answered = b.take(40).expect("free");
        assert!(c.take(20).is_none());
        let must = |of: &Customer| of.account.must_give_way(clock::now());
        tokio::time::advance(limit - GIVE_WAY_PAUSE).await;
        assert!(!must(&a));
        answered.shrink(39);
        tokio::time::advance(GIVE_WAY_PAUSE).await;
        assert!(!must(&b) && !must(&c), "the other address has more");
        assert!(must(&a));
        assert!(!must(&a), "others look whether that is enough first");
        drop(dead);
        assert!(c.take(20).is_some());
        tokio::time::advance(limit).await;
        assert!(!must(&b), "nobody waits");
    }

    #[test]
    fn what_a_lease_loses_goes_to_others() {
        let budget = Budget::new(100);
        let [mut a, mut b] = customers(&budget, [1, 2]);
        let mut lease = a.take(100).expect("free");
        assert!(b.take(50).is_none());
        lease.shrink(70);
        assert_eq!(b.woken(), 0);
        lease.shrink(50);
        assert_eq!((b.woken(), a.account.held()), (1, 50));
        lease.shrink(60);
        assert_eq!(a.account.held(), 50);
    }

    #[test]
    fn those_behind_one_that_leaves_move_up() {
        let budget = Budget::new(100);
        let [mut a, mut b, mut c] = customers(&budget, [1, 2, 3]);
        let _lease = a.take(60).expect("free");
        assert!(b.take(80).is_none() && c.take(30).is_none());
        drop(b);
        assert_eq!(c.woken(), 1);
        assert!(c.take(30).is_some());
    }

    #[test]
    fn bytes_granted_to_one_that_leaves_go_to_others() {
        let budget = Budget::new(100);
        let [mut a, mut b, mut c] = customers(&budget, [1, 2, 3]);
        let lease = a.take(60).expect("free");
        assert!(b.take(80).is_none() && c.take(90).is_none());
        drop(lease);
        assert_eq!((b.woken(), c.woken()), (1, 0));
        drop(b);
        assert_eq!(c.woken(), 1);
    }

    #[test]
    fn lease_may_outlive_its_account() {
        let budget = Budget::new(100);
        let [mut a, mut b] = customers(&budget, [1, 2]);
        let lease = a.take(100);
        drop(a);
        assert!(b.take(1).is_none());
        drop(lease);
        assert_eq!(b.woken(), 1);
        drop(b);
        assert!(budget.lock().groups.is_empty());
    }

    proptest! {
        /// Bytes are neither lost nor made, and whoever waits is served in the end.
        #[test]
        fn every_byte_is_free_or_taken(
            steps in prop::collection::vec((0..6_usize, 1..120_usize, 0..4_u8), 0..200),
        ) {
            let budget = Budget::new(100);
            let mut customers = customers(&budget, [1, 1, 2, 3, 3, 4]);
            let mut leases: Vec<Lease> = Vec::new();
            for (who, bytes, what) in steps {
                match what {
                    0 | 1 => leases.extend(customers[who].take(bytes)),
                    2 if !leases.is_empty() => drop(leases.swap_remove(bytes % leases.len())),
                    _ => if let Some(lease) = leases.last_mut() {
                        lease.shrink(bytes);
                    }
                }
                let held: usize = customers.iter().map(|c| c.account.held()).sum();
                let state = budget.lock();
                let granted = state.waiters.iter().map(|(_, waiter)| waiter);
                let granted: usize = granted.filter(|w| w.granted).map(|w| w.bytes).sum();
                let taken: usize = state.groups.values().map(|group| group.taken).sum();
                prop_assert_eq!(taken, held + granted);
                prop_assert_eq!(state.free + taken, 100);
            }
            for _ in 0..customers.len() {
                leases.clear();
                let waiting = customers.iter_mut().filter(|c| c.account.waiter.is_some());
                leases.extend(waiting.filter_map(|customer| customer.take(1)));
            }
            leases.clear();
            prop_assert!(customers.iter().all(|c| c.account.waiter.is_none()));
            prop_assert_eq!(budget.free(), 100);
        }
    }

    #[test]
    fn lease_of_nothing_may_outlive_the_accounts_of_its_address() {
        let budget = Budget::new(100);
        let mut customer = Customer::of(&budget, 1);
        let nothing = customer.take(0).expect("it is always there");
        let mut shrunk = customer.take(10).expect("it is free");
        shrunk.shrink(0);
        drop(customer);
        drop((nothing, shrunk));
        assert_eq!(budget.free(), 100);
    }
}
