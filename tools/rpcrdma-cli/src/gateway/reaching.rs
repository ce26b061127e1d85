//! Connections of a pair to its RDMA server: over devices first, where there are any, and then over software iWARP.

use crate::connect::{self, NotReached, Reached};
use crate::devices;
use crate::provider::{ProviderArgs, Providers};
use gateway::ConnectRdma;
use oncrpc::{Cause, Chain};
use rpcrdma::{Client, ClientConfig};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use verbs::{BoxFuture, SetupError};
use verbs_iwarp::Iwarp;

/// How long devices are not tried for an address that did not answer over them, but over software iWARP. After that one
/// connection tries them, and the others go on without.
const DEVICES_PAUSE: Duration = Duration::from_secs(60);

/// Makes connections over the providers that the kernel has devices for at that time.
pub(super) struct Reaching {
    sources: Box<dyn Sources>,
    state: Mutex<State>,
}

/// Where providers come from.
trait Sources: Send + Sync {
    /// The names of the kernel's devices now.
    fn kernel_devices(&self) -> Vec<String>;

    /// The providers with these devices.
    ///
    /// # Errors
    ///
    /// If the devices that were asked for cannot be used.
    fn open(&self) -> anyhow::Result<Providers>;
}

struct Options {
    args: ProviderArgs,
    software: Iwarp,
}

#[derive(Default)]
struct State {
    opened: Option<Opened>,
    /// Addresses that do not answer over devices, and until when these are not tried there. There are no more of them
    /// than the server has.
    unanswered: HashMap<SocketAddr, Instant>,
}

struct Opened {
    /// The kernel's devices by then.
    devices: Vec<String>,
    providers: Providers,
}

/// No connection to an address of the server.
#[derive(Debug, thiserror::Error)]
enum Unreached {
    #[error("cannot connect to {to}")]
    OverOne { to: SocketAddr, source: SetupError },
    #[error("cannot connect to {to}: {}; over an RDMA device: {}", Chain(.software), Chain(.devices))]
    OverBoth {
        to: SocketAddr,
        software: SetupError,
        devices: SetupError,
    },
    /// In the words of the command.
    #[error("{0}")]
    NoProvider(String),
}

impl Sources for Options {
    fn kernel_devices(&self) -> Vec<String> {
        devices::kernel_devices()
    }

    fn open(&self) -> anyhow::Result<Providers> {
        self.args.providers(self.software.clone())
    }
}

impl Reaching {
    /// Over what these options choose.
    pub(super) fn new(args: ProviderArgs, software: Iwarp) -> Self {
        Self::over(Options { args, software })
    }

    fn over(sources: impl Sources + 'static) -> Self {
        Self {
            sources: Box::new(sources),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The providers to try now for an address. A device that has come or gone since makes them anew.
    fn providers(&self, to: SocketAddr) -> Result<Providers, Unreached> {
        let kernel = self.sources.kernel_devices();
        let mut state = self.lock();
        let is_known = |opened: &Opened| opened.devices == kernel;
        if !state.opened.as_ref().is_some_and(is_known) {
            // What was learnt was learnt of others.
            *state = State::default();
        }
        let opened = match state.opened.take() {
            Some(opened) => opened,
            None => Opened {
                providers: (self.sources.open())
                    .map_err(|error| Unreached::NoProvider(format!("{error:#}")))?,
                devices: kernel,
            },
        };
        let mut providers = state.opened.insert(opened).providers.clone();
        if !state.may_try_devices(to, Instant::now()) {
            providers.devices = None;
        }
        Ok(providers)
    }

    async fn reach(&self, to: SocketAddr, config: ClientConfig) -> Result<Client, Unreached> {
        let providers = self.providers(to)?;
        let tried = providers.devices_for(to).is_some();
        match connect::over_any(&providers, to, config).await {
            Ok(Reached {
                client,
                not_over_devices,
            }) => {
                if tried {
                    let now = Instant::now();
                    self.lock().learn(to, not_over_devices.as_ref(), now);
                }
                Ok(client)
            }
            Err(NotReached {
                error,
                over_devices: Some(devices),
            }) => Err(Unreached::OverBoth {
                to,
                software: error,
                devices,
            }),
            Err(NotReached {
                error,
                over_devices: None,
            }) => Err(Unreached::OverOne { to, source: error }),
        }
    }
}

impl ConnectRdma for Reaching {
    fn connect(
        &self,
        to: SocketAddr,
        config: ClientConfig,
    ) -> BoxFuture<'_, Result<Client, Cause>> {
        Box::pin(async move { Ok(self.reach(to, config).await?) })
    }
}

impl State {
    /// Whether a connection tries devices. Of those after a pause, the first does.
    fn may_try_devices(&mut self, to: SocketAddr, now: Instant) -> bool {
        match self.unanswered.get_mut(&to) {
            Some(until) if now < *until => false,
            Some(until) => {
                *until = now + DEVICES_PAUSE;
                true
            }
            None => true,
        }
    }

