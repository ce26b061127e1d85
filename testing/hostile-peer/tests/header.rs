//! Transport headers that are wrong, and what RFC 8166 §4.5 owes for each, in version two as well
//! (cel-01 §4.2.3). The connection goes on. All is written down as it is in version one.

use hostile_peer::rpc::accept;
use hostile_peer::{Heard, PROGRAM, Peer, Target, Version, procedure, rpc, steady, words};
use std::time::Duration;

const XID: u32 = 0x5a5a_0001;

/// Largest grant of the server.
const CREDITS: u32 = 16;

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const MSGP: u32 = 2;
const DONE: u32 = 3;
const ERROR: u32 = 4;

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// A handle of ours, behind which are 64 KiB.
const STAG: u32 = 0x00c0_ffee;

fn null_call() -> Vec<u32> {
    rpc::call(XID, PROGRAM, 2, procedure::NULL)
}

/// A call to echo `length` bytes, which are not in it: they belong at Position 44.
fn echo_call(length: u32) -> Vec<u32> {
    rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[length])
}

const AFTER_ECHO: u32 = 44;

fn message(proc: u32, lists: &[u32], stream: &[u32]) -> Vec<u32> {
    [&[XID, 1, 32, proc], lists, stream].concat()
}

fn connect(target: &Target) -> Peer {
    let mut peer = Peer::connect(target.addr());
    let bytes = (0..=255).cycle().take(64 << 10).collect();
    peer.memory.insert(STAG, bytes);
    peer
}

/// Asserts that a good call is answered next, so that nothing else came before.
#[track_caller]
fn assert_goes_on(peer: &mut Peer, version: Version) {
    let xid = XID + 1;
    let call = rpc::msg(xid, 32, &rpc::call(xid, PROGRAM, 2, 0));
    peer.send(&words(&version.call(&call)));
    let expected = rpc::msg(xid, CREDITS, &rpc::accepted(xid, 0, &[]));
    assert_eq!(peer.answer(), version.reply(&expected));
}

/// In either version.
#[track_caller]
fn answered(target: &Target, message: &[u32], expected: &[u32]) {
    for version in Version::BOTH {
        let mut peer = connect(target);
        peer.send(&words(&version.call(message)));
        assert_eq!(peer.answer(), version.reply(expected));
        assert_goes_on(&mut peer, version);
    }
    target.assert_serves();
}

#[track_caller]
fn refused(target: &Target, message: &[u32]) {
    answered(target, message, &[XID, 1, CREDITS, ERROR, ERR_CHUNK]);
}

#[track_caller]
fn discarded(target: &Target, version: Version, message: &[u8]) {
    let mut peer = connect(target);
    peer.send(message);
    assert_goes_on(&mut peer, version);
    target.assert_serves();
}

#[test]
fn unknown_versions_draw_err_vers_with_the_supported_range() {
    let target = Target::start();
    for version in [0, 3, 0x0100_0000, u32::MAX] {
        let vers = [XID, version, CREDITS, ERROR, ERR_VERS, 1, 2];
        let header = [XID, version, 32, MSG, 0, 0, 0];
        let call = [&header[..], &null_call()].concat();
        // Whatever follows the four words that all versions have is not looked at.
        for message in [call, vec![XID, version, 32, 77, 9, 9, 9]] {
            let mut peer = connect(&target);
            peer.send(&words(&message));
            assert_eq!(peer.answer(), vers);
            assert_goes_on(&mut peer, Version::One);
        }
        target.assert_serves();
    }
}

#[test]
fn messages_under_28_bytes_are_discarded() {
    let target = Target::start();
    for version in Version::BOTH {
        let whole = words(&version.call(&message(MSG, &[0, 0, 0], &[])));
        // In version two the direction word counts too.
        for len in 0..whole.len() {
            discarded(&target, version, &whole[..len]);
        }
        let other_version = words(&[XID, 9, 32, MSG, 0, 0]);
        discarded(&target, version, &other_version);
    }
}

