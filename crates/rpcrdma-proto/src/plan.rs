//! The planner: decides from sizes and limits alone how a message travels (RFC 8166 §3.5).

mod reply;

use crate::limits::{
    LEAST_PART, MAX_READ_CHUNKS, MAX_READ_SEGMENTS, MAX_SEGMENTS_PER_CHUNK, MAX_WRITE_CHUNKS,
};
use crate::wire::header::{self, Lists, WriteChunk};
use oncrpc::xdr;
use oncrpc::xdr::{Payload, padded};
use oncrpc::{ReplyBound, TransportError};
use smallvec::SmallVec;
use verbs::{Handle, Segment};

pub use reply::{ReplyPlan, plan_reply};

/// Whether a direction of a connection uses chunks. The version of the protocol determines it, or
/// both ends have agreed on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// Chunks up to the limits.
    Allowed,
    /// No chunks: each message fits one Send, and a message with chunks is answered with ERR_CHUNK
    /// (RFC 8167 §5.3).
    Refused,
}

/// Limits of a connection for plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Bytes of a header without chunks.
    pub header: usize,
    /// Bytes of the largest message that this end sends inline.
    pub send: usize,
    /// Bytes of the largest reply that can be received inline.
    pub receive: usize,
    /// Bytes of the largest chunk.
    pub max_chunk: usize,
    /// Bytes of the largest segment: a longer chunk has several.
    pub max_segment: usize,
    /// Largest number of regions to register for a call.
    pub regions: usize,
    /// Bytes of the largest message without a body chunk that may take several Sends, in both
    /// directions; 0 if each takes one.
    pub continued: usize,
    /// Whether chunks are allowed.
    pub chunks: Chunks,
}

/// Sizes of a call message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSizes {
    /// Bytes of the whole stream.
    pub stream: usize,
    /// Bytes of each item, without padding.
    pub items: SmallVec<[usize; 1]>,
    /// Whether to offer a Reply chunk even if the reply fits a Send.
    pub reply_chunk: bool,
    /// Whether to use a chunk for each item and each result, even if it fits a Send.
    pub move_items: bool,
    /// Whether to use Read chunks for the items of a Long call, beside the one at Position zero
    /// (RFC 8166 §3.5.3). Not every Responder supports that.
    pub read_chunks_beside_position_zero: bool,
    /// Whether to use Write chunks for results where there is a Reply chunk (RFC 8166 §4.3.3). Not every
    /// Responder supports that.
    pub write_chunks_beside_reply_chunk: bool,
}

/// Form of a call message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// One Send (RFC 8166 §3.5.1), or several parts (ietf-07 §6.6.2).
    Short,
    /// One Send, with some of its items in a Read chunk each (RFC 8166 §3.5.2).
    Chunked,
    /// A Position-Zero Read chunk, without the items that have their own Read chunks (RFC 8166
    /// §3.5.3).
    Long,
}

/// Plan of a call: its form, and the chunks it offers for its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// Form of the call message.
    pub form: CallForm,
    /// Indices of the items that have a Read chunk each, in ascending order.
    pub moved: SmallVec<[usize; 1]>,
    /// Bytes of the Write chunk for each result that is eligible for placement. Empty if the whole
    /// reply comes inline, or in the Reply chunk.
    pub write_chunks: SmallVec<[usize; 1]>,
    /// Bytes of the Reply chunk, if the reply may need one.
    pub reply_chunk: Option<usize>,
}

/// The chunks that are offered for a reply.
#[derive(Clone, Debug, Default)]
struct Offer {
    write_chunks: SmallVec<[usize; 1]>,
    reply_chunk: Option<usize>,
}

impl Offer {
    /// Returns the number of regions to register.
    fn regions(&self) -> usize {
        let writes = self.write_chunks.iter().filter(|&&len| len > 0).count();
        writes + usize::from(self.reply_chunk.is_some())
    }
}

impl CallSizes {
    /// Returns the bytes of the stream without these items.
    fn without(&self, moved: &[usize]) -> usize {
        self.stream - moved.iter().map(|&i| padded(self.items[i])).sum::<usize>()
    }
}

impl From<&Payload> for CallSizes {
    fn from(message: &Payload) -> Self {
        Self {
            stream: message.stream_len(),
            items: message.items().iter().map(xdr::Item::len).collect(),
            reply_chunk: false,
            move_items: false,
            read_chunks_beside_position_zero: false,
            write_chunks_beside_reply_chunk: false,
        }
    }
}

