//! Experimental characteristic by which both ends agree on a remote invalidation design.

use super::{Characteristic, ValueError, XcharId};
use crate::invalidation::design::{Design, Designs};
use oncrpc::xdr::{Reader, Writer};

/// Remote Invalidation Designs: those (reminv §4) that a client offers, and the one that a server
/// accepts.
///
/// A client announces in its ROPT_INITXCH all designs that it supports. A server answers with
/// exactly one of them, which then governs both directions, or with none. The value never changes.
/// The five points of xcharext §6.1 are in `docs/design/version-two.md`.
///
/// The characteristic is experimental and has this meaning only where configured: it is not in
/// [`Registry::standard`](super::Registry::standard).
#[derive(Clone, Copy, Debug)]
pub enum InvalidationDesigns {}

/// The designs that are agreed on by this characteristic. That of reminv §4.1 is a matter of
/// configuration, and that of §4.2 is said by
/// [`RequesterRemoteInvalidation`](super::RequesterRemoteInvalidation).
const AGREED_HERE: [Design; 5] = [
    Design::Fixed,
    Design::PerCall,
    Design::PerCallSeveral,
    Design::InterCall,
    Design::PerCallAll,
];

/// A bitmap of designs in wire format: bit N stands for the design of reminv §4.(N+1), and bit 6 for
/// [`Design::PerCallAll`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DesignBits(u32);

impl DesignBits {
    /// Returns the offer of a client. Designs that are agreed on in another way are left out.
    pub fn offer(designs: Designs) -> Self {
        let agreed_here = AGREED_HERE.into_iter().collect();
        Self(designs.and(agreed_here).bits())
    }

    /// Returns the answer of a server.
    pub fn answer(design: Design) -> Self {
        Self::offer(Designs::NONE.with(design))
    }

    /// Returns the offered designs. Unknown bits are ignored.
    pub fn offered(self) -> Designs {
        let agreed_here = AGREED_HERE.into_iter().collect();
        Designs::from_bits(self.0).and(agreed_here)
    }

    /// Returns the accepted design if exactly one known bit is set.
    pub fn answered(self) -> Option<Design> {
        self.offered().only().filter(|_| self.0.count_ones() == 1)
    }

    /// Returns the bits.
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
