//! All memory of a call under one handle (reminv §2.4).

use super::lone::{self, Lone, inline, lists, unused};
use super::pair::{Pair, Setup};
use super::*;
use crate::v2::characteristics::{Characteristic, InvalidationDesigns};
use crate::v2::header::{Body, Header, WordLayout};
use crate::wire::header::Lists;
use crate::wire::header::tests::words;
use crate::{Design, Designs, PersistentArguments, Registration, Violation};
use oncrpc::Reply;
use std::collections::BTreeSet;
use verbs::{Completion, Handle, Parts, QueuePair, Segment, WorkRequest};

const ARGUMENTS: [usize; 2] = [20_000, 9000];
const RESULTS: [usize; 2] = [30_000, 8000];

/// Two ends that speak version two, and agree on this design or on none.
fn setup(design: Option<Design>) -> Setup {
    let mut setup = Setup::speaking(Versions::Two);
    setup.client.one_region = true;
    for end in [&mut setup.client, &mut setup.server] {
        end.own.remote_invalidation = design == Some(Design::PerConnection);
        end.characteristics.remote_invalidation_by_version = design == Some(Design::PerVersion);
        end.characteristics.designs = design.into_iter().collect();
    }
    setup
}

/// A Long call with a Read chunk for each argument too, and with a Write chunk for each result beside a
/// Reply chunk: six chunks.
fn large(xid: u32) -> CallRequest {
    let message = call(xid, 6000, &ARGUMENTS);
    request(xid, message, bound(6000, &RESULTS))
        .with_read_chunks_beside_position_zero()
        .with_write_chunks_beside_reply_chunk()
}

/// Sends that call and answers it.
fn exchange(pair: &mut Pair, xid: u32) {
    pair.call(large(xid));
    let (id, message) = pair.arrived();
    assert_eq!(stream(&message), stream(&call(xid, 6000, &ARGUMENTS)));
    pair.answer(id, Reply::Message(reply(xid, 5000, &RESULTS)));
    check_reply(&pair.ended().expect("a reply"), xid, 5000, &RESULTS);
}

/// Regions that the client registered, and handles that its peer and it itself invalidated.
fn counted(pair: &Pair) -> [u64; 3] {
    let counters = pair.client.connection.counters();
    [
        counters.registrations,
        counters.remote_invalidations,
        counters.local_invalidations,
    ]
}

fn segments(lists: &Lists) -> Vec<Segment> {
    let reads = lists.reads.iter().flat_map(|chunk| &chunk.segments);
    let writes = lists.writes.iter().chain(&lists.reply);
    let writes = writes.flat_map(|chunk| &chunk.segments);
    reads.chain(writes).copied().collect()
}

fn handles(lists: &Lists) -> BTreeSet<Handle> {
    segments(lists).iter().map(|s| s.handle).collect()
}

#[test]
fn one_invalidation_by_the_peer_ends_all_memory_of_a_call_under_each_design() {
    for design in Design::ALL {
        let mut pair = Pair::with(setup(Some(design)));
        for xid in 0..5 {
            exchange(&mut pair, xid);
        }
        pair.check_idle();
        assert_eq!(counted(&pair), [5, 5, 0], "{design}");
    }
}

#[test]
fn one_invalidation_of_our_own_ends_all_memory_of_a_call_without_a_design() {
    let mut pair = Pair::with(setup(None));
    for xid in 0..5 {
        exchange(&mut pair, xid);
    }
    pair.check_idle();
    assert_eq!(counted(&pair), [5, 0, 5]);
}

#[test]
fn segments_have_one_handle_and_addresses_of_their_own() {
    for max_segment in [0, 3000] {
        let config = Config {
            one_region: true,
            max_segment,
            ..config(Role::Client)
        };
        let mut lone = Lone::new(&config);
        lone.call(large(5));
        let (header, _) = lone.receive().expect("the call");
        let offered = lists(&header);
        assert_eq!(handles(&offered).len(), 1);
        let mut all = segments(&offered);
        assert!(all.len() >= 6);
        all.sort_by_key(|segment| segment.offset);
        let first = all[0].offset;
        assert!(
            all.iter().any(|s| s.offset == first + Parts::offset_of(5)),
            "six parts: {all:?}"
        );
        for two in all.windows(2) {
            let end = two[0].offset + u64::from(two[0].length);
            assert!(end <= two[1].offset, "{two:?}");
        }
    }
}