/// Bytes of what fits a Send: of a header without chunks, and of the largest call and reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainLimits {
    pub(crate) header: usize,
    pub(crate) send: usize,
    pub(crate) receive: usize,
}

impl PlainLimits {
    /// Whether call and reply fit a Send each, as nearly every small one does: then [`CallPlan::new`] makes the
    /// [plain](CallPlan::plain) plan of a call without wishes. Otherwise this says nothing of a call.
    pub(crate) fn has_room(self, stream: usize, bound: &ReplyBound) -> bool {
        let results = bound.results.iter().map(|&len| padded(len));
        let reply = self.header + bound.fixed + results.sum::<usize>();
        let call = self.header + stream;
        reply <= self.receive && call <= self.send.min(u32::MAX as usize)
    }
}

impl PlanLimits {
    /// Returns the number of segments of a chunk of `len` bytes.
    pub fn segments(&self, len: usize) -> usize {
        len.div_ceil(self.max_segment)
    }

    /// Returns the bytes of a header with these numbers of segments in the Read list, in each Write
    /// chunk and in the Reply chunk.
    pub fn header_len(
        &self,
        read_segments: usize,
        write_chunks: impl Iterator<Item = usize>,
        reply_chunk: Option<usize>,
    ) -> usize {
        self.header + header::chunks_len(read_segments, write_chunks, reply_chunk)
    }

    /// Checks that a stream fits one Send of at most `limit` bytes, or several parts.
    fn check_inline(&self, stream: usize, limit: usize) -> Result<(), TransportError> {
        match stream <= self.continued {
            true => Ok(()),
            false => check(self.header + stream, limit),
        }
    }

    fn check_chunk(&self, len: usize, segments: usize) -> Result<(), TransportError> {
        check(len, self.max_chunk)?;
        check(len, segments.saturating_mul(self.max_segment))
    }
}

impl CallPlan {
    /// Plans a call of these sizes, with a reply within this bound.
    ///
    /// # Errors
    ///
    /// If the call or its reply is larger than this connection can carry.
    pub fn new(
        call: &CallSizes,
        bound: &ReplyBound,
        limits: &PlanLimits,
    ) -> Result<Self, TransportError> {
        // A Position is a word.
        check(call.stream, u32::MAX as usize)?;
        let whole = bound.fixed + bound.results.iter().map(|&len| padded(len)).sum::<usize>();
        let min_len = limits.header;
        let fits = min_len + whole <= limits.receive;
        if limits.chunks == Chunks::Refused {
            limits.check_inline(whole, limits.receive)?;
            limits.check_inline(call.stream, limits.send)?;
        }
        // A chunk that is always empty is worth nothing on its own.
        let eligible = bound.results.iter().any(|&len| len > 0);
        // ietf-07 A.2: a reply of moderate size rather comes in parts than in a Reply chunk.
        let fits = fits || (!eligible && whole <= limits.continued);
        let plain = fits && !call.reply_chunk && !(call.move_items && eligible);
        if limits.chunks == Chunks::Refused || plain {
            return Self::with(call, Offer::default(), limits);
        }
        let in_reply_chunk = || {
            Self::with(
                call,
                Offer {
                    write_chunks: SmallVec::new(),
                    reply_chunk: Some(reply_chunk(whole)),
                },
                limits,
            )
        };
        let worth_it = !fits || call.move_items;
        if !worth_it || !eligible || bound.results.len() > MAX_WRITE_CHUNKS {
            return in_reply_chunk();
        }
        // RFC 8166 §4.3.3: a Reply chunk whenever what is left of the reply may not fit a Send. A
        // Linux server sends all that fits its own Send, whatever it was told, so the bound counts
        // and not what replies usually are.
        let writes = bound.results.iter().map(|&len| limits.segments(len));
        let left = limits.header_len(0, writes, None) + bound.fixed;
        let in_parts = bound.fixed <= limits.continued;
        let long = (left > limits.receive && !in_parts) || call.reply_chunk;
        if long && !call.write_chunks_beside_reply_chunk {
            // With Write chunks beside a Reply chunk, Linux' server (6.1, 6.12) writes the results to
            // both, and disconnects.
            return in_reply_chunk();
        }
        let placed = limits.check_results(&bound.results).and_then(|()| {
            let offer = Offer {
                write_chunks: bound.results.clone(),
                reply_chunk: long.then(|| reply_chunk(bound.fixed)),
            };
            Self::with(call, offer, limits)
        });
        // So many segments may be too much for a header where those of one chunk are not.
        placed.or_else(|error| in_reply_chunk().map_err(|_| error))
    }

