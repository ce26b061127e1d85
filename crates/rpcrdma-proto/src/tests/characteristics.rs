//! Effect of the characteristics that the two ends of a connection of version two announce.

use super::pair::{Pair, Setup};
use super::*;
use crate::v2::characteristics::{
    BackwardSupport, ReceiveBufferSize, ReceiveSize, RequesterRemoteInvalidation, XcharVal,
};
use crate::v2::operations::Supported;
use crate::v2::session::{Event, Settled};
use crate::{Characteristics, InlineThreshold, Version, Violation};
use oncrpc::{Reply, TransportError};

/// Two ends that speak version two.
fn setup() -> Setup {
    let mut setup = Setup::default();
    setup.client.versions = Versions::Two;
    setup.server.versions = Versions::Two;
    setup
}

fn kib(kib: usize) -> InlineThreshold {
    InlineThreshold::at_most(kib << 10)
}

fn size(bytes: u32) -> ReceiveSize {
    ReceiveSize::new(bytes).expect("no less than the least")
}

fn receives(bytes: u32) -> Vec<XcharVal> {
    vec![XcharVal::of::<ReceiveBufferSize>(&size(bytes))]
}

/// So many calls, one after the other, each with a reply of its size.
fn exchange(pair: &mut Pair, many: u32, fixed: usize) {
    for xid in 0..many {
        pair.call(request(xid, call(xid, fixed, &[]), bound(fixed + 12, &[])));
        let (id, message) = pair.arrived();
        assert_eq!(stream(&message), stream(&call(xid, fixed, &[])));
        pair.answer(id, Reply::Message(reply(xid, fixed, &[])));
        check_reply(&pair.ended().expect("a reply"), xid, fixed, &[]);
    }
    pair.drive();
    pair.check_idle();
}

/// Read chunks and Reply chunks that the client has offered.
fn chunks(pair: &Pair) -> (u64, u64) {
    let counters = pair.client.connection.counters();
    (counters.read_chunks_offered, counters.reply_chunks_offered)
}

#[test]
fn each_end_sends_what_the_other_receives_and_no_more_than_its_own_largest() {
    let sizes = |client: usize, server: usize| {
        let mut setup = setup();
        setup.client.own.receive = kib(client);
        setup.server.own.receive = kib(server);
        let mut pair = Pair::with(setup);
        pair.drive();
        let ends = [&pair.client, &pair.server].map(|end| end.connection.thresholds());
        (
            ends.map(|e| e.send.bytes() >> 10),
            ends.map(|e| e.receive.bytes() >> 10),
        )
    };
    assert_eq!(sizes(4, 4), ([4, 4], [4, 4]));
    assert_eq!(sizes(1, 1), ([4, 4], [4, 4]));
    assert_eq!(sizes(8, 16), ([8, 8], [8, 8]));
    assert_eq!(sizes(64, 16), ([16, 16], [16, 16]));
}

#[test]
fn raised_size_makes_a_long_call_short_and_its_reply_too() {
    let mut setup = setup();
    setup.client.own.receive = kib(16);
    setup.server.characteristics.raise_to = kib(16);
    let mut pair = Pair::with(setup);
    exchange(&mut pair, 1, 9000);
    assert_eq!(chunks(&pair), (1, 1));
    // Those Receives are used up that were posted when nobody knew what would be spoken.
    exchange(&mut pair, 20, 10);
    let before = chunks(&pair);
    exchange(&mut pair, 3, 9000);
    assert_eq!(chunks(&pair), before);
    let server = pair.server.connection.session().expect("version two");
    assert_eq!(server.own::<ReceiveBufferSize>(), size(16384));
}

#[test]
fn server_asks_for_larger_receives_of_its_client_and_for_smaller_ones() {
    let mut setup = setup();
    setup.client.characteristics.largest = kib(32);
    setup.server.own.receive = kib(32);
    let mut pair = Pair::with(setup);
    pair.drive();
    for bytes in [32768, 8192, 16384, 4096] {
        let asked = pair.server.connection.request_peer(receives(bytes));
        assert_eq!(asked, Ok(()));
        exchange(&mut pair, 40, 20_000);
        let event = pair.server.connection.poll_characteristics();
        let done = |event: &Event| {
            matches!(
                event,
                Event::Settled {
                    outcome: Settled::Done,
                    ..
                }
            )
        };
        assert!(event.as_ref().is_some_and(done), "{bytes} {event:?}");
        assert_eq!(
            pair.server.connection.thresholds().send.bytes(),
            bytes as usize
        );
        while pair.server.connection.poll_characteristics().is_some() {}
    }
}

