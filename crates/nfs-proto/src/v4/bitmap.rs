//! Bitmaps (`bitmap4`, RFC 8881 §3.2): sets of attributes, operations and hints, by number.

use crate::Wire;
use crate::limits::MAX_BITMAP;
use oncrpc::xdr::{Error, Reader, Writer};
use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

/// Words of a bitmap.
const WORDS: usize = MAX_BITMAP as usize;

/// A set of small numbers (`bitmap4`).
///
/// Words of zeroes at the end mean nothing: they are read, and not written.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bitmap([u32; WORDS]);

impl Bitmap {
    /// Creates a set of numbers.
    ///
    /// # Panics
    ///
    /// If a number is beyond the largest bitmap.
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut bitmap = Self::default();
        numbers.into_iter().for_each(|number| bitmap.insert(number));
        bitmap
    }

    /// Adds a number.
    ///
    /// # Panics
    ///
    /// If it is beyond the largest bitmap.
    pub fn insert(&mut self, number: u32) {
        self.0[number as usize / 32] |= 1 << (number % 32);
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u32) -> bool {
        let word = self.0.get(number as usize / 32);
        word.is_some_and(|word| word & (1 << (number % 32)) != 0)
    }

    /// Whether the set has no number.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let mut words = self.0;
        let mut at = 0;
        std::iter::from_fn(move || {
            while *words.get(at)? == 0 {
                at += 1;
            }
            let bit = words[at].trailing_zeros();
            words[at] &= words[at] - 1;
            u32::try_from(at).ok().map(|at| 32 * at + bit)
        })
    }

    /// Returns the words up to the last that is not zero.
    pub fn words(&self) -> &[u32] {
        let used = self.0.iter().rposition(|&word| word != 0);
        &self.0[..used.map_or(0, |last| last + 1)]
    }
}

impl BitAnd for Bitmap {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & other.0[at]))
    }
}

impl BitOr for Bitmap {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }
}

impl Sub for Bitmap {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }
}

impl fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Wire<'_> for Bitmap {
    const MAX: usize = 4 + 4 * WORDS;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        let mut bitmap = Self::default();
        let count = r.length(MAX_BITMAP)?;
        for word in &mut bitmap.0[..count] {
            *word = r.u32()?;
        }
        Ok(bitmap)
    }

    fn write(&self, w: &mut Writer) {
        let words = self.words();
        w.length(words.len());
        words.iter().for_each(|&word| w.u32(word));
    }
}

#[cfg(test)]
impl crate::tests::Sample for Bitmap {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        let used = rng.below(WORDS + 1);
        Self(std::array::from_fn(|at| match at < used {
            true => crate::tests::Sample::sample(rng),
            false => 0,
        }))
    }
}
