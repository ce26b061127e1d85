//! A server calls its client (RFC 8167).

use super::lone::*;
use super::pair::{Pair, Setup};
use super::*;
use crate::Violation;
use crate::wire::header::{Body, Lists, RdmaError, WriteChunk, procedure};
use oncrpc::{Answer, Caller, Programs, Reply, Service, TransportError};
use smallvec::smallvec;
use verbs::QueuePair;

/// A pair whose client has said that it is ready.
fn ready(versions: Versions) -> Pair {
    ready_with(Setup::speaking(versions))
}

fn ready_with(setup: Setup) -> Pair {
    let mut pair = Pair::with(setup);
    pair.client_is_ready();
    pair
}

/// The server calls and the client answers with so many bytes.
fn exchange_back(pair: &mut Pair, xid: u32, bytes: usize) -> Result<Payload, TransportError> {
    pair.call_back(request(xid, call(xid, 40, &[]), bound(200, &[])));
    let (id, received) = pair.arrived_back();
    assert_eq!(stream(&received), stream(&call(xid, 40, &[])));
    pair.answer_back(id, Reply::Message(reply(xid, bytes, &[])));
    pair.ended_back()
}

#[test]
fn server_calls_its_client() {
    in_each_version(|versions| {
        let mut pair = ready(versions);
        let answer = exchange_back(&mut pair, 5, 40).expect("answered");
        check_reply(&answer, 5, 40, &[]);
        pair.check_idle();
        let counters = pair.server.connection.counters();
        assert_eq!((counters.calls_sent, counters.replies_received), (1, 1));
        let counters = pair.client.connection.counters();
        assert_eq!((counters.calls_received, counters.replies_sent), (1, 1));
    });
}

#[test]
fn nothing_is_sent_before_the_client_is_ready() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        assert_eq!(pair.server.connection.room(), 0);
        pair.call_back(request(5, call(5, 40, &[]), bound(200, &[])));
        assert!(matches!(pair.ended_back(), Err(TransportError::Refused(_))));
        assert_eq!(pair.server.connection.counters().calls_sent, 0);
        pair.client_is_ready();
        exchange_back(&mut pair, 6, 40).expect("answered");
    });
}

#[test]
fn server_without_a_backward_direction_makes_no_calls_even_to_a_client_that_is_ready() {
    in_each_version(|versions| {
        let mut setup = Setup::speaking(versions);
        setup.server.backward_credits = 0;
        let mut pair = ready_with(setup);
        pair.call_back(request(5, call(5, 40, &[]), bound(200, &[])));
        assert!(matches!(pair.ended_back(), Err(TransportError::Refused(_))));
        assert_eq!(pair.server.connection.counters().calls_sent, 0);
    });
}

#[test]
fn one_call_goes_before_the_first_reply_and_then_as_many_as_the_client_grants() {
    in_each_version(|versions| {
        let mut setup = Setup::speaking(versions);
        setup.client.backward_credits = 3;
        let mut pair = ready_with(setup);
        for xid in 1..=9 {
            pair.call_back(request(xid, call(xid, 40, &[]), bound(200, &[])));
        }
        pair.drive();
        assert_eq!(pair.back.calls.len(), 1);
        for xid in 1..=9 {
            let (id, _) = pair.back.calls.remove(0);
            pair.answer_back(id, Reply::Message(reply(xid, 4, &[])));
            assert_eq!(pair.back.calls.len(), (9 - xid as usize).min(3));
        }
        assert_eq!(pair.server.connection.credits(), 3);
        assert_eq!(pair.back.replies.len(), 9);
        pair.check_idle();
    });
}

#[test]
fn both_directions_use_the_same_xids_and_do_not_meet() {
    in_each_version(|versions| {
        let mut pair = ready(versions);
        pair.call(request(5, call(5, 40, &[]), bound(100, &[9000])));
        let (forward, _) = pair.arrived();
        pair.call_back(request(5, call(5, 44, &[]), bound(200, &[])));
        let (backward, received) = pair.arrived_back();
        assert_eq!(stream(&received), stream(&call(5, 44, &[])));
        pair.answer_back(backward, Reply::Message(reply(5, 8, &[])));
        assert!(pair.replies.is_empty(), "the client's call is not over");
        check_reply(&pair.ended_back().expect("answered"), 5, 8, &[]);
        pair.answer(forward, Reply::Message(reply(5, 4, &[9000])));
        check_reply(&pair.ended().expect("answered"), 5, 4, &[9000]);
        pair.check_idle();
    });
}

