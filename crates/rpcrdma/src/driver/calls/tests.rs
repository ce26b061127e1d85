//! Outcomes of calls.

use super::*;
use crate::driver::close_reason::CloseReason;
use oncrpc::ReplyBound;
use oncrpc::xdr;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

fn message(xid: u32) -> Payload {
    let mut w = xdr::Writer::default();
    w.u32(xid);
    w.u32(0);
    w.finish()
}

fn calls() -> Arc<Calls> {
    with_connections(1)
}

fn with_connections(conns: usize) -> Arc<Calls> {
    let calls = Calls::new(Duration::from_secs(60), conns);
    (0..conns).for_each(|conn| calls.connected(conn));
    Arc::new(calls)
}

fn of(user: usize, calls: &Arc<Calls>, xid: u32) -> PendingCall {
    let (message, bound) = (message(xid), ReplyBound::default());
    PendingCall::new(Arc::clone(calls), user, message, bound)
}

fn waiting(calls: &Arc<Calls>, xid: u32) -> PendingCall {
    of(FIRST_USER, calls, xid)
}

fn next_on(conn: usize, calls: &Calls) -> Option<CallRequest> {
    let mut work = Work::default();
    calls.take(conn, 1, 0, &mut work);
    work.calls.pop_front()
}

fn next(calls: &Calls) -> Option<CallRequest> {
    next_on(0, calls)
}

/// Ends the calls that wait and whose time is up; how long others may take.
fn expire(calls: &Calls, now: Instant, error: &TransportError) -> Duration {
    calls.expire(0, now, error, std::iter::empty())
}

fn poll(waiting: Pin<&mut PendingCall>) -> Poll<Result<u32, TransportError>> {
    let outcome = waiting.poll(&mut Context::from_waker(Waker::noop()));
    outcome.map_ok(|reply| xdr::Reader::from(&reply).u32().expect("an XID"))
}

#[test]
fn reply_comes_to_the_call_it_is_for() {
    let calls = calls();
    let (mut a, mut b) = (pin!(waiting(&calls, 1)), pin!(waiting(&calls, 2)));
    assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
    let (first, second) = (next(&calls).expect("sent"), next(&calls).expect("sent"));
    second.into_call().complete(Ok(message(2)));
    first.into_call().complete(Ok(message(1)));
    assert_eq!(poll(a), Poll::Ready(Ok(1)));
    assert_eq!(poll(b), Poll::Ready(Ok(2)));
}

#[test]
fn late_reply_to_a_cancelled_call_reaches_no_other() {
    let calls = calls();
    let mut first = Box::pin(waiting(&calls, 1));
    assert!(poll(first.as_mut()).is_pending());
    let request = next(&calls).expect("sent");
    drop(first);
    let mut work = Work::default();
    calls.take(0, 0, 0, &mut work);
    assert!(work.cancelled && !request.call().is_open());
    let mut second = pin!(waiting(&calls, 2));
    assert!(poll(second.as_mut()).is_pending());
    request.into_call().complete(Ok(message(1)));
    assert!(poll(second).is_pending());
}

#[test]
fn call_cancelled_before_it_was_sent_is_never_sent() {
    let calls = calls();
    let mut first = Box::pin(waiting(&calls, 1));
    assert!(poll(first.as_mut()).is_pending());
    drop(first);
    let mut work = Work::default();
    calls.take(0, 1, 0, &mut work);
    assert!(work.calls.is_empty() && !work.cancelled);
}

#[test]
fn owner_without_a_connection_has_nothing_to_do_for_a_cancelled_call() {
    let calls = calls();
    calls.lost(0, None);
    let mut first = Box::pin(waiting(&calls, 1));
    assert!(poll(first.as_mut()).is_pending());
    drop(first);
    assert!(!calls.wants_connection(0));
    // It would turn around without an end, and nobody else would have a turn.
    assert!(!calls.poll_work(0, &Context::from_waker(Waker::noop()), Some(0)));
}

#[test]
fn call_whose_time_is_up_ends_wherever_it_is() {
    let calls = calls();
    let (mut a, mut b) = (pin!(waiting(&calls, 1)), pin!(waiting(&calls, 2)));
    assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
    let request = next(&calls).expect("sent");
    let error = TransportError::TimedOut(calls.timeout);
    let start = Instant::now();
    let expire = |after| calls.expire(0, start + after, &error, std::iter::once(request.call()));
    expire(Duration::ZERO);
    expire(calls.timeout / 2);
    assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
    expire(calls.timeout);
    assert!(next(&calls).is_none());
    assert_eq!(poll(a), Poll::Ready(Err(error.clone())));
    assert_eq!(poll(b), Poll::Ready(Err(error)));
}

