//! The Terminate Message (RFC 5040 §4.8), with names of its errors.

use crate::be;
use crate::ddp;
use crate::rdmap::ReadRequest;
use verbs::{ProtocolError, Reason};

/// An error in a Terminate Message: layer, type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cause {
    /// Layer: 0 is RDMA, 1 is DDP, 2 is the LLP, which is MPA.
    pub layer: u8,
    /// Error type within the layer.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = ($layer:literal, $etype:literal, $code:literal), $words:literal;)*) => {
        impl Cause {
            $($(#[$doc])* pub const $name: Self = Self { layer: $layer, etype: $etype, code: $code };)*

            /// Every cause that the RFCs name.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Description of the error, if the RFCs name it.
            pub fn words(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($words),)*
                    // A local catastrophic error has no code: any value may be there.
                    Self { layer: 0, etype: 0, .. } => Self::RDMA_CATASTROPHIC.words(),
                    Self { layer: 1, etype: 0, .. } => Self::DDP_CATASTROPHIC.words(),
                    _ => None,
                }
            }
        }
    };
}

// RFC 5040 §4.8 figure 9, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8.
causes! {
    /// RDMA, local catastrophic.
    RDMA_CATASTROPHIC = (0, 0, 0x00), "local catastrophic error";
    /// RDMA, remote protection: the STag names nothing.
    RDMA_INVALID_STAG = (0, 1, 0x00), "invalid STag";
    /// RDMA, remote protection.
    RDMA_BOUNDS = (0, 1, 0x01), "base or bounds violation";
    /// RDMA, remote protection.
    RDMA_ACCESS = (0, 1, 0x02), "access rights violation";
    /// RDMA, remote protection.
    RDMA_NOT_ASSOCIATED = (0, 1, 0x03), "STag not associated with the stream";
    /// RDMA, remote protection.
    RDMA_WRAP = (0, 1, 0x04), "tagged offset wraps";
    /// RDMA, remote protection.
    RDMA_CANNOT_INVALIDATE = (0, 1, 0x09), "STag cannot be invalidated";
    /// RDMA, remote protection.
    RDMA_PROTECTION = (0, 1, 0xff), "unspecified protection error";
    /// RDMA, remote operation.
    RDMA_VERSION = (0, 2, 0x05), "invalid RDMAP version";
    /// RDMA, remote operation.
    RDMA_OPCODE = (0, 2, 0x06), "unexpected opcode";
    /// RDMA, remote operation.
    RDMA_STREAM_CATASTROPHIC = (0, 2, 0x07), "catastrophic error of the stream";
    /// RDMA, remote operation.
    RDMA_GLOBAL_CATASTROPHIC = (0, 2, 0x08), "catastrophic error, global";
    /// RDMA, remote operation.
    RDMA_OPERATION_CANNOT_INVALIDATE = (0, 2, 0x09), "STag cannot be invalidated (operation)";
    /// RDMA, remote operation.
    RDMA_OPERATION = (0, 2, 0xff), "unspecified operation error";
    /// DDP, local catastrophic.
    DDP_CATASTROPHIC = (1, 0, 0x00), "local catastrophic error in DDP";
    /// DDP, tagged buffer.
    DDP_INVALID_STAG = (1, 1, 0x00), "invalid STag in a tagged segment";
    /// DDP, tagged buffer.
    DDP_BOUNDS = (1, 1, 0x01), "base or bounds violation of a tagged segment";
    /// DDP, tagged buffer.
    DDP_NOT_ASSOCIATED = (1, 1, 0x02), "STag of a tagged segment not associated with the stream";
    /// DDP, tagged buffer.
    DDP_WRAP = (1, 1, 0x03), "tagged offset of a segment wraps";
    /// DDP, tagged buffer.
    DDP_TAGGED_VERSION = (1, 1, 0x04), "invalid DDP version in a tagged segment";
    /// DDP, untagged buffer.
    DDP_QUEUE = (1, 2, 0x01), "invalid queue number";
    /// DDP, untagged buffer.
    DDP_NO_BUFFER = (1, 2, 0x02), "no buffer available for the message";
    /// DDP, untagged buffer.
    DDP_SEQUENCE = (1, 2, 0x03), "message sequence number out of range";
    /// DDP, untagged buffer.
    DDP_OFFSET = (1, 2, 0x04), "invalid message offset";
    /// DDP, untagged buffer.
    DDP_TOO_LONG = (1, 2, 0x05), "message too long for the available buffer";
    /// DDP, untagged buffer.
    DDP_UNTAGGED_VERSION = (1, 2, 0x06), "invalid DDP version in an untagged segment";
    /// MPA.
    MPA_CLOSED = (2, 0, 0x01), "TCP connection closed, terminated or lost";
    /// MPA.
    MPA_CRC = (2, 0, 0x02), "CRC error";
    /// MPA.
    MPA_MARKER = (2, 0, 0x03), "marker and length do not agree";
    /// MPA.
    MPA_FRAME = (2, 0, 0x04), "invalid MPA request or reply";
    /// MPA.
    MPA_CATASTROPHIC = (2, 0, 0x05), "local catastrophic error in MPA";
    /// MPA.
    MPA_IRD = (2, 0, 0x06), "insufficient IRD resources";
    /// MPA.
    MPA_RTR = (2, 0, 0x07), "no matching RTR option";
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let layer = match self.layer {
            0 => "RDMA",
            1 => "DDP",
            2 => "MPA",
            _ => "unknown layer",
        };
        let words = self.words().unwrap_or("unknown error");
        let (etype, code) = (self.etype, self.code);
        write!(f, "{layer}: {words} (type {etype:#x}, code {code:#04x})")
    }
}

