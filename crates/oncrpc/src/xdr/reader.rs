//! XDR reader, with a limit on everything that has a length.

use crate::xdr::{Error, Gather, Item, Payload, gather_len, pad, padded};
use bytes::Bytes;

/// Reads values from a stream in order.
///
/// A reader over a [`Payload`] knows the places of its by-reference items. Reading across such a
/// place as if the octets were there is [`Error::Ineligible`]: only [`item`](Self::item) takes an
/// item.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    stream: &'a [u8],
    /// The octets that can be read next: up to the place of the next item, or to the end of the stream.
    next: &'a [u8],
    /// End of these in the stream.
    end: usize,
    items: &'a [Item],
    unplaced: bool,
    /// Chunks for results that were not used.
    spare: usize,
}

/// A counted array that may have been received by reference.
#[derive(Clone, Debug)]
pub enum Opaque<'a> {
    /// The array was part of the stream.
    Inline(&'a [u8]),
    /// The array was a by-reference item; its padding is removed.
    ByReference(Gather),
}

impl Opaque<'_> {
    /// Octets of data.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::ByReference(pieces) => gather_len(pieces),
        }
    }

    /// Whether there is no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data in pieces; inline octets are copied.
    pub fn into_gather(self) -> Gather {
        match self {
            Self::Inline([]) => Gather::new(),
            Self::Inline(bytes) => Gather::from_elem(Bytes::copy_from_slice(bytes), 1),
            Self::ByReference(pieces) => pieces,
        }
    }

    /// The data in one copy.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Inline(bytes) => bytes.to_vec(),
            Self::ByReference(pieces) => pieces.concat(),
        }
    }
}

impl<'a> From<&'a [u8]> for Reader<'a> {
    fn from(stream: &'a [u8]) -> Self {
        Self {
            stream,
            next: stream,
            end: stream.len(),
            items: &[],
            unplaced: false,
            spare: 0,
        }
    }
}

impl<'a> From<&'a Payload> for Reader<'a> {
    fn from(payload: &'a Payload) -> Self {
        let mut reader = Self {
            items: payload.items(),
            unplaced: payload.unplaced(),
            spare: payload.unused_chunks(),
            ..Self::from(payload.head())
        };
        reader.find_end(0);
        reader
    }
}

/// A place in a [`Payload`], at which a reader has arrived and another goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    at: usize,
    items_left: usize,
    spare: usize,
}

impl<'a> Reader<'a> {
    /// Returns the place at which this reader is.
    pub fn place(&self) -> Place {
        Place {
            at: self.offset(),
            items_left: self.items.len(),
            spare: self.spare,
        }
    }

    /// Creates a reader that goes on where another of the same payload was.
    pub fn at_place(payload: &'a Payload, place: Place) -> Self {
        let items = payload.items();
        let taken = items.len().saturating_sub(place.items_left);
        let mut reader = Self {
            items: &items[taken..],
            unplaced: payload.unplaced(),
            spare: place.spare,
            ..Self::from(payload.head())
        };
        reader.find_end(place.at);
        reader
    }

    /// Creates a reader at the beginning of `stream`, without items.
    pub fn new(stream: &'a [u8]) -> Self {
        Self::from(stream)
    }

    /// Octets not read yet, items not counted.
    pub fn remaining(&self) -> usize {
        self.stream.len() - self.offset()
    }

    /// Offset of the next octet in the stream without its items.
    #[inline]
    pub fn offset(&self) -> usize {
        self.end - self.next.len()
    }

