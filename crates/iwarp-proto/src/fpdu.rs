//! Sizes of FPDUs, and segmentation of messages (RFC 5044 §4).

/// Smallest MULPDU, however small the TCP segments are (RFC 5044 §4.5).
pub const MIN_MULPDU: usize = 128;

/// Largest ULPDU that is sent (RFC 5044 §3).
pub const MAX_MULPDU: usize = 64768;

/// Largest ULPDU that the length field can announce; all are accepted.
pub const MAX_ULPDU: usize = 65535;

/// ULPDU for software peers: 1 MiB is 17 segments of 61,696 octets behind a 14-octet header.
pub const LARGE_MULPDU: usize = 61_696 + crate::ddp::MAX_HEADER_LEN;

/// Octets of the length field that begins an FPDU.
pub const LENGTH_LEN: usize = 2;

/// Octets of the CRC field that ends an FPDU, with or without CRCs (RFC 5044 §4.1).
pub const CRC_LEN: usize = 4;

/// Octets between one marker and the next, counted from the first octet of one to the first of
/// the next (RFC 5044 §4.3).
pub const MARKER_PERIOD: usize = 512;

/// Octets of a marker.
pub const MARKER_LEN: usize = 4;

/// Segments of payload are a multiple of this, but for the last: it keeps copies aligned.
const SEGMENT_MULTIPLE: usize = 64;

/// MULPDU for an effective maximum segment size of TCP (RFC 5044 §4.5).
pub fn mulpdu(emss: usize, markers: bool) -> usize {
    let markers = if markers {
        MARKER_LEN * emss.div_ceil(MARKER_PERIOD)
    } else {
        0
    };
    emss.saturating_sub(6 + markers + emss % 4)
        .clamp(MIN_MULPDU, MAX_MULPDU)
}

/// Octets of pad that make an FPDU a multiple of four (RFC 5044 §4.1).
pub fn pad_len(ulpdu: usize) -> usize {
    (4 - (LENGTH_LEN + ulpdu) % 4) % 4
}

/// Octets of a whole FPDU, without markers.
pub fn wire_len(ulpdu: usize) -> usize {
    LENGTH_LEN + ulpdu + pad_len(ulpdu) + CRC_LEN
}

/// Octets of payload per segment, so that a message of `len` octets is cut into equal parts of at
/// most `max` octets.
///
/// Equal parts matter more than the largest: a stub at the end costs a whole FPDU.
pub fn segment_len(len: usize, max: usize) -> usize {
    if len <= max {
        return len;
    }
    let segments = len.div_ceil(max);
    let equal = len.div_ceil(segments).next_multiple_of(SEGMENT_MULTIPLE);
    if equal <= max { equal } else { max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mulpdu_of_usual_paths() {
        assert_eq!(mulpdu(1460, false), 1454);
        assert_eq!(mulpdu(1448, false), 1442);
        assert_eq!(mulpdu(1460, true), 1442);
        assert_eq!(mulpdu(8961, false), 8954);
        assert_eq!(mulpdu(88, false), MIN_MULPDU);
        assert_eq!(mulpdu(0, true), MIN_MULPDU);
        assert_eq!(mulpdu(1 << 20, false), MAX_MULPDU);
    }

    #[test]
    fn fpdu_is_a_multiple_of_four() {
        for ulpdu in 0..100 {
            assert_eq!(wire_len(ulpdu) % 4, 0);
            assert!(pad_len(ulpdu) < 4);
        }
    }

    #[test]
    fn segments_are_balanced() {
        assert_eq!(segment_len(0, 1000), 0);
        assert_eq!(segment_len(1000, 1000), 1000);
        assert_eq!(segment_len(1001, 1000), 512);
        assert_eq!(segment_len(1 << 20, LARGE_MULPDU - 14), 61_696);
        for max in [110, 1428, 8000, 61_700, 64_754] {
            for len in [1, max - 1, max, max + 1, 3 * max, 1 << 20] {
                let segment = segment_len(len, max);
                assert!(segment <= max);
                assert!(len.div_ceil(segment) <= len.div_ceil(max) + 1);
            }
        }
    }
}