impl std::error::Error for Cause {}

/// The kind of the error in terms of all transports, with the error itself as its detail.
impl From<Cause> for Reason<ProtocolError> {
    fn from(cause: Cause) -> Self {
        Self::new(cause.kind()).with_detail(cause)
    }
}

impl Cause {
    /// The kind of the error in terms of all transports.
    fn kind(self) -> ProtocolError {
        match self {
            Self::DDP_NO_BUFFER => ProtocolError::NoBuffer,
            Self::DDP_TOO_LONG => ProtocolError::TooLong,
            Self::MPA_CRC => ProtocolError::Checksum,
            Self::MPA_IRD | Self::MPA_RTR => ProtocolError::Demands,
            Self::RDMA_CANNOT_INVALIDATE | Self::RDMA_OPERATION_CANNOT_INVALIDATE => {
                ProtocolError::Invalidation
            }
            Self::RDMA_STREAM_CATASTROPHIC
            | Self::RDMA_GLOBAL_CATASTROPHIC
            | Self::MPA_CATASTROPHIC
            | Self {
                layer: 0 | 1,
                etype: 0,
                ..
            } => ProtocolError::Internal,
            // Remote protection errors.
            Self {
                layer: 0, etype: 1, ..
            } => ProtocolError::MemoryAccess,
            Self::DDP_INVALID_STAG
            | Self::DDP_BOUNDS
            | Self::DDP_NOT_ASSOCIATED
            | Self::DDP_WRAP => ProtocolError::MemoryAccess,
            Self::RDMA_VERSION
            | Self::RDMA_OPCODE
            | Self::RDMA_OPERATION
            | Self::DDP_TAGGED_VERSION
            | Self::DDP_UNTAGGED_VERSION
            | Self::DDP_QUEUE
            | Self::DDP_SEQUENCE
            | Self::DDP_OFFSET
            | Self::MPA_MARKER
            | Self::MPA_FRAME => ProtocolError::InvalidMessage,
            _ => ProtocolError::Unspecified,
        }
    }
}

/// A Terminate Message, without its DDP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// The error.
    pub cause: Cause,
    /// The segment that caused the error.
    pub segment: Option<TerminatedSegment>,
}

/// The segment that caused a Terminate Message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminatedSegment {
    /// ULPDU length.
    pub length: u16,
    /// Its DDP header.
    pub header: ddp::Header,
    /// Its RDMA Read Request, if it has one.
    pub read_request: Option<ReadRequest>,
}

const HAS_LENGTH: u8 = 0x80;
const HAS_DDP: u8 = 0x40;
const HAS_RDMA: u8 = 0x20;

impl Terminate {
    /// Length of the longest Terminate Message in octets.
    pub const MAX_LEN: usize = 4 + 2 + ddp::MAX_HEADER_LEN + ReadRequest::LEN;

    /// Encodes the message.
    pub fn emit(&self) -> Vec<u8> {
        let Cause { layer, etype, code } = self.cause;
        let mut out = Vec::with_capacity(Self::MAX_LEN);
        out.extend_from_slice(&[(layer << 4) | (etype & 0x0f), code, 0, 0]);
        if let Some(segment) = &self.segment {
            out[2] = HAS_LENGTH | HAS_DDP;
            out.extend_from_slice(&segment.length.to_be_bytes());
            segment.header.emit(&mut out);
            if let Some(request) = segment.read_request {
                out[2] |= HAS_RDMA;
                out.extend_from_slice(&request.emit());
            }
        }
        out
    }

    /// Decodes the message; `None` if it is too short for the cause.
    ///
    /// Linux's siw writes the nibbles of the first octet, and the flags, in the other order, so
    /// both orders are accepted. The flags show which order it is; without flags, the order that
    /// gives a known cause is used. Unparseable parts after the cause are dropped, since a
    /// connection that ends needs no more.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let control: &[u8; 4] = bytes.first_chunk()?;
        let straight = Cause {
            layer: control[0] >> 4,
            etype: control[0] & 0x0f,
            code: control[1],
        };
        let swapped = Cause {
            layer: straight.etype,
            etype: straight.layer,
            code: control[1],
        };
        let is_swapped = match (control[2] & 0xe0, control[2] & 0x07) {
            (0, 0) => straight.words().is_none() && swapped.words().is_some(),
            (straight_flags, _) => straight_flags == 0,
        };
        let flags = if is_swapped {
            control[2].reverse_bits()
        } else {
            control[2]
        };
        Some(Self {
            cause: if is_swapped { swapped } else { straight },
            segment: TerminatedSegment::parse(flags, &bytes[4..]),
        })
    }

    /// Returns the RDMA Read Request that caused the error, if one did.
    pub fn read_request(&self) -> Option<ReadRequest> {
        self.segment.as_ref()?.read_request
    }
}