#[test]
fn unknown_procedures_draw_err_chunk() {
    let target = Target::start();
    for proc in [MSGP, 6, 77, u32::MAX] {
        for version in Version::BOTH {
            let mut peer = connect(&target);
            // In version two they are those of another draft until the version is settled.
            assert_goes_on(&mut peer, version);
            let call = message(proc, &[0, 0, 0], &null_call());
            peer.send(&words(&version.call(&call)));
            assert_eq!(peer.answer()[3..], [4, 2], "{proc}");
            assert_goes_on(&mut peer, version);
        }
    }
    target.assert_serves();
}

#[test]
fn header_types_of_other_drafts_draw_err_vers_at_first() {
    let target = Target::start();
    for proc in [MSGP, 6, 7, 10, 77, u32::MAX] {
        let mut peer = connect(&target);
        peer.send(&words(&[XID, 2, 32, proc, 0, 0, 0]));
        assert_eq!(peer.answer()[3..], [4, 1, 1, 1], "{proc}");
        assert_goes_on(&mut peer, Version::One);
    }
    target.assert_serves();
}

#[test]
fn rdma_error_and_obsolete_procedures_are_discarded() {
    let target = Target::start();
    let done = message(DONE, &[0, 0, 0], &[]);
    discarded(&target, Version::One, &words(&done));
    for version in Version::BOTH {
        for error in [
            &[ERR_CHUNK][..],
            &[ERR_VERS, 1, 1],
            &[ERR_VERS],
            &[99, 0, 0],
        ] {
            let error = version.reply(&message(ERROR, error, &[]));
            discarded(&target, version, &words(&error));
        }
        let of_other = words(&[XID, 3 - version.number(), 32, ERROR, ERR_VERS, 1, 1]);
        discarded(&target, version, &of_other);
    }
}

#[test]
fn replies_to_calls_never_made_are_discarded() {
    let target = Target::start();
    let reply = message(MSG, &[0, 0, 0], &rpc::accepted(XID, 0, &[]));
    for version in Version::BOTH {
        discarded(&target, version, &words(&version.reply(&reply)));
    }
    // Neither a call nor a reply.
    let mut neither = null_call();
    neither[1] = 7;
    let neither = message(MSG, &[0, 0, 0], &neither);
    discarded(&target, Version::One, &words(&neither));
}

#[test]
fn lists_that_are_not_xdr_draw_err_chunk() {
    let target = Target::start();
    for lists in [[2, 0, 0], [0, 2, 0], [0, 0, 2], [u32::MAX, 0, 0]] {
        refused(&target, &message(MSG, &lists, &null_call()));
    }
    // Cut off: in a read segment, behind it, in a Write chunk, before the Reply chunk's count.
    refused(&target, &message(MSG, &[1, 44, STAG], &[]));
    refused(&target, &message(MSG, &[1, 44, STAG, 4, 0, 0], &[]));
    refused(&target, &message(MSG, &[0, 1, 1, STAG, 4, 0], &[]));
    refused(&target, &message(MSG, &[0, 0, 1], &[]));
    // A list of segments that goes on to the end of the message.
    let endless = [1, 44, STAG, 4, 0, 0].repeat(160);
    refused(&target, &message(MSG, &endless, &[]));
}

#[test]
fn impossible_numbers_of_segments_draw_err_chunk() {
    let target = Target::start();
    for count in [257, 1 << 28, (1 << 28) - 1, u32::MAX] {
        refused(
            &target,
            &message(MSG, &[0, 1, count, STAG, 4, 0, 0, 0, 0], &null_call()),
        );
        refused(
            &target,
            &message(MSG, &[0, 0, 1, count, STAG, 4, 0, 0], &null_call()),
        );
        refused(&target, &message(NOMSG, &[0, 0, 1, count], &null_call()));
    }
}

#[test]
fn too_many_chunks_draw_err_chunk() {
    let target = Target::start();
    let mut writes = vec![0];
    writes.extend([1, 0].repeat(17));
    writes.extend([0, 0]);
    refused(&target, &message(MSG, &writes, &null_call()));
    let mut reads = Vec::new();
    for number in 0..17 {
        reads.extend([1, AFTER_ECHO + 4 * number, STAG, 4, 0, 0]);
    }
    reads.extend([0, 0, 0]);
    refused(&target, &message(MSG, &reads, &echo_call(4)));
}

