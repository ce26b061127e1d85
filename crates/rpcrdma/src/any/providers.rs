//! Open providers, in the order in which they are used.

use super::devices;
use super::open_error::OpenError;
use super::options::{Options, Selection};
use super::sockets::WithSockets;
use crate::ibv::{self, Ibv};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use verbs::Provider;

/// Kind of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// RDMA devices.
    Devices,
    /// Software iWARP.
    Software,
}

/// Providers for connections and listeners: software iWARP with RDMA devices beside it, if there are any, or one of these
/// alone. Clones share them.
#[derive(Clone)]
pub struct Providers {
    main: Arc<dyn Provider>,
    over: Over,
    /// Devices beside software iWARP.
    pub(super) devices: Option<Arc<dyn Provider>>,
    unusable: Option<OpenError>,
}

impl Providers {
    /// Software iWARP, and devices beside it: providers of the caller's in the place of those of this machine.
    pub fn new(software: Arc<dyn Provider>, devices: Option<Arc<dyn Provider>>) -> Self {
        Self {
            main: software,
            over: Over::Software,
            devices,
            unusable: None,
        }
    }

    /// Devices alone: a provider of the caller's in the place of those of this machine.
    pub fn devices_alone(devices: Arc<dyn Provider>) -> Self {
        Self {
            main: devices,
            over: Over::Devices,
            devices: None,
            unusable: None,
        }
    }

    /// Opens the selected providers for connections. Loads the libraries of RDMA if there is a device, which may block for a
    /// moment.
    ///
    /// # Errors
    ///
    /// If devices alone are selected and cannot be used, or the one that is named cannot. That there is no other to use beside
    /// software iWARP is [no error](Self::unusable_devices).
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let software = Arc::new(options.iwarp.clone());
        match &options.selection {
            Selection::Software => Ok(Self::new(software, None)),
            Selection::Devices(device) => open_alone(device.as_deref()),
            Selection::Any(device) => Self::open_both(software, device.as_deref()),
        }
    }

    /// Opens the selected providers for listeners at these addresses. Software iWARP listens with the sockets at theirs, each
    /// once. Devices are left closed if all addresses are of loopback.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and if there are sockets and devices alone are selected.
    pub fn open_to_listen(
        options: &Options,
        at: &[SocketAddr],
        sockets: Vec<(SocketAddr, TcpListener)>,
    ) -> Result<Self, OpenError> {
        let is_here = at.iter().all(|addr| is_loopback(*addr));
        let software = |sockets| WithSockets::over(options.iwarp.clone(), sockets);
        match &options.selection {
            Selection::Devices(_) if !sockets.is_empty() => Err(OpenError::TakesNoSocket),
            Selection::Devices(device) => open_alone(device.as_deref()),
            Selection::Software => Ok(Self::new(software(sockets), None)),
            Selection::Any(None) if is_here => Ok(Self::new(software(sockets), None)),
            Selection::Any(device) => Self::open_both(software(sockets), device.as_deref()),
        }
    }

    fn open_both(software: Arc<dyn Provider>, device: Option<&str>) -> Result<Self, OpenError> {
        let mut all = Self::new(software, None);
        match devices::open_beside_software(device) {
            Ok(devices) => all.devices = Some(Arc::new(devices)),
            Err(OpenError::NoDevice { device: None } | OpenError::OnlyIwarp { device: None }) => {
                tracing::debug!("no InfiniBand or RoCE device: software iWARP is used");
            }
            Err(error) if device.is_none() => {
                tracing::debug!("RDMA devices cannot be used: software iWARP is used: {error}");
                all.unusable = Some(error);
            }
            Err(error) => return Err(error),
        }
        Ok(all)
    }

    /// The same with a provider of the caller's around each, such as one that refuses peers.
    #[must_use]
    pub fn wrapped(self, wrap: impl Fn(Over, Arc<dyn Provider>) -> Arc<dyn Provider>) -> Self {
        Self {
            main: wrap(self.over, self.main),
            devices: self.devices.map(|devices| wrap(Over::Devices, devices)),
            ..self
        }
    }

    /// The provider for every address: software iWARP, or devices alone.
    pub fn main(&self) -> &Arc<dyn Provider> {
        &self.main
    }

    /// Kind of the [main](Self::main) provider.
    pub fn over(&self) -> Over {
        self.over
    }

    /// Devices beside software iWARP, if there are any.
    pub fn devices_beside(&self) -> Option<&Arc<dyn Provider>> {
        self.devices.as_ref()
    }

    /// The devices to try for an address before the [main](Self::main) provider. Loopback is left to software iWARP, over which a
    /// server can tell whose connection it is.
    pub fn devices_first(&self, to: SocketAddr) -> Option<&Arc<dyn Provider>> {
        self.devices.as_ref().filter(|_| !is_loopback(to))
    }

    /// Whether connections can be over RDMA devices.
    pub fn use_devices(&self) -> bool {
        self.over == Over::Devices || self.devices.is_some()
    }

    /// Why devices that the kernel has are not among them, if programs cannot use these now.
    pub fn unusable_devices(&self) -> Option<&OpenError> {
        self.unusable.as_ref()
    }
}

