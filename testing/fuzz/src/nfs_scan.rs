//! Scans of NFS messages that pass by, in versions 2, 3 and 4 (RFC 8267).

use crate::memory::within;
use crate::script::Script;
use buffer::{Buffer, Gather};
use nfs_proto::limits::MAX_ITEMS;
use nfs_proto::scan::{
    CONN_RDMA, CallScan, ItemPlace, ReplyScan, ScannedCall, ScannedReply, SessionOperation, apply,
    by_reference, place_results, scan_call, scan_received, scan_reply,
};
use oncrpc::ReplyBound;
use oncrpc::xdr::{Payload, padded};

/// The operation of NFS version 4 whose eligible result has no Write chunk.
const READLINK: u8 = 27;

/// A scan has a fixed size; its lists of items and operations are limited.
const MEMORY: usize = 4 << 10;

/// A call and a reply to it, in pieces, whole, and with items beside them.
pub fn nfs_scan(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let piece = 1 + script.below(37);
    let (moved, padding) = (script.below(MAX_ITEMS + 1), script.flag());
    let call = call(&mut script);
    let Some(found) = within(MEMORY, || scanned(&call, call.len().max(1))) else {
        return;
    };
    assert_eq!(scanned(&call, piece).as_ref(), Some(&found));
    ordered(&found.arguments, call.len());
    items_move(&call, &found);
    bounds(&found, moved);
    if let Some(operation) = found.session {
        edits(&call, &operation);
    }
    let mut reply = words(&[found.xid, 1, 0, 0, 0, 0]);
    reply.extend_from_slice(script.rest());
    let results = within(MEMORY, || replied(&found, &reply, reply.len()));
    assert_eq!(replied(&found, &reply, piece), results);
    ordered(&results.results, reply.len());
    if !results.operations.contains(&READLINK) {
        results_move(&found, &reply, &results, moved, padding);
    }
}

/// A call of a procedure with eligible items, or anything.
fn call(script: &mut Script<'_>) -> Vec<u8> {
    let (version, procedure) = match script.below(8) {
        0 => return script.some(2048).to_vec(),
        1 => (2, script.number()),
        2 => (3, script.number()),
        _ => (4, 1),
    };
    let mut call = words(&[9, 0, 2, 100_003, version, procedure]);
    match script.below(4) {
        // RPCSEC_GSS with a handle of four bytes.
        0 => {
            let service = script.number();
            call.extend(words(&[6, 24, 1, 0, 7, service, 4, 0xabcd, 6, 0]));
        }
        _ => call.extend(words(&[0, 0, 0, 0])),
    }
    if version == 4 {
        let (minor, operations) = (script.byte() % 4, script.byte() % 12);
        call.extend(words(&[0, minor.into(), operations.into()]));
    }
    call.extend_from_slice(script.some(2048));
    call
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn scanned(call: &[u8], piece: usize) -> Option<ScannedCall> {
    let mut scan = CallScan::default();
    call.chunks(piece).for_each(|bytes| scan.push(bytes));
    scan.finish()
}

fn replied(call: &ScannedCall, reply: &[u8], piece: usize) -> ScannedReply {
    let mut scan = ReplyScan::new(call);
    reply.chunks(piece).for_each(|bytes| scan.push(bytes));
    scan.finish()
}

fn ordered(items: &[ItemPlace], len: usize) {
    assert!(items.len() <= MAX_ITEMS);
    let mut end = 0;
    for item in items {
        assert!(end < item.offset && item.end() <= len, "{items:?} of {len}");
        end = item.end();
    }
}

fn stream(message: &Payload) -> Vec<u8> {
    let mut whole = Buffer::default();
    message.copy_stream_into(&mut whole);
    whole.to_vec()
}

/// Padding that is not zero is lost when an item moves.
fn is_padded_with_zeros(message: &[u8], items: &[ItemPlace]) -> bool {
    let padding = |item: &ItemPlace| &message[item.offset + item.length..item.end()];
    items.iter().flat_map(padding).all(|&byte| byte == 0)
}

/// A reply has the same bound whatever has a chunk.
fn bounds(call: &ScannedCall, chunks: usize) {
    let whole = |bound: ReplyBound| {
        let results = bound.results.iter().map(|&len| padded(len));
        bound.fixed + results.sum::<usize>()
    };
    let few = call.reply_with_chunks(chunks);
    assert!(
        few.as_ref()
            .is_none_or(|bound| bound.results.len() <= chunks)
    );
    assert_eq!(few.map(whole), call.reply.clone().map(whole));
}

/// Items by reference, and items that are missing, change nothing.
fn items_move(call: &[u8], found: &ScannedCall) {
    let whole = Buffer::from(call.to_vec());
    let message = by_reference(whole, &found.arguments, Buffer::with_capacity);
    assert!(!is_padded_with_zeros(call, &found.arguments) || stream(&message) == call);
    assert_eq!(scan_call(&message).as_ref(), Some(found));
    let places = message
        .items()
        .iter()
        .map(|item| (item.at, padded(item.len())));
    let received = scan_received(message.head(), places);
    assert_eq!(received.as_ref(), Some(found));
}

/// An edit with the present values changes nothing; a read depth that is removed is gone, and nothing else.
fn edits(call: &[u8], operation: &SessionOperation) {
    let edited = |edits: &[_]| stream(&apply(Payload::new(Buffer::from(call.to_vec()), 0), edits));
    match operation {
        SessionOperation::Create(create) => {
            let same = [
                create.flags.replace(create.flags.value),
                create.fore.replace(create.fore.attributes),
                create.back.replace(create.back.attributes),
            ];
            assert_eq!(edited(&same), call);
            let mut attributes = create.fore.attributes;
            attributes.rdma_ird = None;
            let edited = edited(&[
                create.flags.replace(create.flags.value & !CONN_RDMA),
                create.fore.replace(attributes),
            ]);
            let again = scanned(&edited, edited.len()).and_then(|call| call.session);
            let Some(SessionOperation::Create(again)) = again else {
                panic!("the session is gone")
            };
            let still = SessionOperation::Create(again).has_callbacks();
            assert_eq!(still, operation.has_callbacks());
            assert_eq!(again.fore.attributes, attributes);
            assert_eq!(again.back.attributes, create.back.attributes);
        }
        SessionOperation::Bind(bind) => {
            let edited = edited(&[bind.rdma_mode.replace(0)]);
            assert_eq!(edited.len(), call.len());
        }
    }
}

/// The first results arrive in Write chunks: putting them in their places restores the reply.
fn results_move(
    call: &ScannedCall,
    reply: &[u8],
    found: &ScannedReply,
    moved: usize,
    padding: bool,
) {
    let moved = &found.results[..moved.min(found.results.len())];
    let (mut head, mut done) = (Buffer::default(), 0);
    for item in moved {
        head.extend_from_slice(&reply[done..item.offset]);
        done = item.end();
    }
    head.extend_from_slice(&reply[done..]);
    let data = moved.iter().filter(|item| item.length > 0).map(|item| {
        let end = if padding {
            item.end()
        } else {
            item.offset + item.length
        };
        Gather::from_elem(reply[item.offset..end].to_vec().into(), 1)
    });
    let unused = moved.iter().filter(|item| item.length == 0).count();
    let reduced = Payload::with_results(head, 0, data).with_unused_chunks(unused);
    let placed = place_results(call, reduced).expect("results match their chunks");
    let whole = stream(&placed);
    assert!(!is_padded_with_zeros(reply, moved) || whole == reply);
    assert_eq!(scan_reply(call, &placed), *found);
}