#[test]
fn chunks_without_segments_are_empty_chunks() {
    let target = Target::start();
    // RFC 8166 §4.3.2.3: an empty Write chunk comes back empty.
    let expected = [
        &[XID, 1, CREDITS, MSG, 0, 1, 0, 0, 0],
        &rpc::accepted(XID, 0, &[])[..],
    ]
    .concat();
    let call = message(MSG, &[0, 1, 0, 0, 0], &null_call());
    answered(&target, &call, &expected);
}

#[test]
fn impossible_chunk_positions_draw_err_chunk() {
    let target = Target::start();
    let read = |positions: &[u32]| {
        let mut lists = Vec::new();
        for position in positions {
            lists.extend([1, *position, STAG, 8, 0, 0]);
        }
        lists.extend([0, 0, 0]);
        message(MSG, &lists, &echo_call(8))
    };
    for unaligned in [1, 42, 43, 45, 46, 47, u32::MAX] {
        refused(&target, &read(&[unaligned]));
    }
    for beyond in [AFTER_ECHO + 4, 4096, 0x8000_0000, u32::MAX - 3] {
        refused(&target, &read(&[beyond]));
    }
    // One over the other, in either order, and one behind a gap.
    refused(&target, &read(&[AFTER_ECHO, AFTER_ECHO + 4]));
    refused(&target, &read(&[AFTER_ECHO + 4, AFTER_ECHO]));
    refused(&target, &read(&[40, 44]));
    refused(&target, &read(&[AFTER_ECHO, AFTER_ECHO + 12]));
}

#[test]
fn call_both_inline_and_in_a_chunk_or_nowhere_draws_err_chunk() {
    let target = Target::start();
    let at_zero = [1, 0, STAG, 40, 0, 0, 0, 0, 0];
    refused(&target, &message(MSG, &at_zero, &null_call()));
    refused(&target, &message(NOMSG, &[0, 0, 0], &[]));
    refused(&target, &message(NOMSG, &[0, 0, 0], &null_call()));
    // Lists, but none with the call in it.
    refused(
        &target,
        &message(NOMSG, &[0, 1, 1, STAG, 64, 0, 0, 0, 0], &[]),
    );
    refused(&target, &message(NOMSG, &[0, 0, 1, 1, STAG, 64, 0, 0], &[]));
    refused(
        &target,
        &message(NOMSG, &[1, 4, STAG, 64, 0, 0, 0, 0, 0], &[]),
    );
    // One of no bytes.
    refused(
        &target,
        &message(NOMSG, &[1, 0, STAG, 0, 0, 0, 0, 0, 0], &[]),
    );
    // No RPC message, or not even its XID and direction.
    refused(&target, &message(MSG, &[0, 0, 0], &[]));
    refused(&target, &message(MSG, &[0, 0, 0], &[XID]));
}

#[test]
fn xid_that_differs_from_that_of_the_call_draws_err_chunk() {
    let target = Target::start();
    let other = rpc::call(XID + 9, PROGRAM, 2, 0);
    refused(&target, &message(MSG, &[0, 0, 0], &other));
    // The same where the call is in a chunk: it shows when it was pulled.
    for version in Version::BOTH {
        let mut peer = connect(&target);
        peer.memory.insert(7, words(&other));
        let call = message(NOMSG, &[1, 0, 7, 40, 0, 0, 0, 0, 0], &[]);
        peer.send(&words(&version.call(&call)));
        let error = [XID, version.number(), CREDITS, ERROR, ERR_CHUNK];
        assert_eq!(peer.answer(), error);
        assert_eq!(peer.reads, 1);
        assert_goes_on(&mut peer, version);
    }
}

