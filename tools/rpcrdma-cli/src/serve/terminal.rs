//! The terminal that a server was started from.

use crate::interrupt::is_ignored;
use rustix::process::Signal;
use std::fs::OpenOptions;

/// The terminal of the process, if the end of the terminal is to be the end of the server.
///
/// Who closes a terminal expects that what runs in it ends, unless it was told by nohup to ignore SIGHUP.
pub(crate) struct Terminal {
    is_followed: bool,
}

impl Terminal {
    /// Looks at the process before it handles signals.
    pub(super) fn at_start() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            is_followed: is_there() && !is_ignored(&status, Signal::HUP),
        }
    }

    /// Whether there was one, and it has been closed.
    pub(crate) fn has_gone(&self) -> bool {
        self.is_followed && !is_there()
    }
}

/// Whether the process has a controlling terminal.
fn is_there() -> bool {
    OpenOptions::new().read(true).open("/dev/tty").is_ok()
}
