//! FPDUs and DDP segments that break a rule: each draws the Terminate that the RFCs name, and no
//! other connection notices (RFC 5040 §4.8, RFC 5041 §7.2, RFC 5044 §8).

use hostile_peer::{Cause, Heard, PROGRAM, Peer, Request, Segment, Target, opcode, rpc, words};
use verbs_iwarp::{Config, CrcMode};

const XID: u32 = 0x0102_0304;

const CRC_ERROR: Cause = Cause(2, 0, 2);
const SHORT: Cause = Cause(1, 0, 0);
const TAGGED_INVALID_STAG: Cause = Cause(1, 1, 0);
const TAGGED_VERSION: Cause = Cause(1, 1, 4);
const INVALID_QUEUE: Cause = Cause(1, 2, 1);
const NO_BUFFER: Cause = Cause(1, 2, 2);
const INVALID_SEQUENCE: Cause = Cause(1, 2, 3);
const INVALID_OFFSET: Cause = Cause(1, 2, 4);
const TOO_LONG: Cause = Cause(1, 2, 5);
const UNTAGGED_VERSION: Cause = Cause(1, 2, 6);
const INVALID_STAG: Cause = Cause(0, 1, 0);
const RDMAP_VERSION: Cause = Cause(0, 2, 5);
const UNEXPECTED_OPCODE: Cause = Cause(0, 2, 6);
const CANNOT_INVALIDATE: Cause = Cause(0, 1, 9);
const UNSPECIFIED: Cause = Cause(0, 2, 0xff);

fn null_call() -> Vec<u8> {
    words(&rpc::msg(XID, 8, &rpc::call(XID, PROGRAM, 2, 0)))
}

#[track_caller]
fn assert_answered(peer: &mut Peer) {
    assert_eq!(peer.answer(), rpc::msg(XID, 8, &rpc::accepted(XID, 0, &[])));
}

/// Runs a test against a server of each way of checking what comes in.
fn each(test: impl Fn(&Target)) {
    for crc in [CrcMode::On, CrcMode::Strict] {
        test(&Target::over(Config::default().with_crc(crc)));
    }
}

/// A peer whose first call was answered.
fn served(target: &Target) -> Peer {
    let mut peer = Peer::connect(target.addr());
    peer.send(&null_call());
    assert_answered(&mut peer);
    peer
}

#[track_caller]
fn terminated(target: &Target, cause: Cause, attack: impl FnOnce(&mut Peer)) {
    let mut peer = served(target);
    attack(&mut peer);
    peer.assert_terminated(cause);
    target.assert_serves();
}

/// A Send as it should be next, to be changed.
fn next_send(peer: &mut Peer) -> Segment {
    let sequence = peer.next(0);
    Segment::untagged(opcode::SEND, 0, [0, sequence, 0], &null_call())
}

fn next_read_request(peer: &mut Peer, stag: u32) -> Segment {
    let sequence = peer.next(1);
    let request = words(&[1, 0, 0, 16, stag, 0, 0]);
    Segment::untagged(opcode::READ_REQUEST, 0, [1, sequence, 0], &request)
}

#[test]
fn wrong_crc_is_terminated_and_nothing_is_delivered() {
    each(|target| {
        for at in [0, 1, 2, 3] {
            terminated(target, CRC_ERROR, |peer| {
                let segment = next_send(peer);
                let mut fpdu = peer.framed(&segment.emit());
                let crc = fpdu.len() - 4 + at;
                fpdu[crc] ^= 1;
                peer.bytes(&fpdu);
            });
        }
        // A byte of the payload, of the pad, of the header.
        for at in [40, 2] {
            terminated(target, CRC_ERROR, |peer| {
                let segment = next_send(peer);
                let mut fpdu = peer.framed(&segment.emit());
                fpdu[at] ^= 0x10;
                peer.bytes(&fpdu);
            });
        }
    });
}

#[test]
fn wrong_crc_of_a_large_write_is_terminated() {
    each(|target| {
        terminated(target, CRC_ERROR, |peer| {
            // A zero-length check would let it pass, so it has bytes, and goes nowhere.
            let segment = Segment::tagged(opcode::WRITE, 0x77, 0, &[1; 40_000]);
            let mut fpdu = peer.framed(&segment.emit());
            let last = fpdu.len() - 1;
            fpdu[last] ^= 1;
            peer.bytes(&fpdu);
        });
    });
}

