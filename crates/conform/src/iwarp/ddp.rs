//! DDP segments in wire format, valid and invalid (RFC 5041 §4, RFC 5040 §4).

/// RDMAP opcodes (RFC 5040 §4.1).
pub mod opcode {
    /// RDMA Write.
    pub const WRITE: u8 = 0;
    /// RDMA Read Request.
    pub const READ_REQUEST: u8 = 1;
    /// RDMA Read Response.
    pub const READ_RESPONSE: u8 = 2;
    /// Send.
    pub const SEND: u8 = 3;
    /// Send with Invalidate.
    pub const SEND_INVALIDATE: u8 = 4;
    /// Terminate.
    pub const TERMINATE: u8 = 7;
}

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;

/// DDP and RDMAP version 1, each where it belongs.
const DDP_VERSION: u8 = 1;
const RDMAP_VERSION: u8 = 1 << 6;

/// A DDP segment: the bytes of one ULPDU. Every field can be changed.
#[derive(Clone, Debug)]
pub struct Segment {
    /// T, L, reserved bits and DV.
    pub ddp: u8,
    /// RV, reserved bits and opcode.
    pub rdmap: u8,
    /// Octets behind the two control bytes, up to the payload.
    pub rest: Vec<u8>,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Segment {
    /// The last segment of a tagged message.
    pub fn tagged(opcode: u8, stag: u32, offset: u64, payload: &[u8]) -> Self {
        let mut rest = stag.to_be_bytes().to_vec();
        rest.extend(offset.to_be_bytes());
        Self {
            ddp: TAGGED | LAST | DDP_VERSION,
            rdmap: RDMAP_VERSION | opcode,
            rest,
            payload: payload.to_vec(),
        }
    }

    /// The last segment of an untagged message: with the word that RDMAP has there, the queue, the
    /// sequence number, the offset in the message.
    pub fn untagged(
        opcode: u8,
        word: u32,
        [queue, sequence, offset]: [u32; 3],
        payload: &[u8],
    ) -> Self {
        Self {
            ddp: LAST | DDP_VERSION,
            rdmap: RDMAP_VERSION | opcode,
            rest: crate::words(&[word, queue, sequence, offset]),
            payload: payload.to_vec(),
        }
    }

    /// The same, but not the last one of its message.
    #[must_use]
    pub fn not_last(mut self) -> Self {
        self.ddp &= !LAST;
        self
    }

    /// Its bytes.
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![self.ddp, self.rdmap];
        bytes.extend_from_slice(&self.rest);
        bytes.extend_from_slice(&self.payload);
        bytes
    }

    /// From bytes; `None` if they are too few for a header.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let tagged = bytes.first()? & TAGGED != 0;
        let (header, payload) = bytes.split_at_checked(if tagged { 14 } else { 18 })?;
        Some(Self {
            ddp: header[0],
            rdmap: header[1],
            rest: header[2..].to_vec(),
            payload: payload.to_vec(),
        })
    }

    /// Whether it is a tagged segment.
    pub fn is_tagged(&self) -> bool {
        self.ddp & TAGGED != 0
    }

    pub(super) fn is_last(&self) -> bool {
        self.ddp & LAST != 0
    }

    /// The RDMAP opcode.
    pub fn opcode(&self) -> u8 {
        self.rdmap & 0x0f
    }

    /// The word at this place of what follows the control bytes.
    pub(super) fn word(&self, at: usize) -> u32 {
        let bytes = self.rest[at..].first_chunk();
        u32::from_be_bytes(*bytes.expect("a header has its words"))
    }

    /// The tagged offset.
    pub(super) fn offset(&self) -> usize {
        let offset = u64::from(self.word(4)) << 32 | u64::from(self.word(8));
        usize::try_from(offset).unwrap_or(usize::MAX)
    }
}