#[test]
fn chunks_larger_than_the_server_moves_draw_err_chunk() {
    let target = Target::start();
    for length in [(4 << 20) + 1, 1 << 31, u32::MAX] {
        let lists = [1, AFTER_ECHO, STAG, length, 0, 0, 0, 0, 0];
        refused(&target, &message(MSG, &lists, &echo_call(length)));
        let lists = [1, 0, STAG, length, 0, 0, 0, 0, 0];
        refused(&target, &message(NOMSG, &lists, &[]));
    }
    // Chunks that are each small enough, but not all of them together.
    let mut lists = Vec::new();
    for position in [AFTER_ECHO, AFTER_ECHO + (3 << 20)] {
        lists.extend([1, position, STAG, 3 << 20, 0, 0]);
    }
    lists.extend([0, 0, 0]);
    refused(&target, &message(MSG, &lists, &echo_call(3 << 20)));
    // Many segments whose sum does not fit 32 bits.
    let segment = [1, AFTER_ECHO, STAG, u32::MAX, 0, 0];
    let lists = [&segment.repeat(100)[..], &[0, 0, 0]].concat();
    refused(&target, &message(MSG, &lists, &echo_call(u32::MAX)));
}

#[test]
fn item_that_is_not_eligible_draws_err_chunk() {
    let target = Target::start();
    // RFC 8166 §6.1: two numbers cannot travel by reference, nor can a credential.
    let add = rpc::call(XID, PROGRAM, 2, procedure::ADD);
    let lists = [1, 40, STAG, 8, 0, 0, 0, 0, 0];
    refused(&target, &message(MSG, &lists, &add));
    let lists = [1, 28, STAG, 4, 0, 0, 0, 0, 0];
    refused(&target, &message(MSG, &lists, &null_call()));
}

#[test]
fn item_of_another_length_than_the_call_says_draws_garbage_args() {
    let target = Target::start();
    let garbage = rpc::accepted(XID, accept::GARBAGE_ARGS, &[]);
    for length in [4, 9, 12] {
        let lists = [1, AFTER_ECHO, STAG, length, 0, 0, 0, 0, 0];
        let call = message(MSG, &lists, &echo_call(8));
        answered(&target, &call, &rpc::msg(XID, CREDITS, &garbage));
    }
}

#[test]
fn reply_without_room_for_it_draws_err_chunk() {
    let target = Target::start();
    let read = [1, AFTER_ECHO, STAG, 8000, 0, 0, 0];
    // Nothing is offered; too little is, for the result and for the whole reply.
    for offered in [
        &[0, 0][..],
        &[1, 1, STAG, 7999, 0, 0, 0, 0],
        &[0, 1, 1, STAG, 8000, 0, 0],
    ] {
        let lists = [&read[..], offered].concat();
        refused(&target, &message(MSG, &lists, &echo_call(8000)));
    }
}

#[test]
fn valid_chunks_of_every_kind_are_served() {
    let target = Target::start();
    for version in Version::BOTH {
        serves_good_chunks(&target, version);
    }
}

fn serves_good_chunks(target: &Target, version: Version) {
    let bytes: Vec<u8> = (0..=255).cycle().take(64 << 10).collect();
    let mut peer = connect(target);
    // The same connection for all of them: each leaves it as it was.
    peer.memory.insert(1, vec![0; 8192]);
    peer.memory.insert(2, vec![0; 8192]);
    let success = |rest: &[u32]| rpc::accepted(XID, 0, rest);

    // A Read chunk of odd segments; the result inline.
    let lists = [
        1, AFTER_ECHO, STAG, 3, 0, 256, 1, AFTER_ECHO, STAG, 2, 0, 3, 0, 0, 0,
    ];
    peer.send(&words(&version.call(&message(MSG, &lists, &echo_call(5)))));
    let echoed = [
        &[XID, 1, CREDITS, MSG, 0, 0, 0],
        &success(&[5, 0x0001_0203, 0x0400_0000])[..],
    ];
    assert_eq!(peer.answer(), version.reply(&echoed.concat()));

    // The result in a Write chunk of two segments; its handle may be taken away with the reply.
    let lists = [
        1, AFTER_ECHO, STAG, 4999, 0, 7, 0, 1, 2, 1, 1001, 0, 3, 2, 8000, 0, 1, 0, 0,
    ];
    peer.send(&words(&version.call(&message(
        MSG,
        &lists,
        &echo_call(4999),
    ))));
    let written = [
        XID, 1, CREDITS, MSG, 0, 1, 2, 1, 1001, 0, 3, 2, 3998, 0, 1, 0, 0,
    ];
    let written = [&written[..], &success(&[4999])].concat();
    assert_eq!(peer.answer(), version.reply(&written));
    assert_eq!(peer.memory[&1][3..1004], bytes[7..1008]);
    assert_eq!(peer.memory[&2][1..3999], bytes[1008..5006]);
    assert!(peer.memory[&2][3999..].iter().all(|byte| *byte == 0));

    // A Position-Zero chunk and a Reply chunk.
    let mut call = words(&echo_call(5000));
    call.extend_from_slice(&bytes[..5000]);
    peer.memory.insert(3, call);
    let lists = [1, 0, 3, 44 + 5000, 0, 0, 0, 0, 1, 1, 1, 8192, 0, 0];
    peer.send(&words(&version.call(&message(NOMSG, &lists, &[]))));
    let written = [XID, 1, CREDITS, NOMSG, 0, 0, 1, 1, 1, 28 + 5000, 0, 0];
    assert_eq!(peer.answer(), version.reply(&written));
    let reply = &peer.memory[&1][..28 + 5000];
    assert_eq!(reply[..28], words(&success(&[5000])));
    assert_eq!(reply[28..], bytes[..5000]);
    assert_goes_on(&mut peer, version);
}

