//! I/O counters of an endpoint.

/// I/O counters of an endpoint. Calls that would have blocked are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that received octets.
    pub reads: u64,
    /// Calls that sent octets.
    pub writes: u64,
    /// Octets received, headers included.
    pub bytes_in: u64,
    /// Octets sent, headers included.
    pub bytes_out: u64,
    /// FPDUs received.
    pub fpdus_in: u64,
    /// FPDUs sent.
    pub fpdus_out: u64,
    /// Times that a message had to wait for a block of the shared receive queue.
    pub held_back: u64,
    /// Octets of received payload that were copied.
    pub copied_in: u64,
    /// Octets of sent payload that were copied.
    pub copied_out: u64,
}
