//! The first messages.

use super::*;

#[test]
fn client_sends_its_characteristics_and_nothing_else_until_the_answer_with_the_same_xid() {
    let mut pair = Pair::with(|config| config.receive_size = size(8192));
    let Pair { client, server, .. } = &mut pair;
    let (xid, init) = optional(client);
    assert_eq!(
        (init.direction, init.operation),
        (Direction::Call, code::INITXCH)
    );
    assert_eq!(next(client), None);
    assert_eq!(
        (client.opening(), client.send_limit()),
        (Opening::Exchanging, 1024)
    );
    server.handle_optional(xid, &init, &[]);
    let (answered, answer) = optional(server);
    assert_eq!((answered, answer.direction), (xid, Direction::Reply));
    client.handle_optional(xid, &answer, &[]);
    for end in [client, server] {
        assert_eq!(
            (end.opening(), end.send_limit(), end.reply_limit()),
            (Opening::Done, 8192, 8192)
        );
        assert_eq!(end.peer::<Queue>(), 16);
        assert_eq!(end.outstanding(), 0);
    }
}

#[test]
fn what_never_changes_is_said_not_to() {
    let mut pair = Pair::with(|config| config.remote_invalidation = true);
    let Operation::InitXch(init) = operation(&mut pair.client).1 else {
        panic!("the first message");
    };
    assert!(init.is_fixed::<RequesterRemoteInvalidation>());
    assert!(init.is_fixed::<BackwardRequestSupport>());
    assert!(!init.is_fixed::<ReceiveBufferSize>());
    assert!(!init.is_fixed::<Queue>());
    for supported in [Supported::InitXch, Supported::InitRespXch] {
        let mut pair = Pair::with(|config| config.supported = supported);
        let Operation::InitXch(init) = operation(&mut pair.client).1 else {
            panic!("the first message");
        };
        assert!(init.is_fixed::<ReceiveBufferSize>(), "{supported:?}");
        assert!(init.is_fixed::<Queue>(), "{supported:?}");
    }
}

#[test]
fn client_of_a_server_without_characteristics_is_careful_until_the_first_reply() {
    for error in [RdmaError::InvalOption, RdmaError::BadHeader] {
        let mut pair = Pair::with(|_| {});
        let client = &mut pair.client;
        let (xid, _) = optional(client);
        assert!(client.handle_error(xid, error));
        assert_eq!(
            (client.opening(), client.send_limit()),
            (Opening::Cautious, 1024)
        );
        assert_eq!(next(client), None);
        client.handle_message();
        assert_eq!(
            (client.opening(), client.send_limit()),
            (Opening::Done, 4096)
        );
        let refused = client.request_peer(vec![receives(8192)]);
        assert_eq!(refused, Err(RequestError::PeerTakesNone));
    }
}

#[test]
fn client_without_operations_is_careful_from_the_start() {
    let mut pair = Pair::with(|config| config.supported = Supported::None);
    assert_eq!(pair.client.opening(), Opening::Cautious);
    assert_eq!(next(&mut pair.client), None);
}

#[test]
fn every_set_of_operations_gets_along_with_every_other() {
    for ours in Supported::ALL {
        for theirs in Supported::ALL {
            let mut pair = Pair::with(|config| {
                config.receive_size = size(8192);
                let client = config.role == Role::Client;
                config.supported = if client { ours } else { theirs };
            });
            pair.drive();
            let both = ours != Supported::None && theirs != Supported::None;
            for end in [&mut pair.client, &mut pair.server] {
                end.handle_message();
                let limit = if both { 8192 } else { 4096 };
                assert_eq!(end.send_limit(), limit, "{ours:?} {theirs:?}");
                let _ = end.raise_receive_size(size(16_384));
            }
            pair.drive();
            for end in [&pair.client, &pair.server] {
                assert!(!end.is_flooded());
            }
            let told =
                |from: Supported, to: Supported| from.takes(code::UPDXCH) && to.takes(code::UPDXCH);
            let of_server = pair.client.peer::<ReceiveBufferSize>() == size(16_384);
            assert_eq!(of_server, told(theirs, ours), "{ours:?} {theirs:?}");
            let of_client = pair.server.peer::<ReceiveBufferSize>() == size(16_384);
            assert_eq!(of_client, told(ours, theirs), "{ours:?} {theirs:?}");
        }
    }
}

