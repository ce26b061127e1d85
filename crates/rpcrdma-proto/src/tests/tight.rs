//! Connections with hardly any room: of each thing there is one, or not enough.

use super::lone::*;
use super::pair::{Pair, Setup};
use super::*;
use crate::wire::header::{Body, RdmaError};
use oncrpc::xdr;
use oncrpc::{Reply, TransportError};

/// One credit in each direction, one piece of work, one region and one Read at a time.
fn one_of_each(versions: Versions) -> Setup {
    let mut setup = Setup::speaking(versions);
    for config in [&mut setup.client, &mut setup.server] {
        config.credits = 1;
        config.backward_credits = 1;
    }
    for end in [&mut setup.ends.left, &mut setup.ends.right] {
        end.limits.sends = 1;
        end.limits.regions = 1;
        end.limits.outstanding_reads = 1;
        end.limits.inbound_reads = 1;
    }
    setup
}

#[test]
fn calls_of_both_directions_go_on_where_there_is_one_of_each_thing() {
    in_each_version(|versions| {
        let mut pair = Pair::with(one_of_each(versions));
        pair.client_is_ready();
        // In a Write chunk, a Read chunk, a Position-Zero chunk, a Reply chunk; or all in a Send.
        let shapes: [(usize, &[usize], usize, &[usize]); 5] = [
            (40, &[], 40, &[100_001]),
            (40, &[100_003], 40, &[]),
            (10_001, &[], 40, &[]),
            (40, &[], 10_001, &[]),
            (40, &[], 40, &[]),
        ];
        let size = |xid: u32| shapes[xid as usize % shapes.len()];
        for xid in 0..20 {
            let (fixed, items, reply_fixed, results) = size(xid);
            let head = 12 + xdr::padded(reply_fixed) + 8 * results.len();
            pair.call(request(xid, call(xid, fixed, items), bound(head, results)));
            pair.call_back(request(xid, call(xid, 40, &[]), bound(200, &[])));
        }
        pair.drive();
        while !(pair.calls.is_empty() && pair.back.calls.is_empty()) {
            for (id, message) in std::mem::take(&mut pair.calls) {
                let xid = xdr::Reader::from(&message).u32().expect("an XID");
                let (fixed, items, reply_fixed, results) = size(xid);
                assert_eq!(stream(&message), stream(&call(xid, fixed, items)));
                pair.answer(id, Reply::Message(reply(xid, reply_fixed, results)));
            }
            for (id, message) in std::mem::take(&mut pair.back.calls) {
                let xid = xdr::Reader::from(&message).u32().expect("an XID");
                pair.answer_back(id, Reply::Message(reply(xid, 40, &[])));
            }
        }
        assert_eq!((pair.replies.len(), pair.back.replies.len()), (20, 20));
        for (token, answer) in &pair.replies {
            let xid = token.0 as u32;
            let (_, _, fixed, results) = size(xid);
            check_reply(answer.as_ref().expect("answered"), xid, fixed, results);
        }
        for (_, answer) in &pair.back.replies {
            assert!(answer.is_ok());
        }
        pair.check_idle();
    });
}

#[test]
fn region_is_no_larger_than_the_provider_allows_whatever_memory_the_pool_has() {
    in_each_version(|versions| {
        for most in [1000, 5000, 600_000] {
            let mut setup = Setup::speaking(versions);
            setup.ends.left.limits.max_region = most;
            let mut pair = Pair::with(setup);
            // Not what the pool has memory for: the next power of two would be too large.
            let results = [most - 100];
            let request = request(5, call(5, 40, &[]), bound(60, &results)).with_reply_chunk();
            pair.call(request);
            let (id, _) = pair.arrived();
            pair.answer(id, Reply::Message(reply(5, 40, &results)));
            check_reply(&pair.ended().expect("answered"), 5, 40, &results);
            pair.check_idle();
        }
    });
}

