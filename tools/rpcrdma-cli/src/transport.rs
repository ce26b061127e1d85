//! Chooses and configures the provider.

use crate::devices;
use crate::failure::Usage;
use crate::units;
use anyhow::bail;
use clap::{Args, ValueEnum};
use rpcrdma::{Design, InlineThreshold, Spin, Versions};
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Arc;
use verbs::{BoxFuture, Listener, Provider, SetupError, WrapProvider};
use verbs_ibv::Ibv;
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// What is to be said of a device for a provider that uses none.
const NEEDS_VERBS: &str = "--device needs --provider verbs";

/// What is to be said of a choice that only a client can make.
const NOT_FOR_SERVE: &str =
    "--provider auto is for clients; serve listens over --provider iwarp or verbs";

/// Options of everything that makes or takes in connections.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct TransportArgs {
    /// RDMA provider
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    provider: ProviderName,

    /// The only RDMA device to use, as `rpcrdma devices` names it [default: the one that has the IP address
    /// at this end]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// CRC32C of each frame; `strict` verifies before placing data in memory, at the cost of a copy
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    crc: Crc,

    /// Same as --crc=off: do not request CRC; it is still used if the peer requests it
    #[arg(long, conflicts_with = "crc")]
    no_crc: bool,

    /// RPC-over-RDMA version: `auto` offers version two (which has no RFC) and falls back to
    /// version one; `serve` then accepts both
    #[arg(long, value_enum, default_value_t, value_name = "VERSION")]
    rpcrdma_version: VersionName,

    /// Maximum number of calls in flight on each connection
    #[arg(long, default_value_t = 128, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MAX_CREDITS))]
    pub(crate) credits: u32,

    /// Inline threshold: largest message sent without RDMA Read or Write, 1 KiB to 256 KiB
    /// [default: 4 KiB; 8 KiB from server to client]
    #[arg(long, value_name = "SIZE", value_parser = units::size_within::<usize>(INLINE_SIZES))]
    inline_size: Option<usize>,

    /// Remote invalidation: `on` (per_connection), `off` (for hardware that announces it but
    /// fails), or a comma-separated list of designs, best first: per_version, per_connection,
    /// fixed, per_call, per_call_several, inter_call. A client offers the list; `serve` selects its
    /// first design that is offered. All but per_connection need version two at both ends
    #[arg(long, visible_alias = "invalidation", default_value = "on", value_name = "HOW",
        value_parser = invalidation)]
    remote_invalidation: Invalidation,

    /// How to wait for data
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    spin: SpinName,
}

/// Most credits that can be asked for or granted.
const MAX_CREDITS: i64 = 1024;

/// Inline thresholds that can be asked for, in bytes.
const INLINE_SIZES: RangeInclusive<u64> =
    InlineThreshold::MIN.bytes() as u64..=InlineThreshold::MAX.bytes() as u64;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ProviderName {
    /// Software iWARP over TCP: needs no hardware, works with siw of Linux
    #[default]
    Iwarp,
    /// An RDMA device of this machine, in hardware or in software (rxe, siw), through rdma-core
    Verbs,
    /// A device for InfiniBand or RoCE where it reaches the server, else software iWARP; not for `serve`
    Auto,
}

/// The providers with which a client tries to reach a server.
pub(crate) struct Providers {
    /// RDMA devices that are tried before the other provider, if there are any.
    pub(crate) devices: Option<Arc<dyn Provider>>,
    /// The provider for all that these do not reach.
    pub(crate) other: Arc<dyn Provider>,
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
    /// What the data moves over, in words.
    fn describe(self) -> &'static str {
        match self {
            Self::Iwarp => "software iWARP over TCP",
            Self::Verbs => "RDMA devices",
            Self::Auto => "RDMA devices, or software iWARP over TCP",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum VersionName {
    #[default]
    Auto,
    #[value(name = "1")]
    One,
    #[value(name = "2")]
    Two,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Crc {
    #[default]
    On,
    Off,
    Strict,
}

/// The designs for remote invalidation that may be used.
#[derive(Clone, Debug)]
pub(crate) struct Invalidation(pub(crate) Vec<Design>);

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SpinName {
    /// Sleep
    Park,
    /// Poll for 50 µs, then sleep
    #[default]
    Adaptive,
    /// Poll: lowest latency, one busy CPU
    Always,
}

/// Designs for remote invalidation, by their names (reminv §4).
pub(crate) fn invalidation(text: &str) -> Result<Invalidation, String> {
    match text {
        "on" => return Ok(Invalidation(vec![Design::PerConnection])),
        "off" | "none" => return Ok(Invalidation(Vec::new())),
        _ => {}
    }
    let design = |name: &str| {
        name.trim()
            .parse()
            .map_err(|error| format!("{name}: {error}"))
    };
    text.split(',')
        .map(design)
        .collect::<Result<_, _>>()
        .map(Invalidation)
}

/// Software iWARP that listens with a socket that listens already.
struct Activated {
    inner: Iwarp,
    socket: TcpListener,
}

impl WrapProvider for Activated {
    type Inner = Iwarp;

    fn inner(&self) -> &Iwarp {
        &self.inner
    }

    fn wrap_listen<'a>(
        &'a self,
        _: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async {
            let socket = self.socket.try_clone()?;
            Ok(self.inner.listen_with(socket)?)
        })
    }
}

impl TransportArgs {
    /// The providers for connections to servers. That there is no device to try is no error.
    ///
    /// # Errors
    ///
    /// Those of [`provider`](Self::provider), if one was chosen.
    pub(crate) fn providers(&self) -> anyhow::Result<Providers> {
        match (self.provider, &self.device) {
            (ProviderName::Auto, None) => Ok(Providers {
                devices: devices::for_auto(),
                other: Arc::new(self.iwarp()),
            }),
            _ => Ok(Providers {
                devices: None,
                other: self.provider()?,
            }),
        }
    }

