//! `rpcrdma gateway`: passes NFS on between RDMA and TCP.

mod announce;
mod args;
mod check;
mod circles;
mod config;
mod descriptors;
mod device_answers;
mod observed;
mod over;
mod pairs;
mod plan;
mod prepare;
mod replace;
mod retry;
mod sockets;
mod upstream_connector;
mod warnings;

use crate::checks::Checked;
use crate::failure::{self, Ended};
use crate::interrupt::{self, Interrupt};
use crate::log;
use announce::Announcement;
#[cfg(test)]
pub(crate) use announce::{CheckLine, Line};
use anyhow::anyhow;
pub(crate) use args::GatewayArgs;
use args::Settings;
use nfs_client::printable;
use nfs_server::default_state_dir;
use observed::Observed;
use oncrpc::Chain;
use pairs::Pairs;
use replace::Failed;
use retry::retries;
use rpcrdma_daemon::reports::Reports;
use rpcrdma_daemon::signals::{Signals, refresh};
use rpcrdma_daemon::{heap, systemd};
use sockets::Sockets;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use tokio::time::Interval;

/// Why there may be no usual place for the control socket.
const NO_HOME: &str = "this user has no home directory";

/// Runs the command.
pub(crate) async fn run(args: GatewayArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let signals = Signals::listen()?;
    let checked = args.check.wanted(args.config.as_deref())?;
    let (settings, errors) = args.read()?;
    if checked == Some(Checked::All) {
        return check::check(&settings, errors, args.json).await;
    }
    failure::check_none(errors)?;
    if checked == Some(Checked::File) {
        return Ok(Ended::Well);
    }
    let sockets = Sockets::take()?;
    sockets.check(&settings.pairs)?;
    settings.check_port_of_metrics()?;
    let mut pairs = Pairs::new(&settings.args, sockets);
    let started = pairs.replace(settings.pairs.clone()).await;
    let failed = started.failed.iter();
    let failed = failed.map(|failed| anyhow!("{}: {}", failed.plan.listen, failed.why));
    if let Err(error) = failure::check_none(failed.collect()) {
        pairs.end().await;
        return Err(error);
    }
    let observed = Observed::new(&pairs);
    let state_dir = match settings.args.reports.control_socket {
        Some(_) => None,
        None => state_dir(),
    };
    let metrics = settings.args.option("metrics");
    let places = settings.args.reports.places();
    let reports = Reports::start(&places, observed, state_dir.as_deref(), &metrics);
    let reports = reports.await?;
    let announcement = Announcement {
        pairs: pairs.running(),
        crc: settings.args.transport.describe_crc(),
        metrics: reports.metrics(),
        control: reports.control(),
    };
    announce(&announcement, args.json)?;
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(target: "gateway", version, "started: {}", status(&pairs, &reports.observed));
    systemd::ready(&status(&pairs, &reports.observed));

    let event_loops = pairs.event_loops();
    let mut operation = Operation {
        args: &args,
        settings,
        pairs,
        failed: Vec::new(),
        retries: retries(),
        observed: &reports.observed,
    };
    tokio::select! {
        () = interrupt.wait() => {}
        () = operation.run(signals) => {}
        () = heap::trim_heap(|| reports.observed.connections()) => {}
        () = systemd::feed_watchdog(async || event_loops.respond().await) => {}
    }
    systemd::stopping();
    log::tell("letting calls finish; a second interrupt ends at once");
    interrupt::end_server(operation.pairs.end()).await;
    tracing::info!(target: "gateway", "ended");
    Ok(Ended::Well)
}

/// Where the control socket is by default: made, as a gateway has no other state. Says so if there is no such place.
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

/// What there is to say of a gateway without a control socket.
fn no_control_socket(why: &str) -> String {
    format!(
        "`rpcrdma stats` and `rpcrdma clients` cannot ask this gateway: {why} (name a place with --control-socket, or \
         control_socket of [gateway])"
    )
}

