//! Connecting over one provider after the other.

use super::providers::{Over, Providers};
use crate::{Client, ClientConfig};
use oncrpc::Chain;
use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use verbs::{BoxFuture, Connected, Provider, QpOptions, SetupError, WorkRequest, WrapProvider};

/// Time for connection setup over a device, if another provider can be tried after it.
pub const DEVICE_SETUP: Duration = Duration::from_secs(3);

/// No provider reaches an address. Its text names the providers that were tried; its source is the error of the last.
#[derive(Debug)]
#[non_exhaustive]
pub struct ConnectError {
    /// The address.
    pub to: SocketAddr,
    /// The provider that was tried last.
    pub over: Over,
    /// Its error.
    pub source: SetupError,
    /// The error of devices that were tried before. `None` too if no device of this machine reaches the address: then there is
    /// nothing to repair about devices.
    pub over_devices: Option<SetupError>,
}

impl ConnectError {
    /// The error of an address that was tried over this provider alone.
    pub fn new(to: SocketAddr, over: Over, source: SetupError) -> Self {
        Self {
            to,
            over,
            source,
            over_devices: None,
        }
    }

    /// The same where devices were tried before, without success.
    #[must_use]
    pub fn after_devices(self, error: SetupError) -> Self {
        let over_devices = Some(error).filter(|error| !matches!(error, SetupError::NoDevice(_)));
        Self {
            over_devices,
            ..self
        }
    }

    /// Repair for the user to try, if one is known.
    pub fn advice(&self) -> Option<&'static str> {
        match &self.source {
            SetupError::Rejected(_) => Some(
                "see whether the server allows this address, and how many connections it takes",
            ),
            SetupError::NoDevice(_) => {
                Some("see which addresses the devices of this machine have, or use software iWARP")
            }
            SetupError::TimedOut(..) => Some(
                "check host and port, that RPC-over-RDMA is served there over the protocol of this end, and that no \
                 firewall drops the connection",
            ),
            SetupError::Io(error) => match error.kind() {
                ErrorKind::ConnectionRefused => {
                    Some("start a server there, or check host and port")
                }
                ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                    Some("check the address, and the network")
                }
                _ => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {}", self.to)?;
        match &self.over_devices {
            Some(devices) => write!(
                f,
                " over an RDMA device: {}; over software iWARP",
                Chain(devices)
            ),
            None => Ok(()),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// A connection over one of several providers.
pub(super) struct Reached {
    pub(super) client: Client,
    /// Why it is not over the devices that were tried before.
    pub(super) not_over_devices: Option<SetupError>,
}

impl Providers {
    /// Connects over a device, if there are any to try, or else over the [main](Self::main) provider. Devices have
    /// [`DEVICE_SETUP`] for their first connection. A server that refuses a connection over a device is not tried again, unless it
    /// is [one of this machine](try_software).
    ///
    /// # Errors
    ///
    /// The error of each provider that was tried.
    pub async fn connect(
        &self,
        to: SocketAddr,
        config: ClientConfig,
    ) -> Result<Client, ConnectError> {
        let reached = self.reach(to, config, || ()).await?;
        Ok(reached.client)
    }

    /// The same, which says what was wrong with devices that were tried before. `devices_failed` is called before the main
    /// provider is tried after them.
    pub(super) async fn reach(
        &self,
        to: SocketAddr,
        config: ClientConfig,
        devices_failed: impl FnOnce(),
    ) -> Result<Reached, ConnectError> {
        let mut not_over_devices = None;
        if let Some(devices) = self.devices_first(to) {
            let devices = Arc::new(FirstWithin::new(devices.clone(), DEVICE_SETUP));
            match Client::connect(devices, to, config.clone()).await {
                Ok(client) => {
                    tracing::debug!(addr = %to, "connected over an RDMA device");
                    return Ok(Reached {
                        client,
                        not_over_devices,
                    });
                }
                Err(error) if try_software(to, &error.source) => {
                    tracing::debug!(addr = %to, error = %error.source, "not over an RDMA device: trying software iWARP");
                    devices_failed();
                    not_over_devices = Some(error.source);
                }
                Err(error) => return Err(ConnectError::new(to, Over::Devices, error.source)),
            }
        }
        match Client::connect(Arc::clone(self.main()), to, config).await {
            Ok(client) => Ok(Reached {
                client,
                not_over_devices,
            }),
            Err(error) => {
                let error = ConnectError::new(to, self.over(), error.source);
                Err(match not_over_devices {
                    Some(devices) => error.after_devices(devices),
                    None => error,
                })
            }
        }
    }

    /// The provider that reaches an address: devices to try first, if a connection is made over them within [`DEVICE_SETUP`], or
    /// else the [main](Self::main) one, which is not tried. The connection is closed again.
    pub async fn reaching(&self, to: SocketAddr) -> (Over, Arc<dyn Provider>) {
        if let Some(devices) = self.devices_first(to) {
            let options = QpOptions::default().with_setup_timeout(DEVICE_SETUP);
            let connected = devices.connect(to, &options, &[], Vec::new()).await;
            if connected.is_ok() {
                return (Over::Devices, Arc::clone(devices));
            }
        }
        (self.over(), Arc::clone(self.main()))
    }
}

/// Whether software iWARP may find a server that was not found over a device: nobody is there, or a server refuses
/// connections of its own machine over devices, because it cannot tell whose they are.
pub fn try_software(to: SocketAddr, error: &SetupError) -> bool {
    match error {
        SetupError::Rejected(_) => socket_owner::is_local(to),
        error => nobody_there(error),
    }
}

/// Whether an error says that no server was found over this provider, so that there may be one over another. A server
/// that refuses, or does not follow the protocol, is one.
fn nobody_there(error: &SetupError) -> bool {
    match error {
        SetupError::NoDevice(_) | SetupError::TimedOut(..) => true,
        SetupError::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::TimedOut
        ),
        _ => false,
    }
}

/// RDMA devices whose first connection has less time for its setup, because another provider can be tried. Later
/// connections, to a server that was there, have the time of their options.
struct FirstWithin {
    inner: Arc<dyn Provider>,
    limit: Duration,
    connected: AtomicBool,
}

impl FirstWithin {
    fn new(inner: Arc<dyn Provider>, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            connected: AtomicBool::new(false),
        }
    }
}

impl WrapProvider for FirstWithin {
    type Inner = dyn Provider;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async move {
            let mut options = options.clone();
            if !self.connected.load(Relaxed) {
                options.setup_timeout = options.setup_timeout.min(self.limit);
            }
            let connected = self.inner.connect(to, &options, private_data, receives);
            let connected = connected.await?;
            self.connected.store(true, Relaxed);
            Ok(connected)
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Iwarp;
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;

    /// A provider over which no connection is made.
    pub(in crate::any) struct Failing {
        inner: Iwarp,
        error: fn() -> SetupError,
        asked: AtomicUsize,
    }

    impl WrapProvider for Failing {
        type Inner = Iwarp;

        fn inner(&self) -> &Iwarp {
            &self.inner
        }

        fn wrap_connect<'a>(
            &'a self,
            _: SocketAddr,
            _: &'a QpOptions,
            _: &'a [u8],
            _: Vec<WorkRequest>,
        ) -> BoxFuture<'a, Result<Connected, SetupError>> {
            self.asked.fetch_add(1, Relaxed);
            Box::pin(async { Err((self.error)()) })
        }
    }

