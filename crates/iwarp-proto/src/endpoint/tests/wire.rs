//! Wire format of each message, and fields that a receiver ignores.

use super::hostile::{frame, tagged, untagged, with_control, with_rdmap};
use super::*;
use crate::crc;
use crate::rdmap::{Opcode, ReadRequest};

/// Control octets of the last segment of a message, and of one before it.
const LAST: u8 = 0x41;
const NOT_LAST: u8 = 0x01;
const TAGGED: u8 = 0x80;

/// An initiator that sends segments of at most 128 octets.
fn narrow() -> Endpoint {
    let mut config = config(Role::Initiator);
    config.max_ulpdu = 0;
    Endpoint::new(config)
}

/// Segments that it sends for this work.
fn sent(work: impl IntoIterator<Item = WorkRequest>) -> Vec<(Header, Vec<u8>)> {
    let mut endpoint = narrow();
    for work in work {
        endpoint.post(work).unwrap();
    }
    fpdus(&output(&mut endpoint, usize::MAX))
}

/// Payload of the segments, whole again. Checks that only the last says so, and that all of them
/// begin alike.
#[track_caller]
fn joined(segments: &[(Header, Vec<u8>)], control: u8, opcode: Opcode) -> Vec<u8> {
    for (n, (header, payload)) in segments.iter().enumerate() {
        let last = n == segments.len() - 1;
        let expected = control | if last { LAST } else { NOT_LAST };
        assert_eq!(header.control().0, expected, "segment {n}");
        assert_eq!(header.rsvd_ulp(), 0x40 | opcode.number(), "segment {n}");
        assert!(header.wire_len() + payload.len() <= fpdu::MIN_MULPDU);
    }
    segments
        .iter()
        .flat_map(|(_, payload)| payload.clone())
        .collect()
}

#[test]
fn a_send_is_untagged_in_queue_0_and_counts_its_bytes() {
    let bytes = pattern(1000, 1);
    let segments = sent([send(1, &bytes)]);
    assert!(segments.len() > 8);
    assert_eq!(joined(&segments, 0, Opcode::Send), bytes);
    let mut at = 0;
    for (header, payload) in segments {
        let Header::Untagged {
            rsvd_ulp_word: 0,
            queue: 0,
            sequence: 1,
            offset,
            ..
        } = header
        else {
            panic!("{header:?}");
        };
        assert_eq!(offset, at);
        at += payload.len() as u32;
    }
}

#[test]
fn a_send_with_invalidate_names_the_stag_in_each_segment() {
    let bytes = pattern(300, 1);
    let segments = sent([WorkRequest::Send {
        wr: WrId(1),
        buffer: buffer(&bytes),
        rest: Gather::new(),
        invalidate: Some(Handle(0x1234_5678).into()),
    }]);
    assert_eq!(joined(&segments, 0, Opcode::SendInvalidate), bytes);
    for (header, _) in segments {
        assert!(
            matches!(
                header,
                Header::Untagged {
                    rsvd_ulp_word: 0x1234_5678,
                    queue: 0,
                    sequence: 1,
                    ..
                }
            ),
            "{header:?}"
        );
    }
}

#[test]
fn a_write_is_tagged_and_goes_on_from_its_offset() {
    let bytes = pattern(1000, 1);
    let segments = sent([write(1, bytes.clone(), Handle(7), 0xffff_fff0)]);
    assert_eq!(joined(&segments, TAGGED, Opcode::Write), bytes);
    let mut at = 0xffff_fff0;
    for (header, payload) in segments {
        let Header::Tagged {
            stag: 7, offset, ..
        } = header
        else {
            panic!("{header:?}");
        };
        assert_eq!(offset, at);
        at += payload.len() as u64;
    }
}

#[test]
fn messages_without_bytes_are_one_segment_each() {
    let segments = sent([send(1, b""), write(2, Vec::new(), Handle(7), 3)]);
    assert_eq!(segments.len(), 2);
    assert_eq!(joined(&segments[..1], 0, Opcode::Send), b"");
    assert_eq!(joined(&segments[1..], TAGGED, Opcode::Write), b"");
}