#[test]
fn crc_is_checked_although_the_peer_did_not_ask_for_it() {
    each(|target| {
        // RFC 5044 §7.1: CRCs are used when either end wants them, and the server does.
        let request = Request {
            flags: 0x10,
            ..Request::default()
        };
        let mut peer = Peer::connect_with(target.addr(), &request);
        peer.send(&null_call());
        assert_answered(&mut peer);
        let segment = next_send(&mut peer);
        let mut fpdu = peer.framed(&segment.emit());
        let crc = fpdu.len() - 4;
        fpdu[crc..].fill(0);
        peer.bytes(&fpdu);
        peer.assert_terminated(CRC_ERROR);
        target.assert_serves();
    });
}

#[test]
fn segment_too_short_for_its_header_is_terminated() {
    each(|target| {
        for len in 0..18 {
            terminated(target, SHORT, |peer| {
                let segment = next_send(peer).emit();
                let fpdu = peer.framed(&segment[..len]);
                peer.bytes(&fpdu);
            });
        }
        for len in [1, 13] {
            terminated(target, SHORT, |peer| {
                let segment = Segment::tagged(opcode::WRITE, 1, 0, &[]).emit();
                let fpdu = peer.framed(&segment[..len]);
                peer.bytes(&fpdu);
            });
        }
    });
}

#[test]
fn largest_fpdu_of_garbage_is_terminated() {
    each(|target| {
        terminated(target, CRC_ERROR, |peer| {
            peer.bytes(&[0xff; 2 + 65_535 + 3 + 4]);
        });
    });
}

#[test]
fn fpdu_that_is_cut_off_ends_the_connection() {
    each(|target| {
        let length = {
            let mut peer = served(target);
            let segment = next_send(&mut peer);
            peer.framed(&segment.emit()).len()
        };
        for cut in 1..length {
            let mut peer = served(target);
            let segment = next_send(&mut peer);
            let fpdu = peer.framed(&segment.emit());
            peer.bytes(&fpdu[..cut]);
            peer.hang_up();
            // Whether the end of the stream is worth a Terminate is left open by RFC 5044 §8.
            match peer.hear() {
                Heard::Closed | Heard::Terminate(Cause(2, 0, 1)) => {}
                other => panic!("after {cut} bytes: {other:?}"),
            }
        }
        target.assert_serves();
    });
}

#[test]
fn fpdus_may_come_in_any_pieces() {
    each(|target| {
        let mut peer = served(target);
        for _ in 0..3 {
            let segment = next_send(&mut peer);
            for byte in peer.framed(&segment.emit()) {
                peer.bytes(&[byte]);
            }
            assert_answered(&mut peer);
        }
        let mut several = Vec::new();
        for _ in 0..10 {
            let segment = next_send(&mut peer);
            several.extend(peer.framed(&segment.emit()));
        }
        peer.bytes(&several);
        for _ in 0..10 {
            assert_answered(&mut peer);
        }
    });
}

#[test]
fn message_may_come_in_several_segments() {
    each(|target| {
        let mut peer = served(target);
        let message = null_call();
        let sequence = peer.next(0);
        for at in (0..message.len()).step_by(8) {
            let end = (at + 8).min(message.len());
            let place = [0, sequence, u32::try_from(at).unwrap()];
            let segment = Segment::untagged(opcode::SEND, 0, place, &message[at..end]);
            peer.segment(&if end < message.len() {
                segment.not_last()
            } else {
                segment
            });
        }
        assert_answered(&mut peer);
    });
}

#[test]
fn peer_that_needs_markers_gets_them_where_they_belong() {
    each(|target| {
        let mut peer = Peer::connect_with(target.addr(), &Request::with_markers());
        let data: Vec<u8> = (0..=250).cycle().take(150_000).collect();
        peer.memory.insert(1, data.clone());
        peer.memory.insert(2, vec![0; 150_000]);
        // Small and large, odd and even, so that markers fall anywhere in an FPDU and between two.
        for length in (0..60).chain([500, 1021, 4096, 61_111, 150_000]) {
            let call = rpc::call_with(XID, [PROGRAM, 2, 1], &[length]);
            let lists = [1, 44, 1, length, 0, 0, 0, 1, 1, 2, length, 0, 0, 0, 0];
            peer.send(&words(&[&[XID, 1, 8, 0], &lists[..], &call].concat()));
            peer.answer();
            let bytes = length as usize;
            assert!(peer.memory[&2][..bytes] == data[..bytes]);
        }
        assert!(peer.markers_seen() > 400);
        target.assert_serves();
    });
}

#[test]
fn unknown_ddp_and_rdmap_versions_are_terminated() {
    each(|target| {
        for version in [0, 2, 3] {
            terminated(target, UNTAGGED_VERSION, |peer| {
                let mut segment = next_send(peer);
                segment.ddp = segment.ddp & !3 | version;
                peer.segment(&segment);
            });
            terminated(target, TAGGED_VERSION, |peer| {
                let mut segment = Segment::tagged(opcode::WRITE, 1, 0, b"x");
                segment.ddp = segment.ddp & !3 | version;
                peer.segment(&segment);
            });
            terminated(target, RDMAP_VERSION, |peer| {
                let mut segment = next_send(peer);
                segment.rdmap = segment.rdmap & 0x3f | version << 6;
                peer.segment(&segment);
            });
        }
    });
}

