//! Every shape of call and reply between two connections.

use super::pair::{End, Pair, Setup};
use super::*;
use crate::Counters;
use oncrpc::xdr;
use oncrpc::{Reply, TransportError};
use smallvec::SmallVec;
use std::time::Duration;
use verbs::{QueuePair, WorkRequest};

/// Sends a call with these items and lets it be answered with a reply of these, as large as bound.
fn exchange(
    pair: &mut Pair,
    call_sizes: (usize, &[usize]),
    reply_sizes: (usize, &[usize]),
) -> Result<Payload, TransportError> {
    exchange_as(pair, call_sizes, reply_sizes, |request| request)
}

/// The same with a request that is made different.
fn exchange_as(
    pair: &mut Pair,
    call_sizes: (usize, &[usize]),
    reply_sizes: (usize, &[usize]),
    make: impl FnOnce(CallRequest) -> CallRequest,
) -> Result<Payload, TransportError> {
    let (fixed, items) = call_sizes;
    let sent = stream(&call(5, fixed, items));
    // XID, direction and length; a length and a trailer for each item.
    let head = 12 + xdr::padded(reply_sizes.0) + 8 * reply_sizes.1.len();
    pair.call(make(request(
        5,
        call(5, fixed, items),
        bound(head, reply_sizes.1),
    )));
    let (id, received) = pair.arrived();
    assert_eq!(stream(&received), sent, "the call arrives whole");
    let answer = reply(5, reply_sizes.0, reply_sizes.1);
    pair.answer(id, Reply::Message(answer));
    pair.ended()
}