#[test]
fn a_read_is_a_request_in_queue_1_per_segment() {
    let segment = |handle| Segment {
        handle: Handle(handle),
        length: 100,
        offset: 1 << 40,
    };
    let segments = sent([
        read(1, 200, &[segment(5), segment(6)]),
        read(2, 100, &[segment(7)]),
    ]);
    let mut requests = Vec::new();
    for (n, (header, payload)) in segments.iter().enumerate() {
        joined(&segments[n..=n], 0, Opcode::ReadRequest);
        assert!(
            matches!(*header, Header::Untagged { queue: 1, sequence, offset: 0, rsvd_ulp_word: 0, .. }
                if sequence == n as u32 + 1),
            "{header:?}"
        );
        requests.push(ReadRequest::parse(payload.first_chunk().unwrap()));
    }
    let [first, second, third] = requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!((first.source_stag, first.sink_offset), (5, 0));
    assert_eq!((second.source_stag, second.sink_offset), (6, 100));
    assert_eq!((third.source_stag, third.sink_offset), (7, 0));
    assert_eq!(first.sink_stag, second.sink_stag);
    assert_ne!(first.sink_stag, third.sink_stag);
    assert_eq!((first.length, first.source_offset), (100, 1 << 40));
}

/// An endpoint that has heard its peer, with memory to be read.
fn source(bytes: &[u8]) -> (Endpoint, Handle) {
    let mut endpoint = narrow();
    endpoint.recv_slice(&frame(tagged(Opcode::Write, 0, 0), b""));
    let handle = endpoint
        .register(Memory::Source(gather(bytes.to_vec())))
        .unwrap();
    (endpoint, handle)
}

fn request(sequence: u32, length: u32, source_stag: u32) -> Vec<u8> {
    let request = ReadRequest {
        sink_stag: 0xaabb_ccdd,
        sink_offset: 1 << 33,
        length,
        source_stag,
        source_offset: 0,
    };
    frame(
        untagged(Opcode::ReadRequest, 1, sequence, 0),
        &request.emit(),
    )
}

#[test]
fn a_read_response_is_tagged_with_what_the_request_named() {
    let bytes = pattern(1000, 1);
    let (mut endpoint, handle) = source(&bytes);
    endpoint.recv_slice(&request(1, 1000, handle.0));
    assert!(
        !endpoint.has_completions(),
        "a request is nothing to our user"
    );
    let segments = fpdus(&output(&mut endpoint, usize::MAX));
    assert_eq!(joined(&segments, TAGGED, Opcode::ReadResponse), bytes);
    let mut at = 1 << 33;
    for (header, payload) in segments {
        let Header::Tagged {
            stag: 0xaabb_ccdd,
            offset,
            ..
        } = header
        else {
            panic!("{header:?}");
        };
        assert_eq!(offset, at);
        at += payload.len() as u64;
    }
}

#[test]
fn requests_are_answered_in_their_order() {
    let (mut endpoint, handle) = source(&pattern(1000, 1));
    let lengths = [300, 0, 1, 200];
    for (sequence, length) in (1..).zip(lengths) {
        endpoint.recv_slice(&request(sequence, length, handle.0));
    }
    let segments = fpdus(&output(&mut endpoint, usize::MAX));
    let answered: Vec<usize> = segments
        .split_inclusive(|(header, _)| header.control().last())
        .map(|message| joined(message, TAGGED, Opcode::ReadResponse).len())
        .collect();
    assert_eq!(answered, [300, 0, 1, 200]);
}

#[test]
fn a_zero_length_read_is_answered_without_checking_its_source() {
    let (mut endpoint, _) = source(b"x");
    endpoint.recv_slice(&request(1, 0, 0xdead_beef));
    let segments = fpdus(&output(&mut endpoint, usize::MAX));
    assert_eq!(segments.len(), 1);
    assert_eq!(joined(&segments, TAGGED, Opcode::ReadResponse), b"");
}

#[test]
fn an_empty_read_response_is_accepted_whatever_stag_it_names() {
    let mut endpoint = narrow();
    let nothing = Segment {
        handle: Handle(9),
        length: 0,
        offset: 0,
    };
    endpoint.post(read(1, 0, &[nothing])).unwrap();
    output(&mut endpoint, usize::MAX);
    endpoint.recv_slice(&frame(tagged(Opcode::ReadResponse, 0, u64::MAX), b""));
    assert!(matches!(
        completions(&mut endpoint)[..],
        [Completion::Read { wr: WrId(1), .. }]
    ));
}

