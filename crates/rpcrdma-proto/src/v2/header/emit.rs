//! Encoder of the header.

use super::{ChunkLists, Direction, HeaderView, Invalidate, RdmaError, VERSION, WordLayout};
use super::{error_code, procedure};
use crate::limits::MAX_INVALIDATE_HANDLES;
use crate::wire::header::{self, Lists, emit_fixed, emit_lists, emit_words, word};
use buffer::Buffer;
use oncrpc::xdr::{pad, padded};
use std::ops::Deref;

/// Octets of a header without chunks, with a word for remote invalidation.
const PLAIN_LEN: usize = HeaderView::FIXED_LEN + 5 * 4;

/// Octets of an RDMA2_OPTIONAL without its information.
const OPTIONAL_LEN: usize = HeaderView::FIXED_LEN + 3 * 4;

/// An encoded header of an RDMA2_MSG without chunks, as most messages have.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    bytes: [u8; PLAIN_LEN],
    len: usize,
}

impl Deref for Plain {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Encodes the header of an RDMA2_MSG without chunks and without handles to invalidate.
pub fn plain(xid: u32, credits: u32, direction: Direction, layout: WordLayout) -> Plain {
    let mut bytes = [0; PLAIN_LEN];
    let words = [xid, VERSION, credits, procedure::MSG, direction.word()].map(u32::to_be_bytes);
    let words = words.as_flattened();
    bytes[..words.len()].copy_from_slice(words);
    // Three words for three lists, and a zero or an empty array before them.
    let len = emitted_len(layout, 0, 0, std::iter::empty(), None);
    Plain { bytes, len }
}

/// Returns the octets of a header with these numbers of handles for invalidation, and of segments
/// in the Read list, in each Write chunk and in the Reply chunk.
pub fn emitted_len(
    layout: WordLayout,
    handles: usize,
    read_segments: usize,
    write_chunks: impl Iterator<Item = usize>,
    reply_chunk: Option<usize>,
) -> usize {
    let direction = 4;
    let word = match layout {
        WordLayout::None => 0,
        WordLayout::One => 4,
        WordLayout::Several => 4 + handles * 4,
    };
    direction + word + header::emitted_len(read_segments, write_chunks, reply_chunk)
}

/// Appends the header of an RDMA2_MSG, or of an RDMA2_NOMSG, with its lists.
///
/// # Panics
///
/// If more than [`MAX_INVALIDATE_HANDLES`] are named.
pub fn emit(out: &mut Buffer, proc: u32, xid: u32, credits: u32, chunks: &ChunkLists) {
    let ChunkLists {
        direction,
        invalidate,
        lists,
    } = chunks;
    emit_chunks(out, proc, xid, credits, *direction, invalidate, lists);
}

/// The same, of its parts.
pub(crate) fn emit_chunks(
    out: &mut Buffer,
    proc: u32,
    xid: u32,
    credits: u32,
    direction: Direction,
    invalidate: &Invalidate,
    lists: &Lists,
) {
    emit_fixed(out, xid, VERSION, credits, proc);
    word(out, direction.word());
    match invalidate {
        Invalidate::Unsaid => {}
        Invalidate::One(handle) => word(out, handle.map_or(0, |handle| handle.0)),
        Invalidate::Several(handles) => {
            assert!(
                handles.len() <= MAX_INVALIDATE_HANDLES,
                "a call names few handles for invalidation"
            );
            length(out, handles.len());
            for handle in handles {
                word(out, handle.0);
            }
        }
    }
    emit_lists(out, lists);
}

/// Appends an RDMA2_ERROR for a message with this XID and version.
///
/// It has the octets of an RDMA_ERROR of version one: no direction word, and the version of the
/// refused message (RFC 8166 §4.5, cel-01 §4.2.3). So the sender of that message can read an
/// ERR_VERS.
pub fn emit_error(out: &mut Buffer, xid: u32, version: u32, credits: u32, error: RdmaError) {
    emit_fixed(out, xid, version, credits, procedure::ERROR);
    match error {
        RdmaError::Version { low, high } => emit_words(out, [error_code::VERS, low, high]),
        RdmaError::BadHeader => word(out, error_code::BAD_HEADER),
        RdmaError::InvalOption => word(out, error_code::INVAL_OPTION),
    }
}

/// Returns the octets of an RDMA2_OPTIONAL with `info` octets of information.
pub fn optional_len(info: usize) -> usize {
    OPTIONAL_LEN + padded(info)
}

/// Appends an RDMA2_OPTIONAL (cel-01 §3.1).
pub fn emit_optional(
    out: &mut Buffer,
    xid: u32,
    credits: u32,
    direction: Direction,
    operation: u32,
    info: &[u8],
) {
    emit_fixed(out, xid, VERSION, credits, procedure::OPTIONAL);
    emit_words(out, [direction.word(), operation]);
    length(out, info.len());
    out.extend_from_slice(info);
    out.extend_from_slice(&[0; 3][..pad(info.len())]);
}

fn length(out: &mut Buffer, len: usize) {
    word(out, u32::try_from(len).expect("messages are limited"));
}
