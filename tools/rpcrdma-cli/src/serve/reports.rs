//! Options of the reports of a running server or gateway.

use super::families::families;
use super::observed::Observed;
use clap::Args;
use printing::json;
use prometheus::proto::MetricFamily;
use rpcrdma_daemon::metrics;
pub(crate) use rpcrdma_daemon::reports::{NO_CONTROL_SOCKET, ReportPlaces, Reports, Tells};
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

impl Tells for Observed {
    fn listening(&self) -> SocketAddr {
        self.listening()
    }

    fn metrics_are_at(&self, addr: SocketAddr) {
        self.metrics_are_at(addr);
    }

    fn stats(&self) -> serde_json::Result<String> {
        json::line(&self.status())
    }

    fn clients(&self) -> serde_json::Result<String> {
        json::line(&self.clients())
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        families(&self.snapshot())
    }
}
