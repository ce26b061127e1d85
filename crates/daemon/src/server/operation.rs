//! Operation of a running server: signals, reloads, exports that come and go, and periodic work.

use super::advice;
use super::live_exports::LiveExports;
use super::mounts::MountWatch;
use super::observed::Observed;
use super::plan::Plan;
use super::running::RunningServer;
use crate::heap;
use crate::signals::{Signals, refresh};
use crate::systemd;
use nfs_client::printable;
use nfs_server::Mount3;
use std::future::pending;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

/// The administrator of a server, for the program that runs it: the file of its options, and its log.
pub trait Administration {
    /// Path of the file; `None` if the options are of a command line.
    fn file(&self) -> Option<&Path>;

    /// Reads the file again.
    ///
    /// # Errors
    ///
    /// If anything in it is wrong. Then the server stays as it is.
    fn reread(&self) -> anyhow::Result<Reread>;

    /// Logs the statistics.
    fn log_statistics(&self, server: &Observed);
}

/// Contents of a file that was read again.
#[derive(Debug)]
pub struct Reread {
    /// The exports, with their rules.
    pub exports: Vec<Plan>,
    /// Addresses of listeners in the file, for warnings about rules.
    pub listen: Vec<IpAddr>,
    /// Names of the options that differ from those in force, and take effect at a restart.
    pub changed: Vec<String>,
}

impl RunningServer {
    /// Serves until the terminal that the server was started from is closed: systemd is told that it is ready, and
    /// signals are handled.
    pub async fn run(&mut self, signals: Signals, administration: &impl Administration) {
        systemd::ready(&self.exports.status());
        let Self {
            server,
            exports,
            mount_service,
            reports,
            ..
        } = self;
        let mut operation = Operation {
            administration,
            exports,
            observed: &reports.observed,
            mount: mount_service,
        };
        tokio::select! {
            () = operation.run(signals) => {}
            () = heap::trim_heap(|| server.stats().connections) => {}
            () = systemd::feed_watchdog(async || server.workers_respond().await) => {}
        }
    }
}

/// The parts of a running server that change.
struct Operation<'a, A> {
    administration: &'a A,
    exports: &'a mut LiveExports,
    observed: &'a Observed,
    mount: &'a Mount3,
}

impl<A: Administration> Operation<'_, A> {
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
                Some(()) = signals.statistics.recv() => self.administration.log_statistics(self.observed),
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

    /// Reads the file again, and serves its exports. A file with an error changes nothing.
    async fn reload(&mut self) {
        let Some(file) = self.administration.file() else {
            tracing::info!(target: "serve", "there is nothing to read again without --config");
            return;
        };
        let file = file.display();
        systemd::reloading();
        let replaced = match self.administration.reread() {
            Ok(mut read) => {
                let exports = std::mem::take(&mut read.exports);
                let replaced = self.exports.replace(exports).await;
                replaced.map(|replaced| (read, replaced))
            }
            Err(error) => Err(error),
        };
        match replaced {
            Ok((read, replaced)) => {
                self.observed.record_reload(Ok(()));
                self.observed.set_exports(self.exports);
                tracing::info!(target: "serve", %file, "exports read again: {replaced}");
                advice::warn(self.exports.plans(), self.exports.addresses(), &read.listen);
                if !read.changed.is_empty() {
                    tracing::warn!(
                        target: "serve",
                        "options of [server] have changed that take effect at a restart: {}",
                        read.changed.join(", ")
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
        self.exports.look_again().await;
        self.observed.set_exports(self.exports);
        systemd::status(&self.status());
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
