//! Hostile clients of ietf-07, and what a server does about them.

use hostile_peer::ietf07::{call, error, grant, htype, message, part, properties, property};
use hostile_peer::{
    Cause, Counting, PROGRAM, Peer, Target, header, null, procedure, rpc, steady, words,
};
use rpcrdma::proto::v2::Dialect;

const XID: u32 = 0x5a5a_0001;
const CANNOT_INVALIDATE: Cause = Cause(0, 1, 9);

/// Most octets of a message in parts that a server takes (`MAX_CONTINUED`).
const MAX_CONTINUED: u32 = 65_536;

fn target() -> Target {
    Target::configured(steady().with_dialect(Dialect::Ietf07))
}

/// A client whose first message was this one; what came for it is for the test to hear.
fn beginning(target: &Target, first: &[u32]) -> Counting {
    let mut peer = Counting::over(Peer::connect(target.addr()), (0, 0, 1));
    peer.send(first);
    peer
}

/// A client that has said its properties.
fn speaking(target: &Target) -> Counting {
    let mut peer = beginning(target, &message(XID, htype::CONNPROP_FINAL, &[0]));
    peer.assert_goes_on(XID ^ 1);
    peer
}

/// Octets of an ECHO call with so much data, in words.
fn echo(xid: u32, octets: u32) -> Vec<u32> {
    let call = rpc::call_with(xid, [PROGRAM, 2, procedure::ECHO], &[octets]);
    [call, vec![0x77; octets as usize / 4]].concat()
}

