//! Incoming messages and the rules they are checked against.

use super::{End, Queue, State};
use crate::regions::Refusal;
use crate::wire::{Message, Wire};
use std::fmt;
use std::time::Duration;
use verbs::{CloseReason, Completion, Handle, Invalidated, Invalidation, Segment, WorkError, WrId};

/// A rule of the transport that the peer broke.
struct Violation {
    text: String,
    refused: Option<u64>,
}

impl Violation {
    fn new(what: impl fmt::Display) -> Self {
        Self {
            text: what.to_string(),
            refused: None,
        }
    }
}

impl From<Refusal> for Violation {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal)
    }
}

impl End {
    pub(super) fn take_in(
        &mut self,
        now: Duration,
        message: Message,
        inward: &mut Wire,
        outward: &mut Wire,
    ) {
        self.io.reads += 1;
        self.io.bytes_in += message.payload() as u64;
        let closing = matches!(self.state, State::Closing { .. });
        match message {
            Message::Terminate { text, refused } => {
                // Whoever sent it is closed already, unless somebody else said it in its name: then
                // it hears that nobody is here any more, as it would from TCP.
                self.send(now, Message::Fin, inward, outward);
                self.end(CloseReason::Terminated(text), refused);
            }
            Message::Reset(text) if closing => {
                let _ = text;
                self.end(CloseReason::Local, None);
            }
            Message::Reset(text) => self.end(CloseReason::Lost(text.to_owned()), None),
            Message::Fin if closing => {
                if self.owes_fin() {
                    self.send(now, Message::Fin, inward, outward);
                }
                self.end(CloseReason::Local, None);
            }
            Message::Fin => {
                self.send(now, Message::Fin, inward, outward);
                self.end(CloseReason::Peer, None);
            }
            Message::Send { .. }
            | Message::Write { .. }
            | Message::ReadRequest(_)
            | Message::ReadResponse(_)
                if closing => {}
            Message::Send { bytes, invalidate } => {
                let result = self.take_in_send(now, &bytes, invalidate);
                self.judge(result, now, inward, outward);
            }
            Message::Write { bytes, to } => {
                let result = self.regions.write(to, &bytes).map_err(Violation::from);
                self.judge(result, now, inward, outward);
            }
            Message::ReadRequest(segment) => {
                let result = self.take_in_read_request(segment);
                self.judge(result, now, inward, outward);
            }
            Message::ReadResponse(bytes) => {
                let result = if self.reads.respond(&bytes) {
                    self.finish_reads();
                    Ok(())
                } else {
                    Err(Violation::new("a Read response that was not asked for"))
                };
                self.judge(result, now, inward, outward);
            }
        }
    }

    fn take_in_send(
        &mut self,
        now: Duration,
        bytes: &[u8],
        invalidate: Option<Handle>,
    ) -> Result<(), Violation> {
        // Like Linux, there is no waiting for a Receive: RFC 5041 §7.2 makes it a fatal error.
        let (wr, mut buffer) = self
            .receives
            .pop_front()
            .ok_or_else(|| Violation::new("a Send without a Receive posted for it"))?;
        if bytes.len() > buffer.capacity() {
            self.fail_receive(wr, WorkError::TooLong);
            return Err(Violation::new(format_args!(
                "a Send of {} bytes into a Receive of {}",
                bytes.len(),
                buffer.capacity()
            )));
        }
        let invalidated = match invalidate.map(|handle| self.invalidate_for_peer(handle)) {
            None => None,
            Some(Ok(invalidated)) => Some(invalidated),
            Some(Err(violation)) => {
                self.fail_receive(wr, WorkError::Flushed);
                return Err(violation);
            }
        };
        buffer.clear();
        buffer.extend_from_slice(bytes);
        let visible = self.clock.receive(now, invalidated.is_some());
        let done = Completion::Receive {
            wr,
            buffer,
            invalidated,
        };
        self.complete_at(now, visible, Queue::Receives, done);
        Ok(())
    }

    /// The Receive of a message that is refused; a block of the shared receive queue was posted by
    /// nobody.
    fn fail_receive(&mut self, wr: WrId, error: WorkError) {
        if self.share.is_none() {
            self.fail(Queue::Receives, wr, error);
        }
    }

    fn invalidate_for_peer(&mut self, handle: Handle) -> Result<Invalidated, Violation> {
        match self.limits.remote_invalidation {
            Invalidation::Region => {}
            Invalidation::None => return Err(Violation::new("remote invalidation is not offered")),
        }
        let memory = self.regions.invalidate_for_peer(handle)?;
        Ok(Invalidated { handle, memory })
    }

    fn take_in_read_request(&mut self, segment: Segment) -> Result<(), Violation> {
        let number = self.requests_seen;
        self.requests_seen += 1;
        if self.responses.len() >= self.limits.inbound_reads {
            return Err(Violation::new("more Read requests than agreed"));
        }
        match self.regions.read(segment) {
            Ok(bytes) => {
                self.responses.push_back(bytes);
                let waiting = self.responses.len();
                self.traffic.most_inbound_reads = self.traffic.most_inbound_reads.max(waiting);
                Ok(())
            }
            Err(refusal) => Err(Violation {
                refused: Some(number),
                ..refusal.into()
            }),
        }
    }

    fn judge(
        &mut self,
        result: Result<(), Violation>,
        now: Duration,
        inward: &mut Wire,
        outward: &mut Wire,
    ) {
        let Err(Violation { text, refused }) = result else {
            return;
        };
        let terminate = Message::Terminate {
            text: text.clone(),
            refused,
        };
        self.send(now, terminate, inward, outward);
        self.end(CloseReason::PeerError(text), None);
    }
}
