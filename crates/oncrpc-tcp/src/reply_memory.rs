//! A budget for the replies that a client receives.

use std::any::Any;
use std::pin::Pin;

/// Memory of one reply. Dropping it returns the memory.
pub type ReplyLease = Box<dyn Any + Send + Sync>;

/// A budget for the replies that clients receive, asked as they arrive: for a large one when its first
/// bytes have come, for others when they are complete.
///
/// While a reply waits for memory, nothing is read from its connection. The lease is
/// [kept](oncrpc::xdr::Payload::keeping) with the reply, from which the caller can
/// [take](oncrpc::xdr::Payload::take_kept) it.
pub trait ReplyMemory: Send + Sync {
    /// Asks for the memory of a reply of at most so many bytes.
    fn lease(&self, bytes: usize) -> Leasing;

    /// Reports that a reply has come to its end with so many bytes, which may be fewer, and is passed to its
    /// caller now.
    fn handle_arrived(&self, lease: &mut ReplyLease, bytes: usize);
}

/// The answer of a [budget](ReplyMemory).
pub enum Leasing {
    /// The reply needs no memory of the budget.
    Free,
    /// There is memory.
    Now(ReplyLease),
    /// The reply has to wait.
    Later(Pin<Box<dyn Future<Output = ReplyLease> + Send>>),
}
