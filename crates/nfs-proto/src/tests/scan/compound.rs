//! COMPOUND: items, bounds, and where knowledge ends.

use super::xdr::{
    CALL, REPLY, call, getattr, putfh, read, read_data, reply, sequence, status, write, xdr,
};
use super::{place, scan, scan_reply, words};
use crate::limits::{MAX_DATA, MAX_ITEMS, MAX_OPERATIONS, MAX_TAG};
use proptest::prelude::*;

/// Bytes of an accepted reply with the tag "tag", before the results.
const FIXED: usize = 24 + 4 + 8 + 4;

#[test]
fn every_write_of_a_compound_has_its_item() {
    let bytes = call(
        1,
        &[
            sequence(),
            putfh(),
            write(b"hello"),
            putfh(),
            write(b"abcd"),
        ],
    );
    let found = scan(&bytes, 3).unwrap();
    let first = CALL + 36 + 12 + 36;
    assert_eq!(
        found.arguments[..],
        [place(first, 5), place(first + 8 + 12 + 36, 4)]
    );
    assert_eq!(found.operations[..], [53, 22, 38, 22, 38]);
    assert_eq!((found.xid, found.clear, found.session), (9, true, None));
    // SEQUENCE has 36 bytes of results and WRITE 16, beside number and status.
    assert_eq!(found.reply.unwrap().fixed, FIXED + 5 * 8 + 36 + 16 + 16);
}

#[test]
fn text_of_a_symbolic_link_is_eligible_and_other_types_have_none() {
    let create = |object| xdr().word(6).then(&object).opaque(b"name").fattr();
    let link = create(xdr().word(5).opaque(b"target"));
    let node = create(xdr().word(3).words(&[8, 1]));
    let found = scan(&call(0, &[putfh(), node.clone(), link]), 5).unwrap();
    let offset = CALL + 12 + node.0.len() + 4 + 4 + 4;
    assert_eq!(found.arguments[..], [place(offset, 6)]);
}

#[test]
fn reply_has_room_for_each_read_by_its_count() {
    let readlink = xdr().word(27);
    let operations = [putfh(), read(4096), putfh(), read(100), putfh(), readlink];
    let found = scan(&call(2, &operations), 7).unwrap().reply.unwrap();
    assert_eq!(found.results[..], [4096, 100]);
    // The text of READLINK is in the stream.
    assert_eq!(found.fixed, FIXED + 6 * 8 + 8 + 8 + (4 + 4096));
}

#[test]
fn read_behind_a_readlink_has_no_chunk_that_the_server_would_give_to_that() {
    let readlink = || xdr().word(27);
    let check = |operations: &[_], results: &[usize], inline: usize| {
        let found = scan(&call(2, operations), 7).unwrap().reply.unwrap();
        assert_eq!(found.results[..], *results);
        assert_eq!(found.fixed, FIXED + operations.len() * 8 + inline);
    };
    let text = 4 + 4096;
    check(&[readlink(), read(5000)], &[], text + 8 + 5000);
    check(&[read(5000), readlink()], &[5000], 8 + text);
    check(
        &[read(5000), readlink(), read(6000), read(7000)],
        &[5000],
        3 * 8 + text + 6000 + 7000,
    );
}

#[test]
fn results_without_a_chunk_are_counted_in_the_stream() {
    let found = scan(&call(2, &[read(4096), read(7), read(100)]), 7).unwrap();
    let whole = found.reply.clone().unwrap();
    let one = found.reply_with_chunks(1).unwrap();
    assert_eq!(
        (one.fixed, &one.results[..]),
        (whole.fixed + 8 + 100, &[4096][..])
    );
    assert_eq!(found.reply_with_chunks(3), Some(whole));
}

