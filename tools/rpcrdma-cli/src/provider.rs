//! Chooses the provider: software iWARP, RDMA devices, or both.

use crate::devices::{self, NoDevices};
use crate::failure::Usage;
use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use rpcrdma_daemon::providers::{ProviderChoice, ProviderKind, ProviderSetting, ServerProviders};
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use verbs::{BoxFuture, Listener, Provider, SetupError, WrapProvider};
use verbs_ibv::Ibv;
use verbs_iwarp::Iwarp;

/// Message about a device for a provider that uses none.
const NEEDS_VERBS: &str =
    "--device names an RDMA device, which --provider iwarp does not use: leave one of the two out";

/// Options that choose the provider.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ProviderArgs {
    /// RDMA provider [default: auto, or verbs with --device]
    #[arg(long, value_enum, value_name = "NAME")]
    provider: Option<ProviderName>,

    /// The only RDMA device to use, as `rpcrdma devices` names it [default: the one that has the IP address
    /// at this end]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderName {
    /// Devices for InfiniBand and RoCE, where there are any, and software iWARP: a client tries the
    /// devices first, `serve` and `gateway` listen over both
    Auto,
    /// Software iWARP over TCP: needs no hardware, works with siw of Linux
    Iwarp,
    /// RDMA devices of this machine, in hardware or in software (rxe, siw), through rdma-core
    Verbs,
}

pub(crate) use rpcrdma_daemon::listening::provider_name as name;

impl FromStr for ProviderName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ValueEnum::from_str(text, false).map_err(|_| "write auto, iwarp or verbs".to_owned())
    }
}

/// The providers with which a client tries to reach a server.
#[derive(Clone)]
pub(crate) struct Providers {
    /// RDMA devices that are tried before the other provider, if there are any.
    pub(crate) devices: Option<Arc<dyn Provider>>,
    /// The provider for all that these do not reach.
    pub(crate) other: Arc<dyn Provider>,
    /// Whether that uses RDMA devices.
    pub(crate) other_is_devices: bool,
    /// Why devices that the kernel has are not among them, if programs cannot use these now.
    pub(crate) unusable_devices: Option<String>,
}

impl Providers {
    /// The devices to try for this address. Loopback is left to the other provider, over which a server can tell
    /// whose connection it is.
    pub(crate) fn devices_for(&self, addr: SocketAddr) -> Option<&Arc<dyn Provider>> {
        let devices = self.devices.as_ref();
        devices.filter(|_| !addr.ip().to_canonical().is_loopback())
    }
}

impl ProviderName {
    fn kind(self) -> ProviderKind {
        match self {
            Self::Auto => ProviderKind::Auto,
            Self::Iwarp => ProviderKind::Iwarp,
            Self::Verbs => ProviderKind::Verbs,
        }
    }
}

/// A setting of these values.
pub(crate) fn setting(name: Option<ProviderName>, device: Option<String>) -> ProviderSetting {
    ProviderSetting {
        kind: name.map(ProviderName::kind),
        device,
    }
}

impl ProviderArgs {
    /// The setting that they are.
    pub(crate) fn setting(&self) -> ProviderSetting {
        setting(self.provider, self.device.clone())
    }

    /// The providers that move the data, in words, before it is known where a choice is left.
    pub(crate) fn describe(&self) -> &'static str {
        match self.setting().choice() {
            Some(ProviderChoice::Both(_)) => "RDMA devices, or software iWARP over TCP",
            Some(ProviderChoice::Devices(_)) => "RDMA devices",
            Some(ProviderChoice::Software) | None => "software iWARP over TCP",
        }
    }

    /// The providers for connections to servers, as [`providers`] opens them.
    ///
    /// # Errors
    ///
    /// As those of [`providers`].
    pub(crate) fn providers(&self, software: Iwarp) -> anyhow::Result<Providers> {
        providers(&self.setting(), software)
    }
}

/// The providers of a setting.
fn choice(setting: &ProviderSetting) -> anyhow::Result<ProviderChoice<'_>> {
    let choice = setting.choice();
    choice.ok_or_else(|| Usage(NEEDS_VERBS.to_owned()).into())
}