struct Shape {
    call: (usize, &'static [usize]),
    reply: (usize, &'static [usize]),
    /// Chunks offered: read, write, reply.
    offered: (u64, u64, u64),
    /// Chunks used: pulled, filled, filled.
    used: (u64, u64, u64),
}

const SHAPES: &[Shape] = &[
    Shape {
        call: (40, &[]),
        reply: (40, &[]),
        offered: (0, 0, 0),
        used: (0, 0, 0),
    },
    // Items that fit go inline.
    Shape {
        call: (40, &[3000]),
        reply: (40, &[3000]),
        offered: (0, 0, 0),
        used: (0, 0, 0),
    },
    Shape {
        call: (40, &[100_001]),
        reply: (40, &[]),
        offered: (1, 0, 0),
        used: (1, 0, 0),
    },
    Shape {
        call: (40, &[5001, 5002, 5003]),
        reply: (40, &[]),
        offered: (3, 0, 0),
        used: (3, 0, 0),
    },
    Shape {
        call: (40, &[]),
        reply: (40, &[100_003]),
        offered: (0, 1, 0),
        used: (0, 1, 0),
    },
    Shape {
        call: (40, &[]),
        reply: (40, &[5001, 5002]),
        offered: (0, 2, 0),
        used: (0, 2, 0),
    },
    // Long call, long reply.
    Shape {
        call: (10_001, &[]),
        reply: (40, &[]),
        offered: (1, 0, 0),
        used: (1, 0, 0),
    },
    Shape {
        call: (5000, &[5001]),
        reply: (40, &[]),
        offered: (1, 0, 0),
        used: (1, 0, 0),
    },
    Shape {
        call: (40, &[]),
        reply: (10_001, &[]),
        offered: (0, 0, 1),
        used: (0, 0, 1),
    },
    // A result of a long reply is in the Reply chunk.
    Shape {
        call: (40, &[]),
        reply: (5000, &[5001]),
        offered: (0, 0, 1),
        used: (0, 0, 1),
    },
    Shape {
        call: (10, &[70_001]),
        reply: (5000, &[70_003]),
        offered: (1, 0, 1),
        used: (1, 0, 1),
    },
];

fn offered(counters: &Counters) -> (u64, u64, u64) {
    (
        counters.read_chunks_offered,
        counters.write_chunks_offered,
        counters.reply_chunks_offered,
    )
}

fn used(counters: &Counters) -> (u64, u64, u64) {
    (
        counters.read_chunks_pulled,
        counters.write_chunks_filled,
        counters.reply_chunks_filled,
    )
}

fn check_shapes(setup: impl Fn() -> Setup) {
    for shape in SHAPES {
        let mut pair = Pair::with(setup());
        let answer = exchange(&mut pair, shape.call, shape.reply).expect("answered");
        check_reply(&answer, 5, shape.reply.0, shape.reply.1);
        let counters = pair.client.connection.counters();
        assert_eq!(offered(counters), shape.offered, "{:?}", shape.call);
        assert_eq!(used(pair.server.connection.counters()), shape.used);
        pair.check_idle();
    }
}

#[test]
fn every_shape_arrives_whole_and_leaves_nothing_behind() {
    in_each_version(|versions| {
        check_shapes(|| Setup::speaking(versions));
    });
}

#[test]
fn results_of_a_long_reply_may_have_chunks_of_their_own() {
    in_each_version(|versions| {
        for (call, reads) in [((40, &[][..]), 0), ((10, &[70_001][..]), 1)] {
            let mut pair = Pair::with(Setup::speaking(versions));
            let beside = |request: CallRequest| request.with_write_chunks_beside_reply_chunk();
            let of_reply = (5000, &[70_003][..]);
            let answer = exchange_as(&mut pair, call, of_reply, beside).expect("answered");
            check_reply(&answer, 5, 5000, &[70_003]);
            let counters = pair.client.connection.counters();
            assert_eq!(offered(counters), (reads, 1, 1));
            assert_eq!(used(pair.server.connection.counters()), (reads, 1, 1));
            pair.check_idle();
        }
    });
}

#[test]
fn items_of_a_long_call_may_have_chunks_of_their_own() {
    in_each_version(|versions| {
        let pair = |max_segment| {
            let mut setup = Setup::speaking(versions);
            setup.client.max_segment = max_segment;
            Pair::with(setup)
        };
        for max_segment in [0, 4001] {
            let mut pair = pair(max_segment);
            let items = &[5001, 3, 70_002];
            let beside = |request: CallRequest| {
                let request = request.with_read_chunks_beside_position_zero();
                request.with_write_chunks_beside_reply_chunk()
            };
            let (of_call, of_reply) = ((6000, &items[..]), (5000, &[9001][..]));
            let answer = exchange_as(&mut pair, of_call, of_reply, beside).expect("answered");
            check_reply(&answer, 5, 5000, &[9001]);
            let counters = pair.client.connection.counters();
            assert_eq!(offered(counters), (3, 1, 1));
            assert_eq!(used(pair.server.connection.counters()), (3, 1, 1));
            pair.check_idle();
        }
    });
}

#[test]
fn call_that_went_as_a_whole_goes_in_chunks_over_a_connection_with_room_for_the_rest() {
    let mut setup = Setup::default();
    setup.client.own.send = InlineThreshold::MIN;
    let mut pair = Pair::with(setup);
    let sent = stream(&call(5, 2000, &[50_001]));
    pair.call(request(5, call(5, 2000, &[50_001]), bound(100, &[])));
    let _ = pair.arrived();
    let bytes = pair.client.connection.counters().read_bytes_offered;
    assert_eq!(bytes, sent.len() as u64);
    let mut next = Pair::new();
    for unfinished in pair.client.connection.into_unfinished() {
        let Unfinished::Again(request) = unfinished else {
            panic!("it has no reply");
        };
        next.call(request);
    }
    let (id, received) = next.arrived();
    assert_eq!(stream(&received), sent);
    let bytes = next.client.connection.counters().read_bytes_offered;
    assert_eq!(bytes, 50_001);
    next.answer(id, Reply::Message(reply(5, 4, &[])));
    check_reply(&next.ended().expect("answered"), 5, 4, &[]);
    next.check_idle();
}

/// Posts what waits at one end, and says how many bytes of its Sends go by reference.
fn post_all<Q: QueuePair>(end: &mut End<Q>) -> usize {
    let mut referred = 0;
    while let Some(work) = end.connection.poll_post() {
        if let WorkRequest::Send { rest, .. } = &work {
            referred += buffer::gather_len(rest);
        }
        end.qp.post(work).expect("there is room");
    }
    referred
}

#[test]
fn inline_data_at_the_end_of_a_message_is_not_copied() {
    in_each_version(|versions| {
        let message = |direction| {
            let mut w = Writer::new(Buffer::with_capacity(64));
            w.u32(5);
            w.u32(direction);
            w.item(Gather::from_elem(bytes(3001), 1));
            w.finish()
        };
        let mut pair = Pair::speaking(versions);
        pair.call(request(5, message(0), bound(100, &[3001])));
        assert_eq!(post_all(&mut pair.client), 3004);
        let (id, received) = pair.arrived();
        assert_eq!(stream(&received), stream(&message(0)));
        pair.server.connection.reply(id, Reply::Message(message(1)));
        assert_eq!(post_all(&mut pair.server), 3004);
        let received = pair.ended().expect("the reply arrives");
        assert_eq!(stream(&received), stream(&message(1)));
        assert_eq!(offered(pair.client.connection.counters()), (0, 0, 0));
        pair.check_idle();
    });
}

#[test]
fn inline_data_with_something_behind_it_is_copied() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        pair.call(request(5, call(5, 40, &[3000]), bound(100, &[3000])));
        assert_eq!(post_all(&mut pair.client), 0);
        let (id, _) = pair.arrived();
        let answer = reply(5, 40, &[3000]);
        pair.server.connection.reply(id, Reply::Message(answer));
        assert_eq!(post_all(&mut pair.server), 0);
        let received = pair.ended().expect("the reply arrives");
        check_reply(&received, 5, 40, &[3000]);
    });
}

