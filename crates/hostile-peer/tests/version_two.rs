//! Messages of version two that are wrong (cel-01, xcharext), and what is owed for each.

use hostile_peer::{Heard, PROGRAM, Peer, Target, as_words, procedure, rpc, words};

const XID: u32 = 0x5a5a_0001;

/// What the server grants at most.
const CREDITS: u32 = 16;

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const ERROR: u32 = 4;
const OPTIONAL: u32 = 5;

const CALL: u32 = 0;
const REPLY: u32 = 1;

const ERR_VERS: u32 = 1;
const BAD_HEADER: u32 = 2;
const INVAL_OPTION: u32 = 3;

const INITXCH: u32 = 1;
const REQXCH: u32 = 2;
const RESPXCH: u32 = 3;
const UPDXCH: u32 = 4;

/// A whole number of words, for the length of opaque data.
fn octets(words: &[u32]) -> u32 {
    u32::try_from(words.len() * 4).expect("test data is short")
}

fn message(proc: u32, rest: &[u32], stream: &[u32]) -> Vec<u8> {
    words(&[&[XID, 2, 32, proc], rest, stream].concat())
}

fn optional(direction: u32, operation: u32, info: &[u32]) -> Vec<u8> {
    let fixed = [XID, 2, 32, OPTIONAL, direction, operation, octets(info)];
    words(&[&fixed, info].concat())
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
    assert_eq!(peer.answer(), reply);
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

#[test]
fn change_of_version_draws_err_vers_with_the_one_that_is_spoken() {
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
fn replies_that_nobody_asked_for_are_discarded() {
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
}

#[test]
fn operations_that_are_wrong_are_refused_and_change_nothing() {
    let target = Target::start();
    let refuse = |operation, info: &[u32], error| {
        refused(&target, &optional(CALL, operation, info), error);
    };
    for operation in [0, 5, 77, u32::MAX] {
        refuse(operation, &[], INVAL_OPTION);
        refuse(operation, &[1, 2, 3], INVAL_OPTION);
    }
    // Receives of 1023 octets, a value that is not there, one beyond the end, two of the same.
    refuse(INITXCH, &[1, 1, 4, 1023, 0], BAD_HEADER);
    refuse(INITXCH, &[1, 1, 0, 0], BAD_HEADER);
    refuse(INITXCH, &[1, 1, 4000, 0], BAD_HEADER);
    refuse(INITXCH, &[2, 1, 4, 8192, 1, 4, 8192, 0], BAD_HEADER);
    refuse(INITXCH, &[u32::MAX], BAD_HEADER);
    refuse(INITXCH, &[0, u32::MAX], BAD_HEADER);
    refuse(INITXCH, &[0, 0, 0], BAD_HEADER);
    refuse(REQXCH, &[1, 2, 4, 7], BAD_HEADER);
    refuse(UPDXCH, &[1, 4, 8192, 2], BAD_HEADER);
    // The stream of a call behind an operation.
    let call = rpc::call(XID, PROGRAM, 2, procedure::NULL);
    let behind = [optional(CALL, INITXCH, &[0, 0]), words(&call)].concat();
    refused(&target, &behind, BAD_HEADER);
    let counters = target.stop().counters;
    assert_eq!(counters.option_errors_sent, 8);
    assert_eq!(counters.chunk_errors_sent, 10);
}

#[test]
fn receives_of_any_size_may_be_asked_for() {
    let target = Target::start();
    let mut peer = speaking(&target);
    peer.send(&optional(CALL, INITXCH, &[1, 1, 4, u32::MAX, 0]));
    let init = peer.answer();
    assert_eq!(init[..6], [XID, 2, CREDITS, OPTIONAL, REPLY, INITXCH]);
    assert_goes_on(&mut peer);
    peer.send(&optional(CALL, REQXCH, &[1, 1, 4, u32::MAX]));
    let answer = peer.answer();
    assert_eq!(answer[..6], [XID, 2, CREDITS, OPTIONAL, REPLY, RESPXCH]);
    peer.send(&optional(CALL, UPDXCH, &[1, 4, u32::MAX, 0]));
    assert_goes_on(&mut peer);
    target.assert_serves();
}

#[test]
fn flood_of_operations_ends_the_connection() {
    let target = Target::start();
    let mut peer = speaking(&target);
    for _ in 0..2000 {
        peer.send(&optional(CALL, REQXCH, &[0]));
    }
    // Some are answered first; waiting in vain would be a failure.
    while !matches!(peer.hear(), Heard::Terminate(_) | Heard::Closed) {}
    target.assert_serves();
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
fn headers_that_are_nearly_right_harm_nobody() {
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
            Heard::Message { octets, .. } if as_words(&octets) == expected => return true,
            Heard::Message { .. } | Heard::Read(_) => {}
            Heard::Terminate(_) | Heard::Closed => return false,
        }
    }
}
