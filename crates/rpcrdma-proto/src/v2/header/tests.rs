//! Headers against their octets, good and bad. The octets of the vectors were written by hand from
//! the XDR of the texts.

use super::*;
use crate::limits::MAX_INVALIDATE_HANDLES;
use crate::wire::header::Malformation;
use crate::wire::header::tests::{any_lists, segment, words};
use buffer::Buffer;
use proptest::prelude::*;
use smallvec::smallvec;
use verbs::Handle;

fn header(body: Body) -> Header {
    Header {
        xid: 7,
        credits: 32,
        body,
    }
}

fn chunks(direction: Direction, invalidate: Invalidate, lists: Lists) -> ChunkLists {
    ChunkLists {
        direction,
        invalidate,
        lists,
    }
}

/// A Read chunk of two segments, and a Reply chunk.
fn long_lists() -> Lists {
    Lists {
        reads: vec![ReadChunk {
            position: 0,
            segments: smallvec![segment(0xa, 4096, 0), segment(0xb, 3, 1 << 32 | 2)],
        }],
        writes: vec![],
        reply: Some(WriteChunk {
            segments: smallvec![segment(0xc, 1000, 8)],
        }),
    }
}

/// The same on the wire.
const LONG_LISTS: [u32; 20] = [
    1, 0, 0xa, 4096, 0, 0, 1, 0, 0xb, 3, 1, 2, 0, 0, 1, 1, 0xc, 1000, 0, 8,
];

fn emitted(header: &Header) -> Vec<u8> {
    let mut out = Buffer::default();
    let (xid, credits) = (header.xid, header.credits);
    match &header.body {
        Body::Msg(lists) => emit(&mut out, procedure::MSG, xid, credits, lists),
        Body::NoMsg(lists) => emit(&mut out, procedure::NOMSG, xid, credits, lists),
        Body::Error(error) => emit_error(&mut out, xid, VERSION, credits, *error),
        Body::Optional(optional) => emit_optional(
            &mut out,
            xid,
            credits,
            optional.direction,
            optional.operation,
            &optional.info,
        ),
    }
    out.to_vec()
}

/// Each vector is a header on the wire, and what it means in a layout.
#[test]
fn vectors_are_read_and_made() {
    let check = |layout, wire: &[u32], body: Body| {
        let bytes = words(wire);
        let header = header(body);
        assert_eq!(emitted(&header), bytes);
        assert_eq!(Header::parse(&bytes, layout), Ok((header, bytes.len())));
    };
    let none = Lists::default;
    check(
        WordLayout::None,
        &[7, 2, 32, 0, 0, 0, 0, 0],
        Body::Msg(chunks(Direction::Call, Invalidate::Unsaid, none())),
    );
    check(
        WordLayout::None,
        &[7, 2, 32, 0, 1, 0, 0, 0],
        Body::Msg(chunks(Direction::Reply, Invalidate::Unsaid, none())),
    );
    check(
        WordLayout::One,
        &[7, 2, 32, 0, 0, 0, 0, 0, 0],
        Body::Msg(chunks(Direction::Call, Invalidate::One(None), none())),
    );
    check(
        WordLayout::Several,
        &[7, 2, 32, 0, 1, 0, 0, 0, 0],
        Body::Msg(chunks(
            Direction::Reply,
            Invalidate::Several(vec![]),
            none(),
        )),
    );
    let long = |words: &[u32]| [words, &LONG_LISTS].concat();
    check(
        WordLayout::None,
        &long(&[7, 2, 32, 1, 0]),
        Body::NoMsg(chunks(Direction::Call, Invalidate::Unsaid, long_lists())),
    );
    check(
        WordLayout::One,
        &long(&[7, 2, 32, 1, 0, 0xb]),
        Body::NoMsg(chunks(
            Direction::Call,
            Invalidate::One(Some(Handle(0xb))),
            long_lists(),
        )),
    );
    check(
        WordLayout::Several,
        &long(&[7, 2, 32, 1, 0, 2, 0xc, 0xa]),
        Body::NoMsg(chunks(
            Direction::Call,
            Invalidate::Several(vec![Handle(0xc), Handle(0xa)]),
            long_lists(),
        )),
    );
    // RFC 8166 §4.7: a Write list of two chunks, here one of two segments and an empty one.
    check(
        WordLayout::None,
        &[
            7, 2, 32, 0, 1, 0, 1, 2, 0xa, 1, 0, 0, 0xb, 2, 0, 0, 1, 0, 0, 0,
        ],
        Body::Msg(chunks(
            Direction::Reply,
            Invalidate::Unsaid,
            Lists {
                writes: vec![
                    WriteChunk {
                        segments: smallvec![segment(0xa, 1, 0), segment(0xb, 2, 0)],
                    },
                    WriteChunk::default(),
                ],
                ..Lists::default()
            },
        )),
    );
    check(
        WordLayout::None,
        &[7, 2, 32, 5, 0, 9, 5, 0x6162_6364, 0x6500_0000],
        Body::Optional(Optional {
            direction: Direction::Call,
            operation: 9,
            info: b"abcde".to_vec(),
        }),
    );
}

