//! CRC32C, bit by bit (RFC 3720 §12.1).

/// The reflected polynomial 0x1edc6f41.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// CRC32C of these bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let out = crc & 1;
            crc >>= 1;
            if out == 1 {
                crc ^= POLYNOMIAL;
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