#[test]
fn call_is_put_back_only_while_somebody_waits_for_it() {
    let calls = calls();
    let mut first = Box::pin(waiting(&calls, 1));
    let mut second = pin!(waiting(&calls, 2));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    let request = next(&calls).expect("sent");
    calls.put_back(request);
    assert!(calls.wants_connection(0));
    let request = next(&calls).expect("sent again");
    assert_eq!(request.xid(), 1);
    drop(first);
    calls.put_back(request);
    assert_eq!(next(&calls).map(|request| request.xid()), Some(2));
    assert!(!calls.wants_connection(0));
}

#[test]
fn call_put_last_lets_those_of_others_and_of_its_user_go_first() {
    let calls = calls();
    let other = calls.add_user();
    let mut waiting: Vec<_> = [(FIRST_USER, 1), (FIRST_USER, 2), (other, 3)]
        .map(|(user, xid)| Box::pin(of(user, &calls, xid)))
        .into();
    for waiting in &mut waiting {
        assert!(poll(waiting.as_mut()).is_pending());
    }
    let request = next(&calls).expect("sent");
    calls.put_last(request);
    let mut order: Vec<_> = std::iter::from_fn(|| next(&calls).map(|call| call.xid())).collect();
    assert_eq!(order.pop(), Some(1));
    assert_eq!(order.len(), 2);
}

#[test]
fn after_the_end_every_call_fails_with_the_reason() {
    let calls = calls();
    let mut before = pin!(waiting(&calls, 1));
    assert!(poll(before.as_mut()).is_pending());
    let error = TransportError::Disconnected(CloseReason::Asked.into());
    calls.end(&error);
    assert_eq!(poll(before), Poll::Ready(Err(error.clone())));
    assert_eq!(poll(pin!(waiting(&calls, 2))), Poll::Ready(Err(error)));
}

#[test]
fn calls_that_are_cancelled_in_the_queue_hold_up_no_other() {
    let calls = calls();
    let mut many: Vec<_> = (0..10_000).map(|_| Box::pin(waiting(&calls, 1))).collect();
    many.iter_mut()
        .for_each(|w| assert!(poll(w.as_mut()).is_pending()));
    let mut last = pin!(waiting(&calls, 2));
    assert!(poll(last.as_mut()).is_pending());
    drop(many);
    let request = next(&calls).expect("there is one that somebody waits for");
    assert_eq!(request.xid(), 2);
    request.into_call().complete(Ok(message(2)));
    assert_eq!(poll(last), Poll::Ready(Ok(2)));
}

#[test]
fn call_cancelled_in_the_queue_is_forgotten_without_a_connection_too() {
    let calls = calls();
    let mut call = Box::pin(waiting(&calls, 1));
    assert!(poll(call.as_mut()).is_pending());
    drop(call);
    let error = TransportError::TimedOut(calls.timeout);
    expire(&calls, Instant::now(), &error);
    assert!(calls.is_idle(0));
}

/// A waker that may look at the calls, as one does that polls at once.
struct Polls(Arc<Calls>);

impl std::task::Wake for Polls {
    fn wake(self: Arc<Self>) {
        assert!(self.0.inner.try_lock().is_ok(), "the lock is held");
    }
}

#[test]
fn nobody_is_woken_under_the_lock() {
    let calls = calls();
    let waker = Waker::from(Arc::new(Polls(Arc::clone(&calls))));
    let error = TransportError::TimedOut(calls.timeout);
    let ends: [&dyn Fn(); 3] = [
        &|| {
            let request = next(&calls).expect("sent");
            request.into_call().complete(Err(error.clone()));
        },
        &|| {
            let start = Instant::now();
            expire(&calls, start, &error);
            expire(&calls, start + calls.timeout, &error);
        },
        &|| calls.end(&error),
    ];
    for end in ends {
        let mut call = pin!(waiting(&calls, 1));
        let pending = call.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(pending.is_pending());
        end();
        assert_eq!(poll(call), Poll::Ready(Err(error.clone())));
    }
}

