//! Options of the reports of a running server or gateway.

use clap::Args;
use rpcrdma_daemon::metrics;
use rpcrdma_daemon::reports::ReportPlaces;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options with the places of reports.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReportArgs {
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics; a port alone is on 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::parse)]
    pub(crate) metrics: Option<SocketAddr>,

    /// Unix socket for `rpcrdma stats` and `rpcrdma clients` [default: control-ADDR:PORT.sock in
    /// the runtime directory of the service, or in the state directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) control_socket: Option<PathBuf>,
}

impl ReportArgs {
    /// The places.
    pub(crate) fn places(&self) -> ReportPlaces {
        ReportPlaces {
            metrics: self.metrics,
            control_socket: self.control_socket.clone(),
        }
    }
}
