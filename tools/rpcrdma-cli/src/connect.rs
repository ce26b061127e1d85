//! Connecting to a server, with errors that say what to do.

use crate::endpoint::{Endpoint, NO_ADDRESS};
use crate::provider::Providers;
use crate::transport::TransportArgs;
use anyhow::{Context, anyhow};
use clap::Args;
use printing::units;
use rpcrdma::{Client, ClientConfig, PersistentArguments};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use verbs::{BoxFuture, Connected, Provider, QpOptions, SetupError, WorkRequest, WrapProvider};

/// Options of everything that connects to a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    pub(crate) transport: TransportArgs,

    /// Fail a call after this time
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = units::parse_duration,
        help_heading = "Connection")]
    pub(crate) timeout: Duration,

    /// Number of connections to the server; calls are spread over them
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Connection",
        value_parser = clap::value_parser!(u8).range(1..=MAX_CONNECTIONS))]
    pub(crate) nconnect: u8,

    /// Copy arguments up to this size into memory that stays registered, one buffer for each
    /// credit. The server can read the previous content. Remote invalidation then needs
    /// per_call, per_call_several or per_call_all
    #[arg(long, value_name = "SIZE", help_heading = "Connection",
        value_parser = units::size_within::<u32>(1..=MAX_PERSISTENT))]
    persistent_memory: Option<u32>,

    /// Register all memory of a call under one handle, which one invalidation ends. Only over
    /// software iWARP; it has no effect over RDMA devices
    #[arg(long, help_heading = "Connection")]
    one_region: bool,
}

/// Most bytes of arguments that are copied.
const MAX_PERSISTENT: u64 = 1 << 20;

/// Time for connection setup over a device, if another provider can be tried after it.
pub(crate) const DEVICE_SETUP: Duration = Duration::from_secs(3);

/// Most connections that can be asked for.
const MAX_CONNECTIONS: i64 = rpcrdma::MAX_CONNECTIONS as i64;

impl ConnectArgs {
    fn config(&self) -> ClientConfig {
        let usual = ClientConfig::default();
        let config = self.transport.settings().client();
        let mut config = config
            .with_connections(self.nconnect.into())
            .with_version_timeout(usual.version_timeout.min(self.timeout))
            .with_one_region(self.one_region)
            .with_call_timeout(self.timeout)
            .with_setup_timeout(usual.setup_timeout.min(self.timeout));
        config.persistent_arguments = self.persistent_memory.map(|bytes| PersistentArguments {
            regions: self.transport.credits as usize,
            bytes: bytes as usize,
        });
        config
    }

    /// Connects to the first address of the server that answers, and says which it is.
    ///
    /// # Errors
    ///
    /// What was wrong with the last of them, and what to do about it.
    pub(crate) async fn connect(&self, server: &Endpoint) -> anyhow::Result<(Client, SocketAddr)> {
        self.connect_for(server, server).await
    }

    /// The same for something on the server, such as a URL, which errors name.
    ///
    /// # Errors
    ///
    /// As those of [`connect`](Self::connect).
    pub(crate) async fn connect_for(
        &self,
        server: &Endpoint,
        what: &(impl Display + ?Sized),
    ) -> anyhow::Result<(Client, SocketAddr)> {
        let connected = self.connect_to(server).await;
        connected.with_context(|| what.to_string())
    }

    async fn connect_to(&self, server: &Endpoint) -> anyhow::Result<(Client, SocketAddr)> {
        let addrs = server.addresses().await?;
        let providers = self.transport.providers()?;
        let mut last = anyhow!(NO_ADDRESS);
        for addr in addrs {
            match connect_over(&providers, addr, self.config()).await {
                Ok(client) => return Ok((client, addr)),
                Err(error) => {
                    last = match server.is(addr) {
                        true => error,
                        // A host may have several.
                        false => error.context(addr),
                    };
                }
            }
        }
        Err(last)
    }
}

/// A connection over one of several providers.
pub(crate) struct Reached {
    pub(crate) client: Client,
    /// Why it is not over the devices that were tried before.
    pub(crate) not_over_devices: Option<SetupError>,
}

/// Why there is no connection over any provider.
pub(crate) struct NotReached {
    pub(crate) error: SetupError,
    /// The same of the devices that were tried before, if there is something to repair about these.
    pub(crate) over_devices: Option<SetupError>,
}

