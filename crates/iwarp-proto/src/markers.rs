//! Insertion of MPA markers (RFC 5044 §4.3), for peers whose receiver requires them.

use crate::crc;
use crate::fpdu::{MARKER_LEN, MARKER_PERIOD};

/// Position of the outgoing stream between two markers.
pub(crate) struct Markers {
    /// Octets of the stream so far, modulo the period; markers count.
    position: usize,
}

impl Markers {
    /// Creates the state at the first octet of full operation, where a marker is due.
    pub(crate) fn new() -> Self {
        Self { position: 0 }
    }

    /// Appends one FPDU, given without its CRC field and with its pad, and its CRC.
    pub(crate) fn frame(&mut self, fpdu: &[u8], use_crc: bool, out: &mut Vec<u8>) {
        let begin = out.len();
        // Octets from the length field to the current position.
        let mut pointer = 0;
        for part in Self::quads(fpdu) {
            pointer += self.marker(pointer, out);
            out.extend_from_slice(part);
            self.position += part.len();
            pointer += part.len();
        }
        // A marker directly after the pad belongs to this FPDU and its CRC.
        self.marker(pointer, out);
        let crc = if use_crc {
            crc::emit(crc::crc32c(&out[begin..]))
        } else {
            [0; 4]
        };
        out.extend_from_slice(&crc);
        self.position += crc.len();
    }

    /// Splits an FPDU into groups of four octets. FPDUs and the marker period are multiples of
    /// four, so that a marker never splits a group.
    fn quads(fpdu: &[u8]) -> impl Iterator<Item = &[u8]> {
        fpdu.chunks(4)
    }

    /// Appends a marker if one is due; returns by how many octets the pointer moved.
    fn marker(&mut self, pointer: usize, out: &mut Vec<u8>) -> usize {
        if !self.position.is_multiple_of(MARKER_PERIOD) {
            return 0;
        }
        // RFC 5044 §4.3: a marker before the length field points nowhere, and the distance is
        // counted from the length field, not from that marker.
        let distance = u16::try_from(pointer).unwrap_or(u16::MAX);
        out.extend_from_slice(&u32::from(distance).to_be_bytes());
        self.position = MARKER_LEN;
        if pointer == 0 { 0 } else { MARKER_LEN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Send of zeros with this sequence number and ULPDU length, framed but for its CRC.
    fn send(sequence: u8, ulpdu: u8) -> Vec<u8> {
        let mut fpdu = vec![0, ulpdu, 0x41, 0x43];
        fpdu.resize(16, 0);
        fpdu[15] = sequence;
        fpdu.resize((2 + usize::from(ulpdu)).next_multiple_of(4), 0);
        fpdu
    }

    #[test]
    fn first_fpdu_begins_with_a_marker() {
        // RFC 5044 figure 5.
        let mut out = Vec::new();
        Markers::new().frame(&send(1, 0x2a), true, &mut out);
        assert_eq!(out.len(), 0x34);
        assert_eq!(out[..8], [0, 0, 0, 0, 0, 0x2a, 0x41, 0x43]);
        assert_eq!(out[0x30..], [0x52, 0x23, 0x99, 0x83]);
    }

    #[test]
    fn marker_inside_points_to_the_length_field() {
        // RFC 5044 figure 6: the second FPDU begins at 0x1ec.
        let mut markers = Markers { position: 0x1ec };
        let mut out = Vec::new();
        markers.frame(&send(2, 0x2a), true, &mut out);
        assert_eq!(out[0x14..0x18], [0, 0, 0, 0x14]);
        assert_eq!(out.len(), 0x34);
        assert_eq!(markers.position, 0x20);
        assert_eq!(out[0x30..], [0x84, 0x92, 0x58, 0x98]);
    }

    #[test]
    fn marker_behind_the_pad_is_covered_by_the_crc_of_its_fpdu() {
        let fpdu = send(1, 0x2a);
        let mut markers = Markers {
            position: MARKER_PERIOD - fpdu.len(),
        };
        let mut out = Vec::new();
        markers.frame(&fpdu, true, &mut out);
        let crc = out.split_off(fpdu.len() + MARKER_LEN);
        assert_eq!(out[fpdu.len()..], [0, 0, 0, 0x2c]);
        assert_eq!(crc, crc::emit(crc::crc32c(&out)));
    }

    #[test]
    fn markers_of_a_long_fpdu_point_to_the_same_place() {
        let mut out = Vec::new();
        let mut fpdu = vec![7; 2048];
        fpdu[..2].copy_from_slice(&2046_u16.to_be_bytes());
        Markers::new().frame(&fpdu, false, &mut out);
        assert_eq!(out[..4], [0; 4]);
        for (n, expected) in [(1, 508), (2, 1020), (3, 1532), (4, 2044)] {
            assert_eq!(
                out[n * 512..][..4],
                u32::to_be_bytes(expected),
                "marker {n}"
            );
        }
    }

    #[test]
    fn stream_without_its_markers_is_the_fpdus() {
        let mut markers = Markers::new();
        let (mut out, mut plain) = (Vec::new(), Vec::new());
        for n in 0..200_u8 {
            let fpdu = send(n, 18 + n % 200);
            markers.frame(&fpdu, false, &mut out);
            plain.extend_from_slice(&fpdu);
            plain.extend_from_slice(&[0; 4]);
        }
        let without: Vec<u8> = out
            .chunks(512)
            .flat_map(|period| period[4..].iter().copied())
            .collect();
        assert_eq!(without, plain);
    }
}
