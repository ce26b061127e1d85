//! The transport header of version two (cel-01 §4.2).
//!
//! [`BodyView`] reads whatever follows the four fixed words, for a decoder. [`Header`] holds only
//! valid values; an invalid header becomes a [`HeaderError`], which tells how to answer the peer.
//! Chunks and their lists are those of version one ([`crate::wire::header`]), octet by octet.

mod emit;
mod parse;
#[cfg(test)]
mod tests;
mod view;

pub use crate::codec::{Control as Optional, Invalidate};
pub use crate::wire::direction::Direction;
pub use crate::wire::header::{
    ChunkView, ErrorView, HeaderView, Lists, ListsView, ReadChunk, Segments, WriteChunk,
};
pub(crate) use emit::emit_chunks;
pub use emit::{Plain, emit, emit_error, emit_optional, emitted_len, optional_len, plain};
pub use parse::{Disposition, HeaderError, MIN_LEN};
pub use view::{BodyView, ChunkListsView, InvalidateView, OptionalView};

use crate::invalidation::design::Design;

/// Version number of this header.
pub const VERSION: u32 = 2;

/// Values of `rdma_proc` (cel-01 §4.2).
pub mod procedure {
    /// RDMA2_MSG: a message with its Payload stream behind the header.
    pub const MSG: u32 = 0;
    /// RDMA2_NOMSG: a message whose Payload stream is in a chunk.
    pub const NOMSG: u32 = 1;
    /// RDMA2_ERROR: the peer could not process a header.
    pub const ERROR: u32 = 4;
    /// RDMA2_OPTIONAL: an operation that the peer may not know.
    pub const OPTIONAL: u32 = 5;
}

/// Values of `rdma_err` (cel-01 §4.2).
pub mod error_code {
    /// RDMA2_ERR_VERS: the version is not supported.
    pub const VERS: u32 = 1;
    /// RDMA2_ERR_BAD_HEADER: anything in the header cannot be processed.
    pub const BAD_HEADER: u32 = 2;
    /// RDMA2_ERR_INVAL_OPTION: the optional operation is not supported.
    pub const INVAL_OPTION: u32 = 3;
}

/// A valid transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// XID of the transaction, in the message's direction.
    pub xid: u32,
    /// Credits requested by a call or granted by a reply; unvalidated, so zero is possible.
    pub credits: u32,
    /// The rest of the header, by procedure.
    pub body: Body,
}

/// Content of a header, by procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA2_MSG: the Payload stream follows the header.
    Msg(ChunkLists),
    /// RDMA2_NOMSG: the Payload stream is in the Position-Zero Read chunk or the Reply chunk.
    NoMsg(ChunkLists),
    /// RDMA2_ERROR: a message was not processed.
    Error(RdmaError),
    /// RDMA2_OPTIONAL: an operation beyond the base protocol.
    Optional(Optional),
}

impl Header {
    /// Returns the direction of the message. RDMA2_ERROR has no direction word and is always a
    /// reply (cel-01 §4.2.2).
    pub fn direction(&self) -> Direction {
        match &self.body {
            Body::Msg(chunks) | Body::NoMsg(chunks) => chunks.direction,
            Body::Error(_) => Direction::Reply,
            Body::Optional(optional) => optional.direction,
        }
    }
}

/// `rpcrdma2_chunk_lists`: the same in RDMA2_MSG and RDMA2_NOMSG (cel-01 §4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLists {
    /// `rdma_direction`.
    pub direction: Direction,
    /// Handles that may be invalidated, if both ends agreed on a layout with handles.
    pub invalidate: Invalidate,
    /// The three lists.
    pub lists: Lists,
}

/// Layout of the chunk lists of a connection: with or without handles for remote invalidation
/// (reminv §4). The messages do not tell, so both ends must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WordLayout {
    /// No handles: plain cel-01.
    #[default]
    None,
    /// `uint32 rdma_inv_handle` behind the direction word (reminv §4.4, §5.3).
    One,
    /// `uint32 rdma_inv_handles<>` in the same place (reminv §4.5).
    Several,
}

impl WordLayout {
    /// Returns the layout of a design, or of none.
    pub fn of(agreed: Option<Design>) -> Self {
        match agreed {
            Some(Design::PerCall) => Self::One,
            Some(Design::PerCallSeveral | Design::PerCallAll) => Self::Several,
            Some(
                Design::PerVersion | Design::PerConnection | Design::Fixed | Design::InterCall,
            )
            | None => Self::None,
        }
    }
}

impl Invalidate {
    /// Returns the value that permits no invalidation.
    pub fn nothing(layout: WordLayout) -> Self {
        match layout {
            WordLayout::None => Self::Unsaid,
            WordLayout::One => Self::One(None),
            WordLayout::Several => Self::Several(Vec::new()),
        }
    }

    /// Returns the layout of this value.
    pub fn layout(&self) -> WordLayout {
        match self {
            Self::Unsaid => WordLayout::None,
            Self::One(_) => WordLayout::One,
            Self::Several(_) => WordLayout::Several,
        }
    }
}

/// Why a peer did not process a message (cel-01 §4.2.3, RFC 8166 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaError {
    /// RDMA2_ERR_VERS: the peer supports these versions, both inclusive.
    Version {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// RDMA2_ERR_BAD_HEADER: nothing of the message took effect.
    BadHeader,
    /// RDMA2_ERR_INVAL_OPTION: the peer does not know the operation.
    InvalOption,
}