/// Connects over a device, if there are any to try, or else over the other provider, and says what was wrong with those
/// that were tried before. `devices_failed` is called before the other provider is tried after them.
///
/// # Errors
///
/// Why it failed over each provider.
pub(crate) async fn over_any(
    providers: &Providers,
    addr: SocketAddr,
    config: ClientConfig,
    devices_failed: impl FnOnce(),
) -> Result<Reached, NotReached> {
    let mut not_over_devices = None;
    if let Some(devices) = providers.devices_for(addr) {
        let devices = Arc::new(FirstWithin::new(devices.clone(), DEVICE_SETUP));
        match Client::connect(devices, addr, config.clone()).await {
            Ok(client) => {
                tracing::debug!(%addr, "connected over an RDMA device");
                return Ok(Reached {
                    client,
                    not_over_devices,
                });
            }
            Err(error) if try_software(addr, &error.source) => {
                tracing::debug!(%addr, error = %error.source, "not over an RDMA device: trying software iWARP");
                devices_failed();
                not_over_devices = Some(error.source);
            }
            Err(error) => {
                return Err(NotReached {
                    error: error.source,
                    over_devices: None,
                });
            }
        }
    }
    match Client::connect(providers.other.clone(), addr, config).await {
        Ok(client) => Ok(Reached {
            client,
            not_over_devices,
        }),
        Err(error) => Err(NotReached {
            error: error.source,
            // Without a device at this end there is nothing to repair.
            over_devices: not_over_devices
                .filter(|error| !matches!(error, SetupError::NoDevice(_))),
        }),
    }
}

