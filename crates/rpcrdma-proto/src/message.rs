//! Calls of this end before they are sent, and RPC messages as a Send carries them.

use crate::flow::Need;
use crate::plan::{CallSizes, PlainLimits};
use crate::wire::direction::prefix;
use buffer::{Buffer, Gather};
use bytes::Bytes;
use oncrpc::xdr::{Item, Parts, Payload, pad, padded};
use oncrpc::{Lease, ReplyBound};
use smallvec::SmallVec;
use std::ops::Range;
use std::time::Duration;

/// A call that is not in flight, with everything needed to send it on this connection or the next.
#[derive(Debug)]
pub struct CallRequest<C> {
    /// The owner's value; `None` once the call is cancelled.
    pub(crate) call: Option<C>,
    pub(crate) xid: u32,
    pub(crate) message: Message,
    pub(crate) bound: ReplyBound,
    pub(crate) need: Need,
    pub(crate) reply_chunk: bool,
    pub(crate) move_items: bool,
    pub(crate) read_chunks_beside_position_zero: bool,
    pub(crate) write_chunks_beside_reply_chunk: bool,
    /// Time limit of the call at the peer, if not the usual one.
    pub(crate) limit: Option<Duration>,
    /// Connections lost while the call was in flight, except those given up because the peer was
    /// silent.
    pub losses: u32,
    /// Of these, connections on which no other call of this end was in flight.
    pub losses_alone: u32,
}

const CANCELLED: &str = "a request that was cancelled is with its connection";

impl<C> CallRequest<C> {
    /// Creates a request from a call message, which begins with its XID, and an upper bound for its
    /// reply.
    ///
    /// # Panics
    ///
    /// If the message does not begin with an XID.
    pub fn new(call: C, message: Payload, bound: ReplyBound) -> Self {
        let (xid, _) = prefix(message.head()).expect("a call message begins with its XID");
        Self {
            call: Some(call),
            xid,
            message: Message::Stream(message),
            bound,
            need: Need::Call,
            reply_chunk: false,
            move_items: false,
            read_chunks_beside_position_zero: false,
            write_chunks_beside_reply_chunk: false,
            limit: None,
            losses: 0,
            losses_alone: 0,
        }
    }

    /// Marks the call as a liveness probe, which may use the reserved credit (RFC 8267 §6.7.2,
    /// [`Config::reserve_credit`](crate::Config::reserve_credit)).
    #[must_use]
    pub fn as_health_check(mut self) -> Self {
        self.need = Need::HealthCheck;
        self
    }

    /// Sets a time limit for the call that exceeds the usual one: before that, no call on its
    /// connection is [overdue](crate::Connection::overdue_call).
    pub fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Adds a Reply chunk even if the reply fits a Send.
    ///
    /// A NULL call with such a chunk verifies remote invalidation on a connection (see
    /// [`Violation::LostHandle`](crate::Violation::LostHandle)).
    #[must_use]
    pub fn with_reply_chunk(mut self) -> Self {
        self.reply_chunk = true;
        self
    }

    /// Uses a chunk for each item of the call and each result of its reply, even if all of it fits
    /// a Send. For measurements of what chunks cost.
    #[must_use]
    pub fn with_items_moved(mut self) -> Self {
        self.move_items = true;
        self
    }

    /// Returns the owner's value for the call.
    pub fn call(&self) -> &C {
        self.call.as_ref().expect(CANCELLED)
    }

    /// Returns the owner's value for the call, mutably.
    pub fn call_mut(&mut self) -> &mut C {
        self.call.as_mut().expect(CANCELLED)
    }

    /// Converts into the owner's value for the call.
    pub fn into_call(self) -> C {
        self.call.expect(CANCELLED)
    }

    /// Uses Read chunks for items beside the Position-Zero chunk if the call is Long (RFC 8166 §3.5.3). For
    /// tests of Responders: not every Responder supports it, so clients do not use it.
    #[must_use]
    pub fn with_read_chunks_beside_position_zero(mut self) -> Self {
        self.read_chunks_beside_position_zero = true;
        self
    }

