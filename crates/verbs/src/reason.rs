//! Reasons of failed connections: a kind for programs, and the provider's own error behind it.

use std::error::Error;
use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;

/// A reason that a provider reports: a kind that is the same for all providers, and the provider's own
/// error as its detail, if it has one.
///
/// Programs decide by the [`kind`](Self::kind). The detail is for people, and for programs that know
/// the provider and downcast it: the error of the Terminate Message for iWARP, the status of a work
/// completion or a CM event for hardware. It is the [source](Error::source) of the
/// [`CloseReason`](crate::CloseReason) or [`SetupError`](crate::SetupError) with this reason. Two
/// reasons are equal if their kinds and the messages of their details are.
///
/// ```
/// use std::error::Error;
/// use std::io;
/// use verbs::{CloseReason, Loss, Reason};
///
/// let error = io::Error::from(io::ErrorKind::ConnectionReset);
/// let closed = CloseReason::Lost(Reason::new(Loss::Reset).with_detail(error));
/// assert_eq!(closed.to_string(), "connection lost: the peer reset it");
/// assert!(closed.source().is_some_and(|source| source.is::<io::Error>()));
/// assert!(matches!(closed, CloseReason::Lost(reason) if reason.kind() == Loss::Reset));
/// ```
#[derive(Clone)]
pub struct Reason<K> {
    kind: K,
    detail: Option<Arc<dyn Error + Send + Sync>>,
}

impl<K: Copy> Reason<K> {
    /// Creates a reason without a detail.
    pub fn new(kind: K) -> Self {
        Self { kind, detail: None }
    }

    /// Adds the provider's own error.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Error + Send + Sync + 'static) -> Self {
        self.detail = Some(Arc::new(detail));
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> K {
        self.kind
    }

    /// Returns the provider's own error, for a downcast.
    pub fn detail(&self) -> Option<&(dyn Error + 'static)> {
        self.detail.as_deref().map(|detail| detail as _)
    }
}

impl<K: Copy> From<K> for Reason<K> {
    fn from(kind: K) -> Self {
        Self::new(kind)
    }
}

impl<K: PartialEq> PartialEq for Reason<K> {
    fn eq(&self, other: &Self) -> bool {
        let message = |reason: &Self| reason.detail.as_ref().map(ToString::to_string);
        self.kind == other.kind && message(self) == message(other)
    }
}

impl<K: Eq> Eq for Reason<K> {}

impl<K: Debug> Debug for Reason<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{:?}({detail:?})", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// The message of the kind.
impl<K: Display> Display for Reason<K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

/// How a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The peer, or something between, dropped the connection (TCP reset).
    #[error("the peer reset it")]
    Reset,
    /// The peer acknowledges nothing any more (TCP timeout, transport retries exceeded).
    #[error("the peer does not answer any more")]
    Unresponsive,
    /// The peer closed the connection within a message.
    #[error("the peer closed it in the middle of a message")]
    Truncated,
    /// The path to the peer was cut.
    #[error("the path to the peer was cut")]
    PathCut,
    /// The port of the RDMA device lost its link.
    #[error("the port of the device has no link")]
    LinkDown,
    /// The RDMA device was removed or failed.
    #[error("the device was removed or failed")]
    DeviceRemoved,
    /// A work request of this end failed and stopped the queue pair. The detail is the status of its
    /// completion.
    #[error("a work request failed")]
    WorkFailed,
    /// The system reported another error, which is the detail.
    #[error("error of the system")]
    System,
}

/// A violation of the transport protocol below RPC, by the peer or by this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A Send arrived and no Receive was posted for it, or a Read request beyond the agreed number
    /// (RFC 5041 §7.2; receiver not ready on InfiniBand).
    #[error("no buffer for a message")]
    NoBuffer,
    /// A Send was longer than the Receive posted for it.
    #[error("a message longer than its buffer")]
    TooLong,
    /// An access to memory that is not registered, or beyond its bounds or its access rights.
    #[error("an invalid access to memory")]
    MemoryAccess,
    /// The invalidation of a handle that is not registered or cannot be invalidated remotely.
    #[error("an invalid remote invalidation")]
    Invalidation,
    /// A checksum was wrong.
    #[error("a wrong checksum")]
    Checksum,
    /// A message that is malformed, or not allowed in this state.
    #[error("an invalid message")]
    InvalidMessage,
    /// Demands during connection setup that the other end cannot meet.
    #[error("demands that cannot be met")]
    Demands,
    /// An internal error of the end that reported it.
    #[error("an internal error")]
    Internal,
    /// An error that no other variant describes.
    #[error("an unspecified error")]
    Unspecified,
}

