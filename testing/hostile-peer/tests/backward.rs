//! A server of version two calls its client, with chunks where the client has said so, and the client
//! breaks the rules.

use hostile_peer::header::characteristic::BRS;
use hostile_peer::header::direction::{CALL, REPLY};
use hostile_peer::header::error::{HEADER as BAD_HEADER, INVAL_OPTION, VERS as ERR_VERS};
use hostile_peer::header::initial;
use hostile_peer::header::procedure::{ERROR, MSG, OPTIONAL};
use hostile_peer::{BackwardTarget, Calling, Cause, Offered, PROGRAM, Peer, rpc, words};
use oncrpc::TransportError;
use std::time::Duration;

const OUT_OF_BOUNDS: Cause = Cause(1, 1, 1);
const INVALID_STAG: Cause = Cause(1, 1, 0);
const WRONG_ACCESS: Cause = Cause(0, 1, 2);
const CANNOT_INVALIDATE: Cause = Cause(0, 1, 9);

const XID: u32 = 0x5a5a_0001;
const LENGTH: u32 = 50_000;

const NONE: u32 = 0;
const INLINE: u32 = 1;
const GENERAL: u32 = 2;

/// Attack on a server with a call on its way that offers this, and how it ends.
type Attack = (fn(&mut Peer, &Offered), Cause);

fn start() -> BackwardTarget {
    BackwardTarget::with_timeout(Duration::from_secs(60))
}

/// A client that has said how it can be called, and was answered a call.
fn callable(target: &BackwardTarget, how: u32) -> Peer {
    let mut peer = Peer::introduced(target.addr(), &initial(&[(BRS, how)], &[1]));
    assert_serves(&mut peer);
    peer
}

/// Asserts that its own call is answered.
#[track_caller]
fn assert_serves(peer: &mut Peer) {
    let call = rpc::call(XID, PROGRAM, 2, 0);
    peer.send(&words(
        &[&[XID, 2, 32, MSG, CALL, 0, 0, 0], &call[..]].concat(),
    ));
    assert_eq!(peer.answer_to(XID)[3..5], [MSG, REPLY]);
}

/// The call of the server that comes next.
#[track_caller]
fn called(peer: &mut Peer) -> Offered {
    loop {
        let message = peer.answer();
        if message[3] != OPTIONAL {
            break Offered::parse(&message);
        }
    }
}

/// A client that was called with a Read chunk and a Write chunk.
fn offered(target: &BackwardTarget) -> (Peer, Calling, Offered) {
    let mut peer = callable(target, GENERAL);
    let calling = target.echo(&[7; LENGTH as usize]);
    let offered = called(&mut peer);
    assert_eq!((offered.reads.len(), offered.writes.len()), (1, 1));
    (peer, calling, offered)
}

fn reply(offered: &Offered) -> Vec<u8> {
    let [handle, _, high, low] = offered.writes[0][0];
    let header = [
        offered.xid,
        2,
        4,
        MSG,
        REPLY,
        0,
        1,
        1,
        handle,
        0,
        high,
        low,
        0,
        0,
    ];
    words(&[&header[..], &rpc::accepted(offered.xid, 0, &[0])].concat())
}

#[track_caller]
fn assert_lost(target: &BackwardTarget, calling: Calling) {
    match target.outcome(calling) {
        Err(TransportError::Disconnected(_)) => {}
        other => panic!(
            "expected the loss of the connection, got {:?}",
            other.map(drop)
        ),
    }
    // Others have not noticed.
    assert_serves(&mut callable(target, NONE));
}

#[test]
fn memory_of_a_server_is_reached_only_as_it_was_offered() {
    let target = start();
    let attacks: &[Attack] = &[
        (
            |peer, o| peer.write(o.writes[0][0][0], 1 << 40, b"x"),
            OUT_OF_BOUNDS,
        ),
        (
            |peer, o| peer.write(o.writes[0][0][0] ^ 0x100, 0, b"x"),
            INVALID_STAG,
        ),
        (|peer, o| peer.write(o.reads[0][0], 0, b"x"), WRONG_ACCESS),
        (
            |peer, o| peer.read_request(o.writes[0][0][0], 0, 8),
            WRONG_ACCESS,
        ),
        (
            |peer, o| peer.send_and_invalidate(&reply(o), o.reads[0][0] ^ 0x100),
            CANNOT_INVALIDATE,
        ),
    ];
    for (attack, cause) in attacks {
        let (mut peer, calling, offered) = offered(&target);
        attack(&mut peer, &offered);
        peer.assert_terminated(*cause);
        assert_lost(&target, calling);
    }
}

#[test]
fn memory_of_a_server_is_out_of_reach_when_its_call_has_its_reply() {
    let target = start();
    for by_client in [true, false] {
        let (mut peer, calling, offered) = offered(&target);
        let sink = offered.writes[0][0][0];
        if by_client {
            peer.send_and_invalidate(&reply(&offered), sink);
        } else {
            peer.send(&reply(&offered));
        }
        target.outcome(calling).expect("a reply");
        assert_serves(&mut peer);
        peer.write(sink, 0, b"too late");
        peer.assert_terminated(INVALID_STAG);
    }
}

