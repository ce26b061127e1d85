//! CREATE_SESSION and BIND_CONN_TO_SESSION: what they say, and edits.

use super::xdr::{CALL, REPLY, Xdr, call, putfh, reply, sequence, status, write, xdr};
use super::{scan, scan_reply, stream};
use crate::scan::{
    BindConnection, CONN_BACK_CHAN, CONN_RDMA, Channel, ChannelAttributes, CreateSession,
    ScannedCall, SessionOperation, USE_PNFS_MDS, Word, apply, by_reference,
};
use buffer::Buffer;
use oncrpc::xdr::Payload;

/// Attributes of a channel, whose sizes begin with this one.
fn attributes(first: u32, rdma_ird: Option<u32>) -> ChannelAttributes {
    ChannelAttributes {
        header_pad_size: first,
        max_request_size: first + 1,
        max_response_size: first + 2,
        max_response_size_cached: first + 3,
        max_operations: first + 4,
        max_requests: first + 5,
        rdma_ird,
    }
}

fn channel(first: u32, rdma_ird: Option<u32>) -> Xdr {
    let sizes: Vec<u32> = (first..first + 6).collect();
    match rdma_ird {
        Some(ird) => xdr().words(&sizes).words(&[1, ird]),
        None => xdr().words(&sizes).word(0),
    }
}

/// CREATE_SESSION, with a read depth in each channel or not, and AUTH_SYS for callbacks.
fn create_session(flags: u32, fore: Option<u32>, back: Option<u32>) -> Xdr {
    let xdr = xdr().word(43).long(0xc11e).words(&[1, flags]);
    let xdr = xdr.then(&channel(100, fore)).then(&channel(200, back));
    let xdr = xdr.words(&[0x4000_0000, 2, 0, 1, 7]).opaque(b"host");
    xdr.words(&[0, 0, 2, 10, 20])
}

fn create(call: &ScannedCall) -> CreateSession {
    match call.session {
        Some(SessionOperation::Create(create)) => create,
        other => panic!("{other:?}"),
    }
}

#[test]
fn places_of_a_new_session_are_found() {
    let bytes = call(1, &[create_session(3, None, Some(16)), putfh()]);
    let found = scan(&bytes, 5).unwrap();
    let flags = CALL + 4 + 12;
    let expected = CreateSession {
        flags: Word {
            offset: flags,
            value: 3,
        },
        fore: Channel {
            offset: flags + 4,
            attributes: attributes(100, None),
        },
        back: Channel {
            offset: flags + 4 + 28,
            attributes: attributes(200, Some(16)),
        },
    };
    assert_eq!(create(&found), expected);
    assert!(found.session.unwrap().has_callbacks());
    // All of it was read: the call has a bound.
    assert_eq!(found.operations[..], [43, 22]);
    assert_eq!(found.reply.unwrap().fixed, 24 + 16 + 16 + 16 + 8 + 64);
}

#[test]
fn sizes_are_cut_in_place_and_the_read_depth_is_dropped() {
    let bytes = call(1, &[create_session(7, Some(8), Some(16))]);
    let found = create(&scan(&bytes, 5).unwrap());
    let smaller = ChannelAttributes {
        max_request_size: 4096,
        rdma_ird: None,
        ..found.fore.attributes
    };
    let edits = [
        found.flags.replace(found.flags.value & !CONN_RDMA),
        found.fore.replace(smaller),
        found.back.replace(ChannelAttributes {
            rdma_ird: None,
            ..found.back.attributes
        }),
    ];
    let message = Payload::new(Buffer::from(bytes), 0);
    let edited = stream(&apply(message, &edits));
    let mut expected = create_session(CONN_BACK_CHAN | 1, None, None);
    let request = 4 + 12 + 4 + 4;
    expected.0[request..request + 4].copy_from_slice(&4096_u32.to_be_bytes());
    assert_eq!(edited, call(1, &[expected]));
}

#[test]
fn each_new_session_of_a_call_is_found() {
    let operations = [
        create_session(1, None, None),
        xdr().word(41).fixed(16).words(&[3, 0]),
        create_session(6, Some(8), None),
    ];
    let found = scan(&call(1, &operations), 5).unwrap();
    let flags: Vec<_> = found
        .sessions()
        .map(|session| match session {
            SessionOperation::Create(create) => Some(create.flags.value),
            SessionOperation::Bind(_) => None,
        })
        .collect();
    assert_eq!(flags, [Some(1), None, Some(6)]);
}

