//! The providers of the pairs of a gateway.

use super::upstream_connector::UpstreamConnector;
use crate::provider;
use crate::transport::TransportArgs;
use gateway::ConnectRdma;
use rpcrdma_daemon::providers::{OpenProviders, ProviderSetting, ServerProviders};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Opens the providers of pairs, with these options of connections.
pub(super) struct GatewayProviders {
    transport: TransportArgs,
}

impl GatewayProviders {
    pub(super) fn new(transport: TransportArgs) -> Self {
        Self { transport }
    }
}

impl OpenProviders for GatewayProviders {
    fn check(&self, setting: &ProviderSetting) -> anyhow::Result<()> {
        provider::providers(setting, self.transport.iwarp()).map(drop)
    }

    fn server_providers(
        &self,
        setting: &ProviderSetting,
        refusals: Option<usize>,
        at: SocketAddr,
        socket: Option<TcpListener>,
    ) -> anyhow::Result<ServerProviders> {
        let software = match refusals {
            Some(refusals) => self.transport.iwarp_refusing(refusals),
            None => self.transport.iwarp(),
        };
        let held = socket.map(|socket| (at, socket)).into_iter().collect();
        provider::server_providers(setting, software, &[at], held)
    }

    fn connector(&self, setting: &ProviderSetting) -> Arc<dyn ConnectRdma> {
        let software = self.transport.iwarp();
        Arc::new(UpstreamConnector::new(setting.clone(), software))
    }

    fn device_names(&self, setting: &ProviderSetting) -> Vec<String> {
        provider::device_names(setting)
    }
}
