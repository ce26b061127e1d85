//! Headers against their octets, good and bad.

#![allow(clippy::cast_possible_truncation)]

use super::*;
use crate::limits::*;
use buffer::Buffer;
use proptest::prelude::*;
use smallvec::smallvec;
use verbs::{Handle, Segment};

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(crate) fn segment(handle: u32, length: u32, offset: u64) -> Segment {
    Segment {
        handle: Handle(handle),
        length,
        offset,
    }
}

fn msg(lists: Lists) -> Header {
    Header {
        xid: 7,
        credits: 32,
        body: Body::Msg(lists),
    }
}

fn emitted(header: &Header) -> Vec<u8> {
    let mut out = Buffer::default();
    let (proc, lists) = match &header.body {
        Body::Msg(lists) => (procedure::MSG, lists),
        Body::NoMsg(lists) => (procedure::NOMSG, lists),
        Body::Done | Body::Error(_) => panic!("only messages are made with lists"),
    };
    emit(&mut out, proc, header.xid, header.credits, lists);
    out.to_vec()
}

/// Each vector is a header on the wire, what it means, and where its stream begins.
#[test]
fn vectors_are_read_and_made() {
    let check = |wire: &[u32], header: Header| {
        let bytes = words(wire);
        assert_eq!(emitted(&header), bytes);
        assert_eq!(Header::parse(&bytes), Ok((header, bytes.len())));
    };
    check(&[7, 1, 32, 0, 0, 0, 0], msg(Lists::default()));
    // A Read chunk of two segments, and a Reply chunk.
    check(
        &[
            7, 1, 32, 0, 1, 116, 0xa, 4096, 0, 0, 1, 116, 0xb, 3, 1, 2, 0, 0, 1, 1, 0xc, 1000, 0, 8,
        ],
        msg(Lists {
            reads: vec![ReadChunk {
                position: 116,
                segments: smallvec![segment(0xa, 4096, 0), segment(0xb, 3, 1 << 32 | 2)],
            }],
            writes: vec![],
            reply: Some(WriteChunk {
                segments: smallvec![segment(0xc, 1000, 8)],
            }),
        }),
    );
    // RFC 8166 §4.7: a Write list of two chunks, here one of two segments and an empty one.
    check(
        &[7, 1, 32, 1, 0, 1, 2, 0xa, 1, 0, 0, 0xb, 2, 0, 0, 1, 0, 0, 0],
        Header {
            xid: 7,
            credits: 32,
            body: Body::NoMsg(Lists {
                writes: vec![
                    WriteChunk {
                        segments: smallvec![segment(0xa, 1, 0), segment(0xb, 2, 0)],
                    },
                    WriteChunk::default(),
                ],
                ..Lists::default()
            }),
        },
    );
}

#[test]
fn errors_are_read_and_made() {
    let check = |wire: &[u32], error| {
        let bytes = words(wire);
        let mut out = Buffer::default();
        emit_error(&mut out, 7, 1, 32, error);
        assert_eq!(*out, bytes);
        let (header, _) = Header::parse(&bytes).expect("valid");
        assert_eq!(header.body, Body::Error(error));
    };
    check(
        &[7, 1, 32, 4, 1, 1, 1],
        RdmaError::Version { low: 1, high: 1 },
    );
    check(&[7, 1, 32, 4, 2], RdmaError::Chunk);
}

#[test]
fn each_invalid_header_has_its_disposition() {
    let check = |wire: &[u8], expected| {
        let error = Header::parse(wire).expect_err("invalid");
        assert_eq!(error.disposition(), expected, "{wire:x?}");
    };
    let chunk = Disposition::ErrChunk {
        xid: 7,
        credits: 32,
    };
    let version = |version| Disposition::ErrVers {
        xid: 7,
        version,
        credits: 32,
    };
    let fixed = [7, 1, 32, 0];
    let with = |more: &[u32]| words(&[&fixed, more].concat());
    check(&[], Disposition::Discard);
    check(&words(&[7, 1, 32]), Disposition::Discard);
    check(&words(&[7, 1, 32, 0, 0, 0]), Disposition::Discard);
    check(&words(&[7, 2, 32, 0, 0, 0]), Disposition::Discard);
    check(&words(&[7, 1, 32, 4]), Disposition::Discard);
    check(&words(&[7, 1, 32, 4, 1, 1]), Disposition::Discard);
    check(&words(&[7, 1, 32, 4, 3]), Disposition::Discard);
    check(&words(&[7, 2, 32, 4, 2, 0, 0]), Disposition::Discard);
    check(&words(&[7, 2, 32, 0, 0, 0, 0]), version(2));
    check(&words(&[7, 0, 32, 9, 9, 9, 9]), version(0));
    check(&words(&[7, 1, 32, 2, 0, 0, 0]), chunk);
    check(&words(&[7, 1, 32, 5, 0, 0, 0]), chunk);
    check(&words(&[7, 1, 32, 1, 0, 0, 0]), chunk);
    check(&with(&[2, 0, 0]), chunk);
    check(&with(&[1, 2, 0xa, 1, 0, 0, 0, 0, 0]), chunk);
    check(&with(&[0, 1, 1 << 28]), chunk);
    check(&with(&[0, 0, 1, 0xffff_ffff]), chunk);
    check(&with(&[0, 0, 1, 2, 1, 2, 3, 4]), chunk);
}

