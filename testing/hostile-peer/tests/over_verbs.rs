//! Attacks of a peer with work requests alone, over any provider: software iWARP, or the RDMA device that
//! `VERBS_IBV_DEVICE` and `VERBS_IBV_ADDRESS` name. Each server still serves its other clients, and nothing is left of
//! the peer.

use hostile_peer::rpc::accept;
use hostile_peer::{PROGRAM, Poster, Target, Told, Version, procedure, rpc, words};
use std::env;
use verbs::{Handle, RemoteAddress, Segment};
use verbs_ibv::Ibv;
use verbs_iwarp::Iwarp;

const XID: u32 = 0x5a5a_0001;

/// Largest grant of the server.
const CREDITS: u32 = 16;

/// First grant where each connection posts Receives of its own, as over a device.
const FIRST_CREDITS: u32 = 8;

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const ERROR: u32 = 4;

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// Offset of the data of an echo.
const AFTER_ECHO: u32 = 44;

/// A handle that nobody has given out. That of a device ends in a byte that changes with each use.
const UNKNOWN: u32 = 0x00c0_ffee;

/// Private data of RFC 8797: 4096 bytes each way, and the peer may invalidate.
const PRIVATE_DATA: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

fn target() -> Target {
    // What is said is shown with a test that fails; RUST_LOG says how much. Another test may have been first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
    let Ok(device) = env::var("VERBS_IBV_DEVICE") else {
        return Target::on(Iwarp::default(), [127, 0, 0, 1].into());
    };
    let address = env::var("VERBS_IBV_ADDRESS").expect("the address of the device");
    let config = verbs_ibv::Config {
        device: Some(device),
        ..verbs_ibv::Config::default()
    };
    let provider = Ibv::open(config).expect("the device is there");
    Target::on(provider, address.parse().expect("an IP address"))
}

fn connect(target: &Target) -> Poster {
    Poster::connect(target, &PRIVATE_DATA).expect("the server takes everybody in")
}

fn null_call() -> Vec<u32> {
    rpc::call(XID, PROGRAM, 2, procedure::NULL)
}

/// A call to echo `length` bytes, which are not in it.
fn echo_call(length: u32) -> Vec<u32> {
    rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], &[length])
}

fn message(proc: u32, lists: &[u32], stream: &[u32]) -> Vec<u32> {
    [&[XID, 1, 32, proc], lists, stream].concat()
}

/// An address in a chunk: handle, length, offset.
fn segment(at: RemoteAddress, length: u32) -> [u32; 4] {
    let word = |bytes: [u8; 4]| u32::from_be_bytes(bytes);
    let [a, b, c, d, e, f, g, h] = at.offset.to_be_bytes();
    [at.handle.0, length, word([a, b, c, d]), word([e, f, g, h])]
}

/// A Read list of one chunk at this position, and no other chunks.
fn read_list(position: u32, at: RemoteAddress, length: u32) -> Vec<u32> {
    let mut list = vec![1, position];
    list.extend(segment(at, length));
    list.extend([0, 0, 0]);
    list
}

/// The next message of the server. Its credits are all that it grants, as far as they are some of these.
#[track_caller]
fn answer(peer: &mut Poster) -> Vec<u32> {
    let mut answer = peer.answer();
    let credits = &mut answer[2];
    assert!((FIRST_CREDITS..=CREDITS).contains(credits), "{credits}");
    *credits = CREDITS;
    answer
}

/// Asserts that a good call is answered next, so that nothing else came before.
#[track_caller]
fn assert_goes_on(peer: &mut Poster, version: Version) {
    let xid = XID + 1;
    let call = rpc::msg(xid, 32, &rpc::call(xid, PROGRAM, 2, 0));
    peer.send(&words(&version.call(&call)));
    let expected = rpc::msg(xid, CREDITS, &rpc::accepted(xid, 0, &[]));
    assert_eq!(answer(peer), version.reply(&expected));
}

/// Asserts that nothing is left of peers, and that the server goes on.
#[track_caller]
fn survived(target: Target) {
    target.assert_serves();
    target.assert_baseline();
    target.stop();
}

