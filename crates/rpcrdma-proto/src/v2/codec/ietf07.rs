//! The codec of ietf-07 for the roles.

use crate::codec::{
    self, Codec, Contents, Invalid, Invalidate, PeerError, Plain, Refused, Rejection,
};
use crate::v2::header::VERSION;
use crate::v2::ietf07::{
    Body, Disposition, Header, HeaderError, Malformation, RdmaError, call_len, emit_call,
    emit_error, emit_part, emit_reply, plain_call, plain_reply, reply_len,
};
use crate::wire::direction::Direction;
use crate::wire::header::Lists;
use buffer::Buffer;
use std::num::NonZeroU32;

/// Codec of draft-ietf-nfsv4-rpcrdma-version-two-07 (§6.3). It writes zero for credits: a
/// connection sets them when it posts the message (§4.2.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ietf07;

impl Codec for Ietf07 {
    fn version(&self) -> u32 {
        VERSION
    }

    /// That of the longest header type: external messages have one list more.
    fn plain_len(&self, direction: Direction) -> usize {
        match direction {
            Direction::Call => call_len(true, 0, std::iter::empty(), None),
            Direction::Reply => reply_len(std::iter::empty(), None) + 4,
        }
    }

    fn parse(&self, message: &[u8]) -> Result<codec::Header, Invalid> {
        let (header, stream) = Header::parse(message).map_err(invalid)?;
        let Header { xid, credits, body } = header;
        let body = match body {
            Body::Call {
                external,
                invalidate,
                lists,
            } => rpc(
                Direction::Call,
                external,
                Invalidate::One(invalidate),
                lists,
            ),
            Body::Reply { external, lists } => {
                rpc(Direction::Reply, external, Invalidate::One(None), lists)
            }
            Body::Error(error) => codec::Body::Error(peer_error(error)),
            Body::Grant => codec::Body::Grant,
            Body::Properties { last, set } => codec::Body::Properties {
                last,
                set: Box::new(set),
            },
            Body::Part {
                direction,
                remaining,
            } => codec::Body::Part {
                direction,
                remaining: usize::try_from(remaining).unwrap_or(usize::MAX),
            },
        };
        Ok(codec::Header {
            xid,
            credits,
            stream,
            body,
        })
    }

    fn plain(&self, direction: Direction, xid: u32, credits: u32) -> Plain {
        match direction {
            Direction::Call => Plain::new(&plain_call(xid, credits)),
            Direction::Reply => Plain::new(&plain_reply(xid, credits)),
        }
    }

    fn emit(&self, out: &mut Buffer, xid: u32, credits: u32, contents: &Contents<'_>) {
        let Contents {
            long,
            direction,
            invalidate,
            lists,
        } = contents;
        match direction {
            Direction::Call => {
                let handle = invalidate.handles().first().copied();
                emit_call(out, xid, credits, *long, handle, lists);
            }
            // §6.3.10: an inline reply does not return the Reply chunk.
            Direction::Reply if lists.reply.is_some() && !long => {
                let lists = Lists {
                    writes: lists.writes.clone(),
                    ..Lists::default()
                };
                emit_reply(out, xid, credits, false, &lists);
            }
            Direction::Reply => emit_reply(out, xid, credits, *long, lists),
        }
    }

    fn emit_error(&self, out: &mut Buffer, error: Refused) {
        let Refused {
            xid,
            version,
            credits,
            rejection,
        } = error;
        emit_error(out, xid, version, credits, error_of(rejection));
    }

    fn nothing_to_invalidate(&self) -> Invalidate {
        Invalidate::One(None)
    }

    fn emit_part(&self, out: &mut Buffer, direction: Direction, xid: u32, remaining: u32) {
        emit_part(out, xid, 0, direction, remaining);
    }
}

fn rpc(direction: Direction, long: bool, invalidate: Invalidate, lists: Lists) -> codec::Body {
    codec::Body::Rpc(codec::Rpc {
        long,
        direction: Some(direction),
        invalidate,
        lists,
    })
}

/// Returns the error that tells the peer of a rejection (§7).
fn error_of(rejection: Rejection) -> RdmaError {
    let word = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    match rejection {
        Rejection::Versions { low, high } => RdmaError::Version { low, high },
        Rejection::Header => RdmaError::BadXdr,
        Rejection::Operation => RdmaError::InvalHtype,
        Rejection::Chunks(cause) => Malformation::from(cause).answer(),
        Rejection::ReplyTooLong { len } => RdmaError::ReplyResource { needed: word(len) },
        Rejection::ResultTooLong { chunk, len } => RdmaError::WriteResource {
            chunk: NonZeroU32::new(word(chunk + 1)),
            needed: word(len),
        },
        Rejection::Ietf07(error) => error,
    }
}

fn peer_error(error: RdmaError) -> PeerError {
    let (cause, why) = match error {
        RdmaError::Version { low, high } => (
            Rejection::Versions { low, high },
            "it does not support version 2 of RPC-over-RDMA (RDMA2_ERR_VERS)",
        ),
        other => (Rejection::Ietf07(other), why(other)),
    };
    PeerError { cause, why }
}

/// Describes an RDMA2_ERROR for a call.
fn why(error: RdmaError) -> &'static str {
    match error {
        RdmaError::Version { .. } | RdmaError::VersionMismatch => {
            "the connection has another version of RPC-over-RDMA (RDMA2_ERR_VERS_MISMATCH)"
        }
        RdmaError::BadXdr => "it could not read the transport header (RDMA2_ERR_BAD_XDR)",
        RdmaError::BadPropval => "it could not read a transport property (RDMA2_ERR_BAD_PROPVAL)",
        RdmaError::InvalHtype => {
            "it does not support the header type of the call (RDMA2_ERR_INVAL_HTYPE)"
        }
        RdmaError::InvalCont => {
            "it could not put the parts of the call together (RDMA2_ERR_INVAL_CONT)"
        }
        RdmaError::ReadChunks { .. } => {
            "it does not take as many Read chunks (RDMA2_ERR_READ_CHUNKS)"
        }
        RdmaError::WriteChunks { .. } => {
            "it does not take as many Write chunks (RDMA2_ERR_WRITE_CHUNKS)"
        }
        RdmaError::Segments { .. } => {
            "it does not take a chunk of as many segments (RDMA2_ERR_SEGMENTS)"
        }
        RdmaError::WriteResource { .. } => {
            "a result did not fit its Write chunk (RDMA2_ERR_WRITE_RESOURCE)"
        }
        RdmaError::ReplyResource { .. } => "the reply did not fit (RDMA2_ERR_REPLY_RESOURCE)",
        RdmaError::System => "it could not process the call (RDMA2_ERR_SYSTEM)",
    }
}

fn invalid(error: HeaderError) -> Invalid {
    let credits = match error {
        HeaderError::Malformed { credits, .. } => credits,
        HeaderError::Runt | HeaderError::UnreadableError | HeaderError::OtherVersion { .. } => 0,
    };
    if let HeaderError::Malformed {
        xid,
        direction: Some(Direction::Reply),
        ..
    } = error
    {
        return Invalid::Reply { xid };
    }
    match error.disposition() {
        Disposition::Discard => Invalid::Nothing,
        Disposition::OtherVersion { .. } => Invalid::OtherVersion,
        Disposition::Answer { xid, error } => Invalid::Malformed {
            refused: Refused {
                xid,
                version: VERSION,
                credits,
                rejection: Rejection::Ietf07(error),
            },
            // An unknown header type does not tell, and is answered (§6.1).
            is_call: true,
        },
    }
}
