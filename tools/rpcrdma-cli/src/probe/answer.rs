//! Interpretation of replies.

use super::conversation::{Heard, NoAnswer};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Chain, ReplyHeader, RpcError, read_reply};
use rpcrdma_proto::header::{Body, Header, HeaderView, RdmaError, VERSION, error_code, procedure};
use serde::Serialize;

/// Outcome of a call of the procedure NULL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// It was executed.
    Success,
    /// The server has the program in these versions (PROG_MISMATCH).
    ProgMismatch {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The server does not have the program (PROG_UNAVAIL).
    ProgUnavail,
    /// It was answered in another way.
    Error {
        /// Description of the outcome.
        detail: String,
    },
    /// It was not answered.
    Nothing {
        /// Description of the outcome.
        detail: String,
    },
}

impl Answer {
    pub(super) fn new(heard: &Result<Heard, NoAnswer>) -> Self {
        let heard = match heard {
            Ok(heard) => heard,
            Err(error) => {
                return Self::Nothing {
                    detail: Chain(error).to_string(),
                };
            }
        };
        match reply(heard) {
            Ok(reply) => Self::from_rpc(read_reply(&reply, heard.xid).map(drop)),
            Err(detail) => Self::Error { detail },
        }
    }

    /// Further description, if there is one.
    pub(super) fn detail(&self) -> Option<&str> {
        match self {
            Self::Error { detail } | Self::Nothing { detail } => Some(detail),
            Self::Success | Self::ProgMismatch { .. } | Self::ProgUnavail => None,
        }
    }

    /// From what RPC says, whatever carried it.
    pub(super) fn from_rpc(result: Result<(), RpcError>) -> Self {
        match result {
            Ok(()) => Self::Success,
            Err(RpcError::ProgMismatch { low, high }) => Self::ProgMismatch { low, high },
            Err(RpcError::ProgUnavail) => Self::ProgUnavail,
            Err(error) => Self::Error {
                detail: Chain(&error).to_string(),
            },
        }
    }
}

/// The versions that an ERR_VERS names. It looks the same in all versions (RFC 8166 §7), and the
/// version it carries is that of the message it refuses (RFC 8166 §4.5).
pub(super) fn supported(message: &[u8]) -> Option<(u32, u32)> {
    let header = HeaderView::new(message)?;
    let mut r = Reader::new(&message[HeaderView::FIXED_LEN..]);
    match r.words() {
        Ok([error_code::VERS, low, high]) if header.procedure() == procedure::ERROR => {
            Some((low, high))
        }
        _ => None,
    }
}

/// The RPC message in an answer, or what is there in its place.
fn reply(heard: &Heard) -> Result<Payload, String> {
    let (header, offset) = Header::parse(&heard.message)
        .map_err(|error| format!("not a valid header of version one: {error}"))?;
    match header.body {
        Body::Msg(_) => Ok(Payload::new(heard.message[offset..].to_vec().into(), 0)),
        Body::Error(RdmaError::Chunk) => Err("RDMA_ERROR, ERR_CHUNK".to_owned()),
        Body::Error(RdmaError::Version { low, high }) => {
            Err(format!("RDMA_ERROR, ERR_VERS: versions {low} to {high}"))
        }
        Body::NoMsg(_) => Err("a reply in a chunk that was not offered".to_owned()),
        Body::Done => Err("RDMA_DONE".to_owned()),
    }
}

/// The RPC message in an answer, if there is one.
pub(super) fn message(heard: &Heard) -> Option<Payload> {
    reply(heard).ok()
}

/// Whether a COMPOUND without operations has gone well (RFC 8881 §16.2): its minor version is there.
pub(super) fn is_compound_done(heard: &Heard) -> bool {
    /// NFS4_OK.
    const OK: u32 = 0;
    reply(heard).is_ok_and(|reply| {
        let results = read_reply(&reply, heard.xid);
        results.is_ok_and(|mut results| results.u32() == Ok(OK))
    })
}

/// Whether it is something that only a Responder says: an RPC reply to the call, or an RDMA_ERROR.
pub(super) fn is_rpcrdma(heard: &Heard) -> bool {
    match Header::parse(&heard.message) {
        Ok((Header { body, .. }, offset)) => match body {
            Body::Msg(_) => {
                let reply = ReplyHeader::parse(&mut Reader::new(&heard.message[offset..]));
                reply.is_ok_and(|reply| reply.xid == heard.xid)
            }
            Body::Error(_) => true,
            Body::NoMsg(_) | Body::Done => false,
        },
        Err(_) => supported(&heard.message).is_some(),
    }
}

/// Whether it says so in version one.
pub(super) fn is_version_one(heard: &Heard) -> bool {
    let header = HeaderView::new(&heard.message);
    is_rpcrdma(heard)
        && supported(&heard.message).is_none()
        && header.is_some_and(|header| header.version() == VERSION)
}

/// Credits granted with a reply. An error grants nothing.
pub(super) fn credits(heard: &Heard) -> Option<u32> {
    match Header::parse(&heard.message) {
        Ok((header, _)) if matches!(header.body, Body::Msg(_)) => Some(header.credits),
        Ok(_) | Err(_) => None,
    }
}
