//! Remote invalidation: who may kill which handle (RFC 8797 §4.1).

use super::lone::*;
use super::pair::Pair;
use super::*;
use crate::Violation;
use crate::wire::header::tests::words;
use crate::wire::header::{Lists, RdmaError, WriteChunk, procedure};
use oncrpc::Reply;
use smallvec::smallvec;
use verbs::{Completion, Memory, QueuePair, Segment, WorkError, WorkRequest};

#[test]
fn handle_of_the_call_may_be_invalidated_whatever_the_peer_said_of_itself() {
    for peer_sets_r in [true, false] {
        let mut lone = client();
        if !peer_sets_r {
            let peer = PrivateData::ABSENT;
            let limits = lone.end.qp.limits().clone();
            lone.end.connection = Connection::new(
                &config(Role::Client),
                TestOwner::default(),
                Some(peer),
                &limits,
            );
        }
        lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
        let (header, _) = lone.receive().expect("the call");
        let lists = unused(&lists(&header));
        lone.send(&inline(&lists), Some(lists.writes[0].segments[0].handle));
        check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
        let counters = lone.end.connection.counters();
        assert_eq!(counters.remote_invalidations, 1);
        assert_eq!(counters.local_invalidations, 0);
        assert_eq!(
            counters.remote_invalidations_without_r,
            u64::from(!peer_sets_r)
        );
    }
}

#[test]
fn handle_of_another_call_must_not_be_invalidated() {
    let handle: [fn(&Lists) -> Segment; 2] = [
        |offered| offered.reads[0].segments[0],
        |offered| offered.writes[0].segments[0],
    ];
    for handle in handle {
        let mut lone = client();
        lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
        lone.receive().expect("the call");
        lone.send(&inline(&Lists::default()), None);
        lone.ended().expect("answered");
        lone.call(request(6, call(6, 40, &[10_000]), bound(100, &[10_000])));
        lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
        let (header, _) = lone.receive().expect("the first call");
        let foreign = handle(&lists(&header)).handle;
        let (header, _) = lone.receive().expect("the second call");
        lone.send(&inline(&unused(&lists(&header))), Some(foreign));
        let violation = lone.end.connection.violation();
        assert_eq!(violation, Some(Violation::ForeignHandle(foreign)));
        assert!(lone.events.is_empty());
    }
}

#[test]
fn handle_must_not_be_invalidated_if_we_did_not_set_r() {
    let mut config = config(Role::Client);
    config.own.remote_invalidation = false;
    let mut lone = Lone::new(&config);
    lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
    let (header, _) = lone.receive().expect("the call");
    let lists = unused(&lists(&header));
    let handle = lists.writes[0].segments[0].handle;
    lone.send(&inline(&lists), Some(handle));
    let violation = lone.end.connection.violation();
    assert_eq!(violation, Some(Violation::UnwantedInvalidation(handle)));
}

#[test]
fn handle_must_not_be_invalidated_in_version_two_without_what_permits_it_there() {
    let mut config = config(Role::Client);
    config.own.remote_invalidation = false;
    config.versions = crate::Versions::Two;
    let mut lone = Lone::new(&config);
    lone.drive();
    let mut completions = std::iter::from_fn(|| lone.peer.poll_cq());
    let xid = completions.find_map(|completion| match completion {
        Completion::Receive { buffer, .. } => buffer.first_chunk().copied(),
        _ => None,
    });
    let xid = u32::from_be_bytes(xid.expect("the offer"));
    lone.send(&words(&[xid, 2, 8, 5, 1, 1, 8, 0, 0]), None);
    lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
    let (header, _) = lone.receive().expect("the call");
    let handle = lists(&header).writes[0].segments[0].handle;
    let mut reply_words = words(&[5, 2, 8, 0, 1, 0, 0, 0]);
    reply_words.extend(stream(&reply(5, 40, &[])));
    lone.send(&reply_words, Some(handle));
    let violation = lone.end.connection.violation();
    assert_eq!(violation, Some(Violation::UnpermittedInvalidation(handle)));
    let said = violation.expect("one").to_string();
    assert!(
        !said.contains("8797") && said.contains("XCHAR_REQREMINV"),
        "{said}"
    );
}

#[test]
fn handle_of_an_empty_segment_is_not_invalidated() {
    let mut lone = server();
    let sink = Memory::Sink(Buffer::with_capacity(100));
    let at = lone.peer.register(sink).expect("there is room");
    let check = |lone: &mut Lone, segments, invalidated| {
        let offered = Lists {
            writes: vec![WriteChunk { segments }],
            ..Lists::default()
        };
        let message = stream(&call(5, 4, &[]));
        lone.send(&wire(procedure::MSG, 5, 8, &offered, &message), None);
        let (id, _) = lone.called();
        lone.end
            .connection
            .reply(id, Reply::Message(reply(5, 4, &[])));
        lone.drive();
        assert_eq!(lone.peer.closed(), None);
        let counters = lone.end.connection.counters();
        assert_eq!(counters.invalidations_sent, invalidated);
    };
    check(&mut lone, smallvec![segment(0, 0)], 0);
    check(&mut lone, smallvec![segment(0, 0), segment_at(at, 9)], 1);
}