#[test]
fn reads_beyond_the_largest_number_of_chunks_are_in_the_stream() {
    let operations = vec![read(1000); MAX_ITEMS + 2];
    let found = scan(&call(1, &operations), 999).unwrap().reply.unwrap();
    assert_eq!(found.results.len(), MAX_ITEMS);
    assert_eq!(found.fixed, FIXED + (MAX_ITEMS + 2) * 16 + 2000);
    let operations = vec![write(b"data"); MAX_ITEMS + 2];
    let found = scan(&call(1, &operations), 999).unwrap();
    assert_eq!(found.arguments.len(), MAX_ITEMS);
    assert!(found.reply.is_some());
}

#[test]
fn getattr_is_bounded_by_its_bitmap() {
    let bound = |bits| scan(&call(0, &[putfh(), getattr(bits)]), 8).unwrap().reply;
    // Type and size; mode and mounted_on_fileid. The bitmap in the reply may have 8 words.
    let fixed = FIXED + 16 + 36 + 4;
    assert_eq!(
        bound([0b1_0010, 1 << 1 | 1 << 23]).unwrap().fixed,
        fixed + 4 + 8 + 4 + 8
    );
    // An ACL, fs_locations and a mimetype have no limit; nor has an attribute that is not known.
    assert_eq!(bound([1 << 12, 0]), None);
    assert_eq!(bound([1 << 24, 0]), None);
    assert_eq!(bound([0, 1]), None);
    let unknown = xdr().word(9).bitmap(&[0, 0, 0, 1]);
    assert_eq!(scan(&call(2, &[unknown]), 8).unwrap().reply, None);
}

#[test]
fn security_label_and_delegated_attributes_have_a_bound() {
    let bound = |attribute: u32| {
        let mut bits = [0; 3];
        bits[attribute as usize / 32] = 1 << (attribute % 32);
        let getattr = xdr().word(9).bitmap(&bits);
        let found = scan(&call(2, &[getattr]), 8).unwrap();
        found.reply.map(|bound| bound.fixed - (FIXED + 8 + 36 + 4))
    };
    // sec_label, with its two words and its length; the attributes of RFC 9754.
    assert_eq!(bound(80), Some(8 + 4 + 4096));
    assert_eq!(bound(83), Some(4));
    assert_eq!((bound(84), bound(85)), (Some(12), Some(12)));
    assert_eq!(bound(86), Some(5 * (4 + 4 * 8)));
    for unlimited in [12, 58, 59, 68, 81, 87] {
        assert_eq!(bound(unlimited), None, "{unlimited}");
    }
}

#[test]
fn getattr_of_version_4_0_may_be_sent_again_beside_operations_that_change_nothing() {
    let retry =
        |minor, operations: &[_]| scan(&call(minor, operations), 8).unwrap().short_reply_retry;
    let (acl, remove) = (getattr([1 << 12, 0]), xdr().word(28).opaque(b"name"));
    assert!(retry(0, &[putfh(), acl.clone()]));
    assert!(!retry(0, &[putfh(), remove, acl.clone()]));
    assert!(!retry(0, &[putfh(), read(10)]));
    assert!(!retry(1, &[sequence(), putfh(), acl]));
}

#[test]
fn call_with_rpcsec_gss_is_not_sent_again() {
    let header = [9, 0, 2, 100_003, 4, 1, 6, 24, 1, 0, 1, 1, 4, 0xabcd, 6, 0];
    let operations = &call(0, &[putfh(), getattr([1 << 12, 0])])[40..];
    let found = scan(&[&words(&header), operations].concat(), 9).unwrap();
    assert_eq!(found.operations[..], [22, 9]);
    assert!(!found.short_reply_retry);
}

#[test]
fn read_plus_is_not_reduced_and_has_room_for_its_count() {
    let read_plus = xdr().word(68).stateid().long(0).word(65_536);
    let found = scan(&call(2, &[sequence(), putfh(), read_plus]), 8).unwrap();
    let bound = found.reply.clone().unwrap();
    assert!(bound.results.is_empty());
    assert_eq!(bound.fixed, FIXED + 3 * 8 + 36 + 8 + 65_536 + 64 * 20);
    let segments = xdr().words(&[68, 0, 1, 2, 0]).long(0).opaque(b"data");
    let segments = segments.word(1).long(4096).long(8192);
    let results = [status(22, 0), segments, read_data(b"after")];
    let bytes = reply(&results);
    let offset = REPLY + 8 + results[1].0.len() + 16;
    assert_eq!(
        scan_reply(&found, &bytes, 5).results[..],
        [place(offset, 5)]
    );
}

