//! I/O counters of an endpoint.

/// I/O counters of an endpoint. Calls that would have blocked are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that took octets in.
    pub reads: u64,
    /// Calls that handed octets out.
    pub writes: u64,
    /// Octets taken in, headers included.
    pub bytes_in: u64,
    /// Octets handed out, headers included.
    pub bytes_out: u64,
    /// FPDUs taken in.
    pub fpdus_in: u64,
    /// FPDUs made.
    pub fpdus_out: u64,
    /// Times that a message had to wait for a block of the shared receive queue.
    pub held_back: u64,
    /// Octets of payload that were copied on their way in.
    pub copied_in: u64,
    /// Octets of payload that were copied on their way out.
    pub copied_out: u64,
}