    pub(in crate::any) fn failing(error: fn() -> SetupError) -> Arc<Failing> {
        Arc::new(Failing {
            inner: Iwarp::default(),
            error,
            asked: AtomicUsize::new(0),
        })
    }

    impl Failing {
        /// How often it was asked for a connection.
        pub(in crate::any) fn asked(&self) -> usize {
            self.asked.load(Relaxed)
        }
    }

    pub(in crate::any) fn refused() -> SetupError {
        io::Error::from(ErrorKind::ConnectionRefused).into()
    }

    pub(in crate::any) fn timed_out() -> SetupError {
        SetupError::TimedOut("the answer", Duration::from_secs(3))
    }

    /// How often each provider was asked for a connection, devices first, and the error.
    async fn attempts(to: &str, device: fn() -> SetupError) -> (usize, usize, ConnectError) {
        let (devices, software) = (failing(device), failing(refused));
        let providers = Providers::new(software.clone(), Some(devices.clone()));
        let connected = providers.connect(to.parse().unwrap(), ClientConfig::default());
        let error = connected.await.err().expect("no connection is made");
        (devices.asked(), software.asked(), error)
    }

    #[tokio::test]
    async fn software_is_tried_where_no_device_finds_a_server_and_the_error_names_both() {
        for device in [refused, timed_out] {
            let (devices, software, error) = attempts("192.0.2.1:20049", device).await;
            assert_eq!((devices, software), (1, 1), "{error}");
            assert_eq!(error.over, Over::Software);
            let expected = format!(
                "cannot connect to 192.0.2.1:20049 over an RDMA device: {}; over software iWARP: connection refused",
                device()
            );
            assert_eq!(Chain(&error).to_string(), expected);
            assert!(error.advice().is_some_and(|text| text.contains("port")));
        }
    }

    #[tokio::test]
    async fn address_without_a_device_is_reported_as_without_devices() {
        let no_device = || SetupError::NoDevice(ErrorKind::NotFound.into());
        let (devices, software, error) = attempts("192.0.2.1:20049", no_device).await;
        assert_eq!((devices, software), (1, 1), "{error}");
        assert!(error.over_devices.is_none());
        assert_eq!(error.to_string(), "cannot connect to 192.0.2.1:20049");
    }

