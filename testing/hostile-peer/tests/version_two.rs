//! Invalid messages of version two (cel-01, xcharext), and the response to each.

use hostile_peer::header::characteristic::RBSIZ;
use hostile_peer::header::direction::{CALL, REPLY};
use hostile_peer::header::error::{HEADER as BAD_HEADER, INVAL_OPTION, VERS as ERR_VERS};
use hostile_peer::header::operation::{INITXCH, REQXCH, RESPXCH, UPDXCH};
use hostile_peer::header::procedure::{ERROR, MSG, NOMSG, OPTIONAL};
use hostile_peer::header::{self, initial, specification, update};
use hostile_peer::{Cause, Heard, PROGRAM, Peer, Target, as_words, procedure, rpc, words};

const XID: u32 = 0x5a5a_0001;

/// Largest grant of the server.
const CREDITS: u32 = 16;

const TOO_LONG: Cause = Cause(1, 2, 5);

fn message(proc: u32, rest: &[u32], stream: &[u32]) -> Vec<u8> {
    words(&[&[XID, 2, 32, proc], rest, stream].concat())
}

fn optional(direction: u32, operation: u32, info: &[u32]) -> Vec<u8> {
    words(&header::optional(XID, direction, operation, info))
}

/// A NULL call of version two, and its reply.
fn null(xid: u32) -> (Vec<u8>, Vec<u32>) {
    let call = rpc::call(xid, PROGRAM, 2, procedure::NULL);
    let reply = rpc::accepted(xid, 0, &[]);
    let call = [&[xid, 2, 32, MSG, CALL, 0, 0, 0], &call[..]].concat();
    let reply = [&[xid, 2, CREDITS, MSG, REPLY, 0, 0, 0], &reply[..]].concat();
    (words(&call), reply)
}

/// Asserts that a good call is answered next, so that nothing else came before.
#[track_caller]
fn assert_goes_on(peer: &mut Peer) {
    let (call, reply) = null(XID + 1);
    peer.send(&call);
    assert_eq!(granting(peer.answer()), reply);
}

/// An answer as if all credits were granted: a server that posts Receives grants few at first.
#[track_caller]
fn granting(mut answer: Vec<u32>) -> Vec<u32> {
    assert!((1..=CREDITS).contains(&answer[2]), "{answer:?}");
    answer[2] = CREDITS;
    answer
}

/// A client that has been answered in version two.
#[track_caller]
fn speaking(target: &Target) -> Peer {
    let mut peer = Peer::connect(target.addr());
    assert_goes_on(&mut peer);
    peer
}

#[track_caller]
fn refused(target: &Target, message: &[u8], error: u32) {
    let mut peer = speaking(target);
    peer.send(message);
    assert_eq!(peer.answer(), [XID, 2, CREDITS, ERROR, error]);
    assert_goes_on(&mut peer);
    target.assert_serves();
}

#[track_caller]
fn discarded(target: &Target, message: &[u8]) {
    let mut peer = speaking(target);
    peer.send(message);
    assert_goes_on(&mut peer);
    target.assert_serves();
}

/// A client that has said this about itself in its first message, and was answered.
#[track_caller]
fn introduced(target: &Target, values: &[(u32, u32)], nochg: &[u32]) -> Peer {
    Peer::introduced(target.addr(), &initial(values, nochg))
}

/// Whether the reply to a call comes that has so many bytes of data inline, as the call has.
#[track_caller]
fn is_echoed_inline(peer: &mut Peer, bytes: u32) -> bool {
    let call = rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[bytes]);
    let data = vec![0x77; bytes as usize / 4];
    peer.send(&message(MSG, &[CALL, 0, 0, 0], &[call, data].concat()));
    let answer = peer.answer_to(XID);
    if answer[3..] == [ERROR, BAD_HEADER] {
        return false;
    }
    let reply = rpc::accepted(XID, 0, &[bytes]);
    assert_eq!(answer[3..8], [MSG, REPLY, 0, 0, 0]);
    assert!(answer[8..].starts_with(&reply));
    assert_eq!(answer.len(), 8 + reply.len() + bytes as usize / 4);
    true
}

