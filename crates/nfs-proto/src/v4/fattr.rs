//! Sets of attributes with their values (`fattr4`, RFC 8881 §3.3.7).

use crate::Wire;
use crate::v4::attribute::{Attribute, AttributeNumber};
use crate::v4::bitmap::Bitmap;
use crate::v4::limits::MAX_ATTRIBUTE_VALUES;
use crate::v4::status::Status;
use oncrpc::xdr::{Error, Reader, Writer, padded};
use std::fmt;

/// Attributes with their values: a mask, and the values in ascending order of the attributes' numbers.
///
/// Of those that were read, only the mask and the size of all values have been checked.
#[derive(Clone, Copy)]
pub struct Fattr<'a> {
    mask: Bitmap,
    values: Values<'a>,
}

#[derive(Clone, Copy)]
enum Values<'a> {
    Message(&'a [u8]),
    Slice(&'a [Attribute<'a>]),
}

/// Why an attribute cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAttribute {
    /// An attribute that is not known, so that the length of its value is not known either.
    #[error("attribute {0} is not known")]
    Unknown(u32),
    /// The values are not those of the mask.
    #[error(transparent)]
    Malformed(#[from] Error),
}

impl From<BadAttribute> for Status {
    /// Returns the status that a server answers (RFC 8881 §15.1.1.1, §15.1.15.1).
    fn from(bad: BadAttribute) -> Self {
        match bad {
            BadAttribute::Unknown(_) => Self::AttributeNotSupported,
            BadAttribute::Malformed(_) => Self::BadXdr,
        }
    }
}

impl<'a> Fattr<'a> {
    /// Creates a set of attributes. `None` if they are not in ascending order of their numbers.
    pub fn new(attributes: &'a [Attribute<'a>]) -> Option<Self> {
        let is_ascending = attributes.is_sorted_by(|a, b| a.number() < b.number());
        is_ascending.then(|| Self {
            mask: Bitmap::of(attributes.iter().map(|value| value.number() as u32)),
            values: Values::Slice(attributes),
        })
    }

    /// Returns the numbers of the attributes.
    pub fn mask(&self) -> Bitmap {
        self.mask
    }

    /// Returns the attributes in order, up to the first that cannot be read. Octets behind the last value are
    /// an error, too.
    pub fn iter(&self) -> impl Iterator<Item = Result<Attribute<'a>, BadAttribute>> + use<'a> {
        let (message, values) = match self.values {
            Values::Message(bytes) => (Some(Reader::new(bytes)), &[][..]),
            Values::Slice(values) => (None, values),
        };
        let mut numbers = self.mask.iter();
        let mut reader = message;
        let read = std::iter::from_fn(move || {
            let mut r = reader.take()?;
            let value = match numbers.next() {
                Some(number) => read(number, &mut r),
                None => return r.finish().err().map(|error| Err(error.into())),
            };
            if value.is_ok() {
                reader = Some(r);
            }
            Some(value)
        });
        read.chain(values.iter().copied().map(Ok))
    }
}

fn read<'a>(number: u32, r: &mut Reader<'a>) -> Result<Attribute<'a>, BadAttribute> {
    let number = AttributeNumber::new(number).ok_or(BadAttribute::Unknown(number))?;
    Ok(Attribute::parse(number, r)?)
}

/// Writes attributes: asks for each wanted one, in ascending order of numbers, and writes those that
/// `give` returns, with their mask. Wanted numbers that are no known attributes are left out.
///
/// # Panics
///
/// If `give` returns another attribute than it was asked for.
pub fn write_fattr<'v>(
    w: &mut Writer,
    wanted: &Bitmap,
    mut give: impl FnMut(AttributeNumber) -> Option<Attribute<'v>>,
) {
    let mask_at = w.len();
    wanted.write(w);
    let values_at = w.len();
    w.u32(0);
    let mut given = Bitmap::default();
    for number in wanted.iter().filter_map(AttributeNumber::new) {
        if let Some(value) = give(number) {
            assert!(value.number() == number, "the attribute that was wanted");
            value.write(w);
            given.insert(number as u32);
        }
    }
    // The mask keeps the length of the wanted one; words of zeroes at its end mean nothing.
    let words = wanted.words().len();
    let given = given.words().iter().copied().chain(std::iter::repeat(0));
    for (index, word) in given.take(words).enumerate() {
        w.patch_u32(mask_at + 4 + 4 * index, word);
    }
    patch_length(w, values_at);
}

/// Writes the length of the values that begin behind it.
fn patch_length(w: &mut Writer, at: usize) {
    let length = u32::try_from(w.len() - at - 4).expect("values are far smaller");
    w.patch_u32(at, length);
}

impl<'a> Wire<'a> for Fattr<'a> {
    const MAX: usize = Bitmap::MAX + 4 + padded(MAX_ATTRIBUTE_VALUES as usize);

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self {
            mask: Bitmap::parse(r)?,
            values: Values::Message(r.opaque(MAX_ATTRIBUTE_VALUES)?),
        })
    }

    fn write(&self, w: &mut Writer) {
        self.mask.write(w);
        match self.values {
            Values::Message(bytes) => w.opaque(bytes),
            Values::Slice(values) => {
                let at = w.len();
                w.u32(0);
                values.iter().for_each(|value| value.write(w));
                patch_length(w, at);
            }
        }
    }
}

impl Default for Fattr<'_> {
    fn default() -> Self {
        Self {
            mask: Bitmap::default(),
            values: Values::Slice(&[]),
        }
    }
}

impl PartialEq for Fattr<'_> {
    /// Compares masks and values, up to the first value that cannot be read.
    fn eq(&self, other: &Self) -> bool {
        self.mask == other.mask && self.iter().eq(other.iter())
    }
}

impl Eq for Fattr<'_> {}

impl fmt::Debug for Fattr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fattr ")?;
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
impl crate::tests::Sample for Fattr<'_> {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        let numbers = AttributeNumber::ALL.iter().filter(|_| rng.below(8) == 0);
        let numbers: Vec<_> = numbers.copied().collect();
        let values = numbers
            .into_iter()
            .map(|number| Attribute::sample(number, rng));
        Self::new(values.collect::<Vec<_>>().leak()).expect("in ascending order")
    }
}
