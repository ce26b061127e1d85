//! Outgoing messages and their segmentation.

use crate::ddp::{self, Header};
use crate::rdmap::{self, Opcode, ReadRequest};
use crate::stag::SlotId;
use bytes::Bytes;
use smallvec::SmallVec;
use verbs::{Buffer, Gather, Handle, RemoteAddress, WrId};

/// Smallest piece of payload to send by reference, in octets. Smaller ones are copied after their
/// header, since an entry of the vector costs more.
pub(super) const COPY_PIECE_BELOW: usize = 1 << 10;

/// Smallest buffer of a Send that its FPDUs share by reference, in octets, which costs a small
/// allocation. A smaller buffer is moved into its FPDU, or copied if it does not fit one.
const SHARE_FROM: usize = 8 << 10;

/// An outgoing message that is not completely segmented yet.
pub(super) struct Message {
    kind: Kind,
    body: Body,
    len: usize,
    /// Octets that are already in FPDUs.
    framed: usize,
    pub(super) end: End,
}

#[derive(Clone, Copy)]
enum Kind {
    Send { invalidate: Option<Handle> },
    Invalidate { handle: Handle },
    Write { to: RemoteAddress },
    ReadRequest,
    ReadResponse { to: RemoteAddress },
    Terminate,
}

/// Next step when the last octet of a message has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The message has no completion.
    Nothing,
    /// The completion of a Send.
    Send(WrId),
    /// The completion of a Write.
    Write(WrId),
    /// The peer may send another Read Request, and the Read Response no longer uses the region.
    ReadResponse(Option<SlotId>),
}

/// Payload of a message: a head, and pieces that follow it.
pub(super) struct Body {
    head: Head,
    pieces: Gather,
    /// Index of the next piece after the head.
    piece: usize,
    /// Octets taken from the head, or from that piece.
    at: usize,
}

/// The part of a message that is not shared.
enum Head {
    /// No payload, or all of it was taken.
    None,
    /// Payload made by the endpoint.
    Short(SmallVec<[u8; ReadRequest::LEN]>),
    /// The posted buffer.
    Buffer(Buffer),
}

/// Part of a payload, by copy or by reference.
pub(super) enum Part<'a> {
    /// Payload to copy.
    Copy(&'a [u8]),
    /// Payload as a whole buffer.
    Whole(Buffer),
    /// Payload by reference.
    Shared(Bytes),
}

impl Message {
    fn new(kind: Kind, body: Body, len: usize, end: End) -> Self {
        Self {
            kind,
            body,
            len,
            framed: 0,
            end,
        }
    }

    /// Invalidates a handle of the peer with the Send behind it.
    pub(super) fn invalidate(handle: Handle) -> Self {
        let nothing = Body::new(Head::None, Gather::new());
        Self::new(Kind::Invalidate { handle }, nothing, 0, End::Nothing)
    }

    #[inline]
    pub(super) fn send(
        wr: WrId,
        buffer: Buffer,
        mut rest: Gather,
        invalidate: Option<Handle>,
    ) -> Self {
        let len = buffer.len() + buffer::gather_len(&rest);
        let head = if buffer.len() < SHARE_FROM {
            Head::Buffer(buffer)
        } else {
            rest.insert(0, buffer.freeze());
            Head::None
        };
        let body = Body::new(head, rest);
        Self::new(Kind::Send { invalidate }, body, len, End::Send(wr))
    }

    pub(super) fn write(wr: WrId, source: Gather, to: RemoteAddress) -> Self {
        let len = buffer::gather_len(&source);
        Self::new(
            Kind::Write { to },
            Body::pieces(source),
            len,
            End::Write(wr),
        )
    }

    /// Makes a zero-length Write, which is valid and has no effect for any STag.
    pub(super) fn empty_write() -> Self {
        let to = RemoteAddress {
            handle: Handle(0),
            offset: 0,
        };
        Self::new(
            Kind::Write { to },
            Body::pieces(Gather::new()),
            0,
            End::Nothing,
        )
    }

    pub(super) fn read_request(request: ReadRequest) -> Self {
        let body = Body::short(&request.emit());
        Self::new(Kind::ReadRequest, body, ReadRequest::LEN, End::Nothing)
    }

    pub(super) fn read_response(
        request: &ReadRequest,
        source: Gather,
        slot: Option<SlotId>,
    ) -> Self {
        let to = RemoteAddress {
            handle: Handle(request.sink_stag),
            offset: request.sink_offset,
        };
        let len = buffer::gather_len(&source);
        Self::new(
            Kind::ReadResponse { to },
            Body::pieces(source),
            len,
            End::ReadResponse(slot),
        )
    }