#[test]
fn bad_headers_draw_errors_and_the_connection_goes_on() {
    let target = target();
    let mut peer = connect(&target);
    let refused = [XID, 1, CREDITS, ERROR, ERR_CHUNK];
    let endless = [1, 44, UNKNOWN, 4, 0, 0].repeat(160);
    let bad = [
        // Procedures, lists and counts that do not exist.
        message(77, &[0, 0, 0], &null_call()),
        message(MSG, &[2, 0, 0], &null_call()),
        message(MSG, &[0, 0, u32::MAX], &null_call()),
        message(MSG, &[1, 44, UNKNOWN, 4, 0, 0], &[]),
        message(MSG, &endless, &[]),
        message(MSG, &[0, 1, u32::MAX, UNKNOWN, 4, 0, 0, 0, 0], &null_call()),
        // Positions that are not aligned, and behind the end.
        message(MSG, &[1, 45, UNKNOWN, 8, 0, 0, 0, 0, 0], &echo_call(8)),
        message(MSG, &[1, 4096, UNKNOWN, 8, 0, 0, 0, 0, 0], &echo_call(8)),
        // More than the server moves, also in sum.
        message(
            MSG,
            &[1, 44, UNKNOWN, u32::MAX, 0, 0, 0, 0, 0],
            &echo_call(u32::MAX),
        ),
        message(NOMSG, &[1, 0, UNKNOWN, 1 << 31, 0, 0, 0, 0, 0], &[]),
        // No call at all, and no room for the reply.
        message(NOMSG, &[0, 0, 0], &[]),
        message(MSG, &[0, 0, 0], &[]),
    ];
    for message in bad {
        peer.send(&words(&message));
        assert_eq!(answer(&mut peer), refused, "{message:x?}");
    }
    peer.send(&words(&[XID, 9, 32, MSG, 0, 0, 0]));
    assert_eq!(answer(&mut peer), [XID, 9, CREDITS, ERROR, ERR_VERS, 1, 1]);
    // Runts are discarded: nothing says that there is room for more than the first credits but a later answer.
    for length in 0..28 {
        peer.send(&words(&message(MSG, &[0, 0, 0], &[]))[..length]);
        if length % 4 == 3 {
            assert_goes_on(&mut peer, Version::One);
        }
    }
    drop(peer);
    survived(target);
}

#[test]
fn chunks_of_a_good_peer_are_served() {
    let target = target();
    for version in Version::BOTH {
        let mut peer = connect(&target);
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let (source, sink) = (peer.source(&bytes), peer.sink(8192));
        let mut lists = vec![1, AFTER_ECHO];
        lists.extend(segment(source, 5000));
        lists.extend([0, 1, 1]);
        lists.extend(segment(sink, 8192));
        lists.extend([0, 0]);
        let call = message(MSG, &lists, &echo_call(5000));
        peer.send(&words(&version.call(&call)));
        let mut lists = vec![0, 1, 1];
        lists.extend(segment(sink, 5000));
        lists.extend([0, 0]);
        let written = [
            &[XID, 1, CREDITS, MSG],
            &lists[..],
            &rpc::accepted(XID, 0, &[5000]),
        ];
        assert_eq!(answer(&mut peer), version.reply(&written.concat()));
        assert_goes_on(&mut peer, version);
    }
    survived(target);
}

#[test]
fn item_of_another_length_than_the_call_says_draws_garbage_args() {
    let target = target();
    for length in [4, 9, 12] {
        let mut peer = connect(&target);
        let source = peer.source(&[7; 64]);
        let call = message(MSG, &read_list(AFTER_ECHO, source, length), &echo_call(8));
        peer.send(&words(&call));
        let garbage = rpc::accepted(XID, accept::GARBAGE_ARGS, &[]);
        assert_eq!(answer(&mut peer), rpc::msg(XID, CREDITS, &garbage));
        assert_goes_on(&mut peer, Version::One);
    }
    survived(target);
}