#[test]
fn size_that_the_client_cannot_have_is_rejected_and_nothing_changes() {
    let mut setup = setup();
    setup.client.characteristics.supported = Supported::InitRespXch;
    let mut pair = Pair::with(setup);
    pair.drive();
    let refused = pair.server.connection.request_peer(receives(65536));
    assert!(refused.is_err(), "it was said not to change");
    exchange(&mut pair, 5, 3000);
    assert_eq!(pair.server.connection.thresholds().send.bytes(), 4096);
}

/// Calls of the server with arguments and results of these sizes.
fn call_back(pair: &mut Pair, args: usize, results: usize) -> Result<(), TransportError> {
    pair.client_is_ready();
    pair.call_back(request(9, call(9, 40, &[args]), bound(100, &[results])));
    pair.drive();
    if !pair.back.calls.is_empty() {
        let (id, message) = pair.arrived_back();
        assert_eq!(stream(&message), stream(&call(9, 40, &[args])));
        pair.answer_back(id, Reply::Message(reply(9, 40, &[results])));
    }
    let received = pair.ended_back()?;
    check_reply(&received, 9, 40, &[results]);
    pair.check_idle();
    Ok(())
}

#[test]
fn client_is_called_as_it_has_said() {
    let called = |backward, args, results| {
        let mut setup = setup();
        setup.client.characteristics.backward = backward;
        setup.server.characteristics.backward = BackwardSupport::General;
        let mut pair = Pair::with(setup);
        exchange(&mut pair, 1, 10);
        call_back(&mut pair, args, results)
    };
    assert_eq!(called(BackwardSupport::Inline, 500, 500), Ok(()));
    let large = called(BackwardSupport::Inline, 100_000, 0);
    assert!(matches!(large, Err(TransportError::TooLarge { .. })));
    assert_eq!(called(BackwardSupport::General, 500, 500), Ok(()));
    assert_eq!(called(BackwardSupport::General, 100_000, 0), Ok(()));
    assert_eq!(called(BackwardSupport::General, 0, 100_000), Ok(()));
    let none = called(BackwardSupport::None, 10, 10);
    assert!(matches!(none, Err(TransportError::Refused(_))));
}

#[test]
fn handle_goes_with_a_reply_only_if_the_client_has_said_so() {
    let invalidated = |said: bool| {
        let mut setup = setup();
        setup.client.own.remote_invalidation = said;
        let mut pair = Pair::with(setup);
        exchange(&mut pair, 1, 9000);
        let server = pair.server.connection.session().expect("version two");
        assert_eq!(server.peer::<RequesterRemoteInvalidation>(), said);
        pair.client.connection.counters().remote_invalidations
    };
    assert_eq!((invalidated(true), invalidated(false)), (1, 0));
}

#[test]
fn whatever_operations_are_missing_calls_go_on() {
    for client in Supported::ALL {
        for server in Supported::ALL {
            let mut setup = setup();
            setup.client.characteristics.supported = client;
            setup.server.characteristics.supported = server;
            setup.client.characteristics.raise_to = kib(16);
            setup.server.characteristics.raise_to = kib(16);
            let mut pair = Pair::with(setup);
            pair.drive();
            assert_eq!(pair.client.connection.version(), Some(Version::Two));
            // It is asked whatever comes of it.
            let _ = pair.server.connection.request_peer(receives(8192));
            let _ = pair.client.connection.request_peer(receives(8192));
            exchange(&mut pair, 30, 9000);
        }
    }
}

#[test]
fn first_message_counts_for_both_sizes_of_its_sender() {
    let said = Characteristics {
        raise_to: kib(64),
        largest: kib(256),
        ..Characteristics::default()
    };
    let mut setup = setup();
    for end in [&mut setup.client, &mut setup.server] {
        end.characteristics = said.clone();
        end.own.receive = kib(2);
    }
    let mut pair = Pair::with(setup);
    pair.drive();
    let size = |pair: &Pair| pair.client.connection.thresholds().send.bytes();
    assert_eq!(size(&pair), 4096);
    exchange(&mut pair, 30, 3000);
    assert_eq!(size(&pair), 65536);
    let raised = pair
        .client
        .connection
        .raise_receive_size(ReceiveSize::new(262_144).unwrap());
    assert_eq!(raised, Ok(()));
    exchange(&mut pair, 30, 3000);
    assert_eq!(pair.server.connection.thresholds().send.bytes(), 262_144);
    assert_eq!(pair.server.connection.violation(), None::<Violation>);
}