#[test]
fn edits_move_the_items_behind_them() {
    let operations = [
        putfh(),
        write(b"before"),
        create_session(0, Some(8), None),
        write(b"behind"),
    ];
    let bytes = call(1, &operations);
    let found = scan(&bytes, 64).unwrap();
    let session = create(&found);
    let message = by_reference(Buffer::from(bytes), &found.arguments, Buffer::with_capacity);
    let edit = session.fore.replace(attributes(100, None));
    let edited = apply(message, &[edit]);
    assert_eq!(edited.items().len(), 2);
    let mut operations = operations;
    operations[2] = create_session(0, None, None);
    assert_eq!(stream(&edited), call(1, &operations));
}

#[test]
fn session_that_was_made_is_found_in_the_reply() {
    let request = scan(&call(1, &[create_session(2, None, None)]), 9).unwrap();
    let result = |flags| {
        let xdr = xdr().words(&[43, 0]).fixed(16).words(&[1, flags]);
        xdr.then(&channel(1, None)).then(&channel(50, Some(4)))
    };
    let found = scan_reply(&request, &reply(&[result(2)]), 3)
        .session
        .unwrap();
    let SessionOperation::Create(create) = found else {
        panic!("{found:?}")
    };
    assert!(found.has_callbacks());
    assert_eq!(create.flags.offset, REPLY + 8 + 20);
    assert_eq!(create.back.attributes, attributes(50, Some(4)));
    let refused = scan_reply(&request, &reply(&[result(0)]), 3)
        .session
        .unwrap();
    assert!(!refused.has_callbacks());
    let failed = scan_reply(&request, &reply(&[status(43, 10_022)]), 3);
    assert_eq!(failed.session, None);
}

#[test]
fn connection_is_bound_in_its_directions() {
    let bind = |direction| xdr().word(41).fixed(16).words(&[direction, 1]);
    let request = |direction| scan(&call(1, &[bind(direction)]), 3).unwrap();
    let offset = CALL + 20;
    let expected = BindConnection {
        direction: Word { offset, value: 3 },
        rdma_mode: Word {
            offset: offset + 4,
            value: 1,
        },
    };
    assert_eq!(request(3).session, Some(SessionOperation::Bind(expected)));
    let result = |direction| {
        let result = xdr().words(&[41, 0]).fixed(16).words(&[direction, 0]);
        scan_reply(&request(3), &reply(&[result]), 7)
            .session
            .unwrap()
    };
    // CDFC4_FORE, CDFC4_BACK, CDFC4_FORE_OR_BOTH, CDFC4_BACK_OR_BOTH.
    for (direction, callbacks) in [(1, false), (2, true), (3, true), (7, true)] {
        assert_eq!(
            request(direction).session.unwrap().has_callbacks(),
            callbacks
        );
    }
    // CDFS4_FORE, CDFS4_BACK, CDFS4_BOTH.
    for (direction, callbacks) in [(1, false), (2, true), (3, true)] {
        assert_eq!(result(direction).has_callbacks(), callbacks);
    }
}

#[test]
fn session_of_a_malformed_call_is_not_known() {
    let bytes = call(1, &[sequence(), create_session(2, None, Some(1))]);
    let found = scan(&bytes, 9).unwrap();
    let end = found
        .session
        .map(|_| create(&found).back.offset + 32)
        .unwrap();
    assert!(scan(&bytes[..end], 9).unwrap().session.is_some());
    assert_eq!(scan(&bytes[..end - 1], 9).unwrap().session, None);
    // A read depth is there once at most.
    let mut bytes = bytes;
    bytes[end - 5] = 2;
    assert_eq!(scan(&bytes, 9).unwrap().session, None);
}

#[test]
fn flags_of_exchange_id_are_found_in_its_result() {
    let exchange = |flags| {
        let xdr = xdr().words(&[42, 0]).long(0xc11e).words(&[1, flags, 0]);
        xdr.long(0).opaque(b"owner").opaque(b"scope").word(0)
    };
    let asked = scan(&call(1, &[putfh()]), 5).unwrap();
    let flags = USE_PNFS_MDS | 1;
    let bytes = reply(&[status(22, 0), exchange(flags), exchange(7)]);
    let found = scan_reply(&asked, &bytes, 5);
    let first = REPLY + 8 + 8 + 12;
    let length = exchange(0).0.len();
    let expected = [(first, flags), (first + length, 7)];
    let expected = expected.map(|(offset, value)| Word { offset, value });
    assert_eq!(found.exchange_flags[..], expected);
    assert_eq!((found.session, found.operations.len()), (None, 3));
    let failed = reply(&[status(42, 10_022)]);
    assert!(scan_reply(&asked, &failed, 5).exchange_flags.is_empty());
}
