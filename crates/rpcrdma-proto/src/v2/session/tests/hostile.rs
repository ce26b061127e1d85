//! Messages that are not as they should be, and what is inferred from others.

use super::*;

#[test]
fn malformed_call_draws_bad_header_and_has_no_effect() {
    let mut pair = Pair::open(|_| {});
    let client = &mut pair.client;
    let mut bad = queue(4);
    bad.data.pop();
    request(client, &[receives(8192), bad]);
    let error = RdmaError::BadHeader;
    assert_eq!(next(client), Some(Message::Error { xid: 40, error }));
    assert_eq!(client.receive_size(), 4096);
    assert_eq!(client.poll_event(), None);
    // An RPC message behind it, too (xcharext §4).
    let (_, optional) = optional(&mut Pair::with(|_| {}).client);
    client.handle_optional(4, &optional, &[0; 4]);
    assert_eq!(next(client), Some(Message::Error { xid: 4, error }));
}

#[test]
fn unsupported_call_draws_inval_option() {
    let mut pair = Pair::with(|config| config.supported = Supported::InitUpdXch);
    request(&mut pair.server, &[receives(8192)]);
    let error = RdmaError::InvalOption;
    assert_eq!(
        next(&mut pair.server),
        Some(Message::Error { xid: 40, error })
    );
    let unknown = Optional {
        direction: Direction::Call,
        operation: 5,
        info: Vec::new(),
    };
    pair.server.handle_optional(8, &unknown, &[]);
    assert_eq!(
        next(&mut pair.server),
        Some(Message::Error { xid: 8, error })
    );
}

#[test]
fn replies_are_never_answered() {
    let mut pair = Pair::open(|_| {});
    let server = &mut pair.server;
    for operation in 0..6 {
        for info in [Vec::new(), vec![0; 12], vec![0xff; 12]] {
            let direction = Direction::Reply;
            let reply = Optional {
                direction,
                operation,
                info,
            };
            server.handle_optional(5, &reply, &[]);
            assert_eq!(next(server), None, "{reply:?}");
        }
    }
    assert!(!server.handle_error(5, RdmaError::BadHeader));
    assert_eq!(next(server), None);
}

#[test]
fn peer_that_does_not_wait_for_answers_is_cut_off() {
    let mut pair = Pair::open(|_| {});
    for _ in 0..CONTROL_RECEIVES {
        request(&mut pair.server, &[]);
        assert!(!pair.server.is_flooded());
    }
    request(&mut pair.server, &[]);
    assert!(pair.server.is_flooded());
    request(&mut pair.server, &[]);
    // It is told what became of the one that was too many.
    for _ in 0..CONTROL_RECEIVES {
        response(&mut pair.server);
    }
    let error = RdmaError::BadHeader;
    assert_eq!(
        next(&mut pair.server),
        Some(Message::Error { xid: 40, error })
    );
    assert_eq!(next(&mut pair.server), None);
}

#[test]
fn level_of_a_server_is_what_its_requests_show() {
    let mut client = Pair::open(|config| config.backward = BackwardSupport::General).client;
    assert_eq!(client.backward(), BackwardSupport::Inline);
    client.handle_backward_call(false);
    assert_eq!(client.backward(), BackwardSupport::Inline);
    client.handle_backward_call(true);
    client.handle_backward_call(false);
    assert_eq!(client.backward(), BackwardSupport::General);
}

#[test]
fn server_calls_back_with_what_both_can() {
    for (ours, theirs) in [
        (BackwardSupport::General, BackwardSupport::None),
        (BackwardSupport::Inline, BackwardSupport::General),
        (BackwardSupport::General, BackwardSupport::General),
    ] {
        let server = Pair::open(|config| {
            config.backward = match config.role {
                Role::Client => theirs,
                Role::Server => ours,
            }
        });
        assert_eq!(server.server.backward(), ours.min(theirs));
    }
}

