//! An RPC message as a stream with by-reference items.

use crate::Lease;
use buffer::{Buffer, Gather, gather_len};
use bytes::Bytes;
use smallvec::SmallVec;

/// An RPC message: a stream of octets, with items that are held by reference at known places.
///
/// The *whole stream* is the head with each item, and its XDR padding, put in at its place. The
/// Position of an item (RFC 8166 §3.4.5) is its offset in that whole stream. The head never
/// contains an item's padding.
#[derive(Debug, Default)]
pub struct Payload {
    head: Buffer,
    items: SmallVec<[Item; 1]>,
    /// Offset of the stream in the head: the length of the transport header.
    start: u32,
    unplaced: bool,
    /// Chunks that were offered for results and came back unused.
    spare: u8,
    /// The memory of the message, which is returned with it.
    lease: Option<Box<dyn Lease>>,
}

/// A [`Payload`] that was [taken apart](Payload::into_parts).
#[derive(Debug)]
pub struct Parts {
    /// The buffer of the head.
    pub head: Buffer,
    /// Offset in it where the stream begins.
    pub start: usize,
    /// The by-reference items, in the order of the stream.
    pub items: SmallVec<[Item; 1]>,
    /// The lease of their memory, which has to be kept as long as that: with a message that is made of them
    /// ([`Payload::keeping`]), or beside them.
    pub lease: Option<Box<dyn Lease>>,
}

/// One by-reference item of a [`Payload`]: the data of a counted array, without its length word.
#[derive(Clone, Debug)]
pub struct Item {
    /// Place of the item: the offset in the head of the first octet that follows it.
    pub at: usize,
    /// Octets of the item, without padding when sent; a received item may have up to three octets
    /// of padding.
    pub data: Gather,
}

impl Item {
    /// Octets of data.
    #[inline]
    pub fn len(&self) -> usize {
        match self.data.as_slice() {
            [one] => one.len(),
            pieces => gather_len(pieces),
        }
    }

    /// Whether there is no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Payload {
    /// A message whose stream begins at offset `start` of `head`, without items.
    ///
    /// A received message keeps the transport header before its stream, so that the buffer of the
    /// Receive is passed up unchanged.
    ///
    /// # Panics
    ///
    /// If `start` is beyond the data of `head`.
    #[inline]
    pub fn new(head: Buffer, start: usize) -> Self {
        assert!(start <= head.len(), "the stream begins within the buffer");
        Self {
            head,
            items: SmallVec::new(),
            start: u32::try_from(start).expect("messages are limited"),
            unplaced: false,
            spare: 0,
            lease: None,
        }
    }

    /// Like [`new`](Self::new), with by-reference items in ascending order of place.
    ///
    /// # Panics
    ///
    /// If an item lies beyond the head, or they are not in order.
    pub fn with_items(head: Buffer, start: usize, items: SmallVec<[Item; 1]>) -> Self {
        let mut payload = Self::new(head, start);
        let mut last = 0;
        for item in &items {
            assert!(
                last <= item.at && item.at <= payload.head().len(),
                "items stand in order"
            );
            last = item.at;
        }
        payload.items = items;
        payload
    }

    /// A message that a writer made: its items are in order, and the stream begins within the head.
    pub(super) fn written(head: Buffer, start: usize, items: SmallVec<[Item; 1]>) -> Self {
        Self {
            head,
            items,
            start: u32::try_from(start).expect("messages are limited"),
            unplaced: false,
            spare: 0,
            lease: None,
        }
    }

    /// A received reply whose reduced results arrived in Write chunks, in the order of the chunks.
    ///
    /// A Write chunk has no Position (RFC 8166 §3.4.6): each result that the reader takes with
    /// [`Reader::item`](crate::xdr::Reader::item) and that is not empty is the next of these. Their
    /// places are not known, so the whole stream cannot be made from such a payload.
    ///
    /// # Panics
    ///
    /// If `start` is beyond the data of `head`.
    pub fn with_results(head: Buffer, start: usize, results: impl Iterator<Item = Gather>) -> Self {
        let mut payload = Self::new(head, start);
        payload.items = results
            .map(|data| Item {
                at: payload.head().len(),
                data,
            })
            .collect();
        payload.unplaced = !payload.items.is_empty();
        payload
    }

    /// Records that this many chunks with room for results came back unused. An eligible result
    /// that is inline nevertheless violates RFC 8166 §4.3.2 and §6.1, and is not read.
    #[must_use]
    pub fn with_unused_chunks(mut self, unused: usize) -> Self {
        self.spare = u8::try_from(unused).unwrap_or(u8::MAX);
        self
    }

    /// Keeps a lease of memory as long as the message: until that is sent over a socket, or dropped. Who takes the message
    /// apart, as for chunks, has the lease from then on.
    #[must_use]
    pub fn with_lease(mut self, lease: Box<dyn Lease>) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Keeps the lease of another message, if that had one, whose memory is in this message by now.
    #[must_use]
    pub fn keeping(mut self, lease: Option<Box<dyn Lease>>) -> Self {
        self.lease = lease;
        self
    }

    /// Takes the lease out of the message, for an owner that takes the message apart and keeps its memory longer.
    pub fn take_lease(&mut self) -> Option<Box<dyn Lease>> {
        self.lease.take()
    }

    /// Whether the memory of the message is lent by a budget.
    pub fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Number of chunks with room for results that came back unused.
    #[inline]
    pub fn unused_chunks(&self) -> usize {
        self.spare.into()
    }

    /// Whether the items are results whose places are not known.
    #[inline]
    pub fn unplaced(&self) -> bool {
        self.unplaced
    }

    /// Offset of the stream in its buffer: octets in front of it.
    #[inline]
    pub fn start(&self) -> usize {
        self.start as usize
    }