/// The same with errors that say what to do.
///
/// # Errors
///
/// Why it failed over each provider, and what to do about it.
async fn connect_over(
    providers: &Providers,
    addr: SocketAddr,
    config: ClientConfig,
) -> anyhow::Result<Client> {
    match over_any(providers, addr, config, || ()).await {
        Ok(reached) => Ok(reached.client),
        Err(NotReached {
            error,
            over_devices: None,
        }) => Err(explain(addr, error)),
        Err(NotReached {
            error,
            over_devices: Some(devices),
        }) => {
            let (error, devices) = (explain(addr, error), explain(addr, devices));
            Err(anyhow!("{error:#}; over an RDMA device: {devices:#}"))
        }
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

/// Whether a connection is made to this address over a provider within this time. It is closed again.
pub(crate) async fn answers(
    provider: &Arc<dyn Provider>,
    addr: SocketAddr,
    limit: Duration,
) -> bool {
    let options = QpOptions::default().with_setup_timeout(limit);
    let connected = provider.connect(addr, &options, &[], Vec::new()).await;
    connected.is_ok()
}

/// Whether software iWARP may find a server that was not found over a device: nobody is there, or a server refuses
/// connections of its own machine over devices, because it cannot tell whose they are.
pub(crate) fn try_software(addr: SocketAddr, error: &SetupError) -> bool {
    match error {
        SetupError::Rejected(_) => socket_owner::is_local(addr),
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

/// Error of setting up a connection, with advice, without the address.
fn explain(addr: SocketAddr, error: SetupError) -> anyhow::Error {
    match error {
        SetupError::Io(error) => explain_io(error),
        SetupError::Rejected(_) => anyhow!(
            "the server refused the connection: this address is not allowed (--allow, or in its \
             file `hosts` of an export or `allow` of a gateway){}, or it has too many connections",
            other_user(addr)
        ),
        SetupError::TimedOut(what, after) => anyhow!(
            "no answer: timed out after {} waiting for {what} (check host and port, that RPC-over-RDMA is \
             served there over the protocol of this end, as --provider and `rpcrdma devices` show it, and that no \
             firewall drops the connection)",
            units::duration(after)
        ),
        error @ SetupError::NotOurProtocol(_) => anyhow!(error),
        other => anyhow!(other).context("cannot connect"),
    }
}

fn explain_io(error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            anyhow!("no server there (start one with `rpcrdma serve DIR`, or check host and port)")
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            anyhow!("this host is unreachable (check the address, and the network)")
        }
        _ => anyhow!(error).context("cannot connect"),
    }
}

/// Why a server of this machine may refuse a connection besides.
fn other_user(addr: SocketAddr) -> &'static str {
    if addr.ip().to_canonical().is_loopback() {
        ", the server runs as another user of this machine"
    } else if socket_owner::is_local(addr) {
        ", the server runs as another user of this machine or takes connections of its own machine over software \
         iWARP only (--provider iwarp)"
    } else {
        ""
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use verbs::{ProtocolMismatch, Reason};
    use verbs_iwarp::{Config, Iwarp};

    /// A provider over which no connection is made.
    pub(crate) struct Failing {
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
            self.asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Err((self.error)()) })
        }
    }

    pub(crate) fn failing(error: fn() -> SetupError) -> Arc<Failing> {
        Arc::new(Failing {
            inner: Iwarp::new(Config::default()),
            error,
            asked: AtomicUsize::new(0),
        })
    }

    impl Failing {
        /// How often it was asked for a connection.
        pub(crate) fn asked(&self) -> usize {
            self.asked.load(Ordering::Relaxed)
        }
    }

    pub(crate) fn refused() -> SetupError {
        io::Error::from(ErrorKind::ConnectionRefused).into()
    }

    /// How often each provider was asked for a connection, devices first, and the error.
    async fn attempts(to: &str, device: fn() -> SetupError) -> (usize, usize, String) {
        let (devices, other) = (failing(device), failing(refused));
        let providers = Providers {
            devices: Some(devices.clone()),
            other: other.clone(),
            other_is_devices: false,
            unusable_devices: None,
        };
        let config = ClientConfig::default();
        let error = connect_over(&providers, to.parse().unwrap(), config).await;
        let error = error.err().expect("no connection is made").to_string();
        (devices.asked(), other.asked(), error)
    }

    #[tokio::test]
    async fn software_is_tried_where_no_device_finds_a_server_and_the_error_names_both() {
        let timed_out = || SetupError::TimedOut("the answer", Duration::from_secs(3));
        for device in [refused, timed_out] {
            let (devices, other, error) = attempts("192.0.2.1:20049", device).await;
            assert_eq!((devices, other), (1, 1), "{error}");
            assert!(error.starts_with("no server there"), "{error}");
            assert!(error.contains("; over an RDMA device: no "), "{error}");
        }
    }

    #[tokio::test]
    async fn address_without_a_device_is_reported_as_without_devices() {
        let no_device = || SetupError::NoDevice(ErrorKind::NotFound.into());
        let (devices, other, error) = attempts("192.0.2.1:20049", no_device).await;
        assert_eq!((devices, other), (1, 1), "{error}");
        assert!(!error.contains("RDMA device"), "{error}");
    }

    #[tokio::test]
    async fn server_that_refuses_over_a_device_is_not_asked_again() {
        let rejected = || SetupError::Rejected(Vec::new());
        let (devices, other, error) = attempts("192.0.2.1:20049", rejected).await;
        assert_eq!((devices, other), (1, 0), "{error}");
        assert!(error.contains("the server refused"), "{error}");
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
        let (devices, other, error) = attempts(&here, rejected).await;
        assert_eq!((devices, other), (1, 1), "{error}");
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
        let inner = Iwarp::new(Config::default());
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

    #[tokio::test]
    async fn loopback_is_not_reached_over_devices() {
        for to in ["127.0.0.1:20049", "[::1]:20049", "[::ffff:127.0.0.1]:20049"] {
            let (devices, other, error) = attempts(to, refused).await;
            assert_eq!((devices, other), (0, 1), "{error}");
        }
    }

    #[test]
    fn refusal_is_reported_with_what_can_be_behind_it() {
        let check = |addr: &str, user: bool| {
            let refused = SetupError::Rejected(Vec::new());
            let text = explain(addr.parse().unwrap(), refused).to_string();
            assert!(text.contains("this address is not allowed"), "{text}");
            assert_eq!(
                text.contains("another user of this machine"),
                user,
                "{text}"
            );
        };
        check("192.0.2.1:20049", false);
        check("127.0.0.1:20049", true);
        check("[::1]:20049", true);
    }

    #[test]
    fn causes_are_reported_with_their_details() {
        let addr = "127.0.0.1:20049".parse().unwrap();
        let text = |error: SetupError| format!("{:#}", explain(addr, error));
        let reset = || io::Error::from(ErrorKind::ConnectionReset);
        let reason = Reason::new(ProtocolMismatch::NoMessage).with_detail(reset());
        assert_eq!(
            text(SetupError::NotOurProtocol(reason)),
            "the peer closed the connection without a message: connection reset"
        );
        assert_eq!(text(reset().into()), "cannot connect: connection reset");
        assert_eq!(
            text(SetupError::NoDevice(reset())),
            "cannot connect: no RDMA device reaches this address: connection reset"
        );
    }

    #[test]
    fn absent_server_is_reported_with_how_to_start_one() {
        let addr = "127.0.0.1:20049".parse().unwrap();
        let refused = std::io::Error::from(ErrorKind::ConnectionRefused);
        let text = explain(addr, SetupError::Io(refused)).to_string();
        assert!(text.starts_with("no server there (start one"), "{text}");
    }
}