#[test]
fn change_of_version_draws_err_vers_with_the_version_in_use() {
    let target = Target::start();
    let mut peer = speaking(&target);
    peer.send(&words(&rpc::msg(XID, 32, &rpc::call(XID, PROGRAM, 2, 0))));
    assert_eq!(peer.answer(), [XID, 1, CREDITS, ERROR, ERR_VERS, 2, 2]);
    assert_goes_on(&mut peer);
    let mut peer = Peer::connect(target.addr());
    let one = words(&rpc::msg(XID, 32, &rpc::call(XID, PROGRAM, 2, 0)));
    peer.send(&one);
    peer.answer();
    peer.send(&null(XID).0);
    assert_eq!(peer.answer(), [XID, 2, CREDITS, ERROR, ERR_VERS, 1, 1]);
    peer.send(&one);
    assert_eq!(peer.answer()[..4], [XID, 1, CREDITS, MSG]);
    target.assert_serves();
}

#[test]
fn headers_that_are_wrong_draw_bad_header() {
    let target = Target::start();
    let call = rpc::call(XID, PROGRAM, 2, procedure::NULL);
    let bad = |proc, rest: &[u32]| refused(&target, &message(proc, rest, &call), BAD_HEADER);
    // A direction that there is not; a mark, a count and a list that are none.
    bad(MSG, &[2, 0, 0, 0]);
    bad(MSG, &[u32::MAX, 0, 0, 0]);
    bad(MSG, &[CALL, 2, 0, 0]);
    bad(MSG, &[CALL, 0, 1, 1 << 28, 0]);
    bad(MSG, &[CALL, 0, 0, 1, u32::MAX]);
    bad(MSG, &[CALL, 1, 3, 8, 8, 0, 0, 0, 0, 0]);
    bad(NOMSG, &[CALL, 0, 0, 0]);
    for procedure in [2, 3, 6, u32::MAX] {
        bad(procedure, &[CALL, 0, 0, 0]);
    }
    // A reply that says it is a call.
    let reply = rpc::accepted(XID, 0, &[]);
    refused(&target, &message(MSG, &[CALL, 0, 0, 0], &reply), BAD_HEADER);
}

#[test]
fn unsolicited_replies_are_discarded() {
    let target = Target::start();
    let reply = rpc::accepted(XID, 0, &[]);
    discarded(&target, &message(MSG, &[REPLY, 0, 0, 0], &reply));
    discarded(
        &target,
        &message(NOMSG, &[REPLY, 0, 0, 1, 1, 9, 8, 0, 0], &[]),
    );
    discarded(&target, &message(MSG, &[REPLY, 7, 0, 0], &reply));
    discarded(&target, &message(ERROR, &[BAD_HEADER], &[]));
    discarded(&target, &message(ERROR, &[INVAL_OPTION], &[]));
    discarded(&target, &message(ERROR, &[77], &[]));
    discarded(&target, &optional(REPLY, INITXCH, &[0, 0]));
    discarded(&target, &optional(REPLY, RESPXCH, &[0, 0, 0]));
    discarded(&target, &optional(REPLY, 77, &[]));
    // A call that says it is a reply; operations of the other direction; what is malformed.
    let call = rpc::call(XID, PROGRAM, 2, procedure::NULL);
    discarded(&target, &message(MSG, &[REPLY, 0, 0, 0], &call));
    discarded(&target, &optional(REPLY, REQXCH, &[0]));
    discarded(&target, &optional(REPLY, INITXCH, &[u32::MAX]));
    discarded(&target, &optional(REPLY, RESPXCH, &[1, 1, 1, 1]));
}

