//! All handles that a call names, invalidated with its reply at once (reminv §2.4, §4.5).

use super::lone::{Lone, inline, lists, unused};
use super::pair::{Pair, Setup};
use super::*;
use crate::limits::MAX_INVALIDATE_HANDLES;
use crate::v2::characteristics::{Characteristic, InvalidationDesigns};
use crate::wire::header::Lists;
use crate::wire::header::tests::words;
use crate::{Design, Designs, Violation};
use oncrpc::Reply;
use verbs::{Completion, Handle, QueuePair};

const ARGUMENTS: [usize; 2] = [20_000, 9000];
const RESULTS: [usize; 2] = [30_000, 8000];

/// Chunks of each call: one at Position zero, one for each argument and each result, a Reply chunk.
const CHUNKS: u64 = 6;

/// Two ends that offer and take these designs.
fn setup(designs: &[Design]) -> Setup {
    let mut setup = Setup::speaking(Versions::Two);
    for end in [&mut setup.client, &mut setup.server] {
        end.own.remote_invalidation = false;
        end.characteristics.designs = designs.to_vec();
    }
    setup
}

fn large(xid: u32) -> CallRequest {
    let message = call(xid, 6000, &ARGUMENTS);
    request(xid, message, bound(6000, &RESULTS))
        .with_read_chunks_beside_position_zero()
        .with_write_chunks_beside_reply_chunk()
}

fn exchange(pair: &mut Pair, xid: u32) {
    pair.call(large(xid));
    let (id, message) = pair.arrived();
    assert_eq!(stream(&message), stream(&call(xid, 6000, &ARGUMENTS)));
    pair.answer(id, Reply::Message(reply(xid, 5000, &RESULTS)));
    check_reply(&pair.ended().expect("a reply"), xid, 5000, &RESULTS);
}

/// Handles of the client that its peer invalidated, and that it invalidated itself.
fn invalidated(pair: &Pair) -> (u64, u64) {
    let counters = pair.client.connection.counters();
    (counters.remote_invalidations, counters.local_invalidations)
}

#[test]
fn all_handles_of_a_call_go_with_its_reply() {
    let mut pair = Pair::with(setup(&[Design::PerCallAll]));
    for xid in 0..5 {
        exchange(&mut pair, xid);
    }
    pair.check_idle();
    assert_eq!(invalidated(&pair), (5 * CHUNKS, 0));
    let sent = pair.server.connection.counters().invalidations_sent;
    assert_eq!(sent, 5 * CHUNKS);
}

#[test]
fn no_more_handles_go_than_either_provider_invalidates_with_one_send() {
    for (client, server, remote) in [(4, 16, 4), (16, 3, 3), (2, 2, 2), (16, 16, CHUNKS)] {
        let mut setup = setup(&[Design::PerCallAll]);
        setup.ends.left.limits.invalidations = client;
        setup.ends.right.limits.invalidations = server;
        let mut pair = Pair::with(setup);
        exchange(&mut pair, 1);
        pair.check_idle();
        assert_eq!(invalidated(&pair), (remote, CHUNKS - remote));
    }
}

#[test]
fn end_whose_provider_invalidates_one_handle_at_a_time_neither_offers_nor_takes_it() {
    let designs = [Design::PerCallAll, Design::PerCallSeveral];
    for (client, server) in [(1, 16), (16, 1)] {
        let mut setup = setup(&designs);
        setup.ends.left.limits.invalidations = client;
        setup.ends.right.limits.invalidations = server;
        let mut pair = Pair::with(setup);
        exchange(&mut pair, 1);
        let session = pair.client.connection.session().expect("version two");
        assert_eq!(session.design(), Some(Design::PerCallSeveral));
        assert_eq!(invalidated(&pair), (1, CHUNKS - 1));
    }
}

