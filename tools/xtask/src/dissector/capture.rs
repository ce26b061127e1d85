//! Captures of made TCP connections, in the pcap format.

use std::time::Duration;

use anyhow::{Context, Result};
use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

use super::conversation::To;

/// The server's TCP port: the one that is registered for NFS over RDMA.
pub(super) const SERVER_PORT: u16 = 20049;

/// The client port of the first connection; each further one has the next.
const FIRST_CLIENT_PORT: u16 = 33000;

/// The largest payload of an IPv4 packet with a TCP header without options.
pub(super) const MAX_PAYLOAD: usize = 65535 - 20 - 20;

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [192, 0, 2, 2];
const HOPS: u8 = 64;
const WINDOW: u16 = u16::MAX;

/// The time between two packets.
const STEP: Duration = Duration::from_micros(10);

/// A capture in the making.
pub(super) struct Capture {
    writer: PcapWriter<Vec<u8>>,
    time: Duration,
    connections: u16,
}

/// One connection of a capture.
pub(super) struct Connection<'a> {
    capture: &'a mut Capture,
    client_port: u16,
    /// The next sequence number of the client, and of the server.
    next: [u32; 2],
}

impl Capture {
    pub(super) fn new() -> Result<Self> {
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ..PcapHeader::default()
        };
        Ok(Self {
            writer: PcapWriter::with_header(Vec::new(), header)?,
            time: Duration::from_secs(1),
            connections: 0,
        })
    }

    /// Begins a connection, with TCP's three packets.
    pub(super) fn connect(&mut self) -> Result<Connection<'_>> {
        let client_port = FIRST_CLIENT_PORT
            .checked_add(self.connections)
            .context("more connections than ports")?;
        self.connections += 1;
        let mut connection = Connection {
            capture: self,
            client_port,
            next: [0, 0],
        };
        connection.packet(To::Server, Kind::Syn, &[], usize::MAX)?;
        connection.packet(To::Client, Kind::SynAck, &[], usize::MAX)?;
        connection.packet(To::Server, Kind::Data, &[], usize::MAX)?;
        Ok(connection)
    }

    /// The bytes of the file.
    pub(super) fn finish(self) -> Vec<u8> {
        self.writer.into_writer()
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Syn,
    SynAck,
    Data,
}

impl Connection<'_> {
    /// Sends bytes, in segments of at most `segment` bytes of payload.
    pub(super) fn say(&mut self, to: To, bytes: &[u8], segment: usize) -> Result<()> {
        for piece in bytes.chunks(segment) {
            self.packet(to, Kind::Data, piece, usize::MAX)?;
        }
        Ok(())
    }

    /// Sends bytes in one segment, of which the capture holds no more than `captured` bytes.
    pub(super) fn say_cut(&mut self, to: To, bytes: &[u8], captured: usize) -> Result<()> {
        self.packet(to, Kind::Data, bytes, captured)
    }

    fn packet(&mut self, to: To, kind: Kind, payload: &[u8], captured: usize) -> Result<()> {
        let (from, peer) = match to {
            To::Server => (0, 1),
            To::Client => (1, 0),
        };
        let addresses = [CLIENT, SERVER];
        let ports = [self.client_port, SERVER_PORT];
        let (sequence, acknowledged) = (self.next[from], self.next[peer]);
        let tcp = PacketBuilder::ipv4(addresses[from], addresses[peer], HOPS).tcp(
            ports[from],
            ports[peer],
            sequence,
            WINDOW,
        );
        let (tcp, advance) = match kind {
            Kind::Syn => (tcp.syn(), 1),
            Kind::SynAck => (tcp.syn().ack(acknowledged), 1),
            Kind::Data => (tcp.psh().ack(acknowledged), payload.len()),
        };
        self.next[from] = sequence.wrapping_add(u32::try_from(advance)?);
        let mut packet = Vec::with_capacity(tcp.size(payload.len()));
        tcp.write(&mut packet, payload)?;
        let whole = u32::try_from(packet.len())?;
        packet.truncate(captured);
        self.capture.time += STEP;
        let record = PcapPacket::new(self.capture.time, whole, &packet);
        self.capture.writer.write_packet(&record)?;
        Ok(())
    }
}
