//! The bytes of a minimal client: it sets up MPA without CRCs and calls NULL of NFSv3.
//!
//! It is apart from the crates under test, so that what they get wrong it does not, and so that a
//! connection costs little more than its socket.

use anyhow::{Result, bail, ensure};

/// Number of credits that each connection asks for, and is to be granted.
pub(super) const CREDITS: u32 = 128;

/// An MPA Request Frame of revision 1 without markers, CRCs and private data (RFC 5044 §7.1).
pub(super) const REQUEST: [u8; FRAME] = *b"MPA ID Req Frame\x00\x01\x00\x00";

/// Bytes of an MPA frame before its private data.
const FRAME: usize = 20;

/// Bytes of private data that a reply may have at most (RFC 5044 §7.1).
const MAX_PRIVATE_DATA: usize = 512;

/// Bytes of an untagged DDP header with that of RDMAP (RFC 5041 §4.3, RFC 5040 §4.1).
const UNTAGGED: usize = 18;

/// Offset of the XID in an FPDU with a reply: behind its length and the headers of DDP and RDMAP.
const XID: usize = 2 + UNTAGGED;
const GRANT: usize = XID + 8;
const PROCEDURE: usize = XID + 12;
/// Behind a header of RPC-over-RDMA without chunks.
const MESSAGE: usize = XID + 28;
const MESSAGE_TYPE: usize = MESSAGE + 4;
const REPLY_STATUS: usize = MESSAGE + 8;
const ACCEPT_STATUS: usize = MESSAGE + 20;

/// Bytes of an FPDU with the reply to a NULL, from its length to its CRC field.
pub(super) const REPLY_FPDU: usize = MESSAGE + 24 + 4;

/// Bytes of an FPDU with a NULL.
const CALL_FPDU: usize = MESSAGE + 40 + 4;

/// An answer to a request: how many bytes it takes, once it is whole.
///
/// # Errors
///
/// It is none, refuses the connection, or wants what this client cannot do.
pub(super) fn setup_reply(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(frame) = bytes.first_chunk::<FRAME>() else {
        return Ok(None);
    };
    ensure!(frame.starts_with(b"MPA ID Rep Frame"), "no MPA Reply Frame");
    let flags = frame[16];
    ensure!(flags & 0x20 == 0, "the connection is refused");
    ensure!(flags & 0xc0 == 0, "markers or CRCs are wanted");
    let len = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
    ensure!(len <= MAX_PRIVATE_DATA, "{len} bytes of private data");
    let whole = FRAME + len;
    Ok((bytes.len() >= whole).then_some(whole))
}

/// The FPDU with a NULL: its `number` on this connection, from one, is its XID and MSN.
pub(super) fn call(number: u32) -> [u8; CALL_FPDU] {
    // Untagged, last, versions 1, a Send to queue 0.
    let words = [
        // For RDMAP; then queue, MSN and offset.
        [0, 0, number, 0].as_slice(),
        // RDMA_MSG of version one without chunks (RFC 8166 §4.1).
        &[number, 1, CREDITS, 0, 0, 0, 0],
        // NULL of NFSv3 without credentials (RFC 5531 §9).
        &[number, 0, 2, 100_003, 3, 0, 0, 0, 0, 0],
    ]
    .concat();
    let mut fpdu = [0; CALL_FPDU];
    let ulpdu = CALL_FPDU - 6;
    fpdu[..2].copy_from_slice(&u16::try_from(ulpdu).unwrap_or(0).to_be_bytes());
    fpdu[2..4].copy_from_slice(&[0x41, 0x43]);
    for (at, word) in fpdu[4..].chunks_exact_mut(4).zip(words) {
        at.copy_from_slice(&word.to_be_bytes());
    }
    fpdu
}

/// The reply to the NULL of this number: the credits that it grants, once it is whole.
///
/// # Errors
///
/// It is something else.
pub(super) fn reply(bytes: &[u8], number: u32) -> Result<Option<u32>> {
    if bytes.len() < REPLY_FPDU {
        return Ok(None);
    }
    let word = |at: usize| {
        let word = bytes[at..].first_chunk().copied().unwrap_or_default();
        u32::from_be_bytes(word)
    };
    let len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let opcode = bytes[3] & 0x0f;
    if len != REPLY_FPDU - 6 || opcode != 3 {
        bail!("{len} bytes of RDMAP opcode {opcode}");
    }
    ensure!(word(XID) == number, "XID {} for {number}", word(XID));
    let accepted = word(PROCEDURE) == 0
        && word(MESSAGE_TYPE) == 1
        && word(REPLY_STATUS) == 0
        && word(ACCEPT_STATUS) == 0;
    ensure!(accepted, "a NULL fails");
    Ok(Some(word(GRANT)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A good reply to the NULL of this number.
    pub(in crate::scale) fn reply_to(number: u32, grant: u32) -> Vec<u8> {
        let words: Vec<u32> = [
            &[0, 0, 1, 0][..],
            &[number, 1, grant, 0, 0, 0, 0],
            &[number, 1, 0, 0, 0, 0],
            &[0],
        ]
        .concat();
        let mut bytes = vec![0, 70, 0x41, 0x43];
        bytes.extend(words.into_iter().flat_map(u32::to_be_bytes));
        bytes
    }

    #[test]
    fn reply_to_a_null_is_told_from_everything_else() {
        let good = reply_to(7, 128);
        assert_eq!(good.len(), REPLY_FPDU);
        assert_eq!(reply(&good, 7).unwrap(), Some(128));
        assert_eq!(reply(&good[..REPLY_FPDU - 1], 7).unwrap(), None);
        assert!(reply(&good, 8).is_err());
        for at in [
            1,
            3,
            PROCEDURE + 3,
            MESSAGE_TYPE + 3,
            REPLY_STATUS + 3,
            ACCEPT_STATUS + 3,
        ] {
            let mut bad = good.clone();
            bad[at] ^= 2;
            assert!(reply(&bad, 7).is_err(), "byte {at}");
        }
    }

    #[test]
    fn mpa_reply_is_accepted_if_it_has_no_unknown_flags() {
        let frame = |flags: u8, len: u8| {
            let mut bytes = b"MPA ID Rep Frame".to_vec();
            bytes.extend([flags, 1, 0, len]);
            bytes
        };
        assert_eq!(setup_reply(&frame(0, 0)).unwrap(), Some(20));
        assert_eq!(setup_reply(&frame(0, 0)[..19]).unwrap(), None);
        assert_eq!(setup_reply(&frame(0, 8)).unwrap(), None);
        let with_data = [frame(0, 8), vec![0; 9]].concat();
        assert_eq!(setup_reply(&with_data).unwrap(), Some(28));
        for flags in [0x20, 0x40, 0x80] {
            assert!(setup_reply(&frame(flags, 0)).is_err(), "{flags:x}");
        }
        assert!(setup_reply(b"HTTP/1.0 400 Bad Request").is_err());
        let mut long = frame(0, 0);
        long[18] = 3;
        assert!(setup_reply(&long).is_err());
    }

    #[test]
    fn a_null_has_its_number_as_xid_and_msn() {
        let bytes = call(0x0102_0304);
        assert_eq!(usize::from(bytes[1]), bytes.len() - 6);
        for at in [12, XID, MESSAGE] {
            assert_eq!(bytes[at..at + 4], [1, 2, 3, 4], "at {at}");
        }
    }
}
