//! Subsets of a set of values (xcharext §2.1).

use crate::limits::MAX_CHARACTERISTICS;
use oncrpc::xdr;
use oncrpc::xdr::{Reader, Writer};

/// Words of 32 bits that a subset has at most.
const MAX_WORDS: u32 = u128::BITS / u32::BITS;

/// `xcharsubset`: some values of an [`XcharSpec`](super::XcharSpec), by position.
///
/// The value at position N has bit N mod 32 of word N div 32, where bit 0 is the least significant
/// one. The draft leaves this open; it is what NFS version 4 does with its `bitmap4`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct XcharSubset(u128);

impl XcharSubset {
    /// The empty subset.
    pub const EMPTY: Self = Self(0);

    /// Returns the subset of the first `count` values.
    pub fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// Whether the subset contains the value at this position.
    pub fn contains(self, position: usize) -> bool {
        position < MAX_CHARACTERISTICS && self.0 >> position & 1 != 0
    }

    /// Adds the value at this position.
    ///
    /// # Panics
    ///
    /// If the position is beyond the largest set ([`MAX_CHARACTERISTICS`]).
    pub fn insert(&mut self, position: usize) {
        assert!(
            position < MAX_CHARACTERISTICS,
            "a subset is one of a set that there can be"
        );
        self.0 |= 1 << position;
    }

    /// Whether the subset is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of values in the subset.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the intersection.
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the union.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the values that are not in `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the positions in ascending order.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..MAX_CHARACTERISTICS).filter(move |at| self.contains(*at))
    }

    /// Words that are not there are zero (xcharext §2.1).
    pub(crate) fn parse(r: &mut Reader<'_>) -> Result<Self, xdr::Error> {
        let words = r.length(MAX_WORDS)?;
        let mut bits = 0;
        for word in 0..words {
            bits |= u128::from(r.u32()?) << (u32::BITS as usize * word);
        }
        Ok(Self(bits))
    }

    /// Up to the last word that is not zero.
    pub(crate) fn emit(self, w: &mut Writer) {
        let words = (u128::BITS - self.0.leading_zeros()).div_ceil(u32::BITS);
        w.u32(words);
        for word in 0..words {
            let bits = self.0 >> (u32::BITS * word) & u128::from(u32::MAX);
            w.u32(u32::try_from(bits).expect("all other bits were masked"));
        }
    }
}

impl FromIterator<usize> for XcharSubset {
    /// # Panics
    ///
    /// As [`insert`](XcharSubset::insert).
    fn from_iter<T: IntoIterator<Item = usize>>(positions: T) -> Self {
        let mut subset = Self::EMPTY;
        for position in positions {
            subset.insert(position);
        }
        subset
    }
}

const _: () = assert!(
    MAX_CHARACTERISTICS == u128::BITS as usize,
    "a subset has a bit for each value that there can be"
);