#[test]
fn every_shape_works_in_odd_segments() {
    in_each_version(|versions| {
        check_shapes(|| {
            let mut setup = Setup::speaking(versions);
            setup.client.max_segment = 4001;
            setup
        });
    });
}

#[test]
fn every_shape_works_with_one_read_at_a_time_and_refused_posts() {
    in_each_version(|versions| {
        check_shapes(|| {
            let mut setup = Setup::speaking(versions);
            for end in [&mut setup.ends.left, &mut setup.ends.right] {
                end.limits.outstanding_reads = 1;
                end.limits.sends = 2;
                end.faults.refuse_post = std::num::NonZeroU64::new(2);
            }
            setup
        });
    });
}

#[test]
fn every_shape_works_without_remote_invalidation() {
    in_each_version(|versions| {
        check_shapes(|| {
            let mut setup = Setup::speaking(versions);
            setup.client.own.remote_invalidation = false;
            setup
        });
    });
}

#[test]
fn one_handle_goes_with_the_reply_only_if_both_ends_set_r() {
    let check = |client: bool, server: bool, remote| {
        let mut setup = Setup::default();
        setup.client.own.remote_invalidation = client;
        setup.server.own.remote_invalidation = server;
        let mut pair = Pair::with(setup);
        let beside = |request: CallRequest| request.with_write_chunks_beside_reply_chunk();
        let items = &[50_000][..];
        exchange_as(&mut pair, (40, items), (5000, items), beside).expect("answered");
        let counters = pair.client.connection.counters();
        let invalidated = (counters.remote_invalidations, counters.local_invalidations);
        assert_eq!(invalidated, (remote, 3 - remote), "{client} {server}");
        pair.check_idle();
    };
    check(true, true, 1);
    check(true, false, 0);
    check(false, true, 0);
    check(false, false, 0);
}

#[test]
fn without_private_data_both_ends_keep_to_1024() {
    let mut pair = Pair::with(Setup {
        private_data: false,
        ..Setup::default()
    });
    assert_eq!(pair.client.connection.thresholds().send.bytes(), 1024);
    let answer = exchange(&mut pair, (2000, &[]), (2000, &[])).expect("answered");
    check_reply(&answer, 5, 2000, &[]);
    let counters = pair.client.connection.counters();
    assert_eq!(offered(counters), (1, 0, 1));
    // Both have R set, and neither knows of the other.
    let invalidated = (counters.remote_invalidations, counters.local_invalidations);
    assert_eq!(invalidated, (0, 2));
}