/// Whether an address is one of loopback, as IPv4 or mapped into IPv6.
pub(super) fn is_loopback(addr: SocketAddr) -> bool {
    addr.ip().to_canonical().is_loopback()
}

/// RDMA devices alone, or the one of this name.
fn open_alone(device: Option<&str>) -> Result<Providers, OpenError> {
    let opened = Ibv::open(ibv::Config {
        device: device.map(str::to_owned),
        ..ibv::Config::default()
    });
    let opened = opened.map_err(|error| devices::open_error(error, device))?;
    Ok(Providers::devices_alone(Arc::new(opened)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Iwarp;

    /// Software on a machine with devices that no program can use.
    pub(in crate::any) fn without_usable_devices(
        software: Arc<dyn Provider>,
        why: OpenError,
    ) -> Providers {
        Providers {
            unusable: Some(why),
            ..Providers::new(software, None)
        }
    }

    fn open(
        selection: Selection,
        at: &str,
        sockets: Vec<(SocketAddr, TcpListener)>,
    ) -> Result<Providers, OpenError> {
        let options = Options::new(selection, Iwarp::default());
        Providers::open_to_listen(&options, &[at.parse().unwrap()], sockets)
    }

    #[test]
    fn devices_alone_take_no_socket() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let error = open(Selection::Devices(None), "127.0.0.1:0", vec![(at, socket)]);
        assert_eq!(error.err(), Some(OpenError::TakesNoSocket));
    }

    #[test]
    fn listener_of_loopback_alone_leaves_devices_closed() {
        for at in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let providers = open(Selection::Any(None), at, Vec::new()).unwrap();
            assert!(!providers.use_devices(), "{at}");
            assert_eq!(providers.over(), Over::Software);
            assert_eq!(providers.unusable_devices(), None);
        }
    }

    #[test]
    fn software_is_open_without_a_device() {
        let options = Options::new(Selection::Software, Iwarp::default());
        let providers = Providers::open(&options).unwrap();
        assert!(!providers.use_devices());
    }

    #[test]
    fn each_provider_is_wrapped_once() {
        let software = || Arc::new(Iwarp::default());
        let seen = std::sync::Mutex::new(Vec::new());
        let wrap = |over, inner| {
            seen.lock().unwrap().push(over);
            inner
        };
        let both = Providers::new(software(), Some(software())).wrapped(wrap);
        assert!(both.devices_beside().is_some());
        let alone = Providers::devices_alone(software()).wrapped(wrap);
        assert_eq!(alone.over(), Over::Devices);
        let expected = [Over::Software, Over::Devices, Over::Devices];
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}
