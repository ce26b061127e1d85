//! Headers against their octets, good and bad. The octets were written by hand from the XDR of the
//! draft (§8).

mod properties;
mod random;

use super::*;
use crate::limits::{MAX_READ_CHUNKS, MAX_READ_SEGMENTS, MAX_SEGMENTS_PER_CHUNK, MAX_WRITE_CHUNKS};
use crate::v2::header::{ErrorView, ReadChunk, WriteChunk};
use crate::wire::header::Malformation as Common;
use crate::wire::header::tests::{segment, words};
use smallvec::smallvec;
use std::num::NonZeroU32;

fn header(body: Body) -> Header {
    Header {
        xid: 7,
        credits: 32,
        body,
    }
}

fn emitted(header: &Header) -> Vec<u8> {
    let mut out = Buffer::default();
    header.emit(&mut out);
    out.to_vec()
}

/// These words are a header with this body, and nothing else is.
fn check(wire: &[u32], body: Body) {
    let bytes = words(wire);
    let header = header(body);
    assert_eq!(emitted(&header), bytes, "{header:?}");
    assert_eq!(
        Header::parse(&bytes),
        Ok((header, bytes.len())),
        "{wire:x?}"
    );
}

fn disposition(wire: &[u32]) -> Disposition {
    let error = Header::parse(&words(wire)).expect_err("invalid");
    error.disposition()
}

/// A message with XID 7 that is answered with this error.
fn draws(wire: &[u32], error: RdmaError) {
    let answer = Disposition::Answer { xid: 7, error };
    assert_eq!(disposition(wire), answer, "{wire:x?}");
}

fn is_discarded(wire: &[u32]) {
    assert_eq!(disposition(wire), Disposition::Discard, "{wire:x?}");
}

fn call(external: bool, invalidate: Option<u32>, lists: Lists) -> Body {
    Body::Call {
        external,
        invalidate: invalidate.map(Handle),
        lists,
    }
}

fn read(position: u32, handle: u32) -> ReadChunk {
    ReadChunk {
        position,
        segments: smallvec![segment(handle, 4096, 8)],
    }
}

fn write(handle: u32) -> WriteChunk {
    WriteChunk {
        segments: smallvec![segment(handle, 1000, 1 << 32)],
    }
}

#[test]
fn grant_is_the_prefix_alone_and_its_xid_is_ignored() {
    let bytes = words(&[0, 2, 32, 5]);
    let grant = Header {
        xid: 0,
        ..header(Body::Grant)
    };
    assert_eq!(emitted(&grant), bytes);
    assert_eq!(bytes.len(), GRANT_LEN);
    assert_eq!(Header::parse(&bytes), Ok((grant.clone(), 16)));
    assert_eq!(grant.direction(), None);
    // Octets behind it have no meaning.
    let longer = words(&[9, 2, 32, 5, 0xffff_ffff]);
    assert_eq!(Header::parse(&longer), Ok((grant, 20)));
}

#[test]
fn calls_are_read_and_made() {
    check(
        &[7, 2, 32, 10, 0, 0, 0, 0],
        call(false, None, Lists::default()),
    );
    let lists = Lists {
        reads: vec![
            ReadChunk {
                position: 116,
                segments: smallvec![segment(0xa, 4096, 0), segment(0xb, 3, 1 << 32 | 2)],
            },
            read(120, 0xc),
        ],
        writes: vec![write(0xd), WriteChunk::default()],
        reply: Some(write(0xe)),
    };
    check(
        &[
            7, 2, 32, 10, 0xd, // handle to invalidate
            1, 116, 0xa, 4096, 0, 0, 1, 116, 0xb, 3, 1, 2, 1, 120, 0xc, 4096, 0, 8,
            0, // reads
            1, 1, 0xd, 1000, 1, 0, 1, 0, 0, // writes, the second one empty
            1, 1, 0xe, 1000, 1, 0, // reply
        ],
        call(false, Some(0xd), lists),
    );
}

