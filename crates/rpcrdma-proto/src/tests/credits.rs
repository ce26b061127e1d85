//! Credits, kept to and not (RFC 8166 §3.3.1).

use super::lone::*;
use super::*;
use crate::Violation;
use crate::header::{Lists, procedure};
use verbs::WorkRequest;

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
    for octets in [other_version, wire(procedure::MSGP, 5, 8, &none, &[])] {
        let mut connection = Lone::new(&config).end.connection;
        for _ in 0..10 {
            // Nothing of ours ever completes.
            arrive(&mut connection, octets.clone());
        }
        let violation = connection.violation();
        assert_eq!(violation, Some(Violation::BeyondCredits(4)));
        let posts = std::iter::from_fn(|| connection.poll_post());
        let sends = posts.filter(|work| matches!(work, WorkRequest::Send { .. }));
        assert_eq!(sends.count(), 4);
    }
}
