//! XDR writer.

use crate::xdr::{Gather, Item, Payload, gather_len, pad};
use buffer::Buffer;
use smallvec::SmallVec;

/// Builds a [`Payload`], value by value.
///
/// Lengths are those of local data. A length that does not fit 32 bits is a broken invariant of the
/// caller and panics; all limits of this project are far lower.
#[derive(Debug, Default)]
pub struct Writer {
    head: Buffer,
    start: usize,
    items: SmallVec<[Item; 1]>,
}

impl Writer {
    /// A writer that appends to the data of `buffer`; the stream begins there.
    pub fn new(buffer: Buffer) -> Self {
        Self {
            start: buffer.len(),
            head: buffer,
            items: SmallVec::new(),
        }
    }

    /// Octets written so far, items not counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() - self.start
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Octets of the whole stream so far, items and padding included.
    pub fn stream_len(&self) -> usize {
        self.len()
            + self
                .items
                .iter()
                .map(|item| crate::xdr::padded(item.len()))
                .sum::<usize>()
    }

    /// Unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.head.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes `N` unsigned integers in one piece.
    #[inline]
    pub fn words<const N: usize>(&mut self, values: [u32; N]) {
        let bytes = values.map(u32::to_be_bytes);
        self.head.extend_from_slice(bytes.as_flattened());
    }

    /// Integer (RFC 4506 §4.1).
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.head.extend_from_slice(&value.to_be_bytes());
    }

    /// Unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.head.extend_from_slice(&value.to_be_bytes());
    }

    /// Hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.head.extend_from_slice(&value.to_be_bytes());
    }

    /// Boolean (RFC 4506 §4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// A length or count.
    ///
    /// # Panics
    ///
    /// If it does not fit 32 bits.
    #[inline]
    pub fn length(&mut self, len: usize) {
        self.u32(u32::try_from(len).expect("XDR lengths have 32 bits"));
    }

    /// Fixed-length opaque data with its padding (RFC 4506 §4.9).
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
        let fill = pad(bytes.len());
        if fill > 0 {
            self.head.extend_from_slice(&[0; 3][..fill]);
        }
    }

    /// Variable-length opaque data or a string (RFC 4506 §4.10, §4.11).
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.fixed(bytes);
    }

    /// Writes variable-length opaque data by reference: its length goes to the stream, its octets
    /// stay in place, and the sender of the payload decides how they travel.
    ///
    /// Empty data is an item too, and uses up the Write chunk that is offered for it.
    pub fn item(&mut self, data: Gather) {
        self.length(gather_len(&data));
        self.items.push(Item {
            at: self.len(),
            data,
        });
    }

    /// Optional data (RFC 4506 §4.19).
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Overwrites the unsigned integer at offset `at` of what was written.
    ///
    /// # Panics
    ///
    /// If it was not written yet.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        let at = self.start + at;
        self.head[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Removes everything written behind offset `len`, items included.
    pub fn truncate(&mut self, len: usize) {
        self.head.truncate(self.start + len);
        self.items.retain(|item| item.at <= len);
    }

    /// The finished message.
    pub fn finish(self) -> Payload {
        if self.items.is_empty() {
            return Payload::new(self.head, self.start);
        }
        Payload::with_items(self.head, self.start, self.items)
    }
}
