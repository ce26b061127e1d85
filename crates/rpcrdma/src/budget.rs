//! Memory for chunks, shared by connections.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The part of a budget that one connection may have, so that one which gives nothing back is not
/// in the way of the others.
const SHARE: usize = 4;

/// So many octets for the chunks of calls in service, on all connections that share it.
///
/// A call takes what it needs at once, for what it pulls and for its reply, so that no call waits
/// for more while it holds some. Connections are served in the order in which they began to wait,
/// each with one call at a time.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiters: VecDeque<Waiter>,
}

/// An account whose next call waits.
#[derive(Debug)]
struct Waiter {
    taken: Taken,
    octets: usize,
    /// Until it is woken.
    waker: Option<Waker>,
}

/// Octets that one account has taken; changed only under the lock. It stands for the account.
type Taken = Arc<AtomicUsize>;

/// One connection's access to a [`Budget`].
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    taken: Taken,
}

/// Octets taken from a [`Budget`], which get them back when this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    budget: Budget,
    taken: Taken,
    octets: usize,
}

impl Budget {
    /// A budget of `total` octets.
    pub(crate) fn new(total: usize) -> Self {
        let state = Mutex::new(State {
            free: total,
            waiters: VecDeque::new(),
        });
        Self(Arc::new(Shared { total, state }))
    }

    /// Octets not taken.
    pub(crate) fn free(&self) -> usize {
        self.lock().free
    }

    /// Whether a call waits for octets that others have taken.
    pub(crate) fn is_short(&self) -> bool {
        let state = self.lock();
        let mut waiters = state.waiters.iter();
        waiters.any(|waiter| self.grants(&waiter.taken, waiter.octets))
    }

