//! Inline thresholds: the largest message that one Send can carry (RFC 8166 §3.3.2).

use std::fmt;

/// An inline threshold in bytes: a whole number of KiB from 1024 to 262144, the values that private
/// data can express (RFC 8797 §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InlineThreshold(u32);

/// Bytes per step of an inline threshold.
const STEP: u32 = 1024;

impl InlineThreshold {
    /// Smallest threshold, which every peer supports and which is assumed of a peer without private
    /// data (RFC 8166 §3.3.3).
    pub const MIN: Self = Self(STEP);

    /// Largest threshold that private data can express.
    pub const MAX: Self = Self(256 * STEP);

    /// Default, which is also that of Linux.
    pub const DEFAULT: Self = Self(4 * STEP);

    /// Returns the largest threshold that does not exceed `bytes`, or the smallest one.
    pub fn at_most(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = bytes.clamp(Self::MIN.0, Self::MAX.0);
        Self(bytes - bytes % STEP)
    }

    /// Decodes the threshold from its code on the wire, the number of KiB beyond the first (RFC
    /// 8797 §4.2). Every code is valid.
    pub fn from_code(code: u8) -> Self {
        Self((u32::from(code) + 1) * STEP)
    }

    /// Returns the code on the wire.
    pub fn code(self) -> u8 {
        u8::try_from(self.0 / STEP - 1).expect("an inline threshold is at most 256 KiB")
    }

    /// Returns the threshold in bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl Default for InlineThreshold {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for InlineThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Inline thresholds of a connection, one per direction (RFC 8166 §3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Threshold of messages that this end sends: the smaller of its own limit and what the peer
    /// receives.
    pub send: InlineThreshold,
    /// Threshold of messages that the peer sends: the smaller of the peer's limit and what this end
    /// receives.
    pub receive: InlineThreshold,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down_and_clamped() {
        let check = |bytes, expected| assert_eq!(InlineThreshold::at_most(bytes).bytes(), expected);
        check(0, 1024);
        check(1023, 1024);
        check(1024, 1024);
        check(2047, 1024);
        check(2048, 2048);
        check(4097, 4096);
        check(262_144, 262_144);
        check(262_145, 262_144);
        check(usize::MAX, 262_144);
    }

    #[test]
    fn every_code_survives_a_round_trip() {
        for code in 0..=u8::MAX {
            assert_eq!(InlineThreshold::from_code(code).code(), code);
        }
    }
}
