//! Chooses and configures the provider.

use crate::units;
use clap::{Args, ValueEnum};
use rpcrdma::{Design, InlineThreshold, Spin, Versions};
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Arc;
use verbs::{BoxFuture, Listener, Provider, SetupError, WrapProvider};
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// Options of everything that makes or takes in connections.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct TransportArgs {
    /// What moves the data
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    provider: ProviderName,

    /// CRC32C of each frame: `strict` checks before anything is placed in memory, for one more copy
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    crc: Crc,

    /// The same as --crc=off: no CRC is asked for; it is still used when the peer asks
    #[arg(long, conflicts_with = "crc")]
    no_crc: bool,

    /// Versions of RPC-over-RDMA: `auto` offers version two, which has no RFC, and goes on in version
    /// one where it is turned down; `serve` takes what each client begins with
    #[arg(long, value_enum, default_value_t, value_name = "VERSION")]
    rpcrdma_version: VersionName,

    /// Calls in flight at a time, per connection
    #[arg(long, default_value_t = 128, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MAX_CREDITS))]
    pub(crate) credits: u32,

    /// Largest message that is sent without registered memory: 1 KiB to 256 KiB
    /// [default: 4 KiB, and 8 KiB from server to client]
    #[arg(long, value_name = "SIZE", value_parser = units::size_in::<usize>(INLINE_SIZES))]
    inline_size: Option<usize>,

    /// How replies may take along a handle of memory that their receiver does not need any more: `on`
    /// (per_connection), `off` for hardware that says it can do so and cannot, or designs with commas
    /// between, the best first: per_version, per_connection, fixed, per_call, per_call_several,
    /// inter_call. A client offers them, `serve` takes the first that is offered. What is not given is
    /// not used; all but per_connection need version two, and per_version counts where both ends have
    /// it
    #[arg(long, visible_alias = "invalidation", default_value = "on", value_name = "HOW",
        value_parser = invalidation)]
    remote_invalidation: Invalidation,

    /// What to do while there is nothing to do: look again and again for the least latency, or
    /// let the system wake us
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
    /// Software iWARP over TCP: needs no hardware, and Linux speaks it through siw
    #[default]
    Iwarp,
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
    /// Always wait
    Park,
    /// Look again for 50 µs, then wait
    #[default]
    Adaptive,
    /// Never wait
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
    /// The provider that was chosen.
    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        match self.provider {
            ProviderName::Iwarp => Arc::new(self.iwarp()),
        }
    }

    /// The same, listening with a socket that listens already.
    pub(crate) fn provider_with(&self, socket: TcpListener) -> Arc<dyn Provider> {
        match self.provider {
            ProviderName::Iwarp => Arc::new(Activated {
                inner: self.iwarp(),
                socket,
            }),
        }
    }

    fn iwarp(&self) -> Iwarp {
        Iwarp::new(Config {
            crc: self.crc_mode(),
            ..Config::default()
        })
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
        let provider = match self.provider {
            ProviderName::Iwarp => "software iWARP over TCP",
        };
        let crc = match self.crc_mode() {
            CrcMode::On => "CRC on",
            CrcMode::Off => "CRC off",
            CrcMode::Strict => "CRC strict",
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