/// Says on standard output what is done. A gateway whose output nobody takes does it all the same.
fn announce(announcement: &Announcement<'_>, json: bool) -> anyhow::Result<()> {
    let mut text = match json {
        true => announcement.json()?,
        false => announcement.to_string(),
    };
    text.push('\n');
    let mut out = io::stdout();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::warn!(target: "gateway", %error, "cannot write to standard output");
    }
    Ok(())
}

/// What is done, and whether that is what the file says, in a line.
fn status(pairs: &Pairs, observed: &Observed) -> String {
    let passing = match pairs.running() {
        [one] => {
            let (scheme, at) = (one.plan.listen.scheme.name(), one.listening);
            format!("passing {scheme}://{at} on to {}", one.plan.upstream)
        }
        many => format!("passing {} pairs on", many.len()),
    };
    match observed.last_reload_error() {
        Some(error) => {
            let error = printable(error.as_bytes());
            format!("{passing}; the last reload failed: {error}")
        }
        None => passing,
    }
}

/// A running gateway as its administrator sees it.
struct Operation<'a> {
    /// As on the command line.
    args: &'a GatewayArgs,
    /// As they are in force.
    settings: Settings,
    pairs: Pairs,
    /// Pairs of the file that could not be started so far.
    failed: Vec<Failed>,
    /// When they are tried again.
    retries: Interval,
    observed: &'a Observed,
}

impl Operation<'_> {
    /// Does what signals ask for, until the terminal that the gateway was started from is closed.
    async fn run(&mut self, mut signals: Signals) {
        let mut refresh = refresh();
        loop {
            tokio::select! {
                Some(()) = signals.hangup.recv() => match signals.terminal.has_gone() {
                    true => return,
                    false => self.reload().await,
                },
                Some(()) = signals.statistics.recv() => self.observed.log(),
                _ = refresh.tick() => self.pairs.refresh().await,
                _ = self.retries.tick(), if self.failed.iter().any(Failed::is_retried) => self.retry().await,
            }
        }
    }

    /// Tries pairs again that are not served.
    async fn retry(&mut self) {
        let failed = std::mem::take(&mut self.failed);
        self.failed = self.pairs.start_failed(failed, &self.settings.pairs).await;
        self.observed.still_lacks(self.failed.clone());
        self.observed.runs(&self.pairs);
        systemd::status(&status(&self.pairs, self.observed));
    }

    /// Reads the file again, and does what it says. A file with an error changes nothing.
    async fn reload(&mut self) {
        let Some(file) = self.args.file() else {
            tracing::info!(target: "gateway", "there is nothing to read again without --config");
            return;
        };
        let file = file.display();
        systemd::reloading();
        let pairs = &mut self.pairs;
        match self.args.settings() {
            Ok(settings) => {
                if let Err(error) = pairs.sockets.check(&settings.pairs) {
                    tracing::warn!(target: "gateway", "nobody accepts its connections now: {error:#}");
                }
                let replaced = pairs.replace(settings.pairs.clone()).await;
                tracing::info!(target: "gateway", %file, "pairs read again: {replaced}");
                for failed in &replaced.failed {
                    tracing::error!(target: "gateway", "{failed}");
                }
                let failed = replaced.failed.first().map(ToString::to_string);
                self.observed.was_reloaded(failed.map_or(Ok(()), Err));
                self.failed = replaced.failed;
                self.retries.reset();
                self.observed.lacks(self.failed.clone());
                let changed = settings.changed_options(&self.settings);
                if !changed.is_empty() {
                    tracing::warn!(
                        target: "gateway",
                        "options of [gateway] have changed that take effect at a restart: {}",
                        changed.join(", ")
                    );
                }
                self.settings.pairs = settings.pairs;
            }
            Err(error) => {
                let error = format!("{error:#}");
                self.observed.was_reloaded(Err(error.clone()));
                tracing::error!(target: "gateway", error, "the pairs stay as they are");
            }
        }
        self.observed.runs(&self.pairs);
        systemd::ready(&status(&self.pairs, self.observed));
    }
}
