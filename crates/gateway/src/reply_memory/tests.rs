//! Shares of addresses, turns, and stalled clients, in virtual time.

use super::holder::STALLED_AFTER;
use super::stalled::RECLAIM_INTERVAL;
use super::*;
use crate::config::GIVES_WAY_AFTER;
use crate::reply_lease::ReplyLease;
use oncrpc::xdr::Payload;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::advance;

const TOTAL: usize = 64 << 20;
const READ: usize = 1 << 20;

/// A connection of this address.
fn client(address: u32) -> Caller {
    Caller::new((Ipv4Addr::from_bits(address), 700).into())
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A lease that is there at once.
fn lease(memory: &ReplyMemory, of: &Caller, bytes: usize) -> Option<Lease> {
    poll(pin!(memory.lease(of, bytes, || ())))
}

/// Lets time pass in which somebody watches. `accepted` tells what a connection has accepted of its output.
async fn pass_with(
    memory: &ReplyMemory,
    time: Duration,
    accepted: impl Fn(ConnectionId) -> u64,
    mut close: impl FnMut(Stalled),
) {
    let until = Instant::now() + time;
    loop {
        let stalled = memory.look(Instant::now(), &accepted);
        stalled.into_iter().for_each(&mut close);
        if Instant::now() >= until {
            break;
        }
        advance(RECLAIM_INTERVAL).await;
    }
}

/// Lets time pass in which somebody watches.
async fn pass(memory: &ReplyMemory, time: Duration, close: impl FnMut(Stalled)) {
    pass_with(memory, time, |_| 0, close).await;
}

/// As many leases as a client gets.
fn all_leases(memory: &ReplyMemory, of: &Caller) -> Vec<Lease> {
    std::iter::from_fn(|| lease(memory, of, READ)).collect()
}

#[tokio::test(start_paused = true)]
async fn address_gets_as_much_as_it_leaves_free_and_a_later_one_finds_some() {
    let memory = ReplyMemory::new(TOTAL);
    let held: Vec<Vec<Lease>> = (1..=4)
        .map(|number| all_leases(&memory, &client(number)))
        .collect();
    let counts: Vec<usize> = held.iter().map(Vec::len).collect();
    assert_eq!(counts, [32, 16, 8, 4]);
    assert_eq!(all_leases(&memory, &client(5)).len(), 2);
    assert!(lease(&memory, &client(1), READ).is_none());
    drop(held);
    assert_eq!(memory.left(), TOTAL);
}

#[tokio::test(start_paused = true)]
async fn huge_reply_is_lent_half() {
    let memory = ReplyMemory::new(TOTAL);
    let _huge = lease(&memory, &client(1), usize::MAX).expect("it is lent");
    assert_eq!(memory.left(), TOTAL / 2);
}

#[tokio::test(start_paused = true)]
async fn short_reply_returns_what_it_does_not_need() {
    let memory = ReplyMemory::new(4 * READ);
    let mut short = lease(&memory, &client(1), 2 * READ).expect("it is lent");
    let _more = lease(&memory, &client(2), READ).expect("it is lent");
    let other = client(3);
    let mut waits = pin!(memory.lease(&other, 2 * READ, || ()));
    assert!(poll(waits.as_mut()).is_none());
    short.hand_over(3 * READ);
    assert!(poll(waits.as_mut()).is_none());
    short.hand_over(1024);
    let _granted = poll(waits).expect("there is enough now");
    assert_eq!(memory.left(), READ - 1024);
    drop(short);
    assert_eq!(memory.left(), READ);
}

#[tokio::test(start_paused = true)]
async fn addresses_have_their_turn_and_nobody_overtakes() {
    let memory = ReplyMemory::new(8 * READ);
    let (a, b, c) = (client(1), client(2), client(3));
    let first = all_leases(&memory, &a);
    let more = all_leases(&memory, &b);
    assert_eq!((first.len(), more.len()), (4, 2));
    let mut waits = pin!(memory.lease(&c, 3 * READ, || ()));
    assert!(poll(waits.as_mut()).is_none());
    // There would be enough for this one, but it came later.
    let d = client(4);
    let mut behind = pin!(memory.lease(&d, READ, || ()));
    assert!(poll(behind.as_mut()).is_none());
    drop(more);
    let large = poll(waits).expect("it is its turn");
    let _small = poll(behind).expect("it is behind that");
    assert_eq!(large.bytes, 3 * READ);
}

#[tokio::test(start_paused = true)]
async fn call_that_is_given_up_makes_room_for_those_behind_it() {
    let memory = ReplyMemory::new(4 * READ);
    let (b, c) = (client(2), client(3));
    let _held = all_leases(&memory, &client(1));
    let _last = lease(&memory, &client(4), READ).expect("the last but one");
    let mut given_up = Box::pin(memory.lease(&b, 2 * READ, || ()));
    assert!(poll(given_up.as_mut()).is_none());
    let mut behind = pin!(memory.lease(&c, READ, || ()));
    assert!(poll(behind.as_mut()).is_none());
    drop(given_up);
    assert!(poll(behind).is_some());
    assert!(!memory.lock().waiting.waits(b.group));
}

/// A reply that came, for a client with no room for it.
fn answer(lease: &Lease) {
    let mut woken = None;
    let mut reply = Box::pin(lease.until_answered(std::future::poll_fn(|cx| {
        woken = Some(cx.waker().clone());
        Poll::<()>::Pending
    })));
    assert!(poll(reply.as_mut()).is_none());
    drop(reply);
    woken.expect("it was polled").wake();
}

/// Attackers of one connection each, whose replies wait for them, until nothing is left.
fn stall(memory: &ReplyMemory) -> HashMap<ConnectionId, Vec<Lease>> {
    let mut all = HashMap::new();
    for number in 100.. {
        let client = client(number);
        let leases = all_leases(memory, &client);
        if leases.is_empty() {
            break;
        }
        leases.iter().for_each(answer);
        all.insert(client.connection, leases);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn stalled_clients_lose_their_connections_until_others_go_on() {
    let memory = ReplyMemory::new(TOTAL);
    let held = RefCell::new(stall(&memory));
    let attackers = held.borrow().len();
    assert_eq!(memory.left(), 0);
    let honest = client(1);
    // What the gateway does: the calls of a closed connection are dropped.
    let close = |stalled: Stalled| drop(held.borrow_mut().remove(&stalled.connection));
    let mut waits = pin!(memory.lease(&honest, 4 * READ, || ()));
    assert!(poll(waits.as_mut()).is_none());
    pass(&memory, STALLED_AFTER - RECLAIM_INTERVAL, close).await;
    assert!(poll(waits.as_mut()).is_none());
    pass(&memory, RECLAIM_INTERVAL, close).await;
    assert_eq!(poll(waits).expect("it is lent").bytes, 4 * READ);
    assert_eq!(held.borrow().len(), attackers - 1, "one of them was enough");
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_replies_keeps_its_connection() {
    let memory = ReplyMemory::new(TOTAL);
    let mut held: Vec<Vec<Lease>> = stall(&memory).into_values().collect();
    let honest = client(1);
    // More than they return.
    let mut waits = pin!(memory.lease(&honest, TOTAL / 2, || ()));
    assert!(poll(waits.as_mut()).is_none());
    for _ in 0..3 {
        pass(&memory, STALLED_AFTER / 2, |_| panic!("all take replies")).await;
        // One reply each.
        held.iter_mut().for_each(|leases| drop(leases.pop()));
        assert!(poll(waits.as_mut()).is_none());
    }
    held.clear();
    assert!(poll(waits).is_some());
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_only_small_replies_keeps_no_large_ones() {
    let memory = ReplyMemory::new(TOTAL);
    let trickling = client(100);
    let mut small: Vec<Lease> = (0..8)
        .map(|_| lease(&memory, &trickling, SMALL_REPLY + 1).expect("it is lent"))
        .collect();
    let large = RefCell::new(all_leases(&memory, &trickling));
    large.borrow().iter().chain(&small).for_each(answer);
    // The upstream has not answered this one yet.
    let _slow = all_leases(&memory, &client(2));
    let honest = client(1);
    let close = |stalled: Stalled| {
        assert_eq!(stalled.connection, trickling.connection);
        large.borrow_mut().clear();
    };
    let mut waits = pin!(memory.lease(&honest, TOTAL / 2, || ()));
    for _ in 0..2 {
        assert!(poll(waits.as_mut()).is_none());
        drop(small.pop());
        pass(&memory, STALLED_AFTER / 2, close).await;
    }
    assert!(poll(waits).is_some());
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_have_another_connection_closed_each_and_no_more_than_they_need() {
    let memory = ReplyMemory::new(TOTAL);
    let held = stall(&memory);
    // Connections that are told to close, and take their time.
    let closed = RefCell::new(Vec::new());
    let close = |stalled: Stalled| closed.borrow_mut().push(stalled.connection);
    let clients = [client(1), client(2), client(3)];
    // The first two connections return 32 and 16 of them.
    let mut waiting: Vec<_> = clients
        .iter()
        .map(|client| Box::pin(memory.lease(client, 15 * READ, || ())))
        .collect();
    for _ in 0..8 {
        for waits in &mut waiting {
            assert!(poll(waits.as_mut()).is_none());
        }
        pass(&memory, STALLED_AFTER, close).await;
    }
    let closed = closed.borrow();
    let sizes: Vec<usize> = closed.iter().map(|of| held[of].len()).collect();
    assert_eq!(sizes, [32, 16], "each of them once");
}

#[tokio::test(start_paused = true)]
async fn connections_of_one_address_have_their_turn() {
    let memory = ReplyMemory::new(TOTAL);
    let many = client(1);
    let other = Caller {
        group: many.group,
        ..client(1)
    };
    let mut held = all_leases(&memory, &many);
    let mut queue: Vec<_> = (0..8)
        .map(|_| Box::pin(memory.lease(&many, READ, || ())))
        .collect();
    for waits in &mut queue {
        assert!(poll(waits.as_mut()).is_none());
    }
    let mut waits = pin!(memory.lease(&other, READ, || ()));
    assert!(poll(waits.as_mut()).is_none());
    drop(held.pop());
    drop(held.pop());
    assert!(poll(waits).is_some(), "one call is before it, not eight");
}

#[tokio::test(start_paused = true)]
async fn connection_that_stands_still_gives_way_to_another_of_its_address() {
    let memory = ReplyMemory::new(TOTAL);
    let still = client(1);
    let other = Caller {
        group: still.group,
        ..client(1)
    };
    let held = RefCell::new(all_leases(&memory, &still));
    held.borrow().iter().for_each(answer);
    // Its own calls wait before that of the other.
    let mut queued = Box::pin(memory.lease(&still, READ, || ()));
    assert!(poll(queued.as_mut()).is_none());
    let queued = RefCell::new(Some(queued));
    let close = |stalled: Stalled| {
        assert_eq!(stalled.connection, still.connection);
        queued.borrow_mut().take();
        held.borrow_mut().clear();
    };
    let mut waits = pin!(memory.lease(&other, READ, || ()));
    assert!(poll(waits.as_mut()).is_none());
    pass(&memory, STALLED_AFTER, close).await;
    assert_eq!(poll(waits).expect("it is lent").bytes, READ);
}

#[tokio::test(start_paused = true)]
async fn client_of_a_slow_upstream_is_not_to_blame_when_another_call_is_granted() {
    let memory = ReplyMemory::new(8 * READ);
    let slow = client(100);
    let _first = lease(&memory, &slow, READ).expect("it is lent");
    advance(5 * STALLED_AFTER).await;
    let mut others = all_leases(&memory, &client(2));
    let _more = all_leases(&memory, &client(3));
    let mut next = pin!(memory.lease(&slow, READ, || ()));
    assert!(poll(next.as_mut()).is_none());
    // It is granted from the queue, and its task has not run yet.
    drop(others.pop());
    let honest = client(1);
    let _waiting = memory.queue(&honest, 4 * READ, oneshot::channel().0);
    {
        let mut state = memory.lock();
        let waiter = state.waiting.first_mut(honest.group, honest.connection);
        waiter.expect("it waits").since -= STALLED_AFTER;
    }
    assert_eq!(memory.lock().bytes.held_by(slow.group), 2 * READ);
    assert!(memory.lock().waiting.waits(honest.group));
    pass(&memory, STALLED_AFTER / 2, |_| {
        panic!("its upstream is slow")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn upstream_that_is_slow_is_no_fault_of_its_clients() {
    let memory = ReplyMemory::new(TOTAL);
    let held: Vec<Vec<Lease>> = (100..120)
        .map(|number| all_leases(&memory, &client(number)))
        .collect();
    let honest = client(1);
    let mut waits = pin!(memory.lease(&honest, READ, || ()));
    for _ in 0..4 {
        assert!(poll(waits.as_mut()).is_none());
        pass(&memory, STALLED_AFTER, |_| panic!("no reply is there")).await;
    }
    drop(held);
    assert!(poll(waits).is_some());
}

#[tokio::test(start_paused = true)]
async fn stalled_client_does_not_take_the_place_of_another() {
    let memory = ReplyMemory::new(TOTAL);
    let held = stall(&memory);
    let smallest = held.values().min_by_key(|leases| leases.len());
    let smallest = smallest.expect("one of them").first().expect("a lease");
    let attacker = Caller {
        group: smallest.group,
        connection: smallest.connection,
        ..client(1)
    };
    // With the first of its own, it has as much as the others that it could take from.
    for leases in held.values().filter(|leases| leases.len() > 1) {
        for lease in leases {
            memory.set_woken(lease.connection, lease.number, false);
        }
    }
    let mut waits = pin!(memory.lease(&attacker, READ, || ()));
    for _ in 0..4 {
        assert!(poll(waits.as_mut()).is_none());
        pass(&memory, STALLED_AFTER, |_| {
            panic!("it has as much as those")
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn shares_of_addresses_without_calls_are_forgotten() {
    let memory = ReplyMemory::new(TOTAL);
    for number in 0..1000 {
        drop(
            memory
                .lease(&client(number), 8192, || panic!("nobody waits"))
                .await,
        );
    }
    let state = memory.lock();
    assert_eq!((state.bytes.holders(), state.holders.len()), (0, 0));
    assert!(state.waiting.is_empty());
}

#[tokio::test(start_paused = true)]
async fn reply_has_its_memory_until_it_is_written() {
    let memory = ReplyMemory::new(4 * READ);
    let reader = client(1);
    let mut of_reader = lease(&memory, &reader, 2 * READ).expect("half of it");
    of_reader.hand_over(2 * READ);
    let reply = Payload::default().with_lease(Box::new(ReplyLease::Lease(of_reader)));
    let closed = RefCell::new(Vec::new());
    let other = client(2);
    let mut waits = pin!(memory.lease(&other, 2 * READ, || ()));
    let _all = lease(&memory, &client(3), READ).expect("a part of the rest");
    assert!(poll(waits.as_mut()).is_none());
    pass(&memory, STALLED_AFTER, |stalled| {
        closed.borrow_mut().push(stalled.connection);
    })
    .await;
    assert!(poll(waits.as_mut()).is_none());
    assert_eq!(*closed.borrow(), [reader.connection]);
    drop(reply);
    assert!(poll(waits).is_some());
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_one_large_reply_steadily_keeps_its_connection() {
    let memory = ReplyMemory::new(8 * READ);
    let reader = client(1);
    let mut reply = lease(&memory, &reader, 4 * READ).expect("half of it");
    reply.hand_over(4 * READ);
    // It was slow before others began to wait.
    advance(5 * STALLED_AFTER).await;
    let _more = all_leases(&memory, &client(2));
    let other = client(3);
    let mut waits = pin!(memory.lease(&other, 4 * READ, || ()));
    assert!(poll(waits.as_mut()).is_none());
    let began = Instant::now();
    let accepted = |of| match of == reader.connection {
        // A quarter of a MiB each second.
        true => began.elapsed().as_secs() << 18,
        false => 0,
    };
    pass_with(&memory, 4 * STALLED_AFTER, accepted, |_| panic!("it reads")).await;
    let closed = RefCell::new(Vec::new());
    let close = |stalled: Stalled| closed.borrow_mut().push(stalled.connection);
    pass(&memory, STALLED_AFTER + RECLAIM_INTERVAL, close).await;
    assert_eq!(*closed.borrow(), [reader.connection], "it has stopped");
}

#[tokio::test(start_paused = true)]
async fn one_watches_for_all_calls_that_wait_until_none_does() {
    let memory = ReplyMemory::new(2 * READ);
    let held = all_leases(&memory, &client(1));
    let others = [client(2), client(3)];
    let mut waiting: Vec<_> = others
        .iter()
        .map(|client| Box::pin(memory.lease(client, READ, || ())))
        .collect();
    let mut granted: Vec<_> = waiting
        .iter_mut()
        .map(|waits| poll(waits.as_mut()))
        .collect();
    let mut watch = memory.watch().expect("nobody watches so far");
    assert!(memory.watch().is_none());
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(watch.next(|_| 0).await, Some(Vec::new()));
    }
    assert_eq!(began.elapsed(), 2 * RECLAIM_INTERVAL, "the first at once");
    drop(held);
    granted.clear();
    waiting.clear();
    assert_eq!(watch.next(|_| 0).await, None);
    let _next = memory.watch().expect("the next call that waits has one");
    drop(watch);
    assert!(memory.watch().is_none());
}

#[tokio::test(start_paused = true)]
async fn calls_that_the_upstream_leaves_unanswered_give_way_to_those_that_wait_for_long() {
    let memory = ReplyMemory::new(8 * READ);
    let (dead, busy) = (client(1), client(2));
    let unanswered = all_leases(&memory, &dead);
    let mut of_busy = all_leases(&memory, &busy);
    assert_eq!((unanswered.len(), of_busy.len()), (4, 2));
    let other = client(3);
    let mut waits = pin!(memory.lease(&other, 4 * READ, || ()));
    assert!(poll(waits.as_mut()).is_none());
    pass(&memory, GIVES_WAY_AFTER / 2, |_| panic!("it is early")).await;
    // This one's calls are answered.
    of_busy = of_busy
        .into_iter()
        .map(|answered| {
            drop(answered);
            let mut state = memory.lock();
            assert!(state.bytes.take(busy.group, READ));
            let to = (busy.connection, busy.addr);
            state.lend(&memory, busy.group, to, READ, None)
        })
        .collect();
    let closed = RefCell::new(Vec::new());
    let close = |stalled: Stalled| closed.borrow_mut().push((stalled.connection, stalled.why));
    pass(&memory, GIVES_WAY_AFTER / 2, close).await;
    assert_eq!(*closed.borrow(), [(dead.connection, Why::Unanswered)]);
    drop(unanswered);
    assert!(poll(waits).is_some());
    drop(of_busy);
}
