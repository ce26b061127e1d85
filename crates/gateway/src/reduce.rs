//! By-reference items of messages that pass by.

use buffer::{Buffer, Gather};
use nfs_proto::scan::{ItemPlace, by_reference};
use oncrpc::xdr::{Item, Parts, Payload, padded};
use smallvec::SmallVec;

/// Smallest item in bytes that is taken out of a record if no chunk waits for it. A smaller one is
/// copied as quickly.
const WORTH_IT: usize = 1024;

/// Turns the eligible items of a record that are large into by-reference items, without copying
/// them. Each may move in a chunk, and need not.
pub(crate) fn take_out_large(record: Payload, items: &[ItemPlace]) -> Payload {
    if !record.items().is_empty() {
        return record;
    }
    let is_large = |item: &&ItemPlace| item.length >= WORTH_IT && has_plain_padding(&record, item);
    let large: SmallVec<[ItemPlace; 1]> = items.iter().filter(is_large).copied().collect();
    take_out(record, &large)
}

/// Puts all by-reference items but the largest into the stream of a call, which copies them. Servers take one Read chunk
/// beside the one at Position zero; more of them only where they say so (RFC 8267 §6.4.2).
pub(crate) fn keep_largest(mut call: Payload) -> Payload {
    let lease = call.take_lease();
    one_item_of(call).keeping(lease)
}

fn one_item_of(call: Payload) -> Payload {
    let items = call.items();
    let largest = (0..items.len()).max_by_key(|&index| items[index].len());
    let Some(largest) = largest.filter(|_| items.len() > 1) else {
        return call;
    };
    let mut stream = Buffer::with_capacity(call.stream_len() - items[largest].len());
    call.copy_reduced_into(&mut stream, |index| index == largest);
    let kept = Item {
        // What is before it is in the stream by now.
        at: call.position(largest),
        data: items[largest].data.clone(),
    };
    Payload::with_items(stream, 0, SmallVec::from_elem(kept, 1))
}

/// Turns all eligible items of a message into by-reference items, without copying them: those that
/// are not yet. Each belongs to the chunk of its place in the list, so that none may be missing.
pub(crate) fn take_out(mut message: Payload, items: &[ItemPlace]) -> Payload {
    if items.len() == message.items().len() {
        return message;
    }
    if !message.items().is_empty() {
        return take_out_more(message, items);
    }
    let lease = message.take_lease();
    let whole = match message.start() {
        0 => message.into_parts().head,
        // It came inline, behind a transport header, and is small.
        _ => Buffer::from(message.head().to_vec()),
    };
    by_reference(whole, items, Buffer::with_capacity).keeping(lease)
}

