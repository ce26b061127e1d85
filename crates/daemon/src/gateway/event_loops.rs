//! Event loops of the running pairs, which the watchdog asks also while pairs are replaced.

use gateway::{Gateway, GatewayStats};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::RwLock;

/// The gateway of a pair, until it is shut down.
#[derive(Clone)]
pub(super) struct SharedGateway(Arc<RwLock<Option<Gateway>>>);

impl SharedGateway {
    /// Shares a gateway.
    pub(super) fn new(gateway: Gateway) -> Self {
        Self(Arc::new(RwLock::new(Some(gateway))))
    }

    /// Limits the connections of clients.
    pub(super) async fn limit_connections(&self, connections: usize) {
        if let Some(gateway) = &*self.0.read().await {
            gateway.limit_connections(connections);
        }
    }

    /// Closes the connections of these clients behind the replies to their calls. Returns how many there are.
    pub(super) async fn close_clients(&self, is_one: impl Fn(SocketAddr) -> bool) -> usize {
        match &*self.0.read().await {
            Some(gateway) => gateway.close_clients(is_one),
            None => 0,
        }
    }

    /// Waits until its event loops have run a task that is queued now. One that is shut down has none.
    async fn responds(&self) {
        if let Some(gateway) = &*self.0.read().await {
            gateway.workers_respond().await;
        }
    }

    /// Finishes calls, and ends. Returns the totals, once.
    pub(super) async fn shutdown(&self) -> Option<GatewayStats> {
        let gateway = self.0.write().await.take();
        match gateway {
            Some(gateway) => Some(gateway.shutdown().await),
            None => None,
        }
    }
}

/// The event loops of all pairs.
#[derive(Clone, Default)]
pub(super) struct EventLoops(Arc<Mutex<Vec<SharedGateway>>>);

impl EventLoops {
    /// Replaces the gateways by these.
    pub(super) fn replace(&self, gateways: Vec<SharedGateway>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = gateways;
    }

    /// Waits until all have run a task that is queued now.
    pub(super) async fn respond(&self) {
        let gateways = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for gateway in gateways {
            gateway.responds().await;
        }
    }
}
