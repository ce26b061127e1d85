//! The terminal that a server was started from.

use std::fs::OpenOptions;

/// The terminal of the process, if the end of the terminal is to be the end of the server.
///
/// Who closes a terminal expects that what runs in it ends, unless it was told by nohup to ignore SIGHUP.
pub(super) struct Terminal {
    is_followed: bool,
}

impl Terminal {
    /// Looks at the process before it handles signals.
    pub(super) fn at_start() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            is_followed: is_there() && !ignores_hangup(&status),
        }
    }

    /// Whether there was one, and it has been closed.
    pub(super) fn has_gone(&self) -> bool {
        self.is_followed && !is_there()
    }
}

/// Whether the process has a controlling terminal.
fn is_there() -> bool {
    OpenOptions::new().read(true).open("/dev/tty").is_ok()
}

/// Whether SIGHUP is ignored by a process with this status (proc_pid_status(5)).
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // SIGHUP is number 1, and bit 0.
    ignored.is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_hangup_is_seen_in_the_status_of_the_process() {
        let check = |status: &str, ignores| assert_eq!(ignores_hangup(status), ignores, "{status}");
        check("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n", true);
        check("Name:\tx\nSigIgn:\t0000000000001000\nSigCgt:\t1\n", false);
        check("", false);
    }
}
