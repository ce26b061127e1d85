//! The calling end.

use crate::ClientConfig;
use oncrpc::{ReplyBound, Transport, TransportError};
use rpcrdma_proto::{Counters, PrivateData, Thresholds};
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{Provider, SetupError};
use xdr::Payload;

/// A client of one server: a handle that is cheap to clone, for use by any number of tasks.
#[derive(Clone)]
pub struct Client {
    peer: SocketAddr,
}

/// What was agreed on a client's present connection.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// The server's address.
    pub peer: SocketAddr,
    /// The provider's words for what it agreed.
    pub description: String,
    /// The largest message in each direction.
    pub thresholds: Thresholds,
    /// What the server said about itself, if it said anything we understand (RFC 8797).
    pub peer_private_data: Option<PrivateData>,
    /// The server's private data as it came.
    pub raw_private_data: Vec<u8>,
    /// Calls that may be on their way at a time, as the server said last (RFC 8166 §3.3.1).
    pub credits: u32,
}

impl Client {
    /// Connects to a server.
    ///
    /// The connection is owned by a task on the present tokio runtime, which must outlive it.
    ///
    /// # Errors
    ///
    /// If the first connection cannot be made. Later ones are tried again, see [`ClientConfig`].
    pub async fn connect(
        provider: Arc<dyn Provider>,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Self, SetupError> {
        let _ = (provider, config);
        Err(SetupError::NotOurProtocol(format!("{to}: not built yet")))
    }

    /// What was agreed on the present connection; `None` while there is none.
    pub fn connection(&self) -> Option<ConnectionInfo> {
        None
    }

    /// What was done so far, on all connections of this client together.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Ends the connection in good order. Calls that are on their way fail.
    pub async fn close(&self) {}
}

impl Transport for Client {
    fn next_xid(&self) -> u32 {
        1
    }

    async fn call(&self, _call: Payload, _bound: ReplyBound) -> Result<Payload, TransportError> {
        Err(TransportError::Unreachable(self.peer.to_string()))
    }
}
