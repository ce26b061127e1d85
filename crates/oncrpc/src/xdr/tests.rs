//! Payloads with and without items are one stream.

use crate::xdr::*;
use buffer::Buffer;
use bytes::Bytes;
use proptest::prelude::*;

fn bytes(text: &'static str) -> Gather {
    Gather::from_elem(Bytes::from_static(text.as_bytes()), 1)
}

fn two_items() -> Payload {
    let mut w = Writer::new(Buffer::default());
    w.u32(1);
    w.item(bytes("abcde"));
    w.u32(2);
    w.item(bytes("xyz!"));
    w.u32(3);
    w.finish()
}

fn stream(payload: &Payload) -> Vec<u8> {
    let mut out = Buffer::default();
    payload.copy_stream_into(&mut out);
    out.to_vec()
}

#[test]
fn words_are_read_whole_or_not_at_all() {
    let mut w = Writer::default();
    w.words([1, 2]);
    w.u32(u32::MAX);
    let payload = w.finish();
    assert_eq!(payload.head(), [0, 0, 0, 1, 0, 0, 0, 2, 255, 255, 255, 255]);
    let mut r = Reader::from(&payload);
    assert_eq!(r.words::<4>(), Err(Error::Short { missing: 4 }));
    assert_eq!(r.words(), Ok([1, 2]));
    assert_eq!(r.words::<2>(), Err(Error::Short { missing: 4 }));
    assert_eq!(r.words(), Ok([u32::MAX]));
    assert_eq!(r.words(), Ok([]));
}

#[test]
fn items_stand_at_their_positions_in_the_whole_stream() {
    let payload = two_items();
    assert_eq!(payload.position(0), 8);
    assert_eq!(payload.position(1), 24);
    assert_eq!(payload.stream_len(), 32);
    let whole = stream(&payload);
    assert_eq!(&whole[8..16], b"abcde\0\0\0");
    assert_eq!(&whole[24..28], b"xyz!");
    assert_eq!(two_items().into_gather().0.concat(), whole);
    for from in [0, 4, 8] {
        let mut shown = Vec::new();
        payload.visit_stream(from, |piece| shown.extend_from_slice(piece));
        assert_eq!(shown, whole[from..]);
    }
}

#[test]
fn moved_items_leave_neither_data_nor_padding_in_the_stream() {
    let mut out = Buffer::default();
    two_items().copy_reduced_into(&mut out, |index| index == 0);
    assert_eq!(out.len(), 32 - 8);
    let (pieces, _) = two_items().into_reduced_gather(|index| index == 0);
    assert_eq!(pieces.concat(), *out);
}

#[test]
fn same_values_are_read_with_and_without_items() {
    fn read(mut r: Reader<'_>) -> (u32, Vec<u8>, u32, Vec<u8>, u32) {
        let values = (
            r.u32().unwrap(),
            r.item(5).unwrap().to_vec(),
            r.u32().unwrap(),
            r.item(100).unwrap().to_vec(),
            r.u32().unwrap(),
        );
        r.finish().unwrap();
        values
    }
    let payload = two_items();
    let whole = stream(&payload);
    assert_eq!(read(Reader::from(&payload)), read(Reader::new(&whole)));
}

#[test]
fn padding_that_travelled_with_an_item_is_cut_off() {
    let mut head = Buffer::default();
    head.extend_from_slice(&5u32.to_be_bytes());
    let items = [Item {
        at: 4,
        data: bytes("abcde\0\0\0"),
    }]
    .into_iter()
    .collect();
    let payload = Payload::with_items(head, 0, items);
    assert_eq!(Reader::from(&payload).item(5).unwrap().to_vec(), b"abcde");
}

#[test]
fn item_where_none_is_eligible_is_refused() {
    let payload = two_items();
    let mut r = Reader::from(&payload);
    r.u32().unwrap();
    assert_eq!(r.opaque(100).unwrap_err(), Error::Ineligible);
}

#[test]
fn item_of_another_length_than_the_stream_says_is_refused() {
    // One that is shorter, and one that is longer than with its padding.
    for len in [9, 1] {
        let mut head = Buffer::default();
        head.extend_from_slice(&u32::to_be_bytes(len));
        let items = [Item {
            at: 4,
            data: bytes("abcde"),
        }]
        .into_iter()
        .collect();
        let payload = Payload::with_items(head, 0, items);
        let len = len as usize;
        assert_eq!(
            Reader::from(&payload).item(9).unwrap_err(),
            Error::ItemLength { item: 5, len }
        );
    }
}

#[test]
fn bytes_are_passed_over_but_items_are_not() {
    let payload = two_items();
    let mut r = Reader::from(&payload);
    r.skip(4).unwrap();
    assert_eq!(r.clone().item(5).unwrap().to_vec(), b"abcde");
    assert_eq!(r.skip(8).unwrap_err(), Error::Ineligible);
    assert_eq!(
        Reader::new(&[0; 3]).skip(4).unwrap_err(),
        Error::Short { missing: 1 }
    );
}

