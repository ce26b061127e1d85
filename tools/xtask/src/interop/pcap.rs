//! Captures rewritten so that every message has a frame of its own.
//!
//! TCP cuts the stream where it likes, and Wireshark's RPC-over-RDMA dissector keeps its state by
//! frame: it takes one message of a frame and loses the others. And what it prints about a frame does
//! not tell which of several messages it is about. The bytes of the stream stay what they are; only
//! the cuts between TCP segments move to where a message ends.

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};

/// Of a capture with microseconds, as QEMU writes it: in the host's byte order.
const MAGIC: u32 = 0xa1b2_c3d4;

const ETHERNET: u32 = 1;

/// Bytes of Ethernet, IPv4 and TCP headers without options.
const ETHERNET_HEADER: usize = 14;
const IP_HEADER: usize = 20;
const TCP_HEADER: usize = 20;

/// The largest payload that fits an IPv4 packet with these headers.
const MAX_PAYLOAD: usize = 65535 - IP_HEADER - TCP_HEADER;

const PROTOCOL_TCP: u8 = 6;

/// What the messages of a stream are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// MPA's Request and Reply, and then FPDUs (RFC 5044 §4).
    Mpa,
    /// RPC messages behind record marks (RFC 5531 §11), each in one fragment, as Linux sends them.
    RecordMarks,
}

const SYN: u8 = 0x02;
const PSH_ACK: u8 = 0x18;

/// Bytes of an MPA Request or Reply before its private data (RFC 5044 §7.1.1).
const MPA_START: usize = 20;
const MPA_START_PREFIX: &[u8] = b"MPA ID";

/// Bytes of an FPDU's length field and of its CRC.
const FPDU_LENGTH: usize = 2;
const FPDU_CRC: usize = 4;

/// Bytes of a record mark, and the bit in it that says that the message ends with this fragment.
const RECORD_MARK: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// The connections to TCP port `port` in a capture, one message per TCP segment; one that fits no
/// packet has several segments to itself. Everything else is left out.
///
/// # Errors
///
/// It is not such a capture, bytes of a connection are missing, or a connection is not framed so.
pub(super) fn frame_by_frame(capture: &[u8], port: u16, framing: Framing) -> Result<Vec<u8>> {
    let mut rewriter = Rewriter {
        port,
        framing,
        out: header(),
        positions: HashMap::new(),
    };
    ensure!(
        capture.get(..24).is_some_and(is_known),
        "not a capture as QEMU writes it"
    );
    let mut rest = &capture[24..];
    while !rest.is_empty() {
        let (record, after) = rest.split_at_checked(16).context("a cut capture")?;
        let length = usize::try_from(number(record, 8))?;
        let (packet, after) = after.split_at_checked(length).context("a cut capture")?;
        rest = after;
        if let Some(segment) = Segment::parse(packet)
            && (segment.flow.source.1 == port || segment.flow.destination.1 == port)
        {
            rewriter.take(&record[..8], &segment)?;
        }
    }
    Ok(rewriter.out)
}

fn header() -> Vec<u8> {
    let version = 2_u32 | 4 << 16;
    [MAGIC, version, 0, 0, 1 << 18, ETHERNET]
        .iter()
        .flat_map(|field| field.to_ne_bytes())
        .collect()
}

fn is_known(header: &[u8]) -> bool {
    number(header, 0) == MAGIC && number(header, 20) == ETHERNET
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Flow {
    source: ([u8; 4], u16),
    destination: ([u8; 4], u16),
}

impl Flow {
    fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

/// A TCP segment of a capture.
struct Segment<'a> {
    flow: Flow,
    sequence: u32,
    flags: u8,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads an Ethernet frame; `None` if it is not TCP over IPv4, whole.
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let (ethernet, ip) = frame.split_at_checked(ETHERNET_HEADER)?;
        if ethernet[12..] != [0x08, 0x00] || *ip.get(9)? != PROTOCOL_TCP {
            return None;
        }
        // Behind a short packet Ethernet may have padding.
        let total = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
        let tcp = ip.get(usize::from(ip[0] & 0x0f) * 4..total)?;
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let address = |at: usize| ip.get(at..at + 4)?.try_into().ok();
        Some(Self {
            flow: Flow {
                source: (address(12)?, port(0)?),
                destination: (address(16)?, port(2)?),
            },
            sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            flags: *tcp.get(13)?,
            payload: tcp.get(usize::from(tcp[12] >> 4) * 4..)?,
        })
    }
}

/// How far one direction of a connection has come.
struct Position {
    /// Of the next byte to be written.
    sequence: u32,
    /// What came and is not a whole message yet.
    waiting: Vec<u8>,
    /// The first message has gone by: MPA's Request or Reply, if it is MPA.
    started: bool,
}

struct Rewriter {
    port: u16,
    framing: Framing,
    out: Vec<u8>,
    positions: HashMap<Flow, Position>,
}

