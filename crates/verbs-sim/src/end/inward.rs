//! Incoming messages and the rules they are checked against.

use super::{End, Queue, State};
use crate::regions::Refusal;
use crate::wire::{Message, Wire};
use std::error::Error;
use std::fmt;
use std::time::Duration;
use verbs::{
    CloseReason, Completion, Handle, Handles, Invalidated, Invalidation, ProtocolError, Reason,
    Segment, WorkError, WrId,
};

/// A violation of the transport protocol by the peer.
#[derive(Clone, Copy, Debug)]
enum Violation {
    NoReceive,
    TooLong {
        bytes: usize,
        receive: usize,
    },
    NoRemoteInvalidation,
    TooManyInvalidations(usize),
    Invalidation(Refusal),
    Access(Refusal),
    TooManyReads,
    /// A refused Read request, by its number.
    Read(u64, Refusal),
    UnexpectedResponse,
}

impl Violation {
    fn kind(self) -> ProtocolError {
        match self {
            Self::NoReceive | Self::TooManyReads => ProtocolError::NoBuffer,
            Self::TooLong { .. } => ProtocolError::TooLong,
            Self::NoRemoteInvalidation | Self::TooManyInvalidations(_) | Self::Invalidation(_) => {
                ProtocolError::Invalidation
            }
            Self::Access(_) | Self::Read(..) => ProtocolError::MemoryAccess,
            Self::UnexpectedResponse => ProtocolError::InvalidMessage,
        }
    }

    /// Number of the Read request that the peer must fail.
    fn refused(self) -> Option<u64> {
        match self {
            Self::Read(number, _) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReceive => f.write_str("a Send without a Receive posted for it"),
            Self::TooLong { bytes, receive } => {
                write!(f, "a Send of {bytes} bytes into a Receive of {receive}")
            }
            Self::NoRemoteInvalidation => f.write_str("remote invalidation is not offered"),
            Self::TooManyInvalidations(handles) => {
                write!(f, "a Send that invalidates {handles} handles")
            }
            Self::Invalidation(refusal) | Self::Access(refusal) | Self::Read(_, refusal) => {
                refusal.fmt(f)
            }
            Self::TooManyReads => f.write_str("more Read requests than agreed"),
            Self::UnexpectedResponse => f.write_str("a Read response that was not asked for"),
        }
    }
}

impl Error for Violation {}

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
            Message::Terminate { reason, refused } => {
                // Whoever sent it is closed already, unless somebody else said it in its name: then
                // it hears that nobody is here any more, as it would from TCP.
                self.send(now, Message::Fin, inward, outward);
                self.end(CloseReason::Terminated(reason), refused);
            }
            Message::Reset(_) if closing => self.end(CloseReason::Local, None),
            Message::Reset(loss) => self.end(CloseReason::Lost(loss.into()), None),
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
                let result = self.regions.write(to, &bytes).map_err(Violation::Access);
                self.judge(result, now, inward, outward);
            }
            Message::ReadRequest(segment) => {
                let result = self.take_in_read_request(segment);
                self.judge(result, now, inward, outward);
            }
            Message::ReadResponse(bytes) => {
                let result = if self.reads.respond(&bytes) {
                    self.finish_reads(now);
                    Ok(())
                } else {
                    Err(Violation::UnexpectedResponse)
                };
                self.judge(result, now, inward, outward);
            }
        }
    }

    fn take_in_send(
        &mut self,
        now: Duration,
        bytes: &[u8],
        invalidate: Option<Handles>,
    ) -> Result<(), Violation> {
        // Like Linux, there is no waiting for a Receive: RFC 5041 §7.2 makes it a fatal error.
        let (wr, mut buffer) = self.receives.pop_front().ok_or(Violation::NoReceive)?;
        if bytes.len() > buffer.capacity() {
            self.fail_receive(wr, WorkError::TooLong);
            return Err(Violation::TooLong {
                bytes: bytes.len(),
                receive: buffer.capacity(),
            });
        }
        let invalidated = match self.invalidate_all(invalidate.as_ref()) {
            Ok(invalidated) => invalidated,
            Err(violation) => {
                self.fail_receive(wr, WorkError::Flushed);
                return Err(violation);
            }
        };
        buffer.clear();
        buffer.extend_from_slice(bytes);
        let handles = invalidate.as_ref().map_or(0, Handles::count);
        let visible = self.clock.receive(now, handles);
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

    /// Invalidates the handles of one Send of the peer.
    fn invalidate_all(
        &mut self,
        handles: Option<&Handles>,
    ) -> Result<Option<Invalidated>, Violation> {
        let Some(handles) = handles else {
            return Ok(None);
        };
        if handles.count() > self.limits.invalidations {
            return Err(Violation::TooManyInvalidations(handles.count()));
        }
        let all = handles
            .iter()
            .map(|handle| self.invalidate_for_peer(handle));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        Ok(Invalidated::together(all))
    }

    fn invalidate_for_peer(&mut self, handle: Handle) -> Result<Invalidated, Violation> {
        match self.limits.remote_invalidation {
            Invalidation::Region => {}
            Invalidation::None => return Err(Violation::NoRemoteInvalidation),
        }
        let memory = self.regions.invalidate_for_peer(handle);
        let memory = memory.map_err(Violation::Invalidation)?;
        Ok(Invalidated::new(handle, memory))
    }

    fn take_in_read_request(&mut self, segment: Segment) -> Result<(), Violation> {
        let number = self.requests_seen;
        self.requests_seen += 1;
        if self.responses.len() >= self.limits.inbound_reads {
            return Err(Violation::TooManyReads);
        }
        match self.regions.read(segment) {
            Ok(bytes) => {
                self.responses.push_back(bytes);
                let waiting = self.responses.len();
                self.traffic.most_inbound_reads = self.traffic.most_inbound_reads.max(waiting);
                Ok(())
            }
            Err(refusal) => Err(Violation::Read(number, refusal)),
        }
    }

    fn judge(
        &mut self,
        result: Result<(), Violation>,
        now: Duration,
        inward: &mut Wire,
        outward: &mut Wire,
    ) {
        let Err(violation) = result else {
            return;
        };
        let reason = Reason::new(violation.kind()).with_detail(violation);
        let terminate = Message::Terminate {
            reason: reason.clone(),
            refused: violation.refused(),
        };
        self.send(now, terminate, inward, outward);
        self.end(CloseReason::PeerError(reason), None);
    }
}
