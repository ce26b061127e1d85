//! Messages with by-reference items: places found, and items put in their places.

use super::xdr::{
    CALL, REPLY, Xdr, call, getattr, putfh, read, read_data, reply, status, write, xdr,
};
use super::{scan, scan_reply, stream, words};
use crate::limits::{MAX_DATA, MAX_ITEMS};
use crate::scan::{
    BadItem, Misplaced, ScannedCall, by_reference, place_results, scan_call, scan_received,
    scan_reply as scan_reply_payload,
};
use buffer::{Buffer, Gather};
use oncrpc::xdr::Payload;
use proptest::prelude::*;

fn buffer(len: usize) -> Buffer {
    Buffer::with_capacity(len)
}

/// The reply as it arrives over RDMA: without the data of the results at these places, which is in
/// Write chunks, with padding if `padded`.
fn reduced(bytes: &[u8], call: &ScannedCall, moved: &[bool], padded: bool) -> Payload {
    let (mut head, mut data, mut done) = (Buffer::default(), Vec::new(), 0);
    let mut unused = 0;
    for (item, &moved) in scan_reply(call, bytes, 64).results.iter().zip(moved) {
        if !moved {
            continue;
        }
        head.extend_from_slice(&bytes[done..item.offset]);
        done = item.end();
        let end = if padded {
            item.end()
        } else {
            item.offset + item.length
        };
        match item.length {
            0 => unused += 1,
            _ => data.push(Gather::from_elem(
                bytes[item.offset..end].to_vec().into(),
                1,
            )),
        }
    }
    head.extend_from_slice(&bytes[done..]);
    Payload::with_results(head, 0, data.into_iter()).with_unused_chunks(unused)
}

/// READLINK has no chunk: none is offered for its text.
fn three_results() -> (ScannedCall, Vec<u8>) {
    let operations = [putfh(), read(10), xdr().word(27), read(10), getattr([2, 0])];
    let call = scan(&call(1, &operations), 9).unwrap();
    let link = xdr().words(&[27, 0]).opaque(b"target");
    let attributes = xdr().words(&[9, 0]).bitmap(&[2]).opaque(&[0, 0, 0, 1]);
    let results = [
        status(22, 0),
        read_data(b"hello"),
        link,
        read_data(b"abc"),
        attributes,
    ];
    (call, reply(&results))
}

#[test]
fn whole_message_becomes_one_with_items_that_share_its_memory() {
    let bytes = call(
        0,
        &[putfh(), write(b"hello"), getattr([2, 0]), write(b"worlds")],
    );
    let found = scan(&bytes, 9).unwrap();
    let message = Buffer::from(bytes.clone());
    let memory = message.as_ptr_range();
    let payload = by_reference(message, &found.arguments, buffer);
    assert_eq!(payload.items().len(), 2);
    for (index, item) in payload.items().iter().enumerate() {
        assert_eq!(payload.position(index), found.arguments[index].offset);
        assert!(memory.contains(&item.data[0].as_ptr()));
    }
    assert_eq!(stream(&payload), bytes);
    assert_eq!(scan_call(&payload), Some(found));
}

#[test]
fn message_without_items_is_not_copied() {
    let message = Buffer::from(call(0, &[putfh()]));
    let memory = message.as_ptr();
    let payload = by_reference(message, &[], |_| unreachable!());
    assert_eq!(payload.head().as_ptr(), memory);
}

#[test]
fn received_part_of_a_call_is_scanned_with_its_items_missing() {
    let bytes = call(0, &[putfh(), write(b"hello"), write(b"worlds"), read(77)]);
    let whole = scan(&bytes, 9).unwrap();
    let (first, second) = (whole.arguments[0], whole.arguments[1]);
    let head = [
        &bytes[..first.offset],
        &bytes[first.end()..second.offset],
        &bytes[second.end()..],
    ];
    let at = [head[0].len(), head[0].len() + head[1].len()];
    let head = head.concat();
    // With and without padding (RFC 8166 §3.4.5.2).
    for lengths in [[5, 6], [8, 8], [5, 8]] {
        let items = [(at[0], lengths[0]), (at[1], lengths[1])];
        assert_eq!(scan_received(&head, items).as_ref(), Some(&whole));
    }
    // Another length, another place, an item too many, and a place beyond the head.
    let wrong = [
        vec![(at[0], 4), (at[1], 6)],
        vec![(at[0] - 4, 5), (at[1], 6)],
        vec![(at[0], 5), (at[1], 6), (at[1], 6)],
        vec![(at[0], 5), (at[1] + 4, 6)],
        vec![(at[0], 5), (head.len() + 1, 6)],
    ];
    for items in wrong {
        let found = scan_received(&head, items.clone()).unwrap();
        assert_eq!(found.reply, None, "{items:?}");
    }
    let other = scan_received(&head, [(at[0], 4), (at[1], 6)]).unwrap();
    assert!(other.arguments.is_empty());
    // What ends at the first item has no bound.
    assert_eq!(scan_received(&head[..at[0]], []).unwrap().reply, None);
}

