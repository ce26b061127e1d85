//! Settings that servers and gateways have in common about those whom they serve.

use super::keys::{Key, number};
use printing::units;
use rpcrdma::ServerConfig;
use std::time::Duration;

/// Most threads that can be asked for.
pub const MAX_THREADS: i64 = 256;

/// Settings of threads and connections of clients.
#[derive(Clone, Debug)]
pub struct ServingSettings {
    /// Threads that serve connections; by default one for each CPU.
    pub threads: Option<u16>,
    /// Most connections, of a gateway those of each pair, if descriptors and memory suffice.
    pub max_connections: u16,
    /// Time after which a connection without a call is closed; 0 is never.
    pub idle_timeout: Duration,
}

impl Default for ServingSettings {
    fn default() -> Self {
        Self {
            threads: None,
            max_connections: 1024,
            idle_timeout: Duration::from_secs(360),
        }
    }
}

impl ServingSettings {
    /// The keys of a table that has them, in order.
    pub(crate) fn keys() -> [Key<Self>; 3] {
        [
            Key::value("threads", number(1..=MAX_THREADS), |all: &mut Self, n| {
                all.threads = Some(n);
            }),
            Key::value(
                "max_connections",
                number(1..=65_535),
                |all: &mut Self, n| {
                    all.max_connections = n;
                },
            )
            .with_default(),
            Key::value(
                "idle_timeout",
                units::parse_duration,
                |all: &mut Self, time| {
                    all.idle_timeout = time;
                },
            )
            .with_default(),
        ]
    }

    /// Configuration of listeners with these settings.
    pub(crate) fn apply(&self, config: ServerConfig) -> ServerConfig {
        let workers = self.threads.map_or(config.workers, usize::from);
        let idle = (!self.idle_timeout.is_zero()).then_some(self.idle_timeout);
        config
            .with_max_connections(self.max_connections.into())
            .with_idle_timeout(idle)
            .with_workers(workers)
    }
}