    /// The server was reached, and over devices if there is no error of these. Only what costs time is remembered, and
    /// only of a server that is there: one that is away may come back over devices.
    fn learn(&mut self, to: SocketAddr, over_devices: Option<&SetupError>, now: Instant) {
        match over_devices {
            Some(error) if takes_time(error) => {
                self.unanswered.insert(to, now + DEVICES_PAUSE);
            }
            Some(_) | None => drop(self.unanswered.remove(&to)),
        }
    }
}

/// Whether an error came of waiting in vain.
fn takes_time(error: &SetupError) -> bool {
    match error {
        SetupError::TimedOut(..) => true,
        SetupError::Io(error) => matches!(
            error.kind(),
            ErrorKind::TimedOut | ErrorKind::HostUnreachable
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::tests::{Failing, failing, refused};
    use oncrpc::Programs;
    use rpcrdma::{Server, ServerConfig};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use verbs::{Connected, Provider, QpOptions, WorkRequest, WrapProvider};

    fn timed_out() -> SetupError {
        SetupError::TimedOut("the answer", Duration::from_secs(3))
    }

    fn somewhere() -> SocketAddr {
        "192.0.2.1:20049".parse().unwrap()
    }

    /// Software iWARP by which every address is that of one server.
    struct Leading {
        inner: Iwarp,
        to: SocketAddr,
    }

    impl WrapProvider for Leading {
        type Inner = Iwarp;

        fn inner(&self) -> &Iwarp {
            &self.inner
        }

        fn wrap_connect<'a>(
            &'a self,
            _: SocketAddr,
            options: &'a QpOptions,
            private_data: &'a [u8],
            receives: Vec<WorkRequest>,
        ) -> BoxFuture<'a, Result<Connected, SetupError>> {
            self.inner.connect(self.to, options, private_data, receives)
        }
    }

    /// A kernel whose number of devices changes.
    #[derive(Clone)]
    struct Kernel {
        devices: Arc<AtomicUsize>,
        opened: Arc<AtomicUsize>,
        providers: Providers,
    }

    impl Kernel {
        fn new(device: &Arc<Failing>, software: Arc<dyn Provider>) -> Self {
            Self {
                devices: Arc::new(AtomicUsize::new(1)),
                opened: Arc::default(),
                providers: Providers {
                    devices: Some(Arc::clone(device) as Arc<dyn Provider>),
                    other: software,
                    other_is_devices: false,
                },
            }
        }
    }

    impl Sources for Kernel {
        fn kernel_devices(&self) -> Vec<String> {
            let count = self.devices.load(Relaxed);
            (0..count).map(|number| format!("rxe{number}")).collect()
        }

        fn open(&self) -> anyhow::Result<Providers> {
            self.opened.fetch_add(1, Relaxed);
            Ok(match self.devices.load(Relaxed) {
                0 => Providers {
                    devices: None,
                    ..self.providers.clone()
                },
                _ => self.providers.clone(),
            })
        }
    }

    async fn server() -> Server {
        let here = "127.0.0.1:0".parse().unwrap();
        let service = Arc::new(Programs::new());
        let config = ServerConfig::default().with_workers(0_usize);
        Server::bind(Arc::new(Iwarp::default()), here, service, config)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn device_that_does_not_answer_costs_one_connection_its_time_until_devices_change() {
        let server = server().await;
        let device = failing(timed_out);
        let software = Leading {
            inner: Iwarp::default(),
            to: server.local_addr(),
        };
        let kernel = Kernel::new(&device, Arc::new(software));
        let reaching = Reaching::over(kernel.clone());
        let reach = async || {
            let reached = reaching.reach(somewhere(), ClientConfig::default()).await;
            reached.map(drop).unwrap();
        };
        for _ in 0..3 {
            reach().await;
        }
        assert_eq!((device.asked(), kernel.opened.load(Relaxed)), (1, 1));
        kernel.devices.store(2, Relaxed);
        reach().await;
        assert_eq!((device.asked(), kernel.opened.load(Relaxed)), (2, 2));
        kernel.devices.store(0, Relaxed);
        reach().await;
        assert_eq!((device.asked(), kernel.opened.load(Relaxed)), (2, 3));
    }

    #[tokio::test]
    async fn server_that_is_away_is_tried_over_devices_each_time_and_the_error_names_both() {
        let (device, software) = (failing(timed_out), failing(refused));
        let reaching = Reaching::over(Kernel::new(&device, software.clone()));
        for times in 1..=2 {
            let reached = reaching.reach(somewhere(), ClientConfig::default()).await;
            let error = reached.err().expect("nobody is there").to_string();
            assert_eq!((device.asked(), software.asked()), (times, times));
            let expected = "cannot connect to 192.0.2.1:20049: connection refused; over an RDMA device: the answer did";
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn after_a_pause_one_connection_tries_devices() {
        let (mut state, start, to) = (State::default(), Instant::now(), somewhere());
        assert!(state.may_try_devices(to, start));
        state.learn(to, Some(&timed_out()), start);
        assert!(!state.may_try_devices(to, start));
        let other = "192.0.2.2:20049".parse().unwrap();
        assert!(state.may_try_devices(other, start), "it is another");
        let later = start + DEVICES_PAUSE;
        assert!(state.may_try_devices(to, later));
        assert!(!state.may_try_devices(to, later), "one does already");
        state.learn(to, None, later);
        assert!(state.may_try_devices(to, later), "they are answered");
        // What is refused at once costs nothing.
        state.learn(to, Some(&refused()), later);
        assert!(state.may_try_devices(to, later));
    }
}
