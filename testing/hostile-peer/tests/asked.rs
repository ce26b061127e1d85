//! A server of version two asks a client for larger Receives (xcharext §4.2), and the client answers
//! badly, or not at all. Nothing waits for that.

use hostile_peer::header::characteristic::RBSIZ;
use hostile_peer::header::direction::{CALL, REPLY};
use hostile_peer::header::error::{HEADER as BAD_HEADER, INVAL_OPTION};
use hostile_peer::header::operation::{REQXCH, RESPXCH, UPDXCH};
use hostile_peer::header::procedure::{ERROR, MSG, NOMSG, OPTIONAL};
use hostile_peer::header::{initial, optional, specification, update};
use hostile_peer::{PROGRAM, Peer, Target, procedure, rpc, words};
use std::time::{Duration, Instant};

const XID: u32 = 0x5a5a_0001;

/// Handles of ours: of what is echoed, and of where it goes.
const SOURCE: u32 = 0x51;
const SINK: u32 = 0x52;

/// Bytes that are echoed: they fit no Receive of the client as it is.
const LENGTH: u32 = 6000;

/// Sends a call whose arguments are to be read, and whose reply may go in a Reply chunk.
fn call(peer: &mut Peer) {
    let lists = [
        CALL, 1, 44, SOURCE, LENGTH, 0, 0, 0, 0, 1, 1, SINK, 16_384, 0, 0,
    ];
    let call = rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[LENGTH]);
    peer.send(&words(&[&[XID, 2, 32, MSG], &lists[..], &call].concat()));
}

/// How the reply to such a call comes: in a Reply chunk, or behind its header.
fn is_inline(peer: &mut Peer) -> bool {
    call(peer);
    let reply = peer.answer_to(XID);
    assert!(matches!(reply[3], MSG | NOMSG));
    assert_eq!(reply[4], REPLY);
    reply[3] == MSG
}

/// A client with Receives of 4096 bytes that was asked for larger ones, and the XID of that.
fn asked(target: &Target) -> (Peer, u32) {
    let mut peer = Peer::introduced(target.addr(), &initial(&[(RBSIZ, 4096)], &[]));
    peer.memory.insert(SOURCE, vec![7; LENGTH as usize]);
    peer.memory.insert(SINK, vec![0; 16_384]);
    // It is looked at once a second.
    let deadline = Instant::now() + Duration::from_secs(60);
    call(&mut peer);
    let request = loop {
        assert!(Instant::now() < deadline, "it is not asked");
        let message = peer.answer();
        match message[3..6] {
            // Nothing is asked: it wants to know when it was heard that its own Receives are larger,
            // and asks for nothing else before.
            [OPTIONAL, CALL, REQXCH] if message[7..] == [0] => {
                respond(&mut peer, message[0], &[0, 0, 0]);
            }
            [OPTIONAL, CALL, REQXCH] => break message,
            [OPTIONAL, CALL, operation] => assert_eq!(operation, UPDXCH),
            [proc, ..] => {
                assert_eq!(proc, NOMSG);
                call(&mut peer);
            }
            _ => unreachable!("three words"),
        }
    };
    assert_eq!(peer.answer_to(XID)[3], NOMSG);
    assert_eq!(request[7..], specification(&[(RBSIZ, 8192)]));
    (peer, request[0])
}

/// Asserts that calls are answered as before.
fn assert_goes_on(peer: &mut Peer, inline: bool) {
    for _ in 0..50 {
        assert_eq!(is_inline(peer), inline);
    }
}

fn respond(peer: &mut Peer, xid: u32, subsets: &[u32]) {
    peer.send(&words(&optional(xid, REPLY, RESPXCH, subsets)));
}

#[test]
fn client_that_grants_larger_receives_gets_larger_replies() {
    let target = Target::start();
    let (mut peer, xid) = asked(&target);
    assert_goes_on(&mut peer, false);
    respond(&mut peer, xid, &[1, 1, 0, 0]);
    assert_goes_on(&mut peer, true);
    // It goes back as soon as it says so, asked or not.
    peer.send(&words(&optional(XID, CALL, UPDXCH, &update(4096, false))));
    assert_goes_on(&mut peer, false);
    target.assert_serves();
}

#[test]
fn unanswered_or_pending_property_request_delays_nothing() {
    let target = Target::start();
    let (mut peer, _) = asked(&target);
    assert_goes_on(&mut peer, false);
    drop(peer);
    let (mut peer, xid) = asked(&target);
    respond(&mut peer, xid, &[0, 0, 1, 1]);
    assert_goes_on(&mut peer, false);
    // The end of it comes late, and is something else than was asked for.
    peer.send(&words(&optional(XID, CALL, UPDXCH, &update(7000, true))));
    assert_goes_on(&mut peer, true);
    drop(peer);
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn malformed_and_contradictory_answers_change_nothing() {
    let target = Target::start();
    for subsets in [
        &[0, 0, 0][..],
        &[1, 1, 1, 1, 0],
        &[1, 1, 0, 1, 1],
        &[1, 1, 1, 1, 1, 1],
        &[1, 2, 0, 0],
        &[4, u32::MAX, u32::MAX, u32::MAX, u32::MAX, 1, 1, 0],
        // No XDR, more words than there can be, and bytes behind it.
        &[1, 1],
        &[5, 1, 0, 0, 0, 0, 0, 0],
        &[1, 1, 0, 0, 0],
    ] {
        let (mut peer, xid) = asked(&target);
        respond(&mut peer, xid, subsets);
        assert_goes_on(&mut peer, false);
        // That was its answer: another one is to nothing.
        respond(&mut peer, xid, &[1, 1, 0, 0]);
        assert_goes_on(&mut peer, false);
    }
    target.assert_serves();
}

#[test]
fn answer_to_another_request_is_ignored() {
    let target = Target::start();
    let (mut peer, xid) = asked(&target);
    respond(&mut peer, xid ^ 1, &[1, 1, 0, 0]);
    respond(&mut peer, XID, &[1, 1, 0, 0]);
    peer.send(&words(&optional(xid, CALL, RESPXCH, &[1, 1, 0, 0])));
    assert_eq!(peer.answer_to(xid)[3..], [ERROR, BAD_HEADER]);
    assert_goes_on(&mut peer, false);
    respond(&mut peer, xid, &[1, 1, 0, 0]);
    assert_goes_on(&mut peer, true);
    target.assert_serves();
}

#[test]
fn client_that_refuses_property_requests_is_served() {
    let target = Target::start();
    for error in [&[INVAL_OPTION][..], &[BAD_HEADER], &[1, 1, 1], &[1, 7, 3]] {
        let (mut peer, xid) = asked(&target);
        peer.send(&words(&[&[xid, 2, 32, ERROR], error].concat()));
        assert_goes_on(&mut peer, false);
        respond(&mut peer, xid, &[1, 1, 0, 0]);
        assert_goes_on(&mut peer, false);
    }
    target.assert_serves();
}

#[test]
fn receive_size_lowered_during_a_request_is_respected() {
    let target = Target::start();
    let (mut peer, xid) = asked(&target);
    peer.send(&words(&optional(XID, CALL, UPDXCH, &update(1024, true))));
    respond(&mut peer, xid, &[0, 0, 1, 1]);
    // The reply to this would fit what it had before.
    let call = rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[2000]);
    let call = [&[XID, 2, 32, MSG, CALL, 0, 0, 0], &call[..], &[0; 500]].concat();
    peer.send(&words(&call));
    assert_eq!(peer.answer_to(XID)[3..], [ERROR, BAD_HEADER]);
    assert_goes_on(&mut peer, false);
    target.assert_serves();
}
