//! Remote invalidation: who may kill which handle (RFC 8797 §4.1).

use super::lone::*;
use super::*;
use crate::Violation;
use crate::header::{Lists, WriteChunk, procedure};
use oncrpc::Reply;
use smallvec::smallvec;
use verbs::{Memory, QueuePair};

#[test]
fn handle_of_the_call_may_be_invalidated_whatever_the_peer_said_of_itself() {
    for peer_sets_r in [true, false] {
        let mut lone = client();
        if !peer_sets_r {
            let peer = PrivateData::ABSENT;
            let limits = lone.end.qp.limits().clone();
            lone.end.connection =
                crate::Connection::new(&config(Role::Client), Some(peer), &limits);
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
    let mut lone = client();
    lone.call(request(5, call(5, 40, &[]), bound(100, &[])));
    lone.receive().expect("the call");
    lone.send(&inline(&Lists::default()), None);
    lone.ended().expect("answered");
    lone.call(request(6, call(6, 40, &[]), bound(100, &[10_000])));
    lone.call(request(5, call(5, 40, &[]), bound(100, &[10_000])));
    let (header, _) = lone.receive().expect("the first call");
    let foreign = lists(&header).writes[0].segments[0].handle;
    let (header, _) = lone.receive().expect("the second call");
    lone.send(&inline(&unused(&lists(&header))), Some(foreign));
    let violation = lone.end.connection.violation();
    assert_eq!(violation, Some(Violation::ForeignHandle(foreign)));
    assert!(lone.events.is_empty());
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
fn handle_of_an_empty_segment_is_not_invalidated() {
    let mut lone = server();
    let sink = Memory::Sink(Buffer::with_capacity(100));
    let handle = lone.peer.register(sink).expect("there is room");
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
    check(&mut lone, smallvec![segment(0, 0), segment(handle.0, 9)], 1);
}
