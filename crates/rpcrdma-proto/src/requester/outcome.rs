//! The outcome of a call: its reply, and the memory that holds its bytes.

use crate::codec::Rpc;
use crate::counters::Counters;
use crate::wire::direction::{REPLY, prefix};
use crate::wire::header::{Lists, WriteChunk};
use buffer::{Buffer, Gather};
use oncrpc::TransportError;
use oncrpc::xdr::Payload;
use smallvec::SmallVec;
use verbs::{Handle, Memory};

/// Memory of one chunk that the peer can access: a region, or a part of one.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) handle: Handle,
    pub(crate) used_as: RegionUse,
    /// The memory of the region, once it is no longer exposed.
    pub(crate) back: Option<Memory>,
}

impl Region {
    pub(crate) fn new(handle: Handle, used_as: RegionUse) -> Self {
        Self {
            handle,
            used_as,
            back: None,
        }
    }
}

/// Memory of the chunks of one call, of which there is mostly one.
pub(crate) type Regions = SmallVec<[Region; 1]>;

/// Returns the handles of a call that are exposed, each once: the parts of a region follow each
/// other.
pub(crate) fn exposed(regions: &[Region]) -> impl Iterator<Item = Handle> {
    regions
        .chunk_by(|one, next| one.handle == next.handle)
        .filter_map(|parts| parts.first().filter(|part| part.back.is_none()))
        .map(|part| part.handle)
}

/// Takes back the memory of a handle that is no longer exposed, all parts at once. Returns false if
/// the call has no such handle exposed.
pub(crate) fn take_back(regions: &mut [Region], handle: Handle, memory: Memory) -> bool {
    let mut of_handle = regions
        .iter_mut()
        .filter(|region| region.handle == handle && region.back.is_none())
        .peekable();
    if of_handle.peek().is_none() {
        return false;
    }
    match memory {
        Memory::Parts(parts) => {
            for (region, part) in of_handle.zip(parts) {
                region.back = Some(part.into());
            }
        }
        whole => {
            if let Some(region) = of_handle.next() {
                region.back = Some(whole);
            }
        }
    }
    true
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegionUse {
    /// An argument, which the peer reads.
    Argument,
    /// Memory for the result with this index, which the peer writes.
    Result(usize),
    /// Memory for the reply, which the peer writes.
    Reply,
}

/// Outcome of a reply, with the bytes in each Write chunk.
#[derive(Debug)]
pub(crate) enum Outcome {
    Inline {
        message: Buffer,
        stream: usize,
        results: SmallVec<[usize; 1]>,
    },
    InReplyChunk {
        len: usize,
        results: SmallVec<[usize; 1]>,
    },
    Failed(TransportError),
}

impl Outcome {
    /// Whether all memory with its data has come back.
    pub(crate) fn is_whole(&self, regions: &[Region]) -> bool {
        let (results, in_reply_chunk): (&[usize], _) = match self {
            Self::Inline { results, .. } => (results, false),
            Self::InReplyChunk { results, .. } => (results, true),
            Self::Failed(_) => return true,
        };
        regions.iter().all(|region| {
            let needed = match region.used_as {
                RegionUse::Argument => false,
                RegionUse::Result(index) => results.get(index).is_some_and(|&len| len > 0),
                RegionUse::Reply => in_reply_chunk,
            };
            !needed || region.back.is_some()
        })
    }
}

/// Evaluates the chunks in the reply with this XID against those that the call offered.
pub(crate) fn judge(
    offered: &Lists,
    xid: u32,
    reply: &Rpc,
    message: Buffer,
    stream: usize,
) -> Outcome {
    let bad = |why| Outcome::Failed(TransportError::BadReply(why));
    let (results, in_reply_chunk) = match returned(offered, &reply.lists) {
        Err(why) => return bad(why),
        Ok(returned) => returned,
    };
    match (reply.long, in_reply_chunk) {
        (false, Some(1..)) => bad("an inline reply with bytes in its reply chunk"),
        (false, _) => match prefix(&message[stream..]) {
            Some((found, REPLY)) if found == xid => Outcome::Inline {
                message,
                stream,
                results,
            },
            _ => bad("the reply is for another call than its header"),
        },
        (true, Some(len @ 1..)) => Outcome::InReplyChunk { len, results },
        (true, _) => bad("a long reply without bytes in its reply chunk"),
    }
}

type Returned = (SmallVec<[usize; 1]>, Option<usize>);

/// Returns the bytes in each Write chunk and in the Reply chunk, if they match what was offered
/// (RFC 8166 §3.4.6).
fn returned(offered: &Lists, lists: &Lists) -> Result<Returned, &'static str> {
    if lists.is_empty() {
        // Nearly every small one. Of what was offered nothing was used.
        return Ok((SmallVec::new(), None));
    }
    // RFC 8166 §4.3.1: only a call carries a Read list.
    if !lists.reads.is_empty() {
        return Err("a reply with a read list");
    }
    // A server that returns no Write list at all has used none of it.
    if !lists.writes.is_empty() && lists.writes.len() != offered.writes.len() {
        return Err("more or fewer write chunks than were offered");
    }
    let results: Result<_, _> = offered
        .writes
        .iter()
        .zip(&lists.writes)
        .map(|(offered, chunk)| filled(offered, chunk))
        .collect();
    let reply = match (&offered.reply, &lists.reply) {
        (Some(offered), Some(chunk)) => Some(filled(offered, chunk)?),
        (_, None) => None,
        (None, Some(_)) => return Err("a reply chunk that was not offered"),
    };
    Ok((results?, reply))
}

