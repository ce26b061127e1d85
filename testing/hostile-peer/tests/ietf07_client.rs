//! Hostile servers of ietf-07, and how a client reacts.

use hostile_peer::ietf07::{error, grant, htype, message, properties, property};
use hostile_peer::{Cause, Counting, Victim, header, rpc, words};

const CANNOT_INVALIDATE: Cause = Cause(0, 1, 9);

/// The next call of the client: its XID.
#[track_caller]
fn called(server: &mut Counting) -> u32 {
    let call = server.answer();
    assert_eq!(call[3], htype::CALL_INLINE, "{call:x?}");
    call[0]
}

/// Octets of the reply to an ECHO of four octets.
fn echoed(xid: u32) -> Vec<u32> {
    rpc::accepted(xid, 0, &[4, u32::from_be_bytes(*b"four")])
}

/// A reply in one message, or the last part of one.
fn reply(xid: u32, stream: &[u32]) -> Vec<u32> {
    message(xid, htype::REPLY_INLINE, &[&[0], stream].concat())
}

/// A part of a reply.
fn part(xid: u32, remaining: u32, stream: &[u32]) -> Vec<u32> {
    message(xid, htype::REPLY_MIDDLE, &[&[remaining], stream].concat())
}

/// Asserts that the connection still works.
#[track_caller]
fn assert_goes_on(client: &Victim, server: &mut Counting) {
    let calling = client.echo(b"four");
    let xid = called(server);
    server.send(&reply(xid, &echoed(xid)));
    client.outcome(calling).expect("a reply");
}

fn connected() -> (Victim, Counting) {
    Victim::of_ietf07(|_, _| ())
}

/// These messages, in answer to a call, make it fail, and the connection goes on.
#[track_caller]
fn fails(messages: impl FnOnce(u32) -> Vec<Vec<u32>>) {
    let (client, mut server) = connected();
    let calling = client.echo(b"four");
    let xid = called(&mut server);
    for message in messages(xid) {
        server.send(&message);
    }
    let outcome = client.outcome(calling);
    assert!(outcome.is_err(), "it is taken for a reply");
    assert_goes_on(&client, &mut server);
}

/// These messages, before the reply to a call, change nothing.
#[track_caller]
fn discards(messages: impl FnOnce(u32) -> Vec<Vec<u32>>) {
    let (client, mut server) = connected();
    let calling = client.echo(b"four");
    let xid = called(&mut server);
    for message in messages(xid) {
        server.send(&message);
    }
    server.send(&reply(xid, &echoed(xid)));
    client.outcome(calling).expect("a reply");
    assert_goes_on(&client, &mut server);
}

#[test]
fn parts_of_a_reply_that_contradict_each_other_end_the_call_and_nothing_else() {
    // As much remains as before; more than fits; nothing; another reply comes between.
    fails(|xid| {
        let stream = echoed(xid);
        vec![
            part(xid, 24, &stream[..2]),
            part(xid, 24, &stream[2..4]),
            reply(xid, &stream[4..]),
        ]
    });
    for remaining in [u32::MAX, 1 << 31, 65_536, 4, 0] {
        fails(|xid| {
            let stream = echoed(xid);
            vec![part(xid, remaining, &stream[..2]), reply(xid, &stream[2..])]
        });
    }
    fails(|xid| {
        let stream = echoed(xid);
        let other = xid ^ 0x4000_0000;
        vec![
            part(xid, 24, &stream[..2]),
            reply(other, &echoed(other)),
            reply(xid, &stream[2..]),
        ]
    });
    fails(|xid| vec![part(xid, 32, &[])]);
}

#[test]
fn parts_without_an_end_are_given_up_with_the_first() {
    fails(|xid| {
        let first = part(xid, u32::MAX, &echoed(xid));
        let more = (1..2000).map(|at| part(xid, u32::MAX - 4 * at, &[7]));
        let last = reply(xid, &[7]);
        std::iter::once(first).chain(more).chain([last]).collect()
    });
}

#[test]
fn replies_in_the_smallest_parts_are_whole() {
    let (client, mut server) = connected();
    let calling = client.echo(b"four");
    let xid = called(&mut server);
    let stream = echoed(xid);
    for (at, word) in stream.iter().enumerate().take(stream.len() - 1) {
        let left = u32::try_from(4 * (stream.len() - 1 - at)).unwrap();
        server.send(&part(xid, left, &[*word]));
        // Credits may come between.
        server.send(&grant());
    }
    server.send(&reply(xid, &stream[stream.len() - 1..]));
    client.outcome(calling).expect("a reply");
    assert_goes_on(&client, &mut server);
}

