//! By-reference items of messages that pass by.

use buffer::Buffer;
use nfs_proto::scan::{ItemPlace, by_reference};
use oncrpc::xdr::{Item, Payload};
use smallvec::SmallVec;

/// Smallest item in bytes that is taken out of a record if no chunk waits for it. A smaller one is
/// copied as quickly.
const WORTH_IT: usize = 1024;

/// Turns the eligible items of a record that are large into by-reference items, without copying
/// them. Each may move in a chunk, and need not.
pub(crate) fn take_out_large(record: Payload, items: &[ItemPlace]) -> Payload {
    let is_large = |item: &&ItemPlace| item.length >= WORTH_IT && has_plain_padding(&record, item);
    let large: SmallVec<[ItemPlace; 1]> = items.iter().filter(is_large).copied().collect();
    take_out(record, &large)
}

/// Turns all eligible items of a record into by-reference items, without copying them. Each belongs
/// to the chunk of its place in the list, so that none may be missing.
pub(crate) fn take_out(record: Payload, items: &[ItemPlace]) -> Payload {
    if items.is_empty() || !record.items().is_empty() {
        return record;
    }
    let whole = match record.start() {
        0 => record.into_parts().0,
        // It came inline, behind a transport header, and is small.
        _ => Buffer::from(record.head().to_vec()),
    };
    by_reference(whole, items, Buffer::with_capacity)
}

/// Whether the padding of an item is zero, as it becomes if the item is by reference.
fn has_plain_padding(record: &Payload, item: &ItemPlace) -> bool {
    let padding = record.head().get(item.offset + item.length..item.end());
    padding.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
}

/// Copies a message, except for its items.
pub(crate) fn copy_of(message: &Payload) -> Payload {
    let items: SmallVec<[Item; 1]> = message.items().iter().cloned().collect();
    Payload::with_items(Buffer::from(message.head().to_vec()), 0, items)
}

/// Gives a message another XID, its first word.
pub(crate) fn with_xid(mut message: Payload, xid: u32) -> Payload {
    if let Some(first) = message.head_mut().first_chunk_mut() {
        *first = xid.to_be_bytes();
    }
    message
}
