//! The planner of replies: the Responder decides from the chunks that the call offers (RFC 8166
//! §3.5.3).

use crate::limits::LEAST_PART;
use crate::wire::header::{self, Lists};
use oncrpc::xdr::padded;
use smallvec::SmallVec;

/// Plan of a reply.
#[derive(Debug)]
pub enum ReplyPlan {
    /// One Send, with each item inline or in the Write chunk of this index.
    Send(SmallVec<[Option<u8>; 1]>),
    /// Items as in [`Send`](Self::Send), and the rest in the Reply chunk.
    ReplyChunk(SmallVec<[Option<u8>; 1]>),
    /// Like [`Send`](Self::Send), but in several parts (ietf-07 §6.6.2).
    Parts(SmallVec<[Option<u8>; 1]>),
    /// The reply, without what fits its Write chunks, has so many bytes, and fits neither inline nor
    /// the Reply chunk.
    NoRoom {
        /// Bytes.
        len: usize,
    },
    /// A result does not fit the Write chunk of this index.
    NoRoomForResult {
        /// Index of the chunk.
        chunk: usize,
        /// Bytes of the result.
        len: usize,
    },
}

/// Plans a reply: which item goes in which chunk, and whether the rest fits a Send (RFC 8166 §3.5.3,
/// §4.3.2).
///
/// `plain_header` is the length of a header without chunks, `head` that of the reply without its
/// items, and `items` are the lengths of these, without padding. At most `continued` bytes may take
/// several parts.
pub fn plan_reply(
    plain_header: usize,
    offered: &Lists,
    head: usize,
    items: impl IntoIterator<Item = usize>,
    threshold: usize,
    continued: usize,
) -> ReplyPlan {
    let mut left = offered.writes.iter().enumerate();
    let mut chunks = SmallVec::new();
    let mut reduced = head;
    for len in items {
        let chunk = match left.next() {
            // RFC 8166 §4.3.2.3: an empty Write chunk asks for its result inline.
            Some((index, chunk)) if !chunk.segments.is_empty() => {
                if len as u64 > chunk.len() {
                    return ReplyPlan::NoRoomForResult { chunk: index, len };
                }
                Some(u8::try_from(index).expect("write chunks are limited"))
            }
            Some(_) | None => {
                reduced += padded(len);
                None
            }
        };
        chunks.push(chunk);
    }
    let writes = offered.writes.iter().map(|chunk| chunk.segments.len());
    let room = offered.reply.as_ref();
    let header =
        plain_header + header::chunks_len(0, writes, room.map(|chunk| chunk.segments.len()));
    if header + reduced <= threshold {
        return ReplyPlan::Send(chunks);
    }
    match room {
        Some(chunk) if reduced as u64 <= chunk.len() && header <= threshold => {
            ReplyPlan::ReplyChunk(chunks)
        }
        // ietf-07 §6.6.4: if the chunks are not adequate, in parts. The last one has the chunks.
        Some(_) | None if reduced <= continued && header + LEAST_PART <= threshold => {
            ReplyPlan::Parts(chunks)
        }
        Some(_) | None => ReplyPlan::NoRoom { len: reduced },
    }
}
