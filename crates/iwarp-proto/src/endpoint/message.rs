//! A message on its way out.

use crate::ddp::{self, Header};
use crate::rdmap::{self, Opcode, ReadRequest};
use crate::stag::SlotId;
use bytes::Bytes;
use smallvec::SmallVec;
use verbs::{Buffer, Gather, Handle, RemoteAddress, WrId};

/// Pieces of payload below this are copied, behind their header: a vector entry costs more. From
/// here on they are referred to.
pub(super) const COPY_PIECE_BELOW: usize = 1 << 10;

/// A Send from here on is shared between its FPDUs, at the price of a small allocation; a smaller
/// one is handed over whole, or copied if it does not fit one FPDU.
const SHARE_FROM: usize = 8 << 10;

/// A message that waits to be cut into FPDUs.
pub(super) struct Message {
    kind: Kind,
    body: Body,
    len: usize,
    /// Octets that are cut already.
    framed: usize,
    pub(super) end: End,
}

#[derive(Clone, Copy)]
enum Kind {
    Send { invalidate: Option<Handle> },
    Write { to: RemoteAddress },
    ReadRequest,
    ReadResponse { to: RemoteAddress },
    Terminate,
}

/// What is owed when the last octet of a message has been handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing.
    Nothing,
    /// The completion of a Send.
    Send(WrId),
    /// The completion of a Write.
    Write(WrId),
    /// The peer may send another Read Request, and this region is not in use for it any more.
    ReadResponse(Option<SlotId>),
}

/// The octets of a message.
pub(super) enum Body {
    /// To be handed over whole, or copied where it takes several FPDUs.
    Buffer { buffer: Buffer, at: usize },
    /// To be copied, made here.
    Short {
        octets: SmallVec<[u8; ReadRequest::LEN]>,
        at: usize,
    },
    /// To be referred to.
    Pieces {
        pieces: Gather,
        piece: usize,
        at: usize,
    },
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

    pub(super) fn send(wr: WrId, buffer: Buffer, invalidate: Option<Handle>) -> Self {
        let len = buffer.len();
        let body = if len < SHARE_FROM {
            Body::Buffer { buffer, at: 0 }
        } else {
            Body::pieces([buffer.freeze()].into_iter().collect())
        };
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

    /// Valid and without effect, wherever it points to.
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
        let body = Body::Short {
            octets: request.emit().into_iter().collect(),
            at: 0,
        };
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

    pub(super) fn terminate(octets: &[u8]) -> Self {
        let body = Body::Short {
            octets: octets.iter().copied().collect(),
            at: 0,
        };
        Self::new(Kind::Terminate, body, octets.len(), End::Nothing)
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
        matches!(self.kind, Kind::Write { .. } | Kind::ReadResponse { .. })
    }

    /// QN, if it goes to a queue.
    pub(super) fn queue(&self) -> Option<u32> {
        match self.kind {
            Kind::Send { .. } => Some(rdmap::QUEUE_SEND),
            Kind::ReadRequest => Some(rdmap::QUEUE_READ),
            Kind::Terminate => Some(rdmap::QUEUE_TERMINATE),
            Kind::Write { .. } | Kind::ReadResponse { .. } => None,
        }
    }

    fn opcode(&self) -> Opcode {
        match self.kind {
            Kind::Send { invalidate: None } => Opcode::Send,
            Kind::Send {
                invalidate: Some(_),
            } => Opcode::SendInvalidate,
            Kind::Write { .. } => Opcode::Write,
            Kind::ReadRequest => Opcode::ReadRequest,
            Kind::ReadResponse { .. } => Opcode::ReadResponse,
            Kind::Terminate => Opcode::Terminate,
        }
    }

    /// The header of the next segment, of `len` octets, and the payload it takes.
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
                // The peer's own offset comes back to it (RFC 5040 §4.4); if it wraps, that is
                // for the peer to notice.
                offset: to.offset.wrapping_add(at as u64),
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
    fn pieces(pieces: Gather) -> Self {
        Self::Pieces {
            pieces,
            piece: 0,
            at: 0,
        }
    }

    /// The whole body, if it is memory that can be handed over and is worth it.
    pub(super) fn take_whole(&mut self, len: usize) -> Option<Buffer> {
        match self {
            Self::Buffer { buffer, at: 0 } if len == buffer.len() && len >= COPY_PIECE_BELOW => {
                Some(std::mem::take(buffer))
            }
            Self::Buffer { .. } | Self::Short { .. } | Self::Pieces { .. } => None,
        }
    }

    /// Whether the octets are referred to, piece by piece.
    pub(super) fn is_pieces(&self) -> bool {
        matches!(self, Self::Pieces { .. })
    }

    /// Appends the next `len` octets to `out`.
    pub(super) fn copy(&mut self, len: usize, out: &mut Vec<u8>) {
        match self {
            Self::Buffer { buffer, at } => {
                out.extend_from_slice(&buffer[*at..*at + len]);
                *at += len;
            }
            Self::Short { octets, at } => {
                out.extend_from_slice(&octets[*at..*at + len]);
                *at += len;
            }
            Self::Pieces { .. } => self.refer(len, |octets, range| {
                out.extend_from_slice(&octets[range]);
            }),
        }
    }

    /// Gives the next `len` octets piece by piece. Only for bodies made of pieces.
    pub(super) fn refer(
        &mut self,
        mut len: usize,
        mut piece_of: impl FnMut(&Bytes, std::ops::Range<usize>),
    ) {
        let Self::Pieces { pieces, piece, at } = self else {
            unreachable!("only pieces are referred to");
        };
        while len > 0 {
            let octets = &pieces[*piece];
            let now = len.min(octets.len() - *at);
            if now > 0 {
                piece_of(octets, *at..*at + now);
            }
            len -= now;
            *at += now;
            if *at == octets.len() {
                *piece += 1;
                *at = 0;
            }
        }
    }
}
