//! The trait for types with an XDR encoding, and encodings that several types share.

use oncrpc::xdr;
use oncrpc::xdr::{Error, Reader, Writer};
use std::ops::Deref;

/// A type with an XDR encoding.
pub trait Wire<'a>: Sized {
    /// Largest size of the encoding in bytes, without the data of by-reference items.
    const MAX: usize;

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a value, or exceed a limit of [`limits`](crate::limits).
    fn parse(r: &mut Reader<'a>) -> Result<Self, Error>;

    /// Writes the value.
    fn write(&self, w: &mut Writer);

    /// Like [`write`](Self::write), for a value that is not needed any more: moves data by
    /// reference instead of counting another reference.
    fn hand_over(self, w: &mut Writer) {
        self.write(w);
    }
}

impl Wire<'_> for () {
    const MAX: usize = 0;

    fn parse(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(())
    }

    fn write(&self, _: &mut Writer) {}
}

impl Wire<'_> for u32 {
    const MAX: usize = 4;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.u32()
    }

    fn write(&self, w: &mut Writer) {
        w.u32(*self);
    }
}

impl Wire<'_> for u64 {
    const MAX: usize = 8;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.u64()
    }

    fn write(&self, w: &mut Writer) {
        w.u64(*self);
    }
}

impl Wire<'_> for bool {
    const MAX: usize = 4;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.bool()
    }

    fn write(&self, w: &mut Writer) {
        w.bool(*self);
    }
}

/// A union discriminated by a Boolean, such as `post_op_attr` (RFC 1813 §2.5).
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    const MAX: usize = 4 + T::MAX;

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        r.option(T::parse)
    }

    fn write(&self, w: &mut Writer) {
        w.option(self.as_ref(), |w, value| value.write(w));
    }
}

/// A linked list, written as optional data to the end (RFC 4506 §4.19), of at most `LIMIT` values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T, const LIMIT: u32>(pub Vec<T>);

impl<T, const LIMIT: u32> Default for List<T, LIMIT> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'a, T: Wire<'a>, const LIMIT: u32> Wire<'a> for List<T, LIMIT> {
    const MAX: usize = LIMIT as usize * (4 + T::MAX) + 4;

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        let mut values = Vec::new();
        while r.bool()? {
            if values.len() >= LIMIT as usize {
                let len = LIMIT.saturating_add(1);
                return Err(Error::TooLong { len, limit: LIMIT });
            }
            values.push(T::parse(r)?);
        }
        Ok(Self(values))
    }

    fn write(&self, w: &mut Writer) {
        for value in &self.0 {
            w.bool(true);
            value.write(w);
        }
        w.bool(false);
    }
}

/// Bytes of a string or opaque array, at most `LIMIT`, borrowed from their message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bytes<'a, const LIMIT: u32>(&'a [u8]);

impl<'a, const LIMIT: u32> Bytes<'a, LIMIT> {
    /// Checks that these bytes do not exceed the limit.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() <= LIMIT as usize).then_some(Self(bytes))
    }

    /// The bytes, for as long as the message lives.
    pub fn get(self) -> &'a [u8] {
        self.0
    }
}

impl<const LIMIT: u32> Deref for Bytes<'_, LIMIT> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl<'a, const LIMIT: u32> Wire<'a> for Bytes<'a, LIMIT> {
    const MAX: usize = 4 + xdr::padded(LIMIT as usize);

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        r.opaque(LIMIT).map(Self)
    }

    fn write(&self, w: &mut Writer) {
        w.opaque(self.0);
    }
}