    /// Returns the plan of a call that [is plain](PlainLimits::has_room).
    pub(crate) fn plain() -> Self {
        Self {
            form: CallForm::Short,
            moved: SmallVec::new(),
            write_chunks: SmallVec::new(),
            reply_chunk: None,
        }
    }

    /// Plans a call with these chunks for its reply.
    fn with(call: &CallSizes, offer: Offer, limits: &PlanLimits) -> Result<Self, TransportError> {
        if let Some(len) = offer.reply_chunk {
            limits.check_chunk(len, MAX_SEGMENTS_PER_CHUNK)?;
        }
        let header = |read_segments| {
            limits.header_len(
                read_segments,
                offer.write_chunks.iter().map(|&len| limits.segments(len)),
                offer.reply_chunk.map(|len| limits.segments(len)),
            )
        };
        // RFC 8166 §3.4.6: all of it comes back, in a header that has to fit a Send too.
        check(header(0), limits.receive)?;
        let too_large = TransportError::TooLarge {
            len: call.stream,
            limit: limits.send,
        };
        let Some(regions) = limits.regions.checked_sub(offer.regions()) else {
            return Err(too_large);
        };
        let plan = |form, moved| Self {
            form,
            moved,
            write_chunks: offer.write_chunks.clone(),
            reply_chunk: offer.reply_chunk,
        };
        let whole = header(0) + call.stream <= limits.send;
        if whole && !call.move_items {
            return Ok(plan(CallForm::Short, SmallVec::new()));
        }
        let room = limits.send.saturating_sub(header(0));
        if let Some(moved) = chunked(call, room, regions, limits) {
            return Ok(plan(CallForm::Chunked, moved));
        }
        // The last part has the chunks.
        let in_parts = call.stream <= limits.continued && room >= LEAST_PART;
        if whole || in_parts {
            return Ok(plan(CallForm::Short, SmallVec::new()));
        }
        // A region for what is at Position zero.
        let Some(others) = regions.checked_sub(1) else {
            return Err(too_large);
        };
        if call.read_chunks_beside_position_zero
            && let Some(moved) = mixed(call, room, others, limits)
        {
            return Ok(plan(CallForm::Long, moved));
        }
        limits.check_chunk(call.stream, MAX_READ_SEGMENTS)?;
        check(header(limits.segments(call.stream)), limits.send)?;
        Ok(plan(CallForm::Long, SmallVec::new()))
    }

    /// Whether the call is one Send without chunks, as nearly every small call is.
    pub fn is_plain(&self) -> bool {
        self.form == CallForm::Short && self.write_chunks.is_empty() && self.reply_chunk.is_none()
    }

    /// Returns the bytes of each Read chunk of this plan, for a call of these sizes.
    pub fn read_chunks(&self, call: &CallSizes) -> impl Iterator<Item = usize> {
        let stream = (self.form == CallForm::Long).then(|| call.without(&self.moved));
        let items = self.moved.iter().map(|&index| call.items[index]);
        stream.into_iter().chain(items)
    }

    /// Returns the Write list and the Reply chunk with segments of the right lengths and without
    /// handles: enough for [`plan_reply`].
    pub fn offered(&self, limits: &PlanLimits) -> Lists {
        let chunk = |len: usize| WriteChunk {
            segments: (0..len)
                .step_by(limits.max_segment)
                .map(|start| limits.max_segment.min(len - start))
                .map(|length| Segment {
                    handle: Handle(0),
                    length: u32::try_from(length).expect("a segment's length is a word"),
                    offset: 0,
                })
                .collect(),
        };
        Lists {
            reads: Vec::new(),
            writes: self.write_chunks.iter().map(|&len| chunk(len)).collect(),
            reply: self.reply_chunk.map(chunk),
        }
    }

    /// Returns the bytes of the call that follow the header in the Send.
    pub fn inline(&self, call: &CallSizes) -> usize {
        match self.form {
            CallForm::Short | CallForm::Chunked => call.without(&self.moved),
            CallForm::Long => 0,
        }
    }

