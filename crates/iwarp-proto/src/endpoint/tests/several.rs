//! Several STags that one Send invalidates: our extension of RDMAP.

use super::hostile::{frame, tagged};
use super::*;
use crate::ddp::Control;
use crate::rdmap::Opcode;
use verbs::Handles;

/// A responder with this limit, and as many regions.
fn responder(invalidations: usize, regions: usize) -> (Endpoint, Vec<Handle>) {
    let mut endpoint = Endpoint::new(EndpointConfig {
        invalidations,
        ..config(Role::Responder)
    });
    let handles = (0..regions).map(|_| endpoint.register(sink(100)).unwrap());
    let handles = handles.collect();
    endpoint.post(receive(1, 100)).unwrap();
    endpoint.recv_slice(&frame(tagged(Opcode::Write, 0, 0), &[]));
    (endpoint, handles)
}

fn ahead(handle: Handle) -> Vec<u8> {
    frame(tagged(Opcode::Invalidate, handle.0, 0), &[])
}

#[track_caller]
fn check(mut endpoint: Endpoint, bytes: &[u8], cause: Cause) {
    endpoint.recv_slice(bytes);
    let terminate = terminate_in(&output(&mut endpoint, usize::MAX));
    assert_eq!(terminate.expect("it ends with a Terminate").cause, cause);
}

#[test]
fn send_that_invalidates_several_stags_has_a_message_for_each_further_one_before_it() {
    let mut pair = Pair::new();
    pair.a = Endpoint::new(EndpointConfig {
        invalidations: 3,
        ..config(Role::Initiator)
    });
    let all = Handles::new([0x0102_0304, 0x0506_0708, 0x090a_0b0c].map(Handle));
    pair.a
        .post(WorkRequest::Send {
            wr: WrId(3),
            buffer: buffer(b"done"),
            rest: Gather::new(),
            invalidate: all,
        })
        .unwrap();
    let sent = fpdus(&output(&mut pair.a, usize::MAX));
    let octets = |header: &Header| {
        let mut out = Vec::new();
        header.emit(&mut out);
        out
    };
    let [(first, none), (second, _), (send, bytes)] = &sent[..] else {
        panic!("{sent:?}");
    };
    // DDP: tagged and last; RDMAP: version 1, opcode 15; the STag; no offset.
    let ahead = |stag: [u8; 4]| [&[0xc1, 0x4f], &stag[..], &[0; 8]].concat();
    assert_eq!(octets(first), ahead([5, 6, 7, 8]));
    assert_eq!(octets(second), ahead([9, 10, 11, 12]));
    assert!(none.is_empty());
    assert_eq!(octets(send)[..6], [0x41, 0x44, 1, 2, 3, 4]);
    assert_eq!(bytes, b"done");
    assert!(matches!(
        completions(&mut pair.a)[..],
        [Completion::Send { wr: WrId(3) }]
    ));
}

#[test]
fn regions_invalidated_ahead_return_with_the_next_send_in_any_case() {
    let (mut endpoint, handles) = responder(3, 2);
    let mut bytes = ahead(handles[1]);
    bytes.extend(ahead(handles[0]));
    endpoint.recv_slice(&bytes);
    assert!(completions(&mut endpoint).is_empty());
    // Out of reach already.
    assert!(
        handles
            .iter()
            .all(|h| endpoint.places.region(h.0).is_none())
    );
    let send = super::hostile::untagged(Opcode::Send, 0, 1, 0);
    endpoint.recv_slice(&frame(send, b"x"));
    let found = completions(&mut endpoint).pop();
    let Some(Completion::Receive {
        invalidated: Some(first),
        ..
    }) = found
    else {
        panic!("{found:?}");
    };
    assert_eq!(first.handle, handles[1]);
    assert_eq!(first.also[0].handle, handles[0]);
    assert_eq!(first.also.len(), 1);
}

#[test]
fn region_that_the_peer_invalidated_ahead_of_no_send_returns_to_an_invalidation_of_our_own() {
    let (mut endpoint, handles) = responder(3, 2);
    endpoint.recv_slice(&ahead(handles[0]));
    let invalidate = |handle| WorkRequest::Invalidate {
        wr: WrId(9),
        handle,
    };
    endpoint.post(invalidate(handles[0])).unwrap();
    let found = completions(&mut endpoint).pop();
    let Some(Completion::Invalidate {
        wr: WrId(9),
        invalidated,
    }) = found
    else {
        panic!("{found:?}");
    };
    assert_eq!(invalidated.handle, handles[0]);
    // A Send that comes after all has nothing more to say of it.
    let send = super::hostile::untagged(Opcode::Send, 0, 1, 0);
    endpoint.recv_slice(&frame(send, b"x"));
    let found = completions(&mut endpoint).pop();
    assert!(
        matches!(
            found,
            Some(Completion::Receive {
                invalidated: None,
                ..
            })
        ),
        "{found:?}"
    );
}

#[test]
fn invalidation_ahead_is_a_reserved_opcode_where_it_was_not_agreed_on() {
    let (endpoint, handles) = responder(1, 1);
    check(endpoint, &ahead(handles[0]), Cause::RDMA_OPCODE);
}

#[test]
fn invalidation_ahead_has_one_form() {
    let not_last = |handle: Handle| {
        let mut header = tagged(Opcode::Invalidate, handle.0, 0);
        if let Header::Tagged { control, .. } = &mut header {
            *control = Control::new(true, false);
        }
        frame(header, &[])
    };
    let forms: [fn(Handle) -> Vec<u8>; 2] = [
        |handle| frame(tagged(Opcode::Invalidate, handle.0, 0), b"x"),
        |handle| frame(tagged(Opcode::Invalidate, handle.0, 1), &[]),
    ];
    for form in forms {
        let (endpoint, handles) = responder(2, 1);
        check(endpoint, &form(handles[0]), Cause::RDMA_OPERATION);
    }
    let (endpoint, handles) = responder(2, 1);
    check(endpoint, &not_last(handles[0]), Cause::RDMA_OPERATION);
}

#[test]
fn stag_that_cannot_be_invalidated_cannot_be_ahead_either() {
    let (endpoint, handles) = responder(3, 1);
    let unknown = Handle(handles[0].0 ^ 1);
    check(endpoint, &ahead(unknown), Cause::RDMA_CANNOT_INVALIDATE);
    // Twice.
    let (endpoint, handles) = responder(3, 1);
    let twice = [ahead(handles[0]), ahead(handles[0])].concat();
    check(endpoint, &twice, Cause::RDMA_CANNOT_INVALIDATE);
    // One that is to stay.
    let (mut endpoint, _) = responder(3, 1);
    let stays = Memory::Persistent(verbs::Access::Read, Buffer::with_capacity(8));
    let stays = endpoint.register(stays).unwrap();
    check(endpoint, &ahead(stays), Cause::RDMA_CANNOT_INVALIDATE);
}

#[test]
fn no_more_stags_are_ahead_than_the_limit_leaves_beside_that_of_the_send() {
    for (limit, most) in [(2, 1), (16, 15), (1000, MAX_INVALIDATIONS - 1)] {
        let (mut endpoint, handles) = responder(limit, most + 1);
        for &handle in &handles[..most] {
            endpoint.recv_slice(&ahead(handle));
        }
        assert_eq!(endpoint.closed(), None);
        assert!(!endpoint.has_output());
        let one_more = ahead(handles[most]);
        check(endpoint, &one_more, Cause::RDMA_CANNOT_INVALIDATE);
    }
}