#[test]
fn errors_are_read_and_made_and_have_no_direction_word() {
    let check = |wire: &[u32], error| {
        let bytes = words(wire);
        let header = header(Body::Error(error));
        assert_eq!(emitted(&header), bytes);
        assert_eq!(header.direction(), Direction::Reply);
        // What follows is no part of it, and no layout changes it.
        for layout in [WordLayout::None, WordLayout::One, WordLayout::Several] {
            let longer = [&bytes[..], b"more"].concat();
            let parsed = Header::parse(&longer, layout);
            assert_eq!(parsed, Ok((header.clone(), longer.len())));
        }
    };
    check(
        &[7, 2, 32, 4, 1, 1, 2],
        RdmaError::Version { low: 1, high: 2 },
    );
    check(&[7, 2, 32, 4, 2], RdmaError::BadHeader);
    check(&[7, 2, 32, 4, 3], RdmaError::InvalOption);
}

#[test]
fn err_vers_has_the_bytes_of_version_one_and_the_version_that_is_refused() {
    for version in [1, 2, 3] {
        let mut one = Buffer::default();
        let mut two = Buffer::default();
        let range = crate::wire::header::RdmaError::Version { low: 1, high: 2 };
        crate::wire::header::emit_error(&mut one, 7, version, 32, range);
        let range = RdmaError::Version { low: 1, high: 2 };
        emit_error(&mut two, 7, version, 32, range);
        assert_eq!(*one, *two);
        assert_eq!(*two, words(&[7, version, 32, 4, 1, 1, 2]));
    }
}

