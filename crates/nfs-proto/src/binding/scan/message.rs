//! Scans of messages with by-reference items, and items put by reference where a scan found them.

use super::machine::{Absent, Mismatch};
use super::{CallScan, Edit, ItemPlace, ReplyScan, ScannedCall, ScannedReply};
use buffer::Buffer;
use oncrpc::xdr::{Item, Parts, Payload, padded};
use smallvec::SmallVec;

/// Why the results of a reply cannot be put in their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misplaced {
    /// A Write chunk and its result differ in length.
    #[error("a Write chunk of {chunk} bytes for a result of {result} bytes")]
    Length {
        /// Bytes in the chunk.
        chunk: usize,
        /// Bytes of the result.
        result: usize,
    },
    /// An eligible result is inline although its chunk has room (RFC 8166 §4.3.2, §6.1).
    #[error("an eligible result is inline although a Write chunk was offered for it")]
    NotReduced,
    /// A Write chunk has data, but the reply has no result for it.
    #[error("a Write chunk with data, and no result for it")]
    NoResult,
}

impl From<Mismatch> for Misplaced {
    fn from(mismatch: Mismatch) -> Self {
        match mismatch {
            Mismatch::Length { chunk, result } => Self::Length { chunk, result },
            Mismatch::NotReduced => Self::NotReduced,
        }
    }
}

/// Scans a call whose by-reference items have places.
///
/// # Panics
///
/// If the places of its items are not known: only those of a reply may be unknown.
pub fn scan_call(call: &Payload) -> Option<ScannedCall> {
    let (head, items) = call.parts();
    let items = items.iter().map(|item| (item.at, item.len()));
    scan_received(head, items)
}

/// Scans the received part of a call, without items: for each, its place in the received part and
/// its length, with or without padding, in ascending order. The end may be missing, too; then
/// there is no reply bound.
///
/// Places beyond the received part are ignored.
pub fn scan_received(
    head: &[u8],
    items: impl IntoIterator<Item = (usize, usize)>,
) -> Option<ScannedCall> {
    let mut scan = CallScan::default();
    let mut done = 0;
    for (at, length) in items {
        let Some(bytes) = head.get(done..at) else {
            break;
        };
        scan.push(bytes);
        scan.step_over(length);
        done = at;
    }
    scan.push(&head[done..]);
    scan.finish()
}

/// Scans the reply to a call, whole or with by-reference items that have places.
///
/// # Panics
///
/// If the places of its items are not known: [`place_results`] finds them.
pub fn scan_reply(call: &ScannedCall, reply: &Payload) -> ScannedReply {
    let mut scan = ReplyScan::new(call);
    reply.visit_stream(0, |piece| scan.push(piece));
    scan.finish()
}

/// Converts a whole message into one with these items by reference, which share its memory. What is
/// not an item is copied to the buffer that `head` returns for its length.
///
/// # Panics
///
/// If an item lies beyond the message, or they are not in order.
pub fn by_reference(
    message: Buffer,
    items: &[ItemPlace],
    head: impl FnOnce(usize) -> Buffer,
) -> Payload {
    if items.is_empty() {
        return Payload::new(message, 0);
    }
    let moved: usize = items.iter().map(|item| padded(item.length)).sum();
    let mut stream = head(message.len() - moved);
    stream.clear();
    let message = message.freeze();
    let mut placed = SmallVec::new();
    let mut done = 0;
    for item in items {
        stream.extend_from_slice(&message[done..item.offset]);
        done = item.end();
        let data = message.slice(item.offset..item.offset + item.length);
        placed.push(Item {
            at: stream.len(),
            data: SmallVec::from_elem(data, 1),
        });
    }
    stream.extend_from_slice(&message[done..]);
    Payload::with_items(stream, 0, placed)
}

/// Finds the places of results that arrived in Write chunks (RFC 8166 §4.3.2, RFC 8267 §6.4.1), so
/// that the whole stream can be made from the reply. A result without data becomes an empty item.
///
/// The first result with data is in the first used chunk, and so on; later ones are inline, unless
/// there are unused chunks.
///
/// # Errors
///
/// If the results do not match the chunks.
pub fn place_results(call: &ScannedCall, reply: Payload) -> Result<Payload, Misplaced> {
    if !reply.unplaced() {
        return Ok(reply);
    }
    let absent = Absent {
        lengths: reply.items().iter().map(Item::len).collect(),
        unused: reply.unused_chunks(),
        ..Absent::default()
    };
    let mut scan = ReplyScan::reduced(call, absent);
    scan.push(reply.head());
    let absent = scan.scan.absent();
    if let Some(error) = absent.error {
        return Err(error.into());
    }
    if absent.found != absent.lengths.len() || !scan.is_known() {
        return Err(Misplaced::NoResult);
    }
    let Parts {
        head,
        start,
        items,
        lease,
    } = reply.into_parts();
    let mut data = items.into_iter().map(|item| item.data);
    let mut placed = SmallVec::new();
    for (place, at, taken) in scan.scan.reduced_places() {
        let data = match taken {
            true => data.next().map(|data| cut(data, place.length)),
            false => (place.length == 0).then(Default::default),
        };
        placed.extend(data.map(|data| Item { at, data }));
    }
    Ok(Payload::with_items(head, start, placed).keeping(lease))
}

/// Returns the first `length` bytes: without padding.
fn cut(mut data: buffer::Gather, length: usize) -> buffer::Gather {
    let mut left = length;
    for piece in &mut data {
        piece.truncate(left);
        left -= piece.len();
    }
    data.retain(|piece| !piece.is_empty());
    data
}

/// Returns a message with these edits, in ascending order, whose offsets are those of the whole
/// stream. By-reference items stay as they are.
///
/// # Panics
///
/// If an edit is not within the message, not within one part between items, or not behind the one
/// before it, or the places of the items are not known.
pub fn apply(message: Payload, edits: &[Edit]) -> Payload {
    if edits.is_empty() {
        return message;
    }
    assert!(!message.unplaced(), "results have a place before an edit");
    let places: SmallVec<[usize; 1]> = (0..message.items().len())
        .map(|index| message.position(index))
        .collect();
    let Parts {
        head,
        start,
        mut items,
        lease,
    } = message.into_parts();
    let head = &head[start..];
    let moved_before = |offset: usize| -> usize {
        let before = places.iter().zip(&items).filter(|(at, _)| **at < offset);
        before.map(|(_, item)| padded(item.len())).sum()
    };
    let mut edited = Buffer::with_capacity(head.len());
    let mut shifts: SmallVec<[(usize, isize); 3]> = SmallVec::new();
    let mut done = 0;
    for edit in edits {
        let at = edit.range.start - moved_before(edit.range.start);
        edited.extend_from_slice(&head[done..at]);
        edited.extend_from_slice(&edit.bytes);
        done = at + edit.range.len();
        shifts.push((done, edit.bytes.len() as isize - edit.range.len() as isize));
    }
    edited.extend_from_slice(&head[done..]);
    for item in &mut items {
        let shift = shifts.iter().filter(|(end, _)| item.at >= *end);
        let shift: isize = shift.map(|(_, by)| by).sum();
        item.at = item
            .at
            .checked_add_signed(shift)
            .expect("it moves with what is before it");
    }
    Payload::with_items(edited, 0, items).keeping(lease)
}