impl Rewriter {
    fn take(&mut self, time: &[u8], segment: &Segment<'_>) -> Result<()> {
        if segment.flags & SYN != 0 {
            self.write(time, segment.flow, segment.sequence, segment.flags, &[]);
            let sequence = segment.sequence.wrapping_add(1);
            let position = Position {
                sequence,
                waiting: Vec::new(),
                started: false,
            };
            self.positions.insert(segment.flow, position);
            return Ok(());
        }
        let Some(position) = self.positions.get_mut(&segment.flow) else {
            bail!(
                "a connection to port {} began before the capture",
                self.port
            );
        };
        let came = position
            .sequence
            .wrapping_add(u32::try_from(position.waiting.len())?);
        // What was seen before is a retransmission; what lies ahead means that bytes are missing.
        let behind = came.wrapping_sub(segment.sequence);
        if segment.payload.is_empty() || behind > u32::MAX / 2 {
            ensure!(
                segment.payload.is_empty(),
                "the capture lacks bytes of a connection"
            );
            return Ok(());
        }
        let new = segment
            .payload
            .get(usize::try_from(behind)?..)
            .unwrap_or_default();
        position.waiting.extend_from_slice(new);
        self.write_whole_messages(time, segment.flow)
    }

    fn write_whole_messages(&mut self, time: &[u8], flow: Flow) -> Result<()> {
        loop {
            let position = self
                .positions
                .get_mut(&flow)
                .expect("the caller has found it");
            let length = match self.framing.length(position)? {
                Some(length) if length <= position.waiting.len() => length,
                _ => return Ok(()),
            };
            let message: Vec<u8> = position.waiting.drain(..length).collect();
            let mut sequence = position.sequence;
            position.sequence = sequence.wrapping_add(u32::try_from(length)?);
            position.started = true;
            for piece in message.chunks(MAX_PAYLOAD) {
                self.write(time, flow, sequence, PSH_ACK, piece);
                sequence = sequence.wrapping_add(u32::try_from(piece.len())?);
            }
        }
    }

    fn write(&mut self, time: &[u8], flow: Flow, sequence: u32, flags: u8, payload: &[u8]) {
        let acknowledged = self
            .positions
            .get(&flow.reversed())
            .map_or(0, |peer| peer.sequence);
        let in_ip = u16::try_from(IP_HEADER + TCP_HEADER + payload.len()).expect("MAX_PAYLOAD");
        let captured = u32::from(in_ip) + 14;
        self.out.extend_from_slice(time);
        self.out.extend_from_slice(&captured.to_ne_bytes());
        self.out.extend_from_slice(&captured.to_ne_bytes());
        self.out.extend_from_slice(&[0; 12]);
        self.out.extend_from_slice(&[0x08, 0x00]);
        // Version and header length, no service, the length, no fragment, 64 hops, no checksum.
        self.out.extend_from_slice(&[0x45, 0]);
        self.out.extend_from_slice(&in_ip.to_be_bytes());
        self.out
            .extend_from_slice(&[0, 0, 0, 0, 64, PROTOCOL_TCP, 0, 0]);
        self.out.extend_from_slice(&flow.source.0);
        self.out.extend_from_slice(&flow.destination.0);
        self.out.extend_from_slice(&flow.source.1.to_be_bytes());
        self.out
            .extend_from_slice(&flow.destination.1.to_be_bytes());
        self.out.extend_from_slice(&sequence.to_be_bytes());
        self.out.extend_from_slice(&acknowledged.to_be_bytes());
        // The header's length, the flags, a full window, no checksum, nothing urgent.
        self.out
            .extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        self.out.extend_from_slice(payload);
    }
}

impl Framing {
    /// Bytes of the message that begins what waits; `None` if that is not known yet.
    fn length(self, position: &Position) -> Result<Option<usize>> {
        match self {
            Self::Mpa => mpa_length(position),
            Self::RecordMarks => record_length(&position.waiting),
        }
    }
}

fn mpa_length(position: &Position) -> Result<Option<usize>> {
    let waiting = position.waiting.as_slice();
    let length_at = |at: usize| {
        let field = waiting.get(at..at + 2)?.try_into().ok()?;
        Some(usize::from(u16::from_be_bytes(field)))
    };
    if position.started {
        let padded = |ulpdu: usize| (FPDU_LENGTH + ulpdu).next_multiple_of(4) + FPDU_CRC;
        return Ok(length_at(0).map(padded));
    }
    let compared = waiting.len().min(MPA_START_PREFIX.len());
    ensure!(
        waiting[..compared] == MPA_START_PREFIX[..compared],
        "a connection that is not MPA"
    );
    Ok(length_at(MPA_START - 2).map(|private_data| MPA_START + private_data))
}