    /// Uses Write chunks for results beside a Reply chunk if there is one (RFC 8166 §4.3.3). For tests of
    /// Responders: not every Responder supports it, so clients do not use it.
    #[must_use]
    pub fn with_write_chunks_beside_reply_chunk(mut self) -> Self {
        self.write_chunks_beside_reply_chunk = true;
        self
    }

    /// Returns the XID.
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// Whether there is nothing to decide about the call: it is one Send without chunks.
    pub(crate) fn is_plain(&self, limits: PlainLimits) -> bool {
        if self.reply_chunk || self.move_items {
            return false;
        }
        let (head, items) = self.message.parts();
        let items = items.iter().map(|item| padded(item.len()));
        limits.has_room(head.len() + items.sum::<usize>(), &self.bound)
    }

    pub(crate) fn sizes(&self) -> CallSizes {
        let (head, items) = self.message.parts();
        let items: SmallVec<[usize; 1]> = items.iter().map(Item::len).collect();
        CallSizes {
            stream: head.len() + items.iter().map(|&len| padded(len)).sum::<usize>(),
            items,
            reply_chunk: self.reply_chunk,
            move_items: self.move_items,
            read_chunks_beside_position_zero: self.read_chunks_beside_position_zero,
            write_chunks_beside_reply_chunk: self.write_chunks_beside_reply_chunk,
        }
    }
}

/// The bytes of a call, kept until its reply arrives.
#[derive(Debug)]
pub(crate) enum Message {
    /// The message as the upper layer passed it.
    Stream(Payload),
    /// The message with its head by reference too, since it was sent as a Long message. It can
    /// still be sent in any other form.
    Frozen {
        head: Bytes,
        items: SmallVec<[Item; 1]>,
        /// Memory of the message, which is lent as long as that is kept.
        _lease: Option<Box<dyn Lease>>,
    },
}

impl Message {
    /// Returns the stream without its items, and the items.
    #[inline]
    fn parts(&self) -> (&[u8], &[Item]) {
        match self {
            Self::Stream(payload) => (payload.head(), payload.items()),
            Self::Frozen { head, items, .. } => (head, items),
        }
    }

    /// Returns the stream by reference, without the `moved` items.
    pub(crate) fn freeze(&mut self, moved: &[usize]) -> Gather {
        if let Self::Stream(payload) = self {
            let Parts {
                head,
                start,
                items,
                lease,
            } = std::mem::take(payload).into_parts();
            *self = Self::Frozen {
                head: head.freeze().slice(start..),
                items,
                _lease: lease,
            };
        }
        match self {
            Self::Frozen { head, items, .. } => {
                let mut pieces = Gather::new();
                let moved = |index: usize| moved.contains(&index);
                parts(head.len(), items, moved, |part| match part {
                    Part::Head(range) => pieces.push(head.slice(range)),
                    Part::Item(_, item) => refer(item, &mut pieces),
                });
                pieces
            }
            Self::Stream(_) => unreachable!("it was frozen just now"),
        }
    }

    /// Appends the stream to `out`, without the `moved` items, and returns what must follow it.
    pub(crate) fn put_inline(&self, out: &mut Buffer, moved: &[usize]) -> Gather {
        put_inline(self.parts(), out, |index| moved.contains(&index))
    }

    /// Returns each item with its Position.
    pub(crate) fn items(&self) -> impl Iterator<Item = (usize, &Gather)> {
        let mut before = 0;
        self.parts().1.iter().map(move |item| {
            let position = item.at + before;
            before += padded(item.len());
            (position, &item.data)
        })
    }
}

/// A part of a stream.
enum Part<'a> {
    /// A range of bytes of the stream without its items.
    Head(Range<usize>),
    /// An item with its index, followed by its padding.
    Item(usize, &'a Item),
}