#[test]
fn call_has_the_time_that_it_was_given() {
    let calls = calls();
    let long = calls.timeout * 3;
    let (mut usual, mut patient) = (
        pin!(waiting(&calls, 1)),
        pin!(waiting(&calls, 2).within(long)),
    );
    assert!(poll(usual.as_mut()).is_pending() && poll(patient.as_mut()).is_pending());
    let error = TransportError::TimedOut(calls.timeout);
    let start = Instant::now();
    assert_eq!(expire(&calls, start, &error), long);
    assert_eq!(expire(&calls, start + calls.timeout, &error), long);
    assert_eq!(poll(usual), Poll::Ready(Err(error.clone())));
    assert!(poll(patient.as_mut()).is_pending());
    let left = expire(&calls, start + long, &error);
    assert_eq!(left, calls.timeout);
    let late = TransportError::TimedOut(long);
    assert_eq!(poll(patient), Poll::Ready(Err(late)));
}

#[test]
fn users_have_their_turn_whoever_has_most_calls() {
    let calls = calls();
    let other = calls.add_user();
    let mut many: Vec<_> = (0..1000)
        .map(|xid| Box::pin(waiting(&calls, xid)))
        .collect();
    many.iter_mut()
        .for_each(|w| assert!(poll(w.as_mut()).is_pending()));
    let mut single = pin!(of(other, &calls, 5000));
    assert!(poll(single.as_mut()).is_pending());
    let mut work = Work::default();
    calls.take(0, 4, 0, &mut work);
    let taken: Vec<u32> = work.calls.iter().map(CallRequest::xid).collect();
    assert_eq!(taken, [0, 5000, 1, 2]);
    calls.remove_user(other);
    assert_eq!(calls.add_user(), other);
}

#[test]
fn calls_go_to_the_connection_with_the_fewest() {
    let calls = with_connections(3);
    let mut many: Vec<_> = (0..7).map(|xid| Box::pin(waiting(&calls, xid))).collect();
    many.iter_mut()
        .for_each(|w| assert!(poll(w.as_mut()).is_pending()));
    let on = |conn| -> Vec<u32> {
        std::iter::from_fn(|| next_on(conn, &calls))
            .map(|request| request.xid())
            .collect()
    };
    assert_eq!(
        [on(0), on(1), on(2)],
        [vec![0, 3, 6], vec![1, 4], vec![2, 5]]
    );
    drop(many.remove(1));
    drop(many.remove(3));
    let mut next = pin!(waiting(&calls, 8));
    assert!(poll(next.as_mut()).is_pending());
    assert_eq!(on(1), [8]);
}

#[test]
fn calls_of_a_connection_without_a_connection_go_over_another() {
    let calls = with_connections(2);
    let (mut a, mut b, mut c) = (
        pin!(waiting(&calls, 1)),
        pin!(waiting(&calls, 2)),
        pin!(waiting(&calls, 3)),
    );
    for call in [a.as_mut(), b.as_mut(), c.as_mut()] {
        assert!(poll(call).is_pending());
    }
    let on_its_way = next_on(0, &calls).expect("sent");
    assert_eq!(on_its_way.xid(), 1);
    calls.lost(0, None);
    calls.put_back(on_its_way);
    assert!(next_on(0, &calls).is_none());
    let rest: Vec<u32> = std::iter::from_fn(|| next_on(1, &calls))
        .map(|request| request.xid())
        .collect();
    assert_eq!(rest, [1, 2, 3]);
    assert!(calls.wants_connection(0), "the other one has calls");
    calls.connected(0);
    let mut d = pin!(waiting(&calls, 4));
    assert!(poll(d.as_mut()).is_pending());
    assert_eq!(next_on(0, &calls).map(|request| request.xid()), Some(4));
}

#[test]
fn calls_wait_for_their_connection_while_no_other_has_a_connection() {
    let calls = with_connections(2);
    let mut call = pin!(waiting(&calls, 1));
    assert!(poll(call.as_mut()).is_pending());
    let request = next_on(0, &calls).expect("sent");
    calls.lost(1, None);
    calls.lost(0, None);
    calls.put_back(request);
    assert!(calls.wants_connection(0) && calls.wants_connection(1));
    calls.connected(0);
    assert_eq!(next_on(0, &calls).map(|request| request.xid()), Some(1));
}

#[test]
fn calls_do_not_wait_for_their_connection_when_another_is_back_first() {
    let calls = with_connections(2);
    calls.lost(0, None);
    calls.lost(1, None);
    let (mut a, mut b) = (pin!(waiting(&calls, 1)), pin!(waiting(&calls, 2)));
    assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
    calls.connected(1);
    let on_the_other: Vec<u32> = std::iter::from_fn(|| next_on(1, &calls))
        .map(|request| request.xid())
        .collect();
    assert_eq!(on_the_other, [2, 1]);
    assert!(calls.is_idle(0));
}

