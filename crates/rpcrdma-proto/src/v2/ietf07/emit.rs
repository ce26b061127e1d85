//! Encoders of the header types (§6.3).

use super::VERSION;
use super::properties::PropertySet;
use super::{RdmaError, header_type};
use crate::wire::direction::Direction;
use crate::wire::header::{self, chunks_len, emit_fixed, emit_read_list, emit_reply_chunk};
use crate::wire::header::{HeaderView, Lists};
use crate::wire::header::{emit_write_list, word};
use buffer::Buffer;
use verbs::Handle;

/// Octets of an RDMA2_GRANT: the prefix alone (§6.3.2).
pub const GRANT_LEN: usize = HeaderView::FIXED_LEN;

/// Octets of the header of a call without chunks.
const PLAIN_CALL_LEN: usize = HeaderView::FIXED_LEN + 4 * 4;

/// Octets of the header of a reply without chunks.
const PLAIN_REPLY_LEN: usize = HeaderView::FIXED_LEN + 4;

/// Octets of an RDMA2_CALL_MIDDLE or RDMA2_REPLY_MIDDLE before its part of the stream (§6.3.6).
pub const PART_LEN: usize = HeaderView::FIXED_LEN + 4;

/// Returns the octets of the header of a call with these numbers of segments in both Read lists
/// together, in each Write chunk and in the Reply chunk.
pub fn call_len(
    external: bool,
    read_segments: usize,
    write_chunks: impl Iterator<Item = usize>,
    reply_chunk: Option<usize>,
) -> usize {
    let invalidate = 4;
    let call_chunk = if external { 4 } else { 0 };
    invalidate + call_chunk + header::emitted_len(read_segments, write_chunks, reply_chunk)
}

/// Returns the octets of the header of a reply with these numbers of segments in each Write chunk
/// and in the Reply chunk.
pub fn reply_len(write_chunks: impl Iterator<Item = usize>, reply_chunk: Option<usize>) -> usize {
    let lists = if reply_chunk.is_some() { 8 } else { 4 };
    HeaderView::FIXED_LEN + lists + chunks_len(0, write_chunks, reply_chunk)
}

/// Encodes the header of an RDMA2_CALL_INLINE without chunks, and without a handle to invalidate.
pub fn plain_call(xid: u32, credits: u32) -> [u8; PLAIN_CALL_LEN] {
    plain(xid, credits, header_type::CALL_INLINE)
}

/// Encodes the header of an RDMA2_REPLY_INLINE without chunks.
pub fn plain_reply(xid: u32, credits: u32) -> [u8; PLAIN_REPLY_LEN] {
    plain(xid, credits, header_type::REPLY_INLINE)
}

/// A header whose words behind the prefix are zero.
fn plain<const LEN: usize>(xid: u32, credits: u32, htype: u32) -> [u8; LEN] {
    let mut header = [0; LEN];
    let words = [xid, VERSION, credits, htype].map(u32::to_be_bytes);
    header[..HeaderView::FIXED_LEN].copy_from_slice(words.as_flattened());
    header
}

/// Returns the octets of a message with these properties.
pub fn properties_len(set: &PropertySet) -> usize {
    HeaderView::FIXED_LEN + set.emitted_len()
}

/// Appends an RDMA2_ERROR for a message with this XID and version, which are echoed (§7).
pub fn emit_error(out: &mut Buffer, xid: u32, version: u32, credits: u32, error: RdmaError) {
    emit_fixed(out, xid, version, credits, header_type::ERROR);
    error.emit(out);
}

/// Appends an RDMA2_GRANT, whose XID is zero (§6.3.2).
pub fn emit_grant(out: &mut Buffer, credits: u32) {
    emit_fixed(out, 0, VERSION, credits, header_type::GRANT);
}

/// Appends an RDMA2_CONNPROP_FINAL, or an RDMA2_CONNPROP_MIDDLE, which is not the last.
///
/// # Panics
///
/// If the material for host authentication exceeds
/// [`MAX_HOST_AUTH`](crate::limits::MAX_HOST_AUTH).
pub fn emit_properties(out: &mut Buffer, xid: u32, credits: u32, last: bool, set: &PropertySet) {
    let htype = match last {
        true => header_type::CONNPROP_FINAL,
        false => header_type::CONNPROP_MIDDLE,
    };
    emit_fixed(out, xid, VERSION, credits, htype);
    set.emit(out);
}

/// Appends the header of an RDMA2_CALL_EXTERNAL or RDMA2_CALL_INLINE.
///
/// # Panics
///
/// If Read chunks are not in ascending order of Position, or if `external` is not whether there is
/// one at Position zero: the Call chunk (§6.3.5, §6.3.7).
pub fn emit_call(
    out: &mut Buffer,
    xid: u32,
    credits: u32,
    external: bool,
    invalidate: Option<Handle>,
    lists: &Lists,
) {
    let positions = || lists.reads.iter().map(|chunk| chunk.position);
    assert!(
        positions().is_sorted() && (positions().next() == Some(0)) == external,
        "read chunks are in order, and only the Call chunk is at position zero"
    );
    let htype = match external {
        true => header_type::CALL_EXTERNAL,
        false => header_type::CALL_INLINE,
    };
    emit_fixed(out, xid, VERSION, credits, htype);
    word(out, invalidate.map_or(0, |handle| handle.0));
    let (call_chunk, items) = lists.reads.split_at(external.into());
    if external {
        emit_read_list(out, call_chunk);
    }
    emit_read_list(out, items);
    emit_write_list(out, &lists.writes);
    emit_reply_chunk(out, lists.reply.as_ref());
}

/// Appends the header of an RDMA2_REPLY_EXTERNAL or RDMA2_REPLY_INLINE.
///
/// # Panics
///
/// If there are Read chunks, or if `external` is not whether there is a Reply chunk (§6.3.8,
/// §6.3.10).
pub fn emit_reply(out: &mut Buffer, xid: u32, credits: u32, external: bool, lists: &Lists) {
    assert!(
        lists.reads.is_empty() && lists.reply.is_some() == external,
        "a reply has a Reply chunk if it is in it, and no read chunks"
    );
    let htype = match external {
        true => header_type::REPLY_EXTERNAL,
        false => header_type::REPLY_INLINE,
    };
    emit_fixed(out, xid, VERSION, credits, htype);
    emit_write_list(out, &lists.writes);
    if external {
        emit_reply_chunk(out, lists.reply.as_ref());
    }
}

/// Appends the header of an RDMA2_CALL_MIDDLE or RDMA2_REPLY_MIDDLE: after its part of the Payload
/// stream, so many octets remain to be sent (§6.3.6, §6.3.9).
pub fn emit_part(out: &mut Buffer, xid: u32, credits: u32, direction: Direction, remaining: u32) {
    let htype = match direction {
        Direction::Call => header_type::CALL_MIDDLE,
        Direction::Reply => header_type::REPLY_MIDDLE,
    };
    emit_fixed(out, xid, VERSION, credits, htype);
    word(out, remaining);
}
