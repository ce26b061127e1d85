//! The trait for transports that carry RPC calls to a server.

use crate::Cause;
use crate::xdr::Payload;
use smallvec::SmallVec;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// A transport that sends calls to one server and returns the replies.
pub trait Transport {
    /// Returns a transaction ID (XID) that is not in use on this transport.
    fn next_xid(&self) -> u32;

    /// Sends a call message, which begins with its XID, and waits for the reply with that XID.
    ///
    /// The reply begins with its XID too. If the XID belongs to a call in flight, fails with
    /// [`TransportError::XidInUse`]. Dropping the future cancels the call: its reply is
    /// discarded, and its resources are released when that is safe.
    fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> impl Future<Output = Result<Payload, TransportError>> + Send;

    /// Returns the largest useful number of calls in flight: further ones wait before they are
    /// sent. At least one; may change with every reply.
    fn depth(&self) -> usize {
        USUAL_DEPTH
    }

    /// Number of connections that have ended so far and whose calls went over others. A call during which it changes may
    /// have been sent again, and executed twice. Zero for a transport that sends no call again; a transport over another
    /// one returns the number of that.
    fn connections_ended(&self) -> u64 {
        0
    }
}

/// Calls in flight on a transport that does not implement [`Transport::depth`].
pub const USUAL_DEPTH: usize = 8;

/// Upper bound for the size of a reply, so that a transport can reserve memory for it beforehand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyBound {
    /// Largest size of the reply in bytes, RPC header included, without the data of the results
    /// below.
    pub fixed: usize,
    /// Largest size in bytes of each result that is eligible for placement, in the order of the
    /// reply.
    pub results: SmallVec<[usize; 1]>,
}

impl ReplyBound {
    /// A reply of at most `fixed` bytes, RPC header included, without results eligible for placement.
    pub fn new(fixed: usize) -> Self {
        Self {
            fixed,
            results: SmallVec::new(),
        }
    }

    /// Adds an eligible result of at most `bytes`.
    #[must_use]
    pub fn with_result(mut self, bytes: usize) -> Self {
        self.results.push(bytes);
        self
    }
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportError {
    /// There is no connection, and none could be made in time. The cause is the transport's error,
    /// and its message is that of this error.
    Unreachable(Cause),
    /// The connection ended, and the call was not or could not be sent again. The cause is the
    /// [source](Error::source) of this error.
    Disconnected(Cause),
    /// No reply came in time. The call may have been executed.
    TimedOut(Duration),
    /// The server could not take the call or send the reply as this transport offered it
    /// (an RDMA_ERROR, RFC 8166 §4.5).
    Refused(&'static str),
    /// The call or its reply is larger than this transport can carry.
    TooLarge {
        /// Size of the message in bytes.
        len: usize,
        /// Largest possible size in bytes.
        limit: usize,
    },
    /// The reply broke the rules of the transport.
    BadReply(&'static str),
    /// The XID of the call belongs to a call in flight on this connection. Not sent, and the other
    /// call is unharmed. XIDs of [`Transport::next_xid`] never cause this.
    XidInUse(u32),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(cause) => write!(f, "{}", cause.error()),
            Self::Disconnected(_) => f.write_str("the connection ended"),
            Self::TimedOut(limit) => write!(f, "no reply within {limit:?}"),
            Self::Refused(why) => write!(f, "the server's transport refused the call: {why}"),
            Self::TooLarge { len, limit } => write!(
                f,
                "a message of {len} bytes is more than the {limit} this transport can carry"
            ),
            Self::BadReply(why) => write!(f, "the server's reply is invalid: {why}"),
            Self::XidInUse(xid) => write!(f, "XID {xid:#010x} belongs to a call in flight"),
        }
    }
}

impl Error for TransportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable(cause) => cause.error().source(),
            Self::Disconnected(cause) => Some(cause.error()),
            Self::TimedOut(_)
            | Self::Refused(_)
            | Self::TooLarge { .. }
            | Self::BadReply(_)
            | Self::XidInUse(_) => None,
        }
    }
}