#[test]
fn answer_that_cannot_be_read_ends_the_exchange_with_defaults() {
    let mut pair = Pair::with(|config| config.receive_size = size(8192));
    let client = &mut pair.client;
    let (xid, mut answer) = optional(client);
    answer.direction = Direction::Reply;
    // RBSIZ 1023.
    answer.info[12..16].copy_from_slice(&1023_u32.to_be_bytes());
    client.handle_optional(xid, &answer, &[]);
    assert_eq!(
        (client.opening(), client.send_limit()),
        (Opening::Done, 4096)
    );
    assert_eq!(client.counters().bad_replies, 1);
    assert_eq!(next(client), None);
}

#[test]
fn second_statement_is_answered_and_changes_nothing() {
    let mut pair = Pair::open(|_| {});
    let server = &mut pair.server;
    let init = InitXch::default().with::<ReceiveBufferSize>(&size(65_536));
    say(server, 9, Direction::Call, Operation::InitXch(init));
    assert_eq!(server.send_limit(), 4096);
    assert_eq!(server.counters().ignored, 1);
    assert!(matches!(operation(server), (9, Operation::InitXch(_))));
}

#[test]
fn server_may_say_what_it_is_before_it_is_asked() {
    let mut pair = Pair::with(|config| config.receive_size = size(8192));
    let Pair { client, server, .. } = &mut pair;
    let (xid, init) = optional(client);
    let unasked = server.own.initial();
    say(client, 3, Direction::Call, Operation::InitXch(unasked));
    // It has version two, and may leave it at that (xcharext §4.1).
    let own = client.own.initial();
    assert_eq!(operation(client), (3, Operation::InitXch(own)));
    assert_eq!(next(client), None);
    assert_eq!(
        (client.opening(), client.send_limit()),
        (Opening::Cautious, 1024)
    );
    server.handle_optional(xid, &init, &[]);
    deliver(next(server).expect("an answer"), client);
    assert_eq!(
        (client.opening(), client.send_limit(), client.reply_limit()),
        (Opening::Done, 8192, 8192)
    );
}

#[test]
fn client_of_a_server_that_leaves_its_offer_unanswered_goes_on_after_the_first_reply() {
    for direction in [Direction::Call, Direction::Reply] {
        let mut pair = Pair::with(|config| config.receive_size = size(8192));
        let Pair { client, server, .. } = &mut pair;
        let (xid, _) = optional(client);
        let unasked = server.own.initial();
        say(
            client,
            xid + 1,
            direction,
            Operation::InitXch(unasked.clone()),
        );
        assert_eq!(
            (client.opening(), client.send_limit()),
            (Opening::Cautious, 1024)
        );
        // A request is answered, and nothing else is.
        assert_eq!(next(client).is_some(), direction == Direction::Call);
        assert_eq!(next(client), None);
        assert_eq!(client.outstanding(), 1);
        client.handle_message();
        // Nothing shows that the server has taken note of the size of the client's Receives.
        assert_eq!(
            (client.opening(), client.send_limit(), client.reply_limit()),
            (Opening::Done, 8192, 4096)
        );
        assert_eq!(client.outstanding(), 0);
        // Neither an answer nor an error takes anything back by now.
        say(client, xid, Direction::Reply, Operation::InitXch(unasked));
        assert!(!client.handle_error(xid, RdmaError::InvalOption));
        assert_eq!(
            (client.opening(), client.counters().stray_replies),
            (Opening::Done, 1)
        );
        // What the server acknowledges counts.
        assert_eq!(client.raise_receive_size(size(16_384)), Ok(()));
        pair.drive();
        assert_eq!(pair.client.reply_limit(), 8192);
    }
}

#[test]
fn configurations_that_cannot_be_said_are_refused() {
    let refused = |change: &dyn Fn(&mut Config)| {
        let mut config = config(Role::Client);
        change(&mut config);
        Session::new(config).expect_err("a contradiction")
    };
    let small = refused(&|config| config.receive_size = size(4095));
    assert_eq!(small, ConfigError::SmallReceives(size(4095)));
    let unknown = refused(&|config| config.registry = Registry::standard());
    assert_eq!(unknown, ConfigError::NotRegistered(Queue::ID));
    let builtin = refused(&|config| config.registered.put(receives(4096)));
    assert_eq!(builtin, ConfigError::NotRegistered(ReceiveBufferSize::ID));
    let data = vec![0; 3];
    let which = Queue::ID;
    let bad = XcharVal { which, data };
    let bad = refused(&|config| config.registered.put(bad.clone()));
    assert!(matches!(bad, ConfigError::Value(_)), "{bad}");
    let data = vec![0; 1000];
    let long = XcharVal { which, data };
    let long = refused(&|config| config.registered.put(long.clone()));
    assert!(
        matches!(long, ConfigError::TooLong(bytes) if bytes > 1024),
        "{long}"
    );
}
