//! Segments and chunks (RFC 8166 §3.4.3-§3.4.6).

use oncrpc::xdr;
use oncrpc::xdr::Reader;
use smallvec::SmallVec;
use verbs::{Handle, Segment};

/// The segments of one chunk, in order; most chunks have one.
pub type Segments = SmallVec<[Segment; 1]>;

/// A Read chunk: one argument, or a whole call, for the Responder to pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadChunk {
    /// Offset of the item in the unreduced Payload stream, a multiple of four.
    pub position: u32,
    /// The memory that holds the octets.
    pub segments: Segments,
}

/// A Write or Reply chunk: memory of the Requester for one result, or for a whole reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteChunk {
    /// The memory for the octets; in a reply, with the lengths that were written.
    pub segments: Segments,
}

impl ReadChunk {
    /// Returns the octets of the chunk.
    pub fn len(&self) -> u64 {
        chunk_len(&self.segments)
    }

    /// Whether the chunk has no octets to pull.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl WriteChunk {
    /// Returns the octets of the chunk.
    pub fn len(&self) -> u64 {
        chunk_len(&self.segments)
    }

    /// Whether the chunk has no room: it is empty or unused (RFC 8166 §3.4.6).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the chunk for the reply, with the lengths of the first `filled` octets that were
    /// written.
    pub fn returned(&self, filled: usize) -> Self {
        let mut left = filled;
        let segments = self.segments.iter().map(|segment| {
            let used = left.min(segment.length as usize);
            left -= used;
            Segment {
                length: u32::try_from(used).expect("a part of a segment is no longer than it"),
                ..*segment
            }
        });
        Self {
            segments: segments.collect(),
        }
    }
}

/// Cannot overflow: the number of segments is limited.
fn chunk_len(segments: &[Segment]) -> u64 {
    segments.iter().map(|s| u64::from(s.length)).sum()
}

/// A plain segment, `HLOO` on the wire (RFC 8166 §4.7).
pub(super) fn parse_segment(r: &mut Reader<'_>) -> Result<Segment, xdr::Error> {
    Ok(Segment {
        handle: Handle(r.u32()?),
        length: r.u32()?,
        offset: r.u64()?,
    })
}

pub(super) fn emit_segment(segment: &Segment) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&segment.handle.0.to_be_bytes());
    bytes[4..8].copy_from_slice(&segment.length.to_be_bytes());
    bytes[8..].copy_from_slice(&segment.offset.to_be_bytes());
    bytes
}
