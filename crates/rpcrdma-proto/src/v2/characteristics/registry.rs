//! Registry of the characteristics that an end knows.

use super::standard::{BackwardRequestSupport, ReceiveBufferSize, RequesterRemoteInvalidation};
use super::{Characteristic, MayChange, ValueError, XcharId, XcharSpec, XcharVal};
use crate::limits::MAX_CHARACTERISTICS;
use oncrpc::xdr::Reader;
use std::fmt;

/// The characteristics that this end knows, by id. Users of the library may add more.
#[derive(Clone, Debug)]
pub struct Registry {
    /// In the order of their ids.
    known: Vec<Descriptor>,
}

/// A [`Characteristic`] as a value.
#[derive(Clone, Copy)]
pub struct Descriptor {
    id: XcharId,
    name: &'static str,
    xdr: &'static str,
    fixed: bool,
    default: fn() -> XcharVal,
    check: fn(&[u8]) -> Result<usize, ValueError>,
    show: fn(&[u8]) -> Result<String, ValueError>,
    may_change: fn(&[u8], &[u8]) -> Result<MayChange, ValueError>,
    withdraws: fn(&[u8], &[u8]) -> Result<bool, ValueError>,
}

/// Why a characteristic cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The id is registered already.
    #[error("characteristic {id} is already registered as {name}")]
    Known {
        /// The id that is already registered.
        id: XcharId,
        /// Name of the registered characteristic.
        name: &'static str,
    },
    /// The registry has [`MAX_CHARACTERISTICS`] already, which is the limit of a message.
    #[error("there are {MAX_CHARACTERISTICS} characteristics already")]
    Full,
}

/// A value that makes its message malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("characteristic {id}: {error}")]
pub struct SpecError {
    /// The characteristic.
    pub id: XcharId,
    /// Why the value is invalid.
    pub error: ValueError,
}

/// Oddities of a valid message that do no harm, for counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Values of unknown characteristics, which are skipped (xcharext §2.1).
    pub unknown: usize,
    /// Values with trailing bytes, which are ignored.
    pub trailing: usize,
    /// Bits of a subset beyond the values, which are ignored.
    pub bits_for_nothing: usize,
}

impl Default for Registry {
    fn default() -> Self {
        Self::standard()
    }
}

impl Registry {
    /// Returns the registry of the draft's characteristics (xcharext §3).
    pub fn standard() -> Self {
        Self {
            known: vec![
                Descriptor::of::<ReceiveBufferSize>(),
                Descriptor::of::<RequesterRemoteInvalidation>(),
                Descriptor::of::<BackwardRequestSupport>(),
            ],
        }
    }

    /// Adds a characteristic.
    ///
    /// # Errors
    ///
    /// If the id is registered already, or the registry is full.
    pub fn register<C: Characteristic>(&mut self) -> Result<(), RegisterError> {
        match self.known.binary_search_by_key(&C::ID, |known| known.id) {
            Ok(at) => Err(RegisterError::Known {
                id: C::ID,
                name: self.known[at].name,
            }),
            Err(_) if self.known.len() == MAX_CHARACTERISTICS => Err(RegisterError::Full),
            Err(at) => {
                self.known.insert(at, Descriptor::of::<C>());
                Ok(())
            }
        }
    }

    /// Returns the descriptor of an id, if it is known.
    pub fn get(&self, id: XcharId) -> Option<&Descriptor> {
        let at = self.known.binary_search_by_key(&id, |known| known.id);
        at.ok().map(|at| &self.known[at])
    }

    /// Returns all descriptors, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Descriptor> {
        self.known.iter()
    }

    /// Checks all values of a set.
    ///
    /// # Errors
    ///
    /// If a value of a known characteristic is invalid.
    pub fn check(&self, spec: &XcharSpec) -> Result<Oddities, SpecError> {
        let mut oddities = Oddities::default();
        for value in spec.values() {
            self.check_value(value, &mut oddities)?;
        }
        Ok(oddities)
    }

    pub(crate) fn check_value(
        &self,
        value: &XcharVal,
        oddities: &mut Oddities,
    ) -> Result<(), SpecError> {
        let Some(descriptor) = self.get(value.which) else {
            oddities.unknown += 1;
            return Ok(());
        };
        let id = value.which;
        let left = (descriptor.check)(&value.data).map_err(|error| SpecError { id, error })?;
        oddities.trailing += usize::from(left > 0);
        Ok(())
    }
}

impl Descriptor {
    /// Returns the descriptor of a characteristic.
    pub fn of<C: Characteristic>() -> Self {
        Self {
            id: C::ID,
            name: C::NAME,
            xdr: C::XDR,
            fixed: C::FIXED,
            default: || XcharVal::of::<C>(&C::default()),
            check: |data| {
                let mut r = Reader::new(data);
                C::parse(&mut r)?;
                Ok(r.remaining())
            },
            show: |data| Ok(format!("{:?}", C::parse(&mut Reader::new(data))?)),
            may_change: |from, to| {
                let from = C::parse(&mut Reader::new(from))?;
                let to = C::parse(&mut Reader::new(to))?;
                Ok(C::may_change(&from, &to))
            },
            withdraws: |from, to| {
                let from = C::parse(&mut Reader::new(from))?;
                let to = C::parse(&mut Reader::new(to))?;
                Ok(C::withdraws(&from, &to))
            },
        }
    }

    /// [`Characteristic::ID`].
    pub fn id(&self) -> XcharId {
        self.id
    }

    /// [`Characteristic::NAME`].
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// [`Characteristic::XDR`].
    pub fn xdr(&self) -> &'static str {
        self.xdr
    }

    /// [`Characteristic::FIXED`].
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// [`Characteristic::default`], encoded.
    pub fn default_value(&self) -> XcharVal {
        (self.default)()
    }

    /// Formats a value as text, for people.
    ///
    /// # Errors
    ///
    /// If the bytes are not a valid value.
    pub fn show(&self, data: &[u8]) -> Result<String, ValueError> {
        (self.show)(data)
    }

    /// [`Characteristic::may_change`] with the bytes of both values.
    ///
    /// # Errors
    ///
    /// If one of them is not a valid value.
    pub fn may_change(&self, from: &[u8], to: &[u8]) -> Result<MayChange, ValueError> {
        (self.may_change)(from, to)
    }

    /// [`Characteristic::withdraws`] with the bytes of both values.
    ///
    /// # Errors
    ///
    /// If one of them is not a valid value.
    pub fn withdraws(&self, from: &[u8], to: &[u8]) -> Result<bool, ValueError> {
        (self.withdraws)(from, to)
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
