//! Our experimental characteristic: on which design of remote invalidation both ends agree.

use super::{Characteristic, ValueError, XcharId};
use crate::invalidation::design::{Design, Designs};
use oncrpc::xdr::{Reader, Writer};

/// The designs for remote invalidation (reminv §4) that a client offers and a server takes one of.
///
/// A client says in its ROPT_INITXCH all that it is ready for. A server says in its answer exactly
/// one of them, which then governs both directions, or nothing. It never changes. The five points of
/// xcharext §6.1 are in `docs/design/version-two.md`.
///
/// It is experimental, so it means this only where an end was told to use it: it is not in
/// [`Registry::standard`](super::Registry::standard).
#[derive(Clone, Copy, Debug)]
pub enum InvalidationDesigns {}

/// The designs that are agreed on by this characteristic. That of reminv §4.1 is a matter of
/// configuration, and that of §4.2 is said by
/// [`RequesterRemoteInvalidation`](super::RequesterRemoteInvalidation).
const AGREED_HERE: [Design; 4] = [
    Design::Fixed,
    Design::PerCall,
    Design::PerCallSeveral,
    Design::InterCall,
];

/// A bitmap of designs as it is on the wire: bit N is for that of reminv §4.(N+1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DesignBits(u32);

impl DesignBits {
    /// What a client offers; those of `designs` that are agreed on in another way are left out.
    pub fn offer(designs: Designs) -> Self {
        let agreed_here = AGREED_HERE.into_iter().collect();
        Self(designs.and(agreed_here).bits())
    }

    /// What a server answers.
    pub fn answer(design: Design) -> Self {
        Self::offer(Designs::NONE.with(design))
    }

    /// The designs that are offered. Bits without a meaning here are ignored.
    pub fn offered(self) -> Designs {
        let agreed_here = AGREED_HERE.into_iter().collect();
        Designs::from_bits(self.0).and(agreed_here)
    }

    /// The design that is answered: exactly one bit, with a meaning. Anything else agrees on nothing.
    pub fn answered(self) -> Option<Design> {
        self.offered().only().filter(|_| self.0.count_ones() == 1)
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl Characteristic for InvalidationDesigns {
    type Value = DesignBits;

    const ID: XcharId = XcharId::FIRST_EXPERIMENTAL;
    const NAME: &'static str = "Remote Invalidation Designs";
    const XDR: &'static str = "uint32";
    const FIXED: bool = true;

    fn default() -> DesignBits {
        DesignBits::default()
    }

    fn parse(r: &mut Reader<'_>) -> Result<DesignBits, ValueError> {
        Ok(DesignBits(r.u32()?))
    }

    fn emit(value: &DesignBits, w: &mut Writer) {
        w.u32(value.0);
    }
}
