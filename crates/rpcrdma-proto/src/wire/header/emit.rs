//! Encoder of the header.

use super::chunk::emit_segment;
use super::view::HeaderView;
use super::{Lists, RdmaError, ReadChunk, VERSION, WriteChunk, error_code, procedure};
use buffer::Buffer;

/// Octets of a header without chunks, which is the shortest message of version one.
pub const MIN_LEN: usize = HeaderView::FIXED_LEN + 3 * 4;

/// Octets of one segment of a Write or Reply chunk.
const SEGMENT_LEN: usize = 16;

/// Octets of one segment of the Read list: its mark, its Position and the segment.
const READ_SEGMENT_LEN: usize = 8 + SEGMENT_LEN;

/// Returns the octets of a header with these numbers of segments in the Read list, in each Write
/// chunk and in the Reply chunk.
pub fn emitted_len(
    read_segments: usize,
    write_chunks: impl Iterator<Item = usize>,
    reply_chunk: Option<usize>,
) -> usize {
    MIN_LEN + chunks_len(read_segments, write_chunks, reply_chunk)
}

/// Octets that chunks with so many segments add to a header, which are the same in all versions.
pub(crate) fn chunks_len(
    read_segments: usize,
    write_chunks: impl Iterator<Item = usize>,
    reply_chunk: Option<usize>,
) -> usize {
    let reads = read_segments_len(read_segments);
    let writes: usize = write_chunks.map(|n| 8 + n * SEGMENT_LEN).sum();
    let reply = reply_chunk.map_or(0, |n| 4 + n * SEGMENT_LEN);
    reads + writes + reply
}

/// The same for the chunks in these lists.
pub(crate) fn chunks_len_of(lists: &Lists) -> usize {
    let reads = lists.reads.iter().map(|chunk| chunk.segments.len()).sum();
    let writes = lists.writes.iter().map(|chunk| chunk.segments.len());
    let reply = lists.reply.as_ref().map(|chunk| chunk.segments.len());
    chunks_len(reads, writes, reply)
}

/// Octets of so many segments in the Read list.
pub(crate) fn read_segments_len(segments: usize) -> usize {
    segments * READ_SEGMENT_LEN
}

/// Encodes the header of an RDMA_MSG without chunks.
pub fn plain(xid: u32, credits: u32) -> [u8; MIN_LEN] {
    let mut header = [0; MIN_LEN];
    let words = [xid, VERSION, credits, procedure::MSG].map(u32::to_be_bytes);
    header[..HeaderView::FIXED_LEN].copy_from_slice(words.as_flattened());
    header
}

/// Appends the header of an RDMA_MSG, or of an RDMA_NOMSG, with its lists.
pub fn emit(out: &mut Buffer, proc: u32, xid: u32, credits: u32, lists: &Lists) {
    if proc == procedure::MSG && lists.is_empty() {
        out.extend_from_slice(&plain(xid, credits));
        return;
    }
    emit_fixed(out, xid, VERSION, credits, proc);
    emit_lists(out, lists);
}

/// Appends the three lists, which are the same in all versions.
pub(crate) fn emit_lists(out: &mut Buffer, lists: &Lists) {
    emit_read_list(out, &lists.reads);
    emit_write_list(out, &lists.writes);
    emit_reply_chunk(out, lists.reply.as_ref());
}

pub(crate) fn emit_read_list(out: &mut Buffer, chunks: &[ReadChunk]) {
    for chunk in chunks {
        for segment in &chunk.segments {
            word(out, 1);
            word(out, chunk.position);
            out.extend_from_slice(&emit_segment(segment));
        }
    }
    word(out, 0);
}

pub(crate) fn emit_write_list(out: &mut Buffer, chunks: &[WriteChunk]) {
    for chunk in chunks {
        word(out, 1);
        emit_write_chunk(out, chunk);
    }
    word(out, 0);
}

pub(crate) fn emit_reply_chunk(out: &mut Buffer, chunk: Option<&WriteChunk>) {
    match chunk {
        Some(chunk) => {
            word(out, 1);
            emit_write_chunk(out, chunk);
        }
        None => word(out, 0),
    }
}

/// Appends an RDMA_ERROR for a message with this XID and version (RFC 8166 §4.5).
pub fn emit_error(out: &mut Buffer, xid: u32, version: u32, credits: u32, error: RdmaError) {
    emit_fixed(out, xid, version, credits, procedure::ERROR);
    match error {
        RdmaError::Version { low, high } => emit_words(out, [error_code::VERS, low, high]),
        RdmaError::Chunk => word(out, error_code::CHUNK),
    }
}

/// Appends the four fixed words, which are the same in all versions.
pub(crate) fn emit_fixed(out: &mut Buffer, xid: u32, version: u32, credits: u32, proc: u32) {
    emit_words(out, [xid, version, credits, proc]);
}

/// Appends so many words, in one piece.
pub(crate) fn emit_words<const N: usize>(out: &mut Buffer, words: [u32; N]) {
    out.extend_from_slice(words.map(u32::to_be_bytes).as_flattened());
}

fn emit_write_chunk(out: &mut Buffer, chunk: &WriteChunk) {
    let count = u32::try_from(chunk.segments.len()).expect("the number of segments is limited");
    word(out, count);
    for segment in &chunk.segments {
        out.extend_from_slice(&emit_segment(segment));
    }
}

pub(crate) fn word(out: &mut Buffer, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}