#[test]
fn each_invalid_header_has_its_disposition() {
    let check = |layout, wire: &[u32], expected| {
        let error = Header::parse(&words(wire), layout).expect_err("invalid");
        assert_eq!(error.disposition(), expected, "{wire:x?}");
    };
    let none = |wire: &[u32], expected| check(WordLayout::None, wire, expected);
    let discard = Disposition::Discard;
    let bad = Disposition::BadHeader {
        xid: 7,
        credits: 32,
    };
    let version = |version| Disposition::ErrVers {
        xid: 7,
        version,
        credits: 32,
    };
    // Under its fixed part.
    none(&[], discard);
    none(&[7, 2, 32], discard);
    none(&[7, 2, 32, 0], discard);
    none(&[7, 2, 32, 0, 0, 0, 0], discard);
    none(&[7, 2, 32, 5, 0, 1], discard);
    none(&[7, 2, 32, 9, 0, 0], discard);
    none(&[7, 3, 32, 9, 0, 0], discard);
    check(WordLayout::One, &[7, 2, 32, 0, 0, 0, 0, 0], discard);
    check(WordLayout::Several, &[7, 2, 32, 0, 0, 0, 0, 0], discard);
    // An error that says nothing draws none, be it of whatever version.
    none(&[7, 2, 32, 4], discard);
    none(&[7, 2, 32, 4, 1, 1], discard);
    none(&[7, 2, 32, 4, 4], discard);
    none(&[7, 1, 32, 4, 2, 0, 0, 0], discard);
    none(&[7, 1, 32, 0, 0, 0, 0], version(1));
    none(&[7, 3, 32, 9, 9, 9, 9, 9], version(3));
    // No such procedure, no such direction, no stream.
    none(&[7, 2, 32, 2, 0, 0, 0, 0], bad);
    none(&[7, 2, 32, 3, 0, 0, 0, 0], bad);
    none(&[7, 2, 32, 6, 0, 0, 0, 0], bad);
    none(&[7, 2, 32, 0, 2, 0, 0, 0], bad);
    none(&[7, 2, 32, 5, 2, 1, 0], bad);
    none(&[7, 2, 32, 1, 0, 0, 0, 0], bad);
    // Lists that are none.
    none(&[7, 2, 32, 0, 0, 2, 0, 0], bad);
    none(&[7, 2, 32, 0, 0, 0, 1, 1 << 28], bad);
    none(&[7, 2, 32, 0, 0, 0, 0, 1, 0xffff_ffff], bad);
    none(&[7, 2, 32, 0, 0, 1, 2, 0xa, 1, 0, 0, 0, 0, 0], bad);
    // More information than there is, or padding that is not zero.
    none(&[7, 2, 32, 5, 0, 1, 1], bad);
    none(&[7, 2, 32, 5, 0, 1, 0xffff_ffff, 0], bad);
    none(&[7, 2, 32, 5, 0, 1, 3, 1], bad);
    // A word for invalidation that does not end.
    let several = |wire: &[u32], expected| check(WordLayout::Several, wire, expected);
    several(&[7, 2, 32, 0, 0, 4, 1, 2, 3], bad);
    several(&[7, 2, 32, 0, 0, 0xffff_ffff, 0, 0, 0], bad);
    // Nobody is answered who says that it is a reply.
    none(&[7, 2, 32, 1, 1, 0, 0, 0], discard);
    none(&[7, 2, 32, 0, 1, 2, 0, 0], discard);
    none(&[7, 2, 32, 5, 1, 1, 1], discard);
    several(&[7, 2, 32, 0, 1, 4, 1, 2, 3], discard);
}

#[test]
fn one_handle_too_many_is_refused_and_the_limit_is_not() {
    let parse = |count: usize| {
        let mut wire = vec![7, 2, 32, 0, 0, u32::try_from(count).expect("few")];
        wire.extend(1..=u32::try_from(count).expect("few"));
        wire.extend([0, 0, 0]);
        Header::parse(&words(&wire), WordLayout::Several)
    };
    assert!(parse(MAX_INVALIDATE_HANDLES).is_ok());
    let error = parse(MAX_INVALIDATE_HANDLES + 1).expect_err("one too many");
    assert!(
        matches!(error, HeaderError::Malformed { cause: Malformation::TooMany { limit, .. }, .. } if limit == MAX_INVALIDATE_HANDLES),
        "{error}"
    );
}

#[test]
fn zero_is_no_handle() {
    let wire = [7, 2, 32, 0, 0, 0, 0, 0, 0];
    let (header, _) = Header::parse(&words(&wire), WordLayout::One).expect("valid");
    let Body::Msg(chunks) = header.body else {
        panic!("an RDMA2_MSG");
    };
    assert_eq!(chunks.invalidate.handles(), []);
    assert_eq!(chunks.invalidate, Invalidate::nothing(WordLayout::One));
}

#[test]
fn plain_header_is_that_of_a_message_without_chunks() {
    for layout in [WordLayout::None, WordLayout::One, WordLayout::Several] {
        for direction in [Direction::Call, Direction::Reply] {
            let invalidate = Invalidate::nothing(layout);
            assert_eq!(invalidate.layout(), layout);
            let lists = chunks(direction, invalidate, Lists::default());
            let header = header(Body::Msg(lists));
            assert_eq!(*plain(7, 32, direction, layout), emitted(&header));
        }
    }
}

