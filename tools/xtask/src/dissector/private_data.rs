//! Private data in connection setup: at any offset, of unknown versions, with reserved bits, behind the Enhanced word of
//! RFC 6581 or without it.

use anyhow::{Result, ensure};

use super::capture::Capture;
use super::conversation::{Frame, To};
use super::tshark::Tshark;
use crate::pcap;

/// The fields that tell how private data was read.
const FIELDS: [&str; 4] = [
    "rpcrdma_cm.version",
    "rpcrdma_cm.receive_size",
    "rpcrdma_cm.reserved_bits",
    "rpcrdma_cm.unknown_version",
];

/// Flags of MPA: CRC, and S of RFC 6581 with CRC.
const CRC: u8 = 0x40;
const ENHANCED: u8 = 0x50;

/// An MPA Reply, and what is to be shown of its private data: version, receive size, and whether reserved bits and an
/// unknown version are marked.
struct Sample {
    flags: u8,
    revision: u8,
    data: &'static [u8],
    shown: Option<(&'static str, Option<&'static str>, bool, bool)>,
}

const SAMPLES: [Sample; 9] = [
    Sample {
        flags: ENHANCED,
        revision: 2,
        data: b"\0\x20\0\x20\xf6\xab\x0e\x18\x01\x01\x03\x07",
        shown: Some(("1", Some("8192"), false, false)),
    },
    // Revision 2 without S has no Enhanced word (RFC 6581 §6).
    Sample {
        flags: CRC,
        revision: 2,
        data: b"\xf6\xab\x0e\x18\x01\x01\x03\x07",
        shown: Some(("1", Some("8192"), false, false)),
    },
    Sample {
        flags: CRC,
        revision: 1,
        data: b"\xf6\xab\x0e\x18\x01\x00\x03\x03",
        shown: Some(("1", Some("4096"), false, false)),
    },
    // At any octet (RFC 8797 §5.2).
    Sample {
        flags: ENHANCED,
        revision: 2,
        data: b"\0\x20\0\x20other\xf6\xab\x0e\x18\x01\x01\x03\x00more",
        shown: Some(("1", Some("1024"), false, false)),
    },
    // The search goes on behind an unknown version.
    Sample {
        flags: CRC,
        revision: 1,
        data: b"\xf6\xab\x0e\x18\x02\x01\x03\x03\xf6\xab\x0e\x18\x01\x01\x03\x01",
        shown: Some(("1", Some("2048"), false, false)),
    },
    Sample {
        flags: CRC,
        revision: 1,
        data: b"\xf6\xab\x0e\x18\x02\x01\x03\x03",
        shown: Some(("2", None, false, true)),
    },
    Sample {
        flags: CRC,
        revision: 1,
        data: b"\xf6\xab\x0e\x18\x01\x83\x03\x03",
        shown: Some(("1", Some("4096"), true, false)),
    },
    // Too short, and of others.
    Sample {
        flags: CRC,
        revision: 1,
        data: b"\xf6\xab\x0e\x18\x01\x01\x03",
        shown: None,
    },
    Sample {
        flags: ENHANCED,
        revision: 2,
        data: b"\0\x20\0\x20something else",
        shown: None,
    },
];

/// Has `tshark` read a Reply for each; how many there were.
pub(super) fn check(tshark: &Tshark) -> Result<usize> {
    for (index, sample) in SAMPLES.iter().enumerate() {
        let mut capture = Capture::new()?;
        let mut connection = capture.connect()?;
        let request = super::conversation::start(To::Server).bytes()?;
        connection.say(To::Server, &request, pcap::MAX_PAYLOAD)?;
        let length = u16::try_from(sample.data.len())?.to_be_bytes();
        let fixed = [sample.flags, sample.revision, length[0], length[1]];
        let reply = [&b"MPA ID Rep Frame"[..], &fixed, sample.data].concat();
        let reply = Frame::Start(reply).bytes()?;
        connection.say(To::Client, &reply, pcap::MAX_PAYLOAD)?;
        let file = tshark.write(&format!("private-data-{index}"), &capture.finish())?;
        let rows = tshark.rows(&file, "iwarp_mpa.rep", &FIELDS, &[])?;
        let all = |field: &str| {
            rows.iter()
                .flat_map(|row| row.all(field))
                .collect::<Vec<_>>()
        };
        let shown = all(FIELDS[0]).first().map(|version| {
            let receive = all(FIELDS[1]).first().map(|size| size.as_str());
            let marked = |field: &str| !all(field).is_empty();
            (
                version.as_str(),
                receive,
                marked(FIELDS[2]),
                marked(FIELDS[3]),
            )
        });
        ensure!(
            shown == sample.shown,
            "{}: {shown:?} is shown, not {:?}",
            file.display(),
            sample.shown
        );
    }
    Ok(SAMPLES.len())
}