#[test]
fn credits_of_one_direction_say_nothing_about_the_other() {
    let mut pair = ready(Versions::One);
    exchange_back(&mut pair, 5, 40).expect("answered");
    assert_eq!(pair.server.connection.credits(), 4);
    assert_eq!(
        pair.client.connection.credits(),
        1,
        "no reply of the server yet"
    );
    for xid in 1..=5 {
        pair.call_back(request(xid, call(xid, 40, &[]), bound(200, &[])));
    }
    assert!(!pair.server.connection.can_call());
    assert!(pair.client.connection.can_call());
}

#[test]
fn each_end_has_receives_for_both_directions() {
    in_each_version(|versions| {
        let receives = |pair: &Pair| {
            let ends = [&pair.client, &pair.server];
            ends.map(|end| end.qp.inner().outstanding().receives)
        };
        let mut setup = Setup::speaking(versions);
        // As many as before the first reply of version one.
        setup.client.credits = 1;
        let mut pair = ready_with(setup);
        let slack = crate::limits::RECEIVE_SLACK;
        assert_eq!(receives(&pair), [4 + slack, 8 + slack]);
        exchange_back(&mut pair, 1, 40).expect("answered");
        assert_eq!(receives(&pair), [4 + slack, 8 + slack]);
        for xid in 1..=4 {
            pair.call_back(request(xid, call(xid, 40, &[]), bound(200, &[])));
            pair.call(request(xid, call(xid, 40, &[]), bound(200, &[])));
        }
        pair.drive();
        assert_eq!(receives(&pair), [4 + slack + 1, 8 + slack + 4]);
        assert_eq!(pair.server.connection.room(), 0);
    });
}

#[test]
fn call_that_needs_a_chunk_is_not_sent() {
    in_each_version(|versions| {
        let check = |fixed: usize, bound_of_reply: usize, sent: bool| {
            let mut pair = ready(versions);
            pair.call_back(request(5, call(5, fixed, &[]), bound(bound_of_reply, &[])));
            pair.drive();
            assert_eq!(
                pair.back.calls.len(),
                usize::from(sent),
                "{fixed} {bound_of_reply}"
            );
            if !sent {
                let ended = pair.ended_back();
                assert!(
                    matches!(ended, Err(TransportError::TooLarge { .. })),
                    "{ended:?}"
                );
                assert_eq!(pair.server.connection.exposed(), 0);
            }
        };
        let header = ready(versions)
            .server
            .connection
            .core
            .shared
            .agreed
            .codec
            .plain_len(crate::Direction::Call);
        let room = 4096 - header;
        // XID, direction and the length of the fixed part.
        check(room - 12, 200, true);
        check(room - 12 + 4, 200, false);
        check(40, room, true);
        check(40, room + 1, false);
    });
}

#[test]
fn eligible_items_go_inline() {
    in_each_version(|versions| {
        let mut pair = ready(versions);
        pair.call_back(request(5, call(5, 40, &[2001]), bound(200, &[2001])));
        let (id, received) = pair.arrived_back();
        assert_eq!(stream(&received), stream(&call(5, 40, &[2001])));
        pair.answer_back(id, Reply::Message(reply(5, 40, &[2001])));
        check_reply(&pair.ended_back().expect("answered"), 5, 40, &[2001]);
        pair.check_idle();
    });
}

#[test]
fn reply_that_outgrows_a_send_is_err_chunk_and_both_directions_go_on() {
    in_each_version(|versions| {
        let mut pair = ready(versions);
        let outgrown = exchange_back(&mut pair, 5, 5000);
        assert!(matches!(outgrown, Err(TransportError::Refused(_))));
        exchange_back(&mut pair, 6, 40).expect("the connection goes on");
        pair.check_idle();
    });
}