#[test]
fn external_calls_have_a_list_for_the_call_chunk() {
    let body = ReadChunk {
        position: 0,
        segments: smallvec![segment(0xa, 4096, 0), segment(0xb, 100, 4)],
    };
    let lists = |reads| Lists {
        reads,
        ..Lists::default()
    };
    check(
        &[
            7, 2, 32, 8, 0, 1, 0, 0xa, 4096, 0, 0, 1, 0, 0xb, 100, 0, 4, 0, 0, 0, 0,
        ],
        call(true, None, lists(vec![body.clone()])),
    );
    check(
        &[
            7, 2, 32, 8, 0xa, 1, 0, 0xa, 4096, 0, 0, 1, 0, 0xb, 100, 0, 4, 0, // Call chunk
            1, 40, 0xc, 4096, 0, 8, 0, // reads
            0, 0,
        ],
        call(true, Some(0xa), lists(vec![body, read(40, 0xc)])),
    );
}

#[test]
fn replies_are_read_and_made() {
    let reply = |external, writes, reply| Body::Reply {
        external,
        lists: Lists {
            reads: vec![],
            writes,
            reply,
        },
    };
    check(&[7, 2, 32, 13, 0], reply(false, vec![], None));
    check(
        &[7, 2, 32, 13, 1, 1, 0xd, 1000, 1, 0, 1, 0, 0],
        reply(false, vec![write(0xd), WriteChunk::default()], None),
    );
    check(
        &[7, 2, 32, 11, 0, 1, 1, 0xe, 1000, 1, 0],
        reply(true, vec![], Some(write(0xe))),
    );
    check(
        &[
            7, 2, 32, 11, 1, 1, 0xd, 1000, 1, 0, 0, 1, 1, 0xe, 1000, 1, 0,
        ],
        reply(true, vec![write(0xd)], Some(write(0xe))),
    );
}

#[test]
fn plain_headers_are_those_of_messages_without_chunks() {
    let nothing = Lists::default;
    let plain = header(call(false, None, nothing()));
    assert_eq!(plain_call(7, 32)[..], emitted(&plain));
    let plain = header(Body::Reply {
        external: false,
        lists: nothing(),
    });
    assert_eq!(plain_reply(7, 32)[..], emitted(&plain));
}

#[test]
fn parts_say_what_remains_and_which_way_they_go() {
    let part = |direction, remaining| Body::Part {
        direction,
        remaining,
    };
    check(&[7, 2, 32, 9, 100], part(Direction::Call, 100));
    check(&[7, 2, 32, 12, u32::MAX], part(Direction::Reply, u32::MAX));
    // The stream is what follows, of whatever length.
    let mut message = words(&[7, 2, 32, 9, 100]);
    message.extend(b"abc");
    let (parsed, stream) = Header::parse(&message).expect("valid");
    assert_eq!(parsed.direction(), Some(Direction::Call));
    assert_eq!((&message[stream..], stream), (&b"abc"[..], PART_LEN));
}

#[test]
fn errors_are_read_and_made_with_their_arguments() {
    let check = |wire: &[u32], error| {
        check(wire, Body::Error(error));
        // What follows is no part of it, and less is no error.
        let bytes = words(wire);
        let longer = [&bytes[..], b"more"].concat();
        let parsed = Header::parse(&longer).map(|(header, stream)| (header.body, stream));
        assert_eq!(parsed, Ok((Body::Error(error), longer.len())));
        is_discarded(&wire[..wire.len() - 1]);
    };
    check(
        &[7, 2, 32, 4, 1, 1, 2],
        RdmaError::Version { low: 1, high: 2 },
    );
    check(&[7, 2, 32, 4, 2], RdmaError::BadXdr);
    check(&[7, 2, 32, 4, 3], RdmaError::BadPropval);
    check(&[7, 2, 32, 4, 4], RdmaError::InvalHtype);
    check(&[7, 2, 32, 4, 5], RdmaError::InvalCont);
    check(&[7, 2, 32, 4, 6, 0], RdmaError::ReadChunks { max: 0 });
    check(&[7, 2, 32, 4, 7, 16], RdmaError::WriteChunks { max: 16 });
    check(&[7, 2, 32, 4, 8, 256], RdmaError::Segments { max: 256 });
    let needed = 4096;
    let chunk = NonZeroU32::new(2);
    check(
        &[7, 2, 32, 4, 9, 2, 4096],
        RdmaError::WriteResource { chunk, needed },
    );
    let unknown = RdmaError::WriteResource {
        chunk: None,
        needed: 0,
    };
    check(&[7, 2, 32, 4, 9, 0, 0], unknown);
    check(
        &[7, 2, 32, 4, 10, 4096],
        RdmaError::ReplyResource { needed },
    );
    check(&[7, 2, 32, 4, 11], RdmaError::VersionMismatch);
    check(&[7, 2, 32, 4, 100], RdmaError::System);
}

