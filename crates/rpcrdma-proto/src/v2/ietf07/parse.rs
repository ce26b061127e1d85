//! Parser of the header (§6, §7).

use super::VERSION;
use super::malformation::Malformation;
use super::{Body, Header, PropertySet, RdmaError, header_type};
use crate::wire::direction::Direction;
use crate::wire::direction::prefix;
use crate::wire::header::{self, parse_read_list, parse_reply_chunk, parse_write_list};
use crate::wire::header::{HeaderView, Lists};
use oncrpc::xdr::Reader;
use verbs::Handle;

/// Why a message has no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The message is too short; not even its XID is trusted. §7 discards what is shorter than
    /// `rpcrdma2_hdr_prefix`, and says that this has 20 octets; by its definition it has 16 (§6.4),
    /// which are a whole RDMA2_GRANT.
    #[error("shorter than the prefix of a header (ietf-07 §7)")]
    Runt,
    /// The message is an RDMA2_ERROR with unknown or incomplete content.
    #[error("an RDMA2_ERROR that cannot be read (ietf-07 §7)")]
    UnreadableError,
    /// The version is not two.
    #[error("version {version} is not two (ietf-07 §7.1.1, §7.1.2)")]
    OtherVersion {
        /// XID of the message.
        xid: u32,
        /// Version of the message.
        version: u32,
    },
    /// The header is malformed.
    #[error("{cause} (ietf-07 §7.2)")]
    Malformed {
        /// XID of the message.
        xid: u32,
        /// `rdma_credit` of the message, which counts though the rest does not.
        credits: u32,
        /// Direction of the RPC message, by the header type; `None` for properties and for an
        /// unknown type.
        direction: Option<Direction>,
        /// Reason.
        cause: Malformation,
    },
}

/// How to answer the peer for a message that is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Send nothing.
    Discard,
    /// Send an RDMA2_ERROR with RDMA2_ERR_VERS and the range of versions (§7.1.1), or, if this end
    /// supports that version and the connection has the other, RDMA2_ERR_VERS_MISMATCH (§7.1.2).
    OtherVersion {
        /// XID to echo.
        xid: u32,
        /// Version to echo.
        version: u32,
    },
    /// Send an RDMA2_ERROR with this error.
    Answer {
        /// XID to echo.
        xid: u32,
        /// The error.
        error: RdmaError,
    },
}

impl HeaderError {
    /// Returns how to answer the peer.
    ///
    /// A message that is a reply by its header type gets no answer: its XID is one of this end, and
    /// an RDMA2_ERROR with it would end an unrelated call of the peer. An unknown header type does
    /// not tell, and is answered (§6.1).
    pub fn disposition(self) -> Disposition {
        match self {
            Self::Runt
            | Self::UnreadableError
            | Self::Malformed {
                direction: Some(Direction::Reply),
                ..
            } => Disposition::Discard,
            Self::OtherVersion { xid, version } => Disposition::OtherVersion { xid, version },
            Self::Malformed {
                xid,
                direction: Some(Direction::Call) | None,
                cause,
                ..
            } => Disposition::Answer {
                xid,
                error: cause.answer(),
            },
        }
    }
}

impl Header {
    /// Parses the header of a received message. Also returns the offset of the Payload stream, or
    /// of its part: the end of the header. A message of the control plane has no stream, and its
    /// offset is the end of the message: octets behind its header are ignored. Behind the header of
    /// an external message nothing belongs; whether there is something is for the caller to see.
    ///
    /// Whether parts follow each other as they must, and whether the stream begins as the header
    /// says ([`check_start`](Self::check_start)), is not known here.
    ///
    /// # Errors
    ///
    /// If the message has no valid header of this dialect.
    pub fn parse(message: &[u8]) -> Result<(Self, usize), HeaderError> {
        let view = HeaderView::new(message).ok_or(HeaderError::Runt)?;
        let (xid, version, credits) = (view.xid(), view.version(), view.credits());
        let htype = view.procedure();
        let body = &message[HeaderView::FIXED_LEN..];
        if htype == header_type::ERROR {
            // Never answered, whatever its version: an error must not draw an error. The version is
            // the echoed one of this end (§7).
            let error = Some(body).filter(|_| version == VERSION);
            let error = error.and_then(RdmaError::parse);
            let body = Body::Error(error.ok_or(HeaderError::UnreadableError)?);
            return Ok((Self { xid, credits, body }, message.len()));
        }
        if version != VERSION {
            return Err(HeaderError::OtherVersion { xid, version });
        }
        let mut r = Reader::new(body);
        let body = parse_body(htype, &mut r).map_err(|cause| HeaderError::Malformed {
            xid,
            credits,
            direction: direction_of(htype),
            cause,
        })?;
        let end = message.len() - r.remaining();
        Ok(match body {
            // §6.3.2: the XID of the message is ignored.
            Body::Grant => (
                Self {
                    xid: 0,
                    credits,
                    body,
                },
                message.len(),
            ),
            Body::Properties { .. } => (Self { xid, credits, body }, message.len()),
            Body::Error(_) | Body::Call { .. } | Body::Reply { .. } | Body::Part { .. } => {
                (Self { xid, credits, body }, end)
            }
        })
    }