/// Whatever chunk a server offers to a client, it gets an error and the connection goes on.
#[test]
fn chunks_offered_backward_draw_err_chunk() {
    let write = WriteChunk {
        segments: smallvec![segment(9, 100)],
    };
    let reads = |position| Lists {
        reads: vec![read_chunk(position, smallvec![segment(9, 8)])],
        ..Lists::default()
    };
    let message = stream(&call(5, 40, &[]));
    let writes = Lists {
        writes: vec![write.clone()],
        ..Lists::default()
    };
    let long_reply = Lists {
        reply: Some(write),
        ..Lists::default()
    };
    let empty = Lists {
        writes: vec![WriteChunk::default()],
        ..Lists::default()
    };
    for bytes in [
        wire(procedure::MSG, 5, 2, &reads(52), &message),
        wire(procedure::MSG, 5, 2, &writes, &message),
        wire(procedure::MSG, 5, 2, &long_reply, &message),
        wire(procedure::MSG, 5, 2, &empty, &message),
        wire(procedure::NOMSG, 5, 2, &reads(0), &[]),
    ] {
        let mut lone = client();
        lone.call(request(5, call(5, 40, &[]), bound(200, &[])));
        lone.receive().expect("our own call with that XID");
        lone.send(&bytes, None);
        let (header, _) = lone.receive().expect("an answer");
        assert_eq!(
            (header.xid, header.body),
            (5, Body::Error(RdmaError::Chunk))
        );
        assert!(
            lone.events.is_empty(),
            "it is not executed, and our call goes on"
        );
        assert_eq!(lone.end.connection.calls_out(), 1);
        lone.send_call(6);
        lone.called();
        lone.send(&inline(&Lists::default()), None);
        lone.ended().expect("answered");
        assert_eq!(lone.end.connection.violation(), None);
    }
}