#[test]
fn what_never_changes_is_not_changed_by_an_update_though_nochg_left_it_out() {
    let mut session = Session::new(config(Role::Server)).expect("it is in order");
    let init = InitXch::default().with::<RequesterRemoteInvalidation>(&false);
    let init = InitXch {
        nochg: Default::default(),
        ..init
    };
    say(&mut session, 1, Direction::Call, Operation::InitXch(init));
    let now = XcharVal::of::<RequesterRemoteInvalidation>(&true);
    let pendclr = false;
    let update = UpdXch { now, pendclr };
    say(&mut session, 2, Direction::Call, Operation::UpdXch(update));
    assert!(!session.peer::<RequesterRemoteInvalidation>());
}

#[test]
fn peer_that_updates_a_characteristic_announces_them_although_its_first_message_named_none() {
    let mut session = Session::new(config(Role::Client)).expect("it is in order");
    let init = InitXch::default();
    say(&mut session, 1, Direction::Call, Operation::InitXch(init));
    assert!(!session.peer_names_characteristics());
    let no = XcharVal::of::<RequesterRemoteInvalidation>(&false);
    tell(&mut session, no, false);
    assert!(session.peer_names_characteristics() && !session.peer_allows_invalidation());
}

#[test]
fn what_is_withdrawn_counts_although_it_was_not_to_change() {
    for fixed in [true, false] {
        let mut session = Session::new(config(Role::Client)).expect("it is in order");
        let mut init = InitXch::default()
            .with::<RequesterRemoteInvalidation>(&true)
            .with::<BackwardRequestSupport>(&BackwardSupport::General)
            .with::<ReceiveBufferSize>(&size(8192));
        init.nochg.insert(2);
        if !fixed {
            init.nochg = Default::default();
        }
        say(&mut session, 1, Direction::Call, Operation::InitXch(init));
        session.handle_backward_call(true);
        let said = |session: &Session| {
            (
                session.peer::<RequesterRemoteInvalidation>(),
                session.peer::<BackwardRequestSupport>(),
                session.peer::<ReceiveBufferSize>().bytes(),
            )
        };
        let values = |invalidation: bool, backward: BackwardSupport, receives: u32| {
            [
                XcharVal::of::<RequesterRemoteInvalidation>(&invalidation),
                XcharVal::of::<BackwardRequestSupport>(&backward),
                XcharVal::of::<ReceiveBufferSize>(&size(receives)),
            ]
        };
        for value in values(false, BackwardSupport::Inline, 4096) {
            let changed = Event::PeerChanged(value.which);
            tell(&mut session, value, false);
            assert!(events(&mut session).contains(&changed));
        }
        assert_eq!(said(&session), (false, BackwardSupport::Inline, 4096));
        // Calls with chunks have shown more, before.
        assert_eq!(session.peer.shown_backward(), None);
        // What is given again need not be used, and is not; a size that may change is.
        for value in values(true, BackwardSupport::General, 16_384) {
            tell(&mut session, value, false);
        }
        let receives = if fixed { 4096 } else { 16_384 };
        assert_eq!(said(&session), (false, BackwardSupport::Inline, receives));
    }
}

#[test]
fn change_that_was_asked_for_ends_the_request_whatever_it_is() {
    let mut session = Session::new(config(Role::Server)).expect("it is in order");
    let mut init = InitXch::default().with::<RequesterRemoteInvalidation>(&false);
    init.nochg = Default::default();
    say(&mut session, 1, Direction::Call, Operation::InitXch(init));
    let wanted = XcharVal::of::<RequesterRemoteInvalidation>(&true);
    assert_eq!(session.request_peer(vec![wanted.clone()]), Ok(()));
    assert!(matches!(
        operation(&mut session),
        (1, Operation::InitXch(_))
    ));
    let (xid, _) = operation(&mut session);
    respond(&mut session, xid, &[Outcome::Pending]);
    tell(&mut session, wanted.clone(), true);
    assert!(events(&mut session).contains(&settled(wanted, Settled::Done)));
    assert!(session.peer::<RequesterRemoteInvalidation>());
}
