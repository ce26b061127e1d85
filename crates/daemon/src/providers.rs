//! Settings that choose providers, and the providers over which a server listens.

use crate::listening::DeviceNames;
use gateway::ConnectRdma;
use rpcrdma::ServerConfig;
use std::net::{SocketAddr, TcpListener};
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

/// Name of a provider in a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderKind {
    /// RDMA devices for InfiniBand and RoCE, and software iWARP.
    Auto,
    /// Software iWARP.
    Iwarp,
    /// RDMA devices.
    Verbs,
}

/// The settings that choose a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderSetting {
    /// The provider, if one is named.
    pub kind: Option<ProviderKind>,
    /// The only RDMA device to use, if one is named.
    pub device: Option<String>,
}

/// The providers that settings choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderChoice<'a> {
    /// Software iWARP.
    Software,
    /// RDMA devices, or the one of this name.
    Devices(Option<&'a str>),
    /// RDMA devices, or the one of this name, and software iWARP.
    Both(Option<&'a str>),
}

impl ProviderSetting {
    /// The providers; `None` if a device is named that the provider does not use.
    pub fn choice(&self) -> Option<ProviderChoice<'_>> {
        let device = self.device.as_deref();
        match (self.kind, device) {
            (None | Some(ProviderKind::Auto), None) => Some(ProviderChoice::Both(None)),
            (Some(ProviderKind::Auto), device) => Some(ProviderChoice::Both(device)),
            (None | Some(ProviderKind::Verbs), device) => Some(ProviderChoice::Devices(device)),
            (Some(ProviderKind::Iwarp), None) => Some(ProviderChoice::Software),
            (Some(ProviderKind::Iwarp), Some(_)) => None,
        }
    }

    /// Whether RDMA devices alone are to be used.
    pub fn wants_devices(&self) -> bool {
        matches!(self.choice(), Some(ProviderChoice::Devices(_)))
    }

    /// Whether a device is named that the provider does not use.
    pub fn contradicts_itself(&self) -> bool {
        self.choice().is_none()
    }
}

/// Opens the providers that settings choose, for the pairs of a gateway.
pub trait OpenProviders: Send + Sync {
    /// Checks that connections to servers have a provider.
    ///
    /// # Errors
    ///
    /// If the RDMA devices that are asked for cannot be used.
    fn check(&self, setting: &ProviderSetting) -> anyhow::Result<()>;

    /// The providers over which a pair listens at this address, with this socket if there is one. Software iWARP refuses as
    /// many clients at a time as `refusals` says.
    ///
    /// # Errors
    ///
    /// If the RDMA devices that are asked for cannot be used, or the only provider listens without a socket.
    fn server_providers(
        &self,
        setting: &ProviderSetting,
        refusals: Option<usize>,
        at: SocketAddr,
        socket: Option<TcpListener>,
    ) -> anyhow::Result<ServerProviders>;

    /// Makes the connections of a pair to its server.
    fn connector(&self, setting: &ProviderSetting) -> Arc<dyn ConnectRdma>;

    /// Names of the devices that connections to a server may use, as far as they are known.
    fn device_names(&self, setting: &ProviderSetting) -> Vec<String>;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use oncrpc::Cause;
    use rpcrdma::{Client, ClientConfig};
    use std::collections::BTreeMap;
    use verbs::BoxFuture;
    use verbs_iwarp::Iwarp;

    /// Software iWARP, whatever is chosen.
    pub(crate) struct Software;

    impl OpenProviders for Software {
        fn check(&self, _: &ProviderSetting) -> anyhow::Result<()> {
            Ok(())
        }

        fn server_providers(
            &self,
            _: &ProviderSetting,
            _: Option<usize>,
            _: SocketAddr,
            _: Option<TcpListener>,
        ) -> anyhow::Result<ServerProviders> {
            Ok(ServerProviders {
                first: Arc::new(Iwarp::default()),
                first_is_devices: false,
                beside: None,
                device_names: BTreeMap::new,
            })
        }

        fn connector(&self, _: &ProviderSetting) -> Arc<dyn ConnectRdma> {
            Arc::new(Self)
        }

        fn device_names(&self, _: &ProviderSetting) -> Vec<String> {
            Vec::new()
        }
    }

    impl ConnectRdma for Software {
        fn connect(
            &self,
            to: SocketAddr,
            config: ClientConfig,
        ) -> BoxFuture<'_, Result<Client, Cause>> {
            Box::pin(async move {
                let provider = Arc::new(Iwarp::default());
                Ok(Client::connect(provider, to, config).await?)
            })
        }
    }

    #[test]
    fn device_that_is_named_alone_is_used_alone() {
        let check = |kind, device: Option<&str>, expected| {
            let setting = ProviderSetting {
                kind,
                device: device.map(str::to_owned),
            };
            assert_eq!(setting.choice(), expected, "{setting:?}");
        };
        let (auto, verbs) = (Some(ProviderKind::Auto), Some(ProviderKind::Verbs));
        check(None, None, Some(ProviderChoice::Both(None)));
        check(auto, None, Some(ProviderChoice::Both(None)));
        let device = Some("rxe0");
        check(None, device, Some(ProviderChoice::Devices(device)));
        check(verbs, None, Some(ProviderChoice::Devices(None)));
        check(auto, device, Some(ProviderChoice::Both(device)));
        let iwarp = Some(ProviderKind::Iwarp);
        check(iwarp, None, Some(ProviderChoice::Software));
        check(iwarp, device, None);
    }
}
