//! Checks segments of the peer and finds their destination, without changing any state.
//!
//! Defends against the attacks of RFC 5042 §6: every field is validated before a single octet of
//! payload is placed.

use super::places::{Places, Target};
use crate::ddp::{self, Header};
use crate::rdmap::{self, Control, Opcode, QUEUE_READ, QUEUE_SEND, QUEUE_TERMINATE, ReadRequest};
use crate::stag::{Entry, SlotId};
use crate::terminate::{Cause, Terminate};
use bytes::Bytes;
use verbs::{Access, Buffer, Gather, Memory, Part};

/// A segment that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    pub(super) what: What,
    /// Target of the payload and offset in it; `None` if the payload is empty or for RDMAP itself.
    pub(super) place: Option<(Target, usize)>,
    /// L: the segment is the last of its message.
    pub(super) last: bool,
}

/// Message that a segment is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Write,
    /// Ahead of a Send: a region that goes with it.
    Invalidate(SlotId),
    ReadResponse,
    Send {
        invalidate: Option<u32>,
    },
    ReadRequest,
    Terminate,
}

impl Places {
    /// Checks a segment by its header and the length of its payload.
    pub(super) fn admit(&self, header: &Header, len: usize, ird: u16) -> Result<Admitted, Cause> {
        let last = header.control().last();
        match *header {
            Header::Tagged {
                control,
                rsvd_ulp,
                stag,
                offset,
            } => {
                if control.version() != ddp::VERSION {
                    return Err(Cause::DDP_TAGGED_VERSION);
                }
                let (what, place) = match opcode(rsvd_ulp)? {
                    Opcode::Write => (What::Write, self.admit_write(stag, offset, len)?),
                    Opcode::ReadResponse => {
                        let start = self.reads.admit(stag, offset, len, last)?;
                        let place = (len > 0).then_some((Target::ReadSink, start));
                        (What::ReadResponse, place)
                    }
                    Opcode::Invalidate => (self.admit_invalidate(stag, offset, len, last)?, None),
                    _ => return Err(Cause::RDMA_OPCODE),
                };
                Ok(Admitted { what, place, last })
            }
            Header::Untagged {
                control,
                rsvd_ulp,
                rsvd_ulp_word,
                queue,
                sequence,
                offset,
            } => {
                if control.version() != ddp::VERSION {
                    return Err(Cause::DDP_UNTAGGED_VERSION);
                }
                if queue > QUEUE_TERMINATE {
                    return Err(Cause::DDP_QUEUE);
                }
                let opcode = opcode(rsvd_ulp)?;
                let (what, place) = match (queue, opcode) {
                    (
                        QUEUE_SEND,
                        Opcode::Send
                        | Opcode::SendInvalidate
                        | Opcode::SendSolicited
                        | Opcode::SendSolicitedInvalidate,
                    ) => {
                        let place = self.admit_send(sequence, offset, len)?;
                        let invalidate = opcode.invalidates().then_some(rsvd_ulp_word);
                        // RFC 5040 §5.3: a Send that invalidates an invalid STag ends the stream. A
                        // region with a Read Response in progress cannot be invalidated either.
                        if last && invalidate.is_some_and(|stag| self.mortal_region(stag).is_none())
                        {
                            return Err(Cause::RDMA_CANNOT_INVALIDATE);
                        }
                        (What::Send { invalidate }, place)
                    }
                    (QUEUE_READ, Opcode::ReadRequest) => {
                        self.admit_read_request(sequence, offset, len, last, ird)?;
                        (What::ReadRequest, None)
                    }
                    (QUEUE_TERMINATE, Opcode::Terminate) => {
                        admit_terminate(sequence, offset, len)?;
                        (What::Terminate, None)
                    }
                    _ => return Err(Cause::RDMA_OPCODE),
                };
                Ok(Admitted { what, place, last })
            }
        }
    }

    /// Our extension: where it was not agreed on, the opcode is a reserved one (RFC 5040 §4.1).
    fn admit_invalidate(
        &self,
        stag: u32,
        offset: u64,
        len: usize,
        last: bool,
    ) -> Result<What, Cause> {
        if self.invalidations < 2 {
            return Err(Cause::RDMA_OPCODE);
        }
        if len > 0 || offset > 0 || !last {
            return Err(Cause::RDMA_OPERATION);
        }
        // More than one Send can invalidate.
        if !self.has_room_ahead() {
            return Err(Cause::RDMA_CANNOT_INVALIDATE);
        }
        let slot = self.mortal_region(stag);
        slot.map(What::Invalidate)
            .ok_or(Cause::RDMA_CANNOT_INVALIDATE)
    }

    /// RFC 5041 §7.1: nothing is checked for a segment without payload.
    fn admit_write(
        &self,
        stag: u32,
        offset: u64,
        len: usize,
    ) -> Result<Option<(Target, usize)>, Cause> {
        if len == 0 {
            return Ok(None);
        }
        let slot = self.table.find(stag).ok_or(Cause::DDP_INVALID_STAG)?;
        let Entry::Region(memory) = self.table.entry(slot) else {
            return Err(Cause::RDMA_ACCESS);
        };
        let (part, sink, offset) = sink_at(memory, offset, len)?;
        let end = offset.checked_add(len as u64).ok_or(Cause::DDP_WRAP)?;
        if end > sink.capacity() as u64 {
            return Err(Cause::DDP_BOUNDS);
        }
        let start = usize::try_from(offset).map_err(|_| Cause::DDP_BOUNDS)?;
        Ok(Some((Target::Region(slot, part), start)))
    }