    /// Access to it for one more connection.
    pub(crate) fn account(&self) -> Account {
        Account {
            budget: self.clone(),
            taken: Taken::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an account may have so many more. The first call of each always may.
    fn grants(&self, taken: &Taken, octets: usize) -> bool {
        let taken = taken.load(Relaxed);
        taken == 0 || taken + octets <= self.0.total / SHARE
    }

    /// Octets that those before `taken` in the queue are going to get.
    fn promised(&self, state: &State, taken: &Taken) -> usize {
        let waiters = state.waiters.iter();
        let before = waiters.take_while(|waiter| !Arc::ptr_eq(&waiter.taken, taken));
        let granted = before.filter(|waiter| self.grants(&waiter.taken, waiter.octets));
        granted.map(|waiter| waiter.octets).sum()
    }

    /// Wakes those whose turn it is.
    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let mut free = state.free;
        let mut wakers = Vec::new();
        for waiter in &mut state.waiters {
            if !self.grants(&waiter.taken, waiter.octets) {
                continue;
            }
            let Some(left) = free.checked_sub(waiter.octets) else {
                break;
            };
            free = left;
            wakers.extend(waiter.waker.take());
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Account {
    /// Takes `octets`, or the whole budget if they are more than that, if they are free and nobody
    /// waits for them.
    pub(crate) fn take(&mut self, octets: usize) -> Option<Lease> {
        self.take_or(octets, None)
    }

    /// The same; if there are none for it, it waits in the queue, and `waker` is woken when it is
    /// its turn.
    pub(crate) fn take_or_wait(&mut self, octets: usize, waker: &Waker) -> Option<Lease> {
        self.take_or(octets, Some(waker))
    }

    fn take_or(&mut self, octets: usize, waker: Option<&Waker>) -> Option<Lease> {
        let budget = &self.budget;
        let octets = octets.min(budget.0.total);
        let mut state = budget.lock();
        let free = state.free.checked_sub(octets);
        let free = free.filter(|&left| budget.promised(&state, &self.taken) <= left);
        let at = state.position(&self.taken);
        if let Some(left) = free.filter(|_| budget.grants(&self.taken, octets)) {
            state.free = left;
            self.taken.fetch_add(octets, Relaxed);
            if let Some(at) = at {
                state.waiters.remove(at);
            }
            return Some(Lease {
                budget: budget.clone(),
                taken: Arc::clone(&self.taken),
                octets,
            });
        }
        if let Some(waker) = waker {
            let waker = Some(waker.clone());
            match at {
                Some(at) => state.waiters[at].waker = waker,
                None => state.waiters.push_back(Waiter {
                    taken: Arc::clone(&self.taken),
                    octets,
                    waker,
                }),
            }
        }
        None
    }
}

impl State {
    fn position(&self, taken: &Taken) -> Option<usize> {
        let mut waiters = self.waiters.iter();
        waiters.position(|waiter| Arc::ptr_eq(&waiter.taken, taken))
    }
}

impl Drop for Account {
    /// Those behind it move up.
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        if let Some(at) = state.position(&self.taken) {
            state.waiters.remove(at);
            self.budget.wake(state);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.free += self.octets;
        self.taken.fetch_sub(self.octets, Relaxed);
        self.budget.wake(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// An account, and how often it was woken.
    struct Customer {
        account: Account,
        woken: Arc<Woken>,
    }

    impl Customer {
        fn of(budget: &Budget) -> Self {
            Self {
                account: budget.account(),
                woken: Arc::default(),
            }
        }

        fn take(&mut self, octets: usize) -> Option<Lease> {
            let waker = Waker::from(Arc::clone(&self.woken));
            self.account.take_or_wait(octets, &waker)
        }

        fn woken(&self) -> u32 {
            self.woken.0.load(SeqCst)
        }
    }

    #[test]
    fn waiter_is_woken_when_octets_come_back() {
        let budget = Budget::new(100);
        let [mut a, mut b] = [(); 2].map(|()| Customer::of(&budget));
        let lease = a.take(60).expect("free");
        assert!(b.take(60).is_none());
        assert!(budget.is_short());
        assert_eq!(b.woken(), 0);
        drop(lease);
        assert_eq!(b.woken(), 1);
        assert!(b.take(60).is_some());
    }

    #[test]
    fn more_than_all_is_all() {
        let budget = Budget::new(100);
        let lease = budget.account().take(1000).expect("nothing is taken");
        assert_eq!(budget.free(), 0);
        drop(lease);
        assert_eq!(budget.free(), 100);
    }

    #[test]
    fn who_came_first_is_served_first_and_nobody_overtakes() {
        let budget = Budget::new(100);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Customer::of(&budget));
        let lease = a.take(60).expect("free");
        assert!(b.take(80).is_none());
        // There would be enough for this one, but it came later.
        assert!(c.take(30).is_none());
        assert!(a.take(10).is_none(), "who has some waits as well");
        drop(lease);
        assert_eq!((b.woken(), c.woken(), a.woken()), (1, 0, 0));
        assert!(c.take(30).is_none());
        let lease = b.take(80).expect("its turn");
        drop(lease);
        assert_eq!((c.woken(), a.woken()), (1, 1));
        assert!(a.take(10).is_some() && c.take(30).is_some());
    }

    #[test]
    fn one_connection_has_a_part_only_and_is_in_nobodys_way_while_it_waits_for_more() {
        let budget = Budget::new(100);
        let [mut a, mut b] = [(); 2].map(|()| Customer::of(&budget));
        let first = a.take(20).expect("free");
        let second = a.take(5).expect("within its part");
        assert!(a.take(5).is_none());
        assert!(!budget.is_short(), "it is its own part that is used up");
        assert!(b.take(75).is_some());
        drop(second);
        assert_eq!(a.woken(), 1);
        drop(first);
        assert!(a.take(5).is_some());
    }

    #[test]
    fn those_behind_one_that_leaves_move_up() {
        let budget = Budget::new(100);
        let [mut a, mut b, mut c] = [(); 3].map(|()| Customer::of(&budget));
        let _lease = a.take(60).expect("free");
        assert!(b.take(80).is_none() && c.take(30).is_none());
        drop(b);
        assert_eq!(c.woken(), 1);
        assert!(c.take(30).is_some());
    }

    #[test]
    fn lease_may_outlive_its_account() {
        let budget = Budget::new(100);
        let [mut a, mut b] = [(); 2].map(|()| Customer::of(&budget));
        let lease = a.take(100);
        drop(a);
        assert!(b.take(1).is_none());
        drop(lease);
        assert_eq!(b.woken(), 1);
    }
}