#[test]
fn unknown_and_misplaced_opcodes_are_terminated() {
    each(|target| {
        for number in 8..16 {
            terminated(target, UNEXPECTED_OPCODE, |peer| {
                let mut segment = next_send(peer);
                segment.rdmap = 0x40 | number;
                peer.segment(&segment);
            });
        }
        // What belongs into another queue, or into a segment of the other kind.
        for number in [opcode::WRITE, opcode::READ_REQUEST, opcode::TERMINATE] {
            terminated(target, UNEXPECTED_OPCODE, |peer| {
                let mut segment = next_send(peer);
                segment.rdmap = 0x40 | number;
                peer.segment(&segment);
            });
        }
        for number in [opcode::SEND, opcode::READ_REQUEST, opcode::TERMINATE] {
            terminated(target, UNEXPECTED_OPCODE, |peer| {
                peer.segment(&Segment::tagged(number, 1, 0, b"x"));
            });
        }
        // A response that nobody asked for.
        terminated(target, UNEXPECTED_OPCODE, |peer| {
            peer.segment(&Segment::tagged(opcode::READ_RESPONSE, 1, 0, b"x"));
        });
    });
}

#[test]
fn unknown_queues_are_terminated() {
    each(|target| {
        for queue in [3, 4, 0x100, u32::MAX] {
            terminated(target, INVALID_QUEUE, |peer| {
                peer.segment(&Segment::untagged(opcode::SEND, 0, [queue, 1, 0], b"x"));
            });
        }
    });
}

#[test]
fn sequence_numbers_out_of_order_are_terminated() {
    each(|target| {
        for sequence in [0, 1, 3, u32::MAX] {
            terminated(target, INVALID_SEQUENCE, |peer| {
                // The first message was number 1, the next is number 2.
                let place = [0, sequence, 0];
                peer.segment(&Segment::untagged(opcode::SEND, 0, place, b"x"));
            });
        }
        for sequence in [0, 2] {
            terminated(target, INVALID_SEQUENCE, |peer| {
                let mut segment = next_read_request(peer, 1);
                segment.rest = words(&[0, 1, sequence, 0]);
                peer.segment(&segment);
            });
        }
    });
}

#[test]
fn offsets_out_of_order_are_terminated() {
    each(|target| {
        for offset in [1, 4096, u32::MAX] {
            terminated(target, INVALID_OFFSET, |peer| {
                let place = [0, peer.next(0), offset];
                peer.segment(&Segment::untagged(opcode::SEND, 0, place, b"x"));
            });
        }
        // A gap, and an overlap, in a message of two segments.
        for offset in [0, 99, 101] {
            terminated(target, INVALID_OFFSET, |peer| {
                let sequence = peer.next(0);
                let first = Segment::untagged(opcode::SEND, 0, [0, sequence, 0], &[0; 100]);
                peer.segment(&first.not_last());
                let place = [0, sequence, offset];
                peer.segment(&Segment::untagged(opcode::SEND, 0, place, &[0; 100]));
            });
        }
    });
}

#[test]
fn messages_longer_than_agreed_are_terminated() {
    // A shared Receive has room for what version two is told, whatever is spoken.
    let shared = |test: fn(&Target, usize)| each(|target| test(target, 8192));
    let check = |target: &Target, room: usize| {
        for length in [room + 1, 20_000, 65_000] {
            terminated(target, TOO_LONG, |peer| peer.send(&vec![0; length]));
        }
        terminated(target, TOO_LONG, |peer| {
            let sequence = peer.next(0);
            for offset in [0, 4000, 8000] {
                let place = [0, sequence, offset];
                let segment = Segment::untagged(opcode::SEND, 0, place, &[0; 4000]);
                peer.segment(&segment.not_last());
            }
        });
    };
    shared(check);
    check(&Target::posting(), 4096);
}

#[test]
fn more_messages_than_receives_are_terminated() {
    let check = |target: &Target, told: Heard| {
        let mut peer = served(target);
        let mut flood = Vec::new();
        // All at once, so that the server sees many before it can answer one.
        for _ in 0..500 {
            let segment = next_send(&mut peer);
            flood.extend(peer.framed(&segment.emit()));
        }
        peer.bytes(&flood);
        let cause = loop {
            match peer.hear() {
                Heard::Message { .. } => {}
                other => break other,
            }
        };
        assert_eq!(cause, told);
        peer.hang_up();
        peer.assert_closed();
        target.assert_serves();
    };
    check(&Target::posting(), Heard::Terminate(NO_BUFFER));
    // Shared Receives last longer: it is seen first that these are more calls than credits.
    each(|target| check(target, Heard::Closed));
}