#[test]
fn connection_without_room_for_a_chunk_carries_what_fits_a_send() {
    in_each_version(|versions| {
        let settings: [fn(&mut Setup); 4] = [
            |setup| setup.client.max_chunk = 0,
            |setup| setup.ends.left.limits.max_region = 0,
            |setup| setup.ends.left.limits.max_message = 10_000,
            |setup| setup.ends.left.limits.regions = 0,
        ];
        for set in settings {
            let mut setup = Setup::speaking(versions);
            set(&mut setup);
            let mut pair = Pair::with(setup);
            pair.call(request(5, call(5, 40, &[]), bound(60, &[100_000])));
            let ended = pair.ended();
            assert!(
                matches!(ended, Err(TransportError::TooLarge { .. })),
                "{ended:?}"
            );
            pair.call(request(6, call(6, 40, &[3000]), bound(60, &[3000])));
            let (id, _) = pair.arrived();
            pair.answer(id, Reply::Message(reply(6, 40, &[3000])));
            check_reply(&pair.ended().expect("answered"), 6, 40, &[3000]);
            pair.check_idle();
        }
    });
}

#[test]
fn reply_to_a_call_that_was_not_sent_yet_ends_it_and_leaves_nothing_exposed() {
    let mut lone = Lone::with(&config(Role::Client), |limits| limits.sends = 1);
    lone.call(request(1, call(1, 40, &[]), bound(60, &[])));
    lone.send_stream(1, 8, &stream(&reply(1, 40, &[])));
    lone.ended().expect("answered");
    // Two calls, of which the second waits for the first to be sent; the peer guesses its XID.
    for xid in [2, 3] {
        lone.call(request(xid, call(xid, 40, &[]), bound(60, &[100_000])));
    }
    arrive(&mut lone.end.connection, error(3, RdmaError::Chunk));
    lone.drive();
    assert!(matches!(lone.ended(), Err(TransportError::Refused(_))));
    let handles: Vec<_> = std::iter::from_fn(|| lone.receive())
        .filter_map(|(header, _)| match header.body {
            Body::Msg(lists) => Some((header.xid, lists.writes)),
            _ => None,
        })
        .collect();
    assert_eq!(handles.len(), 2, "what is over is not sent any more");
    assert_eq!(lone.end.connection.exposed(), 1);
    assert_eq!(lone.end.qp.outstanding().regions, 1);
    assert_eq!(lone.end.connection.violation(), None);
}

/// RFC 8166 §3.3.1: a reply without a Receive ends the connection, and a Receive that cannot be
/// posted is in the way of every Send.
#[test]
fn no_more_calls_are_made_than_there_is_room_for_receives() {
    in_each_version(|versions| {
        let mut setup = Setup::speaking(versions);
        let [client, server] = [&setup.client, &setup.server].map(Config::posted_receives);
        // Of eight calls of the client, and four of the server, there is room for three and for two.
        setup.ends.left.limits.receives = client - 5;
        setup.ends.right.limits.receives = server - 2;
        let mut pair = Pair::with(setup);
        pair.client_is_ready();
        for xid in 0..12 {
            pair.call(request(xid, call(xid, 40, &[]), bound(200, &[])));
            pair.call_back(request(xid, call(xid, 40, &[]), bound(200, &[])));
        }
        pair.drive();
        let in_flight = |end: &Connection| end.calls_out() - end.calls_waiting();
        let (mut most, mut most_back) = (0, 0);
        while !(pair.calls.is_empty() && pair.back.calls.is_empty()) {
            most = most.max(in_flight(&pair.client.connection));
            most_back = most_back.max(in_flight(&pair.server.connection));
            // The client answers last, so that the server has to wait for it with Sends of its own.
            if let Some((id, message)) = pair.calls.pop() {
                let xid = xdr::Reader::from(&message).u32().expect("an XID");
                pair.answer(id, Reply::Message(reply(xid, 40, &[])));
            } else if let Some((id, message)) = pair.back.calls.pop() {
                let xid = xdr::Reader::from(&message).u32().expect("an XID");
                pair.answer_back(id, Reply::Message(reply(xid, 40, &[])));
            }
        }
        assert_eq!((most, most_back), (3, 2));
        assert_eq!((pair.replies.len(), pair.back.replies.len()), (12, 12));
        pair.check_idle();
    });
}
