//! Hostile servers of version two (cel-01, xcharext), and how a client reacts.

use hostile_peer::header::characteristic::{BRS, DESIGNS, RBSIZ, REQREMINV};
use hostile_peer::header::direction::{CALL, REPLY};
use hostile_peer::header::error::{HEADER as BAD_HEADER, INVAL_OPTION};
use hostile_peer::header::operation::{INITXCH, REQXCH, RESPXCH, UPDXCH};
use hostile_peer::header::procedure::{ERROR, MSG, NOMSG, OPTIONAL};
use hostile_peer::header::{initial, optional, specification, update};
use hostile_peer::{
    Cause, Heard, Offered, PROGRAM, Peer, Scene, Segment, Version, Victim, assert_goes_on,
    offer_to, offering, opcode, procedure, rpc, words,
};
use oncrpc::{Chain, TransportError};
use rpcrdma::Versions;
use std::time::{Duration, Instant};

const NO_BUFFER: Cause = Cause(1, 2, 2);
const CANNOT_INVALIDATE: Cause = Cause(0, 1, 9);

/// A good answer to an offer.
fn answer(offer: u32) -> Vec<u8> {
    let said = initial(&[(RBSIZ, 4096)], &[]);
    words(&optional(offer, REPLY, INITXCH, &said))
}

/// A call of the server, of its program or another.
fn backward(xid: u32, lists: &[u32], stream: &[u32]) -> Vec<u8> {
    words(&[&[xid, 2, 32, MSG, CALL], lists, stream].concat())
}