#[test]
fn unread_item_is_refused_at_the_end() {
    let mut head = Buffer::default();
    head.extend_from_slice(&9u32.to_be_bytes());
    let items = [Item {
        at: 4,
        data: bytes("abcde"),
    }]
    .into_iter()
    .collect();
    let payload = Payload::with_items(head, 0, items);
    let mut r = Reader::from(&payload);
    r.u32().unwrap();
    assert_eq!(r.finish().unwrap_err(), Error::Ineligible);
    // A result in a Write chunk, which has no place in the stream.
    let result = std::iter::once(bytes("abcde"));
    let payload = Payload::with_results(Buffer::default(), 0, result);
    let r = Reader::from(&payload);
    assert_eq!(r.finish().unwrap_err(), Error::Ineligible);
}

#[test]
fn results_are_taken_in_order_wherever_they_stand() {
    let mut w = Writer::default();
    for word in [7, 0, 5, 9] {
        w.u32(word);
    }
    let Parts { head, start, .. } = w.finish().into_parts();
    let payload = Payload::with_results(head, start, [bytes("abcde")].into_iter());
    let mut r = Reader::from(&payload);
    assert_eq!(r.u32(), Ok(7));
    assert!(r.item(9).unwrap().is_empty());
    assert_eq!(r.item(9).unwrap().to_vec(), b"abcde");
    assert_eq!(r.u32(), Ok(9));
    r.finish().unwrap();
}

#[test]
fn result_in_the_stream_is_refused_if_a_chunk_for_it_is_unused() {
    let read = |lengths: &[u32], placed: &[&'static str], unused| {
        let mut w = Writer::default();
        for &len in lengths {
            w.u32(len);
            w.fixed(&[7; 8][..len as usize]);
        }
        let Parts { head, start, .. } = w.finish().into_parts();
        let results = placed.iter().map(|data| bytes(data));
        let payload = Payload::with_results(head, start, results).with_unused_chunks(unused);
        let mut r = Reader::from(&payload);
        let all: Result<Vec<_>, _> = lengths.iter().map(|_| r.item(9)).collect();
        all.map(|items| items.len())
    };
    assert_eq!(read(&[8], &[], 0), Ok(1));
    assert_eq!(read(&[8], &[], 1), Err(Error::NotReduced));
    // A chunk for each result that is empty or not there.
    assert_eq!(read(&[0, 8], &[], 1), Ok(2));
    assert_eq!(read(&[0, 8], &[], 2), Err(Error::NotReduced));
    assert_eq!(read(&[], &[], 1), Ok(0));
}

#[test]
fn lengths_are_compared_with_their_limit_before_use() {
    let huge = [0xff; 8];
    let error = Error::TooLong {
        len: u32::MAX,
        limit: 64,
    };
    assert_eq!(Reader::new(&huge).opaque(64).unwrap_err(), error);
    assert_eq!(Reader::new(&huge).item(64).unwrap_err(), error);
    assert_eq!(Reader::new(&huge).vec(64, Reader::u32).unwrap_err(), error);
    let one_more = [0, 0, 0, 65];
    let error = Error::TooLong { len: 65, limit: 64 };
    assert_eq!(Reader::new(&one_more).opaque(64).unwrap_err(), error);
    assert_eq!(
        Reader::new(&huge).opaque(u32::MAX).unwrap_err(),
        Error::Short {
            missing: u32::MAX as usize - 4
        }
    );
}

/// Checks the octets of a written value, and the value that is read from them.
#[track_caller]
fn check_wire<'a, T: PartialEq + std::fmt::Debug>(
    value: T,
    bytes: &'a [u8],
    write: impl Fn(&mut Writer, &T),
    read: impl Fn(&mut Reader<'a>) -> Result<T, Error>,
) {
    let mut w = Writer::default();
    write(&mut w, &value);
    assert_eq!(w.finish().head(), bytes);
    let mut r = Reader::new(bytes);
    assert_eq!(read(&mut r), Ok(value));
    r.finish().unwrap();
}

