//! Random headers: whole, cut and changed.

use super::*;
use crate::wire::header::tests::any_lists;
use proptest::prelude::*;

fn any_error() -> impl Strategy<Value = RdmaError> {
    let pair = any::<(u32, u32)>();
    prop_oneof![
        pair.prop_map(|(low, high)| RdmaError::Version { low, high }),
        any::<u32>().prop_map(|max| RdmaError::ReadChunks { max }),
        any::<u32>().prop_map(|max| RdmaError::WriteChunks { max }),
        any::<u32>().prop_map(|max| RdmaError::Segments { max }),
        any::<(u32, u32)>().prop_map(|(chunk, needed)| RdmaError::WriteResource {
            chunk: NonZeroU32::new(chunk),
            needed,
        }),
        any::<u32>().prop_map(|needed| RdmaError::ReplyResource { needed }),
        prop::sample::select(vec![
            RdmaError::BadXdr,
            RdmaError::BadPropval,
            RdmaError::InvalHtype,
            RdmaError::InvalCont,
            RdmaError::VersionMismatch,
            RdmaError::System,
        ]),
    ]
}

fn any_set() -> impl Strategy<Value = PropertySet> {
    let numbers = any::<[Option<u32>; 4]>();
    let level = prop::option::of(0..4_u32);
    let auth = prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
    (numbers, level, auth).prop_map(|([max_send, receive, size, count], level, host_auth)| {
        PropertySet {
            max_send,
            receive_buffer: receive,
            max_segment_size: size,
            max_segments: count,
            reverse: level.map(ReverseSupport::from_word),
            host_auth,
        }
    })
}

fn any_call() -> impl Strategy<Value = Body> {
    let body = prop::collection::vec(any::<(u32, u32, u64)>(), 0..4);
    (body, any::<u32>(), any_lists()).prop_map(|(body, handle, mut lists)| {
        let external = !body.is_empty();
        lists.reads.retain(|chunk| chunk.position != 0);
        if external {
            let segments = body.into_iter();
            let segments = segments.map(|(handle, length, offset)| segment(handle, length, offset));
            let chunk = ReadChunk {
                position: 0,
                segments: segments.collect(),
            };
            lists.reads.insert(0, chunk);
        }
        call(external, (handle != 0).then_some(handle), lists)
    })
}

fn any_reply() -> impl Strategy<Value = Body> {
    any_lists().prop_map(|mut lists| {
        lists.reads.clear();
        Body::Reply {
            external: lists.reply.is_some(),
            lists,
        }
    })
}

fn any_body() -> impl Strategy<Value = Body> {
    let direction = prop_oneof![Just(Direction::Call), Just(Direction::Reply)];
    prop_oneof![
        1 => Just(Body::Grant),
        2 => any_error().prop_map(Body::Error),
        2 => (any::<bool>(), any_set()).prop_map(|(last, set)| Body::Properties { last, set }),
        4 => any_call(),
        4 => any_reply(),
        1 => (direction, any::<u32>()).prop_map(|(direction, remaining)| Body::Part {
            direction,
            remaining,
        }),
    ]
}

fn any_header() -> impl Strategy<Value = Header> {
    (any::<(u32, u32)>(), any_body()).prop_map(|((xid, credits), body)| Header {
        xid: if body == Body::Grant { 0 } else { xid },
        credits,
        body,
    })
}

/// The octets that the header should have.
fn expected_len(body: &Body) -> Option<usize> {
    let segments = |lists: &Lists| -> usize {
        let reads = lists.reads.iter().map(|chunk| chunk.segments.len());
        reads.sum()
    };
    let len = |chunk: &WriteChunk| chunk.segments.len();
    Some(match body {
        Body::Grant => GRANT_LEN,
        Body::Part { .. } => PART_LEN,
        Body::Properties { set, .. } => properties_len(set),
        Body::Call {
            external, lists, ..
        } => call_len(
            *external,
            segments(lists),
            lists.writes.iter().map(len),
            lists.reply.as_ref().map(len),
        ),
        Body::Reply { lists, .. } => {
            reply_len(lists.writes.iter().map(len), lists.reply.as_ref().map(len))
        }
        Body::Error(_) => return None,
    })
}

proptest! {
    #[test]
    fn what_is_made_is_read_back(header in any_header(), stream in prop::collection::vec(any::<u8>(), 0..32)) {
        let mut bytes = emitted(&header);
        let len = bytes.len();
        prop_assert_eq!(expected_len(&header.body).unwrap_or(len), len);
        bytes.extend_from_slice(&stream);
        let end = if header.direction().is_some() { len } else { bytes.len() };
        prop_assert_eq!(Header::parse(&bytes), Ok((header, end)));
    }

    #[test]
    fn no_cut_header_is_valid(header in any_header()) {
        let bytes = emitted(&header);
        for len in 0..bytes.len() {
            let error = Header::parse(&bytes[..len]).expect_err("cut");
            let is_answered = len >= GRANT_LEN && match header.body {
                Body::Properties { .. } | Body::Call { .. } => true,
                Body::Part { direction, .. } => direction == Direction::Call,
                Body::Error(_) | Body::Grant | Body::Reply { .. } => false,
            };
            let answered = matches!(
                error.disposition(),
                Disposition::Answer { xid, error: RdmaError::BadXdr | RdmaError::BadPropval }
                    if xid == header.xid
            );
            prop_assert_eq!(answered, is_answered, "{:?}", error);
            prop_assert!(answered || error.disposition() == Disposition::Discard);
        }
    }

    #[test]
    fn changed_headers_are_refused_or_read_as_what_they_are(
        header in any_header(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = emitted(&header);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let view = BodyView::new(u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]), &bytes[16..]);
        if let Ok((header, _)) = Header::parse(&bytes) {
            prop_assert_eq!(Header::parse(&emitted(&header)).map(|(again, _)| again), Ok(header));
            prop_assert_ne!(view, BodyView::Unknown);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), htype in 3..15_u32) {
        let mut message = words(&[7, 2, 32, htype]);
        message.extend(bytes.iter().map(|byte| byte & 1));
        let _ = Header::parse(&bytes);
        let _ = Header::parse(&message);
        let _ = BodyView::new(htype, &bytes);
    }
}
