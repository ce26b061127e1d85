//! Private data in connection setup: at any offset, of unknown versions, with reserved bits, behind the Enhanced word of
//! RFC 6581 or without it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::capture::Capture;
use super::conversation::{Frame, To, octets};
use super::tshark::{Row, Tshark};
use crate::pcap;

/// The fields that tell how private data was read.
const FIELDS: [&str; 4] = [
    "rpcrdma_cm.version",
    "rpcrdma_cm.receive_size",
    "rpcrdma_cm.reserved_bits",
    "rpcrdma_cm.unknown_version",
];

/// Those that show the fields of a vector.
const VECTOR_FIELDS: [&str; 4] = [
    "rpcrdma_cm.send_size",
    "rpcrdma_cm.receive_size",
    "rpcrdma_cm.remote_invalidation",
    "rpcrdma_cm.version_two",
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

/// Has `tshark` read a Reply for each sample, and for each vector; how many there were.
pub(super) fn check(tshark: &Tshark, vectors: &[Value]) -> Result<usize> {
    for (index, sample) in SAMPLES.iter().enumerate() {
        let fixed = [sample.flags, sample.revision];
        let row = read(tshark, &format!("private-data-{index}"), fixed, sample.data)?;
        let shown = row.first(FIELDS[0]).map(|version| {
            let receive = row.first(FIELDS[1]);
            let marked = |field: &str| row.first(field).is_some();
            (version, receive, marked(FIELDS[2]), marked(FIELDS[3]))
        });
        ensure!(
            shown == sample.shown,
            "private-data-{index}: {shown:?} is shown, not {:?}",
            sample.shown
        );
    }
    for (index, vector) in vectors.iter().enumerate() {
        let octets = octets(vector["octets"].as_str().context("no octets")?)?;
        let name = format!("private-data-vector-{index}");
        let row = read(tshark, &name, [CRC, 1], &octets)?;
        let fields = &vector["fields"];
        let size = |name: &str| fields[name].as_u64().map(|size| size.to_string());
        let flag = fields["remote_invalidation"].as_bool();
        let said = [
            size("send"),
            size("receive"),
            flag.map(|flag| u8::from(flag).to_string()),
            vector["announces"].as_str().map(str::to_owned),
        ];
        let shown = VECTOR_FIELDS.map(|field| {
            let value = row.first(field);
            value.map(|value| value.replace("True", "1").replace("False", "0"))
        });
        ensure!(
            shown == said,
            "{name}, {}: {shown:?}, not {said:?}",
            vector["name"]
        );
    }
    Ok(SAMPLES.len() + vectors.len())
}

/// The fields of an MPA Reply with these flags, this revision and this private data.
fn read(tshark: &Tshark, name: &str, fixed: [u8; 2], data: &[u8]) -> Result<Row> {
    let mut capture = Capture::new()?;
    let mut connection = capture.connect()?;
    let request = super::conversation::start(To::Server).bytes()?;
    connection.say(To::Server, &request, pcap::MAX_PAYLOAD)?;
    let length = u16::try_from(data.len())?.to_be_bytes();
    let reply = [&b"MPA ID Rep Frame"[..], &fixed, &length, data].concat();
    let reply = Frame::Start(reply).bytes()?;
    connection.say(To::Client, &reply, pcap::MAX_PAYLOAD)?;
    let file = tshark.write(name, &capture.finish())?;
    let fields: Vec<_> = FIELDS.into_iter().chain(VECTOR_FIELDS).collect();
    let mut rows = tshark.rows(&file, "iwarp_mpa.rep", &fields, &[])?;
    ensure!(
        rows.len() == 1,
        "{}: {} Replies",
        file.display(),
        rows.len()
    );
    rows.pop().context("no Reply")
}