#[test]
fn credit_grants_are_between_one_and_the_limit_of_the_server() {
    let target = Target::start();
    let granted = [(0, 1), (1, 1), (16, 16), (17, 16), (u32::MAX, 16)];
    for (version, (asked, granted)) in Version::BOTH
        .into_iter()
        .flat_map(|version| granted.map(|granted| (version, granted)))
    {
        let mut peer = connect(&target);
        peer.send(&words(&version.call(&rpc::msg(XID, asked, &null_call()))));
        let expected = rpc::msg(XID, granted, &rpc::accepted(XID, 0, &[]));
        assert_eq!(peer.answer(), version.reply(&expected));
        // Errors grant credits as well.
        peer.send(&words(&version.call(&[XID, 1, asked, NOMSG, 0, 0, 0])));
        let error = [XID, version.number(), granted, ERROR, ERR_CHUNK];
        assert_eq!(peer.answer(), error);
    }
    target.assert_serves();
}

#[test]
fn peer_that_goes_far_beyond_its_credits_is_dropped() {
    let target = Target::start();
    for version in Version::BOTH {
        let mut peer = connect(&target);
        peer.answers_reads = false;
        let stuck = |xid| words(&version.call(&stuck_call(xid)));
        // Calls that cannot end, as their chunks never come; each is taken in before the next.
        for number in 1..2 * CREDITS {
            peer.send(&stuck(XID + 100 + number));
            let refused = version.call(&message(MSGP, &[0, 0, 0], &[]));
            peer.send(&words(&refused));
            let error = [XID, version.number(), CREDITS, ERROR, ERR_CHUNK];
            assert_eq!(peer.answer(), error);
        }
        peer.send(&stuck(XID + 98));
        peer.send(&stuck(XID + 99));
        peer.assert_closed();
        target.assert_serves();
    }
}

/// A call with a chunk of eight bytes.
fn stuck_call(xid: u32) -> Vec<u32> {
    let header = [xid, 1, 32, MSG, 1, AFTER_ECHO, STAG, 8, 0, 0, 0, 0, 0];
    let call = rpc::call_with(xid, [PROGRAM, 2, procedure::ECHO], &[8]);
    [&header[..], &call].concat()
}

#[test]
fn peer_that_disconnects_while_its_chunks_are_pulled_leaves_nothing_behind() {
    let target = Target::start();
    for version in Version::BOTH.repeat(3) {
        let mut peer = connect(&target);
        peer.answers_reads = false;
        let lists = [1, AFTER_ECHO, STAG, 1 << 20, 0, 0, 0, 0, 0];
        let call = message(MSG, &lists, &echo_call(1 << 20));
        peer.send(&words(&version.call(&call)));
        peer.hang_up();
        peer.assert_closed();
    }
    target.assert_serves();
}

