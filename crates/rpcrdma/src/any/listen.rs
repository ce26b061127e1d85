//! A server that listens over several providers.

use super::device_listeners::DeviceListeners;
use super::open_error::OpenError;
use super::providers::Providers;
use crate::{Server, ServerConfig};
use oncrpc::Service;
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::SetupError;

/// A server and its listeners.
pub struct Listeners {
    /// The server, which serves until it is [shut down](Server::shutdown).
    pub server: Server,
    /// Addresses of the listeners over the [main](Providers::main) provider, in the order in which they were asked for.
    pub addrs: Vec<SocketAddr>,
    /// Listeners over devices beside that.
    pub devices: DeviceListeners,
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The selected providers cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No address was asked for.
    #[error("there is no address to listen at")]
    NoAddress,
    /// The main provider does not listen at an address.
    #[error("cannot listen at {at}")]
    Setup {
        /// The address.
        at: SocketAddr,
        /// The reason.
        source: SetupError,
    },
}

impl Providers {
    /// Serves over the [main](Self::main) provider at each of these addresses, and over devices beside it at each of them
    /// that a device may have, at the same port. Port 0 is a free port.
    ///
    /// # Errors
    ///
    /// If it cannot listen at one of them over the main provider: then the server has ended.
    pub async fn listen(
        self,
        at: &[SocketAddr],
        service: Arc<dyn Service>,
        config: ServerConfig,
    ) -> Result<Listeners, ListenError> {
        let [first, others @ ..] = at else {
            return Err(ListenError::NoAddress);
        };
        let main = self.main();
        let cannot = |at| move |source| ListenError::Setup { at, source };
        let server = Server::bind(Arc::clone(main), *first, service, config).await;
        let server = server.map_err(cannot(*first))?;
        let mut addrs = vec![server.local_addr()];
        for &at in others {
            let listening = server.listen_also(Arc::clone(main), at).await;
            addrs.push(listening.map_err(cannot(at))?);
        }
        let devices = match self.devices_beside() {
            Some(devices) => {
                let listen = async |at| server.listen_also(Arc::clone(devices), at).await;
                DeviceListeners::listen(&addrs, listen).await
            }
            None => DeviceListeners::default(),
        };
        Ok(Listeners {
            server,
            addrs,
            devices,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::{self, Over};
    use crate::{ClientConfig, Iwarp};
    use oncrpc::Programs;
    use verbs::{BoxFuture, Listener, Provider, WrapProvider};

    /// Software iWARP in the place of devices, which listens at a free port of loopback, whatever it is asked for.
    struct Device {
        inner: Iwarp,
    }

    impl WrapProvider for Device {
        type Inner = Iwarp;

        fn inner(&self) -> &Iwarp {
            &self.inner
        }

        fn wrap_listen<'a>(
            &'a self,
            _: SocketAddr,
        ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
            self.inner.listen(([127, 0, 0, 1], 0).into())
        }
    }

    fn config() -> ServerConfig {
        ServerConfig::default().with_workers(0_usize)
    }

    #[tokio::test]
    async fn server_listens_over_devices_beside_software_and_answers_over_both() {
        let device = Device {
            inner: Iwarp::default(),
        };
        let providers = Providers::new(Arc::new(Iwarp::default()), Some(Arc::new(device)));
        // A wildcard stands for all addresses of this machine. There may be none beside loopback.
        let at = ["0.0.0.0:0".parse().unwrap()];
        let listening = providers.listen(&at, Arc::new(Programs::new()), config());
        let listening = listening.await.unwrap();
        let port = listening.addrs[0].port();
        let software: SocketAddr = ([127, 0, 0, 1], port).into();
        let all = [software].into_iter().chain(listening.devices.listening);
        for addr in all {
            let client = any::connect(addr, ClientConfig::default()).await.unwrap();
            client.close().await;
        }
        listening.server.shutdown().await;
    }

    #[tokio::test]
    async fn server_without_an_address_is_an_error() {
        let providers = Providers::new(Arc::new(Iwarp::default()), None);
        assert_eq!(providers.over(), Over::Software);
        let listening = providers.listen(&[], Arc::new(Programs::new()), config());
        let error = listening.await.err();
        assert!(matches!(error, Some(ListenError::NoAddress)), "{error:?}");
    }

    #[tokio::test]
    async fn address_that_is_taken_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().map(|at| (at, taken)).unwrap();
        let at = [([127, 0, 0, 1], 0).into(), taken.0];
        let error = any::listen(&at, Arc::new(Programs::new()), config()).await;
        let error = error.err().expect("the second address is taken");
        assert_eq!(error.to_string(), format!("cannot listen at {}", taken.0));
    }
}