#[test]
fn invalid_operations_are_refused_and_change_nothing() {
    let target = Target::start();
    let refuse = |operation, info: &[u32], error| {
        refused(&target, &optional(CALL, operation, info), error);
    };
    for operation in [0, 5, 77, u32::MAX] {
        refuse(operation, &[], INVAL_OPTION);
        refuse(operation, &[1, 2, 3], INVAL_OPTION);
    }
    // Receives of 1023 bytes, a value that is not there, one beyond the end, two of the same.
    refuse(INITXCH, &[1, 1, 4, 1023, 0], BAD_HEADER);
    refuse(INITXCH, &[1, 1, 0, 0], BAD_HEADER);
    refuse(INITXCH, &[1, 1, 4000, 0], BAD_HEADER);
    refuse(INITXCH, &[2, 1, 4, 8192, 1, 4, 8192, 0], BAD_HEADER);
    refuse(INITXCH, &[u32::MAX], BAD_HEADER);
    refuse(INITXCH, &[0, u32::MAX], BAD_HEADER);
    refuse(INITXCH, &[0, 0, 0], BAD_HEADER);
    refuse(REQXCH, &[1, 2, 4, 7], BAD_HEADER);
    refuse(UPDXCH, &[1, 4, 8192, 2], BAD_HEADER);
    // What belongs into the other direction.
    refuse(RESPXCH, &[0, 0, 0], BAD_HEADER);
    refuse(INITXCH, &[], BAD_HEADER);
    // The stream of a call behind an operation.
    let call = rpc::call(XID, PROGRAM, 2, procedure::NULL);
    let behind = [optional(CALL, INITXCH, &[0, 0]), words(&call)].concat();
    refused(&target, &behind, BAD_HEADER);
    let counters = target.stop().counters;
    assert_eq!(counters.option_errors_sent, 8);
    assert_eq!(counters.chunk_errors_sent, 12);
}

#[test]
fn wrong_lengths_draw_bad_header() {
    let target = Target::start();
    let lies = |len, rest: &[u32]| {
        let lie = message(OPTIONAL, &[CALL, INITXCH, len], rest);
        refused(&target, &lie, BAD_HEADER);
    };
    // Of the information: more than there is, fewer, none, and what is no whole word.
    let info = initial(&[(RBSIZ, 8192)], &[]);
    for len in [24, 4000, 1 << 31, u32::MAX, 16, 4, 0, 17, 19] {
        lies(len, &info);
    }
    // Of a value, of the set of values, and of the set of those that do not change.
    lies(20, &[1, RBSIZ, 8, 8192, 0]);
    lies(20, &[1, RBSIZ, 3, 8192, 0]);
    lies(20, &[1, RBSIZ, u32::MAX, 8192, 0]);
    lies(20, &[2, RBSIZ, 4, 8192, 0]);
    lies(20, &[1 << 28, RBSIZ, 4, 8192, 0]);
    lies(20, &[1, RBSIZ, 4, 8192, 1]);
    lies(24, &[1, RBSIZ, 4, 8192, 1 << 30, 1]);
}

#[test]
fn lists_beyond_their_limits_draw_bad_header() {
    let target = Target::start();
    let unknown = |count: u32| -> Vec<u32> {
        let values = (0..count).flat_map(|at| [1000 + at, 0]);
        [count].into_iter().chain(values).chain([0]).collect()
    };
    refused(&target, &optional(CALL, INITXCH, &unknown(129)), BAD_HEADER);
    // What nobody knows is there once as well.
    let mut twice = unknown(128);
    twice[3] = 1000;
    refused(&target, &optional(CALL, INITXCH, &twice), BAD_HEADER);
    let words_of_a_subset = [0, 5, 0, 0, 0, 0, 0];
    let subset = optional(CALL, INITXCH, &words_of_a_subset);
    refused(&target, &subset, BAD_HEADER);
    let mut peer = speaking(&target);
    peer.send(&optional(CALL, INITXCH, &unknown(128)));
    assert_eq!(peer.answer()[3..6], [OPTIONAL, REPLY, INITXCH]);
    assert_goes_on(&mut peer);
}