#[test]
fn view_shows_what_is_there_even_if_it_is_wrong() {
    let body = words(&[9, 3, 0xa, 0, 1, 3, 0xb, 1, 0, 0, 0, 1, 9, 0xc, 2]);
    let BodyView::Chunks(view) = BodyView::new(procedure::NOMSG, WordLayout::Several, &body) else {
        panic!("lists");
    };
    assert_eq!(view.direction, Some(9));
    assert_eq!(view.invalidate.count, Some(3));
    // The words that follow are taken for handles, as the count says.
    assert_eq!(view.invalidate.handles, [0xa, 0, 1]);
    assert!(view.lists.error.is_some());
    let body = words(&[8, 1]);
    let error = BodyView::new(procedure::ERROR, WordLayout::None, &body);
    let expected = ErrorView {
        code: Some(8),
        low: Some(1),
        high: None,
    };
    assert_eq!(error, BodyView::Error(expected));
    let body = words(&[0, 1, 100, 5]);
    let BodyView::Optional(view) = BodyView::new(procedure::OPTIONAL, WordLayout::None, &body)
    else {
        panic!("an option");
    };
    assert_eq!((view.info_len, view.info), (Some(100), &[0, 0, 0, 5][..]));
    assert!(view.error.is_some());
    assert_eq!(BodyView::new(9, WordLayout::None, &[]), BodyView::Unknown);
}

fn any_direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Call), Just(Direction::Reply)]
}

fn any_invalidate() -> impl Strategy<Value = Invalidate> {
    let handles = prop::collection::vec(any::<u32>().prop_map(Handle), 0..=MAX_INVALIDATE_HANDLES);
    prop_oneof![
        Just(Invalidate::Unsaid),
        any::<u32>().prop_map(|h| Invalidate::One((h != 0).then_some(Handle(h)))),
        handles.prop_map(Invalidate::Several),
    ]
}

fn any_body() -> impl Strategy<Value = Body> {
    let lists = || {
        (any_direction(), any_invalidate(), any_lists())
            .prop_map(|(direction, invalidate, lists)| chunks(direction, invalidate, lists))
    };
    let info = prop::collection::vec(any::<u8>(), 0..64);
    prop_oneof![
        lists().prop_map(Body::Msg),
        lists()
            .prop_filter("a stream", |chunks| !chunks.lists.is_empty())
            .prop_map(Body::NoMsg),
        (any_direction(), any::<u32>(), info).prop_map(|(direction, operation, info)| {
            Body::Optional(Optional {
                direction,
                operation,
                info,
            })
        }),
    ]
}

fn layout_of(body: &Body) -> WordLayout {
    match body {
        Body::Msg(chunks) | Body::NoMsg(chunks) => chunks.invalidate.layout(),
        Body::Error(_) | Body::Optional(_) => WordLayout::None,
    }
}

proptest! {
    #[test]
    fn what_is_made_is_read_back(body in any_body(), stream in prop::collection::vec(any::<u8>(), 0..32)) {
        let layout = layout_of(&body);
        let header = header(body);
        let mut bytes = emitted(&header);
        let len = bytes.len();
        match &header.body {
            Body::Msg(chunks) | Body::NoMsg(chunks) => {
                let lists = &chunks.lists;
                prop_assert_eq!(len, emitted_len(
                    layout,
                    chunks.invalidate.handles().len(),
                    lists.reads.iter().map(|c| c.segments.len()).sum(),
                    lists.writes.iter().map(|c| c.segments.len()),
                    lists.reply.as_ref().map(|c| c.segments.len()),
                ));
            }
            Body::Optional(optional) => prop_assert_eq!(len, optional_len(optional.info.len())),
            Body::Error(_) => {}
        }
        bytes.extend_from_slice(&stream);
        prop_assert_eq!(Header::parse(&bytes, layout), Ok((header, len)));
    }

    #[test]
    fn no_cut_header_is_valid(body in any_body()) {
        let layout = layout_of(&body);
        let header = header(body);
        let bytes = emitted(&header);
        for len in 0..bytes.len() {
            let error = Header::parse(&bytes[..len], layout).expect_err("cut");
            let expected = match (error, header.direction()) {
                (HeaderError::Malformed { xid, credits, .. }, Direction::Call) => {
                    Disposition::BadHeader { xid, credits }
                }
                _ => Disposition::Discard,
            };
            prop_assert_eq!(error.disposition(), expected);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), proc in 0..7_u32) {
        let mut message = words(&[7, 2, 32, proc]);
        message.extend(bytes.iter().map(|byte| byte & 1));
        for layout in [WordLayout::None, WordLayout::One, WordLayout::Several] {
            let _ = Header::parse(&bytes, layout);
            let _ = Header::parse(&message, layout);
            let _ = BodyView::new(proc, layout, &bytes);
        }
    }
}