    /// Returns the unread octets, without items.
    pub fn rest(&self) -> &'a [u8] {
        &self.stream[self.offset()..]
    }

    /// Skips `len` octets.
    ///
    /// # Errors
    ///
    /// [`Error::Short`] if there are fewer, [`Error::Ineligible`] if an item is among them.
    pub fn skip(&mut self, len: usize) -> Result<(), Error> {
        self.take(len).map(drop)
    }

    /// Finds the octets that can be read from offset `at` on.
    fn find_end(&mut self, at: usize) {
        let at = at.min(self.stream.len());
        let end = match self.items.first() {
            Some(item) if !self.unplaced => item.at.clamp(at, self.stream.len()),
            Some(_) | None => self.stream.len(),
        };
        self.next = &self.stream[at..end];
        self.end = end;
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        match self.next.split_at_checked(len) {
            Some((bytes, next)) => {
                self.next = next;
                Ok(bytes)
            }
            None => Err(self.untakeable(len)),
        }
    }

    /// Returns the error of reading more octets than there are.
    #[cold]
    fn untakeable(&self, len: usize) -> Error {
        if !self.items.is_empty() && !self.unplaced {
            return Error::Ineligible;
        }
        Error::Short {
            missing: len - self.remaining(),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        match self.next.split_first_chunk() {
            Some((bytes, next)) => {
                self.next = next;
                Ok(*bytes)
            }
            None => Err(self.untakeable(N)),
        }
    }

    /// Unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Reads `N` unsigned integers, with one bounds check.
    #[inline]
    pub fn words<const N: usize>(&mut self) -> Result<[u32; N], Error> {
        let (words, _) = self.take(4 * N)?.as_chunks();
        Ok(std::array::from_fn(|at| u32::from_be_bytes(words[at])))
    }

    /// Integer (RFC 4506 §4.1).
    #[inline]
    pub fn i32(&mut self) -> Result<i32, Error> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Error> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Boolean (RFC 4506 §4.4): 0 or 1, nothing else.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Error::NotInEnum { value, of: "bool" }),
        }
    }

    /// Reads a length of at most `limit`.
    #[inline]
    pub fn length(&mut self, limit: u32) -> Result<usize, Error> {
        let len = self.u32()?;
        if len > limit {
            return Err(Error::TooLong { len, limit });
        }
        Ok(len as usize)
    }

    /// Fixed-length opaque data and its padding (RFC 4506 §4.9).
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.array()?;
        self.padding(N)?;
        Ok(bytes)
    }

    /// Variable-length opaque data of at most `limit` octets (RFC 4506 §4.10).
    #[inline]
    pub fn opaque(&mut self, limit: u32) -> Result<&'a [u8], Error> {
        let len = self.length(limit)?;
        let bytes = self.take(len)?;
        self.padding(len)?;
        Ok(bytes)
    }

    /// String of at most `limit` octets (RFC 4506 §4.11), as octets: NFS names are not text.
    #[inline]
    pub fn string(&mut self, limit: u32) -> Result<&'a [u8], Error> {
        self.opaque(limit)
    }

    /// Variable-length opaque data that is eligible to travel by reference (RFC 8166 §6.1).
    ///
    /// Takes the item at this place, if there is one. The item must have the length in the stream,
    /// or that length plus padding (RFC 8166 §3.4.5.2), which is cut off.
    ///
    /// # Errors
    ///
    /// Those of [`opaque`](Self::opaque); [`Error::ItemLength`] if the item has another length;
    /// [`Error::NotReduced`] if the data is inline although a chunk was offered for it.
    pub fn item(&mut self, limit: u32) -> Result<Opaque<'a>, Error> {
        let len = self.length(limit)?;
        match self.items.split_first() {
            Some((item, others)) if item.at == self.offset() || self.unplaced && len > 0 => {
                if item.len() != len && item.len() != padded(len) {
                    let item = item.len();
                    return Err(Error::ItemLength { item, len });
                }
                let at = self.offset();
                self.items = others;
                self.find_end(at);
                let mut data = item.data.clone();
                truncate(&mut data, len);
                Ok(Opaque::ByReference(data))
            }
            // An empty item may have had a chunk, which was not used.
            _ if len == 0 => {
                self.spare = self.spare.saturating_sub(1);
                Ok(Opaque::Inline(&[]))
            }
            _ if self.spare > 0 => Err(Error::NotReduced),
            _ => {
                let bytes = self.take(len)?;
                self.padding(len)?;
                Ok(Opaque::Inline(bytes))
            }
        }
    }

    #[inline]
    fn padding(&mut self, len: usize) -> Result<(), Error> {
        if len.is_multiple_of(4) {
            return Ok(());
        }
        let fill = self.take(pad(len))?;
        if fill.iter().any(|&byte| byte != 0) {
            return Err(Error::Padding);
        }
        Ok(())
    }

    /// Optional data (RFC 4506 §4.19): a Boolean, and the value if it is true.
    pub fn option<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if self.bool()? {
            value(self).map(Some)
        } else {
            Ok(None)
        }
    }

    /// A variable-length array of at most `limit` values (RFC 4506 §4.13).
    pub fn vec<T>(
        &mut self,
        limit: u32,
        mut value: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let count = self.length(limit)?;
        (0..count).map(|_| value(self)).collect()
    }

    /// Checks that everything was read, items included.
    pub fn finish(self) -> Result<(), Error> {
        if !self.items.is_empty() {
            return Err(Error::Ineligible);
        }
        match self.remaining() {
            0 => Ok(()),
            len => Err(Error::Trailing { len }),
        }
    }
}

fn truncate(pieces: &mut Gather, mut len: usize) {
    for piece in pieces.iter_mut() {
        piece.truncate(len);
        len -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}
