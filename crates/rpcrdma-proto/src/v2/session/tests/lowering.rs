//! Receives that become smaller.

use super::*;

/// Both have Receives of 16384 bytes, and the server asks for 8192.
fn asked() -> Pair {
    let mut pair = Pair::open(|config| config.receive_size = size(16_384));
    let Pair { client, server, .. } = &mut pair;
    server.request_peer(vec![receives(8192)]).expect("it may");
    deliver(next(server).expect("a request"), client);
    pair
}

#[test]
fn asked_keeps_its_receives_until_its_calls_are_answered() {
    let mut client = asked().client;
    assert!(response(&mut client).pending.contains(0));
    assert!(client.awaits_calls());
    assert_eq!(
        (client.receive_size(), client.reply_limit()),
        (16_384, 8192)
    );
    assert_eq!(next(&mut client), None);
    client.handle_calls_drained();
    assert!(!client.awaits_calls());
    assert_eq!(client.receive_size(), 8192);
    let now = receives(8192);
    let pendclr = true;
    assert_eq!(update(&mut client), UpdXch { now, pendclr });
}

#[test]
fn asker_keeps_to_the_lower_size_at_once_but_for_replies_that_fit_no_other_way() {
    let Pair {
        mut client,
        mut server,
        ..
    } = asked();
    let limits = |server: &Session| (server.send_limit(), server.last_resort_limit());
    assert_eq!(limits(&server), (8192, 16_384));
    deliver(next(&mut client).expect("an answer"), &mut server);
    assert_eq!(limits(&server), (8192, 16_384));
    client.handle_calls_drained();
    deliver(next(&mut client).expect("an update"), &mut server);
    assert_eq!(limits(&server), (8192, 8192));
    assert!(events(&mut server).contains(&settled(receives(8192), Settled::Done)));
}

/// xcharext §4.4: the XID of an UPDXCH tells nothing of a REQXCH.
#[test]
fn update_ends_a_request_whatever_its_xid_and_has_one_of_its_own() {
    // The request has XID 7.
    for xid in [7, 8, 1 << 31] {
        let mut server = asked().server;
        respond(&mut server, 7, &[Outcome::Pending]);
        let (now, pendclr) = (receives(8192), true);
        let update = Operation::UpdXch(UpdXch { now, pendclr });
        say(&mut server, xid, Direction::Call, update);
        assert_eq!(server.last_resort_limit(), 8192, "{xid}");
        let done = settled(receives(8192), Settled::Done);
        assert!(events(&mut server).contains(&done), "{xid}");
    }
    let mut client = asked().client;
    response(&mut client);
    client.handle_calls_drained();
    let message = client.poll_message(&mut || 99);
    assert!(
        matches!(message, Some(Message::Optional { xid: 99, .. })),
        "the next of its sender, and not that of the request: {message:?}"
    );
}

#[test]
fn rejection_gives_the_former_size_back() {
    let mut server = asked().server;
    respond(&mut server, 7, &[Outcome::Rejected]);
    assert_eq!(server.send_limit(), 16_384);
    assert_eq!(
        events(&mut server),
        [settled(receives(8192), Settled::Rejected)]
    );
}

#[test]
fn refusal_to_take_requests_rejects_this_one_and_all_later_ones() {
    let mut server = asked().server;
    assert!(server.handle_error(7, RdmaError::InvalOption));
    assert_eq!(server.send_limit(), 16_384);
    assert_eq!(
        events(&mut server),
        [settled(receives(8192), Settled::Rejected)]
    );
    let refused = server.request_peer(vec![receives(8192)]);
    assert_eq!(refused, Err(RequestError::PeerTakesNone));
}

#[test]
fn larger_update_counts_only_when_the_request_is_no_longer_pending() {
    let mut server = asked().server;
    respond(&mut server, 7, &[Outcome::Pending]);
    tell(&mut server, receives(32_768), false);
    assert_eq!(server.send_limit(), 8192);
    tell(&mut server, receives(32_768), true);
    assert_eq!(server.send_limit(), 32_768);
}

#[test]
fn lower_size_is_kept_to_where_the_answer_says_nothing_certain() {
    let both = RespXch {
        done: [0].into_iter().collect(),
        rejected: [0].into_iter().collect(),
        ..RespXch::default()
    };
    for odd in [RespXch::default(), both] {
        let mut server = asked().server;
        say(&mut server, 7, Direction::Reply, Operation::RespXch(odd));
        assert_eq!(server.send_limit(), 8192);
        assert_eq!(server.counters().odd_responses, 1);
        assert_eq!(server.outstanding(), 0);
        tell(&mut server, receives(16_384), true);
        assert_eq!(server.send_limit(), 16_384);
    }
    let mut server = asked().server;
    server.handle_unreadable_reply(7);
    assert_eq!((server.send_limit(), server.outstanding()), (8192, 0));
    assert_eq!(server.unsettled().count(), 1);
}

#[test]
fn nobody_goes_below_what_everybody_takes() {
    let mut pair = Pair::open(|_| {});
    request(&mut pair.client, &[receives(2048)]);
    assert!(response(&mut pair.client).rejected.contains(0));
}

#[test]
fn end_that_could_not_tell_when_it_is_done_rejects() {
    let mut pair = Pair::open(|config| {
        config.receive_size = size(8192);
        config.supported = match config.role {
            Role::Client => Supported::InitRespXch,
            Role::Server => Supported::All,
        };
    });
    request(&mut pair.client, &[receives(4096), receives(8192)]);
    // The later value stands for both.
    assert!(response(&mut pair.client).done.contains(0));
    request(&mut pair.client, &[receives(4096)]);
    assert!(response(&mut pair.client).rejected.contains(0));
    // It said so at first, and we remember.
    let refused = pair.server.request_peer(vec![receives(4096)]);
    assert_eq!(refused, Err(RequestError::Fixed(ReceiveBufferSize::ID)));
}

#[test]
fn size_between_what_was_told_and_what_was_heard_is_told_when_receives_hold_it() {
    let mut pair = Pair::open(|_| {});
    let client = &mut pair.client;
    client.raise_receive_size(size(16_384)).expect("it may");
    client.handle_old_receives_gone(16_384);
    let (told, _) = optional(client);
    pair.server
        .request_peer(vec![receives(8192)])
        .expect("it may");
    deliver(next(&mut pair.server).expect("a request"), &mut pair.client);
    let client = &mut pair.client;
    while next(client).is_some() {}
    assert!(client.handle_error(told, RdmaError::BadHeader));
    client.handle_calls_drained();
    // Those of the beginning are posted again, or still.
    assert_eq!(client.receive_size(), 8192);
    client.handle_old_receives_gone(4096);
    assert_eq!(next(client), None);
    client.handle_old_receives_gone(8192);
    assert_eq!(client.own::<ReceiveBufferSize>(), size(4096));
}
