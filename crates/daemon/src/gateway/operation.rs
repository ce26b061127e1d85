//! Operation of a running gateway: signals, reloads, pairs that are tried again, and periodic work.

use super::configuration::Configuration;
use super::observed::Observed;
use super::pairs::Pairs;
use super::plan::PairPlan;
use super::replace::Failed;
use crate::signals::{Signals, refresh};
use crate::systemd;
use nfs_client::printable;
use tokio::time::Interval;

/// The parts of a running gateway that change.
pub(super) struct Operation<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) log_statistics: fn(&Observed),
    pub(super) pairs: &'a mut Pairs,
    /// The pairs of the file, in order.
    pub(super) order: Vec<PairPlan>,
    /// Pairs of the file that could not be started so far.
    pub(super) failed: Vec<Failed>,
    /// The times at which they are tried again.
    pub(super) retries: Interval,
    pub(super) observed: &'a Observed,
}

impl Operation<'_> {
    /// Handles signals until the terminal that the gateway was started from is closed.
    pub(super) async fn run(&mut self, mut signals: Signals) {
        let mut refresh = refresh();
        loop {
            tokio::select! {
                Some(()) = signals.hangup.recv() => match signals.terminal.has_gone() {
                    true => return,
                    false => self.reload().await,
                },
                Some(()) = signals.statistics.recv() => (self.log_statistics)(self.observed),
                _ = refresh.tick() => self.pairs.refresh().await,
                _ = self.retries.tick(), if self.failed.iter().any(Failed::is_retried) => self.retry().await,
            }
        }
    }

    /// Tries pairs again that are not served.
    pub(super) async fn retry(&mut self) {
        let failed = std::mem::take(&mut self.failed);
        self.failed = self.pairs.start_failed(failed, &self.order).await;
        self.observed.retry_failed(self.failed.clone());
        self.observed.set_pairs(self.pairs);
        systemd::status(&status(self.pairs, self.observed));
    }

    /// Reads the file again, and runs its pairs. A file with an error changes nothing.
    async fn reload(&mut self) {
        let Some(file) = self.configuration.file() else {
            tracing::info!(target: "gateway", "there is nothing to read again without --config");
            return;
        };
        let file = file.display();
        systemd::reloading();
        let pairs = &mut *self.pairs;
        match self.configuration.reread() {
            Ok((read, changed)) => {
                if let Err(error) = pairs.sockets.check(&read.pairs) {
                    tracing::warn!(target: "gateway", "nobody accepts its connections now: {error:#}");
                }
                let replaced = pairs.replace(read.pairs.clone()).await;
                tracing::info!(target: "gateway", %file, "pairs read again: {replaced}");
                for failed in &replaced.failed {
                    tracing::error!(target: "gateway", "{failed}");
                }
                let failed = replaced.failed.first().map(ToString::to_string);
                self.observed.record_reload(failed.map_or(Ok(()), Err));
                self.failed = replaced.failed;
                self.retries.reset();
                self.observed.set_failed(self.failed.clone());
                if !changed.is_empty() {
                    tracing::warn!(
                        target: "gateway",
                        "options of [gateway] have changed that take effect at a restart: {}",
                        changed.join(", ")
                    );
                }
                self.order = read.pairs;
            }
            Err(error) => {
                let error = format!("{error:#}");
                self.observed.record_reload(Err(error.clone()));
                tracing::error!(target: "gateway", error, "the pairs stay as they are");
            }
        }
        self.observed.set_pairs(self.pairs);
        systemd::ready(&status(self.pairs, self.observed));
    }
}

/// The pairs, and the error of the last reload, in a line.
pub(super) fn status(pairs: &Pairs, observed: &Observed) -> String {
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