#[test]
fn first_message_may_be_anything_that_fits_a_receive() {
    let target = Target::posting();
    // Of one characteristic that nobody knows; the message has 1024 bytes, more, and one too many.
    let padded = |bytes: usize| {
        let value = bytes - 4 * 11;
        let len = u32::try_from(value).unwrap();
        let mut info = vec![1, 1000, len];
        info.extend(vec![0; value / 4]);
        info.push(0);
        let mut message = optional(CALL, INITXCH, &info);
        message.resize(bytes, 0);
        message
    };
    for bytes in [1024, 1028, 4096] {
        let mut peer = Peer::connect(target.addr());
        peer.send(&padded(bytes));
        assert_eq!(peer.answer()[3..6], [OPTIONAL, REPLY, INITXCH]);
        assert_goes_on(&mut peer);
    }
    let mut peer = Peer::connect(target.addr());
    peer.send(&padded(4100));
    peer.assert_terminated(TOO_LONG);
    // None of these says what is spoken.
    for undecided in [
        message(ERROR, &[BAD_HEADER], &[]),
        optional(REPLY, INITXCH, &initial(&[], &[])),
        optional(REPLY, RESPXCH, &[0, 0, 0]),
        message(MSG, &[REPLY, 0, 0, 0], &rpc::accepted(XID, 0, &[])),
        message(MSG, &[REPLY, 7, 0, 0], &[]),
    ] {
        let mut peer = Peer::connect(target.addr());
        peer.send(&undecided);
        peer.send(&words(&rpc::msg(XID, 32, &rpc::call(XID, PROGRAM, 2, 0))));
        assert_eq!(granting(peer.answer())[..4], [XID, 1, CREDITS, MSG]);
    }
    // These do, whether or not there was an INITXCH.
    let mut peer = Peer::connect(target.addr());
    peer.send(&optional(CALL, REQXCH, &[0]));
    assert_eq!(peer.answer()[3..], [OPTIONAL, REPLY, RESPXCH, 12, 0, 0, 0]);
    assert_goes_on(&mut peer);
    let mut peer = Peer::connect(target.addr());
    peer.send(&optional(CALL, UPDXCH, &update(1024, true)));
    peer.send(&optional(CALL, 77, &[]));
    assert_eq!(
        granting(peer.answer()),
        [XID, 2, CREDITS, ERROR, INVAL_OPTION]
    );
    assert_goes_on(&mut peer);
    target.assert_serves();
}

#[test]
fn client_that_does_not_wait_for_the_answer_is_answered_in_order() {
    let target = Target::start();
    let mut peer = Peer::connect(target.addr());
    peer.send(&optional(CALL, INITXCH, &initial(&[(RBSIZ, 4096)], &[])));
    let calls: Vec<_> = (2..6).map(|number| null(XID + number)).collect();
    for (call, _) in &calls {
        peer.send(call);
    }
    // Each is answered once; calls may overtake what is said about characteristics.
    let mut heard: Vec<_> = (0..5).map(|_| peer.answer()).collect();
    let init = heard.iter().position(|answer| answer[3] == OPTIONAL);
    let init = heard.remove(init.expect("an answer to INITXCH"));
    assert_eq!(init[..2], [XID, 2]);
    assert!(
        heard
            .into_iter()
            .eq(calls.into_iter().map(|(_, reply)| reply))
    );
    assert_goes_on(&mut peer);
}

#[test]
fn repeated_initxch_is_answered_and_only_the_first_takes_effect() {
    let target = Target::start();
    let mut peer = introduced(&target, &[(RBSIZ, 4096)], &[]);
    let first = optional(CALL, INITXCH, &initial(&[(RBSIZ, 1024)], &[1]));
    for _ in 0..3 {
        peer.send(&first);
        assert_eq!(peer.answer()[3..6], [OPTIONAL, REPLY, INITXCH]);
    }
    assert!(is_echoed_inline(&mut peer, 3000));
    target.assert_serves();
}

#[test]
fn property_announced_as_unchanging_cannot_be_updated_but_for_less() {
    let target = Target::start();
    for (nochg, changes) in [
        (&[][..], true),
        (&[1], false),
        (&[u32::MAX, u32::MAX], false),
        // Of values that there are not.
        (&[0xffff_fffe, u32::MAX], true),
    ] {
        let mut peer = introduced(&target, &[(RBSIZ, 1024)], nochg);
        peer.send(&optional(CALL, UPDXCH, &update(4096, false)));
        assert_eq!(is_echoed_inline(&mut peer, 3000), changes, "{nochg:x?}");
        // A Receive holds no more than it holds.
        let mut peer = introduced(&target, &[(RBSIZ, 4096)], nochg);
        peer.send(&optional(CALL, UPDXCH, &update(1024, false)));
        assert!(!is_echoed_inline(&mut peer, 3000), "{nochg:x?}");
    }
    target.assert_serves();
}

