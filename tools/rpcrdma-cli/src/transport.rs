//! Options of connections: the provider and its configuration, and what to agree on.

use crate::provider::ProviderArgs;
use crate::words::word;
use clap::Args;
use printing::units;
use rpcrdma::any::Providers;
use rpcrdma::{Design, Spin};
use rpcrdma_daemon::config::connections::{ConnectionSettings, INLINE_SIZES, MAX_CREDITS};
use rpcrdma_daemon::config::words::VersionSetting;
use verbs_iwarp::{CrcMode, Iwarp};

pub(crate) use rpcrdma_daemon::config::connections::{Invalidation, invalidation};

/// Options of everything that makes or takes in connections.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct TransportArgs {
    #[command(flatten)]
    provider: ProviderArgs,

    /// CRC32C of each frame; `strict` verifies before placing data in memory, at the cost of a copy
    #[arg(long, value_name = "WHEN", value_parser = word::<CrcMode>(), default_value = "on")]
    crc: CrcMode,

    /// Same as --crc=off: do not request CRC; it is still used if the peer requests it
    #[arg(long, conflicts_with = "crc")]
    no_crc: bool,

    /// RPC-over-RDMA version: `auto` offers version two (which has no RFC) to servers that announce
    /// the same draft of it, and uses version one with others; `serve` then accepts both. The draft
    /// is cel-01 with xcharext-02, or ietf-07
    #[arg(long, value_name = "VERSION", value_parser = word::<VersionSetting>(), default_value = "auto")]
    rpcrdma_version: VersionSetting,

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
    #[arg(long, value_name = "HOW", value_parser = word::<Spin>(), default_value = "adaptive")]
    spin: Spin,
}

impl TransportArgs {
    /// The settings that they are.
    pub(crate) fn settings(&self) -> ConnectionSettings {
        ConnectionSettings {
            provider: self.provider.setting(),
            crc: match self.no_crc {
                true => CrcMode::Off,
                false => self.crc,
            },
            version: self.rpcrdma_version,
            credits: self.credits,
            inline_size: self.inline_size,
            remote_invalidation: self.remote_invalidation.clone(),
            spin: self.spin,
        }
    }

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
        Iwarp::new(self.settings().iwarp())
    }

    /// Transport of a client's data, in words, before a connection tells.
    pub(crate) fn describe(&self) -> &'static str {
        self.provider.describe()
    }

    pub(crate) fn remote_invalidation(&self) -> Vec<Design> {
        self.remote_invalidation.0.clone()
    }
}
