//! Two endpoints in memory, and one endpoint against made-up octets.

#![allow(clippy::cast_possible_truncation)]

mod conversation;
mod hostile;
mod memory;
mod parts;
mod several;
mod stream;
mod wire;

use super::*;
use crate::ddp::Header;
use crate::terminate::{Cause, Terminate};
use bytes::Bytes;
use std::io::IoSlice;
use verbs::{Buffer, Gather, Loss, RemoteAddress, Segment};

pub(super) fn config(role: Role) -> EndpointConfig {
    EndpointConfig {
        role,
        crc: true,
        strict: false,
        markers: false,
        ird: 4,
        ord: 4,
        receives: 64,
        shared_receives: None,
        pool: Pool::new(1 << 20),
        max_ulpdu: fpdu::LARGE_MULPDU,
        rtr: None,
        invalidations: 1,
        seed: [match role {
            Role::Initiator => 1,
            Role::Responder => 2,
        }; 32],
    }
}

/// Octets that tell where they are from.
pub(super) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub(super) fn buffer(bytes: &[u8]) -> Buffer {
    Buffer::from(bytes.to_vec())
}

pub(super) fn gather(bytes: Vec<u8>) -> Gather {
    [Bytes::from(bytes)].into_iter().collect()
}

pub(super) fn sink(len: usize) -> Memory {
    Memory::Sink(Buffer::with_capacity(len))
}

pub(super) fn send(wr: u64, bytes: &[u8]) -> WorkRequest {
    send_from(wr, bytes, &[])
}

/// One message of a buffer and of octets by reference.
pub(super) fn send_from(wr: u64, head: &[u8], rest: &[u8]) -> WorkRequest {
    WorkRequest::Send {
        wr: WrId(wr),
        buffer: buffer(head),
        rest: gather(rest.to_vec()),
        invalidate: None,
    }
}

pub(super) fn receive(wr: u64, capacity: usize) -> WorkRequest {
    WorkRequest::Receive {
        wr: WrId(wr),
        buffer: Buffer::with_capacity(capacity),
    }
}

pub(super) fn write(wr: u64, bytes: Vec<u8>, handle: Handle, offset: u64) -> WorkRequest {
    WorkRequest::Write {
        wr: WrId(wr),
        source: gather(bytes),
        to: RemoteAddress { handle, offset },
    }
}

pub(super) fn read(wr: u64, capacity: usize, from: &[Segment]) -> WorkRequest {
    WorkRequest::Read {
        wr: WrId(wr),
        sink: Buffer::with_capacity(capacity),
        from: from.iter().copied().collect(),
    }
}

/// Everything an endpoint has to send now, at most `most` octets per call.
pub(super) fn output(endpoint: &mut Endpoint, most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while endpoint.has_output() {
        endpoint
            .send_with(|slices| Ok(take(slices, most, &mut out)))
            .unwrap();
    }
    out
}

fn take(slices: &[IoSlice<'_>], most: usize, out: &mut Vec<u8>) -> usize {
    let before = out.len();
    for slice in slices {
        let left = most - (out.len() - before);
        out.extend_from_slice(&slice[..slice.len().min(left)]);
    }
    out.len() - before
}

pub(super) fn completions(endpoint: &mut Endpoint) -> Vec<Completion> {
    std::iter::from_fn(|| endpoint.poll_cq()).collect()
}

/// The FPDUs of a stream without markers.
pub(super) fn fpdus(mut stream: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(length) = stream.first_chunk() {
        let ulpdu = usize::from(u16::from_be_bytes(*length));
        let segment = &stream[2..2 + ulpdu];
        let header = Header::read(segment).unwrap();
        found.push((header, segment[header.wire_len()..].to_vec()));
        stream = &stream[fpdu::wire_len(ulpdu)..];
    }
    found
}

/// The Terminate at the end of a stream.
pub(super) fn terminate_in(stream: &[u8]) -> Option<Terminate> {
    let (header, payload) = fpdus(stream).pop()?;
    matches!(header, Header::Untagged { queue: 2, .. }).then(|| Terminate::parse(&payload).unwrap())
}

/// Both ends of a connection, and what is on its way.
pub(super) struct Pair {
    pub(super) a: Endpoint,
    pub(super) b: Endpoint,
    /// Octets per call of the socket.
    pub(super) piece: usize,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With both ends configured alike, but for their roles.
    pub(super) fn with(change: impl Fn(&mut EndpointConfig)) -> Self {
        let end = |role| {
            let mut config = config(role);
            change(&mut config);
            Endpoint::new(config)
        };
        Self {
            a: end(Role::Initiator),
            b: end(Role::Responder),
            piece: usize::MAX,
        }
    }

    /// Moves octets until both ends are quiet.
    pub(super) fn drive(&mut self) {
        loop {
            let there = output(&mut self.a, self.piece);
            for piece in there.chunks(self.piece.min(1 << 20)) {
                self.b.recv_slice(piece);
            }
            let back = output(&mut self.b, self.piece);
            for piece in back.chunks(self.piece.min(1 << 20)) {
                self.a.recv_slice(piece);
            }
            if there.is_empty() && back.is_empty() {
                return;
            }
        }
    }

    /// Lets the responder hear something, so that it may speak.
    pub(super) fn introduce(&mut self) {
        self.a.nudge();
        self.drive();
    }
}

/// A cause, as the error of a connection.
pub(super) fn peer_error(cause: Cause) -> CloseReason {
    CloseReason::PeerError(cause.into())
}
