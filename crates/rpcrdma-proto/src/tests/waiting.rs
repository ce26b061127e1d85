//! Calls that wait in their slot for a credit or for regions.

use super::lone::*;
use super::pair::{Pair, Setup};
use super::*;
use crate::Violation;
use crate::v2::characteristics::{ReceiveBufferSize, ReceiveSize, XcharVal};
use oncrpc::xdr;
use oncrpc::{Reply, TransportError};
use std::num::NonZeroU64;

/// A pair whose client has one region, and all its credits.
fn with_one_region(versions: Versions) -> Pair {
    let mut setup = Setup::speaking(versions);
    setup.ends.left.limits.regions = 1;
    let mut pair = Pair::with(setup);
    pair.call(request(100, call(100, 4, &[]), bound(100, &[])));
    let (id, _) = pair.arrived();
    pair.answer(id, Reply::Message(reply(100, 4, &[])));
    check_reply(&pair.ended().expect("answered"), 100, 4, &[]);
    pair
}

fn xid_of(message: &Payload) -> u32 {
    xdr::Reader::from(message).u32().expect("an XID")
}

#[test]
fn calls_wait_for_regions_in_order_and_are_not_counted_as_waiting_for_credits() {
    in_each_version(|versions| {
        let mut pair = with_one_region(versions);
        assert_eq!(pair.client.connection.room(), 8);
        for xid in 1..=3 {
            pair.call(request(xid, call(xid, 4, &[]), bound(100, &[9000])));
        }
        // It needs no region, and does not overtake those that do.
        pair.call(request(4, call(4, 4, &[]), bound(100, &[])));
        let connection = &pair.client.connection;
        assert_eq!((connection.calls_waiting(), connection.room()), (3, 0));
        for xid in 1..=4 {
            pair.drive();
            // The last needs no memory at the server, so it is there before the one in front of it.
            let others: Vec<u32> = pair.calls.iter().map(|(_, call)| xid_of(call)).collect();
            assert!(
                others.iter().all(|&other| other == xid || other == 4),
                "{others:?}"
            );
            let at = others.iter().position(|&other| other == xid);
            let (id, _) = pair.calls.remove(at.expect("it is its turn"));
            let results: &[usize] = if xid == 4 { &[] } else { &[9000] };
            pair.answer(id, Reply::Message(reply(xid, 4, results)));
        }
        let counters = pair.client.connection.counters();
        assert_eq!((counters.region_waits, counters.credit_waits), (3, 0));
        assert_eq!(pair.replies.len(), 4);
        assert_eq!(pair.client.connection.room(), 8);
        pair.check_idle();
    });
}

#[test]
fn calls_beyond_the_credits_wait_for_those() {
    in_each_version(|versions| {
        let mut pair = with_one_region(versions);
        for xid in 1..=9 {
            pair.call(request(xid, call(xid, 4, &[]), bound(100, &[])));
        }
        assert_eq!(pair.client.connection.calls_waiting(), 1);
        let counters = pair.client.connection.counters();
        assert_eq!((counters.region_waits, counters.credit_waits), (0, 1));
        pair.drive();
        assert_eq!(pair.calls.len(), 8);
        let (id, message) = pair.calls.remove(0);
        pair.answer(id, Reply::Message(reply(xid_of(&message), 4, &[])));
        assert_eq!((pair.calls.len(), pair.replies.len()), (8, 1));
        assert_eq!(pair.client.connection.calls_waiting(), 0);
    });
}

#[test]
fn waiting_call_that_is_cancelled_is_over() {
    in_each_version(|versions| {
        let mut pair = with_one_region(versions);
        for xid in 1..=3 {
            pair.call(request(xid, call(xid, 4, &[]), bound(100, &[9000])));
        }
        assert!(pair.client.cancel(CallToken(2)));
        assert_eq!(pair.client.connection.calls_waiting(), 1);
        assert!(!pair.client.cancel(CallToken(2)));
        // The place of the one that is over is taken by another.
        pair.call(request(4, call(4, 4, &[]), bound(100, &[9000])));
        assert!(!pair.client.cancel(CallToken(2)));
        for xid in [1, 3, 4] {
            let (id, message) = pair.arrived();
            assert_eq!(xid_of(&message), xid);
            pair.answer(id, Reply::Message(reply(xid, 4, &[9000])));
        }
        assert_eq!(pair.client.connection.counters().cancelled, 1);
        assert_eq!(pair.replies.len(), 3);
        pair.check_idle();
    });
}

#[test]
fn waiting_call_comes_back_from_a_lost_connection_without_a_loss() {
    let mut pair = with_one_region(Versions::One);
    for xid in 1..=2 {
        pair.call(request(xid, call(xid, 4, &[]), bound(100, &[9000])));
    }
    pair.client.turn();
    let unfinished = pair.client.connection.into_unfinished();
    let losses = unfinished.iter().map(|unfinished| match unfinished {
        Unfinished::Again(request) => (request.xid(), request.losses, request.losses_alone),
        Unfinished::Ended(..) => panic!("it has no reply"),
    });
    let losses: Vec<_> = losses.collect();
    // Only the first was in flight, and so it was alone.
    assert_eq!(losses, [(1, 1, 1), (2, 0, 0)]);
}

