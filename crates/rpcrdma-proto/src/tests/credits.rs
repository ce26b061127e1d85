//! Credits, kept to and not (RFC 8166 §3.3.1).

use super::lone::*;
use super::pair::Pair;
use super::*;
use crate::Violation;
use crate::wire::header::{Lists, procedure};
use oncrpc::Reply;
use oncrpc::xdr;
use verbs::{QueuePair, WorkRequest};

#[test]
fn credits_are_never_zero_and_never_more_than_asked_for() {
    let check = |granted, expected| {
        let mut lone = client();
        lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
        lone.receive().expect("the call");
        let answer = stream(&reply(5, 40, &[]));
        lone.send_stream(5, granted, &answer);
        lone.ended().expect("answered");
        assert_eq!(lone.end.connection.credits(), expected);
    };
    check(0, 1);
    check(1, 1);
    check(7, 7);
    check(8, 8);
    check(9, 8);
    check(u32::MAX, 8);
}

#[test]
fn peer_that_ignores_its_credits_is_cut_off() {
    let mut config = config(Role::Server);
    config.credits = 2;
    let mut lone = Lone::new(&config);
    for xid in 1..=4 {
        lone.send_call(xid);
    }
    assert_eq!(lone.end.connection.violation(), None);
    lone.send_call(5);
    assert_eq!(
        lone.end.connection.violation(),
        Some(Violation::BeyondCredits(4))
    );
}

#[test]
fn peer_that_reads_no_errors_is_cut_off() {
    let mut config = config(Role::Server);
    config.credits = 2;
    let none = Lists::default();
    let mut other_version = wire(procedure::MSG, 5, 8, &none, &stream(&call(6, 40, &[])));
    other_version[7] = 2;
    for bytes in [other_version, wire(procedure::MSGP, 5, 8, &none, &[])] {
        let mut connection = Lone::new(&config).end.connection;
        for _ in 0..10 {
            // Nothing of ours ever completes.
            arrive(&mut connection, bytes.clone());
        }
        let violation = connection.violation();
        assert_eq!(violation, Some(Violation::BeyondCredits(4)));
        let posts = std::iter::from_fn(|| connection.poll_post());
        let sends = posts.filter(|work| matches!(work, WorkRequest::Send { .. }));
        assert_eq!(sends.count(), 4);
    }
}

#[test]
fn whatever_is_asked_for_at_least_one_credit_is_granted() {
    for (asked, expected) in [(0, 1), (1, 1), (8, 8), (9, 8), (u32::MAX, 8)] {
        let mut lone = server();
        lone.send_stream(5, asked, &stream(&call(5, 40, &[])));
        let (id, _) = lone.called();
        let answer = Reply::Message(reply(5, 40, &[]));
        lone.end.connection.reply(id, answer);
        let (header, _) = lone.receive().expect("the reply");
        assert_eq!(header.credits, expected, "{asked}");
        // An error grants as much.
        lone.send(
            &wire(procedure::MSGP, 6, asked, &Lists::default(), &[]),
            None,
        );
        let (header, _) = lone.receive().expect("the error");
        assert_eq!(header.credits, expected, "{asked}");
    }
}

/// A client whose server has granted all credits that were asked for.
fn granted(reserve_credit: bool) -> Lone {
    let mut config = config(Role::Client);
    config.reserve_credit = reserve_credit;
    let mut lone = Lone::new(&config);
    lone.call(request(100, call(100, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    lone.send_stream(100, 8, &stream(&reply(100, 40, &[])));
    lone.ended().expect("answered");
    lone
}

#[test]
fn health_check_goes_when_all_other_credits_are_in_use() {
    let mut lone = granted(true);
    assert_eq!(lone.end.connection.room(), 7);
    for xid in 1..=7 {
        lone.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
    }
    assert!(!lone.end.connection.can_call());
    let one_more = request(8, call(8, 40, &[]), bound(100, &[]));
    lone.end.call(one_more).expect("it can be carried");
    assert_eq!(lone.end.connection.calls_waiting(), 1);
    assert!(lone.end.connection.can_check_health());
    let check = request(9, call(9, 40, &[]), bound(100, &[])).as_health_check();
    lone.end.call(check).expect("it can be carried");
    assert_eq!(
        lone.end.connection.calls_waiting(),
        1,
        "it waits for nobody"
    );
    assert!(!lone.end.connection.can_check_health());
}

#[test]
fn single_credit_is_for_every_call() {
    let mut config = config(Role::Client);
    config.reserve_credit = true;
    let mut lone = Lone::new(&config);
    lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
    assert!(!lone.end.connection.can_check_health());
    assert_eq!(granted(false).end.connection.room(), 8);
}

#[test]
fn error_is_no_valid_reply_and_grants_nothing() {
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    lone.send(&error(5, crate::wire::header::RdmaError::Chunk), None);
    lone.ended().expect_err("refused");
    assert_eq!(lone.end.connection.room(), 1);
}

/// Sends as many calls as there is room for and answers one; gives the number that was there.
fn fill_and_answer(pair: &mut Pair, xid: &mut u32) -> usize {
    while pair.client.connection.can_call() {
        *xid += 1;
        pair.call(request(*xid, call(*xid, 40, &[]), bound(100, &[])));
    }
    pair.drive();
    let there = pair.calls.len();
    let (id, received) = pair.calls.remove(0);
    let answered = xdr::Reader::from(&received).u32().expect("an XID");
    pair.answer(id, Reply::Message(reply(answered, 40, &[])));
    there
}

#[test]
fn grant_can_be_lowered_and_raised_while_all_credits_are_in_use() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        let mut xid = 0;
        fill_and_answer(&mut pair, &mut xid);
        assert_eq!(fill_and_answer(&mut pair, &mut xid), 8);
        pair.server.connection.set_grant(3);
        // One more is sent before the client hears of it.
        assert_eq!(fill_and_answer(&mut pair, &mut xid), 8);
        assert_eq!(pair.client.connection.credits(), 3);
        for expected in [7, 6, 5, 4, 3, 3, 3, 3, 3, 3, 3] {
            assert_eq!(fill_and_answer(&mut pair, &mut xid), expected);
        }
        let slack = crate::limits::RECEIVE_SLACK;
        assert_eq!(pair.server.qp.inner().outstanding().receives, 3 + slack);
        pair.server.connection.set_grant(100);
        assert_eq!(
            pair.server.connection.grant(),
            8,
            "not more than there was room for"
        );
        assert_eq!(fill_and_answer(&mut pair, &mut xid), 3);
        assert_eq!(fill_and_answer(&mut pair, &mut xid), 8);
        assert_eq!(pair.server.qp.inner().outstanding().receives, 8 + slack);
        assert_eq!(pair.client.qp.closed(), None);
        assert_eq!(pair.server.connection.violation(), None);
    });
}

