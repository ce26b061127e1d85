//! Agreeing on a design for remote invalidation (reminv §4), by the experimental characteristic
//! [`InvalidationDesigns`].

use crate::invalidation::design::Design;
use crate::role::Role;
use crate::v2::characteristics::{DesignBits, InvalidationDesigns};
use crate::v2::operations::InitXch;

/// State of the agreement on a remote invalidation design.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    role: Role,
    /// Designs that this end agrees to, in the order of preference.
    ready_for: Vec<Design>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    None,
    /// This server accepts the design, which applies from its answer on.
    Chosen(Design),
    Agreed(Design),
}

/// The peer named designs in an invalid way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoDesign;

impl Agreement {
    pub(super) fn new(role: Role, ready_for: Vec<Design>) -> Self {
        Self {
            role,
            ready_for,
            state: State::None,
        }
    }

    pub(super) fn design(&self) -> Option<Design> {
        match self.state {
            State::Agreed(design) => Some(design),
            State::None | State::Chosen(_) => None,
        }
    }

    /// Handles the INITXCH of a client, and returns the design for the answer.
    pub(super) fn handle_offer(
        &mut self,
        init: &InitXch,
        first: bool,
    ) -> Result<Option<Design>, NoDesign> {
        let Some(bits) = self.named(init, first)? else {
            return Ok(None);
        };
        if self.role != Role::Server {
            return Err(NoDesign);
        }
        let offered = bits.offered();
        let mut ready = self.ready_for.iter().copied();
        let chosen = ready.find(|&design| offered.has(design));
        if let Some(design) = chosen {
            self.state = State::Chosen(design);
        }
        Ok(chosen)
    }

    /// Handles the sending of the answer. Later messages have the layout of the design.
    pub(super) fn handle_answered(&mut self) {
        if let State::Chosen(design) = self.state {
            self.state = State::Agreed(design);
        }
    }

    /// Handles the answer of a server to the offer. An error means that the layout of the server's
    /// messages is unknown.
    pub(super) fn handle_choice(&mut self, init: &InitXch, first: bool) -> Result<(), NoDesign> {
        let bits = match self.named(init, first)? {
            Some(bits) if bits.bits() != 0 => bits,
            Some(_) | None => return Ok(()),
        };
        let design = bits.answered();
        let design = design.filter(|design| self.ready_for.contains(design));
        self.state = State::Agreed(design.ok_or(NoDesign)?);
        Ok(())
    }

    /// Handles a malformed answer of a server, which may have named a design.
    pub(super) fn handle_unreadable_choice(&self) -> Result<(), NoDesign> {
        match self.ready_for.is_empty() {
            true => Ok(()),
            false => Err(NoDesign),
        }
    }

    /// Returns the designs in a first message. Designs in later messages, or not marked as
    /// unchanging, do not count.
    fn named(&self, init: &InitXch, first: bool) -> Result<Option<DesignBits>, NoDesign> {
        if self.ready_for.is_empty() {
            return Ok(None);
        }
        match init.start.get::<InvalidationDesigns>() {
            Some(_) if !first || !init.is_fixed::<InvalidationDesigns>() => Err(NoDesign),
            bits => Ok(bits),
        }
    }
}