/// Returns the parts of a stream in order, without the `moved` items and their padding.
fn parts(
    head: usize,
    items: &[Item],
    moved: impl Fn(usize) -> bool,
    mut take: impl FnMut(Part<'_>),
) {
    let mut done = 0;
    for (index, item) in items.iter().enumerate() {
        if item.is_empty() || moved(index) {
            continue;
        }
        if item.at > done {
            take(Part::Head(done..item.at));
        }
        done = item.at;
        take(Part::Item(index, item));
    }
    if done < head {
        take(Part::Head(done..head));
    }
}

/// Appends an item by reference, and its padding.
fn refer(item: &Item, pieces: &mut Gather) {
    pieces.extend(item.data.iter().filter(|piece| !piece.is_empty()).cloned());
    match pad(item.len()) {
        0 => {}
        fill => pieces.push(Bytes::from_static(&[0; 3][..fill])),
    }
}

/// Smallest last item of a message that goes by reference. Below this size a copy behind the header
/// costs less than one more entry in the lists of the provider and the kernel.
const REFER_FROM: usize = 1 << 10;

/// Encodes a message for one Send: appends its stream to `out`, without the `moved` items, and
/// returns what must follow it.
///
/// That is the last item with its padding, if nothing follows it and it is large enough: the data
/// of a READ or WRITE that is not worth a chunk.
pub(crate) fn put_inline(
    (head, items): (&[u8], &[Item]),
    out: &mut Buffer,
    moved: impl Fn(usize) -> bool,
) -> Gather {
    if items.is_empty() {
        out.extend_from_slice(head);
        return Gather::new();
    }
    let mut rest = Gather::new();
    parts(head.len(), items, moved, |part| match part {
        Part::Head(range) => out.extend_from_slice(&head[range]),
        Part::Item(index, item) => {
            let is_end = index + 1 == items.len() && item.at == head.len();
            if is_end && item.len() >= REFER_FROM {
                return refer(item, &mut rest);
            }
            item.data
                .iter()
                .for_each(|piece| out.extend_from_slice(piece));
            out.extend_from_slice(&[0; 3][..pad(item.len())]);
        }
    });
    rest
}

/// Converts a message into one Send, behind a header without chunks, and returns what must follow
/// it. The message's buffer is used for the Send if it has exactly room for the header in front: a
/// reply that was written over its call is not moved at all.
pub(crate) fn into_inline(
    message: Payload,
    header: &[u8],
    buffer: impl FnOnce() -> Buffer,
) -> (Buffer, Gather) {
    let end = message.head().len();
    let in_place = message.start() == header.len()
        && match message.items() {
            [] => true,
            [item] => item.at == end && item.len() >= REFER_FROM,
            _ => false,
        };
    if !in_place {
        let mut buffer = buffer();
        buffer.extend_from_slice(header);
        let rest = put_inline(message.parts(), &mut buffer, |_| false);
        return (buffer, rest);
    }
    let Parts {
        head: mut buffer,
        start: _,
        items,
        // Taken before, as the Send has to complete first.
        lease: _,
    } = message.into_parts();
    buffer[..header.len()].copy_from_slice(header);
    let Some(item) = items.into_iter().next() else {
        return (buffer, Gather::new());
    };
    let fill = pad(item.len());
    let mut rest = item.data;
    if fill > 0 {
        rest.push(Bytes::from_static(&[0; 3][..fill]));
    }
    (buffer, rest)
}

/// Splits off the first `len` bytes of `pieces`.
pub(crate) fn split_front(pieces: &mut Gather, mut len: usize) -> Gather {
    let mut front = Gather::new();
    while len > 0 {
        let Some(piece) = pieces.first_mut() else {
            break;
        };
        if piece.len() > len {
            front.push(piece.split_to(len));
            break;
        }
        len -= piece.len();
        front.push(pieces.remove(0));
    }
    front
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::MIN_LEN;
    use oncrpc::xdr;

    fn pieces(pieces: &[&'static [u8]]) -> Gather {
        pieces.iter().map(|p| Bytes::from_static(p)).collect()
    }

    #[test]
    fn front_is_split_across_pieces() {
        let check = |len, front: &[u8], rest: &[u8]| {
            let mut pieces = pieces(&[b"abc", b"de", b"f"]);
            assert_eq!(split_front(&mut pieces, len).concat(), front);
            assert_eq!(pieces.concat(), rest);
        };
        check(0, b"", b"abcdef");
        check(2, b"ab", b"cdef");
        check(3, b"abc", b"def");
        check(5, b"abcde", b"f");
        check(6, b"abcdef", b"");
    }

    /// A message with an item of `len` bytes, and some bytes behind it.
    fn message(len: usize, behind: u32) -> Payload {
        let mut w = xdr::Writer::default();
        w.u32(7);
        w.u32(0);
        let data: Bytes = (0..=u8::MAX).cycle().take(len).collect();
        w.item(Gather::from_iter([
            data.slice(..len / 3),
            data.slice(len / 3..),
        ]));
        for word in 0..behind {
            w.u32(word);
        }
        w.finish()
    }

    /// Bytes that follow by reference; they and the buffer are to be the whole message.
    fn referred(message: &Payload) -> usize {
        let mut whole = Buffer::default();
        message.copy_stream_into(&mut whole);
        let mut head = Buffer::default();
        let rest = put_inline(message.parts(), &mut head, |_| false);
        assert_eq!([&head, rest.concat().as_slice()].concat(), *whole);
        buffer::gather_len(&rest)
    }

    #[test]
    fn large_item_at_the_end_goes_by_reference_with_its_padding() {
        let check = |len, expected| assert_eq!(referred(&message(len, 0)), expected, "{len}");
        check(0, 0);
        check(REFER_FROM - 1, 0);
        check(REFER_FROM, REFER_FROM);
        check(4095, 4096);
        check(4096, 4096);
        let message = message(4096, 0);
        let rest = put_inline(message.parts(), &mut Buffer::default(), |_| false);
        assert_eq!(rest[0].as_ptr(), message.items()[0].data[0].as_ptr());
    }

    /// A reply of two words and an item, as written behind so many bytes of its call.
    fn reply(start: usize, len: usize) -> Payload {
        let mut buffer = Buffer::with_capacity(8192);
        buffer.extend_from_slice(&[0xee; 64][..start]);
        let mut w = xdr::Writer::new(buffer);
        w.u32(7);
        w.u32(1);
        w.item(Gather::from_elem(vec![5; len].into(), 1));
        w.finish()
    }

    #[test]
    fn reply_written_over_its_call_is_sent_from_where_it_is() {
        let header = [9; MIN_LEN];
        let check = |start, len, in_place| {
            let message = reply(start, len);
            let mut whole = Buffer::from(header.to_vec());
            message.copy_stream_into(&mut whole);
            let at = message.head().as_ptr();
            let (buffer, rest) = into_inline(message, &header, Buffer::default);
            assert_eq!([&buffer, rest.concat().as_slice()].concat(), *whole);
            assert_eq!(buffer[MIN_LEN..].as_ptr() == at, in_place, "{start} {len}");
        };
        check(MIN_LEN, REFER_FROM, true);
        check(MIN_LEN, REFER_FROM + 1, true);
        check(MIN_LEN, REFER_FROM - 1, false);
        check(MIN_LEN + 4, REFER_FROM, false);
        check(0, REFER_FROM, false);
    }

    #[test]
    fn item_with_something_behind_it_is_copied() {
        assert_eq!(referred(&message(4096, 1)), 0);
    }

    #[test]
    fn item_that_goes_by_chunk_is_not_sent() {
        let message = message(4096, 0);
        let mut head = Buffer::default();
        let rest = put_inline(message.parts(), &mut head, |_| true);
        assert!(rest.is_empty());
        assert_eq!(&*head, message.head());
    }

    #[test]
    fn frozen_message_is_the_same_in_every_form() {
        let mut w = xdr::Writer::default();
        w.u32(7);
        w.u32(0);
        for item in [b"abcde".as_slice(), b"fg"] {
            w.item(pieces(&[item]));
        }
        let mut request = CallRequest::new((), w.finish(), ReplyBound::default());
        let forms = |request: &CallRequest<()>| {
            [&[][..], &[0], &[1], &[0, 1]].map(|moved| {
                let mut out = Buffer::default();
                let rest = request.message.put_inline(&mut out, moved);
                [&out, rest.concat().as_slice()].concat()
            })
        };
        let positions = |request: &CallRequest<()>| -> Vec<usize> {
            request.message.items().map(|(at, _)| at).collect()
        };
        let (before, at, sizes) = (forms(&request), positions(&request), request.sizes());
        assert_eq!(at, [12, 24]);
        assert_eq!(request.message.freeze(&[0]).concat(), before[1]);
        assert!(matches!(request.message, Message::Frozen { .. }));
        assert_eq!((forms(&request), positions(&request)), (before, at));
        assert_eq!(request.sizes(), sizes);
    }
}