/// The names of the devices that connections to a server may use, as far as they are known.
pub(crate) fn device_names(setting: &ProviderSetting) -> Vec<String> {
    match choice(setting) {
        Ok(ProviderChoice::Both(device)) => devices::usable_names(device, true),
        Ok(ProviderChoice::Devices(device)) => devices::usable_names(device, false),
        Ok(ProviderChoice::Software) | Err(_) => Vec::new(),
    }
}

/// The providers for connections to servers. That there is no device to try is no error, unless it was named.
/// `software` is software iWARP.
///
/// # Errors
///
/// If the RDMA devices that were asked for cannot be used, or a device was named that is not to be used.
pub(crate) fn providers(setting: &ProviderSetting, software: Iwarp) -> anyhow::Result<Providers> {
    let mut unusable_devices = None;
    let devices = match choice(setting)? {
        ProviderChoice::Software => None,
        ProviderChoice::Devices(device) => {
            return Ok(Providers {
                devices: None,
                other: open(device)?,
                other_is_devices: true,
                unusable_devices: None,
            });
        }
        ProviderChoice::Both(device) => beside_software(device, |why| {
            tracing::debug!("RDMA devices cannot be used: software iWARP is used: {why}");
            unusable_devices = Some(why);
        })?,
    };
    Ok(Providers {
        devices,
        other: Arc::new(software),
        other_is_devices: false,
        unusable_devices,
    })
}

/// The providers over which a server listens at these addresses, some of which have sockets that listen already (`held`).
/// `software` is software iWARP. Loopback is left to it.
///
/// # Errors
///
/// As those of [`providers`]; and if the only provider listens without a socket.
pub(crate) fn server_providers(
    setting: &ProviderSetting,
    software: Iwarp,
    at: &[SocketAddr],
    held: Vec<(SocketAddr, TcpListener)>,
) -> anyhow::Result<ServerProviders> {
    let is_here = at.iter().all(|addr| addr.ip().to_canonical().is_loopback());
    let (first, beside) = match choice(setting)? {
        ProviderChoice::Devices(_) if !held.is_empty() => bail!(
            "--provider verbs cannot listen with a socket of the service manager, which is one of TCP: use \
             --provider auto, which listens with it and over RDMA devices beside it, or disable the unit of the \
             socket"
        ),
        ProviderChoice::Devices(device) => {
            return Ok(ServerProviders {
                first: open(device)?,
                first_is_devices: true,
                beside: None,
                device_names: devices::names_by_address,
            });
        }
        ProviderChoice::Software => (listening(software, held), None),
        ProviderChoice::Both(None) if is_here => (listening(software, held), None),
        ProviderChoice::Both(device) => {
            let beside = beside_software(device, |why| {
                tracing::info!(
                    target: "serve",
                    "listening over software iWARP alone: RDMA devices cannot be used: {why}"
                );
            })?;
            (listening(software, held), beside)
        }
    };
    Ok(ServerProviders {
        first,
        first_is_devices: false,
        beside,
        device_names: devices::names_by_address,
    })
}

/// RDMA devices, or the one that was named.
fn open(device: Option<&str>) -> anyhow::Result<Arc<dyn Provider>> {
    let opened = Ibv::open(verbs_ibv::Config {
        device: device.map(str::to_owned),
        ..verbs_ibv::Config::default()
    });
    let opened = opened.map_err(|error| or_software(devices::explain(error, device)))?;
    Ok(Arc::new(opened))
}

/// Why no RDMA device can be used, and how to do without.
fn or_software(why: anyhow::Error) -> anyhow::Error {
    anyhow!("{why:#}; without --provider verbs and --device, software iWARP is used")
}

