//! RDMA Reads of this end: outstanding Read Requests, and the next expected Read Response.

use crate::rdmap::ReadRequest;
use crate::stag::StagTable;
use crate::terminate::Cause;
use buffer::Buffer;
use smallvec::SmallVec;
use std::collections::VecDeque;
use verbs::{Segment, WrId};

/// The Reads of one connection, in the order of posting, which is the order of their responses (RFC
/// 5040 §5.2.2).
pub(super) struct Reads {
    ops: VecDeque<ReadOp>,
    /// Number of Reads at the head of the queue whose requests have all been sent.
    asked: usize,
    /// Read Requests without a complete response.
    outstanding: u16,
    ord: u16,
}

/// One Read: a request per segment, or two for a short one that crosses the end of a page, all into one sink.
pub(super) struct ReadOp {
    /// Identifier of the work request; `None` for the RTR message.
    wr: Option<WrId>,
    sink: Buffer,
    from: SmallVec<[Segment; 4]>,
    /// STag of the sink, valid from the first request to the last response.
    stag: Option<u32>,
    /// Segments whose request was sent, and the offset of the next one in the sink.
    asked: usize,
    asked_offset: u64,
    /// Segments whose response is complete.
    answered: usize,
    /// Octets placed, including those of the segment that is arriving.
    placed: usize,
    placed_of_segment: u32,
}

/// Longest Read Response, in bytes, that Linux' siw copies into the packet with its header, and the size of the pages that
/// it takes it from.
const SIW_COPIED_RESPONSE: u32 = 32;
const SIW_PAGE: u64 = 4096;

/// Bytes of a short segment before the end of a page that it crosses.
///
/// siw, which the peer may be, sends wrong bytes in a short Read Response whose source crosses the end of a page (seen with
/// Linux 6.1 and 6.12), and reports no error. Where its pages are larger, this only makes a request of two.
fn before_page_end(segment: &Segment) -> Option<u32> {
    let to_end = u32::try_from(SIW_PAGE - segment.offset % SIW_PAGE).ok()?;
    (segment.length <= SIW_COPIED_RESPONSE && to_end < segment.length).then_some(to_end)
}

/// The stretches of a segment that are asked for one by one.
fn divided(segment: Segment) -> impl Iterator<Item = Segment> {
    let first = before_page_end(&segment).unwrap_or(segment.length);
    let head = Segment {
        length: first,
        ..segment
    };
    let tail = (first < segment.length).then(|| Segment {
        length: segment.length - first,
        // What passes the end of the numbers is refused by the peer, as any other wrong address.
        offset: segment.offset.wrapping_add(u64::from(first)),
        ..segment
    });
    std::iter::once(head).chain(tail)
}

impl ReadOp {
    pub(super) fn new(wr: WrId, sink: Buffer, mut from: SmallVec<[Segment; 4]>) -> Self {
        if from
            .iter()
            .any(|segment| before_page_end(segment).is_some())
        {
            from = from.into_iter().flat_map(divided).collect();
        }
        Self {
            wr: Some(wr),
            sink,
            from,
            stag: None,
            asked: 0,
            asked_offset: 0,
            answered: 0,
            placed: 0,
            placed_of_segment: 0,
        }
    }

    /// Makes a Read without segments, whose completion is not reported.
    pub(super) fn empty() -> Self {
        let nowhere = Segment {
            handle: verbs::Handle(0),
            length: 0,
            offset: 0,
        };
        Self {
            wr: None,
            ..Self::new(WrId(0), Buffer::default(), [nowhere].into_iter().collect())
        }
    }

    fn is_answered(&self) -> bool {
        self.answered == self.from.len()
    }
}