#[test]
fn unused_chunks_come_back_empty() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        pair.call(request(5, call(5, 40, &[]), bound(5000, &[50_000])));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(5, 40, &[])));
        let answer = pair.ended().expect("answered");
        check_reply(&answer, 5, 40, &[]);
        assert_eq!(used(pair.server.connection.counters()), (0, 0, 0));
        pair.check_idle();
    });
}

#[test]
fn short_result_fills_a_part_of_its_chunk() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        pair.call(request(5, call(5, 40, &[]), bound(128, &[50_000])));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(5, 40, &[3])));
        let answer = pair.ended().expect("answered");
        check_reply(&answer, 5, 40, &[3]);
        assert_eq!(pair.client.connection.counters().write_bytes_received, 3);
    });
}

/// Replies that outgrow what was offered for them.
#[test]
fn reply_without_room_is_err_chunk_and_the_connection_goes_on() {
    in_each_version(|versions| {
        let check = |fixed, results: &[usize], answer: Payload| {
            let mut pair = Pair::speaking(versions);
            pair.call(request(5, call(5, 40, &[]), bound(fixed, results)));
            let (id, _) = pair.arrived();
            pair.answer(id, Reply::Message(answer));
            assert!(matches!(pair.ended(), Err(TransportError::Refused(_))));
            pair.check_idle();
            assert_eq!(pair.server.connection.counters().chunk_errors_sent, 1);
            exchange(&mut pair, (40, &[]), (40, &[])).expect("the connection goes on");
        };
        check(100, &[], reply(5, 5000, &[]));
        check(5000, &[], reply(5, 6000, &[]));
        check(100, &[5000], reply(5, 40, &[5001]));
        check(100, &[5000], reply(5, 5000, &[10]));
    });
}

#[test]
fn ineligible_item_is_err_chunk() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        pair.call(request(5, call(5, 40, &[5000]), bound(100, &[])));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Ineligible);
        assert!(matches!(pair.ended(), Err(TransportError::Refused(_))));
        pair.check_idle();
    });
}

#[test]
fn call_beyond_what_can_be_carried_fails_before_it_is_sent() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        pair.call(request(5, call(5, 2 << 20, &[]), bound(100, &[])));
        assert!(matches!(pair.ended(), Err(TransportError::TooLarge { .. })));
        pair.check_idle();
    });
}

#[test]
fn one_call_goes_before_the_first_reply_and_then_as_many_as_granted() {
    let mut pair = Pair::new();
    for xid in 1..=20 {
        pair.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
    }
    pair.drive();
    // RFC 8166 §3.3.3.
    assert_eq!(pair.calls.len(), 1);
    let (id, _) = pair.calls.remove(0);
    pair.answer(id, Reply::Message(reply(1, 40, &[])));
    assert_eq!(pair.calls.len(), 8);
    assert_eq!(pair.client.connection.credits(), 8);
    for xid in 2..=20 {
        let (id, _) = pair.calls.remove(0);
        pair.answer(id, Reply::Message(reply(xid, 40, &[])));
    }
    assert_eq!(pair.replies.len(), 20);
    pair.check_idle();
}

#[test]
fn client_posts_receives_for_the_calls_it_sends() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        let idle = pair.client.qp.inner().outstanding().receives;
        exchange(&mut pair, (40, &[]), (40, &[])).expect("answered");
        assert_eq!(pair.client.qp.inner().outstanding().receives, idle);
        for xid in 1..=8 {
            pair.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
        }
        pair.drive();
        assert_eq!(pair.client.qp.inner().outstanding().receives, idle + 8);
        while let Some((id, received)) = pair.calls.pop() {
            let xid = xdr::Reader::from(&received).u32().expect("an XID");
            pair.answer(id, Reply::Message(reply(xid, 4, &[])));
        }
        assert_eq!(pair.client.qp.inner().outstanding().receives, idle);
        pair.check_idle();
    });
}

