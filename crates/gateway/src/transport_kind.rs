//! The transport of one side.

/// The transport of one side of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportKind {
    Tcp,
    Rdma,
}