#[test]
fn item_that_does_not_belong_where_it_stands_is_reported() {
    let bytes = call(0, &[putfh(), write(&[5; 4096]), getattr([2, 0])]);
    let at = CALL + 12 + 36;
    let head = [&bytes[..at], &bytes[at + 4096..]].concat();
    let bad = |at, length| scan_received(&head, [(at, length)]).unwrap().bad_item;
    assert_eq!(bad(at, 4096), None);
    // Padded, it would look like one of the right length.
    assert_eq!(bad(at, 4095), Some(BadItem::Length));
    assert_eq!(bad(at, 4092), Some(BadItem::Length));
    // Within the arguments before it, and behind it.
    assert_eq!(bad(at - 8, 4095), Some(BadItem::Ineligible));
    assert_eq!(bad(at + 4, 5), Some(BadItem::Ineligible));
    // Also where it needs no padding (RFC 8166 §6.1).
    assert_eq!(bad(at - 8, 4096), Some(BadItem::Ineligible));
    assert_eq!(bad(at + 4, 8), Some(BadItem::Ineligible));
    // In procedures of versions 2 and 3 without an eligible argument, and behind the one of others.
    for (version, procedure) in [(3, 1), (3, 0), (3, 21), (2, 1), (2, 17)] {
        let getattr = words(&[9, 0, 2, 100_003, version, procedure, 0, 0, 0, 0, 32]);
        let found = scan_received(&getattr, [(getattr.len(), 32)]).unwrap();
        assert_eq!(
            found.bad_item,
            Some(BadItem::Ineligible),
            "{version} {procedure}"
        );
    }
    for (version, procedure) in [(3, 22), (2, 18), (4, 2)] {
        let unknown = words(&[9, 0, 2, 100_003, version, procedure, 0, 0, 0, 0, 32]);
        let found = scan_received(&unknown, [(unknown.len(), 32)]).unwrap();
        assert_eq!(found.bad_item, None, "{version} {procedure}");
    }
    // What follows an operation that is not known, or is another program's, is not judged.
    let unknown = call(2, &[xdr().words(&[76, 5])]);
    let of_unknown = scan_received(&unknown, [(unknown.len(), 5)]).unwrap();
    assert_eq!(of_unknown.bad_item, None);
    let other = words(&[9, 0, 2, 0x2000_0001, 1, 1, 0, 0, 0, 0, 5]);
    let of_other = scan_received(&other, [(other.len(), 5)]).unwrap();
    assert_eq!(of_other.bad_item, None);
}

#[test]
fn item_behind_more_items_than_are_kept_is_not_judged() {
    let bytes = call(0, &vec![write(b"data"); MAX_ITEMS + 1]);
    let at = bytes.len() - 4;
    let found = scan_received(&bytes[..at], [(at, 4)]).unwrap();
    assert_eq!(found.bad_item, None);
}

#[test]
fn results_from_write_chunks_are_put_in_their_places() {
    let (call, bytes) = three_results();
    for padded in [false, true] {
        let reply = reduced(&bytes, &call, &[true, false, true], padded);
        assert_eq!(reply.items().len(), 2);
        let placed = place_results(&call, reply).unwrap();
        assert_eq!(stream(&placed), bytes);
        assert_eq!(
            scan_reply_payload(&call, &placed),
            scan_reply(&call, &bytes, 9)
        );
    }
}

#[test]
fn results_beyond_the_chunks_are_inline() {
    let (call, bytes) = three_results();
    for (chunks, moved) in [[false; 3], [true, false, false]].into_iter().enumerate() {
        let placed = place_results(&call, reduced(&bytes, &call, &moved, false)).unwrap();
        assert_eq!(placed.items().len(), chunks);
        assert_eq!(stream(&placed), bytes);
    }
}

#[test]
fn chunk_of_a_result_without_data_is_unused() {
    let call = scan(&call(0, &[read(10), read(10)]), 9).unwrap();
    let bytes = reply(&[read_data(b""), read_data(b"later")]);
    let reply = reduced(&bytes, &call, &[true; 2], false);
    assert_eq!((reply.items().len(), reply.unused_chunks()), (1, 1));
    let placed = place_results(&call, reply).unwrap();
    // The place of the empty result stays, so that a chunk of the next transport is paired with it.
    assert_eq!(placed.items().len(), 2);
    assert_eq!(stream(&placed), bytes);
}

