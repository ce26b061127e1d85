//! RDMA2_ERROR (§6.3.1, §7).

use crate::wire::header::{emit_words, word};
use buffer::Buffer;
use oncrpc::xdr::Reader;
use std::num::NonZeroU32;

/// Values of `rdma_err` (§8.4).
pub mod error_code {
    /// RDMA2_ERR_VERS: the version is not supported.
    pub const VERS: u32 = 1;
    /// RDMA2_ERR_BAD_XDR: the header cannot be parsed.
    pub const BAD_XDR: u32 = 2;
    /// RDMA2_ERR_BAD_PROPVAL: the value of a property cannot be parsed.
    pub const BAD_PROPVAL: u32 = 3;
    /// RDMA2_ERR_INVAL_HTYPE: the header type is not supported.
    pub const INVAL_HTYPE: u32 = 4;
    /// RDMA2_ERR_INVAL_CONT: a message does not continue the one before.
    pub const INVAL_CONT: u32 = 5;
    /// RDMA2_ERR_READ_CHUNKS: too many Read chunks.
    pub const READ_CHUNKS: u32 = 6;
    /// RDMA2_ERR_WRITE_CHUNKS: too many Write chunks.
    pub const WRITE_CHUNKS: u32 = 7;
    /// RDMA2_ERR_SEGMENTS: too many segments in a chunk.
    pub const SEGMENTS: u32 = 8;
    /// RDMA2_ERR_WRITE_RESOURCE: a Write chunk is too small.
    pub const WRITE_RESOURCE: u32 = 9;
    /// RDMA2_ERR_REPLY_RESOURCE: the Reply chunk is too small.
    pub const REPLY_RESOURCE: u32 = 10;
    /// RDMA2_ERR_VERS_MISMATCH: the version is not that of the connection.
    pub const VERS_MISMATCH: u32 = 11;
    /// RDMA2_ERR_SYSTEM: any other problem.
    pub const SYSTEM: u32 = 100;
}

/// Why a peer did not process a message (§7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaError {
    /// RDMA2_ERR_VERS: the peer supports these versions, both inclusive (§7.1.1).
    Version {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// RDMA2_ERR_BAD_XDR: the header cannot be parsed (§7.2.1).
    BadXdr,
    /// RDMA2_ERR_BAD_PROPVAL: no property of the message was applied (§7.2.2).
    BadPropval,
    /// RDMA2_ERR_INVAL_HTYPE: the peer does not support the header type (§7.1.3).
    InvalHtype,
    /// RDMA2_ERR_INVAL_CONT: all messages with this XID are discarded (§7.1.4).
    InvalCont,
    /// RDMA2_ERR_READ_CHUNKS (§7.3.1).
    ReadChunks {
        /// Read chunks that the peer can process, perhaps none.
        max: u32,
    },
    /// RDMA2_ERR_WRITE_CHUNKS (§7.3.2).
    WriteChunks {
        /// Write chunks that the peer can return.
        max: u32,
    },
    /// RDMA2_ERR_SEGMENTS (§7.3.3).
    Segments {
        /// Segments that the peer can process.
        max: u32,
    },
    /// RDMA2_ERR_WRITE_RESOURCE: a result does not fit its Write chunk (§7.3.4).
    WriteResource {
        /// The first Write chunk that is too short, counted from one, if it is known.
        chunk: Option<NonZeroU32>,
        /// Octets that the chunk would need; zero if that is not known.
        needed: u32,
    },
    /// RDMA2_ERR_REPLY_RESOURCE: the reply does not fit the Reply chunk (§7.3.5).
    ReplyResource {
        /// Octets that the chunk would need; zero if that is not known.
        needed: u32,
    },
    /// RDMA2_ERR_VERS_MISMATCH: the connection has another version (§7.1.2).
    VersionMismatch,
    /// RDMA2_ERR_SYSTEM: the transaction failed for another reason (§7.4.1).
    System,
}

impl RdmaError {
    /// Parses the body of an RDMA2_ERROR. Returns `None` if the code is unknown or its argument is
    /// missing: such a message is discarded (§7).
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let mut r = Reader::new(body);
        let code = r.u32().ok()?;
        let mut argument = || r.u32().ok();
        Some(match code {
            error_code::VERS => Self::Version {
                low: argument()?,
                high: argument()?,
            },
            error_code::BAD_XDR => Self::BadXdr,
            error_code::BAD_PROPVAL => Self::BadPropval,
            error_code::INVAL_HTYPE => Self::InvalHtype,
            error_code::INVAL_CONT => Self::InvalCont,
            error_code::READ_CHUNKS => Self::ReadChunks { max: argument()? },
            error_code::WRITE_CHUNKS => Self::WriteChunks { max: argument()? },
            error_code::SEGMENTS => Self::Segments { max: argument()? },
            error_code::WRITE_RESOURCE => Self::WriteResource {
                chunk: NonZeroU32::new(argument()?),
                needed: argument()?,
            },
            error_code::REPLY_RESOURCE => Self::ReplyResource {
                needed: argument()?,
            },
            error_code::VERS_MISMATCH => Self::VersionMismatch,
            error_code::SYSTEM => Self::System,
            _ => return None,
        })
    }

    /// Appends the body of an RDMA2_ERROR.
    pub(super) fn emit(self, out: &mut Buffer) {
        match self {
            Self::Version { low, high } => emit_words(out, [error_code::VERS, low, high]),
            Self::BadXdr => word(out, error_code::BAD_XDR),
            Self::BadPropval => word(out, error_code::BAD_PROPVAL),
            Self::InvalHtype => word(out, error_code::INVAL_HTYPE),
            Self::InvalCont => word(out, error_code::INVAL_CONT),
            Self::ReadChunks { max } => emit_words(out, [error_code::READ_CHUNKS, max]),
            Self::WriteChunks { max } => emit_words(out, [error_code::WRITE_CHUNKS, max]),
            Self::Segments { max } => emit_words(out, [error_code::SEGMENTS, max]),
            Self::WriteResource { chunk, needed } => {
                let index = chunk.map_or(0, NonZeroU32::get);
                emit_words(out, [error_code::WRITE_RESOURCE, index, needed]);
            }
            Self::ReplyResource { needed } => {
                emit_words(out, [error_code::REPLY_RESOURCE, needed]);
            }
            Self::VersionMismatch => word(out, error_code::VERS_MISMATCH),
            Self::System => word(out, error_code::SYSTEM),
        }
    }
}
