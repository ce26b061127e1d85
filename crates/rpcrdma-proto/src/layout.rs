//! What the two roles have to know of the transport header, whichever version is spoken.

use crate::direction::Direction;
use crate::header::{self, Lists};
use crate::v2::header::{self as two, ChunkLists, Invalidate, RdmaError, WordLayout};
use crate::version::Version;
use buffer::Buffer;
use std::ops::Deref;

/// How the headers of a connection are laid out, once that is settled.
///
/// The chunk lists are the same in both versions. Version two has words in front of them: the
/// direction (cel-01 §3.2), and perhaps one for remote invalidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Version one (RFC 8166 §4).
    #[default]
    One,
    /// Version two (cel-01 §4.2), with this word for remote invalidation.
    Two(WordLayout),
}

/// What the header of a message says beside its XID and credits.
pub(crate) struct Contents {
    /// `procedure::MSG` or `procedure::NOMSG`, the same in both versions.
    pub(crate) proc: u32,
    pub(crate) direction: Direction,
    /// What the peer may invalidate, in a version that has a word for it.
    pub(crate) invalidate: Invalidate,
    pub(crate) lists: Lists,
}

/// What is owed to a peer for a message that is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    Nothing,
    Error {
        /// To echo, as the version.
        xid: u32,
        version: u32,
        /// Credits asked for.
        credits: u32,
        rejection: Rejection,
    },
}

/// Why a message of the peer is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// ERR_VERS: what this end speaks.
    Versions { low: Version, high: Version },
    /// ERR_CHUNK, and in version two RDMA2_ERR_BAD_HEADER.
    Header,
    /// RDMA2_ERR_INVAL_OPTION.
    Operation,
}

impl Rejection {
    /// Appends it as the error for a message with this XID and version. What both versions have is
    /// octet by octet the same in both (RFC 8166 §4.5, cel-01 §4.2.3).
    pub(crate) fn emit(self, out: &mut Buffer, xid: u32, version: u32, credits: u32) {
        let error = match self {
            Self::Versions { low, high } => RdmaError::Version {
                low: low.number(),
                high: high.number(),
            },
            Self::Header => RdmaError::BadHeader,
            Self::Operation => RdmaError::InvalOption,
        };
        two::emit_error(out, xid, version, credits, error);
    }
}

/// The header of a message that has its stream behind it and no chunks.
pub(crate) enum Plain {
    One([u8; header::MIN_LEN]),
    Two(two::Plain),
}

impl Deref for Plain {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::One(octets) => octets,
            Self::Two(plain) => plain,
        }
    }
}

impl Layout {
    /// `rdma_vers`.
    pub fn version(self) -> u32 {
        match self {
            Self::One => header::VERSION,
            Self::Two(_) => two::VERSION,
        }
    }

    /// Octets of a header without chunks.
    pub fn min_len(self) -> usize {
        self.emitted_len(0, std::iter::empty(), None)
    }

    /// Octets of a header with so many segments in the Read list, in each Write chunk, and in the
    /// Reply chunk, with no handles for remote invalidation.
    pub fn emitted_len(
        self,
        read_segments: usize,
        write_chunks: impl Iterator<Item = usize>,
        reply_chunk: Option<usize>,
    ) -> usize {
        match self {
            Self::One => header::emitted_len(read_segments, write_chunks, reply_chunk),
            Self::Two(layout) => {
                two::emitted_len(layout, 0, read_segments, write_chunks, reply_chunk)
            }
        }
    }

    /// The same for these lists.
    pub(crate) fn len_of(self, lists: &Lists) -> usize {
        let reads = lists.reads.iter().map(|chunk| chunk.segments.len()).sum();
        let writes = lists.writes.iter().map(|chunk| chunk.segments.len());
        let reply = lists.reply.as_ref().map(|chunk| chunk.segments.len());
        self.emitted_len(reads, writes, reply)
    }

    /// What a message says that has no handle for the peer to invalidate.
    pub(crate) fn nothing_to_invalidate(self) -> Invalidate {
        match self {
            Self::One => Invalidate::Unsaid,
            Self::Two(layout) => Invalidate::nothing(layout),
        }
    }

    /// The header of a message that has its stream behind it and no chunks.
    pub(crate) fn plain(self, direction: Direction, xid: u32, credits: u32) -> Plain {
        match self {
            Self::One => Plain::One(header::plain(xid, credits)),
            Self::Two(layout) => Plain::Two(two::plain(xid, credits, direction, layout)),
        }
    }

    /// Appends the header of a message; gives back its lists.
    pub(crate) fn emit(
        self,
        out: &mut Buffer,
        xid: u32,
        credits: u32,
        contents: Contents,
    ) -> Lists {
        let Contents {
            proc,
            direction,
            invalidate,
            lists,
        } = contents;
        match self {
            Self::One => {
                header::emit(out, proc, xid, credits, &lists);
                lists
            }
            Self::Two(_) => {
                let chunks = ChunkLists {
                    direction,
                    invalidate,
                    lists,
                };
                two::emit(out, proc, xid, credits, &chunks);
                chunks.lists
            }
        }
    }
}
