//! The memory of a message, lent by a budget.

use std::fmt;

/// Memory of a budget that a message occupies. Dropping it returns the memory.
///
/// It is kept [with the message](crate::xdr::Payload::with_lease), whichever transport or service made it. Whoever needs
/// more of a lease than this trait has keeps the lease beside the message, with its own type.
pub trait Lease: Send + Sync {
    /// Notes that the message is complete and has this many bytes, which may be fewer than were lent: the rest is
    /// returned.
    fn shrink(&mut self, bytes: usize);
}

impl fmt::Debug for dyn Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lease")
    }
}
