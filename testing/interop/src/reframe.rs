//! Captures rewritten so that every message has a frame of its own.
//!
//! TCP cuts the stream where it likes, and Wireshark's RPC-over-RDMA dissector keeps its state by
//! frame: it takes one message of a frame and loses the others. And what it prints about a frame does
//! not tell which of several messages it is about. The bytes of the stream stay what they are; only
//! the cuts between TCP segments move to where a message ends.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;

use dissector::pcap::{Capture, Flow, Kind, MAX_PAYLOAD, Segment};

/// Framing of the messages of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// MPA's Request and Reply, and then FPDUs (RFC 5044 §4).
    Mpa,
    /// RPC messages behind record marks (RFC 5531 §11), each in one fragment, as Linux sends them.
    RecordMarks,
}

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
    let mut reader = PcapReader::new(capture).context("not a capture")?;
    ensure!(
        reader.header().datalink == DataLink::ETHERNET,
        "not a capture of Ethernet"
    );
    let mut rewriter = Rewriter::new(port, framing)?;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.context("a cut capture")?;
        if let Some(segment) = Segment::parse(&packet.data)
            && (segment.flow.source.1 == port || segment.flow.destination.1 == port)
        {
            rewriter.take(packet.timestamp, &segment)?;
        }
    }
    Ok(rewriter.out.finish())
}

/// How far one direction of a connection has come.
struct Position {
    /// Of the next byte to be written.
    sequence: u32,
    /// Bytes that came and are not a whole message yet.
    waiting: Vec<u8>,
    /// The first message has gone by: MPA's Request or Reply, if it is MPA.
    started: bool,
}

struct Rewriter {
    port: u16,
    framing: Framing,
    out: Capture,
    positions: HashMap<Flow, Position>,
}

impl Rewriter {
    fn new(port: u16, framing: Framing) -> Result<Self> {
        Ok(Self {
            port,
            framing,
            out: Capture::new()?,
            positions: HashMap::new(),
        })
    }

    fn take(&mut self, time: Duration, segment: &Segment<'_>) -> Result<()> {
        if segment.kind != Kind::Data {
            self.write(time, segment.flow, segment.sequence, segment.kind, &[])?;
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

    fn write_whole_messages(&mut self, time: Duration, flow: Flow) -> Result<()> {
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
                self.write(time, flow, sequence, Kind::Data, piece)?;
                sequence = sequence.wrapping_add(u32::try_from(piece.len())?);
            }
        }
    }

    fn write(
        &mut self,
        time: Duration,
        flow: Flow,
        sequence: u32,
        kind: Kind,
        payload: &[u8],
    ) -> Result<()> {
        let peer = self.positions.get(&flow.reversed());
        let acknowledged = peer.map_or(0, |peer| peer.sequence);
        let segment = Segment {
            flow,
            sequence,
            kind,
            payload,
        };
        self.out.write(time, &segment, acknowledged, usize::MAX)
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
        let mut made = Rewriter::new(4711, Framing::Mpa).unwrap();
        let time = Duration::ZERO;
        made.write(time, CLIENT, FIRST, Kind::Syn, &[]).unwrap();
        for (offset, payload) in segments {
            let sequence = FIRST.wrapping_add(1 + offset);
            made.write(time, CLIENT, sequence, Kind::Data, payload)
                .unwrap();
        }
        made.out.finish()
    }

    fn payloads(capture: &[u8]) -> Vec<Vec<u8>> {
        let mut reader = PcapReader::new(capture).unwrap();
        let mut found = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.unwrap();
            found.push(Segment::parse(&packet.data).unwrap().payload.to_vec());
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
