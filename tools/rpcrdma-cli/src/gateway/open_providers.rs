//! The providers of the pairs of a gateway.

use super::upstream_connector::UpstreamConnector;
use crate::provider;
use gateway::ConnectRdma;
use rpcrdma_daemon::config::connections::ConnectionSettings;
use rpcrdma_daemon::gateway::GatewaySettings;
use rpcrdma_daemon::providers::{OpenProviders, ProviderSetting, ServerProviders};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use verbs_iwarp::Iwarp;

/// Opens the providers of pairs, with these options of connections.
pub(super) struct GatewayProviders {
    connections: ConnectionSettings,
}

impl GatewayProviders {
    pub(super) fn of(settings: &GatewaySettings) -> Arc<dyn OpenProviders> {
        let connections = settings.connections.clone();
        Arc::new(Self { connections })
    }
}

impl OpenProviders for GatewayProviders {
    fn check(&self, setting: &ProviderSetting) -> anyhow::Result<()> {
        provider::providers(setting, Iwarp::new(self.connections.iwarp())).map(drop)
    }

    fn server_providers(
        &self,
        setting: &ProviderSetting,
        refusals: Option<usize>,
        at: SocketAddr,
        socket: Option<TcpListener>,
    ) -> anyhow::Result<ServerProviders> {
        let software = match refusals {
            Some(refusals) => Iwarp::new(self.connections.iwarp().with_refusals(refusals)),
            None => Iwarp::new(self.connections.iwarp()),
        };
        let held = socket.map(|socket| (at, socket)).into_iter().collect();
        provider::server_providers(setting, software, &[at], held)
    }

    fn connector(&self, setting: &ProviderSetting) -> Arc<dyn ConnectRdma> {
        let software = Iwarp::new(self.connections.iwarp());
        Arc::new(UpstreamConnector::new(setting.clone(), software))
    }

    fn device_names(&self, setting: &ProviderSetting) -> Vec<String> {
        provider::device_names(setting)
    }
}
