//! Connections of a program that runs for long: over devices first, where there are any, and then over software iWARP.

use super::connect::{ConnectError, Reached};
use super::device_answers::{DeviceAnswers, Turn};
use super::devices;
use super::open_error::OpenError;
use super::options::Options;
use super::providers::Providers;
use crate::{Client, ClientConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// How long devices of the kernel that programs cannot use are not opened again. Their driver may be loaded meanwhile.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// Makes connections over the providers that the kernel has devices for at that time. An address that did not answer over
/// devices is tried over these once a minute, and by one connection at a time.
pub struct Connector {
    source: Arc<dyn ProviderSource>,
    opened: Arc<Mutex<Option<Opened>>>,
    notice: Notice,
}

/// Called with why devices cannot be used.
type Notice = Arc<dyn Fn(&OpenError) + Send + Sync>;

/// Source of providers. Its functions may block.
trait ProviderSource: Send + Sync {
    /// The names of the kernel's devices now.
    fn kernel_devices(&self) -> Vec<String>;

    /// The providers with these devices.
    ///
    /// # Errors
    ///
    /// If the devices that were asked for cannot be used.
    fn open(&self) -> Result<Providers, OpenError>;
}

/// The providers that were opened last.
struct Opened {
    /// The kernel's devices by then.
    devices: Vec<String>,
    providers: Result<Providers, OpenError>,
    /// Answers of servers over these devices.
    answers: Arc<DeviceAnswers>,
    /// When to open devices again that could not be used.
    again: Option<Instant>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The selected providers cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// None of them reaches the address.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Error {
    /// Repair for the user to try, if one is known and not part of the text.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Open(_) => None,
            Self::Connect(error) => error.advice(),
        }
    }
}

impl ProviderSource for Options {
    fn kernel_devices(&self) -> Vec<String> {
        devices::kernel_devices()
    }

    fn open(&self) -> Result<Providers, OpenError> {
        Providers::open(self)
    }
}

impl Opened {
    /// Opens the providers anew. Says why devices cannot be used, if that was not so before.
    fn open(
        source: &dyn ProviderSource,
        devices: Vec<String>,
        (before, notice): (Option<&Self>, &Notice),
        now: Instant,
    ) -> Self {
        let mut opened = Self {
            devices,
            providers: source.open(),
            answers: Arc::default(),
            again: None,
        };
        let unusable = opened.unusable_devices();
        if let Some(why) = unusable
            && before.and_then(Self::unusable_devices) != unusable
        {
            notice(why);
        }
        let is_lasting = opened.providers.is_ok() && unusable.is_none();
        opened.again = (!is_lasting).then(|| now + OPEN_AGAIN);
        opened
    }

    fn unusable_devices(&self) -> Option<&OpenError> {
        let providers = self.providers.as_ref().ok()?;
        providers.unusable_devices()
    }

    /// Whether opening now is likely to give the same.
    fn is_current(&self, devices: &[String], now: Instant) -> bool {
        self.devices == devices && self.again.is_none_or(|again| now < again)
    }
}

impl Connector {
    /// A connector over the selected providers. Nothing is opened before the first connection.
    pub fn new(options: Options) -> Self {
        Self::over(options)
    }

    fn over(source: impl ProviderSource + 'static) -> Self {
        Self {
            source: Arc::new(source),
            opened: Arc::default(),
            notice: Arc::new(|_| ()),
        }
    }

    /// Calls this with why devices that the kernel has cannot be used, when that is found out or changes.
    #[must_use]
    pub fn with_notice(self, notice: impl Fn(&OpenError) + Send + Sync + 'static) -> Self {
        Self {
            notice: Arc::new(notice),
            ..self
        }
    }

