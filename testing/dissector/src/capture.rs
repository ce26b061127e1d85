//! Captures of made TCP connections, in the pcap format.

use std::time::Duration;

use super::conversation::To;
use crate::pcap::{self, Flow, Kind, Segment};
use anyhow::{Context, Result};

/// The server's TCP port: the one that is registered for NFS over RDMA.
pub(super) const SERVER_PORT: u16 = 20049;

/// The client port of the first connection; each further one has the next.
const FIRST_CLIENT_PORT: u16 = 33000;

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [192, 0, 2, 2];

/// The time between two packets.
const STEP: Duration = Duration::from_micros(10);

/// A capture in the making.
pub(super) struct Capture {
    file: pcap::Capture,
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
        Ok(Self {
            file: pcap::Capture::new()?,
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
        self.file.finish()
    }
}

impl Connection<'_> {
    /// Sends bytes, in segments of at most `segment` bytes of payload.
    pub(super) fn say(&mut self, to: To, bytes: &[u8], segment: usize) -> Result<()> {
        for piece in bytes.chunks(segment) {
            self.packet(to, Kind::Data, piece, usize::MAX)?;
        }
        Ok(())
    }

    /// Sends bytes in one segment, of which the capture holds no more than `captured` bytes of its
    /// frame.
    pub(super) fn say_cut(&mut self, to: To, bytes: &[u8], captured: usize) -> Result<()> {
        self.packet(to, Kind::Data, bytes, captured)
    }

    fn packet(&mut self, to: To, kind: Kind, payload: &[u8], captured: usize) -> Result<()> {
        let (from, peer) = match to {
            To::Server => (0, 1),
            To::Client => (1, 0),
        };
        let ends = [(CLIENT, self.client_port), (SERVER, SERVER_PORT)];
        let segment = Segment {
            flow: Flow {
                source: ends[from],
                destination: ends[peer],
            },
            sequence: self.next[from],
            kind,
            payload,
        };
        let advance = match kind {
            Kind::Syn | Kind::SynAck => 1,
            Kind::Data => payload.len(),
        };
        self.next[from] = segment.sequence.wrapping_add(u32::try_from(advance)?);
        self.capture.time += STEP;
        let (time, acknowledged) = (self.capture.time, self.next[peer]);
        self.capture
            .file
            .write(time, &segment, acknowledged, captured)
    }
}