/// The server reads or writes where it must not: the device refuses, and this connection ends.
#[test]
fn chunks_outside_of_the_memory_of_the_peer_end_its_connection() {
    let target = target();
    let unknown = RemoteAddress {
        handle: Handle(UNKNOWN),
        offset: 0,
    };
    let mut xid = XID;
    for version in Version::BOTH {
        for which in 0..5 {
            let mut peer = connect(&target);
            let (source, sink) = (peer.source(&[7; 5000]), peer.sink(5000));
            let beyond = RemoteAddress {
                offset: source.offset + 4950,
                ..source
            };
            // The results of the first ones fit inline.
            let length = if which < 3 { 64 } else { 5000 };
            let lists = match which {
                0 => read_list(AFTER_ECHO, unknown, length),
                // Behind its end, and one that may only be written.
                1 => read_list(AFTER_ECHO, beyond, length),
                2 => read_list(AFTER_ECHO, sink, length),
                // The reply goes where nothing is, and to what may only be read.
                _ => {
                    let to = if which == 3 { unknown } else { source };
                    let mut lists = vec![1, AFTER_ECHO];
                    lists.extend(segment(source, 5000));
                    lists.extend([0, 1, 1]);
                    lists.extend(segment(to, 5000));
                    lists.extend([0, 0]);
                    lists
                }
            };
            let mut call = message(MSG, &lists, &echo_call(length));
            // A call that ended its connection may be refused when it comes again.
            xid += 1;
            let stream = call.len() - 11;
            (call[0], call[stream]) = (xid, xid);
            peer.send(&words(&version.call(&call)));
            assert_eq!(peer.hear(), Told::End, "{which}");
        }
    }
    survived(target);
}

#[test]
fn handles_of_the_server_that_were_never_given_out_end_the_connection() {
    let target = target();
    let handle = Handle(UNKNOWN);
    let mut peer = connect(&target);
    let call = words(&rpc::msg(XID, 8, &null_call()));
    peer.send_and_invalidate(&call, handle);
    // Where the call came before the end it may have been answered.
    while peer.hear() != Told::End {}
    let mut peer = connect(&target);
    peer.read(Segment {
        handle,
        length: 64,
        offset: 0,
    });
    assert_eq!(peer.hear(), Told::End);
    let mut peer = connect(&target);
    peer.write(RemoteAddress { handle, offset: 0 }, &[1; 64]);
    assert_eq!(peer.hear(), Told::End);
    drop(peer);
    survived(target);
}

#[test]
fn message_longer_than_the_receives_of_the_server_ends_the_connection() {
    let target = target();
    let mut peer = connect(&target);
    peer.send(&vec![0; 100_000]);
    assert_eq!(peer.hear(), Told::End);
    drop(peer);
    survived(target);
}

#[test]
fn more_calls_than_credits_are_answered_or_end_the_connection() {
    let target = target();
    let mut peer = connect(&target);
    for number in 0..500 {
        let call = rpc::call(XID + number, PROGRAM, 2, procedure::NULL);
        peer.send(&words(&rpc::msg(XID + number, u32::MAX, &call)));
    }
    target.assert_serves();
    drop(peer);
    survived(target);
}

#[test]
fn peer_that_receives_nothing_holds_up_nobody() {
    let target = target();
    let mut peer = Poster::with_receives(&target, &PRIVATE_DATA, 0).expect("it is taken in");
    for number in 0..CREDITS {
        let call = rpc::call(XID + number, PROGRAM, 2, procedure::NULL);
        peer.send(&words(&rpc::msg(XID + number, 32, &call)));
    }
    target.assert_serves();
    drop(peer);
    survived(target);
}

#[test]
fn peer_that_goes_amid_its_chunks_leaves_nothing() {
    let target = target();
    let bytes = vec![7; 1 << 20];
    for _ in 0..8 {
        let mut peer = connect(&target);
        let source = peer.source(&bytes);
        for number in 0..4 {
            let mut call = message(
                MSG,
                &read_list(AFTER_ECHO, source, 1 << 20),
                &echo_call(1 << 20),
            );
            (call[0], call[13]) = (XID + number, XID + number);
            peer.send(&words(&call));
        }
    }
    survived(target);
}

#[test]
fn private_data_of_another_protocol_is_passed_over() {
    let target = target();
    for data in [
        &[][..],
        &[0],
        &[0xff; 56],
        // The signature alone, and with another version.
        &[0xf6, 0xab, 0x0e, 0x18],
        &[0xf6, 0xab, 0x0e, 0x18, 99, 0xff, 0xff, 0xff],
        // The smallest and the largest sizes.
        &[0xf6, 0xab, 0x0e, 0x18, 1, 0, 0, 0],
        &[0xf6, 0xab, 0x0e, 0x18, 1, 0xff, 0xff, 0xff],
    ] {
        let mut peer = Poster::connect(&target, data).expect("it is taken in");
        assert!(!peer.private_data.is_empty());
        assert_goes_on(&mut peer, Version::One);
    }
    survived(target);
}