    /// Whether a server can listen over what was chosen.
    ///
    /// # Errors
    ///
    /// If it is for clients only.
    pub(crate) fn check_server(&self) -> anyhow::Result<()> {
        match self.provider {
            ProviderName::Auto => bail!(Usage(NOT_FOR_SERVE.to_owned())),
            ProviderName::Iwarp | ProviderName::Verbs => Ok(()),
        }
    }

    /// The one provider that was chosen.
    ///
    /// # Errors
    ///
    /// If there is no RDMA device, or it cannot be used; or if a device was named that is not to be used; or if the
    /// choice is left to the connection.
    pub(crate) fn provider(&self) -> anyhow::Result<Arc<dyn Provider>> {
        match (self.provider, &self.device) {
            (ProviderName::Iwarp, None) => Ok(Arc::new(self.iwarp())),
            (ProviderName::Iwarp | ProviderName::Auto, Some(_)) => {
                bail!(Usage(NEEDS_VERBS.to_owned()))
            }
            (ProviderName::Auto, None) => bail!(Usage(NOT_FOR_SERVE.to_owned())),
            (ProviderName::Verbs, device) => {
                let device = device.clone();
                let opened = Ibv::open(verbs_ibv::Config {
                    device,
                    ..verbs_ibv::Config::default()
                });
                Ok(Arc::new(opened.map_err(devices::explain)?))
            }
        }
    }

    /// The same, listening with a socket that listens already.
    ///
    /// # Errors
    ///
    /// Those of [`provider`](Self::provider), and if the provider listens without a socket.
    pub(crate) fn provider_with(&self, socket: TcpListener) -> anyhow::Result<Arc<dyn Provider>> {
        match (self.provider, &self.device) {
            (ProviderName::Iwarp, None) => Ok(Arc::new(Activated {
                inner: self.iwarp(),
                socket,
            })),
            (ProviderName::Iwarp | ProviderName::Auto, Some(_)) => {
                bail!(Usage(NEEDS_VERBS.to_owned()))
            }
            (ProviderName::Auto, None) => bail!(Usage(NOT_FOR_SERVE.to_owned())),
            (ProviderName::Verbs, _) => bail!(
                "--provider verbs cannot listen with a socket of the service manager, which is one of TCP"
            ),
        }
    }

    fn iwarp(&self) -> Iwarp {
        Iwarp::new(Config::default().with_crc(self.crc_mode()))
    }

    fn crc_mode(&self) -> CrcMode {
        match self.crc {
            _ if self.no_crc => CrcMode::Off,
            Crc::On => CrcMode::On,
            Crc::Off => CrcMode::Off,
            Crc::Strict => CrcMode::Strict,
        }
    }

    /// What moves the data, and its integrity checks, in words.
    pub(crate) fn describe(&self) -> String {
        let provider = self.provider.describe();
        let crc = match (self.provider, self.crc_mode()) {
            // Devices have integrity checks of their own. With `auto` it is open whether one is used.
            (ProviderName::Verbs | ProviderName::Auto, _) => return provider.to_owned(),
            (ProviderName::Iwarp, CrcMode::On) => "CRC on",
            (ProviderName::Iwarp, CrcMode::Off) => "CRC off",
            (ProviderName::Iwarp, CrcMode::Strict) => "CRC strict",
        };
        format!("{provider}, {crc}")
    }

    pub(crate) fn versions(&self) -> Versions {
        match self.rpcrdma_version {
            VersionName::Auto => Versions::Auto,
            VersionName::One => Versions::One,
            VersionName::Two => Versions::Two,
        }
    }

    /// The size that was asked for, in both directions, or else the usual one of a direction.
    pub(crate) fn inline_size_or(&self, usual: InlineThreshold) -> InlineThreshold {
        self.inline_size.map_or(usual, InlineThreshold::at_most)
    }

    pub(crate) fn remote_invalidation(&self) -> Vec<Design> {
        self.remote_invalidation.0.clone()
    }

    pub(crate) fn spin(&self) -> Spin {
        match self.spin {
            SpinName::Park => Spin::Park,
            SpinName::Adaptive => Spin::Adaptive,
            SpinName::Always => Spin::Always,
        }
    }
}