    /// Checks that an RPC message with this header begins with the same XID (§7.2) and has the same
    /// direction. `stream` has at least the first eight octets of the message: that of a continued
    /// one is known when its first parts are.
    ///
    /// # Errors
    ///
    /// If it begins with anything else, or has fewer octets.
    pub fn check_start(&self, stream: &[u8]) -> Result<(), HeaderError> {
        let direction = self.direction();
        let expected = direction.map(|direction| (self.xid, direction.word()));
        if prefix(stream) == expected {
            return Ok(());
        }
        Err(HeaderError::Malformed {
            xid: self.xid,
            credits: self.credits,
            direction,
            cause: header::Malformation::XidMismatch.into(),
        })
    }
}

/// The direction that a header type implies.
fn direction_of(htype: u32) -> Option<Direction> {
    match htype {
        header_type::CALL_EXTERNAL | header_type::CALL_MIDDLE | header_type::CALL_INLINE => {
            Some(Direction::Call)
        }
        header_type::REPLY_EXTERNAL | header_type::REPLY_MIDDLE | header_type::REPLY_INLINE => {
            Some(Direction::Reply)
        }
        _ => None,
    }
}

fn parse_body(htype: u32, r: &mut Reader<'_>) -> Result<Body, Malformation> {
    Ok(match htype {
        header_type::GRANT => Body::Grant,
        header_type::CONNPROP_MIDDLE | header_type::CONNPROP_FINAL => Body::Properties {
            last: htype == header_type::CONNPROP_FINAL,
            set: PropertySet::parse(r)?,
        },
        header_type::CALL_EXTERNAL => parse_call(true, r)?,
        header_type::CALL_INLINE => parse_call(false, r)?,
        header_type::REPLY_EXTERNAL => parse_reply(true, r)?,
        header_type::REPLY_INLINE => parse_reply(false, r)?,
        header_type::CALL_MIDDLE => Body::Part {
            direction: Direction::Call,
            remaining: r.u32()?,
        },
        header_type::REPLY_MIDDLE => Body::Part {
            direction: Direction::Reply,
            remaining: r.u32()?,
        },
        other => return Err(Malformation::HeaderType(other)),
    })
}

fn parse_call(external: bool, r: &mut Reader<'_>) -> Result<Body, Malformation> {
    let handle = Handle(r.u32()?);
    let mut reads = Vec::new();
    if external {
        parse_read_list(r, &mut reads, |position| match position {
            0 => Ok(()),
            other => Err(Malformation::CallPosition(other)),
        })?;
        // §6.3.5: one or more segments.
        if reads.is_empty() {
            return Err(header::Malformation::NoStream.into());
        }
    }
    let mut last = 0;
    parse_read_list(r, &mut reads, |position| match position {
        0 => Err(Malformation::PositionZero),
        _ if position < last => Err(Malformation::Disorder(position)),
        _ => {
            last = position;
            Ok(())
        }
    })?;
    Ok(Body::Call {
        external,
        invalidate: Some(handle).filter(|handle| handle.0 != 0),
        lists: Lists {
            reads,
            writes: parse_write_list(r)?,
            reply: parse_reply_chunk(r)?,
        },
    })
}

fn parse_reply(external: bool, r: &mut Reader<'_>) -> Result<Body, Malformation> {
    let writes = parse_write_list(r)?;
    let mut reply = None;
    if external {
        // §6.3.8: exactly one.
        let chunk = parse_reply_chunk(r)?;
        reply = Some(chunk.ok_or(header::Malformation::NoStream)?);
    }
    Ok(Body::Reply {
        external,
        lists: Lists {
            reads: Vec::new(),
            writes,
            reply,
        },
    })
}
