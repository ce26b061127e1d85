//! Shares of addresses, turns, and stalled clients, in virtual time.

use super::*;
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

fn reply(bytes: usize) -> ReplyBound {
    ReplyBound::new(0).with_result(bytes)
}

fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A lease that is there at once.
fn lease(memory: &ReplyMemory, of: &Caller, bytes: usize) -> Option<Lease> {
    let reply = reply(bytes);
    let lease = pin!(memory.lease(of, &reply, |_| panic!("nobody waits")));
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
    let (small, client) = (ReplyBound::new(200), client(1));
    let lease = pin!(memory.lease(&client, &small, |_| panic!("nobody waits")));
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
    let (large, small) = (reply(3 * READ), reply(READ));
    let mut waits = pin!(memory.lease(&c, &large, |_| ()));
    assert!(poll(waits.as_mut()).is_none());
    // There would be enough for this one, but it came later.
    let d = client(4);
    let mut behind = pin!(memory.lease(&d, &small, |_| ()));
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
    let (large, small) = (reply(READ * 2), reply(READ));
    let _last = lease(&memory, &client(4), READ).expect("the last but one");
    let mut given_up = Box::pin(memory.lease(&b, &large, |_| ()));
    assert!(poll(given_up.as_mut()).is_none());
    let mut behind = pin!(memory.lease(&c, &small, |_| ()));
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
    let (honest, large) = (client(1), reply(4 * READ));
    // What the gateway does: the calls of a closed connection are dropped.
    let close = |stalled: Stalled| drop(held.borrow_mut().remove(&stalled.connection));
    let began = Instant::now();
    let lease = memory.lease(&honest, &large, close).await;
    assert_eq!(lease.expect("it is lent").bytes, 4 * READ);
    assert_eq!(began.elapsed(), STALLED_AFTER);
    assert_eq!(held.borrow().len(), attackers - 1, "one of them was enough");
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_replies_keeps_its_connection() {
    let memory = ReplyMemory::new(TOTAL);
    let mut held: Vec<Vec<Lease>> = stall(&memory).into_values().collect();
    let (honest, one) = (client(1), reply(READ));
    let nobody = |_| panic!("all take replies");
    let mut waits = pin!(memory.lease(&honest, &one, nobody));
    assert!(poll(waits.as_mut()).is_none());
    // Another address is before it each time, so that it waits for long.
    for _ in 0..3 {
        advance(STALLED_AFTER / 2).await;
        // They have room for one reply each, and its place is taken by the next call.
        for leases in &held {
            memory.set_woken(leases[0].connection, leases[0].number, false);
            memory.set_woken(leases[0].connection, leases[0].number, true);
        }
        assert!(poll(waits.as_mut()).is_none());
    }
    held.clear();
    assert!(poll(waits).is_some());
}

#[tokio::test(start_paused = true)]
async fn upstream_that_is_slow_is_no_fault_of_its_clients() {
    let memory = ReplyMemory::new(TOTAL);
    let held: Vec<Vec<Lease>> = (100..120)
        .map(|number| all_leases(&memory, &client(number)))
        .collect();
    let (honest, one) = (client(1), reply(READ));
    let nobody = |_| panic!("no reply is there");
    let mut waits = pin!(memory.lease(&honest, &one, nobody));
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
        ..client(1)
    };
    // With the first of its own, it has as much as the others that it could take from.
    for leases in held.values().filter(|leases| leases.len() > 1) {
        for lease in leases {
            memory.set_woken(lease.connection, lease.number, false);
        }
    }
    let one = reply(READ);
    let nobody = |_| panic!("it has as much as those");
    let mut waits = pin!(memory.lease(&attacker, &one, nobody));
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
        drop(memory.lease(&client(number), &reply(8192), nobody).await);
    }
    let state = memory.lock();
    assert_eq!((state.groups.len(), state.holders.len()), (0, 0));
    assert!(state.turns.is_empty());
}