#[test]
fn results_of_versions_2_and_3_are_put_in_their_places() {
    let read = |version, args: &[u32]| {
        let header = [9, 0, 2, 100_003, version, 6, 0, 0, 0, 0];
        scan(&words(&[&header, args].concat()), 9).unwrap()
    };
    let v3 = read(3, &[4, 0xab, 0, 0, 100]);
    let v2 = read(2, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 100, 0]);
    let accepted = xdr().words(&[9, 1, 0, 0, 0, 0, 0]);
    for (call, results) in [
        (v3, accepted.clone().words(&[0, 5, 1]).opaque(b"hello").0),
        (v2, accepted.fixed(68).opaque(b"hello").0),
    ] {
        let reply = reduced(&results, &call, &[true], false);
        assert_eq!(reply.items().len(), 1);
        assert_eq!(stream(&place_results(&call, reply).unwrap()), results);
    }
}

#[test]
fn results_that_do_not_match_their_chunks_are_refused() {
    let (call, bytes) = three_results();
    let with = |head: &[u8], chunks: &[&'static [u8]], unused: usize| {
        let data = chunks.iter().map(|&data| Gather::from_elem(data.into(), 1));
        let reply = Payload::with_results(Buffer::from(head.to_vec()), 0, data);
        place_results(&call, reply.with_unused_chunks(unused)).map(|reply| stream(&reply))
    };
    let first = REPLY + 8 + 16;
    let head = [&bytes[..first], &bytes[first + 8..]].concat();
    assert_eq!(with(&head, &[b"hello"], 0).as_ref(), Ok(&bytes));
    let length = Misplaced::Length {
        chunk: 4,
        result: 5,
    };
    assert_eq!(with(&head, &[b"four"], 0), Err(length));
    // READLINK has no chunk of its own, but one is left.
    assert_eq!(with(&head, &[b"hello"], 1), Err(Misplaced::NotReduced));
    // A COMPOUND that failed before its READ, another call's reply, and a reply that is cut.
    let failed = reply(&[status(22, 70)]);
    assert_eq!(with(&failed, &[b"hello"], 0), Err(Misplaced::NoResult));
    let mut other = head.clone();
    other[3] ^= 1;
    assert_eq!(with(&other, &[b"hello"], 0), Err(Misplaced::NoResult));
    assert_eq!(with(&head[..20], &[b"hello"], 0), Err(Misplaced::NoResult));
}

#[test]
fn reply_with_known_places_is_returned_as_it_is() {
    let (call, bytes) = three_results();
    let whole = Payload::new(Buffer::from(bytes.clone()), 0);
    assert_eq!(stream(&place_results(&call, whole).unwrap()), bytes);
}

proptest! {
    #[test]
    fn placing_restores_any_reply(
        data in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..6),
        chunks in 0usize..7,
        padded: bool,
    ) {
        let operations: Vec<Xdr> = data.iter().map(|_| read(MAX_DATA / 8)).collect();
        let call = scan(&call(0, &operations), 9).unwrap();
        let bytes = reply(&data.iter().map(|data| read_data(data)).collect::<Vec<_>>());
        let moved: Vec<bool> = (0..data.len()).map(|result| result < chunks).collect();
        let placed = place_results(&call, reduced(&bytes, &call, &moved, padded)).unwrap();
        prop_assert_eq!(stream(&placed), bytes);
    }

    #[test]
    fn any_bytes_beside_any_chunks_are_placed_or_refused(
        head in proptest::collection::vec(prop_oneof![0u32..30, any::<u32>()], 0..40),
        lengths in proptest::collection::vec(1usize..9, 0..4),
        unused in 0usize..3,
    ) {
        let call = scan(&call(0, &[putfh(), read(10)]), 9).unwrap();
        let head = [words(&[9, 1, 0, 0, 0, 0, 0, 0]), words(&head)].concat();
        let data = lengths.iter().map(|&len| Gather::from_elem(vec![7; len].into(), 1));
        let reply = Payload::with_results(Buffer::from(head.clone()), 0, data);
        if let Ok(placed) = place_results(&call, reply.with_unused_chunks(unused)) {
            let items = placed.items().iter().map(|item| item.len().next_multiple_of(4));
            prop_assert_eq!(placed.stream_len(), head.len() + items.sum::<usize>());
        }
    }

    #[test]
    fn any_call_is_scanned_with_any_items_missing(
        args in proptest::collection::vec(prop_oneof![0u32..40, any::<u32>()], 0..40),
        items in proptest::collection::vec((0usize..200, 0usize..9), 0..3),
    ) {
        let mut items = items;
        items.sort_unstable();
        let head = [&call(0, &[putfh(), write(b"hello")])[..CALL + 12 + 36], &words(&args)].concat();
        let missing = items.iter().map(|(_, len)| len.next_multiple_of(4));
        let whole = head.len() + missing.sum::<usize>();
        // An item within the header leaves no call.
        if let Some(found) = scan_received(&head, items.iter().copied()) {
            prop_assert!(found.arguments.iter().all(|item| item.end() <= whole));
        }
    }
}
