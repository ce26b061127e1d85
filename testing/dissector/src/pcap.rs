//! Captures in the pcap format, written one TCP segment over IPv4 and Ethernet at a time.

use std::time::Duration;

use anyhow::Result;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

/// Bytes of Ethernet, IPv4 and TCP headers without options.
pub const HEADERS: usize = 14 + 20 + 20;

/// The largest payload that fits an IPv4 packet with these headers.
pub const MAX_PAYLOAD: usize = 65535 - 20 - 20;

/// The largest packet of a capture.
const MAX_PACKET: u32 = 1 << 18;

/// Hops and window of packets that are made.
const HOPS: u8 = 64;
const WINDOW: u16 = u16::MAX;

/// One direction of a connection: IPv4 addresses and TCP ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The sender.
    pub source: ([u8; 4], u16),
    /// The receiver.
    pub destination: ([u8; 4], u16),
}

impl Flow {
    /// The other direction of the same connection.
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

/// Kinds of TCP segments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The first segment of the end that connects.
    Syn,
    /// The answer to it.
    SynAck,
    /// Any later segment.
    Data,
}

/// A TCP segment.
pub struct Segment<'a> {
    /// Its sender and its receiver.
    pub flow: Flow,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Its place in the connection.
    pub kind: Kind,
    /// Its bytes, without headers.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads an Ethernet frame; `None` if it is not TCP over IPv4, whole.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
            (packet.net, packet.transport)
        else {
            return None;
        };
        let ip = ip.header();
        Some(Self {
            flow: Flow {
                source: (ip.source(), tcp.source_port()),
                destination: (ip.destination(), tcp.destination_port()),
            },
            sequence: tcp.sequence_number(),
            kind: match (tcp.syn(), tcp.ack()) {
                (true, false) => Kind::Syn,
                (true, true) => Kind::SynAck,
                (false, _) => Kind::Data,
            },
            payload: tcp.payload(),
        })
    }
}

/// A capture in the making.
pub struct Capture(PcapWriter<Vec<u8>>);

impl Capture {
    /// A capture without a packet.
    ///
    /// # Errors
    ///
    /// Never, as it is written to memory.
    pub fn new() -> Result<Self> {
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            snaplen: MAX_PACKET,
            ..PcapHeader::default()
        };
        Ok(Self(PcapWriter::with_header(Vec::new(), header)?))
    }

    /// Adds a segment that acknowledges what comes before this number, unless it is a SYN. The capture holds no
    /// more than `captured` bytes of its frame.
    pub fn write(
        &mut self,
        time: Duration,
        segment: &Segment<'_>,
        acknowledged: u32,
        captured: usize,
    ) -> Result<()> {
        let Flow {
            source,
            destination,
        } = segment.flow;
        let tcp = PacketBuilder::ethernet2([0; 6], [0; 6])
            .ipv4(source.0, destination.0, HOPS)
            .tcp(source.1, destination.1, segment.sequence, WINDOW);
        let tcp = match segment.kind {
            Kind::Syn => tcp.syn(),
            Kind::SynAck => tcp.syn().ack(acknowledged),
            Kind::Data => tcp.psh().ack(acknowledged),
        };
        let mut frame = Vec::with_capacity(tcp.size(segment.payload.len()));
        tcp.write(&mut frame, segment.payload)?;
        let whole = u32::try_from(frame.len())?;
        frame.truncate(captured);
        self.0
            .write_packet(&PcapPacket::new_owned(time, whole, frame))?;
        Ok(())
    }

    /// The bytes of the file.
    pub fn finish(self) -> Vec<u8> {
        self.0.into_writer()
    }
}