    /// The octets of the stream that are not in an item.
    #[inline]
    pub fn head(&self) -> &[u8] {
        &self.head[self.start as usize..]
    }

    /// The octets of the stream that are not in an item, to be changed in place.
    pub fn head_mut(&mut self) -> &mut [u8] {
        &mut self.head[self.start as usize..]
    }

    /// The by-reference items, in the order of the stream.
    #[inline]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Takes the memory of the message, to write another one into it: behind the octets in front of the stream, which stay. What is
    /// left is empty.
    pub(crate) fn take_memory(&mut self) -> Buffer {
        let mut memory = std::mem::take(&mut self.head);
        memory.truncate(std::mem::take(&mut self.start) as usize);
        self.items.clear();
        // Of chunks, which go now.
        self.lease = None;
        memory
    }

    /// Takes the message apart. Its lease is one of the parts, so that it is not lost unseen.
    pub fn into_parts(self) -> Parts {
        Parts {
            head: self.head,
            start: self.start as usize,
            items: self.items,
            lease: self.lease,
        }
    }

    /// Octets of the whole stream: head, items and their padding.
    #[inline]
    pub fn stream_len(&self) -> usize {
        let items: usize = match self.items.as_slice() {
            [] => 0,
            [one] => crate::xdr::padded(one.len()),
            items => items
                .iter()
                .map(|item| crate::xdr::padded(item.len()))
                .sum(),
        };
        self.head.len() - self.start as usize + items
    }

    /// The Position of the item at `index`: its offset in the whole stream (RFC 8166 §3.4.5).
    ///
    /// # Panics
    ///
    /// If there is no such item.
    pub fn position(&self, index: usize) -> usize {
        let before: usize = self.items[..index]
            .iter()
            .map(|item| crate::xdr::padded(item.len()))
            .sum();
        self.items[index].at + before
    }

    /// Appends the whole stream to `out`, items and padding included: the one place where
    /// by-reference data is copied.
    pub fn copy_stream_into(&self, out: &mut Buffer) {
        self.copy_reduced_into(out, |_| false);
    }

    /// Returns the stream without its items, and the items with their places.
    ///
    /// # Panics
    ///
    /// If the places of the items are not known.
    pub fn parts(&self) -> (&[u8], &[Item]) {
        assert!(
            !self.unplaced,
            "results have a place only once they are read"
        );
        (self.head(), &self.items)
    }

    /// Appends the stream to `out` without the items that `moved` selects by index, and their
    /// padding.
    ///
    /// # Panics
    ///
    /// If the places of the items are not known.
    pub fn copy_reduced_into(&self, out: &mut Buffer, moved: impl Fn(usize) -> bool) {
        assert!(
            !self.unplaced,
            "results have a place only once they are read"
        );
        let head = self.head();
        let mut done = 0;
        for (index, item) in self.items.iter().enumerate() {
            out.extend_from_slice(&head[done..item.at]);
            done = item.at;
            if moved(index) {
                continue;
            }
            for piece in &item.data {
                out.extend_from_slice(piece);
            }
            out.extend_from_slice(&[0; 3][..crate::xdr::pad(item.len())]);
        }
        out.extend_from_slice(&head[done..]);
    }

    /// Calls `visit` with each piece of the whole stream from offset `from` of the head on, items
    /// and padding included. The octets are the same whether an item travelled in the stream or
    /// beside it.
    ///
    /// # Panics
    ///
    /// If `from` is beyond the head, or the places of the items are not known.
    pub fn visit_stream(&self, from: usize, mut visit: impl FnMut(&[u8])) {
        assert!(
            !self.unplaced,
            "results have a place only once they are read"
        );
        let head = self.head();
        let mut done = from;
        for item in self.items.iter().filter(|item| item.at >= from) {
            visit(&head[done..item.at]);
            done = item.at;
            item.data.iter().for_each(|piece| visit(piece));
            visit(&[0; 3][..crate::xdr::pad(item.len())]);
        }
        visit(&head[done..]);
    }

    /// Converts into the whole stream in pieces, without copying items, and the lease of their memory.
    ///
    /// This freezes the head: one small allocation (see [`Buffer::freeze`]), for messages that
    /// move by RDMA as a whole.
    ///
    /// # Panics
    ///
    /// If the places of the items are not known.
    pub fn into_gather(self) -> (Gather, Option<Box<dyn Lease>>) {
        self.into_reduced_gather(|_| false)
    }

    /// Like [`into_gather`](Self::into_gather), without the items that `moved` selects by index,
    /// and their padding. The padding of other items is part of the stream (RFC 8166 §3.5.3).
    ///
    /// # Panics
    ///
    /// If the places of the items are not known.
    pub fn into_reduced_gather(
        self,
        moved: impl Fn(usize) -> bool,
    ) -> (Gather, Option<Box<dyn Lease>>) {
        assert!(
            !self.unplaced,
            "results have a place only once they are read"
        );
        let Parts {
            head,
            start,
            items,
            lease,
        } = self.into_parts();
        let head = head.freeze().slice(start..);
        let mut pieces = Gather::new();
        let mut done = 0;
        for (index, item) in items.into_iter().enumerate() {
            if moved(index) {
                continue;
            }
            if item.at > done {
                pieces.push(head.slice(done..item.at));
            }
            done = item.at;
            let fill = crate::xdr::pad(item.len());
            pieces.extend(item.data.into_iter().filter(|piece| !piece.is_empty()));
            if fill > 0 {
                pieces.push(Bytes::from_static(&[0; 3][..fill]));
            }
        }
        if done < head.len() {
            pieces.push(head.slice(done..));
        }
        (pieces, lease)
    }
}
