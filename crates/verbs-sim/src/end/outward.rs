//! Outgoing messages: work in the order of posting, Read Responses, and the Terminate.

use super::{End, Queue, State};
use crate::wire::{Message, Wire};
use std::time::Duration;
use verbs::{CloseReason, Completion, Invalidated, Loss, Reason, WorkError, WorkRequest};

impl End {
    pub(super) fn send_next(
        &mut self,
        now: Duration,
        inward: &mut Wire,
        outward: &mut Wire,
    ) -> bool {
        if let Some(segment) = self.reads.next_request() {
            self.traffic.read_requests += 1;
            self.send(now, Message::ReadRequest(segment), inward, outward);
            return true;
        }
        let something = !self.posted.is_empty() || !self.responses.is_empty();
        let begins = self.has_posted(now);
        if something && !begins && self.responses.is_empty() {
            return false;
        }
        if something && !outward.has_room() {
            return false;
        }
        // Responses and our own work share the way out in no particular order (RFC 5040 §5.5).
        let response_first = !begins || self.rng.coin();
        if response_first && let Some(bytes) = self.responses.pop_front() {
            self.send(now, Message::ReadResponse(bytes), inward, outward);
        } else if let Some((_, work)) = self.posted.pop_front_if(|_| begins) {
            self.begin(now, work, inward, outward);
        } else if !something && self.owes_fin() {
            self.send(now, Message::Fin, inward, outward);
            if let State::Closing { fin_sent, .. } = &mut self.state {
                *fin_sent = true;
            }
        } else {
            return false;
        }
        true
    }

    fn begin(&mut self, now: Duration, work: WorkRequest, inward: &mut Wire, outward: &mut Wire) {
        let number = self.begun;
        self.begun += 1;
        if let Some((failing, error)) = self.faults.fail_work
            && failing == number
        {
            self.fail(Queue::Work, work.wr(), error);
            outward.sever(now);
            self.end(failed(error), None);
            return;
        }
        match work {
            WorkRequest::Receive { .. } => unreachable!("Receives have a queue of their own"),
            WorkRequest::Send {
                wr,
                buffer,
                rest,
                invalidate,
            } => {
                self.traffic.sends += 1;
                self.traffic.sends_with_invalidate += u64::from(invalidate.is_some());
                let bytes = [&buffer, rest.concat().as_slice()].concat();
                drop((buffer, rest));
                self.send(now, Message::Send { bytes, invalidate }, inward, outward);
                self.sent(now, Completion::Send { wr });
            }
            WorkRequest::Write { wr, source, to } => {
                self.traffic.writes += 1;
                let bytes = source.concat();
                drop(source);
                self.send(now, Message::Write { bytes, to }, inward, outward);
                self.sent(now, Completion::Write { wr });
            }
            WorkRequest::Read { wr, sink, from } => {
                self.reads.begin(wr, sink, from);
                self.finish_reads(now);
            }
            WorkRequest::Invalidate { wr, handle } => match self.regions.invalidate(handle) {
                Some(memory) => {
                    self.traffic.local_invalidations += 1;
                    let invalidated = Invalidated::new(handle, memory);
                    let visible = self.clock.invalidate(now);
                    let done = Completion::Invalidate { wr, invalidated };
                    self.complete_at(now, visible, Queue::Work, done);
                }
                None => {
                    self.fail(Queue::Work, wr, WorkError::NoSuchHandle);
                    outward.sever(now);
                    self.end(failed(WorkError::NoSuchHandle), None);
                }
            },
        }
    }

    /// A message of ours is out.
    fn sent(&mut self, now: Duration, completion: Completion) {
        let visible = self.clock.sent(now);
        self.complete_at(now, visible, Queue::Work, completion);
    }

    /// Completes the Reads that are whole: their owner, who waits for them, can see that now.
    pub(super) fn finish_reads(&mut self, now: Duration) {
        while let Some(completion) = self.reads.finished() {
            self.complete_at(now, now, Queue::Work, completion);
        }
    }

    pub(super) fn send(
        &mut self,
        now: Duration,
        message: Message,
        inward: &mut Wire,
        outward: &mut Wire,
    ) {
        self.io.writes += 1;
        self.io.bytes_out += message.payload() as u64;
        let latency = &self.faults.latency;
        let (_, there) = self.clock.send(now, message.payload());
        let due = there + self.rng.between(*latency.start(), *latency.end());
        if outward.push(due, message) {
            inward.sever(due);
        }
    }
}

/// The end of a connection by a work request that failed.
fn failed(error: WorkError) -> CloseReason {
    CloseReason::Lost(Reason::new(Loss::WorkFailed).with_detail(error))
}