/// A call with a Read chunk, a Write chunk and a Reply chunk, and what the peer was offered.
fn with_every_chunk() -> (Lone, Lists) {
    let mut lone = client();
    let message = call(5, 40, &[10_000]);
    let request = request(5, message, bound(5000, &[10_000]));
    lone.call(request.with_write_chunks_beside_reply_chunk());
    let (header, _) = lone.receive().expect("the call");
    let offered = lists(&header);
    (lone, offered)
}

#[test]
fn any_handle_of_the_call_may_be_invalidated_and_the_others_are_by_us() {
    let handle: [fn(&Lists) -> Segment; 3] = [
        |offered| offered.reads[0].segments[0],
        |offered| offered.writes[0].segments[0],
        |offered| offered.reply.as_ref().expect("offered").segments[0],
    ];
    for handle in handle {
        let (mut lone, offered) = with_every_chunk();
        lone.send(&inline(&unused(&offered)), Some(handle(&offered).handle));
        check_reply(&lone.ended().expect("answered"), 5, 40, &[]);
        let counters = lone.end.connection.counters();
        assert_eq!(counters.remote_invalidations, 1);
        assert_eq!(counters.local_invalidations, 2);
        assert_eq!(lone.end.connection.exposed(), 0);
        assert_eq!(lone.end.connection.violation(), None);
    }
}

#[test]
fn error_may_take_a_handle_along_too() {
    let (mut lone, offered) = with_every_chunk();
    let handle = offered.reads[0].segments[0].handle;
    lone.send(&error(5, RdmaError::Chunk), Some(handle));
    lone.ended().expect_err("refused");
    assert_eq!(lone.end.connection.counters().remote_invalidations, 1);
    assert_eq!(lone.end.connection.exposed(), 0);
}

#[test]
fn nothing_but_a_reply_to_a_call_may_take_a_handle_along() {
    let none = Lists::default();
    for bytes in [
        wire(procedure::DONE, 5, 8, &none, &[]),
        wire(procedure::MSGP, 5, 8, &none, &[]),
        wire(procedure::MSG, 6, 8, &none, &stream(&reply(6, 40, &[]))),
        wire(procedure::MSG, 5, 8, &none, &stream(&call(5, 40, &[]))),
        vec![1, 2, 3],
    ] {
        let (mut lone, offered) = with_every_chunk();
        let handle = offered.reads[0].segments[0].handle;
        lone.send(&bytes, Some(handle));
        let violation = lone.end.connection.violation();
        assert_eq!(violation, Some(Violation::ForeignHandle(handle)));
        assert!(violation.is_some_and(Violation::is_of_peer));
    }
}

#[test]
fn handle_that_was_gone_and_nobody_said_so_is_the_fault_of_the_provider() {
    let (mut lone, offered) = with_every_chunk();
    let connection = &mut lone.end.connection;
    arrive(connection, inline(&unused(&offered)));
    while let Some(work) = connection.poll_post() {
        if matches!(work, WorkRequest::Invalidate { .. }) {
            connection.handle_completion(Completion::Failed {
                wr: work.wr(),
                error: WorkError::NoSuchHandle,
            });
        }
    }
    assert_eq!(connection.violation(), Some(Violation::LostHandle));
    assert!(!Violation::LostHandle.is_of_peer());
    assert!(
        connection.poll_event().is_none(),
        "no reply with memory that may be exposed"
    );
}

/// A driver can find out in this way whether remote invalidation works on a connection.
#[test]
fn small_call_can_be_made_to_offer_a_handle() {
    in_each_version(|versions| {
        let mut pair = Pair::speaking(versions);
        let probe = request(5, call(5, 4, &[]), bound(100, &[])).with_reply_chunk();
        pair.call(probe);
        let (id, _) = pair.arrived();
        pair.answer(id, Reply::Message(reply(5, 4, &[])));
        check_reply(&pair.ended().expect("answered"), 5, 4, &[]);
        let counters = pair.client.connection.counters();
        assert_eq!(
            (counters.reply_chunks_offered, counters.remote_invalidations),
            (1, 1)
        );
        pair.check_idle();
    });
}

#[test]
#[should_panic(expected = "R is set only if every handle may be invalidated remotely")]
fn r_beside_a_persistent_registration_is_no_connection() {
    let mut config = config(Role::Client);
    config.registrations = config.registrations.with(crate::Registration::Persistent);
    Lone::new(&config);
}