    #[tokio::test]
    async fn server_that_refuses_over_a_device_is_not_asked_again() {
        let rejected = || SetupError::Rejected(Vec::new());
        let (devices, software, error) = attempts("192.0.2.1:20049", rejected).await;
        assert_eq!((devices, software), (1, 0), "{error}");
        assert_eq!(error.over, Over::Devices);
        assert!(matches!(error.source, SetupError::Rejected(_)), "{error}");
    }

    #[tokio::test]
    async fn server_of_this_machine_that_refuses_over_a_device_is_asked_over_software() {
        // A UDP socket that is connected sends nothing, but has an address of this machine.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_err() {
            eprintln!("skipped: this machine has no address beside loopback");
            return;
        }
        let here = socket.local_addr().unwrap().to_string();
        let rejected = || SetupError::Rejected(Vec::new());
        let (devices, software, error) = attempts(&here, rejected).await;
        assert_eq!((devices, software), (1, 1), "{error}");
    }

    #[tokio::test]
    async fn loopback_is_not_reached_over_devices() {
        for to in ["127.0.0.1:20049", "[::1]:20049", "[::ffff:127.0.0.1]:20049"] {
            let (devices, software, error) = attempts(to, refused).await;
            assert_eq!((devices, software), (0, 1), "{error}");
        }
    }

    #[tokio::test]
    async fn devices_alone_are_tried_for_loopback_too() {
        let devices = failing(refused);
        let providers = Providers::devices_alone(devices.clone());
        let to = "127.0.0.1:20049".parse().unwrap();
        let error = providers.connect(to, ClientConfig::default()).await;
        let error = error.err().expect("no connection is made");
        assert_eq!((devices.asked(), error.over), (1, Over::Devices));
    }

    #[tokio::test]
    async fn provider_that_reaches_an_address_is_found_by_a_connection() {
        let inner = Iwarp::default();
        let mut listener = inner.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let elsewhere = "192.0.2.1:20049".parse().unwrap();
        let leading = super::super::connector::tests::Leading {
            inner,
            to: listener.local_addr(),
        };
        let limit = Duration::from_secs(60);
        let accepting = async {
            let mut incoming = listener.accept().await.unwrap();
            incoming.request(limit).await.unwrap();
            let options = QpOptions::default();
            incoming.accept(&options, &[], Vec::new()).await.unwrap()
        };
        let providers = Providers::new(failing(refused), Some(Arc::new(leading)));
        let (_accepted, (over, _)) = tokio::join!(accepting, providers.reaching(elsewhere));
        assert_eq!(over, Over::Devices);
        let providers = Providers::new(failing(refused), Some(failing(refused)));
        assert_eq!(providers.reaching(elsewhere).await.0, Over::Software);
    }

    /// Setup timeouts of connections that are made and at once dropped, by whether each succeeds.
    struct Timeouts {
        inner: Iwarp,
        seen: Mutex<Vec<Duration>>,
    }

    impl WrapProvider for Timeouts {
        type Inner = Iwarp;

        fn inner(&self) -> &Iwarp {
            &self.inner
        }

        fn wrap_connect<'a>(
            &'a self,
            to: SocketAddr,
            options: &'a QpOptions,
            private_data: &'a [u8],
            receives: Vec<WorkRequest>,
        ) -> BoxFuture<'a, Result<Connected, SetupError>> {
            self.seen.lock().unwrap().push(options.setup_timeout);
            self.inner.connect(to, options, private_data, receives)
        }
    }

    #[tokio::test]
    async fn only_the_first_connection_over_a_device_has_less_time() {
        let inner = Iwarp::default();
        let mut listener = inner.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr();
        let timeouts = Arc::new(Timeouts {
            inner,
            seen: Mutex::default(),
        });
        let limit = Duration::from_secs(3);
        let first = FirstWithin::new(timeouts.clone(), limit);
        let long = Duration::from_secs(10);
        let options = QpOptions::default().with_setup_timeout(long);
        let nobody = first.connect("127.0.0.1:1".parse().unwrap(), &options, &[], Vec::new());
        assert!(nobody.await.is_err());
        for _ in 0..2 {
            let accepting = async {
                let mut incoming = listener.accept().await.unwrap();
                incoming.request(long).await.unwrap();
                incoming.accept(&options, &[], Vec::new()).await.unwrap()
            };
            let connecting = first.connect(addr, &options, &[], Vec::new());
            let (_accepted, connected) = tokio::join!(accepting, connecting);
            connected.map(drop).unwrap();
        }
        assert_eq!(*timeouts.seen.lock().unwrap(), [limit, limit, long]);
    }
}
