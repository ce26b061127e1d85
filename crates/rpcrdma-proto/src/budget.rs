//! Memory for chunks, shared by connections.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// So many octets for the chunks of calls in service, on all connections that share it.
///
/// A call takes what it needs at once, for what it pulls and for its reply, so that no call waits
/// for more while it holds some.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    total: usize,
    free: AtomicUsize,
    waited_for: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
}

/// Octets taken from a [`Budget`], which get them back when this is dropped.
#[derive(Debug)]
pub struct Lease {
    budget: Budget,
    octets: usize,
}

impl Budget {
    /// A budget of `total` octets.
    pub fn new(total: usize) -> Self {
        Self(Arc::new(Shared {
            total,
            free: AtomicUsize::new(total),
            waited_for: AtomicBool::new(false),
            waiters: Mutex::default(),
        }))
    }

    /// Octets not taken.
    pub fn free(&self) -> usize {
        self.0.free.load(SeqCst)
    }

    /// Takes `octets`, or the whole budget if they are more than that, if they are free.
    pub fn take(&self, octets: usize) -> Option<Lease> {
        let octets = octets.min(self.0.total);
        let taken = |free: usize| free.checked_sub(octets);
        self.0.free.fetch_update(SeqCst, SeqCst, taken).ok()?;
        Some(Lease {
            budget: self.clone(),
            octets,
        })
    }

    /// The same; if they are not free, `waker` is woken once some are given back.
    pub fn take_or_wait(&self, octets: usize, waker: &Waker) -> Option<Lease> {
        self.take(octets).or_else(|| {
            let mut waiters = self.lock();
            if !waiters.iter().any(|other| other.will_wake(waker)) {
                waiters.push(waker.clone());
            }
            self.0.waited_for.store(true, SeqCst);
            drop(waiters);
            // Some may have been given back just before.
            self.take(octets)
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.0
            .waiters
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.0.free.fetch_add(self.octets, SeqCst);
        if self.budget.0.waited_for.swap(false, SeqCst) {
            let waiters = std::mem::take(&mut *self.budget.lock());
            waiters.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn waiter_is_woken_when_octets_come_back() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let budget = Budget::new(100);
        let lease = budget.take(60).expect("free");
        assert!(budget.take_or_wait(60, &waker).is_none());
        assert_eq!(woken.0.load(SeqCst), 0);
        drop(lease);
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(budget.take_or_wait(60, &waker).is_some());
    }

    #[test]
    fn more_than_all_is_all() {
        let budget = Budget::new(100);
        let lease = budget.take(1000).expect("nothing is taken");
        assert_eq!(budget.free(), 0);
        drop(lease);
        assert_eq!(budget.free(), 100);
    }
}
