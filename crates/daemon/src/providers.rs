//! The providers over which a server listens.

use crate::listening::DeviceNames;
use rpcrdma::ServerConfig;
use std::sync::Arc;
use verbs::Provider;

/// The providers over which a server listens.
pub struct ServerProviders {
    /// The one that has the addresses to listen on.
    pub first: Arc<dyn Provider>,
    /// Whether that uses RDMA devices.
    pub first_is_devices: bool,
    /// RDMA devices beside software iWARP, if there are any.
    pub beside: Option<Arc<dyn Provider>>,
    /// Returns the names of devices.
    pub device_names: DeviceNames,
}

impl ServerProviders {
    /// Connections of those configured for which there is memory, whichever of the providers they come over.
    pub fn connections_with_memory(&self, config: &ServerConfig) -> usize {
        let all = [&self.first].into_iter().chain(&self.beside);
        let each = all.map(|provider| config.connections_with_memory(&provider.limits()));
        each.min().unwrap_or(config.max_connections)
    }

    /// Whether connections can come over RDMA devices.
    pub fn use_devices(&self) -> bool {
        self.first_is_devices || self.beside.is_some()
    }
}