#[test]
fn server_grants_no_more_than_it_has() {
    in_each_version(|versions| {
        let mut setup = Setup::speaking(versions);
        setup.server.credits = 2;
        let mut pair = Pair::with(setup);
        exchange(&mut pair, (40, &[]), (40, &[])).expect("answered");
        assert_eq!(pair.client.connection.credits(), 2);
    });
}

#[test]
fn replies_may_come_in_any_order() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        exchange(&mut pair, (40, &[]), (40, &[])).expect("answered");
        for xid in 1..=8 {
            pair.call(request(xid, call(xid, 40, &[]), bound(100, &[50_000])));
        }
        pair.drive();
        while let Some((id, received)) = pair.calls.pop() {
            let xid = xdr::Reader::from(&received).u32().expect("an XID");
            pair.answer(id, Reply::Message(reply(xid, 4, &[xid as usize])));
        }
        let order: SmallVec<[u64; 8]> = pair.replies.iter().map(|(token, _)| token.0).collect();
        assert_eq!(order.as_slice(), [8, 7, 6, 5, 4, 3, 2, 1]);
        for (token, answer) in pair.replies.drain(..) {
            let answer = answer.expect("answered");
            check_reply(&answer, token.0 as u32, 4, &[token.0 as usize]);
        }
        pair.check_idle();
    });
}

/// A pair whose client has one credit, and so makes one call at a time.
fn with_one_credit(versions: Versions) -> Pair {
    let mut setup = Setup::speaking(versions);
    setup.client.credits = 1;
    Pair::with(setup)
}

#[test]
fn cancelled_call_keeps_its_regions_until_its_reply() {
    in_each_version(|versions| {
        let mut pair = with_one_credit(versions);
        pair.call(request(5, call(5, 40, &[]), bound(100, &[50_000])));
        let (id, _) = pair.arrived();
        pair.client.cancel(CallToken(5));
        pair.drive();
        assert_eq!(pair.client.connection.exposed(), 1);
        assert!(!pair.client.connection.can_call(), "it keeps its credit");
        pair.answer(id, Reply::Message(reply(5, 40, &[50_000])));
        assert!(pair.replies.is_empty());
        assert!(pair.client.connection.can_call());
        pair.check_idle();
    });
}

#[test]
fn age_of_a_call_counts_from_its_sending_and_does_not_end_when_it_is_cancelled() {
    in_each_version(|versions| {
        let mut pair = with_one_credit(versions);
        let first = pair.now;
        pair.call(request(5, call(5, 40, &[]), bound(100, &[])));
        // There is one credit, so this one waits.
        pair.call(request(6, call(6, 40, &[]), bound(100, &[])));
        let (id, _) = pair.arrived();
        pair.client.cancel(CallToken(5));
        assert_eq!(pair.client.connection.oldest_call(), Some(first));
        pair.now = first + Duration::from_secs(5);
        pair.answer(id, Reply::Message(reply(5, 40, &[])));
        assert_eq!(pair.client.connection.oldest_call(), Some(pair.now));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(6, 40, &[])));
        assert_eq!(pair.client.connection.oldest_call(), None);
        pair.check_idle();
    });
}

#[test]
fn call_that_is_dropped_by_the_service_leaves_no_trace_at_the_server() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        pair.call(request(5, call(5, 40, &[]), bound(100, &[])));
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Nothing);
        assert_eq!(pair.server.connection.calls_in(), 0);
        assert!(pair.replies.is_empty());
    });
}