#[test]
fn call_that_waits_to_be_posted_keeps_to_a_grant_that_was_lowered_meanwhile() {
    let mut lone = granted(false);
    let one_more = |lone: &mut Lone, xid| {
        lone.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
    };
    for xid in 1..=3 {
        one_more(&mut lone, xid);
        lone.receive().expect("there are credits");
    }
    // These two have their credits, but no room to be posted yet.
    one_more(&mut lone, 4);
    one_more(&mut lone, 5);
    let answer = |xid| stream(&reply(xid, 40, &[]));
    let lowered = wire(procedure::MSG, 1, 2, &Lists::default(), &answer(1));
    arrive(&mut lone.end.connection, lowered);
    assert_eq!(lone.receive(), None);
    for (xid, next) in [(2, 4), (3, 5)] {
        lone.send_stream(xid, 2, &answer(xid));
        assert_eq!(lone.receive().expect("the next call").0.xid, next);
        assert_eq!(lone.receive(), None);
    }
}

#[test]
fn replies_that_are_still_being_sent_do_not_count_against_a_lowered_grant() {
    let mut connection = server().end.connection;
    let call_of = |xid| {
        let message = stream(&call(xid, 40, &[]));
        wire(procedure::MSG, xid, 8, &Lists::default(), &message)
    };
    for xid in 0..8 {
        arrive(&mut connection, call_of(xid));
    }
    connection.set_grant(1);
    // Nothing of ours completes, though the peer has its replies.
    while let Some(Event::Call { id, message }) = connection.poll_event() {
        let xid = xdr::Reader::from(&message).u32().expect("an XID");
        connection.reply(id, Reply::Message(reply(xid, 4, &[])));
    }
    for xid in 8..16 {
        arrive(&mut connection, call_of(xid));
        assert_eq!(connection.violation(), None, "{xid}");
    }
    arrive(&mut connection, call_of(16));
    assert_eq!(connection.violation(), Some(Violation::BeyondCredits(16)));
}

#[test]
fn cancelled_call_whose_send_is_recalled_is_never_sent() {
    let mut lone = granted(false);
    let one_more = |lone: &mut Lone, xid| {
        lone.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
    };
    for xid in 1..=3 {
        one_more(&mut lone, xid);
        lone.receive().expect("there are credits");
    }
    one_more(&mut lone, 4);
    one_more(&mut lone, 5);
    let answer = |xid| stream(&reply(xid, 40, &[]));
    let lowered = wire(procedure::MSG, 1, 2, &Lists::default(), &answer(1));
    arrive(&mut lone.end.connection, lowered);
    // Calls 4 and 5 are here, and the peer knows of neither. Nobody waits for them any more.
    assert!(lone.end.connection.core.requester.has_recalled());
    let cancelled = lone
        .end
        .connection
        .cancel(|call| *call == CallToken(4) || *call == CallToken(5));
    assert_eq!(cancelled, 2);
    lone.send_stream(2, 2, &answer(2));
    assert_eq!(
        lone.receive().map(|(header, _)| header.xid),
        None,
        "a cancelled call is sent all the same"
    );
}

#[test]
fn recalled_call_has_no_loss() {
    let mut lone = granted(false);
    for xid in 1..=3 {
        lone.call(request(xid, call(xid, 40, &[]), bound(100, &[])));
        lone.receive().expect("there are credits");
    }
    lone.call(request(4, call(4, 40, &[]), bound(100, &[])));
    let answer = stream(&reply(1, 40, &[]));
    let lowered = wire(procedure::MSG, 1, 2, &Lists::default(), &answer);
    arrive(&mut lone.end.connection, lowered);
    assert!(lone.end.connection.core.requester.has_recalled());
    let mut unfinished = lone.end.connection.into_unfinished();
    assert!(matches!(unfinished.remove(0), Unfinished::Ended(_, Ok(_))));
    for unfinished in unfinished {
        let Unfinished::Again(request) = unfinished else {
            panic!("no other reply came");
        };
        assert_eq!(
            request.losses,
            u32::from(request.xid() != 4),
            "{}",
            request.xid()
        );
    }
}

#[test]
fn reply_that_was_not_handed_out_when_the_connection_ends_is_not_lost() {
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    let answer = wire(
        procedure::MSG,
        5,
        8,
        &Lists::default(),
        &stream(&reply(5, 40, &[])),
    );
    arrive(&mut lone.end.connection, answer);
    assert!(lone.end.connection.has_replies());
    let unfinished = lone.end.connection.into_unfinished();
    assert!(
        matches!(&unfinished[..], [Unfinished::Ended(_, Ok(_))]),
        "{unfinished:?}"
    );
}