impl TerminatedSegment {
    fn parse(flags: u8, bytes: &[u8]) -> Option<Self> {
        if flags & HAS_DDP == 0 || bytes.len() < 2 {
            return None;
        }
        let header = ddp::Header::read(&bytes[2..])?;
        let rest = &bytes[2 + header.wire_len()..];
        Some(Self {
            length: be::u16_at(bytes, 0),
            header,
            read_request: rest
                .first_chunk()
                .filter(|_| flags & HAS_RDMA != 0)
                .map(ReadRequest::parse),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_have_a_kind_for_all_transports_and_are_the_detail() {
        let check = |cause: Cause, kind| {
            let reason = Reason::<ProtocolError>::from(cause);
            assert_eq!(reason.kind(), kind, "{cause}");
            let detail = reason.detail().and_then(|error| error.downcast_ref());
            assert_eq!(detail, Some(&cause));
        };
        check(Cause::DDP_NO_BUFFER, ProtocolError::NoBuffer);
        check(Cause::DDP_TOO_LONG, ProtocolError::TooLong);
        check(Cause::MPA_CRC, ProtocolError::Checksum);
        check(Cause::MPA_IRD, ProtocolError::Demands);
        check(Cause::RDMA_ACCESS, ProtocolError::MemoryAccess);
        check(Cause::DDP_BOUNDS, ProtocolError::MemoryAccess);
        check(Cause::RDMA_CANNOT_INVALIDATE, ProtocolError::Invalidation);
        check(Cause::RDMA_OPCODE, ProtocolError::InvalidMessage);
        check(Cause::RDMA_CATASTROPHIC, ProtocolError::Internal);
        let unknown = |layer, etype| Cause {
            layer,
            etype,
            code: 0x77,
        };
        check(unknown(0, 1), ProtocolError::MemoryAccess);
        check(unknown(1, 0), ProtocolError::Internal);
        check(unknown(2, 0), ProtocolError::Unspecified);
        check(unknown(9, 9), ProtocolError::Unspecified);
    }

    fn bare(cause: Cause) -> Terminate {
        Terminate {
            cause,
            segment: None,
        }
    }

    fn about_a_read() -> Terminate {
        Terminate {
            cause: Cause::RDMA_ACCESS,
            segment: Some(TerminatedSegment {
                length: 46,
                header: ddp::Header::Untagged {
                    control: ddp::Control::new(false, true),
                    rsvd_ulp: 0x41,
                    rsvd_ulp_word: 0,
                    queue: 1,
                    sequence: 3,
                    offset: 0,
                },
                read_request: Some(ReadRequest {
                    sink_stag: 1,
                    sink_offset: 2,
                    length: 3,
                    source_stag: 4,
                    source_offset: 5,
                }),
            }),
        }
    }

    #[test]
    fn every_cause_round_trips() {
        for cause in Cause::ALL {
            assert_eq!(Terminate::parse(&bare(*cause).emit()), Some(bare(*cause)));
            assert!(cause.words().is_some());
        }
    }

    #[test]
    fn the_terminated_segment_round_trips() {
        assert_eq!(
            Terminate::parse(&about_a_read().emit()),
            Some(about_a_read())
        );
        assert_eq!(about_a_read().emit().len(), Terminate::MAX_LEN);
    }

    #[test]
    fn control_field_vector() {
        assert_eq!(bare(Cause::MPA_CRC).emit(), [0x20, 0x02, 0, 0]);
        assert_eq!(about_a_read().emit()[..6], [0x01, 0x02, 0xe0, 0, 0, 46]);
    }

    #[test]
    fn swapped_nibbles_are_understood() {
        let mut bytes = about_a_read().emit();
        bytes[0] = bytes[0].rotate_left(4);
        bytes[2] = bytes[2].reverse_bits();
        assert_eq!(Terminate::parse(&bytes), Some(about_a_read()));
        let crc = Terminate::parse(&[0x02, 0x02, 0, 0]).unwrap();
        assert_eq!(crc.cause, Cause::MPA_CRC);
    }

    #[test]
    fn a_torn_terminate_still_names_its_cause() {
        let whole = about_a_read().emit();
        for len in 0..whole.len() {
            let parsed = Terminate::parse(&whole[..len]);
            assert_eq!(parsed.is_some(), len >= 4);
            assert!(parsed.is_none_or(|parsed| parsed.cause == Cause::RDMA_ACCESS));
        }
    }

    #[test]
    fn display_names_layer_and_cause() {
        assert_eq!(
            Cause::DDP_BOUNDS.to_string(),
            "DDP: base or bounds violation of a tagged segment (type 0x1, code 0x01)"
        );
    }
}
