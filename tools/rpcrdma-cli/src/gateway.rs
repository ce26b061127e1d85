//! `rpcrdma gateway`: passes NFS on between RDMA and TCP.

mod announce;
mod args;
mod check;
mod circles;
mod config;
mod descriptors;
mod device_answers;
mod event_loops;
mod mount_proxy;
mod observed;
mod over;
mod pairs;
mod plan;
mod prepare;
mod replace;
mod side;
mod sockets;
mod upstream_connector;

use crate::failure::Ended;
use crate::interrupt::Interrupt;
use crate::log;
use crate::serve::operate::{Signals, refresh};
use crate::serve::reports::Reports;
use crate::serve::{memory, systemd};
use announce::Announcement;
#[cfg(test)]
pub(crate) use announce::{CheckLine, Line};
use anyhow::bail;
pub(crate) use args::GatewayArgs;
use args::Settings;
use nfs_client::printable;
use nfs_server::default_state_dir;
use observed::Observed;
use pairs::Pairs;
use sockets::Sockets;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// Runs the command.
pub(crate) async fn run(args: GatewayArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let signals = Signals::listen()?;
    let settings = args.settings()?;
    if args.check {
        return check::check(&settings, args.json).await;
    }
    let sockets = Sockets::take()?;
    sockets.check(&settings.pairs)?;
    let mut pairs = Pairs::new(&settings.args, sockets);
    let started = pairs.replace(settings.pairs.clone()).await;
    if let Some(failed) = started.failed.into_iter().next() {
        pairs.end().await;
        bail!("{}: {}", failed.listen, failed.why);
    }
    let observed = Observed::new(&pairs);
    let state_dir = state_dir();
    let reports = Reports::start(&settings.args.reports, observed, state_dir.as_deref()).await?;
    let announcement = Announcement {
        pairs: pairs.running(),
        crc: settings.args.transport.describe_crc(),
        metrics: reports.metrics(),
        control: reports.control(),
    };
    announce(&announcement, args.json)?;
    systemd::ready(&status(&pairs, &reports.observed));

    let event_loops = pairs.event_loops();
    let mut operation = Operation {
        args: &args,
        settings,
        pairs,
        observed: &reports.observed,
    };
    tokio::select! {
        () = interrupt.wait() => {}
        () = operation.run(signals) => {}
        () = memory::return_what_is_free(|| reports.observed.connections()) => {}
        () = systemd::feed_watchdog(async || event_loops.respond().await) => {}
    }
    systemd::stopping();
    log::tell("letting calls finish; a second interrupt ends at once");
    operation.pairs.end().await;
    Ok(Ended::Well)
}

/// Where the control socket is by default: made, as a gateway has no other state.
fn state_dir() -> Option<PathBuf> {
    let dir = default_state_dir()?;
    if systemd::runtime_dir().is_none() {
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir);
        made.ok()?;
    }
    Some(dir)
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
        [one] => format!("passing {} on to {}", one.plan.listen, one.plan.upstream),
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
            }
        }
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
                self.observed.lacks(replaced.failed);
                if !settings.same_options(&self.settings) {
                    tracing::warn!(
                        target: "gateway",
                        "options of [gateway] have changed: but for allow, provider and device, they take effect at a restart"
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
