//! Options of threads and connections of a server or gateway.

use clap::Args;
use printing::units;
use rpcrdma_daemon::config::serving::{MAX_THREADS, ServingSettings};
use std::time::Duration;

/// Options of threads and connections.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServingArgs {
    /// Number of threads that serve connections over RDMA, and of `serve` those over TCP too [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_THREADS))]
    threads: Option<u16>,

    /// Maximum number of client connections, of a gateway those of each pair, if descriptors and memory suffice; one address
    /// gets at most half
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u16).range(1..))]
    max_connections: u16,

    /// Close client connections without a call for this long (0 = never)
    #[arg(long, value_name = "DURATION", default_value = "6m", value_parser = units::parse_duration)]
    idle_timeout: Duration,
}

impl ServingArgs {
    /// The settings.
    pub(crate) fn settings(&self) -> ServingSettings {
        ServingSettings {
            threads: self.threads,
            max_connections: self.max_connections,
            idle_timeout: self.idle_timeout,
        }
    }
}
