//! Why a connection ended.

use super::lease_rate::MIN_RATE;
use rpcrdma_proto::Violation;
use rpcrdma_proto::v2::Dialect;
use std::time::Duration;

/// Why a connection ended.
///
/// This is the source of [`TransportError::Disconnected`](oncrpc::TransportError::Disconnected) for calls
/// over RDMA.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The provider ended it.
    #[error(transparent)]
    Closed(verbs::CloseReason),
    /// One end broke the rules of RPC-over-RDMA.
    #[error(transparent)]
    Violation(Violation),
    /// This end posted a work request that the provider does not support.
    #[error("posted a work request that this connection does not support")]
    Impossible,
    /// The service panicked.
    #[error("the service failed")]
    ServiceFailed,
    /// A server received no call within its idle timeout.
    #[error("no call came for {0:?}")]
    Idle(Duration),
    /// A client made no call within its idle timeout.
    #[error("no call was made for {0:?}")]
    Unused(Duration),
    /// The peer did not answer a liveness probe (RFC 8267 §6.7.2).
    #[error("the peer did not answer a liveness probe within {0:?}")]
    Silent(Duration),
    /// The server sent no first reply within the first-reply timeout.
    #[error("no first reply from the server within {0:?}")]
    Mute(Duration),
    /// The chunks of a call were not read in time.
    #[error("the peer did not hand over the chunks of a call within {0:?}")]
    PullTimedOut(Duration),
    /// Messages waited for credits, and the peer granted none in time (ietf-07 §4.2.1.1).
    #[error("the peer granted no credits for a message within {0:?}")]
    NoCredits(Duration),
    /// The peer sent a longer message than was announced to it, and this end is
    /// [strict](crate::ServerConfig::strict).
    #[error("the peer sent a message of {bytes} bytes, and {limit} were announced to it")]
    Oversized {
        /// Bytes of the message.
        bytes: usize,
        /// Bytes that were announced.
        limit: usize,
    },
    /// The peer moved its data too slowly while others waited for memory.
    #[error(
        "the peer moved less than {} KiB/s while others waited for its chunk memory",
        MIN_RATE >> 10
    )]
    TooSlow,
    /// Calls without a reply held chunk memory for which others waited.
    #[error("calls without a reply held chunk memory for which others waited")]
    GaveWay,
    /// A call got no reply within its time.
    #[error("a call got no reply within {0:?}")]
    CallTimedOut(Duration),
    /// The offer of version two was not answered.
    #[error("the offer of version two of RPC-over-RDMA was not answered within {0:?}")]
    NoVersion(Duration),
    /// The server refused version two, and announces another draft of it.
    #[error("the server speaks the draft {of_server} of version two, and this end {own}")]
    OtherDraft {
        /// Draft that the server announces.
        of_server: Dialect,
        /// Draft of this end.
        own: Dialect,
    },
    /// The client left too many calls of the server unanswered.
    #[error("the client left calls of the server unanswered until no credit was left")]
    NoBackwardCredit,
    /// The server needed the place for a new connection.
    #[error("evicted for a new connection")]
    Evicted,
    /// The service closed it.
    #[error("closed by the service")]
    ByService,
    /// This end closed it.
    #[error("closed by this end")]
    Asked,
    /// The runtime on which the task of the connection ran has ended.
    #[error("the task of the connection has ended")]
    TaskEnded,
}

impl CloseReason {
    /// Whether the peer caused the end, which is then logged as a warning.
    pub(crate) fn is_of_peer(&self) -> bool {
        match self {
            Self::Violation(violation) => violation.is_of_peer(),
            Self::PullTimedOut(_)
            | Self::NoCredits(_)
            | Self::TooSlow
            | Self::GaveWay
            | Self::Oversized { .. }
            | Self::Closed(verbs::CloseReason::PeerError(_)) => true,
            _ => false,
        }
    }
}
