//! Defects of a header, and the errors that report them (§7).

use super::error::RdmaError;
use crate::wire::header;
use crate::wire::header::Counted;
use oncrpc::xdr;

/// A defect of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformation {
    /// A defect that headers of every version can have.
    #[error(transparent)]
    Header(#[from] header::Malformation),
    /// The header type is unknown.
    #[error("header type {0}")]
    HeaderType(u32),
    /// The Positions of the Read list do not increase (§4.5.1.1).
    #[error("a read segment at position {0} follows one at a higher position")]
    Disorder(u32),
    /// A segment of the list of data items is at Position zero (§6.3.7).
    #[error("position zero among the data items")]
    PositionZero,
    /// A segment of the Call chunk is at another Position than zero (§6.6.3).
    #[error("a segment of the Call chunk at position {0}")]
    CallPosition(u32),
    /// There are more than [`MAX_PROPERTIES`](crate::limits::MAX_PROPERTIES) properties.
    #[error("too many properties")]
    TooManyProperties,
    /// A known property has two values.
    #[error("property {0} occurs twice")]
    PropertyTwice(u32),
    /// The value of a known property is not valid (§5.1).
    #[error("property {which}: {cause}")]
    Property {
        /// Id of the property.
        which: u32,
        /// Reason.
        cause: xdr::Error,
    },
}

impl From<xdr::Error> for Malformation {
    fn from(error: xdr::Error) -> Self {
        Self::Header(error.into())
    }
}

impl Malformation {
    /// Returns the error that reports it to the peer.
    pub fn answer(self) -> RdmaError {
        match self {
            Self::HeaderType(_) => RdmaError::InvalHtype,
            Self::PropertyTwice(_) | Self::Property { .. } => RdmaError::BadPropval,
            Self::Disorder(_)
            | Self::PositionZero
            | Self::CallPosition(_)
            | Self::TooManyProperties => RdmaError::BadXdr,
            Self::Header(cause) => answer(cause),
        }
    }
}

fn answer(cause: header::Malformation) -> RdmaError {
    match cause {
        header::Malformation::TooMany { of, limit } => {
            let max = u32::try_from(limit).unwrap_or(u32::MAX);
            match of {
                Counted::ReadChunks => RdmaError::ReadChunks { max },
                Counted::WriteChunks => RdmaError::WriteChunks { max },
                Counted::ReadSegments | Counted::ChunkSegments => RdmaError::Segments { max },
                Counted::Handles => RdmaError::BadXdr,
            }
        }
        // §7.3.1, and §4.6.4 for a direction without chunks.
        header::Malformation::ReadImpossible | header::Malformation::ChunksBackward => {
            RdmaError::ReadChunks { max: 0 }
        }
        // §7.3 has no error for either, §7.4.1 has one for everything else.
        header::Malformation::FailedBefore | header::Malformation::ChunkTooLarge { .. } => {
            RdmaError::System
        }
        header::Malformation::Xdr(_)
        | header::Malformation::Procedure(_)
        | header::Malformation::UnalignedPosition(_)
        | header::Malformation::NoStream
        | header::Malformation::XidMismatch
        | header::Malformation::MisplacedChunk(_) => RdmaError::BadXdr,
    }
}
