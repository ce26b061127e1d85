//! The codec of version two, for each layout.

mod ietf07;

use self::ietf07::Ietf07;
use super::dialect::Dialect;
use super::header::{self, Body, ChunkLists, Disposition, HeaderError, RdmaError, WordLayout};
use crate::codec::{
    self, Codec, Contents, Invalid, Invalidate, PeerError, Plain, Refused, Rejection,
};
use crate::wire::direction::Direction;
use crate::wire::header::procedure;
use buffer::Buffer;

/// Codec of version two (cel-01 §4.2), with this layout.
#[derive(Clone, Copy, Debug)]
struct VersionTwo(WordLayout);

/// Returns the codec of a dialect for this layout.
pub(super) fn codec(dialect: Dialect, words: WordLayout) -> &'static dyn Codec {
    match (dialect, words) {
        (Dialect::Cel01, WordLayout::None) => &VersionTwo(WordLayout::None),
        (Dialect::Cel01, WordLayout::One) => &VersionTwo(WordLayout::One),
        (Dialect::Cel01, WordLayout::Several) => &VersionTwo(WordLayout::Several),
        (Dialect::Ietf07, _) => &Ietf07,
    }
}

impl Codec for VersionTwo {
    fn version(&self) -> u32 {
        header::VERSION
    }

    fn plain_len(&self, _: Direction) -> usize {
        header::emitted_len(self.0, 0, 0, std::iter::empty(), None)
    }

    fn parse(&self, message: &[u8]) -> Result<codec::Header, Invalid> {
        let (header, stream) = header::Header::parse(message, self.0).map_err(invalid)?;
        let header::Header { xid, credits, body } = header;
        let body = match body {
            Body::Msg(chunks) => rpc(false, chunks),
            Body::NoMsg(chunks) => rpc(true, chunks),
            Body::Error(error) => codec::Body::Error(PeerError {
                cause: rejection(error),
                why: why(error),
            }),
            Body::Optional(optional) => codec::Body::Control(optional),
        };
        Ok(codec::Header {
            xid,
            credits,
            stream,
            body,
        })
    }

    fn plain(&self, direction: Direction, xid: u32, credits: u32) -> Plain {
        Plain::new(&header::plain(xid, credits, direction, self.0))
    }

    fn emit(&self, out: &mut Buffer, xid: u32, credits: u32, contents: &Contents<'_>) {
        let Contents {
            long,
            direction,
            invalidate,
            lists,
        } = contents;
        let proc = match long {
            true => procedure::NOMSG,
            false => procedure::MSG,
        };
        header::emit_chunks(out, proc, xid, credits, *direction, invalidate, lists);
    }

    fn emit_error(&self, out: &mut Buffer, error: Refused) {
        let Refused {
            xid,
            version,
            credits,
            rejection,
        } = error;
        header::emit_error(out, xid, version, credits, error_of(rejection));
    }

    fn nothing_to_invalidate(&self) -> Invalidate {
        Invalidate::nothing(self.0)
    }
}

fn rpc(long: bool, chunks: ChunkLists) -> codec::Body {
    codec::Body::Rpc(codec::Rpc {
        long,
        direction: Some(chunks.direction),
        invalidate: chunks.invalidate,
        lists: chunks.lists,
    })
}

fn rejection(error: RdmaError) -> Rejection {
    match error {
        RdmaError::Version { low, high } => Rejection::Versions { low, high },
        RdmaError::BadHeader => Rejection::Header,
        RdmaError::InvalOption => Rejection::Operation,
    }
}

/// Converts an error for the session, and for the peer.
pub(super) fn error_of(rejection: Rejection) -> RdmaError {
    match rejection {
        Rejection::Versions { low, high } => RdmaError::Version { low, high },
        Rejection::Header
        | Rejection::Chunks(_)
        | Rejection::ReplyTooLong { .. }
        | Rejection::ResultTooLong { .. }
        | Rejection::Ietf07(_) => RdmaError::BadHeader,
        Rejection::Operation => RdmaError::InvalOption,
    }
}

/// Makes a malformed message, which is answered with this error if it is a call.
pub(super) fn malformed(xid: u32, credits: u32, rejection: Rejection, is_call: bool) -> Invalid {
    Invalid::Malformed {
        refused: Refused {
            xid,
            version: header::VERSION,
            credits,
            rejection,
        },
        is_call,
    }
}

fn invalid(error: HeaderError) -> Invalid {
    if let HeaderError::Malformed {
        xid,
        direction: Some(Direction::Reply),
        ..
    } = error
    {
        return Invalid::Reply { xid };
    }
    let is_call = error.direction() == Some(Direction::Call);
    match error.disposition() {
        Disposition::Discard => Invalid::Nothing,
        Disposition::ErrVers { .. } => Invalid::OtherVersion,
        Disposition::BadHeader { xid, credits } => {
            malformed(xid, credits, Rejection::Header, is_call)
        }
        Disposition::InvalOption { xid, credits } => {
            malformed(xid, credits, Rejection::Operation, is_call)
        }
    }
}

/// Describes an RDMA2_ERROR for a call.
fn why(error: RdmaError) -> &'static str {
    match error {
        RdmaError::Version { .. } => {
            "it does not support version 2 of RPC-over-RDMA (RDMA2_ERR_VERS)"
        }
        RdmaError::BadHeader => {
            "it could not process the chunks, or the reply did not fit (RDMA2_ERR_BAD_HEADER)"
        }
        RdmaError::InvalOption => {
            "it took a call for an operation that it does not know (RDMA2_ERR_INVAL_OPTION)"
        }
    }
}
