//! Receives that become larger.

use super::*;

#[test]
fn new_receives_are_larger_at_once_and_the_peer_hears_when_the_old_are_gone() {
    let mut pair = Pair::open(|_| {});
    let client = &mut pair.client;
    assert_eq!(client.raise_receive_size(size(16_384)), Ok(()));
    assert_eq!(client.receive_size(), 16_384);
    assert!(client.awaits_receives());
    client.handle_old_receives_gone(4096);
    assert_eq!(next(client), None);
    client.handle_old_receives_gone(16_384);
    assert!(!client.awaits_receives());
    let now = receives(16_384);
    let pendclr = false;
    assert_eq!(update(client), UpdXch { now, pendclr });
}

#[test]
fn replies_count_on_a_larger_size_only_when_the_peer_took_note() {
    let mut pair = Pair::open(|config| config.receive_size = size(4096));
    let Pair { client, server, .. } = &mut pair;
    server.raise_receive_size(size(8192)).expect("it may");
    client.raise_receive_size(size(8192)).expect("it may");
    server.handle_old_receives_gone(8192);
    client.handle_old_receives_gone(8192);
    deliver(next(server).expect("an update"), client);
    deliver(next(client).expect("an update"), server);
    assert_eq!((client.reply_limit(), server.send_limit()), (4096, 8192));
    // The answer to a later request shows that the update has arrived.
    let (xid, asked) = operation(client);
    assert!(matches!(&asked, Operation::ReqXch(request) if request.want.is_empty()));
    assert_eq!(client.outstanding(), 2);
    respond(client, xid, &[]);
    assert_eq!((client.reply_limit(), client.outstanding()), (8192, 0));
}

#[test]
fn peer_that_knows_no_updates_is_not_told_again() {
    let mut pair = Pair::open(|_| {});
    let client = &mut pair.client;
    client.raise_receive_size(size(8192)).expect("it may");
    client.handle_old_receives_gone(8192);
    let (xid, _) = optional(client);
    assert!(client.handle_error(xid, RdmaError::InvalOption));
    assert_eq!(client.own::<ReceiveBufferSize>(), size(4096));
    let raised = client.raise_receive_size(size(16_384));
    assert_eq!(raised, Err(RaiseError::NotTold));
    assert_eq!(client.tell(queue(32)), Err(TellError::NotTold));
    assert_eq!(next(client), None);
}

#[test]
fn only_two_updates_go_out_if_nothing_can_show_that_they_arrived() {
    let mut pair = Pair::open(|config| config.supported = Supported::InitUpdXch);
    let client = &mut pair.client;
    for raised in [5000, 6000] {
        client.raise_receive_size(size(raised)).expect("it may");
        client.handle_old_receives_gone(raised as usize);
        assert!(next(client).is_some());
    }
    assert_eq!(client.outstanding(), MAX_CONTROL_MESSAGES);
    let raised = client.raise_receive_size(size(7000));
    assert_eq!(raised, Err(RaiseError::NotTold));
    assert_eq!(client.receive_size(), 6000);
    assert_eq!(client.tell(queue(32)), Err(TellError::NotTold));
}

#[test]
fn change_that_was_taken_is_told_where_few_can_be() {
    let mut pair = Pair::open(|config| config.supported = Supported::InitUpdXch);
    let client = &mut pair.client;
    client.raise_receive_size(size(8192)).expect("it may");
    client.tell(queue(32)).expect("it may");
    // Another step, and another value, of what is to be told.
    client.raise_receive_size(size(16_384)).expect("it may");
    client.tell(queue(64)).expect("it may");
    client.handle_old_receives_gone(8192);
    assert_eq!(update(client).now, queue(64));
    assert_eq!(next(client), None);
    client.handle_old_receives_gone(16_384);
    assert_eq!(update(client).now, receives(16_384));
}

#[test]
fn requested_raise_is_told_in_steps_of_which_the_last_ends_it() {
    let mut pair = Pair::open(|_| {});
    let client = &mut pair.client;
    client.raise_receive_size(size(8192)).expect("it may");
    request(client, &[receives(32_768)]);
    assert!(response(client).pending.contains(0));
    assert_eq!(client.receive_size(), 32_768);
    client.handle_old_receives_gone(8192);
    assert_eq!(
        update(client),
        UpdXch {
            now: receives(8192),
            pendclr: false
        }
    );
    respond(client, 7, &[]);
    client.handle_old_receives_gone(32_768);
    let (xid, _) = operation(client);
    respond(client, xid, &[]);
    assert_eq!(
        update(client),
        UpdXch {
            now: receives(32_768),
            pendclr: true
        }
    );
}

#[test]
fn request_beyond_the_largest_is_granted_in_part() {
    let mut pair = Pair::open(|_| {});
    let wanted = receives(1 << 20);
    pair.server
        .request_peer(vec![wanted.clone()])
        .expect("it may");
    pair.drive();
    let outcome = Settled::Partly(receives(65_536));
    assert!(events(&mut pair.server).contains(&settled(wanted.clone(), outcome)));
    pair.server
        .request_peer(vec![wanted.clone()])
        .expect("it may");
    pair.drive();
    assert_eq!(
        events(&mut pair.server),
        [settled(wanted, Settled::Rejected)]
    );
    // No more is sent than we ever send.
    assert_eq!(pair.server.send_limit(), 65_536);
}

#[test]
fn size_is_neither_lowered_unasked_nor_raised_beyond_the_largest() {
    let mut pair = Pair::open(|config| config.receive_size = size(8192));
    let client = &mut pair.client;
    let check = |client: &mut Session, to, expected| {
        assert_eq!(client.raise_receive_size(size(to)), Err(expected));
    };
    let now = size(8192);
    check(client, 4096, RaiseError::Smaller { now });
    let most = size(65_536);
    check(client, 65_537, RaiseError::TooLarge { most });
    request(client, &[receives(4096)]);
    check(client, 16_384, RaiseError::BeingLowered);
    assert!(next(client).is_some());
    let fixed = Pair::open(|config| config.supported = Supported::InitXch);
    let mut client = fixed.client;
    check(&mut client, 16_384, RaiseError::Unsupported);
}

#[test]
fn receives_that_were_larger_for_a_while_promise_no_more_than_the_next_ones() {
    let mut pair = Pair::open(|_| {});
    let client = &mut pair.client;
    client.raise_receive_size(size(65_536)).expect("it may");
    request(client, &[receives(5000)]);
    assert!(response(client).pending.contains(0));
    // All that are posted are from before the request. From now on they have 5000 bytes.
    client.handle_old_receives_gone(65_536);
    client.raise_receive_size(size(6000)).expect("it may");
    let now = receives(5000);
    let pendclr = true;
    assert_eq!(update(client), UpdXch { now, pendclr });
}