    pub(super) fn terminate(bytes: &[u8]) -> Self {
        let body = Body::short(bytes);
        Self::new(Kind::Terminate, body, bytes.len(), End::Nothing)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn left(&self) -> usize {
        self.len - self.framed
    }

    pub(super) fn is_read_request(&self) -> bool {
        matches!(self.kind, Kind::ReadRequest)
    }

    pub(super) fn is_tagged(&self) -> bool {
        match self.kind {
            Kind::Write { .. } | Kind::ReadResponse { .. } | Kind::Invalidate { .. } => true,
            Kind::Send { .. } | Kind::ReadRequest | Kind::Terminate => false,
        }
    }

    /// Queue number, if the message is untagged.
    pub(super) fn queue(&self) -> Option<u32> {
        match self.kind {
            Kind::Send { .. } => Some(rdmap::QUEUE_SEND),
            Kind::ReadRequest => Some(rdmap::QUEUE_READ),
            Kind::Terminate => Some(rdmap::QUEUE_TERMINATE),
            Kind::Write { .. } | Kind::ReadResponse { .. } | Kind::Invalidate { .. } => None,
        }
    }

    fn opcode(&self) -> Opcode {
        match self.kind {
            Kind::Send { invalidate: None } => Opcode::Send,
            Kind::Send {
                invalidate: Some(_),
            } => Opcode::SendInvalidate,
            Kind::Invalidate { .. } => Opcode::Invalidate,
            Kind::Write { .. } => Opcode::Write,
            Kind::ReadRequest => Opcode::ReadRequest,
            Kind::ReadResponse { .. } => Opcode::ReadResponse,
            Kind::Terminate => Opcode::Terminate,
        }
    }

    /// Returns the header of the next segment, of `len` octets, and the body from which its payload
    /// is taken.
    pub(super) fn cut(&mut self, len: usize, sequence: u32) -> (Header, &mut Body) {
        let at = self.framed;
        self.framed += len;
        let last = self.framed == self.len;
        let rsvd_ulp = rdmap::Control::new(self.opcode()).0;
        let header = match self.kind {
            Kind::Write { to } | Kind::ReadResponse { to } => Header::Tagged {
                control: ddp::Control::new(true, last),
                rsvd_ulp,
                stag: to.handle.0,
                // The offset is the one in the Read Request (RFC 5040 §4.4); if it wraps, the peer
                // detects that.
                offset: to.offset.wrapping_add(at as u64),
            },
            Kind::Invalidate { handle } => Header::Tagged {
                control: ddp::Control::new(true, last),
                rsvd_ulp,
                stag: handle.0,
                offset: 0,
            },
            Kind::Send { .. } | Kind::ReadRequest | Kind::Terminate => Header::Untagged {
                control: ddp::Control::new(false, last),
                rsvd_ulp,
                rsvd_ulp_word: match self.kind {
                    Kind::Send {
                        invalidate: Some(handle),
                    } => handle.0,
                    _ => 0,
                },
                queue: self.queue().unwrap_or_default(),
                sequence,
                offset: u32::try_from(at).expect("a message is at most 1 GiB"),
            },
        };
        (header, &mut self.body)
    }
}

impl Body {
    fn new(head: Head, pieces: Gather) -> Self {
        Self {
            head,
            pieces,
            piece: 0,
            at: 0,
        }
    }

    fn short(bytes: &[u8]) -> Self {
        Self::new(Head::Short(SmallVec::from_slice(bytes)), Gather::new())
    }

    fn pieces(pieces: Gather) -> Self {
        Self::new(Head::None, pieces)
    }

    /// Passes the next `len` octets to `part`, piece by piece.
    pub(super) fn take(&mut self, len: usize, mut part: impl FnMut(Part<'_>)) {
        let mut left = len - self.take_head(len, &mut part);
        while left > 0 {
            let bytes = &mut self.pieces[self.piece];
            let len = bytes.len();
            let range = self.at..len.min(self.at + left);
            left -= range.len();
            self.at = range.end;
            match range.len() {
                0 => {}
                1..COPY_PIECE_BELOW => part(Part::Copy(&bytes[range])),
                // The last part moves the reference instead of counting another one.
                COPY_PIECE_BELOW.. if range == (0..len) => {
                    part(Part::Shared(std::mem::take(bytes)));
                }
                COPY_PIECE_BELOW.. => part(Part::Shared(bytes.slice(range))),
            }
            if self.at == len {
                self.piece += 1;
                self.at = 0;
            }
        }
    }

    /// Passes up to `len` octets of the head to `part`; returns how many.
    fn take_head(&mut self, len: usize, part: &mut impl FnMut(Part<'_>)) -> usize {
        let bytes: &[u8] = match &mut self.head {
            Head::None => return 0,
            Head::Short(bytes) => bytes,
            Head::Buffer(buffer) => {
                let taken = buffer.len();
                if self.at == 0 && (COPY_PIECE_BELOW..=len).contains(&taken) {
                    part(Part::Whole(std::mem::take(buffer)));
                    self.head = Head::None;
                    return taken;
                }
                buffer
            }
        };
        let end = bytes.len().min(self.at + len);
        let taken = end - self.at;
        if taken > 0 {
            part(Part::Copy(&bytes[self.at..end]));
        }
        self.at = end;
        if end == bytes.len() {
            self.head = Head::None;
            self.at = 0;
        }
        taken
    }
}
