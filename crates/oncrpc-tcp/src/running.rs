//! Futures of calls in service, polled by the task of their connection.

use crate::memory::Lease;
use slab::Slab;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A set of futures, of which only those that were woken are polled.
///
/// They run on the task that owns the set: a call then needs no task of its own, and no other thread
/// is woken for it.
pub(crate) struct Running<T> {
    futures: Slab<Entry<T>>,
    /// Futures to poll first: they were woken when nothing could be done with a result.
    ready: VecDeque<usize>,
    woken: Arc<Woken>,
}

struct Entry<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    /// Memory of the call.
    _lease: Option<Lease>,
    waking: Arc<Waking>,
    waker: Waker,
}

/// The futures to poll, by their index. An index may be that of a later future by then, which does
/// not mind.
#[derive(Default)]
struct Woken(Mutex<(Vec<usize>, Option<Waker>)>);

struct Waking {
    index: usize,
    /// The index is in the list.
    listed: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, AcqRel) {
            return;
        }
        let mut woken = self.woken.lock();
        woken.0.push(self.index);
        let task = woken.1.take();
        drop(woken);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, (Vec<usize>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Running<T> {
    pub(crate) fn new() -> Self {
        Self {
            futures: Slab::new(),
            ready: VecDeque::new(),
            woken: Arc::default(),
        }
    }

    /// Number of futures.
    pub(crate) fn len(&self) -> usize {
        self.futures.len()
    }

    pub(crate) fn push(
        &mut self,
        future: Pin<Box<dyn Future<Output = T> + Send>>,
        lease: Option<Lease>,
    ) {
        let place = self.futures.vacant_entry();
        let index = place.key();
        let waking = Arc::new(Waking {
            index,
            listed: AtomicBool::new(true),
            woken: Arc::clone(&self.woken),
        });
        place.insert(Entry {
            future,
            _lease: lease,
            waker: Waker::from(Arc::clone(&waking)),
            waking,
        });
        self.woken.lock().0.push(index);
    }

    /// Polls the woken futures as long as there is room for a result, and passes their results on.
    /// The others keep what they have until the next time. A future that panics ends without a
    /// result. Returns whether one has ended.
    pub(crate) fn poll(
        &mut self,
        cx: &Context<'_>,
        has_room: impl Fn() -> bool,
        mut then: impl FnMut(T),
    ) -> bool {
        let mut woken = self.woken.lock();
        self.ready.extend(woken.0.drain(..));
        match &mut woken.1 {
            Some(task) if task.will_wake(cx.waker()) => {}
            task => *task = Some(cx.waker().clone()),
        }
        drop(woken);
        let mut ended = false;
        while has_room()
            && let Some(index) = self.ready.pop_front()
        {
            let Some(entry) = self.futures.get_mut(index) else {
                continue;
            };
            entry.waking.listed.store(false, Release);
            let mut cx = Context::from_waker(&entry.waker);
            let polled = catch_unwind(AssertUnwindSafe(|| entry.future.as_mut().poll(&mut cx)));
            if let Ok(Poll::Pending) = polled {
                continue;
            }
            ended = true;
            // What the future holds is dropped before its result is passed on.
            drop(self.futures.remove(index));
            if let Ok(Poll::Ready(result)) = polled {
                then(result);
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio::sync::oneshot;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn woken_future_is_polled_and_its_result_passed_on() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let mut running = Running::new();
        let (first, wait) = oneshot::channel();
        running.push(Box::pin(async { wait.await.unwrap() }), None);
        let (second, wait) = oneshot::channel();
        running.push(Box::pin(async { wait.await.unwrap() }), None);
        let mut results = Vec::new();
        assert!(!running.poll(&cx, || true, |result| results.push(result)));
        second.send(2).unwrap();
        first.send(1).unwrap();
        assert_eq!(count.0.load(Relaxed), 1, "one wake for both");
        assert!(running.poll(&cx, || true, |result| results.push(result)));
        assert_eq!(results, [2, 1]);
        assert!(!running.poll(&cx, || true, |result| results.push(result)));
    }

    #[test]
    fn future_is_not_polled_before_there_is_room_for_its_result() {
        let cx = Context::from_waker(Waker::noop());
        let mut running = Running::new();
        for number in 1..=3 {
            running.push(Box::pin(async move { number }), None);
        }
        let results = std::cell::RefCell::new(Vec::new());
        for room in [0, 1, 1, 3] {
            let has_room = || results.borrow().len() < room;
            running.poll(&cx, has_room, |result| results.borrow_mut().push(result));
            assert_eq!(*results.borrow(), Vec::from_iter(1..=room));
        }
        assert_eq!(running.len(), 0);
    }

    #[test]
    fn panic_of_a_future_is_its_own() {
        let cx = Context::from_waker(Waker::noop());
        let mut running = Running::new();
        running.push(Box::pin(async { panic!("as a service may") }), None);
        running.push(Box::pin(async { 2 }), None);
        let mut results = Vec::new();
        assert!(running.poll(&cx, || true, |result| results.push(result)));
        assert_eq!(results, [2]);
    }
}
