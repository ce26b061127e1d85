//! Agreeing on a design for remote invalidation (reminv §4), by the experimental characteristic
//! [`InvalidationDesigns`].

use crate::invalidation::design::Design;
use crate::role::Role;
use crate::v2::characteristics::{DesignBits, InvalidationDesigns};
use crate::v2::operations::InitXch;

/// How far it has come.
#[derive(Clone, Debug)]
pub(super) struct Agreement {
    role: Role,
    /// Those that we agree to, the best first.
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

/// The peer named designs in a way that nothing follows from.
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

    /// The INITXCH of a client: the design to answer it with.
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

    /// Our answer goes out. What follows it has the layout of the design.
    pub(super) fn handle_answered(&mut self) {
        if let State::Chosen(design) = self.state {
            self.state = State::Agreed(design);
        }
    }

    /// The answer of a server to what this client offered. An error means that it cannot be told how
    /// the server's messages will be laid out.
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

    /// The answer of a server cannot be read: it may have named one.
    pub(super) fn handle_unreadable_choice(&self) -> Result<(), NoDesign> {
        match self.ready_for.is_empty() {
            true => Ok(()),
            false => Err(NoDesign),
        }
    }

    /// The designs that a first message names, if it counts: later ones, and those that may change,
    /// do not.
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
