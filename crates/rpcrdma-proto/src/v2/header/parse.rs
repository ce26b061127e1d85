//! Parser of the header.

use super::{Body, ChunkLists, Direction, Header, HeaderView, Invalidate, Optional, RdmaError};
use super::{VERSION, WordLayout, error_code, procedure};
use crate::limits::MAX_INVALIDATE_HANDLES;
use crate::wire::header::{Counted, Malformation, parse_lists};
use oncrpc::xdr;
use oncrpc::xdr::Reader;
use verbs::Handle;

/// Octets of the shortest message that is not an RDMA2_ERROR: an RDMA2_OPTIONAL without
/// information. Anything shorter is discarded, as in version one, whatever its procedure.
pub const MIN_LEN: usize = 28;

/// Why a message has no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The message is too short; not even its XID is trusted.
    #[error("shorter than its fixed part (RFC 8166 §4.5, cel-01 §4.2.3)")]
    Runt,
    /// The message is an RDMA2_ERROR with unknown content.
    #[error("an RDMA2_ERROR that cannot be read (RFC 8166 §4.5, cel-01 §4.2.3)")]
    UnreadableError,
    /// The version is not two.
    #[error("version {version} is not that of this connection (cel-01 §5)")]
    UnsupportedVersion {
        /// XID of the message.
        xid: u32,
        /// Version of the message.
        version: u32,
        /// Credits that the message requests.
        credits: u32,
    },
    /// The header is malformed.
    #[error("{cause} (cel-01 §4.2)")]
    Malformed {
        /// XID of the message.
        xid: u32,
        /// Credits that the message requests.
        credits: u32,
        /// Direction of the message, if it could be read.
        direction: Option<Direction>,
        /// The malformation.
        cause: Malformation,
    },
}

/// How to answer the peer for a message that is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Send nothing.
    Discard,
    /// Send an RDMA2_ERROR with RDMA2_ERR_VERS, the range of versions, and the version echoed.
    ErrVers {
        /// XID to echo.
        xid: u32,
        /// Version to echo.
        version: u32,
        /// Credits that the message requests.
        credits: u32,
    },
    /// Send an RDMA2_ERROR with RDMA2_ERR_BAD_HEADER.
    BadHeader {
        /// XID to echo.
        xid: u32,
        /// Credits that the message requests.
        credits: u32,
    },
    /// Send an RDMA2_ERROR with RDMA2_ERR_INVAL_OPTION.
    InvalOption {
        /// XID to echo.
        xid: u32,
        /// Credits that the message requests.
        credits: u32,
    },
}

impl HeaderError {
    /// Returns how to answer the peer, if the message may be a call. A message that claims to be a
    /// reply gets no answer: an RDMA2_ERROR is a reply itself, and would end an unrelated call of
    /// the peer.
    ///
    /// If the [`direction`](Self::direction) is unknown, the receiver decides what it takes the
    /// message for, as in version one.
    pub fn disposition(self) -> Disposition {
        match self {
            Self::Runt
            | Self::UnreadableError
            | Self::Malformed {
                direction: Some(Direction::Reply),
                ..
            } => Disposition::Discard,
            Self::UnsupportedVersion {
                xid,
                version,
                credits,
            } => Disposition::ErrVers {
                xid,
                version,
                credits,
            },
            Self::Malformed {
                xid,
                credits,
                direction: Some(Direction::Call) | None,
                ..
            } => Disposition::BadHeader { xid, credits },
        }
    }

    /// Returns the direction of the message, if it could be read.
    pub fn direction(self) -> Option<Direction> {
        match self {
            Self::Malformed { direction, .. } => direction,
            Self::UnreadableError => Some(Direction::Reply),
            Self::Runt | Self::UnsupportedVersion { .. } => None,
        }
    }
}