#[test]
fn one_past_each_limit_is_refused_and_the_limit_is_not() {
    let parse = |lists: &Lists| Header::parse(&emitted(&msg(lists.clone())));
    let check = |make: &dyn Fn(usize) -> Lists, limit: usize| {
        assert!(parse(&make(limit)).is_ok());
        let error = parse(&make(limit + 1)).expect_err("one too many");
        assert!(
            matches!(error, HeaderError::Malformed { cause: Malformation::TooMany { limit: l, .. }, .. } if l == limit),
            "{error}"
        );
    };
    let many = |n: usize| -> Segments { (0..n).map(|i| segment(i as u32, 1, 0)).collect() };
    check(
        &|n| Lists {
            reads: vec![ReadChunk {
                position: 4,
                segments: many(n),
            }],
            ..Lists::default()
        },
        MAX_READ_SEGMENTS,
    );
    check(
        &|n| Lists {
            reads: (0..n)
                .map(|i| ReadChunk {
                    position: 4 * i as u32,
                    segments: many(1),
                })
                .collect(),
            ..Lists::default()
        },
        MAX_READ_CHUNKS,
    );
    check(
        &|n| Lists {
            writes: (0..n).map(|_| WriteChunk::default()).collect(),
            ..Lists::default()
        },
        MAX_WRITE_CHUNKS,
    );
    check(
        &|n| Lists {
            reply: Some(WriteChunk { segments: many(n) }),
            ..Lists::default()
        },
        MAX_SEGMENTS_PER_CHUNK,
    );
}

#[test]
fn segments_of_one_position_are_one_chunk_wherever_they_stand() {
    let wire = words(&[
        7, 1, 32, 0, 1, 8, 1, 1, 0, 0, 1, 4, 2, 1, 0, 0, 1, 8, 3, 1, 0, 0, 0, 0, 0,
    ]);
    let (header, _) = Header::parse(&wire).expect("valid");
    let Body::Msg(lists) = header.body else {
        panic!("an RDMA_MSG");
    };
    let positions: Vec<_> = lists.reads.iter().map(|c| c.position).collect();
    assert_eq!(positions, [8, 4], "as they stand in the header");
    let handles: Vec<_> = lists.reads[0].segments.iter().map(|s| s.handle.0).collect();
    assert_eq!(handles, [1, 3]);
}

#[test]
fn returned_chunk_keeps_its_segments_and_says_what_was_written() {
    let chunk = WriteChunk {
        segments: smallvec![segment(1, 10, 0), segment(2, 10, 5), segment(3, 10, 9)],
    };
    let lengths = |filled| -> Vec<u32> {
        let returned = chunk.returned(filled);
        returned.segments.iter().map(|s| s.length).collect()
    };
    assert_eq!(lengths(0), [0, 0, 0]);
    assert_eq!(lengths(10), [10, 0, 0]);
    assert_eq!(lengths(13), [10, 3, 0]);
    assert_eq!(lengths(30), [10, 10, 10]);
}

#[test]
fn view_shows_what_is_there_even_if_it_is_wrong() {
    let view = ListsView::new(&words(&[1, 3, 0xa, 1, 0, 0, 0, 1, 9, 0xb, 2, 0, 0]));
    assert_eq!(view.reads, [(3, segment(0xa, 1, 0))]);
    assert_eq!(view.writes[0].count, 9);
    assert_eq!(view.writes[0].segments, [segment(0xb, 2, 0)]);
    assert!(view.error.is_some());
}

fn any_segments() -> impl Strategy<Value = Segments> {
    prop::collection::vec(
        (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(h, l, o)| segment(h, l, o)),
        0..6,
    )
    .prop_map(Segments::from_vec)
}

pub(crate) fn any_lists() -> impl Strategy<Value = Lists> {
    let chunk = || any_segments().prop_map(|segments| WriteChunk { segments });
    (
        prop::collection::btree_map(0..1000_u32, any_segments(), 0..4),
        prop::collection::vec(chunk(), 0..4),
        prop::option::of(chunk()),
    )
        .prop_map(|(reads, writes, reply)| Lists {
            reads: reads
                .into_iter()
                .filter(|(_, segments)| !segments.is_empty())
                .map(|(at, segments)| ReadChunk {
                    position: at * 4,
                    segments,
                })
                .collect(),
            writes,
            reply,
        })
}

proptest! {
    #[test]
    fn what_is_made_is_read_back(lists in any_lists(), stream in prop::collection::vec(any::<u8>(), 0..32)) {
        let header = msg(lists.clone());
        let mut bytes = emitted(&header);
        let len = emitted_len(
            lists.reads.iter().map(|c| c.segments.len()).sum(),
            lists.writes.iter().map(|c| c.segments.len()),
            lists.reply.as_ref().map(|c| c.segments.len()),
        );
        prop_assert_eq!(bytes.len(), len);
        bytes.extend_from_slice(&stream);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, len)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), proc in 0..6_u32) {
        let _ = Header::parse(&bytes);
        let mut message = words(&[7, 1, 32, proc]);
        message.extend(bytes.iter().map(|byte| byte & 1));
        let _ = Header::parse(&message);
        let _ = ListsView::new(&bytes);
    }
}