#[test]
fn sequence_numbers_begin_with_1_and_wrap_to_0() {
    check_sequence(Pair::new(), [1, 2, 3]);
    let mut pair = Pair::new();
    pair.a.tx.sequences[0] = u32::MAX;
    pair.b.places.send_sequence = u32::MAX;
    pair.a.tx.sequences[1] = u32::MAX;
    pair.b.places.read_sequence = u32::MAX;
    check_sequence(pair, [u32::MAX, 0, 1]);
}

/// Three Sends and three Reads have these numbers, and arrive.
#[track_caller]
fn check_sequence(mut pair: Pair, expected: [u32; 3]) {
    let handle = pair
        .b
        .register(Memory::Source(gather(vec![3; 10])))
        .unwrap();
    let segment = Segment {
        handle,
        length: 10,
        offset: 0,
    };
    for n in 0..3 {
        pair.b.post(receive(n, 10)).unwrap();
        pair.a.post(send(n, b"x")).unwrap();
        pair.a.post(read(10 + n, 10, &[segment])).unwrap();
    }
    let stream = output(&mut pair.a, usize::MAX);
    let sequences = |wanted: u32| -> Vec<u32> {
        fpdus(&stream)
            .into_iter()
            .filter_map(|(header, _)| match header {
                Header::Untagged {
                    queue, sequence, ..
                } if queue == wanted => Some(sequence),
                Header::Untagged { .. } | Header::Tagged { .. } => None,
            })
            .collect()
    };
    assert_eq!(sequences(0), expected);
    assert_eq!(sequences(1), expected);
    pair.b.recv_slice(&stream);
    pair.drive();
    let (there, back) = (completions(&mut pair.b), completions(&mut pair.a));
    assert_eq!((there.len(), back.len()), (3, 6));
    for completion in there.iter().chain(&back) {
        assert!(
            !matches!(completion, Completion::Failed { .. }),
            "{completion:?}"
        );
    }
    let Header::Untagged { sequence, .. } = sent([send(1, b"first")])[0].0 else {
        panic!("a Send is untagged");
    };
    assert_eq!(sequence, 1);
}

#[test]
fn reserved_bits_are_ignored() {
    let mut endpoint = Endpoint::new(config(Role::Responder));
    let handle = endpoint.register(sink(10)).unwrap();
    endpoint.post(receive(1, 10)).unwrap();
    let header = with_control(tagged(Opcode::Write, handle.0, 0), 0xc1 | 0x3c);
    endpoint.recv_slice(&frame(with_rdmap(header, 0x40 | 0x30), b"x"));
    let mut header = with_control(untagged(Opcode::Send, 0, 1, 0), LAST | 0x3c);
    if let Header::Untagged { rsvd_ulp_word, .. } = &mut header {
        *rsvd_ulp_word = 0xdead_beef;
    }
    endpoint.recv_slice(&frame(with_rdmap(header, 0x43 | 0x30), b"hello"));
    assert!(matches!(
        completions(&mut endpoint)[..],
        [Completion::Receive {
            wr: WrId(1),
            invalidated: None,
            ..
        }]
    ));
}

