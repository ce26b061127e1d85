//! A gateway: one listening side, one upstream.

use crate::config::{GatewayConfig, Listen, Upstream};
use crate::listener::Listening;
use crate::state::GatewayState;
use crate::stats::{GatewayStats, TcpClient, UpstreamConnection};
use buffer::PoolStats;
use rpc_serving::admission::Admission;
use rpcrdma::{ConnectionStats, ServerMonitor};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use verbs::{Provider, SetupError};

/// A gateway between one listening side and one upstream server. It runs until it is [shut
/// down](Self::shutdown) or dropped.
pub struct Gateway {
    gateway: Arc<GatewayState>,
    listening: Listening,
    summaries: AbortOnDrop,
}

/// Read access to a gateway's statistics, which may outlive the gateway.
#[derive(Clone)]
pub struct GatewayMonitor {
    gateway: Arc<GatewayState>,
    server: Option<ServerMonitor>,
    /// Admission of clients over TCP.
    admission: Option<Admission>,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Gateway {
    /// Listens for clients and passes their calls on. The upstream is not connected to before a
    /// client calls. Works in any tokio runtime.
    ///
    /// # Errors
    ///
    /// If it cannot listen or start threads.
    pub async fn bind(
        listen: Listen,
        upstream: Upstream,
        config: GatewayConfig,
    ) -> Result<Self, SetupError> {
        let gateway = Arc::new(GatewayState::new(&listen, upstream, config));
        let listening = Listening::start(listen, &gateway).await?;
        gateway.listens_at(listening.local_addr());
        let logged = Arc::clone(&gateway);
        let summaries = tokio::spawn(async move { match logged.log.summarise_when_due().await {} });
        Ok(Self {
            gateway,
            listening,
            summaries: AbortOnDrop(summaries.abort_handle()),
        })
    }

    /// Listens over a further provider, or on a further address, and returns the address. All clients
    /// share the limits of the gateway, whichever way they came.
    ///
    /// # Errors
    ///
    /// If it cannot listen there, or if clients connect over TCP. The gateway goes on without it.
    pub async fn listen_also(
        &self,
        provider: Arc<dyn Provider>,
        on: SocketAddr,
    ) -> Result<SocketAddr, SetupError> {
        self.listening.listen_also(provider, on).await
    }

    /// The address on which the gateway listens, the first of several.
    pub fn local_addr(&self) -> SocketAddr {
        self.listening.local_addr()
    }

    /// Totals so far.
    pub fn stats(&self) -> GatewayStats {
        self.gateway.stats.snapshot()
    }

    /// Returns a monitor, which others can read statistics from.
    pub fn monitor(&self) -> GatewayMonitor {
        GatewayMonitor {
            gateway: Arc::clone(&self.gateway),
            server: self.listening.monitor(),
            admission: self.listening.tcp_admission(),
        }
    }

    /// Waits until each event loop of the listening side has run a task that is queued now. Does not
    /// return if an event loop hangs or has ended.
    pub async fn workers_respond(&self) {
        self.listening.workers_respond().await;
    }

    /// Limits the connections of clients to fewer than configured, from now on; those of one address to
    /// half of them. Connections beyond that stay, until new ones take the places of idle ones. For
    /// gateways that share what connections need, such as descriptors.
    pub fn limit_connections(&self, connections: usize) {
        self.listening.limit_connections(connections);
    }

    /// Closes the connections of these clients behind the replies to their calls: of those who may no longer connect. Returns
    /// how many there are.
    pub fn close_clients(&self, is_one: impl Fn(SocketAddr) -> bool) -> usize {
        self.gateway.connections.close_those_of(is_one)
    }

    /// Stops accepting, waits for calls in flight as long as the listening side allows, closes all
    /// connections and returns the totals.
    pub async fn shutdown(self) -> GatewayStats {
        self.listening.shutdown().await;
        drop(self.summaries);
        // What was not logged so far is not to be lost.
        self.gateway.log.summarise_all();
        self.gateway.stats.snapshot()
    }
}

impl GatewayMonitor {
    /// Connections of clients, if the gateway listens for RPC-over-RDMA.
    pub fn connections(&self) -> Vec<ConnectionStats> {
        let server = self.server.as_ref();
        server.map(ServerMonitor::connections).unwrap_or_default()
    }

    /// The upstream connections at present, in no order.
    pub fn upstream_connections(&self) -> Vec<UpstreamConnection> {
        self.gateway.upstream_connections()
    }

    /// The connections of TCP clients that have made a call, if the gateway listens for them.
    pub fn tcp_clients(&self) -> Vec<TcpClient> {
        self.gateway.tcp_clients()
    }

    /// Totals so far.
    pub fn stats(&self) -> GatewayStats {
        self.gateway.stats.snapshot()
    }

    /// Connections of clients that were refused as there were too many of all, or of their address.
    pub fn refused_as_too_many(&self) -> u64 {
        let over_rdma = self.server.as_ref().map(ServerMonitor::refused_as_too_many);
        let over_tcp = self.admission.as_ref().map(Admission::refused);
        over_rdma.unwrap_or_default() + over_tcp.unwrap_or_default()
    }

    /// How long the call of a client has waited that has waited for its reply for longest; zero without one.
    pub fn oldest_call(&self) -> Duration {
        let oldest = self.gateway.oldest_call();
        oldest.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Memory of records that are being received, or passed on.
    pub fn memory(&self) -> PoolStats {
        self.gateway.pool.stats()
    }
}