#[test]
fn chunks_have_handles_of_their_own_where_the_provider_has_too_few_parts() {
    for (parts, regions) in [(0, 6), (5, 6), (6, 1)] {
        let config = Config {
            one_region: true,
            ..config(Role::Client)
        };
        let mut lone = Lone::with(&config, |limits| limits.parts = parts);
        lone.call(large(5));
        let (header, _) = lone.receive().expect("the call");
        assert_eq!(handles(&lists(&header)).len(), regions, "{parts} parts");
        assert_eq!(lone.end.connection.exposed(), regions);
        lone.send(&inline(&unused(&lists(&header))), None);
        check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
        assert_eq!(lone.end.connection.exposed(), 0);
    }
}

#[test]
fn single_chunk_is_no_region_in_parts() {
    let mut lone = Lone::new(&Config {
        one_region: true,
        ..config(Role::Client)
    });
    lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
    let (header, _) = lone.receive().expect("the call");
    let handle = lists(&header).writes[0].segments[0].handle;
    lone.send(&inline(&unused(&lists(&header))), Some(handle));
    check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
    assert_eq!(lone.end.connection.counters().registrations, 1);
}

#[test]
fn provider_with_one_region_carries_calls_with_many_chunks() {
    let mut setup = setup(Some(Design::PerConnection));
    setup.ends.left.limits.regions = 1;
    let mut pair = Pair::with(setup);
    pair.drive();
    // The second waits for the region of the first.
    exchange(&mut pair, 1);
    pair.call(large(2));
    pair.call(large(3));
    let (id, _) = pair.arrived();
    pair.answer(id, Reply::Message(reply(2, 5000, &RESULTS)));
    check_reply(&pair.ended().expect("a reply"), 2, 5000, &RESULTS);
    let (id, _) = pair.arrived();
    pair.answer(id, Reply::Message(reply(3, 5000, &RESULTS)));
    check_reply(&pair.ended().expect("a reply"), 3, 5000, &RESULTS);
    assert_eq!(counted(&pair), [3, 3, 0]);
}

#[test]
fn handle_is_named_once_for_all_chunks() {
    for (design, words) in [
        (Design::PerCall, WordLayout::One),
        (Design::PerCallSeveral, WordLayout::Several),
    ] {
        let mut pair = Pair::with(setup(Some(design)));
        pair.drive();
        pair.client.call(large(5)).expect("it can be carried");
        let sent = std::iter::from_fn(|| pair.client.connection.poll_post());
        let message = sent.into_iter().find_map(|work| match work {
            WorkRequest::Send { buffer, .. } => Some(buffer),
            _ => None,
        });
        let message = message.expect("the call is sent");
        let (header, _) = Header::parse(&message, words).expect("a header");
        let Body::NoMsg(chunks) = header.body else {
            panic!("{header:?}");
        };
        let all: Vec<_> = handles(&chunks.lists).into_iter().collect();
        assert_eq!(all.len(), 1);
        assert_eq!(chunks.invalidate.handles(), all, "{design}");
    }
}

#[test]
fn persistent_arguments_keep_handles_of_their_own() {
    let mut setup = setup(Some(Design::PerCall));
    setup.client.registrations = Registrations::OF_CALLS.with(Registration::Persistent);
    setup.client.persistent = Some(PersistentArguments {
        regions: 2,
        bytes: ARGUMENTS[0],
    });
    let mut pair = Pair::with(setup);
    for xid in 0..3 {
        exchange(&mut pair, xid);
    }
    // Of three arguments two are in persistent memory.
    assert_eq!(counted(&pair), [3, 3, 0]);
    assert_eq!(pair.client.qp.inner().outstanding().regions, 2);
}

#[test]
fn call_waits_for_room_for_its_persistent_arguments_beside_its_one_region() {
    let mut setup = setup(Some(Design::PerCall));
    setup.client.registrations = Registrations::OF_CALLS.with(Registration::Persistent);
    setup.client.persistent = Some(PersistentArguments {
        regions: 1,
        bytes: 5000,
    });
    setup.ends.left.limits.regions = 3;
    let mut pair = Pair::with(setup);
    pair.drive();
    // The second needs two regions at first, and one is left.
    let in_way = [1, 2].map(|xid| {
        pair.call(large(xid));
        pair.arrived().0
    });
    pair.call(request(3, call(3, 40, &[5000]), bound(6000, &[])));
    for (xid, id) in (1..).zip(in_way) {
        pair.answer(id, Reply::Message(reply(xid, 5000, &RESULTS)));
        check_reply(&pair.ended().expect("a reply"), xid, 5000, &RESULTS);
    }
    let (id, _) = pair.arrived();
    pair.answer(id, Reply::Message(reply(3, 5000, &[])));
    check_reply(&pair.ended().expect("a reply"), 3, 5000, &[]);
}