#[test]
fn errors_that_say_nothing_are_discarded() {
    is_discarded(&[7, 2, 32, 4]);
    is_discarded(&[7, 2, 32, 4, 0]);
    is_discarded(&[7, 2, 32, 4, 12]);
    is_discarded(&[7, 2, 32, 4, 99]);
    // Also those of another version: an error draws no error.
    is_discarded(&[7, 1, 32, 4, 1, 1, 1]);
}

#[test]
fn err_vers_has_the_bytes_of_version_one_and_the_version_that_is_refused() {
    for version in [1, 2, 3] {
        let mut out = Buffer::default();
        let range = RdmaError::Version { low: 1, high: 2 };
        emit_error(&mut out, 7, version, 32, range);
        assert_eq!(*out, words(&[7, version, 32, 4, 1, 1, 2]));
    }
}

#[test]
fn messages_shorter_than_the_prefix_are_discarded() {
    let whole = words(&[7, 2, 32, 5]);
    for len in 0..whole.len() {
        assert_eq!(Header::parse(&whole[..len]), Err(HeaderError::Runt));
    }
    is_discarded(&[7, 9, 32]);
}

#[test]
fn other_version_and_unknown_type_are_reported() {
    for version in [0, 1, 3, u32::MAX] {
        let expected = Disposition::OtherVersion { xid: 7, version };
        assert_eq!(disposition(&[7, version, 32, 10, 0, 0, 0, 0]), expected);
        assert_eq!(disposition(&[7, version, 32, 99]), expected);
    }
    for htype in [0, 1, 2, 3, 14, u32::MAX] {
        draws(&[7, 2, 32, htype, 0, 0, 0, 0], RdmaError::InvalHtype);
        draws(&[7, 2, 32, htype], RdmaError::InvalHtype);
    }
}

#[test]
fn malformed_calls_draw_bad_xdr() {
    let bad = |wire: &[u32]| draws(wire, RdmaError::BadXdr);
    // §4.5.1.1: positions that do not increase; those of one chunk are the same.
    let segment = |position| [1, position, 0xa, 1, 0, 0];
    let call = |positions: &[u32]| {
        let mut wire = vec![7, 2, 32, 10, 0];
        wire.extend(positions.iter().flat_map(|position| segment(*position)));
        wire.extend([0, 0, 0]);
        wire
    };
    assert!(Header::parse(&words(&call(&[4, 4, 8, 8]))).is_ok());
    bad(&call(&[8, 4]));
    bad(&call(&[4, 8, 4]));
    // §4.5.1, §6.3.7.
    bad(&call(&[6]));
    bad(&call(&[0]));
    bad(&call(&[0, 4]));
    // §6.3.5, §6.6.3: no Call chunk, one elsewhere, and Position zero among the items.
    let external = |calls: &[u32], items: &[u32]| {
        let mut wire = vec![7, 2, 32, 8, 0];
        wire.extend(calls.iter().flat_map(|position| segment(*position)));
        wire.push(0);
        wire.extend(items.iter().flat_map(|position| segment(*position)));
        wire.extend([0, 0, 0]);
        wire
    };
    assert!(Header::parse(&words(&external(&[0, 0], &[4, 8]))).is_ok());
    bad(&external(&[], &[]));
    bad(&external(&[], &[4]));
    bad(&external(&[4], &[]));
    bad(&external(&[0, 4], &[]));
    bad(&external(&[0], &[0]));
    bad(&external(&[0], &[8, 4]));
    // Lists that are none, or do not end.
    bad(&[7, 2, 32, 10]);
    bad(&[7, 2, 32, 10, 0, 2, 0, 0]);
    bad(&[7, 2, 32, 10, 0, 0, 0, 2]);
    bad(&[7, 2, 32, 10, 0, 0, 1, 1, 0xa, 1, 0]);
    bad(&[7, 2, 32, 10, 0, 0, 0]);
    bad(&[7, 2, 32, 8, 0, 1, 0, 0xa, 1, 0, 0, 0, 0, 0]);
    bad(&[7, 2, 32, 9]);
}

