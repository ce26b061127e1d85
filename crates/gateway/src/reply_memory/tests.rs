//! Shares of addresses, turns, and stalled clients, in virtual time.

use super::*;
use oncrpc::xdr::Payload;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
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
    let lease = pin!(memory.lease(of, bytes, |_| panic!("nobody waits")));
    poll(lease).flatten()
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
    assert_eq!(memory.lock().left, TOTAL);
}

#[tokio::test(start_paused = true)]
async fn small_reply_needs_no_memory_and_a_huge_one_is_lent_half() {
    let memory = ReplyMemory::new(TOTAL);
    let huge = lease(&memory, &client(1), usize::MAX).expect("it is lent");
    assert_eq!(memory.lock().left, TOTAL / 2);
    drop(huge);
    let client = client(1);
    let lease = pin!(memory.lease(&client, 200, |_| panic!("nobody waits")));
    assert!(poll(lease).expect("at once").is_none());
    assert!(memory.lock().holders.is_empty());
}

#[tokio::test(start_paused = true)]
async fn addresses_have_their_turn_and_nobody_overtakes() {
    let memory = ReplyMemory::new(8 * READ);
    let (a, b, c) = (client(1), client(2), client(3));
    let first = all_leases(&memory, &a);
    let more = all_leases(&memory, &b);
    assert_eq!((first.len(), more.len()), (4, 2));
    let mut waits = pin!(memory.lease(&c, 3 * READ, |_| ()));
    assert!(poll(waits.as_mut()).is_none());
    // There would be enough for this one, but it came later.
    let d = client(4);
    let mut behind = pin!(memory.lease(&d, READ, |_| ()));
    assert!(poll(behind.as_mut()).is_none());
    drop(more);
    let large = poll(waits).flatten().expect("it is its turn");
    let _small = poll(behind).flatten().expect("it is behind that");
    assert_eq!(large.bytes, 3 * READ);
}

