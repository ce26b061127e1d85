//! A budget for the replies that a client receives.

use oncrpc::Lease;
use std::pin::Pin;

/// A budget for the replies that clients receive, asked as they arrive: for a large one when its first
/// bytes have come, for others when they are complete.
///
/// While a reply waits for memory, nothing is read from its connection. The lease is
/// [kept](oncrpc::xdr::Payload::with_lease) with the reply, from which the caller can
/// [take](oncrpc::xdr::Payload::take_lease) it. It is [shrunk](Lease::shrink) to the bytes of the reply once that has
/// come to its end.
pub trait ReplyMemory: Send + Sync {
    /// Asks for the memory of a reply of at most so many bytes.
    fn lease(&self, bytes: usize) -> Leasing;
}

/// A lease that is there once others have returned theirs.
pub(crate) type LaterLease = Pin<Box<dyn Future<Output = Box<dyn Lease>> + Send>>;

/// The answer of a [budget](ReplyMemory).
pub enum Leasing {
    /// The reply needs no memory of the budget.
    Free,
    /// There is memory.
    Now(Box<dyn Lease>),
    /// The reply has to wait.
    Later(LaterLease),
}