#[test]
fn each_change_of_the_receive_size_is_respected() {
    let target = Target::start();
    let mut peer = introduced(&target, &[(RBSIZ, 1024)], &[]);
    assert!(!is_echoed_inline(&mut peer, 3000));
    for round in 0..100 {
        let (bytes, fits) = [(4096, true), (1024, false), (u32::MAX, true)][round % 3];
        // A value too small for anybody, and one that is none, change nothing.
        peer.send(&optional(CALL, UPDXCH, &update(1023, false)));
        assert_eq!(peer.answer_to(XID)[3..], [ERROR, BAD_HEADER]);
        peer.send(&optional(CALL, UPDXCH, &update(bytes, round % 2 == 0)));
        assert_eq!(is_echoed_inline(&mut peer, 3000), fits, "round {round}");
    }
    drop(peer);
    target.assert_serves();
    target.assert_baseline();
}

#[test]
fn any_receive_size_may_be_requested() {
    let target = Target::start();
    let mut peer = speaking(&target);
    let all = initial(&[(RBSIZ, u32::MAX)], &[]);
    peer.send(&optional(CALL, INITXCH, &all));
    let init = peer.answer();
    assert_eq!(init[..6], [XID, 2, CREDITS, OPTIONAL, REPLY, INITXCH]);
    assert_goes_on(&mut peer);
    for bytes in [0, 1023, 1024, 4095, 4097, u32::MAX] {
        let want = specification(&[(RBSIZ, bytes)]);
        peer.send(&optional(CALL, REQXCH, &want));
        let answer = peer.answer_to(XID);
        match bytes {
            0 | 1023 => assert_eq!(answer, [XID, 2, CREDITS, ERROR, BAD_HEADER]),
            _ => assert_eq!(answer[..6], [XID, 2, CREDITS, OPTIONAL, REPLY, RESPXCH]),
        }
    }
    peer.send(&optional(CALL, UPDXCH, &update(u32::MAX, false)));
    assert_goes_on(&mut peer);
    target.assert_serves();
}

#[test]
fn larger_messages_are_accepted_only_after_they_were_announced() {
    let target = Target::posting();
    // A server of version two makes its Receives larger by itself (docs/design/version-two.md).
    let mut peer = introduced(&target, &[], &[]);
    peer.send(&vec![0; 4097]);
    peer.assert_terminated(TOO_LONG);
    for (bytes, taken) in [(8192, true), (8193, false)] {
        let mut peer = introduced(&target, &[], &[]);
        let mut calls = 0;
        let told = loop {
            let (call, reply) = null(XID + 2);
            peer.send(&call);
            calls += 1;
            assert!(calls < 100, "it is not told");
            let answer = peer.answer();
            if answer[3] == OPTIONAL {
                // It goes on to ask, so that it knows when this was heard.
                assert_eq!(granting(peer.answer_to(XID + 2)), reply);
                break answer;
            }
            assert_eq!(granting(answer), reply);
        };
        assert_eq!(told[4..6], [CALL, UPDXCH]);
        assert_eq!(told[7..], update(8192, false));
        let mut message = null(XID).0;
        message.resize(bytes, 0);
        peer.send(&message);
        if taken {
            assert_eq!(peer.answer_to(XID)[3..5], [MSG, REPLY]);
        } else {
            let end = loop {
                match peer.hear() {
                    Heard::Message { .. } => {}
                    end => break end,
                }
            };
            assert_eq!(end, Heard::Terminate(TOO_LONG));
        }
    }
    target.assert_serves();
}

#[test]
fn as_many_requests_as_there_are_receives_for_are_answered() {
    let target = Target::start();
    let mut peer = introduced(&target, &[], &[]);
    // Four at a time, each of which is owed something, on top of all credits.
    for _ in 0..100 {
        for number in 0..CREDITS {
            peer.send(&null(XID + 10 + number).0);
        }
        for operation in [REQXCH, REQXCH, 77, INITXCH] {
            let info = if operation == INITXCH {
                &[0, 0][..]
            } else {
                &[0]
            };
            peer.send(&optional(CALL, operation, info));
        }
        for _ in 0..CREDITS + 4 {
            while peer.answer()[3..5] == [OPTIONAL, CALL] {}
        }
    }
    assert_goes_on(&mut peer);
    target.assert_serves();
}