/// Why the peer's setup messages were not those of an RDMA connection for RPC-over-RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolMismatch {
    /// The peer sent the bytes of another protocol.
    #[error("the peer speaks another protocol")]
    OtherProtocol,
    /// The peer closed the connection without a message.
    #[error("the peer closed the connection without a message")]
    NoMessage,
    /// The peer closed the connection within a message.
    #[error("the peer closed the connection within a message")]
    Truncated,
    /// The peer speaks an unsupported version of the transport protocol.
    #[error("the peer speaks an unsupported version of the transport")]
    UnsupportedVersion,
    /// The peer sent an invalid message, or one that contradicts that of this end.
    #[error("the peer sent an invalid setup message")]
    InvalidMessage,
    /// The peer demands what this end cannot meet.
    #[error("the peer demands what this end does not support")]
    Demands,
    /// No version of RPC-over-RDMA was agreed on, on a connection that was made.
    #[error("no version of RPC-over-RDMA was agreed on")]
    NoCommonVersion,
}

/// Why the peer's connection manager rejected a connection before its application saw the request.
///
/// The comments name the reasons of InfiniBand's REJ message (InfiniBand Architecture volume 1, §12.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RejectReason {
    /// The peer lacks a queue pair or other resources (1 to 3).
    #[error("the peer has no resources left")]
    NoResources,
    /// The peer waited too long for a message of the setup (4).
    #[error("the peer waited too long")]
    TimedOut,
    /// The peer does not support the request, or a parameter of it (5 to 7, 9, 11 to 27, 29, 31 to 35).
    #[error("the peer does not accept the parameters of the connection")]
    Parameters,
    /// The peer still has an earlier connection with the same identifier (10, 30).
    #[error("the peer still has an earlier connection of this queue pair")]
    StaleConnection,
    /// A reason that no other variant describes.
    #[error("unspecified reason")]
    Unspecified,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CloseReason, SetupError};
    use std::io;

    fn reset() -> io::Error {
        io::Error::from(io::ErrorKind::ConnectionReset)
    }

    #[test]
    fn message_names_the_kind_and_the_detail_is_its_source() {
        let check = |error: &dyn Error, message: &str| {
            assert_eq!(error.to_string(), message);
            let source = error.source().expect("the detail is the source");
            assert!(source.is::<io::Error>());
            assert!(!message.contains(&source.to_string()));
        };
        let closed =
            CloseReason::PeerError(Reason::new(ProtocolError::NoBuffer).with_detail(reset()));
        check(
            &closed,
            "the peer broke the protocol: no buffer for a message",
        );
        let reason = Reason::new(ProtocolError::TooLong).with_detail(reset());
        check(
            &CloseReason::Terminated(reason),
            "the peer ended the connection: a message longer than its buffer",
        );
        let reason = Reason::new(ProtocolMismatch::Truncated).with_detail(reset());
        check(
            &SetupError::NotOurProtocol(reason),
            "the peer closed the connection within a message",
        );
        let reason = Reason::new(RejectReason::NoResources).with_detail(reset());
        check(
            &SetupError::Refused(reason),
            "the peer's connection manager refused the connection: the peer has no resources left",
        );
        check(
            &SetupError::NoDevice(reset()),
            "no RDMA device reaches this address",
        );
        assert!(CloseReason::Lost(Loss::Reset.into()).source().is_none());
    }

    #[test]
    fn reasons_are_compared_by_kind_and_message_of_the_detail() {
        let plain = Reason::new(Loss::Reset);
        let detailed = plain.clone().with_detail(reset());
        assert_eq!(plain, Loss::Reset.into());
        assert_ne!(plain, Loss::Unresponsive.into());
        assert_ne!(plain, detailed);
        assert_eq!(detailed, plain.clone().with_detail(reset()));
        let other = io::Error::from(io::ErrorKind::TimedOut);
        assert_ne!(detailed, plain.with_detail(other));
    }
}
