//! The operations of xcharext §4, which travel in RDMA2_OPTIONAL.
//!
//! [`OperationView`] reads whatever is there, for a decoder. [`Operation`] holds only what is valid;
//! what is not becomes an [`OperationError`], which says what is owed. None of them is followed by
//! an RPC message.

mod emit;
mod parse;
mod supported;
#[cfg(test)]
mod tests;
mod view;

pub use parse::{OperationError, OperationMalformed};
pub use supported::Supported;
pub use view::{OperationFields, OperationView};

use super::characteristics::{Characteristic, XcharSpec, XcharSubset, XcharVal};

/// Values of `rdma_opttype` (xcharext §4).
pub mod code {
    /// ROPT_INITXCH: this is what I am.
    pub const INITXCH: u32 = 1;
    /// ROPT_REQXCH: please change.
    pub const REQXCH: u32 = 2;
    /// ROPT_RESPXCH: this became of a request.
    pub const RESPXCH: u32 = 3;
    /// ROPT_UPDXCH: I have changed.
    pub const UPDXCH: u32 = 4;
}

/// A valid operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// ROPT_INITXCH.
    InitXch(InitXch),
    /// ROPT_REQXCH.
    ReqXch(ReqXch),
    /// ROPT_RESPXCH.
    RespXch(RespXch),
    /// ROPT_UPDXCH.
    UpdXch(UpdXch),
}

impl Operation {
    /// Its `rdma_opttype`.
    pub fn code(&self) -> u32 {
        match self {
            Self::InitXch(_) => code::INITXCH,
            Self::ReqXch(_) => code::REQXCH,
            Self::RespXch(_) => code::RESPXCH,
            Self::UpdXch(_) => code::UPDXCH,
        }
    }
}

/// ROPT_INITXCH: what an end says of itself as its first message (xcharext §4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitXch {
    /// `optixch_start`: its characteristics.
    pub start: XcharSpec,
    /// `optixch_nochg`: those among them that will not change on this connection.
    pub nochg: XcharSubset,
}

impl InitXch {
    /// Says this of a characteristic; if it never changes that is said too.
    ///
    /// # Panics
    ///
    /// As [`XcharSpec::set`].
    pub fn with<C: Characteristic>(mut self, value: &C::Value) -> Self {
        self.start.set::<C>(value);
        if C::FIXED {
            let at = self.start.position(C::ID).expect("it was just put there");
            self.nochg.insert(at);
        }
        self
    }

    /// Whether a characteristic is said not to change.
    pub fn is_fixed<C: Characteristic>(&self) -> bool {
        let at = self.start.position(C::ID);
        at.is_some_and(|at| self.nochg.contains(at))
    }
}

/// ROPT_REQXCH: what the peer's characteristics are asked to become (xcharext §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReqXch {
    /// `optreqxch_want`; none is a question without consequences.
    pub want: XcharSpec,
}

/// ROPT_RESPXCH: what became of each value of a ROPT_REQXCH, by its place in that (xcharext §4.3).
///
/// Each place should be in exactly one of the three. Whether it is depends on the request, so that
/// [`outcome`](Self::outcome) tells; a RESPXCH in which it is not is still an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RespXch {
    /// `optrespxch_done`: changed.
    pub done: XcharSubset,
    /// `optrespxch_rej`: not changed.
    pub rejected: XcharSubset,
    /// `optrespxch_pend`: perhaps changed later, which a ROPT_UPDXCH will tell.
    pub pending: XcharSubset,
}

/// What became of one value of a ROPT_REQXCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value is in effect.
    Done,
    /// It will not be.
    Rejected,
    /// A ROPT_UPDXCH with `optupdxch_pendclr` will tell.
    Pending,
}

impl RespXch {
    /// What became of the value at this place of the request. Nothing, if the answer says nothing or
    /// several things about it.
    pub fn outcome(&self, position: usize) -> Option<Outcome> {
        let is_in = |subset: XcharSubset| subset.contains(position);
        match [self.done, self.rejected, self.pending].map(is_in) {
            [true, false, false] => Some(Outcome::Done),
            [false, true, false] => Some(Outcome::Rejected),
            [false, false, true] => Some(Outcome::Pending),
            _ => None,
        }
    }

    /// Whether it says one thing about each value of a request with so many, and nothing else.
    pub fn is_answer_to(&self, wanted: usize) -> bool {
        let said = self.done.len() + self.rejected.len() + self.pending.len();
        said == wanted && (0..wanted).all(|at| self.outcome(at).is_some())
    }
}

impl FromIterator<Outcome> for RespXch {
    /// From what became of each value, in the order of the request.
    ///
    /// # Panics
    ///
    /// If there are more than a request has
    /// ([`MAX_CHARACTERISTICS`](crate::limits::MAX_CHARACTERISTICS)).
    fn from_iter<T: IntoIterator<Item = Outcome>>(outcomes: T) -> Self {
        let mut answer = Self::default();
        for (at, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Outcome::Done => answer.done.insert(at),
                Outcome::Rejected => answer.rejected.insert(at),
                Outcome::Pending => answer.pending.insert(at),
            }
        }
        answer
    }
}

/// ROPT_UPDXCH: a characteristic of its sender has changed, or a request for it has come to its end
/// (xcharext §4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdXch {
    /// `optupdxch_now`: the value from now on.
    pub now: XcharVal,
    /// `optupdxch_pendclr`: no request for it is pending any more.
    pub pendclr: bool,
}

/// What a ROPT_UPDXCH means for a request (xcharext §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// It was not asked for.
    Unsolicited,
    /// It is on the way to what was asked for, or beside it: the request is still pending.
    Intermediate,
    /// It is the end of the request: its value tells whether that was granted.
    Final,
    /// It is the end of a request that there is not. The value holds all the same.
    Stray,
}

impl UpdXch {
    /// What it means, where a request for its characteristic `is_pending` or is not.
    pub fn meaning(&self, is_pending: bool) -> Update {
        match (is_pending, self.pendclr) {
            (false, false) => Update::Unsolicited,
            (true, false) => Update::Intermediate,
            (true, true) => Update::Final,
            (false, true) => Update::Stray,
        }
    }
}