/// RDMA devices to use beside software iWARP, or the one that was named. Where those of the kernel cannot be used, the
/// reason is told to `unusable`, unless one was named.
fn beside_software(
    device: Option<&str>,
    unusable: impl FnOnce(String),
) -> anyhow::Result<Option<Arc<dyn Provider>>> {
    match (devices::open_beside_software(device), device) {
        (Ok(devices), _) => Ok(Some(Arc::new(devices))),
        (Err(NoDevices::OnlyIwarp), Some(name)) => bail!(
            "{name} is an iWARP device: --provider auto reaches its peers over software iWARP; use --provider verbs \
             to use it"
        ),
        (Err(NoDevices::Absent), Some(_)) => Err(or_software(devices::none(device))),
        (Err(NoDevices::Unusable(error)), Some(_)) => Err(error),
        (Err(NoDevices::Absent | NoDevices::OnlyIwarp), None) => {
            tracing::debug!("no InfiniBand or RoCE device: software iWARP is used");
            Ok(None)
        }
        (Err(NoDevices::Unusable(error)), None) => {
            unusable(error.to_string());
            Ok(None)
        }
    }
}

/// Software iWARP for a server.
fn listening(software: Iwarp, held: Vec<(SocketAddr, TcpListener)>) -> Arc<dyn Provider> {
    match held.is_empty() {
        true => Arc::new(software),
        false => Arc::new(Activated {
            inner: software,
            held: Mutex::new(held),
        }),
    }
}

/// Software iWARP that listens with sockets that listen already, at the addresses for which there are some, with each once: in
/// several VRFs they may have the same address.
struct Activated {
    inner: Iwarp,
    held: Mutex<Vec<(SocketAddr, TcpListener)>>,
}

impl Activated {
    /// The next socket at an address, if there is one.
    fn take(&self, on: SocketAddr) -> Option<TcpListener> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let at = held.iter().position(|(addr, _)| *addr == on)?;
        Some(held.remove(at).1)
    }
}

impl WrapProvider for Activated {
    type Inner = Iwarp;

    fn inner(&self) -> &Iwarp {
        &self.inner
    }

    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move {
            match self.take(on) {
                Some(socket) => Ok(self.inner.listen_with(socket)?),
                None => self.inner.listen(on).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};
    use socket2::{Domain, Socket, Type};

    /// How options are understood.
    fn chosen(args: &[&str]) -> Result<String, String> {
        let command = ProviderArgs::augment_args(Command::new("x"));
        let matches = command.try_get_matches_from([&["x"], args].concat());
        let args = ProviderArgs::from_arg_matches(&matches.unwrap()).unwrap();
        match choice(&args.setting()) {
            Ok(ProviderChoice::Software) => Ok("software".to_owned()),
            Ok(ProviderChoice::Devices(device)) => Ok(format!("devices {device:?}")),
            Ok(ProviderChoice::Both(device)) => Ok(format!("both {device:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[tokio::test]
    async fn sockets_with_one_address_are_each_listened_with_once() {
        let socket = |at: SocketAddr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&at.into()).unwrap();
            socket.listen(1).unwrap();
            TcpListener::from(socket)
        };
        let first = socket(([127, 0, 0, 1], 0).into());
        let at = first.local_addr().unwrap();
        let provider = Activated {
            inner: Iwarp::new(verbs_iwarp::Config::default()),
            held: Mutex::new(vec![(at, first), (at, socket(at))]),
        };
        for left in [1, 0] {
            let listener = provider.listen(at).await.unwrap();
            assert_eq!(listener.local_addr(), at);
            assert_eq!(provider.held.lock().unwrap().len(), left);
        }
        let elsewhere = provider.listen(([127, 0, 0, 1], 0).into()).await;
        assert_ne!(elsewhere.unwrap().local_addr(), at);
    }

    #[test]
    fn device_that_is_named_alone_is_used_alone() {
        let check = |args: &[&str], expected: &str| {
            assert_eq!(chosen(args).as_deref(), Ok(expected), "{args:?}");
        };
        check(&[], "both None");
        check(&["--provider=auto"], "both None");
        check(&["--provider=iwarp"], "software");
        check(&["--provider=verbs"], "devices None");
        check(&["--device=rxe0"], "devices Some(\"rxe0\")");
        check(
            &["--provider=verbs", "--device=rxe0"],
            "devices Some(\"rxe0\")",
        );
        check(&["--provider=auto", "--device=rxe0"], "both Some(\"rxe0\")");
        let error = chosen(&["--provider=iwarp", "--device=rxe0"]).unwrap_err();
        assert!(
            error.starts_with("--device names an RDMA device"),
            "{error}"
        );
    }
}
