//! The transport of one side.

/// The transport of one side of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// RPC over TCP.
    Tcp,
    /// RPC-over-RDMA.
    Rdma,
}
