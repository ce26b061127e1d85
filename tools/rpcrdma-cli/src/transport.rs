//! Options of connections: the provider and its configuration, and what to agree on.

use crate::provider::ProviderArgs;
use clap::{Args, ValueEnum};
use printing::units;
use rpcrdma::any::Providers;
use rpcrdma::proto::v2::Dialect;
use rpcrdma::{Design, InlineThreshold, Spin, Versions};
use std::ops::RangeInclusive;
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// Options of everything that makes or takes in connections.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct TransportArgs {
    #[command(flatten)]
    provider: ProviderArgs,

    /// CRC32C of each frame; `strict` verifies before placing data in memory, at the cost of a copy
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    crc: Crc,

    /// Same as --crc=off: do not request CRC; it is still used if the peer requests it
    #[arg(long, conflicts_with = "crc")]
    no_crc: bool,

    /// RPC-over-RDMA version: `auto` offers version two (which has no RFC) to servers that announce
    /// the same draft of it, and uses version one with others; `serve` then accepts both. The draft
    /// is cel-01 with xcharext-02, or ietf-07
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
    /// fixed, per_call, per_call_several, inter_call, per_call_all (only over software iWARP). A
    /// client offers the list; `serve` selects its first design that is offered. All but per_connection need version two at both ends
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
enum VersionName {
    #[default]
    Auto,
    #[value(name = "1")]
    One,
    #[value(name = "2")]
    Two,
    /// Both, and of version two the draft ietf-07.
    #[value(name = "auto:ietf-07")]
    AutoIetf07,
    /// Version two as draft-ietf-nfsv4-rpcrdma-version-two-07 has it.
    #[value(name = "2:ietf-07")]
    TwoIetf07,
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

impl Invalidation {
    /// Whether one of them needs a provider that invalidates several handles with one Send.
    pub(crate) fn needs_several(&self) -> bool {
        self.0.iter().any(|design| design.needs_several())
    }
}

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
    let (mut designs, mut wrong) = (Vec::new(), Vec::new());
    for name in text.split(',').map(str::trim) {
        match name.parse() {
            Ok(design) => designs.push(design),
            Err(error) => wrong.push(format!("'{name}': {error}")),
        }
    }
    match wrong.is_empty() {
        true => Ok(Invalidation(designs)),
        false => Err(wrong.join("; ")),
    }
}

impl TransportArgs {
    /// The providers for connections to servers.
    ///
    /// # Errors
    ///
    /// If the RDMA devices that were asked for cannot be used, or a device was named that is not to be used.
    pub(crate) fn providers(&self) -> anyhow::Result<Providers> {
        self.provider.setting().open(self.iwarp())
    }

    /// The options that choose the provider.
    pub(crate) fn provider(&self) -> &ProviderArgs {
        &self.provider
    }

    /// Software iWARP.
    pub(crate) fn iwarp(&self) -> Iwarp {
        Iwarp::new(self.iwarp_config())
    }

    /// Its configuration, with the extension that one of the designs needs, if that is asked for.
    pub(crate) fn iwarp_config(&self) -> Config {
        Config::default()
            .with_crc(self.crc_mode())
            .with_several_invalidations(self.remote_invalidation.needs_several())
    }

    fn crc_mode(&self) -> CrcMode {
        match self.crc {
            _ if self.no_crc => CrcMode::Off,
            Crc::On => CrcMode::On,
            Crc::Off => CrcMode::Off,
            Crc::Strict => CrcMode::Strict,
        }
    }

    /// Transport of a client's data, in words, before a connection tells.
    pub(crate) fn describe(&self) -> &'static str {
        self.provider.describe()
    }

    /// The integrity checks of software iWARP, in words.
    pub(crate) fn describe_crc(&self) -> &'static str {
        match self.crc_mode() {
            CrcMode::On => "CRC on",
            CrcMode::Off => "CRC off",
            CrcMode::Strict => "CRC strict",
        }
    }

    pub(crate) fn versions(&self) -> Versions {
        match self.rpcrdma_version {
            VersionName::Auto | VersionName::AutoIetf07 => Versions::Auto,
            VersionName::One => Versions::One,
            VersionName::Two | VersionName::TwoIetf07 => Versions::Two,
        }
    }

    /// The draft of version two.
    pub(crate) fn dialect(&self) -> Dialect {
        match self.rpcrdma_version {
            VersionName::Auto | VersionName::One | VersionName::Two => Dialect::Cel01,
            VersionName::AutoIetf07 | VersionName::TwoIetf07 => Dialect::Ietf07,
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
