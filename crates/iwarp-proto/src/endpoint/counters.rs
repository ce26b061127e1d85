//! What an endpoint counts.

use std::ops::{AddAssign, Sub};

/// What has been moved, for those who measure. Calls that would have blocked are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that took octets in.
    pub reads: u64,
    /// Calls that handed octets out.
    pub writes: u64,
    /// Octets taken in, headers included.
    pub octets_in: u64,
    /// Octets handed out, headers included.
    pub octets_out: u64,
    /// FPDUs taken in.
    pub fpdus_in: u64,
    /// FPDUs made.
    pub fpdus_out: u64,
    /// Octets of payload that were copied on their way in.
    pub copied_in: u64,
    /// Octets of payload that were copied on their way out.
    pub copied_out: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.octets_in += other.octets_in;
        self.octets_out += other.octets_out;
        self.fpdus_in += other.fpdus_in;
        self.fpdus_out += other.fpdus_out;
        self.copied_in += other.copied_in;
        self.copied_out += other.copied_out;
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            reads: self.reads - other.reads,
            writes: self.writes - other.writes,
            octets_in: self.octets_in - other.octets_in,
            octets_out: self.octets_out - other.octets_out,
            fpdus_in: self.fpdus_in - other.fpdus_in,
            fpdus_out: self.fpdus_out - other.fpdus_out,
            copied_in: self.copied_in - other.copied_in,
            copied_out: self.copied_out - other.copied_out,
        }
    }
}