#[test]
fn numbers_are_big_endian_twos_complement() {
    let u32s = |value, bytes: [u8; 4]| {
        check_wire(value, &bytes, |w, v| w.u32(*v), Reader::u32);
    };
    u32s(0, [0; 4]);
    u32s(0x0102_0304, [1, 2, 3, 4]);
    u32s(u32::MAX, [0xff; 4]);
    let i32s = |value, bytes: [u8; 4]| {
        check_wire(value, &bytes, |w, v| w.i32(*v), Reader::i32);
    };
    i32s(-2, [0xff, 0xff, 0xff, 0xfe]);
    i32s(i32::MIN, [0x80, 0, 0, 0]);
    i32s(i32::MAX, [0x7f, 0xff, 0xff, 0xff]);
    let u64s = |value, bytes: [u8; 8]| {
        check_wire(value, &bytes, |w, v| w.u64(*v), Reader::u64);
    };
    u64s(0x0102_0304_0506_0708, [1, 2, 3, 4, 5, 6, 7, 8]);
    let i64s = |value, bytes: [u8; 8]| {
        check_wire(value, &bytes, |w, v| w.i64(*v), Reader::i64);
    };
    i64s(-2, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
    i64s(i64::MIN, [0x80, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn booleans_and_optional_data_are_counts_of_none_or_one() {
    let bools = |value, bytes: [u8; 4]| {
        check_wire(value, &bytes, |w, v| w.bool(*v), Reader::bool);
    };
    bools(false, [0; 4]);
    bools(true, [0, 0, 0, 1]);
    let options = |value: Option<u32>, bytes: &[u8]| {
        check_wire(
            value,
            bytes,
            |w, v| w.option(*v, Writer::u32),
            |r| r.option(Reader::u32),
        );
    };
    options(None, &[0; 4]);
    options(Some(7), &[0, 0, 0, 1, 0, 0, 0, 7]);
    let array = Reader::new(&[0, 0, 0, 1, 0, 0, 0, 7]).vec(1, Reader::u32);
    assert_eq!(array, Ok(vec![7]));
}

#[test]
fn opaque_data_is_padded_with_zeroes_to_whole_units() {
    let opaques = |value: &[u8], bytes: &[u8]| {
        let read = |r: &mut Reader<'_>| r.opaque(8).map(<[u8]>::to_vec);
        check_wire(value.to_vec(), bytes, |w, v| w.opaque(v), read);
    };
    opaques(b"", &[0; 4]);
    opaques(b"a", b"\0\0\0\x01a\0\0\0");
    opaques(b"abc", b"\0\0\0\x03abc\0");
    opaques(b"abcd", b"\0\0\0\x04abcd");
    opaques(b"abcde", b"\0\0\0\x05abcde\0\0\0");
    check_wire(*b"abcde", b"abcde\0\0\0", |w, v| w.fixed(v), Reader::fixed);
    check_wire(*b"abcd", b"abcd", |w, v| w.fixed(v), Reader::fixed);
    check_wire(*b"", b"", |w, v| w.fixed(v), Reader::fixed);
}

#[test]
fn arrays_are_a_count_and_their_elements_in_order() {
    let bytes = [0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 6];
    let write = |w: &mut Writer, values: &Vec<u32>| {
        w.length(values.len());
        values.iter().for_each(|value| w.u32(*value));
    };
    check_wire(vec![5, 6], &bytes, write, |r| r.vec(2, Reader::u32));
    assert_eq!(
        Reader::new(&bytes).vec(1, Reader::u32),
        Err(Error::TooLong { len: 2, limit: 1 })
    );
}

#[test]
fn strict_values_are_refused() {
    assert_eq!(
        Reader::new(&[0, 0, 0, 2]).bool().unwrap_err(),
        Error::NotInEnum {
            value: 2,
            of: "bool"
        }
    );
    assert_eq!(
        Reader::new(&[0, 0, 0, 1, 7, 0, 0, 1])
            .opaque(4)
            .unwrap_err(),
        Error::Padding
    );
    assert_eq!(
        Reader::new(&[0; 4]).finish().unwrap_err(),
        Error::Trailing { len: 4 }
    );
}

#[test]
fn item_without_bytes_is_an_item_all_the_same() {
    let mut w = Writer::default();
    w.item(Gather::new());
    w.item(bytes("abc"));
    let payload = w.finish();
    // Chunks are offered for the one and the other: the second item has the second chunk.
    let lengths: Vec<_> = payload.items().iter().map(Item::len).collect();
    assert_eq!(lengths, [0, 3]);
    let mut r = Reader::from(&payload);
    assert_eq!(r.item(9).unwrap().len(), 0);
    assert_eq!(r.item(9).unwrap().to_vec(), b"abc");
    r.finish().unwrap();
}

proptest! {
    #[test]
    fn written_values_are_read_back(a: u32, b: i64, c: bool, d: Vec<u8>, e: Option<u64>) {
        let mut w = Writer::default();
        w.u32(a);
        w.i64(b);
        w.bool(c);
        w.opaque(&d);
        w.option(e, Writer::u64);
        let payload = w.finish();
        let mut r = Reader::from(&payload);
        prop_assert_eq!(r.u32().unwrap(), a);
        prop_assert_eq!(r.i64().unwrap(), b);
        prop_assert_eq!(r.bool().unwrap(), c);
        prop_assert_eq!(r.opaque(u32::MAX).unwrap(), &d[..]);
        prop_assert_eq!(r.option(Reader::u64).unwrap(), e);
        r.finish().unwrap();
    }
}
