//! What an administrator asks of a running server: signals, and what is done now and then.

use super::args::ServeArgs;
use super::hints;
use super::mounts::MountWatch;
use super::observed::Observed;
use super::served::Served;
use super::settings::Settings;
use super::terminal::Terminal;
use nfs_client::printable;
use nfs_server::Mount3;
use rpcrdma_daemon::names::REFRESH;
use rpcrdma_daemon::systemd;
use std::future::pending;
use std::time::Instant;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Signals to a running server.
pub(crate) struct Signals {
    pub(crate) hangup: Signal,
    pub(crate) statistics: Signal,
    pub(crate) terminal: Terminal,
}

impl Signals {
    /// Listens from now on: they do not end the process any more.
    ///
    /// # Errors
    ///
    /// If the system does not let us.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let terminal = Terminal::at_start();
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            statistics: signal(SignalKind::user_defined1())?,
            terminal,
        })
    }
}

/// A running server as its administrator sees it.
pub(super) struct Operation<'a> {
    /// As on the command line.
    pub(super) args: &'a ServeArgs,
    /// As they are in force.
    pub(super) settings: Settings,
    pub(super) served: Served,
    pub(super) observed: &'a Observed,
    pub(super) mount: &'a Mount3,
}

impl Operation<'_> {
    /// Does what signals ask for, until the terminal that the server was started from is closed.
    pub(super) async fn run(mut self, mut signals: Signals) {
        let mut refresh = refresh();
        let mut mounts = None;
        let mut returned = Box::pin(self.served.return_of_absent());
        loop {
            if mounts.is_none() && self.served.depends_on_mounts() {
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
                Some(()) = signals.statistics.recv() => self.observed.log(),
                () = mounted => self.look_again().await,
                () = &mut returned => self.look_again().await,
                _ = refresh.tick() => {
                    self.mount.summarise(Instant::now());
                    self.served.refresh().await;
                }
            }
            returned = Box::pin(self.served.return_of_absent());
        }
    }

    fn watch_mounts(&self) -> Option<MountWatch> {
        let watch = MountWatch::new();
        if let Err(error) = &watch {
            tracing::warn!(%error, "cannot watch what is mounted");
        }
        watch.ok()
    }

    /// Reads the file again, and serves what it says. A file with an error changes nothing.
    async fn reload(&mut self) {
        let Some(file) = &self.args.config else {
            tracing::info!(target: "serve", "there is nothing to read again without --config");
            return;
        };
        let file = file.display();
        systemd::reloading();
        let replaced = match self.args.settings() {
            Ok(settings) => {
                let replaced = self.served.replace(settings.plans.clone()).await;
                replaced.map(|replaced| (settings, replaced))
            }
            Err(error) => Err(error),
        };
        match replaced {
            Ok((settings, replaced)) => {
                self.observed.was_reloaded(Ok(()));
                self.observed.serves(&self.served);
                tracing::info!(target: "serve", %file, "exports read again: {replaced}");
                let listen = settings.args.hosts();
                hints::warn(self.served.plans(), self.served.addresses(), &listen);
                let changed = settings.changed_options(&self.settings);
                if !changed.is_empty() {
                    tracing::warn!(
                        target: "serve",
                        "options of [server] have changed that take effect at a restart: {}",
                        changed.join(", ")
                    );
                }
                self.settings.read_again(settings);
            }
            Err(error) => {
                let error = format!("{error:#}");
                self.observed.was_reloaded(Err(error.clone()));
                tracing::error!(target: "serve", error, "the exports stay as they are");
            }
        }
        systemd::ready(&self.status());
    }

    /// Serves what is there now.
    async fn look_again(&mut self) {
        self.served.look_again().await;
        self.observed.serves(&self.served);
        systemd::status(&self.status());
    }

    /// What is served, and whether that is what the file says, in a line.
    fn status(&self) -> String {
        let serving = self.served.status();
        match self.observed.last_reload_error() {
            Some(error) => {
                let error = printable(error.as_bytes());
                format!("{serving}; the last reload failed: {error}")
            }
            None => serving,
        }
    }
}

/// When names of hosts are looked up again; the first time is over.
pub(crate) fn refresh() -> Interval {
    let mut refresh = interval(REFRESH);
    refresh.reset();
    refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
    refresh
}
