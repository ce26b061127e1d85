//! State shared by both roles of a connection.

use crate::agreed::Agreed;
use crate::counters::Counters;
use crate::event::{CallId, Ended, Violation};
use crate::flow::FlowControl;
use crate::limits::LEAST_PART;
use crate::message::split_front;
use crate::owner::Owner;
use crate::plan::CallPlan;
use crate::v2::ietf07::PART_LEN;
use crate::wire::direction::Direction;
use crate::work::{Posts, Purpose};
use buffer::{Buffer, Gather, Pool};
use oncrpc::xdr::Payload;
use std::collections::VecDeque;
use verbs::{Handles, Invalidated, Limits, WorkRequest};

/// State shared by both roles of a connection.
#[derive(Debug)]
pub(crate) struct Shared<O: Owner> {
    pub(crate) owner: O,
    pub(crate) agreed: Agreed,
    /// Number of changes that invalidated plans.
    pub(crate) terms: u32,
    pub(crate) flow: FlowControl,
    pub(crate) limits: Limits,
    /// Bytes of the largest chunk.
    pub(crate) max_chunk: usize,
    /// Bytes of the largest segment to offer.
    pub(crate) max_segment: usize,
    /// Largest number of chunks of a call that are registered under one handle (reminv §2.4); 0 if
    /// each has its own.
    pub(crate) max_parts: usize,
    pub(crate) pool: Pool,
    pub(crate) posts: Posts,
    /// Finished calls of this end.
    pub(crate) replies: VecDeque<Ended<O>>,
    /// Complete calls of the peer.
    pub(crate) calls: VecDeque<(CallId<O::Lease>, Payload)>,
    pub(crate) counters: Counters,
    pub(crate) violation: Option<Violation>,
    /// Size of the largest reply since the last query that could have been one message, in bytes.
    pub(crate) largest_reply: usize,
}

impl<O: Owner> Shared<O> {
    /// Ends the connection for a reason. The first one counts.
    pub(crate) fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// Posts Receives until there are enough. They are posted before any queued Send, so that a
    /// peer is never granted a missing one.
    pub(crate) fn post_receives(&mut self) {
        let size = self.agreed.sizes.receive;
        for _ in 0..self.flow.receives_to_post(size) {
            let buffer = self.pool.take(size);
            self.posts.push_receive(buffer);
        }
    }

    /// Returns how many Receives a message would fill beyond one, where it may have come in parts.
    pub(crate) fn receives_beyond_one(&mut self, message: &Buffer) -> usize {
        match self.flow.messages() {
            Some(_) => message.len().saturating_sub(1) / self.agreed.sizes.receive,
            None => 0,
        }
    }

    /// Returns the bytes of the largest segment to offer.
    pub(crate) fn max_segment(&self) -> usize {
        self.max_segment.min(self.agreed.sizes.peer_segment)
    }

    /// Pushes a message that takes several Sends: all parts but the last, which has its own
    /// `header`, with the chunks. Returns the number of Sends.
    ///
    /// # Panics
    ///
    /// If the header fills a Send, which a plan excludes.
    pub(crate) fn push_parts(
        &mut self,
        (direction, xid): (Direction, u32),
        header: Buffer,
        mut stream: Gather,
        (part, last): (Purpose, Purpose),
        invalidate: Option<Handles>,
    ) -> usize {
        let (codec, most) = (self.agreed.codec, self.agreed.sizes.send);
        let room = most
            .checked_sub(header.len())
            .filter(|room| *room >= LEAST_PART);
        let room = room.expect("the last part has room for some of the stream");
        let mut left = buffer::gather_len(&stream);
        let mut sends = 1;
        while left > room {
            let mut buffer = self.pool.take(PART_LEN);
            codec.emit_part(&mut buffer, direction, xid, 0);
            let begin = buffer.len();
            // Whole words, of which the last part has one at least: each begins with one (§6.3.6, §6.3.7).
            let len = ((most - begin) & !(LEAST_PART - 1)).min(left - LEAST_PART);
            left -= len;
            let remaining = u32::try_from(left).expect("the plan limits messages");
            buffer[begin - 4..].copy_from_slice(&remaining.to_be_bytes());
            let rest = split_front(&mut stream, len);
            sends += 1;
            self.posts.push(WorkRequest::Send {
                wr: part.wr(),
                buffer,
                rest,
                invalidate: None,
            });
        }
        if sends > 1 {
            self.counters.parts_sent += sends as u64;
        }
        self.posts.push(WorkRequest::Send {
            wr: last.wr(),
            buffer: header,
            rest: stream,
            invalidate,
        });
        sends
    }

    /// Whether a plan's chunks are registered under one handle.
    pub(crate) fn has_one_region(&self, plan: &CallPlan) -> bool {
        (2..=self.max_parts).contains(&plan.regions())
    }

    /// Records a reply that has, or would have, `bytes` bytes as one message.
    pub(crate) fn note_reply(&mut self, bytes: usize) {
        if bytes <= self.agreed.sizes.largest_sent {
            self.largest_reply = self.largest_reply.max(bytes);
        }
    }

    /// Takes an empty buffer for a message to send.
    pub(crate) fn send_buffer(&self) -> Buffer {
        self.pool.take(self.agreed.sizes.last_resort)
    }

    /// Rejects an invalidation by a message that answers no call of this end.
    pub(crate) fn refuse_invalidation(&mut self, invalidated: Option<Invalidated>) {
        if let Some(Invalidated { handle, .. }) = invalidated {
            self.fail(Violation::ForeignHandle(handle));
        }
    }
}

/// Makes a Receive into `buffer`.
pub(crate) fn receive(buffer: Buffer) -> WorkRequest {
    WorkRequest::Receive {
        wr: Purpose::Receive.wr(),
        buffer,
    }
}