/// Two calls of a client in one region each, with which the peer does as it likes.
fn two_calls() -> (Lone, [Lists; 2]) {
    let mut lone = Lone::new(&Config {
        one_region: true,
        ..config(Role::Client)
    });
    lone.call(request(4, call(4, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    let answer = stream(&reply(4, 40, &[]));
    lone.send_stream(4, 8, &answer);
    lone.ended().expect("answered");
    lone.call(large(5));
    lone.call(large(6));
    let mut offered = || lists(&lone.receive().expect("a call").0);
    let offered = [offered(), offered()];
    (lone, offered)
}

fn handle_of(lists: &Lists) -> Handle {
    segments(lists)[0].handle
}

#[test]
fn region_of_another_call_must_not_be_invalidated() {
    let (mut lone, [of_call, of_other]) = two_calls();
    let foreign = handle_of(&of_other);
    lone.send(&inline(&unused(&of_call)), Some(foreign));
    let violation = lone.end.connection.violation();
    assert_eq!(violation, Some(Violation::ForeignHandle(foreign)));
    assert!(lone.events.is_empty());
}

#[test]
fn region_that_the_peer_did_not_invalidate_is_invalidated_before_the_reply_is_handed_up() {
    let (mut lone, [of_call, _]) = two_calls();
    lone::arrive(&mut lone.end.connection, inline(&unused(&of_call)));
    assert!(lone.end.connection.poll_event().is_none());
    assert_eq!(lone.end.connection.exposed(), 2);
    lone.drive();
    check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
    assert_eq!(lone.end.connection.exposed(), 1);
    assert_eq!(lone.end.connection.counters().local_invalidations, 1);
}

#[test]
fn region_with_results_is_not_spared_for_the_reply_to_another_call() {
    // Nothing of the large call is read any more, but its results are still to be written.
    let mut pair = Pair::with(setup(Some(Design::InterCall)));
    exchange(&mut pair, 1);
    let before = counted(&pair);
    pair.call(large(2));
    let (large, _) = pair.arrived();
    pair.call(request(3, call(3, 4, &[]), bound(40, &[])));
    let (small, _) = pair.arrived();
    pair.answer(small, Reply::Message(reply(3, 4, &[])));
    check_reply(&pair.ended().expect("a reply"), 3, 4, &[]);
    assert_eq!(counted(&pair), [before[0] + 1, before[1], before[2]]);
    pair.answer(large, Reply::Message(reply(2, 5000, &RESULTS)));
    check_reply(&pair.ended().expect("a reply"), 2, 5000, &RESULTS);
    assert_eq!(counted(&pair), [before[0] + 1, before[1] + 1, before[2]]);
}

#[test]
fn inter_call_peer_may_take_a_region_of_arguments_and_none_with_room_for_results() {
    for (results, is_foreign) in [(&[][..], false), (&RESULTS[..], true)] {
        let mut config = config(Role::Client);
        config.one_region = true;
        config.versions = Versions::Two;
        config.characteristics.designs = vec![Design::InterCall];
        let mut lone = Lone::new(&config);
        lone.drive();
        let mut completions = std::iter::from_fn(|| lone.peer.poll_cq());
        let offer = completions.find_map(|completion| match completion {
            Completion::Receive { buffer, .. } => buffer.first_chunk().copied(),
            _ => None,
        });
        let xid = u32::from_be_bytes(offer.expect("the offer"));
        let id = InvalidationDesigns::ID.0;
        let bits = Designs::NONE.with(Design::InterCall).bits();
        let answer = [xid, 2, 8, 5, 1, 1, 24, 1, id, 4, bits, 1, 1];
        lone.send(&words(&answer), None);
        lone.call(request(2, call(2, 40, &ARGUMENTS), bound(40, results)));
        let (header, _) = lone.receive().expect("the call");
        let offered = lists(&header);
        assert_eq!(handles(&offered).len(), 1);
        lone.call(request(3, call(3, 40, &[]), bound(100, &[])));
        lone.receive().expect("the call");
        let mut answer = words(&[3, 2, 8, 0, 1, 0, 0, 0]);
        answer.extend(stream(&reply(3, 40, &[])));
        let taken = handle_of(&offered);
        lone.send(&answer, Some(taken));
        let connection = &lone.end.connection;
        let foreign = is_foreign.then_some(Violation::ForeignHandle(taken));
        assert_eq!(connection.violation(), foreign);
        let spared = connection.counters().remote_invalidations_inter_call;
        assert_eq!(spared, u64::from(!is_foreign));
    }
}