#[test]
fn invalid_answers_to_initxch_are_discarded() {
    let nonsense: &[fn(u32) -> Vec<u32>] = &[
        |_| Vec::new(),
        |xid| vec![xid, 2, 32],
        |xid| optional(xid ^ 1, REPLY, INITXCH, &[1]),
        |xid| optional(xid ^ 1, REPLY, RESPXCH, &[0, 0, 0]),
        |xid| optional(xid, CALL, REQXCH, &[0]),
        |xid| optional(xid, 2, INITXCH, &[0, 0]),
        |xid| vec![xid ^ 1, 2, 32, ERROR, BAD_HEADER],
        |xid| vec![xid ^ 1, 2, 32, ERROR, 1, 1, 1],
        |xid| vec![xid, 2, 32, ERROR, 1, 1],
        |xid| vec![xid ^ 1, 2, 32, ERROR, 77],
        |xid| vec![xid, 3, 32, MSG, REPLY, 0, 0, 0],
        |xid| {
            [
                &[xid, 2, 32, MSG, REPLY, 0, 0, 0],
                &rpc::accepted(xid, 0, &[])[..],
            ]
            .concat()
        },
        |xid| rpc::msg(xid, 32, &rpc::accepted(xid, 0, &[])),
        |xid| rpc::msg(xid, 32, &rpc::call(xid, PROGRAM, 2, 0)),
    ];
    for make in nonsense {
        let (client, mut server) = Victim::offering(offering(Versions::Two), |server, offer| {
            server.send(&words(&make(offer[0])));
            server.send(&answer(offer[0]));
        });
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn server_that_introduces_itself_need_not_answer() {
    for direction in [CALL, REPLY] {
        let (client, mut server) = Victim::offering(offering(Versions::Auto), |server, offer| {
            let said = initial(&[(RBSIZ, 4096)], &[]);
            server.send(&words(&optional(offer[0] ^ 1, direction, INITXCH, &said)));
            if direction == CALL {
                let answer = server.answer();
                assert_eq!(answer[0], offer[0] ^ 1);
                assert_eq!(answer[3..6], [OPTIONAL, REPLY, INITXCH]);
            }
        });
        assert_goes_on(&client, &mut server);
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn other_drafts_of_version_two_are_named_and_not_waited_for() {
    type Answer = fn(u32) -> Vec<u32>;
    let drafts: &[(Answer, &str)] = &[
        (|_| vec![0, 2, 128, 7, 0], "header type 7 of cel-03"),
        (
            |xid| vec![xid, 2, 128, 10, 0, 0],
            "header type 10 of ietf-03",
        ),
        (|xid| vec![xid, 2, 32, ERROR, 9], "error code 9 of cel-04"),
        (|xid| vec![xid, 2, 32, ERROR, 77], "which no draft has"),
    ];
    for &(make, expected) in drafts {
        let error = offer_to(offering(Versions::Two), |server, offer| {
            server.send(&words(&make(offer[0])));
            server.drain();
        });
        let said = Chain(&error).to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn unusable_answers_to_initxch_leave_the_defaults() {
    // It cannot be read, says what is none of it, is no INITXCH, or is an error of version two.
    let answers: &[fn(u32) -> Vec<u32>] = &[
        |xid| optional(xid, REPLY, INITXCH, &[]),
        |xid| optional(xid, REPLY, INITXCH, &initial(&[(RBSIZ, 1023)], &[])),
        |xid| optional(xid, REPLY, INITXCH, &initial(&[(RBSIZ, 8192); 2], &[])),
        |xid| optional(xid, REPLY, INITXCH, &[1, RBSIZ, 4000, 0]),
        |xid| vec![xid, 2, 32, OPTIONAL, REPLY, INITXCH, 4000, 0],
        |xid| optional(xid, REPLY, 77, &[]),
        |xid| vec![xid, 2, 32, MSG, REPLY, 7, 0, 0, 0],
        |xid| vec![xid, 2, 32, ERROR, BAD_HEADER],
        |xid| vec![xid, 2, 32, ERROR, INVAL_OPTION],
    ];
    for make in answers {
        let (client, mut server) = Victim::offering(offering(Versions::Two), |server, offer| {
            server.send(&words(&make(offer[0])));
        });
        assert_goes_on(&client, &mut server);
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn version_ranges_without_a_supported_version_end_the_connection() {
    for (versions, ranges) in [
        (
            Versions::Auto,
            &[(2, 2), (3, 7), (7, 3), (2, 1), (0, 0)][..],
        ),
        (Versions::Two, &[(1, 1), (1, 2), (0, u32::MAX)]),
    ] {
        for &(low, high) in ranges {
            for version in [1, 2] {
                let error = offer_to(offering(versions), |server, offer| {
                    server.send(&words(&[offer[0], version, 32, ERROR, 1, low, high]));
                    server.drain();
                });
                let said = format!("supports versions {low} to {high}");
                assert!(Chain(&error).to_string().contains(&said), "{error}");
            }
        }
    }
}

#[test]
fn version_ranges_with_version_one_are_used_on_this_connection() {
    for (low, high) in [(1, 1), (1, 2), (0, u32::MAX)] {
        let (client, mut server) = Victim::offering(offering(Versions::Auto), |server, offer| {
            server.send(&words(&[offer[0], 2, 32, ERROR, 1, low, high]));
        });
        assert_goes_on(&client, &mut server);
        // Version two is not spoken any more.
        server.send(&answer(7));
        assert_goes_on(&client, &mut server);
    }
}

#[test]
fn unanswered_initxch_times_out() {
    let limit = Duration::from_millis(300);
    let config = || offering(Versions::Two).with_version_timeout(limit);
    let given_up = |serve: fn(&mut Peer, u32)| {
        let began = Instant::now();
        let error = offer_to(config(), |server, offer| {
            serve(server, offer[0]);
            server.drain();
        });
        assert!(began.elapsed() >= limit);
        assert!(
            Chain(&error).to_string().contains("not answered within"),
            "{error}"
        );
    };
    given_up(|_, _| {});
    // Half an answer; and what is none of it, one after the other.
    given_up(|server, offer| {
        let sequence = server.next(0);
        let half = Segment::untagged(opcode::SEND, 0, [0, sequence, 0], &answer(offer)[..20]);
        server.segment(&half.not_last());
    });
    given_up(|server, offer| {
        while !server.has_ended(Duration::from_millis(20)) {
            server.send(&words(&[offer ^ 1, 2, 32, ERROR, BAD_HEADER]));
        }
    });
}

#[test]
fn flood_before_the_answer_ends_the_connection() {
    let error = offer_to(offering(Versions::Two), |server, offer| {
        let mut flood = Vec::new();
        let error = words(&[offer[0] ^ 1, 2, 32, ERROR, BAD_HEADER]);
        for _ in 0..500 {
            let sequence = server.next(0);
            let segment = Segment::untagged(opcode::SEND, 0, [0, sequence, 0], &error);
            flood.extend(server.framed(&segment.emit()));
        }
        server.bytes(&flood);
        server.assert_terminated(NO_BUFFER);
    });
    assert!(Chain(&error).to_string().contains("version"), "{error}");
}

#[test]
fn nothing_can_be_invalidated_before_there_is_a_call() {
    offer_to(offering(Versions::Two), |server, offer| {
        server.send_and_invalidate(&answer(offer[0]), 0x100);
        server.assert_terminated(CANNOT_INVALIDATE);
    });
}

#[test]
fn credits_of_the_answer_are_within_one_and_what_was_asked() {
    for (granted, calls) in [(0, 1), (1, 1), (2, 2), (u32::MAX, 4)] {
        let (client, mut server) = Victim::offering(offering(Versions::Two), |server, offer| {
            let mut answer = optional(offer[0], REPLY, INITXCH, &initial(&[], &[]));
            answer[2] = granted;
            server.send(&words(&answer));
        });
        let calling: Vec<_> = (0..6).map(|_| client.echo(b"")).collect();
        let xids: Vec<_> = (0..calls).map(|_| server.answer()[0]).collect();
        assert!(!server.has_ended(Duration::from_millis(50)), "and no more");
        // Each reply grants one, so that the others come one by one.
        for xid in xids {
            let reply = rpc::msg(xid, 1, &rpc::accepted(xid, 0, &[0]));
            server.send(&words(&Version::Two.reply(&reply)));
        }
        for _ in calls..6 {
            let xid = server.answer()[0];
            let reply = rpc::msg(xid, 1, &rpc::accepted(xid, 0, &[0]));
            server.send(&words(&Version::Two.reply(&reply)));
        }
        for calling in calling {
            client.outcome(calling).expect("a reply");
        }
    }
}

#[test]
fn server_with_small_receives_is_sent_small_messages() {
    for (size, inline) in [(1024, false), (4096, true), (u32::MAX, true)] {
        let (client, mut server) = Victim::told(&initial(&[(RBSIZ, size)], &[1]));
        let calling = client.echo(&[5; 2000]);
        let call = server.answer();
        assert!(call.len() * 4 <= size as usize);
        let offered = Offered::parse(&call);
        assert_eq!(offered.reads.is_empty(), inline);
        server.send(&words(&[offered.xid, 2, 4, ERROR, BAD_HEADER]));
        assert!(client.outcome(calling).is_err());
        assert_goes_on(&client, &mut server);
    }
}

/// Asserts that the call is answered as it should be, and the next one too.
#[track_caller]
fn assert_unharmed(mut scene: Scene) {
    let reply = words(&scene.reply(0));
    scene.server.send(&reply);
    let (client, mut server) = scene.answered();
    assert_goes_on(&client, &mut server);
}

/// A call is on its way, and this is said meanwhile; what the client says to it.
#[track_caller]
fn meanwhile(message: &[u32], says: Option<&[u32]>) {
    let mut scene = Scene::of(Version::Two);
    scene.server.send(&words(message));
    if let Some(says) = says {
        let answer = scene.server.answer();
        assert_eq!(answer[..2], [message[0], 2]);
        assert_eq!(answer[3..3 + says.len()], *says, "{message:x?}");
    }
    assert_unharmed(scene);
}

const XID: u32 = 0x0bad_0001;

#[test]
fn operations_of_a_server_are_answered_and_harm_no_call() {
    let call = |operation, info: &[u32], says: &[u32]| {
        meanwhile(&optional(XID, CALL, operation, info), Some(says));
    };
    let init = [OPTIONAL, REPLY, INITXCH];
    call(INITXCH, &initial(&[(RBSIZ, 1024)], &[]), &init);
    let responds = [OPTIONAL, REPLY, RESPXCH];
    call(REQXCH, &[0], &[&responds[..], &[12, 0, 0, 0]].concat());
    let rejected = [&responds[..], &[16, 0, 1, 1, 0]].concat();
    let pending = [&responds[..], &[16, 0, 0, 1, 1]].concat();
    for (value, says) in [
        // Less than everybody takes; what is done only when calls are answered, and when Receives are
        // used up; what never changes, what was never said, and what nobody knows.
        ((RBSIZ, 4095), &rejected),
        ((RBSIZ, 4096), &pending),
        ((RBSIZ, u32::MAX), &pending),
        ((BRS, 2), &rejected),
        ((REQREMINV, 0), &rejected),
        ((DESIGNS, 4), &rejected),
        ((77, 0), &rejected),
    ] {
        call(REQXCH, &specification(&[value]), says);
    }
    let bad = [ERROR, BAD_HEADER];
    call(REQXCH, &specification(&[(RBSIZ, 1023)]), &bad);
    call(REQXCH, &specification(&[(RBSIZ, 8192); 2]), &bad);
    call(REQXCH, &[u32::MAX], &bad);
    call(REQXCH, &[1, RBSIZ, 4000, 0], &bad);
    call(INITXCH, &[1, RBSIZ, 4, 8192, 1], &bad);
    call(UPDXCH, &update(1023, false), &bad);
    call(UPDXCH, &[RBSIZ, 4, 8192, 2], &bad);
    call(RESPXCH, &[0, 0, 0], &bad);
    call(0, &[], &[ERROR, INVAL_OPTION]);
    call(77, &[1, 2, 3], &[ERROR, INVAL_OPTION]);
    // An RPC message behind an operation, and information that is longer than the message.
    let behind = [optional(XID, CALL, REQXCH, &[0]), vec![1, 2, 3]].concat();
    meanwhile(&behind, Some(&bad));
    let lie = [XID, 2, 32, OPTIONAL, CALL, REQXCH, 4000, 0];
    meanwhile(&lie, Some(&bad));
}

#[test]
fn unsolicited_messages_are_discarded() {
    for info in [&[0, 0, 0][..], &[1, 1, 1, 1, 1, 1], &[u32::MAX]] {
        meanwhile(&optional(XID, REPLY, RESPXCH, info), None);
    }
    meanwhile(
        &optional(XID, REPLY, INITXCH, &initial(&[(RBSIZ, 1024)], &[])),
        None,
    );
    meanwhile(&optional(XID, REPLY, REQXCH, &[0]), None);
    meanwhile(&optional(XID, REPLY, 77, &[]), None);
    meanwhile(&optional(XID, CALL, UPDXCH, &update(u32::MAX, true)), None);
    meanwhile(&optional(XID, REPLY, UPDXCH, &update(1024, false)), None);
    // Where it is not said which way it goes, a client has a reply.
    meanwhile(&[XID, 2, 32, 77, 0, 0, 0, 0], None);
    meanwhile(&[XID, 2, 32, OPTIONAL, 2, REQXCH, 4, 0], None);
    meanwhile(&[XID, 2, 32, MSG, 9, 0, 0, 0], None);
    for error in [
        &[BAD_HEADER][..],
        &[INVAL_OPTION],
        &[1, 1, 1],
        &[1, 7, 3],
        &[77],
    ] {
        meanwhile(&[&[XID, 2, 32, ERROR], error].concat(), None);
    }
}

#[test]
fn message_of_the_other_version_is_refused_if_it_is_a_call() {
    for (speaks, other) in [(Version::One, Version::Two), (Version::Two, Version::One)] {
        let mut scene = Scene::of(speaks);
        let call = rpc::msg(XID, 32, &rpc::call(XID, PROGRAM, 2, 0));
        scene.server.send(&words(&other.call(&call)));
        let (refused, spoken) = (other.number(), speaks.number());
        let answer = scene.server.answer();
        assert_eq!(answer[..2], [XID, refused]);
        assert_eq!(answer[3..], [ERROR, 1, spoken, spoken]);
        // A reply is not, though a call has its XID.
        let xid = scene.offered.xid;
        let reply = rpc::msg(xid, 32, &rpc::accepted(xid, 0, &[0]));
        scene.server.send(&words(&other.reply(&reply)));
        scene
            .server
            .send(&words(&[xid, refused, 32, ERROR, BAD_HEADER]));
        assert_unharmed(scene);
    }
}

#[test]
fn flood_of_operations_ends_the_connection_and_its_calls() {
    for operation in [
        optional(XID, CALL, REQXCH, &specification(&[(RBSIZ, u32::MAX)])),
        optional(XID, CALL, INITXCH, &initial(&[(RBSIZ, 4096)], &[])),
        optional(XID, CALL, UPDXCH, &update(4096, true)),
        optional(XID, CALL, 77, &[]),
        optional(XID, REPLY, RESPXCH, &[1, 1, 1, 1, 1, 1]),
        vec![XID, 2, 32, ERROR, 1, 7, 3],
    ] {
        let mut scene = Scene::of(Version::Two);
        let mut flood = Vec::new();
        for _ in 0..2000 {
            let sequence = scene.server.next(0);
            let segment = Segment::untagged(opcode::SEND, 0, [0, sequence, 0], &words(&operation));
            flood.extend(scene.server.framed(&segment.emit()));
        }
        scene.server.bytes(&flood);
        // Some may be answered before.
        while !matches!(scene.server.hear(), Heard::Terminate(_) | Heard::Closed) {}
        let Scene {
            client,
            server,
            calling,
            ..
        } = scene;
        drop(server);
        assert!(client.outcome(calling).is_err());
        client.assert_nothing_is_left();
    }
}

#[test]
fn each_change_of_the_receive_size_of_a_server_is_respected() {
    let (client, mut server) = Victim::told(&initial(&[(RBSIZ, 4096)], &[]));
    for (bytes, inline) in [(1024, false), (4096, true), (u32::MAX, true)].repeat(10) {
        server.send(&words(&optional(XID, CALL, UPDXCH, &update(bytes, true))));
        // What follows is taken in later.
        server.send(&words(&optional(XID, CALL, REQXCH, &[0])));
        assert_eq!(server.answer_to(XID)[4..6], [REPLY, RESPXCH]);
        let calling = client.echo(&[5; 2000]);
        let call = loop {
            let message = server.answer();
            if message[3] != OPTIONAL {
                break message;
            }
        };
        let offered = Offered::parse(&call);
        assert_eq!(offered.reads.is_empty(), inline);
        server.send(&words(&[offered.xid, 2, 4, ERROR, BAD_HEADER]));
        assert!(client.outcome(calling).is_err());
    }
}

#[test]
fn handles_of_a_client_without_remote_invalidation_cannot_be_invalidated() {
    let (client, server) = Victim::that_keeps_its_handles();
    let mut scene = Scene::between(Version::Two, client, server);
    let (sink, reply) = (scene.sink(), words(&scene.reply(0)));
    scene.server.send_and_invalidate(&reply, sink);
    scene.server.drain();
    scene.assert_lost();
}

#[test]
fn designs_that_were_not_offered_are_not_agreed_on() {
    // One, two, all, in `nochg` or not: the calls have no word for it.
    for (bits, nochg) in [
        (4, 1),
        (8, 1),
        (16, 1),
        (32, 1),
        (12, 1),
        (u32::MAX, 1),
        (8, 0),
    ] {
        let said = initial(&[(DESIGNS, bits)], &[nochg]);
        let (client, mut server) = Victim::told(&said);
        assert_goes_on(&client, &mut server);
        let scene = Scene::between(Version::Two, client, server);
        let (client, mut server) = {
            let mut scene = scene;
            let reply = words(&scene.reply(0));
            scene.server.send(&reply);
            scene.answered()
        };
        // A reply with a word for it has other lists than were offered.
        let calling = client.echo(b"four");
        let xid = server.answer()[0];
        let result = rpc::accepted(xid, 0, &[4, 0]);
        let named = [&[xid, 2, 4, MSG, REPLY, 9, 0, 0, 0], &result[..]].concat();
        server.send(&words(&named));
        let good = [&[xid, 2, 4, MSG, REPLY, 0, 0, 0], &result[..]].concat();
        server.send(&words(&good));
        client.outcome(calling).expect("the second is a reply");
    }
}

#[test]
fn chunks_for_a_client_without_a_service_are_refused() {
    for lists in [
        &[1, 44, 9, 8, 0, 0, 0, 0, 0][..],
        &[0, 1, 1, 9, 8, 0, 0, 0, 0],
        &[0, 0, 1, 1, 9, 8, 0, 0],
    ] {
        let mut scene = Scene::of(Version::Two);
        let call = rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[8]);
        scene.server.send(&backward(XID, lists, &call));
        let answer = scene.server.answer();
        assert_eq!((answer[0], &answer[3..]), (XID, &[ERROR, BAD_HEADER][..]));
        assert_eq!(scene.server.reads, 0);
        assert_unharmed(scene);
    }
}

#[test]
fn chunks_for_a_client_that_cannot_read_them_are_refused() {
    let (client, mut server) = Victim::called_back_without_reads();
    for lists in [
        &[1, 44, 9, 8, 0, 0, 0, 0, 0][..],
        &[0, 1, 1, 9, 8, 0, 0, 0, 0],
        &[0, 0, 1, 1, 9, 8, 0, 0],
    ] {
        server.send(&backward(XID, lists, &echo(8)));
        assert_eq!(server.answer_to(XID)[3..], [ERROR, BAD_HEADER]);
    }
    assert_eq!(server.reads, 0);
    // Without them it is served (BKREQSUP_INLINE).
    let call = [&echo(4)[..], &[0x0102_0304]].concat();
    server.send(&backward(XID, &[0, 0, 0], &call));
    let reply = server.answer_to(XID);
    assert_eq!(reply[3..8], [MSG, REPLY, 0, 0, 0]);
    assert_eq!(reply[8..], rpc::accepted(XID, 0, &[4, 0x0102_0304]));
    assert_goes_on(&client, &mut server);
}

/// A client with a service, whose server has this much memory to offer.
fn called_back() -> (Victim, Peer) {
    let (client, mut server) = Victim::called_back();
    server.memory.insert(SOURCE, vec![7; 70_000]);
    server.memory.insert(SINK, vec![0; 70_000]);
    (client, server)
}

const SOURCE: u32 = 0x51;
const SINK: u32 = 0x52;

fn echo(length: u32) -> Vec<u32> {
    rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[length])
}

#[test]
fn valid_chunks_of_backward_calls_are_served() {
    let (client, mut server) = called_back();
    let lists = [
        1, 44, SOURCE, 60_000, 0, 0, 0, 1, 1, SINK, 60_000, 0, 0, 0, 0,
    ];
    server.send(&backward(XID, &lists, &echo(60_000)));
    let answer = server.answer_to(XID);
    assert_eq!(answer[3..5], [MSG, REPLY]);
    assert!(server.memory[&SINK][..60_000].iter().all(|byte| *byte == 7));
    assert_goes_on(&client, &mut server);
}

#[test]
fn hostile_chunks_of_backward_calls_draw_bad_header() {
    let (client, mut server) = called_back();
    for lists in [
        // Counts that there cannot be, an item beyond the end, and more than is moved.
        &[0, 1, 1 << 28, SINK, 8, 0, 0, 0, 0][..],
        &[0, 1, 257, SINK, 8, 0, 0, 0, 0],
        &[0, 0, 1, u32::MAX],
        &[1, 48, SOURCE, 8, 0, 0, 0, 0, 0],
        &[1, 43, SOURCE, 8, 0, 0, 0, 0, 0],
        &[1, 44, SOURCE, u32::MAX, 0, 0, 0, 0, 0],
        &[1, 44, SOURCE, (4 << 20) + 1, 0, 0, 0, 0, 0],
        &[1, 0, SOURCE, 40, 0, 0, 0, 0, 0],
        &[7, 0, 0],
    ] {
        server.send(&backward(XID, lists, &echo(8)));
        let answer = server.answer_to(XID);
        assert_eq!(answer[3..], [ERROR, BAD_HEADER], "{lists:?}");
    }
    let none = [XID, 2, 32, NOMSG, CALL, 0, 0, 0];
    server.send(&words(&none));
    assert_eq!(server.answer_to(XID)[3..], [ERROR, BAD_HEADER]);
    assert_eq!(server.reads, 0);
    assert_goes_on(&client, &mut server);
}

#[test]
fn unreadable_chunks_of_backward_calls_end_only_their_connection() {
    // What it does instead of answering the Read Request, which names where the answer goes.
    let instead: &[fn(&mut Peer, u32)] = &[
        |server, _| server.hang_up(),
        // As for an STag that is none, or bytes past the end.
        |server, _| {
            let cause = [0x01, 0x01, 0, 0];
            let terminate = Segment::untagged(opcode::TERMINATE, 0, [2, 1, 0], &cause);
            server.segment(&terminate);
            server.hang_up();
        },
        |server, sink| {
            let long = Segment::tagged(opcode::READ_RESPONSE, sink, 0, &[1; 60_001]);
            server.segment(&long);
        },
        |server, sink| {
            let short = Segment::tagged(opcode::READ_RESPONSE, sink, 0, &[1; 59_999]);
            server.segment(&short);
        },
        |server, sink| {
            let place = u64::MAX - 1;
            server.segment(&Segment::tagged(
                opcode::READ_RESPONSE,
                sink,
                place,
                &[1; 60_000],
            ));
        },
        |server, sink| server.write(sink, 0, &[1; 60_000]),
        |server, sink| server.send_and_invalidate(&[], sink),
    ];
    for act in instead {
        let (client, mut server) = called_back();
        let calling = client.echo(b"is on its way");
        server.answer();
        server.answers_reads = false;
        let lists = [1, 44, SOURCE, 60_000, 0, 0, 0, 0, 0];
        server.send(&backward(XID, &lists, &echo(60_000)));
        let sink = server.hear_read_request();
        act(&mut server, sink);
        server.drain();
        match client.outcome(calling) {
            Err(TransportError::Disconnected(_)) => {}
            other => panic!(
                "expected the loss of the connection, got {:?}",
                other.map(drop)
            ),
        }
        drop(server);
        client.assert_nothing_is_left();
    }
}