#[tokio::test(start_paused = true)]
async fn call_that_is_given_up_makes_room_for_those_behind_it() {
    let memory = ReplyMemory::new(4 * READ);
    let (b, c) = (client(2), client(3));
    let _held = all_leases(&memory, &client(1));
    let _last = lease(&memory, &client(4), READ).expect("the last but one");
    let mut given_up = Box::pin(memory.lease(&b, 2 * READ, |_| ()));
    assert!(poll(given_up.as_mut()).is_none());
    let mut behind = pin!(memory.lease(&c, READ, |_| ()));
    assert!(poll(behind.as_mut()).is_none());
    drop(given_up);
    assert!(poll(behind).is_some());
    assert!(!memory.lock().groups.contains_key(&b.group));
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
    assert_eq!(memory.lock().left, 0);
    let honest = client(1);
    // What the gateway does: the calls of a closed connection are dropped.
    let close = |stalled: Stalled| drop(held.borrow_mut().remove(&stalled.connection));
    let began = Instant::now();
    let lease = memory.lease(&honest, 4 * READ, close).await;
    assert_eq!(lease.expect("it is lent").bytes, 4 * READ);
    assert_eq!(began.elapsed(), STALLED_AFTER);
    assert_eq!(held.borrow().len(), attackers - 1, "one of them was enough");
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_replies_keeps_its_connection() {
    let memory = ReplyMemory::new(TOTAL);
    let mut held: Vec<Vec<Lease>> = stall(&memory).into_values().collect();
    let honest = client(1);
    let nobody = |_| panic!("all take replies");
    // More than they return.
    let mut waits = pin!(memory.lease(&honest, TOTAL / 2, nobody));
    assert!(poll(waits.as_mut()).is_none());
    for _ in 0..3 {
        advance(STALLED_AFTER / 2).await;
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
    let mut waits = pin!(memory.lease(&honest, TOTAL / 2, close));
    for _ in 0..2 {
        assert!(poll(waits.as_mut()).is_none());
        drop(small.pop());
        advance(STALLED_AFTER / 2).await;
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
        .map(|client| Box::pin(memory.lease(client, 15 * READ, close)))
        .collect();
    for _ in 0..8 {
        for waits in &mut waiting {
            assert!(poll(waits.as_mut()).is_none());
        }
        advance(STALLED_AFTER).await;
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
        .map(|_| Box::pin(memory.lease(&many, READ, |_| ())))
        .collect();
    for waits in &mut queue {
        assert!(poll(waits.as_mut()).is_none());
    }
    let mut waits = pin!(memory.lease(&other, READ, |_| ()));
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
    let mut queued = Box::pin(memory.lease(&still, READ, |_| panic!("it has most itself")));
    assert!(poll(queued.as_mut()).is_none());
    let queued = RefCell::new(Some(queued));
    let close = |stalled: Stalled| {
        assert_eq!(stalled.connection, still.connection);
        queued.borrow_mut().take();
        held.borrow_mut().clear();
    };
    let began = Instant::now();
    let leased = tokio::time::timeout(2 * STALLED_AFTER, memory.lease(&other, READ, close)).await;
    let lease = leased.expect("it does not wait for long");
    assert_eq!(lease.expect("it is lent").bytes, READ);
    assert_eq!(began.elapsed(), STALLED_AFTER);
}

#[tokio::test(start_paused = true)]
async fn client_of_a_slow_upstream_is_not_to_blame_when_another_call_is_granted() {
    let memory = ReplyMemory::new(8 * READ);
    let slow = client(100);
    let _first = lease(&memory, &slow, READ).expect("it is lent");
    advance(5 * STALLED_AFTER).await;
    let mut others = all_leases(&memory, &client(2));
    let _more = all_leases(&memory, &client(3));
    let mut next = pin!(memory.lease(&slow, READ, |_| panic!("nobody waits")));
    assert!(poll(next.as_mut()).is_none());
    // It is granted from the queue, and its task has not run yet.
    drop(others.pop());
    let honest = client(1);
    let waiter = Waiter {
        bytes: 4 * READ,
        connection: honest.connection,
        addr: honest.addr,
        granted: oneshot::channel().0,
    };
    let waiting = memory.queue(waiter, honest.group);
    assert_eq!(memory.lock().groups[&slow.group].held, 2 * READ);
    assert!(memory.lock().groups[&honest.group].waits());
    assert_eq!(waiting.reclaim(Instant::now()), None);
}

#[tokio::test(start_paused = true)]
async fn upstream_that_is_slow_is_no_fault_of_its_clients() {
    let memory = ReplyMemory::new(TOTAL);
    let held: Vec<Vec<Lease>> = (100..120)
        .map(|number| all_leases(&memory, &client(number)))
        .collect();
    let honest = client(1);
    let nobody = |_| panic!("no reply is there");
    let mut waits = pin!(memory.lease(&honest, READ, nobody));
    for _ in 0..4 {
        assert!(poll(waits.as_mut()).is_none());
        advance(STALLED_AFTER).await;
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
    let nobody = |_| panic!("it has as much as those");
    let mut waits = pin!(memory.lease(&attacker, READ, nobody));
    for _ in 0..4 {
        assert!(poll(waits.as_mut()).is_none());
        advance(STALLED_AFTER).await;
    }
}

#[tokio::test(start_paused = true)]
async fn shares_of_addresses_without_calls_are_forgotten() {
    let memory = ReplyMemory::new(TOTAL);
    for number in 0..1000 {
        let nobody = |_| panic!("nobody waits");
        drop(memory.lease(&client(number), 8192, nobody).await);
    }
    let state = memory.lock();
    assert_eq!((state.groups.len(), state.holders.len()), (0, 0));
    assert!(state.turns.is_empty());
}

#[tokio::test(start_paused = true)]
async fn reply_has_its_memory_until_it_is_written() {
    let memory = ReplyMemory::new(4 * READ);
    let reader = client(1);
    let of_reader = lease(&memory, &reader, 2 * READ).expect("half of it");
    of_reader.handle_handed_over();
    let reply = Payload::default().keeping(of_reader);
    let closed = RefCell::new(Vec::new());
    let other = client(2);
    let mut waits = pin!(memory.lease(&other, 2 * READ, |stalled| {
        closed.borrow_mut().push(stalled.connection);
    }));
    let _all = lease(&memory, &client(3), READ).expect("a part of the rest");
    assert!(poll(waits.as_mut()).is_none());
    advance(STALLED_AFTER).await;
    assert!(poll(waits.as_mut()).is_none());
    assert_eq!(*closed.borrow(), [reader.connection]);
    drop(reply);
    assert!(poll(waits).flatten().is_some());
}
