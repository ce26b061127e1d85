//! Peers that stall in the middle of a frame or message, after the handshake.

use hostile_peer::header::{direction, initial, operation, optional};
use hostile_peer::{PROGRAM, Peer, Segment, Target, Version, opcode, quick, rpc, words};
use std::time::{Duration, Instant};

const XID: u32 = 0x0051_0e00;

/// Peers at a time.
const PEERS: usize = 32;

/// First message of a client.
fn first_message(version: Version) -> Vec<u8> {
    words(&match version {
        Version::One => rpc::msg(XID, 8, &rpc::call(XID, PROGRAM, 2, 0)),
        Version::Two => {
            let said = initial(&[], &[]);
            optional(XID, direction::CALL, operation::INITXCH, &said)
        }
    })
}

/// Offsets at which such connections stop.
fn stops() -> impl Iterator<Item = (Version, usize)> + Clone {
    let stops = |version| (0..4).map(move |stop| (version, stop));
    Version::BOTH.into_iter().flat_map(stops)
}

/// A connection that has said this much of a frame, or of a message.
fn stopped(target: &Target, (version, stop): (Version, usize)) -> Peer {
    let mut peer = Peer::connect(target.addr());
    let sequence = peer.next(0);
    let place = [0, sequence, 0];
    let segment = Segment::untagged(opcode::SEND, 0, place, &first_message(version));
    let framed = peer.framed(&segment.emit());
    match stop {
        0 => peer.bytes(&framed[..1]),
        1 => peer.bytes(&framed[..framed.len() / 2]),
        2 => peer.bytes(&framed[..framed.len() - 1]),
        // A whole frame, which is not the last of its message.
        _ => peer.segment(&segment.not_last()),
    }
    peer
}

#[test]
fn half_a_frame_and_half_a_message_delay_nobody() {
    let target = Target::start();
    let stops = stops().cycle().take(PEERS);
    let peers: Vec<_> = stops.map(|stop| stopped(&target, stop)).collect();
    target.assert_serves();
    target.assert_echoes(&[7; 100_000]);
    drop(peers);
    target.assert_baseline();
}

#[test]
fn connection_that_stops_in_the_middle_ends_when_it_is_idle_for_too_long() {
    let idle = Duration::from_millis(500);
    let target = Target::configured(quick().with_idle_timeout(Some(idle)));
    let began = Instant::now();
    let mut peers: Vec<_> = stops().map(|stop| stopped(&target, stop)).collect();
    // One that was answered, and makes no call.
    peers.push(Peer::introduced(target.addr(), &initial(&[], &[])));
    for mut peer in peers {
        peer.drain();
        // It was the clock that ended it, not the bytes.
        assert!(began.elapsed() >= idle / 2);
    }
}
