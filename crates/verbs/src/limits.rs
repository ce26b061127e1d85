//! Limits of a provider and its connections.

/// Limits of a connection. They are constant for its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest private data to send, for each message of connection setup.
    pub private_data: PrivateDataCapacity,
    /// Whether received private data has exactly the length that was sent. On InfiniBand the
    /// whole zero-padded field arrives.
    pub private_data_exact: bool,
    /// Receives that can be posted at a time, or blocks of the shared receive queue that messages
    /// of the peer can hold at a time.
    pub receives: usize,
    /// Whether a connection can be made with a
    /// [shared receive queue](crate::QpOptions::shared_receives).
    pub shared_receives: bool,
    /// Whether a message without a block in the shared receive queue waits at the peer until there
    /// is one, as in software that stops reading its socket. Otherwise such a message ends the
    /// connection, like any message without a posted Receive, and each credit granted needs a block
    /// of its own.
    pub holds_peer_back: bool,
    /// Work requests other than Receives that can be posted at a time.
    pub sends: usize,
    /// Read requests that this end may have outstanding (ORD); 0 means that Read is not possible.
    /// Further work waits inside the provider.
    pub outstanding_reads: usize,
    /// Read requests of the peer that this end serves at a time (IRD).
    pub inbound_reads: usize,
    /// Bytes of the largest message, Write or Read.
    pub max_message: u32,
    /// Regions that can be registered at a time.
    pub regions: usize,
    /// Bytes of the largest region, or of the largest part of one.
    pub max_region: usize,
    /// Parts that a region can have ([`Memory::Parts`](crate::Memory::Parts)); 0 if the provider
    /// registers only memory in one piece.
    pub parts: usize,
    /// Handles that a Send with Invalidate of the peer can invalidate.
    pub remote_invalidation: Invalidation,
    /// Handles that one Send can invalidate, of this end and of the peer: 1 as InfiniBand and iWARP
    /// define it. With more, the peer's provider must have the same extension.
    pub invalidations: usize,
    /// Whether a dead peer is detected without traffic, as by TCP keepalive. InfiniBand has no
    /// equivalent.
    pub keepalive: bool,
}

/// Largest private data in bytes, for each message of connection setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateDataCapacity {
    /// In the connection request.
    pub request: usize,
    /// In the reply that accepts.
    pub accept: usize,
    /// In the reply that rejects.
    pub reject: usize,
}

/// Handles that a peer can invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Nothing: a Send with Invalidate is an error.
    None,
    /// A registered region.
    Region,
}
