//! Where a running server tells what it does: metrics over HTTP, and the control socket.

use super::control::{self, Control};
use super::listen;
use super::metrics::{self, Metrics};
use super::observed::Observed;
use anyhow::{Context, anyhow};
use clap::Args;
use printing::json;
use prometheus::proto::MetricFamily;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What there is to say if there is no control socket where it is to be.
pub(crate) const NO_CONTROL_SOCKET: &str = "cannot make the control socket";

/// Why there is none, in words.
fn explain(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "another process has it: another server of this user at that address, or it is no socket (name another place \
             with --control-socket)"
        ),
        _ => error.into(),
    }
}

/// Where it tells.
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

/// Something that runs and tells of itself.
pub(crate) trait Tells: Send + Sync + 'static {
    /// The first address that it listens at, which names the control socket.
    fn listening(&self) -> SocketAddr;

    /// Its metrics are there.
    fn metrics_are_at(&self, addr: SocketAddr);

    /// What it did so far, as one line of JSON.
    fn stats(&self) -> serde_json::Result<String>;

    /// Its connections, as one line of JSON.
    fn clients(&self) -> serde_json::Result<String>;

    /// Every metric, with its values of this moment.
    fn metrics(&self) -> Vec<MetricFamily>;
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
        metrics::families(&self.snapshot())
    }
}

/// What tells of a server, until it is dropped.
pub(crate) struct Reports<T> {
    pub(crate) observed: Arc<T>,
    metrics: Option<Metrics>,
    control: Option<(PathBuf, Control)>,
}

impl<T: Tells> Reports<T> {
    /// Tells of a server from now on. `metrics_option` names the option or key that says where metrics are.
    ///
    /// # Errors
    ///
    /// If it cannot listen where it was told to. Without a control socket in the usual place it goes on.
    pub(crate) async fn start(
        args: &ReportArgs,
        observed: T,
        state_dir: Option<&Path>,
        metrics_option: &str,
    ) -> anyhow::Result<Self> {
        let observed = Arc::new(observed);
        let metrics = match args.metrics {
            Some(on) => Some(
                Metrics::start(on, Arc::clone(&observed) as Arc<dyn Tells>)
                    .await
                    .map_err(|error| listen::explain(error, on, metrics_option))?,
            ),
            None => None,
        };
        if let Some(metrics) = &metrics {
            observed.metrics_are_at(metrics.addr);
        }
        let start = |path: &Path| {
            let control = Control::start(path, Arc::clone(&observed) as Arc<dyn Tells>)
                .map_err(explain)
                .with_context(|| format!("{}: {NO_CONTROL_SOCKET}", path.display()))?;
            anyhow::Ok((path.to_owned(), control))
        };
        let usual = control::default_path(state_dir, observed.listening());
        let control = match (&args.control_socket, usual) {
            (Some(path), _) => Some(start(path)?),
            (None, Some(path)) => start(&path)
                .inspect_err(|error| {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "`rpcrdma stats` and `rpcrdma clients` cannot ask this process: name another place with \
                         --control-socket"
                    );
                })
                .ok(),
            (None, None) => None,
        };
        Ok(Self {
            observed,
            metrics,
            control,
        })
    }

    /// Where metrics are.
    pub(crate) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.addr)
    }

    /// Where the control socket is.
    pub(crate) fn control(&self) -> Option<&Path> {
        self.control.as_ref().map(|(path, _)| &**path)
    }
}