    #[inline]
    fn admit_send(
        &self,
        sequence: u32,
        offset: u32,
        len: usize,
    ) -> Result<Option<(Target, usize)>, Cause> {
        if sequence != self.send_sequence {
            return Err(Cause::DDP_SEQUENCE);
        }
        // TCP keeps order, and a message is sent from its beginning to its end.
        if offset != self.send_offset {
            return Err(Cause::DDP_OFFSET);
        }
        let receive = self.receives.front().ok_or(Cause::DDP_NO_BUFFER)?;
        let start = offset as usize;
        if start + len > receive.buffer.capacity() {
            return Err(Cause::DDP_TOO_LONG);
        }
        Ok((len > 0).then_some((Target::Receive, start)))
    }

    fn admit_read_request(
        &self,
        sequence: u32,
        offset: u32,
        len: usize,
        last: bool,
        ird: u16,
    ) -> Result<(), Cause> {
        if sequence != self.read_sequence {
            return Err(Cause::DDP_SEQUENCE);
        }
        if self.serving >= ird {
            return Err(Cause::DDP_NO_BUFFER);
        }
        if offset != 0 {
            return Err(Cause::DDP_OFFSET);
        }
        if len > ReadRequest::LEN {
            return Err(Cause::DDP_TOO_LONG);
        }
        if len < ReadRequest::LEN || !last {
            return Err(Cause::RDMA_OPERATION);
        }
        Ok(())
    }

    /// Finds what a Read Request asks for, and in which region (RFC 5040 §7.2). An empty one is
    /// not checked.
    pub(super) fn admit_read(
        &self,
        request: &ReadRequest,
    ) -> Result<(Gather, Option<SlotId>), Cause> {
        if request.length == 0 {
            return Ok((Gather::new(), None));
        }
        let slot = self
            .table
            .find(request.source_stag)
            .ok_or(Cause::RDMA_INVALID_STAG)?;
        let begin = request.source_offset;
        let end = begin
            .checked_add(u64::from(request.length))
            .ok_or(Cause::RDMA_WRAP)?;
        let within = |end: u64, len: usize| match end > len as u64 {
            true => Err(Cause::RDMA_BOUNDS),
            false => Ok(()),
        };
        match self.table.entry(slot) {
            Entry::Region(Memory::Source(pieces)) => {
                within(end, buffer::gather_len(pieces))?;
                Ok((slice(pieces, begin, end), Some(slot)))
            }
            // Access rights are those of the part (RFC 5042 §6.3), and so are the bounds.
            Entry::Region(Memory::Parts(parts)) => {
                let (part, begin) = parts.find(begin).ok_or(Cause::RDMA_BOUNDS)?;
                let Some(Part::Source(pieces)) = parts.get(part) else {
                    return Err(Cause::RDMA_ACCESS);
                };
                let end = begin + u64::from(request.length);
                within(end, buffer::gather_len(pieces))?;
                Ok((slice(pieces, begin, end), Some(slot)))
            }
            // Persistent memory is copied: its owner may change it before the response is sent.
            Entry::Region(Memory::Persistent(Access::Read, buffer)) => {
                within(end, buffer.capacity())?;
                let at = |offset| usize::try_from(offset).expect("within memory");
                let bytes = &buffer.memory()[at(begin)..at(end)];
                Ok((Gather::from_elem(Bytes::copy_from_slice(bytes), 1), None))
            }
            _ => Err(Cause::RDMA_ACCESS),
        }
    }
}

/// Returns the sink at an offset of a region: the number of its part, its buffer, and the offset in
/// it. Access rights are those of the part (RFC 5042 §6.3).
fn sink_at(memory: &Memory, offset: u64, len: usize) -> Result<(usize, &Buffer, u64), Cause> {
    match memory {
        Memory::Sink(sink) | Memory::Persistent(Access::Write, sink) => Ok((0, sink, offset)),
        Memory::Parts(parts) => {
            offset.checked_add(len as u64).ok_or(Cause::DDP_WRAP)?;
            let (part, offset) = parts.find(offset).ok_or(Cause::DDP_BOUNDS)?;
            match parts.get(part) {
                Some(Part::Sink(sink)) => Ok((part, sink, offset)),
                Some(Part::Source(_)) | None => Err(Cause::RDMA_ACCESS),
            }
        }
        Memory::Source(_) | Memory::Persistent(Access::Read, _) => Err(Cause::RDMA_ACCESS),
    }
}

/// Returns the octets from `begin` to `end`, which are within the pieces.
fn slice(pieces: &Gather, begin: u64, end: u64) -> Gather {
    let mut found = Gather::new();
    let mut at = 0;
    for piece in pieces {
        let next = at + piece.len() as u64;
        let within = |offset: u64| {
            usize::try_from(offset.clamp(at, next) - at).expect("within a piece in memory")
        };
        let range = within(begin)..within(end);
        if !range.is_empty() {
            found.push(piece.slice(range));
        }
        at = next;
    }
    found
}

fn opcode(rsvd_ulp: u8) -> Result<Opcode, Cause> {
    let control = Control(rsvd_ulp);
    if control.version() != rdmap::VERSION {
        return Err(Cause::RDMA_VERSION);
    }
    control.opcode().ok_or(Cause::RDMA_OPCODE)
}

/// Accepts a Terminate in any form that can be parsed.
fn admit_terminate(sequence: u32, offset: u32, len: usize) -> Result<(), Cause> {
    if sequence != 1 {
        Err(Cause::DDP_SEQUENCE)
    } else if offset != 0 {
        Err(Cause::DDP_OFFSET)
    } else if len < 4 {
        Err(Cause::RDMA_OPERATION)
    } else if len > 2 * Terminate::MAX_LEN {
        Err(Cause::DDP_TOO_LONG)
    } else {
        Ok(())
    }
}