#[test]
fn calls_wait_for_memory_and_then_go_on_in_order() {
    in_each_version(|versions| {
        let mut setup = Setup::speaking(versions);
        setup.budget = 150_000;
        let mut pair = Pair::with(setup);
        exchange(&mut pair, (40, &[]), (40, &[])).expect("answered");
        for xid in 1..=3 {
            pair.call(request(xid, call(xid, 40, &[100_000]), bound(100, &[])));
        }
        // A call without chunks does not wait for them.
        pair.call(request(4, call(4, 40, &[]), bound(100, &[])));
        pair.drive();
        for expected in [&[1, 4][..], &[4, 2], &[4, 3]] {
            let xid = |(_, call): &(_, Payload)| xdr::Reader::from(call).u32().expect("an XID");
            let there: Vec<u32> = pair.calls.iter().map(xid).collect();
            let there: Vec<u32> = there
                .into_iter()
                .filter(|xid| expected.contains(xid))
                .collect();
            assert_eq!(there.len(), expected.len(), "{expected:?}");
            let first = pair.calls.iter().position(|c| xid(c) != 4).expect("a call");
            let xid = xid(&pair.calls[first]);
            let (id, _) = pair.calls.remove(first);
            pair.answer(id, Reply::Message(reply(xid, 4, &[])));
        }
        assert_eq!(pair.server.connection.counters().memory_waits, 2);
    });
}

#[test]
fn memory_of_a_call_is_accounted_for_until_its_service_is_done_with_it() {
    in_each_version(|versions| {
        let mut setup = Setup::speaking(versions);
        setup.budget = 1 << 20;
        let mut pair = Pair::with(setup);
        let budget = pair.server.owner.budget.clone();
        pair.call(request(5, call(5, 40, &[50_000]), bound(100, &[])));
        let (id, message) = pair.arrived();
        drop(pair);
        assert_eq!(budget.free(), (1 << 20) - 50_000);
        drop((id, message));
        assert_eq!(budget.free(), 1 << 20);
    });
}

#[test]
fn chunked_call_on_a_connection_that_is_over_is_nobodys_fault() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        pair.client.qp.close();
        while pair.client.qp.closed().is_none() {
            pair.client.qp.progress();
            pair.server.qp.progress();
        }
        pair.call(request(5, call(5, 40, &[50_000]), bound(100, &[])));
        let waiting = pair.client.connection.calls_waiting();
        assert_eq!(waiting, 1, "it waits for the next connection");
        assert_eq!(pair.client.connection.violation(), None);
        // It left nothing behind: it can be tried again, and did not cost this connection.
        pair.turn();
        let mut unfinished = pair.client.connection.into_unfinished();
        let Some(Unfinished::Again(again)) = unfinished.pop() else {
            panic!("it was not sent");
        };
        assert_eq!((again.losses, unfinished.len()), (0, 0));
    });
}

#[test]
fn unfinished_calls_come_back_from_a_lost_connection_and_go_over_the_next() {
    let mut setup = Setup::default();
    setup.client.own.send = InlineThreshold::MIN;
    let mut pair = Pair::with(setup);
    let sent = stream(&call(5, 2000, &[10]));
    pair.call(request(5, call(5, 2000, &[10]), bound(100, &[])));
    let _ = pair.arrived();
    let unfinished = pair.client.connection.into_unfinished();
    assert_eq!(unfinished.len(), 1);
    // The next connection has other sizes, so that the call goes another way.
    let mut next = Pair::new();
    for unfinished in unfinished {
        let Unfinished::Again(request) = unfinished else {
            panic!("it has no reply");
        };
        assert_eq!(request.losses, 1);
        next.call(request);
    }
    let (id, received) = next.arrived();
    assert_eq!(stream(&received), sent);
    assert_eq!(next.client.connection.counters().read_chunks_offered, 0);
    next.answer(id, Reply::Message(reply(5, 4, &[])));
    check_reply(&next.ended().expect("answered"), 5, 4, &[]);
}

#[test]
fn connection_that_is_given_up_for_its_silence_is_no_loss_of_its_calls() {
    in_each_version(|versions| {
        for (silent, losses) in [(true, 0), (false, 1)] {
            let mut pair = Pair::speaking(versions);
            pair.call(request(5, call(5, 40, &[10]), bound(100, &[])));
            pair.client.turn();
            let connection = pair.client.connection;
            let unfinished = match silent {
                true => connection.into_unanswered(),
                false => connection.into_unfinished(),
            };
            let [Unfinished::Again(request)] = &unfinished[..] else {
                panic!("it has no reply");
            };
            assert_eq!((request.losses, request.losses_alone), (losses, losses));
        }
    });
}