fn record_length(waiting: &[u8]) -> Result<Option<usize>> {
    let Some(mark) = waiting.first_chunk() else {
        return Ok(None);
    };
    let mark = u32::from_be_bytes(*mark);
    ensure!(mark & LAST_FRAGMENT != 0, "a message in several fragments");
    let length = usize::try_from(mark & !LAST_FRAGMENT)?;
    Ok(Some(RECORD_MARK + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Flow = Flow {
        source: ([10, 0, 2, 15], 1000),
        destination: ([10, 0, 2, 2], 4711),
    };
    const FIRST: u32 = u32::MAX - 5;

    /// A capture of one direction: each payload a segment, at its distance behind the SYN.
    fn capture(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut made = Rewriter {
            port: 4711,
            framing: Framing::Mpa,
            out: header(),
            positions: HashMap::new(),
        };
        made.write(&[0; 8], CLIENT, FIRST, SYN, &[]);
        for (offset, payload) in segments {
            made.write(
                &[0; 8],
                CLIENT,
                FIRST.wrapping_add(1 + offset),
                PSH_ACK,
                payload,
            );
        }
        made.out
    }

    fn payloads(capture: &[u8]) -> Vec<Vec<u8>> {
        let mut rest = &capture[24..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let end = 16 + usize::try_from(number(rest, 8)).unwrap();
            found.push(Segment::parse(&rest[16..end]).unwrap().payload.to_vec());
            rest = &rest[end..];
        }
        found
    }

    fn rewritten(capture: &[u8], port: u16) -> Result<Vec<u8>> {
        frame_by_frame(capture, port, Framing::Mpa)
    }

    /// A Request without private data, an FPDU of 3 bytes and one of 1: 20, 12 and 8 bytes.
    fn stream() -> Vec<u8> {
        let mut bytes = b"MPA ID Req Frame\x40\x01\x00\x00".to_vec();
        bytes.extend_from_slice(b"\x00\x03abc\0\0\0CRC1");
        bytes.extend_from_slice(b"\x00\x01d\0CRC2");
        bytes
    }

    #[test]
    fn every_mpa_frame_gets_a_segment_of_its_own() {
        let stream = stream();
        for cut in [1, 17, 19, 20, 21, 30, 33, 39] {
            let (head, tail) = stream.split_at(cut);
            let offset = u32::try_from(cut).unwrap();
            let made = rewritten(&capture(&[(0, head), (offset, tail)]), 4711).unwrap();
            let lengths: Vec<_> = payloads(&made).iter().map(Vec::len).collect();
            assert_eq!(lengths, [0, 20, 12, 8], "cut at {cut}");
            assert_eq!(payloads(&made).concat(), stream);
        }
    }

    #[test]
    fn every_rpc_message_has_segments_of_its_own() {
        let mut stream = b"\x80\0\0\x03one\x80\x01\0\0".to_vec();
        stream.resize(stream.len() + 0x10000, 7);
        stream.extend_from_slice(b"\x80\0\0\x01x");
        let cut = stream.len() - 3;
        let pieces = [
            (0, &stream[..5]),
            (5, &stream[5..9]),
            (9, &stream[9..60_000]),
        ];
        let rest = [
            (60_000, &stream[60_000..cut]),
            (u32::try_from(cut).unwrap(), &stream[cut..]),
        ];
        let capture = capture(&[pieces.as_slice(), &rest].concat());
        let made = frame_by_frame(&capture, 4711, Framing::RecordMarks).unwrap();
        let lengths: Vec<_> = payloads(&made).iter().map(Vec::len).collect();
        assert_eq!(lengths, [0, 7, MAX_PAYLOAD, 0x10004 - MAX_PAYLOAD, 5]);
        assert_eq!(payloads(&made).concat(), stream);
        let fragment = self::capture(&[(0, b"\0\0\0\x03one")]);
        assert!(frame_by_frame(&fragment, 4711, Framing::RecordMarks).is_err());
    }

    #[test]
    fn retransmissions_are_left_out_and_gaps_are_an_error() {
        let stream = stream();
        let again = [
            (0, &stream[..25]),
            (10, &stream[10..30]),
            (0, &stream[..5]),
            (5, &stream[5..]),
        ];
        let made = rewritten(&capture(&again), 4711).unwrap();
        assert_eq!(payloads(&made).concat(), stream);
        assert!(rewritten(&capture(&[(0, &stream[..20]), (21, &stream[21..])]), 4711).is_err());
    }

    #[test]
    fn other_ports_are_left_out() {
        let made = rewritten(&capture(&[(0, &stream())]), 4712).unwrap();
        assert!(payloads(&made).is_empty());
    }

    #[test]
    fn invalid_captures_are_errors() {
        assert!(rewritten(b"nothing", 4711).is_err());
        assert!(rewritten(&capture(&[(0, b"GET / HTTP/1.1\r\n")]), 4711).is_err());
        let whole = capture(&[(0, &stream())]);
        assert!(rewritten(&whole[..whole.len() - 1], 4711).is_err());
    }
}