/// The same for a message of which some items are by reference already.
fn take_out_more(message: Payload, items: &[ItemPlace]) -> Payload {
    let taken: SmallVec<[usize; 4]> = (0..message.items().len())
        .map(|index| message.position(index))
        .collect();
    let Parts {
        head,
        start,
        items: before,
        lease,
    } = message.into_parts();
    let head = head.freeze().slice(start..);
    let mut before = taken.into_iter().zip(before).peekable();
    let mut stream = Buffer::with_capacity(head.len());
    let mut after = SmallVec::new();
    // Bytes of the head that are done, and bytes of items by reference before them.
    let (mut done, mut moved) = (0, 0);
    let mut put = |stream: &mut Buffer, from: usize, to: usize, data| {
        stream.extend_from_slice(&head[from..to]);
        after.push(Item {
            at: stream.len(),
            data,
        });
    };
    for item in items {
        let mut is_known = false;
        while !is_known
            && let Some((position, known)) = before.next_if(|(at, _)| *at <= item.offset)
        {
            moved += padded(known.len());
            put(&mut stream, done, known.at, known.data);
            done = known.at;
            is_known = position == item.offset;
        }
        if is_known {
            continue;
        }
        let at = item.offset - moved;
        let data = Gather::from_elem(head.slice(at..at + item.length), 1);
        put(&mut stream, done, at, data);
        done = at + padded(item.length);
    }
    for (_, known) in before {
        put(&mut stream, done, known.at, known.data);
        done = known.at;
    }
    stream.extend_from_slice(&head[done..]);
    Payload::with_items(stream, 0, after).keeping(lease)
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

/// Copies what is around the items of a message out of memory of which it needs less than half, as a
/// Receive is. The message may wait for its reader, and the memory would not be counted.
pub(crate) fn compact(message: Payload) -> Payload {
    let Parts {
        head,
        start,
        items,
        lease,
    } = message.into_parts();
    let needed = &head[start..];
    let message = match 2 * needed.len() < head.capacity() {
        true => Payload::with_items(Buffer::from(needed.to_vec()), 0, items),
        false => Payload::with_items(head, start, items),
    };
    message.keeping(lease)
}

/// Gives a message another XID, its first word.
pub(crate) fn with_xid(mut message: Payload, xid: u32) -> Payload {
    if let Some(first) = message.head_mut().first_chunk_mut() {
        *first = xid.to_be_bytes();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::scan::{Edit, apply};
    use std::sync::Arc;

    #[test]
    fn small_message_leaves_the_memory_of_a_receive() {
        let mut receive = Buffer::with_capacity(4096);
        receive.extend_from_slice(b"headreply");
        let item = Item {
            at: 2,
            data: Gather::from_elem(Buffer::from(b"item".to_vec()).freeze(), 1),
        };
        let message = Payload::with_items(receive, 4, smallvec::smallvec![item]);
        let Parts {
            head, start, items, ..
        } = compact(message).into_parts();
        assert_eq!((head.capacity(), start, items.len()), (5, 0, 1));
        let compacted = Payload::with_items(head, start, items);
        assert_eq!(compacted.into_gather().0.concat(), b"reitemply");
        let kept = Buffer::from(b"headreply".to_vec());
        let at = kept.as_ptr();
        let Parts { head, start, .. } = compact(Payload::new(kept, 4)).into_parts();
        assert_eq!((head.as_ptr(), start), (at, 4), "most of it is needed");
    }

    #[test]
    fn lease_stays_with_its_message_however_that_is_taken_apart_and_put_together() {
        struct Counted {
            _lent: Arc<()>,
        }
        impl oncrpc::Lease for Counted {
            fn shrink(&mut self, _: usize) {}
        }
        let lent = Arc::new(());
        let (whole, places) = message(&[5, 3000, 2]);
        let mut message = whole.with_lease(Box::new(Counted {
            _lent: Arc::clone(&lent),
        }));
        for some in [&places[..1], &places[..]] {
            message = compact(take_out(message, some));
        }
        message = keep_largest(message);
        let edit = Edit {
            range: 0..4,
            bytes: [0; 4].into_iter().collect(),
        };
        message = apply(message, &[edit]);
        assert_eq!(Arc::strong_count(&lent), 2);
        let (_, lease) = message.into_gather();
        assert_eq!(Arc::strong_count(&lent), 2);
        drop(lease);
        assert_eq!(Arc::strong_count(&lent), 1);
    }

    /// A message of words, in which each place is an opaque of so many bytes of its own value.
    fn message(lengths: &[usize]) -> (Payload, Vec<ItemPlace>) {
        let (mut bytes, mut places) = (vec![9; 8], Vec::new());
        for (value, &length) in (1..).zip(lengths) {
            bytes.extend(u32::try_from(length).expect("a word").to_be_bytes());
            let offset = bytes.len();
            places.push(ItemPlace { offset, length });
            bytes.resize(offset + length, value);
            bytes.resize(offset + padded(length), 0);
            bytes.extend([0xee; 4]);
        }
        (Payload::new(Buffer::from(bytes), 0), places)
    }

    fn stream(message: &Payload) -> Vec<u8> {
        let mut out = Buffer::default();
        message.copy_stream_into(&mut out);
        out.to_vec()
    }

    #[test]
    fn items_are_taken_out_beside_those_that_are_out_already() {
        let lengths = [5, 3000, 0, 2];
        for known in 0..16_u32 {
            let (whole, places) = message(&lengths);
            let before = stream(&whole);
            let is_known = |index: &usize| known & 1 << index != 0;
            let some: Vec<ItemPlace> = (0..places.len())
                .filter(is_known)
                .map(|index| places[index])
                .collect();
            let message = take_out(take_out(whole, &some), &places);
            assert_eq!(stream(&message), before, "{known:#b}");
            let taken: Vec<usize> = message.items().iter().map(Item::len).collect();
            assert_eq!(taken, lengths, "{known:#b}");
            let positions = (0..places.len()).map(|index| message.position(index));
            assert!(positions.eq(places.iter().map(|place| place.offset)));
        }
    }

    #[test]
    fn one_item_of_a_call_stays_by_reference_and_it_is_the_largest() {
        for (lengths, largest) in [
            (&[5, 3000, 0, 2][..], Some((1, 3000))),
            (&[3000, 5], Some((0, 3000))),
            (&[1, 2, 3001], Some((2, 3001))),
            (&[7], Some((0, 7))),
            (&[], None),
        ] {
            let (whole, places) = message(lengths);
            let before = stream(&whole);
            let kept = keep_largest(take_out(whole, &places));
            assert_eq!(stream(&kept), before, "{lengths:?}");
            let items: Vec<_> = kept.items().iter().map(Item::len).collect();
            assert_eq!(items, largest.map(|(_, length)| length).as_slice());
            if let Some((index, _)) = largest {
                assert_eq!(kept.position(0), places[index].offset);
            }
        }
    }

    #[test]
    fn item_with_padding_that_is_not_zero_stays_in_its_message() {
        let (whole, places) = message(&[2001, 2001]);
        let mut bytes = stream(&whole);
        bytes[places[0].offset + 2001] = 1;
        let record = Payload::new(Buffer::from(bytes.clone()), 0);
        let message = take_out_large(record, &places);
        assert_eq!(message.items().len(), 1);
        assert_eq!(stream(&message), bytes);
    }
}
