//! The terminal that a server was started from.

use rustix::process::Signal;
use std::fs::OpenOptions;

/// The terminal of the process, if the end of the terminal is to be the end of the server.
///
/// A closed terminal ends the programs in it, unless nohup(1) has them ignore SIGHUP.
#[derive(Debug)]
pub(crate) struct Terminal {
    is_followed: bool,
}

impl Terminal {
    /// Looks at the process before it handles signals.
    pub(crate) fn at_start() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            is_followed: is_there() && !ignores_hangup(&status),
        }
    }

    /// Whether there was one, and it has been closed.
    pub(crate) fn has_gone(&self) -> bool {
        self.is_followed && !is_there()
    }
}

/// Whether a process with this status ignores SIGHUP (proc_pid_status(5)).
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal number 1 is bit 0.
    ignored.is_some_and(|mask| mask >> (Signal::HUP.as_raw() - 1) & 1 != 0)
}

/// Whether the process has a controlling terminal.
fn is_there() -> bool {
    OpenOptions::new().read(true).open("/dev/tty").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_hangup_is_seen_in_the_status_of_the_process() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000000001\n"));
        assert!(!ignores_hangup("SigIgn:\t0000000000000002\n"));
        assert!(!ignores_hangup(""));
    }
}
