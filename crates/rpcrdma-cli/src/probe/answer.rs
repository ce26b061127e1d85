//! What an answer means.

use super::conversation::{Heard, Silence};
use oncrpc::{RpcError, read_reply};
use rpcrdma_proto::header::{Body, Header, HeaderView, RdmaError, VERSION, error_code, procedure};
use serde::Serialize;
use xdr::{Payload, Reader};

/// What came of a call of the procedure NULL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// It was executed.
    Success,
    /// The server has the program in these versions (PROG_MISMATCH).
    ProgMismatch { low: u32, high: u32 },
    /// The server does not have the program (PROG_UNAVAIL).
    ProgUnavail,
    /// It was answered in another way.
    Error { detail: String },
    /// It was not answered.
    Nothing { detail: String },
}

/// What came of a message of version two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum VersionTwo {
    /// It was refused: the peer supports these versions (RFC 8166 §4.5.1).
    ErrVers { low: u32, high: u32 },
    /// A message of version two came back.
    Spoken,
    /// Something else came back.
    Error { detail: String },
    /// Nothing came back.
    Nothing { detail: String },
}

impl Answer {
    pub(super) fn new(heard: &Result<Heard, Silence>) -> Self {
        let heard = match heard {
            Ok(heard) => heard,
            Err(silence) => {
                return Self::Nothing {
                    detail: silence.to_string(),
                };
            }
        };
        match reply(heard) {
            Ok(reply) => Self::from_rpc(read_reply(&reply, heard.xid).map(drop)),
            Err(detail) => Self::Error { detail },
        }
    }

    /// From what RPC says, whatever carried it.
    pub(super) fn from_rpc(result: Result<(), RpcError>) -> Self {
        match result {
            Ok(()) => Self::Success,
            Err(RpcError::ProgMismatch { low, high }) => Self::ProgMismatch { low, high },
            Err(RpcError::ProgUnavail) => Self::ProgUnavail,
            Err(error) => Self::Error {
                detail: error.to_string(),
            },
        }
    }
}

impl VersionTwo {
    pub(super) fn new(heard: &Result<Heard, Silence>) -> Self {
        match heard {
            Ok(heard) => Self::of_message(&heard.message),
            Err(silence) => Self::Nothing {
                detail: silence.to_string(),
            },
        }
    }

    fn of_message(message: &[u8]) -> Self {
        if let Some((low, high)) = supported(message) {
            return Self::ErrVers { low, high };
        }
        match HeaderView::new(message) {
            Some(header) if header.version() == 2 => Self::Spoken,
            Some(header) => Self::Error {
                detail: format!(
                    "a message of version {}, procedure {}",
                    header.version(),
                    header.procedure()
                ),
            },
            None => Self::Error {
                detail: format!("a message of {} octets", message.len()),
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

/// Whether a COMPOUND without operations has gone well (RFC 8881 §16.2): its minor version is there.
pub(super) fn is_compound_done(heard: &Heard) -> bool {
    /// NFS4_OK.
    const OK: u32 = 0;
    reply(heard).is_ok_and(|reply| {
        let results = read_reply(&reply, heard.xid);
        results.is_ok_and(|mut results| results.u32() == Ok(OK))
    })
}

/// Whether it is a reply or an error of version one, whatever else is wrong with it.
pub(super) fn is_version_one(heard: &Heard) -> bool {
    let header = HeaderView::new(&heard.message);
    header.is_some_and(|header| header.version() == VERSION) && supported(&heard.message).is_none()
}

/// Credits granted with a message, if it is one of RPC-over-RDMA.
pub(super) fn credits(heard: &Heard) -> Option<u32> {
    HeaderView::new(&heard.message).map(HeaderView::credits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn refusal_is_understood_whichever_version_it_has() {
        for version in [1, 2] {
            let refusal = message(&[7, version, 32, procedure::ERROR, error_code::VERS, 1, 1]);
            assert_eq!(
                VersionTwo::of_message(&refusal),
                VersionTwo::ErrVers { low: 1, high: 1 }
            );
        }
    }

    #[test]
    fn what_is_no_refusal_is_not_taken_for_one() {
        let check = |words: &[u32], expected| {
            assert_eq!(VersionTwo::of_message(&message(words)), expected);
        };
        check(&[7, 2, 32, procedure::MSG, 1, 0, 0, 0], VersionTwo::Spoken);
        // ERR_VERS without its range, and an error of version two.
        check(
            &[7, 2, 32, procedure::ERROR, error_code::VERS, 1],
            VersionTwo::Spoken,
        );
        check(&[7, 2, 32, procedure::ERROR, 2], VersionTwo::Spoken);
        let odd = |detail: &str| VersionTwo::Error {
            detail: detail.to_owned(),
        };
        check(
            &[7, 1, 32, procedure::MSG, 0, 0, 0],
            odd("a message of version 1, procedure 0"),
        );
        check(&[7, 2], odd("a message of 8 octets"));
    }
}