#[test]
fn malformed_replies_are_not_answered() {
    is_discarded(&[7, 2, 32, 12]);
    is_discarded(&[7, 2, 32, 13]);
    is_discarded(&[7, 2, 32, 13, 2]);
    is_discarded(&[7, 2, 32, 13, 1, 1, 0xd, 1]);
    is_discarded(&[7, 2, 32, 11, 0]);
    // §6.3.8: exactly one Reply chunk.
    is_discarded(&[7, 2, 32, 11, 0, 0]);
    let error = Header::parse(&words(&[7, 2, 32, 11, 0, 0])).expect_err("no reply chunk");
    let expected = HeaderError::Malformed {
        xid: 7,
        credits: 32,
        direction: Some(Direction::Reply),
        cause: Common::NoStream.into(),
    };
    assert_eq!(error, expected);
}

/// §7.3: the limits of the receiver have errors that tell them.
#[test]
fn exceeded_limits_draw_the_limit() {
    let max = |limit: usize| u32::try_from(limit).expect("small");
    let segments = |count: usize, position: fn(u32) -> u32| {
        let one = |at| [1, position(at), 0xa, 1, 0, 0];
        (1..=max(count)).flat_map(one).collect::<Vec<_>>()
    };
    let call = |reads: &[u32], others: &[u32]| [&[7, 2, 32, 10, 0], reads, others].concat();
    let chunks = |count| call(&segments(count, |at| at * 4), &[0, 0, 0]);
    assert!(Header::parse(&words(&chunks(MAX_READ_CHUNKS))).is_ok());
    draws(
        &chunks(MAX_READ_CHUNKS + 1),
        RdmaError::ReadChunks {
            max: max(MAX_READ_CHUNKS),
        },
    );
    let of_one = |count| call(&segments(count, |_| 4), &[0, 0, 0]);
    let too_many = RdmaError::Segments {
        max: max(MAX_READ_SEGMENTS),
    };
    assert!(Header::parse(&words(&of_one(MAX_READ_SEGMENTS))).is_ok());
    draws(&of_one(MAX_READ_SEGMENTS + 1), too_many);
    // The Call chunk and the data items count together.
    let both = |items| {
        let mut wire = vec![7, 2, 32, 8, 0];
        wire.extend(segments(MAX_READ_SEGMENTS - 1, |_| 0));
        wire.push(0);
        wire.extend(segments(items, |_| 4));
        wire.extend([0, 0, 0]);
        wire
    };
    assert!(Header::parse(&words(&both(1))).is_ok());
    draws(&both(2), too_many);
    let writes = |count| call(&[0], &[[1, 0].repeat(count), vec![0, 0]].concat());
    assert!(Header::parse(&words(&writes(MAX_WRITE_CHUNKS))).is_ok());
    draws(
        &writes(MAX_WRITE_CHUNKS + 1),
        RdmaError::WriteChunks {
            max: max(MAX_WRITE_CHUNKS),
        },
    );
    let reply = |count: usize| {
        let segments = [0xa, 1, 0, 0].repeat(count);
        call(&[0], &[vec![0, 1, max(count)], segments].concat())
    };
    assert!(Header::parse(&words(&reply(MAX_SEGMENTS_PER_CHUNK))).is_ok());
    draws(
        &reply(MAX_SEGMENTS_PER_CHUNK + 1),
        RdmaError::Segments {
            max: max(MAX_SEGMENTS_PER_CHUNK),
        },
    );
}

#[test]
fn defects_found_after_the_header_have_an_answer() {
    let answer = |cause: Common| Malformation::from(cause).answer();
    assert_eq!(answer(Common::XidMismatch), RdmaError::BadXdr);
    assert_eq!(answer(Common::MisplacedChunk(4)), RdmaError::BadXdr);
    let none = RdmaError::ReadChunks { max: 0 };
    assert_eq!(answer(Common::ChunksBackward), none);
    assert_eq!(answer(Common::ReadImpossible), none);
    assert_eq!(answer(Common::FailedBefore), RdmaError::System);
    let too_large = Common::ChunkTooLarge { len: 9, limit: 8 };
    assert_eq!(answer(too_large), RdmaError::System);
}

