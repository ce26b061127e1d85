//! Errors of connection setup, typed.

use iwarp_proto::mpa::FrameError;
use iwarp_proto::terminate::Cause;
use std::io;
use verbs::{ProtocolMismatch, Reason, SetupError};

/// A violation of MPA connection setup by the peer (RFC 5044 §7.1, RFC 6581): the detail of a
/// [`SetupError::NotOurProtocol`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupFailure {
    /// The responder closed the connection without an MPA Reply, in both revisions.
    #[error("it does not speak MPA; is this the plain NFS/TCP port? NFS/RDMA usually is 20049")]
    NoReply,
    /// The responder sent bytes that begin no MPA Reply: these first ones.
    #[error(
        "it does not speak MPA (first bytes {0:02x?}); is this the plain NFS/TCP port? NFS/RDMA usually is 20049"
    )]
    NotMpa([u8; 4]),
    /// The responder closed the connection within its MPA Reply.
    #[error("it closed the connection within its MPA reply")]
    TornReply,
    /// The MPA Reply does not match the Request.
    #[error("{0}")]
    Reply(&'static str),
    /// The responder demands what this end cannot meet; a Terminate with this error told it so.
    #[error("its demands cannot be met: {0}")]
    Demands(Cause),
    /// The initiator closed the connection without an MPA Request.
    #[error("it closed the connection without an MPA request")]
    NoRequest,
    /// The initiator closed the connection within its MPA Request.
    #[error("it closed the connection within its MPA request")]
    TornRequest,
    /// The initiator sent an RPC call over plain TCP.
    #[error(
        "it speaks RPC over plain TCP here; it should mount with proto=rdma, or use the NFS/TCP port"
    )]
    PlainRpc,
    /// The peer sent an invalid MPA frame.
    #[error(transparent)]
    Frame(FrameError),
}

impl SetupFailure {
    /// The kind in terms of all transports.
    fn kind(self) -> ProtocolMismatch {
        match self {
            Self::NoReply | Self::NoRequest => ProtocolMismatch::NoMessage,
            Self::TornReply | Self::TornRequest => ProtocolMismatch::Truncated,
            Self::NotMpa(_) | Self::PlainRpc | Self::Frame(FrameError::NotMpa(_)) => {
                ProtocolMismatch::OtherProtocol
            }
            Self::Demands(_) => ProtocolMismatch::Demands,
            Self::Frame(FrameError::Revision(_)) => ProtocolMismatch::UnsupportedVersion,
            Self::Reply(_)
            | Self::Frame(
                FrameError::SameRole
                | FrameError::PrivateDataTooLong(_)
                | FrameError::NoEnhancedWord,
            ) => ProtocolMismatch::InvalidMessage,
        }
    }
}

impl From<SetupFailure> for SetupError {
    fn from(failure: SetupFailure) -> Self {
        Self::NotOurProtocol(Reason::new(failure.kind()).with_detail(failure))
    }
}

/// An error of the system with what failed, or what to check.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct SystemFailure {
    what: String,
    source: io::Error,
}

impl SystemFailure {
    /// Creates an error of the same kind.
    pub(crate) fn explain(what: impl Into<String>, source: io::Error) -> io::Error {
        let what = what.into();
        io::Error::new(source.kind(), Self { what, source })
    }
}
