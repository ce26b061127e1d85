//! By-reference items of messages that pass by: taken out of a record, and put back into a reply.

use buffer::{Buffer, Gather, gather_len};
use nfs_proto::{ItemPlace, ReplyScan, ScannedCall};
use oncrpc::xdr::{Item, Payload, padded};
use smallvec::SmallVec;

/// Smallest item in bytes that is taken out of a record even if no chunk waits for it. A smaller one
/// is copied as quickly.
const WORTH_IT: usize = 1024;

/// Zero bytes in place of items that a scan only skips.
const ZEROS: [u8; 4096] = [0; 4096];

/// Passes the bytes of a whole call to a scan.
pub(crate) fn visit(call: &Payload, push: impl FnMut(&[u8])) {
    call.visit_stream(0, push);
}

/// Turns parts of a record into by-reference items, without copying them.
///
/// With `all` each item is taken out, otherwise those that are worth it. Padding that is not zero
/// is part of the message, so that such an item stays.
pub(crate) fn take_out(message: Payload, places: &[ItemPlace], all: bool) -> Payload {
    let is_out = |place: &&ItemPlace| {
        let head = message.head();
        let wanted = place.length > 0 && (all || place.length >= WORTH_IT);
        let padding = head.get(place.offset + place.length..place.end());
        wanted && padding.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0))
    };
    let places: SmallVec<[ItemPlace; 1]> = places.iter().filter(is_out).copied().collect();
    if places.is_empty() {
        return message;
    }
    let moved: usize = places.iter().map(|place| padded(place.length)).sum();
    let mut head = Buffer::with_capacity(message.head().len() - moved);
    let (buffer, start, _) = message.into_parts();
    let whole = buffer.freeze().slice(start..);
    let mut items = SmallVec::new();
    let mut done = 0;
    for place in places {
        head.extend_from_slice(&whole[done..place.offset]);
        done = place.end();
        let data = whole.slice(place.offset..place.offset + place.length);
        items.push(Item {
            at: head.len(),
            data: Gather::from_elem(data, 1),
        });
    }
    head.extend_from_slice(&whole[done..]);
    Payload::with_items(head, 0, items)
}

/// Finds the eligible results of a reply that came as one record.
pub(crate) fn results(call: &ScannedCall, reply: &Payload) -> SmallVec<[ItemPlace; 1]> {
    let mut scan = ReplyScan::new(call);
    scan.push(reply.head());
    scan.finish().into_iter().collect()
}

/// Gives the results that came in Write chunks their places in the reply. `None` if the reply does
/// not say where they belong.
pub(crate) fn put_back(call: &ScannedCall, reply: Payload) -> Option<Payload> {
    if reply.items().is_empty() {
        return Some(reply);
    }
    let mut scan = ReplyScan::new(call);
    scan.push(reply.head());
    let [item] = reply.items() else {
        return None;
    };
    push_zeros(padded(item.len()), |bytes| scan.push(bytes));
    let place = scan.finish()?;
    let at = reply.head().len();
    // A Write chunk may have the padding too (RFC 8166 §3.4.6.2).
    let fits = (place.length..=padded(place.length)).contains(&item.len());
    if place.offset != at || !fits {
        return None;
    }
    let (buffer, start, items) = reply.into_parts();
    let items = items.into_iter().map(|item| Item {
        at,
        data: shorten(item.data, place.length),
    });
    Some(Payload::with_items(buffer, start, items.collect()))
}

fn push_zeros(mut len: usize, mut push: impl FnMut(&[u8])) {
    while len > 0 {
        let now = len.min(ZEROS.len());
        push(&ZEROS[..now]);
        len -= now;
    }
}

/// Passes the received part of a call to a scan, with zeros in place of an item that is missing at
/// its end.
pub(crate) fn visit_part(call: &[u8], scan: &mut nfs_proto::CallScan) {
    scan.push(call);
    if let Some(place) = scan.argument()
        && place.offset == call.len()
    {
        push_zeros(padded(place.length), |bytes| scan.push(bytes));
    }
}

/// Cuts data to its first `len` bytes.
fn shorten(mut data: Gather, len: usize) -> Gather {
    let mut over = gather_len(&data).saturating_sub(len);
    while over > 0
        && let Some(last) = data.last_mut()
    {
        let cut = over.min(last.len());
        last.truncate(last.len() - cut);
        over -= cut;
        if last.is_empty() {
            data.pop();
        }
    }
    data
}
