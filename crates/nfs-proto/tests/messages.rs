//! Messages of Linux' NFS client and server, as tshark sees them: `cargo xtask record-messages`.

use buffer::{Buffer, Gather};
use nfs_proto::scan::{
    CallScan, Channel, ItemPlace, ItemPlaces, ReplyScan, ScannedCall, ScannedReply,
    SessionOperation, by_reference, place_results, scan_call,
};
use oncrpc::xdr::{Parts, Payload, padded};
use std::collections::BTreeSet;

/// A message of the table.
struct Message {
    version: &'static str,
    operations: &'static str,
    items: Vec<ItemPlace>,
    bytes: Vec<u8>,
}

/// A call and its reply.
struct Exchange {
    call: Message,
    reply: Message,
}

fn exchanges() -> Vec<Exchange> {
    let lines = include_str!("messages/linux.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    let mut messages = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [version, direction, operations, items, bytes] = fields[..] else {
            panic!("not a message: {line}")
        };
        let items = items.split_whitespace().map(|item| {
            let (offset, length) = item.split_once('+').unwrap();
            ItemPlace {
                offset: offset.parse().unwrap(),
                length: length.parse().unwrap(),
            }
        });
        let message = Message {
            version,
            operations,
            items: items.collect(),
            bytes: bytes_of(bytes),
        };
        (direction, message)
    });
    let mut exchanges = Vec::new();
    while let Some((direction, call)) = messages.next() {
        let (of_reply, reply) = messages.next().unwrap();
        assert_eq!((direction, of_reply), ("call", "reply"));
        exchanges.push(Exchange { call, reply });
    }
    exchanges
}

fn bytes_of(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(byte).collect()
}

fn scan(call: &[u8], piece: usize) -> ScannedCall {
    let mut scan = CallScan::default();
    call.chunks(piece).for_each(|bytes| scan.push(bytes));
    scan.finish().unwrap()
}

fn scan_reply(call: &ScannedCall, reply: &[u8], piece: usize) -> ScannedReply {
    let mut scan = ReplyScan::new(call);
    reply.chunks(piece).for_each(|bytes| scan.push(bytes));
    scan.finish()
}