    /// Returns the segments that its header offers.
    pub fn segments(&self, call: &CallSizes, limits: &PlanLimits) -> usize {
        let reads = self.read_chunks(call);
        let writes = self.write_chunks.iter().copied().chain(self.reply_chunk);
        reads.chain(writes).map(|len| limits.segments(len)).sum()
    }

    /// Regions to register for it.
    pub fn regions(&self) -> usize {
        let writes = self.write_chunks.iter().filter(|&&len| len > 0).count();
        let offered = writes + usize::from(self.reply_chunk.is_some());
        offered + self.moved.len() + usize::from(self.form == CallForm::Long)
    }
}

impl PlanLimits {
    fn check_results(&self, results: &[usize]) -> Result<(), TransportError> {
        let largest = results.iter().copied().max().unwrap_or(0);
        self.check_chunk(largest, MAX_SEGMENTS_PER_CHUNK)
    }
}

/// Selects the items to move so that the rest of the call fits a Send beside the header: the
/// fewest, so the largest, and at most `regions`. `None` if that is not enough.
fn chunked(
    call: &CallSizes,
    room: usize,
    regions: usize,
    limits: &PlanLimits,
) -> Option<SmallVec<[usize; 1]>> {
    let mut moved = Moved::default();
    let mut items = by_size(call, limits)
        .take(MAX_READ_CHUNKS.min(regions))
        .peekable();
    while let Some(index) = items.next() {
        moved.add(call, index, limits);
        if moved.segments > MAX_READ_SEGMENTS {
            return None;
        }
        let enough = !call.move_items || items.peek().is_none();
        if enough && moved.header() + call.stream - moved.bytes <= room {
            return Some(moved.in_order());
        }
    }
    None
}

/// Selects the items of a Long call that move in their own chunks: as many as there is room for,
/// the largest first, and at most `regions`. `None` if there are none, or the rest does not fit.
fn mixed(
    call: &CallSizes,
    room: usize,
    regions: usize,
    limits: &PlanLimits,
) -> Option<SmallVec<[usize; 1]>> {
    let most = regions.min(MAX_READ_CHUNKS - 1);
    let mut items: SmallVec<[usize; 1]> = by_size(call, limits).take(most).collect();
    while !items.is_empty() {
        let mut moved = Moved::default();
        items.iter().for_each(|&i| moved.add(call, i, limits));
        let rest = call.without(&items);
        if rest > limits.max_chunk {
            return None;
        }
        moved.segments += limits.segments(rest);
        if moved.header() <= room && moved.segments <= MAX_READ_SEGMENTS {
            return Some(moved.in_order());
        }
        items.pop();
    }
    None
}

/// Returns the items that are worth a chunk and fit one, the largest first.
fn by_size<'a>(call: &'a CallSizes, limits: &'a PlanLimits) -> impl Iterator<Item = usize> + 'a {
    let worth_it = |&index: &usize| {
        let len = call.items[index];
        (1..=limits.max_chunk).contains(&len)
            && padded(len) > header::read_segments_len(limits.segments(len))
    };
    let mut items: SmallVec<[usize; 4]> = (0..call.items.len()).filter(worth_it).collect();
    items.sort_by_key(|&index| std::cmp::Reverse(call.items[index]));
    items.into_iter()
}

/// Items that move, and their effect on the message.
#[derive(Default)]
struct Moved {
    items: SmallVec<[usize; 1]>,
    /// Number of Read segments.
    segments: usize,
    /// Bytes removed from the stream.
    bytes: usize,
}

impl Moved {
    fn add(&mut self, call: &CallSizes, index: usize, limits: &PlanLimits) {
        let len = call.items[index];
        self.items.push(index);
        self.segments += limits.segments(len);
        self.bytes += padded(len);
    }

    /// Returns the bytes added to the header.
    fn header(&self) -> usize {
        header::read_segments_len(self.segments)
    }

    fn in_order(mut self) -> SmallVec<[usize; 1]> {
        self.items.sort_unstable();
        self.items
    }
}

/// Returns the bytes of the Reply chunk for a stream of at most `len`. At least one, because no
/// region is empty.
fn reply_chunk(len: usize) -> usize {
    padded(len.max(1))
}

fn check(len: usize, limit: usize) -> Result<(), TransportError> {
    if len > limit {
        return Err(TransportError::TooLarge { len, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