#[test]
fn rpc_message_begins_as_its_header_says() {
    let call = header(call(false, None, Lists::default()));
    assert_eq!(call.check_start(&words(&[7, 0, 2])), Ok(()));
    for other in [&[8, 0, 2][..], &[7, 1, 2], &[7], &[]] {
        let error = call
            .check_start(&words(other))
            .expect_err("another message");
        let bad = RdmaError::BadXdr;
        let expected = Disposition::Answer { xid: 7, error: bad };
        assert_eq!(error.disposition(), expected);
    }
    let reply = header(Body::Part {
        direction: Direction::Reply,
        remaining: 1,
    });
    assert_eq!(reply.check_start(&words(&[7, 1])), Ok(()));
    let error = reply.check_start(&words(&[7, 0])).expect_err("a call");
    assert_eq!(error.disposition(), Disposition::Discard);
}

#[test]
fn view_shows_what_is_there_even_if_it_is_wrong() {
    let body = words(&[9, 1, 8, 0xa, 1, 0, 0, 1, 4, 0xb, 1, 0, 0, 0, 1, 3, 0xc]);
    let BodyView::Rpc(view) = BodyView::new(header_type::CALL_INLINE, &body) else {
        panic!("a call");
    };
    assert_eq!(view.invalidate, Some(9));
    let reads = [(8, segment(0xa, 1, 0)), (4, segment(0xb, 1, 0))];
    assert_eq!(view.lists.reads, reads);
    assert_eq!(view.lists.writes[0].count, 3);
    assert!(view.lists.error.is_some() && view.call_chunk.is_empty());
    // A Call chunk at another Position, and a Read list that ends in its second segment.
    let body = words(&[0, 1, 4, 0xa, 1, 0, 0, 0, 1, 0, 0xb, 1, 0, 0, 1]);
    let BodyView::Rpc(view) = BodyView::new(header_type::CALL_EXTERNAL, &body) else {
        panic!("a call");
    };
    assert_eq!(view.call_chunk, [(4, segment(0xa, 1, 0))]);
    assert_eq!(view.lists.reads, [(0, segment(0xb, 1, 0))]);
    assert!(view.lists.error.is_some());
    let body = words(&[0, 0]);
    let BodyView::Rpc(view) = BodyView::new(header_type::REPLY_EXTERNAL, &body) else {
        panic!("a reply");
    };
    assert_eq!((view.lists.reply, view.lists.len), (None, 8));
    assert_eq!(view.invalidate, None);
    let body = words(&[8, 1]);
    let expected = ErrorView {
        code: Some(8),
        low: Some(1),
        high: None,
    };
    let error = BodyView::new(header_type::ERROR, &body);
    assert_eq!(error, BodyView::Error(expected));
    let body = words(&[3, 2, 4, 8192, 2, 100, 5]);
    let BodyView::Properties(view) = BodyView::new(header_type::CONNPROP_MIDDLE, &body) else {
        panic!("properties");
    };
    assert_eq!(view.set.count, Some(3));
    let values: Vec<_> = view.set.values.iter().map(|value| value.len).collect();
    assert_eq!(values, [Some(4), Some(100)]);
    assert!(view.error.is_some());
    assert_eq!(
        BodyView::new(header_type::CALL_MIDDLE, &[]),
        BodyView::Part(None)
    );
    assert_eq!(BodyView::new(header_type::GRANT, &[1]), BodyView::Grant);
    assert_eq!(BodyView::new(14, &[]), BodyView::Unknown);
}

#[test]
#[should_panic(expected = "only the Call chunk is at position zero")]
fn inline_call_with_a_call_chunk_is_not_made() {
    let lists = Lists {
        reads: vec![read(0, 1)],
        ..Lists::default()
    };
    emit_call(&mut Buffer::default(), 7, 32, false, None, &lists);
}

#[test]
#[should_panic(expected = "a reply has a Reply chunk if it is in it")]
fn inline_reply_with_a_reply_chunk_is_not_made() {
    let lists = Lists {
        reply: Some(write(1)),
        ..Lists::default()
    };
    emit_reply(&mut Buffer::default(), 7, 32, false, &lists);
}