#[test]
fn operation_that_is_not_known_ends_the_knowledge() {
    let unknown = xdr().words(&[76, 1, 2, 3]);
    let found = scan(&call(2, &[write(b"data"), unknown, write(b"more")]), 9).unwrap();
    assert_eq!(found.arguments[..], [place(CALL + 36, 4)]);
    assert_eq!((found.reply, &found.operations[..]), (None, &[38][..]));
    // Version 4.0 has no SEQUENCE, 4.1 no COPY, and there is no 4.3.
    for (minor, operation) in [(0, sequence()), (1, xdr().word(66).stateid()), (3, putfh())] {
        let found = scan(&call(minor, &[operation, write(b"data")]), 9).unwrap();
        assert!(found.arguments.is_empty() && found.reply.is_none());
    }
}

#[test]
fn compound_that_lies_about_a_length_has_no_item_past_the_lie() {
    let honest = [putfh(), write(b"first"), putfh(), write(b"second")];
    let bytes = call(0, &honest);
    let found = scan(&bytes, 9).unwrap();
    assert_eq!((found.arguments.len(), found.truncated), (2, false));
    let first = CALL + 12 + 36;
    // The first WRITE claims all that is left, more than that, and more than the limit.
    for length in [u32::try_from(bytes.len()).unwrap(), MAX_DATA, MAX_DATA + 1] {
        let mut bytes = bytes.clone();
        bytes[first - 4..first].copy_from_slice(&length.to_be_bytes());
        let found = scan(&bytes, 9).unwrap();
        assert!(found.arguments.is_empty() && found.reply.is_none());
        // What is above the limit may be right, for others.
        assert_eq!(found.truncated, length <= MAX_DATA);
    }
    // The second handle is longer than a handle can be.
    let mut bytes = bytes.clone();
    bytes[first + 8 + 4..first + 8 + 8].copy_from_slice(&129_u32.to_be_bytes());
    assert_eq!(scan(&bytes, 9).unwrap().arguments[..], [place(first, 5)]);
    // More operations than there are.
    let mut bytes = call(0, &honest);
    bytes[CALL - 4..CALL].copy_from_slice(&5_u32.to_be_bytes());
    let found = scan(&bytes, 9).unwrap();
    assert_eq!((found.reply, found.truncated), (None, true));
}

#[test]
fn sizes_above_the_limits_have_no_bound() {
    let bound = |operations: &[_]| scan(&call(1, operations), 64).unwrap().reply;
    assert!(bound(&[read(MAX_DATA)]).is_some());
    assert_eq!(bound(&[read(MAX_DATA + 1)]), None);
    assert_eq!(bound(&[read(MAX_DATA), read(MAX_DATA), read(4)]), None);
    let most = vec![putfh(); MAX_OPERATIONS as usize];
    assert!(bound(&most).is_some());
    assert_eq!(bound(&[most, vec![putfh()]].concat()), None);
}

#[test]
fn tag_comes_back_and_one_above_the_limit_ends_the_knowledge() {
    let found = |length: u32| {
        let header = [9, 0, 2, 100_003, 4, 1, 0, 0, 0, 0];
        let tag = xdr().opaque(&vec![b't'; length as usize]);
        let operations = &call(1, &[putfh(), write(b"data")])[CALL - 8..];
        scan(&[&words(&header), &tag.0[..], operations].concat(), 64).unwrap()
    };
    let fixed = FIXED - 4 + 16 + 16;
    for length in [0, 1, MAX_TAG] {
        let padded = length.next_multiple_of(4) as usize;
        assert_eq!(found(length).reply.unwrap().fixed, fixed + padded);
    }
    let long = found(MAX_TAG + 1);
    assert!(long.reply.is_none() && long.arguments.is_empty());
}

