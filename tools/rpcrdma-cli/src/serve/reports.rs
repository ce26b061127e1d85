//! Where a running server tells what it does: metrics over HTTP, and the control socket.

use super::control::{self, Control};
use super::listen;
use super::metrics::{self, Metrics};
use super::observed::Observed;
use anyhow::Context;
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where it tells.
#[derive(Args, Clone, Debug)]
pub(super) struct ReportArgs {
    /// Serve Prometheus metrics at http://ADDR:PORT/metrics; a port alone is on 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::parse)]
    pub(super) metrics: Option<SocketAddr>,

    /// Unix socket for `rpcrdma stats` and `rpcrdma clients` [default: control-ADDR:PORT.sock in
    /// the runtime directory of the service, or in the state directory]
    #[arg(long, value_name = "PATH")]
    pub(super) control_socket: Option<PathBuf>,
}

/// What tells of a server, until it is dropped.
pub(super) struct Reports {
    pub(super) observed: Arc<Observed>,
    metrics: Option<Metrics>,
    control: Option<(PathBuf, Control)>,
}

impl Reports {
    /// Tells of a server from now on.
    ///
    /// # Errors
    ///
    /// If it cannot listen where it was told to. Without a control socket in the usual place it goes on.
    pub(super) async fn start(
        args: &ReportArgs,
        observed: Observed,
        state_dir: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let observed = Arc::new(observed);
        let metrics = match args.metrics {
            Some(on) => Some(
                Metrics::start(on, Arc::clone(&observed))
                    .await
                    .map_err(|error| listen::explain(error, on, "--metrics"))?,
            ),
            None => None,
        };
        if let Some(metrics) = &metrics {
            observed.metrics_are_at(metrics.addr);
        }
        let start = |path: &Path| {
            let control = Control::start(path, Arc::clone(&observed))
                .with_context(|| format!("{}: cannot make the control socket", path.display()))?;
            anyhow::Ok((path.to_owned(), control))
        };
        let usual = control::default_path(state_dir, observed.listening());
        let control = match (&args.control_socket, usual) {
            (Some(path), _) => Some(start(path)?),
            (None, Some(path)) => start(&path)
                .inspect_err(|error| {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "nobody can ask for statistics"
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
    pub(super) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|metrics| metrics.addr)
    }

    /// Where the control socket is.
    pub(super) fn control(&self) -> Option<&Path> {
        self.control.as_ref().map(|(path, _)| &**path)
    }
}
