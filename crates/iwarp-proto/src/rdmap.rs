//! RDMAP headers (RFC 5040 §4).

use crate::be;

/// The supported version of RDMAP (RFC 5040 §4.1).
pub const VERSION: u8 = 1;

/// Queue of the Send Message Types (RFC 5040 §5.3).
pub const QUEUE_SEND: u32 = 0;

/// Queue of RDMA Read Requests (RFC 5040 §5.2.1).
pub const QUEUE_READ: u32 = 1;

/// Queue of Terminate (RFC 5040 §5.4).
pub const QUEUE_TERMINATE: u32 = 2;

/// RDMAP opcode of a message (RFC 5040 §4.1, figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA Write.
    Write,
    /// RDMA Read Request.
    ReadRequest,
    /// RDMA Read Response.
    ReadResponse,
    /// Send.
    Send,
    /// Send with Invalidate.
    SendInvalidate,
    /// Send with Solicited Event.
    SendSolicited,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate,
    /// Terminate.
    Terminate,
    /// Invalidate: an extension of this implementation. A tagged message without payload whose STag
    /// is invalidated with the Send behind it.
    Invalidate,
}

/// Number of [`Opcode::Invalidate`], the last of those that RFC 5040 §4.1 and RFC 7306 reserve. Ends
/// that did not both agree on the extension send none, and refuse it.
const INVALIDATE: u8 = 0b1111;

impl Opcode {
    const ALL: [Self; 8] = [
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Send,
        Self::SendInvalidate,
        Self::SendSolicited,
        Self::SendSolicitedInvalidate,
        Self::Terminate,
    ];

    /// Decodes the number; other numbers are reserved.
    pub fn parse(number: u8) -> Option<Self> {
        match number {
            INVALIDATE => Some(Self::Invalidate),
            defined => Self::ALL.get(usize::from(defined)).copied(),
        }
    }

    /// Number of the opcode.
    pub fn number(self) -> u8 {
        match self {
            Self::Invalidate => INVALIDATE,
            defined => defined as u8,
        }
    }

    /// Whether the message invalidates an STag of the receiver.
    pub fn invalidates(self) -> bool {
        matches!(self, Self::SendInvalidate | Self::SendSolicitedInvalidate)
    }
}

/// RDMAP's control octet (RFC 5040 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control(pub u8);

impl Control {
    /// Creates the control field of a message to send.
    pub fn new(opcode: Opcode) -> Self {
        Self((VERSION << 6) | opcode.number())
    }

    /// RV: the version.
    pub fn version(self) -> u8 {
        self.0 >> 6
    }

    /// Opcode of the message, if it is known.
    pub fn opcode(self) -> Option<Opcode> {
        Opcode::parse(self.0 & 0x0f)
    }
}

/// RDMA Read Request (RFC 5040 §4.4). Unvalidated; validity depends on the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// STag of the data sink, at the requester.
    pub sink_stag: u32,
    /// Offset in the region of the data sink.
    pub sink_offset: u64,
    /// Length in octets.
    pub length: u32,
    /// STag of the data source, at the responder.
    pub source_stag: u32,
    /// Offset in the region of the data source.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Octets on the wire.
    pub const LEN: usize = 28;

    /// Decodes the request.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self {
            sink_stag: be::u32_at(bytes, 0),
            sink_offset: be::u64_at(bytes, 4),
            length: be::u32_at(bytes, 12),
            source_stag: be::u32_at(bytes, 16),
            source_offset: be::u64_at(bytes, 20),
        }
    }

    /// Encodes the request.
    pub fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.source_offset.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_have_their_numbers() {
        for number in 0..16 {
            match Opcode::parse(number) {
                Some(opcode) => assert_eq!(opcode.number(), number),
                None => assert!((8..15).contains(&number)),
            }
        }
        assert_eq!(Control::new(Opcode::Send).0, 0x43);
        assert_eq!(Control::new(Opcode::Terminate).0, 0x47);
        assert_eq!(Control::new(Opcode::Invalidate).0, 0x4f);
    }

    #[test]
    fn read_request_vector() {
        let request = ReadRequest {
            sink_stag: 0x0102_0304,
            sink_offset: 0x0506_0708_090a_0b0c,
            length: 0x0d0e_0f10,
            source_stag: 0x1112_1314,
            source_offset: 0x1516_1718_191a_1b1c,
        };
        let wire = request.emit();
        assert!(wire.iter().copied().eq(1..=28));
        assert_eq!(ReadRequest::parse(&wire), request);
    }
}