#[test]
fn peer_with_late_read_responses_delays_nobody_and_is_served() {
    let target = Target::start();
    target.assert_echoes(&[7; 100_000]);
    let versions = Version::BOTH.repeat(2);
    let mut peers: Vec<_> = versions.iter().map(|_| connect(&target)).collect();
    // Calls whose chunks are asked for at once, and handed over when we come to it.
    for (peer, version) in peers.iter_mut().zip(&versions) {
        peer.memory.insert(1, vec![0; 1 << 20]);
        let lists = [
            1, AFTER_ECHO, STAG, 60_000, 0, 0, 0, 1, 1, 1, 60_000, 0, 0, 0, 0,
        ];
        for number in 0..CREDITS {
            let xid = XID + number;
            let call = rpc::call_with(xid, [PROGRAM, 2, procedure::ECHO], &[60_000]);
            let call = [&[xid, 1, 32, MSG], &lists[..], &call].concat();
            peer.send(&words(&version.call(&call)));
        }
    }
    target.assert_echoes(&[8; 100_000]);
    target.assert_serves();
    // One of each version does in the end.
    for (peer, &version) in peers.iter_mut().zip(&versions).take(2) {
        for _ in 0..CREDITS {
            peer.answer();
        }
        assert_goes_on(peer, version);
    }
    drop(peers);
    target.assert_serves();
}

#[test]
fn peer_that_reads_nothing_is_dropped_and_delays_nobody() {
    let target = Target::start();
    for version in Version::BOTH {
        takes_in_nothing(&target, version);
    }
}

fn takes_in_nothing(target: &Target, version: Version) {
    let mut peer = connect(target);
    // Replies of far more than sockets hold, none of which is read. Calls that cannot be answered
    // pile up, until they are more than the credits allow.
    let call = [echo_call(3000), vec![0; 750]].concat();
    let call = words(&version.call(&message(MSG, &[0, 0, 0], &call)));
    for _ in 0..8000 {
        peer.send(&call);
    }
    target.assert_serves();
    let end = loop {
        match peer.hear() {
            Heard::Message { .. } => {}
            end => break end,
        }
    };
    assert!(
        matches!(end, Heard::Closed | Heard::Terminate(_)),
        "{end:?}"
    );
    target.assert_serves();
}

#[test]
fn chunks_that_never_come_take_no_memory_from_others_for_long() {
    let config = steady().with_pull_timeout(Duration::from_secs(1));
    let target = Target::configured(config.with_chunk_memory(1 << 20));
    target.assert_echoes(&[7; 100_000]);
    for version in Version::BOTH {
        // All the memory there is, for a chunk that is promised and not handed over.
        let mut peer = connect(&target);
        peer.answers_reads = false;
        let lists = [1, AFTER_ECHO, STAG, 1 << 20, 0, 0, 0, 0, 0];
        let call = message(MSG, &lists, &echo_call(1 << 20));
        peer.send(&words(&version.call(&call)));
        // It goes on to say good things, which keep its connection busy, until it is closed.
        let good = words(&version.call(&rpc::msg(XID + 1, 32, &rpc::call(XID + 1, PROGRAM, 2, 0))));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    peer.send(&good);
                    match peer.hear() {
                        Heard::Message { .. } | Heard::Read(_) => {}
                        Heard::Closed => break,
                        Heard::Terminate(cause) => panic!("{cause:?}"),
                    }
                }
            });
            target.assert_echoes(&[8; 100_000]);
        });
    }
    target.assert_serves();
}

#[test]
fn refused_messages_are_counted() {
    let target = Target::start();
    for version in Version::BOTH {
        let mut peer = connect(&target);
        assert_goes_on(&mut peer, version);
        for _ in 0..3 {
            peer.send(&words(&version.call(&message(77, &[0, 0, 0], &[]))));
            peer.answer();
        }
        peer.send(&words(&[XID, 3, 32, MSG, 0, 0, 0]));
        peer.answer();
        peer.send(b"too short");
        assert_goes_on(&mut peer, version);
    }
    let counters = target.stop().counters;
    assert_eq!(counters.chunk_errors_sent, 6);
    assert_eq!(counters.version_errors_sent, 2);
    assert_eq!(counters.discarded, 2);
}