/// Operations as in the table.
fn operations(procedure: u32, operations: &[u8]) -> String {
    match operations {
        [] => format!("procedure {procedure}"),
        _ => operations
            .iter()
            .map(u8::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// tshark has nothing of an item without data.
fn with_data(items: &[ItemPlace]) -> Vec<ItemPlace> {
    items
        .iter()
        .copied()
        .filter(|item| item.length > 0)
        .collect()
}

#[test]
fn operations_and_items_are_those_that_tshark_finds() {
    let mut versions = BTreeSet::new();
    let (mut arguments, mut results, mut seen) = (0, 0, BTreeSet::new());
    for Exchange { call, reply } in exchanges() {
        let what = format!("version {}: {}", call.version, call.operations);
        let found = scan(&call.bytes, 61);
        assert_eq!(
            operations(found.procedure, &found.operations),
            call.operations,
            "{what}"
        );
        assert_eq!(with_data(&found.arguments), call.items, "{what}");
        let answered = scan_reply(&found, &reply.bytes, 61);
        if !answered.operations.is_empty() || !found.operations.is_empty() {
            let operations = operations(found.procedure, &answered.operations);
            assert_eq!(operations, reply.operations, "reply of {what}");
        }
        assert_eq!(with_data(&answered.results), reply.items, "reply of {what}");
        // The cut does not matter.
        for piece in [1, 7, call.bytes.len().max(reply.bytes.len())] {
            assert_eq!(scan(&call.bytes, piece), found, "{what}");
            assert_eq!(scan_reply(&found, &reply.bytes, piece), answered, "{what}");
        }
        versions.insert(call.version);
        seen.extend(found.operations.iter().copied());
        arguments += call.items.len();
        results += reply.items.len();
    }
    // NULL of version 4 has no minor version.
    let versions: Vec<_> = versions.into_iter().collect();
    assert_eq!(versions, ["3", "4", "4.0", "4.1", "4.2"]);
    assert!(seen.len() >= 30, "{} operations", seen.len());
    assert!(
        arguments >= 10 && results >= 10,
        "{arguments} arguments, {results} results"
    );
}

/// The results that may have a Write chunk: none is offered for READLINK (27) of version 4, which no recorded
/// COMPOUND has together with READ.
fn offered(reply: ScannedReply) -> ItemPlaces {
    match reply.operations.contains(&27) {
        true => ItemPlaces::default(),
        false => reply.results,
    }
}

#[test]
fn each_reply_keeps_to_the_bound_of_its_call() {
    let (mut bounded, mut unbounded) = (0, 0);
    for Exchange { call, reply } in exchanges() {
        let found = scan(&call.bytes, 4096);
        let Some(bound) = &found.reply else {
            unbounded += 1;
            continue;
        };
        bounded += 1;
        let results = offered(scan_reply(&found, &reply.bytes, 4096));
        assert!(results.len() <= bound.results.len());
        for (item, &room) in results.iter().zip(&bound.results) {
            assert!(
                item.length <= room,
                "{}: {item:?} of {room}",
                call.operations
            );
        }
        let moved: usize = results.iter().map(|item| padded(item.length)).sum();
        let stream = reply.bytes.len() - moved;
        assert!(
            stream <= bound.fixed,
            "{}: {stream} of {}",
            call.operations,
            bound.fixed
        );
    }
    assert!(
        bounded > 10 * unbounded,
        "{bounded} with a bound, {unbounded} without"
    );
}

#[test]
fn items_move_beside_each_message_and_back() {
    for Exchange { call, reply } in exchanges() {
        let found = scan(&call.bytes, 4096);
        let whole = Buffer::from(call.bytes.clone());
        let message = by_reference(whole, &found.arguments, Buffer::with_capacity);
        assert_eq!(message.items().len(), found.arguments.len());
        assert_eq!(stream(&message), call.bytes);
        assert_eq!(scan_call(&message), Some(found.clone()));

        let results = offered(scan_reply(&found, &reply.bytes, 4096));
        let whole = Buffer::from(reply.bytes.clone());
        let Parts {
            head, start, items, ..
        } = by_reference(whole, &results, Buffer::with_capacity).into_parts();
        let unused = items.iter().filter(|item| item.is_empty()).count();
        let data = items.into_iter().map(|item| item.data);
        let data = data.filter(|data: &Gather| buffer::gather_len(data) > 0);
        let reduced = Payload::with_results(head, start, data).with_unused_chunks(unused);
        assert_eq!(
            stream(&place_results(&found, reduced).unwrap()),
            reply.bytes
        );
    }
}

/// Sizes of a channel in their order.
fn sizes(channel: Channel) -> [u32; 6] {
    let it = channel.attributes;
    assert_eq!(it.rdma_ird, None);
    [
        it.header_pad_size,
        it.max_request_size,
        it.max_response_size,
        it.max_response_size_cached,
        it.max_operations,
        it.max_requests,
    ]
}

#[test]
fn sessions_are_those_that_tshark_finds() {
    let sessions = exchanges()
        .into_iter()
        .filter(|it| it.call.operations == "43");
    let sessions: Vec<Exchange> = sessions.collect();
    assert_eq!(sessions.len(), 2);
    for Exchange { call, reply } in sessions {
        let found = scan(&call.bytes, 13);
        let answered = scan_reply(&found, &reply.bytes, 13).session.unwrap();
        let asked = found.session.unwrap();
        assert!(asked.has_callbacks() && answered.has_callbacks());
        let (SessionOperation::Create(asked), SessionOperation::Create(answered)) =
            (asked, answered)
        else {
            panic!("{asked:?} {answered:?}")
        };
        // Positions of tshark are 58 higher: those in the frame, with a record mark.
        assert_eq!((asked.flags.offset, asked.flags.value), (154 - 58, 3));
        assert_eq!((asked.fore.offset, asked.back.offset), (158 - 58, 186 - 58));
        assert_eq!(sizes(asked.fore), [0, 1_049_620, 1_049_480, 7584, 8, 64]);
        assert_eq!(sizes(asked.back), [0, 4096, 4096, 0, 2, 16]);
        assert_eq!((answered.flags.offset, answered.flags.value), (122 - 58, 2));
        assert_eq!(
            (answered.fore.offset, answered.back.offset),
            (126 - 58, 154 - 58)
        );
        assert_eq!(sizes(answered.fore), [0, 135_168, 135_168, 2128, 8, 30]);
        assert_eq!(sizes(answered.back), [0, 4096, 4096, 0, 2, 16]);
    }
}

fn stream(message: &Payload) -> Vec<u8> {
    let mut whole = Buffer::default();
    message.copy_stream_into(&mut whole);
    whole.to_vec()
}
