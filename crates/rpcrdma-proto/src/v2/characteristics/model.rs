//! Ids and values as they are in messages (xcharext §2.1).

use super::{Characteristic, ValueError};
use crate::limits::{MAX_CHARACTERISTIC_LEN, MAX_CHARACTERISTICS};
use buffer::Buffer;
use oncrpc::xdr;
use oncrpc::xdr::{Reader, Writer};
use std::fmt;

/// `xcharid`: which characteristic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XcharId(pub u32);

impl XcharId {
    /// The first id for experiments (xcharext §6.2).
    pub const FIRST_EXPERIMENTAL: Self = Self(4_294_967_040);

    /// Whether it is in the range for experiments, to the last id there is: no standard will use
    /// it, and two implementations may mean different things by it (xcharext §6.2).
    pub fn is_experimental(self) -> bool {
        self >= Self::FIRST_EXPERIMENTAL
    }
}

impl fmt::Display for XcharId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `xcharval`: a characteristic and its value, which nobody has looked at yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XcharVal {
    /// `xchv_which`.
    pub which: XcharId,
    /// `xchv_data`: XDR of the value, and perhaps more.
    pub data: Vec<u8>,
}

impl XcharVal {
    /// A value on its way.
    ///
    /// # Panics
    ///
    /// If its bytes are more than [`MAX_CHARACTERISTIC_LEN`], or not all in the stream.
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

    /// The value, if it is of this characteristic.
    ///
    /// # Errors
    ///
    /// If it is, and cannot be read.
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
/// Their order says nothing, but an [`XcharSubset`](super::XcharSubset) counts by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XcharSpec(Vec<XcharVal>);

impl XcharSpec {
    /// The values in order.
    pub fn values(&self) -> &[XcharVal] {
        &self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where a characteristic stands in the order.
    pub fn position(&self, which: XcharId) -> Option<usize> {
        self.0.iter().position(|value| value.which == which)
    }

    /// What it says of a characteristic, if it does, and if that can be read: of what cannot, the
    /// default is to be assumed as of what is not said (xcharext §3).
    pub fn get<C: Characteristic>(&self) -> Option<C::Value> {
        let value = &self.0[self.position(C::ID)?];
        value.read::<C>().ok().flatten()
    }

    /// Says this of a characteristic, in the place where it stands or at the end.
    ///
    /// # Panics
    ///
    /// If it would be more than [`MAX_CHARACTERISTICS`].
    pub fn set<C: Characteristic>(&mut self, value: &C::Value) {
        self.put(XcharVal::of::<C>(value));
    }

    /// The same with bytes that are the value already.
    ///
    /// # Panics
    ///
    /// As [`set`](Self::set), and if they are more than [`MAX_CHARACTERISTIC_LEN`].
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

/// Why bytes are no `xcharspec`, whatever its values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecMalformed {
    /// They are not its XDR.
    #[error("{0}")]
    Xdr(#[from] xdr::Error),
    /// A characteristic has two values.
    #[error("characteristic {0} is there twice")]
    Twice(XcharId),
    /// There are more than [`MAX_CHARACTERISTICS`].
    #[error("more than {MAX_CHARACTERISTICS} characteristics")]
    TooMany,
}