#[test]
fn handle_of_another_backward_call_cannot_be_invalidated() {
    let target = start();
    let (mut peer, calling, first) = offered(&target);
    // One reply gives the credit for more than one call.
    peer.send(&reply(&first));
    target.outcome(calling).expect("a reply");
    let calls = [(); 2].map(|()| (target.echo(&[7; LENGTH as usize]), called(&mut peer)));
    let [(first, one), (second, other)] = calls;
    peer.send_and_invalidate(&reply(&one), other.writes[0][0][0]);
    peer.drain();
    assert_lost(&target, first);
    assert_lost(&target, second);
}

#[test]
fn invalid_backward_replies_harm_no_call() {
    let target = start();
    let (mut peer, calling, offered) = offered(&target);
    let xid = offered.xid;
    let good = reply(&offered);
    for nonsense in [
        vec![xid ^ 1, 2, 4, ERROR, BAD_HEADER],
        vec![xid, 2, 4, ERROR, 77],
        vec![xid, 1, 4, ERROR, BAD_HEADER],
        vec![xid, 2, 4, MSG, REPLY, 7, 0, 0],
        rpc::msg(xid, 4, &rpc::accepted(xid, 0, &[0])),
    ] {
        peer.send(&words(&nonsense));
    }
    // A reply that says it is a call.
    let accepted = rpc::accepted(xid, 0, &[0]);
    let lie = [&[xid, 2, 4, MSG, CALL, 0, 0, 0], &accepted[..]].concat();
    peer.send(&words(&lie));
    assert_eq!(peer.answer_to(xid)[3..], [ERROR, BAD_HEADER]);
    peer.send(&good);
    target.outcome(calling).expect("a reply");
    assert_serves(&mut peer);
}

#[test]
fn errors_of_a_client_end_the_backward_call_and_nothing_else() {
    let target = start();
    for error in [&[BAD_HEADER][..], &[INVAL_OPTION], &[ERR_VERS, 7, 3]] {
        let (mut peer, calling, offered) = offered(&target);
        peer.send(&words(&[&[offered.xid, 2, 4, ERROR], error].concat()));
        match target.outcome(calling) {
            Err(TransportError::Refused(_)) => {}
            other => panic!("expected a refusal, got {:?}", other.map(drop)),
        }
        assert_serves(&mut peer);
    }
}

#[test]
fn backward_calls_respect_what_the_client_supports() {
    let target = start();
    for (how, small) in [(NONE, false), (INLINE, true)] {
        let mut peer = callable(&target, how);
        let large = target.echo(&[7; LENGTH as usize]);
        assert!(target.outcome(large).is_err());
        let calling = target.echo(b"");
        if small {
            let xid = called(&mut peer).xid;
            let accepted = rpc::accepted(xid, 0, &[0]);
            let reply = [&[xid, 2, 4, MSG, REPLY, 0, 0, 0], &accepted[..]].concat();
            peer.send(&words(&reply));
        }
        assert_eq!(target.outcome(calling).is_ok(), small);
        assert_serves(&mut peer);
    }
}

#[test]
fn backward_call_without_a_reply_times_out() {
    let target = BackwardTarget::with_timeout(Duration::from_secs(2));
    let (mut peer, calling, first) = offered(&target);
    // One reply gives the credit for more than one call.
    peer.send(&reply(&first));
    target.outcome(calling).expect("a reply");
    let calling = target.echo(&[7; LENGTH as usize]);
    let offered = called(&mut peer);
    match target.outcome(calling) {
        Err(TransportError::TimedOut(_)) => {}
        other => panic!("expected a timeout, got {:?}", other.map(drop)),
    }
    // Its memory is kept for a reply that may come, and no longer.
    let sink = offered.writes[0][0][0];
    assert_serves(&mut peer);
    peer.write(sink, 0, &[9; 1000]);
    peer.send(&reply(&offered));
    assert_serves(&mut peer);
    peer.write(sink, 0, b"too late");
    peer.assert_terminated(INVALID_STAG);
    assert_serves(&mut callable(&target, NONE));
}

#[test]
fn client_that_answers_no_backward_call_loses_its_connection() {
    let target = BackwardTarget::with_timeout(Duration::from_secs(1));
    // Before its first reply a client has granted one credit.
    let (mut peer, calling, _) = offered(&target);
    match target.outcome(calling) {
        Err(TransportError::TimedOut(_)) => {}
        other => panic!("expected a timeout, got {:?}", other.map(drop)),
    }
    peer.drain();
    assert_serves(&mut callable(&target, NONE));
}

#[test]
fn memory_for_results_that_a_client_keeps_registered_is_no_other_clients() {
    // For the results of one call.
    let target = BackwardTarget::with_memory(Duration::from_secs(2), LENGTH as usize * 3 / 2);
    let (mut slow, calling, first) = offered(&target);
    slow.send(&reply(&first));
    target.outcome(calling).expect("a reply");
    let calling = target.echo(&[7; LENGTH as usize]);
    let late = called(&mut slow);
    assert!(target.outcome(calling).is_err(), "nobody waits any more");
    // Its memory is still registered, so that there is none for another.
    let mut other = callable(&target, GENERAL);
    let calling = target.echo(&[7; LENGTH as usize]);
    match target.outcome(calling) {
        Err(TransportError::TimedOut(_)) => {}
        ended => panic!("expected no memory, got {:?}", ended.map(drop)),
    }
    assert_serves(&mut other);
    // The reply frees it, though it comes too late.
    slow.send(&reply(&late));
    let calling = target.echo(&[7; LENGTH as usize]);
    let offered = called(&mut other);
    other.send(&reply(&offered));
    target.outcome(calling).expect("a reply");
}