/// A client under this design with two calls in flight, and what they offer.
fn two_calls(config: impl FnOnce(&mut Config)) -> (Lone, [Lists; 2]) {
    let mut with = super::config(Role::Client);
    with.versions = Versions::Two;
    with.characteristics.designs = vec![Design::PerCallAll];
    config(&mut with);
    let mut lone = Lone::new(&with);
    lone.drive();
    let mut completions = std::iter::from_fn(|| lone.peer.poll_cq());
    let offer = completions.find_map(|completion| match completion {
        Completion::Receive { buffer, .. } => buffer.first_chunk().copied(),
        _ => None,
    });
    let xid = u32::from_be_bytes(offer.expect("the offer"));
    let id = InvalidationDesigns::ID.0;
    let bits = Designs::NONE.with(Design::PerCallAll).bits();
    let answer = [xid, 2, 8, 5, 1, 1, 24, 1, id, 4, bits, 1, 1];
    lone.send(&words(&answer), None);
    lone.call(large(5));
    lone.call(large(6));
    let mut offered = || lists(&lone.receive().expect("a call").0);
    let offered = [offered(), offered()];
    (lone, offered)
}

fn handles(lists: &Lists) -> Vec<Handle> {
    let reads = lists.reads.iter().flat_map(|chunk| &chunk.segments);
    let writes = lists.writes.iter().chain(&lists.reply);
    let segments = reads.chain(writes.flat_map(|chunk| &chunk.segments));
    segments.map(|segment| segment.handle).collect()
}

/// A reply to the first call that has used nothing.
fn answer(offered: &Lists) -> Vec<u8> {
    // Of version one, but for the version, and for direction and an empty list in front of the lists.
    let one = inline(&unused(offered));
    let front = words(&[5, 2, 8, 0, 1, 0]);
    [&front, &one[16..]].concat()
}

#[test]
fn peer_may_invalidate_all_or_some_handles_of_the_call_and_the_others_are_ours() {
    for taken in [0, 1, 3, 6] {
        let (mut lone, [of_call, _]) = two_calls(|_| {});
        let all = handles(&of_call);
        assert_eq!(all.len() as u64, CHUNKS);
        lone.send_and_all(&answer(&of_call), all.into_iter().take(taken));
        check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
        let counters = lone.end.connection.counters();
        assert_eq!(counters.remote_invalidations, taken as u64);
        assert_eq!(counters.local_invalidations, CHUNKS - taken as u64);
        assert_eq!(lone.end.connection.exposed() as u64, CHUNKS);
        assert_eq!(lone.end.connection.violation(), None);
    }
}

#[test]
fn foreign_handle_among_several_ends_the_connection_without_a_reply() {
    for at in [0, 1, 3] {
        let (mut lone, [of_call, of_other]) = two_calls(|_| {});
        let foreign = handles(&of_other)[2];
        let mut named = handles(&of_call);
        named.truncate(3);
        named.insert(at, foreign);
        lone.send_and_all(&answer(&of_call), named);
        let violation = lone.end.connection.violation();
        assert_eq!(violation, Some(Violation::ForeignHandle(foreign)), "{at}");
        assert!(lone.events.is_empty(), "{at}");
    }
}

#[test]
fn several_handles_of_one_region_are_one() {
    let (mut lone, [of_call, _]) = two_calls(|config| config.one_region = true);
    let handle = handles(&of_call)[0];
    assert!(handles(&of_call).iter().all(|other| *other == handle));
    lone.send_and_all(&answer(&of_call), [handle]);
    check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
    assert_eq!(lone.end.connection.exposed(), 1);
    assert_eq!(lone.end.connection.counters().local_invalidations, 0);
}

#[test]
fn calls_name_no_more_handles_than_a_list_has_room_for() {
    let mut setup = setup(&[Design::PerCallAll]);
    for end in [&mut setup.ends.left, &mut setup.ends.right] {
        end.limits.invalidations = 100;
    }
    setup.client.max_chunk = 1 << 20;
    let mut pair = Pair::with(setup);
    let arguments = [4000; 12];
    let results = [5000; 8];
    let sent = request(1, call(1, 4, &arguments), bound(40, &results));
    pair.call(sent);
    let (id, _) = pair.arrived();
    let chunks = pair.client.connection.exposed() as u64;
    assert!(chunks > MAX_INVALIDATE_HANDLES as u64, "{chunks}");
    pair.answer(id, Reply::Message(reply(1, 4, &results)));
    check_reply(&pair.ended().expect("a reply"), 1, 4, &results);
    let most = MAX_INVALIDATE_HANDLES as u64;
    assert_eq!(invalidated(&pair), (most, chunks - most));
}
