//! Ids and values of characteristics in messages (xcharext §2.1).

use super::{Characteristic, ValueError};
use crate::limits::{MAX_CHARACTERISTIC_LEN, MAX_CHARACTERISTICS};
use buffer::Buffer;
use oncrpc::xdr;
use oncrpc::xdr::{Reader, Writer};
use std::fmt;

/// `xcharid`: the id of a characteristic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XcharId(pub u32);

impl XcharId {
    /// The first id for experiments (xcharext §6.2).
    pub const FIRST_EXPERIMENTAL: Self = Self(4_294_967_040);

    /// Whether the id is in the range for experiments, which extends to the largest id: no standard
    /// uses it, and two implementations may give it different meanings (xcharext §6.2).
    pub fn is_experimental(self) -> bool {
        self >= Self::FIRST_EXPERIMENTAL
    }
}

impl fmt::Display for XcharId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `xcharval`: a characteristic and its value, unparsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XcharVal {
    /// `xchv_which`.
    pub which: XcharId,
    /// `xchv_data`: XDR of the value, perhaps with trailing bytes.
    pub data: Vec<u8>,
}

impl XcharVal {
    /// Encodes a value.
    ///
    /// # Panics
    ///
    /// If the encoding exceeds [`MAX_CHARACTERISTIC_LEN`] or has by-reference items.
    pub fn of<C: Characteristic>(value: &C::Value) -> Self {
        let mut w = Writer::new(Buffer::default());
        C::emit(value, &mut w);
        let written = w.finish();
        assert!(
            written.items().is_empty() && written.head().len() <= MAX_CHARACTERISTIC_LEN as usize,
            "the value of a characteristic is in a message as a whole"
        );
        Self {
            which: C::ID,
            data: written.head().to_vec(),
        }
    }

    /// Decodes the value if it is of this characteristic.
    ///
    /// # Errors
    ///
    /// If it is of this characteristic and cannot be decoded.
    pub fn read<C: Characteristic>(&self) -> Result<Option<C::Value>, ValueError> {
        if self.which != C::ID {
            return Ok(None);
        }
        C::parse(&mut Reader::new(&self.data)).map(Some)
    }

    pub(crate) fn parse(r: &mut Reader<'_>) -> Result<Self, xdr::Error> {
        Ok(Self {
            which: XcharId(r.u32()?),
            data: r.opaque(MAX_CHARACTERISTIC_LEN)?.to_vec(),
        })
    }

    pub(crate) fn emit(&self, w: &mut Writer) {
        w.u32(self.which.0);
        w.opaque(&self.data);
    }
}

/// `xcharspec`: a set of values, at most [`MAX_CHARACTERISTICS`] and no two of one characteristic.
///
/// Their order has no meaning, except that an [`XcharSubset`](super::XcharSubset) refers to
/// positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XcharSpec(Vec<XcharVal>);

impl XcharSpec {
    /// Returns the values in order.
    pub fn values(&self) -> &[XcharVal] {
        &self.0
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the position of a characteristic.
    pub fn position(&self, which: XcharId) -> Option<usize> {
        self.0.iter().position(|value| value.which == which)
    }

    /// Returns the value of a characteristic, if the set has a valid one. For an invalid value the
    /// default is assumed, as for a missing one (xcharext §3).
    pub fn get<C: Characteristic>(&self) -> Option<C::Value> {
        let value = &self.0[self.position(C::ID)?];
        value.read::<C>().ok().flatten()
    }

    /// Sets the value of a characteristic, in its place or at the end.
    ///
    /// # Panics
    ///
    /// If there would be more than [`MAX_CHARACTERISTICS`] values.
    pub fn set<C: Characteristic>(&mut self, value: &C::Value) {
        self.put(XcharVal::of::<C>(value));
    }

    /// Like [`set`](Self::set), with an encoded value.
    ///
    /// # Panics
    ///
    /// Those of [`set`](Self::set), and if the value exceeds [`MAX_CHARACTERISTIC_LEN`].
    pub fn put(&mut self, value: XcharVal) {
        assert!(
            value.data.len() <= MAX_CHARACTERISTIC_LEN as usize,
            "the value of a characteristic is in a message as a whole"
        );
        match self.position(value.which) {
            Some(at) => self.0[at] = value,
            None => {
                assert!(
                    self.0.len() < MAX_CHARACTERISTICS,
                    "an end says few characteristics"
                );
                self.0.push(value);
            }
        }
    }

    /// Reads one, in which no characteristic may be twice.
    pub(crate) fn parse(r: &mut Reader<'_>) -> Result<Self, SpecMalformed> {
        let count = r.u32()? as usize;
        if count > MAX_CHARACTERISTICS {
            return Err(SpecMalformed::TooMany);
        }
        let mut spec = Self::default();
        for _ in 0..count {
            let value = XcharVal::parse(r)?;
            if spec.position(value.which).is_some() {
                return Err(SpecMalformed::Twice(value.which));
            }
            spec.0.push(value);
        }
        Ok(spec)
    }

    pub(crate) fn emit(&self, w: &mut Writer) {
        w.length(self.0.len());
        for value in &self.0 {
            value.emit(w);
        }
    }
}

/// Why bytes are not a valid `xcharspec`, regardless of the meaning of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecMalformed {
    /// The bytes are not valid XDR of its type.
    #[error(transparent)]
    Xdr(#[from] xdr::Error),
    /// A characteristic has two values.
    #[error("characteristic {0} occurs twice")]
    Twice(XcharId),
    /// There are more than [`MAX_CHARACTERISTICS`] values.
    #[error("more than {MAX_CHARACTERISTICS} characteristics")]
    TooMany,
}