    /// The providers to try now, and what is known of servers over their devices. A device that has come or gone since
    /// makes them anew.
    async fn providers(&self, now: Instant) -> Result<(Providers, Arc<DeviceAnswers>), OpenError> {
        // Held by the thread: what it opens is kept when the client leaves.
        let mut opened = Arc::clone(&self.opened).lock_owned().await;
        let source = Arc::clone(&self.source);
        let notice = Arc::clone(&self.notice);
        let found = spawn_blocking(move || {
            let devices = source.kernel_devices();
            let current = match opened.take() {
                Some(current) if current.is_current(&devices, now) => current,
                before => Opened::open(&*source, devices, (before.as_ref(), &notice), now),
            };
            let current = opened.insert(current);
            let answers = Arc::clone(&current.answers);
            (current.providers.clone()).map(|providers| (providers, answers))
        });
        let found = found.await.map_err(|error| OpenError::Aborted {
            reason: error.to_string(),
        });
        found.flatten()
    }

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// If the selected providers cannot be opened, or none of them reaches it.
    pub async fn connect(&self, to: SocketAddr, config: ClientConfig) -> Result<Client, Error> {
        let (mut providers, answers) = self.providers(Instant::now()).await?;
        let turn = match providers.devices_first(to) {
            Some(_) => answers.turn(to).await,
            None => Turn::Without,
        };
        if matches!(turn, Turn::Without) {
            providers.devices = None;
        }
        let has_failed = || {
            if let Turn::First(trial) = &turn {
                trial.has_failed();
            }
        };
        match providers.reach(to, config, has_failed).await {
            Ok(Reached {
                client,
                not_over_devices,
            }) => {
                if !matches!(turn, Turn::Without) {
                    answers.learn(to, not_over_devices.as_ref(), Instant::now());
                }
                Ok(client)
            }
            Err(error) => {
                answers.forget(to);
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::any::connect::tests::{Failing, failing, refused, timed_out};
    use crate::any::device_answers::tests::somewhere;
    use crate::any::providers::tests::without_usable_devices;
    use crate::{Iwarp, Server, ServerConfig};
    use oncrpc::{Chain, Programs};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc;
    use tokio::sync::Notify;
    use verbs::{BoxFuture, Connected, Provider, QpOptions, SetupError, WorkRequest, WrapProvider};

    /// Limit for what takes no time.
    const DEADLINE: Duration = Duration::from_secs(60);

    /// Software iWARP by which every address is that of one server.
    pub(in crate::any) struct Leading {
        pub(in crate::any) inner: Iwarp,
        pub(in crate::any) to: SocketAddr,
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

    /// A device over which the server answers, but for the first connection, which times out when it is told to.
    struct SilentAtFirst {
        inner: Leading,
        asked: AtomicUsize,
        first_came: Notify,
        first_ends: Notify,
    }

    impl WrapProvider for SilentAtFirst {
        type Inner = Leading;

        fn inner(&self) -> &Leading {
            &self.inner
        }

        fn wrap_connect<'a>(
            &'a self,
            to: SocketAddr,
            options: &'a QpOptions,
            private_data: &'a [u8],
            receives: Vec<WorkRequest>,
        ) -> BoxFuture<'a, Result<Connected, SetupError>> {
            Box::pin(async move {
                if self.asked.fetch_add(1, Relaxed) == 0 {
                    self.first_came.notify_one();
                    self.first_ends.notified().await;
                    return Err(timed_out());
                }
                let connected = self.inner.connect(to, options, private_data, receives);
                connected.await
            })
        }
    }

    /// A kernel whose number of devices changes.
    #[derive(Clone)]
    struct Kernel {
        devices: Arc<AtomicUsize>,
        opened: Arc<AtomicUsize>,
        device: Arc<dyn Provider>,
        software: Arc<dyn Provider>,
    }

    impl Kernel {
        fn new(device: Arc<dyn Provider>, software: Arc<dyn Provider>) -> Self {
            Self {
                devices: Arc::new(AtomicUsize::new(1)),
                opened: Arc::default(),
                device,
                software,
            }
        }

        fn opened(&self) -> usize {
            self.opened.load(Relaxed)
        }
    }

    impl ProviderSource for Kernel {
        fn kernel_devices(&self) -> Vec<String> {
            let count = self.devices.load(Relaxed);
            (0..count).map(|number| format!("rxe{number}")).collect()
        }

        fn open(&self) -> Result<Providers, OpenError> {
            self.opened.fetch_add(1, Relaxed);
            let device = Arc::clone(&self.device);
            let device = Some(device).filter(|_| self.devices.load(Relaxed) > 0);
            Ok(Providers::new(Arc::clone(&self.software), device))
        }
    }

    /// A kernel whose devices no program can use.
    #[derive(Clone, Default)]
    struct Unusable {
        opened: Arc<AtomicUsize>,
    }

    impl ProviderSource for Unusable {
        fn kernel_devices(&self) -> Vec<String> {
            vec!["rxe0".to_owned()]
        }

        fn open(&self) -> Result<Providers, OpenError> {
            self.opened.fetch_add(1, Relaxed);
            let software = failing(refused);
            Ok(without_usable_devices(software, OpenError::NoDriver))
        }
    }

    /// A kernel with a device that cannot be used alone. Each attempt waits until it is let go on.
    struct NoDevice {
        opened: Arc<AtomicUsize>,
        go_on: std::sync::Mutex<mpsc::Receiver<()>>,
    }

    impl ProviderSource for NoDevice {
        fn kernel_devices(&self) -> Vec<String> {
            vec!["rxe0".to_owned()]
        }

        fn open(&self) -> Result<Providers, OpenError> {
            self.opened.fetch_add(1, Relaxed);
            let go_on = self.go_on.lock().unwrap();
            go_on.recv_timeout(DEADLINE).unwrap();
            Err(OpenError::NoDriver)
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

    fn leading(server: &Server) -> Leading {
        Leading {
            inner: Iwarp::default(),
            to: server.local_addr(),
        }
    }

    async fn reach(connector: &Connector) -> Result<(), Error> {
        let reached = connector
            .connect(somewhere(), ClientConfig::default())
            .await;
        reached.map(drop)
    }

    fn silent_device_and_server(server: &Server) -> (Arc<Failing>, Kernel) {
        let device = failing(timed_out);
        let kernel = Kernel::new(device.clone(), Arc::new(leading(server)));
        (device, kernel)
    }

    #[tokio::test]
    async fn device_that_does_not_answer_costs_one_connection_its_time_until_devices_change() {
        let server = server().await;
        let (device, kernel) = silent_device_and_server(&server);
        let connector = Connector::over(kernel.clone());
        for _ in 0..3 {
            reach(&connector).await.unwrap();
        }
        assert_eq!((device.asked(), kernel.opened()), (1, 1));
        kernel.devices.store(2, Relaxed);
        reach(&connector).await.unwrap();
        assert_eq!((device.asked(), kernel.opened()), (2, 2));
        kernel.devices.store(0, Relaxed);
        reach(&connector).await.unwrap();
        assert_eq!((device.asked(), kernel.opened()), (2, 3));
    }

    #[tokio::test]
    async fn connections_at_the_same_time_ask_a_device_that_does_not_answer_once() {
        let server = server().await;
        let (device, kernel) = silent_device_and_server(&server);
        let connector = Connector::over(kernel);
        let one = || reach(&connector);
        let (a, b, c, d) = tokio::join!(one(), one(), one(), one());
        for reached in [a, b, c, d] {
            reached.unwrap();
        }
        assert_eq!(device.asked(), 1);
    }

    #[tokio::test]
    async fn connections_at_the_same_time_are_all_over_a_device_that_answers() {
        let server = server().await;
        let software = failing(refused);
        let kernel = Kernel::new(Arc::new(leading(&server)), software.clone());
        let connector = Connector::over(kernel);
        let one = || reach(&connector);
        let (a, b, c) = tokio::join!(one(), one(), one());
        for reached in [a, b, c] {
            reached.unwrap();
        }
        assert_eq!(software.asked(), 0);
    }

    #[tokio::test]
    async fn what_an_attempt_learns_of_devices_is_not_held_against_later_ones() {
        let server = server().await;
        let device = Arc::new(SilentAtFirst {
            inner: leading(&server),
            asked: AtomicUsize::new(0),
            first_came: Notify::new(),
            first_ends: Notify::new(),
        });
        let kernel = Kernel::new(device.clone(), Arc::new(leading(&server)));
        let connector = Connector::over(kernel.clone());
        let devices_change = async {
            device.first_came.notified().await;
            kernel.devices.store(2, Relaxed);
            reach(&connector).await.unwrap();
            device.first_ends.notify_one();
        };
        let (first, ()) = tokio::join!(reach(&connector), devices_change);
        first.unwrap();
        reach(&connector).await.unwrap();
        assert_eq!(device.asked.load(Relaxed), 3);
    }

    #[tokio::test]
    async fn server_that_is_away_is_tried_over_devices_each_time_and_the_error_names_both() {
        let (device, software) = (failing(timed_out), failing(refused));
        let connector = Connector::over(Kernel::new(device.clone(), software.clone()));
        for times in 1..=2 {
            let error = reach(&connector).await.unwrap_err();
            let error = Chain(&error).to_string();
            assert_eq!((device.asked(), software.asked()), (times, times));
            let expected = "cannot connect to 192.0.2.1:20049 over an RDMA device: the answer did";
            assert!(error.starts_with(expected), "{error}");
            assert!(
                error.ends_with("; over software iWARP: connection refused"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn server_that_goes_away_is_tried_over_devices_again() {
        let server = server().await;
        let (device, kernel) = silent_device_and_server(&server);
        let connector = Connector::over(kernel);
        reach(&connector).await.unwrap();
        server.shutdown().await;
        reach(&connector).await.unwrap_err();
        assert_eq!(device.asked(), 1, "it was silent a moment ago");
        reach(&connector).await.unwrap_err();
        assert_eq!(device.asked(), 2);
    }

    #[tokio::test]
    async fn devices_that_cannot_be_used_are_opened_again_after_a_pause_and_reported_once() {
        let kernel = Unusable::default();
        let reported = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reported);
        let connector = Connector::over(kernel.clone()).with_notice(move |why| {
            assert_eq!(*why, OpenError::NoDriver);
            counter.fetch_add(1, Relaxed);
        });
        let start = Instant::now();
        for (after, times) in [(Duration::ZERO, 1), (OPEN_AGAIN / 2, 1), (OPEN_AGAIN, 2)] {
            connector.providers(start + after).await.map(drop).unwrap();
            assert_eq!(kernel.opened.load(Relaxed), times, "after {after:?}");
        }
        assert_eq!(reported.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn event_loop_goes_on_while_devices_are_opened_and_a_failure_is_not_repeated_at_once() {
        let (release, go_on) = mpsc::channel();
        let opened = Arc::new(AtomicUsize::new(0));
        let connector = Connector::over(NoDevice {
            opened: Arc::clone(&opened),
            go_on: std::sync::Mutex::new(go_on),
        });
        let goes_on = async { release.send(()).unwrap() };
        let (one, other, ()) = tokio::join!(reach(&connector), reach(&connector), goes_on);
        for reached in [one, other] {
            let error = reached.unwrap_err();
            assert!(matches!(error, Error::Open(OpenError::NoDriver)), "{error}");
        }
        assert_eq!(opened.load(Relaxed), 1);
    }
}
