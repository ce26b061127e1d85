//! Operation of a running gateway: signals, reloads, pairs that are tried again, and periodic work.

use super::configuration::Configuration;
use super::observed::Observed;
use super::pairs::Pairs;
use super::retry::Retries;
use crate::end::End;
use crate::signals::{Signals, refresh};
use crate::systemd;
use nfs_client::printable;

/// The parts of a running gateway that change.
pub(super) struct Operation<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) log_statistics: fn(&Observed),
    pub(super) pairs: &'a mut Pairs,
    pub(super) retries: Retries,
    pub(super) observed: &'a Observed,
}

impl Operation<'_> {
    /// Handles signals until the end comes, or the terminal that the gateway was started from is closed.
    pub(super) async fn run(&mut self, mut signals: Signals, end: &mut End<'_>) {
        let mut refresh = refresh();
        loop {
            tokio::select! {
                () = end.come() => return,
                Some(()) = signals.hangup.recv() => match signals.terminal.has_gone() {
                    true => return,
                    false => self.reload(end).await,
                },
                Some(()) = signals.statistics.recv() => (self.log_statistics)(self.observed),
                _ = refresh.tick() => {
                    end.before(self.pairs.refresh()).await;
                }
                () = self.retries.due() => self.retry(end).await,
            }
        }
    }

    /// Tries pairs again that are not served.
    pub(super) async fn retry(&mut self, end: &mut End<'_>) {
        self.retries.try_again(self.pairs, end).await;
        let failed = self.retries.failed().to_vec();
        self.observed.retry_failed(failed);
        self.observed.set_pairs(self.pairs);
        systemd::status(&status(self.pairs, self.observed));
    }

    /// Reads the file again, and runs its pairs. A file with an error changes nothing. If the end comes meanwhile, nothing
    /// more is done: all pairs are ended then.
    async fn reload(&mut self, end: &mut End<'_>) {
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
                let Some(replaced) = pairs.replace(read.pairs.clone(), end).await else {
                    return;
                };
                tracing::info!(target: "gateway", %file, "pairs read again: {replaced}");
                for failed in &replaced.failed {
                    tracing::error!(target: "gateway", "{failed}");
                }
                let failed = replaced.failed.first().map(ToString::to_string);
                self.observed.record_reload(failed.map_or(Ok(()), Err));
                self.observed.set_failed(replaced.failed.clone());
                self.retries = Retries::of(read.pairs, replaced.failed);
                if !changed.is_empty() {
                    tracing::warn!(
                        target: "gateway",
                        "options of [gateway] have changed that take effect at a restart: {}",
                        changed.join(", ")
                    );
                }
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
