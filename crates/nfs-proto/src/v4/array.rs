//! Counted arrays (RFC 4506 §4.13) that are read and written without an allocation.

use crate::Wire;
use oncrpc::xdr::{Error, Reader, Writer};
use std::fmt;

/// A counted array of at most `LIMIT` values, borrowed from its message or from its maker.
///
/// Reading checks each value and keeps only their place; [`iter`](Self::iter) reads them again. Values have
/// no DDP-eligible items.
pub struct Array<'a, T, const LIMIT: u32>(Values<'a, T>);

enum Values<'a, T> {
    /// Values that have been read once without an error.
    Message {
        count: usize,
        bytes: &'a [u8],
    },
    Slice(&'a [T]),
}

impl<'a, T, const LIMIT: u32> Array<'a, T, LIMIT> {
    /// Checks that these values do not exceed the limit.
    pub fn new(values: &'a [T]) -> Option<Self> {
        (values.len() <= LIMIT as usize).then_some(Self(Values::Slice(values)))
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        match self.0 {
            Values::Message { count, .. } => count,
            Values::Slice(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Wire<'a> + Clone, const LIMIT: u32> Array<'a, T, LIMIT> {
    /// Returns the values in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T, LIMIT> {
        let (count, mut reader, values) = match self.0 {
            Values::Message { count, bytes } => (count, Reader::new(bytes), &[][..]),
            Values::Slice(values) => (0, Reader::new(&[]), values),
        };
        let read = (0..count).map(move |_| T::parse(&mut reader).expect("it was read before"));
        read.chain(values.iter().cloned())
    }
}

impl<T, const LIMIT: u32> Clone for Array<'_, T, LIMIT> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const LIMIT: u32> Copy for Array<'_, T, LIMIT> {}

impl<T> Clone for Values<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Values<'_, T> {}

impl<T, const LIMIT: u32> Default for Array<'_, T, LIMIT> {
    fn default() -> Self {
        Self(Values::Slice(&[]))
    }
}

impl<'a, T: Wire<'a> + Clone + fmt::Debug, const LIMIT: u32> fmt::Debug for Array<'a, T, LIMIT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Wire<'a> + Clone + PartialEq, const LIMIT: u32> PartialEq for Array<'a, T, LIMIT> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Wire<'a> + Clone + Eq, const LIMIT: u32> Eq for Array<'a, T, LIMIT> {}

impl<'a, T: Wire<'a>, const LIMIT: u32> Wire<'a> for Array<'a, T, LIMIT> {
    const MAX: usize = 4 + LIMIT as usize * T::MAX;

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        let count = r.length(LIMIT)?;
        let (rest, start) = (r.rest(), r.offset());
        for _ in 0..count {
            T::parse(r)?;
        }
        let bytes = &rest[..r.offset() - start];
        Ok(Self(Values::Message { count, bytes }))
    }

    fn write(&self, w: &mut Writer) {
        w.length(self.len());
        match self.0 {
            Values::Message { bytes, .. } => w.fixed(bytes),
            Values::Slice(values) => values.iter().for_each(|value| value.write(w)),
        }
    }
}
