//! Clients as servers for calls of the upstream (RFC 8167 §3, RFC 8881 §2.10.3.1).

use crate::transport_kind::TransportKind;
use oncrpc::xdr::Payload;
use oncrpc::{ConnectionId, ReplyBound, Transport, TransportError};
use rpcrdma::InlineSizes;

/// Registry of the connections on which clients can be called.
pub(crate) enum Backchannels {
    Rdma(rpcrdma::Backchannels),
    Tcp(oncrpc_tcp::Backchannels),
}

/// A client that takes calls of the upstream.
#[derive(Clone)]
pub(crate) enum Backward {
    Rdma(rpcrdma::BackwardClient),
    Tcp(oncrpc_tcp::BackwardClient),
}

impl Backchannels {
    pub(crate) fn new(side: TransportKind) -> Self {
        match side {
            TransportKind::Rdma => Self::Rdma(rpcrdma::Backchannels::default()),
            TransportKind::Tcp => Self::Tcp(oncrpc_tcp::Backchannels::default()),
        }
    }

    /// Declares that a client is ready for calls. `None` if its connection has ended.
    pub(crate) fn client_is_ready(&self, connection: ConnectionId) -> Option<Backward> {
        match self {
            Self::Rdma(all) => Some(Backward::Rdma(all.get(connection)?.client_is_ready())),
            Self::Tcp(all) => Some(Backward::Tcp(all.get(connection)?.client_is_ready())),
        }
    }

    /// Largest call to a client, and reply, that its connection carries in either version. `None`
    /// without such a limit.
    pub(crate) fn inline_sizes(&self, connection: ConnectionId) -> Option<InlineSizes> {
        match self {
            Self::Rdma(all) => Some(all.get(connection)?.inline_sizes()),
            Self::Tcp(_) => None,
        }
    }
}

impl Backward {
    /// Passes a call of the upstream to the client.
    pub(crate) async fn call(&self, call: Payload) -> Result<Payload, TransportError> {
        match self {
            // No reply to a callback has eligible results (RFC 8267 §6.5).
            Self::Rdma(client) => {
                let bound = ReplyBound::new(client.inline_sizes().reply);
                client.call(call, bound).await
            }
            Self::Tcp(client) => client.call(call, ReplyBound::default()).await,
        }
    }
}
