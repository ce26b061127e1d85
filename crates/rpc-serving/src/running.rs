//! Futures of calls in service, polled by the task of their connection.

use oncrpc::Reply;
use slab::Slab;
use std::any::Any;
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

/// Reply that comes later.
pub(crate) type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// Cause of a panic.
pub(crate) type Panic = Box<dyn Any + Send>;

/// A set of futures, of which only those that were woken are polled; each with what is kept of its call.
///
/// They run on the task that owns the set: a call then needs no task of its own, and no other thread
/// is woken for it.
pub(crate) struct Running<C> {
    futures: Slab<Entry<C>>,
    /// Futures to poll first: they were woken when nothing could be done with a result.
    ready: VecDeque<usize>,
    woken: Arc<Woken>,
    /// Left by a future that was ready at once, for the next one.
    spare: Option<Arc<Waking>>,
}

struct Entry<C> {
    future: ReplyFuture,
    call: C,
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

impl<C> Running<C> {
    pub(crate) fn new() -> Self {
        Self {
            futures: Slab::new(),
            ready: VecDeque::new(),
            woken: Arc::default(),
            spare: None,
        }
    }

    /// Number of futures.
    pub(crate) fn len(&self) -> usize {
        self.futures.len()
    }

    /// Polls a future, and keeps it unless it is ready. Its owner [polls](Self::poll) the set before it waits.
    pub(crate) fn begin(
        &mut self,
        mut future: ReplyFuture,
        call: C,
    ) -> Result<Option<(C, Reply)>, Panic> {
        let place = self.futures.vacant_entry();
        let index = place.key();
        let waking = match self.spare.take() {
            Some(spare) if spare.index == index => {
                // It is found there for another future, or not found.
                spare.listed.store(false, Release);
                spare
            }
            Some(_) | None => Arc::new(Waking {
                index,
                listed: AtomicBool::new(false),
                woken: Arc::clone(&self.woken),
            }),
        };
        let waker = Waker::from(Arc::clone(&waking));
        match poll(&mut future, &waker)? {
            Poll::Ready(reply) => {
                self.spare = Some(waking);
                Ok(Some((call, reply)))
            }
            Poll::Pending => {
                place.insert(Entry {
                    future,
                    call,
                    waking,
                    waker,
                });
                Ok(None)
            }
        }
    }

    /// Polls the woken futures as long as there is room for a reply, and passes on what is ready with `then`, for which it
    /// has the value that `with` returns. The others keep what they have until the next time. Returns whether one has
    /// ended.
    pub(crate) fn poll<R>(
        &mut self,
        cx: &Context<'_>,
        with: &mut R,
        has_room: impl Fn(&R) -> bool,
        then: impl Fn(&mut R, C, Reply),
    ) -> Result<bool, Panic> {
        let mut woken = self.woken.lock();
        self.ready.extend(woken.0.drain(..));
        match &mut woken.1 {
            Some(task) if task.will_wake(cx.waker()) => {}
            task => *task = Some(cx.waker().clone()),
        }
        drop(woken);
        let mut ended = false;
        while has_room(with)
            && let Some(index) = self.ready.pop_front()
        {
            let Some(entry) = self.futures.get_mut(index) else {
                continue;
            };
            // Not a store, which the reads of the future may overtake: then a waker that sees the flag still set
            // changes what they have read, and lists the future no more.
            entry.waking.listed.swap(false, AcqRel);
            let polled = poll(&mut entry.future, &entry.waker);
            if let Ok(Poll::Pending) = polled {
                continue;
            }
            ended = true;
            let Entry { future, call, .. } = self.futures.remove(index);
            // What the future holds is dropped before its reply is passed on.
            drop(future);
            if let Poll::Ready(reply) = polled? {
                then(with, call, reply);
            }
        }
        Ok(ended)
    }
}

fn poll(future: &mut ReplyFuture, waker: &Waker) -> Result<Poll<Reply>, Panic> {
    let mut cx = Context::from_waker(waker);
    catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::ReplyBound;
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

    /// A call, and a reply that says nothing.
    fn reply(bytes: usize) -> Reply {
        Reply::TooLarge(Box::new(ReplyBound::new(bytes)))
    }

    /// Polls the set as long as there are fewer results than there is room for, and adds them.
    fn poll_into(
        running: &mut Running<u32>,
        cx: &Context<'_>,
        results: &mut Vec<u32>,
        room: usize,
    ) -> Result<bool, Panic> {
        running.poll(
            cx,
            results,
            |results| results.len() < room,
            |results, call, _| results.push(call),
        )
    }

    fn waits(wait: oneshot::Receiver<()>) -> ReplyFuture {
        Box::pin(async {
            wait.await.expect("it is sent");
            Reply::Nothing
        })
    }

    #[test]
    fn woken_future_is_polled_and_its_result_passed_on() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let mut running = Running::new();
        let [first, second] = [1, 2].map(|call| {
            let (send, wait) = oneshot::channel();
            let begun = running.begin(waits(wait), call);
            assert!(begun.expect("no panic").is_none());
            send
        });
        let mut results = Vec::new();
        assert!(!poll_into(&mut running, &cx, &mut results, 9).expect("no panic"));
        second.send(()).expect("it waits");
        first.send(()).expect("it waits");
        assert_eq!(count.0.load(Relaxed), 1, "one wake for both");
        assert!(poll_into(&mut running, &cx, &mut results, 9).expect("no panic"));
        assert_eq!(results, [2, 1]);
        assert!(!poll_into(&mut running, &cx, &mut results, 9).expect("no panic"));
    }

