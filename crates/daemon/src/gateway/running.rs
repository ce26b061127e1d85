//! A running gateway: its start, its parts and its end.

use super::check::check_port_of_metrics;
use super::configuration::Configuration;
use super::observed::Observed;
use super::operation::{Operation, status};
use super::pairs::{GatewayOptions, Pair, Pairs};
use super::plan::PairPlan;
use super::retry::Retries;
use super::sockets::Sockets;
use crate::end::End;
use crate::errors::check_none;
use crate::heap;
use crate::reports::{ReportPlaces, Reports};
use crate::signals::Signals;
use crate::systemd;
use anyhow::anyhow;
use nfs_server::default_state_dir;
use oncrpc::Chain;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Reason for a missing place of the control socket.
pub(super) const NO_HOME: &str = "this user has no home directory";

/// A running gateway. [`run`](Self::run) operates it, and [`shutdown`](Self::shutdown) ends it.
pub struct RunningGateway {
    pairs: Pairs,
    order: Vec<PairPlan>,
    reports: Reports<Observed>,
}

impl RunningGateway {
    /// Starts all pairs. `metrics_setting` names the setting with the address of metrics, for errors.
    ///
    /// # Errors
    ///
    /// If a socket is that of no pair, a pair cannot be started, or metrics or the control socket cannot be where they are to be.
    pub async fn start(
        options: GatewayOptions,
        pairs: Vec<PairPlan>,
        sockets: Sockets,
        places: &ReportPlaces,
        metrics_setting: &str,
    ) -> anyhow::Result<Self> {
        let order = pairs;
        sockets.check(&order)?;
        check_port_of_metrics(&order, (places, metrics_setting))?;
        let mut pairs = Pairs::new(options, sockets);
        let started = pairs.replace(order.clone(), &mut End::never()).await;
        let failed = started.iter().flat_map(|started| &started.failed);
        let failed = failed.map(|failed| anyhow!("{}: {}", failed.plan.listen, failed.why));
        if let Err(error) = check_none(failed.collect()) {
            pairs.end().await;
            return Err(error);
        }
        let observed = Observed::new(&pairs);
        let state_dir = match places.control_socket {
            Some(_) => None,
            None => state_dir(),
        };
        let reports = Reports::start(places, observed, state_dir.as_deref(), metrics_setting);
        match reports.await {
            Ok(reports) => Ok(Self {
                reports,
                pairs,
                order,
            }),
            Err(error) => {
                // With their registrations.
                pairs.end().await;
                Err(error)
            }
        }
    }

    /// The pairs that run, in order.
    pub fn pairs(&self) -> &[Pair] {
        self.pairs.running()
    }

    /// Address of metrics, if they are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.reports.metrics()
    }

    /// Path of the control socket, if there is one.
    pub fn control(&self) -> Option<&Path> {
        self.reports.control()
    }

    /// Runs until `end` is, or the terminal that the gateway was started from is closed: systemd is told that it is ready, and
    /// signals are handled. `configuration` is that of the start, whose file is read again, and `log_statistics` logs. A reload
    /// is left between two of its steps, so that [`shutdown`](Self::shutdown) ends every pair in order.
    pub async fn run(
        &mut self,
        signals: Signals,
        configuration: &Configuration,
        log_statistics: fn(&Observed),
        end: impl Future<Output = ()>,
    ) {
        let observed = &*self.reports.observed;
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(target: "gateway", version, "started: {}", status(&self.pairs, observed));
        systemd::ready(&status(&self.pairs, observed));
        let event_loops = self.pairs.event_loops();
        let mut operation = Operation {
            configuration,
            log_statistics,
            pairs: &mut self.pairs,
            retries: Retries::of(self.order.clone(), Vec::new()),
            observed,
        };
        let mut end = End::at(end);
        tokio::select! {
            () = operation.run(signals, &mut end) => {}
            () = heap::trim_heap(|| observed.connections()) => {}
            () = systemd::feed_watchdog(async || event_loops.respond().await) => {}
        }
    }

    /// Answers the calls in progress, and ends.
    pub async fn shutdown(self) {
        self.pairs.end().await;
    }
}

/// The directory of the control socket by default: made, as a gateway has no other state. Logs that there is none.
fn state_dir() -> Option<PathBuf> {
    if let Some(dir) = systemd::runtime_dir() {
        return Some(dir);
    }
    let Some(dir) = default_state_dir() else {
        warn_of_no_control_socket(NO_HOME);
        return None;
    };
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir);
    match made {
        Ok(()) => Some(dir),
        Err(error) => {
            warn_of_no_control_socket(&format!(
                "cannot create {}: {}",
                dir.display(),
                Chain(&error)
            ));
            None
        }
    }
}

fn warn_of_no_control_socket(why: &str) {
    tracing::warn!(target: "gateway", "{}", no_control_socket(why));
}

/// Warning about a gateway without a control socket, with the reason.
pub(super) fn no_control_socket(why: &str) -> String {
    format!(
        "`rpcrdma stats` and `rpcrdma clients` cannot ask this gateway: {why} (name a place with --control-socket, or \
         control_socket of [gateway])"
    )
}
