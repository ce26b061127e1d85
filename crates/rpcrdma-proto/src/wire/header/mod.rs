//! The transport header of version one (RFC 8166 §4).
//!
//! [`HeaderView`] reads whatever is there, for a decoder. [`Header`] holds only valid values, for
//! the two roles; an invalid header becomes a [`HeaderError`], which tells how to answer the peer.

mod chunk;
mod emit;
mod parse;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub use chunk::{ReadChunk, Segments, WriteChunk};
pub use emit::{MIN_LEN, emit, emit_error, emitted_len, plain};
pub(crate) use emit::{
    chunks_len, chunks_len_of, emit_fixed, emit_lists, emit_read_list, emit_reply_chunk,
    emit_words, emit_write_list, read_segments_len, word,
};
pub use parse::{Counted, Disposition, HeaderError, Malformation};
pub(crate) use parse::{
    parse_lists, parse_plain, parse_read_list, parse_reply_chunk, parse_write_list,
};
pub use view::{ChunkView, ErrorView, HeaderView, ListsView};

/// Version number of this header.
pub const VERSION: u32 = 1;

/// Values of `rdma_proc` (RFC 8166 §4.2.4).
pub mod procedure {
    /// RDMA_MSG: a message with its Payload stream behind the header.
    pub const MSG: u32 = 0;
    /// RDMA_NOMSG: a message whose Payload stream is in a chunk.
    pub const NOMSG: u32 = 1;
    /// RDMA_MSGP: no longer in use (RFC 8166 §4.6.1).
    pub const MSGP: u32 = 2;
    /// RDMA_DONE: no longer in use (RFC 8166 §4.6.2).
    pub const DONE: u32 = 3;
    /// RDMA_ERROR: the peer could not process a header.
    pub const ERROR: u32 = 4;
}

/// Values of `rdma_err` (RFC 8166 §4.5).
pub mod error_code {
    /// ERR_VERS: the version is not supported.
    pub const VERS: u32 = 1;
    /// ERR_CHUNK: the chunks, or anything else in the header, cannot be processed.
    pub const CHUNK: u32 = 2;
}

/// A valid transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// XID of the transaction, the same as in the RPC message.
    pub xid: u32,
    /// Credits requested by a call or granted by a reply; unvalidated, so zero is possible.
    pub credits: u32,
    /// The rest of the header, by procedure.
    pub body: Body,
}

/// Content of a header, by procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA_MSG: the Payload stream follows the header.
    Msg(Lists),
    /// RDMA_NOMSG: the Payload stream is in the Position-Zero Read chunk or the Reply chunk.
    NoMsg(Lists),
    /// RDMA_DONE, to be discarded (RFC 8166 §4.6.2).
    Done,
    /// RDMA_ERROR: the call was not processed.
    Error(RdmaError),
}

/// The three chunk lists (RFC 8166 §4.3).
///
/// Most calls have no chunks, and the state of a call is moved several times, so the lists are on
/// the heap: room for them inline would cost every call more than an allocation costs those with
/// chunks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// The Read list, grouped by Position, in the order of the first segment of each Position.
    pub reads: Vec<ReadChunk>,
    /// The Write list, in its order.
    pub writes: Vec<WriteChunk>,
    /// The Reply chunk.
    pub reply: Option<WriteChunk>,
}

impl Lists {
    /// Whether there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }
}

/// Why a peer did not process a header (RFC 8166 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RdmaError {
    /// ERR_VERS: the peer supports these versions, both inclusive.
    Version {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// ERR_CHUNK: the peer cannot process the chunks, or has no room for the reply.
    Chunk,
}