#[test]
fn calls_without_credits_for_their_replies_are_bounded() {
    let target = target();
    let mut peer = speaking(&target);
    peer.window = 0;
    // They stay in service, as no reply may be sent; the server takes no more than it has granted, and some.
    for xid in 0..2000 {
        peer.force(&null(xid));
    }
    let mut replies = 0;
    while let Some(message) = peer.hear() {
        replies += u32::from(message[3] == htype::REPLY_INLINE);
    }
    assert_eq!(replies, 0, "replies without a credit");
    drop(peer);
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn parts_without_an_end_are_refused_with_the_first() {
    let target = target();
    let mut peer = speaking(&target);
    let stream = echo(XID, 100);
    for remaining in [u32::MAX, 1 << 31, MAX_CONTINUED] {
        let first = part(XID, remaining, &stream[..10]);
        let answer = peer.ask(&first);
        assert_eq!(answer, [XID, 2, htype::ERROR, error::INVAL_CONT]);
        // What follows is discarded up to the last.
        for at in 1..1000 {
            peer.send(&part(XID, remaining - 4 * at, &[7]));
        }
        peer.send(&call(XID, 0, &[0; 3], &[7]));
        peer.assert_goes_on(XID ^ 2);
    }
    target.assert_serves();
    drop(peer);
    target.assert_baseline();
}

#[test]
fn longest_message_in_the_smallest_parts_is_whole() {
    let target = target();
    let mut peer = speaking(&target);
    let stream = echo(XID, MAX_CONTINUED / 16);
    let (last, parts) = stream.split_last().unwrap();
    let mut remaining = u32::try_from(stream.len()).unwrap() * 4;
    for word in parts {
        remaining -= 4;
        peer.send(&part(XID, remaining, &[*word]));
    }
    let answer = peer.ask(&call(XID, 0, &[0; 3], &[*last]));
    assert!(
        [htype::REPLY_INLINE, htype::REPLY_MIDDLE].contains(&answer[2]),
        "{answer:?}"
    );
    drop(peer);
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn contradictory_remainders_are_refused() {
    let target = target();
    let stream = echo(XID, 200);
    let len = u32::try_from(stream.len()).unwrap() * 4;
    let first = part(XID, len - 40, &stream[..10]);
    for second in [
        // More than before, as much, less than nothing; nothing in it, nothing behind it.
        part(XID, len, &stream[10..20]),
        part(XID, len - 40, &stream[10..20]),
        part(XID, len - 84, &stream[10..20]),
        part(XID, u32::MAX, &stream[10..20]),
        part(XID, len - 40, &[]),
        part(XID, 0, &stream[10..]),
        // The last is too short, too long, or empty.
        call(XID, 0, &[0; 3], &stream[10..20]),
        call(XID, 0, &[0; 3], &[&stream[10..], &[0]].concat()),
        call(XID, 0, &[0; 3], &[]),
    ] {
        let mut peer = speaking(&target);
        peer.send(&first);
        let answer = peer.ask(&second);
        assert_eq!(answer, [XID, 2, htype::ERROR, error::INVAL_CONT]);
        peer.assert_goes_on(XID ^ 2);
    }
    // A first part with nothing in it.
    let mut peer = speaking(&target);
    peer.assert_refused(&part(XID, 100, &[]), &[error::INVAL_CONT]);
    target.assert_serves();
}

#[test]
fn messages_that_never_become_whole_leave_memory_to_others() {
    let target = target();
    let mut peers: Vec<Counting> = (0..32).map(|_| speaking(&target)).collect();
    for peer in &mut peers {
        let mut remaining = MAX_CONTINUED;
        let step = 4000;
        while remaining > 2 * step {
            remaining -= step;
            peer.send(&part(XID, remaining, &vec![7; step as usize / 4]));
        }
    }
    target.assert_serves();
    target.assert_echoes(&vec![7; 300_000]);
    drop(peers);
    target.assert_baseline();
}

#[test]
fn property_lists_of_any_length_are_bounded() {
    let target = target();
    let first = || {
        let mut peer = beginning(&target, &null(XID));
        assert_eq!(peer.answer()[3], htype::REPLY_INLINE);
        peer
    };
    let mut peer = first();
    for (count, behind) in [(u32::MAX, 0), (513, 513), (100_000, 500)] {
        let set = std::iter::once(count).chain((0..behind).flat_map(|at| [1000 + at, 0]));
        let set: Vec<u32> = set.collect();
        for htype in [htype::CONNPROP_MIDDLE, htype::CONNPROP_FINAL] {
            peer.assert_refused(&message(XID, htype, &set), &[error::BAD_XDR]);
        }
    }
    // Twice the same; a value that is cut off, or longer than the message.
    let bad = |peer: &mut Counting, set: &[u32]| {
        let said = message(XID, htype::CONNPROP_FINAL, set);
        peer.assert_refused(&said, &[error::BAD_PROPVAL]);
    };
    bad(&mut peer, &properties(&[(property::RBSIZ, 4096); 2]));
    bad(&mut peer, &[1, property::RBSIZ, 1, 0]);
    bad(&mut peer, &[1, property::RBSIZ, u32::MAX, 0]);
    drop(peer);
    // Messages with properties that never end.
    let mut peer = first();
    let many: Vec<(u32, u32)> = (0..300).map(|at| (1000 + at, at)).collect();
    for _ in 0..500 {
        peer.send(&message(XID, htype::CONNPROP_MIDDLE, &properties(&many)));
    }
    peer.send(&message(XID, htype::CONNPROP_FINAL, &[0]));
    peer.assert_goes_on(XID ^ 2);
    peer.assert_refused(
        &message(XID, htype::CONNPROP_FINAL, &[0]),
        &[error::INVAL_CONT],
    );
    drop(peer);
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn properties_at_their_limits_harm_nobody() {
    let target = target();
    for value in [0, 1, 19, 1023, 1 << 31, u32::MAX] {
        let all = [1, 2, 3, 4, 5].map(|which| (which, value));
        let mut peer = beginning(
            &target,
            &message(XID, htype::CONNPROP_FINAL, &properties(&all)),
        );
        peer.assert_goes_on(XID ^ 1);
        // The reply has to be cut to what the client takes: 1024 octets at least.
        peer.send(&call(XID, 0, &[0; 3], &echo(XID, 3000)));
        let mut most = 0;
        loop {
            let part = peer.answer();
            most = most.max(part.len() * 4);
            if part[3] == htype::REPLY_INLINE {
                break;
            }
            assert_eq!(part[3], htype::REPLY_MIDDLE);
        }
        assert!(
            most <= 1024.max(value as usize),
            "{most} octets for {value}"
        );
    }
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn grants_are_not_answered_by_grants_without_end() {
    let target = target();
    let mut peer = speaking(&target);
    let before = peer.grants;
    for _ in 0..10_000 {
        peer.send(&grant());
    }
    peer.assert_goes_on(XID ^ 2);
    // One for each half of what may be sent, at most.
    let window = peer.may_send().max(8) as usize;
    let grants = peer.grants - before;
    assert!(grants <= 2 * 10_000 / (window / 2), "{grants} grants");
    let before = peer.grants;
    for xid in 2..100 {
        peer.assert_goes_on(XID ^ xid);
    }
    assert!(peer.grants - before <= 1);
    target.assert_serves();
}

#[test]
fn grants_of_any_size_harm_nobody() {
    let target = target();
    for window in [0, 1, 1 << 30, (1 << 31) - 1, 1 << 31, u32::MAX] {
        let mut peer = speaking(&target);
        peer.window = window;
        peer.force(&null(XID));
        peer.window = 1000;
        peer.force(&grant());
        assert_eq!(peer.answer()[0], XID);
        peer.assert_goes_on(XID ^ 2);
    }
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn errors_with_any_arguments_are_discarded() {
    let target = target();
    let mut peer = speaking(&target);
    for code in (0..=12).chain([99, 100, 101, u32::MAX]) {
        for arguments in [
            &[][..],
            &[0],
            &[u32::MAX],
            &[0, 0],
            &[u32::MAX, u32::MAX, 7],
        ] {
            for xid in [XID, XID ^ 1] {
                let rest = [&[code], arguments].concat();
                peer.send(&message(xid, htype::ERROR, &rest));
            }
        }
    }
    peer.send(&message(XID, htype::ERROR, &[]));
    peer.assert_goes_on(XID ^ 2);
    target.assert_serves();
}

#[test]
fn handles_that_were_not_granted_are_not_invalidated() {
    let target = target();
    let mut peer = speaking(&target);
    // The call names what it does not offer.
    let mut naming = null(XID);
    naming[4] = 0x00c0_ffee;
    let reply = [
        &[XID, 2, htype::REPLY_INLINE, 0],
        &rpc::accepted(XID, 0, &[])[..],
    ]
    .concat();
    assert_eq!(peer.ask(&naming), reply);
    peer.assert_goes_on(XID ^ 2);
    // It takes away what the server never gave.
    peer.invalidate(&null(XID), 0x00c0_ffee);
    peer.peer.drain_to_terminate(CANNOT_INVALIDATE);
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn replies_to_calls_never_made_are_discarded() {
    let target = target();
    let mut peer = speaking(&target);
    let stream = rpc::accepted(XID, 0, &[]);
    let inline = [&[0], &stream[..]].concat();
    for _ in 0..100 {
        peer.send(&message(XID, htype::REPLY_INLINE, &inline));
        peer.send(&message(XID, htype::REPLY_EXTERNAL, &[0, 1, 1, 8, 8, 0, 0]));
        peer.send(&message(XID, htype::REPLY_EXTERNAL, &[0, 0]));
        peer.send(&message(XID, htype::REPLY_INLINE, &[7, 7]));
        let first = [&[1 << 30], &stream[..]].concat();
        peer.send(&message(XID, htype::REPLY_MIDDLE, &first));
    }
    // The last of a reply that was refused.
    peer.send(&message(XID, htype::REPLY_INLINE, &[0, 7]));
    peer.assert_goes_on(XID ^ 2);
    target.assert_serves();
}

#[test]
fn messages_of_the_other_draft_are_told_apart() {
    let target = target();
    let one = words(&rpc::msg(XID, 32, &rpc::call(XID, PROGRAM, 2, 0)));
    let two = header::Version::Two.call(&rpc::msg(XID, 32, &rpc::call(XID, PROGRAM, 2, 0)));
    let said = header::optional(XID, 0, header::operation::INITXCH, &[0, 0]);
    // As the first message, each draws ERR_VERS, and version one is used.
    for first in [&two, &said] {
        let mut peer = Peer::connect(target.addr());
        peer.send(&words(first));
        let answer = peer.answer();
        assert_eq!(
            (answer[0], &answer[3..]),
            (XID, &[4, error::VERS, 1, 1][..])
        );
        peer.send(&one);
        assert_eq!(peer.answer()[..2], [XID, 1]);
    }
    // Later, a call has a header type that there is not; an operation is a grant with something behind it.
    let mut peer = speaking(&target);
    peer.assert_refused(&two, &[error::INVAL_HTYPE]);
    peer.send(&said);
    peer.assert_goes_on(XID ^ 2);
    peer.send(&rpc::msg(XID, 32, &rpc::call(XID, PROGRAM, 2, 0)));
    let answer = peer.answer();
    assert_eq!(answer[..2], [XID, 1]);
    assert!([error::VERS, error::VERS_MISMATCH].contains(&answer[4]));
    peer.assert_goes_on(XID ^ 3);
    drop(peer);
    target.assert_serves();
    target.assert_baseline();
}