#[test]
fn errors_without_their_arguments_and_unknown_ones_are_discarded() {
    discards(|xid| {
        let mut all = vec![message(xid, htype::ERROR, &[])];
        for code in [0, 12, 99, 101, u32::MAX] {
            all.push(message(xid, htype::ERROR, &[code, 0, 0]));
        }
        for code in [
            error::VERS,
            error::READ_CHUNKS,
            error::WRITE_CHUNKS,
            error::SEGMENTS,
            error::WRITE_RESOURCE,
            error::REPLY_RESOURCE,
        ] {
            all.push(message(xid, htype::ERROR, &[code]));
        }
        all.push(message(xid, htype::ERROR, &[error::VERS, 1]));
        all.push(message(xid, htype::ERROR, &[error::WRITE_RESOURCE, 1]));
        all
    });
}

#[test]
fn errors_with_arguments_at_their_limits_end_the_call_and_nothing_else() {
    for code in (error::BAD_XDR..=error::VERS_MISMATCH).chain([error::SYSTEM]) {
        for argument in [0, 1, u32::MAX] {
            let rest = [code, argument, argument];
            fails(|xid| vec![message(xid, htype::ERROR, &rest)]);
        }
    }
}

#[test]
fn handles_that_were_not_offered_end_the_connection_when_they_are_invalidated() {
    let (client, mut server) = connected();
    let calling = client.echo(b"four");
    let xid = called(&mut server);
    server.invalidate(&reply(xid, &echoed(xid)), 0x00c0_ffee);
    server.peer.drain_to_terminate(CANNOT_INVALIDATE);
    assert!(client.outcome(calling).is_err());
    client.assert_nothing_is_left();
}

#[test]
fn grants_are_not_answered_by_grants_without_end() {
    let (client, mut server) = connected();
    assert_goes_on(&client, &mut server);
    let before = server.grants;
    for _ in 0..10_000 {
        server.send(&grant());
    }
    assert_goes_on(&client, &mut server);
    let during = server.grants - before;
    assert!(during <= 10_000, "{during} grants for as many");
    let before = server.grants;
    for _ in 0..50 {
        assert_goes_on(&client, &mut server);
    }
    let later = server.grants - before;
    assert!(later <= 50, "{later} grants for 50 replies");
}

#[test]
fn calls_wait_for_credits_of_any_size() {
    for window in [0, 1 << 31, u32::MAX] {
        let (client, mut server) = connected();
        server.window = window;
        // It takes away what there was.
        server.force(&grant());
        let calling = client.echo(b"four");
        server.window = 1000;
        server.force(&grant());
        let xid = called(&mut server);
        server.send(&reply(xid, &echoed(xid)));
        client.outcome(calling).expect("a reply");
    }
}

#[test]
fn properties_at_their_limits_leave_a_client_that_works() {
    for value in [0, 1, 19, 1023, 1 << 31, u32::MAX] {
        let all = [1, 2, 3, 4, 5].map(|which| (which, value));
        let (client, mut server) = Victim::of_ietf07(|server, _| {
            let said = message(1, htype::CONNPROP_MIDDLE, &properties(&all));
            server.force(&said);
        });
        // Without a single segment, calls with chunks fail; small ones need none.
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn property_lists_that_are_wrong_are_refused_and_the_defaults_hold() {
    let twice = properties(&[(property::RBSIZ, 8192); 2]);
    let refused: [(&[u32], u32); 5] = [
        (&[u32::MAX], error::BAD_XDR),
        (&[513], error::BAD_XDR),
        (&twice, error::BAD_PROPVAL),
        (&[1, property::RBSIZ, 2, 7], error::BAD_PROPVAL),
        (&[1, property::RBSIZ, u32::MAX, 7], error::BAD_PROPVAL),
    ];
    for (set, code) in refused {
        let (client, mut server) = Victim::of_ietf07(|server, _| {
            server.force(&message(9, htype::CONNPROP_FINAL, set));
        });
        let answer = server.answer();
        assert_eq!((answer[0], &answer[3..]), (9, &[htype::ERROR, code][..]));
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn messages_of_the_other_draft_change_nothing() {
    let one = |xid| rpc::msg(xid, 32, &echoed(xid));
    discards(|xid| {
        let said = header::optional(xid, 1, header::operation::INITXCH, &[0, 0]);
        vec![one(xid), said]
    });
    // A header type that there is not does not show that it is a reply, and is answered (ietf-07 §6.1).
    let (client, mut server) = connected();
    let calling = client.echo(b"four");
    let xid = called(&mut server);
    server.send(&header::Version::Two.reply(&one(xid)));
    let answer = server.answer();
    let expected = [htype::ERROR, error::INVAL_HTYPE];
    assert_eq!((answer[0], &answer[3..]), (xid, &expected[..]));
    server.send(&reply(xid, &echoed(xid)));
    client.outcome(calling).expect("a reply");
    assert_goes_on(&client, &mut server);
}

#[test]
fn other_answers_to_properties_are_named_or_not_waited_for() {
    // Half a header, a version that there is not: the properties behind it count.
    for odd in [&[7, 2, 9][..], &[7, 3, 9, htype::CONNPROP_FINAL, 0]] {
        let (client, mut server) = Victim::of_ietf07(|server, _| {
            server.peer.send(&words(odd));
        });
        assert_goes_on(&client, &mut server);
    }
}
