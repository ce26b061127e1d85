//! Direction of a message. Both directions share a connection (RFC 8167).

/// Octets of an RPC message that say whose it is: the XID and the direction (RFC 5531 §9).
pub(crate) const PREFIX_LEN: usize = 8;

/// `msg_type` of a call.
pub(crate) const CALL: u32 = 0;

/// `msg_type` of a reply.
pub(crate) const REPLY: u32 = 1;

/// XID and `msg_type` of a message, if it has as many octets.
#[inline]
pub(crate) fn prefix(stream: &[u8]) -> Option<(u32, u32)> {
    let bytes: &[u8; PREFIX_LEN] = stream.first_chunk()?;
    let word =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Some((word(0), word(4)))
}

/// Direction of a message, from the receiver's point of view.
///
/// In version one the RPC message tells the direction, in version two the header (cel-01 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A call, for the Responder of this end.
    Call,
    /// A reply, for the Requester of this end.
    Reply,
}

impl Direction {
    /// Decodes the direction from its word on the wire, `msg_type` (RFC 5531 §9).
    pub fn from_word(word: u32) -> Option<Self> {
        match word {
            CALL => Some(Self::Call),
            REPLY => Some(Self::Reply),
            _ => None,
        }
    }

    /// Returns the word on the wire.
    pub fn word(self) -> u32 {
        match self {
            Self::Call => CALL,
            Self::Reply => REPLY,
        }
    }
}
