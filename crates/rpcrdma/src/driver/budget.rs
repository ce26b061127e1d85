//! Memory for the chunks of calls in service, shared fairly by the connections of a server.

use crate::driver::clock;
use oncrpc::PeerGroup;
use rpc_serving::fair_queue::{FairQueue, Turn};
use rpc_serving::loans::Loans;
use rpc_serving::shares::{Bound, Shares};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// The connections of one address together hold at most a quarter of a budget, so that an address that returns nothing
/// leaves most of it to others. Its first call may take more.
const SHARE: Bound = Bound::Part(4);

/// How often it is looked whether a connection must give way.
const GIVE_WAY_LOOK: Duration = Duration::from_secs(2);

/// Budget of bytes for the chunks of calls in service, on all connections that share it.
///
/// A call takes all it needs at once, for its chunks and its reply, so that no call waits for more
/// while it holds some. Addresses with waiting calls have turns, one call each, and the connections of an address.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// How long calls may hold bytes for which others wait.
    unanswered: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes: Shares,
    /// Calls that wait, at most one of each account.
    waiting: FairQueue<u64, Waiter>,
    /// Bytes that accounts have got and not taken yet.
    granted: HashMap<u64, usize>,
    /// Bytes of calls, by account.
    calls: Loans<u64>,
    /// The last number of an account.
    last: u64,
}

/// A waiting call.
#[derive(Debug)]
struct Waiter {
    bytes: usize,
    since: Instant,
    waker: Waker,
}

/// One connection's access to a [`Budget`].
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    number: u64,
    group: PeerGroup,
    /// A call of it waits, or has got bytes that it has not taken yet.
    waits: bool,
    held: Arc<AtomicUsize>,
}

