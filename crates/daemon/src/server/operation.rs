//! Operation of a running server: signals, reloads, exports that come and go, and periodic work.

use super::advice;
use super::configuration::Configuration;
use super::live_exports::LiveExports;
use super::mounts::MountWatch;
use super::observed::Observed;
use super::running::RunningServer;
use crate::heap;
use crate::signals::{Signals, refresh};
use crate::systemd;
use nfs_client::printable;
use nfs_server::{ExportsBefore, Mount3};
use std::future::pending;
use std::time::Instant;

impl RunningServer {
    /// Serves until the terminal that the server was started from is closed: systemd is told that it is ready, and
    /// signals are handled. `configuration` is that of the start, whose file is read again, and `log_statistics` logs.
    pub async fn run(
        &mut self,
        signals: Signals,
        configuration: &Configuration,
        log_statistics: fn(&Observed),
    ) {
        systemd::ready(&self.exports.status());
        let Self {
            server,
            exports,
            mount_service,
            reports,
            tcp,
            ..
        } = self;
        let tcp_connections = || tcp.as_ref().map_or(0, |tcp| tcp.monitor.open());
        let mut operation = Operation {
            configuration,
            log_statistics,
            exports,
            observed: &reports.observed,
            mount: mount_service,
        };
        tokio::select! {
            () = operation.run(signals) => {}
            () = heap::trim_heap(|| server.stats().connections + tcp_connections()) => {}
            () = systemd::feed_watchdog(async || server.workers_respond().await) => {}
        }
    }
}

/// The parts of a running server that change.
struct Operation<'a> {
    configuration: &'a Configuration,
    log_statistics: fn(&Observed),
    exports: &'a mut LiveExports,
    observed: &'a Observed,
    mount: &'a Mount3,
}

impl Operation<'_> {
    /// Handles signals until the terminal that the server was started from is closed.
    async fn run(&mut self, mut signals: Signals) {
        let mut refresh = refresh();
        let mut mounts = None;
        let mut returned = Box::pin(self.exports.return_of_absent());
        loop {
            if mounts.is_none() && self.exports.depends_on_mounts() {
                mounts = self.watch_mounts();
            }
            let mounted = async {
                match &mounts {
                    Some(mounts) => mounts.changed().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                Some(()) = signals.hangup.recv() => match signals.terminal.has_gone() {
                    true => return,
                    false => self.reload().await,
                },
                Some(()) = signals.statistics.recv() => (self.log_statistics)(self.observed),
                () = mounted => self.look_again().await,
                () = &mut returned => self.look_again().await,
                _ = refresh.tick() => {
                    self.mount.summarise(Instant::now());
                    self.exports.refresh().await;
                }
            }
            returned = Box::pin(self.exports.return_of_absent());
        }
    }

    fn watch_mounts(&self) -> Option<MountWatch> {
        let watch = MountWatch::new();
        if let Err(error) = &watch {
            tracing::warn!(%error, "cannot watch what is mounted");
        }
        watch.ok()
    }

    /// Reads the file again, and serves its exports. A file with an error changes nothing. Listeners stay as they are until a
    /// restart. Whom they let in changes with the list, which they share; connections that are open stay, and each of their calls
    /// is judged by the new list.
    async fn reload(&mut self) {
        let Some(file) = self.configuration.file() else {
            tracing::info!(target: "serve", "there is nothing to read again without --config");
            return;
        };
        let file = file.display();
        systemd::reloading();
        let before = self.exports.exports.before();
        let replaced = match self.configuration.reread() {
            Ok((mut read, changed)) => {
                let exports = std::mem::take(&mut read.exports);
                let replaced = self.exports.replace(exports).await;
                replaced.map(|replaced| (read, changed, replaced))
            }
            Err(error) => Err(error),
        };
        match replaced {
            Ok((read, changed, replaced)) => {
                self.observed.record_reload(Ok(()));
                self.observed.set_exports(self.exports);
                tracing::info!(target: "serve", %file, "exports read again: {replaced}");
                self.release_gone(before);
                advice::warn(
                    self.exports.plans(),
                    self.exports.addresses(),
                    &read.hosts(),
                );
                if !changed.is_empty() {
                    tracing::warn!(
                        target: "serve",
                        "options of [server] have changed that take effect at a restart: {}",
                        changed.join(", ")
                    );
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                self.observed.record_reload(Err(error.clone()));
                tracing::error!(target: "serve", error, "the exports stay as they are");
            }
        }
        systemd::ready(&self.status());
    }

    /// Serves the directories that are there now.
    async fn look_again(&mut self) {
        let before = self.exports.exports.before();
        self.exports.look_again().await;
        self.observed.set_exports(self.exports);
        self.release_gone(before);
        systemd::status(&self.status());
    }

    /// Revokes what NFSv4 clients hold in file systems that are exported no more, so that these can be unmounted.
    fn release_gone(&self, before: ExportsBefore) {
        let revoked = self.observed.nfs4.nfs.exports_replaced(&before);
        if revoked > 0 {
            tracing::info!(
                target: "serve",
                revoked,
                "opens and locks of NFSv4 clients are revoked, as their files are exported no more"
            );
        }
    }

    /// The exports, and the error of the last reload, in a line.
    fn status(&self) -> String {
        let serving = self.exports.status();
        match self.observed.last_reload_error() {
            Some(error) => {
                let error = printable(error.as_bytes());
                format!("{serving}; the last reload failed: {error}")
            }
            None => serving,
        }
    }
}