fn filled(offered: &WriteChunk, chunk: &WriteChunk) -> Result<usize, &'static str> {
    if chunk.segments.len() != offered.segments.len() {
        return Err("a chunk with more or fewer segments than were offered");
    }
    let mut len = 0;
    let mut full = true;
    for (offered, segment) in offered.segments.iter().zip(&chunk.segments) {
        if segment.length > offered.length {
            return Err("a chunk with more bytes than were offered");
        }
        let same = (segment.handle, segment.offset) == (offered.handle, offered.offset);
        if segment.length > 0 && !same {
            return Err("a chunk with memory that was not offered");
        }
        // RFC 8166 §3.4.6: chunks are filled contiguously.
        if segment.length > 0 && !full {
            return Err("a chunk with a gap in it");
        }
        full = segment.length == offered.length;
        len += segment.length as usize;
    }
    Ok(len)
}

/// Assembles the reply message from the Send and the written memory.
pub(crate) fn assemble(
    counters: &mut Counters,
    xid: u32,
    regions: Regions,
    outcome: Outcome,
) -> Result<Payload, TransportError> {
    match outcome {
        Outcome::Failed(error) => Err(error),
        Outcome::Inline {
            message,
            stream,
            results,
        } => {
            if regions.is_empty() {
                return Ok(Payload::new(message, stream));
            }
            let (data, unused, _) = placed(counters, regions, &results);
            let reply = Payload::with_results(message, stream, data.into_iter());
            Ok(reply.with_unused_chunks(unused))
        }
        Outcome::InReplyChunk { len, results } => {
            let (data, unused, sink) = placed(counters, regions, &results);
            let mut head = sink.expect("a reply chunk that was offered has a sink");
            head.set_len(len);
            counters.reply_bytes_received += len as u64;
            match prefix(&head) {
                Some((found, REPLY)) if found == xid => {
                    let reply = Payload::with_results(head, 0, data.into_iter());
                    Ok(reply.with_unused_chunks(unused))
                }
                _ => {
                    counters.bad_replies += 1;
                    Err(TransportError::BadReply(
                        "the reply in the reply chunk is for another call",
                    ))
                }
            }
        }
    }
}

/// Returns the written results in order, the number of unused chunks, and the sink of the Reply
/// chunk.
fn placed(
    counters: &mut Counters,
    regions: Regions,
    results: &[usize],
) -> (SmallVec<[Gather; 1]>, usize, Option<Buffer>) {
    let mut data = SmallVec::new();
    let mut unused = 0;
    let mut reply = None;
    for region in regions {
        match (region.used_as, region.back) {
            (RegionUse::Reply, Some(Memory::Sink(sink))) => reply = Some(sink),
            (RegionUse::Result(index), back) => {
                let len = results.get(index).copied().unwrap_or(0);
                if len == 0 {
                    unused += 1;
                } else if let Some(Memory::Sink(mut sink)) = back {
                    counters.write_bytes_received += len as u64;
                    sink.set_len(len);
                    data.push(Gather::from_elem(sink.freeze(), 1));
                }
            }
            (RegionUse::Argument | RegionUse::Reply, _) => {}
        }
    }
    (data, unused, reply)
}
