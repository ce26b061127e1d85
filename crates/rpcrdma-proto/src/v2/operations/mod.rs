//! The operations of xcharext §4, which travel in RDMA2_OPTIONAL.
//!
//! [`OperationView`] reads whatever is there, for a decoder. [`Operation`] holds only valid values;
//! an invalid one becomes an [`OperationError`], which tells how to answer it. No operation is
//! followed by an RPC message.

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
    /// ROPT_INITXCH: announces the characteristics of the sender.
    pub const INITXCH: u32 = 1;
    /// ROPT_REQXCH: asks the receiver to change characteristics.
    pub const REQXCH: u32 = 2;
    /// ROPT_RESPXCH: answers a ROPT_REQXCH.
    pub const RESPXCH: u32 = 3;
    /// ROPT_UPDXCH: announces a changed characteristic of the sender.
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
    /// Returns the `rdma_opttype`.
    pub fn code(&self) -> u32 {
        match self {
            Self::InitXch(_) => code::INITXCH,
            Self::ReqXch(_) => code::REQXCH,
            Self::RespXch(_) => code::RESPXCH,
            Self::UpdXch(_) => code::UPDXCH,
        }
    }
}

/// ROPT_INITXCH: the characteristics of an end, in its first message (xcharext §4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitXch {
    /// `optixch_start`: the characteristics.
    pub start: XcharSpec,
    /// `optixch_nochg`: those among them that will not change on this connection.
    pub nochg: XcharSubset,
}

impl InitXch {
    /// Sets a characteristic, and marks it as unchanging if its type says so.
    ///
    /// # Panics
    ///
    /// Those of [`XcharSpec::set`].
    pub fn with<C: Characteristic>(mut self, value: &C::Value) -> Self {
        self.start.set::<C>(value);
        if C::FIXED {
            let at = self.start.position(C::ID).expect("it was just put there");
            self.nochg.insert(at);
        }
        self
    }

    /// Whether a characteristic is marked as unchanging.
    pub fn is_fixed<C: Characteristic>(&self) -> bool {
        let at = self.start.position(C::ID);
        at.is_some_and(|at| self.nochg.contains(at))
    }
}

/// ROPT_REQXCH: requested values of the receiver's characteristics (xcharext §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReqXch {
    /// `optreqxch_want`: the values. An empty set requests nothing, and is answered too.
    pub want: XcharSpec,
}

/// ROPT_RESPXCH: the outcome of each value of a ROPT_REQXCH, by position (xcharext §4.3).
///
/// Each position should be in exactly one of the three subsets. That depends on the request, so
/// [`outcome`](Self::outcome) checks it; a RESPXCH that violates it is still an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RespXch {
    /// `optrespxch_done`: values that are in effect.
    pub done: XcharSubset,
    /// `optrespxch_rej`: values that were rejected.
    pub rejected: XcharSubset,
    /// `optrespxch_pend`: values that are pending; a ROPT_UPDXCH announces the outcome.
    pub pending: XcharSubset,
}

/// Outcome of one value of a ROPT_REQXCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The value is in effect.
    Done,
    /// The value was rejected.
    Rejected,
    /// A ROPT_UPDXCH with `optupdxch_pendclr` will announce the outcome.
    Pending,
}

impl RespXch {
    /// Returns the outcome of the value at this position of the request; `None` if the answer gives
    /// none or several.
    pub fn outcome(&self, position: usize) -> Option<Outcome> {
        let is_in = |subset: XcharSubset| subset.contains(position);
        match [self.done, self.rejected, self.pending].map(is_in) {
            [true, false, false] => Some(Outcome::Done),
            [false, true, false] => Some(Outcome::Rejected),
            [false, false, true] => Some(Outcome::Pending),
            _ => None,
        }
    }

    /// Whether it gives exactly one outcome for each of the `wanted` values of a request, and no
    /// others.
    pub fn is_answer_to(&self, wanted: usize) -> bool {
        let said = self.done.len() + self.rejected.len() + self.pending.len();
        said == wanted && (0..wanted).all(|at| self.outcome(at).is_some())
    }
}

impl FromIterator<Outcome> for RespXch {
    /// Collects the outcomes of the values, in the order of the request.
    ///
    /// # Panics
    ///
    /// If there are more outcomes than a request can have
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

/// ROPT_UPDXCH: a changed characteristic of the sender, or the end of a pending request (xcharext
/// §4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdXch {
    /// `optupdxch_now`: the current value.
    pub now: XcharVal,
    /// `optupdxch_pendclr`: whether this ends a pending request.
    pub pendclr: bool,
}

/// Meaning of a ROPT_UPDXCH for a request (xcharext §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// No request was pending.
    Unsolicited,
    /// An intermediate value: the request is still pending.
    Intermediate,
    /// The end of the request. The value tells whether it was granted.
    Final,
    /// The end of a request that does not exist. The value is valid nevertheless.
    Stray,
}

impl UpdXch {
    /// Returns the meaning, given whether a request for the characteristic is pending.
    pub fn meaning(&self, is_pending: bool) -> Update {
        match (is_pending, self.pendclr) {
            (false, false) => Update::Unsolicited,
            (true, false) => Update::Intermediate,
            (true, true) => Update::Final,
            (false, true) => Update::Stray,
        }
    }
}