#[test]
fn client_without_a_backward_direction_hears_no_calls() {
    let mut config = config(Role::Client);
    config.backward_credits = 0;
    let mut lone = Lone::new(&config);
    lone.send_call(5);
    assert!(lone.events.is_empty());
    assert!(lone.receive().is_none());
    assert_eq!(lone.end.connection.counters().discarded, 1);
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
fn client_without_a_service_answers_prog_unavail() {
    in_each_version(|versions| {
        let mut pair = ready(versions);
        let words = [5, 0, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0_u32];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let message = Payload::new(Buffer::from(bytes), 0);
        pair.call_back(request(5, message, bound(200, &[])));
        let (id, received) = pair.arrived_back();
        let caller = Caller::new(pair.client.qp.peer_addr());
        let Answer::Now(reply) = Programs::new().call(received, &caller) else {
            panic!("there is nothing to wait for");
        };
        pair.answer_back(id, reply);
        let answer = stream(&pair.ended_back().expect("answered"));
        let words = [5, 1, 0, 0, 0, 1_u32];
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(answer, expected);
        pair.check_idle();
    });
}

/// A server with a call of its own, XID 5, on its way.
fn calling() -> Lone {
    let mut lone = server();
    lone.end.connection.handle_client_ready();
    lone.call(request(5, call(5, 40, &[]), bound(200, &[])));
    let (header, _) = lone.receive().expect("the call");
    assert_eq!((header.xid, header.credits), (5, 4));
    assert_eq!(
        header.body,
        Body::Msg(Lists::default()),
        "three empty lists"
    );
    lone
}

#[test]
fn error_ends_the_call_of_the_server_and_not_that_of_the_client() {
    let mut lone = calling();
    lone.send_call(5);
    let (id, _) = lone.called();
    lone.send(&error(5, RdmaError::Chunk), None);
    assert!(matches!(lone.ended(), Err(TransportError::Refused(_))));
    lone.end
        .connection
        .reply(id, Reply::Message(reply(5, 40, &[])));
    let (header, _) = lone.receive().expect("the reply to the client");
    assert!(matches!(header.body, Body::Msg(_)));
}

#[test]
fn what_is_no_valid_reply_to_a_server_is_discarded_and_draws_no_error() {
    let reply_chunk = Lists {
        reply: Some(WriteChunk::default()),
        ..Lists::default()
    };
    let none = Lists::default();
    let mut other_version = wire(procedure::MSG, 5, 8, &none, &stream(&reply(5, 40, &[])));
    other_version[7] = 2;
    for bytes in [
        other_version,
        wire(procedure::MSGP, 5, 8, &none, &[]),
        wire(procedure::NOMSG, 5, 8, &none, &[]),
    ] {
        let mut lone = calling();
        lone.send(&bytes, None);
        assert!(lone.events.is_empty());
        assert!(lone.receive().is_none(), "no error");
        assert_eq!(lone.end.connection.calls_out(), 1);
        lone.send(&inline(&none), None);
        lone.ended().expect("answered");
    }
    // This one is valid, but not as an answer to a call without chunks.
    let mut lone = calling();
    lone.send(&wire(procedure::NOMSG, 5, 8, &reply_chunk, &[]), None);
    assert!(matches!(lone.ended(), Err(TransportError::BadReply(_))));
    assert!(lone.receive().is_none(), "no error");
}

#[test]
fn grant_of_the_client_is_clamped() {
    for (granted, expected) in [(0, 1), (1, 1), (4, 4), (u32::MAX, 4)] {
        let mut lone = calling();
        lone.send_stream(5, granted, &stream(&reply(5, 40, &[])));
        lone.ended().expect("answered");
        assert_eq!(lone.end.connection.credits(), expected);
    }
}

#[test]
fn request_of_the_server_for_any_credits_is_granted_some() {
    for (asked, expected) in [(0, 1), (1, 1), (4, 4), (u32::MAX, 4)] {
        let mut lone = client();
        lone.send_stream(5, asked, &stream(&call(5, 40, &[])));
        let (id, _) = lone.called();
        lone.end
            .connection
            .reply(id, Reply::Message(reply(5, 40, &[])));
        let (header, _) = lone.receive().expect("the reply");
        assert_eq!(header.credits, expected);
    }
}

#[test]
fn server_that_ignores_its_credits_is_cut_off() {
    let mut connection = client().end.connection;
    for xid in 0..8 {
        let message = stream(&call(xid, 40, &[]));
        arrive(
            &mut connection,
            wire(procedure::MSG, xid, 4, &Lists::default(), &message),
        );
    }
    assert_eq!(connection.violation(), None);
    let message = stream(&call(8, 40, &[]));
    arrive(
        &mut connection,
        wire(procedure::MSG, 8, 4, &Lists::default(), &message),
    );
    assert_eq!(connection.violation(), Some(Violation::BeyondCredits(8)));
}

#[test]
fn no_reply_of_a_client_takes_a_handle_along() {
    let mut lone = calling();
    let mut pair = ready(Versions::One);
    exchange_back(&mut pair, 5, 40).expect("answered");
    assert_eq!(pair.client.connection.counters().invalidations_sent, 0);
    // A handle that the server never had is not invalidated by its provider, which ends the
    // connection; one that its provider reports all the same is of no call.
    let memory = verbs::Memory::Sink(Buffer::with_capacity(8));
    let foreign = lone.end.qp.register(memory).expect("there is room").handle;
    lone.send(&inline(&Lists::default()), Some(foreign));
    let violation = lone.end.connection.violation();
    assert_eq!(violation, Some(Violation::ForeignHandle(foreign)));
}

#[test]
fn cancelled_call_of_a_server_keeps_its_credit_until_its_reply() {
    in_each_version(|versions| {
        let mut pair = ready(versions);
        pair.call_back(request(5, call(5, 40, &[]), bound(200, &[])));
        let (id, _) = pair.arrived_back();
        pair.server.cancel(CallToken(5));
        assert!(!pair.server.connection.can_call());
        pair.answer_back(id, Reply::Message(reply(5, 40, &[])));
        assert!(pair.back.replies.is_empty());
        assert!(pair.server.connection.can_call());
        pair.check_idle();
    });
}

#[test]
fn calls_of_a_server_go_on_over_the_next_connection_once_the_client_is_ready_again() {
    in_each_version(|versions| {
        let mut pair = ready(versions);
        pair.call_back(request(5, call(5, 40, &[]), bound(200, &[])));
        let _ = pair.arrived_back();
        let mut next = Pair::speaking(versions);
        let mut unfinished = pair.server.connection.into_unfinished();
        let Some(Unfinished::Again(again)) = unfinished.pop() else {
            panic!("it has no reply");
        };
        assert_eq!(next.server.connection.room(), 0, "nothing carries over");
        next.client_is_ready();
        next.call_back(again);
        let (id, _) = next.arrived_back();
        next.answer_back(id, Reply::Message(reply(5, 4, &[])));
        check_reply(&next.ended_back().expect("answered"), 5, 4, &[]);
    });
}