#[test]
fn results_are_found_up_to_an_error() {
    let found = scan(&call(0, &[putfh(), read(10), xdr().word(27), read(10)]), 9).unwrap();
    let link = xdr().words(&[27, 0]).opaque(b"to");
    let results = [status(22, 0), read_data(b"hello"), link, status(25, 13)];
    let first = REPLY + 8 + 16;
    let bytes = reply(&results);
    let reply = scan_reply(&found, &bytes, 2);
    assert_eq!(
        reply.results[..],
        [place(first, 5), place(first + 8 + 12, 2)]
    );
    assert_eq!(reply.operations[..], [22, 25, 27, 25]);
    // Another call's reply, and one that was cut within the data of READLINK.
    let mut other = bytes.clone();
    other[3] ^= 1;
    assert!(scan_reply(&found, &other, 2).results.is_empty());
    let cut = scan_reply(&found, &bytes[..first + 8 + 12 + 2], 2);
    assert_eq!(cut.results[..], [place(first, 5)]);
}

#[test]
fn result_without_data_keeps_its_place_among_the_chunks() {
    let found = scan(&call(0, &[read(10), read(10)]), 9).unwrap();
    let reply = scan_reply(&found, &reply(&[read_data(b""), read_data(b"x")]), 2);
    assert_eq!(
        reply.results[..],
        [place(REPLY + 16, 0), place(REPLY + 32, 1)]
    );
}

#[test]
fn rpcsec_gss_protects_the_whole_compound() {
    let gss = |service| {
        let header = words(&[
            9, 0, 2, 100_003, 4, 1, 6, 24, 1, 0, 1, service, 4, 0xabcd, 6, 4, 1,
        ]);
        let rest = &call(1, &[putfh(), write(b"data")])[40..];
        scan(&[&header, rest].concat(), 9).unwrap()
    };
    assert_eq!(gss(1).arguments[..], [place(CALL + 28 + 12 + 36, 4)]);
    assert_eq!(gss(1).reply.unwrap().fixed, FIXED + 16 + 16 + 400);
    for service in [2, 3] {
        let call = gss(service);
        assert!(!call.clear && call.arguments.is_empty() && call.reply.is_none());
        let results = scan_reply(&call, &reply(&[read_data(b"data")]), 9).results;
        assert!(results.is_empty());
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter_and_items_are_inside(
        minor in 0u32..4,
        operations in proptest::collection::vec(operation(), 0..12),
        cut in 0usize..600,
        piece in 1usize..40,
    ) {
        let bytes = call(minor, &operations.into_iter().map(super::xdr::Xdr).collect::<Vec<_>>());
        let bytes = &bytes[..bytes.len().min(cut)];
        let whole = scan(bytes, bytes.len().max(1));
        prop_assert_eq!(&scan(bytes, piece), &whole);
        for item in whole.into_iter().flat_map(|call| call.arguments) {
            prop_assert!(item.end() <= bytes.len());
        }
    }

    #[test]
    fn any_reply_is_scanned(
        words_of_it in proptest::collection::vec(prop_oneof![0u32..40, any::<u32>()], 0..60),
        piece in 1usize..40,
    ) {
        let found = scan(&call(0, &[putfh(), read(10)]), 9).unwrap();
        let header = words(&[9, 1, 0, 0, 0, 0, 0, 0]);
        let bytes = [header, words(&words_of_it)].concat();
        let whole = scan_reply(&found, &bytes, bytes.len());
        prop_assert_eq!(&scan_reply(&found, &bytes, piece), &whole);
        prop_assert!(whole.results.iter().all(|item| item.end() <= bytes.len()));
    }
}

/// An operation that may be valid.
fn operation() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(putfh().0),
        Just(sequence().0),
        Just(getattr([0x18, 0x30]).0),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|data| write(&data).0),
        (0u32..100_000).prop_map(|count| read(count).0),
        (
            0u32..80,
            proptest::collection::vec(prop_oneof![0u32..9, any::<u32>()], 0..20)
        )
            .prop_map(|(number, args)| words(&[vec![number], args].concat())),
    ]
}
