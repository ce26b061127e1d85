//! CRC32C for MPA (RFC 5044 §4.4, RFC 3720 §12.1).
//!
//! A thin wrapper, so that the CRC library can be exchanged in one place.

use crc_fast::{CrcAlgorithm, Digest as Inner};

/// CRC32C of octets in one piece.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC32C of octets in several pieces.
pub struct Digest(Inner);

impl Digest {
    /// Creates a digest of no octets.
    pub fn new() -> Self {
        Self(Inner::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next octets.
    pub fn update(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.update(bytes);
        }
    }

    /// Returns the CRC of all octets added so far.
    pub fn finish(&self) -> u32 {
        // A CRC of 32 bits comes in the lower half.
        #[allow(clippy::cast_possible_truncation)]
        let crc = self.0.finalize() as u32;
        crc
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

/// The CRC field of an FPDU: least significant octet first, as RFC 3720 §B.4 lists it.
pub fn emit(crc: u32) -> [u8; 4] {
    crc.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], listed: [u8; 4]) {
        assert_eq!(emit(crc32c(bytes)), listed);
        for cut in 0..=bytes.len() {
            let mut digest = Digest::new();
            digest.update(&bytes[..cut]);
            digest.update(&bytes[cut..]);
            assert_eq!(emit(digest.finish()), listed, "cut at {cut}");
        }
    }

    #[test]
    fn vectors_of_rfc_3720() {
        check(&[0; 32], [0xaa, 0x36, 0x91, 0x8a]);
        check(&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]);
        let mut rising = [0; 32];
        for (byte, value) in rising.iter_mut().zip(0..) {
            *byte = value;
        }
        check(&rising, [0x4e, 0x79, 0xdd, 0x46]);
        rising.reverse();
        check(&rising, [0x5c, 0xdb, 0x3f, 0x11]);
        let mut read10 = [0; 48];
        for (at, value) in [
            (0, 1),
            (1, 0xc0),
            (16, 0x14),
            (22, 4),
            (27, 0x14),
            (31, 0x18),
            (32, 0x28),
            (40, 2),
        ] {
            read10[at] = value;
        }
        check(&read10, [0x56, 0x3a, 0x96, 0xd9]);
    }
}