#[test]
fn flood_of_operations_ends_the_connection() {
    let target = Target::start();
    let requests = [
        optional(CALL, REQXCH, &[0]),
        optional(CALL, REQXCH, &specification(&[(RBSIZ, u32::MAX)])),
        optional(CALL, INITXCH, &initial(&[(RBSIZ, 4096)], &[])),
        optional(CALL, 77, &[]),
    ];
    for request in requests {
        let mut peer = speaking(&target);
        for _ in 0..2000 {
            peer.send(&request);
        }
        // Some are answered first; waiting in vain would be a failure.
        while !matches!(peer.hear(), Heard::Terminate(_) | Heard::Closed) {}
        drop(peer);
        target.assert_serves();
    }
    target.assert_baseline();
}

#[test]
fn flood_of_messages_without_a_response_does_not_grow_memory() {
    let target = Target::start();
    let storms = [
        optional(CALL, UPDXCH, &update(4096, true)),
        optional(REPLY, RESPXCH, &[1, 1, 1, 1, 1, 1]),
        optional(REPLY, INITXCH, &initial(&[(RBSIZ, 1024)], &[])),
        optional(REPLY, 77, &[]),
        message(ERROR, &[BAD_HEADER], &[]),
        message(ERROR, &[INVAL_OPTION], &[]),
        message(ERROR, &[ERR_VERS, 1, 1], &[]),
        message(ERROR, &[ERR_VERS, 7, 3], &[]),
        words(&[XID, 1, 32, ERROR, ERR_VERS, 1, 1]),
        message(MSG, &[REPLY, 0, 0, 0], &rpc::accepted(XID, 0, &[])),
        message(MSG, &[CALL], &[]),
    ];
    for storm in storms {
        let mut peer = introduced(&target, &[(RBSIZ, 4096)], &[]);
        for round in 0..300 {
            // As fast as it is allowed to: there are Receives for four beyond the credits.
            (0..8).for_each(|_| peer.send(&storm));
            let (call, reply) = null(XID + 2 + round);
            peer.send(&call);
            assert_eq!(peer.answer_to(XID + 2 + round), reply);
        }
    }
    target.assert_serves();
    target.assert_baseline();
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

#[test]
fn mutated_headers_harm_nobody() {
    let target = Target::start();
    let mut dice = Dice(0x5eed_0002);
    let connect = || {
        let mut peer = speaking(&target);
        // Nobody but the call itself is to blame for what it offers.
        peer.refuses_access = true;
        peer
    };
    let mut peer = connect();
    for number in 0..2000 {
        let xid = XID + 2 + number;
        let call = rpc::call(xid, PROGRAM, 2, procedure::NULL);
        let rest: Vec<u32> = match dice.below(5) {
            0 => vec![CALL, 1, 44, 3, 8, 0, 0, 0, 0, 0],
            1 => vec![CALL, 0, 1, 2, 16, 4, 0, 0, 4, 4, 0, 0, 0, 0],
            2 => vec![CALL, INITXCH, 28, 1, 1, 4, 8192, 1, 1, 0],
            3 => vec![CALL, UPDXCH, 16, 1, 4, 8192, 1],
            _ => vec![CALL, 0, 0, 0],
        };
        let proc = [MSG, MSG, NOMSG, OPTIONAL][dice.below(4)];
        let mut message = [&[xid, 2, 32, proc], &rest[..], &call].concat();
        for _ in 0..dice.below(3) {
            // All but its XID, which tells its answer from that of the call behind it.
            let at = 1 + dice.below(message.len() - 1);
            message[at] = [0, 1, 2, 5, 0xffff_ffff][dice.below(5)];
        }
        peer.send(&words(&message));
        let (call, reply) = null(XID + 1);
        peer.send(&call);
        if !hears(&mut peer, &reply) {
            peer = connect();
        }
    }
    target.assert_serves();
    let counters = target.stop().counters;
    assert!(counters.chunk_errors_sent > 100, "{counters:?}");
    assert!(counters.option_errors_sent > 10, "{counters:?}");
    assert!(counters.replies_sent > 1500, "{counters:?}");
}

/// Whether this comes, perhaps behind something else, before the connection ends.
fn hears(peer: &mut Peer, expected: &[u32]) -> bool {
    loop {
        match peer.hear() {
            Heard::Message { bytes, .. } if as_words(&bytes) == expected => return true,
            Heard::Message { .. } | Heard::Read(_) => {}
            Heard::Terminate(_) | Heard::Closed => return false,
        }
    }
}
