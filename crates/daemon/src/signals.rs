//! Signals of an administrator to a running service, and the clock of its periodic work.

use crate::names::REFRESH;
use crate::terminal::Terminal;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Signals to a running service.
#[derive(Debug)]
pub struct Signals {
    /// SIGHUP: reload, or the end of the terminal.
    pub(crate) hangup: Signal,
    /// SIGUSR1: log statistics.
    pub(crate) statistics: Signal,
    /// The terminal of the process.
    pub(crate) terminal: Terminal,
}

impl Signals {
    /// Listens from now on: they do not end the process any more.
    ///
    /// # Errors
    ///
    /// If the system has no room for it.
    pub fn listen() -> std::io::Result<Self> {
        let terminal = Terminal::at_start();
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            statistics: signal(SignalKind::user_defined1())?,
            terminal,
        })
    }
}

/// The times at which names of hosts are looked up again; the first one, at once, is left out.
pub(crate) fn refresh() -> Interval {
    let mut refresh = interval(REFRESH);
    refresh.reset();
    refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
    refresh
}