    #[test]
    fn future_that_is_ready_at_once_is_not_kept() {
        let mut running = Running::new();
        for call in 0..3 {
            let begun = running.begin(Box::pin(async { reply(7) }), call);
            let begun = begun.expect("no panic").map(|(call, _)| call);
            assert_eq!((begun, running.len()), (Some(call), 0));
        }
    }

    /// Wakes itself each time, and is ready at its third poll.
    struct Restless(u32);

    impl Future for Restless {
        type Output = Reply;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
            self.0 += 1;
            cx.waker().wake_by_ref();
            match self.0 {
                3 => Poll::Ready(reply(0)),
                _ => Poll::Pending,
            }
        }
    }

    #[test]
    fn wake_is_not_lost_in_the_place_of_a_future_that_was_ready_at_once() {
        let cx = Context::from_waker(Waker::noop());
        let mut running = Running::new();
        // It is woken, and is no longer there when that is heard.
        let ready = running.begin(Box::pin(Restless(2)), 0);
        assert!(ready.expect("no panic").is_some());
        let mut results = Vec::new();
        assert!(!poll_into(&mut running, &cx, &mut results, 9).expect("no panic"));
        for call in 1..=2 {
            let begun = running.begin(Box::pin(Restless(0)), call);
            assert!(begun.expect("no panic").is_none());
        }
        while running.len() > 0 {
            let mut heard = running.woken.lock().0.len();
            heard += running.ready.len();
            assert!(heard > 0, "nobody polls them");
            poll_into(&mut running, &cx, &mut results, 9).expect("no panic");
        }
        assert_eq!(results, [1, 2]);
    }

    #[test]
    fn future_is_not_polled_before_there_is_room_for_its_result() {
        let cx = Context::from_waker(Waker::noop());
        let mut running = Running::new();
        for call in 1..=3 {
            let begun = running.begin(Box::pin(Restless(1)), call);
            assert!(begun.expect("no panic").is_none());
        }
        let mut results = Vec::new();
        for room in [0, 1, 1, 3] {
            poll_into(&mut running, &cx, &mut results, room).expect("no panic");
            let most = u32::try_from(room).expect("a small number");
            assert_eq!(results, Vec::from_iter(1..=most));
        }
        assert_eq!(running.len(), 0);
    }

    #[test]
    fn panic_of_a_future_is_an_error() {
        let cx = Context::from_waker(Waker::noop());
        let mut running = Running::new();
        let at_once = running.begin(Box::pin(async { panic!("as a service may") }), 1);
        assert!(at_once.is_err());
        let (send, wait) = oneshot::channel();
        let begun = running.begin(waits(wait), 2);
        assert!(begun.expect("no panic").is_none());
        drop(send);
        let mut results = Vec::new();
        assert!(poll_into(&mut running, &cx, &mut results, 9).is_err());
        assert!(results.is_empty() && running.len() == 0);
    }
}