#[test]
fn call_whose_xid_is_in_flight_when_it_is_its_turn_fails() {
    let mut pair = with_one_region(Versions::One);
    pair.call(request(1, call(1, 4, &[]), bound(100, &[9000])));
    pair.call(request(7, call(7, 4, &[]), bound(100, &[9000])));
    let twin = CallRequest::new(CallToken(70), call(7, 4, &[]), bound(100, &[]));
    pair.call(twin);
    let (id, _) = pair.arrived();
    pair.answer(id, Reply::Message(reply(1, 4, &[9000])));
    let ended = pair
        .replies
        .iter()
        .find(|(token, _)| *token == CallToken(70));
    let (_, ended) = ended.expect("its end is told");
    assert!(
        matches!(ended, Err(TransportError::XidInUse(7))),
        "{ended:?}"
    );
}

#[test]
fn call_that_waits_while_the_peer_is_asked_for_less_is_planned_for_that() {
    let mut setup = Setup::speaking(Versions::Two);
    setup.ends.left.limits.regions = 1;
    setup.server.characteristics.raise_to = InlineThreshold::at_most(8192);
    setup.server.characteristics.largest = InlineThreshold::at_most(8192);
    setup.client.characteristics.largest_sent = InlineThreshold::at_most(8192);
    let mut pair = Pair::with(setup);
    for xid in 100..120 {
        pair.call(request(xid, call(xid, 4, &[]), bound(100, &[])));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(xid, 4, &[])));
    }
    assert_eq!(pair.client.connection.thresholds().send.bytes(), 8192);
    pair.call(request(1, call(1, 4, &[]), bound(100, &[9000])));
    // It fits a Send now, but waits behind the one that has the region.
    pair.call(request(2, call(2, 6000, &[]), bound(100, &[9000])));
    let less = ReceiveSize::new(4096).expect("no less than the least");
    let want = vec![XcharVal::of::<ReceiveBufferSize>(&less)];
    let asked = pair.client.connection.request_peer(want);
    asked.expect("it can be asked");
    pair.drive();
    let (id, _) = pair.calls.remove(0);
    pair.answer(id, Reply::Message(reply(1, 4, &[9000])));
    // With the region for its result there is none for the call itself: it cannot be carried.
    let ended = pair
        .replies
        .iter()
        .find(|(token, _)| *token == CallToken(2));
    let (_, ended) = ended.expect("its end is told");
    assert!(
        matches!(ended, Err(TransportError::TooLarge { .. })),
        "{ended:?}"
    );
}

#[test]
fn receives_of_a_shared_pool_are_not_posted_and_a_larger_size_is_told_at_once() {
    let mut config = config(Role::Server);
    config.receives = Receives::Shared { size: 8192 };
    config.versions = Versions::Two;
    config.characteristics.raise_to = InlineThreshold::at_most(8192);
    assert!(config.initial_receives().is_empty());
    assert_eq!(config.posted_receives(), 0);
    let mut lone = Lone::new(&config);
    let mut told = Vec::new();
    // The client's INITXCH, which says nothing; and messages, of which none uses a Receive of 4096.
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let introduction: Vec<u8> = words(&[1, 2, 8, 5, 0, 1, 8, 0, 0]);
    arrive(&mut lone.end.connection, introduction);
    for xid in 2..5 {
        let call_of = [[xid, 2, 8, 0, 0, 0, 0, 0], [xid, 0, 0, 0, 0, 0, 0, 0]];
        arrive(&mut lone.end.connection, words(call_of.as_flattened()));
        while let Some(work) = lone.end.connection.poll_post() {
            match work {
                verbs::WorkRequest::Receive { .. } => panic!("a Receive is posted"),
                verbs::WorkRequest::Send { buffer, .. } => told.push(buffer.to_vec()),
                _ => {}
            }
        }
    }
    let session = lone
        .end
        .connection
        .session()
        .expect("version two is spoken");
    assert_eq!(session.own::<ReceiveBufferSize>().bytes(), 8192, "{told:?}");
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
#[should_panic(expected = "shared Receives")]
fn no_size_is_announced_that_shared_receives_do_not_have() {
    let mut config = config(Role::Server);
    config.receives = Receives::Shared { size: 2048 };
    Lone::new(&config);
}

#[test]
fn nothing_is_sent_once_a_registration_was_refused() {
    in_each_version(|versions| {
        for seed in 0..16 {
            let mut setup = Setup::speaking(versions);
            setup.seed = seed;
            setup.ends.left.faults.refuse_registration = NonZeroU64::new(2);
            let mut pair = Pair::with(setup);
            pair.drive();
            pair.call(request(1, call(1, 4, &[]), bound(100, &[9000, 9000])));
            let sent = |pair: &Pair| pair.client.connection.counters().calls_sent;
            let before = sent(&pair);
            for _ in 0..10 {
                pair.client.turn();
            }
            match pair.client.connection.violation() {
                Some(violation) => {
                    assert_eq!((violation, before), (Violation::NotRegistered, 0));
                    assert_eq!(sent(&pair), 0, "seed {seed}");
                }
                None => assert_eq!(sent(&pair), 1, "seed {seed}"),
            }
        }
    });
}

#[test]
fn cancelled_call_that_has_not_gone_out_is_over_with_all_it_had() {
    in_each_version(|versions| {
        let mut pair = with_one_region(versions);
        pair.call(request(1, call(1, 4, &[]), bound(100, &[9000])));
        let connection = &pair.client.connection;
        assert_eq!((connection.calls_out(), connection.room()), (1, 7));
        assert!(pair.client.cancel(CallToken(1)));
        pair.drive();
        let connection = &pair.client.connection;
        assert_eq!((connection.calls_out(), connection.room()), (0, 8));
        assert_eq!(connection.exposed(), 0);
        assert!(pair.calls.is_empty(), "the server has heard of it");
        pair.check_idle();
    });
}