impl Header {
    /// Parses the header of a received message with this layout. Also returns the offset of the
    /// Payload stream.
    ///
    /// # Errors
    ///
    /// If the message has no valid header of version two.
    pub fn parse(message: &[u8], layout: WordLayout) -> Result<(Self, usize), HeaderError> {
        let view = HeaderView::new(message).ok_or(HeaderError::Runt)?;
        let (xid, credits) = (view.xid(), view.credits());
        let body = &message[HeaderView::FIXED_LEN..];
        if view.procedure() == procedure::ERROR {
            // Never answered, whatever its version: an error must not draw an error.
            let error = parse_error(view.version(), body).ok_or(HeaderError::UnreadableError)?;
            let body = Body::Error(error);
            return Ok((Self { xid, credits, body }, message.len()));
        }
        if message.len() < MIN_LEN {
            return Err(HeaderError::Runt);
        }
        if view.version() != VERSION {
            return Err(HeaderError::UnsupportedVersion {
                xid,
                version: view.version(),
                credits,
            });
        }
        if message.len() < fixed_len(view.procedure(), layout) {
            return Err(HeaderError::Runt);
        }
        let mut direction = None;
        let mut r = Reader::new(body);
        let parsed = parse_body(view.procedure(), layout, &mut r, &mut direction);
        let body = parsed.map_err(|cause| HeaderError::Malformed {
            xid,
            credits,
            direction,
            cause,
        })?;
        let stream = message.len() - r.remaining();
        Ok((Self { xid, credits, body }, stream))
    }
}

/// Returns the least length of a message of this procedure: everything without chunks, handles and
/// information. Of a shorter one, not even the XID is trusted (RFC 8166 §4.5).
fn fixed_len(proc: u32, layout: WordLayout) -> usize {
    match proc {
        procedure::MSG | procedure::NOMSG => {
            super::emitted_len(layout, 0, 0, std::iter::empty(), None)
        }
        _ => MIN_LEN,
    }
}

fn parse_body(
    proc: u32,
    layout: WordLayout,
    r: &mut Reader<'_>,
    direction: &mut Option<Direction>,
) -> Result<Body, Malformation> {
    match proc {
        procedure::MSG => Ok(Body::Msg(parse_chunks(layout, r, direction)?)),
        procedure::NOMSG => {
            let chunks = parse_chunks(layout, r, direction)?;
            // RFC 8166 §4.5.2: the stream has to be somewhere.
            if chunks.lists.is_empty() {
                return Err(Malformation::NoStream);
            }
            Ok(Body::NoMsg(chunks))
        }
        procedure::OPTIONAL => Ok(Body::Optional(Optional {
            direction: parse_direction(r, direction)?,
            operation: r.u32()?,
            // Longer than the message it cannot be.
            info: r.opaque(u32::MAX)?.to_vec(),
        })),
        other => Err(Malformation::Procedure(other)),
    }
}

fn parse_chunks(
    layout: WordLayout,
    r: &mut Reader<'_>,
    direction: &mut Option<Direction>,
) -> Result<ChunkLists, Malformation> {
    Ok(ChunkLists {
        direction: parse_direction(r, direction)?,
        invalidate: parse_invalidate(layout, r)?,
        lists: parse_lists(r)?,
    })
}

/// Parses the direction. Also stores it in `found`, because the rest may be malformed.
fn parse_direction(
    r: &mut Reader<'_>,
    found: &mut Option<Direction>,
) -> Result<Direction, xdr::Error> {
    let value = r.u32()?;
    *found = Direction::from_word(value);
    found.ok_or(xdr::Error::NotInEnum {
        value,
        of: "msg_type",
    })
}

fn parse_invalidate(layout: WordLayout, r: &mut Reader<'_>) -> Result<Invalidate, Malformation> {
    match layout {
        WordLayout::None => Ok(Invalidate::Unsaid),
        WordLayout::One => {
            let handle = Some(Handle(r.u32()?));
            Ok(Invalidate::One(handle.filter(|handle| handle.0 != 0)))
        }
        WordLayout::Several => {
            let count = r.u32()? as usize;
            if count > MAX_INVALIDATE_HANDLES {
                return Err(Malformation::TooMany {
                    of: Counted::Handles,
                    limit: MAX_INVALIDATE_HANDLES,
                });
            }
            let handles: Result<_, xdr::Error> = (0..count).map(|_| Ok(Handle(r.u32()?))).collect();
            Ok(Invalidate::Several(handles?))
        }
    }
}

/// Parses an RDMA2_ERROR. RFC 8166 §4.5: complete at 20 octets, an ERR_VERS at 28; the version is
/// the echoed one of this end.
fn parse_error(version: u32, body: &[u8]) -> Option<RdmaError> {
    let mut r = Reader::new(body);
    let code = r.u32().ok()?;
    match code {
        _ if version != VERSION => None,
        error_code::VERS => Some(RdmaError::Version {
            low: r.u32().ok()?,
            high: r.u32().ok()?,
        }),
        error_code::BAD_HEADER => Some(RdmaError::BadHeader),
        error_code::INVAL_OPTION => Some(RdmaError::InvalOption),
        _ => None,
    }
}