/// Bytes taken from a [`Budget`], returned on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: Budget,
    /// The number of its loan, if it holds anything.
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
            bytes: Shares::new(total, SHARE),
            waiting: FairQueue::default(),
            granted: HashMap::new(),
            calls: Loans::default(),
            last: 0,
        };
        Self(Arc::new(Shared {
            unanswered,
            state: Mutex::new(state),
        }))
    }

    /// Returns the number of free bytes.
    pub(crate) fn free(&self) -> usize {
        self.lock().bytes.left()
    }

    /// Opens an account for a new connection from this address.
    pub(crate) fn account(&self, group: PeerGroup) -> Account {
        let mut state = self.lock();
        state.last += 1;
        Account {
            budget: self.clone(),
            number: state.last,
            group,
            waits: false,
            held: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns bytes of an address.
    fn give_back(mut state: MutexGuard<'_, Self>, of: PeerGroup, bytes: usize) {
        state.bytes.give_back(of, bytes);
        state.waiting.resume(of);
        Self::serve(state);
    }

    /// Assigns free bytes to waiting calls in turn, and wakes the accounts that got them. An address whose next call is
    /// beyond its share has no turn until it returns bytes of its own.
    fn serve(mut state: MutexGuard<'_, Self>) {
        if state.waiting.is_empty() {
            return;
        }
        let Self {
            bytes,
            waiting,
            granted,
            ..
        } = &mut *state;
        let served = waiting.pop_all(|of, waiter| match bytes.needs(of, waiter.bytes) {
            Some(_) if bytes.take(of, waiter.bytes) => Turn::Takes,
            Some(_) => Turn::Waits,
            None => Turn::IsParked,
        });
        let mut wakers = Vec::with_capacity(served.len());
        for (_, account, waiter) in served {
            granted.insert(account, waiter.bytes);
            wakers.push(waiter.waker);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Account {
    /// Takes `bytes`, or the whole budget if it is smaller. If they are not free, or others wait
    /// for them, the account queues with this demand, and `waker` is woken when a repeated call
    /// returns them.
    pub(crate) fn take(&mut self, bytes: usize, waker: &Waker) -> Option<Lease> {
        if bytes == 0 && !self.waits {
            // It waits for nobody.
            return Some(self.lease(0, 0));
        }
        let mut state = self.budget.lock();
        if self.waits {
            let Some(bytes) = state.granted.remove(&self.number) else {
                let waiter = state.waiting.first_mut(self.group, self.number);
                waiter
                    .expect("an account that waits")
                    .waker
                    .clone_from(waker);
                return None;
            };
            let number = self.lend(&mut state, bytes);
            drop(state);
            self.waits = false;
            return Some(self.lease(number, bytes));
        }
        let bytes = bytes.min(state.bytes.total());
        let is_first = !state.waiting.waits(self.group) && state.waiting.groups().next().is_none();
        if is_first && state.bytes.take(self.group, bytes) {
            let number = self.lend(&mut state, bytes);
            drop(state);
            return Some(self.lease(number, bytes));
        }
        let waiter = Waiter {
            bytes,
            since: clock::now(),
            waker: waker.clone(),
        };
        state.waiting.push(self.group, self.number, waiter);
        self.waits = true;
        let next = state
            .waiting
            .next_of(self.group)
            .map_or(0, |next| next.bytes);
        if state.bytes.needs(self.group, next).is_none() {
            state.waiting.park(self.group);
        }
        None
    }

    /// Whether another connection waits for bytes that this one holds: one of another address
    /// within its share, or one of the same address.
    pub(crate) fn others_wait(&self) -> bool {
        let state = self.budget.lock();
        let mut neighbours = state.waiting.next_of_each(self.group);
        neighbours.any(|(account, _)| account != self.number)
            || state.waiting.groups().any(|of| of != self.group)
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
        let is_long = |waiter: &Waiter| now.saturating_duration_since(waiter.since) >= after;
        let is_awaited = {
            let mut neighbours = state.waiting.next_of_each(self.group);
            let mut others = state.waiting.groups().filter(|&of| of != self.group);
            neighbours.any(|(of, next)| of != self.number && is_long(next))
                || others.any(|of| state.waiting.next_of(of).is_some_and(is_long))
        };
        is_awaited && (state.calls).must_give_way(self.group, self.number, now, after)
    }

    /// Counts bytes that the account has got. Returns the number of the loan.
    fn lend(&self, state: &mut State, bytes: usize) -> u64 {
        state
            .calls
            .lend(self.group, self.number, bytes, clock::now())
    }

    fn lease(&self, number: u64, bytes: usize) -> Lease {
        self.held.fetch_add(bytes, Relaxed);
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

    /// Returns all but this many bytes.
    fn keep(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        if surplus == 0 {
            return;
        }
        self.bytes -= surplus;
        self.held.fetch_sub(surplus, Relaxed);
        let mut state = self.budget.lock();
        state.calls.resize(self.number, self.bytes);
        State::give_back(state, self.group, surplus);
    }
}

impl oncrpc::Lease for Lease {
    fn shrink(&mut self, bytes: usize) {
        self.keep(bytes);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keep(0);
    }
}

impl Drop for Account {
    /// Leaves the queue, and serves the next waiters.
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        let mut state = self.budget.lock();
        match state.granted.remove(&self.number) {
            Some(bytes) => State::give_back(state, self.group, bytes),
            None => {
                state.waiting.cancel(self.group, self.number);
                State::serve(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::Lease as _;
    use proptest::prelude::*;
    use rpc_serving::loans::GIVE_WAY_PAUSE;
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
        let state = budget.lock();
        assert!(state.bytes.holders() == 0 && state.waiting.is_empty());
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
                let granted: usize = state.granted.values().sum();
                prop_assert_eq!(state.bytes.left() + held + granted, 100);
            }
            for _ in 0..customers.len() {
                leases.clear();
                let waiting = customers.iter_mut().filter(|c| c.account.waits);
                leases.extend(waiting.filter_map(|customer| customer.take(1)));
            }
            leases.clear();
            prop_assert!(customers.iter().all(|c| !c.account.waits));
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