#[test]
fn calls_do_not_wake_a_connection_that_is_not_to_connect_yet() {
    struct Counts(AtomicU32);
    impl std::task::Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let calls = with_connections(2);
    calls.lost(1, None);
    let counts = Arc::new(Counts(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&counts));
    let woken_by_a_call = |out| {
        assert!(!calls.poll_work(1, &Context::from_waker(&waker), out));
        let before = counts.0.load(SeqCst);
        assert!(poll(pin!(waiting(&calls, 1))).is_pending());
        counts.0.load(SeqCst) - before
    };
    assert_eq!(woken_by_a_call(None), 0);
    assert_eq!(woken_by_a_call(Some(0)), 1);
    assert!(!calls.poll_work(1, &Context::from_waker(&waker), None));
    calls.close();
    assert_eq!(counts.0.load(SeqCst), 2);
}

#[test]
fn calls_end_when_the_last_connection_is_gone_and_not_before() {
    let calls = with_connections(2);
    let (mut a, mut b) = (pin!(waiting(&calls, 1)), pin!(waiting(&calls, 2)));
    assert!(poll(a.as_mut()).is_pending() && poll(b.as_mut()).is_pending());
    let sent = next_on(0, &calls).expect("sent");
    let error = TransportError::Disconnected(CloseReason::Asked.into());
    calls.leave(0, &error);
    assert!(poll(a.as_mut()).is_pending());
    calls.put_back(sent);
    let again = next_on(1, &calls).expect("it goes over the other conn");
    assert_eq!(again.xid(), 1);
    calls.put_back(again);
    calls.leave(1, &error);
    assert_eq!(poll(a), Poll::Ready(Err(error.clone())));
    assert_eq!(poll(b), Poll::Ready(Err(error.clone())));
    assert_eq!(poll(pin!(waiting(&calls, 3))), Poll::Ready(Err(error)));
}

#[test]
fn reason_is_what_is_wrong_with_the_connection() {
    let calls = calls();
    let limit = Duration::from_secs(1);
    assert_eq!(calls.reason(limit), TransportError::TimedOut(limit));
    let trouble = TransportError::Unreachable(CloseReason::Asked.into());
    calls.lost(0, Some(trouble.clone()));
    assert_eq!(calls.reason(limit), trouble);
    calls.connected(0);
    assert_eq!(calls.reason(limit), TransportError::TimedOut(limit));
}

#[test]
fn call_that_is_dropped_on_its_way_ends() {
    let calls = calls();
    let mut call = pin!(waiting(&calls, 1));
    assert!(poll(call.as_mut()).is_pending());
    drop(next(&calls).expect("sent"));
    let Poll::Ready(Err(TransportError::Disconnected(_))) = poll(call) else {
        panic!("it has an end, and no reply");
    };
}

#[test]
fn slot_of_a_call_that_is_over_is_used_again() {
    let calls = calls();
    for xid in 0..3 {
        let mut call = pin!(waiting(&calls, xid));
        assert!(poll(call.as_mut()).is_pending());
        next(&calls)
            .expect("sent")
            .into_call()
            .complete(Ok(message(xid)));
        assert_eq!(poll(call), Poll::Ready(Ok(xid)));
        assert_eq!(calls.lock().spare.len(), 1);
    }
}

/// Task that a waker keeps alive, which may hold other calls, and drops them with itself.
struct Task(Arc<Calls>);

impl std::task::Wake for Task {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Task {
    fn drop(&mut self) {
        assert!(
            self.0.inner.try_lock().is_ok(),
            "a waker is dropped under the lock"
        );
    }
}

#[test]
fn waker_of_a_dropped_future_is_not_kept() {
    let calls = calls();
    let task = Arc::new(Task(Arc::clone(&calls)));
    let waker = Waker::from(Arc::clone(&task));
    let mut call = Box::pin(waiting(&calls, 1));
    assert!(
        call.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let request = next(&calls).expect("sent");
    drop((call, waker));
    drop(request);
    assert_eq!(
        Arc::strong_count(&task),
        1,
        "a spare slot keeps the waker of a call that is over"
    );
}

#[test]
fn no_waker_is_dropped_under_the_lock() {
    let calls = calls();
    let waker = Waker::from(Arc::new(Task(Arc::clone(&calls))));
    let mut first = Box::pin(waiting(&calls, 1));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    // The slot has the last waker of its task.
    drop(waker);
    let mut work = Work::default();
    drop(first);
    calls.take(0, 1, 0, &mut work);
    assert!(work.calls.is_empty());
    let mut second = pin!(waiting(&calls, 2));
    assert!(poll(second.as_mut()).is_pending());
}