impl Reads {
    pub(super) fn new(ord: u16) -> Self {
        Self {
            ops: VecDeque::new(),
            asked: 0,
            outstanding: 0,
            ord,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(super) fn trim(&mut self) {
        if self.ops.is_empty() {
            self.ops = VecDeque::new();
        }
    }

    pub(super) fn push(&mut self, op: ReadOp) {
        self.ops.push_back(op);
    }

    /// Returns the next Read Request, if the peer's limit allows another one (RFC 5040 §6.1).
    pub(super) fn next_request(&mut self, table: &mut StagTable) -> Option<ReadRequest> {
        loop {
            let op = self.ops.get_mut(self.asked)?;
            let Some(segment) = op.from.get(op.asked) else {
                self.asked += 1;
                continue;
            };
            if self.outstanding >= self.ord || !table.has_room() {
                return None;
            }
            let request = ReadRequest {
                sink_stag: *op.stag.get_or_insert_with(|| table.insert_read_sink()),
                sink_offset: op.asked_offset,
                length: segment.length,
                source_stag: segment.handle.0,
                source_offset: segment.offset,
            };
            op.asked += 1;
            op.asked_offset += u64::from(segment.length);
            self.outstanding += 1;
            return Some(request);
        }
    }

    /// Checks a segment of a Read Response; returns its offset in the sink.
    ///
    /// Only the response to the oldest request is admitted, in order. This is stricter than RFC
    /// 5040 §5.2.2 demands, so that the STag on the wire cannot be used for anything else. STag and
    /// offset of an empty segment are not checked (RFC 5041 §5.2).
    pub(super) fn admit(
        &self,
        stag: u32,
        offset: u64,
        len: usize,
        last: bool,
    ) -> Result<usize, Cause> {
        let op = self.ops.front().ok_or(Cause::RDMA_OPCODE)?;
        if op.answered >= op.asked {
            return Err(Cause::RDMA_OPCODE);
        }
        let left = (op.from[op.answered].length - op.placed_of_segment) as usize;
        if len > 0 {
            if op.stag != Some(stag) {
                return Err(Cause::DDP_INVALID_STAG);
            }
            if offset != op.placed as u64 || len > left {
                return Err(Cause::DDP_BOUNDS);
            }
        }
        if last && len < left {
            return Err(Cause::RDMA_OPERATION);
        }
        Ok(op.placed)
    }

    /// Notes that an admitted segment has been placed.
    pub(super) fn placed(&mut self, len: usize, last: bool) {
        let op = self
            .ops
            .front_mut()
            .expect("a Read stays until its last response is whole");
        op.placed += len;
        op.placed_of_segment += u32::try_from(len).expect("a segment is at most 64 KiB");
        if last {
            op.answered += 1;
            op.placed_of_segment = 0;
            self.outstanding -= 1;
        }
    }

    /// Removes the Read at the head of the queue, if it is complete; its STag becomes invalid.
    pub(super) fn pop_done(&mut self, table: &mut StagTable) -> Option<(Option<WrId>, Buffer)> {
        if !self.ops.front()?.is_answered() {
            return None;
        }
        let mut op = self.ops.pop_front()?;
        self.asked = self.asked.saturating_sub(1);
        if let Some(slot) = op.stag.and_then(|stag| table.find(stag)) {
            table.release(slot);
        }
        op.sink.set_len(op.placed);
        Some((op.wr, op.sink))
    }

    /// Returns the sink of the Read at the head of the queue.
    pub(super) fn sink_mut(&mut self) -> &mut [u8] {
        self.ops
            .front_mut()
            .expect("a Read stays until its last response is whole")
            .sink
            .memory_mut()
    }

    /// Removes all Reads; returns for each whether its sink has this STag.
    pub(super) fn drain(&mut self, stag: Option<u32>) -> impl Iterator<Item = (WrId, bool)> + '_ {
        self.asked = 0;
        self.outstanding = 0;
        self.ops
            .drain(..)
            .filter_map(move |op| Some((op.wr?, op.stag.is_some() && op.stag == stag)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::Handle;

    #[test]
    fn short_reads_stop_at_the_end_of_a_page() {
        let of = |segments: &[(u64, u32)]| {
            let segment = |&(offset, length): &(u64, u32)| Segment {
                handle: Handle(7),
                length,
                offset,
            };
            let from = segments.iter().map(segment).collect();
            let read = ReadOp::new(WrId(1), Buffer::default(), from);
            let parts = read.from.iter().map(|part| (part.offset, part.length));
            parts.collect::<Vec<_>>()
        };
        assert_eq!(of(&[(4090, 32)]), [(4090, 6), (4096, 26)]);
        assert_eq!(
            of(&[(4090, 6), (8191, 2)]),
            [(4090, 6), (8191, 1), (8192, 1)]
        );
        assert_eq!(of(&[(4096, 32), (4090, 33)]), [(4096, 32), (4090, 33)]);
        assert_eq!(of(&[(u64::MAX, 2)]), [(u64::MAX, 1), (0, 1)]);
        assert_eq!(of(&[(4090, 0)]), [(4090, 0)]);
    }
}
