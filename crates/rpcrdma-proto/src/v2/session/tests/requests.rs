//! Requests of one end to the other.

use super::*;

#[test]
fn each_value_is_done_rejected_or_pending() {
    let mut pair = Pair::open(|_| {});
    let unknown = XcharVal {
        which: XcharId(77),
        data: Vec::new(),
    };
    let general = XcharVal::of::<BackwardRequestSupport>(&BackwardSupport::General);
    request(
        &mut pair.client,
        &[receives(4096), unknown, queue(8), general],
    );
    let response = response(&mut pair.client);
    assert!(response.is_answer_to(4));
    assert_eq!(response.outcome(0), Some(Outcome::Done));
    assert_eq!(response.outcome(1), Some(Outcome::Rejected));
    assert_eq!(response.outcome(2), Some(Outcome::Pending));
    assert_eq!(response.outcome(3), Some(Outcome::Rejected));
    assert_eq!(events(&mut pair.client), [Event::Wanted(queue(8))]);
}

#[test]
fn user_settles_what_was_asked_of_a_registered_characteristic() {
    let check = |settles: u32, outcome| {
        let mut pair = Pair::open(|_| {});
        pair.client.request_peer(vec![queue(4)]).expect("it may");
        pair.drive();
        assert_eq!(events(&mut pair.server), [Event::Wanted(queue(4))]);
        assert_eq!(pair.client.poll_event(), None);
        pair.server
            .settle(queue(settles))
            .expect("it was asked for");
        pair.drive();
        assert!(events(&mut pair.client).contains(&settled(queue(4), outcome)));
        assert_eq!(pair.client.peer::<Queue>(), settles);
        let again = pair.server.settle(queue(settles));
        assert_eq!(again, Err(TellError::NotAsked(Queue::ID)));
    };
    check(4, Settled::Done);
    check(16, Settled::Rejected);
    check(8, Settled::Partly(queue(8)));
}

#[test]
fn registered_characteristic_changes_as_its_type_says() {
    let mut pair = Pair::open(|_| {});
    assert_eq!(pair.server.tell(queue(8)), Err(TellError::Fixed(Queue::ID)));
    pair.server.tell(queue(32)).expect("it may grow");
    pair.drive();
    assert_eq!(pair.client.peer::<Queue>(), 32);
    assert_eq!(events(&mut pair.client), [Event::PeerChanged(Queue::ID)]);
    // While it is asked for, a smaller one is a step on the way.
    request(&mut pair.server, &[queue(4)]);
    pair.server.tell(queue(8)).expect("it was asked for");
    assert!(response(&mut pair.server).pending.contains(0));
    assert_eq!(
        update(&mut pair.server),
        UpdXch {
            now: queue(8),
            pendclr: false
        }
    );
    let builtin = pair.server.tell(receives(8192));
    assert_eq!(
        builtin,
        Err(TellError::NotRegistered(ReceiveBufferSize::ID))
    );
}

#[test]
fn one_request_for_a_characteristic_is_pending_at_a_time() {
    let mut pair = Pair::open(|_| {});
    pair.client.request_peer(vec![queue(4)]).expect("it may");
    pair.drive();
    let again = pair.client.request_peer(vec![queue(5)]);
    assert_eq!(again, Err(RequestError::Pending(Queue::ID)));
    // A peer that asks all the same is rejected.
    request(&mut pair.server, &[queue(5)]);
    assert!(response(&mut pair.server).rejected.contains(0));
}

#[test]
fn what_is_said_not_to_change_is_neither_asked_for_nor_changed() {
    let mut pair = Pair::open(|_| {});
    let general = XcharVal::of::<BackwardRequestSupport>(&BackwardSupport::General);
    let fixed = Err(RequestError::Fixed(BackwardRequestSupport::ID));
    assert_eq!(
        pair.server.request_peer(vec![queue(4), general.clone()]),
        fixed
    );
    assert_eq!(next(&mut pair.server), None);
    tell(&mut pair.server, general, false);
    assert_eq!(
        pair.server.peer::<BackwardRequestSupport>(),
        BackwardSupport::Inline
    );
    assert_eq!(pair.server.counters().ignored, 1);
}

#[test]
fn end_of_a_request_that_there_is_not_leaves_its_value() {
    let mut pair = Pair::open(|_| {});
    tell(&mut pair.client, receives(8192), true);
    assert_eq!(pair.client.send_limit(), 8192);
    assert_eq!(pair.client.counters().stray_ends, 1);
}

#[test]
fn requests_that_make_no_sense_are_not_sent() {
    let mut pair = Pair::open(|_| {});
    let client = &mut pair.client;
    let mut check = |want: Vec<XcharVal>, expected| {
        assert_eq!(client.request_peer(want), Err(expected));
    };
    let which = XcharId(77);
    let data = Vec::new();
    check(vec![XcharVal { which, data }], RequestError::Unknown(which));
    check(vec![queue(1), queue(2)], RequestError::Twice(Queue::ID));
    let mut long = queue(1);
    long.data.resize(1000, 0);
    check(vec![long], RequestError::TooLong(1040));
    assert_eq!(client.outstanding(), 0);
    let mut quiet = Pair::open(|config| config.supported = Supported::InitUpdXch).client;
    let refused = quiet.request_peer(vec![queue(1)]);
    assert_eq!(refused, Err(RequestError::Unsupported));
}