#[test]
fn writes_to_memory_that_is_not_offered_are_terminated() {
    each(|target| {
        for stag in [0, 1, 0x100, 0xdead_beef, u32::MAX] {
            for offset in [0, u64::MAX] {
                terminated(target, TAGGED_INVALID_STAG, |peer| {
                    peer.segment(&Segment::tagged(opcode::WRITE, stag, offset, b"x"));
                });
            }
        }
        terminated(target, TAGGED_INVALID_STAG, |peer| {
            peer.segment(&Segment::tagged(opcode::WRITE, 1, 0, &[1; 65_000]));
        });
    });
}

#[test]
fn empty_writes_are_harmless_whatever_they_name() {
    each(|target| {
        let mut peer = served(target);
        // RFC 5041 §5.2: STag and offset are not looked at.
        peer.segment(&Segment::tagged(opcode::WRITE, 0xdead_beef, u64::MAX, b""));
        peer.send(&null_call());
        assert_answered(&mut peer);
    });
}

#[test]
fn reads_of_memory_that_is_not_offered_are_terminated() {
    each(|target| {
        for stag in [0, 1, 0xdead_beef] {
            terminated(target, INVALID_STAG, |peer| peer.read_request(stag, 0, 16));
            terminated(target, INVALID_STAG, |peer| {
                peer.read_request(stag, u64::MAX, u32::MAX);
            });
        }
    });
}

#[test]
fn read_requests_of_the_wrong_length_are_terminated() {
    each(|target| {
        for length in [0, 4, 27] {
            terminated(target, UNSPECIFIED, |peer| {
                let mut segment = next_read_request(peer, 1);
                segment.payload.truncate(length);
                peer.segment(&segment);
            });
        }
        terminated(target, TOO_LONG, |peer| {
            let mut segment = next_read_request(peer, 1);
            segment.payload.push(0);
            peer.segment(&segment);
        });
    });
}

#[test]
fn invalidation_of_a_handle_that_is_not_offered_is_terminated() {
    each(|target| {
        for stag in [0, 1, 0xdead_beef] {
            terminated(target, CANNOT_INVALIDATE, |peer| {
                peer.send_and_invalidate(&null_call(), stag);
            });
        }
    });
}

#[test]
fn terminate_of_a_peer_is_taken_without_an_answer() {
    each(|target| {
        let good = [0x00, 0x00, 0, 0];
        for terminate in [
            &good[..],
            &[0x21, 0x05, 0, 0],
            &[0xff; 4],
            &[0x01, 2, 0xe0, 0, 0, 0],
        ] {
            let mut peer = served(target);
            let place = [2, 1, 0];
            peer.segment(&Segment::untagged(opcode::TERMINATE, 0, place, terminate));
            peer.hang_up();
            peer.assert_closed();
            target.assert_serves();
        }
    });
}

#[test]
fn flood_of_terminates_ends_the_connection_once() {
    each(|target| {
        let mut peer = served(target);
        let mut storm = Vec::new();
        for number in 1..=500 {
            let cause = [0x11, 0, 0, 0];
            let terminate = Segment::untagged(opcode::TERMINATE, 0, [2, number, 0], &cause);
            storm.extend(peer.framed(&terminate.emit()));
        }
        peer.bytes(&storm);
        peer.hang_up();
        peer.assert_closed();
        target.assert_serves();
        target.assert_baseline();
    });
}

#[test]
fn terminate_in_the_middle_of_a_message_ends_it() {
    each(|target| {
        let mut peer = served(target);
        let half = next_send(&mut peer).not_last();
        peer.segment(&half);
        let terminate = Segment::untagged(opcode::TERMINATE, 0, [2, 1, 0], &[0x12, 2, 0, 0]);
        peer.segment(&terminate);
        peer.hang_up();
        peer.assert_closed();
        target.assert_serves();
        target.assert_baseline();
    });
}

#[test]
fn flood_of_read_requests_is_terminated() {
    each(|target| {
        let mut peer = served(target);
        let mut flood = Vec::new();
        // Nothing is asked for, so that it is only their number that is wrong.
        for _ in 0..500 {
            let sequence = peer.next(1);
            let request = words(&[0x1234_5600, 0, 0, 0, 0, 0, 0]);
            let segment = Segment::untagged(opcode::READ_REQUEST, 0, [1, sequence, 0], &request);
            flood.extend(peer.framed(&segment.emit()));
        }
        peer.bytes(&flood);
        peer.drain_to_terminate(NO_BUFFER);
        target.assert_serves();
        target.assert_baseline();
    });
}