#[test]
fn padding_is_zero_when_sent_and_ignored_when_received() {
    for len in 0..8 {
        let mut endpoint = narrow();
        endpoint.post(send(1, &vec![0xff; len])).unwrap();
        let mut bytes = output(&mut endpoint, usize::MAX);
        assert_eq!(bytes.len() % 4, 0);
        let body = bytes.len() - fpdu::CRC_LEN;
        let pad = 2 + 18 + len..body;
        assert!(bytes[pad.clone()].iter().all(|byte| *byte == 0));
        bytes[pad].fill(0xee);
        let crc = crc::emit(crc::crc32c(&bytes[..body]));
        bytes[body..].copy_from_slice(&crc);
        let mut peer = Endpoint::new(config(Role::Responder));
        peer.post(receive(1, 10)).unwrap();
        peer.recv_slice(&bytes);
        match completions(&mut peer).pop() {
            Some(Completion::Receive { buffer, .. }) => assert_eq!(&*buffer, vec![0xff; len]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn segments_are_no_larger_than_allowed() {
    // A multiple of the largest payload behind a tagged header.
    const LEN: usize = 3 * (fpdu::MAX_MULPDU - crate::ddp::TAGGED_LEN);
    for (max_ulpdu, most) in [
        (0, fpdu::MIN_MULPDU),
        (1442, 1442),
        (usize::MAX, fpdu::MAX_MULPDU),
    ] {
        let mut config = config(Role::Initiator);
        config.max_ulpdu = max_ulpdu;
        let mut endpoint = Endpoint::new(config);
        endpoint.post(write(1, vec![1; LEN], Handle(1), 0)).unwrap();
        endpoint.post(send(2, &[2; LEN])).unwrap();
        let segments = fpdus(&output(&mut endpoint, usize::MAX));
        let ulpdu = |(header, payload): &(Header, Vec<u8>)| header.wire_len() + payload.len();
        assert_eq!(segments.iter().map(ulpdu).max(), Some(most));
        let bytes: usize = segments.iter().map(|(_, payload)| payload.len()).sum();
        assert_eq!(bytes, 2 * LEN);
    }
}

#[test]
fn work_completes_when_its_last_byte_is_handed_out() {
    let mut endpoint = narrow();
    endpoint.post(send(1, &[1; 300])).unwrap();
    endpoint.post(write(2, vec![2; 300], Handle(1), 0)).unwrap();
    let mut done = Vec::new();
    let mut out = Vec::new();
    while endpoint.has_output() {
        endpoint
            .send_with(|slices| Ok(take(slices, 1, &mut out)))
            .unwrap();
        for completion in completions(&mut endpoint) {
            done.push((out.len(), completion));
        }
    }
    let whole = out.len();
    assert!(
        matches!(
            done[..],
            [
                (send, Completion::Send { wr: WrId(1) }),
                (write, Completion::Write { wr: WrId(2) }),
            ] if send < write && write == whole
        ),
        "{done:?}"
    );
}

#[test]
fn rtr_message_is_sent_before_anything_else() {
    for (rtr, ord) in [
        (RtrMessage::Write, 4),
        (RtrMessage::Read, 4),
        // A zero-length Read needs no depth of our user's.
        (RtrMessage::Read, 0),
    ] {
        let mut config = config(Role::Initiator);
        config.rtr = Some(rtr);
        config.ord = ord;
        let mut endpoint = Endpoint::new(config);
        endpoint.post(send(1, b"later")).unwrap();
        let segments = fpdus(&output(&mut endpoint, usize::MAX));
        assert_eq!(segments.len(), 2);
        match (rtr, segments[0].0) {
            (RtrMessage::Write, Header::Tagged { .. }) => assert!(segments[0].1.is_empty()),
            (RtrMessage::Read, Header::Untagged { queue: 1, .. }) => {
                let request = ReadRequest::parse(segments[0].1.first_chunk().unwrap());
                assert_eq!(request.length, 0);
                endpoint.recv_slice(&frame(
                    tagged(Opcode::ReadResponse, request.sink_stag, 0),
                    b"",
                ));
                assert!(endpoint.closed().is_none() && !endpoint.is_ending());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn work_posted_after_close_is_flushed() {
    let mut pair = Pair::new();
    pair.introduce();
    pair.a.post(send(1, b"before")).unwrap();
    pair.a.close();
    pair.a.post(send(2, b"after")).unwrap();
    pair.a.post(receive(3, 10)).unwrap();
    pair.b.post(receive(4, 10)).unwrap();
    pair.drive();
    let done = completions(&mut pair.a);
    assert!(
        matches!(
            done[..],
            [
                Completion::Failed {
                    wr: WrId(2),
                    error: WorkError::Flushed
                },
                Completion::Failed {
                    wr: WrId(3),
                    error: WorkError::Flushed
                },
                Completion::Send { wr: WrId(1) }
            ]
        ),
        "{done:?}"
    );
}
