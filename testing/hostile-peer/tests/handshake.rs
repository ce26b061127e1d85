//! A beginning that is not MPA's is refused without a word, and one that does not go on is
//! dropped (RFC 5044 §7.1.2, RFC 6581).

use hostile_peer::{PROGRAM, Peer, Request, Target, private_data, quick, rpc, words};
use std::time::{Duration, Instant};

const XID: u32 = 0x0a0b_0c0d;

/// A call of the procedure NULL is answered, in exactly these words.
fn assert_answers(peer: &mut Peer) {
    let call = rpc::call(XID, PROGRAM, 2, 0);
    peer.send(&words(&rpc::msg(XID, 8, &call)));
    assert_eq!(peer.answer(), rpc::msg(XID, 8, &rpc::accepted(XID, 0, &[])));
}

#[track_caller]
fn refused(target: &Target, bytes: &[u8]) {
    let mut peer = Peer::silent(target.addr());
    peer.bytes(bytes);
    peer.assert_closed();
    target.assert_serves();
}

#[test]
fn other_protocols_are_refused() {
    let target = Target::start();
    refused(&target, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    refused(&target, b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n");
    // The beginning of a TLS ClientHello.
    let hello = [
        22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    refused(&target, &hello);
    // NFS over TCP: a record mark and a call (RFC 5531 §11).
    let record = [&[0x8000_0028][..], &rpc::call(XID, 100_003, 3, 0)].concat();
    refused(&target, &words(&record));
    refused(&target, &[0; 4096]);
    refused(&target, &[0xff; 65_536]);
}

#[test]
fn key_that_is_wrong_in_any_byte_is_refused() {
    let target = Target::start();
    for at in [0, 7, 8, 15] {
        let mut request = Request::default();
        request.key[at] ^= 0x20;
        refused(&target, &request.emit());
    }
    let both_respond = Request {
        key: *b"MPA ID Rep Frame",
        ..Request::default()
    };
    refused(&target, &both_respond.emit());
}

#[test]
fn unknown_revisions_are_refused() {
    let target = Target::start();
    for revision in [0, 3, 255] {
        let request = Request {
            revision,
            ..Request::default()
        };
        refused(&target, &request.emit());
    }
}

#[test]
fn private_data_that_is_too_long_is_refused_before_it_is_read() {
    let target = Target::start();
    for length in [513, 1024, u16::MAX] {
        let request = Request {
            length: Some(length),
            data: Vec::new(),
            ..Request::default()
        };
        refused(&target, &request.emit());
    }
}

#[test]
fn enhanced_request_without_its_numbers_is_refused() {
    let target = Target::start();
    for length in 0..4 {
        let request = Request {
            data: vec![0; length],
            ..Request::default()
        };
        refused(&target, &request.emit());
    }
}

#[test]
fn stalled_handshake_is_dropped_at_its_deadline() {
    let target = Target::configured(quick());
    let whole = Request::default().emit();
    let began = Instant::now();
    let stalled: Vec<_> = [0, 1, 16, 19, 20, 21, whole.len() - 1]
        .into_iter()
        .map(|sent| {
            let mut peer = Peer::silent(target.addr());
            peer.bytes(&whole[..sent]);
            peer
        })
        .collect();
    target.assert_serves();
    for mut peer in stalled {
        peer.assert_closed();
        // It was the clock that ended it, not the bytes.
        assert!(began.elapsed() >= quick().setup_timeout / 2);
    }
    target.assert_serves();
}

#[test]
fn handshake_sent_byte_by_byte_is_dropped_at_its_deadline() {
    let target = Target::configured(quick());
    let mut peer = Peer::silent(target.addr());
    let deadline = Instant::now() + Duration::from_secs(20);
    // Byte by byte, each well within the time, but not all of them together.
    let whole = Request::default().emit();
    let mut bytes = whole.iter().cycle().take(whole.len() - 1);
    while !peer.has_ended(quick().setup_timeout / 8) {
        assert!(Instant::now() < deadline, "a dripping peer is still there");
        if let Some(byte) = bytes.next() {
            peer.bytes(&[*byte]);
        }
    }
    target.assert_serves();
}

#[test]
fn many_silent_peers_block_nobody() {
    let target = Target::configured(quick());
    let peers: Vec<_> = (0..100).map(|_| Peer::silent(target.addr())).collect();
    target.assert_serves();
    for mut peer in peers {
        peer.assert_closed();
    }
    target.assert_serves();
}

#[test]
fn peers_that_disconnect_during_the_handshake_leave_nothing_behind() {
    let target = Target::start();
    let whole = Request::default().emit();
    for sent in 0..whole.len() {
        let mut peer = Peer::silent(target.addr());
        peer.bytes(&whole[..sent]);
        peer.hang_up();
        peer.assert_closed();
    }
    target.assert_serves();
}

#[test]
fn unusual_but_valid_requests_are_accepted() {
    let target = Target::start();
    let accepted = |request: Request| {
        let mut peer = Peer::connect_with(target.addr(), &request);
        assert_answers(&mut peer);
        peer
    };
    let peer = accepted(Request::default());
    assert_eq!(peer.private_data[..4], private_data(true)[..4]);
    // RFC 5044 §7.1.1: the reject flag means nothing in a request, nor do reserved bits.
    accepted(Request {
        flags: 0x40 | 0x10 | 0x20 | 0x0f,
        ..Request::default()
    });
    // Revision 1, with and without private data.
    for data in [Vec::new(), private_data(false).to_vec(), vec![0xaa; 512]] {
        accepted(Request {
            flags: 0x40,
            revision: 1,
            data,
            ..Request::default()
        });
    }
    // Private data that is not ours, or ours behind something else (RFC 8797 §5.2).
    for data in [&b""[..], b"x", b"hello, world", &[0xf6; 508]] {
        accepted(Request::with_private_data(data));
    }
    let shifted = [&b"xyz"[..], &private_data(true)].concat();
    accepted(Request::with_private_data(&shifted));
    // An identifier with another version, and nothing behind it.
    accepted(Request::with_private_data(&[
        0xf6, 0xab, 0x0e, 0x18, 9, 0, 0, 0,
    ]));
    // No Reads at all, and more than anybody serves.
    for [ird, ord] in [[0, 0], [0x3fff, 0x3fff], [0x3ffe, 0x3ffe]] {
        let mut request = Request::default();
        request.data[..2].copy_from_slice(&u16::to_be_bytes(ird));
        request.data[2..4].copy_from_slice(&u16::to_be_bytes(ord));
        accepted(request);
    }
}

#[test]
fn request_in_single_bytes_is_accepted() {
    let target = Target::start();
    let mut peer = Peer::silent(target.addr());
    for byte in Request::default().emit() {
        peer.bytes(&[byte]);
    }
    peer.finish_setup();
    assert_answers(&mut peer);
}
